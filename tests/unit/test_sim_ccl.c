// SPDX-License-Identifier: Apache-2.0
// simccl: what collectives and messages give. What goes wrong: test_sim_ccl_harm.c.
#include "sim_ranks.h"

#include <math.h>
#include <stdlib.h>

/* ---- what they do ---------------------------------------------------------------- */

#define LONG 700001 /* floats: several chunks, and no whole number of them */

static float value(int who, size_t i)
{
    return (float)((i * 37 + (size_t)who * 101) % 1009) * 0.37f - 100.0f;
}

static float sum_of(int n, size_t i)
{
    float sum = value(0, i);
    for (int k = 1; k < n; k++)
        sum += value(k, i);
    return sum;
}

static usc_status reduce_long(rank *r)
{
    float *x = malloc(LONG * sizeof *x);
    EXPECT(x != NULL);
    for (size_t i = 0; i < LONG; i++)
        x[i] = value(r->options.rank, i);
    const usc_ccl_buffer b = {x, LONG * sizeof *x};
    usc_status st =
        run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_SUM, USC_F32, &b, 1, &b, 1, 0);
    for (size_t i = 0; st == USC_OK && i < LONG; i++)
        EXPECT(x[i] == sum_of(r->options.size, i));
    const int root = r->options.size - 1;
    const bool mine = r->options.rank == root;
    if (st == USC_OK)
        st = run_one(r, USC_CCL_REDUCE, USC_CCL_OP_MAX, USC_F32, &b, 1, &b, mine, root);
    for (size_t i = 0; st == USC_OK && i < LONG; i++)
        EXPECT(x[i] == sum_of(r->options.size, i));
    free(x);
    return st;
}

static void test_sums_of_many_chunks(void **state)
{
    (void)state;
    all_fine(reduce_long);
}

/* Every kind that only moves bytes; each rank gives a letter of its own. */
static usc_status move(rank *r)
{
    const int n = r->options.size, me = r->options.rank, root = n / 2;
    char one[11], each[5][11], got[5][11];
    usc_ccl_buffer from[5], to[5];
    const usc_ccl_buffer single = {one, sizeof one};
    for (int i = 0; i < n; i++) {
        memset(each[i], 'A' + 5 * me + i, sizeof each[i]);
        from[i] = (usc_ccl_buffer){each[i], sizeof each[i]};
        to[i] = (usc_ccl_buffer){got[i], sizeof got[i]};
    }
    memset(one, 'a' + me, sizeof one);
    EXPECT(run_one(r, USC_CCL_ALL_GATHER, 0, 0, &single, 1, to, (size_t)n, 0) == USC_OK);
    for (int i = 0; i < n; i++)
        EXPECT(got[i][0] == 'a' + i && got[i][10] == 'a' + i);
    memset(got, 0, sizeof got);
    EXPECT(run_one(r, USC_CCL_GATHER, 0, 0, &single, 1, to, me == root ? (size_t)n : 0,
                   root) == USC_OK);
    for (int i = 0; i < n; i++)
        EXPECT(got[i][10] == (me == root ? 'a' + i : 0));
    EXPECT(run_one(r, USC_CCL_ALL_TO_ALL, 0, 0, from, (size_t)n, to, (size_t)n, 0) ==
           USC_OK);
    for (int i = 0; i < n; i++)
        EXPECT(got[i][10] == 'A' + 5 * i + me);
    EXPECT(run_one(r, USC_CCL_SCATTER, 0, 0, from, me == root ? (size_t)n : 0, &single, 1,
                   root) == USC_OK);
    EXPECT(one[10] == 'A' + 5 * root + me);
    EXPECT(run_one(r, USC_CCL_BROADCAST, 0, 0, &single, me == root, &single, 1, root) ==
           USC_OK);
    EXPECT(one[0] == 'A' + 5 * root + root);
    return run_one(r, USC_CCL_BARRIER, 0, 0, NULL, 0, NULL, 0, 0);
}

static void test_moves(void **state)
{
    (void)state;
    all_fine(move);
}

/* Parts of sizes that differ, empty ones among them. */
static usc_status move_uneven(rank *r)
{
    const int n = r->options.size, me = r->options.rank;
    const size_t unit = 300000;
    usc_ccl_buffer from[5], to[5];
    for (int i = 0; i < n; i++) {
        from[i].size = (size_t)((me + i) % 3) * unit;
        to[i].size = (size_t)((me + i) % 3) * unit;
        from[i].at = malloc(from[i].size + 1);
        to[i].at = malloc(to[i].size + 1);
        EXPECT(from[i].at != NULL && to[i].at != NULL);
        memset(from[i].at, 'A' + 5 * me + i, from[i].size + 1);
    }
    const usc_status st =
        run_one(r, USC_CCL_ALL_TO_ALL, 0, 0, from, (size_t)n, to, (size_t)n, 0);
    for (int i = 0; i < n; i++) {
        const char *got = to[i].at;
        if (st == USC_OK && to[i].size > 0)
            EXPECT(got[0] == 'A' + 5 * i + me && got[to[i].size - 1] == 'A' + 5 * i + me);
        free(from[i].at);
        free(to[i].at);
    }
    return st;
}

static void test_parts_of_other_sizes(void **state)
{
    (void)state;
    all_fine(move_uneven);
}

/* ---- arithmetic ------------------------------------------------------------------ */

static usc_status reduce_few(rank *r)
{
    const int n = r->options.size, me = r->options.rank;
    int8_t small[3] = {(int8_t)(100 + me), -3, (int8_t)me};
    const usc_ccl_buffer s = {small, sizeof small};
    EXPECT(run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_SUM, USC_I8, &s, 1, &s, 1, 0) ==
           USC_OK);
    EXPECT(small[0] == (int8_t)(100 * n + n * (n - 1) / 2) && small[1] == -3 * n);
    int64_t longs[2] = {-me, 7};
    const usc_ccl_buffer l = {longs, sizeof longs};
    EXPECT(run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_MIN, USC_I64, &l, 1, &l, 1, 0) ==
           USC_OK);
    EXPECT(longs[0] == 1 - n && longs[1] == 7);
    bool flags[2] = {me == 0, true};
    const usc_ccl_buffer f = {flags, sizeof flags};
    EXPECT(run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_SUM, USC_BOOL, &f, 1, &f, 1, 0) ==
           USC_OK);
    EXPECT(flags[0] && flags[1]);
    /* 257 has no bfloat16: summed up in float32 and rounded once, 256 + 1 + 1 is 258. */
    uint16_t bf[2] = {me == 0 ? 0x4380 : 0x3f80, 0x3f80};
    const usc_ccl_buffer b = {bf, sizeof bf};
    EXPECT(run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_SUM, USC_BF16, &b, 1, &b, 1, 0) ==
           USC_OK);
    EXPECT(n != 3 || bf[0] == 0x4381);
    double d[2] = {me + 1.0, (double)NAN};
    const usc_ccl_buffer e = {d, sizeof d};
    EXPECT(run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_AVG, USC_F64, &e, 1, &e, 1, 0) ==
           USC_OK);
    EXPECT(d[0] == (n + 1) / 2.0 && d[1] != d[1]);
    return USC_OK;
}

static usc_status reduce_parts(rank *r)
{
    const int n = r->options.size, me = r->options.rank;
    float each[5][40], sum[40];
    usc_ccl_buffer from[5];
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < 40; k++)
            each[i][k] = value(me, 40 * (size_t)i + k);
        from[i] = (usc_ccl_buffer){each[i], sizeof each[i]};
    }
    const usc_ccl_buffer to = {sum, sizeof sum};
    const usc_status st = run_one(r, USC_CCL_REDUCE_SCATTER, USC_CCL_OP_SUM, USC_F32,
                                  from, (size_t)n, &to, 1, 0);
    for (size_t k = 0; st == USC_OK && k < 40; k++)
        EXPECT(sum[k] == sum_of(n, 40 * (size_t)me + k));
    return st;
}

static void test_arithmetic(void **state)
{
    (void)state;
    all_fine(reduce_few);
    all_fine(reduce_parts);
}

/* ---- messages -------------------------------------------------------------------- */

/* Around the circle; each receives before or behind it sends, by turns. */
static usc_status pass_on(rank *r)
{
    const int n = r->options.size, me = r->options.rank;
    const size_t size = 1000003;
    int before = (me + n - 1) % n;
    if (n == 1) return USC_OK;
    char *out = malloc(size), *in = malloc(size);
    EXPECT(out != NULL && in != NULL);
    memset(out, 'a' + me, size);
    usc_status st = USC_OK;
    for (int step = 0; step < 2 && st == USC_OK; step++)
        st = (me + step) % 2 == 0
                 ? usc_ccl_send(r->c, (me + 1) % n, 5, (usc_ccl_buffer){out, size},
                                &r->err)
                 : usc_ccl_receive(r->c, &before, 5, (usc_ccl_buffer){in, size}, &r->err);
    EXPECT(n % 2 != 0 || (in[0] == 'a' + before && in[size - 1] == 'a' + before));
    free(out);
    free(in);
    return st;
}

static usc_status ask_anybody(rank *r)
{
    char word[4] = "hi";
    const usc_ccl_buffer b = {word, sizeof word}, none = {NULL, 0};
    if (r->options.rank > 0) {
        const usc_status st = usc_ccl_send(r->c, 0, r->options.rank, b, &r->err);
        return st == USC_OK ? usc_ccl_send(r->c, 0, 0, none, &r->err) : st;
    }
    int from = -1;
    EXPECT(usc_ccl_receive(r->c, &from, 1, b, &r->err) == USC_OK && from == 1);
    EXPECT(usc_ccl_receive(r->c, &from, 0, none, &r->err) == USC_OK);
    return USC_OK;
}

static usc_status send_misfits(rank *r)
{
    char word[8] = "";
    int from = 0;
    if (r->options.rank == 0) {
        EXPECT(usc_ccl_send(r->c, 1, 3, (usc_ccl_buffer){word, 8}, &r->err) == USC_OK);
        EXPECT(usc_ccl_send(r->c, 1, 3, (usc_ccl_buffer){word, 8}, &r->err) == USC_OK);
        return usc_ccl_send(r->c, 1, 3, (usc_ccl_buffer){word, 8}, &r->err);
    }
    EXPECT(usc_ccl_receive(r->c, &from, 3, (usc_ccl_buffer){word, 4}, &r->err) ==
           USC_E_ARG);
    EXPECT(strstr(r->err.text, "rank 0 has sent 8 bytes, rank 1 receives 4") != NULL);
    EXPECT(usc_ccl_receive(r->c, &from, 4, (usc_ccl_buffer){word, 8}, &r->err) ==
           USC_E_ARG);
    EXPECT(strstr(r->err.text, "tag 3") != NULL);
    return usc_ccl_receive(r->c, &from, 3, (usc_ccl_buffer){word, 8}, &r->err);
}

static void test_messages(void **state)
{
    (void)state;
    rank ranks[4];
    run_ranks(ranks, 4, pass_on);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ranks[i].st, USC_OK);
    two_do(ask_anybody);
    two_do(send_misfits);
}

/* Device memory is opened for the call, and closed again. */
static usc_status reduce_on_device(rank *r)
{
    float *x;
    void *block;
    EXPECT(usc_sim_malloc(0, 64, &block, &r->err) == USC_OK);
    x = block;
    EXPECT(usc_sim_open(x, USC_SIM_WRITE, &r->err) == USC_OK);
    for (int i = 0; i < 16; i++)
        x[i] = (float)(i + r->options.rank);
    usc_sim_close(x, USC_SIM_WRITE);
    const usc_ccl_buffer b = {x, 64};
    const usc_status st =
        run_one(r, USC_CCL_ALL_REDUCE, USC_CCL_OP_SUM, USC_F32, &b, 1, &b, 1, 0);
    EXPECT(usc_sim_open(x, USC_SIM_READ, &r->err) == USC_OK);
    EXPECT(st != USC_OK || x[3] == 2 * 3 + 1);
    usc_sim_close(x, USC_SIM_READ);
    usc_sim_free(block);
    return st;
}

static void test_device_memory(void **state)
{
    (void)state;
    two_do(reduce_on_device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_many_chunks),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_parts_of_other_sizes),
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_device_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
