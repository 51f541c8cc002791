// SPDX-License-Identifier: Apache-2.0
// Prints what a trace keeps as JSON - arguments, state, stack - as people read it; see
// show.h. What is no such JSON is printed as the text that it is.
#include "show/show.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_WIDTH = 14, PATH_SIZE = 256 };

bool show_json_valid(const char *json)
{
    usc_arguments members;
    const bool ok = usc_members_read(json, &members, NULL) == USC_OK;
    usc_arguments_free(&members);
    return ok;
}

static void put_tensor(const usc_call *call, const char *place)
{
    for (int i = 0; i < call->n_args; i++) {
        const usc_call_arg *arg = &call->arg[i];
        if (arg->role != USC_ROLE_IN || arg->path == NULL ||
            strcmp(arg->path, place) != 0)
            continue;
        show_shape(arg);
        return;
    }
    fputs("None", stdout); /* an undefined tensor */
}

/* What is said before a value's text, which alone would be taken for another's; NULL
 * where it has none of its own. */
static const char *kind_text(const usc_value *value)
{
    switch (value->kind) {
    case USC_VALUE_TEXT:
        return "";
    case USC_VALUE_DTYPE:
        return "dtype ";
    case USC_VALUE_DEVICE:
        return "device ";
    case USC_VALUE_LAYOUT:
        return "layout ";
    case USC_VALUE_MEMORY_FORMAT:
        return "memory_format ";
    case USC_VALUE_GENERATOR:
        return "generator ";
    case USC_VALUE_OTHER:
        return "other ";
    case USC_VALUE_NONE:
    case USC_VALUE_BOOL:
    case USC_VALUE_INT:
    case USC_VALUE_FLOAT:
    case USC_VALUE_COMPLEX:
    case USC_VALUE_TENSOR:
    case USC_VALUE_LIST:
    case USC_VALUE_TUPLE:
    case USC_VALUE_SLICE:
    case USC_VALUE_ELLIPSIS:
    case USC_VALUE_MAP:
        break;
    }
    return NULL;
}

static void put_scalar(const usc_value *value)
{
    char number[96];
    const char *kind = kind_text(value);
    if (kind != NULL) {
        fputs(kind, stdout);
        show_plain(value->text);
        return;
    }
    if (value->kind == USC_VALUE_FLOAT && !isfinite(value->number[0]))
        fputs("float ", stdout);
    usc_value_text(value, number, sizeof number);
    fputs(number, stdout);
}

static void put_value(const usc_call *call, const usc_value *value)
{
    if (value->kind == USC_VALUE_TENSOR) {
        put_tensor(call, value->place);
        return;
    }
    const bool list = usc_value_has_items(value);
    if (!list && value->kind != USC_VALUE_MAP) {
        put_scalar(value);
        return;
    }
    if (value->kind == USC_VALUE_SLICE) fputs("slice", stdout);
    if (list) putchar(value->kind == USC_VALUE_LIST ? '[' : '(');
    for (int64_t i = 0; i < value->n; i++) {
        if (i > 0) fputs(", ", stdout);
        if (list) {
            put_value(call, &value->item[i]);
        } else {
            show_plain(value->member[i].name);
            putchar(' ');
            put_value(call, &value->member[i].value);
        }
    }
    if (list) putchar(value->kind == USC_VALUE_LIST ? ']' : ')');
}

/* "args[2]", "kwargs.dim". */
static const char *path_of(const usc_argument *a, const char *before, int64_t i,
                           char path[PATH_SIZE])
{
    if (a->name != NULL)
        (void)snprintf(path, PATH_SIZE, "%s%s", before, a->name);
    else
        (void)snprintf(path, PATH_SIZE, "args[%lld]", (long long)i);
    return path;
}

/* "    PATH   VALUE" for each argument or member. */
static void put_entries(const usc_call *call, const char *before, const usc_arguments *a)
{
    char path[PATH_SIZE];
    size_t width = PATH_WIDTH;
    for (int64_t i = 0; i < a->n; i++) {
        const size_t n = strlen(path_of(&a->argument[i], before, i, path));
        if (n > width) width = n + 1;
    }
    for (int64_t i = 0; i < a->n; i++) {
        fputs("    ", stdout);
        show_plain(path_of(&a->argument[i], before, i, path));
        for (size_t n = strlen(path); n <= width; n++)
            putchar(' ');
        put_value(call, &a->argument[i].value);
        putchar('\n');
    }
}

/* The title of what is read, or the text itself where it cannot be; false then. */
static bool put_title(const char *title, const char *json, usc_status read)
{
    if (read == USC_OK) {
        puts(title);
        return true;
    }
    (void)printf("%-10s", title);
    show_plain(json);
    putchar('\n');
    return false;
}

static bool is_empty(const char *json)
{
    return json == NULL || *json == '\0';
}

void show_given(const usc_call *call)
{
    usc_arguments given;
    if (is_empty(call->args)) return;
    const usc_status st = usc_arguments_read(call->args, &given, NULL);
    if (put_title("arguments", call->args, st)) put_entries(call, "kwargs.", &given);
    usc_arguments_free(&given);
}

void show_state(const usc_call *call)
{
    usc_arguments state;
    if (is_empty(call->state)) return;
    const usc_status st = usc_members_read(call->state, &state, NULL);
    if (put_title("state", call->state, st)) put_entries(call, "", &state);
    usc_arguments_free(&state);
}

static bool is_installed(const char *file)
{
    return strstr(file, "/site-packages/") != NULL ||
           strstr(file, "/dist-packages/") != NULL || file[0] == '<';
}

void show_own_line(const usc_call *call, const char *before)
{
    usc_arguments frames;
    if (is_empty(call->frames)) return;
    if (usc_members_read(call->frames, &frames, NULL) != USC_OK) return;
    for (int64_t i = 0; i < frames.n; i++) {
        const usc_value *frame = &frames.argument[i].value;
        if (frame->kind != USC_VALUE_LIST || frame->n < 3) continue;
        if (frame->item[0].kind != USC_VALUE_TEXT || is_installed(frame->item[0].text))
            continue;
        (void)printf("%sat ", before);
        put_scalar(&frame->item[0]);
        fputs(":", stdout);
        put_scalar(&frame->item[1]);
        fputs(", ", stdout);
        put_scalar(&frame->item[2]);
        break;
    }
    usc_arguments_free(&frames);
}

void show_stack(const usc_call *call)
{
    static const char *const after[] = {":", " in ", "\n"}; /* file, line, function */
    enum { N_PARTS = sizeof after / sizeof after[0] };
    usc_arguments frames;
    if (is_empty(call->frames)) return;
    const usc_status st = usc_members_read(call->frames, &frames, NULL);
    const bool ok = put_title("stack", call->frames, st);
    for (int64_t i = 0; ok && i < frames.n; i++) {
        const usc_value *frame = &frames.argument[i].value;
        if (frame->kind != USC_VALUE_LIST || frame->n < N_PARTS) continue;
        fputs("    ", stdout);
        for (size_t k = 0; k < N_PARTS; k++) {
            put_scalar(&frame->item[k]);
            fputs(after[k], stdout);
        }
    }
    usc_arguments_free(&frames);
}
