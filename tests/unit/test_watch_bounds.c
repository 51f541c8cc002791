// SPDX-License-Identifier: Apache-2.0
// ulpscope/x/watch.h: what is held to what: weights and moments before and after a step,
// updates, bounds of products, audits, neighbours.
#include "watch_scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ulpscope/x/watch_products.h>

#include "watch_run.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_and_moments_change_in_the_step_alone),
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_low_precision_keeps_weights_still),
        cmocka_unit_test(test_bounds_and_audits),
        cmocka_unit_test(test_neighbours_name_a_rank),
        cmocka_unit_test(test_products_have_a_bound),
        cmocka_unit_test(test_products_are_decided_by_two_other_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
