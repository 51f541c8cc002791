// SPDX-License-Identifier: Apache-2.0
// What tests of device memory share.
#ifndef USC_TESTS_SIM_ALLOCS_H
#define USC_TESTS_SIM_ALLOCS_H

#include <ulpscope_sim/memory.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const usc_sim_stream A = {0, 1}, B = {0, 2};

static inline void ok(usc_status st)
{
    assert_int_equal(st, USC_OK);
}

static inline char *take(usc_sim_stream s, size_t size)
{
    void *p = NULL;
    ok(usc_sim_malloc_on(s, size, &p, NULL));
    return p;
}

static inline int start(void **state)
{
    (void)state;
    usc_sim_empty_cache();
    usc_sim_set_guard(USC_SIM_GUARD_STRICT);
    return 0;
}

static const usc_sim_guard guards[] = {USC_SIM_GUARD_STRICT, USC_SIM_GUARD_PAGES,
                                       USC_SIM_GUARD_OPEN};
#define N_GUARDS 3

#define IT(name) cmocka_unit_test_setup(name, start)

#endif
