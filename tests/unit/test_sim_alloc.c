// SPDX-License-Identifier: Apache-2.0
// The rules of the allocator in ulpscope_sim/memory.h: which stream gets which block,
// and what there is of it.
#include "sim_allocs.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

static usc_status pass_gate(void *gate, usc_error *err)
{
    (void)err;
    while (sem_wait(gate) != 0)
        ;
    return USC_OK;
}

static void hold(usc_sim_stream s, sem_t *gate)
{
    const usc_sim_command c = {.run = pass_gate, .ctx = gate, .name = "gate"};
    sem_init(gate, 0, 0);
    ok(usc_sim_submit(s, &c, NULL));
}

/* ---- streams ---------------------------------------------------------------------- */

static void test_a_freed_block_comes_back_on_its_stream_alone(void **state)
{
    (void)state;
    for (int g = 0; g < N_GUARDS; g++) {
        usc_sim_set_guard(guards[g]);
        const size_t sizes[] = {100, 5000, 3 << 20};
        for (int i = 0; i < 3; i++) {
            char *p = take(A, sizes[i]);
            usc_sim_free(p);
            char *q = take(B, sizes[i]);
            assert_ptr_not_equal(p, q);
            char *again = take(A, sizes[i]);
            assert_ptr_equal(p, again);
            usc_sim_free(q);
            usc_sim_free(again);
        }
    }
}

static void test_a_block_waits_for_the_streams_that_used_it(void **state)
{
    (void)state;
    for (int g = 0; g < N_GUARDS; g++) {
        usc_sim_set_guard(guards[g]);
        sem_t gate;
        char *p = take(A, 1000);
        hold(B, &gate);
        ok(usc_sim_record_stream(p, B, NULL));
        ok(usc_sim_record_stream(p, B, NULL));
        ok(usc_sim_record_stream(p, A, NULL)); /* its own: says nothing new */
        usc_sim_free(p);
        assert_true(usc_sim_memory_stats(0).waiting_size > 0);
        char *q = take(A, 1000);
        assert_ptr_not_equal(p, q);
        sem_post(&gate);
        ok(usc_sim_stream_synchronize(B, NULL));
        char *again = take(A, 1000);
        assert_ptr_equal(p, again);
        assert_int_equal(usc_sim_memory_stats(0).waiting_size, 0);
        usc_sim_free(q);
        usc_sim_free(again);
    }
}

static void test_record_stream_refuses_what_is_not_there(void **state)
{
    (void)state;
    usc_error err;
    char *p = take(A, 10);
    assert_int_equal(usc_sim_record_stream(&err, B, &err), USC_E_ARG);
    assert_int_equal(usc_sim_record_stream(p, (usc_sim_stream){0, 99}, &err), USC_E_ARG);
    usc_sim_free(p);
    assert_int_equal(usc_sim_record_stream(p, B, &err), USC_E_ARG);
    void *out = &err;
    assert_int_equal(usc_sim_malloc_on((usc_sim_stream){0, 99}, 1, &out, &err),
                     USC_E_ARG);
    assert_null(out);
}

static void test_a_launched_kernel_may_open_what_was_freed(void **state)
{
    (void)state;
    for (int g = 0; g < N_GUARDS; g++) {
        usc_sim_set_guard(guards[g]);
        char *p = take(A, 256);
        usc_sim_pin(p);
        usc_sim_free(p);
        ok(usc_sim_open(p, USC_SIM_WRITE, NULL));
        memset(p, 1, 256);
        usc_sim_close(p, USC_SIM_WRITE);
        usc_sim_unpin(p);
        assert_int_equal(usc_sim_open(p, USC_SIM_READ, NULL), USC_E_ARG);
    }
}

static void
test_a_launched_kernel_finds_its_bytes_in_a_block_handed_out_again(void **state)
{
    (void)state;
    char *p = take(A, 4000);
    ok(usc_sim_open(p, USC_SIM_WRITE, NULL));
    memset(p, 7, 4000);
    usc_sim_close(p, USC_SIM_WRITE);
    usc_sim_pin(p);
    usc_sim_free(p);
    char *q = take(A, 1000); /* of the same page, and with other bytes around it */
    assert_in_range((uintptr_t)q, (uintptr_t)p, (uintptr_t)p + 4000);
    ok(usc_sim_open(p, USC_SIM_WRITE, NULL));
    for (int i = 0; i < 4000; i++)
        assert_int_equal(p[i], 7);
    memset(p, 8, 4000);
    usc_sim_close(p, USC_SIM_WRITE);
    usc_sim_unpin(p);
    usc_sim_free(q);
}

static void test_a_copy_ends_after_its_blocks_are_freed(void **state)
{
    (void)state;
    sem_t gate;
    char back[64] = "";
    char *p = take(A, 64);
    ok(usc_sim_copy(A, p,
                    "sixty-four characters or more, of which the last are of no matter",
                    64, NULL));
    hold(A, &gate);
    ok(usc_sim_copy(A, back, p, 64, NULL));
    usc_sim_free(p);
    sem_post(&gate);
    ok(usc_sim_stream_synchronize(A, NULL));
    assert_memory_equal(back, "sixty-four", 10);
}

/* ---- splitting and joining ----------------------------------------------------------- */

static void test_small_blocks_share_pages_and_join_again(void **state)
{
    (void)state;
    enum { N = 100000 };
    static char *blocks[N];
    usc_sim_set_guard(USC_SIM_GUARD_PAGES);
    const int64_t before = usc_sim_memory_stats(0).reserved_size;
    for (int i = 0; i < N; i++)
        blocks[i] = take(A, 4);
    assert_in_range(usc_sim_memory_stats(0).reserved_size - before, 1, 16 << 20);
    for (int i = 0; i < N; i += 997) {
        ok(usc_sim_open(blocks[i], USC_SIM_WRITE, NULL));
        memset(blocks[i], i, 4);
        usc_sim_close(blocks[i], USC_SIM_WRITE);
    }
    for (int i = 0; i < N; i += 2)
        usc_sim_free(blocks[i]);
    for (int i = 1; i < N; i += 2)
        usc_sim_free(blocks[i]);
    /* joined to whole mappings, all is given back */
    usc_sim_empty_cache();
    assert_int_equal(usc_sim_memory_stats(0).reserved_size, before);
}

static void test_large_blocks_are_pieces_of_one_mapping(void **state)
{
    (void)state;
    usc_sim_set_guard(USC_SIM_GUARD_PAGES);
    const int64_t before = usc_sim_memory_stats(0).n_segments;
    char *p[3];
    for (int i = 0; i < 3; i++)
        p[i] = take(A, 2 << 20);
    assert_int_equal(usc_sim_memory_stats(0).n_segments - before, 1);
    ok(usc_sim_open(p[1] + (1 << 20), USC_SIM_WRITE, NULL));
    memset(p[1], 3, 2 << 20);
    usc_sim_close(p[1] + (1 << 20), USC_SIM_WRITE);
    usc_sim_free(p[0]);
    usc_sim_free(p[1]);
    char *both = take(A, 4 << 20);
    assert_ptr_equal(both, p[0]);
    usc_sim_free(both);
    usc_sim_free(p[2]);
}

static void test_blocks_do_not_overlap_in_any_guard(void **state)
{
    (void)state;
    enum { N = 400 };
    static struct {
        unsigned char *at;
        size_t size;
    } b[N];
    uint32_t random = 99; /* the seed */
    for (int round = 0; round < 4000; round++) {
        random = random * 1664525u + 1013904223u;
        const int i = (int)((random >> 8) % N);
        if (round % 500 == 0) usc_sim_set_guard(guards[round / 500 % N_GUARDS]);
        if (b[i].at != NULL) {
            ok(usc_sim_open(b[i].at, USC_SIM_READ, NULL));
            assert_int_equal(b[i].at[0], i % 256);
            assert_int_equal(b[i].at[b[i].size - 1], i % 256);
            usc_sim_close(b[i].at, USC_SIM_READ);
            usc_sim_free(b[i].at);
            b[i].at = NULL;
            continue;
        }
        b[i].size = 1 + (random >> 9) % (1u << (4 + round % 18));
        b[i].at = (unsigned char *)take(round % 3 == 0 ? A : B, b[i].size);
        assert_int_equal((uintptr_t)b[i].at % 64, 0);
        ok(usc_sim_open(b[i].at, USC_SIM_WRITE, NULL));
        memset(b[i].at, i, b[i].size);
        usc_sim_close(b[i].at, USC_SIM_WRITE);
    }
    for (int i = 0; i < N; i++)
        usc_sim_free(b[i].at);
}

static void *take_and_give(void *stream)
{
    for (int i = 0; i < 300; i++) {
        char *p = take(*(usc_sim_stream *)stream, (size_t)(64 << (i % 10)));
        ok(usc_sim_open(p, USC_SIM_WRITE, NULL));
        p[0] = 1;
        usc_sim_close(p, USC_SIM_WRITE);
        ok(usc_sim_record_stream(p, A, NULL));
        usc_sim_free(p);
    }
    return NULL;
}

static void test_many_threads_take_and_give(void **state)
{
    (void)state;
    usc_sim_stream streams[] = {A, B, {0, 3}, {1, 0}};
    for (int g = 0; g < N_GUARDS; g++) {
        pthread_t threads[4];
        usc_sim_set_guard(guards[g]);
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, take_and_give, &streams[i]);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
}

/* ---- how much -------------------------------------------------------------------------- */

static void test_cached_memory_is_given_back_before_a_request_is_refused(void **state)
{
    (void)state;
    usc_error err;
    void *p;
    size_t n_free, total;
    const int64_t held = usc_sim_memory_stats(0).reserved_size;
    usc_sim_set_memory_size((size_t)held + (64 << 20));
    usc_sim_memory_info(0, &n_free, &total);
    assert_int_equal(n_free, 64 << 20);
    assert_int_equal(total, held + (64 << 20));
    char *q = take(A, 40 << 20);
    assert_int_equal(usc_sim_malloc_on(B, 40 << 20, &p, &err), USC_E_NOMEM);
    assert_null(p);
    assert_non_null(strstr(err.text, "Tried to allocate 40.00 MiB. sim:0 has a total"));
    usc_sim_free(q); /* cached for A, and B may have it now */
    q = take(B, 40 << 20);
    assert_int_equal(usc_sim_memory_stats(0).n_ooms, 1);
    assert_true(usc_sim_memory_stats(0).n_retries >= 1);
    usc_sim_free(q);
    usc_sim_set_memory_size(0);
}

/* Freed blocks of many sizes, and then others: what is reserved stays near the most that was
 * allocated at a time. */
static void test_little_more_is_reserved_than_was_allocated(void **state)
{
    (void)state;
    for (int g = 0; g < N_GUARDS; g++) {
        void *p[40];
        usc_sim_set_guard(guards[g]);
        usc_sim_empty_cache();
        const usc_sim_stats before = usc_sim_memory_stats(0);
        usc_sim_reset_peak(0);
        for (size_t round = 0; round < 6; round++) {
            for (size_t i = 0; i < 40; i++)
                p[i] = take(A, (1 << 20) + i % 8 * (100 << 10) + round * (300 << 10));
            for (size_t i = 0; i < 40; i++)
                usc_sim_free(p[i]);
        }
        const usc_sim_stats after = usc_sim_memory_stats(0);
        const double allocated = (double)(after.peak_size - before.allocated_size);
        const double reserved = (double)(after.peak_reserved - before.reserved_size);
        const bool whole = guards[g] == USC_SIM_GUARD_STRICT; /* else they are pieces */
        if (reserved > (whole ? 1.25 : 1.3) * allocated)
            fail_msg("guard %d: %g of %g MiB", g, reserved / 0x1p20, allocated / 0x1p20);
        usc_sim_empty_cache();
    }
}

static void test_a_fraction_limits_a_device(void **state)
{
    (void)state;
    usc_error err;
    void *p;
    size_t n_free, total;
    assert_int_equal(usc_sim_set_memory_fraction(7, 1, &err), USC_E_ARG);
    assert_int_equal(usc_sim_set_memory_fraction(0, 1.5, &err), USC_E_RANGE);
    assert_int_equal(usc_sim_set_memory_fraction(0, -1, &err), USC_E_RANGE);
    ok(usc_sim_set_memory_fraction(1, 0, NULL));
    usc_sim_memory_info(1, &n_free, &total);
    assert_true(n_free == 0 && total > 0);
    assert_int_equal(usc_sim_malloc(1, 100 << 20, &p, &err), USC_E_NOMEM);
    ok(usc_sim_set_memory_fraction(1, 1, NULL));
    ok(usc_sim_malloc(1, 100 << 20, &p, NULL));
    usc_sim_free(p);
    usc_sim_memory_info(9, &n_free, &total);
    assert_true(n_free == 0 && total == 0);
}

typedef struct found {
    const char *address;
    int n, n_live, n_waiting;
    usc_sim_block_info info;
} found;

static void look(void *ctx, const usc_sim_block_info *info)
{
    found *f = ctx;
    f->n++;
    f->n_live += info->live;
    f->n_waiting += info->waits;
    if (info->address == (uintptr_t)f->address) f->info = *info;
}

static void test_a_snapshot_has_every_block(void **state)
{
    (void)state;
    usc_sim_set_guard(USC_SIM_GUARD_PAGES);
    usc_sim_set_label("aten::test");
    char *p = take(B, 700);
    usc_sim_set_label(NULL);
    found f = {.address = p};
    usc_sim_snapshot(look, &f);
    assert_int_equal(f.n_live,
                     usc_sim_memory_stats(0).n_live + usc_sim_memory_stats(1).n_live);
    assert_true(f.n > f.n_live && f.info.live && f.info.small && f.info.asked == 700);
    assert_true(f.info.size >= 700 && f.info.stream == B.id && f.info.device == 0);
    assert_string_equal(f.info.allocated, "aten::test");
    usc_sim_free(p);
}

static void test_history_keeps_the_last_actions(void **state)
{
    (void)state;
    usc_sim_action_info info;
    ok(usc_sim_history_start(3, NULL));
    for (int i = 0; i < 3; i++)
        usc_sim_free(take(A, 100));
    const usc_sim_action expected[] = {USC_SIM_ACTION_ALLOC,
                                       USC_SIM_ACTION_FREE_REQUESTED,
                                       USC_SIM_ACTION_FREE_COMPLETED};
    for (size_t i = 0; i < 3; i++) {
        assert_true(usc_sim_history_get(i, &info));
        assert_int_equal(info.action, expected[i]);
        assert_true(info.size == 100 && info.device == 0 && info.stream == A.id);
    }
    assert_false(usc_sim_history_get(3, &info));
    assert_string_equal(usc_sim_action_name(USC_SIM_ACTION_FREE_REQUESTED),
                        "free_requested");
    assert_string_equal(usc_sim_action_name((usc_sim_action)99), "");
    ok(usc_sim_history_start(0, NULL));
    assert_false(usc_sim_history_get(0, &info));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IT(test_a_freed_block_comes_back_on_its_stream_alone),
        IT(test_a_block_waits_for_the_streams_that_used_it),
        IT(test_record_stream_refuses_what_is_not_there),
        IT(test_a_launched_kernel_may_open_what_was_freed),
        IT(test_a_launched_kernel_finds_its_bytes_in_a_block_handed_out_again),
        IT(test_a_copy_ends_after_its_blocks_are_freed),
        IT(test_small_blocks_share_pages_and_join_again),
        IT(test_large_blocks_are_pieces_of_one_mapping),
        IT(test_blocks_do_not_overlap_in_any_guard),
        IT(test_many_threads_take_and_give),
        IT(test_cached_memory_is_given_back_before_a_request_is_refused),
        IT(test_little_more_is_reserved_than_was_allocated),
        IT(test_a_fraction_limits_a_device),
        IT(test_a_snapshot_has_every_block),
        IT(test_history_keeps_the_last_actions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
