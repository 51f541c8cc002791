// SPDX-License-Identifier: Apache-2.0
// The tree of a YAML file, made of libyaml's events.
#include "ops/ops_yaml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { MOST_DEPTH = 16 };
static const long MOST_BYTES = 8L << 20;

typedef struct reader {
    yaml_parser_t parser;
    const char *path;
    usc_arena *arena;
    usc_error *err;
} reader;

static usc_status wrong(const reader *r, const yaml_mark_t *at, const char *what)
{
    return usc_error_set(r->err, USC_E_CORRUPT, (int64_t)at->line + 1, "%s:%zu:%zu: %s",
                         r->path, at->line + 1, at->column + 1, what);
}

static usc_status next(reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event) != 0) return USC_OK;
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return usc_no_memory(r->path, r->err);
    if (p->problem != NULL && strstr(p->problem, "cannot start any token") != NULL)
        return wrong(r, &p->problem_mark,
                     "no value can begin so; indent with spaces, not tabs, and quote a "
                     "text with signs");
    const char *problem = p->problem != NULL ? p->problem : "no YAML";
    return wrong(r, &p->problem_mark, problem);
}

static usc_yaml *node_of(reader *r, usc_yaml_kind kind, const yaml_event_t *e)
{
    usc_yaml *n = usc_arena_take(r->arena, sizeof *n);
    if (n == NULL) return NULL;
    *n = (usc_yaml){.kind = kind,
                    .text = "",
                    .line = (int64_t)e->start_mark.line + 1,
                    .column = (int64_t)e->start_mark.column + 1};
    if (kind == USC_YAML_TEXT)
        n->text = usc_arena_text(r->arena, (const char *)e->data.scalar.value);
    return n->text != NULL ? n : NULL;
}

static bool has_anchor(const yaml_event_t *e)
{
    switch ((int)e->type) {
    case YAML_ALIAS_EVENT:
        return true;
    case YAML_SCALAR_EVENT:
        return e->data.scalar.anchor != NULL || e->data.scalar.tag != NULL;
    case YAML_SEQUENCE_START_EVENT:
        return e->data.sequence_start.anchor != NULL ||
               e->data.sequence_start.tag != NULL;
    case YAML_MAPPING_START_EVENT:
        return e->data.mapping_start.anchor != NULL || e->data.mapping_start.tag != NULL;
    default:
        return false;
    }
}

static bool add(reader *r, usc_yaml *to, usc_yaml *item)
{
    if (item == NULL) return false;
    if (to->n == to->size) {
        usc_yaml **grown =
            usc_arena_grow(r->arena, to->item, to->n, &to->size, sizeof *to->item);
        if (grown == NULL) return false;
        to->item = grown;
    }
    to->item[to->n++] = item;
    return true;
}

/* A key that stands twice says two things. */
static usc_status check_key(const reader *r, const usc_yaml *map, const yaml_mark_t *at)
{
    const usc_yaml *key = map->item[map->n - 1];
    if (key->kind != USC_YAML_TEXT) return wrong(r, at, "a key is a text");
    for (size_t i = 0; i + 1 < map->n; i += 2)
        if (strcmp(map->item[i]->text, key->text) == 0) {
            char text[160];
            (void)snprintf(text, sizeof text, "'%.80s' stands twice here", key->text);
            return wrong(r, at, text);
        }
    return USC_OK;
}

/* The open lists and maps, the innermost last. */
typedef struct open_nodes {
    usc_yaml *at[MOST_DEPTH];
    size_t n;
    usc_yaml *root;
} open_nodes;

static usc_status take(reader *r, open_nodes *o, const yaml_event_t *e)
{
    if (has_anchor(e))
        return wrong(r, &e->start_mark, "anchors, aliases and tags are not read here");
    const bool list = e->type == YAML_SEQUENCE_START_EVENT;
    const bool map = e->type == YAML_MAPPING_START_EVENT;
    usc_yaml *n = node_of(r,
                          list  ? USC_YAML_LIST
                          : map ? USC_YAML_MAP
                                : USC_YAML_TEXT,
                          e);
    if (n == NULL) return usc_no_memory(r->path, r->err);
    usc_yaml *above = o->n > 0 ? o->at[o->n - 1] : NULL;
    if (above == NULL) {
        if (o->root != NULL) return wrong(r, &e->start_mark, "a second document");
        o->root = n;
    } else if (!add(r, above, n)) {
        return usc_no_memory(r->path, r->err);
    } else if (above->kind == USC_YAML_MAP && above->n % 2 == 1) {
        const usc_status st = check_key(r, above, &e->start_mark);
        if (st != USC_OK) return st;
    }
    if (!list && !map) return USC_OK;
    if (o->n == MOST_DEPTH) return wrong(r, &e->start_mark, "lists and maps too deep");
    o->at[o->n++] = n;
    return USC_OK;
}

static usc_status build(reader *r, usc_yaml **out)
{
    open_nodes o = {.n = 0};
    usc_status st = USC_OK;
    for (bool done = false; st == USC_OK && !done;) {
        yaml_event_t e;
        st = next(r, &e);
        if (st != USC_OK) break;
        switch ((int)e.type) {
        case YAML_STREAM_END_EVENT:
            done = true;
            break;
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
            o.n--;
            break;
        case YAML_ALIAS_EVENT:
        case YAML_SCALAR_EVENT:
        case YAML_SEQUENCE_START_EVENT:
        case YAML_MAPPING_START_EVENT:
            st = take(r, &o, &e);
            break;
        default:
            break;
        }
        yaml_event_delete(&e);
    }
    *out = st == USC_OK ? o.root : NULL;
    return st;
}

usc_status usc_yaml_read(const char *path, usc_arena *arena, usc_yaml **out,
                         usc_error *err)
{
    *out = NULL;
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                             "%s: %s", path, strerror(errno));
    usc_status st = USC_OK;
    if (fseek(f, 0, SEEK_END) != 0 || ftell(f) > MOST_BYTES)
        st = usc_error_set(err, USC_E_RANGE, -1,
                           "%s: more than 8 MiB; give a part of it, or another file",
                           path);
    rewind(f);
    reader r = {.path = path, .arena = arena, .err = err};
    if (st == USC_OK && yaml_parser_initialize(&r.parser) == 0)
        st = usc_no_memory(path, err);
    else if (st == USC_OK) {
        yaml_parser_set_input_file(&r.parser, f);
        st = build(&r, out);
        yaml_parser_delete(&r.parser);
    }
    (void)fclose(f);
    return st;
}

const usc_yaml *usc_yaml_get(const usc_yaml *map, const char *key)
{
    if (map == NULL || map->kind != USC_YAML_MAP) return NULL;
    for (size_t i = 0; i + 1 < map->n; i += 2)
        if (strcmp(map->item[i]->text, key) == 0) return map->item[i + 1];
    return NULL;
}
