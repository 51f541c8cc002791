// SPDX-License-Identifier: Apache-2.0
// Which flipped bits would be seen: the detectors themselves, over made-up gradients of
// given levels, one of which has one bit of one element flipped. Elements are normal, and
// the largest of n is Gumbel's, by the extreme value theorem, where a log does not tell
// how large it is.
#include <ulpscope/x/watch_log.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/mix.h"
#include "base/number.h"

enum { RANKS = 4, CLEAN_STEPS = 128, MOST_LEVELS = 8 };

typedef struct trials {
    const usc_watch_level *levels;
    size_t n_levels, place[MOST_LEVELS], n_places; /* those that flips go into */
    int world;
    usc_dtype dtype;
    uint64_t state; /* of the generator: splitmix64 */
    usc_watch_row rows[MOST_LEVELS * RANKS];
    double rms[MOST_LEVELS * RANKS]; /* of each row */
} trials;

static double uniform(trials *t)
{
    t->state += UINT64_C(0x9e3779b97f4a7c15);
    return ((double)(usc_mixed(t->state) >> 11) + 0.5) * 0x1p-53;
}

static double normal(trials *t)
{
    const double radius = sqrt(-2 * log(uniform(t)));
    return radius * cos(6.283185307179586 * uniform(t));
}

/* The largest of n absolute normal values. */
static double largest(trials *t, double n)
{
    if (n < 3) return fabs(normal(t));
    const double root = sqrt(2 * log(2 * n));
    const double middle = root - (log(log(2 * n)) + 2.5310242) / (2 * root);
    return middle - log(-log(uniform(t))) / root;
}

/* The largest and the mean of absolute values, in units of their rms. */
static double largest_of(trials *t, const usc_watch_level *l)
{
    if (!(l->mean > 0)) return largest(t, (double)l->numel);
    return l->mean / l->rms * exp2(fmax(0, l->peak + l->peak_wander * normal(t)));
}

static double mean_of(const usc_watch_level *l)
{
    return l->mean > 0 ? l->mean / l->rms : 0.7978845608; /* sqrt(2 / pi) */
}

static void make_step(trials *t, int64_t step)
{
    for (size_t i = 0; i < t->n_levels; i++) {
        const usc_watch_level *l = &t->levels[i];
        const double moved = l->wander * normal(t), n = (double)l->numel;
        for (int r = 0; r < t->world; r++) {
            const size_t at = i * (size_t)t->world + (size_t)r;
            const double rms = l->rms * exp2(moved + 0.3 * l->wander * normal(t));
            t->rms[at] = rms;
            t->rows[at] = (usc_watch_row){.step = step,
                                          .rank = r,
                                          .site = USC_WATCH_GRAD,
                                          .tensor = (int64_t)i,
                                          .max_abs = rms * largest_of(t, l),
                                          .sum_abs = rms * mean_of(l) * n,
                                          .sum_sq = rms * rms * n,
                                          .numel = l->numel};
        }
    }
}

static double flipped(usc_dtype dtype, double x, int bit)
{
    uint64_t bits = 0;
    usc_dtype_narrow(dtype, &x, &bits, 1); /* the host is little-endian, as all here */
    bits ^= UINT64_C(1) << bit;
    usc_dtype_widen(dtype, &bits, &x, 1);
    return x;
}

static void plant(trials *t, int bit)
{
    const size_t level = t->place[(size_t)(uniform(t) * (double)t->n_places)];
    const size_t at = level * (size_t)t->world + (size_t)(uniform(t) * (double)t->world);
    usc_watch_row *r = &t->rows[at];
    const double before = t->rms[at] * normal(t);
    const double after = flipped(t->dtype, before, bit);
    r->sum_abs = fmax(0, r->sum_abs - fabs(before));
    r->sum_sq = fmax(0, r->sum_sq - before * before);
    if (!isfinite(after)) {
        r->n_nonfinite = 1;
        return;
    }
    r->sum_abs += fabs(after);
    r->sum_sq += after * after;
    r->max_abs = fmax(r->max_abs, fabs(after));
    r->n_zero = after == 0;
}

static usc_status decide(usc_watch *w, const trials *t, int64_t step, usc_error *err)
{
    const size_t n = t->n_levels * (size_t)t->world;
    const usc_status st = usc_watch_feed(w, t->rows, n, err);
    return st == USC_OK ? usc_watch_step(w, step, (double)step, err) : st;
}

static void drop_events(usc_watch *w)
{
    usc_watch_event e;
    while (usc_watch_next(w, &e)) {
    }
}

static usc_status prepare(trials *t, const usc_watch_config *config, usc_watch **out,
                          usc_error *err)
{
    usc_status st = usc_watch_create(config, out, err);
    for (size_t i = 0; st == USC_OK && i < t->n_levels; i++) {
        char name[32];
        int64_t id;
        (void)usc_format(name, sizeof name, "level%zu.weight", i);
        const usc_watch_tensor_info info = {.name = name, .dtype = t->dtype};
        st = usc_watch_tensor(*out, &info, &id, err);
    }
    for (int64_t step = 0; st == USC_OK && step < CLEAN_STEPS; step++) {
        make_step(t, step);
        st = decide(*out, t, step, err);
        drop_events(*out);
    }
    return st;
}

/* Each trial begins from the state behind the clean steps. `bit` -1: none flips. */
static usc_status try_bit(trials *t, usc_watch *w, const void *state, size_t size,
                          int bit, double *share, usc_error *err)
{
    usc_status st = USC_OK;
    int n_seen = 0;
    for (int k = 0; st == USC_OK && k < USC_WATCH_TRIALS; k++) {
        st = usc_watch_load(w, state, size, err);
        make_step(t, CLEAN_STEPS);
        if (bit >= 0) plant(t, bit);
        if (st == USC_OK) st = decide(w, t, CLEAN_STEPS, err);
        n_seen += usc_watch_score(w) > 1;
        drop_events(w);
    }
    *share = (double)n_seen / USC_WATCH_TRIALS;
    return st;
}

static usc_status try_bits(trials *t, usc_watch *w, usc_watch_seen *out, usc_error *err)
{
    void *state = NULL;
    size_t size = 0;
    double sum = 0;
    usc_status st = usc_watch_save(w, &state, &size, err);
    if (st == USC_OK) st = try_bit(t, w, state, size, -1, &out->clean, err);
    for (int bit = 0; st == USC_OK && bit < out->n_bits; bit++) {
        st = try_bit(t, w, state, size, bit, &out->share[bit], err);
        sum += out->share[bit];
    }
    out->mean = sum / out->n_bits;
    usc_watch_saved_free(state);
    return st;
}

usc_status usc_watch_explain(const usc_watch_level *levels, size_t n_levels,
                             usc_dtype dtype, const usc_watch_config *config,
                             usc_watch_seen *out, size_t *n, usc_error *err)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    trials t = {.levels = levels,
                .n_levels = n_levels < MOST_LEVELS ? n_levels : MOST_LEVELS,
                .world = config->world < RANKS ? config->world : RANKS,
                .dtype = dtype};
    usc_status st = USC_OK;
    *n = 0;
    if (info->kind != USC_KIND_FLOAT)
        return usc_error_set(err, USC_E_DTYPE, -1, "%s is no float", info->name);
    for (size_t i = 0; i < t.n_levels; i++)
        if (!levels[i].spared) t.place[t.n_places++] = i;
    if (t.n_places == 0) return usc_error_set(err, USC_E_ARG, -1, "no levels");
    for (usc_watch_detector d = 0; st == USC_OK && d < USC_N_WATCH_DETECTORS; d++) {
        if ((config->detectors >> d & 1) == 0) continue;
        usc_watch_config c = *config;
        usc_watch *w = NULL;
        c.enable = true;
        c.world = t.world;
        c.grad_sample_interval = 1;
        c.detectors = 1u << d;
        t.state = 1; /* all detectors see the same */
        st = prepare(&t, &c, &w, err);
        out[*n] = (usc_watch_seen){.detector = d, .n_bits = (int)(8 * info->size)};
        if (st == USC_OK) st = try_bits(&t, w, &out[*n], err);
        usc_watch_free(w);
        if (st == USC_OK) ++*n;
    }
    return st;
}

/* ---- levels of a log ---- */

typedef struct moments {
    double sum, squares;       /* of log2 of the rms */
    double peak, peak_squares; /* of log2 of the largest against the mean */
    double means;              /* of log2 of the mean against the rms */
    int64_t n, numel;
} moments;

static void take_rows(moments *m, const usc_watch_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const usc_watch_row *r = &rows[i];
        if (r->site != USC_WATCH_GRAD && r->site != USC_WATCH_REDUCED) continue;
        if (r->tensor < 0 || r->numel <= 0 || !(r->sum_sq > 0) || !isfinite(r->sum_sq) ||
            !(r->sum_abs > 0))
            continue;
        const double numel = (double)r->numel, bits = log2(r->sum_sq / numel) / 2;
        const double mean = log2(r->sum_abs / numel), peak = log2(r->max_abs) - mean;
        moments *to = &m[2 * r->tensor + (r->site == USC_WATCH_REDUCED)];
        to->sum += bits;
        to->squares += bits * bits;
        to->peak += peak;
        to->peak_squares += peak * peak;
        to->means += mean - bits;
        to->numel = r->numel;
        to->n++;
    }
}

static double deviation(double sum, double squares, double n)
{
    return sqrt(fmax(0, squares / n - sum / n * (sum / n)));
}

static usc_watch_level level_of(const moments *m, const char *name)
{
    const double n = (double)m->n;
    usc_watch_level l = {.rms = exp2(m->sum / n),
                         .wander = deviation(m->sum, m->squares, n),
                         .numel = m->numel,
                         .mean = exp2((m->sum + m->means) / n),
                         .peak = m->peak / n,
                         .peak_wander = deviation(m->peak, m->peak_squares, n)};
    (void)usc_format(l.name, sizeof l.name, "%s", name);
    return l;
}

static int by_rms(const void *a, const void *b)
{
    const usc_watch_level *x = a, *y = b;
    return (x->rms > y->rms) - (x->rms < y->rms);
}

static usc_status sum_up(const char *path, const usc_watch_log_info *info,
                         const moments *m, usc_watch_level *out, size_t most, size_t *n,
                         usc_dtype *dtype, usc_error *err)
{
    usc_watch_level *all = calloc((size_t)info->n_tensors + 1, sizeof *all);
    size_t n_all = 0;
    if (all == NULL) return usc_no_memory(path, err);
    for (int64_t i = 0; i < info->n_tensors; i++) {
        const moments *of =
            &m[2 * i + (m[2 * i].n == 0)]; /* before a reduction, if known */
        if (of->n == 0) continue;
        if (n_all == 0) *dtype = info->tensors[i].dtype;
        all[n_all++] = level_of(of, info->tensors[i].name);
    }
    if (n_all > most) qsort(all, n_all, sizeof *all, by_rms);
    *n = n_all < most ? n_all : most;
    for (size_t i = 0; i < *n; i++) /* from the first to the last, evenly */
        out[i] = all[*n > 1 ? i * (n_all - 1) / (*n - 1) : 0];
    free(all);
    return *n > 0 ? USC_OK
                  : usc_error_set(err, USC_E_RANGE, -1,
                                  "%s: no statistics of gradients in it", path);
}

usc_status usc_watch_log_levels(const char *path, const char *key, usc_watch_level *out,
                                size_t most, size_t *n, usc_dtype *dtype, int32_t *world,
                                usc_error *err)
{
    usc_watch_log *log;
    *n = 0;
    usc_status st = usc_watch_log_open(path, key, &log, err);
    if (st != USC_OK) return st;
    const usc_watch_log_info *info = usc_watch_log_about(log);
    *world = info->world;
    moments *m = calloc(2 * (size_t)info->n_tensors + 1, sizeof *m);
    if (m == NULL) st = usc_no_memory(path, err);
    for (size_t n_rows = 1; st == USC_OK && n_rows > 0;) {
        const usc_watch_row *rows;
        double seconds;
        st = usc_watch_log_next(log, &rows, &n_rows, &seconds, err);
        if (st == USC_OK) take_rows(m, rows, n_rows);
    }
    if (st == USC_OK) st = sum_up(path, info, m, out, most, n, dtype, err);
    free(m);
    usc_watch_log_close(log);
    return st;
}
