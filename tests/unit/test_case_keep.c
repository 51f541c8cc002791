// SPDX-License-Identifier: Apache-2.0
// A case that keeps, answered from tables: all that may be asked is answered. Every
// request for memory fails in turn: the case then says so and leaves nothing behind, or
// has kept what it keeps otherwise. Neighbours: test_case.c; against checks:
// tests/py/test_pack_wants.py.
#include "alloc_probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/case.h>

enum { ROWS = 60, COLUMNS = 50, N = ROWS * COLUMNS, RUNS = 3, TEXT = 1 << 14 };

/* The numbers that answers are made of; right ones in `wide`. */
typedef struct table {
    double wide[N], moved[N], other[N];
    float low[N];
    int64_t whole[N], runs[RUNS * N], places[2 * COLUMNS], rows[2];
    uint8_t marks[N];
    usc_tensor views[3];
    usc_choice choice;
    int turn; /* of answers that differ from each other */
} table;

static usc_tensor view(const void *data, usc_dtype dtype, int ndim, const int64_t *sizes)
{
    usc_tensor t;
    assert_int_equal(usc_tensor_make(&t, data, dtype, ndim, sizes, NULL), USC_OK);
    return t;
}

static const int64_t form[3] = {ROWS, COLUMNS};

static usc_tensor plain(const void *data, usc_dtype dtype)
{
    return view(data, dtype, 2, form);
}

static void fill(table *t)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < N; i++) {
        t->wide[i] = i == 7 ? (double)NAN : 0.1 * (i - 11);
        t->low[i] = (float)t->wide[i];
        t->other[i] = 1.5 * t->wide[i];
        t->whole[i] = i % 4;
        t->marks[i] = i % 3 == 0;
        for (int k = 0; k < RUNS; k++)
            t->runs[k * N + i] = i % 4 + (k > 0 && i == k);
    }
    for (int i = 0; i < 2 * COLUMNS; i++)
        t->places[i] = i % COLUMNS; /* both updates: the same place */
}

/* The right numbers, moved by a share of them; where `jumps` element 3 is on the other
 * side of a step. */
static void move(table *t, double by, bool jumps)
{
    t->turn++;
    for (int i = 0; i < N; i++)
        t->moved[i] = t->wide[i] * (1 + ((i + t->turn) % 2 ? by : -by));
    if (jumps) t->moved[3] = t->wide[3] + 1;
    for (int i = 0; i < N; i++)
        t->low[i] = (float)t->moved[i];
}

static usc_given one(table *t, const void *data, usc_dtype dtype)
{
    t->views[0] = plain(data, dtype);
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &t->views[0]};
}

static usc_given pair(table *t, double by)
{
    move(t, by, false);
    t->views[1] = plain(t->low, USC_F32);
    usc_given given = one(t, t->moved, USC_F64);
    given.b = &t->views[1];
    return given;
}

static usc_given steps(table *t)
{
    static const int64_t n = 2, at[2] = {3, 9};
    t->views[0] = view(at, USC_I64, 1, &n);
    t->views[1] = view(t->moved, USC_F64, 1, &n);
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &t->views[0], .b = &t->views[1]};
}

static usc_given writes(table *t, bool whole)
{
    static const int64_t sizes[2] = {2, COLUMNS}, n = 2;
    t->views[0] = view(t->places, USC_I64, 2, sizes);
    t->views[1] =
        whole ? view(t->whole, USC_I64, 2, sizes) : view(t->low, USC_F32, 2, sizes);
    t->views[2] = view(t->rows, USC_I64, 1, &n);
    return (usc_given){.form = USC_GIVEN_AS_ASKED,
                       .a = &t->views[0],
                       .b = &t->views[1],
                       .c = &t->views[2]};
}

static usc_given choice(table *t)
{
    t->views[0] = plain(t->low, USC_F32);
    t->choice = (usc_choice){.values = &t->views[0], .dim = 1, .once = true};
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .choice = &t->choice};
}

static usc_given usual(table *t)
{
    const int64_t sizes[3] = {RUNS, ROWS, COLUMNS};
    t->views[0] = view(t->runs, USC_I64, 3, sizes);
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &t->views[0]};
}

static usc_given whole_number(table *t, const usc_want *want)
{
    usc_given given;
    switch ((int)want->kind) {
    case USC_WANT_CHOICE:
        return choice(t);
    case USC_WANT_ADMISSIBLE:
    case USC_WANT_ROUNDING:
        if (want->k < RUNS) return one(t, t->runs + want->k * N, USC_I64);
        break;
    case USC_WANT_HELD:
        return one(t, t->marks, USC_BOOL);
    case USC_WANT_USUAL:
        return usual(t);
    case USC_WANT_UNWRITTEN:
        t->views[1] = plain(t->marks, USC_BOOL);
        given = one(t, t->runs + N, USC_I64);
        given.c = &t->views[1];
        return given;
    case USC_WANT_WRITES:
        return writes(t, true);
    case USC_WANT_REFERENCE:
    case USC_WANT_NATIVE:
        return one(t, t->whole, USC_I64);
    default:
        break;
    }
    return (usc_given){.form = USC_GIVEN_NONE};
}

static usc_given number(double value)
{
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .number = value, .size = 2};
}

static usc_given real_number(table *t, const usc_want *want)
{
    usc_given given;
    switch ((int)want->kind) {
    case USC_WANT_REFERENCE:
        t->views[1] = plain(t->low, USC_F32);
        given = one(t, t->wide, USC_F64);
        given.b = &t->views[1];
        return given;
    case USC_WANT_READING:
        given = want->k > 0 ? (usc_given){0} : one(t, t->other, USC_F64);
        given.text = "read otherwise";
        return given;
    case USC_WANT_DTYPE:
        return (usc_given){.form = USC_GIVEN_AS_ASKED, .text = "float32"};
    case USC_WANT_SLOPE:
    case USC_WANT_REPLAY:
        return pair(t, 0x1p-2);
    case USC_WANT_LOSS:
        if (want->k < RUNS) return pair(t, 0x1p-20);
        return (usc_given){.form = USC_GIVEN_NONE};
    case USC_WANT_PRODUCTS:
    case USC_WANT_FAN_IN:
    case USC_WANT_OVERFLOWS:
        return number(4);
    case USC_WANT_STEPS:
        return steps(t);
    case USC_WANT_WRITES:
        return writes(t, false);
    case USC_WANT_FLUSHED:
    case USC_WANT_NOISE:
    case USC_WANT_ROUNDED:
        if (want->k >= RUNS) return (usc_given){.form = USC_GIVEN_NONE};
        move(t, 0x1p-20, false);
        if (want->kind == USC_WANT_ROUNDED) t->low[7] = want->k ? INFINITY : NAN;
        return one(t, t->low, USC_F32);
    case USC_WANT_RUN:
        if (want->k >= RUNS) return (usc_given){.form = USC_GIVEN_NONE};
        move(t, 0x1p-4, false);
        return one(t, t->moved, USC_F64);
    case USC_WANT_NEAR_STEP:
    case USC_WANT_NEARER_STEP:
    case USC_WANT_PROBE:
    case USC_WANT_NEARER_PROBE:
    case USC_WANT_SETTLED_PROBE:
    case USC_WANT_NEARER_SETTLED:
    case USC_WANT_ADDED: /* a corner is one at half the jitter, too; no step is */
        move(t, 0x1p-22,
             want->kind == USC_WANT_NEAR_STEP ||
                 (want->kind != USC_WANT_NEARER_STEP && want->k % 2 == 1));
        return one(t, t->moved, USC_F64);
    default:
        return (usc_given){.form = USC_GIVEN_NONE};
    }
}

/* ---- what was kept, as text ---- */

static void say(char *out, const char *name, const usc_tensor *t)
{
    int64_t n = 0;
    uint64_t hash = 14695981039346656037u; /* FNV-1a of the bytes */
    if (t == NULL) return;
    assert_int_equal(usc_tensor_numel(t, &n, NULL), USC_OK);
    const usc_dtype_info *info = usc_dtype_info_of(t->dtype);
    const unsigned char *bytes = t->data;
    for (size_t i = 0; i < (size_t)n * info->size; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    const size_t used = strlen(out);
    assert_true((size_t)snprintf(out + used, TEXT - used, "%s %s[%lld] %016llx\n", name,
                                 info->name, (long long)n,
                                 (unsigned long long)hash) < TEXT - used);
}

static void say_kept(char *out, const usc_kept *k)
{
    const size_t used = strlen(out);
    (void)snprintf(out + used, TEXT - used, "%s %s %s %s\n", k->path,
                   k->unjudged != NULL ? k->unjudged : "judged",
                   k->dtype != NULL ? k->dtype : "-", k->note != NULL ? k->note : "-");
#define SAY(name) say(out, #name, k->of.name);
    USC_KEPT_LIST(SAY)
#undef SAY
}

/* ---- a call of three outputs ---- */

typedef struct output {
    usc_case_output o;
    usc_dtype dtype;
    usc_given (*answer)(table *t, const usc_want *want);
} output;

static const output outputs[] = {
    {{.path = "out[0]", .gradient = true, .linear = true, .keep = true, .readings = true},
     USC_F32,
     real_number},
    {{.path = "out[1]",
      .admissible = true,
      .captured = "int64",
      .keep = true,
      .readings = true},
     USC_I64,
     whole_number},
    {{.path = "out[2]", .free = true, .keep = true}, USC_F16, real_number},
};

static usc_status keep_output(usc_case *c, const output *from, usc_error *err)
{
    static const int64_t room[N];
    table t;
    usc_want want;
    usc_case_output o = from->o;
    const usc_tensor device = plain(room, from->dtype);
    fill(&t);
    o.device = &device;
    usc_status st = usc_case_begin(c, &o, err);
    while (st == USC_OK && (st = usc_case_next(c, &want, err)) == USC_OK &&
           want.kind != USC_WANT_NOTHING) {
        const usc_given given = from->answer(&t, &want);
        st = usc_case_give(c, &given, err);
    }
    return st;
}

static usc_status keep_all(const usc_alloc *alloc, char *out, usc_error *err)
{
    usc_case *c = NULL;
    const usc_case_options options = {.alloc = alloc};
    const int n = sizeof outputs / sizeof outputs[0];
    out[0] = '\0';
    usc_status st = usc_case_open(&options, &c, err);
    for (int i = 0; i < n && st == USC_OK; i++)
        st = keep_output(c, &outputs[i], err);
    for (int i = 0; i < n && st == USC_OK; i++)
        for (const usc_kept *k = usc_case_kept(c, i); k != NULL; k = k->next)
            say_kept(out, k);
    if (st == USC_OK) assert_null(usc_case_kept(c, n));
    usc_case_close(c);
    return st;
}

static void what_was_answered_is_kept(void **state)
{
    (void)state;
    static const char *const names[] = {
        "reference",  "yardstick",  "slope",     "s1",       "s4",        "n_far",
        "n_noise",    "flushed1",   "flushed3",  "kinds",    "jump_at",   "jump_values",
        "added_low",  "added_high", "run_low",   "run_high", "run_least", "choice",
        "admissible", "unpromised", "usual",     "write_at", "writes",    "write_rows",
        "near_steps", "side_low",   "side_high", "sums_low", "excepted",  "run_at",
        "run_values",
    };
    char *text = malloc(TEXT);
    usc_error err;
    if (keep_all(NULL, text, &err) != USC_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "\n%s ", names[i]);
        if (strstr(text, line) == NULL) fail_msg("no %s in\n%s", names[i], text);
    }
    const char *other = strstr(text, "out[0] judged float32 read otherwise\nreference ");
    assert_non_null(other);
    assert_non_null(strstr(other, "\nadded_low "));
    free(text);
}

/* Every n-th request fails, or all from there on. */
static void without_memory_nothing_is_kept_by_halves(void **state)
{
    (void)state;
    char *right = malloc(TEXT), *text = malloc(TEXT);
    usc_error err;
    assert_int_equal(keep_all(NULL, right, &err), USC_OK);
    for (int fail_at = 1, done = 0; done < 2; fail_at++) {
        alloc_probe probe;
        const usc_alloc *alloc = alloc_probe_bind(&probe, fail_at);
        probe.fail_after = done == 1;
        const usc_status st = keep_all(alloc, text, &err);
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (st == USC_OK) {
            assert_string_equal(text, right);
            assert_true(probe.n_requests < fail_at); /* none of them went unnoticed */
            printf("%d requests\n", fail_at - 1);
            fail_at = 0;
            done++;
        } else {
            assert_int_equal(st, USC_E_NOMEM);
            assert_non_null(strstr(err.text, "memory"));
        }
    }
    free(right);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_answered_is_kept),
        cmocka_unit_test(without_memory_nothing_is_kept_by_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
