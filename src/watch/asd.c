// SPDX-License-Identifier: Apache-2.0
// Mode asd: torch_npu's feature value detection, version 3 (NPU_ASD_CONFIG), as its
// published source has it, with what is odd about it (docs/reference/watch-reference.md
// has the list). Of every grad_sample_interval-th parameter of two and more axes, by its
// leaf module, the squared maximum against a moving average. What becomes of an anomaly:
// asd_strikes.c. Rows of a step come in order of tensors, not of the backward pass.
#include "watch/asd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

/* ---- which parameters ---- */

static size_t module_length(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL ? (size_t)(dot - name) : 0;
}

/* The parameters by name, so that those of a module and of modules in it lie together. */
typedef struct named {
    const char *name;
    int64_t id;
} named;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

/* Whether a module has modules in it: a parameter whose own module begins with its name
 * and a point. */
static bool is_leaf(const named *sorted, int64_t n, const char *module, size_t length)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (strncmp(sorted[middle].name, module, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < n && strncmp(sorted[low].name, module, length) == 0; low++) {
        const char *name = sorted[low].name;
        if (length == 0 ? strchr(name, '.') != NULL
                        : name[length] == '.' && module_length(name) > length)
            return false;
    }
    return true;
}

static bool same_module(const usc_watch *w, int64_t a, int64_t b)
{
    const char *x = w->tensors[a].name, *y = w->tensors[b].name;
    const size_t n = module_length(x);
    return n == module_length(y) && memcmp(x, y, n) == 0;
}

/* A counter over all parameters of two and more axes; at 0 the module is looked at, with
 * all of them. In `sampled` then, of each parameter, the first of its module. */
static void sample(usc_watch *w, const named *sorted)
{
    int64_t counter = 0;
    for (int64_t i = 0, next; i < w->n_tensors; i = next) {
        bool chosen = false;
        next = i + 1;
        while (next < w->n_tensors && same_module(w, i, next))
            next++;
        if (!is_leaf(sorted, w->n_tensors, w->tensors[i].name,
                     module_length(w->tensors[i].name)))
            continue;
        for (int64_t k = i; k < next; k++) {
            if (w->tensors[k].ndim < 2) continue;
            chosen = chosen || counter == 0;
            counter = (counter + 1) % w->config.grad_sample_interval;
        }
        for (int64_t k = i; chosen && k < next; k++)
            if (w->tensors[k].ndim >= 2) w->sampled[k] = i;
    }
}

static bool choose(usc_watch_view *v)
{
    usc_watch *w = v->w;
    if (w->sampled_version == w->tensors_version) return true;
    const size_t n = (size_t)w->n_tensors;
    named *sorted = malloc((n + 1) * sizeof *sorted);
    int64_t *sampled = realloc(w->sampled, (n + 1) * sizeof *sampled);
    if (sampled != NULL) w->sampled = sampled;
    if (sorted == NULL || sampled == NULL) {
        free(sorted);
        v->status = usc_no_memory("watch", v->err);
        return false;
    }
    bool half = false;
    for (size_t i = 0; i < n; i++) {
        sorted[i] = (named){w->tensors[i].name, (int64_t)i};
        w->sampled[i] = -1;
        half = half || w->tensors[i].dtype == USC_F16;
    }
    qsort(sorted, n, sizeof *sorted, by_name);
    if (!half) sample(w, sorted); /* one float16 switches all of it off */
    free(sorted);
    w->sampled_version = w->tensors_version;
    return true;
}

/* ---- the rule ---- */

/* Of one module. */
typedef struct average {
    double average, previous;
    int64_t calls, n;
} average;

static float feature_of(const usc_watch_row *r)
{
    if (usc_row_nonfinite(r)) return NAN;
    const float most = (float)(r->numel > 0 ? r->max_abs : fabs(r->value));
    return most * most;
}

/* Whether it is abnormal; takes it into the average. */
static bool check(usc_watch_view *v, average *a, double value)
{
    enum { WARM = 10 };
    double first = value, second = value;
    if (value == 0) return false;
    if (!isfinite(value)) {
        usc_watch_note(v, HUGE_VAL, 1);
        return true;
    }
    if (a->n >= WARM && a->average != 0) {
        const double unbiased = a->average / (1 - pow(0.99, (double)a->n));
        first = unbiased * (double)v->w->config.upper_thresh1;
        second = unbiased * (double)v->w->config.upper_thresh2;
        usc_watch_note(v, fmin(value, fabs(value - a->previous)), first);
    }
    if (value > first && fabs(value - a->previous) > first) return true;
    if (value <= second) {
        a->n++;
        a->average = 0.99 * a->average + 0.01 * value;
    }
    return false;
}

void usc_watch_asd(usc_watch_view *v)
{
    const usc_watch_row *rows;
    const size_t n = usc_watch_rows_of(v, USC_WATCH_GRAD, &rows);
    if (!v->w->config.enable || !choose(v)) return;
    for (size_t i = 0; i < n && v->status == USC_OK; i++) {
        const int64_t module = rows[i].tensor >= 0 ? v->w->sampled[rows[i].tensor] : -1;
        if (module < 0) continue;
        average *a = usc_watch_series(v, USC_WATCH_GRAD, module, rows[i].rank);
        if (a == NULL) return;
        const double value = (double)feature_of(&rows[i]);
        if (check(v, a, value)) {
            usc_asd_anomaly found = {.seconds = v->seconds,
                                     .value = value,
                                     .previous = a->previous,
                                     .average = a->average,
                                     .calls = a->calls,
                                     .normal = a->n,
                                     .tensor = rows[i].tensor,
                                     .counted = true};
            (void)usc_format(found.name, sizeof found.name, "%s",
                             usc_watch_name(v, found.tensor));
            usc_asd_count(v, rows[i].rank, &found);
        }
        if (value == 0) continue;
        a->calls++;
        a->previous = value;
    }
    usc_asd_checksum(v);
}
