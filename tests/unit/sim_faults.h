// SPDX-License-Identifier: Apache-2.0
// What tests of faults share: planting one, and how many fire on a call.
#ifndef USC_TESTS_SIM_FAULTS_H
#define USC_TESTS_SIM_FAULTS_H

#include <ulpscope_sim/sim.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static inline int clear(void **state)
{
    (void)state;
    usc_sim_fault_clear();
    return 0;
}

static inline int64_t plant(const char *text)
{
    int64_t id = 0;
    usc_error err = {0};
    if (usc_sim_fault_plant(text, &id, &err) != USC_OK) fail_msg("%s", err.text);
    return id;
}

static inline usc_sim_fault planted(const char *text)
{
    usc_sim_fault f;
    usc_sim_fault_clear();
    plant(text);
    assert_true(usc_sim_fault_get(0, &f));
    return f;
}

static inline size_t n_hits(const char *op)
{
    usc_sim_fault *hits;
    const usc_sim_call call = {.op = op, .stream = -1, .dtype = USC_DTYPE_NONE};
    const size_t n = usc_sim_fault_select(&call, &hits);
    free(hits);
    return n;
}

#endif
