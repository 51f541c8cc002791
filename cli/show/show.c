// SPDX-License-Identifier: Apache-2.0
// Prints calls of a trace; see show.h.
#include "show/show.h"

#include "cli.h"

#include <string.h>

#include <ulpscope/report.h>

static void put_cell(const char *text, int width)
{
    show_plain(text);
    for (int n = (int)strlen(text); n < width; n++)
        putchar(' ');
}

static void put_shapes(const usc_call *call, usc_role role)
{
    bool first = true;
    for (int i = 0; i < call->n_args; i++) {
        if (call->arg[i].role != role) continue;
        if (!first) fputs(", ", stdout);
        show_shape(&call->arg[i]);
        first = false;
    }
}

void show_head(void)
{
    (void)printf("%6s %4s %-9s %-36s %s\n", "call", "step", "phase", "operator",
                 "arguments -> results  module");
}

static void put_arg(const usc_call_arg *arg)
{
    (void)printf("    %-8s", usc_role_text(arg->role));
    put_cell(show_text_of(arg->path), 14);
    putchar(' ');
    show_shape(arg);
    putchar('\n');
}

static void put_stats(const usc_call_arg *arg)
{
    static const char *const values[] = {"min", "max", "mean", "l2"};
    static const char *const counts[][2] = {{"n_nan", "NaN"},
                                            {"n_pos_inf", "+Inf"},
                                            {"n_neg_inf", "-Inf"},
                                            {"n_zero", "zero"},
                                            {"n_subnormal", "subnormal"}};
    if (arg->stats == NULL) return;
    double v;
    fputs("            ", stdout);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (usc_call_arg_stat(arg, values[i], &v)) (void)printf(" %s %.6g", values[i], v);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (usc_call_arg_stat(arg, counts[i][0], &v) && v > 0)
            (void)printf(", %.0f %s", v, counts[i][1]);
    putchar('\n');
}

void show_line(const usc_call *call, bool stats)
{
    (void)printf("%6lld %4lld %-9s ", (long long)call->sequence, (long long)call->step,
                 show_text_of(call->phase));
    put_cell(show_text_of(call->op), 36);
    putchar(' ');
    put_shapes(call, USC_ROLE_IN);
    fputs(" -> ", stdout);
    put_shapes(call, USC_ROLE_OUT);
    if (show_text_of(call->module_path)[0] != '\0') fputs("  ", stdout);
    show_plain(show_text_of(call->module_path));
    if (strcmp(show_text_of(call->status), "ok") != 0) {
        fputs("  ", stdout);
        show_plain(show_text_of(call->status));
    }
    putchar('\n');
    for (int i = 0; stats && i < call->n_args; i++) {
        put_arg(&call->arg[i]);
        put_stats(&call->arg[i]);
    }
}

static void put_field(const char *name, const char *value)
{
    if (value == NULL || *value == '\0') return;
    (void)printf("%-10s", name);
    show_plain(value);
    putchar('\n');
}

static void put_storage(const usc_call_arg *arg)
{
    (void)printf("             storage %lld, %lld bytes on ", (long long)arg->storage,
                 (long long)arg->storage_bytes);
    show_plain(show_text_of(arg->device));
    (void)printf(", generation %lld", (long long)arg->generation);
    if (arg->writer != 0) (void)printf(" written by call %lld", (long long)arg->writer);
    if (arg->first != 0) (void)printf(", kept from byte %lld on", (long long)arg->first);
    if (arg->blob == 0) fputs(", content not kept", stdout);
    fputs("\n             strides [", stdout);
    for (int i = 0; i < arg->ndim; i++)
        (void)printf("%s%lld", i > 0 ? "," : "", (long long)arg->strides[i]);
    (void)printf("], offset %lld%s\n", (long long)arg->offset,
                 arg->requires_grad ? ", requires grad" : "");
    if (arg->form == NULL) return;
    fputs("             form ", stdout);
    show_plain(arg->form);
    putchar('\n');
}

void show_whole(const usc_call *call)
{
    (void)printf("call      %lld, step %lld, %s, thread %lld, %s\n",
                 (long long)call->sequence, (long long)call->step,
                 show_text_of(call->phase), (long long)call->thread,
                 show_text_of(call->status));
    put_field("operator", call->op);
    put_field("schema", call->schema);
    put_field("module", call->module_path);
    put_field("class", call->module_class);
    if (call->parent != 0)
        (void)printf("%-10scall %lld\n", "inside", (long long)call->parent);
    if (call->n_children > 0)
        (void)printf("%-10s%lld calls below it\n", "composite",
                     (long long)call->n_children);
    show_given(call);
    show_state(call);
    show_stack(call);
    puts("tensors");
    for (int i = 0; i < call->n_args; i++) {
        put_arg(&call->arg[i]);
        put_storage(&call->arg[i]);
        put_stats(&call->arg[i]);
    }
}

/* ---- JSON ---- */

static void json_text(const char *name, const char *text)
{
    cli_put_member(stdout, name, show_text_of(text));
}

/* Text that should be JSON in the trace already; a text in quotes where it is not. */
static void json_raw(const char *name, const char *json)
{
    const bool empty = json == NULL || *json == '\0';
    if (!empty && !show_json_valid(json))
        json_text(name, json);
    else
        (void)printf(", \"%s\": %s", name, empty ? "null" : json);
}

static void json_list(const char *name, const int64_t *values, int n)
{
    (void)printf(", \"%s\": [", name);
    for (int i = 0; i < n; i++)
        (void)printf("%s%lld", i > 0 ? ", " : "", (long long)values[i]);
    putchar(']');
}

static void json_arg(const usc_call_arg *arg)
{
    (void)printf("{\"role\": \"%s\"", usc_role_text(arg->role));
    json_text("path", arg->path);
    json_text("dtype", arg->dtype_name);
    json_list("sizes", arg->sizes, arg->ndim);
    json_list("strides", arg->strides, arg->ndim);
    (void)printf(", \"offset\": %lld, \"tensor\": %lld, \"version\": %lld, \"storage\": "
                 "%lld, \"generation\": %lld, \"blob\": %lld, \"writer\": %lld",
                 (long long)arg->offset, (long long)arg->tensor, (long long)arg->version,
                 (long long)arg->storage, (long long)arg->generation,
                 (long long)arg->blob, (long long)arg->writer);
    json_text("device", arg->device);
    (void)printf(", \"requires_grad\": %s", arg->requires_grad ? "true" : "false");
    json_raw("stats", arg->stats);
    if (arg->form != NULL) json_text("form", arg->form);
    putchar('}');
}

void show_json(const usc_call *call)
{
    (void)printf("{\"call\": %lld, \"step\": %lld", (long long)call->sequence,
                 (long long)call->step);
    json_text("phase", call->phase);
    json_text("op", call->op);
    json_text("module", call->module_path);
    json_text("module_class", call->module_class);
    json_text("status", call->status);
    (void)printf(", \"thread\": %lld, \"parent\": %lld, \"n_children\": %lld",
                 (long long)call->thread, (long long)call->parent,
                 (long long)call->n_children);
    json_raw("args", call->args);
    json_raw("state", call->state);
    json_raw("stack", call->frames);
    fputs(", \"tensors\": [", stdout);
    for (int i = 0; i < call->n_args; i++) {
        if (i > 0) fputs(", ", stdout);
        json_arg(&call->arg[i]);
    }
    puts("]}");
}
