// SPDX-License-Identifier: Apache-2.0
// Captures as ditorch's op_tools write and replay them, a folder for each call:
// op_tools_results/op_capture_results/OP/PID/ID/TIME with input.pth, output.pth and,
// where autograd ran through the call, grad_outputs.pth and grad_inputs.pth; a JSON that
// describes it beside each. Neighbour: import_ditorch.c.
#include <errno.h>
#include <string.h>

#include "base/folder.h"
#include "base/number.h"
#include "foreign/exporting.h"

/* A file under way. */
typedef struct capture_file {
    const char *name;
    usc_line value, said; /* for torch.save, and for people */
    usc_torch_save *tensors;
    int64_t n;
    bool whole; /* all in it can be written */
} capture_file;

static usc_status nothing(usc_exporting *ex, usc_error *err)
{
    (void)ex;
    (void)err;
    return USC_OK;
}

static usc_status nothing_to_begin(usc_exporting *ex, int64_t step, usc_error *err)
{
    (void)step;
    return nothing(ex, err);
}

/* ---- tensors ---- */

static void say_numbers(usc_line *to, const int64_t *numbers, int n)
{
    for (int i = 0; i < n; i++)
        usc_line_add(to, "%s%lld", i > 0 ? ", " : "", (long long)numbers[i]);
}

static void say_tensor(usc_line *to, const usc_call_arg *arg)
{
    int64_t n = 1;
    for (int i = 0; i < arg->ndim; i++)
        n *= arg->sizes[i];
    usc_line_text(to, "{\"device\": ");
    usc_line_json(to, arg->device != NULL ? arg->device : "cpu");
    usc_line_add(to, ", \"dtype\": \"%s\", \"numel\": %lld, \"shape\": \"(",
                 arg->dtype_name, (long long)n);
    say_numbers(to, arg->sizes, arg->ndim);
    usc_line_add(to, "%s)\", \"stride\": [", arg->ndim == 1 ? "," : "");
    say_numbers(to, arg->strides, arg->ndim);
    usc_line_add(to, "], \"requires_grad\": %s, \"layout\": \"torch.strided\"}",
                 arg->requires_grad ? "true" : "false");
}

static usc_status put_tensor(usc_exporting *ex, const usc_call_arg *arg, capture_file *f,
                             usc_error *err)
{
    const unsigned char *bytes = NULL;
    int64_t size = 0;
    usc_status st = USC_OK;
    if (arg != NULL) st = usc_export_bytes(ex, arg, &bytes, &size, err);
    if (st != USC_OK) return st;
    if (bytes == NULL) {
        f->whole = false;
        return USC_OK;
    }
    f->tensors[f->n] = (usc_torch_save){.dtype_name = arg->dtype_name,
                                        .ndim = arg->ndim,
                                        .sizes = arg->sizes,
                                        .strides = arg->strides,
                                        .bytes = bytes,
                                        .size = size,
                                        .as_it_lies = true,
                                        .requires_grad = arg->requires_grad};
    usc_line_add(&f->value, "{\"tensor\": %lld}", (long long)f->n++);
    say_tensor(&f->said, arg);
    return USC_OK;
}

/* ---- values ---- */

static usc_status put_value(usc_exporting *ex, const usc_value *value, capture_file *f,
                            usc_error *err);

static void put_both(capture_file *f, const char *text)
{
    usc_line_text(&f->value, text);
    usc_line_text(&f->said, text);
}

static usc_status put_items(usc_exporting *ex, const usc_value *list, capture_file *f,
                            usc_error *err)
{
    usc_status st = USC_OK;
    put_both(f, "[");
    for (int64_t i = 0; st == USC_OK && i < list->n; i++) {
        if (i > 0) put_both(f, ", ");
        st = put_value(ex, &list->item[i], f, err);
    }
    put_both(f, "]");
    return st;
}

/* Arguments that have names, or members of a dict; those without are passed over. */
static usc_status put_members(usc_exporting *ex, const usc_argument *member, int64_t n,
                              capture_file *f, usc_error *err)
{
    usc_status st = USC_OK;
    bool first = true;
    usc_line_text(&f->value, "{\"members\": {");
    usc_line_text(&f->said, "{");
    for (int64_t i = 0; st == USC_OK && i < n; i++) {
        if (member[i].name == NULL) continue;
        if (!first) put_both(f, ", ");
        first = false;
        usc_line_json(&f->value, member[i].name);
        usc_line_json(&f->said, member[i].name);
        put_both(f, ": ");
        st = put_value(ex, &member[i].value, f, err);
    }
    usc_line_text(&f->value, "}}");
    usc_line_text(&f->said, "}");
    return st;
}

static usc_status put_positional(usc_exporting *ex, capture_file *f, usc_error *err)
{
    usc_status st = USC_OK;
    put_both(f, "[");
    for (int64_t i = 0; st == USC_OK && i < ex->args.n; i++) {
        if (ex->args.argument[i].name != NULL) continue;
        if (i > 0) put_both(f, ", ");
        st = put_value(ex, &ex->args.argument[i].value, f, err);
    }
    put_both(f, "]");
    return st;
}

static usc_status put_single(const usc_value *value, capture_file *f, usc_error *err)
{
    char text[256]; /* as Python's str() has it, roughly */
    usc_writing json = {0};
    usc_writing_value(&json, value);
    const bool failed = json.failed;
    if (!failed) usc_line_text(&f->value, json.text);
    usc_writing_free(&json);
    usc_value_text(value, text, sizeof text);
    usc_line_json(&f->said, value->kind == USC_VALUE_TEXT ? value->text : text);
    return failed ? usc_no_memory("export", err) : USC_OK;
}

static usc_status put_value(usc_exporting *ex, const usc_value *value, capture_file *f,
                            usc_error *err)
{
    usc_status st;
    switch (value->kind) {
    case USC_VALUE_TENSOR:
        return put_tensor(ex, usc_export_arg(ex, USC_ROLE_IN, value->place), f, err);
    case USC_VALUE_MAP:
        return put_members(ex, value->member, value->n, f, err);
    case USC_VALUE_LIST:
        return put_items(ex, value, f, err);
    case USC_VALUE_TUPLE:
    case USC_VALUE_SLICE:
        usc_line_add(&f->value, "{\"%s\": ", usc_value_mark(value->kind));
        st = put_items(ex, value, f, err);
        usc_line_text(&f->value, "}");
        return st;
    case USC_VALUE_OTHER:
    case USC_VALUE_GENERATOR:
    case USC_VALUE_MEMORY_FORMAT:
        f->whole = false; /* no file of torch can hold them */
        break;
    case USC_VALUE_NONE:
    case USC_VALUE_BOOL:
    case USC_VALUE_INT:
    case USC_VALUE_FLOAT:
    case USC_VALUE_COMPLEX:
    case USC_VALUE_TEXT:
    case USC_VALUE_DTYPE:
    case USC_VALUE_DEVICE:
    case USC_VALUE_LAYOUT:
    case USC_VALUE_ELLIPSIS:
        break;
    }
    return put_single(value, f, err);
}

/* out[i], or a list where out[i][0] is there; None where nothing is. */
static usc_status put_result(usc_exporting *ex, const char *path, capture_file *f,
                             usc_error *err)
{
    char inner[96];
    usc_status st = USC_OK;
    const usc_call_arg *arg = usc_export_arg(ex, USC_ROLE_OUT, path);
    if (arg != NULL) return put_tensor(ex, arg, f, err);
    (void)usc_format(inner, sizeof inner, "%s[0]", path);
    arg = usc_export_arg(ex, USC_ROLE_OUT, inner);
    usc_line_text(&f->value, arg != NULL ? "[" : "null");
    usc_line_text(&f->said, arg != NULL ? "[" : "\"None\"");
    if (arg == NULL) return USC_OK;
    for (int k = 1; st == USC_OK && arg != NULL; k++) {
        if (k > 1) usc_line_text(&f->value, ", ");
        if (k > 1) usc_line_text(&f->said, ", ");
        st = put_tensor(ex, arg, f, err);
        (void)usc_format(inner, sizeof inner, "%s[%d]", path, k);
        arg = usc_export_arg(ex, USC_ROLE_OUT, inner);
    }
    usc_line_text(&f->value, "]");
    usc_line_text(&f->said, "]");
    return st;
}

static usc_status put_results(usc_exporting *ex, capture_file *f, usc_error *err)
{
    char path[64];
    usc_status st = USC_OK;
    const int n = usc_export_count_results(ex);
    usc_line_text(&f->value, "[");
    usc_line_text(&f->said, "[");
    for (int i = 0; st == USC_OK && i < n; i++) {
        (void)usc_format(path, sizeof path, "out[%d]", i);
        if (i > 0) usc_line_text(&f->value, ", ");
        if (i > 0) usc_line_text(&f->said, ", ");
        st = put_result(ex, path, f, err);
    }
    usc_line_text(&f->value, "]");
    usc_line_text(&f->said, "]");
    return st;
}

/* ---- files ---- */

/* {"name": .., "identifier": .., the rest of it and `args` to come. */
static usc_status begin_file(usc_exporting *ex, const char *name, capture_file *f,
                             usc_error *err)
{
    char identifier[160];
    const size_t most = (size_t)ex->call.n_args + 1;
    *f = (capture_file){.name = name, .whole = true};
    f->tensors = usc_arena_take(&ex->texts, most * sizeof *f->tensors);
    if (f->tensors == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", ex->options->trace);
    (void)usc_format(identifier, sizeof identifier, "%s/%s", ex->identifier, name);
    usc_line_text(&f->value, "{\"members\": {\"name\": ");
    usc_line_json(&f->value, ex->name);
    usc_line_text(&f->value, ", \"identifier\": ");
    usc_line_json(&f->value, identifier);
    if (ex->backward && strstr(ex->call.state, "\"gradients\"") == NULL)
        usc_line_text(&f->value, ", \"" USC_GRADIENTS_OF "\": \"arguments\"");
    usc_line_text(&f->value, ", \"args\": {\"tuple\": ");
    usc_line_text(&f->said, "{\"op\": ");
    usc_line_json(&f->said, ex->name);
    usc_line_text(&f->said, ", \"args\": ");
    return USC_OK;
}

static usc_status put_kwargs(usc_exporting *ex, const usc_arguments *a, capture_file *f,
                             usc_error *err)
{
    usc_line_text(&f->value, "}, \"kwargs\": ");
    usc_line_text(&f->said, ", \"kwargs\": ");
    const usc_status st = put_members(ex, a->argument, a->n, f, err);
    usc_line_text(&f->value, "}}");
    usc_line_text(&f->said, "}\n");
    return st;
}

static usc_status write_text(const char *path, const usc_line *text, usc_error *err)
{
    FILE *file = fopen(path, "wbe");
    const bool good = file != NULL && fwrite(text->text, 1, text->n, file) == text->n;
    if ((file != NULL && fclose(file) != 0) || !good)
        return usc_error_set(err, USC_E_IO, -1, "%s: %s; nothing was exported", path,
                             strerror(errno));
    return USC_OK;
}

/* Writes the file and its description, and frees it; what is not whole is not written. */
static usc_status end_file(usc_exporting *ex, capture_file *f, usc_status st,
                           usc_error *err)
{
    char path[USC_PATH_SIZE], name[48];
    const bool writes = st == USC_OK && f->whole;
    (void)usc_format(name, sizeof name, "%s.pth", f->name);
    if (writes && (f->value.failed || f->said.failed))
        st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", ex->options->trace);
    if (writes && st == USC_OK) st = usc_folder_make(ex->folder, "", err);
    if (writes && st == USC_OK) st = usc_path_join(path, ex->folder, name, err);
    if (writes && st == USC_OK)
        st = usc_torch_files_save(&ex->files, path, f->value.text, f->tensors, f->n, err);
    (void)usc_format(name, sizeof name, "%s.pth.json", f->name);
    if (writes && st == USC_OK) st = usc_path_join(path, ex->folder, name, err);
    if (writes && st == USC_OK) st = write_text(path, &f->said, err);
    if (writes && st == USC_OK) {
        ex->counts->tensors += f->n;
        ex->counts->with_content += f->n;
    }
    usc_line_free(&f->value);
    usc_line_free(&f->said);
    return st;
}

static usc_status write_arguments(usc_exporting *ex, const char *name, bool *whole,
                                  usc_error *err)
{
    capture_file f;
    usc_status st = begin_file(ex, name, &f, err);
    if (st == USC_OK) st = put_positional(ex, &f, err);
    if (st == USC_OK) st = put_kwargs(ex, &ex->args, &f, err);
    *whole = f.whole;
    return end_file(ex, &f, st, err);
}

/* `only`: as the one argument that output.pth has, a tuple where there are several. */
static usc_status write_results(usc_exporting *ex, const char *name, bool only,
                                usc_error *err)
{
    capture_file f;
    usc_status st = begin_file(ex, name, &f, err);
    const bool is_tuple = only && (usc_export_count_results(ex) != 1 ||
                                   usc_export_arg(ex, USC_ROLE_OUT, "out[0]") == NULL);
    if (st != USC_OK) return end_file(ex, &f, st, err);
    if (is_tuple) usc_line_text(&f.value, "[{\"tuple\": ");
    if (is_tuple) usc_line_text(&f.said, "[");
    st = put_results(ex, &f, err);
    if (is_tuple) usc_line_text(&f.value, "}]");
    if (is_tuple) usc_line_text(&f.said, "]");
    if (st == USC_OK) st = put_kwargs(ex, &(usc_arguments){0}, &f, err);
    return end_file(ex, &f, st, err);
}

/* ---- calls ---- */

/* The time of the capture as ditorch writes times; the call's number is that of its
 * forward call. */
static usc_status find_folder(usc_exporting *ex, int64_t id, usc_error *err)
{
    char time[20] = "1970-01-01-00-00-00";
    const char *created = usc_trace_meta(ex->trace, "created");
    for (size_t i = 0; created != NULL && strlen(created) >= 19 && i < 19; i++)
        time[i] = created[i] >= '0' && created[i] <= '9' ? created[i] : '-';
    (void)usc_format(ex->identifier, sizeof ex->identifier, "%lld/%s", (long long)id,
                     time);
    return usc_format(ex->folder, sizeof ex->folder,
                      "%s/op_tools_results/op_capture_results/%s/%d/%s", ex->part,
                      ex->name, ex->options->process,
                      ex->identifier) < (int)sizeof ex->folder
               ? USC_OK
               : usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", ex->part);
}

static usc_status put_ditorch(usc_exporting *ex, usc_error *err)
{
    bool whole = true;
    const int64_t id = ex->backward ? ex->forward : ex->call.sequence;
    usc_status st = find_folder(ex, id, err);
    if (st != USC_OK) return st;
    st = write_arguments(ex, ex->backward ? "grad_outputs" : "input", &whole, err);
    ex->left_out = !whole;
    if (st != USC_OK || !whole) return st;
    return ex->backward ? write_results(ex, "grad_inputs", false, err)
                        : write_results(ex, "output", true, err);
}

const usc_export_kind usc_export_ditorch = {
    "ditorch", nothing_to_begin, put_ditorch, nothing, usc_api_dotted, true, false};
