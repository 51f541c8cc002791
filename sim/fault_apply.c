// SPDX-License-Identifier: Apache-2.0
// What each kind of fault does to a buffer, but for what it does to each value alone
// (fault_values.c); the table of kinds itself is in fault.h. Which faults are planted and
// when they fire: fault_table.c.
#include "fault_parts.h"
#include "streams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const usc_sim_fault_info kinds[USC_SIM_N_FAULT_KINDS] = {
#define ROW(id, name, stage, on, p0, d0, p1, d1, doc)                                    \
    [USC_SIM_FAULT_##                                                                    \
        id] = {name, USC_SIM_STAGE_##stage, USC_SIM_ON_##on, {p0, p1}, {d0, d1}, doc},
    USC_SIM_FAULT_LIST(ROW)
#undef ROW
};

const usc_sim_fault_info *usc_sim_fault_info_of(usc_sim_fault_kind kind)
{
    return (unsigned)kind < USC_SIM_N_FAULT_KINDS ? &kinds[kind] : NULL;
}

/* ---- at a place
 * ------------------------------------------------------------------------ */

/* A position given as a parameter: negative counts from the end, all wrap around. */
static size_t wrap(double index, size_t n)
{
    const double r = fmod(trunc(index), (double)n);
    return (size_t)(r < 0 ? r + (double)n : r);
}

/* A count given as a parameter. */
static size_t count(double asked, size_t most)
{
    return asked <= 0 ? 0 : asked < (double)most ? (size_t)asked : most;
}

static int put(char *at, const void *value, size_t size)
{
    if (memcmp(at, value, size) == 0) return 0;
    memcpy(at, value, size);
    return 1;
}

static int put_double(usc_dtype dtype, char *at, double value)
{
    double stored;
    usc_dtype_narrow(dtype, &value, &stored, 1);
    return put(at, &stored, usc_dtype_info_of(dtype)->size);
}

static int put_zeros(char *at, size_t size)
{
    int changed = 0;
    for (size_t i = 0; i < size; i++) {
        if (at[i] != 0) changed = 1;
        at[i] = 0;
    }
    return changed;
}

static int swap_elements(char *a, char *b, size_t size)
{
    char kept[sizeof(double)];
    memcpy(kept, a, size);
    const int changed = put(a, b, size);
    memcpy(b, kept, size);
    return changed;
}

/* The bits of an element as an integer. */
static uint64_t get_bits(const char *element, size_t size)
{
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight = 0;
    switch (size) {
    case 1:
        memcpy(&one, element, 1);
        return one;
    case 2:
        memcpy(&two, element, 2);
        return two;
    case 4:
        memcpy(&four, element, 4);
        return four;
    default:
        memcpy(&eight, element, 8);
        return eight;
    }
}

static int put_bits(char *element, size_t size, uint64_t bits)
{
    const uint8_t one = (uint8_t)bits;
    const uint16_t two = (uint16_t)bits;
    const uint32_t four = (uint32_t)bits;
    switch (size) {
    case 1:
        return put(element, &one, 1);
    case 2:
        return put(element, &two, 2);
    case 4:
        return put(element, &four, 4);
    default:
        return put(element, &bits, 8);
    }
}

static uint64_t bit_at(double bit, size_t size)
{
    return UINT64_C(1) << wrap(bit, 8 * size);
}

static int flip_bits(const usc_sim_fault *fault, char *element, size_t size)
{
    const uint64_t seed = fault->seed + (uint64_t)fault->n_calls * 0x10001u;
    uint64_t mask = 0;
    for (size_t i = 0, n = count(fault->params[1], 8 * size); n > 0; i++) {
        const uint64_t bit = bit_at(fault_chance(seed, i) * 64, size);
        if ((mask & bit) == 0) n--;
        mask |= bit;
    }
    return put_bits(element, size, get_bits(element, size) ^ mask);
}

static int change_element(const usc_sim_fault *fault, const usc_sim_elements *e,
                          size_t size)
{
    char *first = (char *)e->data + wrap(fault->params[0], e->n) * size;
    const uint64_t bits = size <= 8 ? get_bits(first, size) : 0;
    switch ((int)fault->kind) {
    case USC_SIM_FAULT_NAN:
        return put_double(e->dtype, first, (double)NAN);
    case USC_SIM_FAULT_INF:
        return put_double(e->dtype, first, copysign((double)INFINITY, fault->params[1]));
    case USC_SIM_FAULT_ZERO_ONE:
        return put_zeros(first, size);
    case USC_SIM_FAULT_BIT_FLIP:
        return put_bits(first, size, bits ^ bit_at(fault->params[1], size));
    case USC_SIM_FAULT_BIT_FLIPS:
        return flip_bits(fault, first, size);
    case USC_SIM_FAULT_CARRY:
        return put_bits(first, size, bits + bit_at(fault->params[1], size));
    default: /* swap_two */
        return swap_elements(first, (char *)e->data + wrap(fault->params[1], e->n) * size,
                             size);
    }
}

/* ---- many of them
 * ---------------------------------------------------------------------- */

static int stick_bit(const usc_sim_fault *fault, const usc_sim_elements *e, size_t size)
{
    const uint64_t bit = bit_at(fault->params[0], size);
    int changed = 0;
    for (size_t i = 0; i < e->n; i++) {
        char *at = (char *)e->data + i * size;
        const uint64_t now = get_bits(at, size);
        changed |= put_bits(at, size, fault->params[1] >= 1 ? now | bit : now & ~bit);
    }
    return changed;
}

static int stick_lane(const usc_sim_fault *fault, const usc_sim_elements *e, size_t size)
{
    char *data = e->data;
    const size_t step = count(fault->params[1], e->n);
    if (step == 0) return -1;
    const size_t lane = wrap(fault->params[0], step);
    int changed = 0;
    for (size_t i = lane + step; i < e->n; i += step)
        changed |= put(data + i * size, data + lane * size, size);
    return changed;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int sort_in_two_runs(const usc_sim_elements *e, size_t size)
{
    double *values = malloc(e->n * sizeof *values);
    int changed = 0;
    if (values == NULL) return -1;
    usc_dtype_widen(e->dtype, e->data, values, e->n);
    qsort(values, e->n, sizeof *values, compare_doubles);
    for (size_t i = 0; i < e->n; i++) {
        const size_t from = 2 * i < e->n ? 2 * i : 2 * i + 1 - (e->n + e->n % 2);
        changed |= put_double(e->dtype, (char *)e->data + i * size, values[from]);
    }
    free(values);
    return changed;
}

/* Elements of each row from `from` on become zero. */
static int cut_rows(const usc_sim_elements *e, size_t size, size_t n_columns, size_t from)
{
    int changed = 0;
    for (size_t i = 0; i + n_columns <= e->n && from < n_columns; i += n_columns)
        changed |=
            put_zeros((char *)e->data + (i + from) * size, (n_columns - from) * size);
    return from < n_columns ? changed : -1;
}

/* Integers that are read: off by some, where that is between the least and the most. */
static int shift_integers(const usc_sim_fault *fault, const usc_sim_elements *e,
                          size_t size)
{
    double least = (double)INFINITY, most = -(double)INFINITY, x;
    char *data = e->data;
    int changed = 0;
    for (size_t i = 0; i < e->n; i++) {
        usc_dtype_widen(e->dtype, data + i * size, &x, 1);
        least = fmin(least, x);
        most = fmax(most, x);
    }
    for (size_t i = 0; i < e->n; i++) {
        usc_dtype_widen(e->dtype, data + i * size, &x, 1);
        const double y = x + trunc(fault->params[0]);
        if (y >= least && y <= most) changed |= put_double(e->dtype, data + i * size, y);
    }
    return changed;
}

/* All elements lie some places further on; the last come first. */
static int turn(double by, char *data, size_t n, size_t size)
{
    const size_t step = wrap(by, n);
    char *copy = step > 0 ? malloc(n * size) : NULL;
    if (copy == NULL) return step > 0 ? -1 : 0;
    memcpy(copy, data + (n - step) * size, step * size);
    memcpy(copy + step * size, data, (n - step) * size);
    const int changed = put(data, copy, n * size);
    free(copy);
    return changed;
}

static int apply_tail(const usc_sim_fault *fault, const usc_sim_elements *e, size_t size)
{
    const size_t n = count(fault->params[0], e->n);
    char *tail = (char *)e->data + (e->n - n) * size;
    if (n == 0) return -1;
    switch ((int)fault->kind) {
    case USC_SIM_FAULT_DROP_TAIL:
        return put_zeros(tail, n * size);
    case USC_SIM_FAULT_SHIFTED_TAIL:
        return turn(1, tail, n, size);
    case USC_SIM_FAULT_RECYCLED_TAIL: /* as far as the two do not overlap */
        return 2 * n <= e->n ? put(tail, e->data, n * size) : -1;
    default: /* stale_tail */
        if (e->before == NULL) return -1;
        return put(tail, (const char *)e->before + (e->n - n) * size, n * size);
    }
}

bool usc_sim_fault_wants_before(usc_sim_fault_kind kind)
{
    return kind == USC_SIM_FAULT_STALE_TAIL || kind == USC_SIM_FAULT_UNWRITTEN ||
           kind == USC_SIM_FAULT_INPLACE_LOST;
}

/* ---- where
 * ----------------------------------------------------------------------------- */

static bool has_where(const usc_sim_fault *f)
{
    return f->has_index || f->tile >= 0 || f->lane >= 0;
}

static bool selects(const usc_sim_fault *f, size_t i, size_t n)
{
    if (f->has_index && i != wrap((double)f->index, n)) return false;
    if (f->tile >= 0 && i / (size_t)f->tile_size != (size_t)f->tile) return false;
    return f->lane < 0 || i % (size_t)f->lanes == (size_t)f->lane;
}

static bool is_on(usc_sim_on on, usc_dtype dtype)
{
    const usc_kind kind = usc_dtype_info_of(dtype)->kind;
    switch (on) {
    case USC_SIM_ON_F32:
        return dtype == USC_F32;
    case USC_SIM_ON_FLOATS:
        return kind == USC_KIND_FLOAT;
    case USC_SIM_ON_INTEGERS:
        return kind == USC_KIND_INT || kind == USC_KIND_UINT;
    case USC_SIM_ON_BOOLS:
        return kind == USC_KIND_BOOL;
    case USC_SIM_ON_ALL:
        return kind != USC_KIND_NONE;
    case USC_SIM_ON_NONE:
    default:
        return false;
    }
}

static int apply_everywhere(const usc_sim_fault *fault, const usc_sim_elements *e)
{
    const size_t size = usc_dtype_info_of(e->dtype)->size;
    const size_t n_columns = e->n_columns > 0 ? e->n_columns : e->n;
    switch ((int)fault->kind) {
    case USC_SIM_FAULT_NAN:
    case USC_SIM_FAULT_INF:
    case USC_SIM_FAULT_ZERO_ONE:
    case USC_SIM_FAULT_BIT_FLIP:
    case USC_SIM_FAULT_BIT_FLIPS:
    case USC_SIM_FAULT_CARRY:
    case USC_SIM_FAULT_SWAP_TWO:
        return change_element(fault, e, size);
    case USC_SIM_FAULT_STUCK_BIT:
        return stick_bit(fault, e, size);
    case USC_SIM_FAULT_STUCK_LANE:
        return stick_lane(fault, e, size);
    case USC_SIM_FAULT_TWO_RUNS:
        return sort_in_two_runs(e, size);
    case USC_SIM_FAULT_DROP_TAIL:
    case USC_SIM_FAULT_STALE_TAIL:
    case USC_SIM_FAULT_SHIFTED_TAIL:
    case USC_SIM_FAULT_RECYCLED_TAIL:
        return apply_tail(fault, e, size);
    case USC_SIM_FAULT_PARTIAL_TILE: {
        const size_t tile = count(fault->params[0], (size_t)1 << 40);
        return cut_rows(e, size, n_columns, tile > 0 ? n_columns - n_columns % tile : 0);
    }
    case USC_SIM_FAULT_ROW_TAIL:
        return cut_rows(e, size, n_columns, count(fault->params[0], n_columns));
    case USC_SIM_FAULT_UNWRITTEN:
    case USC_SIM_FAULT_INPLACE_LOST:
        return e->before != NULL ? put(e->data, e->before, e->n * size) : -1;
    case USC_SIM_FAULT_INDEX_SHIFTED:
        return shift_integers(fault, e, size);
    case USC_SIM_FAULT_MASK_SHIFTED:
        return turn(fault->params[0], e->data, e->n, size);
    default:
        return fault_map_all(fault, e);
    }
}

/* As everywhere, and what is not selected is put back. */
static int apply_where(const usc_sim_fault *fault, const usc_sim_elements *e)
{
    const size_t size = usc_dtype_info_of(e->dtype)->size;
    char *data = e->data, *old = malloc(e->n * size);
    if (old == NULL) return -1;
    memcpy(old, data, e->n * size);
    int result = apply_everywhere(fault, e);
    for (size_t i = 0; i < e->n; i++)
        if (!selects(fault, i, e->n)) memcpy(data + i * size, old + i * size, size);
    if (result > 0) result = memcmp(old, data, e->n * size) != 0;
    free(old);
    return result;
}

int usc_sim_fault_apply(const usc_sim_fault *fault, const usc_sim_elements *e)
{
    const usc_sim_fault_info *info = usc_sim_fault_info_of(fault->kind);
    if (e->n == 0 || info == NULL || !is_on(info->on, e->dtype)) return -1;
    return has_where(fault) ? apply_where(fault, e) : apply_everywhere(fault, e);
}

/* ---- kernels that do not come back
 * ----------------------------------------------------- */

void usc_sim_crash(void)
{
    volatile char *closed = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *closed = 1;
}

void usc_sim_hang(void)
{
    usc_sim_wait_for_nothing();
}
