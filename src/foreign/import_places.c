// SPDX-License-Identifier: Apache-2.0
// Where the calls of a dump were made: stack.json and construct.json, which are small
// beside dump.json but still as long as a step.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "foreign/importing.h"

/* "File PATH, line N, in NAME, \n SOURCE" as ["PATH", N, "NAME"]; what is no such line
 * stays whole. */
static void put_frame(usc_line *to, const char *text)
{
    const char *file = strncmp(text, "File ", 5) == 0 ? text + 5 : text;
    const char *line = strstr(file, ", line ");
    char *rest = NULL;
    const long number = line != NULL ? strtol(line + 7, &rest, 10) : 0;
    const bool whole = line != NULL && rest > line + 7 && strncmp(rest, ", in ", 5) == 0;
    const char *name = whole ? rest + 5 : "";
    usc_line part = {0};
    usc_line_put(&part, file, whole ? (size_t)(line - file) : strcspn(file, "\n"));
    usc_line_text(to, "[");
    usc_line_json(to, part.text != NULL ? part.text : "");
    usc_line_add(to, ", %ld, ", whole ? number : 0);
    usc_line_clear(&part);
    usc_line_put(&part, name, strcspn(name, ",\n"));
    usc_line_json(to, part.text != NULL ? part.text : "");
    usc_line_text(to, "]");
    to->failed = to->failed || part.failed;
    usc_line_free(&part);
}

static usc_status put_stack(usc_importing *im, const usc_json *frames, int64_t *row,
                            usc_error *err)
{
    usc_line text = {0};
    usc_line_text(&text, "[");
    for (size_t i = 0, n = 0; i < usc_json_size(frames); i++) {
        const char *frame = usc_json_as_text(usc_json_item(frames, i));
        if (frame == NULL) continue;
        if (n++ > 0) usc_line_text(&text, ", ");
        put_frame(&text, frame);
    }
    usc_line_text(&text, "]");
    *row = ++im->n_stacks;
    const usc_stack_row stack = {*row, text.text};
    const usc_status st = text.failed
                              ? usc_error_set(err, USC_E_NOMEM, -1, "a stack: no memory")
                              : usc_trace_put_stack(im->trace, &stack, err);
    usc_line_free(&text);
    return st;
}

static void name_call(usc_keys *keys, const char *member, int64_t row)
{
    usc_api_name name;
    if (usc_api_name_read(member, &name) && name.kind == USC_DUMPED_FORWARD)
        (void)usc_keys_put(keys, usc_key_of(name.call), row);
}

/* Either NAME: [frames], or NUMBER: [[names], [frames]] where calls share a stack. */
static usc_status take_stack(usc_importing *im, const char *key, const usc_json *value,
                             usc_error *err)
{
    int64_t row;
    const usc_json *first = usc_json_item(value, 0);
    const bool shared = usc_json_is_list(first);
    const usc_status st =
        put_stack(im, shared ? usc_json_item(value, 1) : value, &row, err);
    if (!shared) name_call(&im->stacks, key, row);
    for (size_t i = 0; shared && i < usc_json_size(first); i++) {
        const char *name = usc_json_as_text(usc_json_item(first, i));
        if (name != NULL) name_call(&im->stacks, name, row);
    }
    return st;
}

/* CHILD: PARENT, or [PARENT, micro step]; the optimizer and the clipping of gradients are
 * parents that are no modules. */
static usc_status take_parent(usc_importing *im, const char *key, const usc_json *value,
                              usc_error *err)
{
    char path[USC_API_NAME], class_name[USC_API_NAME];
    int64_t row = 0;
    const usc_json *named = usc_json_is_list(value) ? usc_json_item(value, 0) : value;
    const char *parent = usc_json_as_text(named);
    if (parent == NULL) return USC_OK;
    if (strncmp(parent, "optimizer", 9) == 0 || strncmp(parent, "clip_grad", 9) == 0) {
        name_call(&im->places, key, -1);
        return USC_OK;
    }
    if (!usc_api_module(parent, path, class_name, USC_API_NAME)) return USC_OK;
    const usc_status st = usc_importing_module(im, path, class_name, &row, err);
    name_call(&im->places, key, row);
    return st;
}

typedef usc_status taker(usc_importing *im, const char *key, const usc_json *value,
                         usc_error *err);

static usc_status read_members(usc_importing *im, const char *path, taker *take,
                               usc_error *err)
{
    usc_json_stream s = {0};
    const char *key;
    if (access(path, F_OK) != 0 && errno == ENOENT) return USC_OK;
    usc_status st = usc_json_stream_open(&s, path, USC_IMPORT_LARGEST_CALL, err);
    while (st == USC_OK && (st = usc_json_stream_next(&s, &key, err)) == USC_OK) {
        usc_json *value;
        if (s.level == 0) break;
        st = usc_json_stream_value(&s, &value, err);
        if (st == USC_OK) st = take(im, key, usc_json_item(value, 0), err);
        usc_json_free(value);
    }
    usc_json_stream_close(&s);
    if (st == USC_OK && (im->stacks.failed || im->places.failed))
        st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", path);
    return st;
}

usc_status usc_importing_stacks(usc_importing *im, const char *path, usc_error *err)
{
    return read_members(im, path, take_stack, err);
}

usc_status usc_importing_construct(usc_importing *im, const char *path, usc_error *err)
{
    return read_members(im, path, take_parent, err);
}
