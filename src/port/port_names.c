// SPDX-License-Identifier: Apache-2.0
#include "port/port_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static size_t slot_of(const usc_port_names *names, usc_port_row_kind kind,
                      const char *from, size_t n)
{
    size_t at = (usc_hash64_bytes(from, n) + (size_t)kind) & (names->size - 1);
    while (names->slot[at].from != NULL &&
           !(names->slot[at].kind == kind &&
             strncmp(names->slot[at].from, from, n) == 0 &&
             names->slot[at].from[n] == '\0'))
        at = (at + 1) & (names->size - 1);
    return at;
}

static bool grow(usc_port_names *names)
{
    usc_port_names larger = {.size = names->size > 0 ? names->size * 2 : 2048};
    larger.slot = calloc(larger.size, sizeof *larger.slot);
    if (larger.slot == NULL) {
        names->failed = true;
        return false;
    }
    for (size_t i = 0; i < names->size; i++) {
        const usc_port_name *s = &names->slot[i];
        if (s->from != NULL)
            larger.slot[slot_of(&larger, s->kind, s->from, strlen(s->from))] = *s;
    }
    free(names->slot);
    names->slot = larger.slot;
    names->size = larger.size;
    return true;
}

/* Remembers the first word of a chain. */
static void put_first(usc_port_names *names, const char *from)
{
    const size_t n = strcspn(from, ":");
    char *first = from[n] == '\0' ? NULL : usc_arena_take(names->arena, n + 1);
    if (first != NULL) {
        memcpy(first, from, n);
        first[n] = '\0';
    }
    names->failed |= from[n] != '\0' && first == NULL;
    if (usc_port_names_find(names, USC_PORT_FIRST, from, n) == NULL)
        usc_port_names_put(names, USC_PORT_FIRST, first != NULL ? first : from, "");
}

void usc_port_names_put(usc_port_names *names, usc_port_row_kind kind, const char *from,
                        const char *to)
{
    if (kind == USC_PORT_CXX_NAME) put_first(names, from);
    if (names->n * 2 >= names->size && !grow(names)) return;
    usc_port_name *s = &names->slot[slot_of(names, kind, from, strlen(from))];
    names->n += s->from == NULL;
    *s = (usc_port_name){from, to, kind};
}

const usc_port_name *usc_port_names_find(const usc_port_names *names,
                                         usc_port_row_kind kind, const char *from,
                                         size_t n)
{
    if (names->size == 0) return NULL;
    const usc_port_name *s = &names->slot[slot_of(names, kind, from, n)];
    return s->from != NULL ? s : NULL;
}

/* Two texts joined in the arena; NULL for NULL. */
static const char *joined(usc_port_names *names, const char *a, const char *b, size_t n)
{
    if (a == NULL) return NULL;
    const size_t size = strlen(a);
    char *text = usc_arena_take(names->arena, size + n + 1);
    if (text == NULL) {
        names->failed = true;
        return NULL;
    }
    memcpy(text, a, size);
    memcpy(text + size, b, n);
    text[size + n] = '\0';
    return text;
}

static void put_family(usc_port_names *names, const usc_port_family *f,
                       usc_port_target target)
{
    for (const char *word = f->words; *word != '\0';) {
        const size_t n = strcspn(word, " ");
        const char *from = joined(names, f->from, word, n);
        const char *to = joined(names, f->to[target], word, n);
        if (from != NULL) usc_port_names_put(names, f->kind, from, to);
        word += n + (word[n] != '\0');
    }
}

static void put_table(usc_port_names *names, const usc_port_row *row,
                      const usc_port_family *family, usc_port_target target)
{
    for (; family->from != NULL; family++)
        put_family(names, family, target);
    for (; row->from != NULL; row++) /* the exceptions of the families among them */
        usc_port_names_put(names, row->kind, row->from, row->to[target]);
}

usc_status usc_port_names_open(usc_port_names *names, usc_arena *arena,
                               const usc_port_options *options, usc_error *err)
{
    *names = (usc_port_names){.arena = arena};
    if (!options->no_default_map) {
        put_table(names, usc_port_rows_cxx, usc_port_families_cxx, options->target);
        put_table(names, usc_port_rows_python, usc_port_families_python, options->target);
    }
    usc_status st = USC_OK;
    if (options->map != NULL) st = usc_port_map_read(names, options->map, err);
    if (st == USC_OK && names->failed) st = usc_no_memory("the table of names", err);
    if (st != USC_OK) usc_port_names_close(names);
    return st;
}

void usc_port_names_close(usc_port_names *names)
{
    free(names->slot);
    *names = (usc_port_names){0};
}
