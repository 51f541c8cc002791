// SPDX-License-Identifier: Apache-2.0
// Dumps of msprobe (step0/rank0/dump.json and its neighbours) and of the tool before it
// (forward_info_0.json, stack_info_0.json): the same descriptions under other names.
#include <errno.h>
#include <string.h>

#include "base/folder.h"
#include "base/number.h"
#include "foreign/exporting.h"

static usc_status unwritten(const usc_exporting *ex, usc_error *err)
{
    return usc_error_set(err, USC_E_IO, -1, "%s: %s; nothing was exported", ex->folder,
                         strerror(errno));
}

static FILE *open_file(const usc_exporting *ex, const char *name)
{
    char path[USC_PATH_SIZE];
    return usc_path_join(path, ex->folder, name, NULL) == USC_OK ? fopen(path, "wbe")
                                                                 : NULL;
}

static usc_status open_files(usc_exporting *ex, const char *const names[3],
                             const char *data, usc_error *err)
{
    const usc_status st = usc_folder_make(ex->folder, data, err);
    if (st != USC_OK) return st;
    ex->calls = open_file(ex, names[0]);
    ex->stacks = open_file(ex, names[1]);
    ex->places = open_file(ex, names[2]);
    return ex->calls != NULL && ex->stacks != NULL && ex->places != NULL
               ? USC_OK
               : unwritten(ex, err);
}

static usc_status close_file(const usc_exporting *ex, FILE **file, const char *end,
                             usc_error *err)
{
    const bool good = fputs(end, *file) >= 0 && ferror(*file) == 0;
    const bool closed = fclose(*file) == 0;
    *file = NULL;
    return good && closed ? USC_OK : unwritten(ex, err);
}

static usc_status write_line(const usc_exporting *ex, FILE *file, usc_line *line,
                             usc_error *err)
{
    if (line->failed)
        return usc_error_set(err, USC_E_NOMEM, -1, "call %lld: no memory",
                             (long long)ex->call.sequence);
    return fwrite(line->text, 1, line->n, file) == line->n ? USC_OK : unwritten(ex, err);
}

/* ---- what both describe ---- */

/* Those by position, or those by keyword. */
static usc_status put_arguments(usc_exporting *ex, bool named, usc_line *to,
                                usc_error *err)
{
    usc_status st = USC_OK;
    bool first = true;
    usc_line_text(to, named ? "{" : "[");
    for (int64_t i = 0; st == USC_OK && i < ex->args.n; i++) {
        const usc_argument *one = &ex->args.argument[i];
        if ((one->name != NULL) != named) continue;
        if (!first) usc_line_text(to, ", ");
        first = false;
        if (named) usc_line_json(to, one->name);
        if (named) usc_line_text(to, ": ");
        st = usc_export_value(ex, &one->value, to, err);
    }
    usc_line_text(to, named ? "}" : "]");
    return st;
}

/* The stack as a list of lines. */
static usc_status put_frames(const usc_exporting *ex, usc_line *to, usc_error *err)
{
    usc_json *frames = NULL;
    const char *text = ex->call.frames != NULL ? ex->call.frames : "[]";
    const usc_status st = usc_json_parse(text, strlen(text), ex->options->trace,
                                         "a stack that is no JSON", &frames, err);
    usc_line_text(to, "[");
    for (size_t i = 0; st == USC_OK && i < usc_json_size(frames); i++) {
        const usc_json *frame = usc_json_item(frames, i);
        const char *file = usc_json_as_text(usc_json_item(frame, 0));
        const char *name = usc_json_as_text(usc_json_item(frame, 2));
        int64_t line = 0;
        usc_line one = {0};
        (void)usc_json_as_integer(usc_json_item(frame, 1), &line);
        usc_line_add(&one, "File %s, line %lld, in %s, \n ", file != NULL ? file : "?",
                     (long long)line, name != NULL ? name : "?");
        if (i > 0) usc_line_text(to, ", ");
        usc_line_json(to, one.text != NULL ? one.text : "");
        usc_line_free(&one);
    }
    usc_line_text(to, "]");
    usc_json_free(frames);
    return st;
}

/* ---- msprobe ---- */

static usc_status begin_msprobe(usc_exporting *ex, int64_t step, usc_error *err)
{
    static const char *const names[] = {"dump.json", "stack.json", "construct.json"};
    if (usc_format(ex->folder, sizeof ex->folder, "%s/step%lld/rank0", ex->part,
                   (long long)step) >= (int)sizeof ex->folder)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", ex->part);
    (void)usc_format(ex->data, sizeof ex->data, "dump_tensor_data");
    const usc_status st = open_files(ex, names, "/dump_tensor_data", err);
    if (st != USC_OK) return st;
    usc_line head = {0};
    usc_line_add(&head,
                 "{\n \"task\": \"%s\",\n \"level\": \"mix\",\n \"framework\": "
                 "\"pytorch\",\n \"dump_data_dir\": ",
                 ex->has_content ? "tensor" : "statistics");
    char data[USC_PATH_SIZE];
    (void)usc_format(data, sizeof data, "%s/step%lld/rank0/dump_tensor_data",
                     ex->options->out, (long long)step);
    if (ex->has_content)
        usc_line_json(&head, data);
    else
        usc_line_text(&head, "null");
    usc_line_text(&head, ",\n \"data\": {");
    const usc_status written = write_line(ex, ex->calls, &head, err);
    usc_line_free(&head);
    return fputs("{", ex->stacks) >= 0 && fputs("{", ex->places) >= 0
               ? written
               : unwritten(ex, err);
}

static const char *way_of(const usc_exporting *ex)
{
    return ex->backward ? "backward" : "forward";
}

/* Backward passes have a place and no stack. */
static usc_status put_msprobe_places(usc_exporting *ex, usc_line *to, usc_error *err)
{
    const char *comma = ex->first ? "\n " : ",\n ";
    usc_status st = USC_OK;
    usc_line_clear(to);
    usc_line_add(to, "%s\"%lld\": [[\"%s.forward\"], ", comma,
                 (long long)ex->counts->calls, ex->name);
    if (!ex->backward) {
        st = put_frames(ex, to, err);
        usc_line_text(to, "]");
        if (st == USC_OK) st = write_line(ex, ex->stacks, to, err);
    }
    if (st != USC_OK) return st;
    usc_line_clear(to);
    usc_line_add(to, "%s\"%s.%s\": ", comma, ex->name, way_of(ex));
    usc_line module = {0};
    if (ex->call.phase != NULL && strcmp(ex->call.phase, "optimizer") == 0)
        usc_line_text(&module, "optimizer");
    else if (ex->call.module_path != NULL && ex->call.module_class != NULL)
        usc_line_add(&module, "Module.%s%s%s.%s.0", ex->call.module_path,
                     ex->call.module_path[0] != '\0' ? "." : "", ex->call.module_class,
                     way_of(ex));
    if (module.n > 0)
        usc_line_json(to, module.text);
    else
        usc_line_text(to, "null");
    usc_line_free(&module);
    return write_line(ex, ex->places, to, err);
}

static usc_status put_msprobe(usc_exporting *ex, usc_error *err)
{
    usc_line line = {0};
    usc_line_add(&line, "%s\n  \"%s.%s\": {\"%s\": ", ex->first ? "" : ",", ex->name,
                 way_of(ex), ex->backward ? "input" : "input_args");
    usc_status st = put_arguments(ex, false, &line, err);
    if (!ex->backward) {
        usc_line_text(&line, ", \"input_kwargs\": ");
        if (st == USC_OK) st = put_arguments(ex, true, &line, err);
    } else if (strstr(ex->call.state, "\"gradients\"") == NULL) {
        usc_line_text(&line, ", \"" USC_GRADIENTS_OF "\": \"arguments\"");
    }
    usc_line_text(&line, ", \"output\": ");
    if (st == USC_OK) st = usc_export_results(ex, &line, err);
    usc_line_text(&line, "}");
    if (st == USC_OK) st = write_line(ex, ex->calls, &line, err);
    if (st == USC_OK) st = put_msprobe_places(ex, &line, err);
    ex->first = false;
    usc_line_free(&line);
    return st;
}

static usc_status end_msprobe(usc_exporting *ex, usc_error *err)
{
    usc_status st = close_file(ex, &ex->calls, "\n }\n}\n", err);
    if (st == USC_OK) st = close_file(ex, &ex->stacks, "\n}\n", err);
    return st == USC_OK ? close_file(ex, &ex->places, "\n}\n", err) : st;
}

static bool name_msprobe(const char *op, char *out, size_t size)
{
    return usc_api_name_write(op, true, out, size);
}

const usc_export_kind usc_export_msprobe = {
    "msprobe", begin_msprobe, put_msprobe, end_msprobe, name_msprobe, false, false};

/* ---- the tool before it: names with stars, no results ---- */

static usc_status begin_v1(usc_exporting *ex, int64_t step, usc_error *err)
{
    const int process = ex->options->process;
    char data[64], texts[3][64];
    const char *const names[] = {texts[0], texts[1], texts[2]};
    static const char *const words[] = {"forward", "stack", "backward"};
    for (int i = 0; i < 3; i++)
        (void)usc_format(texts[i], sizeof texts[i], "%s_info_%d.json", words[i], process);
    if (usc_format(ex->folder, sizeof ex->folder, "%s/step%lld", ex->part,
                   (long long)step) >= (int)sizeof ex->folder)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", ex->part);
    ex->first_backward = true;
    for (int i = 1; i >= 0; i--) { /* several processes write into one folder */
        (void)usc_format(ex->data, sizeof ex->data, "%sward_real_data",
                         i > 0 ? "back" : "for");
        if (process > 0)
            (void)usc_format(ex->data + strlen(ex->data),
                             sizeof ex->data - strlen(ex->data), "/rank%d", process);
        (void)usc_format(data, sizeof data, "/%s", ex->has_content ? ex->data : "");
        const usc_status made = usc_folder_make(ex->folder, data, err);
        if (made != USC_OK) return made;
    }
    const usc_status st = open_files(ex, names, data, err);
    if (st != USC_OK) return st;
    return fputs("{", ex->calls) >= 0 && fputs("{", ex->stacks) >= 0 &&
                   fputs("{", ex->places) >= 0
               ? USC_OK
               : unwritten(ex, err);
}

static void put_starred(const usc_exporting *ex, usc_line *to)
{
    char name[sizeof ex->name];
    (void)usc_format(name, sizeof name, "%s", ex->name);
    char *first = strchr(name, '.'), *last = strrchr(name, '.');
    if (first != NULL) *first = '*';
    if (last != NULL) *last = '*';
    usc_line_add(to, "%s", ex->first ? "\n" : ",\n");
    usc_line_json(to, name);
    usc_line_text(to, ": ");
}

/* NAME: [gradients of the results], in backward_info. */
static usc_status put_v1_backward(usc_exporting *ex, usc_error *err)
{
    usc_line line = {0};
    const bool first = ex->first;
    ex->first = ex->first_backward;
    put_starred(ex, &line);
    ex->first = first;
    ex->first_backward = false;
    usc_status st = put_arguments(ex, false, &line, err);
    if (st == USC_OK) st = write_line(ex, ex->places, &line, err);
    usc_line_free(&line);
    return st;
}

static usc_status put_v1(usc_exporting *ex, usc_error *err)
{
    if (ex->backward) return put_v1_backward(ex, err);
    usc_line line = {0};
    put_starred(ex, &line);
    usc_line_text(&line, "{\"args\": ");
    usc_status st = put_arguments(ex, false, &line, err);
    usc_line_text(&line, ", \"kwargs\": ");
    if (st == USC_OK) st = put_arguments(ex, true, &line, err);
    usc_line_text(&line, "}");
    if (st == USC_OK) st = write_line(ex, ex->calls, &line, err);
    usc_line_clear(&line);
    put_starred(ex, &line);
    if (st == USC_OK) st = put_frames(ex, &line, err);
    if (st == USC_OK) st = write_line(ex, ex->stacks, &line, err);
    ex->first = false;
    usc_line_free(&line);
    return st;
}

static usc_status end_v1(usc_exporting *ex, usc_error *err)
{
    usc_status st = close_file(ex, &ex->calls, "\n}", err);
    if (st == USC_OK) st = close_file(ex, &ex->stacks, "\n}", err);
    return st == USC_OK ? close_file(ex, &ex->places, "\n}", err) : st;
}

static bool name_v1(const char *op, char *out, size_t size)
{
    return usc_api_name_write(op, false, out, size);
}

const usc_export_kind usc_export_ascend_v1 = {"ascend-v1", begin_v1, put_v1, end_v1,
                                              name_v1,     false,    true};
