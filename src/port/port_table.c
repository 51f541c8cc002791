// SPDX-License-Identifier: Apache-2.0
// The table of names, filled from rows and the user's map. Neighbours: port_names.c (the
// table itself), port_map.c.
#include <string.h>

#include "port/port_names.h"

const char *const usc_port_open_names[] = {"at",     "c10",    "torch", "cuda",
                                           "native", "detail", "musa",  NULL};

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

/* Two texts that differ by the namespace alone, of which ATen's is another name for that
 * of c10. */
static bool same_but_at(const char *a, const char *b)
{
    return strncmp(a, "at::", 4) == 0 && strncmp(b, "c10::", 5) == 0 &&
           strcmp(a + 4, b + 5) == 0;
}

static void put_back(usc_port_names *names, usc_port_row_kind kind, const char *from,
                     const char *to)
{
    const size_t n = strlen(from);
    const usc_port_name *known = usc_port_names_find(names, kind, from, n);
    if (known == NULL || (known->to != NULL && same_but_at(known->to, to))) {
        usc_port_names_put(names, kind, from, to);
        return;
    }
    if (known->to != NULL && (strcmp(known->to, to) == 0 || same_but_at(to, known->to)))
        return;
    const char *first = known->several != NULL ? known->several : known->to;
    const char *both = joined(names, first, " or ", 4);
    both = joined(names, both, to, strlen(to));
    usc_port_names_put_several(names, kind, from, both);
}

/* A row as it leads back from musa. Where two names became one, there is none, and both
 * are remembered. */
static void put_row_back(usc_port_names *names, const usc_port_row *row)
{
    const char *now = row->to[USC_PORT_MUSA];
    if (now == NULL || strchr(now, '(') != NULL || strcmp(now, row->from) == 0) return;
    const size_t n = strlen(now);
    if (strncmp(row->from, "find_package ", 13) == 0)
        now = joined(names, "find_package ", now, n);
    if (now == NULL) return;
    if (now[0] != '"' && now[0] != '<') {
        put_back(names, row->kind, now, row->from);
        return;
    }
    const char *path = joined(names, "", now + 1, n - 2);
    const char *angle =
        joined(names, joined(names, "<", row->from, strlen(row->from)), ">", 1);
    if (path != NULL && angle != NULL) put_back(names, row->kind, path, angle);
}

static void put_family_back(usc_port_names *names, const usc_port_family *f)
{
    if (f->to[USC_PORT_MUSA] == NULL) return;
    for (const char *word = f->words; *word != '\0';) {
        const size_t n = strcspn(word, " ");
        const char *now = joined(names, f->to[USC_PORT_MUSA], word, n);
        const char *was = joined(names, f->from, word, n);
        if (now != NULL && was != NULL) put_back(names, f->kind, now, was);
        word += n + (word[n] != '\0');
    }
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
    const bool back = target == USC_PORT_CUDA;
    for (; family->from != NULL; family++)
        if (back)
            put_family_back(names, family);
        else
            put_family(names, family, target);
    for (; row->from != NULL; row++) /* the exceptions of the families among them */
        if (back)
            put_row_back(names, row);
        else
            usc_port_names_put(names, row->kind, row->from, row->to[target]);
}

usc_status usc_port_names_open(usc_port_names *names, usc_arena *arena,
                               const usc_port_options *options, usc_error *err)
{
    const bool back = options->target == USC_PORT_CUDA;
    *names = (usc_port_names){.arena = arena,
                              .device = back ? "musa" : "cuda",
                              .backend = back ? "mccl" : "nccl",
                              .api = back ? "MUSA" : "CUDA"};
    for (size_t i = 0; usc_port_open_names[i] != NULL; i++)
        usc_port_names_look(names, usc_port_open_names[i]);
    if (!options->no_default_map) {
        put_table(names, usc_port_rows_cxx, usc_port_families_cxx, options->target);
        put_table(names, usc_port_rows_python, usc_port_families_python, options->target);
        put_table(names, usc_port_rows_build, usc_port_families_build, options->target);
    }
    usc_status st = USC_OK;
    if (options->map != NULL) st = usc_port_map_read(names, options->map, err);
    if (st == USC_OK && names->failed) st = usc_no_memory("the table of names", err);
    if (st != USC_OK) usc_port_names_close(names);
    return st;
}
