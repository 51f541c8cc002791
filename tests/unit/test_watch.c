// SPDX-License-Identifier: Apache-2.0
// ulpscope/x/watch.h: each detector stays quiet on clean runs that are hard and names
// what is planted; what is held to what: test_watch_bounds.c; the framework:
// test_watch_frame.c. Mode asd: test_watch_asd.c. Rates and recall: `./run bench watch`.
#include "watch_planted.h"

#include "watch_scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ulpscope/x/watch_products.h>

#include "watch_run.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean_runs_are_quiet),
        cmocka_unit_test(test_planted_faults_are_named),
        cmocka_unit_test(test_nan_from_the_first_step),
        cmocka_unit_test(test_a_loss_scaler_may_overflow),
        cmocka_unit_test(test_a_lasting_shift_is_told_twice_and_taken),
        cmocka_unit_test(test_warm_up_is_not_poisoned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
