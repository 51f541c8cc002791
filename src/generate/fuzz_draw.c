// SPDX-License-Identifier: Apache-2.0
// The form of a random call: sizes first, then the dtype of floats, then where each
// tensor lies. A case is a stream of its own; its draws are taken in a fixed order.
#include <ulpscope/x/fuzz.h>

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "generate/fuzz_lay.h"

typedef struct draw {
    usc_stream d;
    uint64_t i;
    const usc_fuzz_case *which;
    const usc_fuzz_tensor *example;
    int n;
    usc_fuzz_tensor *drawn;
    usc_fuzz_recipe *recipe;
} draw;

/* Of [0, n). */
static int64_t below(draw *c, int64_t n)
{
    uint32_t w[4];
    usc_stream_words(c->d, c->i++, w);
    return n > 0 ? (int64_t)(((uint64_t)w[1] << 32 | w[0]) % (uint64_t)n) : 0;
}

static bool one_in(draw *c, int64_t n)
{
    return below(c, n) == 0;
}

static bool is_float(usc_dtype dtype)
{
    return usc_dtype_info_of(dtype)->kind == USC_KIND_FLOAT;
}

static uint64_t draw_number(uint64_t number)
{
    return number & ((UINT64_C(1) << USC_FUZZ_STEP_BIT) - 1);
}

static uint64_t steps_of(const draw *c)
{
    return c->which->number >> USC_FUZZ_STEP_BIT;
}

static bool last_attempt(const draw *c)
{
    return c->which->attempt >= USC_FUZZ_ATTEMPTS - 1;
}

/* ---- which tensors share memory ---- */

static bool same_view(const usc_fuzz_tensor *a, const usc_fuzz_tensor *b)
{
    const size_t dims = (size_t)a->ndim * sizeof a->sizes[0];
    return a->ndim == b->ndim && a->dtype == b->dtype && a->offset == b->offset &&
           memcmp(a->sizes, b->sizes, dims) == 0 &&
           memcmp(a->strides, b->strides, dims) == 0;
}

/* The first tensor of the same storage. */
static int first_of(const draw *c, int i)
{
    int k = 0;
    while (c->example[k].storage != c->example[i].storage)
        k++;
    return k;
}

/* Whether a tensor shows another part of its storage than others do: such stay as they
 * are. */
static bool is_part(const draw *c, int i)
{
    for (int k = 0; k < c->n; k++)
        if (c->example[k].storage == c->example[i].storage &&
            !same_view(&c->example[k], &c->example[i]))
            return true;
    return false;
}

/* ---- sizes ---- */

/* Kernels break at these: nothing, one, a vector or a tile and what is beside it. */
static const int64_t boundaries[] = {1,    2,    3,    4,    5,    7,    8,   9,   15,
                                     16,   17,   31,   32,   33,   63,   64,  65,  100,
                                     127,  128,  129,  255,  256,  257,  511, 512, 513,
                                     1000, 1023, 1024, 1025, 2047, 2049, 4097};
enum { N_BOUNDARIES = sizeof boundaries / sizeof boundaries[0] };

static int symbol_of(const usc_fuzz_recipe *r, int64_t size)
{
    int k = 0;
    while (k < r->n_symbols && r->old_size[k] != size)
        k++;
    return k;
}

static void find_symbols(draw *c)
{
    usc_fuzz_recipe *r = c->recipe;
    for (int i = 0; i < c->n; i++)
        for (int axis = 0; axis < c->example[i].ndim; axis++) {
            const int64_t size = c->example[i].sizes[axis];
            const int k = symbol_of(r, size);
            if (size <= 1 || k < r->n_symbols || k == USC_FUZZ_SYMBOLS) continue;
            r->old_size[k] = r->new_size[k] = size;
            r->n_symbols++;
        }
}

static bool is_kept(const draw *c, int64_t size)
{
    for (int i = 0; i < c->n; i++)
        for (int axis = 0; is_part(c, i) && axis < c->example[i].ndim; axis++)
            if (c->example[i].sizes[axis] == size) return true;
    return false;
}

static int64_t sized(const usc_fuzz_recipe *r, int64_t size)
{
    const int k = symbol_of(r, size);
    return k < r->n_symbols ? r->new_size[k] : size;
}

/* Elements of the largest tensor. */
static int64_t largest(const draw *c)
{
    int64_t most = 0;
    for (int i = 0; i < c->n; i++) {
        int64_t n = 1;
        for (int axis = 0; axis < c->example[i].ndim; axis++)
            if (!usc_mul_i64(n, sized(c->recipe, c->example[i].sizes[axis]), &n))
                n = INT64_MAX;
        if (n > most) most = n;
    }
    return most;
}

/* Small ones more often: many sizes together must fit. */
static int64_t new_size(draw *c)
{
    const int64_t a = below(c, N_BOUNDARIES), b = below(c, N_BOUNDARIES);
    return boundaries[a < b ? a : b];
}

/* Takes sizes back until no tensor has more elements. */
static void fit(draw *c, int64_t elements)
{
    usc_fuzz_recipe *r = c->recipe;
    while (largest(c) > elements) {
        int most = -1;
        for (int k = 0; k < r->n_symbols; k++)
            if (r->new_size[k] > r->old_size[k] &&
                (most < 0 || r->new_size[k] > r->new_size[most]))
                most = k;
        if (most < 0) break; /* the example is as large */
        r->new_size[most] = r->old_size[most];
    }
}

static void resize(draw *c)
{
    usc_fuzz_recipe *r = c->recipe;
    find_symbols(c);
    r->numbers = (usc_fuzz_numbers)((below(c, USC_FUZZ_N_NUMBERS) + c->which->attempt) %
                                    USC_FUZZ_N_NUMBERS);
    for (int k = 0; k < r->n_symbols; k++) {
        const bool keeps = below(c, 8) < (c->which->stress ? 1 : 3);
        const int64_t size = new_size(c);
        if (!keeps && !last_attempt(c) && !is_kept(c, r->old_size[k]))
            r->new_size[k] = size;
    }
    const int64_t empty = below(c, 24), which = below(c, r->n_symbols);
    if (empty == 0 && r->n_symbols > 0 && c->which->attempt == 0 &&
        !is_kept(c, r->old_size[which]))
        r->new_size[which] = 0;
    fit(c, USC_FUZZ_ELEMENTS);
}

/* What no size follows, and the call counts by all the same: topk's k, the length of a
 * permutation. Up to the largest boundary whose square fits into a call's elements. */
static void recount(const draw *c)
{
    draw of = *c;
    of.i = UINT64_C(0x200) << 32; /* behind all steps */
    const bool wanted = one_in(&of, c->which->stress ? 2 : 4);
    const int64_t count = new_size(&of), which = below(&of, USC_FUZZ_SYMBOLS);
    if (!wanted || c->which->attempt >= 2 || count > 257) return;
    c->recipe->count = count;
    c->recipe->which = (int)which;
}

/* ---- dtypes and kinds of values ---- */

static void retype(draw *c)
{
    static const usc_dtype floats[] = {USC_F32, USC_BF16, USC_F16, USC_F64};
    usc_fuzz_recipe *r = c->recipe;
    const bool changes = one_in(c, 4) && c->which->attempt < 2;
    const usc_dtype to = floats[below(c, 4)];
    for (int i = 0; i < c->n && r->from == USC_DTYPE_NONE; i++)
        if (is_float(c->example[i].dtype) &&
            usc_dtype_info_of(c->example[i].dtype)->size > 1)
            r->from = r->to = c->example[i].dtype;
    for (int i = 0; i < c->n; i++)
        if (is_part(c, i) && c->example[i].dtype == r->from) return;
    if (changes && r->from != USC_DTYPE_NONE) r->to = to;
}

static usc_stress kind_of_case(draw *c)
{
    const bool plain = below(c, 16) < (c->which->stress ? 1 : 7);
    int64_t k = below(c, USC_N_STRESS);
    if (plain || last_attempt(c) || k == USC_STRESS_INDEX) k = USC_STRESS_NORMAL;
    return (usc_stress)k;
}

/* ---- layouts ---- */

/* The axis along which an expanded tensor repeats itself; -1 for none. */
static int flat_axis(draw *c, const usc_fuzz_tensor *t, layout kind)
{
    const int axis = (int)below(c, t->ndim);
    const bool repeats = kind == EXPANDED && t->ndim > 0 && !t->written;
    return repeats && t->sizes[axis] > 1 ? axis : -1;
}

static usc_status place(draw *c, int i, usc_error *err)
{
    usc_fuzz_tensor *t = &c->drawn[i];
    layout kind = (layout)below(c, N_LAYOUTS);
    const int64_t before = below(c, 8) + 1, behind = below(c, 4);
    if (c->which->attempt >= 2) kind = AS_EXAMPLE;
    const int flat = flat_axis(c, t, kind);
    const bool moves = kind == WITH_OFFSET;
    return usc_fuzz_lay(t, kind, moves ? before : 0, moves ? behind : 0, flat, err);
}

static void keep_part(draw *c, int i)
{
    int64_t room = 1;
    for (int k = 0; k < c->n; k++) {
        const usc_fuzz_tensor *t = &c->example[k];
        int64_t end = t->offset + 1;
        if (t->storage != c->example[i].storage) continue;
        for (int axis = 0; axis < t->ndim; axis++)
            end += t->sizes[axis] > 0 ? (t->sizes[axis] - 1) * t->strides[axis] : 0;
        if (end > room) room = end;
    }
    c->drawn[i] = c->example[i];
    c->drawn[i].room = room;
}

/* Lets one tensor lie where an equal one does. */
static void share(draw *c)
{
    const bool wanted = one_in(c, 16) && c->which->attempt < 2;
    for (int i = 1; wanted && i < c->n; i++)
        for (int k = 0; k < i; k++) {
            usc_fuzz_tensor *a = &c->drawn[k], *b = &c->drawn[i];
            const size_t dims = (size_t)a->ndim * sizeof a->sizes[0];
            if (a->storage == b->storage || a->written || b->written ||
                a->dtype != b->dtype || a->ndim != b->ndim ||
                memcmp(a->sizes, b->sizes, dims) != 0 || is_part(c, i) || is_part(c, k))
                continue;
            if (first_of(c, i) != i || first_of(c, k) != k) continue;
            for (int other = 0; other < c->n; other++)
                if (other != i && c->drawn[other].storage == b->storage) return;
            *b = *a;
            return;
        }
}

/* ---- steps ---- */

typedef enum step_kind {
    STEP_SIZE,
    STEP_SIZE_TOO,
    STEP_VALUES,
    STEP_LAYOUT,
    STEP_DTYPE
} step_kind;
enum { N_STEP_KINDS = STEP_DTYPE + 1 };

/* The draws of one step, and what it changes. */
static draw step_of(const draw *c, int j, step_kind *kind)
{
    draw step = *c;
    step.i = (uint64_t)(0x100 + j) << 32;
    *kind = (step_kind)below(&step, N_STEP_KINDS);
    return step;
}

/* Another boundary, or beside the size that is there, twice or half of it. */
static void step_size(draw *c)
{
    usc_fuzz_recipe *r = c->recipe;
    const int64_t k = below(c, r->n_symbols), how = below(c, 8);
    const int64_t far = boundaries[below(c, N_BOUNDARIES)];
    if (r->n_symbols == 0 || is_kept(c, r->old_size[k])) return;
    const int64_t now = r->new_size[k];
    const int64_t near[] = {now * 2, now / 2, now + 1, now - 1};
    const int64_t size = how < 4 ? near[how] : far;
    r->new_size[k] = size > 0 ? size : 1;
    if (largest(c) > USC_FUZZ_STEP_ELEMENTS) r->new_size[k] = now;
}

/* What is decided before the tensors are placed. */
static void step_forms(draw *c)
{
    static const usc_dtype floats[] = {USC_F32, USC_BF16, USC_F16, USC_F64};
    for (int j = 0; j < USC_FUZZ_STEPS; j++) {
        step_kind kind;
        draw step = step_of(c, j, &kind);
        if ((steps_of(c) >> j & 1) == 0) continue;
        if (kind <= STEP_SIZE_TOO) step_size(&step);
        const int64_t value = below(&step, USC_N_STRESS), dtype = below(&step, 4);
        if (kind == STEP_VALUES && value != USC_STRESS_INDEX)
            c->recipe->kind = (usc_stress)value;
        bool parts = c->recipe->from == USC_DTYPE_NONE;
        for (int i = 0; i < c->n; i++)
            parts |= is_part(c, i) && c->example[i].dtype == c->recipe->from;
        if (kind == STEP_DTYPE && !parts) c->recipe->to = floats[dtype];
    }
}

/* What is decided of tensors that have a place: another one. */
static usc_status step_places(draw *c, usc_error *err)
{
    usc_status st = USC_OK;
    usc_fuzz_case first_attempt = *c->which; /* the others place as the example does */
    first_attempt.attempt = 0;
    for (int j = 0; j < USC_FUZZ_STEPS && c->n > 0 && st == USC_OK; j++) {
        step_kind kind;
        draw step = step_of(c, j, &kind);
        const int i = first_of(c, (int)below(&step, c->n));
        if ((steps_of(c) >> j & 1) == 0 || kind != STEP_LAYOUT || is_part(c, i)) continue;
        step.which = &first_attempt;
        st = place(&step, i, err);
        for (int k = i + 1; k < c->n; k++)
            if (first_of(c, k) == i) c->drawn[k] = c->drawn[i];
    }
    return st;
}

/* ---- the whole ---- */

static usc_status check_example(const usc_fuzz_tensor *t, int n, usc_error *err)
{
    for (int i = 0; i < n; i++) {
        if ((unsigned)t[i].dtype >= USC_N_DTYPES || t[i].dtype == USC_DTYPE_NONE)
            return usc_error_set(err, USC_E_DTYPE, i, "fuzz: no dtype of tensor %d", i);
        if (t[i].ndim < 0 || t[i].ndim > USC_MAX_DIMS || t[i].offset < 0)
            return usc_error_set(err, USC_E_SHAPE, i, "fuzz: tensor %d has no form", i);
        for (int axis = 0; axis < t[i].ndim; axis++)
            if (t[i].sizes[axis] < 0 || t[i].strides[axis] < 0 ||
                t[i].sizes[axis] > INT32_MAX || t[i].strides[axis] > INT32_MAX)
                return usc_error_set(err, USC_E_SHAPE, i,
                                     "fuzz: axis %d of tensor %d: size %lld, stride %lld",
                                     axis, i, (long long)t[i].sizes[axis],
                                     (long long)t[i].strides[axis]);
        for (int k = 0; k < i; k++)
            if (t[k].storage == t[i].storage && t[k].dtype != t[i].dtype)
                return usc_error_set(
                    err, USC_E_ARG, i,
                    "fuzz: tensors %d and %d read one storage as %s and %s", k, i,
                    usc_dtype_info_of(t[k].dtype)->name,
                    usc_dtype_info_of(t[i].dtype)->name);
    }
    return USC_OK;
}

static usc_status place_all(draw *c, usc_error *err)
{
    usc_status st = USC_OK;
    for (int i = 0; i < c->n && st == USC_OK; i++) {
        usc_fuzz_tensor *t = &c->drawn[i];
        const int first = first_of(c, i);
        *t = c->example[i];
        if (is_part(c, i)) {
            keep_part(c, i);
            continue;
        }
        if (t->dtype == c->recipe->from) t->dtype = c->recipe->to;
        for (int axis = 0; axis < t->ndim; axis++)
            t->sizes[axis] = sized(c->recipe, t->sizes[axis]);
        for (int k = 0; k < c->n;
             k++) /* one place: whoever writes it, writes it for all */
            t->written |= c->example[k].storage == t->storage && c->example[k].written;
        if (first < i)
            *t = c->drawn[first];
        else
            st = place(c, i, err);
    }
    return st;
}

usc_status usc_fuzz_draw(const usc_fuzz_case *which, const usc_fuzz_tensor *example,
                         int n, usc_fuzz_tensor *drawn, usc_fuzz_recipe *recipe,
                         usc_error *err)
{
    assert(which && recipe && (n == 0 || (example && drawn)));
    *recipe = (usc_fuzz_recipe){0};
    usc_status st = check_example(example, n, err);
    if (st != USC_OK) return st;
    draw c = {.d = {.seed = which->seed, .number = draw_number(which->number)},
              .i = (uint64_t)(which->attempt + 1) << 32,
              .which = which,
              .example = example,
              .n = n,
              .drawn = drawn,
              .recipe = recipe};
    resize(&c);
    recount(&c);
    retype(&c);
    recipe->kind = kind_of_case(&c);
    step_forms(&c);
    st = place_all(&c, err);
    if (st == USC_OK) st = step_places(&c, err);
    if (st == USC_OK) share(&c);
    if (st != USC_OK) *recipe = (usc_fuzz_recipe){0};
    return st;
}
