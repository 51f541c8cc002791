// SPDX-License-Identifier: Apache-2.0
// Commands for tests of queues: they log a number, wait at a gate or fail. A command that
// must not have ended yet waits at a gate, and nothing sleeps.
#ifndef USC_TESTS_SIM_COMMANDS_H
#define USC_TESTS_SIM_COMMANDS_H

#include <ulpscope_sim/stream.h>

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const usc_sim_stream MAIN = {0, 0};

static inline void ok(usc_status st)
{
    assert_int_equal(st, USC_OK);
}

static inline usc_sim_stream another(void)
{
    return usc_sim_stream_next(0, false);
}

/* ---- what commands do ------------------------------------------------------------ */

static inline usc_status pass_gate(void *gate, usc_error *err)
{
    (void)err;
    while (sem_wait(gate) != 0)
        ;
    return USC_OK;
}

static inline usc_status open_gate(void *gate, usc_error *err)
{
    (void)err;
    sem_post(gate);
    return USC_OK;
}

static inline usc_status go_wrong(void *ctx, usc_error *err)
{
    return usc_error_set(err, USC_E_SHAPE, 2, "%s", (const char *)ctx);
}

static atomic_int n_logged;
static int logged[64];

static inline usc_status log_it(void *number, usc_error *err)
{
    (void)err;
    logged[atomic_fetch_add(&n_logged, 1)] = *(const int *)number;
    return USC_OK;
}

static int numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};

static inline usc_status submit(usc_sim_stream s, usc_status (*run)(void *, usc_error *),
                                void *ctx, usc_error *err)
{
    const usc_sim_command c = {
        .run = run, .ctx = ctx, .name = "aten::test", .place = "here.py:7"};
    return usc_sim_submit(s, &c, err);
}

static inline void log_on(usc_sim_stream s, int number)
{
    ok(submit(s, log_it, &numbers[number], NULL));
}

static inline void wait_for_all(void)
{
    usc_error err;
    ok(usc_sim_device_synchronize(-1, &err));
}

static inline int start(void **state)
{
    (void)state;
    n_logged = 0;
    return 0;
}

#define IT(name) cmocka_unit_test_setup(name, start)

#endif
