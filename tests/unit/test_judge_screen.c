// SPDX-License-Identifier: Apache-2.0
// The judge's screen, on every instruction set: it gives the scores of the definition,
// and refuses what is not ordinary.
#include "judge_operands.h"

#include "judge_contenders.h"
#include "judge_fixture.h"

#include <ulpscope/x/kernels.h>

#include <float.h>
#include <stdio.h>

typedef struct screen_case {
    contender by;
    usc_dtype dtype;
    usc_score_params params;
    unsigned char raw[8 * N];
    double d[N], r[N], rk[N];
    float s[N], n[N], yk[N];
    bool without; /* no replay yet */
} screen_case;

/* Ordinary elements of one dtype, some of them zero, subnormal or at a binade's edge. */
static void fill_screen(screen_case *c, usc_dtype dtype, uint64_t *seed)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    c->dtype = dtype;
    c->params = params;
    c->params.min_power = ldexp(1, info->emin);
    c->params.half_ulp = ldexp(1, -info->sig_bits);
    c->params.ulp_inverse = ldexp(1, info->sig_bits - 1);
    c->params.largest = ldexp(2 - ldexp(1, 1 - info->sig_bits), info->emax);
    c->params.overflow = c->params.largest + ldexp(1, info->emax - info->sig_bits);
    c->params.s_factor = 1 / (USC_STORED * sqrt(3));
    c->params.n_factor = 1 / (USC_STORED * sqrt(3));
    for (int i = 0; i < N; i++) {
        const double pick = fixture_random(seed);
        double x = fixture_random(seed) - 0.5;
        if (pick < 0.2) x = copysign(ldexp(1, (int)(40 * pick) - 4), x);
        if (pick > 0.9) x = ldexp(x, info->emin + (i % 4));
        if (pick > 0.97) x = 0;
        c->r[i] =
            x * (i % 7 == 0 ? 1 : 1 + ldexp(fixture_random(seed) - 0.5, -5 - (i % 45)));
        usc_dtype_narrow(dtype, &x, c->raw + (size_t)i * info->size, 1);
        c->s[i] = (float)(USC_STORED * fabs(c->r[i]) * 4 * fixture_random(seed));
        c->n[i] = (float)(USC_STORED * fabs(c->r[i]) * 4 * fixture_random(seed));
        if (i % 61 == 0) c->n[i] = NAN;
        c->rk[i] = c->r[i] * (1 + 0x1p-20 * 4 * (fixture_random(seed) - 0.5));
        c->yk[i] = i % 67 == 0 ? NAN : (float)(c->rk[i] * (1 + (i % 5) * 0x1p-24));
    }
    usc_dtype_widen(dtype, c->raw, c->d, N);
}

static bool screen(const screen_case *c, bool first, usc_screened *out)
{
    usc_screen_operands o = {.d = c->raw, .r = c->r};
    if (first && !c->without) o.rk = c->rk;
    if (first && !c->without) o.yk = c->yk;
    if (!first) o.s = c->s;
    if (!first) o.n = c->n;
    memset(out, 0, sizeof *out);
    out->max = 1e300;
    return c->by.table->screen(&c->params, c->dtype, &o, N, out);
}

/* What a first replay stores. */
static void store_first(screen_case *c)
{
    static double yk[N];
    for (int i = 0; i < N; i++)
        yk[i] = (double)c->yk[i];
    memset(c->s, 0, sizeof c->s);
    memset(c->n, 0, sizeof c->n);
    (void)usc_judge_kernels_scalar.accumulate(c->r, c->rk, yk, N, c->s, c->n);
    c->params.s_factor = c->params.n_factor = 1 / USC_STORED;
}

static int64_t counted(const usc_screened *s, int bin)
{
    int64_t sum = 0;
    for (int k = 0; k < 8; k++)
        sum += s->counters.of[k][bin];
    for (int k = 0; bin < USC_N_LOW_BINS && k < USC_N_LOW_BINS; k++)
        sum += s->pairs[bin + USC_N_LOW_BINS * k] + s->pairs[k + USC_N_LOW_BINS * bin];
    return sum;
}

/* A block is taken up to its largest score, and leaves no trace where it is not. */
static void refuses_above(const screen_case *c, bool first, double max)
{
    static const usc_screened none;
    const usc_screen_operands o = {.d = c->raw,
                                   .r = c->r,
                                   .s = first ? NULL : c->s,
                                   .n = first ? NULL : c->n,
                                   .rk = c->without ? NULL : c->rk,
                                   .yk = c->without ? NULL : c->yk};
    static usc_screened out;
    memset(&out, 0, sizeof out);
    out.max = max;
    assert_true(c->by.table->screen(&c->params, c->dtype, &o, N, &out));
    if (max == 0) return; /* float8 may match everywhere */
    memset(&out, 0, sizeof out);
    out.max = nextafter(max, 0);
    assert_false(c->by.table->screen(&c->params, c->dtype, &o, N, &out));
    assert_int_equal(out.n_mismatch, 0);
    assert_memory_equal(&out.counters, &none.counters, sizeof none.counters);
    assert_memory_equal(&out.pairs, &none.pairs, sizeof none.pairs);
}

static void gives_the_scores_of_the_definition(const contender *by)
{
    const usc_dtype dtypes[] = {USC_F32, USC_BF16, USC_F16, USC_F8_E4M3, USC_F8_E5M2};
    uint64_t seed = 77001;
    printf("seed %llu\n", (unsigned long long)seed);
    static screen_case c;
    c.by = *by;
    static double scores[N];
    static uint8_t bins[N];
    for (int round = 0; round < 1000; round++) {
        fill_screen(&c, dtypes[round % 5], &seed);
        c.without = round % 4 == 1;
        if (round % 4 == 3) store_first(&c);
        if (c.without) memset(c.s, 0, sizeof c.s);
        if (c.without) memset(c.n, 0, sizeof c.n);
        usc_score_sums sums = {0};
        static usc_screened found;
        const usc_judge_kernels *scalar = &usc_judge_kernels_scalar;
        scalar->score(&c.params, c.d, c.r, c.s, c.n, N, scores, &sums);
        scalar->bin(scores, N, bins);
        assert_true(screen(&c, round % 2, &found));
        int64_t counts[USC_N_SCORE_BINS] = {0}, n_mismatch = 0;
        for (int i = 0; i < N; i++) {
            n_mismatch += scores[i] > 0;
            if (scores[i] > 0) counts[bins[i]]++;
        }
        assert_int_equal(found.n_mismatch, n_mismatch);
        for (int i = 1; i < USC_N_SCORE_BINS; i++) /* 0 holds matches as well */
            assert_int_equal(counted(&found, i), counts[i]);
        refuses_above(&c, round % 2, sums.max);
    }
}

/* What has no lanes of its own is widened, and screened as float64. */
static void widened_outputs_count_as_the_definition(const contender *by)
{
    const usc_dtype dtypes[] = {USC_F64, USC_F8_E4M3, USC_F8_E5M2};
    static const double zeros[N];
    static screen_case c;
    static double scores[N];
    static uint8_t bins[N];
    static usc_screened found;
    uint64_t seed = 77002;
    int64_t n_seen[3] = {0};
    for (int round = 0; round < 300; round++) {
        const bool wide = round % 3 == 0;
        fill_screen(&c, dtypes[round % 3], &seed);
        memset(c.s, 0, sizeof c.s);
        memset(c.n, 0, sizeof c.n);
        if (wide) c.params.unit = 0x1p-53;
        if (wide) c.params.floor = 0x1p-1021;
        for (int i = 0; wide && i < N; i++)
            c.r[i] = c.d[i] * (1 + (i % 9 - 4) * 0x1p-53);
        usc_score_sums sums = {0};
        if (wide)
            usc_judge_score_wide(&c.params, c.d, c.r, zeros, zeros, N, scores, &sums);
        else
            usc_judge_kernels_scalar.score(&c.params, c.d, c.r, c.s, c.n, N, scores,
                                           &sums);
        usc_judge_kernels_scalar.bin(scores, N, bins);
        int64_t counts[USC_N_SCORE_BINS] = {0}, n_mismatch = 0;
        for (int i = 0; i < N; i++) {
            n_mismatch += scores[i] > 0;
            if (scores[i] > 0) counts[bins[i]]++;
        }
        const usc_screen_operands o = {.d = c.d, .r = c.r};
        memset(&found, 0, sizeof found);
        found.max = 1e300;
        assert_true(by->table->screen(&c.params, USC_F64, &o, N, &found));
        assert_int_equal(found.n_mismatch, n_mismatch);
        n_seen[round % 3] += n_mismatch;
        for (int i = 1; i < USC_N_SCORE_BINS; i++)
            assert_int_equal(counted(&found, i), counts[i]);
    }
    for (int k = 0; k < 3; k++)
        assert_true(n_seen[k] > 0);
}

static void test_screen_gives_the_scores_of_the_definition(void **state)
{
    (void)state;
    for_each(gives_the_scores_of_the_definition);
    for_each(widened_outputs_count_as_the_definition);
}

/* One planted element in an ordinary block is enough to be sent away. */
static void refuses_what_is_not_ordinary(const contender *by)
{
    static const double values[] = {(double)NAN, (double)INFINITY, -(double)INFINITY,
                                    1e300, 0x1p128};
    static screen_case c;
    c.by = *by;
    uint64_t seed = 5;
    static usc_screened found;
    for (int k = 0; k < 5 * N; k++) {
        fill_screen(&c, k % 2 ? USC_F32 : USC_BF16, &seed);
        c.r[k % N] = values[k / N];
        assert_false(screen(&c, k % 3 == 0, &found));
    }
    for (int k = 0; k < 3; k++) { /* in the device's output */
        fill_screen(&c, USC_F16, &seed);
        usc_dtype_narrow(USC_F16, &values[k], c.raw + 2 * 37, 1);
        assert_false(screen(&c, false, &found));
    }
    fill_screen(&c, USC_F32, &seed);
    c.s[5] = NAN;
    assert_false(screen(&c, false, &found));
    for (int k = 0; k < 3; k++) { /* S or N hides the element, or it has no right bit */
        fill_screen(&c, USC_F32, &seed);
        c.r[5] = 1 + 0x1p-3;
        const double off = c.r[5] * (k < 2 ? 1 + 0x1p-22 : 1.125);
        usc_dtype_narrow(USC_F32, &off, c.raw + 20, 1);
        if (k < 2) (k == 0 ? c.s : c.n)[5] = FLT_MAX;
        assert_false(screen(&c, false, &found));
    }
    for (int k = 0; k < 5 * N; k++) { /* in a first replay */
        fill_screen(&c, k % 2 ? USC_F32 : USC_BF16, &seed);
        store_first(&c);
        const double e = k % 2 ? 0x1p-22 : 0x1p-7;
        c.r[k % N] = 1 + 0x1p-3; /* and a device that does not match there */
        const double off = c.r[k % N] * (1 + e);
        usc_dtype_narrow(c.dtype, &off, c.raw + (size_t)(k % N) * (k % 2 ? 4 : 2), 1);
        c.rk[k % N] = values[k / N];
        assert_false(screen(&c, true, &found));
        c.rk[k % N] = c.r[k % N];
        c.yk[k % N] = k % 3 == 0 ? INFINITY : (float)c.r[k % N] * 2;
        assert_false(screen(&c, true, &found));
    }
}

static void test_screen_refuses_what_is_not_ordinary(void **state)
{
    (void)state;
    for_each(refuses_what_is_not_ordinary);
}

/* Where the float lanes take S and N from. */
enum { NO_REPLAY, STORED_REPLAYS, ONE_REPLAY, N_SOURCES };

/* A float32 output and its truth, whose score lies about `score` where it is above 0;
 * with replays, about which is the scale. */
static void place(screen_case *c, int source, int i, double x, double score,
                  uint64_t *seed)
{
    const float d = (float)x;
    const double size = fabs((double)d), power = exp2(floor(log2(size)));
    const double sign = fixture_random(seed) < 0.5 ? -1 : 1;
    const double ulp = sign < 0 && size == power ? power / 2 : power;
    const double noise = source == NO_REPLAY ? 0 : size * 4 * fixture_random(seed);
    const double scale = noise > size ? noise : size;
    double r = size + sign * (ulp + score * scale) * 0x1p-24;
    if (!(size > 0)) r = size;
    ((float *)(void *)c->raw)[i] = d;
    c->d[i] = (double)d;
    c->r[i] = copysign(r, x);
    c->s[i] = (float)(noise / c->params.s_factor);
    c->n[i] = c->s[i] * (float)fixture_random(seed);
    if (i % 59 == 0) c->n[i] = NAN;
    c->rk[i] = c->r[i] + copysign(noise * USC_DELTA, fixture_random(seed) - 0.5);
    c->yk[i] = i % 67 == 0 ? NAN : (float)c->rk[i];
}

/* Whether the kernel in float takes the block; then it counted as the definition does.
 */
static bool agrees(screen_case *c, int source)
{
    static double scores[N];
    static uint8_t bins[N];
    static usc_screened found;
    usc_screen_operands o = {.d = c->raw, .r = c->r};
    if (source == ONE_REPLAY) store_first(c);
    if (source == NO_REPLAY) memset(c->s, 0, sizeof c->s);
    if (source == NO_REPLAY) memset(c->n, 0, sizeof c->n);
    if (source == STORED_REPLAYS) o.s = c->s;
    if (source == STORED_REPLAYS) o.n = c->n;
    if (source == ONE_REPLAY) o.rk = c->rk;
    if (source == ONE_REPLAY) o.yk = c->yk;
    memset(&found, 0, sizeof found);
    found.max = 1e300;
    if (!c->by.screen_f32(&c->params, &o, N, &found)) return false;
    usc_score_sums sums = {0};
    usc_judge_kernels_scalar.score(&c->params, c->d, c->r, c->s, c->n, N, scores, &sums);
    usc_judge_kernels_scalar.bin(scores, N, bins);
    int64_t counts[USC_N_SCORE_BINS] = {0}, n_mismatch = 0;
    for (int i = 0; i < N; i++) {
        n_mismatch += scores[i] > 0;
        if (scores[i] > 0) counts[bins[i]]++;
    }
    assert_int_equal(found.n_mismatch, n_mismatch);
    assert_int_equal(sums.n_ill, 0);
    for (int i = 1; i < USC_N_SCORE_BINS; i++)
        assert_int_equal(counted(&found, i), counts[i]);
    assert_true(sums.max <= 4);
    found.max = sums.max / 2; /* as after a larger one elsewhere: to be looked at again */
    const bool again = c->by.screen_f32(&c->params, &o, N, &found);
    assert_true(again == !(sums.max > 0));
    return true;
}

enum { ROUNDS = 2000 };

/* Outputs of any size: it takes nearly all blocks. */
static void honest_blocks(screen_case *c, int source, uint64_t *seed)
{
    int taken = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const int low = round % 2 ? -135 : -6;
        const int high = round % 20 == 0 ? 128 : round % 2 ? 116 : 6;
        fill_screen(c, USC_F32, seed);
        for (int i = 0; i < N; i++) {
            const int exponent = low + (int)(fixture_random(seed) * (high - low));
            double x = ldexp(fixture_random(seed) - 0.5, exponent);
            if (i % 37 == 0) x = copysign(ldexp(1, exponent < -149 ? 0 : exponent), x);
            if (i % 41 == 0) x = 0;
            place(c, source, i, x, 3.5 * fixture_random(seed) - 1, seed);
        }
        taken += agrees(c, source);
    }
    assert_true(taken > ROUNDS * 8 / 10);
}

/* Scores at the very edges of bins, ties and errors that leave few bits. */
static void hard_blocks(screen_case *c, int source, uint64_t *seed)
{
    int taken = 0;
    for (int round = 0; round < ROUNDS; round++) {
        fill_screen(c, USC_F32, seed);
        for (int i = 0; i < N; i++) {
            const double x = fixture_random(seed) - 0.5;
            place(c, source, i, x, -0.5 * fixture_random(seed), seed); /* a match */
        }
        for (int i = round % 16; i < N; i += 97) {
            const double edge = exp2(0.25 * (round % 40 - 32));
            const double beside = ldexp(fixture_random(seed) - 0.5, -(round % 37) - 10);
            const double x = round % 7 == 0 ? 0x1p-20 : fixture_random(seed) - 0.5;
            place(c, source, i, x, round % 3 == 0 ? 0 : edge * (1 + beside), seed);
            if (round % 11 != 0) continue;
            c->s[i] *= (float)ldexp(1, round % 30); /* fewer and fewer bits */
            c->rk[i] = c->r[i] * (1 + ldexp(1, round % 30 - 22));
        }
        taken += agrees(c, source);
    }
    assert_in_range(taken, ROUNDS / 20, ROUNDS * 19 / 20);
}

static void float_lanes_count_as_the_definition(const contender *by)
{
    static screen_case c;
    c.by = *by;
    uint64_t seed = 4711;
    for (int source = 0; source < N_SOURCES; source++) {
        honest_blocks(&c, source, &seed);
        hard_blocks(&c, source, &seed);
    }
}

static void test_float_lanes_count_as_the_definition(void **state)
{
    (void)state;
    for_each(float_lanes_count_as_the_definition);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_screen_gives_the_scores_of_the_definition),
        cmocka_unit_test(test_screen_refuses_what_is_not_ordinary),
        cmocka_unit_test(test_float_lanes_count_as_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
