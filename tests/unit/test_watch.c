// SPDX-License-Identifier: Apache-2.0
// ulpscope/x/watch.h: each detector stays quiet on clean runs that are hard and names
// what is planted; the framework gives the same events whatever the order of rows and
// over a restart. Mode asd: test_watch_asd.c. Rates and recall: `./run bench watch`.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ulpscope/x/watch_products.h>

#include "watch_run.h"

enum { STEPS = 400, AT = 300 };

/* ---- clean and hard ---- */

static void warm_up(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    (void)r;
    const double factor = step < 100 ? exp2(6.0 * (double)(100 - step) / 100) : 1;
    for (size_t i = 0; i < n; i++) {
        rows[i].max_abs *= factor;
        rows[i].sum_abs *= factor;
        rows[i].sum_sq *= factor * factor;
    }
}

static void scale(usc_watch_row *row, double factor)
{
    row->max_abs *= factor;
    row->sum_abs *= factor;
    row->sum_sq *= factor * factor;
}

static void new_scale(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    (void)r;
    for (size_t i = 0; step >= 200 && i < n; i++)
        scale(&rows[i], step >= 300 ? 0.125 : 16);
}

static void data_spike(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    (void)r;
    for (size_t i = 0; step % 90 == 80 && i < n; i++)
        scale(&rows[i], 60);
}

static void one_batch_is_odd(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    (void)r;
    for (size_t i = 0; step % 90 == 80 && i < n; i++)
        if (rows[i].rank == 1) scale(&rows[i], 30);
}

static void routing(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    for (size_t i = 0; step >= 200 && i < n; i++)
        if (rows[i].tensor == r->ids[2]) scale(&rows[i], 20);
}

static void accumulation(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    (void)r;
    for (size_t i = 0; i < n; i++) /* a ramp of the batch */
        scale(&rows[i], 1 / (1.0 + (double)(step / 100)));
}

static void test_clean_runs_are_quiet(void **state)
{
    static const struct {
        const char *name;
        run_change change;
    } clean[] = {{"plain", NULL},
                 {"warm-up", warm_up},
                 {"another loss scale", new_scale},
                 {"data spikes", data_spike},
                 {"one rank's batch", one_batch_is_odd},
                 {"routing", routing},
                 {"a ramp of the batch", accumulation}};
    (void)state;
    for (size_t i = 0; i < sizeof clean / sizeof clean[0]; i++)
        for (int world = 1; world <= 4; world++) {
            run r;
            run_begin(&r, "", world);
            run_steps(&r, USC_WATCH_GRAD, 0, STEPS, clean[i].change);
            if (r.n_events > 0) fail_msg("%s, %d ranks: %s", clean[i].name, world, r.all);
            run_end(&r);
        }
}

/* ---- planted ---- */

static usc_watch_row *victim(run *r, usc_watch_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].tensor == r->ids[3] && rows[i].rank == r->world - 1) return &rows[i];
    return NULL;
}

static void flip(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    usc_watch_row *v = victim(r, rows, n);
    if (step != AT) return;
    v->max_abs *= 16; /* a bit of an element's exponent */
    v->sum_abs += v->max_abs;
    v->sum_sq += v->max_abs * v->max_abs;
}

static void huge(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    usc_watch_row *v = victim(r, rows, n);
    if (step != AT) return;
    v->max_abs = 1e38;
    v->sum_abs = 1e38;
    v->sum_sq = HUGE_VAL;
}

static void lost(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    if (step >= AT) scale(victim(r, rows, n), 1e-12);
}

static void everything(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    (void)r;
    for (size_t i = 0; step == AT && i < n; i++)
        scale(&rows[i], 1e5);
}

static void not_a_number(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    if (step >= AT) victim(r, rows, n)->n_nonfinite = 1;
}

static void zeros(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    usc_watch_row *v = victim(r, rows, n);
    if (step < AT) return;
    v->max_abs = v->sum_abs = v->sum_sq = 0;
    v->n_zero = v->numel;
}

static void other_bits(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    if (step >= AT) victim(r, rows, n)->hash64 ^= 1;
}

/* One planted fault; what has to be said first. */
typedef struct planted {
    const char *name, *config;
    usc_watch_site site;
    int world;
    run_change change;
    usc_watch_kind kind;
    int64_t step;
    const char *tensor;
    int rank, most; /* events in all */
} planted;

static void test_planted_faults_are_named(void **state)
{
    static const char victim_name[] = "layers.3.weight";
    static const planted list[] = {
        {"a flipped bit", "detectors:temporal", USC_WATCH_GRAD, 1, flip,
         USC_WATCH_OUTLIER, AT, victim_name, 0, 1},
        {"the top bit", "detectors:temporal", USC_WATCH_GRAD, 2, huge, USC_WATCH_SPIKE,
         AT, victim_name, 1, 2},
        {"a flipped bit, by ranks", "detectors:ranks", USC_WATCH_GRAD, 4, flip,
         USC_WATCH_RANK, AT, victim_name, 3, 1},
        {"almost nothing", "detectors:temporal", USC_WATCH_GRAD, 1, lost, USC_WATCH_DROP,
         AT, victim_name, 0, 2},
        {"almost nothing, by ranks", "detectors:ranks", USC_WATCH_GRAD, 3, lost,
         USC_WATCH_RANK, AT, victim_name, 2, 1},
        {"everything at once", "detectors:temporal", USC_WATCH_GRAD, 1, everything,
         USC_WATCH_SPIKE, AT, "", 0, 1},
        {"NaN", "detectors:temporal", USC_WATCH_GRAD, 2, not_a_number,
         USC_WATCH_NONFINITE, AT, victim_name, 1, 1},
        {"zeros", "", USC_WATCH_GRAD, 1, zeros, USC_WATCH_ZERO, AT + 1, victim_name, 0,
         1},
        {"zeros after the reduction", "", USC_WATCH_REDUCED, 1, zeros, USC_WATCH_ZERO,
         AT + 1, victim_name, 0, 1},
        {"a replica", "detectors:replicas", USC_WATCH_WEIGHT, 3, other_bits,
         USC_WATCH_REPLICA, AT, victim_name, 2, 1},
        {"a reduced gradient", "detectors:replicas", USC_WATCH_REDUCED, 4, other_bits,
         USC_WATCH_REPLICA, AT, victim_name, 3, 1},
        {"two replicas", "detectors:replicas", USC_WATCH_WEIGHT, 2, other_bits,
         USC_WATCH_UNDECIDED, AT, victim_name, -1, 1},
        {"a first moment", "detectors:moments", USC_WATCH_MOMENT1, 1, flip,
         USC_WATCH_OUTLIER, AT, victim_name, 0, 1},
        {"a second moment", "detectors:moments", USC_WATCH_MOMENT2, 1, huge,
         USC_WATCH_SPIKE, AT, victim_name, 0, 2},
        {"10 times the norm", "detectors:megatron", USC_WATCH_GRAD, 1, everything,
         USC_WATCH_SPIKE, AT, "", 0, 1},
        {"a z-score", "detectors:zscore", USC_WATCH_GRAD, 1, everything, USC_WATCH_SPIKE,
         AT, "", 0, 1},
        {"turbulence", "detectors:turbulence", USC_WATCH_GRAD, 1, huge, USC_WATCH_SPIKE,
         -1, 0, 0, 1 << 30},
        {"version 2", "detectors:asd-v2", USC_WATCH_GRAD, 1, huge, USC_WATCH_SPIKE, AT,
         victim_name, 0, 1},
        {"NaN alone", "detectors:nan", USC_WATCH_GRAD, 1, not_a_number,
         USC_WATCH_NONFINITE, AT, victim_name, 0, STEPS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const planted *p = &list[i];
        run r;
        run_begin(&r, p->config, p->world);
        run_steps(&r, p->site, 0, STEPS, p->change);
        if (r.n_events == 0 || r.n_events > p->most || r.first.kind != p->kind)
            fail_msg("%s: %d events: %s", p->name, r.n_events, r.all);
        if (p->step >= 0 && (r.first.step != p->step || r.first.rank != p->rank ||
                             strcmp(r.name, p->tensor) != 0))
            fail_msg("%s: %s", p->name, r.all);
        assert_true(r.first.score > r.first.threshold);
        run_end(&r);
    }
}

static void from_the_start(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    (void)r;
    for (size_t i = 0; i < n; i++)
        rows[i].n_nonfinite = 1 + step % 2;
}

static void test_nan_from_the_first_step(void **state)
{
    (void)state;
    run r;
    run_begin(&r, "", 1);
    run_steps(&r, USC_WATCH_GRAD, 0, 50, from_the_start);
    assert_int_equal(r.n_events, RUN_TENSORS); /* once for each tensor */
    assert_int_equal(r.n_of_kind[USC_WATCH_NONFINITE], RUN_TENSORS);
    assert_int_equal(r.first.step, 0);
    run_end(&r);
}

static void overflow(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (step % 100 == 50 || (step < 7 && rows[i].tensor == r->ids[0]))
            rows[i].n_nonfinite = 5;
}

static void test_a_loss_scaler_may_overflow(void **state)
{
    (void)state;
    run r;
    run_begin(&r, "loss_scaling:true", 2);
    run_steps(&r, USC_WATCH_GRAD, 0, STEPS, overflow);
    assert_int_equal(r.n_events, 0);
    run_steps(&r, USC_WATCH_GRAD, STEPS, STEPS + 40, from_the_start);
    assert_true(r.n_of_kind[USC_WATCH_NONFINITE] > 0);
    assert_int_equal(r.first.step, STEPS + 15);
    run_end(&r);
}

static void shifted(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    if (step >= AT) scale(victim(r, rows, n), 1e4);
}

static void test_a_lasting_shift_is_told_twice_and_taken(void **state)
{
    (void)state;
    run r;
    run_begin(&r, "detectors:temporal", 1);
    run_steps(&r, USC_WATCH_GRAD, 0, AT + 200, shifted);
    assert_int_equal(r.n_of_kind[USC_WATCH_SPIKE], 1);
    assert_int_equal(r.n_of_kind[USC_WATCH_SHIFT], 1);
    assert_int_equal(r.n_events, 2);
    run_steps(&r, USC_WATCH_GRAD, AT + 200, AT + 210, NULL); /* and back is one, too */
    assert_int_equal(r.n_of_kind[USC_WATCH_DROP], 1);
    run_end(&r);
}

/* One bad value among the first does not move what is usual. */
static void poison(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    if (step == 3) scale(victim(r, rows, n), 1e6);
    if (step == AT) scale(victim(r, rows, n), 1e3);
}

static void test_warm_up_is_not_poisoned(void **state)
{
    (void)state;
    run r;
    run_begin(&r, "detectors:temporal", 1);
    run_steps(&r, USC_WATCH_GRAD, 0, STEPS, poison);
    assert_int_equal(r.n_of_kind[USC_WATCH_SPIKE], 1);
    assert_int_equal(r.first.step, AT);
    run_end(&r);
}

/* ---- weights, updates, bounds, audits ---- */

static void feed_one(run *r, usc_watch_row row)
{
    usc_error err;
    assert_int_equal(usc_watch_feed(r->watch, &row, 1, &err), USC_OK);
}

static void step_to(run *r, int64_t step)
{
    usc_error err;
    r->seconds += 5;
    assert_int_equal(usc_watch_step(r->watch, step, r->seconds, &err), USC_OK);
    run_take_events(r);
}

static void check_kept(usc_watch_site before, usc_watch_site after, const char *says)
{
    run r;
    run_begin(&r, "", 2);
    for (int64_t step = 0; step < 20; step++) {
        for (int rank = 0; rank < 2; rank++) {
            usc_watch_row row = run_row(&r, step, before, rank, 0, 1);
            row.hash64 = (uint64_t)step + 100 + (step == 11 && rank == 1);
            feed_one(&r, row);
            row.site = after;
            row.hash64 = (uint64_t)step + 101;
            feed_one(&r, row);
        }
        step_to(&r, step);
    }
    assert_int_equal(r.n_events, 1);
    assert_int_equal(r.first.kind, USC_WATCH_CHANGED);
    assert_int_equal(r.first.step, 11);
    assert_int_equal(r.first.rank, 1);
    assert_non_null(strstr(r.sentence, says));
    run_end(&r);
}

static void test_weights_and_moments_change_in_the_step_alone(void **state)
{
    (void)state;
    check_kept(USC_WATCH_WEIGHT_BEFORE, USC_WATCH_WEIGHT, "the weight 'layers");
    check_kept(USC_WATCH_MOMENT1_BEFORE, USC_WATCH_MOMENT1,
               "the first moment of 'layers");
    check_kept(USC_WATCH_MOMENT2_BEFORE, USC_WATCH_MOMENT2, "the second moment of");
}

static void make_vector(run *r, int t, usc_dtype dtype)
{
    usc_error err;
    char name[64];
    (void)snprintf(name, sizeof name, "layers.%d.weight", t);
    const usc_watch_tensor_info info = {.name = name, .dtype = dtype, .ndim = 1};
    assert_int_equal(usc_watch_tensor(r->watch, &info, &r->ids[t], &err), USC_OK);
}

static void test_updates(void **state)
{
    (void)state;
    run r;
    run_begin(&r, "detectors:ratio+dead", 1);
    make_vector(&r, 3, USC_F32);
    make_vector(&r, 5, USC_BF16); /* whose updates may round to nothing */
    for (int64_t step = 0; step < 100; step++) {
        for (int t = 0; t < RUN_TENSORS; t++) {
            feed_one(&r, run_row(&r, step, USC_WATCH_GRAD, 0, t, 1e-4));
            feed_one(&r, run_row(&r, step, USC_WATCH_WEIGHT, 0, t, 0.02));
            usc_watch_row update = run_row(&r, step, USC_WATCH_UPDATE, 0, t,
                                           2e-5 * exp2(0.2 * run_normal(&r)));
            if (step == 60 && t == 2) scale(&update, 1000); /* a wrong second moment */
            if (step >= 80 && t >= 3) {                     /* the optimizer lost them */
                update.max_abs = update.sum_abs = update.sum_sq = 0;
                update.n_zero = update.numel;
            }
            feed_one(&r, update);
        }
        step_to(&r, step);
    }
    assert_int_equal(r.n_of_kind[USC_WATCH_SPIKE], 1);
    assert_int_equal(r.first.step, 60);
    assert_string_equal(r.name, "layers.2.weight");
    assert_int_equal(r.n_of_kind[USC_WATCH_STILL], 2);
    assert_non_null(strstr(r.all, "81 still layers.3.weight"));
    assert_non_null(strstr(r.all, "81 still layers.4.weight"));
    assert_int_equal(r.n_events, 3);
    run_end(&r);
}

/* Weights in bfloat16 that rounding keeps still, now this one, now that one: told at one
 * step, as what they are. In float32 each is told. */
static void test_low_precision_keeps_weights_still(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        run r;
        run_begin(&r, "detectors:dead", 1);
        for (int t = 0; wide != 0 && t < RUN_TENSORS; t++)
            make_vector(&r, t, USC_F32);
        for (int64_t step = 0; step < 60; step++) {
            for (int t = 0; t < RUN_TENSORS; t++) {
                feed_one(&r, run_row(&r, step, USC_WATCH_GRAD, 0, t, 1e-4));
                usc_watch_row update = run_row(&r, step, USC_WATCH_UPDATE, 0, t, 2e-5);
                if (step >= 10 + 5 * t && step < 13 + 5 * t) { /* three steps each */
                    update.max_abs = update.sum_abs = update.sum_sq = 0;
                    update.n_zero = update.numel;
                }
                feed_one(&r, update);
            }
            step_to(&r, step);
        }
        assert_int_equal(r.n_of_kind[USC_WATCH_STILL], wide != 0 ? RUN_TENSORS : 1);
        assert_non_null(strstr(r.all, "11 still layers.0.weight"));
        assert_int_equal(r.n_events, wide != 0 ? RUN_TENSORS : 1);
        if (wide == 0)
            assert_non_null(strstr(r.sentence, "it is bfloat16, which rounds away"));
        run_end(&r);
    }
}

static void test_bounds_and_audits(void **state)
{
    static const struct {
        usc_watch_site site;
        double value[4];
        uint64_t hash[4];
        usc_watch_kind kind;
        int n_ranks, rank, n;
    } rows[] = {
        {USC_WATCH_MATMUL, {0.9, 1.5}, {0}, USC_WATCH_MATMUL_WRONG, 2, 1, 1},
        {USC_WATCH_MATMUL, {(double)NAN, 0.1}, {0}, USC_WATCH_MATMUL_WRONG, 2, 0, 1},
        {USC_WATCH_MATMUL_INPUT, {2, 0.1}, {1}, USC_WATCH_MATMUL_WRONG, 2, 0, 1},
        {USC_WATCH_MATMUL_WEIGHT, {1, 7}, {0, 2}, USC_WATCH_MATMUL_WRONG, 2, 1, 1},
        {USC_WATCH_COLLECTIVE, {0.5, 300}, {0}, USC_WATCH_COLLECTIVE_WRONG, 2, 1, 1},
        {USC_WATCH_COLLECTIVE, {9, 0}, {3, 0}, USC_WATCH_COLLECTIVE_WRONG, 2, -1, 1},
        {USC_WATCH_COLLECTIVE, {0.5, 1}, {0}, USC_WATCH_COLLECTIVE_WRONG, 2, 0, 0},
        {USC_WATCH_COLLECTIVE, {0.9, 2}, {0, 4}, USC_WATCH_COLLECTIVE_WRONG, 2, 1, 1},
        {USC_WATCH_REPLAY, {1, 1, 1}, {7, 7, 8}, USC_WATCH_REPLAY_DIFFERS, 3, 2, 1},
        {USC_WATCH_REPLAY, {1, 1}, {7, 8}, USC_WATCH_REPLAY_DIFFERS, 2, -1, 1},
        {USC_WATCH_REPLAY, {1, -1}, {7, 1}, USC_WATCH_REPLAY_DIFFERS, 2, 1, 1},
        {USC_WATCH_REPLAY, {1, -2}, {7, 3}, USC_WATCH_REPLAY_DIFFERS, 2, 1, 1},
        {USC_WATCH_REPLAY, {1, 2, 2, 1}, {7, 8, 8, 7}, USC_WATCH_REPLAY_DIFFERS, 4, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run r;
        run_begin(&r, "", 4);
        for (int k = 0; k < rows[i].n_ranks; k++)
            feed_one(&r, (usc_watch_row){.site = rows[i].site,
                                         .rank = k,
                                         .value = rows[i].value[k],
                                         .hash64 = rows[i].hash[k]});
        step_to(&r, 0);
        if (r.n_events != rows[i].n) fail_msg("row %zu: %s", i, r.all);
        if (rows[i].n > 0 &&
            (r.first.kind != rows[i].kind || r.first.rank != rows[i].rank))
            fail_msg("row %zu: %s", i, r.all);
        const uint64_t hash = r.n_events > 0 ? rows[i].hash[rows[i].rank & 3] : 0;
        assert_int_equal(strstr(r.sentence, "a passing fault") != NULL, hash == 1);
        assert_int_equal(strstr(r.sentence, "a lasting fault") != NULL, hash == 2);
        assert_int_equal(strstr(r.sentence, "comes and goes") != NULL,
                         hash == 3 && rows[i].site == USC_WATCH_REPLAY);
        assert_int_equal(strstr(r.sentence, "what all ranks alike") != NULL,
                         rows[i].hash[0] == 3);
        assert_int_equal(strstr(r.sentence, "rank 1 sent or got other bits") != NULL,
                         hash == 4);
        run_end(&r);
    }
}

/* Each rank's micro-batch on the next one. */
static void test_neighbours_name_a_rank(void **state)
{
    static const struct {
        uint64_t other[4]; /* hash of rank i's on the next rank, where its own is 7 */
        int world, rank, n;
    } rows[] = {
        {{7, 7, 7, 7}, 4, 0, 0},  {{8, 8, 7, 7}, 4, 1, 1},  {{8, 7, 7, 8}, 4, 0, 1},
        {{7, 7, 8, 9}, 4, 3, 1},  {{7, 8, 7, 7}, 4, -1, 1}, {{8, 8, 7}, 3, 1, 1},
        {{7, 8, 7, 8}, 4, -1, 2}, {{8, 8, 8}, 3, -1, 3},    {{8, 8}, 2, -1, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run r;
        run_begin(&r, "", rows[i].world);
        for (int k = 0; k < rows[i].world; k++)
            for (int by = 0; by < 2; by++)
                feed_one(&r, (usc_watch_row){.site = USC_WATCH_REPLAY,
                                             .rank = (k + by) % rows[i].world,
                                             .tensor = r.ids[k],
                                             .value = k,
                                             .hash64 = by ? rows[i].other[k] : 7});
        step_to(&r, 0);
        if (r.n_events != rows[i].n || (rows[i].n > 0 && r.first.rank != rows[i].rank))
            fail_msg("row %zu: %s", i, r.all);
        assert_int_equal(strstr(r.all, "2 others compute") != NULL,
                         rows[i].rank >= 0 && rows[i].n > 0);
        run_end(&r);
    }
}

static usc_product_sums row_of(double sum)
{
    return (usc_product_sums){sum, 100, 4000, 4e4};
}

static void test_products_have_a_bound(void **state)
{
    (void)state;
    const usc_product p = {.dtype = USC_BF16, .n_inner = 64};
    const double bound = 8 * sqrt(0x1p-14 / 12 * 4000 + 0x1p-48 * 64 * 44000);
    usc_product_sums rows[5] = {row_of(100), row_of(100 - 0.9 * bound), row_of(100),
                                row_of((double)NAN), row_of(1e30)};
    int64_t worst;
    rows[3].expected = rows[4].terms =
        (double)INFINITY; /* operands that are not finite */
    assert_true(fabs(usc_product_over(&p, rows, 5, &worst) - 0.9) < 1e-6);
    assert_int_equal(worst, 1);
    rows[2].sum = 100 + 1.1 * bound;
    assert_true(fabs(usc_product_over(&p, rows, 5, &worst) - 1.1) < 1e-6);
    rows[0].sum = (double)NAN;
    assert_true(isinf(usc_product_over(&p, rows, 5, &worst)) && worst == 0);
    assert_true(usc_product_over(&p, rows, 0, &worst) == 0 && worst == -1);
}

static void test_products_are_decided_by_two_other_ways(void **state)
{
    static const struct {
        double given, same, other, wide;
        usc_product_verdict verdict;
    } rows[] = {
        {200, 100, 100, 100, USC_PRODUCT_PASSING},
        {200, 200, 100, 100, USC_PRODUCT_LASTING},
        {200, 200, 200, 100, USC_PRODUCT_RIGHT}, /* who is right? */
        {200, 100, 300, 100, USC_PRODUCT_RIGHT},
        {100, 100, 100, 100, USC_PRODUCT_RIGHT},
        {(double)NAN, (double)NAN, 100, 100, USC_PRODUCT_LASTING},
        {(double)NAN, 100, 100, 100, USC_PRODUCT_PASSING},
        {(double)INFINITY, (double)INFINITY, (double)INFINITY, (double)INFINITY,
         USC_PRODUCT_RIGHT}, /* it overflows */
    };
    (void)state;
    const usc_product p = {.dtype = USC_BF16, .n_inner = 64};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_product_sums s = row_of(rows[i].given);
        if (!isfinite(s.sum)) s.squares = s.sum * s.sum;
        const usc_product_again again = {rows[i].same, rows[i].other, rows[i].wide};
        if (usc_product_settle(&p, &s, &again) != rows[i].verdict) fail_msg("row %zu", i);
    }
}

/* ---- the framework ---- */

static void all_of_it(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    if (step % 70 == 60) scale(&rows[(size_t)step % n], 1e4);
    if (step == 130) rows[1].n_nonfinite = 3;
    if (step > 200) zeros(r, AT, rows, n);
}

static void backwards(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    all_of_it(r, step, rows, n);
    for (size_t i = 0; i < n / 2; i++) {
        const usc_watch_row other = rows[i];
        rows[i] = rows[n - 1 - i];
        rows[n - 1 - i] = other;
    }
}

/* Feeds the first half by itself, and a row in two halves. */
static void in_pieces(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    usc_error err;
    all_of_it(r, step, rows, n);
    usc_watch_row half = rows[n / 2];
    half.sum_abs /= 2;
    half.sum_sq /= 2;
    half.numel /= 2;
    half.n_zero /= 2;
    half.n_nonfinite = 0;
    half.hash64 = 0;
    assert_int_equal(usc_watch_feed(r->watch, &half, 1, &err), USC_OK);
    rows[n / 2].sum_abs /= 2;
    rows[n / 2].sum_sq /= 2;
    rows[n / 2].numel /= 2;
    rows[n / 2].n_zero /= 2;
}

static void restart(run *r, int world)
{
    void *bytes;
    size_t size;
    usc_error err;
    usc_watch_config c;
    assert_int_equal(usc_watch_save(r->watch, &bytes, &size, &err), USC_OK);
    usc_watch_free(r->watch);
    usc_watch_config_init(&c, USC_WATCH_SOUND);
    c.world = world;
    assert_int_equal(usc_watch_create(&c, &r->watch, &err), USC_OK);
    for (int t = RUN_TENSORS; t-- > 0;) { /* in another order, with one more */
        char name[64];
        (void)snprintf(name, sizeof name, "layers.%d.weight", t);
        const usc_watch_tensor_info info = {name, USC_BF16, 2, false},
                                    more = {"new", USC_BF16, 2, false};
        int64_t unused;
        if (t == 3)
            assert_int_equal(usc_watch_tensor(r->watch, &more, &unused, &err), USC_OK);
        assert_int_equal(usc_watch_tensor(r->watch, &info, &r->ids[t], &err), USC_OK);
    }
    assert_int_equal(usc_watch_load(r->watch, bytes, size, &err), USC_OK);
    usc_watch_saved_free(bytes);
    r->world = world;
}

static void test_order_pieces_and_restarts_change_nothing(void **state)
{
    (void)state;
    static run plain, other;
    run_begin(&plain, "", 3);
    run_steps(&plain, USC_WATCH_GRAD, 0, STEPS, all_of_it);
    assert_true(plain.n_events > 5);
    run_begin(&other, "", 3);
    run_steps(&other, USC_WATCH_GRAD, 0, STEPS, backwards);
    assert_string_equal(plain.all, other.all);
    run_end(&other);
    run_begin(&other, "", 3);
    run_steps(&other, USC_WATCH_GRAD, 0, STEPS, in_pieces);
    assert_string_equal(plain.all, other.all);
    run_end(&other);
    run_end(&plain);
}

static void test_a_restart_goes_on(void **state)
{
    (void)state;
    run r;
    run_begin(&r, "", 3);
    run_steps(&r, USC_WATCH_GRAD, 0, AT - 50, NULL);
    restart(&r, 3);
    run_steps(&r, USC_WATCH_GRAD, AT - 50, AT, NULL);
    restart(&r, 2); /* a smaller world */
    run_steps(&r, USC_WATCH_GRAD, AT, AT + 1, flip);
    assert_int_equal(r.n_events, 1);
    assert_int_equal(r.first.kind, USC_WATCH_OUTLIER);
    assert_string_equal(r.name, "layers.3.weight");
    restart(&r, 4);
    run_steps(&r, USC_WATCH_GRAD, AT + 1, STEPS, NULL);
    assert_int_equal(r.n_events, 1);
    run_end(&r);
}

static void test_a_bad_state_is_refused(void **state)
{
    (void)state;
    void *bytes;
    size_t size;
    usc_error err;
    run r;
    run_begin(&r, "", 1);
    run_steps(&r, USC_WATCH_GRAD, 0, 20, NULL);
    assert_int_equal(usc_watch_save(r.watch, &bytes, &size, &err), USC_OK);
    char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    assert_int_equal(usc_watch_load(r.watch, copy, size - 1, &err), USC_E_CORRUPT);
    assert_int_equal(usc_watch_load(r.watch, copy, 3, &err), USC_E_CORRUPT);
    copy[size / 2] = (char)(copy[size / 2] ^ 1);
    assert_int_equal(usc_watch_load(r.watch, copy, size, &err), USC_E_CORRUPT);
    copy[12]++; /* the version */
    assert_int_equal(usc_watch_load(r.watch, copy, size, &err), USC_E_VERSION);
    free(copy);
    usc_watch_saved_free(bytes);
    run_end(&r);
}

static void test_bad_rows_are_refused(void **state)
{
    static const usc_watch_row bad[] = {{.rank = 2},
                                        {.rank = -1},
                                        {.tensor = RUN_TENSORS},
                                        {.tensor = -2},
                                        {.site = USC_N_WATCH_SITES},
                                        {.step = -1},
                                        {.numel = INT64_MAX}};
    (void)state;
    usc_error err;
    run r;
    run_begin(&r, "", 2);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const usc_watch_row two[] = {{.tensor = 0}, bad[i]};
        assert_int_equal(usc_watch_feed(r.watch, two, 2, &err), USC_E_RANGE);
        assert_int_equal(err.where, 1);
    }
    run_end(&r);
}

/* A clock that jumps back, stands still or is NaN harms nothing. */
static void test_clocks_jump(void **state)
{
    static const double clock[] = {1e9,   5,      5,        -1e9, (double)NAN,
                                   1e308, -1e308, HUGE_VAL, 0};
    (void)state;
    usc_error err;
    run r;
    run_begin(&r, "mode:asd,enable:true,with_checksum:true", 1);
    for (int64_t step = 0; step < 9; step++)
        assert_int_equal(usc_watch_step(r.watch, step, clock[step], &err), USC_OK);
    run_end(&r);
}

static void test_many_tensors_and_events_are_bounded(void **state)
{
    enum { MANY = 100000 };
    (void)state;
    usc_error err;
    usc_watch *w;
    usc_watch_config c;
    int64_t id, n = 0;
    usc_watch_config_init(&c, USC_WATCH_SOUND);
    assert_int_equal(usc_watch_create(&c, &w, &err), USC_OK);
    usc_watch_row *rows = calloc(MANY, sizeof *rows);
    assert_non_null(rows);
    for (int i = 0; i < MANY; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "p%d", i);
        const usc_watch_tensor_info info = {.name = name, .dtype = USC_F32};
        assert_int_equal(usc_watch_tensor(w, &info, &id, &err), USC_OK);
        assert_int_equal(id, i);
        rows[i] = (usc_watch_row){.tensor = i, .max_abs = 1, .sum_abs = 2, .numel = 4};
    }
    for (int step = 0; step < 10; step++) {
        for (int i = 0; i < MANY; i++) {
            rows[i].step = step;
            rows[i].n_nonfinite = step == 9;
        }
        assert_int_equal(usc_watch_feed(w, rows, MANY, &err), USC_OK);
        assert_int_equal(usc_watch_step(w, step, step, &err), USC_OK);
    }
    usc_watch_event e = {0};
    bool more = false;
    while (usc_watch_next(w, &e)) {
        n++;
        more = more || strstr(e.sentence, "and 99992 more like it") != NULL;
    }
    assert_int_equal(n, 8); /* not 10^5 */
    assert_true(more);
    /* temporal and dead read gradients: two series of each, one of them small */
    assert_true(usc_watch_bytes(w) < (int64_t)MANY * 2 * USC_WATCH_SERIES_BYTES);
    usc_watch_free(w);
    free(rows);
}

/* ---- configuration ---- */

static void test_configurations(void **state)
{
    static const struct {
        const char *text, *says; /* what its error has, NULL: it is right */
        int64_t
            stands; /* cooldown where that is a remark alone, for the default stands */
    } rows[] = {
        {"", NULL, 0},
        {"enable:true,with_checksum:true,cooldown:5,strikes_num:3,strikes_window:480,"
         "checksum_cooldown:180,upper_thresh1:1000000,upper_thresh2:100,"
         "grad_sample_interval:3",
         NULL, 0},
        {"mode:asd,enable:true", NULL, 0},
        {"mode:sound,detectors:temporal+ranks,world:8,loss_scaling:true", NULL, 0},
        {"cooldowns:5", "did you mean 'cooldown'", 0},
        {"upper_tresh1:5", "did you mean 'upper_thresh1'", 0},
        {" cooldown:5", "Blanks count", 0},
        {"cooldown: 5", "from 1 to", 5},
        {"cooldown:00", "from 1 to", 5},
        {"cooldown:0", "from 1 to", 5},
        {"cooldown:-1", "from 1 to", 5},
        {"cooldown:5m", "from 1 to", 5},
        {"cooldown:\xc2\xb2", "from 1 to", 5}, /* a superscript two */
        {"cooldown:99999999999999999999", "from 1 to", 5},
        {"strikes_num:0,cooldown:x", "; cooldown:x: a whole number", 5},
        {"mode:sound,cooldown:0", "from 1 to", 0},
        {"upper_thresh1:2", "from 3 to", 5},
        {"enable:True", "true or false", 0},
        {"enable", "key:value", 0},
        {"enable:true:true", "key:value", 0},
        {"enable:true,", "last comma", 0},
        {",", "key:value", 0},
        {"mode:fast", "sound or asd", 0},
        {"enable:true,mode:asd", "name it first", 0},
        {"detectors:temporel", "did you mean 'temporal'", 0},
        {"detectors:", "names of detectors", 0},
        {"detectors:temporal++ranks", "names of detectors", 0},
        {"world:0", "from 1 to", 0},
        {"weights_every:1,matmul_every:100,audit:50,keep_calls:1000,action:stop,"
         "exit_code:17",
         NULL, 0},
        {"weight_every:1", "did you mean 'weights_every'", 0},
        {"weights_every:0", "from 1 to", 0},
        {"audit:-1", "from 0 to", 0},
        {"exit_code:0", "from 1 to 255", 0},
        {"exit_code:256", "from 1 to 255", 0},
        {"stop_after:-1", "from 0 to", 0},
        {"action:halt", "log, skip, raise and stop", 0},
        {"action:stopp", "did you mean 'stop'", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_watch_config c, before;
        usc_error err = {0};
        usc_watch_config_init(&c, USC_WATCH_ASD);
        before = c;
        const usc_status st = usc_watch_config_parse(&c, rows[i].text, &err);
        const bool stands = rows[i].stands != 0;
        const char *said = stands ? c.remark : err.text;
        if (rows[i].says == NULL ? st != USC_OK || c.remark[0] != '\0'
                                 : strstr(said, rows[i].says) == NULL)
            fail_msg("'%s': %s", rows[i].text, said);
        assert_int_equal(st == USC_OK, rows[i].says == NULL || stands);
        if (stands) assert_int_equal(c.cooldown, rows[i].stands);
        if (st != USC_OK) assert_memory_equal(&c, &before, sizeof c);
    }
}

static void test_defaults_are_the_documents(void **state)
{
    (void)state;
    usc_watch_config c;
    usc_watch_config_init(&c, USC_WATCH_ASD);
    assert_false(c.enable);
    assert_false(c.with_checksum);
    assert_int_equal(c.cooldown, 5);
    assert_int_equal(c.strikes_num, 3);
    assert_int_equal(c.strikes_window, 480);
    assert_int_equal(c.checksum_cooldown, 180);
    assert_int_equal(c.upper_thresh1, 1000000);
    assert_int_equal(c.upper_thresh2, 100);
    assert_int_equal(c.grad_sample_interval, 3);
    assert_int_equal(c.weights_every, 20);
    assert_int_equal(c.action, USC_WATCH_DO_LOG);
    assert_string_equal(usc_watch_reaction_text(USC_N_WATCH_REACTIONS), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean_runs_are_quiet),
        cmocka_unit_test(test_planted_faults_are_named),
        cmocka_unit_test(test_nan_from_the_first_step),
        cmocka_unit_test(test_a_loss_scaler_may_overflow),
        cmocka_unit_test(test_a_lasting_shift_is_told_twice_and_taken),
        cmocka_unit_test(test_warm_up_is_not_poisoned),
        cmocka_unit_test(test_weights_and_moments_change_in_the_step_alone),
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_low_precision_keeps_weights_still),
        cmocka_unit_test(test_bounds_and_audits),
        cmocka_unit_test(test_neighbours_name_a_rank),
        cmocka_unit_test(test_products_have_a_bound),
        cmocka_unit_test(test_products_are_decided_by_two_other_ways),
        cmocka_unit_test(test_order_pieces_and_restarts_change_nothing),
        cmocka_unit_test(test_a_restart_goes_on),
        cmocka_unit_test(test_a_bad_state_is_refused),
        cmocka_unit_test(test_bad_rows_are_refused),
        cmocka_unit_test(test_clocks_jump),
        cmocka_unit_test(test_many_tensors_and_events_are_bounded),
        cmocka_unit_test(test_configurations),
        cmocka_unit_test(test_defaults_are_the_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
