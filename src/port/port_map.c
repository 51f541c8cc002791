// SPDX-License-Identifier: Apache-2.0
// A map of names that somebody wrote: {"old": "new", ...}. Which kind of name one is, it
// says itself: a path of a header, words joined by :: or by dots.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "port/port_names.h"
#include "port/port_token.h"
#include "json/json.h"

/* The line of a byte of the file, from 1. */
static int64_t line_of(const char *text, size_t at)
{
    int64_t line = 1;
    for (size_t i = 0; i < at && text[i] != '\0'; i++)
        line += text[i] == '\n';
    return line;
}

/* The line on which a key stands. */
static int64_t line_of_key(const char *text, const char *key, usc_arena *arena)
{
    const char *quoted = usc_json_quoted(key, arena);
    const char *found = quoted != NULL ? strstr(text, quoted) : NULL;
    return found != NULL ? line_of(text, (size_t)(found - text)) : 1;
}

/* Words joined by `mark` alone. */
static bool is_chain(const char *name, const char *mark)
{
    for (const char *at = name;;) {
        if (!usc_port_in_name(*at) || (*at >= '0' && *at <= '9')) return false;
        while (usc_port_in_name(*at))
            at++;
        if (*at == '\0') return true;
        if (strncmp(at, mark, strlen(mark)) != 0) return false;
        at += strlen(mark);
    }
}

static bool is_path(const char *name)
{
    const char *dot = strrchr(name, '.');
    return strpbrk(name, " \t\n\"<>") == NULL &&
           (strchr(name, '/') != NULL ||
            (dot != NULL && (strcmp(dot, ".h") == 0 || strcmp(dot, ".cuh") == 0 ||
                             strcmp(dot, ".muh") == 0 || strcmp(dot, ".hpp") == 0)));
}

static bool put(usc_port_names *names, const char *from, const char *to)
{
    if (is_path(from)) {
        usc_port_names_put(names, USC_PORT_INCLUDE, from, to);
        return to[0] != '\0';
    }
    if (is_chain(from, "::") && is_chain(to, "::")) {
        usc_port_names_put(names, USC_PORT_CXX_NAME, from, to);
        if (strstr(from, "::") != NULL) return true;
        usc_port_names_put(names, USC_PORT_PY_NAME, from, to);
        return true;
    }
    if (!is_chain(from, ".") || !is_chain(to, ".")) return false;
    usc_port_names_put(names, USC_PORT_PY_NAME, from, to);
    usc_port_names_put(names, USC_PORT_PY_IMPORT, from, to);
    return true;
}

static usc_status take_all(usc_port_names *names, const usc_json *root, const char *text,
                           const char *path, usc_error *err)
{
    const char *key;
    const usc_json *value;
    if (!usc_json_is_object(root))
        return usc_error_set(err, USC_E_ARG, -1,
                             "%s:1: one JSON object is needed, {\"old\": \"new\"}", path);
    for (void *at = NULL; usc_json_next(root, &at, &key, &value);) {
        const char *to = usc_json_as_text(value);
        const char *from = usc_arena_text(names->arena, key);
        const char *kept = usc_arena_text(names->arena, to);
        if (to != NULL && (from == NULL || kept == NULL))
            return usc_no_memory("the map", err);
        if (to != NULL && put(names, from, kept)) continue;
        return usc_error_set(
            err, USC_E_ARG, -1,
            "%s:%lld: '%.80s' cannot be mapped so: both are names (words joined by :: or "
            "by dots), or the old one is the path of a header",
            path, (long long)line_of_key(text, key, names->arena), key);
    }
    return USC_OK;
}

static usc_status read_text(const char *path, usc_line *text, usc_error *err)
{
    FILE *f = fopen(path, "rb");
    char part[4096];
    if (f == NULL)
        return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                             "%s: %s", path, strerror(errno));
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
        usc_line_put(text, part, n);
    const bool bad = ferror(f) != 0;
    (void)fclose(f);
    if (bad) return usc_error_set(err, USC_E_IO, -1, "%s: cannot be read", path);
    return text->failed ? usc_no_memory(path, err) : USC_OK;
}

usc_status usc_port_map_read(usc_port_names *names, const char *path, usc_error *err)
{
    usc_line text = {0};
    usc_json *root = NULL;
    usc_error inner = {0};
    usc_status st = read_text(path, &text, err);
    if (st == USC_OK) {
        const char *bytes = text.text != NULL ? text.text : "";
        st = usc_json_parse(bytes, text.n, path, "not a map of names", &root, &inner);
        if (st == USC_E_CORRUPT)
            st = usc_error_set(
                err, USC_E_ARG, inner.where, "line %lld of the map: %s",
                (long long)line_of(bytes, inner.where > 0 ? (size_t)inner.where : 0),
                inner.text);
        else if (st != USC_OK)
            st = usc_error_set(err, st, -1, "%s", inner.text);
        else
            st = take_all(names, root, bytes, path, err);
    }
    usc_json_free(root);
    usc_line_free(&text);
    return st;
}
