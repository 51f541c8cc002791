// SPDX-License-Identifier: Apache-2.0
// What kinds of fault do to each value alone, on doubles. What they do to a buffer:
// fault_apply.c.
#include "fault_parts.h"

#include <math.h>
#include <string.h>

#define CHUNK 256

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

/* Away from zero. */
static double away(double x)
{
    return copysign(ceil(fabs(x)), x);
}

static double saturated(double x, double most)
{
    return fabs(x) > most ? copysign(most, x) : x;
}

static double map_value(double x, const usc_sim_fault *fault, const usc_dtype_info *own)
{
    switch ((int)fault->kind) {
    case USC_SIM_FAULT_TF32:
    case USC_SIM_FAULT_TF32_INTERMEDIATES:
        return quantize(x, format_tf32, rint);
    case USC_SIM_FAULT_BF16_INPUTS:
    case USC_SIM_FAULT_BF16_INTERMEDIATES:
    case USC_SIM_FAULT_BF16_OUTPUT:
        return quantize(x, format_bf16, rint);
    case USC_SIM_FAULT_FP16_INPUTS:
    case USC_SIM_FAULT_FP16_INTERMEDIATES:
    case USC_SIM_FAULT_FP16_OUTPUT:
        return quantize(x, format_fp16, rint);
    case USC_SIM_FAULT_TRUNCATE:
        return quantize(x, truncated(own, fault->params[0]), trunc);
    case USC_SIM_FAULT_ROUND_AWAY:
        return quantize(x, truncated(own, fault->params[0]), away);
    case USC_SIM_FAULT_FLUSH_SUBNORMALS:
        return fabs(x) < ldexp(1.0, own->emin) ? copysign(0.0, x) : x;
    case USC_SIM_FAULT_SATURATE:
        return saturated(x, fault->params[0]);
    case USC_SIM_FAULT_NAN_SWALLOWED:
        return isnan(x) ? fault->params[0] : x;
    case USC_SIM_FAULT_SCALE:
        return x * fault->params[0];
    case USC_SIM_FAULT_DRIFT:
        return x * (1 + fault->params[0] * (double)fault->n_calls);
    case USC_SIM_FAULT_OFFSET:
        return x + fault->params[0];
    case USC_SIM_FAULT_CONSTANT:
        return fault->params[0];
    default:
        return x;
    }
}

/* Up with the probability that says how near that is. */
static double by_chance(double x, const usc_sim_fault *fault, const usc_dtype_info *own,
                        size_t i)
{
    const format f = truncated(own, fault->params[0]);
    const double down = quantize(x, f, trunc), up = quantize(x, f, away);
    if (!isfinite(x) || fabs(up - down) <= 0) return x;
    const uint64_t seed = fault->seed + (uint64_t)fault->n_calls * 0x10001u;
    return fault_chance(seed, i) < (x - down) / (up - down) ? up : down;
}

static bool map_chunk(const usc_sim_fault *fault, const usc_sim_elements *e, size_t from,
                      size_t n)
{
    const usc_dtype_info *own = usc_dtype_info_of(e->dtype);
    char *at = (char *)e->data + from * own->size;
    double values[CHUNK];
    double stored[CHUNK]; /* room for any dtype */
    bool changed = false;
    usc_dtype_widen(e->dtype, at, values, n);
    for (size_t i = 0; i < n; i++)
        values[i] = fault->kind == USC_SIM_FAULT_ROUND_STOCHASTIC
                        ? by_chance(values[i], fault, own, from + i)
                        : map_value(values[i], fault, own);
    usc_dtype_narrow(e->dtype, values, stored, n);
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

int fault_map_all(const usc_sim_fault *fault, const usc_sim_elements *e)
{
    bool changed = false;
    for (size_t i = 0; i < e->n; i += CHUNK)
        if (map_chunk(fault, e, i, e->n - i < CHUNK ? e->n - i : CHUNK)) changed = true;
    return changed;
}
