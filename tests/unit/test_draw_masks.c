// SPDX-License-Identifier: Apache-2.0
// Masks of dropout behind what shows of them: in part, behind sums, of few elements.
#include "draw_sizes.h"

#include "alloc_probe.h"
#include "draw_stream.h"

#include <ulpscope/x/draw.h>

#include "draw/draw_special.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

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

/* ---- masks behind sums ---- */

enum { BLOCKS = 40, EQUATIONS = 16, UNKNOWNS = 40 };

static double columns[BLOCKS][EQUATIONS][UNKNOWNS], base[BLOCKS][EQUATIONS],
    got[BLOCKS][EQUATIONS];
static uint8_t ones[BLOCKS][UNKNOWNS], found[BLOCKS][UNKNOWNS], seen[BLOCKS][UNKNOWNS],
    sure[BLOCKS];
static double left_open[BLOCKS], between_open[BLOCKS];

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
                              .left = left_open,
                              .open = between_open};
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
        assert_true(between_open[b] < 1e-5); /* though one in between explains it */
    }
    assert_true(n_right >= BLOCKS - 2);
    for (int b = 0; b < BLOCKS; b++)
        for (int e = 0; e < EQUATIONS; e++)
            got[b][e] += 0.05 * got[b][e] * (e % 2 == 0 ? 1 : -1);
    assert_int_equal(find_all(EQUATIONS), USC_OK);
    for (int b = 0; b < BLOCKS; b++)
        assert_true(left_open[b] > 1e-4); /* no mask explains a wrong kernel */
    for (int b = 0; b < BLOCKS; b++) {
        memcpy(got[b], base[b], sizeof got[b]); /* all dropped */
        got[b][0] += b % 2 == 0 ? 0 : 1e3;      /* no sum of theirs */
    }
    assert_int_equal(find_all(EQUATIONS), USC_OK);
    for (int b = 0; b < BLOCKS; b += 2) {
        assert_true(left_open[b] == 0 && between_open[b] == 0);
        for (int j = 0; j < UNKNOWNS; j++)
            assert_false(found[b][j]);
        assert_true(left_open[b + 1] > 1e-2 && between_open[b + 1] > 1e-2);
    }
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
    usc_mask_tries tries = {&g, &y, NULL, 0x1p-23, 0x1p-126, kept[0], shown[0]};
    assert_int_equal(usc_draw_try_masks(&tries, NULL), USC_OK);
    assert_true(kept[0][0] && !kept[0][1] && !kept[1][0] && kept[1][1]);
    assert_true(shown[0][0] && shown[0][1] && !shown[0][2]);

    /* a part whose own roundings make a third of what b does: only a is told there */
    double own[PARTS] = {1e-2, 1.01 / 4 / 3}; /* b is a quarter of the largest, 4 */
    usc_tensor noise;
    const int64_t parts = PARTS;
    assert_int_equal(usc_tensor_make(&noise, own, USC_F64, 1, &parts, NULL), USC_OK);
    tries.noise = &noise;
    assert_int_equal(usc_draw_try_masks(&tries, NULL), USC_OK);
    assert_true(shown[0][0] && shown[0][1] && shown[1][0] && !shown[1][1]);
    tries.least = 4.1; /* so that all of it may be flushed */
    assert_int_equal(usc_draw_try_masks(&tries, NULL), USC_OK);
    assert_false(shown[0][0] || shown[0][1] || shown[1][0]);
    noise.sizes[0] = 1;
    assert_int_equal(usc_draw_try_masks(&tries, NULL), USC_E_SHAPE);
    noise.sizes[0] = PARTS;
    g.sizes[0] = 7;
    assert_int_equal(usc_draw_try_masks(&tries, NULL), USC_E_RANGE);
    y.sizes[0] = 1;
    assert_int_equal(usc_draw_try_masks(&tries, NULL), USC_E_SHAPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_judged_as_far_as_they_show),
        cmocka_unit_test(masks_behind_sums_are_found),
        cmocka_unit_test(large_numbers_hide_no_mask),
        cmocka_unit_test(large_numbers_hide_none_of_few),
        cmocka_unit_test(a_search_is_trusted_as_it_finds_known_masks),
        cmocka_unit_test(masks_of_few_elements_are_all_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
