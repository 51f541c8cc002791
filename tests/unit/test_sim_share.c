// SPDX-License-Identifier: Apache-2.0
// The rules of memory that several processes hold, in ulpscope_sim/share.h: two blocks over
// one file are in one process what they are in two.
#include "sim_allocs.h"
#include <ulpscope_sim/share.h>

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 5000

static char *take_shared(int fd)
{
    usc_sim_share_next(fd);
    return take(A, SIZE);
}

static void fill(char *p, char byte)
{
    ok(usc_sim_open(p, USC_SIM_WRITE, NULL));
    memset(p, byte, SIZE);
    usc_sim_close(p, USC_SIM_WRITE);
}

static char first_of(const char *p)
{
    ok(usc_sim_open(p, USC_SIM_READ, NULL));
    const char byte = p[0];
    usc_sim_close(p, USC_SIM_READ);
    return byte;
}

static void test_two_blocks_have_one_memory(void **state)
{
    (void)state;
    for (int i = 0; i < N_GUARDS; i++) {
        usc_sim_set_guard(guards[i]);
        char *one = take_shared(USC_SIM_SHARE_NEW);
        fill(one, 7);
        char *two = take_shared(usc_sim_shared_fd(one));
        assert_ptr_not_equal(one, two);
        assert_int_equal(first_of(two), 7);
        fill(two, 8);
        assert_int_equal(first_of(one), 8);
        usc_sim_free(one);
        usc_sim_free(two);
    }
}

static void
test_what_is_freed_is_kept_for_the_other_and_not_handed_out_again(void **state)
{
    (void)state;
    for (int i = 0; i < N_GUARDS; i++) {
        usc_sim_set_guard(guards[i]);
        char *one = take_shared(USC_SIM_SHARE_NEW);
        fill(one, 7);
        char *two = take_shared(usc_sim_shared_fd(one));
        usc_sim_free(one);
        char *next = take(A, SIZE);
        assert_int_equal(usc_sim_shared_fd(next), -1);
        fill(next, 9);
        assert_int_equal(first_of(two), 7);
        usc_sim_free(next);
        usc_sim_free(two);
    }
}

static void test_freed_while_a_kernel_holds_it(void **state)
{
    (void)state;
    char *one = take_shared(USC_SIM_SHARE_NEW);
    assert_true(usc_sim_may_move(one));
    usc_sim_pin(one);
    assert_false(usc_sim_may_move(one));
    usc_sim_free(one);
    char *next = take(A, SIZE);
    assert_int_equal(usc_sim_shared_fd(next), -1);
    fill(one, 7); /* which still has it open */
    usc_sim_unpin(one);
    usc_sim_free(next);
    assert_int_equal(usc_sim_memory_stats(0).n_live, 0);
}

static void test_another_process_holds_it_beyond_the_end_of_the_first(void **state)
{
    (void)state;
    char *one = take_shared(USC_SIM_SHARE_NEW);
    const int fd = usc_sim_shared_fd(one);
    const pid_t child = fork();
    if (child == 0) {
        char *two = take_shared(fd);
        fill(two, 5);
        _exit(first_of(two) == 5 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(first_of(one), 5);
    usc_sim_free(one);
}

static void test_another_file_is_refused(void **state)
{
    (void)state;
    void *p;
    usc_error err;
    char *one = take_shared(USC_SIM_SHARE_NEW);
    usc_sim_share_next(usc_sim_shared_fd(one));
    assert_int_equal(usc_sim_malloc_on(A, 20 * SIZE, &p, &err), USC_E_SHAPE);
    assert_null(p);
    assert_non_null(strstr(err.text, "is not the shared memory of a block of"));
    char *next = take(A, SIZE); /* and the wish is gone with it */
    assert_int_equal(usc_sim_shared_fd(next), -1);
    usc_sim_free(one);
    usc_sim_free(next);
    assert_int_equal(usc_sim_memory_stats(0).n_live, 0);
}

static void test_an_overrun_by_who_got_it_is_seen(void **state)
{
    (void)state;
    char *one = take_shared(USC_SIM_SHARE_NEW);
    char *two = take_shared(usc_sim_shared_fd(one));
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        ok(usc_sim_open(two, USC_SIM_WRITE, NULL));
        two[SIZE] = 1;
        usc_sim_close(two, USC_SIM_WRITE); /* ends by its signal */
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    usc_sim_free(one);
    usc_sim_free(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IT(test_two_blocks_have_one_memory),
        IT(test_what_is_freed_is_kept_for_the_other_and_not_handed_out_again),
        IT(test_freed_while_a_kernel_holds_it),
        IT(test_another_process_holds_it_beyond_the_end_of_the_first),
        IT(test_another_file_is_refused),
        IT(test_an_overrun_by_who_got_it_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
