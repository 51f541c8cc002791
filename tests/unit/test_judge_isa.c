// SPDX-License-Identifier: Apache-2.0
// The judge's results with every kernel table, also one that this processor could not run
// (judge_contenders.h): equal to the last bit. The choice among tables is replaced here;
// the real one is tested in test_judge_kernels.c.
#include "judge_contenders.h"
#include "judge_fixture.h"

#include <stdio.h>

static const usc_judge_kernels *in_use = &usc_judge_kernels_scalar;

const usc_judge_kernels *usc_judge_kernels_active(void)
{
    return in_use;
}

/* All ways of looking: before any replay, with the first one, after four, and the appeal
 * where that asks for it. */
typedef struct outcome {
    usc_judgement bare, first, last;
    usc_example worst[5];
} outcome;

/* A first replay of which some elements overflow. */
typedef struct replay {
    double *rk;
    float *yk;
} replay;

static replay replay_of(const fixture *f)
{
    const replay x = {malloc((size_t)f->n * sizeof(double)),
                      malloc((size_t)f->n * sizeof(float))};
    for (int64_t i = 0; i < f->n; i++) {
        const double move = (double)(i % 3 - 1) * 0x1p-20;
        x.rk[i] = i % 9973 == 0 ? (double)NAN : f->r[i] * (1 + move);
        x.yk[i] = i % 4999 == 0 ? INFINITY : (float)x.rk[i];
    }
    return x;
}

static void judge_with(const usc_judge_kernels *table, const fixture *f, const replay *x,
                       outcome *out)
{
    memset(out, 0, sizeof *out);
    in_use = table;
    const usc_tensor d = fixture_view(f->d, f->dtype, f->n);
    const usc_tensor r = fixture_view(f->r, USC_F64, f->n);
    const usc_tensor y = fixture_view(f->y, USC_F32, f->n);
    const usc_tensor rk = fixture_view(x->rk, USC_F64, f->n);
    const usc_tensor yk = fixture_view(x->yk, USC_F32, f->n);
    const usc_judge_options options = {.n_threads = f->n_threads};
    usc_judge *judge = NULL;
    int n_worst;
    assert_int_equal(usc_judge_open(&d, &r, &y, &options, &judge, NULL), USC_OK);
    assert_int_equal(usc_judge_look(judge, &out->bare, NULL), USC_OK);
    assert_int_equal(usc_judge_first(judge, &rk, &yk, &out->first, NULL), USC_OK);
    assert_int_equal(usc_judge_worst(judge, 5, out->worst, &n_worst, NULL), USC_OK);
    usc_judge_close(judge);
    out->last = fixture_judge(f);
}

static void test_equal_bits_on_every_isa(void **state)
{
    (void)state;
    contender all[MAX_CONTENDERS];
    const int n_tables = contenders(all);
    if (n_tables == 0) skip();
    const usc_dtype dtypes[] = {USC_F32,     USC_BF16,    USC_F16,
                                USC_F8_E4M3, USC_F8_E5M2, USC_F64};
    uint64_t seed = 31337;
    printf("seed %llu\n", (unsigned long long)seed);
    int n_seen[USC_N_VERDICTS] = {0};
    static outcome scalar, other;
    for (int round = 0; round < 108; round++) {
        const int64_t n = round < 6 ? 100003 : 3000 + round % 5;
        const usc_dtype dtype = dtypes[round % 6];
        fixture f = fixture_faulty(dtype, n, (dtype == USC_F64 ? 32 : 4) + round / 3 % 22,
                                   round % 4 == 0 ? 1000000 : 5 << round % 8, &seed);
        const replay x = replay_of(&f);
        judge_with(&usc_judge_kernels_scalar, &f, &x, &scalar);
        for (int k = 0; k < n_tables; k++) {
            judge_with(all[k].table, &f, &x, &other);
            assert_memory_equal(&scalar, &other, sizeof scalar);
        }
        n_seen[scalar.last.verdict]++;
        free(x.rk);
        free(x.yk);
        fixture_free(&f);
    }
    assert_true(n_seen[USC_VERDICT_PASS] > 0 && n_seen[USC_VERDICT_WRONG] > 0);
    assert_true(n_seen[USC_VERDICT_REDUCED] > 0 && n_seen[USC_VERDICT_NONFINITE] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_bits_on_every_isa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
