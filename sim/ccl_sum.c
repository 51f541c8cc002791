// SPDX-License-Identifier: Apache-2.0
// The arithmetic of simccl's reductions: element by element from rank 0 upwards, so that
// the result is one and the same whoever computes it and whenever.
#include "ccl_shared.h"

#include <math.h>
#include <string.h>

#define CHUNK 512

static bool is_bitwise(usc_ccl_op op)
{
    return op == USC_CCL_OP_BAND || op == USC_CCL_OP_BOR || op == USC_CCL_OP_BXOR;
}

bool ccl_can_reduce(usc_ccl_op op, usc_dtype dtype)
{
    const usc_kind kind = usc_dtype_info_of(dtype)->kind;
    if ((unsigned)op >= USC_CCL_N_OPS || dtype == USC_DTYPE_NONE) return false;
    if (kind == USC_KIND_BOOL) return op != USC_CCL_OP_AVG;
    return kind == USC_KIND_FLOAT ? !is_bitwise(op) : true;
}

/* NaN wins over every number, as torch's minimum and maximum have it. */
#define LOWER(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define HIGHER(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))

#define ARITHMETIC(T, name)                                                              \
    static void name(usc_ccl_op op, T *a, const T *b, size_t n)                          \
    {                                                                                    \
        switch ((int)op) {                                                               \
        case USC_CCL_OP_PRODUCT:                                                         \
            for (size_t i = 0; i < n; i++)                                               \
                a[i] = (T)(a[i] * b[i]);                                                 \
            break;                                                                       \
        case USC_CCL_OP_MIN:                                                             \
            for (size_t i = 0; i < n; i++)                                               \
                a[i] = LOWER(a[i], b[i]);                                                \
            break;                                                                       \
        case USC_CCL_OP_MAX:                                                             \
            for (size_t i = 0; i < n; i++)                                               \
                a[i] = HIGHER(a[i], b[i]);                                               \
            break;                                                                       \
        default:                                                                         \
            for (size_t i = 0; i < n; i++)                                               \
                a[i] = (T)(a[i] + b[i]);                                                 \
        }                                                                                \
    }

/* Integers wrap as they do on every device: added as unsigned ones. */
#define COMPARISONS(T, name)                                                             \
    static void name(usc_ccl_op op, T *a, const T *b, size_t n)                          \
    {                                                                                    \
        for (size_t i = 0; i < n; i++)                                                   \
            if (op == USC_CCL_OP_MIN ? b[i] < a[i] : b[i] > a[i]) a[i] = b[i];           \
    }

ARITHMETIC(float, combine_f32)
ARITHMETIC(double, combine_f64)
COMPARISONS(int64_t, choose_i64)
COMPARISONS(uint64_t, choose_u64)

/* ---- floats ---------------------------------------------------------------------- */

static void reduce_f64(usc_ccl_op op, const void *const *sources, int n_sources, char *to,
                       size_t at, size_t n)
{
    double sum[CHUNK];
    memcpy(sum, (const double *)sources[0] + at, n * sizeof *sum);
    for (int i = 1; i < n_sources; i++)
        combine_f64(op, sum, (const double *)sources[i] + at, n);
    for (size_t i = 0; op == USC_CCL_OP_AVG && i < n; i++)
        sum[i] /= n_sources;
    memcpy(to + at * sizeof *sum, sum, n * sizeof *sum);
}

/* In float32; narrower ones are widened, and rounded once at the end. */
static void load_f32(usc_dtype dtype, const void *from, size_t at, float *out, size_t n)
{
    double wide[CHUNK];
    if (dtype == USC_F32) {
        memcpy(out, (const float *)from + at, n * sizeof *out);
        return;
    }
    usc_dtype_widen(dtype, (const char *)from + at * usc_dtype_info_of(dtype)->size, wide,
                    n);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)wide[i];
}

static void to_bf16(float *a, size_t n)
{
    double wide[CHUNK];
    uint16_t narrow[CHUNK];
    for (size_t i = 0; i < n; i++)
        wide[i] = (double)a[i];
    usc_dtype_narrow(USC_BF16, wide, narrow, n);
    usc_dtype_widen(USC_BF16, narrow, wide, n);
    for (size_t i = 0; i < n; i++)
        a[i] = (float)wide[i];
}

static void reduce_f32(usc_ccl_op op, usc_dtype dtype, bool in_bf16,
                       const void *const *sources, int n_sources, char *to, size_t at,
                       size_t n)
{
    float sum[CHUNK], next[CHUNK];
    double wide[CHUNK];
    load_f32(dtype, sources[0], at, sum, n);
    for (int i = 1; i < n_sources; i++) {
        load_f32(dtype, sources[i], at, next, n);
        combine_f32(op, sum, next, n);
        if (in_bf16) to_bf16(sum, n);
    }
    for (size_t i = 0; op == USC_CCL_OP_AVG && i < n; i++)
        sum[i] /= (float)n_sources;
    if (dtype == USC_F32) {
        memcpy(to + at * sizeof *sum, sum, n * sizeof *sum);
        return;
    }
    for (size_t i = 0; i < n; i++)
        wide[i] = (double)sum[i];
    usc_dtype_narrow(dtype, wide, to + at * usc_dtype_info_of(dtype)->size, n);
}

/* ---- integers, in 64 bits -------------------------------------------------------- */

static uint64_t load_int(const void *from, size_t i, size_t size, bool is_signed)
{
    const char *at = (const char *)from + i * size;
    uint64_t bits = 0;
    memcpy(&bits, at, size); /* little-endian, as files and devices are */
    const unsigned unused = 64 - 8 * (unsigned)size;
    if (!is_signed || unused == 0) return bits;
    return (uint64_t)((int64_t)(bits << unused) >> unused);
}

static void combine_bits(usc_ccl_op op, uint64_t *a, const uint64_t *b, size_t n,
                         bool is_signed)
{
    for (size_t i = 0; i < n; i++)
        switch ((int)op) {
        case USC_CCL_OP_PRODUCT:
            a[i] *= b[i];
            break;
        case USC_CCL_OP_BAND:
            a[i] &= b[i];
            break;
        case USC_CCL_OP_BOR:
            a[i] |= b[i];
            break;
        case USC_CCL_OP_BXOR:
            a[i] ^= b[i];
            break;
        case USC_CCL_OP_MIN:
        case USC_CCL_OP_MAX:
            if (is_signed)
                choose_i64(op, (int64_t *)&a[i], (const int64_t *)&b[i], 1);
            else
                choose_u64(op, &a[i], &b[i], 1);
            break;
        default:
            a[i] += b[i];
        }
}

/* Of bool: sums are or, products are and. */
static usc_ccl_op op_of_bool(usc_ccl_op op)
{
    if (op == USC_CCL_OP_SUM || op == USC_CCL_OP_MAX) return USC_CCL_OP_BOR;
    if (op == USC_CCL_OP_PRODUCT || op == USC_CCL_OP_MIN) return USC_CCL_OP_BAND;
    return op;
}

static void reduce_int(usc_ccl_op op, const usc_dtype_info *info,
                       const void *const *sources, int n_sources, char *to, size_t at,
                       size_t n)
{
    uint64_t sum[CHUNK], next[CHUNK];
    const bool is_signed = info->kind == USC_KIND_INT;
    if (info->kind == USC_KIND_BOOL) op = op_of_bool(op);
    for (int s = 0; s < n_sources; s++) {
        uint64_t *out = s == 0 ? sum : next;
        for (size_t i = 0; i < n; i++)
            out[i] = load_int(sources[s], at + i, info->size, is_signed);
        if (s > 0) combine_bits(op, sum, next, n, is_signed);
    }
    for (size_t i = 0; i < n; i++) {
        if (op == USC_CCL_OP_AVG)
            sum[i] = is_signed ? (uint64_t)((int64_t)sum[i] / n_sources)
                               : sum[i] / (uint64_t)n_sources;
        memcpy(to + (at + i) * info->size, &sum[i], info->size);
    }
}

void ccl_reduce(usc_ccl_op op, usc_dtype dtype, bool in_bf16, const void *const *sources,
                int n_sources, void *to, size_t n)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t here = n - at < CHUNK ? n - at : CHUNK;
        if (dtype == USC_F64 && !in_bf16)
            reduce_f64(op, sources, n_sources, to, at, here);
        else if (info->kind == USC_KIND_FLOAT)
            reduce_f32(op, dtype, in_bf16, sources, n_sources, to, at, here);
        else
            reduce_int(op, info, sources, n_sources, to, at, here);
    }
}
