// SPDX-License-Identifier: Apache-2.0
// The ring between a program and the writer of its trace: when what was read is to be made
// durable.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "capture/ring.h"

enum { N_MESSAGES = 2000 };

static void nap(int64_t ns)
{
    const struct timespec t = {.tv_nsec = ns};
    nanosleep(&t, NULL);
}

static void fill(usc_ring *r, int n)
{
    for (int i = 0; i < n; i++) {
        assert_non_null(usc_ring_start(r, 1, 8));
        usc_ring_send(r, 0);
    }
}

/* Reads what is there; the commits that it asked for. */
static int64_t read_all(usc_ring *r)
{
    int64_t commits = 0;
    bool closed;
    for (usc_ring_message *m; (m = usc_ring_next(r, 0, &closed)) != NULL;) {
        usc_ring_done(r, m);
        if (!usc_ring_due(r)) continue;
        usc_ring_durable(r);
        commits++;
    }
    return commits;
}

static void test_a_reader_that_lags_commits_by_time_and_not_by_message(void **state)
{
    (void)state;
    const int64_t limit_ns = 20 * 1000000;
    const usc_ring_options options = {.alloc = &usc_libc_alloc,
                                      .size = 1 << 20,
                                      .limit_bytes = 1 << 30,
                                      .limit_ns = limit_ns};
    usc_ring r;
    assert_int_equal(usc_ring_make(&r, &options, NULL), USC_OK);
    fill(&r, N_MESSAGES);
    nap(limit_ns);
    const int64_t start = usc_clock_ns(), commits = read_all(&r);
    const int64_t quarters = (usc_clock_ns() - start) / (limit_ns / 4);
    assert_true(commits >= 1); /* the last message finds the ring empty, and is old */
    assert_true(commits <= quarters + 2);
    assert_int_equal(atomic_load(&r.durable), atomic_load(&r.sent));
    usc_ring_free(&r);
}

static void test_what_is_much_is_due_however_new(void **state)
{
    (void)state;
    const usc_ring_options options = {.alloc = &usc_libc_alloc,
                                      .size = 1 << 20,
                                      .limit_bytes = 160,
                                      .limit_ns = (int64_t)3600 * 1000000000};
    usc_ring r;
    assert_int_equal(usc_ring_make(&r, &options, NULL), USC_OK);
    fill(&r, 20); /* 160 bytes */
    assert_int_equal(read_all(&r), 2);
    usc_ring_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reader_that_lags_commits_by_time_and_not_by_message),
        cmocka_unit_test(test_what_is_much_is_due_however_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
