// SPDX-License-Identifier: Apache-2.0
// What each kind of fault does to a buffer; the table of kinds itself is in sim.h. Which
// faults are planted and when they fire: fault_table.c.
#include <ulpscope_sim/sim.h>

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK 256

static const usc_sim_fault_info kinds[USC_SIM_N_FAULT_KINDS] = {
#define ROW(id, name, stage, p0, d0, p1, d1, doc)                                        \
    [USC_SIM_FAULT_##id] = {name, USC_SIM_STAGE_##stage, {p0, p1}, {d0, d1}, doc},
    USC_SIM_FAULT_LIST(ROW)
#undef ROW
};

const usc_sim_fault_info *usc_sim_fault_info_of(usc_sim_fault_kind kind)
{
    return (unsigned)kind < USC_SIM_N_FAULT_KINDS ? &kinds[kind] : NULL;
}

/* ---- element by element, on doubles --------------------------------------------------
 */

typedef struct format {
    int sig_bits, emin, emax;
} format;

static const format format_bf16 = {8, -126, 127};
static const format format_fp16 = {11, -14, 15};
static const format format_tf32 = {11, -126, 127}; /* 10 explicit mantissa bits */

/* Rounds to a narrower format. Scaling by a power of two is exact, so `to_integer` is the
 * only rounding: trunc(), or rint() to nearest even. */
static double quantize(double x, format f, double (*to_integer)(double))
{
    if (!isfinite(x) || x == 0.0) return x;
    int e;
    (void)frexp(x, &e);
    const int lowest = e - 1 > f.emin ? e - 1 : f.emin;
    const int quantum = lowest - (f.sig_bits - 1);
    const double y = ldexp(to_integer(ldexp(x, -quantum)), quantum);
    return fabs(y) >= ldexp(1.0, f.emax) * 2.0 ? copysign((double)INFINITY, x) : y;
}

static format truncated(const usc_dtype_info *own, double bits)
{
    const int most = own->sig_bits - 1; /* one bit of the significand stays */
    const int cut = bits < 0 ? 0 : bits > most ? most : (int)bits;
    return (format){own->sig_bits - cut, own->emin, own->emax};
}

static double map_value(double x, const usc_sim_fault *fault, const usc_dtype_info *own)
{
    switch ((int)fault->kind) {
    case USC_SIM_FAULT_TF32:
        return quantize(x, format_tf32, rint);
    case USC_SIM_FAULT_BF16_INPUTS:
    case USC_SIM_FAULT_BF16_INTERMEDIATES:
    case USC_SIM_FAULT_BF16_OUTPUT:
        return quantize(x, format_bf16, rint);
    case USC_SIM_FAULT_FP16_INPUTS:
    case USC_SIM_FAULT_FP16_OUTPUT:
        return quantize(x, format_fp16, rint);
    case USC_SIM_FAULT_TRUNCATE:
        return quantize(x, truncated(own, fault->params[0]), trunc);
    case USC_SIM_FAULT_FLUSH_SUBNORMALS:
        return fabs(x) < ldexp(1.0, own->emin) ? copysign(0.0, x) : x;
    case USC_SIM_FAULT_SCALE:
        return x * fault->params[0];
    case USC_SIM_FAULT_OFFSET:
        return x + fault->params[0];
    default:
        return x;
    }
}

static bool map_chunk(const usc_sim_fault *fault, usc_dtype dtype, char *at, size_t n)
{
    const usc_dtype_info *own = usc_dtype_info_of(dtype);
    double values[CHUNK];
    double stored[CHUNK]; /* room for any dtype */
    bool changed = false;
    usc_dtype_widen(dtype, at, values, n);
    for (size_t i = 0; i < n; i++)
        values[i] = map_value(values[i], fault, own);
    usc_dtype_narrow(dtype, values, stored, n);
    for (size_t i = 0; i < n; i++) {
        char *old = at + i * own->size;
        const char *new = (const char *)stored + i * own->size;
        /* A NaN keeps its payload. */
        if (isnan(values[i]) || memcmp(old, new, own->size) == 0) continue;
        memcpy(old, new, own->size);
        changed = true;
    }
    return changed;
}

static int map_all(const usc_sim_fault *fault, usc_dtype dtype, char *data, size_t n)
{
    const size_t size = usc_dtype_info_of(dtype)->size;
    bool changed = false;
    for (size_t i = 0; i < n; i += CHUNK) {
        const size_t here = n - i < CHUNK ? n - i : CHUNK;
        if (map_chunk(fault, dtype, data + i * size, here)) changed = true;
    }
    return changed;
}

/* ---- at a place
 * ------------------------------------------------------------------------ */

/* A position given as a parameter: negative counts from the end, all wrap around. */
static size_t wrap(double index, size_t n)
{
    const double r = fmod(trunc(index), (double)n);
    return (size_t)(r < 0 ? r + (double)n : r);
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

static int flip_bit(char *element, size_t size, double bit)
{
    const size_t i = wrap(bit, 8 * size);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    const size_t i_byte = size - 1 - i / 8;
#else
    const size_t i_byte = i / 8;
#endif
    element[i_byte] = (char)(element[i_byte] ^ (1 << i % 8));
    return 1;
}

static int apply_tail(const usc_sim_fault *fault, size_t size, char *data,
                      const char *before, size_t n)
{
    const double asked = trunc(fault->params[0]);
    const size_t tail = asked <= 0 ? 0 : asked < (double)n ? (size_t)asked : n;
    const size_t from = (n - tail) * size;
    if (tail == 0) return -1;
    if (fault->kind == USC_SIM_FAULT_DROP_TAIL)
        return put_zeros(data + from, tail * size);
    if (before == NULL) return -1;
    return put(data + from, before + from, tail * size);
}

static bool floats_only(usc_sim_fault_kind kind)
{
    return kind != USC_SIM_FAULT_ZERO_ONE && kind != USC_SIM_FAULT_BIT_FLIP &&
           kind != USC_SIM_FAULT_SWAP_TWO && kind != USC_SIM_FAULT_DROP_TAIL &&
           kind != USC_SIM_FAULT_STALE_TAIL;
}

static bool has_effect(usc_sim_fault_kind kind, usc_dtype dtype)
{
    if (kind == USC_SIM_FAULT_STEP_PLUS_ONE || kind == USC_SIM_FAULT_CRASH ||
        kind == USC_SIM_FAULT_HANG || kind == USC_SIM_FAULT_LACKING ||
        kind == USC_SIM_FAULT_CPU_FALLBACK)
        return false;
    if (kind == USC_SIM_FAULT_TF32) return dtype == USC_F32;
    const usc_kind k = usc_dtype_info_of(dtype)->kind;
    return k == USC_KIND_FLOAT || (k != USC_KIND_NONE && !floats_only(kind));
}

int usc_sim_fault_apply(const usc_sim_fault *fault, usc_dtype dtype, void *data,
                        const void *before, size_t n)
{
    if (n == 0 || !has_effect(fault->kind, dtype)) return -1;
    const size_t size = usc_dtype_info_of(dtype)->size;
    char *bytes = data;
    char *first = bytes + wrap(fault->params[0], n) * size;
    char *second = bytes + wrap(fault->params[1], n) * size;

    switch ((int)fault->kind) {
    case USC_SIM_FAULT_NAN:
        return put_double(dtype, first, (double)NAN);
    case USC_SIM_FAULT_INF:
        return put_double(dtype, first, copysign((double)INFINITY, fault->params[1]));
    case USC_SIM_FAULT_ZERO_ONE:
        return put_zeros(first, size);
    case USC_SIM_FAULT_BIT_FLIP:
        return flip_bit(first, size, fault->params[1]);
    case USC_SIM_FAULT_SWAP_TWO:
        return swap_elements(first, second, size);
    case USC_SIM_FAULT_DROP_TAIL:
    case USC_SIM_FAULT_STALE_TAIL:
        return apply_tail(fault, size, bytes, before, n);
    default:
        return map_all(fault, dtype, bytes, n);
    }
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
    for (;;)
        pause();
}
