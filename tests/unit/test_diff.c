// SPDX-License-Identifier: Apache-2.0
// ulpscope/x/diff.h: pairing recovers which call is which whatever is put in or left out,
// and the distance of two tensors is what its formula says.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "diff/align.h"
#include "diff/measure.h"

/* ---- pairing ---- */

enum { MOST = 4000 };

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* A list with the truth: which call of the original each is; -1: put in. */
typedef struct list {
    usc_diff_item item[2 * MOST];
    int64_t truth[2 * MOST];
    int64_t n;
} list;

/* Calls of a model: each module runs a few operators of some kinds, the same in each. The
 * optimizer's have no module and are much alike. */
static void make_model(list *l, int64_t n, uint64_t n_kinds)
{
    l->n = n;
    for (int64_t i = 0; i < n; i++) {
        const bool late = i > n * 3 / 4;
        const uint64_t op = 1 + draw(n_kinds), shape = 1 + draw(3);
        l->item[i] = (usc_diff_item){.place = late ? 2 : 1,
                                     .op = op,
                                     .module = late ? 0 : 1 + (uint64_t)i / 8,
                                     .given = 1,
                                     .shape = shape,
                                     .dtype = 1,
                                     .output = shape,
                                     .producers = i > 0 ? l->item[i - 1].op : 0};
        l->item[i].lineage = usc_diff_mix(i > 0 ? l->item[i - 1].lineage : 0, op);
        l->truth[i] = i;
    }
}

/* Leaves out one of `every` calls and puts one in before another; from the first change
 * on all lineage is another. */
static void change(const list *from, list *to, uint64_t every)
{
    uint64_t lineage = 0;
    to->n = 0;
    for (int64_t i = 0; i < from->n; i++) {
        if (draw(every) == 0) {
            lineage = seed;
            continue;
        }
        if (draw(every) == 0) {
            to->truth[to->n] = -1;
            to->item[to->n++] = (usc_diff_item){.place = from->item[i].place,
                                                .op = 1000 + draw(5),
                                                .module = from->item[i].module,
                                                .shape = 77,
                                                .output = 78};
            lineage = seed;
        }
        to->truth[to->n] = i;
        to->item[to->n] = from->item[i];
        to->item[to->n++].lineage ^= lineage;
    }
}

/* Pairs that are true, in percent of those that there are. */
static double score(const list *a, const list *b)
{
    usc_diff_pair *pair;
    int64_t n, n_true = 0, n_there = 0;
    assert_int_equal(usc_diff_align(a->item, a->n, b->item, b->n, &pair, &n, NULL),
                     USC_OK);
    for (int64_t i = 0; i < n; i++) {
        assert_true(i == 0 || (pair[i].a > pair[i - 1].a && pair[i].b > pair[i - 1].b));
        assert_int_equal(pair[i].how,
                         usc_diff_how_of(&a->item[pair[i].a], &b->item[pair[i].b]));
        n_true += a->truth[pair[i].a] == b->truth[pair[i].b];
    }
    for (int64_t i = 0; i < b->n; i++)
        n_there += b->truth[i] >= 0;
    free(pair);
    return n_there > 0 ? 100.0 * (double)n_true / (double)n_there : 100;
}

static void test_pairing_recovers_the_truth(void **state)
{
    (void)state;
    /* A call that was left out of a run of equal ones cannot be told from its neighbours:
     * the fewer kinds and the more changes, the more of those. */
    static const struct {
        uint64_t n_kinds, every;
        double least;
    } cases[] = {{40, 1000, 99.9}, {40, 20, 99}, {40, 5, 93}, {6, 50, 97}, {2, 200, 92}};
    list *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    assert_true(a != NULL && b != NULL);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int round = 0; round < 5; round++) {
            seed = 17 * (c + 1) + (uint64_t)round;
            make_model(a, MOST, cases[c].n_kinds);
            change(a, b, cases[c].every);
            const double got = score(a, b), back = score(b, a);
            if (got < cases[c].least)
                fail_msg("case %zu, round %d: %.2f %% are true", c, round, got);
            assert_true(back > 0);
        }
    free(a);
    free(b);
}

static void test_the_same_list_is_paired_exactly(void **state)
{
    (void)state;
    list *a = malloc(sizeof *a);
    assert_non_null(a);
    for (int64_t n = 0; n < 40; n++) {
        seed = (uint64_t)n;
        make_model(a, n, 2);
        assert_true(score(a, a) >= 100);
    }
    make_model(a, MOST, 1); /* nothing in the optimizer is unique */
    assert_true(score(a, a) >= 100);
    free(a);
}

static void test_lists_of_nothing_in_common_pair_nothing(void **state)
{
    (void)state;
    list *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    usc_diff_pair *pair;
    int64_t n;
    assert_true(a != NULL && b != NULL);
    make_model(a, 2000, 20);
    make_model(b, 3000, 20);
    for (int64_t i = 0; i < b->n; i++)
        b->item[i].op += 500, b->item[i].output += 9;
    assert_int_equal(usc_diff_align(a->item, a->n, b->item, b->n, &pair, &n, NULL),
                     USC_OK);
    assert_int_equal(n, 0);
    free(pair);
    free(a);
    free(b);
}

/* One call in the place of two: the one whose result is the same is its partner. */
static void test_a_fused_call_is_paired_with_what_gives_its_result(void **state)
{
    (void)state;
    enum { MM = 1, ADD, ADDMM, GELU };
#define ITEM(o, out)                                                                     \
    {                                                                                    \
        .place = 1, .op = (o), .module = 5, .shape = 10 * (o), .output = (out)           \
    }
    const usc_diff_item a[] = {ITEM(GELU, 3), ITEM(MM, 8), ITEM(ADD, 8), ITEM(GELU, 4)};
    const usc_diff_item b[] = {ITEM(GELU, 3), ITEM(ADDMM, 8), ITEM(GELU, 4)};
    usc_diff_pair *pair;
    int64_t n;
    assert_int_equal(usc_diff_align(a, 4, b, 3, &pair, &n, NULL), USC_OK);
    assert_int_equal(n, 3);
    assert_int_equal(pair[1].a, 2);
    assert_int_equal(pair[1].how, USC_DIFF_OUTPUT);
    free(pair);
}

static void test_how_is_told_by_what_is_equal(void **state)
{
    (void)state;
    const usc_diff_item a = {.place = 1,
                             .op = 1,
                             .module = 1,
                             .given = 1,
                             .shape = 1,
                             .dtype = 1,
                             .output = 1};
    usc_diff_item b = a;
    assert_int_equal(usc_diff_how_of(&a, &b), USC_DIFF_EXACT);
    b.given = 2;
    assert_int_equal(usc_diff_how_of(&a, &b), USC_DIFF_GIVEN);
    b.dtype = 2;
    assert_int_equal(usc_diff_how_of(&a, &b), USC_DIFF_DTYPE);
    b.shape = 2;
    assert_int_equal(usc_diff_how_of(&a, &b), USC_DIFF_MODULE);
    b = a, b.module = 2;
    assert_int_equal(usc_diff_how_of(&a, &b), USC_DIFF_SHAPE);
    b = a, b.op = 2;
    assert_int_equal(usc_diff_how_of(&a, &b), USC_DIFF_OUTPUT);
    b = a, b.place = 2;
    assert_int_equal(usc_diff_how_of(&a, &b), USC_N_DIFF_HOW);
    assert_string_equal(usc_diff_how_text(USC_DIFF_EXACT), "exactly");
    assert_string_equal(usc_diff_how_text(USC_N_DIFF_HOW), "unknown");
    assert_string_equal(usc_diff_kind_text(USC_DIFF_MADE), "made");
}

/* ---- distances ---- */

enum { N = 3000 };

static usc_diff_size apart(const float *a, const float *b, int64_t n)
{
    usc_tensor ta, tb;
    usc_diff_size size;
    assert_int_equal(usc_tensor_make(&ta, a, USC_F32, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&tb, b, USC_F32, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_diff_elements(&ta, &tb, 0x1p-24, 0, &size, NULL), USC_OK);
    return size;
}

static void test_a_distance_is_what_its_formula_says(void **state)
{
    (void)state;
    float a[N], b[N];
    const int64_t sizes[] = {0, 1, 7, 8, 9, 1023, 1024, 1025, N};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        const int64_t n = sizes[k];
        double squares = 0, d2 = 0, most = 0, most_d = 0;
        int64_t n_differ = 0;
        seed = (uint64_t)n;
        for (int64_t i = 0; i < n; i++) {
            a[i] = (float)draw(1000) / 7 - 60;
            b[i] = i % 3 == 0 ? a[i] * 1.0001f : a[i];
            const double d = fabs((double)a[i] - (double)b[i]);
            squares += (double)a[i] * (double)a[i];
            d2 += d * d;
            most = fmax(most, fabs((double)a[i]));
            most_d = fmax(most_d, d);
            n_differ += d > 0;
        }
        const usc_diff_size s = apart(a, b, n);
        assert_int_equal(s.n, n);
        assert_int_equal(s.n_differ, n_differ);
        assert_int_equal(s.n_special, 0);
        if (n_differ == 0) continue;
        assert_true(fabs(s.rms / (sqrt(d2 / squares) * 0x1p24) - 1) < 1e-9);
        assert_true(fabs(s.worst / (most_d / most * 0x1p24) - 1) < 1e-9);
    }
}

static void test_nan_and_inf_count_where_they_differ(void **state)
{
    (void)state;
    float a[N], b[N];
    for (int i = 0; i < N; i++)
        a[i] = b[i] = (float)i;
    a[5] = b[5] = NAN;
    a[6] = b[6] = INFINITY;
    assert_int_equal(apart(a, b, N).n_special, 0);
    assert_int_equal(apart(a, b, N).n_differ, 0);
    b[6] = -INFINITY;
    a[2000] = NAN;
    b[2999] = INFINITY;
    const usc_diff_size s = apart(a, b, N);
    assert_int_equal(s.n_special, 3);
    assert_int_equal(s.n_differ, 3);
    assert_true(s.worst < 1e-300); /* the others are equal */
}

static void test_views_are_compared_by_their_elements(void **state)
{
    (void)state;
    float a[12], b[12];
    usc_diff_size size;
    for (int i = 0; i < 12; i++) {
        a[i] = (float)i;
        b[i % 4 * 3 + i / 4] = (float)i; /* transposed in memory */
    }
    const usc_tensor ta = {
        .data = a, .dtype = USC_F32, .ndim = 2, .sizes = {3, 4}, .strides = {4, 1}};
    const usc_tensor tb = {
        .data = b, .dtype = USC_F32, .ndim = 2, .sizes = {3, 4}, .strides = {1, 3}};
    assert_int_equal(usc_diff_elements(&ta, &tb, 0x1p-24, 0, &size, NULL), USC_OK);
    assert_int_equal(size.n, 12);
    assert_int_equal(size.n_differ, 0);
}

static void test_statistics_tell_a_distance(void **state)
{
    (void)state;
    static const char *const text =
        "{\"n\":4,\"n_nan\":%d,\"min\":-1.0,\"max\":%s,\"mean\":0.5,\"l2\":2.0}";
    char a[200], b[200];
    usc_diff_size size;
    (void)snprintf(a, sizeof a, text, 0, "2.0");
    (void)snprintf(b, sizeof b, text, 0, "2.5");
    assert_int_equal(usc_diff_statistics(a, b, 0x1p-24, 0, &size, NULL), USC_OK);
    assert_int_equal(size.basis, USC_DIFF_BY_STATISTICS);
    assert_int_equal(size.n_differ, -1);
    assert_true(fabs(size.worst - 0x1p22) < 1);
    (void)snprintf(b, sizeof b, text, 1, "2.0");
    assert_int_equal(usc_diff_statistics(a, b, 0x1p-24, 0, &size, NULL), USC_OK);
    assert_int_equal(size.n_special, 1);
    assert_int_equal(usc_diff_statistics(a, "{", 0x1p-24, 0, &size, NULL), USC_E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairing_recovers_the_truth),
        cmocka_unit_test(test_the_same_list_is_paired_exactly),
        cmocka_unit_test(test_lists_of_nothing_in_common_pair_nothing),
        cmocka_unit_test(test_a_fused_call_is_paired_with_what_gives_its_result),
        cmocka_unit_test(test_how_is_told_by_what_is_equal),
        cmocka_unit_test(test_a_distance_is_what_its_formula_says),
        cmocka_unit_test(test_nan_and_inf_count_where_they_differ),
        cmocka_unit_test(test_views_are_compared_by_their_elements),
        cmocka_unit_test(test_statistics_tell_a_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
