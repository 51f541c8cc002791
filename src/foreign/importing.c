// SPDX-License-Identifier: Apache-2.0
// What the importers of formats write: rows, modules and steps of the trace that they make.
// Neighbours: import.c, which chooses the format; one file for each of them.
#include "foreign/importing.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

usc_status usc_importing_wrong(const usc_importing *im, usc_status st,
                               const char *argument, usc_error *err, const char *format,
                               ...)
{
    char text[USC_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    (void)usc_format_list(text, sizeof text, format, args);
    va_end(args);
    return usc_error_set(err, st, -1, "%.160s: %.100s%s%s: %s", im->file,
                         im->member != NULL ? im->member : "",
                         argument != NULL && *argument != '\0' ? ": " : "",
                         argument != NULL ? argument : "", text);
}

bool usc_importing_stopped(usc_importing *im)
{
    const usc_run_hooks *h = im->hooks;
    if (h == NULL) return false;
    if (h->progress != NULL && im->total > 0)
        h->progress(h->ctx, "importing", im->done, im->total, 0);
    return h->stopped != NULL && h->stopped(h->ctx);
}

/* ---- rows ---- */

static usc_status name_row(usc_keys *keys, const char *name, int64_t *last, int64_t *row,
                           bool *is_new, usc_error *err)
{
    *row = usc_keys_put(keys, usc_key_of(name), *last + 1);
    if (keys->failed) return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", name);
    *is_new = *row == *last + 1;
    *last += *is_new;
    return USC_OK;
}

usc_status usc_importing_module(usc_importing *im, const char *path,
                                const char *class_name, int64_t *out, usc_error *err)
{
    char both[2 * USC_API_NAME];
    bool is_new = false;
    (void)snprintf(both, sizeof both, "%s %s", path, class_name);
    const usc_status st = name_row(&im->modules, both, &im->n_modules, out, &is_new, err);
    if (st != USC_OK || !is_new) return st;
    const usc_module_row row = {*out, path, class_name};
    return usc_trace_put_module(im->trace, &row, err);
}

static usc_status put_op(usc_importing *im, const char *name, int64_t *out,
                         usc_error *err)
{
    bool is_new = false;
    const usc_status st = name_row(&im->ops, name, &im->n_ops, out, &is_new, err);
    if (st != USC_OK || !is_new) return st;
    const usc_op_row row = {*out, name, ""};
    return usc_trace_put_op(im->trace, &row, err);
}

void usc_importing_begin(usc_importing *im, const char *file, const char *member)
{
    usc_writing args = im->call.args;
    im->file = file;
    im->member = member;
    usc_arena_reset(&im->texts);
    if (args.text != NULL) args.text[0] = '\0'; /* none are written of some calls */
    im->call = (usc_import_call){.sequence = im->counts->calls + 1, .args = args};
}

const char *usc_importing_state(usc_importing *im, const char *dumped, int64_t forward,
                                bool of_node)
{
    usc_line text = {0};
    usc_line_text(&text, "{");
    if (forward > 0) usc_line_add(&text, "\"forward\": %lld, ", (long long)forward);
    if (of_node) usc_line_text(&text, "\"gradients\": \"node\", ");
    usc_line_text(&text, "\"dumped\": ");
    usc_line_json(&text, dumped);
    usc_line_text(&text, "}");
    char *out = text.failed ? NULL : usc_arena_take(&im->texts, text.n + 1);
    if (out != NULL) memcpy(out, text.text, text.n + 1);
    im->texts.failed = im->texts.failed || out == NULL;
    usc_line_free(&text);
    return out;
}

bool usc_importing_asks(const usc_importing *im)
{
    for (const usc_import_arg *a = im->call.first; a != NULL; a = a->next)
        if (a->role == USC_ROLE_IN &&
            usc_json_is_true(usc_json_get(a->from, "requires_grad")))
            return true;
    return false;
}

/* Dumps of the first operators call each run forward; one that is an operator of the
 * backward pass says so in its name. */
static usc_phase phase_of(const usc_import_facts *facts)
{
    const bool backward =
        strstr(facts->op, "::") != NULL && strstr(facts->op, "_backward") != NULL;
    return facts->phase == USC_PHASE_FORWARD && backward ? USC_PHASE_BACKWARD
                                                         : facts->phase;
}

usc_status usc_importing_put(usc_importing *im, const usc_import_facts *facts,
                             usc_error *err)
{
    usc_call_row row = {.sequence = im->call.sequence,
                        .step = im->step,
                        .phase = phase_of(facts),
                        .module = facts->module,
                        .stack = facts->stack,
                        .thread = 1,
                        .args = im->call.args.text,
                        .state = facts->state,
                        .status = "ok",
                        /* a Python function stands for the operators that it calls */
                        .composite = strstr(facts->op, "::") == NULL};
    if (im->call.args.failed || im->texts.failed)
        return usc_importing_wrong(im, USC_E_NOMEM, NULL, err, "no memory");
    usc_status st = put_op(im, facts->op, &row.op, err);
    if (st == USC_OK) st = usc_trace_put_call(im->trace, &row, err);
    for (const usc_import_arg *a = im->call.first; st == USC_OK && a != NULL;
         a = a->next) {
        const usc_arg_row arg = {row.sequence, a->role, a->path, a->tensor};
        st = usc_trace_put_arg(im->trace, &arg, err);
    }
    if (st == USC_OK) st = usc_trace_tick(im->trace, err);
    im->counts->calls += st == USC_OK;
    return st;
}

void usc_importing_begin_step(usc_importing *im, int64_t step)
{
    im->step = step;
    im->first_of_step = im->counts->calls + 1;
    usc_keys_free(&im->calls);
    usc_keys_free(&im->stacks);
    usc_keys_free(&im->places);
}

usc_status usc_importing_end_step(usc_importing *im, usc_error *err)
{
    if (im->counts->calls < im->first_of_step) return USC_OK;
    const usc_step_row row = {im->step, im->first_of_step, im->counts->calls, true};
    im->counts->steps++;
    return usc_trace_put_step(im->trace, &row, err);
}
