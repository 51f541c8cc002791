// SPDX-License-Identifier: Apache-2.0
// The structure of a random program: its inputs, then what each step computes of which
// values. What fits together is not known here: a step that does not is drawn again. A
// program is a stream of its own beside that of the case (fuzz_draw.c).
#include <ulpscope/x/fuzz.h>

#include <assert.h>
#include <string.h>

#include "generate/values.h"

#define PROGRAMS (UINT64_C(0x9a) << 56) /* streams of programs; no case has as many */

typedef struct draw {
    usc_stream d;
    uint64_t i;
} draw;

static draw begin(const usc_fuzz_case *which, uint64_t part)
{
    return (draw){{which->seed, which->number ^ PROGRAMS},
                  (uint64_t)(which->attempt + 1) << 40 | part << 16};
}

/* Of [0, n); 0 where there is nothing to choose from. */
static int64_t below(draw *c, int64_t n)
{
    uint32_t w[4];
    usc_stream_words(c->d, c->i++, w);
    return n > 0 ? (int64_t)(((uint64_t)w[1] << 32 | w[0]) % (uint64_t)n) : 0;
}

/* ---- inputs ---- */

/* Smaller than those of a call: a program is compiled, and seen to the bottom. */
static const int64_t sizes[] = {1,  2,  3,  4,  5,  7,  8,  9,   15,  16,
                                17, 31, 32, 33, 63, 64, 65, 100, 128, 129};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], MOST_ELEMENTS = 1 << 13 };

static int64_t elements(const usc_fuzz_tensor *t)
{
    int64_t n = 1;
    for (int axis = 0; axis < t->ndim; axis++)
        n *= t->sizes[axis];
    return n;
}

static void draw_base(draw *c, usc_fuzz_tensor *t)
{
    static const int dims[] = {0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4};
    t->ndim = dims[below(c, sizeof dims / sizeof dims[0])];
    for (int axis = 0; axis < t->ndim; axis++) {
        const int64_t a = below(c, N_SIZES), b = below(c, N_SIZES);
        t->sizes[axis] = sizes[a < b ? a : b];
    }
    for (int axis = 0; elements(t) > MOST_ELEMENTS; axis = (axis + 1) % t->ndim)
        t->sizes[axis] = t->sizes[axis] / 2 + t->sizes[axis] % 2;
}

/* Another input goes together with the base: equal, broadcast, the last axes, or the
 * other way round, as a product asks. */
static void draw_beside(draw *c, const usc_fuzz_tensor *base, usc_fuzz_tensor *t)
{
    const int64_t how = below(c, 8);
    *t = *base;
    for (int axis = 0; axis < t->ndim; axis++)
        if (below(c, 2) == 0 && (how == 4 || how == 5)) t->sizes[axis] = 1;
    if (how == 6 && t->ndim > 0) {
        const int gone = (int)below(c, t->ndim + 1);
        t->ndim -= gone;
        memmove(t->sizes, t->sizes + gone, (size_t)t->ndim * sizeof t->sizes[0]);
    }
    if (how == 7 && t->ndim > 1) {
        const int64_t rows = t->sizes[t->ndim - 2];
        t->sizes[t->ndim - 2] = t->sizes[t->ndim - 1];
        t->sizes[t->ndim - 1] = rows;
    }
}

static usc_dtype draw_dtype(draw *c, usc_dtype base)
{
    static const usc_dtype others[] = {USC_BF16, USC_F16, USC_F32,  USC_I64,
                                       USC_I64,  USC_I32, USC_BOOL, USC_U8};
    const int64_t other = below(c, sizeof others / sizeof others[0]);
    return below(c, 5) == 0 ? others[other] : base;
}

/* Row-major; two axes swapped, or every second element. */
static void lay_out(draw *c, usc_fuzz_tensor *t)
{
    const int64_t how = below(c, 8);
    int axis[USC_MAX_DIMS];
    int64_t step = how == 7 ? 2 : 1, last = 0;
    for (int k = 0; k < t->ndim; k++)
        axis[k] = k;
    if (how >= 5 && how < 7 && t->ndim > 1) {
        axis[t->ndim - 1] = t->ndim - 2;
        axis[t->ndim - 2] = t->ndim - 1;
    }
    for (int k = t->ndim; k-- > 0; step *= t->sizes[axis[k]]) {
        t->strides[axis[k]] = step;
        last += (t->sizes[axis[k]] - 1) * step;
    }
    t->room = last + 1;
}

static usc_stress draw_kind(draw *c, usc_dtype dtype)
{
    const bool is_float = usc_dtype_info_of(dtype)->kind == USC_KIND_FLOAT;
    const usc_stress plain = is_float            ? USC_STRESS_NORMAL
                             : dtype == USC_BOOL ? USC_STRESS_MASK
                                                 : USC_STRESS_INDEX;
    const bool hard = below(c, 2) == 0;
    const usc_stress kind = (usc_stress)below(c, USC_N_STRESS);
    return is_float && hard && usc_stress_suits(kind, dtype) ? kind : plain;
}

void usc_fuzz_draw_program(const usc_fuzz_case *which, usc_fuzz_program *out)
{
    static const usc_dtype bases[] = {USC_F32, USC_F32, USC_F32,  USC_F32,
                                      USC_F32, USC_F32, USC_BF16, USC_F16};
    assert(which && out);
    *out = (usc_fuzz_program){0};
    draw c = begin(which, 0);
    const usc_dtype base = bases[below(&c, sizeof bases / sizeof bases[0])];
    out->n_steps = 2 + (int)below(&c, USC_FUZZ_LINES - 1);
    out->featured = (int)below(&c, out->n_steps);
    out->n_inputs = 1 + (int)below(&c, USC_FUZZ_INPUTS);
    for (int i = 0; i < out->n_inputs; i++) {
        usc_fuzz_tensor *t = &out->input[i];
        if (i == 0)
            draw_base(&c, t);
        else
            draw_beside(&c, &out->input[0], t);
        t->dtype = i == 0 ? base : draw_dtype(&c, base);
        t->storage = i;
        lay_out(&c, t);
        out->kind[i] = draw_kind(&c, t->dtype);
    }
}

/* ---- steps ---- */

/* The newest value more often than any other: what is fused is a chain. */
static int draw_operand(draw *c, int n_values)
{
    const bool newest = below(c, 2) == 0;
    const int any = (int)below(c, n_values);
    return newest ? n_values - 1 : any;
}

void usc_fuzz_draw_step(const usc_fuzz_case *which, int i_step, int trial, int n_values,
                        int64_t n_words, usc_fuzz_step *out)
{
    assert(which && out && i_step >= 0 && trial >= 0 && n_values > 0 && n_words > 0);
    draw c = begin(which, 1 + (uint64_t)i_step * USC_FUZZ_TRIALS + (uint64_t)trial);
    out->word = below(&c, n_words);
    out->operand[0] = below(&c, 4) > 0 ? n_values - 1 : (int)below(&c, n_values);
    for (int k = 1; k < USC_FUZZ_OPERANDS; k++)
        out->operand[k] = draw_operand(&c, n_values);
    for (int k = 0; k < USC_FUZZ_NUMBERS; k++)
        out->number[k] = below(&c, INT64_C(1) << 31);
}
