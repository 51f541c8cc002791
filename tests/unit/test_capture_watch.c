// SPDX-License-Identifier: Apache-2.0
// A session without a trace: calls are handed over as they end, with what came in when
// they began; storages that die are told.
#include "capture_host.h"

#include <math.h>
#include <stddef.h>

#include "capture/watch.h"

enum { N = 16, MOST = 64 };

typedef struct seen {
    int64_t sequence, n_children, source;
    int n_args;
    int64_t n_nan[4], version[4];
    double largest[4];
    char op[32], module[32], paths[64];
} seen;

typedef struct watcher {
    seen call[MOST];
    int n, n_gone;
    bool fails;
} watcher;

static usc_status see(void *ctx, const usc_call *call, usc_error *err)
{
    watcher *w = ctx;
    if (w->fails) return usc_error_set(err, USC_E_NOMEM, -1, "planted");
    assert_true(w->n < MOST && call->n_args <= 4);
    seen *s = &w->call[w->n++];
    *s = (seen){.sequence = call->sequence,
                .n_children = call->n_children,
                .n_args = call->n_args};
    (void)snprintf(s->op, sizeof s->op, "%s", call->op);
    (void)snprintf(s->module, sizeof s->module, "%s",
                   call->module_path != NULL ? call->module_path : "-");
    for (int i = 0; i < call->n_args; i++) {
        const size_t at = strlen(s->paths);
        (void)snprintf(s->paths + at, sizeof s->paths - at, "%s ", call->arg[i].path);
        usc_range range = {0};
        (void)usc_call_arg_range(&call->arg[i], &range);
        s->n_nan[i] = range.n_nan;
        s->version[i] = call->arg[i].version;
        s->largest[i] = range.max;
        assert_string_equal(call->arg[i].dtype_name, "float32");
        assert_int_equal(call->arg[i].storage_bytes, N * 4);
    }
    return USC_OK;
}

static void gone(void *ctx, int64_t storage)
{
    assert_true(storage > 0);
    ((watcher *)ctx)->n_gone++;
}

/* `watch` lives until the session is open: it is copied. `far`: memory is a device's. */
static void open_watch_of(host *h, watcher *w, bool far)
{
    const usc_capture_watch watch = {.ctx = w, .call = see, .gone = gone};
    usc_error err = {0};
    *w = (watcher){0};
    host_prepare(h);
    if (far) h->hooks.read = host_read;
    h->options.watch = &watch;
    if (usc_capture_open(NULL, &h->hooks, &h->options, &h->c, &err) != USC_OK)
        fail_msg("%s", err.text);
    h->op = usc_capture_op(h->c, "test::op", "test::op(Tensor a) -> Tensor");
    usc_capture_step_begin(h->c, 0);
}

static void open_watch(host *h, watcher *w)
{
    open_watch_of(h, w, false);
}

static void test_calls_are_handed_over_as_they_end(void **state)
{
    (void)state;
    host h;
    watcher w;
    float a[N] = {1, 2}, b[N] = {3};
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    open_watch(&h, &w);
    const int64_t module = usc_capture_module(h.c, "net.1", "Linear");
    const usc_capture_tensor in = host_whole(&h, &sa);
    const usc_capture_call outer = {
        .op = h.op, .args = "{}", .tensors = &in, .n_tensors = 1, .module = module};
    const int64_t above = usc_capture_begin(h.c, &outer);
    usc_capture_call inner = outer;
    inner.parent = above;
    const int64_t below = usc_capture_begin(h.c, &inner);
    a[0] = NAN; /* what it was before stays with the call */
    const usc_capture_tensor wrote[] = {host_role(in, USC_ROLE_MUTATED),
                                        host_role(host_whole(&h, &sb), USC_ROLE_OUT)};
    usc_capture_end(h.c, below, wrote, 2, true);
    usc_capture_end(h.c, above, NULL, 0, true);
    const int64_t raised = host_begin(&h, &in, 1);
    usc_capture_end(h.c, raised, NULL, 0, false);
    usc_capture_meta(h.c, "seed", "1");
    usc_capture_note(h.c, raised, "kind", "words");
    assert_int_equal(usc_capture_flush(h.c, NULL), USC_OK);
    assert_int_equal(w.n, 3);
    const seen *s = &w.call[0];
    assert_int_equal(s->sequence, below);
    assert_string_equal(s->paths, "args[0] args[0] out[0] ");
    assert_string_equal(s->module, "net.1");
    assert_string_equal(s->op, "test::op");
    assert_true(s->n_nan[0] == 0 && s->n_nan[1] == 1 && s->largest[0] == 2 &&
                s->largest[2] == 3);
    assert_int_equal(w.call[1].sequence, above);
    assert_int_equal(w.call[1].n_children, 1);
    assert_true(w.call[2].n_nan[0] == 1);
    usc_capture_step_end(h.c);
    assert_int_equal(usc_capture_close(h.c, true, NULL), USC_OK);
    assert_int_equal(access(h.path, F_OK), -1);
    host_stop(&h, NULL);
}

static void test_the_dead_are_told_and_memory_does_not_grow(void **state)
{
    (void)state;
    enum { TIMES = 20 };
    host h;
    watcher w;
    float a[N] = {1};
    host_storage s[TIMES];
    open_watch(&h, &w);
    for (int i = 0; i < TIMES; i++) {
        s[i] = host_memory(a, sizeof a);
        (void)host_use(&h, host_whole(&h, &s[i]));
        atomic_store(&s[i].dead, true);
        (void)host_use(&h, host_whole(&h, &s[i])); /* the address is used again */
        atomic_store(&s[i].dead, true);
    }
    assert_int_equal(usc_capture_flush(h.c, NULL), USC_OK);
    assert_true(w.n_gone >= TIMES);
    assert_int_equal(usc_capture_close(h.c, true, NULL), USC_OK);
    host_stop(&h, NULL);
}

static void test_a_watcher_that_fails_ends_the_session_alone(void **state)
{
    (void)state;
    host h;
    watcher w;
    float a[N] = {1};
    usc_error err = {0};
    host_storage s = host_memory(a, sizeof a);
    open_watch(&h, &w);
    w.fails = true;
    (void)host_use(&h, host_whole(&h, &s));
    assert_int_equal(usc_capture_flush(h.c, &err), USC_E_NOMEM);
    assert_string_equal(err.text, "planted");
    assert_int_equal(host_use(&h, host_whole(&h, &s)), 0);
    assert_int_equal(usc_capture_close(h.c, true, NULL), USC_E_NOMEM);
    host_stop(&h, NULL);
}

static void put_tensor(usc_watcher *w, int64_t id, int64_t version)
{
    static const int64_t size = N, stride = 1;
    const usc_tensor_row row = {.id = id,
                                .version = version,
                                .dtype_name = "float32",
                                .ndim = 1,
                                .sizes = &size,
                                .strides = &stride};
    assert_int_equal(usc_watcher_tensor(w, &row, NULL, NULL), USC_OK);
}

/* Rows as no session sends them: nothing is made of them, and nothing falls. */
static void test_rows_of_what_is_not_there_are_passed_over(void **state)
{
    (void)state;
    watcher seen_calls = {0};
    const usc_capture_watch watch = {.ctx = &seen_calls, .call = see, .gone = gone};
    usc_watcher *w = NULL;
    assert_int_equal(usc_watcher_make(&watch, &w, NULL), USC_OK);
    usc_watcher_gone(w, 7);
    assert_int_equal(usc_watcher_end(w, 5, "ok", NULL), USC_OK);
    assert_int_equal(
        usc_watcher_version(w, &(usc_version_row){.id = 1, .storage = 3}, NULL), USC_OK);
    put_tensor(w, 1, 1);
    const usc_call_row call = {.sequence = 1};
    assert_int_equal(usc_watcher_name(w, USC_WATCHED_OP, 0, "test::op", NULL), USC_OK);
    for (int64_t id = 1; id <= 1000; id++) {
        const usc_storage_row row = {.id = id, .device = "cpu", .bytes = N * 4};
        assert_int_equal(usc_watcher_storage(w, &row, NULL), USC_OK);
        for (int64_t of = 0; of < 2; of++) { /* the second drops the first */
            const usc_version_row version = {.id = 2 * id + of, .storage = id};
            assert_int_equal(usc_watcher_version(w, &version, NULL), USC_OK);
            put_tensor(w, 2 * id + of, version.id);
        }
    }
    assert_int_equal(usc_watcher_name(w, USC_WATCHED_OP, 1, "test::op", NULL), USC_OK);
    usc_call_row again = call;
    again.op = 1;
    assert_int_equal(usc_watcher_call(w, &again, NULL), USC_OK);
    for (int64_t tensor = 20; tensor < 24; tensor++) {
        const usc_arg_row arg = {.call = 1, .path = "args[0]", .tensor = tensor};
        assert_int_equal(usc_watcher_arg(w, &arg, 0, 0, NULL), USC_OK);
    }
    assert_int_equal(usc_watcher_end(w, 1, "ok", NULL), USC_OK);
    assert_int_equal(seen_calls.n, 1);
    assert_int_equal(seen_calls.call[0].n_args, 2); /* 21 and 23 */
    for (int64_t id = 1; id <= 1000; id++)
        usc_watcher_gone(w, id);
    usc_watcher_free(w);
    usc_watcher_free(NULL);
}

static usc_capture_tensor looked(const host *h, host_storage *s, int64_t look)
{
    usc_capture_tensor t = host_whole(h, s);
    t.look = look;
    return t;
}

/* What was found under a number: no NaN, and this the largest; -1: it is not known. */
static void tell(host *h, int64_t look, double largest)
{
    const usc_looked row = {look, {.n = largest < 0 ? -1 : N, .max = largest}};
    usc_capture_looked(h->c, &row, 1);
    assert_int_equal(usc_capture_flush(h->c, NULL), USC_OK);
}

static void test_calls_wait_in_their_order_for_what_was_looked_at(void **state)
{
    (void)state;
    host h;
    watcher w;
    float a[N] = {1}, b[N] = {3};
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    open_watch_of(&h, &w, true);
    int64_t call[7];
    call[0] = host_call(&h, looked(&h, &sa, 1), looked(&h, &sb, 2));
    call[1] = host_use(&h, looked(&h, &sb, 3));
    call[2] = host_use(&h, looked(&h, &sa, -1)); /* of this nobody will tell */
    atomic_store(&sa.dead, true);                /* its end waits for the calls before */
    tell(&h, 3, 7);
    tell(&h, 2, 7);
    assert_int_equal(w.n, 0);
    tell(&h, 1, 5);
    assert_int_equal(w.n, 3);
    call[3] = host_use(&h, looked(&h, &sb, 4)); /* others than before, and nobody wrote */
    call[4] = host_use(&h, looked(&h, &sb, 5));
    call[5] = host_use(&h, looked(&h, &sb, 6));
    tell(&h, 6, -1); /* the device could not count */
    tell(&h, 5, 9);
    tell(&h, 4, 9);
    assert_int_equal(w.n, 6);
    call[6] = host_use(&h, looked(&h, &sb, 7)); /* never told */
    assert_int_equal(usc_capture_flush(h.c, NULL), USC_OK);
    assert_int_equal(w.n, 6);
    assert_int_equal(usc_capture_close(h.c, true, NULL), USC_OK);
    assert_int_equal(w.n, 7);
    for (int i = 0; i < 7; i++)
        assert_int_equal(w.call[i].sequence, call[i]);
    const seen *c = w.call;
    assert_true(c[0].largest[0] == 5 && c[0].largest[1] == 7 && c[1].largest[0] == 7);
    assert_true(c[3].largest[0] == 9 && c[5].largest[0] == 0 && c[6].largest[0] == 0);
    assert_int_equal(c[0].version[1], c[1].version[0]);
    assert_int_not_equal(c[1].version[0], c[3].version[0]);
    assert_int_equal(c[3].version[0], c[4].version[0]);
    assert_int_equal(atomic_load(&h.n_reads), 0);
    host_stop(&h, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_handed_over_as_they_end),
        cmocka_unit_test(test_calls_wait_in_their_order_for_what_was_looked_at),
        cmocka_unit_test(test_the_dead_are_told_and_memory_does_not_grow),
        cmocka_unit_test(test_a_watcher_that_fails_ends_the_session_alone),
        cmocka_unit_test(test_rows_of_what_is_not_there_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
