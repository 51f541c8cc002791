// SPDX-License-Identifier: Apache-2.0
// Planted faults as lines of JSON, from a text or a file; the keys are those of
// fault_text.c.
#include "fault_parts.h"

#include "base/arena.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static span span_of(const char *text)
{
    return (span){text, strlen(text)};
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static usc_status refuse(const usc_sim_fault *f, const char *key, const char *wanted,
                         usc_error *err)
{
    return usc_error_set(err, USC_E_ARG, -1, "fault '%.100s': \"%.40s\" is not %s",
                         f->text, key, wanted);
}

/* Numbers and texts go through the text form, which knows the ranges. */
static usc_status set(usc_sim_fault *f, fault_section section, const char *key,
                      const usc_json *value, usc_error *err)
{
    usc_arena arena = {.alloc = usc_libc_alloc};
    const char *text = usc_json_as_text(value);
    if (text == NULL && !usc_json_is_object(value) && !usc_json_is_list(value))
        text = usc_json_print(value, &arena);
    const usc_status st = text != NULL
                              ? fault_set(f, section, span_of(key), span_of(text), err)
                              : refuse(f, key, "a number or a text", err);
    usc_arena_free(&arena);
    return st;
}

static usc_status set_all(usc_sim_fault *f, fault_section section, const char *name,
                          const usc_json *object, usc_error *err)
{
    const char *key;
    const usc_json *value;
    usc_status st = USC_OK;
    if (!usc_json_is_object(object)) return refuse(f, name, "an object", err);
    for (void *at = NULL; st == USC_OK && usc_json_next(object, &at, &key, &value);)
        st = set(f, section, key, value, err);
    return st;
}

static usc_status set_member(usc_sim_fault *f, const char *key, const usc_json *value,
                             usc_error *err)
{
    if (is(key, "ops") || is(key, "kind")) return USC_OK; /* taken before */
    if (is(key, "params")) return set_all(f, FAULT_PARAMS, key, value, err);
    if (is(key, "when")) return set_all(f, FAULT_WHEN, key, value, err);
    if (is(key, "where")) return set_all(f, FAULT_WHERE, key, value, err);
    if (is(key, "output")) return set(f, FAULT_TOP, key, value, err);
    return refuse(f, key, "one of ops, kind, output, params, when, where; or bug", err);
}

static usc_status read_object(const usc_json *o, span line, fault_taker *taker,
                              usc_error *err)
{
    usc_sim_fault f;
    const char *key;
    const usc_json *value;
    usc_status st = fault_begin(&f, line, err);
    if (st != USC_OK) return st;
    const char *bug = usc_json_as_text(usc_json_get(o, "bug"));
    if (bug != NULL && usc_json_size(o) == 1)
        return fault_read_bug(span_of(bug), taker, err);
    const char *ops = usc_json_as_text(usc_json_get(o, "ops"));
    const char *kind = usc_json_as_text(usc_json_get(o, "kind"));
    if (ops == NULL || kind == NULL)
        return usc_error_set(err, USC_E_ARG, -1,
                             "not {\"ops\": PATTERN, \"kind\": NAME, ...} and not "
                             "{\"bug\": NAME}");
    st = fault_set_pattern(&f, span_of(ops), err);
    if (st == USC_OK) st = fault_set_kind(&f, span_of(kind), err);
    for (void *at = NULL; st == USC_OK && usc_json_next(o, &at, &key, &value);)
        st = set_member(&f, key, value, err);
    if (st == USC_OK) st = fault_finish(&f, err);
    return st == USC_OK ? taker->take(taker, &f, err) : st;
}

static usc_status read_line(span line, const char *name, int64_t number,
                            fault_taker *taker, usc_error *err)
{
    usc_json *root;
    usc_error inner = {0};
    usc_status st =
        usc_json_parse(line.at, line.n, "the line", "no fault", &root, &inner);
    if (st == USC_OK) {
        st = usc_json_is_object(root)
                 ? read_object(root, line, taker, &inner)
                 : usc_error_set(&inner, USC_E_ARG, -1, "the line is no object");
        usc_json_free(root);
    }
    if (st == USC_OK) return st;
    if (st == USC_E_CORRUPT) st = USC_E_ARG;
    return usc_error_set(err, st, number, "%s:%lld: %s", name, (long long)number,
                         inner.text);
}

static span next_line(const char **rest)
{
    const char *at = *rest, *end = strchr(at, '\n');
    span line = {at, end != NULL ? (size_t)(end - at) : strlen(at)};
    *rest = end != NULL ? end + 1 : at + line.n;
    while (line.n > 0 && strchr(" \t\r", line.at[0]) != NULL)
        line.at++, line.n--;
    while (line.n > 0 && strchr(" \t\r", line.at[line.n - 1]) != NULL)
        line.n--;
    return line;
}

usc_status fault_read_lines(const char *lines, const char *name, fault_taker *taker,
                            usc_error *err)
{
    usc_status st = USC_OK;
    int64_t number = 0;
    for (const char *rest = lines; *rest != '\0' && st == USC_OK;) {
        const span line = next_line(&rest);
        number++;
        if (line.n == 0 || line.at[0] == '#') continue;
        st = read_line(line, name, number, taker, err);
    }
    return st;
}

#define LARGEST (64u << 20)

usc_status fault_read_file(const char *path, fault_taker *taker, usc_error *err)
{
    FILE *file = fopen(path, "rb");
    size_t n = 0, room = 0, got = 0;
    char *text = NULL;
    bool fine = file != NULL;
    while (fine && n <= LARGEST) {
        if (n + 1 >= room) {
            room = room > 0 ? 2 * room : 1u << 16;
            char *more = realloc(text, room);
            if (more == NULL) break;
            text = more;
        }
        got = fread(text + n, 1, room - 1 - n, file);
        n += got;
        if (got == 0) break;
    }
    fine = fine && !ferror(file);
    if (file != NULL) (void)fclose(file);
    usc_status st;
    if (!fine)
        st = usc_error_set(err, USC_E_IO, -1, "faults: %s cannot be read", path);
    else if (text == NULL || n > LARGEST || n + 1 > room)
        st = usc_error_set(err, USC_E_NOMEM, -1, "faults: %s is too large", path);
    else if (memchr(text, 0, n) != NULL)
        st = usc_error_set(err, USC_E_ARG, -1, "faults: %s is no text", path);
    else {
        text[n] = '\0';
        st = fault_read_lines(text, path, taker, err);
    }
    free(text);
    return st;
}
