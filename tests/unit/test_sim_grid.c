// SPDX-License-Identifier: Apache-2.0
// Kernels of many threads: what threads wait for, limits, memory that is not theirs, and
// sentences where a kernel is wrong.
#include <ulpscope_sim/grid.h>
#include <ulpscope_sim/profile.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid_by_hand.h"

typedef struct work {
    float *in, *out;
    int n;
} work;

static float *shared(void)
{
    return usc_grid_now.shared;
}

static unsigned global_x(void)
{
    const usc_grid_state *s = &usc_grid_now;
    return s->block.x * s->block_dim.x + s->thread.x;
}

/* Kernels that do on purpose what a sanitizer would tell of before the device does. */
#define WRONG __attribute__((no_sanitize("undefined")))

/* ---- kernels */

WRONG static void doubles(void *ctx)
{
    const work *w = ctx;
    const unsigned i = global_x();
    if ((int)i < w->n) w->out[i] = 2 * w->in[i];
}

static void doubles_beyond(void *ctx)
{
    const work *w = ctx;
    w->out[global_x()] = 2 * w->in[0];
}

static void sums_block(void *ctx)
{
    const work *w = ctx;
    const unsigned t = usc_grid_now.thread.x;
    shared()[t] = w->in[global_x()];
    (void)usc_grid_barrier(USC_GRID_COUNT, 0, "k:1");
    for (unsigned s = usc_grid_now.block_dim.x / 2; s > 0; s /= 2) {
        if (t < s) shared()[t] += shared()[t + s];
        (void)usc_grid_barrier(USC_GRID_COUNT, 0, "k:2");
    }
    if (t == 0) w->out[usc_grid_now.block.x] = shared()[0];
}

static void counts(void *ctx)
{
    const work *w = ctx;
    const int t = (int)usc_grid_now.thread.x;
    if (t >= w->n) return;
    const int n = usc_grid_barrier(USC_GRID_COUNT, t % 2, "k:1");
    const int all = usc_grid_barrier(USC_GRID_AND, t >= 0, "k:2");
    const int some = usc_grid_barrier(USC_GRID_OR, t > 1000, "k:3");
    w->out[t] = (float)(n * 100 + all * 10 + some);
}

static void sums_warp(void *ctx)
{
    const work *w = ctx;
    const unsigned t = global_x(), lane = usc_grid_lane();
    uint64_t v = (uint64_t)w->in[t];
    for (unsigned by = w->n == 64 ? 32 : 16; by > 0; by /= 2)
        v += usc_grid_meet(USC_GRID_TAKE, w->n == 64 ? ~0ull : 0xffffffffull, v,
                           lane ^ by, "k:1");
    const uint64_t odd = usc_grid_meet(USC_GRID_BALLOT, 0, t % 2, 0, "k:2");
    const uint64_t same = usc_grid_meet(USC_GRID_MATCH, 0, t / 4, 0, "k:3");
    w->out[t] = (float)(v + (odd & 0xff) + (same >> lane / 4 * 4 == 15));
}

/* The lower half alone meets, then all: lanes of two masks at a time. */
static void halves(void *ctx)
{
    const work *w = ctx;
    const unsigned t = usc_grid_now.thread.x;
    uint64_t n = usc_grid_meet(USC_GRID_ADD, t < 16 ? 0xffff : 0xffff0000, t, 0, "k:1");
    n += 1000 * usc_grid_meet(USC_GRID_UMAX, 0xffffffff, t, 0, "k:2");
    w->out[t] = (float)n;
}

static void two_barriers(void *ctx)
{
    (void)ctx;
    (void)usc_grid_barrier(USC_GRID_COUNT, 0,
                           usc_grid_now.thread.x < 5 ? "k.cu:7" : "k.cu:9");
}

static void wait_for_each_other(void *ctx)
{
    (void)ctx;
    if (usc_grid_now.thread.x < 5)
        (void)usc_grid_meet(USC_GRID_SYNC, 0xffffffff, 0, 0, "k.cu:7");
    else
        (void)usc_grid_barrier(USC_GRID_COUNT, 0, "k.cu:9");
}

static void asserts(void *ctx)
{
    (void)ctx;
    if (usc_grid_now.thread.x == 3 && usc_grid_now.block.y == 1)
        usc_grid_fail("%d is too much", 7);
}

WRONG static void divides(void *ctx)
{
    volatile int zero = 0;
    const work *w = ctx;
    w->out[0] = (float)(7 / zero);
}

static void recurses(void *ctx)
{
    volatile char room[4096];
    static volatile unsigned depth = 1 << 20;
    room[0] = room[4095] = 1;
    if (--depth > 0) recurses(ctx);
    room[1] = 2;
}

static void races(void *ctx)
{
    const work *w = ctx;
    const unsigned t = usc_grid_now.thread.x;
    usc_grid_access(&shared()[t], 4, true, false, NULL);
    if (w->n == 1) (void)usc_grid_barrier(USC_GRID_COUNT, 0, "k:1");
    if (w->n == 2) (void)usc_grid_meet(USC_GRID_SYNC, 0xffffffff, 0, 0, "k:1");
    usc_grid_access(&shared()[t ^ 1], 4, false, false, NULL);
}

static void races_of_warps(void *ctx)
{
    const unsigned t = usc_grid_now.thread.x;
    (void)ctx;
    usc_grid_access(&shared()[t], 4, true, false, NULL);
    (void)usc_grid_meet(USC_GRID_SYNC, 0xffffffff, 0, 0, "k:1");
    usc_grid_access(&shared()[t ^ 32], 4, false, false, NULL);
}

static void atomics(void *ctx)
{
    (void)ctx;
    usc_grid_access(shared(), 4, true, true, NULL);
}

static void order(void *ctx)
{
    const work *w = ctx;
    static int n;
    if (usc_grid_now.thread.x == 0 && usc_grid_now.block.x == 0 && w->n == 0) n = 0;
    w->out[n++ % 256] = (float)global_x();
}

/* ---- running them */

static by_hand launch(void (*kernel)(void *), void *ctx, unsigned blocks,
                      unsigned threads)
{
    return (by_hand){.kernel = kernel,
                     .ctx = ctx,
                     .launch = {.name = "k",
                                .place = "k.cu:1",
                                .grid = {blocks, 1, 1},
                                .block = {threads, 1, 1},
                                .warp_size = 32}};
}

static const char *failure_of(by_hand *h)
{
    static usc_error err;
    err = (usc_error){0};
    return run_by_hand(h, &err) == USC_OK ? "" : err.text;
}

static void test_threads_that_never_wait(void **state)
{
    (void)state;
    float in[1000], out[1000] = {0};
    for (int i = 0; i < 1000; i++)
        in[i] = (float)i;
    work w = {in, out, 1000};
    by_hand h = launch(doubles, &w, 8, 128);
    assert_string_equal(failure_of(&h), "");
    for (int i = 0; i < 1000; i++)
        assert_true(out[i] == 2 * in[i]);
}

static void test_barriers(void **state)
{
    (void)state;
    float in[512], out[256] = {0};
    for (int i = 0; i < 512; i++)
        in[i] = (float)i;
    work w = {in, out, 512};
    by_hand h = launch(sums_block, &w, 2, 256);
    h.launch.shared_size = 256 * sizeof(float);
    assert_string_equal(failure_of(&h), "");
    assert_true(out[0] == 255 * 128 && out[1] == 255 * 128 + 256 * 256);
    w.n = 200; /* the others end at once, which no barrier minds */
    h = launch(counts, &w, 1, 256);
    assert_string_equal(failure_of(&h), "");
    assert_true(out[0] == 100 * 100 + 10 && out[199] == out[0]);
}

static void test_rows_of_three_dimensions(void **state)
{
    (void)state;
    float in[1] = {0}, out[1] = {0};
    work w = {in, out, 1};
    by_hand h = launch(asserts, &w, 2, 4);
    h.launch.grid.y = 2;
    h.launch.block = (usc_grid_dim){4, 3, 2};
    assert_string_equal(failure_of(&h),
                        "kernel k, block (0,1,0), thread (3,0,0): 7 is too much");
}

static void test_warps(void **state)
{
    (void)state;
    float in[128], out[128] = {0};
    for (int i = 0; i < 128; i++)
        in[i] = 1;
    work w = {in, out, 32};
    by_hand h = launch(sums_warp, &w, 1, 128);
    assert_string_equal(failure_of(&h), "");
    assert_true(out[0] == 32 + 0xaa + 1 && out[127] == out[0]);
    w.n = 64;
    h.launch.warp_size = 64;
    assert_string_equal(failure_of(&h), "");
    assert_true(out[0] == 64 + 0xaa + 1 && out[127] == out[0]);
    h = launch(halves, &w, 1, 32);
    assert_string_equal(failure_of(&h), "");
    assert_true(out[0] == 120 + 31000 && out[31] == 376 + 31000);
}

static void test_threads_that_cannot_go_on(void **state)
{
    (void)state;
    by_hand h = launch(two_barriers, NULL, 1, 32);
    assert_string_equal(failure_of(&h),
                        "kernel k, block (0,0,0): threads meet at different barriers: 5 "
                        "at the barrier in k.cu:7, 27 at the barrier in k.cu:9; 0 of 32 "
                        "threads have ended");
    h = launch(wait_for_each_other, NULL, 3, 32);
    assert_string_equal(failure_of(&h),
                        "kernel k, block (0,0,0): threads wait for each other and none "
                        "can go on: 5 at k.cu:7, 27 at the barrier in k.cu:9; 0 of 32 "
                        "threads have ended");
    float in[512] = {0}, out[2];
    work w = {in, out, 512};
    h = launch(sums_block, &w, 2, 256); /* and the next kernel is none the worse */
    h.launch.shared_size = 1024;
    assert_string_equal(failure_of(&h), "");
}

static void test_limits(void **state)
{
    (void)state;
    by_hand h = launch(asserts, NULL, 1, 4096);
    assert_non_null(strstr(failure_of(&h), "a block of (4096,1,1) threads"));
    h = launch(asserts, NULL, 1, 0);
    assert_non_null(strstr(failure_of(&h), "a block of (0,1,1) threads"));
    h = launch(asserts, NULL, 0, 1);
    assert_non_null(strstr(failure_of(&h), "a grid of (0,1,1) blocks"));
    h = launch(two_barriers, NULL, 1, 1);
    h.launch.shared_size = 50000;
    assert_non_null(strstr(failure_of(&h), "kernel k, launched at k.cu:1: 50000 bytes of "
                                           "dynamic shared memory; it may have 49152"));
    usc_error err;
    assert_int_equal(usc_grid_allow_shared("k", 50000, &err), USC_OK);
    assert_string_equal(failure_of(&h), "");
    assert_int_equal(usc_grid_allow_shared("k", 1 << 20, &err), USC_E_RANGE);
    assert_int_equal(usc_grid_allow_shared("k", 0, &err), USC_OK);
    assert_non_null(strstr(failure_of(&h), "it may have 49152"));
    assert_int_equal(usc_sim_profile_set("full:shared=16K", &err), USC_OK);
    h.launch.shared_size = 20000;
    assert_non_null(strstr(failure_of(&h), "it may have 16384"));
    assert_int_equal(usc_grid_allow_shared("k", 20000, &err), USC_E_RANGE);
    assert_non_null(strstr(err.text, "kernel k asks for 20000 bytes of shared memory; a "
                                     "block has 16384 at most"));
    assert_int_equal(usc_sim_profile_set("full", &err), USC_OK);
    assert_string_equal(failure_of(&h), "");
}

static void test_memory(void **state)
{
    (void)state;
    usc_error err;
    void *in, *out;
    float host[4];
    assert_int_equal(usc_sim_malloc(0, 400, &in, &err), USC_OK);
    assert_int_equal(usc_sim_malloc(0, 400, &out, &err), USC_OK);
    work w = {in, out, 100};
    usc_grid_argument arguments[] = {{in, 1, false, false}, {out, 2, true, false}};
    by_hand h = launch(doubles, &w, 1, 100);
    h.launch.arguments = arguments;
    h.launch.n_arguments = 2;
    assert_string_equal(failure_of(&h), "");
    h = launch(doubles_beyond, &w, 2, 64);
    h.launch.arguments = arguments;
    h.launch.n_arguments = 2;
    assert_non_null(
        strstr(failure_of(&h), "kernel k, block (0,0,0), thread (0,0,0): reads") == NULL
            ? "a write is told"
            : NULL);
    assert_non_null(strstr(failure_of(&h), "kernel k, block (1,0,0), thread (48,0,0): "
                                           "writes 48 bytes behind the end of argument "
                                           "2, a block of 400 bytes"));
    h = launch(doubles_beyond, &w, 1, 101); /* within the page: seen when it has ended */
    h.launch.arguments = arguments;
    h.launch.n_arguments = 2;
    assert_string_equal(failure_of(&h),
                        "kernel k, launched at k.cu:1: writes 0 bytes behind the end of "
                        "argument 2, a block of 400 bytes");
    arguments[1].write = false;
    h = launch(doubles, &w, 1, 100);
    h.launch.arguments = arguments;
    h.launch.n_arguments = 2;
    assert_non_null(
        strstr(failure_of(&h), "writes byte 0 of argument 2, which is const"));
    arguments[1].address = host;
    assert_string_equal(failure_of(&h),
                        "kernel k, launched at k.cu:1: argument 2 points "
                        "to the host's memory; is that tensor on the CPU?");
    usc_sim_free(in);
    usc_sim_free(out);
}

static void test_signals(void **state)
{
    (void)state;
    float out[1];
    work w = {NULL, out, 1};
    by_hand h = launch(doubles, &w, 1, 4);
    assert_non_null(
        strstr(failure_of(&h), "thread (0,0,0): reads through a null pointer"));
    h = launch(divides, &w, 1, 4);
    out[0] = 1;
#if defined(__aarch64__) /* whose quotient is 0 then: nothing stops */
    assert_string_equal(failure_of(&h), "");
    assert_true(out[0] == 0);
#else
    assert_non_null(strstr(failure_of(&h), "divides an integer by zero"));
    assert_true(out[0] == 1);
#endif
    h = launch(recurses, &w, 1, 4);
    assert_non_null(strstr(failure_of(&h), "writes below its stack"));
}

static void test_races(void **state)
{
    (void)state;
    work w = {NULL, NULL, 0};
    by_hand h = launch(races, &w, 1, 64);
    h.launch.shared_size = 64 * sizeof(float);
    assert_non_null(strstr(failure_of(&h), "a race in shared memory"));
    for (w.n = 1; w.n <= 2; w.n++)
        assert_string_equal(failure_of(&h), "");
    h = launch(races_of_warps, &w, 1, 64);
    h.launch.shared_size = 64 * sizeof(float);
    assert_non_null(strstr(failure_of(&h), "it reads what thread (32,0,0) writes, and"));
    h = launch(atomics, &w, 1, 64);
    h.launch.shared_size = 64 * sizeof(float);
    assert_string_equal(failure_of(&h), "");
}

static void test_a_seed_orders_warps_and_blocks(void **state)
{
    (void)state;
    float out[3][256];
    for (int i = 0; i < 3; i++) {
        const usc_sim_schedule_options seed = {.seed = i < 2 ? 1 : 2};
        work w = {NULL, out[i], 0};
        by_hand h = launch(order, &w, 4, 64);
        usc_sim_schedule(&seed);
        (void)failure_of(&h);
        w.n = 1;
        assert_string_equal(failure_of(&h), "");
        usc_sim_schedule(NULL);
        bool seen[256] = {false};
        for (int k = 0; k < 256; k++)
            seen[(int)out[i][k]] = true;
        for (int k = 0; k < 256; k++)
            assert_true(seen[k]);
    }
    assert_memory_not_equal(out[0], out[2], sizeof out[0]);
}

int main(void)
{
    usc_sim_set_launch_blocking(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_that_never_wait),
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_rows_of_three_dimensions),
        cmocka_unit_test(test_warps),
        cmocka_unit_test(test_threads_that_cannot_go_on),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_races),
        cmocka_unit_test(test_a_seed_orders_warps_and_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
