// SPDX-License-Identifier: Apache-2.0
// A capture session under pressure: several threads, a ring smaller than a storage, calls
// that raise or end late, reads and allocations that fail.
#include "capture_host.h"

#include "alloc_probe.h"
#include "capture/ring.h"

#include <pthread.h>

#define N 16

static void test_a_raised_call_says_so(void **state)
{
    (void)state;
    host h;
    float a[N] = {0};
    host_storage s = host_memory(a, sizeof a);
    host_start(&h);
    const usc_capture_tensor in = host_whole(&h, &s);
    const int64_t raised = host_begin(&h, &in, 1), open = host_begin(&h, &in, 1);
    usc_capture_end(h.c, raised, NULL, 0, false);
    usc_trace *t = host_finish(&h);
    usc_call call;
    assert_int_equal(usc_trace_read_call(t, raised, &call, NULL), USC_OK);
    assert_string_equal(call.status, "raised");
    assert_int_equal(usc_trace_read_call(t, open, &call, NULL), USC_OK);
    assert_string_equal(call.status, "unfinished");
    host_stop(&h, t);
}

static void test_steps_have_rows(void **state)
{
    (void)state;
    host h;
    float a[N] = {0};
    char text[64];
    host_storage s = host_memory(a, sizeof a);
    host_start(&h);
    host_use(&h, host_whole(&h, &s));
    host_use(&h, host_whole(&h, &s));
    usc_capture_step_end(h.c);
    assert_int_equal(host_use(&h, host_whole(&h, &s)), 0); /* between steps: not taken */
    usc_capture_step_begin(h.c, 1);
    usc_capture_step_begin(h.c, 2);
    host_use(&h, host_whole(&h, &s));
    assert_int_equal(usc_capture_close(h.c, true, NULL), USC_OK);
    host_query(&h,
               "SELECT group_concat(step || ':' || ifnull(first_call, '') || '-' || "
               "ifnull(last_call, '') || ':' || complete) FROM step",
               text, sizeof text);
    assert_string_equal(text, "0:1-2:1,1:-:1,2:3-3:0");
    host_stop(&h, NULL);
}

static void test_names_and_remarks(void **state)
{
    (void)state;
    host h;
    char text[64];
    host_start(&h);
    assert_int_equal(usc_capture_op(h.c, "test::op", ""), h.op);
    assert_int_not_equal(usc_capture_op(h.c, "test::other", ""), h.op);
    const int64_t module = usc_capture_module(h.c, "layers.0", "Linear");
    assert_int_equal(usc_capture_module(h.c, "layers.0", "Linear"), module);
    assert_int_not_equal(usc_capture_module(h.c, "layers.0", "Other"), module);
    assert_int_equal(usc_capture_stack(h.c, 77), 0);
    const int64_t stack = usc_capture_stack_add(h.c, 77, "[[\"a.py\", 3, \"f\"]]");
    assert_int_equal(usc_capture_stack(h.c, 77), stack);
    assert_int_equal(usc_capture_stack_add(h.c, 77, "[]"), stack);
    usc_capture_meta(h.c, "torch", "2");
    usc_capture_note(h.c, 0, "remark", "hello");
    usc_trace *t = host_finish(&h);
    assert_string_equal(usc_trace_meta(t, "torch"), "2");
    usc_trace_close(t);
    host_query(&h, "SELECT kind || ' ' || text FROM note", text, sizeof text);
    assert_string_equal(text, "remark hello");
    host_stop(&h, NULL);
}

/* ---- the ring ---- */

/* Storages around and above the ring's size, through memory or through hooks.read. */
static void ring_case(bool through_hook, bool stats_only)
{
    static const int64_t sizes[] = {4, 20000, 32704, 65536, 300000, 1 << 20};
    enum { n_sizes = sizeof sizes / sizeof sizes[0] };
    host h;
    host_storage s[n_sizes];
    host_prepare(&h);
    h.options.ring_size = 1; /* the smallest that there is */
    h.options.stats_only = stats_only;
    if (through_hook) h.hooks.read = host_read;
    host_open(&h);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < n_sizes; i++) {
            if (round == 0) s[i] = host_memory(malloc((size_t)sizes[i]), sizes[i]);
            memset(s[i].bytes, 16 * round + i, (size_t)sizes[i]);
            assert_int_not_equal(host_use(&h, host_whole(&h, &s[i])), 0);
        }
    usc_trace *t = host_finish(&h);
    for (int i = 0; i < 2 * n_sizes; i++) {
        const usc_call_arg arg = host_arg(t, i + 1, 0);
        const int k = i % n_sizes;
        assert_int_equal(arg.generation, i / n_sizes);
        memset(s[k].bytes, 16 * (i / n_sizes) + k, (size_t)sizes[k]);
        if (!stats_only) host_assert_bytes(t, &arg, s[k].bytes, sizes[k]);
        assert_non_null(arg.stats);
    }
    host_stop(&h, t);
    for (int i = 0; i < n_sizes; i++)
        free(s[i].bytes);
}

static void test_storages_larger_than_the_ring(void **state)
{
    (void)state;
    ring_case(false, false);
}

static void test_storages_that_only_a_hook_reads(void **state)
{
    (void)state;
    ring_case(true, false);
    ring_case(true, true);
}

static void test_large_messages_go_around_the_ring(void **state)
{
    (void)state;
    host h;
    char *text = malloc(200001);
    memset(text, 'x', 200000);
    text[200000] = '\0';
    host_prepare(&h);
    h.options.ring_size = 1;
    host_open(&h);
    usc_capture_meta(h.c, "large", text);
    usc_trace *t = host_finish(&h);
    assert_string_equal(usc_trace_meta(t, "large"), text);
    host_stop(&h, t);
    free(text);
}

static void test_flush_makes_it_durable(void **state)
{
    (void)state;
    host h;
    float a[N] = {0};
    host_storage s = host_memory(a, sizeof a);
    usc_error err = {0};
    host_start(&h);
    host_use(&h, host_whole(&h, &s));
    assert_int_equal(usc_capture_flush(h.c, &err), USC_OK);
    assert_int_equal(usc_capture_flush(h.c, &err), USC_OK); /* nothing to wait for */
    usc_capture_counts counts;
    usc_capture_count(h.c, &counts);
    assert_int_equal(counts.n_calls, 1);
    assert_int_equal(counts.n_blobs, 1);
    assert_int_equal(counts.bytes_written, sizeof a);
    host_stop(&h, host_finish(&h));
}

/* ---- threads ---- */

enum { n_threads = 4, calls_each = 150, thread_elements = 3000 };

typedef struct worker {
    pthread_t thread;
    host *h;
    int id;
    float *bytes;
    host_storage storage;
    int64_t sequence[calls_each];
} worker;

/* Writes its storage in place, call by call. */
static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < calls_each; i++) {
        const usc_capture_tensor in = host_whole(w->h, &w->storage);
        const usc_capture_tensor after = host_role(in, USC_ROLE_MUTATED);
        w->sequence[i] = host_begin(w->h, &in, 1);
        for (int k = 0; k < thread_elements; k++)
            w->bytes[k] = (float)(w->id * 1000 + i + 1);
        usc_capture_end(w->h->c, w->sequence[i], &after, 1, true);
    }
    return NULL;
}

static void check_worker(usc_trace *t, const worker *w)
{
    float *expect = malloc(thread_elements * sizeof *expect);
    for (int i = 0; i < calls_each; i++) {
        const usc_call_arg in = host_arg(t, w->sequence[i], 0),
                           out = host_arg(t, w->sequence[i], 1);
        assert_int_equal(in.generation, i);
        assert_int_equal(out.generation, i + 1);
        assert_int_equal(out.writer, w->sequence[i]);
        for (int k = 0; k < thread_elements; k++)
            expect[k] = (float)(w->id * 1000 + i + 1);
        host_assert_bytes(t, &out, expect, thread_elements * 4);
    }
    free(expect);
}

static void test_calls_of_several_threads(void **state)
{
    (void)state;
    host h;
    worker workers[n_threads];
    host_prepare(&h);
    h.options.ring_size = 1 << 18;
    host_open(&h);
    for (int i = 0; i < n_threads; i++) {
        worker *w = &workers[i];
        *w = (worker){.h = &h, .id = i};
        w->bytes = calloc(thread_elements, sizeof *w->bytes);
        w->storage = host_memory(w->bytes, thread_elements * 4);
        assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
    }
    for (int i = 0; i < n_threads; i++)
        pthread_join(workers[i].thread, NULL);
    usc_trace *t = host_finish(&h);
    for (int i = 0; i < n_threads; i++) {
        check_worker(t, &workers[i]);
        free(workers[i].bytes);
    }
    host_stop(&h, t);
}

typedef struct late_end {
    host *h;
    int64_t sequence;
    usc_capture_tensor after;
    float *value;
} late_end;

static void *end_late(void *arg)
{
    late_end *late = arg;
    *late->value = 5;
    usc_capture_end(late->h->c, late->sequence, &late->after, 1, true);
    return NULL;
}

/* An asynchronous collective: other calls begin and end before it is complete. */
static void test_an_end_comes_late_from_another_thread(void **state)
{
    (void)state;
    host h;
    float a[N] = {0}, b[N] = {1};
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    pthread_t thread;
    host_start(&h);
    const usc_capture_tensor in = host_whole(&h, &sa);
    late_end late = {.h = &h, .sequence = host_begin(&h, &in, 1), .value = a};
    late.after = host_role(in, USC_ROLE_MUTATED);
    const int64_t other = host_use(&h, host_whole(&h, &sb));
    usc_capture_step_end(h.c);
    assert_int_equal(pthread_create(&thread, NULL, end_late, &late), 0);
    pthread_join(thread, NULL);
    usc_trace *t = host_finish(&h);
    assert_true(other > late.sequence);
    const usc_call_arg after = host_arg(t, late.sequence, 1);
    assert_int_equal(after.generation, 1);
    host_assert_bytes(t, &after, a, sizeof a);
    host_stop(&h, t);
}

/* ---- failure ---- */

static void test_a_failed_read_leaves_that_tensor_out(void **state)
{
    (void)state;
    host h;
    float a[N] = {0}, b[N] = {1};
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    host_prepare(&h);
    h.hooks.read = host_read;
    h.fail_read_at = 2;
    host_open(&h);
    assert_int_equal(host_use(&h, host_whole(&h, &sa)), 1);
    assert_int_equal(host_use(&h, host_whole(&h, &sb)), 2);
    assert_int_equal(host_use(&h, host_whole(&h, &sb)), 3);
    assert_int_equal(host_use(&h, host_whole(&h, &sa)), 4);
    usc_trace *t = host_finish(&h);
    assert_string_equal(usc_trace_meta(t, "complete"), "1");
    const usc_call_arg first = host_arg(t, 1, 0), lost = host_arg(t, 2, 0),
                       again = host_arg(t, 3, 0), last = host_arg(t, 4, 0);
    host_assert_bytes(t, &first, a, sizeof a);
    assert_int_equal(lost.blob, 0);
    assert_int_equal(again.blob, 0);
    assert_int_equal(last.tensor, first.tensor);
    usc_trace_close(t);
    char text[200];
    host_query(&h, "SELECT group_concat(call || ' ' || kind || ': ' || text) FROM note",
               text, sizeof text);
    assert_string_equal(text, "2 unreadable: a tensor on cpu is left out: it cannot be "
                              "read: read 2: device lost");
    host_stop(&h, NULL);
}

static void test_a_folder_in_use_is_refused(void **state)
{
    (void)state;
    host h;
    usc_capture *second = NULL;
    host_start(&h);
    assert_int_equal(usc_capture_open(h.path, &h.hooks, NULL, &second, NULL),
                     USC_E_EXISTS);
    assert_null(second);
    host_stop(&h, host_finish(&h));
    assert_int_equal(usc_capture_close(NULL, true, NULL), USC_OK);
}

/* One session with the `fail_at`-th request refused; whether any was. */
static bool failing_session(int fail_at)
{
    host h;
    alloc_probe probe;
    float *a = calloc(40000, sizeof *a), b[N] = {0};
    host_storage sa = host_memory(a, 160000), sb = host_memory(b, sizeof b);
    usc_error err = {0};
    host_prepare(&h);
    h.options.alloc = alloc_probe_bind(&probe, fail_at);
    h.options.ring_size = 1;
    h.options.stats_only = fail_at % 2 == 0;
    if (usc_capture_open(h.path, &h.hooks, &h.options, &h.c, &err) != USC_OK) {
        assert_int_equal(err.status, USC_E_NOMEM);
        assert_null(h.c);
    } else {
        usc_capture_step_begin(h.c, 0);
        h.op = usc_capture_op(h.c, "test::op", "");
        for (int i = 0; i < 4; i++) {
            a[39999] = (float)i;
            usc_capture_tensor views[3] = {host_whole(&h, &sa),
                                           host_vector(&h, &sa, 1, 5),
                                           host_vector(&h, &sa, 2, 5)};
            for (int k = 0; k < 3; k++)
                views[k].i_arg = k;
            usc_capture_end(h.c, host_begin(&h, views, 3), NULL, 0, true);
            host_call(&h, host_whole(&h, &sb), host_whole(&h, &sa));
        }
        const usc_status st = usc_capture_close(h.c, true, &err);
        assert_true(st == USC_OK || (st == USC_E_NOMEM && err.text[0] != '\0'));
        usc_trace *t = NULL;
        assert_int_equal(usc_trace_open(h.path, NULL, &t, &err), USC_OK);
        assert_string_equal(usc_trace_meta(t, "complete"), st == USC_OK ? "1" : "0");
        usc_trace_close(t);
    }
    assert_int_equal(probe.live_bytes, 0);
    assert_int_equal(probe.n_wrong_sizes, 0);
    assert_int_equal(sa.n_holds, 0);
    assert_int_equal(sb.n_holds, 0);
    host_stop(&h, NULL);
    free(a);
    return probe.n_requests >= fail_at;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    int n = 1;
    while (failing_session(n))
        n++;
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_raised_call_says_so),
        cmocka_unit_test(test_steps_have_rows),
        cmocka_unit_test(test_names_and_remarks),
        cmocka_unit_test(test_storages_larger_than_the_ring),
        cmocka_unit_test(test_storages_that_only_a_hook_reads),
        cmocka_unit_test(test_large_messages_go_around_the_ring),
        cmocka_unit_test(test_flush_makes_it_durable),
        cmocka_unit_test(test_calls_of_several_threads),
        cmocka_unit_test(test_an_end_comes_late_from_another_thread),
        cmocka_unit_test(test_a_failed_read_leaves_that_tensor_out),
        cmocka_unit_test(test_a_folder_in_use_is_refused),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
