// SPDX-License-Identifier: Apache-2.0
// The last calls of a session: kept with their data up to a bound, written as a trace
// where they are asked for.
#include "capture_host.h"

#include <stddef.h>

enum { N = 16, BYTES = N * 4 };

static int n_without_range; /* the writer's, until it is flushed */

static usc_status pass(void *ctx, const usc_call *call, usc_error *err)
{
    (void)ctx;
    (void)err;
    for (int i = 0; i < call->n_args; i++)
        n_without_range += call->arg[i].range == NULL;
    return USC_OK;
}

static bool found(void *ctx)
{
    return *(const bool *)ctx;
}

static void open_kept(host *h, bool *found_now, int64_t calls, int64_t bytes)
{
    const usc_capture_watch watch = {.ctx = found_now, .call = pass, .found = found};
    usc_error err = {0};
    host_prepare(h);
    h->options.watch = &watch;
    h->options.keep_calls = calls;
    h->options.keep_bytes = bytes;
    h->options.keep_path = h->path;
    if (usc_capture_open(NULL, &h->hooks, &h->options, &h->c, &err) != USC_OK)
        fail_msg("%s", err.text);
    h->op = usc_capture_op(h->c, "test::op", "test::op(Tensor a) -> Tensor");
    usc_capture_step_begin(h->c, 0);
}

/* A call that reads `s` after its content changed; without results. */
static void change_and_read(host *h, host_storage *s, float *at, float value)
{
    *at = value;
    const usc_capture_tensor in = host_whole(h, s);
    usc_capture_end(h->c, host_begin(h, &in, 1), NULL, 0, true);
}

static usc_trace *open_written(host *h)
{
    usc_error err = {0};
    const char *path;
    usc_trace *t = NULL;
    usc_capture_step_end(h->c);
    assert_int_equal(usc_capture_flush(h->c, NULL), USC_OK);
    if (usc_capture_kept(h->c, &path, &err) != USC_OK) fail_msg("%s", err.text);
    assert_string_equal(path, h->path);
    assert_int_equal(usc_capture_close(h->c, true, NULL), USC_OK);
    if (usc_trace_open(h->path, NULL, &t, &err) != USC_OK) fail_msg("%s", err.text);
    return t;
}

static int64_t blob_of(usc_trace *t, int64_t sequence)
{
    usc_call call;
    assert_int_equal(usc_trace_read_call(t, sequence, &call, NULL), USC_OK);
    assert_int_equal(call.n_args, 1);
    return call.arg[0].blob;
}

static void test_the_last_calls_are_written_with_what_fits(void **state)
{
    (void)state;
    enum { TIMES = 500, KEPT = 4, FIT = 3 };
    host h;
    bool now = false;
    float a[N] = {0};
    host_storage s = host_memory(a, sizeof a);
    open_kept(&h, &now, KEPT, FIT * BYTES);
    for (int i = 1; i <= TIMES; i++)
        change_and_read(&h, &s, a, (float)i);
    usc_capture_keep(h.c);
    usc_capture_keep(h.c); /* once is enough */
    usc_trace *t = open_written(&h);
    const int64_t *calls;
    int64_t n, size;
    const void *data;
    assert_int_equal(usc_trace_select(t, NULL, &calls, &n, NULL), USC_OK);
    assert_int_equal(n, KEPT);
    assert_int_equal(calls[0], TIMES - KEPT + 1);
    assert_int_equal(blob_of(t, TIMES - KEPT + 1), 0); /* there was no room for it */
    for (int64_t call = TIMES - FIT + 1; call <= TIMES; call++) {
        assert_int_equal(usc_trace_blob(t, blob_of(t, call), &data, &size, NULL), USC_OK);
        assert_true(size == BYTES && *(const float *)data == (float)call);
    }
    host_stop(&h, t);
}

static void test_what_is_found_is_the_last_call(void **state)
{
    (void)state;
    host h;
    bool now = false;
    float a[N] = {0};
    host_storage s = host_memory(a, sizeof a);
    open_kept(&h, &now, 8, 1 << 20);
    change_and_read(&h, &s, a, 1);
    assert_int_equal(usc_capture_flush(h.c, NULL), USC_OK);
    now = true;
    change_and_read(&h, &s, a, 2);
    change_and_read(&h, &s, a, 3);
    usc_trace *t = open_written(&h);
    const int64_t *calls;
    int64_t n;
    assert_int_equal(usc_trace_select(t, NULL, &calls, &n, NULL), USC_OK);
    assert_int_equal(n, 2);
    host_stop(&h, t);
}

static int64_t n_copied(host *h)
{
    usc_capture_counts counts;
    assert_int_equal(usc_capture_flush(h->c, NULL), USC_OK);
    usc_capture_count(h->c, &counts);
    return counts.bytes_copied;
}

static void test_nothing_is_copied_once_they_are_written(void **state)
{
    (void)state;
    host h;
    bool now = false;
    float a[N] = {0};
    host_storage s = host_memory(a, sizeof a);
    usc_capture_counts counts;
    open_kept(&h, &now, 8, 1 << 20);
    change_and_read(&h, &s, a, 1);
    assert_int_equal(n_copied(&h), BYTES);
    now = true;
    change_and_read(&h, &s, a, 2);
    assert_int_equal(n_copied(&h), 2 * BYTES);
    change_and_read(&h, &s, a, 3);
    assert_int_equal(n_copied(&h), 2 * BYTES);
    usc_capture_count(h.c, &counts);
    assert_int_equal(counts.bytes_held, 0);
    assert_int_equal(counts.n_calls, 3);
    host_stop(&h, open_written(&h));
}

/* With views of what was taken before, which have no bytes of their own. */
static void test_what_is_watched_stays_the_same_behind_it(void **state)
{
    (void)state;
    host h;
    bool now = false;
    float a[N] = {0};
    host_storage s = host_memory(a, sizeof a);
    open_kept(&h, &now, 8, 1 << 20);
    change_and_read(&h, &s, a, 1);
    usc_capture_keep(h.c);
    n_without_range = 0;
    for (int i = 0; i < 20; i++) {
        change_and_read(&h, &s, a, (float)i);
        usc_capture_tensor in = host_whole(&h, &s);
        in.view.sizes[0] = N / 2 - i % 4;
        usc_capture_end(h.c, host_begin(&h, &in, 1), NULL, 0, true);
    }
    assert_int_equal(usc_capture_flush(h.c, NULL), USC_OK);
    assert_int_equal(n_without_range, 0);
    host_stop(&h, open_written(&h));
}

static void test_nothing_is_written_unasked(void **state)
{
    (void)state;
    host h;
    bool now = false;
    float a[N] = {0};
    host_storage s = host_memory(a, sizeof a);
    open_kept(&h, &now, 8, 1 << 20);
    change_and_read(&h, &s, a, 1);
    assert_int_equal(usc_capture_close(h.c, true, NULL), USC_OK);
    assert_int_equal(access(h.path, F_OK), -1);
    host_stop(&h, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_calls_are_written_with_what_fits),
        cmocka_unit_test(test_what_is_found_is_the_last_call),
        cmocka_unit_test(test_nothing_is_copied_once_they_are_written),
        cmocka_unit_test(test_what_is_watched_stays_the_same_behind_it),
        cmocka_unit_test(test_nothing_is_written_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
