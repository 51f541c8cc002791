// SPDX-License-Identifier: Apache-2.0
// A capture whose process is killed: it loses the last bytes, and keeps what is old.
#include "capture_host.h"

#include "alloc_probe.h"
#include "capture/ring.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- a killed process ---- */

enum { n_kills = 20, kill_elements = 16384, idle_calls = 10, idle_ms = 1000 };
#define KILL_RING ((int64_t)1 << 20)
#define KILL_COMMIT ((int64_t)256 << 10)
/* Whatever the scheduler does, no more than the ring, what the writer may hold back and
 * the call at hand can be lost. */
#define KILL_WINDOW (KILL_RING + KILL_COMMIT + 3 * kill_elements * 4)

/* What the child says about each call that it handed over. */
typedef struct report {
    int64_t sequence, bytes;
} report;

/* Hands over `n_calls` calls, then waits for its end. */
static void run_until_killed(host *h, int to, int n_calls)
{
    static float a[kill_elements];
    host_storage s = host_memory(a, sizeof a);
    int64_t bytes = 0;
    host_open(h);
    for (int i = 0; i < n_calls; i++) {
        const usc_capture_tensor in = host_whole(h, &s);
        const usc_capture_tensor after = host_role(in, USC_ROLE_MUTATED);
        const int64_t sequence = host_begin(h, &in, 1);
        for (int k = 0; k < kill_elements; k++)
            a[k] = (float)(i % 100 + k);
        usc_capture_end(h->c, sequence, &after, 1, true);
        bytes += (int64_t)sizeof a;
        const report r = {.sequence = sequence, .bytes = bytes};
        if (write(to, &r, sizeof r) != (ssize_t)sizeof r) _exit(3);
    }
    for (;;)
        pause();
}

static bool next_report(int from, report *out)
{
    return read(from, out, sizeof *out) == (ssize_t)sizeof *out;
}

/* Starts a child that makes `n_calls`, kills it after `n_wait` reports and `wait_ms`
 * more; returns the bytes that it reported in all. */
static int64_t kill_child(host *h, int n_calls, int n_wait, int wait_ms)
{
    int ends[2];
    report last = {0};
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        run_until_killed(h, ends[1], n_calls);
    }
    close(ends[1]);
    for (int i = 0; i < n_wait; i++)
        assert_true(next_report(ends[0], &last));
    struct pollfd silent = {.fd = ends[0]}; /* no events asked for: only the time */
    if (wait_ms > 0) assert_int_equal(poll(&silent, 1, wait_ms), 0);
    kill(pid, SIGKILL);
    while (next_report(ends[0], &last))
        continue;
    close(ends[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return last.bytes;
}

static void check_killed_call(usc_trace *t, int64_t sequence)
{
    static float expect[kill_elements];
    usc_call call;
    usc_error err = {0};
    if (usc_trace_read_call(t, sequence, &call, &err) != USC_OK) fail_msg("%s", err.text);
    assert_string_equal(call.status, "ok");
    assert_int_equal(call.n_args, 2);
    const usc_call_arg out = call.arg[1];
    for (int k = 0; k < kill_elements; k++)
        expect[k] = (float)((sequence - 1) % 100 + k);
    host_assert_bytes(t, &out, expect, sizeof expect);
}

static usc_trace *open_killed(const host *h)
{
    usc_trace *t = NULL;
    usc_error err = {0};
    if (usc_trace_open(h->path, NULL, &t, &err) != USC_OK) fail_msg("%s", err.text);
    assert_string_equal(usc_trace_meta(t, "complete"), "0");
    return t;
}

/* Returns how many calls had to be there. */
static int64_t kill_case(int n_wait)
{
    const int64_t call_size = kill_elements * 4;
    host h;
    host_prepare(&h);
    h.options.ring_size = KILL_RING;
    h.options.trace.commit_bytes = KILL_COMMIT;
    const int64_t bytes = kill_child(&h, 1000000, n_wait, 0);
    const int64_t n = (bytes - KILL_WINDOW) / call_size;
    usc_trace *t = open_killed(&h);
    for (int64_t i = 1; i <= n; i++)
        if (i % 16 == 0 || i + 40 > n) check_killed_call(t, i);
    host_stop(&h, t);
    return n > 0 ? n : 0;
}

static void test_a_killed_run_loses_the_last_bytes_only(void **state)
{
    (void)state;
    const unsigned seed = (unsigned)usc_clock_ns();
    printf("seed %u\n", seed);
    srand(seed);
    int64_t n_there = 0;
    for (int i = 0; i < n_kills; i++)
        n_there += kill_case(1 + rand() % 1000);
    assert_true(n_there > 0);
}

/* Nothing follows that could push them out: time alone makes these calls durable. */
static void test_a_killed_run_keeps_what_is_old(void **state)
{
    (void)state;
    host h;
    host_prepare(&h);
    kill_child(&h, idle_calls, idle_calls, idle_ms);
    usc_trace *t = open_killed(&h);
    for (int64_t i = 1; i <= idle_calls; i++)
        check_killed_call(t, i);
    host_stop(&h, t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_run_loses_the_last_bytes_only),
        cmocka_unit_test(test_a_killed_run_keeps_what_is_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
