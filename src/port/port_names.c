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
    usc_port_names larger = *names;
    larger.size = names->size > 0 ? names->size * 2 : 2048;
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
static void put_first(usc_port_names *names, usc_port_row_kind kind, const char *from,
                      const char *ends)
{
    const size_t n = strcspn(from, ends);
    char *first = from[n] == '\0' ? NULL : usc_arena_take(names->arena, n + 1);
    if (first != NULL) {
        memcpy(first, from, n);
        first[n] = '\0';
    }
    names->failed |= from[n] != '\0' && first == NULL;
    if (usc_port_names_find(names, kind, from, n) == NULL)
        usc_port_names_put(names, kind, first != NULL ? first : from, "");
}

void usc_port_names_look(usc_port_names *names, const char *name)
{
    if (name[0] == '\0') return;
    const size_t bit = usc_port_look_of(name, strlen(name));
    names->look[bit / 8] |= (uint8_t)(1U << bit % 8);
}

void usc_port_names_put(usc_port_names *names, usc_port_row_kind kind, const char *from,
                        const char *to)
{
    if (kind == USC_PORT_CXX_NAME) put_first(names, USC_PORT_FIRST, from, ":");
    if (kind == USC_PORT_PY_NAME) put_first(names, USC_PORT_PY_FIRST, from, ".");
    if (kind == USC_PORT_FIRST || kind == USC_PORT_CXX_CALL || kind == USC_PORT_KEY)
        usc_port_names_look(names, from);
    if (names->n * 2 >= names->size && !grow(names)) return;
    usc_port_name *s = &names->slot[slot_of(names, kind, from, strlen(from))];
    names->n += s->from == NULL;
    *s = (usc_port_name){from, to, kind, NULL};
}

void usc_port_names_put_several(usc_port_names *names, usc_port_row_kind kind,
                                const char *from, const char *several)
{
    usc_port_name *slot = &names->slot[slot_of(names, kind, from, strlen(from))];
    slot->several = several;
    slot->to = NULL;
}

const usc_port_name *usc_port_names_find(const usc_port_names *names,
                                         usc_port_row_kind kind, const char *from,
                                         size_t n)
{
    if (names->size == 0) return NULL;
    const usc_port_name *s = &names->slot[slot_of(names, kind, from, n)];
    return s->from != NULL ? s : NULL;
}

void usc_port_names_close(usc_port_names *names)
{
    free(names->slot);
    *names = (usc_port_names){0};
}
