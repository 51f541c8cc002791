// SPDX-License-Identifier: Apache-2.0
// What a violation of device memory says before the process dies of it, and what is
// watched in each guard of ulpscope_sim/memory.h.
#include "sim_allocs.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char said[2048];
static struct sigaction watching[2]; /* cmocka has a handler of its own in each test */

/* Whether a child process that does this dies of SIGSEGV; what it says is in said[]. */
static bool dies(void (*act)(char *), char *at)
{
    int ends[2], status = 0;
    size_t n = 0;
    ssize_t got;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        sigaction(SIGSEGV, &watching[0], NULL);
        sigaction(SIGBUS, &watching[1], NULL);
        act(at);
        _exit(0);
    }
    close(ends[1]);
    while ((got = read(ends[0], said + n, sizeof said - 1 - n)) > 0)
        n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* theirs comes next */
    return status != 0;
#else
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
#endif
}

static void read_it(char *at)
{
    (void)*(volatile char *)at;
}

static void write_it(char *at)
{
    *(volatile char *)at = 1;
}

static void write_as_kernel(char *at)
{
    usc_sim_set_label("aten::bad_, launched at train.py:3");
    if (usc_sim_open(at, USC_SIM_READ, NULL) == USC_OK) write_it(at);
}

static const int64_t shape[] = {2, 3}, strides[] = {4, 1};

static bool argument_of(const void *ctx, size_t i, usc_sim_argument *out)
{
    *out = (usc_sim_argument){"self", "float32", ctx, 4, 2, shape, strides};
    return i == 0;
}

static void place_of(const void *ctx, char *out, size_t size)
{
    (void)ctx;
    (void)snprintf(out, size, "train.py:3");
}

static usc_sim_launch launch = {0, argument_of, place_of, NULL};

static void launch_on(const char *data, char *at)
{
    launch.ctx = data;
    usc_sim_set_label("aten::bad_");
    (void)usc_sim_set_launch(&launch);
    if (usc_sim_open(data, USC_SIM_READ, NULL) == USC_OK) write_it(at);
}

static char *block_100;

static void write_argument(char *at)
{
    launch_on(block_100 + 16, at);
}

static void *write_in_thread(void *at)
{
    write_it(at);
    return NULL;
}

static void write_by_helper(char *at)
{
    pthread_t helper;
    launch.ctx = block_100 + 16;
    usc_sim_set_label("aten::bad_");
    (void)usc_sim_set_launch(&launch);
    if (usc_sim_open(block_100, USC_SIM_READ, NULL) != USC_OK) return;
    if (pthread_create(&helper, NULL, write_in_thread, at) == 0)
        pthread_join(helper, NULL);
}

static void write_after_it(char *at)
{
    launch.ctx = block_100;
    const usc_sim_launch *before = usc_sim_set_launch(&launch);
    if (usc_sim_open(block_100, USC_SIM_READ, NULL) != USC_OK) return;
    usc_sim_close(block_100, USC_SIM_READ);
    (void)usc_sim_set_launch(before);
    write_it(at);
}

static void write_other_device(char *at)
{
    launch.device = 1;
    launch_on(block_100, at);
}

static void overrun(char *at)
{
    usc_sim_set_label("aten::long_");
    if (usc_sim_open(at, USC_SIM_WRITE, NULL) != USC_OK) return;
    at[100] = 1; /* of 100 bytes: in the same page, and within the alignment */
    usc_sim_close(at, USC_SIM_WRITE);
}

static void write_all(char *at)
{
    if (usc_sim_open(at, USC_SIM_WRITE, NULL) != USC_OK) return;
    memset(at, 1, 100);
    usc_sim_close(at, USC_SIM_WRITE);
}

static void underrun(char *at)
{
    if (usc_sim_open(at, USC_SIM_WRITE, NULL) != USC_OK) return;
    at[-1] = 1;
    usc_sim_close(at, USC_SIM_WRITE);
}

static void test_a_violation_tells_who_and_where(void **state)
{
    (void)state;
    usc_sim_set_label("aten::empty");
    char *p = take(A, 100);
    usc_sim_set_label(NULL);
    assert_true(dies(read_it, p + 8));
    assert_non_null(strstr(said, "ulpscope: sim:0: the host "));
    assert_non_null(
        strstr(said, "byte 8 of a block of 100 bytes, allocated by aten::empty\n"));
    assert_true(dies(write_as_kernel, p));
    assert_non_null(strstr(said, "aten::bad_, launched at train.py:3 "));
    assert_true(dies(read_it, p + 128));
    assert_non_null(strstr(said, "28 bytes behind a block of 100 bytes"));
    usc_sim_free(p);
    assert_true(dies(read_it, p));
    assert_non_null(strstr(said, "allocated by aten::empty, freed by the host"));
}

/* Argument, shape, strides, offset, element and the line of the launch. */
static void test_a_violation_tells_which_argument(void **state)
{
    (void)state;
    char *p = take(A, 100), *q = take(A, 100);
    block_100 = p;
    const char *of = "aten::bad_, launched at train.py:3, writes to argument 'self' "
                     "(float32, shape [2, 3], strides [4, 1], offset 4) at ";
    assert_true(dies(write_argument, p + 16 + 4 * 6));
    assert_non_null(strstr(said, of));
    assert_non_null(strstr(said, "at element [1, 2], 0x"));
    assert_non_null(strstr(said, " (open for reading only), byte 40 of a block of 100 "
                                 "bytes, allocated by the host"));
    assert_true(dies(write_argument, p + 16 + 4 * 3));
    assert_non_null(
        strstr(said, "at 12 bytes from its first element, which is none of its"));
    assert_true(dies(write_by_helper, p + 17));
    assert_non_null(strstr(said, of));
    assert_non_null(strstr(said, "at element [0, 0], 0x"));
    assert_true(dies(write_argument, q));
    assert_non_null(strstr(said, "writes to what is none of its arguments, 0x"));
    assert_true(dies(write_after_it, p));
    assert_non_null(strstr(said, "the host writes to 0x"));
    assert_true(dies(write_other_device, p));
    assert_non_null(strstr(said, "memory of sim:0, itself on sim:1, "));
    usc_sim_free(p);
    usc_sim_free(q);
}

static void test_bytes_around_a_block_are_watched(void **state)
{
    (void)state;
    char *p = take(A, 100);
    assert_true(dies(overrun, p));
    assert_non_null(strstr(said, "aten::long_ wrote to "));
    assert_non_null(strstr(said, "0 bytes behind a block of 100 bytes"));
    assert_true(dies(underrun, p));
    assert_non_null(strstr(said, "1 bytes before a block of 100 bytes"));
    assert_false(dies(write_all, p));
    usc_sim_free(p);
}

static void test_shared_pages_are_closed_when_nobody_has_them_open(void **state)
{
    (void)state;
    usc_sim_set_guard(USC_SIM_GUARD_PAGES);
    char *p = take(A, 100), *q = take(A, 100);
    assert_int_equal((uintptr_t)p / 4096, (uintptr_t)q / 4096);
    assert_true(dies(read_it, p));
    ok(usc_sim_open(p, USC_SIM_READ, NULL));
    assert_false(dies(read_it, q));  /* of the same page, */
    assert_false(dies(write_it, p)); /* which opens for all that a kernel may do */
    ok(usc_sim_open(q, USC_SIM_WRITE, NULL));
    usc_sim_close(q, USC_SIM_WRITE);
    assert_false(dies(write_it, p));
    usc_sim_close(p, USC_SIM_READ);
    assert_true(dies(read_it, p));
    usc_sim_set_guard(USC_SIM_GUARD_OPEN);
    assert_false(dies(write_it, p));
    usc_sim_set_guard(USC_SIM_GUARD_PAGES);
    assert_true(dies(read_it, p));
    usc_sim_free(p);
    usc_sim_free(q);
}

static void test_poison_is_what_nobody_has_written(void **state)
{
    (void)state;
    for (int g = 0; g < N_GUARDS; g++) {
        usc_sim_set_guard(guards[g]);
        usc_sim_set_poison(true);
        float *p = (float *)(void *)take(A, 4 * sizeof *p);
        ok(usc_sim_open(p, USC_SIM_READ, NULL));
        assert_true(p[0] != p[0] && p[3] != p[3]);
        usc_sim_close(p, USC_SIM_READ);
        ok(usc_sim_open(p, USC_SIM_WRITE, NULL));
        p[0] = 2;
        usc_sim_close(p, USC_SIM_WRITE);
        ok(usc_sim_open(p, USC_SIM_READ, NULL));
        assert_true(p[0] == 2);
        usc_sim_close(p, USC_SIM_READ);
        usc_sim_free(p);
        usc_sim_set_poison(false);
    }
}

/* A handler that was there before the device first had memory. */
static void leave(int number)
{
    (void)number;
    _exit(0);
}

static void send_bus(char *at)
{
    (void)at;
    raise(SIGBUS);
    raise(SIGSEGV); /* never reached */
}

static void test_a_fault_of_other_code_goes_where_it_went(void **state)
{
    (void)state;
    assert_true(dies(write_it, (char *)(uintptr_t)16));
    assert_null(strstr(said, "ulpscope"));
    assert_false(dies(send_bus, NULL)); /* leave() has it */
    assert_string_equal(said, "");
}

int main(void)
{
    signal(SIGBUS, leave);
    usc_sim_free(take(A, 1)); /* from here on faults are watched */
    sigaction(SIGSEGV, NULL, &watching[0]);
    sigaction(SIGBUS, NULL, &watching[1]);
    const struct CMUnitTest tests[] = {
        IT(test_a_violation_tells_who_and_where),
        IT(test_a_violation_tells_which_argument),
        IT(test_bytes_around_a_block_are_watched),
        IT(test_shared_pages_are_closed_when_nobody_has_them_open),
        IT(test_poison_is_what_nobody_has_written),
        IT(test_a_fault_of_other_code_goes_where_it_went),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
