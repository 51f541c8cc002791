// SPDX-License-Identifier: Apache-2.0
// A bad pack has operands that are not of one shape, or dtypes that no pack has.
// Neighbours: pack_operands.h.
#include "pack/pack_operands.h"

#include <string.h>

bool usc_pack_same_shape(const usc_tensor *a, const usc_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof a->sizes[0]) == 0;
}

bool usc_pack_is_float(const usc_safetensor *t)
{
    return usc_dtype_info_of(t->tensor.dtype)->kind == USC_KIND_FLOAT;
}

static usc_status bad(const usc_safetensor *t, const char *what, usc_error *err)
{
    return usc_error_set(err, USC_E_CORRUPT, -1, "%s: %s: %s", t->path, t->name, what);
}

static bool fits(const usc_safetensor *t, const usc_pack_operands *o)
{
    return usc_pack_same_shape(&t->tensor, &o->reference->tensor);
}

static usc_status check_floats(const usc_safetensor *t, const usc_pack_operands *o,
                               usc_error *err)
{
    if (t == NULL) return USC_OK;
    const usc_dtype d = t->tensor.dtype;
    if ((d == USC_F64 || d == USC_F32) && fits(t, o)) return USC_OK;
    return bad(t, "not float32 or float64 of the reference's shape", err);
}

static usc_status check_marks(const usc_safetensor *t, const usc_pack_operands *o,
                              usc_error *err)
{
    if (t == NULL || (t->tensor.dtype == USC_U8 && fits(t, o))) return USC_OK;
    return bad(t, "not uint8 of the reference's shape", err);
}

/* Two sides and where they are, or nothing. */
static usc_status check_sides(const usc_pack_operands *o, const usc_safetensor *low,
                              const usc_safetensor *high, const usc_safetensor *where,
                              const char *what, usc_error *err)
{
    if (low == NULL && high == NULL) return USC_OK;
    if (low != NULL && high != NULL && where != NULL && low->tensor.dtype == USC_F64 &&
        high->tensor.dtype == USC_F64 && fits(low, o) && fits(high, o))
        return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1, "%s: sides of %s do not fit",
                         o->reference->path, what);
}

/* Values to choose among, of any shape: whoever reads them looks at that. */
static usc_status check_choice(const usc_safetensor *values, usc_error *err)
{
    if (values == NULL || values->tensor.dtype != USC_DTYPE_NONE) return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1,
                         "%s: %s: values to choose among cannot be %.40s", values->path,
                         values->name, values->dtype_name);
}

static usc_status check_jumps(const usc_safetensor *places, const usc_safetensor *values,
                              usc_error *err)
{
    if (places == NULL) return USC_OK;
    if (values != NULL && places->tensor.dtype == USC_I64 &&
        values->tensor.dtype == USC_F64 &&
        usc_pack_same_shape(&places->tensor, &values->tensor))
        return USC_OK;
    return bad(places, "bad list of jumps", err);
}

static usc_status check_writes(const usc_pack_operands *o, usc_error *err)
{
    const usc_safetensor *places = o->write_at, *values = o->writes;
    const usc_safetensor *rows = o->write_rows;
    if (places == NULL) return USC_OK;
    if (values != NULL && rows != NULL && places->tensor.dtype == USC_I64 &&
        rows->tensor.dtype == USC_I64 && values->tensor.dtype != USC_DTYPE_NONE &&
        places->tensor.ndim == 2 && rows->tensor.ndim == 1 &&
        rows->tensor.sizes[0] == places->tensor.sizes[0] &&
        usc_pack_same_shape(&places->tensor, &values->tensor))
        return USC_OK;
    return bad(places, "bad list of updates", err);
}

/* Values of the reference's dtype and shape, along a first axis. */
static usc_status check_stacked(const usc_pack_operands *o, const usc_safetensor *t,
                                usc_error *err)
{
    if (t == NULL) return USC_OK;
    usc_tensor one = t->tensor;
    const bool stacked = one.ndim > 0;
    for (int d = 1; d < one.ndim; d++)
        one.sizes[d - 1] = one.sizes[d];
    one.ndim -= stacked;
    if (stacked && one.dtype == o->reference->tensor.dtype &&
        usc_pack_same_shape(&one, &o->reference->tensor))
        return USC_OK;
    return bad(t, "not along a first axis of the reference's form", err);
}

/* Runs that were kept: a number for each element of each, and lists. */
static usc_status check_chain(const usc_pack_operands *o, usc_error *err)
{
    const usc_safetensor *values = o->chain_values, *odd = o->chain_odd;
    const usc_safetensor *runs = o->chain_runs;
    int64_t n, n_values, n_odd;
    if (values == NULL) return USC_OK;
    if (odd != NULL && runs != NULL && values->tensor.dtype == USC_F32 &&
        odd->tensor.dtype == USC_U8 && runs->tensor.dtype == USC_F64 &&
        runs->tensor.ndim == 1 &&
        usc_tensor_numel(&o->reference->tensor, &n, NULL) == USC_OK &&
        usc_tensor_numel(&values->tensor, &n_values, NULL) == USC_OK &&
        usc_tensor_numel(&odd->tensor, &n_odd, NULL) == USC_OK && n_values / 6 == n &&
        n_values % 6 == 0 && n_odd / 2 == n && n_odd % 2 == 0 && n > 0)
        return USC_OK;
    return bad(values, "bad runs that round inside", err);
}

/* A list of what runs have in common. */
static usc_status check_shares(const usc_safetensor *t, usc_error *err)
{
    if (t == NULL) return USC_OK;
    if (t->tensor.dtype == USC_F64 && t->tensor.ndim == 1) return USC_OK;
    return bad(t, "no list of F64", err);
}

static usc_status check_reading(const usc_pack_operands *o, usc_error *err)
{
#define USC_KEPT_OF(name) o->name,
    const usc_safetensor *const floats[] = {
        o->yardstick, o->slope,     o->s1,         o->s2,
        o->s4,        o->n1,        o->n2,         o->n4,
        o->n_far,     o->n_noise,   o->flushed1,   o->flushed2,
        o->flushed3,  o->added_low, o->added_high, o->run_low,
        o->run_high,  o->lost,      o->lost_cut,   USC_KEPT_NARROW_LIST(USC_KEPT_OF)};
#undef USC_KEPT_OF
    const usc_safetensor *const marks[] = {o->unpromised, o->kinds,    o->near_steps,
                                           o->ties,       o->excepted, o->own_nan};
    usc_status st = USC_OK;
    for (size_t i = 0; i < sizeof floats / sizeof floats[0] && st == USC_OK; i++)
        st = check_floats(floats[i], o, err);
    for (size_t i = 0; i < sizeof marks / sizeof marks[0] && st == USC_OK; i++)
        st = check_marks(marks[i], o, err);
    if (st == USC_OK)
        st = check_sides(o, o->side_low, o->side_high, o->unpromised, "corners", err);
    if (st == USC_OK)
        st = check_sides(o, o->near_low, o->near_high, o->near_steps, "steps", err);
    if (st == USC_OK)
        st = check_sides(o, o->own_low, o->own_high, o->own_nan, "own steps", err);
    if (st == USC_OK) st = check_chain(o, err);
    if (st == USC_OK) st = check_shares(o->lost_shares, err);
    if (st == USC_OK) st = check_shares(o->run_least, err);
    if (st == USC_OK) st = check_stacked(o, o->usual, err);
    if (st == USC_OK) st = check_stacked(o, o->admissible, err);
    if (st == USC_OK) st = check_choice(o->choice, err);
    if (st == USC_OK) st = check_writes(o, err);
    if (st == USC_OK) st = check_jumps(o->jump_at, o->jump_values, err);
    return st == USC_OK ? check_jumps(o->run_at, o->run_values, err) : st;
}

usc_status usc_pack_check(const usc_pack_operands *o, usc_error *err)
{
    usc_status st = check_reading(o, err);
    for (int i = 0; i < o->n_readings && st == USC_OK; i++) {
        const usc_pack_operands *other = &o->readings[i];
        st = check_reading(other, err);
        if (st == USC_OK && (other->reference->tensor.dtype == USC_DTYPE_NONE ||
                             !fits(other->reference, o)))
            st = bad(other->reference, "not a reading of the same output", err);
    }
    return st;
}
