// SPDX-License-Identifier: Apache-2.0
// What stays open between the commands of a stream under the guard `pages` (sim/keep.c): all
// is closed to a host that has waited, and nothing that was freed stays open.
#include "sim_commands.h"
#include <ulpscope_sim/memory.h>

#include <unistd.h>

typedef struct kernel {
    char *out, *in;
    usc_sim_access access;
} kernel;

static usc_status run_kernel(void *ctx, usc_error *err)
{
    const kernel *k = ctx;
    const usc_sim_opening all[] = {{k->out, USC_SIM_WRITE}, {k->in, USC_SIM_READ}};
    const usc_status st = usc_sim_open_all(all, 2, err);
    if (st != USC_OK) return st;
    k->out[0] = (char)(k->in[0] + 1);
    usc_sim_close_all(all, 2);
    return USC_OK;
}

/* Whether the host may read it, without dying of it. */
static bool is_open(const char *p)
{
    int both[2];
    if (pipe(both) != 0) fail();
    const bool open = write(both[1], p, 1) == 1;
    close(both[0]);
    close(both[1]);
    return open;
}

static char *take(size_t size)
{
    void *p = NULL;
    ok(usc_sim_malloc(0, size, &p, NULL));
    return p;
}

static void set_to(char *p, char byte)
{
    ok(usc_sim_open(p, USC_SIM_WRITE, NULL));
    p[0] = byte;
    usc_sim_close(p, USC_SIM_WRITE);
}

static const size_t sizes[] = {4, 3 << 20}; /* with pages of others, and of its own */

static void test_all_is_closed_once_the_host_has_waited(void **state)
{
    (void)state;
    usc_sim_set_guard(USC_SIM_GUARD_PAGES);
    for (int i = 0; i < 2; i++) {
        kernel all[100];
        for (int k = 0; k < 100; k++)
            all[k] = (kernel){.out = take(sizes[i])};
        for (int k = 0; k < 100; k++)
            all[k].in = all[k > 0 ? k - 1 : 99].out;
        set_to(all[99].out, 1);
        sem_t gate;
        sem_init(&gate, 0, 0);
        const usc_sim_stream s = another();
        ok(submit(s, pass_gate, &gate, NULL));
        for (int k = 0; k < 100; k++)
            ok(submit(s, run_kernel, &all[k], NULL));
        sem_post(&gate);
        ok(usc_sim_stream_synchronize(s, NULL));
        for (int k = 0; k < 100; k++)
            assert_false(is_open(all[k].out));
        ok(usc_sim_open(all[99].out, USC_SIM_READ, NULL));
        assert_int_equal(all[99].out[0], 101);
        usc_sim_close(all[99].out, USC_SIM_READ);
        for (int k = 0; k < 100; k++)
            usc_sim_free(all[k].out);
        sem_destroy(&gate);
    }
    usc_sim_set_guard(USC_SIM_GUARD_STRICT);
}

static usc_status look(void *ctx, usc_error *err)
{
    (void)err;
    char **p = ctx;
    p[1] = is_open(p[0]) ? p[0] : NULL;
    return USC_OK;
}

/* A kernel, one that looks, and one more, so that none of the first two is the last. */
static bool stays_open(usc_sim_guard guard, char *out, char *in)
{
    kernel k = {.out = out, .in = in};
    char *seen[2] = {out, NULL};
    sem_t gate;
    sem_init(&gate, 0, 0);
    usc_sim_set_guard(guard);
    const usc_sim_stream s = another();
    ok(submit(s, pass_gate, &gate, NULL));
    ok(submit(s, run_kernel, &k, NULL));
    ok(submit(s, look, seen, NULL));
    ok(submit(s, run_kernel, &k, NULL));
    sem_post(&gate);
    ok(usc_sim_stream_synchronize(s, NULL));
    assert_false(is_open(out));
    sem_destroy(&gate);
    return seen[1] != NULL;
}

static void test_only_the_guard_pages_keeps_what_the_next_may_need(void **state)
{
    (void)state;
    usc_sim_set_guard(USC_SIM_GUARD_PAGES);
    char *out = take(4), *in = take(4);
    assert_true(stays_open(USC_SIM_GUARD_PAGES, out, in));
    assert_false(stays_open(USC_SIM_GUARD_STRICT, out, in));
    usc_sim_free(out);
    usc_sim_free(in);
}

typedef struct held {
    kernel kernel;
    sem_t running, gate;
} held;

static usc_status run_held(void *ctx, usc_error *err)
{
    held *h = ctx;
    const usc_status st = run_kernel(&h->kernel, err);
    sem_post(&h->running);
    sem_wait(&h->gate);
    return st;
}

static void test_what_is_queued_while_a_kernel_runs_counts(void **state)
{
    (void)state;
    usc_sim_set_guard(USC_SIM_GUARD_PAGES);
    held h = {.kernel = {.out = take(4), .in = take(4)}};
    char *seen[2] = {h.kernel.out, NULL};
    sem_init(&h.running, 0, 0);
    sem_init(&h.gate, 0, 0);
    const usc_sim_stream s = another();
    ok(submit(s, run_held, &h, NULL));
    sem_wait(&h.running);
    ok(submit(s, look, seen, NULL));
    ok(submit(s, run_kernel, &h.kernel, NULL));
    sem_post(&h.gate);
    ok(usc_sim_stream_synchronize(s, NULL));
    assert_ptr_equal(seen[1], h.kernel.out);
    assert_false(is_open(h.kernel.out));
    usc_sim_free(h.kernel.out);
    usc_sim_free(h.kernel.in);
    sem_destroy(&h.running);
    sem_destroy(&h.gate);
}

static usc_status free_it(void *ctx, usc_error *err)
{
    (void)err;
    usc_sim_free(((char **)ctx)[0]);
    return look(ctx, err);
}

static void test_what_is_freed_is_closed(void **state)
{
    (void)state;
    usc_sim_set_guard(USC_SIM_GUARD_PAGES);
    char *out = take(3 << 20), *in = take(3 << 20), *seen[2] = {out, out};
    kernel k = {.out = out, .in = in};
    sem_t gate;
    sem_init(&gate, 0, 0);
    const usc_sim_stream s = another();
    ok(submit(s, pass_gate, &gate, NULL));
    ok(submit(s, run_kernel, &k, NULL));
    ok(submit(s, free_it, seen, NULL));
    ok(submit(s, look, seen, NULL));
    sem_post(&gate);
    ok(usc_sim_stream_synchronize(s, NULL));
    assert_null(seen[1]);
    usc_sim_free(in);
    usc_sim_set_guard(USC_SIM_GUARD_STRICT);
    sem_destroy(&gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_closed_once_the_host_has_waited),
        cmocka_unit_test(test_only_the_guard_pages_keeps_what_the_next_may_need),
        cmocka_unit_test(test_what_is_queued_while_a_kernel_runs_counts),
        cmocka_unit_test(test_what_is_freed_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
