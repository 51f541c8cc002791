// SPDX-License-Identifier: Apache-2.0
// simccl: collectives and messages between ranks, and what is said of one that does not
// come. Ranks are threads here, and processes where one has to die.
#include <ulpscope_sim/ccl.h>

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND 1000000000

/* ---- ranks ----------------------------------------------------------------------- */

typedef struct rank {
    pthread_t thread;
    usc_ccl_options options;
    usc_ccl *c;
    usc_status (*act)(struct rank *r);
    usc_status st;
    usc_error err;
} rank;

static void *be(void *its)
{
    rank *r = its;
    r->st = usc_ccl_open(&r->options, &r->c, &r->err);
    if (r->st == USC_OK) r->st = r->act(r);
    return NULL;
}

static usc_ccl_options options_of(const char *name, int i, int n)
{
    usc_ccl_options o = {.rank = i, .size = n, .timeout_ns = (int64_t)60 * SECOND};
    snprintf(o.name, sizeof o.name, "%s", name);
    return o;
}

/* All run `act`; what came of it stands in ranks[i]. */
static void run_ranks(rank *ranks, int n, usc_status (*act)(rank *))
{
    char name[USC_CCL_NAME_TEXT];
    usc_ccl_new_name(name);
    for (int i = 0; i < n; i++) {
        ranks[i] = (rank){.options = options_of(name, i, n), .act = act};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, be, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < n; i++)
        usc_ccl_close(ranks[i].c);
}

static void all_fine(usc_status (*act)(rank *))
{
    for (int n = 1; n <= 5; n++) {
        rank ranks[5];
        run_ranks(ranks, n, act);
        for (int i = 0; i < n; i++) {
            if (ranks[i].st != USC_OK) print_error("%s\n", ranks[i].err.text);
            assert_int_equal(ranks[i].st, USC_OK);
        }
    }
}

#define EXPECT(condition)                                                                \
    do {                                                                                 \
        if (!(condition))                                                                \
            return usc_error_set(&r->err, USC_E_ARG, -1, "rank %d of %d, line %d",       \
                                 r->options.rank, r->options.size, __LINE__);            \
    } while (0)

static usc_status run_one(rank *r, usc_ccl_kind kind, usc_ccl_op op, usc_dtype dtype,
                          const usc_ccl_buffer *from, size_t n_from,
                          const usc_ccl_buffer *to, size_t n_to, int root)
{
    const usc_ccl_call call = {.kind = kind,
                               .op = op,
                               .dtype = dtype,
                               .root = root,
                               .from = from,
                               .to = to,
                               .n_from = n_from,
                               .n_to = n_to};
    return usc_ccl_run(r->c, &call, &r->err);
}

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

static void two_do(usc_status (*act)(rank *))
{
    rank ranks[2];
    run_ranks(ranks, 2, act);
    for (int i = 0; i < 2; i++) {
        if (ranks[i].st != USC_OK) print_error("%s\n", ranks[i].err.text);
        assert_int_equal(ranks[i].st, USC_OK);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_many_chunks),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_parts_of_other_sizes),
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_calls_that_do_not_fit),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_a_lack_of_time),
        cmocka_unit_test(test_one_that_dies),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
