// SPDX-License-Identifier: Apache-2.0
// For tests that hold kernels of many float32 against those of one number: the ways to
// compute, numbers to compute with, and each instruction set in turn.
#ifndef USC_TESTS_SIM_WAYS_H
#define USC_TESTS_SIM_WAYS_H

#include <ulpscope_sim/numerics.h>

#include <ulpscope/x/kernels.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const ways[][2] = {
    {"order", "serial"},     {"order", "pairwise"},    {"order", "blocks:5"},
    {"order", "split-k:3"},  {"order", "split-k:100"}, {"order", "lanes:7"},
    {"order", "lanes:1024"}, {"order", "random:9"},    {"fma", "1"},
    {"like", "simt"},        {"variance", "moments"},  {"variance", "unbiased"},
    {"epsilon", "outside"},  {"scale", "bfloat16"},    {"degree", "10"},
};
#define N_WAYS (sizeof ways / sizeof ways[0])

static usc_sim_numerics way(size_t i)
{
    usc_sim_numerics n;
    assert_int_equal(usc_sim_numerics_begin("*", &n, NULL), USC_OK);
    assert_int_equal(usc_sim_numerics_choose(&n, ways[i][0], ways[i][1], NULL), USC_OK);
    return n;
}

/* Of sizes from 2^-20 to 2^20, with zeros of both signs; every 500th no number, if asked. */
static void draw(float *x, size_t n, uint64_t seed, bool odd)
{
    static const float odds[] = {INFINITY, -INFINITY, NAN, 0x1p-140F, -0.F, 3e38F};
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const int e = (int)(seed >> 33) % 41 - 20;
        x[i] = ldexpf((float)(int32_t)(seed >> 32), e - 31);
        if (seed >> 60 == 3) x[i] = seed >> 59 & 1 ? 0.F : -0.F;
        if (odd && (seed >> 45) % 500 == 0) x[i] = odds[(seed >> 20) % 6];
    }
}

static inline bool is_same(double got, double wanted)
{
    return isnan(wanted)
               ? isnan(got)
               : got <= wanted && got >= wanted && !signbit(got) == !signbit(wanted);
}

static void same(double got, double wanted, const char *what, size_t k, size_t i)
{
    if (!is_same(got, wanted))
        fail_msg("%s, %s=%s, number %zu: %a, not %a", what, ways[k][0], ways[k][1], i,
                 got, wanted);
}

/* A test in an instruction set; one that is not here is the widest that is. */
static int with(void **isa)
{
    return usc_kernels_select(*isa, NULL) == USC_E_ARG;
}

static char scalar[] = "scalar", avx2[] = "avx2", widest[] = "auto";
#define IN(isa, test) cmocka_unit_test_prestate_setup_teardown(test, with, NULL, isa)
#define IN_EACH(test) IN(scalar, test), IN(avx2, test), IN(widest, test)

#endif
