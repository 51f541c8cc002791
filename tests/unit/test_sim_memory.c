// SPDX-License-Identifier: Apache-2.0
// The rules of device memory in ulpscope_sim/sim.h. Accesses that must fault happen in a
// child process, whose end tells.
#include <ulpscope_sim/memory.h>
#include <ulpscope_sim/profile.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char *allocate(int device, size_t size)
{
    void *p = NULL;
    usc_error err;
    assert_int_equal(usc_sim_malloc(device, size, &p, &err), USC_OK);
    return p;
}

static void open_for(const void *p, usc_sim_access access)
{
    usc_error err;
    assert_int_equal(usc_sim_open(p, access, &err), USC_OK);
}

/* Whether touching `at` ends a child process with SIGSEGV. */
static bool faults(char *at, usc_sim_access access)
{
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        volatile char *p = at;
        if (access == USC_SIM_READ)
            (void)*p;
        else
            *p = 1;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void test_closed_memory_faults(void **state)
{
    (void)state;
    char *p = allocate(0, 100);
    assert_true(faults(p, USC_SIM_READ));
    assert_true(faults(p + 99, USC_SIM_WRITE));
    usc_sim_free(p);
}

static void test_open_for_reading_is_not_open_for_writing(void **state)
{
    (void)state;
    char *p = allocate(0, 100);
    open_for(p, USC_SIM_READ);
    assert_false(faults(p, USC_SIM_READ));
    assert_true(faults(p, USC_SIM_WRITE));
    open_for(p + 50, USC_SIM_WRITE);
    assert_false(faults(p, USC_SIM_WRITE));
    usc_sim_close(p + 50, USC_SIM_WRITE);
    assert_true(faults(p, USC_SIM_WRITE));
    usc_sim_close(p, USC_SIM_READ);
    assert_true(faults(p, USC_SIM_READ));
    usc_sim_free(p);
}

static void test_openings_are_counted(void **state)
{
    (void)state;
    char *p = allocate(1, 8);
    for (int i = 0; i < 3; i++)
        open_for(p, USC_SIM_READ);
    usc_sim_close(p, USC_SIM_READ);
    usc_sim_close(p, USC_SIM_READ);
    assert_false(faults(p, USC_SIM_READ));
    usc_sim_close(p, USC_SIM_READ);
    usc_sim_close(p, USC_SIM_READ); /* one too many does not count below none */
    assert_true(faults(p, USC_SIM_READ));
    open_for(p, USC_SIM_READ);
    assert_false(faults(p, USC_SIM_READ));
    usc_sim_free(p);
}

static void test_block_ends_against_a_guard_page(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 63, 64, 65, 4095, 4096, 4097, 100000, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *p = allocate(0, sizes[i]);
        const size_t rounded = (sizes[i] + 63) / 64 * 64;
        open_for(p, USC_SIM_WRITE);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_false(faults(p + sizes[i] - 1, USC_SIM_WRITE));
        assert_true(faults(p + rounded, USC_SIM_READ));
        usc_sim_close(p, USC_SIM_WRITE);
        usc_sim_free(p);
    }
}

static void test_freed_memory_faults_and_is_reused(void **state)
{
    (void)state;
    char *p = allocate(0, 5000);
    open_for(p, USC_SIM_WRITE);
    memset(p, 7, 5000);
    usc_sim_free(p); /* while open: a bug of the caller, and still closed */
    assert_true(faults(p, USC_SIM_READ));
    usc_error err;
    assert_int_equal(usc_sim_open(p, USC_SIM_READ, &err), USC_E_ARG);

    const int64_t n_maps = usc_sim_memory_stats(0).n_maps;
    char *q = allocate(0, 5000);
    assert_ptr_equal(p, q);
    assert_int_equal(usc_sim_memory_stats(0).n_maps, n_maps);
    assert_true(faults(q, USC_SIM_READ));
    open_for(q, USC_SIM_READ);
    assert_int_equal(q[4999], 7); /* what was there before, as on hardware */
    usc_sim_close(q, USC_SIM_READ);
    usc_sim_free(q);
}

static void test_devices_have_their_own_addresses(void **state)
{
    (void)state;
    for (int device = 0; device < usc_sim_device_count(); device++) {
        char *p = allocate(device, 10);
        assert_int_equal(usc_sim_device_of(p), device);
        assert_int_equal(usc_sim_device_of(p + 9), device);
        usc_sim_free(p);
    }
    int on_the_stack;
    assert_int_equal(usc_sim_device_of(&on_the_stack), -1);
    assert_int_equal(usc_sim_device_of(NULL), -1);
}

static void test_bad_requests_are_refused(void **state)
{
    (void)state;
    void *p = &p;
    usc_error err;
    assert_int_equal(usc_sim_malloc(-1, 1, &p, &err), USC_E_ARG);
    assert_null(p);
    assert_int_equal(usc_sim_malloc(usc_sim_device_count(), 1, &p, NULL), USC_E_ARG);
    assert_int_equal(usc_sim_malloc(0, SIZE_MAX, &p, &err), USC_E_RANGE);
    assert_int_equal(usc_sim_malloc(0, 0, &p, &err), USC_OK);
    assert_null(p);
    assert_int_equal(usc_sim_open(&p, USC_SIM_READ, &err), USC_E_ARG);
    assert_int_equal(usc_sim_open(NULL, USC_SIM_READ, &err), USC_OK);
    usc_sim_close(&p, USC_SIM_READ);
    usc_sim_free(&p);
    usc_sim_free(NULL);
}

static void test_statistics(void **state)
{
    (void)state;
    const usc_sim_stats before = usc_sim_memory_stats(1);
    char *p = allocate(1, 1 << 16);
    const usc_sim_stats with = usc_sim_memory_stats(1);
    assert_int_equal(with.allocated_size - before.allocated_size, 1 << 16);
    assert_int_equal(with.n_allocs - before.n_allocs, 1);
    usc_sim_free(p);
    const usc_sim_stats after = usc_sim_memory_stats(1);
    assert_int_equal(after.allocated_size, before.allocated_size);
    assert_true(after.peak_size >= with.allocated_size);
    usc_sim_reset_peak(1);
    assert_int_equal(usc_sim_memory_stats(1).peak_size, before.allocated_size);
    assert_int_equal(usc_sim_memory_stats(7).n_allocs, 0);
}

static void test_emptied_cache_gives_pages_back(void **state)
{
    (void)state;
    char *p = allocate(0, 9000);
    open_for(p, USC_SIM_WRITE);
    memset(p, 1, 9000);
    usc_sim_close(p, USC_SIM_WRITE);
    usc_sim_free(p);
    usc_sim_empty_cache();
    char *q = allocate(0, 9000);
    assert_ptr_equal(p, q);
    open_for(q, USC_SIM_READ);
    assert_int_equal(q[0], 0);
    usc_sim_close(q, USC_SIM_READ);
    usc_sim_free(q);
}

static void test_protection_can_be_switched_off(void **state)
{
    (void)state;
    char *before = allocate(0, 10);
    usc_sim_set_protection(false);
    char *during = allocate(0, 10);
    assert_false(faults(before, USC_SIM_WRITE));
    assert_false(faults(during, USC_SIM_WRITE));
    usc_sim_set_protection(true);
    assert_true(faults(before, USC_SIM_READ));
    assert_true(faults(during, USC_SIM_READ));
    usc_sim_free(before);
    usc_sim_free(during);
}

static void test_many_blocks_of_all_sizes_do_not_overlap(void **state)
{
    (void)state;
    enum { N = 300 };
    static struct {
        char *at;
        size_t size;
    } blocks[N];
    uint32_t random = 12345; /* the seed */
    for (int i = 0; i < N; i++) {
        random = random * 1664525u + 1013904223u;
        blocks[i].size = 1 + (random >> 8) % (1u << (4 + i % 16));
        blocks[i].at = allocate(i % 2, blocks[i].size);
        open_for(blocks[i].at, USC_SIM_WRITE);
        memset(blocks[i].at, i, blocks[i].size);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(blocks[i].at[0], (char)i);
        assert_int_equal(blocks[i].at[blocks[i].size - 1], (char)i);
        usc_sim_close(blocks[i].at, USC_SIM_WRITE);
        usc_sim_free(blocks[i].at);
    }
}

static void test_pinned_memory_is_known(void **state)
{
    (void)state;
    char *p = usc_sim_host_malloc(100);
    char *empty = usc_sim_host_malloc(0);
    assert_non_null(p);
    p[99] = 1;
    assert_true(usc_sim_is_pinned(p) && usc_sim_is_pinned(p + 99));
    assert_false(usc_sim_is_pinned(p + 100));
    assert_false(usc_sim_is_pinned(&p));
    usc_sim_host_free(p);
    assert_false(usc_sim_is_pinned(p));
    usc_sim_host_free(empty);
    usc_sim_host_free(NULL);
}

static void test_openings_are_of_all_or_of_none(void **state)
{
    (void)state;
    void *p = NULL, *q = NULL;
    usc_sim_empty_cache();
    for (int g = 0; g < 2; g++) {
        usc_sim_set_guard(g == 0 ? USC_SIM_GUARD_STRICT : USC_SIM_GUARD_PAGES);
        assert_int_equal(usc_sim_malloc(0, 100, &p, NULL), USC_OK);
        assert_int_equal(usc_sim_malloc(0, 100, &q, NULL), USC_OK);
        const usc_sim_opening both[] = {{p, USC_SIM_READ},
                                        {NULL, USC_SIM_READ},
                                        {q, USC_SIM_WRITE},
                                        {p, USC_SIM_READ}};
        assert_int_equal(usc_sim_open_all(both, 4, NULL), USC_OK);
        ((char *)q)[0] = ((char *)p)[0];
        usc_sim_close_all(both, 3);
        (void)*(volatile char *)p; /* open once more */
        usc_sim_close_all(both + 3, 1);
        assert_int_equal(usc_sim_open(p, USC_SIM_READ, NULL), USC_OK);
        usc_sim_close(p, USC_SIM_READ);
        const usc_sim_opening bad[] = {{p, USC_SIM_WRITE}, {&g, USC_SIM_READ}};
        assert_int_equal(usc_sim_open_all(bad, 2, NULL), USC_E_ARG);
        assert_true(faults(p, USC_SIM_READ) && faults(q, USC_SIM_WRITE));
        usc_sim_free(p);
        usc_sim_free(q);
    }
    usc_sim_set_guard(USC_SIM_GUARD_STRICT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_memory_faults),
        cmocka_unit_test(test_open_for_reading_is_not_open_for_writing),
        cmocka_unit_test(test_openings_are_counted),
        cmocka_unit_test(test_openings_are_of_all_or_of_none),
        cmocka_unit_test(test_block_ends_against_a_guard_page),
        cmocka_unit_test(test_freed_memory_faults_and_is_reused),
        cmocka_unit_test(test_devices_have_their_own_addresses),
        cmocka_unit_test(test_bad_requests_are_refused),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_emptied_cache_gives_pages_back),
        cmocka_unit_test(test_protection_can_be_switched_off),
        cmocka_unit_test(test_many_blocks_of_all_sizes_do_not_overlap),
        cmocka_unit_test(test_pinned_memory_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
