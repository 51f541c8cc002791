// SPDX-License-Identifier: Apache-2.0
// Random operators: categories by their weights, answers among draws of the CPU, and each
// formula against what is known of it. Laws: test_draw.c; masks: test_draw_masks.c.
#include "draw_sizes.h"

#include "alloc_probe.h"
#include "draw_stream.h"

#include <ulpscope/x/draw.h>

#include "draw/draw_special.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- categories ---- */

static const char *sampled(bool back, double (*choose)(int row, int column))
{
    static char reason[256];
    static double weights[N_ROWS][N_CATEGORIES];
    static int64_t chosen[N_ROWS][20];
    const int64_t of_weights[] = {N_ROWS, N_CATEGORIES}, of_chosen[] = {N_ROWS, 20};
    usc_tensor w, c;
    usc_findings *f;
    for (int i = 0; i < N_ROWS; i++) {
        for (int j = 0; j < N_CATEGORIES; j++)
            weights[i][j] = j == 0 ? 0 : j;
        for (int j = 0; j < 20; j++)
            chosen[i][j] = (int64_t)choose(i, j);
    }
    assert_int_equal(usc_tensor_make(&w, weights, USC_F64, 2, of_weights, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&c, chosen, USC_I64, 2, of_chosen, NULL), USC_OK);
    const usc_draw_argument with[] = {{"self", 0, &w}, {"replacement", back, NULL}};
    const usc_draw_output output = {"out[0]", &c, NULL};
    const usc_draw_call call = {.op = "multinomial",
                                .arguments = with,
                                .n_arguments = 2,
                                .outputs = &output,
                                .n_outputs = 1};
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    assert_int_equal(usc_draw_judge(&call, f, NULL), USC_OK);
    const usc_finding *worst = usc_findings_worst(f);
    (void)snprintf(reason, sizeof reason, "%s",
                   worst->verdict == USC_VERDICT_PASS ? "" : worst->reason);
    usc_findings_close(f);
    return reason;
}

static bool taken[N_CATEGORIES];

static double by_weight(int row, int column)
{
    (void)row;
    (void)column;
    double left = stream_even() * (N_CATEGORIES * (N_CATEGORIES - 1) / 2);
    int j = 1;
    while (j < N_CATEGORIES - 1 && left >= j)
        left -= j++;
    return j;
}

static double by_weight_once(int row, int column)
{
    if (column == 0) memset(taken, 0, sizeof taken);
    int j;
    do
        j = (int)by_weight(row, column);
    while (taken[j]);
    taken[j] = true;
    return j;
}

static double any_category(int row, int column)
{
    (void)row;
    (void)column;
    return 1 + floor(stream_even() * (N_CATEGORIES - 1));
}

static double the_heaviest(int row, int column)
{
    (void)row;
    return N_CATEGORIES - 1 - column;
}

static double first_category(int row, int column)
{
    (void)row;
    (void)column;
    return 0;
}

static double beyond_all(int row, int column)
{
    (void)row;
    (void)column;
    return N_CATEGORIES;
}

static void categories_come_by_their_weights(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= N_SEEDS; s++) {
        stream_seed(s);
        assert_string_equal(sampled(true, by_weight), "");
        assert_string_equal(sampled(false, by_weight_once), "");
    }
    assert_string_not_equal(sampled(true, any_category), "");
    assert_string_not_equal(sampled(false, the_heaviest), "");
    assert_string_equal(sampled(true, first_category), "a category of weight zero");
    assert_string_equal(sampled(true, beyond_all), "an index outside of the weights");
    assert_string_equal(sampled(false, by_weight),
                        "a category twice without replacement");
}

/* ---- crowds ---- */

static double crowd_rows[USC_DRAW_CROWD][N];

/* tanh and noise: 64 rows of 32. */
static double noisy(int i, double size)
{
    return tanh(0.01 * i - 10) + size * stream_normal();
}

static const char *among_draws(usc_dtype dtype, const double *device, bool again)
{
    static char reason[256];
    static double raw[N];
    usc_tensor t, rows[USC_DRAW_CROWD];
    const int64_t sizes[] = {64, 32};
    usc_findings *f;
    usc_dtype_narrow(dtype, device, raw, N);
    assert_int_equal(usc_tensor_make(&t, raw, dtype, 2, sizes, NULL), USC_OK);
    for (int k = 0; k < USC_DRAW_CROWD; k++)
        assert_int_equal(
            usc_tensor_make(&rows[k], crowd_rows[k], USC_F64, 2, sizes, NULL), USC_OK);
    const usc_draw_crowd crowd = {.path = "out[0]",
                                  .device = &t,
                                  .again = again ? &t : NULL,
                                  .draws = rows,
                                  .n_draws = USC_DRAW_CROWD};
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    assert_int_equal(usc_draw_judge_crowd(&crowd, f, NULL), USC_OK);
    const usc_finding *found = usc_findings_at(f, 0);
    (void)snprintf(reason, sizeof reason, "%s",
                   found->verdict == USC_VERDICT_PASS ? "" : found->reason);
    assert_true(found->verdict != USC_VERDICT_PASS ||
                found->excused[USC_EXCUSE_SPREAD] == N);
    usc_findings_close(f);
    return reason;
}

static void an_answer_must_lie_among_the_draws(void **state)
{
    (void)state;
    static double device[N];
    stream_seed(5);
    for (int k = 0; k < USC_DRAW_CROWD; k++)
        for (int i = 0; i < N; i++)
            crowd_rows[k][i] = noisy(i, 0.1);
    for (uint64_t s = 1; s <= 20; s++) {
        stream_seed(100 + s);
        for (int i = 0; i < N; i++)
            device[i] = noisy(i, 0.1);
        assert_string_equal(among_draws(s % 2 == 0 ? USC_F32 : USC_BF16, device, false),
                            "");
    }
    assert_string_equal(among_draws(USC_F32, device, true),
                        "two calls give the same numbers");
    for (int i = 0; i < N; i++)
        device[i] = noisy(i, 0.12);
    assert_non_null(strstr(among_draws(USC_F32, device, false), "the spread is not"));
    for (int i = 0; i < N; i++) /* all rows have the noise of the first */
        device[i] =
            i < 32 ? noisy(i, 0.1)
                   : tanh(0.01 * i - 10) + device[i % 32] - tanh(0.01 * (i % 32) - 10);
    assert_non_null(strstr(among_draws(USC_F32, device, false), "is not that of 40"));
    device[7] = (double)NAN;
    assert_string_equal(among_draws(USC_F32, device, false),
                        "NaN or Inf in 1 elements where no draw of the CPU has one");
}

static void draws_of_few_values_admit_no_others(void **state)
{
    (void)state;
    static double device[N];
    for (int k = 0; k <= USC_DRAW_CROWD; k++)
        for (int i = 0; i < N; i++)
            (k < USC_DRAW_CROWD ? crowd_rows[k] : device)[i] =
                stream_even() < 0.3 ? 0 : 2 + i;
    assert_string_equal(among_draws(USC_F32, device, false), "");
    for (int i = 0; i < 64; i++)
        device[i * 30] += 0.1 * (2 + i * 30);
    assert_string_equal(among_draws(USC_F32, device, false),
                        "64 elements have values that no draw of the CPU has");
}

/* Parts of 32 elements that are kept or dropped as one, or (kept 0) have one noise; the
 * first is 10,000 times as large and makes by itself how large a draw is, and how far
 * from the others. */
static void draw_parts(double *out, double kept)
{
    for (int i = 0; i < N; i += 32) {
        double factor = kept == 0 ? stream_normal() : stream_even() < kept ? 1 / kept : 0;
        if (i == 0) factor *= 1e4;
        for (int j = i; j < i + 32; j++)
            out[j] = factor * (1 + 0.01 * (j % 7));
    }
}

/* The device's draw is one of the others of each draw: they can change places, so that it
 * is furthest off no more often than any other. */
static void an_honest_draw_is_no_rarer_than_another(void **state)
{
    (void)state;
    static double device[N];
    const double shares[] = {0.5, 0.8, 0};
    /* where plain squares (482, 821), and the mean of the others (660, 775), mislead */
    const uint64_t of_noise[] = {482, 660, 775, 821};
    for (uint64_t s = 0; s < 60; s++) {
        const double kept = shares[s % 3];
        stream_seed(kept == 0 && s < 12 ? of_noise[s / 3] : 1 + s);
        for (int k = 0; k < USC_DRAW_CROWD; k++)
            draw_parts(crowd_rows[k], kept);
        draw_parts(device, kept);
        assert_string_equal(among_draws(USC_F32, device, false), "");
        for (int i = 0; i < N; i++) /* scaled once more */
            device[i] /= kept == 0 ? 0.25 : kept;
        if (s < 6) assert_string_not_equal(among_draws(USC_F32, device, false), "");
    }
    for (int i = 0; i < 32; i++) /* the large part alone: nothing else tells of it */
        device[i] *= 400;
    for (int i = 32; i < N; i++)
        device[i] *= 0.25;
    assert_non_null(strstr(among_draws(USC_F32, device, false), "of the result"));
}

/* Rows of 32 in a drawn order, of numbers that no format rounds alike. */
static void shuffle_rows(double *out)
{
    int order[64];
    for (int i = 0; i < 64; i++)
        order[i] = i;
    for (int i = 63; i > 0; i--) {
        const int j = (int)(stream_even() * (i + 1)), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (int i = 0; i < N; i++)
        out[i] = 1 + 0.01 * order[i / 32] + 2 * (i % 32);
}

static void a_drawn_order_leaves_what_there_is(void **state)
{
    (void)state;
    static double device[N], kept[N];
    stream_seed(77);
    for (int k = 0; k < USC_DRAW_CROWD; k++)
        shuffle_rows(crowd_rows[k]);
    for (uint64_t s = 1; s <= 20; s++) {
        stream_seed(100 + s);
        shuffle_rows(device);
        if (s % 2 == 0) /* another kernel's roundings */
            for (int i = 0; i < N; i++)
                device[i] *= 1 + 0x1p-22 * (i % 3 - 1);
        assert_string_equal(among_draws(s % 2 == 0 ? USC_F32 : USC_F64, device, false),
                            "");
    }
    shuffle_rows(kept);
    memcpy(device, kept, sizeof device);
    memcpy(device + 32 * 5, device + 32 * 9, 32 * sizeof *device); /* a row twice */
    assert_non_null(strstr(among_draws(USC_F32, device, false),
                           "of its elements are not those of the draws"));
    memcpy(device, kept, sizeof device); /* two elements in each other's row */
    device[3] = kept[32 * 7 + 3];
    device[32 * 7 + 3] = kept[3];
    assert_string_equal(among_draws(USC_F32, device, false),
                        "its slices along axis 0 are not those of the draws of the CPU, "
                        "which hold the same in other orders");
    memcpy(device, kept, sizeof device); /* and in each other's column, of one row */
    device[3] = kept[4];
    device[4] = kept[3];
    assert_string_not_equal(among_draws(USC_F32, device, false), "");
}

/* ---- formulas ---- */

static void near(double value, double want, double within)
{
    if (!(fabs(value - want) <= within * fabs(want)))
        fail_msg("%.17g for %.17g", value, want);
}

static void functions_have_their_known_values(void **state)
{
    (void)state;
    near(usc_normal_below(1.959963984540054), 0.975, 1e-14);
    near(usc_normal_bound(0.05), 1.959963984540054, 1e-14);
    for (double x = 0.01; x < 60; x *= 1.7) {
        near(usc_gamma_above(1, x), exp(-x), 1e-12);
        near(usc_gamma_above(0.5, x), erfc(sqrt(x)), 1e-12);
        near(usc_gamma_above(3, x), exp(-x) * (1 + x + x * x / 2), 1e-12);
    }
    /* on either side of where the formula changes: one more is a Poisson term more */
    for (double z = -6; z <= 6; z += 0.5) {
        const double x = 1e4 + 100 * z;
        const double term = exp(1e4 * log(x) - x - usc_log_gamma(1e4 + 1));
        assert_true(fabs(usc_gamma_above(1e4 + 1, x) - usc_gamma_above(1e4, x) - term) <
                    1e-8);
    }
}

static void correlations_are_those_of_the_plain_sum(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 70; n += n < 9 ? 1 : 7) {
        double x[70], room[512];
        assert_true(usc_lags_room(n) <= 512);
        stream_seed((uint64_t)n);
        for (int i = 0; i < n; i++)
            x[i] = stream_even() - 0.5;
        usc_lags(x, n, room, room);
        double first = 0;
        for (int i = 0; i < n; i++)
            first += x[i] * x[i];
        for (int64_t k = 0; k <= n / 2; k++) {
            double sum = 0;
            for (int64_t i = 0; i + k < n; i++)
                sum += x[i] * x[i + k];
            assert_true(fabs(room[k] / room[0] - sum / first) < 1e-13);
        }
    }
}

static void rare_hits_have_their_exact_tail(void **state)
{
    (void)state;
    assert_false(usc_draw_count_odd(24, 1000, 0.01));
    assert_true(usc_draw_count_odd(40, 1000, 0.01) && usc_draw_count_odd(0, 4000, 0.01));
    assert_false(usc_draw_count_odd(0, 0, 0.5) || usc_draw_count_odd(3, 3, 1));
    assert_true(usc_draw_count_odd(2, 3, 1) && usc_draw_count_odd(1, 3, 0));
    /* 0.9^n falls below 1e-7 between 152 and 154 */
    assert_false(usc_draw_count_odd(0, 150, 0.1));
    assert_true(usc_draw_count_odd(0, 155, 0.1));
    assert_true(usc_draw_count_odd(500000 + 3000, 1000000, 0.5));
    assert_false(usc_draw_count_odd(500000 + 2000, 1000000, 0.5));
}

/* ---- no memory ---- */

static usc_status judge_small(alloc_probe *probe, const char *op)
{
    static double x[N];
    static float y[N];
    usc_tensor input, output;
    const int64_t n = N;
    usc_findings *f = NULL;
    for (int i = 0; i < N; i++) {
        x[i] = i + 1;
        y[i] = stream_even() < 0.5 ? 0 : (float)(2 * x[i]);
    }
    assert_int_equal(usc_tensor_make(&input, x, USC_F64, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&output, y, USC_F32, 1, &n, NULL), USC_OK);
    const usc_draw_argument with[] = {{"p", 0.5, NULL}, {"input", 0, &input}};
    const usc_draw_output out = {"out[0]", &output, &output};
    const usc_draw_call call = {
        .op = op, .arguments = with, .n_arguments = 2, .outputs = &out, .n_outputs = 1};
    usc_status st = usc_findings_open(&probe->alloc, &f, NULL);
    if (st == USC_OK) st = usc_draw_judge(&call, f, NULL);
    usc_findings_close(f);
    return st;
}

static void a_refused_request_is_told(void **state)
{
    (void)state;
    static const char *const ops[] = {"dropout", "rand", "randperm", "normal_"};
    for (int k = 0; k < 4; k++) {
        usc_status st = USC_E_NOMEM;
        int n = 0;
        while (st == USC_E_NOMEM) {
            alloc_probe probe;
            (void)alloc_probe_bind(&probe, ++n);
            st = judge_small(&probe, ops[k]);
            assert_int_equal(probe.live_bytes, 0);
            assert_int_equal(probe.n_wrong_sizes, 0);
            assert_true(st == USC_E_NOMEM || probe.n_requests < n);
        }
        assert_int_equal(st, USC_OK);
        assert_true(n > 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(categories_come_by_their_weights),
        cmocka_unit_test(an_answer_must_lie_among_the_draws),
        cmocka_unit_test(draws_of_few_values_admit_no_others),
        cmocka_unit_test(an_honest_draw_is_no_rarer_than_another),
        cmocka_unit_test(a_drawn_order_leaves_what_there_is),
        cmocka_unit_test(a_refused_request_is_told),
        cmocka_unit_test(functions_have_their_known_values),
        cmocka_unit_test(correlations_are_those_of_the_plain_sum),
        cmocka_unit_test(rare_hits_have_their_exact_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
