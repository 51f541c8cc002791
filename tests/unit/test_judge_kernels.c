// SPDX-License-Identifier: Apache-2.0
// The judge's kernels: every instruction set gives the bits of the scalar definition.
// The screen: test_judge_screen.c.
#include "judge_operands.h"

#include "judge_contenders.h"
#include "judge_fixture.h"

#include <ulpscope/x/kernels.h>

typedef struct operands {
    double d[N], r[N], rk[N], yk[N];
    float s[N], n[N];
} operands;

/* Numbers of all sizes, and every twentieth something special. */
static double any_number(uint64_t *seed)
{
    static const double specials[] = {
        0.0, -0.0, (double)INFINITY, -(double)INFINITY, (double)NAN, 0x1p-133,  0x1p-126,
        1.0, -2.0, 0x1.fep127,       0x1.ffp127,        1e300,       0x1p-1074, 3.4e38};
    const double pick = fixture_random(seed);
    if (pick < 0.05) return specials[(int)(pick * 20 * 14)];
    const int exponent = (int)(fixture_random(seed) * 200) - 100;
    return ldexp(fixture_random(seed) - 0.5, pick < 0.5 ? exponent : 0);
}

static void fill(operands *o, uint64_t *seed)
{
    memset(o, 0, sizeof *o);
    for (int i = 0; i < N; i++) {
        const double x = any_number(seed);
        o->r[i] = x;
        const double noise = 1 + ldexp(fixture_random(seed) - 0.5, -(i % 30));
        double d = x * noise;
        unsigned char narrow[2];
        usc_dtype_narrow(USC_BF16, &d, narrow, 1);
        usc_dtype_widen(USC_BF16, narrow, &o->d[i], 1);
        o->rk[i] = i % 31 == 0 ? any_number(seed) : x * (1 + 0x1p-20);
        o->yk[i] = i % 3 == 0 ? o->rk[i] : (double)(float)o->rk[i];
        o->s[i] = (float)fabs(any_number(seed));
        o->n[i] = (float)fabs(any_number(seed));
    }
}

static void gives_the_bits_of_scalar(const contender *by)
{
    uint64_t seed = 20240607;
    const usc_judge_kernels *tables[] = {&usc_judge_kernels_scalar, by->table};
    static operands start, ends[2];
    static double scores[2][N];
    static uint8_t bins[2][N];
    int n_exact = 0;
    for (int round = 0; round < 600; round++) {
        const size_t counts[] = {0, 1, 7, 8, 9, N - 1, N};
        const size_t count = counts[round % 7];
        usc_score_sums sums[2];
        bool exact[2];
        fill(&start, &seed);
        if (round % 3 == 0) memcpy(start.yk, start.rk, sizeof start.yk); /* exact */
        if (round % 6 == 0) start.yk[count / 2] += 1;
        memset(sums, 0, sizeof sums);
        memset(scores, 0, sizeof scores);
        memset(bins, 0, sizeof bins);
        for (int t = 0; t < 2; t++) {
            operands *o = &ends[t];
            *o = start;
            tables[t]->score(&params, o->d, o->r, o->s, o->n, count, scores[t], &sums[t]);
            tables[t]->bin(scores[t], count, bins[t]);
            exact[t] = tables[t]->accumulate(o->r, o->rk, o->yk, count, o->s, o->n);
        }
        assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
        assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
        assert_memory_equal(bins[0], bins[1], sizeof bins[0]);
        assert_memory_equal(&ends[0], &ends[1], sizeof ends[0]);
        assert_int_equal(exact[0], exact[1]);
        n_exact += exact[0] && count == N;
    }
    assert_in_range(n_exact, 10, 60);
}

static void test_every_table_gives_the_bits_of_scalar(void **state)
{
    (void)state;
    for_each(gives_the_bits_of_scalar);
}

/* One name chooses the statistics and the judge's table. */
static void test_the_table_goes_with_the_name(void **state)
{
    (void)state;
    assert_int_equal(usc_kernels_select("scalar", NULL), USC_OK);
    assert_ptr_equal(usc_judge_kernels_active(), &usc_judge_kernels_scalar);
#if defined(__x86_64__)
    const bool has[] = {usc_cpu_has_avx2(), usc_cpu_has_avx512()};
    const char *names[] = {"avx2", "avx512"};
    const usc_judge_kernels *tables[] = {&usc_judge_kernels_avx2,
                                         &usc_judge_kernels_avx512};
    const usc_judge_kernels *before = &usc_judge_kernels_scalar;
    for (int k = 0; k < 2; k++) {
        usc_error err;
        const usc_status st = usc_kernels_select(names[k], &err);
        assert_int_equal(st, has[k] ? USC_OK : USC_E_UNSUPPORTED);
        if (has[k]) before = tables[k];
        if (!has[k]) assert_non_null(strstr(err.text, names[k]));
        assert_ptr_equal(usc_judge_kernels_active(), before);
        if (has[k]) assert_string_equal(usc_kernels_isa(), names[k]);
    }
    assert_int_equal(usc_kernels_select(NULL, NULL), USC_OK); /* the widest there is */
    assert_ptr_equal(usc_judge_kernels_active(), before);
#endif
}

/* A bin holds [2^((i-1)/4 - 8), 2^(i/4 - 8)). */
static void test_bins_are_quarter_octaves(void **state)
{
    (void)state;
    for (int i = 1; i < USC_N_SCORE_BINS - 1; i++) {
        const double edge = exp2((i - 1) / 4.0 - 8);
        const double x[2] = {edge * (1 + 1e-6), edge * (1 - 1e-6)};
        uint8_t bins[2];
        usc_judge_kernels_scalar.bin(x, 2, bins);
        assert_int_equal(bins[0], i);
        assert_int_equal(bins[1], i - 1);
    }
    const double ends[] = {0, 5e-324, 1e300, 256};
    uint8_t bins[4];
    usc_judge_kernels_scalar.bin(ends, 4, bins);
    assert_int_equal(bins[0], USC_BIN_MATCH);
    assert_int_equal(bins[1], 0);
    assert_int_equal(bins[2], USC_N_SCORE_BINS - 1);
    assert_int_equal(bins[3], 65);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_table_gives_the_bits_of_scalar),
        cmocka_unit_test(test_the_table_goes_with_the_name),
        cmocka_unit_test(test_bins_are_quarter_octaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
