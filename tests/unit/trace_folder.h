// SPDX-License-Identifier: Apache-2.0
// A trace in a folder of its own, and how many of its calls are as they were written.
#ifndef USC_TESTS_TRACE_FOLDER_H
#define USC_TESTS_TRACE_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <time.h>

#include "trace_sample.h"

static char *folder, trace_path[600];
static uint64_t random_state;

static inline int make_folder(void **state)
{
    *state = folder = sample_folder();
    snprintf(trace_path, sizeof trace_path, "%s/t", folder);
    return 0;
}

static inline void start_random(void)
{
    const char *given = getenv("ULPSCOPE_TEST_SEED");
    random_state = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("ULPSCOPE_TEST_SEED=%llu\n", (unsigned long long)random_state);
}

static inline int64_t random_below(int64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

/* Number of whole calls 1..n of a trace that must open. */
static inline int64_t verified_calls(const char *path)
{
    usc_error err = {0};
    usc_trace *t;
    const int64_t *found;
    int64_t n;
    if (usc_trace_open(path, NULL, &t, &err) != USC_OK) fail_msg("%s", err.text);
    assert_int_equal(usc_trace_select(t, NULL, &found, &n, &err), USC_OK);
    for (int64_t i = 1; i <= n; i++)
        if (sample_verify(t, i, &err) != USC_OK) fail_msg("%s", err.text);
    usc_trace_close(t);
    return n;
}

#endif
