// SPDX-License-Identifier: Apache-2.0
// A watch: tensors, rows that wait, the bytes of the detectors, what is decided when.
// Neighbours: watch_events.c (what was found), watch_save.c, one file for each detector.
#include "watch/watch_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

usc_status usc_watch_create(const usc_watch_config *config, usc_watch **out,
                            usc_error *err)
{
    *out = NULL;
    if (config->world < 1 || config->world > USC_WATCH_MOST_RANKS)
        return usc_error_set(err, USC_E_RANGE, -1, "a world of %ld: 1 to %d is possible",
                             (long)config->world, USC_WATCH_MOST_RANKS);
    usc_watch *w = calloc(1, sizeof *w);
    if (w == NULL) return usc_no_memory("watch", err);
    *w = (usc_watch){
        .config = *config, .rules = usc_watch_rules, .texts.alloc = usc_libc_alloc};
    w->blocks.alloc = usc_libc_alloc;
    w->given = (double)NAN;
    *out = w;
    return USC_OK;
}

void usc_watch_free(usc_watch *w)
{
    if (w == NULL) return;
    for (int d = 0; d < USC_N_WATCH_DETECTORS; d++)
        for (int t = 0; t < USC_N_WATCH_TABLES; t++)
            free(w->tables[d][t].block);
    for (size_t i = 0; i < w->said_size; i++)
        usc_line_free(&w->said[i].texts);
    usc_line_free(&w->taken);
    usc_keys_free(&w->names);
    usc_arena_free(&w->texts);
    usc_arena_free(&w->blocks);
    free(w->tensors);
    free(w->rows);
    free(w->scratch);
    free(w->sampled);
    free(w->said);
    free(w);
}

/* Room for one more item of a list that doubles; false: no memory. */
static bool grow(void **items, size_t n, size_t *size, size_t item_size)
{
    if (n < *size) return true;
    const size_t wanted = *size > 0 ? 2 * *size : 64;
    void *larger = realloc(*items, wanted * item_size);
    if (larger == NULL) return false;
    *items = larger;
    *size = wanted;
    return true;
}

/* ---- tensors ---- */

static usc_status add_tensor(usc_watch *w, const usc_watch_tensor_info *info,
                             usc_error *err)
{
    size_t size = (size_t)w->tensors_size;
    const size_t n = strlen(info->name) + 1;
    if (w->n_tensors >= USC_WATCH_MOST_TENSORS)
        return usc_error_set(err, USC_E_RANGE, -1, "more than %d tensors",
                             USC_WATCH_MOST_TENSORS);
    char *name = usc_arena_take(&w->texts, n);
    if (name == NULL ||
        !grow((void **)&w->tensors, (size_t)w->n_tensors, &size, sizeof *w->tensors))
        return usc_no_memory("watch", err);
    w->tensors_size = (int64_t)size;
    memcpy(name, info->name, n);
    (void)usc_keys_put(&w->names, usc_key_of(name), w->n_tensors);
    if (w->names.failed) return usc_no_memory("watch", err);
    w->tensors[w->n_tensors++] = (usc_watch_tensor_row){.name = name};
    return USC_OK;
}

usc_status usc_watch_tensor(usc_watch *w, const usc_watch_tensor_info *info, int64_t *id,
                            usc_error *err)
{
    *id = -1;
    if (info->name == NULL || info->name[0] == '\0')
        return usc_error_set(err, USC_E_ARG, -1, "a tensor without a name");
    const int64_t *known = usc_keys_find(&w->names, usc_key_of(info->name));
    const int64_t at = known != NULL ? *known : w->n_tensors;
    if (known == NULL) {
        const usc_status st = add_tensor(w, info, err);
        if (st != USC_OK) return st;
    }
    usc_watch_tensor_row *t = &w->tensors[at];
    const int ndim = info->ndim != 0 ? info->ndim : 2;
    if (known == NULL || t->dtype != info->dtype || t->ndim != ndim)
        w->tensors_version++; /* mode asd chooses anew */
    t->dtype = info->dtype;
    t->ndim = ndim;
    t->sharded = info->sharded;
    *id = at;
    return USC_OK;
}

int64_t usc_watch_n_tensors(const usc_watch *w)
{
    return w->n_tensors;
}

/* ---- rows ---- */

#define MOST_ELEMENTS (INT64_C(1) << 53)

static bool is_count(int64_t n)
{
    return n >= 0 && n <= MOST_ELEMENTS;
}

static int64_t add_counts(int64_t a, int64_t b)
{
    return a + b < MOST_ELEMENTS ? a + b : MOST_ELEMENTS;
}

usc_status usc_watch_feed(usc_watch *w, const usc_watch_row *rows, size_t n,
                          usc_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const usc_watch_row *r = &rows[i];
        if (r->rank < 0 || r->rank >= w->config.world)
            return usc_error_set(err, USC_E_RANGE, (int64_t)i,
                                 "rank %ld in a world of %ld", (long)r->rank,
                                 (long)w->config.world);
        if ((unsigned)r->site >= USC_N_WATCH_SITES)
            return usc_error_set(err, USC_E_RANGE, (int64_t)i, "no site %d",
                                 (int)r->site);
        if (r->tensor < -1 || r->tensor >= w->n_tensors)
            return usc_error_set(err, USC_E_RANGE, (int64_t)i,
                                 "tensor %lld where there are %lld", (long long)r->tensor,
                                 (long long)w->n_tensors);
        if (r->step < 0 || !is_count(r->numel) || !is_count(r->n_nonfinite) ||
            !is_count(r->n_zero))
            return usc_error_set(err, USC_E_RANGE, (int64_t)i,
                                 "a step or a number of elements that is none");
    }
    for (size_t i = 0; i < n; i++) {
        if (!grow((void **)&w->rows, w->n_rows, &w->rows_size, sizeof *w->rows)) {
            w->n_rows -= i;
            return usc_no_memory("watch", err);
        }
        w->rows[w->n_rows++] = rows[i];
    }
    return USC_OK;
}

static int order(const void *a, const void *b)
{
    const usc_watch_row *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->site != y->site) return x->site < y->site ? -1 : 1;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    /* of a replay `value` is a rank, and part of what it is */
    if (x->site == USC_WATCH_REPLAY && x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The same, and rows that are to become one in an order of their own: a sum of floats
 * depends on it. */
static int whole_order(const void *a, const void *b)
{
    const usc_watch_row *x = a, *y = b;
    const int by_place = order(a, b);
    if (by_place != 0) return by_place;
    if (x->sum_abs != y->sum_abs) return x->sum_abs < y->sum_abs ? -1 : 1;
    if (x->sum_sq != y->sum_sq) return x->sum_sq < y->sum_sq ? -1 : 1;
    return x->hash64 < y->hash64 ? -1 : x->hash64 > y->hash64;
}

static void merge(usc_watch_row *into, const usc_watch_row *r)
{
    into->max_abs = fmax(into->max_abs, r->max_abs);
    into->sum_abs += r->sum_abs;
    into->sum_sq += r->sum_sq;
    into->numel = add_counts(into->numel, r->numel);
    into->n_nonfinite = add_counts(into->n_nonfinite, r->n_nonfinite);
    into->n_zero = add_counts(into->n_zero, r->n_zero);
    into->hash64 += r->hash64;
    into->value =
        isnan(into->value) || isnan(r->value) ? (double)NAN : fmax(into->value, r->value);
}

static void sort_rows(usc_watch *w)
{
    size_t i = 1, kept = 0;
    while (i < w->n_rows && order(&w->rows[i - 1], &w->rows[i]) < 0)
        i++;
    if (i >= w->n_rows) return; /* as they mostly come */
    qsort(w->rows, w->n_rows, sizeof *w->rows, whole_order);
    for (i = 1; i < w->n_rows; i++) {
        if (order(&w->rows[kept], &w->rows[i]) == 0)
            merge(&w->rows[kept], &w->rows[i]);
        else
            w->rows[++kept] = w->rows[i];
    }
    w->n_rows = kept + 1;
}

/* ---- deciding ---- */

static usc_status decide_step(usc_watch *w, const usc_watch_row *rows, size_t n,
                              int64_t step, usc_error *err)
{
    if (!w->config.enable) return USC_OK;
    for (usc_watch_detector d = 0; d < USC_N_WATCH_DETECTORS; d++) {
        if ((w->config.detectors >> d & 1) == 0) continue;
        usc_watch_view v = {.w = w,
                            .detector = d,
                            .step = step,
                            .seconds = w->seconds,
                            .rows = rows,
                            .n = n,
                            .err = err};
        w->rules[d].decide(&v);
        usc_watch_count_more(&v);
        if (v.status != USC_OK) return v.status;
    }
    return USC_OK;
}

/* Time goes on by what the clock says has passed: one that jumps back, and the one of
 * another process after usc_watch_load, go on from where it was; but of a date all can
 * tell how long ago it was. */
static void take_time(usc_watch *w, double seconds)
{
    if (!isfinite(seconds)) return;
    const bool dates = usc_watch_is_date(w->seconds) && usc_watch_is_date(seconds);
    if (isnan(w->given) && (w->seconds == 0 || (dates && seconds > w->seconds)))
        w->seconds = seconds;
    else if (seconds > w->given)
        w->seconds += seconds - w->given;
    w->given = seconds;
}

usc_status usc_watch_step(usc_watch *w, int64_t step, double seconds, usc_error *err)
{
    usc_status st = USC_OK;
    size_t at = 0;
    bool decided = false;
    take_time(w, seconds);
    w->score = 0;
    sort_rows(w);
    while (st == USC_OK && at < w->n_rows && w->rows[at].step <= step) {
        size_t n = 1;
        while (at + n < w->n_rows && w->rows[at + n].step == w->rows[at].step)
            n++;
        decided = decided || w->rows[at].step == step;
        st = decide_step(w, w->rows + at, n, w->rows[at].step, err);
        at += n;
    }
    /* time passes also where nothing came: a checksum ends */
    if (st == USC_OK && !decided) st = decide_step(w, NULL, 0, step, err);
    if (at > 0) memmove(w->rows, w->rows + at, (w->n_rows - at) * sizeof *w->rows);
    w->n_rows -= at;
    return st;
}

int64_t usc_watch_bytes(const usc_watch *w)
{
    return w->n_bytes;
}

double usc_watch_score(const usc_watch *w)
{
    return w->score;
}

bool usc_watch_wants_checksum(const usc_watch *w)
{
    return w->wants_checksum;
}
