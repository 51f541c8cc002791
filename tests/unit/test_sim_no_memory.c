// SPDX-License-Identifier: Apache-2.0
// Every n-th request for memory of the simulated device's runtime fails, for all n: it
// then says USC_E_NOMEM and goes on working, or does without. Linked from its objects, whose
// requests the linker wraps (CMakeLists.txt).
#include <ulpscope_sim/share.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include "alloc_fails.h"

static const usc_sim_stream A = {0, 1}, B = {0, 2};

/* The first status that is not OK; what was made is given back in each case. */
static usc_status do_all(usc_sim_guard guard, usc_error *err)
{
    static char host[5000];
    void *p[3] = {NULL, NULL, NULL};
    usc_sim_event *event = NULL;
    usc_sim_set_guard(guard);
    usc_sim_set_label("aten::first");
    usc_status st = usc_sim_history_start(50, err);
    for (int i = 0; i < 3 && st == USC_OK; i++) {
        usc_sim_share_next(i == 1 ? USC_SIM_SHARE_NEW : USC_SIM_SHARE_NOT);
        st = usc_sim_malloc_on(A, i == 2 ? 3 << 20 : 5000, &p[i], err);
    }
    if (st == USC_OK) st = usc_sim_event_create(true, &event, err);
    if (st == USC_OK) st = usc_sim_copy(A, p[0], host, sizeof host, err);
    if (st == USC_OK) st = usc_sim_event_record(event, A, err);
    if (st == USC_OK) st = usc_sim_stream_wait(B, event, err);
    if (st == USC_OK) st = usc_sim_copy(B, p[1], p[0], sizeof host, err);
    if (st == USC_OK) st = usc_sim_stream_wait_stream(A, B, err);
    for (int i = 0; i < 2 && st == USC_OK; i++)
        st = usc_sim_record_stream(p[i], B, err);
    for (int i = 0; i < 3; i++)
        usc_sim_free(p[i]);
    usc_sim_event_free(event);
    const usc_status end = usc_sim_device_synchronize(-1, NULL);
    usc_sim_empty_cache();
    return st != USC_OK ? st : end;
}

/* Order is by a seed, so that each round asks for the same. */
static void test_every_request_may_fail(void **state)
{
    (void)state;
    usc_error err;
    for (int guard = USC_SIM_GUARD_STRICT; guard <= USC_SIM_GUARD_OPEN; guard++) {
        for (int round = 0; round < 2; round++) { /* with memory cached, and without */
            bool failed = true;
            for (int n = 1; failed; n++) {
                usc_sim_schedule(&(usc_sim_schedule_options){.seed = 5, .delay = 0.5});
                err.status = USC_OK;
                alloc_fails_arm(n, round == 1, false);
                const usc_status st = do_all((usc_sim_guard)guard, &err);
                failed = alloc_fails_disarm() > 0;
                if (st != USC_OK) assert_int_equal(st, USC_E_NOMEM);
                if (!failed) assert_int_equal(st, USC_OK);
                assert_int_equal(usc_sim_memory_stats(0).allocated_size, 0);
                assert_int_equal(usc_sim_memory_stats(0).waiting_size, 0);
                assert_in_range(n, 1, 500);
            }
        }
    }
    usc_sim_schedule(NULL);
    assert_int_equal(usc_sim_history_start(0, NULL), USC_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_request_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
