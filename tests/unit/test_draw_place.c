// SPDX-License-Identifier: Apache-2.0
// Generators that go wrong in some places or in some digits, or that repeat themselves:
// each is accused, and by the test that is made for it. Laws, and faults of a whole
// output: test_draw.c; honest draws: test_draw_honest.c.
#include "draw_generators.h"

#include <ulpscope/x/draw.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 512, COLUMNS = 128, N = ROWS * COLUMNS };

typedef struct drawn {
    generator g;
    double v[N];
    unsigned char raw[8 * N];
    usc_draw_argument with[3];
    int n_with;
    bool written; /* raw holds it already */
} drawn;

static drawn now;

static void number(const char *name, double value)
{
    now.with[now.n_with++] = (usc_draw_argument){name, value, NULL};
}

static double *row(int i)
{
    return now.v + (ptrdiff_t)i * COLUMNS;
}

/* ---- honest ---- */

static void even(void)
{
    for (int i = 0; i < N; i++)
        now.v[i] = draw_even(&now.g);
}

static void normal(void)
{
    for (int i = 0; i < N; i++)
        now.v[i] = draw_normal(&now.g);
}

static void kept(double p)
{
    number("p", p);
    for (int i = 0; i < N; i++)
        now.v[i] = draw_even(&now.g) < p;
}

static void whole(double range)
{
    number("low", 0);
    number("high", range);
    for (int i = 0; i < N; i++)
        now.v[i] = (double)(draw_long(&now.g) % (uint64_t)range);
}

/* ---- places ---- */

static void a_lane_is_stuck(void)
{
    kept(0.9);
    for (int i = 31; i < N; i += COLUMNS)
        now.v[i] = 1;
}

static void the_last_columns_are_kept(void)
{
    kept(0.9);
    for (int i = 0; i < ROWS; i++)
        for (int j = COLUMNS - 4; j < COLUMNS; j++)
            row(i)[j] = 1;
}

static void a_tile_is_kept(void)
{
    kept(0.7);
    for (int i = 64; i < 80; i++)
        for (int j = 16; j < 32; j++)
            row(i)[j] = 1;
}

static void a_thread_of_tiles_is_stuck(void)
{
    kept(0.8);
    for (int i = 5; i < ROWS; i += 16)
        for (int j = 7; j < COLUMNS; j += 16)
            row(i)[j] = 1;
}

static void some_rows_are_kept(void)
{
    kept(0.9);
    for (int i = 36; i < ROWS; i += 37)
        for (int j = 0; j < COLUMNS; j++)
            row(i)[j] = 1;
}

static void rows_drop_the_same_number(void)
{
    number("p", 0.75);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLUMNS; j++) {
            const int k = (int)(draw_even(&now.g) * (j + 1));
            row(i)[j] = row(i)[k];
            row(i)[k] = j >= COLUMNS / 4;
        }
    }
}

static void a_column_is_wide(void)
{
    normal();
    for (int i = 0; i < ROWS; i++)
        row(i)[77] *= 2;
}

static void the_last_column_is_small(void)
{
    even();
    for (int i = 0; i < ROWS; i++)
        row(i)[COLUMNS - 1] *= 0.5;
}

/* ---- digits ---- */

static void even_numbers_alone(void)
{
    whole(100000);
    for (int i = 0; i < N; i++)
        now.v[i] -= fmod(now.v[i], 2);
}

static void low_bits_are_zero(void)
{
    whole(0x1p30);
    for (int i = 0; i < N; i++)
        now.v[i] -= fmod(now.v[i], 64);
}

static void a_bit_is_stuck(void)
{
    whole(0x1p30);
    for (int i = 0; i < N; i++)
        now.v[i] = (double)((uint64_t)now.v[i] & ~UINT64_C(4096));
}

static void low_bits_of_long_numbers_are_zero(void)
{
    now.written = true;
    for (int i = 0; i < N; i++) {
        const uint64_t v = (draw_long(&now.g) >> 1) & ~UINT64_C(255);
        memcpy(now.raw + 8 * (size_t)i, &v, 8);
    }
}

static void multiples_of_seven_are_rare(void)
{
    whole(1000000);
    for (int i = 0; i < N; i++)
        if (fmod(now.v[i], 7) == 0 && draw_even(&now.g) < 0.2) now.v[i] += 1;
}

static void parity_follows_the_place(void)
{
    whole(100000);
    for (int i = 0; i < N; i++)
        now.v[i] += i % 2 - fmod(now.v[i], 2);
}

static void floats_of_18_bits(void)
{
    even();
    for (int i = 0; i < N; i++)
        now.v[i] = floor(now.v[i] * 0x1p18) * 0x1p-18;
}

static void permuted_in_its_parity(void)
{
    for (int i = 0; i < N; i++) {
        const int k = 2 * (int)(draw_even(&now.g) * (i / 2 + 1)) + i % 2;
        now.v[i] = now.v[k];
        now.v[k] = i;
    }
}

/* ---- tails ---- */

static void tails_are_drawn_again(void)
{
    for (int i = 0; i < N; i++)
        do
            now.v[i] = draw_normal(&now.g);
        while (fabs(now.v[i]) > 3.2);
}

static void six_even_numbers_for_a_normal(void)
{
    for (int i = 0; i < N; i++) {
        double sum = -3;
        for (int k = 0; k < 6; k++)
            sum += draw_even(&now.g);
        now.v[i] = sum * sqrt(2);
    }
}

static void small_logarithms_alone(void)
{
    for (int i = 0; i < N; i++)
        do
            now.v[i] = -log1p(-draw_even(&now.g));
        while (now.v[i] > 8);
}

/* ---- repeats and pairs ---- */

static void two_rows_share_a_mask(void)
{
    kept(0.7);
    memcpy(row(300), row(20), COLUMNS * sizeof(double));
}

static void two_columns_share_a_mask(void)
{
    kept(0.5);
    for (int i = 0; i < ROWS; i++)
        row(i)[9] = row(i)[5];
}

static void a_column_is_the_other_turned(void)
{
    kept(0.5);
    for (int i = 0; i < ROWS; i++)
        row(i)[9] = 1 - row(i)[5];
}

static void a_column_is_the_other_negated(void)
{
    normal();
    for (int i = 0; i < ROWS; i++)
        row(i)[60] = -row(i)[3];
}

static void a_stretch_comes_again_elsewhere(void)
{
    whole(10);
    memcpy(now.v + 50001, now.v + 1000, 100 * sizeof(double));
}

static void the_last_quarter_is_the_first(void)
{
    kept(0.95);
    memcpy(now.v + N / 4 * 3, now.v, N / 4 * sizeof(double));
}

static void a_tent_over_another(void)
{
    even();
    for (int i = 4; i < N; i++)
        if (i % 8 >= 4) now.v[i] = fmin(1 - fabs(2 * now.v[i - 4] - 1), 1 - 0x1p-24);
}

static void sixteen_times_another(void)
{ /* what neither level nor spread shows at this distance */
    even();
    for (int i = 0; i < N; i++)
        if (i % 2 == 1 && draw_even(&now.g) < 0.2)
            now.v[i] = fmod(16 * now.v[i - 1] + 0x1p-18 * draw_even(&now.g), 1);
}

static void low_bits_are_shared(void)
{
    whole(1000);
    for (int i = 1; i < N; i += 2)
        now.v[i] += fmod(now.v[i - 1], 2) - fmod(now.v[i], 2);
}

static const struct fault {
    const char *op, *says;
    void (*plant)(void);
    usc_dtype dtype;
} faults[] = {
    {"bernoulli_", "axis 1, index 31: 512 of 512 ones", a_lane_is_stuck, USC_F32},
    {"bernoulli_", "axis 1, indices 124 to 127: 2,048 of", the_last_columns_are_kept,
     USC_F32},
    {"bernoulli_", "rows 64 to 79, columns 16 to 31: 256", a_tile_is_kept, USC_BOOL},
    {"bernoulli_", "row 5, column 7 of every 16 x 16 tile", a_thread_of_tiles_is_stuck,
     USC_F32},
    {"bernoulli_", "axis 0, index 36 of every 37", some_rows_are_kept, USC_F32},
    {"bernoulli_", "spread too evenly over the indices of axis 0",
     rows_drop_the_same_number, USC_F32},
    {"randn", "axis 1, index 77: spread too wide", a_column_is_wide, USC_F32},
    {"rand", "axis 1, index 127: too small on average", the_last_column_is_small,
     USC_F32},
    {"randint", "bit 0 of what lies above", even_numbers_alone, USC_I64},
    {"randint", "bit 0 of what lies above", low_bits_are_zero, USC_I32},
    {"randint", "bit 12 of what lies", a_bit_is_stuck, USC_I64},
    {"random_", "bit 0 of what lies above", low_bits_of_long_numbers_are_zero, USC_I64},
    {"randint", "of 7 where", multiples_of_seven_are_rare, USC_F32},
    {"randint", "0 of every 2: 0 of 32,768 above the least by an odd number",
     parity_follows_the_place, USC_I64},
    {"rand", "bits 15 to 20 of the numbers made even", floats_of_18_bits, USC_F32},
    {"randperm", "0 of every 2: 0 of 32,768 above", permuted_in_its_parity, USC_I64},
    {"randn", "draws in the lowest 2^-", tails_are_drawn_again, USC_F32},
    {"randn", "distributed otherwise", six_even_numbers_for_a_normal, USC_F32},
    {"exponential_", "none of 65,536 draws in the highest", small_logarithms_alone,
     USC_F32},
    {"bernoulli_", "come again from 38,400 on", two_rows_share_a_mask, USC_F32},
    {"bernoulli_", "(every 128) draws from element", two_columns_share_a_mask, USC_F32},
    {"bernoulli_", "(every 128) draws from element", a_column_is_the_other_turned,
     USC_F32},
    {"randn", "from element 3 on come again from 60 on", a_column_is_the_other_negated,
     USC_F32},
    {"randint", "from element 1,000 on come again from 50,001",
     a_stretch_comes_again_elsewhere, USC_I64},
    {"bernoulli_", "49,152 places before", the_last_quarter_is_the_first, USC_F32},
    {"rand", "from the middle depending on the element 4 places before",
     a_tent_over_another, USC_F32},
    {"rand", "numbers depend on those 1 place before", sixteen_times_another, USC_F32},
    {"randint", "low bits depend on those 1 place before", low_bits_are_shared, USC_I64},
};

static void each_fault_is_told_by_its_test(void **state)
{
    (void)state;
    const int64_t sizes[] = {ROWS, COLUMNS};
    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++) {
        usc_tensor t;
        usc_findings *f;
        now.n_with = 0;
        now.written = false;
        generator_seed(&now.g, (int)(k % N_GENERATORS), k + 1);
        faults[k].plant();
        if (!now.written) usc_dtype_narrow(faults[k].dtype, now.v, now.raw, N);
        assert_int_equal(usc_tensor_make(&t, now.raw, faults[k].dtype, 2, sizes, NULL),
                         USC_OK);
        const usc_draw_output output = {"out[0]", &t, NULL};
        const usc_draw_call call = {.op = faults[k].op,
                                    .arguments = now.with,
                                    .n_arguments = now.n_with,
                                    .outputs = &output,
                                    .n_outputs = 1};
        assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
        assert_int_equal(usc_draw_judge(&call, f, NULL), USC_OK);
        const usc_finding *found = usc_findings_worst(f);
        if (found->verdict != USC_VERDICT_WRONG ||
            strstr(found->reason, faults[k].says) == NULL)
            fail_msg("fault %d of %s: %s, %s", (int)k, faults[k].op,
                     usc_verdict_text(found->verdict), found->reason);
        usc_findings_close(f);
    }
}

/* A second call that goes on where the first one began, a few draws later. */
static void a_second_call_that_overlaps_is_told(void **state)
{
    (void)state;
    enum { FEW = 4096, LATER = 1000 };
    static float first[FEW], second[FEW];
    const int64_t n = FEW;
    usc_tensor a, b;
    usc_findings *f;
    generator_seed(&now.g, PHILOX, 9);
    for (int i = 0; i < FEW; i++)
        first[i] = (float)draw_even(&now.g);
    for (int i = 0; i < FEW; i++)
        second[i] = i < FEW - LATER ? first[i + LATER] : (float)draw_even(&now.g);
    assert_int_equal(usc_tensor_make(&a, first, USC_F32, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&b, second, USC_F32, 1, &n, NULL), USC_OK);
    const usc_draw_output output = {"out[0]", &a, &b};
    const usc_draw_call call = {.op = "rand", .outputs = &output, .n_outputs = 1};
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    assert_int_equal(usc_draw_judge(&call, f, NULL), USC_OK);
    assert_string_equal(
        usc_findings_worst(f)->reason,
        "3,096 draws from element 1,000 on come again from 0 on of a second call");
    usc_findings_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_is_told_by_its_test),
        cmocka_unit_test(a_second_call_that_overlaps_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
