// SPDX-License-Identifier: Apache-2.0
// held.h: orders and gauges that outputs are brought to, and what is none.
#include <ulpscope/x/held.h>

// cmocka wants these in front of it
#include <setjmp.h>
#include <stdarg.h>
// and then itself
#include <cmocka.h>

#include <math.h>
#include <string.h>

static usc_tensor made(const void *data, usc_dtype dtype, int ndim, const int64_t *sizes)
{
    usc_tensor t;
    assert_int_equal(usc_tensor_make(&t, data, dtype, ndim, sizes, NULL), USC_OK);
    return t;
}

static usc_held_room *bring(const usc_freedom *what, usc_held *outputs, int n)
{
    usc_held_room *keep = NULL;
    assert_int_equal(usc_held_bring(what, outputs, n, NULL, &keep, NULL), USC_OK);
    return keep;
}

static void values_are_put_where_their_rank_is(void **state)
{
    (void)state;
    const float mine[] = {3, 1, 2, 5, 5, NAN}, its[] = {1, 2, 3, 5, NAN, 5};
    const int64_t at[] = {30, 10, 20, 51, 52, 0}, right[] = {10, 20, 30, 51, 0, 52};
    const int64_t sizes[] = {2, 3};
    usc_held both[] = {
        {"out[0]", made(mine, USC_F32, 2, sizes), made(its, USC_F32, 2, sizes)},
        {"out[1]", made(at, USC_I64, 2, sizes), made(right, USC_I64, 2, sizes)}};
    const usc_freedom what = {.unsorted = true, .dim = 1, .inverse = -1};
    usc_held_room *keep = bring(&what, both, 2);
    assert_memory_equal(both[1].device.data, right, sizeof right);
    assert_true(((const float *)both[0].device.data)[0] == 1);
    usc_held_free(keep);
}

static void places_among_values_are_renumbered(void **state)
{
    (void)state;
    const int64_t mine[] = {(1LL << 60) + 1, 4, 1LL << 60};
    const int64_t its[] = {4, 1LL << 60, (1LL << 60) + 1};
    int64_t slots[] = {0, 1, 2, 2}, wrong[] = {0, 1, 2, 3};
    const int64_t right[] = {2, 0, 1, 1}, three = 3, four = 4;
    const usc_freedom what = {.unsorted = true, .dim = 0, .inverse = 1};
    usc_held both[] = {
        {"out[0]", made(mine, USC_I64, 1, &three), made(its, USC_I64, 1, &three)},
        {"out[1]", made(slots, USC_I64, 1, &four), made(right, USC_I64, 1, &four)}};
    usc_held_room *keep = bring(&what, both, 2);
    assert_memory_equal(both[1].device.data, right, sizeof right);
    usc_held_free(keep);
    both[0].device.data = mine;
    both[1].device.data = wrong; /* a place that there is not: as it is */
    keep = bring(&what, both, 2);
    assert_ptr_equal(both[1].device.data, wrong);
    usc_held_free(keep);
}

/* ---- decompositions ---- */

typedef struct eigen {
    double values[3], mine[9], its[9];
    usc_held both[2];
} eigen;

/* A matrix of three values, the first two of them one; vectors are columns. */
static void make(eigen *e)
{
    const int64_t sizes[] = {3, 3};
    *e = (eigen){.values = {1, 1, 2}, .its = {1, 0, 0, 0, 1, 0, 0, 0, 1}};
    memcpy(e->mine, e->its, sizeof e->mine);
    e->both[0] = (usc_held){"out[0]", made(e->values, USC_F64, 1, sizes),
                            made(e->values, USC_F64, 1, sizes)};
    e->both[1] = (usc_held){"out[1]", made(e->mine, USC_F64, 2, sizes),
                            made(e->its, USC_F64, 2, sizes)};
}

/* How far the vectors are off once they were brought. */
static double off(eigen *e)
{
    double most = 0;
    const usc_freedom what = {.gauge = usc_gauge_by_name("linalg_eigh"),
                              .ndim = 2,
                              .fewest = 3,
                              .rounding = 0x1p-23};
    usc_held_room *keep = bring(&what, e->both, 2);
    const double *now = e->both[1].device.data;
    for (int i = 0; i < 9; i++)
        most = fmax(most, fabs(now[i] - e->its[i]));
    usc_held_free(keep);
    return most;
}

static void vectors_turn_as_their_values_let_them(void **state)
{
    (void)state;
    eigen e;
    make(&e);
    e.mine[8] = -1; /* a sign */
    assert_true(off(&e) == 0);
    make(&e);
    e.mine[0] = e.mine[4] = 0.6; /* a rotation of vectors of one value */
    e.mine[1] = -0.8;
    e.mine[3] = 0.8;
    assert_true(off(&e) < 1e-12);
    make(&e);
    e.mine[4] = e.mine[8] = 0.6; /* of vectors of two values */
    e.mine[5] = -0.8;
    e.mine[7] = 0.8;
    assert_true(off(&e) > 0.3);
}

static void what_is_no_rotation_is_not_turned(void **state)
{
    (void)state;
    const double factors[] = {sqrt(2), sqrt(0.5), 1 + 0x1p-10, 0};
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        eigen e;
        make(&e);
        e.mine[0] = e.mine[4] = 0.6 * factors[i];
        e.mine[1] = -0.8 * factors[i];
        e.mine[3] = 0.8 * factors[i];
        assert_true(off(&e) > 0.0009);
    }
    eigen e;
    make(&e);
    for (int i = 0; i < 2; i++) /* longer by the root of 2 along one direction alone */
        for (int j = 0; j < 2; j++)
            e.mine[3 * i + j] += (sqrt(2) - 1) / 2;
    assert_true(off(&e) > 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_put_where_their_rank_is),
        cmocka_unit_test(places_among_values_are_renumbered),
        cmocka_unit_test(vectors_turn_as_their_values_let_them),
        cmocka_unit_test(what_is_no_rotation_is_not_turned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
