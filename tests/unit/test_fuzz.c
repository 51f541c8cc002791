// SPDX-License-Identifier: Apache-2.0
// Random calls: case k of seed S is the same everywhere, what is drawn can be run, and
// hard sizes, layouts and values come up.
#include <ulpscope/x/fuzz.h>

// cmocka wants these in front of it
#include <setjmp.h>
#include <stdarg.h>
// and then itself
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/line.h"

enum { N_TENSORS = 3, N_CASES = 3000, ROOM = 1 << 16 };

/* A matrix product with a bias, as an example: [4, 6] x [6, 5] + [5]. */
static void product(usc_fuzz_tensor t[N_TENSORS])
{
    const int64_t sizes[N_TENSORS][2] = {{5, 0}, {4, 6}, {6, 5}};
    for (int i = 0; i < N_TENSORS; i++) {
        t[i] = (usc_fuzz_tensor){.dtype = USC_F32, .ndim = i == 0 ? 1 : 2, .storage = i};
        memcpy(t[i].sizes, sizes[i], sizeof sizes[i]);
        t[i].strides[0] = i == 0 ? 1 : sizes[i][1];
        t[i].strides[1] = 1;
    }
}

static usc_status draw(uint64_t number, int attempt, const usc_fuzz_tensor *example,
                       int n, usc_fuzz_tensor *out, usc_fuzz_recipe *recipe)
{
    const usc_fuzz_case which = {.seed = 7, .number = number, .attempt = attempt};
    return usc_fuzz_draw(&which, example, n, out, recipe, NULL);
}

static size_t fill(uint64_t number, int i, const usc_fuzz_tensor *t, usc_stress kind,
                   unsigned char *out)
{
    const usc_fuzz_case which = {.seed = 7, .number = number};
    const usc_stress_domain domain = {.lowest = -3, .highest = 12};
    const size_t size = (size_t)t->room * usc_dtype_info_of(t->dtype)->size;
    usc_error err = {0};
    assert_true(size <= 8 * ROOM);
    if (usc_fuzz_fill(&which, i, t, kind, &domain, out, size, &err) != USC_OK)
        fail_msg("%s", err.text);
    return size;
}

/* All that a case is, as one number. */
static uint64_t hash_of_case(uint64_t number, unsigned char *room)
{
    usc_fuzz_tensor example[N_TENSORS], t[N_TENSORS];
    usc_fuzz_recipe r;
    usc_line text = {0};
    product(example);
    assert_int_equal(draw(number, 0, example, N_TENSORS, t, &r), USC_OK);
    usc_line_add(&text, "%d %d %d %lld %d", (int)r.kind, (int)r.to, (int)r.numbers,
                 (long long)r.count, r.which);
    uint64_t hash = 0;
    for (int i = 0; i < N_TENSORS; i++) {
        usc_line_add(&text, " %lld+%lld in %lld", (long long)t[i].offset,
                     (long long)t[i].room, (long long)t[i].storage);
        for (int axis = 0; axis < t[i].ndim; axis++)
            usc_line_add(&text, " %lld:%lld", (long long)t[i].sizes[axis],
                         (long long)t[i].strides[axis]);
        hash = hash * 31 + usc_hash_bytes(room, fill(number, i, &t[i], r.kind, room)).low;
    }
    hash = hash * 31 + usc_hash_bytes(text.text, text.n).low;
    usc_line_free(&text);
    return hash;
}

/* Changes only together with USC_FUZZ_VERSION. */
static void test_cases_of_a_seed_are_these(void **state)
{
    (void)state;
    static unsigned char room[8 * ROOM];
    uint64_t hash = 0;
    for (uint64_t k = 0; k < 500; k++)
        hash = hash * 31 + hash_of_case(k, room);
    assert_int_equal(USC_FUZZ_VERSION, 3);
    assert_true(hash == UINT64_C(0x9e4c15af3a06ea3d));
}

static void *hash_backwards(void *out)
{
    unsigned char *room = malloc(8 * ROOM);
    for (uint64_t k = 200; room != NULL && k-- > 0;)
        ((uint64_t *)out)[k] = hash_of_case(k, room);
    free(room);
    return NULL;
}

static void test_threads_and_order_change_nothing(void **state)
{
    (void)state;
    static uint64_t of[4][200];
    static unsigned char room[8 * ROOM];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, hash_backwards, of[i]), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (uint64_t k = 0; k < 200; k++)
        for (int i = 0; i < 4; i++)
            assert_true(of[i][k] == hash_of_case(k, room));
}

static int64_t end_of(const usc_fuzz_tensor *t)
{
    int64_t end = t->offset + 1;
    for (int axis = 0; axis < t->ndim; axis++)
        end += t->sizes[axis] > 0 ? (t->sizes[axis] - 1) * t->strides[axis] : 0;
    return end;
}

static void test_what_is_drawn_fits_together(void **state)
{
    (void)state;
    usc_fuzz_tensor example[N_TENSORS], t[N_TENSORS];
    usc_fuzz_recipe r;
    int n_empty = 0, n_expanded = 0, n_offset = 0, n_strided = 0, n_tile = 0, n_typed = 0;
    int n_kind[USC_N_STRESS] = {0};
    product(example);
    for (uint64_t k = 0; k < N_CASES; k++) {
        assert_int_equal(draw(k, (int)(k % 2), example, N_TENSORS, t, &r), USC_OK);
        assert_true(t[1].sizes[1] == t[2].sizes[0] && t[2].sizes[1] == t[0].sizes[0]);
        for (int i = 0; i < N_TENSORS; i++) {
            int64_t n = 1;
            for (int axis = 0; axis < t[i].ndim; axis++)
                n *= t[i].sizes[axis];
            assert_true(n <= USC_FUZZ_ELEMENTS && end_of(&t[i]) <= t[i].room);
            assert_true(t[i].dtype == r.to && r.from == USC_F32);
            n_empty += n == 0;
            n_offset += t[i].offset > 0;
        }
        n_expanded += t[1].strides[0] == 0 || t[1].strides[1] == 0;
        n_strided += t[1].strides[1] > 1;
        n_tile += t[1].sizes[1] == 129 || t[1].sizes[1] == 33;
        n_typed += r.to != r.from;
        n_kind[r.kind]++;
    }
    assert_true(n_empty > 50 && n_expanded > 50 && n_offset > 300 && n_strided > 200);
    assert_true(n_tile > 40 && n_typed > 300);
    for (int k = 0; k < USC_N_STRESS; k++)
        assert_true(k == USC_STRESS_INDEX ? n_kind[k] == 0 : n_kind[k] > 40);
}

static void test_counts_are_drawn_at_times(void **state)
{
    (void)state;
    int n_drawn[2] = {0};
    for (int attempt = 0; attempt < USC_FUZZ_ATTEMPTS; attempt++)
        for (uint64_t k = 0; k < 1000; k++) {
            usc_fuzz_tensor example[N_TENSORS], t[N_TENSORS];
            usc_fuzz_recipe r;
            product(example);
            assert_int_equal(draw(k, attempt, example, N_TENSORS, t, &r), USC_OK);
            assert_true(r.count >= 0 && r.count <= 257 && r.which >= 0);
            n_drawn[attempt >= 2] += r.count > 0;
        }
    assert_in_range(n_drawn[0], 350, 600); /* a quarter of two attempts */
    assert_int_equal(n_drawn[1], 0);
}

static void test_the_last_attempt_is_the_example(void **state)
{
    (void)state;
    usc_fuzz_tensor example[N_TENSORS], t[N_TENSORS];
    usc_fuzz_recipe r;
    product(example);
    for (uint64_t k = 0; k < 300; k++) {
        assert_int_equal(draw(k, USC_FUZZ_ATTEMPTS - 1, example, N_TENSORS, t, &r),
                         USC_OK);
        for (int i = 0; i < N_TENSORS; i++) {
            assert_memory_equal(t[i].sizes, example[i].sizes, sizeof t[i].sizes);
            assert_memory_equal(t[i].strides, example[i].strides, sizeof t[i].strides);
            assert_true(t[i].dtype == USC_F32 && t[i].offset == 0);
        }
        assert_int_equal(r.kind, USC_STRESS_NORMAL);
    }
}

/* Steps of a number change what is drawn without them, and that stays what it was. */
static void test_steps_lead_away_from_a_draw(void **state)
{
    (void)state;
    usc_fuzz_tensor example[N_TENSORS], plain[N_TENSORS], t[N_TENSORS];
    usc_fuzz_recipe r, was;
    int n_sizes = 0, n_kind = 0, n_placed = 0, n_typed = 0;
    product(example);
    for (uint64_t k = 0; k < 100; k++) {
        assert_int_equal(draw(k, 0, example, N_TENSORS, plain, &was), USC_OK);
        for (int j = 0; j < USC_FUZZ_STEPS; j++) {
            const uint64_t step = UINT64_C(1) << (USC_FUZZ_STEP_BIT + j);
            assert_int_equal(draw(k | step, 0, example, N_TENSORS, t, &r), USC_OK);
            assert_true(t[1].sizes[1] == t[2].sizes[0] && t[2].sizes[1] == t[0].sizes[0]);
            assert_true(t[1].sizes[0] * t[1].sizes[1] <= USC_FUZZ_STEP_ELEMENTS);
            const int sized = memcmp(r.new_size, was.new_size, sizeof r.new_size) != 0;
            const int kind = r.kind != was.kind, typed = r.to != was.to;
            assert_true(sized + kind + typed <= 1);
            n_sizes += sized;
            n_kind += kind;
            n_typed += typed;
            n_placed += sized + kind + typed == 0 && memcmp(t, plain, sizeof t) != 0;
        }
        for (int64_t n = 1; n < 5; n++) {
            const uint64_t far = k | UINT64_C(0x5a5) << USC_FUZZ_STEP_BIT;
            assert_int_equal(usc_fuzz_operator(7, k, n), usc_fuzz_operator(7, far, n));
            assert_int_equal(usc_fuzz_example(7, k, n), usc_fuzz_example(7, far, n));
        }
    }
    assert_true(n_sizes > 100 && n_kind > 100 && n_typed > 100 && n_placed > 100);
}

static void test_memory_is_shared_as_it_was(void **state)
{
    (void)state;
    usc_fuzz_tensor example[N_TENSORS], t[N_TENSORS];
    usc_fuzz_recipe r;
    int n_shared = 0;
    product(example);
    example[1].storage = example[2].storage = 1; /* two windows of one storage */
    example[1].written = true;
    for (uint64_t k = 0; k < N_CASES; k++) {
        assert_int_equal(draw(k, 0, example, N_TENSORS, t, &r), USC_OK);
        for (int i = 1; i < N_TENSORS; i++) {
            assert_memory_equal(t[i].sizes, example[i].sizes, sizeof t[i].sizes);
            assert_true(t[i].storage == 1 && t[i].room == 30 && t[i].dtype == USC_F32);
        }
        assert_int_equal(t[0].sizes[0], 5); /* a size of the windows */
    }
    product(example);
    memcpy(example[2].sizes, example[1].sizes, sizeof example[1].sizes);
    memcpy(example[2].strides, example[1].strides, sizeof example[1].strides);
    for (uint64_t k = 0; k < N_CASES; k++) {
        example[1].written = k % 2 == 0;
        assert_int_equal(draw(k, 0, example, N_TENSORS, t, &r), USC_OK);
        const bool shares = t[1].storage == t[2].storage;
        assert_false(shares && example[1].written);
        n_shared += shares;
        for (int axis = 0; axis < 2 && example[1].written;
             axis++) /* places of their own */
            assert_true(t[1].strides[axis] > 0 || t[1].sizes[axis] <= 1);
    }
    assert_true(n_shared > 30);
}

static void test_storages_hold_values_and_canaries(void **state)
{
    (void)state;
    static unsigned char room[8 * ROOM];
    for (usc_dtype dtype = USC_F64; dtype < USC_N_DTYPES; dtype++) {
        const usc_dtype_info *info = usc_dtype_info_of(dtype);
        const bool is_float = info->kind == USC_KIND_FLOAT;
        const usc_fuzz_tensor t = {.dtype = dtype,
                                   .ndim = 2,
                                   .sizes = {3, 40},
                                   .strides = {90, 2},
                                   .offset = 5,
                                   .room = 300};
        (void)fill(3, 0, &t, is_float ? USC_STRESS_TIES : USC_STRESS_MASK, room);
        double value[300];
        usc_dtype_widen(dtype, room, value, 300);
        for (int i = 0; i < 300; i++) {
            const int at = i - 5;
            const bool inside = at >= 0 && at / 90 < 3 && at % 90 < 80 && at % 2 == 0;
            if (is_float)
                assert_true(inside == !isnan(value[i]));
            else
                assert_true(inside ? value[i] >= 0 && value[i] <= 1 : value[i] >= 1);
        }
    }
    const usc_fuzz_tensor labels = {
        .dtype = USC_I64, .ndim = 1, .sizes = {200}, .strides = {1}, .room = 200};
    (void)fill(3, 1, &labels, USC_STRESS_INDEX, room);
    for (int i = 0; i < 200; i++)
        assert_in_range(((int64_t *)(void *)room)[i] + 3, 0, 15);
}

static void test_a_definite_matrix_is_one(void **state)
{
    (void)state;
    static double x[32 * 32];
    const usc_fuzz_tensor t = {.dtype = USC_F64,
                               .ndim = 2,
                               .sizes = {32, 32},
                               .strides = {32, 1},
                               .room = 32 * 32};
    (void)fill(1, 0, &t, USC_STRESS_DEFINITE, (unsigned char *)x);
    for (int r = 0; r < 32; r++) /* Cholesky: every pivot is positive */
        for (int c = 0; c <= r; c++) {
            assert_true(c == r || x[r * 32 + c] == x[c * 32 + r]);
            double sum = x[r * 32 + c];
            for (int k = 0; k < c; k++)
                sum -= x[r * 32 + k] * x[c * 32 + k];
            assert_true(r != c || sum > 0);
            x[r * 32 + c] = r == c ? sqrt(sum) : sum / x[c * 32 + c];
        }
}

static void test_every_operator_has_its_turn(void **state)
{
    (void)state;
    enum { N = 37 };
    int n_moved = 0;
    for (uint64_t round = 0; round < 20; round++) {
        bool seen[N] = {false};
        for (uint64_t i = 0; i < N; i++) {
            const int64_t op = usc_fuzz_operator(5, round * N + i, N);
            assert_true(op >= 0 && op < N && !seen[op]);
            seen[op] = true;
            n_moved += op != usc_fuzz_operator(6, round * N + i, N);
        }
    }
    assert_true(n_moved > 500);
    for (uint64_t k = 0; k < 100; k++)
        assert_in_range(usc_fuzz_example(5, k, 3), 0, 2);
}

static void test_what_has_no_form_is_refused(void **state)
{
    (void)state;
    usc_fuzz_tensor example[N_TENSORS], t[N_TENSORS];
    usc_fuzz_recipe r;
    product(example);
    example[1].sizes[0] = -1;
    assert_int_equal(draw(0, 0, example, N_TENSORS, t, &r), USC_E_SHAPE);
    product(example);
    example[2].dtype = USC_DTYPE_NONE;
    assert_int_equal(draw(0, 0, example, N_TENSORS, t, &r), USC_E_DTYPE);
    product(example);
    example[2].storage = 1;
    example[2].dtype = USC_I32;
    assert_int_equal(draw(0, 0, example, N_TENSORS, t, &r), USC_E_ARG);
    product(example);
    example[1].sizes[0] = example[1].sizes[1] = INT32_MAX; /* never grows */
    assert_int_equal(draw(0, 0, example, N_TENSORS, t, &r), USC_OK);
    assert_int_equal(draw(0, 0, NULL, 0, t, &r), USC_OK); /* arange() has none */
    const usc_fuzz_case which = {.seed = 1};
    const usc_stress_domain domain = {0};
    unsigned char few[8];
    product(example);
    example[0].room = 5;
    assert_int_equal(
        usc_fuzz_fill(&which, 0, &example[0], USC_STRESS_TIES, &domain, few, 8, NULL),
        USC_E_ARG);
    assert_int_equal(
        usc_fuzz_fill(&which, 0, &example[0], USC_STRESS_INDEX, &domain, few, 8, NULL),
        USC_E_DTYPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases_of_a_seed_are_these),
        cmocka_unit_test(test_threads_and_order_change_nothing),
        cmocka_unit_test(test_what_is_drawn_fits_together),
        cmocka_unit_test(test_counts_are_drawn_at_times),
        cmocka_unit_test(test_the_last_attempt_is_the_example),
        cmocka_unit_test(test_steps_lead_away_from_a_draw),
        cmocka_unit_test(test_memory_is_shared_as_it_was),
        cmocka_unit_test(test_storages_hold_values_and_canaries),
        cmocka_unit_test(test_a_definite_matrix_is_one),
        cmocka_unit_test(test_every_operator_has_its_turn),
        cmocka_unit_test(test_what_has_no_form_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
