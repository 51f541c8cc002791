// SPDX-License-Identifier: Apache-2.0
// simccl: calls that do not fit each other, ranks that do not come or die, planted faults.
// Ranks are threads, and processes where one has to die.
#include "sim_ranks.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what goes wrong ------------------------------------------------------------- */

static usc_status call_other_things(rank *r)
{
    float x[4] = {1, 2, 3, 4};
    const usc_ccl_buffer b = {x, r->options.rank == 0 ? sizeof x : 8};
    const bool first = r->options.rank == 0;
    EXPECT(run_one(r, first ? USC_CCL_ALL_REDUCE : USC_CCL_BROADCAST, USC_CCL_OP_SUM,
                   USC_F32, &b, first, &b, 1, 0) == USC_E_ARG);
    EXPECT(strcmp(r->err.text,
                  "simccl: the ranks' calls number 1 do not fit: rank 0 is at "
                  "all_reduce (sum of float32) of 16 bytes, rank 1 at "
                  "broadcast with root 0 of 8 bytes") == 0);
    EXPECT(run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_SUM, USC_F32, &b, 1, &b, 1, 0) ==
           USC_E_ARG);
    EXPECT(strstr(r->err.text, "16 bytes, rank 1 at all_reduce (sum of float32) of 8") !=
           NULL);
    EXPECT(run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_BXOR, USC_F32, &b, 1, &b, 1, 0) ==
           USC_E_UNSUPPORTED);
    EXPECT(run_one(r, USC_CCL_BROADCAST, 0, 0, &b, 1, &b, 1, 7) == USC_E_ARG);
    /* And it goes on. */
    const usc_ccl_buffer four = {x, sizeof x};
    EXPECT(run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_SUM, USC_F32, &four, 1, &four, 1,
                   0) == USC_OK);
    EXPECT(x[3] == 8);
    return USC_OK;
}

static usc_status leave_one_waiting(rank *r)
{
    if (r->options.rank == 1) return USC_OK;
    EXPECT(run_one(r, USC_CCL_BARRIER, 0, 0, NULL, 0, NULL, 0, 0) == USC_E_IO);
    EXPECT(strcmp(r->err.text,
                  "simccl: rank 1 has not come to barrier number 1 within 0.05 s, where "
                  "rank 0 waits; it has begun no collective yet") == 0);
    return USC_OK;
}

static void test_calls_that_do_not_fit(void **state)
{
    (void)state;
    two_do(call_other_things);
}

static usc_status wait_alone(rank *r)
{
    if (r->options.rank == 1) return USC_OK;
    return run_one(r, USC_CCL_BARRIER, 0, 0, NULL, 0, NULL, 0, 0);
}

static void test_abort(void **state)
{
    (void)state;
    char name[USC_CCL_NAME_TEXT];
    rank ranks[2];
    usc_ccl_new_name(name);
    for (int i = 0; i < 2; i++) {
        ranks[i] = (rank){.options = options_of(name, i, 2), .act = wait_alone};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, be, &ranks[i]), 0);
    }
    pthread_join(ranks[1].thread, NULL);
    usc_ccl_abort(ranks[1].c, "somebody had enough");
    usc_ccl_abort(ranks[1].c, "too late");
    pthread_join(ranks[0].thread, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[0].st, USC_E_IO);
        assert_string_equal(ranks[0].err.text, "simccl: somebody had enough");
        ranks[0].st = wait_alone(&ranks[0]); /* and so it stays */
    }
    usc_ccl_close(ranks[0].c);
    usc_ccl_close(ranks[1].c);
}

static usc_status short_of_time(rank *r)
{
    if (r->options.rank == 0) usc_ccl_set_timeout(r->c, SECOND / 20);
    return leave_one_waiting(r);
}

static void test_a_lack_of_time(void **state)
{
    (void)state;
    two_do(short_of_time);
}

/* A rank that is killed is told at once, whatever the time limit, with where it was. */
static void test_one_that_dies(void **state)
{
    (void)state;
    char name[USC_CCL_NAME_TEXT];
    usc_ccl_new_name(name);
    rank r = {.options = options_of(name, 1, 2)};
    const pid_t child = fork();
    if (child == 0) {
        if (usc_ccl_open(&r.options, &r.c, &r.err) != USC_OK) _exit(1);
        if (run_one(&r, USC_CCL_BARRIER, 0, 0, NULL, 0, NULL, 0, 0) != USC_OK) _exit(1);
        raise(SIGKILL);
    }
    r.options.rank = 0;
    r.options.timeout_ns = 0; /* for ever */
    assert_int_equal(usc_ccl_open(&r.options, &r.c, &r.err), USC_OK);
    assert_int_equal(run_one(&r, USC_CCL_BARRIER, 0, 0, NULL, 0, NULL, 0, 0), USC_OK);
    assert_int_equal(run_one(&r, USC_CCL_BARRIER, 0, 0, NULL, 0, NULL, 0, 0), USC_E_IO);
    assert_string_equal(r.err.text,
                        "simccl: rank 1 has ended and cannot come to barrier number 2, "
                        "where rank 0 waits; the last it has begun is barrier number 1");
    char word[4];
    assert_int_equal(usc_ccl_send(r.c, 1, 0, (usc_ccl_buffer){word, 4}, &r.err),
                     USC_E_IO);
    usc_ccl_close(r.c);
    waitpid(child, NULL, 0);
}

static void test_bad_options(void **state)
{
    (void)state;
    usc_error err;
    usc_ccl *c = NULL;
    usc_ccl_options o = options_of("/ulpscope-simccl-test", 2, 2);
    assert_int_equal(usc_ccl_open(&o, &c, &err), USC_E_ARG);
    o = options_of("no slash", 0, 1);
    assert_int_equal(usc_ccl_open(&o, &c, &err), USC_E_ARG);
    o = options_of("/ulpscope-simccl-nobody-makes-it", 1, 2);
    o.timeout_ns = 1;
    assert_int_equal(usc_ccl_open(&o, &c, &err), USC_E_IO);
    assert_non_null(strstr(err.text, "rank 0 has not opened"));
    assert_null(c);
    usc_ccl_close(NULL);
}

/* ---- planted faults -------------------------------------------------------------- */

static usc_status sum_of_ranks(rank *r)
{
    const float half = 0x1p-9f; /* 1 + 2^-9 has no bfloat16 */
    float x[3] = {(float)(r->options.rank + 1), r->options.rank == 0 ? 1 : half, 4};
    const usc_ccl_buffer b = {x, sizeof x};
    const usc_status st =
        run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_SUM, USC_F32, &b, 1, &b, 1, 0);
    if (st == USC_OK)
        snprintf(r->err.text, sizeof r->err.text, "%g %g %g", (double)x[0], (double)x[1],
                 (double)x[2]);
    return st;
}

static void test_faults(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *first, *second; /* what each rank gets */
    } table[] = {
        {"", "3 1.00195 8", "3 1.00195 8"},
        {"simccl::*:rank_lost:rank=1", "1 1 4", "1 1 4"},
        {"simccl::all_reduce:rank_twice", "2 2 8", "2 2 8"},
        {"simccl::all_reduce:ranks_bf16", "3 1 8", "3 1 8"},
        {"simccl::all_reduce:ranks_stale", "1 1 4", "2 0.00195312 4"},
        {"simccl::all_reduce:bf16_output", "3 1 8", "3 1 8"},
        {"simccl::all_reduce:zero_one:index=2", "3 1.00195 0", "3 1.00195 0"},
        {"simccl::broadcast:ranks_stale", "3 1.00195 8", "3 1.00195 8"},
    };
    rank ranks[2];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        usc_sim_fault fault;
        assert_int_equal(usc_sim_fault_plant(table[i].fault, NULL, NULL), USC_OK);
        run_ranks(ranks, 2, sum_of_ranks);
        for (int k = 0; k < 2; k++)
            assert_int_equal(ranks[k].st, USC_OK);
        assert_string_equal(ranks[0].err.text, table[i].first);
        assert_string_equal(ranks[1].err.text, table[i].second);
        if (usc_sim_fault_get(0, &fault) && strstr(fault.text, "broadcast") == NULL)
            assert_int_equal(fault.n_fired, 2);
        usc_sim_fault_clear();
    }
    assert_int_equal(usc_sim_fault_plant("simccl::all_reduce:lacking", NULL, NULL),
                     USC_OK);
    run_ranks(ranks, 2, sum_of_ranks);
    assert_int_equal(ranks[1].st, USC_E_UNSUPPORTED);
    usc_sim_fault_clear();
}

static bool put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    return f != NULL && fputs(text, f) >= 0 && fclose(f) == 0;
}

/* In a process that sees a /dev/shm of its own; 2: it may not have one. */
static int open_where_no_room_is(void)
{
    rank r = {.options = options_of("/ulpscope-full", 0, 2)};
    char user[32], group[32];
    (void)snprintf(user, sizeof user, "0 %u 1", (unsigned)getuid());
    (void)snprintf(group, sizeof group, "0 %u 1", (unsigned)getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        !put("/proc/self/setgroups", "deny") || !put("/proc/self/uid_map", user) ||
        !put("/proc/self/gid_map", group) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") != 0)
        return 2;
    const usc_status st = usc_ccl_open(&r.options, &r.c, &r.err);
    const char *text = "MiB of shared memory for 2 ranks: No space left on device; make "
                       "room in /dev/shm (in a container: --shm-size)";
    return st == USC_E_IO && strstr(r.err.text, text) != NULL &&
                   access("/dev/shm/ulpscope-full", F_OK) != 0
               ? 0
               : 1;
}

static void test_a_full_dev_shm(void **state)
{
    (void)state;
    int status = 0;
    const pid_t child = fork();
    if (child == 0) _exit(open_where_no_room_is());
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) skip();
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_that_do_not_fit),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_a_lack_of_time),
        cmocka_unit_test(test_one_that_dies),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_a_full_dev_shm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
