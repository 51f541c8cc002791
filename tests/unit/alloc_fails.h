// SPDX-License-Identifier: Apache-2.0
// Makes the n-th request for memory in this process fail, whoever asks: the library, by
// its allocator or by malloc (the linker wraps both: CMakeLists.txt), jansson and SQLite,
// each by its own door. Those two doors are of the whole process: a test program may take
// them, a library in somebody's process must not (src/json/json.h).
//
//     alloc_fails_begin();                   once, before anything uses SQLite
//     alloc_fails_arm(3, false, false);      the third request from now on fails
//     ...
//     if (!alloc_fails_disarm()) break;      whether one failed
//
// For what takes a usc_alloc, and for sizes and live bytes: alloc_probe.h. What is not
// given back after a failure, the leak detector of the sanitized run finds.
#ifndef USC_TESTS_ALLOC_FAILS_H
#define USC_TESTS_ALLOC_FAILS_H

#include <jansson.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct {
    int fail_at;      /* 0: none fails */
    bool only_sqlite; /* who is counted: SQLite, or all others */
    bool fail_after;
    int n_requests, n_failed;
    sqlite3_mem_methods sqlite; /* what SQLite would use */
} alloc_fails;

static inline bool alloc_fails_now(bool sqlite)
{
    if (alloc_fails.fail_at == 0 || sqlite != alloc_fails.only_sqlite) return false;
    const int i = ++alloc_fails.n_requests;
    const bool refused =
        alloc_fails.fail_after ? i >= alloc_fails.fail_at : i == alloc_fails.fail_at;
    alloc_fails.n_failed += refused;
    return refused;
}

/* The linker sends the calls of all that is linked in here: --wrap. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *ptr, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return alloc_fails_now(false) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return alloc_fails_now(false) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *ptr, size_t size)
{
    return alloc_fails_now(false) ? NULL : __real_realloc(ptr, size);
}

char *__wrap_strdup(const char *text)
{
    return alloc_fails_now(false) ? NULL : __real_strdup(text);
}

/* The buffer of its tokens, of 2^k bytes, always has memory: jansson 2.14 leaves a
 * character out of a text or number where it cannot grow it, and says nothing. */
static inline void *alloc_fails_json(size_t size)
{
    if ((size & (size - 1)) == 0) return __real_malloc(size);
    return alloc_fails_now(false) ? NULL : __real_malloc(size);
}

static inline void *alloc_fails_sqlite_malloc(int size)
{
    return alloc_fails_now(true) ? NULL : alloc_fails.sqlite.xMalloc(size);
}

static inline void *alloc_fails_sqlite_realloc(void *ptr, int size)
{
    return alloc_fails_now(true) ? NULL : alloc_fails.sqlite.xRealloc(ptr, size);
}

static inline void alloc_fails_begin(void)
{
    json_set_alloc_funcs(alloc_fails_json, free);
    if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &alloc_fails.sqlite) != SQLITE_OK)
        abort();
    sqlite3_mem_methods methods = alloc_fails.sqlite;
    methods.xMalloc = alloc_fails_sqlite_malloc;
    methods.xRealloc = alloc_fails_sqlite_realloc;
    /* All requests are to be seen: none from a block that was taken before. */
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK ||
        sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0) != SQLITE_OK)
        abort();
}

/** Request `fail_at` from now on fails, with `after` all behind it as well: of SQLite, or
 * of all others. */
static inline void alloc_fails_arm(int fail_at, bool after, bool sqlite)
{
    alloc_fails.only_sqlite = sqlite;
    alloc_fails.n_requests = alloc_fails.n_failed = 0;
    alloc_fails.fail_after = after;
    alloc_fails.fail_at = fail_at;
}

/** No more request fails; how many did. */
static inline int alloc_fails_disarm(void)
{
    alloc_fails.fail_at = 0;
    return alloc_fails.n_failed;
}

#endif
