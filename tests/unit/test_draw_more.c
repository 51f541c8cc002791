// SPDX-License-Identifier: Apache-2.0
// Random operators: categories, masks that show in part, answers among draws of the CPU,
// and each formula against what is known of it. Laws: test_draw.c.
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

enum { N = 2048, N_SEEDS = 200, N_ROWS = 16, N_CATEGORIES = 50 };

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

/* ---- masks of which a part shows ---- */

static void masks_are_judged_as_far_as_they_show(void **state)
{
    (void)state;
    static uint8_t kept[N], shown[N];
    const int64_t n = N;
    usc_tensor k, s;
    assert_int_equal(usc_tensor_make(&k, kept, USC_U8, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&s, shown, USC_BOOL, 1, &n, NULL), USC_OK);
    usc_draw_mask mask = {.path = "out[0]", .kept = &k, .shown = &s, .chance = 0.9};
    stream_seed(3);
    for (int i = 0; i < N; i++) {
        shown[i] = i % 3 != 0;
        kept[i] =
            shown[i] != 0 && stream_even() < 0.9; /* all dropped where nothing shows */
    }
    usc_findings *f;
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    assert_int_equal(usc_draw_judge_mask(&mask, f, NULL), USC_OK);
    mask.shown = NULL;
    assert_int_equal(usc_draw_judge_mask(&mask, f, NULL), USC_OK);
    mask.shown = &s;
    mask.honest_kept = 9500;
    mask.honest_n = 10000;
    assert_int_equal(usc_draw_judge_mask(&mask, f, NULL), USC_OK);
    assert_string_equal(usc_findings_at(f, 0)->reason,
                        "drawn by its law, as far as 1,365 draws tell");
    assert_int_equal(usc_findings_at(f, 0)->verdict, USC_VERDICT_PASS);
    assert_int_equal(usc_findings_at(f, 1)->verdict, USC_VERDICT_WRONG);
    assert_non_null(strstr(usc_findings_at(f, 2)->reason, "honest outputs keep 95.00%"));
    usc_findings_close(f);
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

/* ---- masks behind sums ---- */

enum { BLOCKS = 40, EQUATIONS = 16, UNKNOWNS = 40 };

static double columns[BLOCKS][EQUATIONS][UNKNOWNS], base[BLOCKS][EQUATIONS],
    got[BLOCKS][EQUATIONS];
static uint8_t ones[BLOCKS][UNKNOWNS], found[BLOCKS][UNKNOWNS], seen[BLOCKS][UNKNOWNS],
    sure[BLOCKS];
static double left_open[BLOCKS];

/* Sums over masks that drop one of ten, rounded as float32 does. */
static void sum_masks(void)
{
    for (int b = 0; b < BLOCKS; b++) {
        for (int j = 0; j < UNKNOWNS; j++)
            ones[b][j] = stream_even() >= 0.1;
        for (int e = 0; e < EQUATIONS; e++) {
            double sum = base[b][e] = stream_normal();
            for (int j = 0; j < UNKNOWNS; j++) {
                columns[b][e][j] = j == 5 ? 0 : stream_normal();
                sum += ones[b][j] != 0 ? columns[b][e][j] : 0;
            }
            got[b][e] = (double)(float)sum;
        }
    }
}

static usc_status find_all(int64_t n_equations)
{
    usc_tensor c, rest, sums;
    const int64_t three[] = {BLOCKS, EQUATIONS, UNKNOWNS}, two[] = {BLOCKS, n_equations};
    assert_int_equal(usc_tensor_make(&c, columns, USC_F64, 3, three, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&rest, base, USC_F64, 2, two, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&sums, got, USC_F64, 2, two, NULL), USC_OK);
    const usc_mask_sums of = {.columns = &c,
                              .base = &rest,
                              .got = &sums,
                              .eps = 0x1p-23,
                              .kept = found[0],
                              .shown = seen[0],
                              .sure = sure,
                              .left = left_open};
    return usc_draw_find_masks(&of, NULL);
}

static void masks_behind_sums_are_found(void **state)
{
    (void)state;
    stream_seed(7);
    sum_masks();
    assert_int_equal(find_all(EQUATIONS), USC_OK);
    int n_right = 0;
    for (int b = 0; b < BLOCKS; b++) {
        bool right = true;
        for (int j = 0; j < UNKNOWNS; j++) {
            assert_int_equal(seen[b][j], j != 5); /* which adds nothing */
            right = right && (found[b][j] == ones[b][j] || j == 5);
        }
        n_right += right;
        assert_true(!right || left_open[b] < 1e-7);
        assert_true(right || left_open[b] > 1e-4); /* a wrong mask shows by itself */
    }
    assert_true(n_right >= BLOCKS - 2);
    for (int b = 0; b < BLOCKS; b++)
        for (int e = 0; e < EQUATIONS; e++)
            got[b][e] += 0.05 * got[b][e] * (e % 2 == 0 ? 1 : -1);
    assert_int_equal(find_all(EQUATIONS), USC_OK);
    for (int b = 0; b < BLOCKS; b++)
        assert_true(left_open[b] > 1e-4); /* no mask explains a wrong kernel */
    assert_int_equal(find_all(EQUATIONS - 1), USC_E_SHAPE);
}

/* A number of 1e36 in each block, made by one unknown, hides no other number's. */
static void large_numbers_hide_no_mask(void **state)
{
    (void)state;
    stream_seed(8);
    sum_masks();
    for (int b = 0; b < BLOCKS; b++) {
        const int e = b % EQUATIONS;
        const double more = 1e36 - columns[b][e][6];
        columns[b][e][6] += more;
        got[b][e] = (double)(float)(got[b][e] + (ones[b][6] != 0 ? more : 0));
    }
    assert_int_equal(find_all(EQUATIONS), USC_OK);
    int n_right = 0;
    for (int b = 0; b < BLOCKS; b++) {
        bool right = true;
        for (int j = 0; j < UNKNOWNS; j++) {
            assert_int_equal(seen[b][j], j != 5);
            right = right && (found[b][j] == ones[b][j] || j == 5);
        }
        n_right += right;
    }
    assert_true(n_right >= BLOCKS - 2);
}

static void large_numbers_hide_none_of_few(void **state)
{
    (void)state;
    enum { FEW = 3, COMBINATIONS = 1 << FEW };
    static double given[COMBINATIONS][BLOCKS][EQUATIONS], came[BLOCKS][EQUATIONS];
    static uint8_t kept[BLOCKS][FEW], shown[BLOCKS][FEW];
    stream_seed(9);
    for (int b = 0; b < BLOCKS; b++)
        for (int e = 0; e < EQUATIONS; e++)
            for (int c = 0; c < COMBINATIONS; c++)
                for (int j = 0; j < FEW; j++)
                    given[c][b][e] += (c >> (FEW - 1 - j) & 1) != 0 ? 0
                                      : e == 3 && j == 0
                                          ? 1e36
                                          : 1 + (double)((e + j * 3) % 7) / 7;
    for (int b = 0; b < BLOCKS; b++)
        for (int e = 0; e < EQUATIONS; e++)
            came[b][e] = (double)(float)given[b % COMBINATIONS][b][e];
    usc_tensor all, some;
    const int64_t three[] = {COMBINATIONS, BLOCKS, EQUATIONS},
                  two[] = {BLOCKS, EQUATIONS};
    assert_int_equal(usc_tensor_make(&all, given, USC_F64, 3, three, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&some, came, USC_F64, 2, two, NULL), USC_OK);
    const usc_mask_tries of = {
        .given = &all, .got = &some, .eps = 0x1p-23, .kept = kept[0], .shown = shown[0]};
    assert_int_equal(usc_draw_try_masks(&of, NULL), USC_OK);
    for (int b = 0; b < BLOCKS; b++)
        for (int j = 0; j < FEW; j++) {
            assert_true(shown[b][j]);
            assert_int_equal(kept[b][j], (b % COMBINATIONS >> (FEW - 1 - j) & 1) == 0);
        }
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

static void a_search_is_trusted_as_it_finds_known_masks(void **state)
{
    (void)state;
    double left[] = {3, 1, 2, 0, 4, 5, 6, 7, 8, 9, 10};
    assert_true(fabs(usc_draw_mask_limit(left, 11) - (32 * 9 + 0x1p-24)) < 1e-12);
    assert_true(isnan(usc_draw_mask_limit(left, 0)));
    const usc_mask_search good = {1000, 900, 899}, few = {1000, 499, 499},
                          wrong = {1000, 900, 800}, all = {1000, 1000, 1000};
    assert_true(usc_draw_search_sound(&good));
    assert_false(usc_draw_search_sound(&few) || usc_draw_search_sound(&wrong));
    const usc_mask_search same = {1000, 880, 0}, fewer = {1000, 700, 0},
                          some = {1000, 995, 0};
    assert_false(usc_draw_search_odd(&good, &same) || usc_draw_search_odd(&all, &all));
    assert_true(usc_draw_search_odd(&good, &fewer) && usc_draw_search_odd(&all, &fewer));
    assert_false(usc_draw_search_odd(&all, &some));
    assert_true(usc_draw_mask_tells(5, 10) && !usc_draw_mask_tells(4, 10));

    usc_findings *f = NULL;
    const int64_t n = 4;
    double y[4] = {0};
    usc_tensor t;
    assert_int_equal(usc_tensor_make(&t, y, USC_F64, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    assert_int_equal(usc_draw_judge_search(&good, &same, "out[0]", &t, f, NULL), USC_OK);
    assert_null(usc_findings_worst(f));
    assert_int_equal(usc_draw_judge_search(&good, &fewer, "out[0]", &t, f, NULL), USC_OK);
    assert_string_equal(usc_findings_worst(f)->reason,
                        "no mask explains 300 of 1,000 parts, of honest outputs 10.0% of "
                        "them");
    usc_findings_close(f);
}

/* y = 3 a + b + 0 c of three elements that may be dropped. */
static void masks_of_few_elements_are_all_tried(void **state)
{
    (void)state;
    enum { PARTS = 2, DROPS = 3, ALL = 1 << DROPS };
    const int64_t sizes[] = {ALL, PARTS, 1}, of_seen[] = {PARTS, 1};
    double given[ALL][PARTS][1], gave[PARTS][1] = {{3}, {1 + 1e-3}};
    uint8_t kept[PARTS][DROPS], shown[PARTS][DROPS];
    usc_tensor g, y;
    for (int c = 0; c < ALL; c++)
        for (int b = 0; b < PARTS; b++)
            given[c][b][0] = 3 * !(c & 4) + !(c & 2);
    assert_int_equal(usc_tensor_make(&g, given, USC_F64, 3, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&y, gave, USC_F64, 2, of_seen, NULL), USC_OK);
    usc_mask_tries tries = {&g, &y, 0x1p-23, kept[0], shown[0]};
    assert_int_equal(usc_draw_try_masks(&tries, NULL), USC_OK);
    assert_true(kept[0][0] && !kept[0][1] && !kept[1][0] && kept[1][1]);
    assert_true(shown[0][0] && shown[0][1] && !shown[0][2]);
    g.sizes[0] = 7;
    assert_int_equal(usc_draw_try_masks(&tries, NULL), USC_E_RANGE);
    y.sizes[0] = 1;
    assert_int_equal(usc_draw_try_masks(&tries, NULL), USC_E_SHAPE);
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
        cmocka_unit_test(masks_are_judged_as_far_as_they_show),
        cmocka_unit_test(an_answer_must_lie_among_the_draws),
        cmocka_unit_test(draws_of_few_values_admit_no_others),
        cmocka_unit_test(an_honest_draw_is_no_rarer_than_another),
        cmocka_unit_test(a_drawn_order_leaves_what_there_is),
        cmocka_unit_test(masks_behind_sums_are_found),
        cmocka_unit_test(large_numbers_hide_no_mask),
        cmocka_unit_test(large_numbers_hide_none_of_few),
        cmocka_unit_test(a_refused_request_is_told),
        cmocka_unit_test(functions_have_their_known_values),
        cmocka_unit_test(correlations_are_those_of_the_plain_sum),
        cmocka_unit_test(rare_hits_have_their_exact_tail),
        cmocka_unit_test(a_search_is_trusted_as_it_finds_known_masks),
        cmocka_unit_test(masks_of_few_elements_are_all_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
