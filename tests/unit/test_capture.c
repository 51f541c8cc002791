// SPDX-License-Identifier: Apache-2.0
// What a capture session records: generations, views, writes that nobody announced,
// storages that die. A host without torch plays the program; see capture_host.h.
#include "capture_fill.h"

#include "capture_host.h"

#include <math.h>

static void test_bytes_come_back(void **state)
{
    (void)state;
    host h;
    float a[N], b[N];
    fill(a, N, 1), fill(b, N, 100);
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    host_start(&h);
    const int64_t call = host_call(&h, host_whole(&h, &sa), host_whole(&h, &sb));
    assert_int_equal(call, 1);
    usc_trace *t = host_finish(&h);

    usc_call read;
    assert_int_equal(usc_trace_read_call(t, call, &read, NULL), USC_OK);
    assert_string_equal(read.op, "test::op");
    assert_string_equal(read.status, "ok");
    assert_int_equal(read.n_args, 2);
    assert_string_equal(read.arg[0].path, "args[0]");
    assert_string_equal(read.arg[1].path, "out[0]");
    assert_int_equal(read.arg[0].writer, 0);
    assert_int_equal(read.arg[1].writer, call);
    assert_int_equal(read.arg[0].sizes[0], N);
    assert_non_null(read.arg[0].stats);
    const usc_call_arg in = read.arg[0], out = read.arg[1];
    host_assert_bytes(t, &in, a, sizeof a);
    host_assert_bytes(t, &out, b, sizeof b);
    host_stop(&h, t);
    assert_int_equal(sa.n_holds, 0);
    assert_int_equal(sb.n_holds, 0);
}

static void test_paths_name_lists_and_keywords(void **state)
{
    (void)state;
    host h;
    float a[N] = {0};
    host_storage s = host_memory(a, sizeof a);
    host_start(&h);
    usc_capture_tensor in[3] = {host_whole(&h, &s), host_whole(&h, &s),
                                host_whole(&h, &s)};
    in[0].i_arg = 2, in[0].i_item = 1;
    in[1].keyword = "out";
    in[2].keyword = "xs", in[2].i_item = 0;
    host_begin(&h, in, 3);
    usc_trace *t = host_finish(&h);
    assert_string_equal(host_arg(t, 1, 0).path, "args[2][1]");
    assert_string_equal(host_arg(t, 1, 1).path, "kwargs.out");
    assert_string_equal(host_arg(t, 1, 2).path, "kwargs.xs[0]");
    host_stop(&h, t);
}

static void test_a_write_makes_a_generation(void **state)
{
    (void)state;
    host h;
    float a[N], before[N];
    fill(a, N, 0);
    memcpy(before, a, sizeof a);
    host_storage s = host_memory(a, sizeof a);
    host_start(&h);
    usc_capture_tensor in = host_whole(&h, &s);
    in.written = true;
    const int64_t call = host_begin(&h, &in, 1);
    fill(a, N, 50);
    const usc_capture_tensor after[2] = {host_role(in, USC_ROLE_OUT),
                                         host_role(in, USC_ROLE_MUTATED)};
    usc_capture_end(h.c, call, after, 2, true);
    const int64_t later = host_use(&h, in);
    usc_trace *t = host_finish(&h);

    const usc_call_arg first = host_arg(t, call, 0), out = host_arg(t, call, 1),
                       mutated = host_arg(t, call, 2), next = host_arg(t, later, 0);
    assert_int_equal(first.generation, 0);
    assert_int_equal(mutated.generation, 1);
    assert_int_equal(mutated.role, USC_ROLE_MUTATED);
    assert_int_equal(mutated.writer, call);
    assert_int_equal(out.version, mutated.version);
    assert_int_equal(next.version, mutated.version);
    assert_int_equal(first.storage, mutated.storage);
    host_assert_bytes(t, &first, before, sizeof before);
    host_assert_bytes(t, &mutated, a, sizeof a);
    host_stop(&h, t);
}

static void test_views_share_a_version(void **state)
{
    (void)state;
    host h;
    float a[N];
    fill(a, N, 0);
    host_storage s = host_memory(a, sizeof a);
    host_start(&h);
    const int64_t call = host_call(&h, host_whole(&h, &s), host_vector(&h, &s, 4, 8));
    usc_capture_counts counts;
    usc_capture_count(h.c, &counts);
    assert_int_equal(counts.bytes_copied, sizeof a);
    assert_int_equal(counts.n_tensors, 2);
    usc_trace *t = host_finish(&h);
    const usc_call_arg whole = host_arg(t, call, 0), view = host_arg(t, call, 1);
    assert_int_equal(whole.version, view.version);
    assert_int_not_equal(whole.tensor, view.tensor);
    assert_int_equal(view.offset, 4);
    assert_int_equal(view.writer, 0);
    host_stop(&h, t);
}

static void test_equal_bytes_share_a_blob_only(void **state)
{
    (void)state;
    host h;
    float a[N] = {0}, b[N] = {0};
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    host_start(&h);
    const int64_t call = host_call(&h, host_whole(&h, &sa), host_whole(&h, &sb));
    usc_trace *t = host_finish(&h);
    const usc_call_arg in = host_arg(t, call, 0), out = host_arg(t, call, 1);
    assert_int_equal(in.blob, out.blob);
    assert_int_not_equal(in.storage, out.storage);
    host_stop(&h, t);
}

static void test_an_unobserved_write_is_noticed(void **state)
{
    (void)state;
    host h;
    float a[N];
    fill(a, N, 0);
    host_storage s = host_memory(a, sizeof a);
    host_start(&h);
    const int64_t before = host_use(&h, host_whole(&h, &s));
    const int64_t same = host_use(&h, host_whole(&h, &s));
    a[7] = -1;
    const int64_t after = host_use(&h, host_vector(&h, &s, 4, 8));
    usc_capture_counts counts;
    usc_capture_count(h.c, &counts);
    assert_int_equal(counts.n_unobserved, 1);
    usc_trace *t = host_finish(&h);
    const usc_call_arg first = host_arg(t, before, 0), second = host_arg(t, same, 0),
                       third = host_arg(t, after, 0);
    assert_int_equal(first.version, second.version);
    assert_int_equal(third.generation, 1);
    assert_int_equal(third.writer, 0);
    host_assert_bytes(t, &third, a, sizeof a);
    usc_trace_close(t);
    char text[200];
    host_query(&h, "SELECT text FROM note WHERE kind = 'unobserved-write' AND call = 3",
               text, sizeof text);
    assert_string_equal(text, "unobserved write between calls 2 and 3 to storage 1");
    host_stop(&h, NULL);
}

/* Each call is promised the bytes that its views can reach, no others. */
static void test_a_view_is_checked_where_it_reaches(void **state)
{
    (void)state;
    host h;
    const int64_t size = 1 << 20;
    float *a = calloc(1, (size_t)size);
    host_storage s = host_memory(a, size);
    host_start(&h);
    host_use(&h, host_whole(&h, &s));
    a[size / 4 - 1] = 1;
    const int64_t front = host_use(&h, host_vector(&h, &s, 0, 64));
    const int64_t back = host_use(&h, host_vector(&h, &s, size / 4 - 64, 64));
    usc_trace *t = host_finish(&h);
    assert_int_equal(host_arg(t, front, 0).generation, 0);
    const usc_call_arg last = host_arg(t, back, 0);
    assert_int_equal(last.generation, 1);
    host_assert_bytes(t, &last, a, size);
    host_stop(&h, t);
    free(a);
}

static void test_a_dead_address_is_another_storage(void **state)
{
    (void)state;
    host h;
    float a[N];
    fill(a, N, 0);
    host_storage s = host_memory(a, sizeof a);
    host_start(&h);
    const int64_t before = host_use(&h, host_whole(&h, &s));
    s.dead = true;
    usc_capture_tensor reused = host_whole(&h, &s);
    const int64_t during =
        host_begin(&h, &reused, 1); /* dead when found, then held anew */
    s.dead = false;
    const int64_t after = host_use(&h, host_whole(&h, &s));
    assert_int_equal(s.n_holds, 1);
    usc_trace *t = host_finish(&h);
    assert_int_equal(host_arg(t, before, 0).storage, 1);
    assert_int_equal(host_arg(t, during, 0).storage, 2);
    assert_int_equal(host_arg(t, after, 0).storage, 2);
    assert_int_equal(s.n_holds, 0);
    host_stop(&h, t);
}

static void test_dead_storages_are_let_go(void **state)
{
    (void)state;
    enum { n_storages = 5000 };
    host h;
    float a[N] = {0};
    host_storage *s = calloc(n_storages, sizeof *s);
    int held = 0;
    host_start(&h);
    for (int i = 0; i < n_storages; i++) {
        s[i] = host_memory(a, sizeof a);
        host_use(&h, host_whole(&h, &s[i]));
        s[i].dead = i % 2 == 0;
    }
    for (int i = 0; i < n_storages; i += 2)
        held += s[i].n_holds;
    assert_true(held < n_storages / 2);     /* some of the dead are released already */
    for (int i = 1; i < n_storages; i += 2) /* none of the living is forgotten */
        host_use(&h, host_whole(&h, &s[i]));
    usc_trace *t = host_finish(&h);
    for (int i = 1; i < n_storages; i += 100)
        assert_int_equal(host_arg(t, n_storages + (i + 1) / 2, 0).storage,
                         host_arg(t, i + 1, 0).storage);
    host_stop(&h, t);
    for (int i = 0; i < n_storages; i++)
        assert_int_equal(s[i].n_holds, 0);
    free(s);
}

static void test_a_new_size_is_another_storage(void **state)
{
    (void)state;
    host h;
    float a[N];
    fill(a, N, 0);
    host_storage s = host_memory(a, 0);
    host_start(&h);
    usc_capture_tensor in = host_whole(&h, &s);
    const int64_t call = host_begin(&h, &in, 1);
    s.size = sizeof a;
    const usc_capture_tensor after = host_role(host_whole(&h, &s), USC_ROLE_MUTATED);
    usc_capture_end(h.c, call, &after, 1, true);
    usc_trace *t = host_finish(&h);
    const usc_call_arg empty = host_arg(t, call, 0), full = host_arg(t, call, 1);
    assert_int_equal(empty.storage_bytes, 0);
    host_assert_bytes(t, &empty, NULL, 0);
    assert_int_equal(full.storage_bytes, sizeof a);
    assert_int_equal(full.writer, call);
    host_assert_bytes(t, &full, a, sizeof a);
    host_stop(&h, t);
}

/* A composite call's writes were its children's: taken once. */
static void test_a_parent_adds_no_generation(void **state)
{
    (void)state;
    host h;
    float a[N] = {0};
    host_storage s = host_memory(a, sizeof a);
    host_start(&h);
    const usc_capture_tensor in = host_whole(&h, &s);
    const usc_capture_tensor after = host_role(in, USC_ROLE_MUTATED);
    const int64_t parent = host_begin(&h, &in, 1), child = host_begin(&h, &in, 1);
    a[0] = 1;
    usc_capture_end(h.c, child, &after, 1, true);
    usc_capture_end(h.c, parent, &after, 1, true);
    usc_trace *t = host_finish(&h);
    assert_int_equal(host_arg(t, parent, 1).version, host_arg(t, child, 1).version);
    assert_int_equal(host_arg(t, parent, 1).writer, child);
    host_stop(&h, t);
}

static void test_a_result_that_was_there_may_have_changed(void **state)
{
    (void)state;
    host h;
    float a[N] = {0}, buffer[N] = {0};
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(buffer, sizeof buffer);
    host_start(&h);
    host_use(&h, host_whole(&h, &sb));
    const usc_capture_tensor in = host_whole(&h, &sa);
    const int64_t call = host_begin(&h, &in, 1);
    buffer[0] = 3;
    const usc_capture_tensor out = host_role(host_whole(&h, &sb), USC_ROLE_OUT);
    usc_capture_end(h.c, call, &out, 1, true);
    usc_trace *t = host_finish(&h);
    const usc_call_arg got = host_arg(t, call, 1);
    assert_int_equal(got.generation, 1);
    assert_int_equal(got.writer, call);
    host_assert_bytes(t, &got, buffer, sizeof buffer);
    host_stop(&h, t);
}

static void test_tensors_without_storage_are_rows_only(void **state)
{
    (void)state;
    host h;
    host_start(&h);
    usc_capture_tensor meta = {.view = {.ndim = 2, .sizes = {3, 4}, .strides = {4, 1}},
                               .dtype_name = "complex64",
                               .device = "meta",
                               .i_item = -1};
    const int64_t call = host_begin(&h, &meta, 1);
    usc_trace *t = host_finish(&h);
    const usc_call_arg arg = host_arg(t, call, 0);
    assert_int_equal(arg.blob, 0);
    assert_string_equal(arg.dtype_name, "complex64");
    assert_int_equal(arg.sizes[1], 4);
    host_stop(&h, t);
}

static void test_statistics_instead_of_bytes(void **state)
{
    (void)state;
    host h;
    float a[N], b[2 * N];
    fill(a, N, 1), fill(b, 2 * N, 0);
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    host_prepare(&h);
    h.options.stats_only = true;
    host_open(&h);
    const int64_t first = host_call(&h, host_whole(&h, &sa), host_whole(&h, &sb));
    a[3] = NAN;
    const int64_t second = host_call(&h, host_whole(&h, &sa), host_vector(&h, &sb, 4, 2));
    usc_trace *t = host_finish(&h);
    usc_call_arg arg = host_arg(t, first, 0);
    assert_int_equal(arg.blob, 0);
    assert_non_null(strstr(arg.stats, "\"max\""));
    assert_non_null(strstr(arg.stats, "16"));
    arg = host_arg(t, second, 0);
    assert_int_equal(arg.generation, 1);
    arg = host_arg(t, second, 1);
    assert_int_equal(arg.generation, 0);
    assert_non_null(arg.stats);
    host_stop(&h, t);
}

/* Number of arguments that a call is said to have written, of two that the schema calls
 * read-only: `write` of them it wrote, or another call meanwhile. */
static int n_strays(float *write, bool other)
{
    host h;
    float a[N], b[N];
    fill(a, N, 1), fill(b, N, 2);
    host_storage sa = host_memory(a, sizeof a), sb = host_memory(b, sizeof b);
    host_prepare(&h);
    host_open(&h);
    usc_capture_tensor in[2] = {host_whole(&h, &sa), host_whole(&h, &sb)};
    in[1].i_arg = 1;
    const int64_t call = host_begin(&h, in, 2);
    if (write != NULL) a[3] = *write;
    if (other) {
        const usc_capture_tensor out = host_role(in[0], USC_ROLE_MUTATED);
        usc_capture_end(h.c, host_begin(&h, in, 1), &out, 1, true);
    }
    for (int i = 0; i < 2; i++) {
        in[i].role = USC_ROLE_MUTATED;
        in[i].maybe = USC_MAYBE_STRAY;
    }
    usc_capture_end(h.c, call, in, 2, true);
    usc_trace *t = host_finish(&h);
    usc_call row;
    usc_error err = {0};
    if (usc_trace_read_call(t, call, &row, &err) != USC_OK) fail_msg("%s", err.text);
    int n = 0;
    for (int i = 0; i < row.n_args; i++)
        n += row.arg[i].role == USC_ROLE_MUTATED;
    if (n > 0) host_assert_bytes(t, &row.arg[2], a, sizeof a);
    host_stop(&h, t);
    return n;
}

static void test_an_argument_written_against_the_schema_has_a_row(void **state)
{
    (void)state;
    float value = 7;
    assert_int_equal(n_strays(NULL, false), 0);
    assert_int_equal(n_strays(&value, false), 1);
    assert_int_equal(n_strays(&value, true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_come_back),
        cmocka_unit_test(test_an_argument_written_against_the_schema_has_a_row),
        cmocka_unit_test(test_paths_name_lists_and_keywords),
        cmocka_unit_test(test_a_write_makes_a_generation),
        cmocka_unit_test(test_views_share_a_version),
        cmocka_unit_test(test_equal_bytes_share_a_blob_only),
        cmocka_unit_test(test_an_unobserved_write_is_noticed),
        cmocka_unit_test(test_a_view_is_checked_where_it_reaches),
        cmocka_unit_test(test_a_dead_address_is_another_storage),
        cmocka_unit_test(test_dead_storages_are_let_go),
        cmocka_unit_test(test_a_new_size_is_another_storage),
        cmocka_unit_test(test_a_parent_adds_no_generation),
        cmocka_unit_test(test_a_result_that_was_there_may_have_changed),
        cmocka_unit_test(test_tensors_without_storage_are_rows_only),
        cmocka_unit_test(test_statistics_instead_of_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
