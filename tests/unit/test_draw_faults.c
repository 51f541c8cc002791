// SPDX-License-Identifier: Apache-2.0
// Random operators: planted faults of every law are caught. Honest streams: test_draw.c.
#include "draw_laws.h"

#include "draw_stream.h"

#include <ulpscope/x/draw.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* ---- planted faults ---- */

static void wrong_rate(drawn *d)
{
    drop(d, d->values, 0.2, 1 / 0.7);
}

static void unscaled_keep(drawn *d)
{
    drop(d, d->values, 0.3, 1);
}

static void one_mask_for_all_rows(drawn *d)
{
    give_input(d, "p", 0.3);
    for (int i = 0; i < N; i++)
        d->values[i] = 11 * i % 32 < 10 ? 0 : d->x[i] / 0.7;
}

static void period(drawn *d)
{
    fill_rand(d, d->values);
    for (int i = 1000; i < N; i++)
        d->values[i] = d->values[i - 1000];
}

static void block_again(drawn *d)
{
    fill_normal(d, d->values);
    memcpy(d->values + N / 2, d->values, N / 4 * sizeof(double));
}

static void below_the_bounds(drawn *d)
{
    fill_to_the_bounds(d, d->values);
    d->values[77] = -1 - 0x1p-7;
}

static void finite_around_infinity(drawn *d)
{
    fill_around_infinity(d, d->values);
    d->values[77] = 3;
}

static void finite_without_spread(drawn *d)
{
    fill_without_spread(d, d->values);
    d->values[78] = 3;
}

static void narrow_beside_no_spread(drawn *d)
{
    fill_without_spread(d, d->values);
    for (int i = 0; i < N; i++)
        if (i % 3 != 0) d->values[i] *= 0.8;
}

static void tile_reused(drawn *d)
{ /* 8 x 8 tiles of 32 columns, the second of each row of tiles that of the first */
    fill_rand(d, d->values);
    for (int i = 0; i < N; i++)
        if (i % 32 / 8 == 1) d->values[i] = d->values[i - 8];
}

static void rows_alike(drawn *d)
{ /* each row leans on the one before */
    fill_normal(d, d->values);
    for (int i = 32; i < N; i++)
        d->values[i] =
            3 + 0.5 * (d->values[i - 32] - 3) + sqrt(0.75) * (d->values[i] - 3);
}

static void too_wide(drawn *d)
{
    fill_normal(d, d->values);
    for (int i = 0; i < N; i++)
        d->values[i] = 3 + 1.2 * (d->values[i] - 3);
}

static void value_missing(drawn *d)
{
    fill_randint(d, d->values);
    for (int i = 0; i < N; i++)
        if (d->values[i] == 2) d->values[i] = 3;
}

static void high_drawn(drawn *d)
{
    fill_randint(d, d->values);
    d->values[77] = 9;
}

static void tail_lost(drawn *d)
{
    fill_rand(d, d->values);
    for (int i = N - 4; i < N; i++)
        d->values[i] = 0;
}

static void not_a_number(drawn *d)
{
    fill_normal(d, d->values);
    d->values[5] = (double)NAN;
}

static void no_permutation(drawn *d)
{
    fill_permutation(d, d->values);
    d->values[3] = d->values[4];
}

static void two_sorted_runs(drawn *d)
{
    int k = 0;
    for (int i = 0; i < N; i += 2)
        d->values[k++] = i;
    for (int i = 1; i < N; i += 2)
        d->values[k++] = i;
}

static void chances_ignored(drawn *d)
{
    fill_by_chances(d, d->values);
    for (int i = 0; i < N; i++)
        d->values[i] = d->p[i] > 0 && d->p[i] < 1 ? stream_even() < 0.5 : d->p[i];
}

static void constant_seed(drawn *d)
{
    fill_rand(d, d->values);
    memcpy(d->second, d->values, sizeof d->second);
    d->twice = true;
}

static void fixed_slope(drawn *d)
{
    fill_rrelu(d, d->values);
    for (int i = 0; i < N; i++)
        if (d->x[i] < 0) d->values[i] = 0.25 * d->x[i];
}

static const struct fault {
    const char *op, *says;
    void (*plant)(drawn *d);
    usc_dtype dtype;
    usc_verdict verdict;
} faults[] = {
    {"dropout", "ones or kept among", wrong_rate, USC_F32, USC_VERDICT_WRONG},
    {"dropout", "off", unscaled_keep, USC_F32, USC_VERDICT_WRONG},
    {"dropout", "places before (", one_mask_for_all_rows, USC_F32, USC_VERDICT_WRONG},
    {"rand", "1,000 places before", period, USC_F32, USC_VERDICT_WRONG},
    {"normal", "1,024 places before", block_again, USC_F32, USC_VERDICT_WRONG},
    {"rand", "8 places before", tile_reused, USC_F32, USC_VERDICT_WRONG},
    {"normal", "32 places before", rows_alike, USC_F32, USC_VERDICT_WRONG},
    {"normal", "spread too wide", too_wide, USC_F32, USC_VERDICT_WRONG},
    {"uniform_", "-1.00781 at element 77, which", below_the_bounds, USC_BF16,
     USC_VERDICT_WRONG},
    {"normal", "3 at element 77, which", finite_around_infinity, USC_F32,
     USC_VERDICT_WRONG},
    {"randint", "distributed otherwise", value_missing, USC_I32, USC_VERDICT_WRONG},
    {"randint", "9 at element 77, which it never draws", high_drawn, USC_I32,
     USC_VERDICT_WRONG},
    {"rand", "the last 4 elements are 0", tail_lost, USC_F32, USC_VERDICT_WRONG},
    {"normal", "nan at element 5, which", not_a_number, USC_F32, USC_VERDICT_NONFINITE},
    {"randperm", "no permutation of 0 to 2,047", no_permutation, USC_I64,
     USC_VERDICT_WRONG},
    {"randperm", "1 of 2,047 steps fall", two_sorted_runs, USC_I64, USC_VERDICT_WRONG},
    {"bernoulli", "do not follow their probabilities", chances_ignored, USC_F32,
     USC_VERDICT_WRONG},
    {"rand", "two calls give related", constant_seed, USC_F32, USC_VERDICT_WRONG},
    {"rrelu", "spread too narrow", fixed_slope, USC_F32, USC_VERDICT_WRONG},
    {"normal", "3 at element 78, which", finite_without_spread, USC_F32,
     USC_VERDICT_WRONG},
    {"normal", "spread too narrow", narrow_beside_no_spread, USC_F32, USC_VERDICT_WRONG},
};

static void planted_faults_are_caught(void **state)
{
    (void)state;
    static drawn d;
    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++) {
        d = (drawn){.dtype = faults[k].dtype};
        stream_seed(k + 1);
        faults[k].plant(&d);
        const usc_verdict verdict = judged(&d, faults[k].op);
        if (verdict != faults[k].verdict || strstr(d.reason, faults[k].says) == NULL)
            fail_msg("fault %d of %s: %s, %s", (int)k, faults[k].op,
                     usc_verdict_text(verdict), d.reason);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_faults_are_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
