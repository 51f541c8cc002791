// SPDX-License-Identifier: Apache-2.0
// Names many modules in few words: layers.0.attn, layers.1.attn, ... become
// layers.{0-3}.attn, a few of them layers.{0,7}.attn. Used by the terminal table and by
// result.json.
#include "report/report_places.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "report/report_index.h"

enum { MAX_NUMBERS = 4, MAX_LISTED = 4 };

/* Paths that differ in their numeric components only. */
typedef struct family {
    usc_indexed indexed;
    struct family *next;
    const char *first;
    int64_t n; /* distinct paths */
    int n_numbers;
    long low[MAX_NUMBERS], high[MAX_NUMBERS];
    long few[MAX_LISTED][MAX_NUMBERS]; /* numbers of the first paths */
} family;

static bool is_number(const char *part, size_t n)
{
    if (n == 0 || n > 6) return false;
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)part[i])) return false;
    return true;
}

/* Reads the component at *rest and moves behind it and its dot. */
static size_t next_part(const char **rest, const char **part)
{
    *part = *rest;
    const size_t n = strcspn(*rest, ".");
    *rest += n + ((*rest)[n] == '.' ? 1 : 0);
    return n;
}

/* Numbers of `path`, at most MAX_NUMBERS; others count as text. */
static int numbers_of(const char *path, long numbers[MAX_NUMBERS])
{
    int n = 0;
    const char *part;
    while (*path != '\0') {
        const size_t size = next_part(&path, &part);
        if (n < MAX_NUMBERS && is_number(part, size))
            numbers[n++] = strtol(part, NULL, 10);
    }
    return n;
}

static bool same_family(const char *a, const char *b)
{
    const char *part_a, *part_b;
    int n_numbers = 0;
    while (*a != '\0' && *b != '\0') {
        const size_t na = next_part(&a, &part_a), nb = next_part(&b, &part_b);
        if (n_numbers < MAX_NUMBERS && is_number(part_a, na) && is_number(part_b, nb)) {
            n_numbers++;
            continue;
        }
        if (na != nb || memcmp(part_a, part_b, na) != 0) return false;
    }
    return *a == *b;
}

/* Equal for paths of one family. */
static uint64_t hash_of(const char *path)
{
    uint64_t h = 0;
    int n_numbers = 0;
    const char *part;
    while (*path != '\0') {
        const size_t n = next_part(&path, &part);
        if (n_numbers < MAX_NUMBERS && is_number(part, n))
            h = usc_index_hash(h, &(int){++n_numbers}, sizeof(int));
        else
            h = usc_index_hash(h, part, n);
    }
    return h;
}

static void family_add(family *f, const char *path)
{
    long numbers[MAX_NUMBERS] = {0};
    const int n = numbers_of(path, numbers);
    for (int i = 0; i < n; i++) {
        if (f->n == 0 || numbers[i] < f->low[i]) f->low[i] = numbers[i];
        if (f->n == 0 || numbers[i] > f->high[i]) f->high[i] = numbers[i];
    }
    if (f->n == 0) {
        f->first = path;
        f->n_numbers = n;
    }
    if (f->n < MAX_LISTED) memcpy(f->few[f->n], numbers, sizeof numbers);
    f->n++;
}

/* Whether every combination of the ranges occurs: only then are ranges the truth. */
static bool family_full(const family *f)
{
    int64_t product = 1;
    for (int i = 0; i < f->n_numbers; i++) {
        product *= (int64_t)f->high[i] - f->low[i] + 1;
        if (product > f->n) return false;
    }
    return product == f->n;
}

/* Whether the paths differ in one number alone and are few enough to name each. */
static bool family_few(const family *f)
{
    int n_differ = 0;
    for (int i = 0; i < f->n_numbers; i++)
        n_differ += f->low[i] != f->high[i];
    return n_differ == 1 && f->n <= MAX_LISTED;
}

/* Number `i` of each path, in ascending order. */
static void put_few(usc_out *o, const family *f, int i)
{
    long last = f->low[i];
    usc_out_format(o, "{%ld", last);
    for (int64_t n = 1; n < f->n; n++) {
        long next = f->high[i];
        for (int64_t k = 0; k < f->n; k++)
            if (f->few[k][i] > last && f->few[k][i] < next) next = f->few[k][i];
        usc_out_format(o, ",%ld", next);
        last = next;
    }
    usc_out_text(o, "}");
}

static void put_number(usc_out *o, const family *f, int i, bool full)
{
    if (f->low[i] == f->high[i])
        usc_out_format(o, "%ld", f->low[i]);
    else if (full)
        usc_out_format(o, "{%ld-%ld}", f->low[i], f->high[i]);
    else if (family_few(f))
        put_few(o, f, i);
    else
        usc_out_text(o, "*");
}

static void family_put(usc_out *o, const family *f)
{
    const bool full = family_full(f);
    int i = 0;
    const char *rest = f->first, *part;
    while (*rest != '\0') {
        const size_t n = next_part(&rest, &part);
        if (i < f->n_numbers && is_number(part, n))
            put_number(o, f, i++, full);
        else
            usc_out_terminal(o, part, n);
        if (*rest != '\0') usc_out_text(o, ".");
    }
    if (!full && !family_few(f)) usc_out_format(o, " (%lld)", (long long)f->n);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_families(usc_out *o, const family *families, int at_most)
{
    int n = 0;
    for (const family *f = families; f != NULL; f = f->next, n++) {
        if (n >= at_most) continue;
        if (n > 0) usc_out_text(o, ", ");
        family_put(o, f);
    }
    if (n > at_most) usc_out_format(o, ", and %d more", n - at_most);
}

/* Families in the order of their first paths. */
typedef struct families {
    usc_index index;
    family *first, **end;
} families;

static usc_status add_path(usc_report *r, families *all, const char *path, usc_error *err)
{
    const uint64_t hash = hash_of(path);
    usc_indexed *node = usc_index_first(&all->index, hash);
    while (node != NULL && !same_family(((family *)node)->first, path))
        node = usc_index_next(node);
    family *f = (family *)node;
    if (f == NULL) {
        f = usc_report_take(r, sizeof *f);
        if (f == NULL || usc_index_add(r, &all->index, &f->indexed, hash, NULL) != USC_OK)
            return usc_report_no_memory(r, err);
        *all->end = f;
        all->end = &f->next;
    }
    family_add(f, path);
    return USC_OK;
}

usc_status usc_places_put(usc_out *o, usc_report *r, const usc_report_finding *f,
                          int at_most)
{
    const char **paths = usc_report_take(r, (size_t)f->n_rows * sizeof *paths);
    if (paths == NULL) return usc_report_no_memory(r, o->err);
    size_t n = 0;
    for (const usc_place *p = f->places; p != NULL; p = p->next)
        paths[n++] = p->text;
    qsort(paths, n, sizeof *paths, by_text);
    families all = {.end = &all.first};
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(paths[i], paths[i - 1]) == 0) continue;
        const usc_status st = add_path(r, &all, paths[i], o->err);
        if (st != USC_OK) return st;
    }
    put_families(o, all.first, at_most);
    return o->status;
}
