// SPDX-License-Identifier: Apache-2.0
// An export from its beginning to its end: the calls of a trace, step by step, in the
// names and files of another tool.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/number.h"
#include "foreign/exporting.h"

static const usc_export_kind *const kinds[] = {&usc_export_msprobe, &usc_export_ascend_v1,
                                               &usc_export_ditorch};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

const char *usc_export_formats(void)
{
    return "msprobe, ascend-v1, ditorch";
}

static usc_status find_kind(usc_exporting *ex, usc_error *err)
{
    const char *wanted = ex->options->format;
    for (int i = 0; wanted != NULL && i < N_KINDS; i++)
        if (strcmp(kinds[i]->name, wanted) == 0) ex->kind = kinds[i];
    return ex->kind != NULL
               ? USC_OK
               : usc_error_set(err, USC_E_ARG, -1,
                               "there is no format '%.40s'; %s are those of dumps, "
                               "perfetto is a timeline",
                               wanted != NULL ? wanted : "", usc_export_formats());
}

/* ---- calls ---- */

/* A member of the call's state: a number, a text in `text`. */
static void read_state(const usc_exporting *ex, const char *key, int64_t *number,
                       char *text, size_t size)
{
    usc_json *state = NULL;
    usc_error ignored;
    if (ex->call.state == NULL ||
        usc_json_parse(ex->call.state, strlen(ex->call.state), "state", "no JSON", &state,
                       &ignored) != USC_OK)
        return;
    const usc_json *held = usc_json_get(state, key);
    if (number != NULL) (void)usc_json_as_integer(held, number);
    if (text != NULL && usc_json_as_text(held) != NULL)
        (void)usc_format(text, size, "%s", usc_json_as_text(held));
    usc_json_free(state);
}

/* The name that the call had in the dump that it was imported from. */
static bool name_as_dumped(usc_exporting *ex)
{
    char dumped[USC_API_NAME] = "";
    usc_api_name name;
    if (ex->kind->unnumbered) return false;
    read_state(ex, "dumped", NULL, dumped, sizeof dumped);
    if (strchr(dumped, '/') != NULL || !usc_api_name_read(dumped, &name) ||
        name.call[0] == '\0')
        return false;
    (void)usc_format(ex->name, sizeof ex->name, "%s", name.call);
    return true;
}

/* `ex->name` of a call that has that number among those of its name. */
static bool name_as_numbered(usc_exporting *ex, int64_t number)
{
    char name[USC_API_NAME];
    if (!ex->kind->name_of(ex->call.op, name, sizeof name)) return false;
    if (ex->kind->unnumbered)
        (void)usc_format(ex->name, sizeof ex->name, "%s", name);
    else
        (void)usc_format(ex->name, sizeof ex->name, "%s.%lld", name, (long long)number);
    return true;
}

static void leave_out(usc_exporting *ex)
{
    if (ex->counts->nameless++ == 0)
        (void)usc_format(ex->counts->first_nameless, sizeof ex->counts->first_nameless,
                         "%s", ex->call.op);
}

/* Under which key it is noted which number an exported forward call has. */
static usc_hash128 key_of_forward(int64_t sequence)
{
    char key[32];
    (void)usc_format(key, sizeof key, "forward %lld", (long long)sequence);
    return usc_key_of(key);
}

/* Functional.linear.3: the number counts the calls of that name within a step. */
static bool name_call(usc_exporting *ex)
{
    char name[USC_API_NAME];
    const usc_hash128 forward = key_of_forward(ex->call.sequence);
    if (name_as_dumped(ex)) {
        (void)usc_keys_put(&ex->numbers, forward, 0);
        return true;
    }
    if (strchr(ex->call.op, '/') != NULL || /* names become those of files */
        !ex->kind->name_of(ex->call.op, name, sizeof name)) {
        leave_out(ex);
        return false;
    }
    const usc_hash128 key = usc_key_of(name);
    const int64_t number = usc_keys_put(&ex->numbers, key, 0);
    int64_t *place = usc_keys_find(&ex->numbers, key);
    if (place != NULL) ++*place;
    (void)usc_keys_put(&ex->numbers, forward, number);
    return name_as_numbered(ex, number);
}

/* A function's backward pass has the name of its forward call; one that is not in the
 * dump, or a pass of a second node of it, none. */
static bool name_backward(usc_exporting *ex)
{
    ex->forward = 0;
    read_state(ex, "forward", &ex->forward, NULL, 0);
    int64_t *number = usc_keys_find(&ex->numbers, key_of_forward(ex->forward));
    if (number == NULL || *number < 0) return false;
    const int64_t own = *number;
    *number = -1;
    return name_as_dumped(ex) || name_as_numbered(ex, own);
}

/* A call that the dump cannot hold has no backward pass in it. */
static void note_left_out(usc_exporting *ex)
{
    int64_t *number = usc_keys_find(&ex->numbers, key_of_forward(ex->call.sequence));
    if (number != NULL) *number = -1;
    leave_out(ex);
}

static usc_status put_call(usc_exporting *ex, usc_error *err)
{
    const bool is_api = strstr(ex->call.op, "::") == NULL;
    ex->backward =
        is_api && ex->call.phase != NULL && strcmp(ex->call.phase, "backward") == 0;
    if (ex->backward ? !name_backward(ex) : !name_call(ex)) return USC_OK;
    if (ex->numbers.failed)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", ex->options->trace);
    usc_status st = usc_arguments_read(ex->call.args, &ex->args, err);
    ex->left_out = false;
    if (st == USC_OK) st = ex->kind->put_call(ex, err);
    if (st == USC_OK && ex->left_out) note_left_out(ex);
    usc_arguments_free(&ex->args);
    usc_arena_reset(&ex->texts);
    ex->counts->calls += st == USC_OK && !ex->left_out;
    return st;
}

static bool is_stopped(const usc_exporting *ex, const usc_run_hooks *h, int64_t done,
                       int64_t total)
{
    (void)ex;
    if (h == NULL) return false;
    if (h->progress != NULL) h->progress(h->ctx, "exporting", done, total, 0);
    return h->stopped != NULL && h->stopped(h->ctx);
}

static usc_status change_step(usc_exporting *ex, int64_t *step, int64_t next,
                              usc_error *err)
{
    usc_status st = USC_OK;
    if (*step == next) return USC_OK;
    if (*step >= 0) st = ex->kind->end_step(ex, err);
    usc_keys_free(&ex->numbers);
    ex->first = true;
    *step = next;
    return st == USC_OK && next >= 0 ? ex->kind->begin_step(ex, next, err) : st;
}

/* Whether a tensor of these calls has content: a trace has it of all or of none, but for
 * what could not be read. */
static usc_status find_content(usc_exporting *ex, const int64_t *sequences, int64_t n,
                               usc_error *err)
{
    usc_status st = USC_OK;
    for (int64_t i = 0; st == USC_OK && i < n && !ex->has_content; i++) {
        st = usc_trace_read_call(ex->trace, sequences[i], &ex->call, err);
        for (int k = 0; st == USC_OK && k < ex->call.n_args; k++)
            ex->has_content = ex->has_content || ex->call.arg[k].blob != 0;
    }
    return st;
}

static usc_status put_calls(usc_exporting *ex, const usc_run_hooks *hooks, bool *stopped,
                            usc_error *err)
{
    const usc_trace_filter filter = {
        .ops = ex->options->ops, .step = -1, .top_only = true};
    const int64_t *sequences;
    int64_t n, step = -1;
    usc_status st = usc_trace_select(ex->trace, &filter, &sequences, &n, err);
    if (st != USC_OK) return st;
    st = find_content(ex, sequences, n, err);
    for (int64_t i = 0; st == USC_OK && i < n && !*stopped; i++) {
        *stopped = is_stopped(ex, hooks, i, n);
        if (*stopped) break;
        st = usc_trace_read_call(ex->trace, sequences[i], &ex->call, err);
        if (st == USC_OK) st = change_step(ex, &step, ex->call.step, err);
        if (st == USC_OK) st = put_call(ex, err);
    }
    if (st == USC_OK && !*stopped) st = change_step(ex, &step, -1, err);
    const bool none = st == USC_OK && !*stopped && ex->counts->calls == 0;
    if (none && ex->options->ops != NULL && ex->counts->nameless == 0)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1,
                           "%s: none of the calls that the program itself made matches "
                           "--ops '%s'; what runs inside of those is not written",
                           ex->options->trace, ex->options->ops);
    else if (none)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1, "%s: no call that %s can hold%s%s",
                           ex->options->trace, ex->kind->name,
                           ex->counts->nameless > 0 ? ", e.g. " : "",
                           ex->counts->first_nameless);
    return st;
}

/* ---- the whole ---- */

static void close_files(usc_exporting *ex)
{
    FILE **const files[] = {&ex->calls, &ex->stacks, &ex->places};
    for (int i = 0; i < 3; i++) {
        if (*files[i] != NULL) (void)fclose(*files[i]);
        *files[i] = NULL;
    }
}

static usc_status begin(usc_exporting *ex, usc_error *err)
{
    usc_status st = find_kind(ex, err);
    if (st == USC_OK) st = usc_trace_open(ex->options->trace, NULL, &ex->trace, err);
    if (st != USC_OK) return st;
    st = usc_folder_part(ex->options->out, ex->part, err);
    if (st != USC_OK) {
        ex->part[0] = '\0';
        return st;
    }
    usc_folder_remove(ex->part);
    return usc_folder_make(ex->part, "", err);
}

usc_status usc_export(const usc_export_options *options, const usc_run_hooks *hooks,
                      usc_export_counts *counts, usc_run_end *end, usc_error *err)
{
    usc_error own;
    bool stopped = false;
    if (err == NULL) err = &own;
    *counts = (usc_export_counts){0};
    *end = USC_RUN_DONE;
    usc_exporting ex = {.options = options,
                        .counts = counts,
                        .files = {.hooks = hooks},
                        .texts = {.alloc = usc_libc_alloc}};
    usc_status st = begin(&ex, err);
    if (st == USC_OK) st = put_calls(&ex, hooks, &stopped, err);
    close_files(&ex);
    if (st == USC_OK && !stopped && rename(ex.part, options->out) != 0)
        st = usc_error_set(err, USC_E_IO, -1, "%s cannot be written: %s", options->out,
                           strerror(errno));
    if (ex.part[0] != '\0') usc_folder_remove(ex.part);
    if (stopped) *end = USC_RUN_INTERRUPTED;
    usc_torch_files_close(&ex.files);
    usc_keys_free(&ex.numbers);
    usc_arena_free(&ex.texts);
    usc_trace_close(ex.trace);
    return st;
}
