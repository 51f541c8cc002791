// SPDX-License-Identifier: Apache-2.0
// The quick kernel over float64 outputs, whose S and N are doubles: it counts what the
// scalar definition counts, or sends a block away. Neighbour: test_judge_kernels.c.
#include "judge_contenders.h"
#include "judge_fixture.h"

#include <ulpscope/x/kernels.h>

#include <float.h>

enum { N = USC_JUDGE_BLOCK };

static const usc_score_params params = {
    .min_power = 0x1p-1022,
    .half_ulp = 0x1p-53,
    .ulp_inverse = 0x1p52,
    .largest = DBL_MAX,
    .overflow = (double)INFINITY,
    .unit = 0x1p-53,
    .floor = 0x1p-1021,
    .s_factor = 1 / USC_STORED,
    .n_factor = 1 / USC_STORED,
    .s_unknown = 1e300,
    .expect = 3,
};

static int64_t counted(const usc_screened *s, int bin)
{
    int64_t sum = 0;
    for (int k = 0; k < 8; k++)
        sum += s->counters.of[k][bin];
    for (int k = 0; bin < USC_N_LOW_BINS && k < USC_N_LOW_BINS; k++)
        sum += s->pairs[bin + USC_N_LOW_BINS * k] + s->pairs[k + USC_N_LOW_BINS * bin];
    return sum;
}

typedef struct wide_case {
    double d[N], r[N], rk[N], yk[N], s[N], n[N];
    float yk_narrow[N];
} wide_case;

/* A float64 output that is a few roundings off, and its first replay. */
static void fill_wide(wide_case *c, uint64_t *seed)
{
    memset(c, 0, sizeof *c);
    for (int i = 0; i < N; i++) {
        const double x = ldexp(fixture_random(seed) - 0.5, (int)(i % 200) - 100);
        c->r[i] = i % 41 == 0 ? 0 : x;
        c->d[i] = c->r[i] * (1 + (i % 9 - 4) * 0x1p-52);
        c->rk[i] = c->r[i] * (1 + 0x1p-20 * 4 * (fixture_random(seed) - 0.5));
        c->yk_narrow[i] = i % 67 == 0 ? NAN : (float)(c->rk[i] * (1 + (i % 5) * 0x1p-24));
        c->yk[i] = (double)c->yk_narrow[i];
    }
}

/* Screens a first replay, or what it stores; compares where the block is taken. */
static bool counts_agree(const contender *by, wide_case *c, bool stored)
{
    static double scores[N];
    static uint8_t bins[N];
    static usc_screened found;
    memset(c->s, 0, sizeof c->s);
    memset(c->n, 0, sizeof c->n);
    (void)usc_judge_accumulate_wide(c->r, c->rk, c->yk, N, c->s, c->n);
    usc_score_sums sums = {0};
    usc_judge_score_wide(&params, c->d, c->r, c->s, c->n, N, scores, &sums);
    usc_judge_kernels_scalar.bin(scores, N, bins);
    const usc_screen_operands o = {.d = c->d,
                                   .r = c->r,
                                   .s = stored ? c->s : NULL,
                                   .n = stored ? c->n : NULL,
                                   .rk = c->rk,
                                   .yk = c->yk_narrow,
                                   .wide = true};
    memset(&found, 0, sizeof found);
    found.max = 1e300;
    if (!by->table->screen(&params, USC_F64, &o, N, &found)) return false;
    int64_t counts[USC_N_SCORE_BINS] = {0}, n_mismatch = 0;
    for (int i = 0; i < N; i++) {
        n_mismatch += scores[i] > 0;
        if (scores[i] > 0) counts[bins[i]]++;
    }
    assert_int_equal(found.n_mismatch, n_mismatch);
    for (int i = 1; i < USC_N_SCORE_BINS; i++)
        assert_int_equal(counted(&found, i), counts[i]);
    return true;
}

/* S and N as doubles. What their squares cannot hold is sent away or counts the same. */
static void replays_count_as_the_definition(const contender *by)
{
    static wide_case c;
    uint64_t seed = 77003;
    for (int round = 0; round < 300; round++) {
        fill_wide(&c, &seed);
        assert_true(counts_agree(by, &c, round % 2));
    }
    int n_taken = 0;
    for (int k = -1074; k < 1023; k++) { /* one element of each size, and its replay */
        fill_wide(&c, &seed);
        c.r[37] = k % 3 == 0 ? 0 : ldexp(1.5, k);
        c.d[37] = k % 3 == 0 ? ldexp(1, k - 60) : nextafter(c.r[37], 0);
        c.rk[37] = ldexp(1.375, k);
        c.yk_narrow[37] = 0;
        c.yk[37] = 0;
        n_taken += counts_agree(by, &c, false);
    }
    assert_in_range(n_taken, 400, 2000);
}

static void test_wide_replays_count_as_the_definition(void **state)
{
    (void)state;
    contender all[MAX_CONTENDERS];
    const int n = contenders(all);
    if (n == 0) skip();
    for (int k = 0; k < n; k++)
        replays_count_as_the_definition(&all[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide_replays_count_as_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
