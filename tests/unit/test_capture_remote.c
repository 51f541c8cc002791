// SPDX-License-Identifier: Apache-2.0
// Storages that only their device can read: what is fetched, kept and compared of them.
// The host of capture_host.h counts the bytes.
#include "capture_host.h"

#include <pthread.h>

enum { size = 16 << 20, view_size = 4096, n_uses = 50 };

static void open_remote(host *h, bool stats_only)
{
    host_prepare(h);
    h->hooks.read = host_read;
    h->options.stats_only = stats_only;
    host_open(h);
}

/* A page of the storage, as float32. */
static usc_capture_tensor page(const host *h, host_storage *s, int64_t i)
{
    return host_vector(h, s, i * view_size / 4, view_size / 4);
}

/* Views of a flat buffer cost what they reach: the first use and each look again. */
static void small_views_case(bool stats_only, int64_t most)
{
    host h;
    float *a = malloc(size);
    for (int64_t i = 0; i < size / 4; i++)
        a[i] = (float)i;
    host_storage s = host_memory(a, size);
    open_remote(&h, stats_only);
    for (int i = 0; i < n_uses; i++)
        host_use(&h, page(&h, &s, i % 10));
    assert_true(h.n_bytes_read <= most);
    usc_capture_counts counts;
    usc_capture_count(h.c, &counts);
    assert_int_equal(counts.bytes_read, h.n_bytes_read);
    assert_int_equal(counts.n_unobserved, 0);
    if (!stats_only) assert_int_equal(counts.bytes_copied, 10 * view_size);
    usc_trace *t = host_finish(&h);
    for (int i = 0; i < n_uses; i++) {
        const usc_call_arg arg = host_arg(t, i + 1, 0), first = host_arg(t, 1, 0);
        assert_int_equal(arg.version, first.version);
        assert_int_equal(arg.storage_bytes, size);
        assert_non_null(arg.stats);
        if (stats_only) continue;
        assert_int_equal(arg.first, i % 10 * view_size);
        host_assert_bytes(t, &arg, a + arg.offset, view_size);
    }
    host_stop(&h, t);
    free(a);
}

static void test_a_small_view_costs_what_it_reaches(void **state)
{
    (void)state;
    small_views_case(false, n_uses * view_size);
    small_views_case(true, n_uses * view_size);
}

/* Where there is room for some views, a flat buffer that is larger than all of it is no
 * hindrance: those that it has room for are taken, and the one beyond is counted. */
static void test_the_room_is_for_what_views_reach(void **state)
{
    (void)state;
    host h;
    float *a = calloc(1, size);
    host_storage s = host_memory(a, size);
    host_prepare(&h);
    h.hooks.read = host_read;
    h.options.most_bytes = 3 * view_size;
    host_open(&h);
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(host_use(&h, page(&h, &s, 2 * i)), 0);
    assert_int_not_equal(host_use(&h, page(&h, &s, 2)), 0); /* it is there already */
    assert_int_equal(host_use(&h, page(&h, &s, 9)), 0);
    usc_capture_counts counts;
    usc_capture_count(h.c, &counts);
    assert_int_equal(counts.n_left, 1);
    assert_int_equal(counts.bytes_copied, 3 * view_size);
    host_stop(&h, host_finish(&h));
    free(a);
}

static void test_a_large_view_is_looked_at_in_places(void **state)
{
    (void)state;
    host h;
    float *a = calloc(1, size);
    host_storage s = host_memory(a, size);
    open_remote(&h, false);
    for (int i = 0; i < n_uses; i++)
        host_use(&h, host_whole(&h, &s));
    assert_true(h.n_bytes_read <= size + n_uses * 4 * 4096);
    a[0] = 1;
    const int64_t changed = host_use(&h, host_whole(&h, &s));
    usc_capture_counts counts;
    usc_capture_count(h.c, &counts);
    assert_int_equal(counts.n_unobserved, 1);
    usc_trace *t = host_finish(&h);
    const usc_call_arg arg = host_arg(t, changed, 0);
    assert_int_equal(arg.generation, 1);
    host_assert_bytes(t, &arg, a, size);
    host_stop(&h, t);
    free(a);
}

/* The parts of one generation are one version; what a call writes is another. */
static void test_parts_belong_to_a_generation(void **state)
{
    (void)state;
    host h;
    float *a = calloc(1, size);
    host_storage s = host_memory(a, size);
    open_remote(&h, false);
    usc_capture_tensor both[2] = {page(&h, &s, 0), page(&h, &s, 7)};
    both[1].i_arg = 1;
    const int64_t call = host_begin(&h, both, 2);
    a[7 * view_size / 4] = 3;
    const usc_capture_tensor after[2] = {host_role(both[0], USC_ROLE_MUTATED),
                                         host_role(both[1], USC_ROLE_MUTATED)};
    usc_capture_end(h.c, call, after, 2, true);
    const int64_t later = host_use(&h, page(&h, &s, 7));
    const int64_t wide = host_use(&h, host_vector(&h, &s, 0, 8 * view_size / 4));
    usc_trace *t = host_finish(&h);
    const usc_call_arg x = host_arg(t, call, 2), y = host_arg(t, call, 3),
                       next = host_arg(t, later, 0), all = host_arg(t, wide, 0);
    assert_int_equal(x.generation, 1);
    assert_int_equal(y.version, x.version);
    assert_int_equal(y.writer, call);
    assert_int_not_equal(y.blob, x.blob);
    assert_int_equal(next.tensor, y.tensor);
    assert_int_equal(all.version, x.version);
    host_assert_bytes(t, &y, (char *)a + 7 * view_size, view_size);
    host_assert_bytes(t, &all, a, 8 * view_size);
    host_stop(&h, t);
    free(a);
}

static void test_a_write_beside_what_was_taken_is_no_finding(void **state)
{
    (void)state;
    host h;
    float *a = calloc(1, size);
    host_storage s = host_memory(a, size);
    open_remote(&h, false);
    host_use(&h, page(&h, &s, 0));
    a[size / 8] = 1; /* nobody has looked there */
    a[0] = 2;
    const int64_t call = host_use(&h, host_vector(&h, &s, 0, 3 * view_size / 4));
    usc_trace *t = host_finish(&h);
    const usc_call_arg arg = host_arg(t, call, 0);
    assert_int_equal(arg.generation, 1); /* a[0] had been taken */
    host_assert_bytes(t, &arg, a, 3 * view_size);
    host_stop(&h, t);
    free(a);
}

/* ---- a slow device ---- */

/* Reads of `slow` stop half way until `go`. */
typedef struct slow_host {
    host h;
    host_storage *slow;
    atomic_bool reads, go;
    int64_t sequence;
    usc_capture_tensor in;
} slow_host;

static usc_status slow_read(void *ctx, void *storage, int64_t offset, void *destination,
                            int64_t n, usc_error *err)
{
    slow_host *d = ctx;
    const usc_status st = host_read(&d->h, storage, offset, destination, n, err);
    if (storage == d->slow && !atomic_exchange(&d->reads, true))
        while (!atomic_load(&d->go))
            usleep(100);
    return st;
}

static void *use_slow(void *arg)
{
    slow_host *d = arg;
    d->sequence = host_use(&d->h, d->in);
    return NULL;
}

/* Begins a call that uses `s` on a thread of its own, up to the middle of its read. */
static pthread_t start_slow(slow_host *d, host_storage *s, bool stats_only)
{
    host_prepare(&d->h);
    d->h.hooks.ctx = d;
    d->h.hooks.read = slow_read;
    d->h.options.stats_only = stats_only;
    d->slow = s;
    host_open(&d->h);
    d->in = host_whole(&d->h, s);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_slow, d), 0);
    while (!atomic_load(&d->reads))
        usleep(100);
    return thread;
}

static void *let_go_late(void *arg)
{
    slow_host *d = arg;
    for (int i = 0; i < 100000 && !atomic_load(&d->go); i++)
        usleep(100);
    atomic_store(&d->go, true);
    return NULL;
}

/* Another thread's calls go on while a device takes its time. Where they do not, the read
 * is let go after ten seconds, and the order of the calls tells. */
static void slow_read_case(bool stats_only)
{
    slow_host d = {.sequence = 0};
    float a[64] = {1}, b[64] = {2};
    host_storage slow = host_memory(a, sizeof a), other = host_memory(b, sizeof b);
    const pthread_t thread = start_slow(&d, &slow, stats_only);
    pthread_t guard;
    assert_int_equal(pthread_create(&guard, NULL, let_go_late, &d), 0);
    for (int i = 1; i <= 5; i++)
        assert_int_equal(host_use(&d.h, host_whole(&d.h, &other)), i);
    assert_false(atomic_load(&d.go));
    atomic_store(&d.go, true);
    pthread_join(thread, NULL);
    pthread_join(guard, NULL);
    assert_int_equal(d.sequence, 6);
    usc_trace *t = host_finish(&d.h);
    const usc_call_arg arg = host_arg(t, 6, 0);
    assert_non_null(arg.stats);
    if (!stats_only) host_assert_bytes(t, &arg, a, sizeof a);
    host_stop(&d.h, t);
}

static void test_a_slow_read_holds_nobody_up(void **state)
{
    (void)state;
    slow_read_case(false);
    slow_read_case(true);
}

/* Bytes that were read before another call wrote the storage are not taken for what is
 * there now. */
static void test_bytes_that_another_call_replaced_are_read_again(void **state)
{
    (void)state;
    slow_host d = {.sequence = 0};
    float a[64] = {1};
    host_storage s = host_memory(a, sizeof a);
    const pthread_t thread = start_slow(&d, &s, false);
    const int64_t writer = host_begin(&d.h, NULL, 0);
    a[0] = 7;
    const usc_capture_tensor out = host_role(host_whole(&d.h, &s), USC_ROLE_MUTATED);
    usc_capture_end(d.h.c, writer, &out, 1, true);
    atomic_store(&d.go, true);
    pthread_join(thread, NULL);
    usc_capture_counts counts;
    usc_capture_count(d.h.c, &counts);
    assert_int_equal(counts.n_unobserved, 0);
    usc_trace *t = host_finish(&d.h);
    const usc_call_arg seen = host_arg(t, d.sequence, 0), made = host_arg(t, writer, 0);
    assert_int_equal(seen.version, made.version);
    host_assert_bytes(t, &seen, a, sizeof a);
    host_stop(&d.h, t);
}

/* ---- release ---- */

typedef struct guarded_host {
    host h;
    pthread_mutex_t gil;
} guarded_host;

/* As a Python object's end: takes a lock that others hold while they call the session. */
static void release_with_gil(void *ctx, void *held)
{
    guarded_host *g = ctx;
    usc_capture_counts counts;
    pthread_mutex_lock(&g->gil);
    if (g->h.c != NULL)
        usc_capture_count(g->h.c, &counts); /* would hang under its lock */
    pthread_mutex_unlock(&g->gil);
    atomic_fetch_sub(&((host_storage *)held)->n_holds, 1);
}

static void test_a_release_runs_without_the_lock(void **state)
{
    (void)state;
    enum { n = 64 };
    guarded_host g = {.gil = PTHREAD_MUTEX_INITIALIZER};
    float a[4] = {0};
    host_storage s[n];
    host_prepare(&g.h);
    g.h.hooks.ctx = &g;
    g.h.hooks.release = release_with_gil;
    host_open(&g.h);
    for (int i = 0; i < n; i++) {
        s[i] = host_memory(a, sizeof a);
        host_use(&g.h, host_whole(&g.h, &s[i]));
        s[i].dead = true;
    }
    usc_capture_step_end(g.h.c);
    usc_capture *c = g.h.c;
    g.h.c = NULL;
    assert_int_equal(usc_capture_close(c, true, NULL), USC_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(s[i].n_holds, 0);
    host_stop(&g.h, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_small_view_costs_what_it_reaches),
        cmocka_unit_test(test_the_room_is_for_what_views_reach),
        cmocka_unit_test(test_a_large_view_is_looked_at_in_places),
        cmocka_unit_test(test_parts_belong_to_a_generation),
        cmocka_unit_test(test_a_write_beside_what_was_taken_is_no_finding),
        cmocka_unit_test(test_a_slow_read_holds_nobody_up),
        cmocka_unit_test(test_bytes_that_another_call_replaced_are_read_again),
        cmocka_unit_test(test_a_release_runs_without_the_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
