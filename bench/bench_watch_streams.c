// SPDX-License-Identifier: Apache-2.0
// Detectors of `ulpscope watch` on long clean runs that are hard, and on flipped bits in
// them. A recorded log (bench_watch_streams.py makes one of real training) is taken apart
// into each tensor's slow trend and what it does about it; runs of 10,000 steps are made
// of the trend, slowed down, and of blocks of the rest at random, all tensors and ranks
// together. On top, at random: warm-up, another loss scale, a ramp of the batch, spikes
// of the data on all ranks and on one, a tensor whose level shifts and stays (routing), a
// restart from a saved state. Usage: bench_watch_streams LOG [STEPS] [TRIALS]
#include <ulpscope/x/watch_log.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_STEPS = 10000, BLOCK = 32, HALF = 12, MOST_TENSORS = 16, MOST_RANKS = 8 };
enum { BINS = 8192, BIN_ZERO = 1024, PER_BIT = 32, BITS = 16, WARM = 300, STATES = 20 };

/* Two numbers of a row in log2, and how the squares go with the mean. */
typedef struct point {
    double level, peak;
} point;

typedef struct record {
    int64_t n_steps, n_tensors, numel[MOST_TENSORS];
    int world;
    double spread[MOST_TENSORS]; /* rms / mean */
    point *trend;                /* [step][tensor] */
    point *rest;                 /* [step][tensor][rank] */
} record;

static void need(bool ok, const char *what)
{
    if (ok) return;
    (void)fprintf(stderr, "bench_watch_streams: %s\n", what);
    exit(2);
}

/* ---- a recorded log ---- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, compare);
    return x[n / 2];
}

static point *at(point *list, const record *r, int64_t step, int64_t tensor, int rank)
{
    return &list[(step * r->n_tensors + tensor) * r->world + rank];
}

static void take_rows(record *r, point *raw, const usc_watch_row *rows, size_t n,
                      int64_t most)
{
    for (size_t i = 0; i < n; i++) {
        const usc_watch_row *w = &rows[i];
        if (w->site != USC_WATCH_GRAD || w->tensor < 0 || w->tensor >= r->n_tensors ||
            w->step >= most || !(w->sum_abs > 0))
            continue;
        const double mean = w->sum_abs / (double)w->numel;
        *at(raw, r, w->step, w->tensor, w->rank) =
            (point){log2(mean), log2(w->max_abs / mean)};
        r->numel[w->tensor] = w->numel;
        r->spread[w->tensor] = sqrt(w->sum_sq / (double)w->numel) / mean;
        if (w->step >= r->n_steps) r->n_steps = w->step + 1;
    }
}

/* The trend of a tensor is a running median over its steps and ranks. */
static void take_apart(record *r, point *raw)
{
    double levels[(2 * HALF + 1) * MOST_RANKS], peaks[(2 * HALF + 1) * MOST_RANKS];
    for (int64_t s = 0; s < r->n_steps; s++)
        for (int64_t t = 0; t < r->n_tensors; t++) {
            int n = 0;
            for (int64_t k = s - HALF; k <= s + HALF; k++)
                for (int rank = 0; k >= 0 && k < r->n_steps && rank < r->world; rank++) {
                    levels[n] = at(raw, r, k, t, rank)->level;
                    peaks[n++] = at(raw, r, k, t, rank)->peak;
                }
            point *trend = &r->trend[s * r->n_tensors + t];
            *trend = (point){median(levels, n), median(peaks, n)};
            for (int rank = 0; rank < r->world; rank++) {
                const point *p = at(raw, r, s, t, rank);
                *at(r->rest, r, s, t, rank) =
                    (point){p->level - trend->level, p->peak - trend->peak};
            }
        }
}

static record read_log(const char *path)
{
    enum { MOST_STEPS = 100000 };
    record r = {0};
    usc_watch_log *log;
    usc_error err;
    if (usc_watch_log_open(path, NULL, &log, &err) != USC_OK) need(false, err.text);
    const usc_watch_log_info *info = usc_watch_log_about(log);
    r.world = (int)info->world;
    r.n_tensors = info->n_tensors < MOST_TENSORS ? info->n_tensors : MOST_TENSORS;
    need(r.world <= MOST_RANKS, "more than 8 ranks");
    const size_t places = (size_t)(MOST_STEPS * r.n_tensors) * (size_t)r.world;
    point *raw = calloc(places, sizeof *raw);
    r.rest = calloc(places, sizeof *r.rest);
    r.trend = calloc(places, sizeof *r.trend);
    need(raw && r.rest && r.trend, "no memory");
    for (size_t n = 1; n > 0;) {
        const usc_watch_row *rows;
        double seconds;
        if (usc_watch_log_next(log, &rows, &n, &seconds, &err) != USC_OK)
            need(false, err.text);
        take_rows(&r, raw, rows, n, MOST_STEPS);
    }
    need(r.n_steps > 4 * BLOCK, "the log has too few steps");
    take_apart(&r, raw);
    free(raw);
    usc_watch_log_close(log);
    return r;
}

/* ---- runs made of it ---- */

typedef struct hard {
    int64_t warm_up; /* steps of it */
    int64_t scale_at, scale_back, ramp_every, spike_every, odd_every, shift_at,
        restart_at;
    double scale_bits, spike_bits, odd_bits, shift_bits;
    int64_t shifted;
    int odd_rank;
} hard;

typedef struct stream {
    const record *r;
    uint64_t state;
    int64_t from, left; /* the block at hand */
    hard hard;
    usc_watch_row rows[MOST_TENSORS * MOST_RANKS];
    size_t n;
} stream;

static double uniform(stream *s)
{
    s->state = s->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((double)(s->state >> 11) + 0.5) * 0x1p-53;
}

static double normal(stream *s)
{
    const double radius = sqrt(-2 * log(uniform(s)));
    return radius * cos(6.283185307179586 * uniform(s));
}

static void begin_run(stream *s)
{
    hard *h = &s->hard;
    h->warm_up = (int64_t)(uniform(s) * 1000);
    h->scale_at = (int64_t)(uniform(s) * RUN_STEPS);
    h->scale_back = h->scale_at + 500 + (int64_t)(uniform(s) * 1000);
    h->scale_bits = floor(uniform(s) * 9) - 4;
    h->ramp_every = 500 + (int64_t)(uniform(s) * 2000);
    h->spike_every = 200 + (int64_t)(uniform(s) * 1000);
    h->spike_bits = 6 * uniform(s);
    h->odd_every = 200 + (int64_t)(uniform(s) * 1000);
    h->odd_bits = 5 * uniform(s);
    h->odd_rank = (int)(uniform(s) * s->r->world);
    h->shift_at = (int64_t)(uniform(s) * RUN_STEPS);
    h->shift_bits = 8 * uniform(s) - 4;
    h->shifted = (int64_t)(uniform(s) * (double)s->r->n_tensors);
    h->restart_at = (int64_t)(uniform(s) * RUN_STEPS);
    s->left = 0;
}

/* What is added to a level at a step, in bits. */
static double hardship(const hard *h, int64_t step, int64_t tensor, int rank)
{
    double bits = 0;
    if (step < h->warm_up) bits += 6 * (1 - (double)step / (double)h->warm_up);
    if (step >= h->scale_at && step < h->scale_back) bits += h->scale_bits;
    bits -= 0.5 * log2(1 + (double)(step / h->ramp_every));
    if (step % h->spike_every == h->spike_every - 1) bits += h->spike_bits;
    if (step % h->odd_every == h->odd_every - 1 && rank == h->odd_rank)
        bits += h->odd_bits;
    if (step >= h->shift_at && tensor == h->shifted) bits += h->shift_bits;
    return bits;
}

static void make_step(stream *s, int64_t step)
{
    const record *r = s->r;
    if (s->left == 0) {
        s->from = (int64_t)(uniform(s) * (double)(r->n_steps - BLOCK));
        s->left = BLOCK;
    }
    const int64_t from = s->from + BLOCK - s->left--;
    const int64_t slow = step * (r->n_steps - 1) / RUN_STEPS;
    s->n = 0;
    for (int64_t t = 0; t < r->n_tensors; t++)
        for (int rank = 0; rank < r->world; rank++) {
            const point trend = r->trend[slow * r->n_tensors + t];
            const point rest = r->rest[(from * r->n_tensors + t) * r->world + rank];
            const double mean = exp2(trend.level + rest.level + 1e-3 * normal(s) +
                                     hardship(&s->hard, step, t, rank));
            const double n = (double)r->numel[t], rms = mean * r->spread[t];
            s->rows[s->n++] =
                (usc_watch_row){.step = step,
                                .rank = rank,
                                .site = USC_WATCH_GRAD,
                                .tensor = t,
                                .max_abs = mean * exp2(trend.peak + rest.peak),
                                .sum_abs = mean * n,
                                .sum_sq = rms * rms * n,
                                .numel = r->numel[t]};
        }
}

/* ---- detectors ---- */

static const usc_watch_detector detectors[] = {
    USC_WATCH_BY_TEMPORAL, USC_WATCH_BY_RANKS,    USC_WATCH_BY_ASD,
    USC_WATCH_BY_ASD2,     USC_WATCH_BY_MEGATRON, USC_WATCH_BY_TURBULENCE,
    USC_WATCH_BY_ZSCORE,   USC_WATCH_BY_NAN};
enum { N_DETECTORS = sizeof detectors / sizeof detectors[0] };

typedef struct result {
    int64_t n_clean, n_alarms, histogram[BINS]; /* of log2(score), clean */
    int64_t n_trials[BITS], n_seen[BITS];
    int64_t hits[BINS]; /* of log2(score), of trials */
} result;

static int bin_of(double score)
{
    if (!(score > 0)) return 0;
    const double bin = BIN_ZERO + floor(PER_BIT * log2(score));
    return bin < 1 ? 1 : bin > BINS - 1 ? BINS - 1 : (int)bin;
}

static usc_watch *make_watch(usc_watch_detector d, const record *r)
{
    usc_watch *w;
    usc_error err;
    usc_watch_config c;
    int64_t id;
    usc_watch_config_init(&c, USC_WATCH_SOUND);
    c.detectors = 1u << d;
    c.world = r->world;
    c.grad_sample_interval = 1; /* all tensors: at its best */
    need(usc_watch_create(&c, &w, &err) == USC_OK, "no memory");
    for (int64_t t = 0; t < r->n_tensors; t++) {
        char name[32];
        (void)snprintf(name, sizeof name, "l%lld.weight", (long long)t);
        const usc_watch_tensor_info info = {.name = name, .dtype = USC_BF16, .ndim = 2};
        need(usc_watch_tensor(w, &info, &id, &err) == USC_OK, "no memory");
    }
    return w;
}

static double decide(usc_watch *w, const stream *s, int64_t step)
{
    usc_error err;
    usc_watch_event e;
    need(usc_watch_feed(w, s->rows, s->n, &err) == USC_OK &&
             usc_watch_step(w, step, 400.0 * (double)step, &err) == USC_OK,
         "a step was refused");
    while (usc_watch_next(w, &e)) {
    }
    return usc_watch_score(w);
}

static void restart(usc_watch **w, usc_watch_detector d, const record *r)
{
    void *bytes;
    size_t size;
    usc_error err;
    need(usc_watch_save(*w, &bytes, &size, &err) == USC_OK, "no memory");
    usc_watch_free(*w);
    *w = make_watch(d, r);
    need(usc_watch_load(*w, bytes, size, &err) == USC_OK, "a state was refused");
    usc_watch_saved_free(bytes);
}

static void run_clean(const record *r, usc_watch_detector d, int64_t steps, result *out)
{
    stream s = {.r = r, .state = 7}; /* the same for all */
    for (int64_t done = 0; done < steps; done += RUN_STEPS) {
        usc_watch *w = make_watch(d, r);
        begin_run(&s);
        for (int64_t step = 0; step < RUN_STEPS; step++) {
            make_step(&s, step);
            if (step == s.hard.restart_at) restart(&w, d, r);
            const double score = decide(w, &s, step);
            out->histogram[bin_of(score)]++;
            out->n_alarms += score > 1;
            out->n_clean++;
        }
        usc_watch_free(w);
    }
}

/* ---- flips ---- */

static void plant(stream *s, int bit)
{
    const size_t i = (size_t)(uniform(s) * (double)s->n);
    usc_watch_row *row = &s->rows[i];
    const double n = (double)row->numel, rms = sqrt(row->sum_sq / n);
    const double drawn = rms * normal(s);
    double before, after;
    uint16_t bits;
    usc_dtype_narrow(USC_BF16, &drawn, &bits, 1);
    usc_dtype_widen(USC_BF16, &bits, &before, 1);
    bits = (uint16_t)(bits ^ 1u << bit);
    usc_dtype_widen(USC_BF16, &bits, &after, 1);
    row->sum_abs = fmax(0, row->sum_abs - fabs(before));
    row->sum_sq = fmax(0, row->sum_sq - before * before);
    if (!isfinite(after)) {
        row->n_nonfinite = 1;
        return;
    }
    row->sum_abs += fabs(after);
    row->sum_sq += after * after;
    row->max_abs = fmax(row->max_abs, fabs(after));
}

static void try_from(stream *s, usc_watch *w, int64_t step, int trials, result *out)
{
    void *bytes;
    size_t size;
    usc_error err;
    need(usc_watch_save(w, &bytes, &size, &err) == USC_OK, "no memory");
    for (int bit = 0; bit < BITS; bit++)
        for (int k = 0; k < trials; k++) {
            need(usc_watch_load(w, bytes, size, &err) == USC_OK, "a state was refused");
            make_step(s, step);
            plant(s, bit);
            const double score = decide(w, s, step);
            out->hits[bin_of(score)]++;
            out->n_seen[bit] += score > 1;
            out->n_trials[bit]++;
        }
    usc_watch_saved_free(bytes);
}

/* At some step of each of some runs, as hard as the clean ones. */
static void run_flips(const record *r, usc_watch_detector d, int trials, result *out)
{
    stream s = {.r = r, .state = 11};
    for (int state = 0; state < STATES; state++) {
        usc_watch *w = make_watch(d, r);
        begin_run(&s);
        const int64_t end = WARM + (int64_t)(uniform(&s) * (RUN_STEPS - WARM));
        for (int64_t step = 0; step < end; step++) {
            make_step(&s, step);
            (void)decide(w, &s, step);
        }
        try_from(&s, w, end, trials / STATES, out);
        usc_watch_free(w);
    }
}

/* ---- tables ---- */

/* 95 % upper bound of a Poisson rate of which k were seen (Wilson and Hilferty). */
static double bound(int64_t k)
{
    const double n = (double)k + 1;
    return n * pow(1 - 1 / (9 * n) + 1.645 / (3 * sqrt(n)), 3);
}

/* Share of flips seen at the threshold that gives at most so many alarms in a million
 * steps. */
static double recall_at(const result *r, double rate)
{
    int64_t above = 0, hits = 0, trials = 0;
    int bin = BINS - 1;
    const double allowed = rate * (double)r->n_clean / 1e6;
    while (bin >= 0 && (double)(above + r->histogram[bin]) <= allowed)
        above += r->histogram[bin--];
    for (int i = 0; i < BINS; i++) {
        trials += r->hits[i];
        if (i > bin) hits += r->hits[i];
    }
    return 100.0 * (double)hits / (double)trials;
}

static void print_rates(const result *results)
{
    printf("%-12s %9s %8s %12s %12s %8s | %s\n", "detector", "steps", "alarms",
           "per 10^6", "95 % bound", "recall", "recall at 1000, 10, 1 alarms per 10^6");
    for (size_t d = 0; d < N_DETECTORS; d++) {
        const result *r = &results[d];
        const double million = 1e6 / (double)r->n_clean;
        double recall = 0;
        for (int b = 0; b < BITS; b++)
            recall += 100.0 * (double)r->n_seen[b] / (double)r->n_trials[b] / BITS;
        printf("%-12s %9lld %8lld %12.1f %12.1f %7.1f%% | %5.1f %5.1f %5.1f\n",
               usc_watch_detector_text(detectors[d]), (long long)r->n_clean,
               (long long)r->n_alarms, (double)r->n_alarms * million,
               bound(r->n_alarms) * million, recall, recall_at(r, 1000), recall_at(r, 10),
               recall_at(r, 1));
    }
}

static void print_bits(const result *results)
{
    printf("\n%% of flips seen, by bit (bfloat16, 15 is the sign)\n%-12s", "detector");
    for (int b = BITS - 1; b >= 0; b--)
        printf("%5d", b);
    puts("");
    for (size_t d = 0; d < N_DETECTORS; d++) {
        printf("%-12s", usc_watch_detector_text(detectors[d]));
        for (int b = BITS - 1; b >= 0; b--)
            printf("%5.0f",
                   100.0 * (double)results[d].n_seen[b] / (double)results[d].n_trials[b]);
        puts("");
    }
}

int main(int argc, char **argv)
{
    static result results[N_DETECTORS];
    need(argc >= 2, "usage: bench_watch_streams LOG [STEPS] [TRIALS]");
    const int64_t steps = argc > 2 ? atoll(argv[2]) : 3000000;
    const int trials = argc > 3 ? atoi(argv[3]) : 500;
    const record r = read_log(argv[1]);
    printf("%s: %lld steps, %lld tensors, %d ranks; runs of %d steps made of it\n\n",
           argv[1], (long long)r.n_steps, (long long)r.n_tensors, r.world, RUN_STEPS);
    for (size_t d = 0; d < N_DETECTORS; d++) {
        run_clean(&r, detectors[d], steps, &results[d]);
        run_flips(&r, detectors[d], trials, &results[d]);
    }
    print_rates(results);
    print_bits(results);
    free(r.trend);
    free(r.rest);
    return 0;
}
