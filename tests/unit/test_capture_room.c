// SPDX-License-Identifier: Apache-2.0
// What a capture session takes of calls that come again: one of a signature in each step,
// what it writes anew; calls beyond the room, or refused. What is recorded:
// test_capture.c.
#include "capture_fill.h"

#include "capture_host.h"

static void test_one_call_of_a_signature_in_each_step(void **state)
{
    (void)state;
    host h;
    float a[N], b[2 * N];
    fill(a, N, 1), fill(b, 2 * N, 0);
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    host_prepare(&h);
    h.options.distinct = true;
    host_open(&h);
    assert_int_equal(host_use(&h, host_whole(&h, &sa)), 1);
    assert_int_equal(host_use(&h, host_whole(&h, &sa)), 0);
    assert_int_equal(host_use(&h, host_vector(&h, &sb, 0, N)), 0); /* the same form */
    assert_int_equal(host_use(&h, host_whole(&h, &sb)), 2);
    usc_capture_step_begin(h.c, 1);
    assert_int_equal(host_use(&h, host_whole(&h, &sa)), 3);
    usc_capture_counts n;
    usc_capture_count(h.c, &n);
    assert_int_equal(n.n_repeated, 2);
    assert_int_equal(n.n_left, 0);
    host_stop(&h, host_finish(&h));
}

/* One that is left out writes all the same: nobody takes what was there before for what
 * is there now, nor wonders who wrote it. */
static void test_what_a_repeated_call_writes_is_taken_anew(void **state)
{
    (void)state;
    host h;
    float a[N], b[N];
    fill(a, N, 1), fill(b, N, 2);
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    host_prepare(&h);
    h.options.distinct = true;
    host_open(&h);
    usc_capture_tensor written = host_whole(&h, &sa);
    written.written = true;
    const usc_capture_tensor after = host_role(written, USC_ROLE_MUTATED);
    for (int i = 0; i < 2; i++) {
        const int64_t call = host_begin(&h, &written, 1);
        assert_int_equal(call, i == 0 ? 1 : 0);
        a[0] = (float)(10 + i);
        usc_capture_end(h.c, call, &after, 1, true);
    }
    assert_int_equal(host_use(&h, host_vector(&h, &sa, 0, 2)), 2);
    assert_int_equal(host_use(&h, host_vector(&h, &sb, 0, 2)), 0); /* the same form */
    usc_capture_counts n;
    usc_capture_count(h.c, &n);
    assert_int_equal(n.n_repeated, 2);
    assert_int_equal(n.n_unobserved, 0);
    usc_trace *t = host_finish(&h);
    const usc_call_arg read = host_arg(t, 2, 0);
    float found = 0;
    assert_int_equal(usc_trace_read_blob(t, read.blob, 0, sizeof found, &found, NULL),
                     USC_OK);
    assert_true(found > 10.5F && found < 11.5F);
    host_stop(&h, t);
}

static void test_a_call_beyond_the_room_is_counted_and_the_next_is_taken(void **state)
{
    (void)state;
    host h;
    float a[N], b[4 * N];
    fill(a, N, 1), fill(b, 4 * N, 0);
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    host_prepare(&h);
    h.options.most_bytes = 2 * sizeof a;
    host_open(&h);
    assert_int_equal(host_use(&h, host_whole(&h, &sb)), 0);
    assert_int_equal(host_use(&h, host_whole(&h, &sa)), 1);
    assert_int_equal(host_use(&h, host_whole(&h, &sa)), 2); /* it is there already */
    usc_capture_counts n;
    usc_capture_count(h.c, &n);
    assert_int_equal(n.n_left, 1);
    host_stop(&h, host_finish(&h));
}

static void test_a_call_that_was_refused_is_the_first_of_the_next_session(void **state)
{
    (void)state;
    for (int pass = 0; pass < 3; pass++) {
        host h;
        float a[N], b[N], d[N];
        fill(a, N, 1), fill(b, N, 2), fill(d, N, 3);
        host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b),
                     sd = host_memory(d, sizeof d);
        host_prepare(&h);
        h.options.most_bytes = sizeof a;
        h.options.pass_first = pass;
        host_open(&h);
        assert_int_equal(host_use(&h, host_whole(&h, &sa)), pass == 0);
        assert_int_equal(host_use(&h, host_whole(&h, &sb)), pass == 1);
        assert_int_equal(host_use(&h, host_whole(&h, &sd)), pass == 2);
        usc_capture_counts n;
        usc_capture_count(h.c, &n);
        assert_int_equal(n.n_left, 2);
        assert_int_equal(n.first_refused, pass < 2 ? pass + 2 : 0);
        usc_capture_step_begin(h.c, 1); /* passes none over */
        assert_int_equal(host_use(&h, host_whole(&h, pass == 0   ? &sa
                                                     : pass == 1 ? &sb
                                                                 : &sd)),
                         2);
        host_stop(&h, host_finish(&h));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_call_that_was_refused_is_the_first_of_the_next_session),
        cmocka_unit_test(test_one_call_of_a_signature_in_each_step),
        cmocka_unit_test(test_what_a_repeated_call_writes_is_taken_anew),
        cmocka_unit_test(test_a_call_beyond_the_room_is_counted_and_the_next_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
