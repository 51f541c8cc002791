// SPDX-License-Identifier: Apache-2.0
// Statistics of one tensor: cuts the walk into blocks and spans, runs the kernels over
// them on one or more threads, and adds up in a fixed order (docs/reference/metrics.md,
// 1).
#include <ulpscope/stats.h>

#include "base/compiler.h"
#include "base/float_env.h"
#include "kernels/kernels.h"
#include "stats/stats_structure.h"
#include "stats/stats_unique.h"
#include "tensor/walk.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
    MAX_SPANS = 64,
    MAX_THREADS = 16,
};

/* What all threads share. */
typedef struct job {
    usc_walk walk;
    usc_dtype dtype;
    const usc_kernels *kernels;
    bool dense, with_histogram;
    double scale;          /* float64: elements are multiplied by it; 1 as a rule */
    int64_t n_blocks;      /* of USC_BLOCK elements */
    int64_t span_blocks;   /* blocks per span */
    int64_t n_spans;       /* at most MAX_SPANS */
    int64_t sample_period; /* every so many-th sample of USC_SAMPLE is counted */
    double span_sum[MAX_SPANS], span_squares[MAX_SPANS];
} job;

/* What one thread gathers; it takes spans `first`, `first + step`, ... */
typedef struct share {
    job *job;
    int64_t first, step;
    usc_stats_lanes lanes;
    usc_binades binades;
    pthread_t thread;
    bool has_thread;
} share;

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* Halves are added lane by lane until one is left. */
static double fold(const double lanes[USC_LANES])
{
    double sums[USC_LANES];
    memcpy(sums, lanes, sizeof sums);
    for (int n = USC_LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            sums[i] += sums[i + n];
    return sums[0];
}

static void add_samples(const job *j, int64_t start, const unsigned char *at, size_t n,
                        usc_binades *b)
{
    for (size_t i = 0; i < n; i += USC_SAMPLE) {
        if ((start + (int64_t)i) / USC_SAMPLE % j->sample_period != 0) continue;
        const size_t n_now = n - i < USC_SAMPLE ? n - i : USC_SAMPLE;
        j->kernels->histogram[j->dtype](at + i * j->walk.size, n_now, b);
    }
}

static void add_elements(share *s, int64_t start, const void *src, size_t n)
{
    const job *j = s->job;
    j->kernels->stats[j->dtype](src, n, &s->lanes);
    if (j->with_histogram) add_samples(j, start, src, n, &s->binades);
}

/* Elements that do not lie one behind the other come through 4 KiB of stack: as many as
 * one sample, so that a call over them is long against its start. */
static void add_gathered(share *s, int64_t start, size_t n)
{
    const job *j = s->job;
    double scratch[USC_SAMPLE];
    for (size_t i = 0; i < n; i += USC_SAMPLE) {
        const size_t n_now = n - i < USC_SAMPLE ? n - i : USC_SAMPLE;
        usc_walk_gather(&j->walk, start + (int64_t)i, n_now, scratch);
        if (j->scale < 1.0 || j->scale > 1.0)
            for (size_t k = 0; k < n_now; k++)
                scratch[k] *= j->scale;
        add_elements(s, start + (int64_t)i, scratch, n_now);
    }
}

static void add_block(share *s, int64_t i_block)
{
    const job *j = s->job;
    const int64_t start = i_block * USC_BLOCK;
    const int64_t rest = j->walk.n - start;
    const size_t n = rest < USC_BLOCK ? (size_t)rest : USC_BLOCK;
    memset(s->lanes.sum, 0, sizeof s->lanes.sum);
    memset(s->lanes.squares, 0, sizeof s->lanes.squares);
    if (j->dense)
        add_elements(s, start, j->walk.base + (size_t)start * j->walk.size, n);
    else
        add_gathered(s, start, n);
}

/* Lets the order of integers be seen across the edge of two spans. */
static void look_back(share *s, int64_t start)
{
    const job *j = s->job;
    s->lanes.has_previous = false;
    if (start == 0 || usc_dtype_info_of(j->dtype)->kind == USC_KIND_FLOAT) return;
    uint64_t element;
    usc_walk_gather(&j->walk, start - 1, 1, &element);
    usc_stats_lanes before = {0};
    j->kernels->stats[j->dtype](&element, 1, &before);
    s->lanes.previous = before.previous;
    s->lanes.has_previous = true;
}

static void add_span(share *s, int64_t i_span)
{
    job *j = s->job;
    const int64_t first = i_span * j->span_blocks;
    const int64_t end = first + j->span_blocks;
    double sum = 0.0, squares = 0.0;
    look_back(s, first * USC_BLOCK);
    for (int64_t b = first; b < end && b < j->n_blocks; b++) {
        add_block(s, b);
        sum += fold(s->lanes.sum);
        squares += fold(s->lanes.squares);
    }
    j->span_sum[i_span] = sum;
    j->span_squares[i_span] = squares;
}

static void *run_share(void *arg)
{
    share *s = arg;
    const usc_float_env env = usc_float_env_enter();
    for (int64_t i = s->first; i < s->job->n_spans; i += s->step)
        add_span(s, i);
    if (s->job->with_histogram && s->job->kernels->fold[s->job->dtype] != NULL)
        s->job->kernels->fold[s->job->dtype](&s->binades);
    usc_float_env_leave(env);
    return NULL;
}

static void merge_lanes(usc_stats_lanes *into, const usc_stats_lanes *from,
                        bool is_unsigned)
{
    if (from->min < into->min) into->min = from->min;
    if (from->max > into->max) into->max = from->max;
    into->n_nan += from->n_nan;
    into->n_pos_inf += from->n_pos_inf;
    into->n_neg_inf += from->n_neg_inf;
    into->n_zero += from->n_zero;
    into->n_subnormal += from->n_subnormal;
    into->falls |= from->falls;
    into->repeats |= from->repeats;
    if (!from->has_range) return;
    /* flipping the top bit puts signed integers into unsigned order */
    const uint64_t flip = is_unsigned ? 0 : (uint64_t)1 << 63;
    const bool lower =
        ((uint64_t)from->int_min ^ flip) < ((uint64_t)into->int_min ^ flip);
    const bool higher =
        ((uint64_t)from->int_max ^ flip) > ((uint64_t)into->int_max ^ flip);
    if (!into->has_range || lower) into->int_min = from->int_min;
    if (!into->has_range || higher) into->int_max = from->int_max;
    into->has_range = true;
}

static void begin_share(share *s, job *j, int64_t first, int64_t step)
{
    *s = (share){.job = j, .first = first, .step = step};
    s->lanes.min = (double)INFINITY;
    s->lanes.max = -(double)INFINITY;
}

static void merge_share(share *into, const share *from)
{
    const usc_kind kind = usc_dtype_info_of(into->job->dtype)->kind;
    merge_lanes(&into->lanes, &from->lanes, kind == USC_KIND_UINT);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < USC_N_BINADES; k++)
            into->binades.histogram[i][k] += from->binades.histogram[i][k];
}

/* Kept apart so that only callers that ask for threads pay for the stack of shares. */
static void run_threads(job *j, share *total, int n_threads)
{
    share others[MAX_THREADS - 1];
    for (int i = 0; i < n_threads - 1; i++) {
        begin_share(&others[i], j, i + 1, n_threads);
        others[i].has_thread =
            pthread_create(&others[i].thread, NULL, run_share, &others[i]) == 0;
    }
    run_share(total);
    for (int i = 0; i < n_threads - 1; i++) {
        if (others[i].has_thread)
            pthread_join(others[i].thread, NULL);
        else /* no thread to be had: the work is done all the same */
            run_share(&others[i]);
        merge_share(total, &others[i]);
    }
}

static void run(job *j, share *total, int n_threads)
{
    if (n_threads > MAX_THREADS) n_threads = MAX_THREADS;
    if (n_threads > j->n_spans) n_threads = (int)j->n_spans;
    begin_share(total, j, 0, n_threads > 1 ? n_threads : 1);
    if (n_threads > 1)
        run_threads(j, total, n_threads);
    else
        run_share(total);
}

static double add_spans(const double *spans, int64_t n_spans)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n_spans; i++)
        sum += spans[i];
    return sum;
}

/* Float64 alone can leave double's range in a sum or a square. Then the elements are
 * taken once more, scaled by a power of two that keeps all squares that matter inside. */
static double needed_scale(double squares, const usc_stats_lanes *lanes)
{
    const double largest = fmax(fabs(lanes->min), fabs(lanes->max));
    if (!isfinite(squares)) return 0x1p-600;
    if (squares < 0x1p-900 && largest > 0.0 && largest < 0x1p-400) return 0x1p600;
    return 1.0;
}

static void finish_sums(job *j, const usc_stats_lanes *lanes, int n_threads,
                        usc_stats *out)
{
    const int64_t n_finite =
        j->walk.n - lanes->n_nan - lanes->n_pos_inf - lanes->n_neg_inf;
    double sum = add_spans(j->span_sum, j->n_spans);
    double squares = add_spans(j->span_squares, j->n_spans);
    const double scale =
        j->dtype == USC_F64 && n_finite > 0 ? needed_scale(squares, lanes) : 1.0;
    if (scale < 1.0 || scale > 1.0) {
        share again;
        j->scale = scale;
        j->dense = j->with_histogram = false;
        run(j, &again, n_threads);
        sum = add_spans(j->span_sum, j->n_spans);
        squares = add_spans(j->span_squares, j->n_spans);
    }
    /* dividing before unscaling keeps the mean of huge elements finite */
    out->mean = n_finite > 0 ? sum / (double)n_finite / scale : (double)NAN;
    out->l2 = sqrt(squares * (double)j->walk.repeat) / scale;
}

static void finish_counts(const job *j, const share *total, usc_stats *out)
{
    const usc_stats_lanes *lanes = &total->lanes;
    const int64_t repeat = j->walk.repeat;
    out->n = j->walk.n * repeat;
    out->n_nan = lanes->n_nan * repeat;
    out->n_pos_inf = lanes->n_pos_inf * repeat;
    out->n_neg_inf = lanes->n_neg_inf * repeat;
    out->n_zero = lanes->n_zero * repeat;
    out->n_subnormal = lanes->n_subnormal * repeat;
    memcpy(out->histogram, total->binades.histogram, sizeof out->histogram);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < USC_N_BINADES; k++)
            out->n_histogram += out->histogram[i][k];
}

static void finish_range(const job *j, const usc_stats_lanes *lanes, usc_stats *out)
{
    const usc_kind kind = usc_dtype_info_of(j->dtype)->kind;
    if (kind == USC_KIND_FLOAT) {
        const bool has_finite = lanes->min <= lanes->max;
        out->min = has_finite ? lanes->min + 0.0 : (double)NAN; /* -0 becomes +0 */
        out->max = has_finite ? lanes->max + 0.0 : (double)NAN;
        return;
    }
    const bool is_unsigned = kind == USC_KIND_UINT;
    out->int_min = lanes->int_min;
    out->int_max = lanes->int_max;
    out->min = is_unsigned ? (double)(uint64_t)out->int_min : (double)out->int_min;
    out->max = is_unsigned ? (double)(uint64_t)out->int_max : (double)out->int_max;
    if (j->walk.n == 0) out->min = out->max = (double)NAN;
    out->sorted = !lanes->falls;
    out->unique = out->sorted
                      ? !lanes->repeats
                      : usc_stats_unique(&j->walk, j->dtype, out->int_min, out->int_max);
}

static void plan(job *j)
{
    j->dense = usc_walk_dense(&j->walk);
    j->scale = 1.0;
    j->n_blocks = divide_up(j->walk.n, USC_BLOCK);
    j->span_blocks = j->n_blocks > 0 ? divide_up(j->n_blocks, MAX_SPANS) : 1;
    j->n_spans = divide_up(j->n_blocks, j->span_blocks);
    const int64_t n_samples = divide_up(j->walk.n, USC_SAMPLE);
    j->sample_period = n_samples > USC_COUNTED / USC_SAMPLE
                           ? divide_up(n_samples, USC_COUNTED / USC_SAMPLE)
                           : 1;
}

/* Kept apart so that no sum moves out from between the changes of the float modes. */
static USC_NOINLINE void compute(job *j, int n_threads, usc_stats *out)
{
    share total;
    plan(j);
    run(j, &total, n_threads);
    finish_counts(j, &total, out);
    finish_range(j, &total.lanes, out);
    finish_sums(j, &total.lanes, n_threads, out);
}

usc_status usc_stats_compute(const usc_tensor *t, const usc_stats_options *options,
                             usc_stats *out, usc_error *err)
{
    assert(t);
    assert(out);
    memset(out, 0, sizeof *out);
    const usc_kind kind = usc_dtype_info_of(t->dtype)->kind;
    if (kind == USC_KIND_NONE)
        return usc_error_set(err, USC_E_DTYPE, -1, "statistics of dtype %s",
                             usc_dtype_info_of(t->dtype)->name);
    const usc_stats_options none = {0};
    if (options == NULL) options = &none;

    job j = {.dtype = t->dtype, .kernels = usc_kernels_get()};
    j.with_histogram = !options->no_histogram;
    const usc_status st = usc_walk_begin(t, kind != USC_KIND_FLOAT, &j.walk, err);
    if (st != USC_OK) return st;

    const usc_float_env env = usc_float_env_enter();
    compute(&j, options->n_threads, out);
    if (j.with_histogram) usc_stats_structure(t, &j.walk, out);
    usc_float_env_leave(env);
    return USC_OK;
}
