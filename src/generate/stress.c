// SPDX-License-Identifier: Apache-2.0
// Values on which kernels break. Each element is a function of the stream and its place;
// recipes that need several draws take them from streams of their own.
#include <ulpscope/generate.h>

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/float_env.h"

enum { CHUNK = 256 };

/* What a recipe knows of the tensor. */
typedef struct frame {
    const usc_dtype_info *info;
    usc_stream d;
    int64_t n, columns, first; /* first: elements of the first slice, 0 where it is all */
    int64_t highest;           /* of integers: the largest that the example has */
    bool positive, unit;       /* what floats of the example keep to */
} frame;

typedef double recipe(const frame *f, int64_t i);

/* A stream of its own for each purpose. */
static usc_stream purpose(const frame *f, unsigned which)
{
    return (usc_stream){.seed = f->d.seed, .number = f->d.number ^ (uint64_t)which << 56};
}

static double normal_at(const frame *f, int64_t i)
{
    return usc_stream_normal(f->d, (uint64_t)i);
}

static double uniform_at(const frame *f, unsigned which, int64_t i)
{
    return usc_stream_uniform(purpose(f, which), (uint64_t)i);
}

/* About that share of the elements, at least one. */
static bool some(const frame *f, unsigned which, double share, int64_t i)
{
    if (uniform_at(f, which, i) < share) return true;
    return i == (int64_t)(uniform_at(f, which + 1, 0) * (double)f->n);
}

static double wide(const frame *f, int64_t i)
{
    const double octaves = f->info->size < 4 && f->info->largest < 1e5 ? 3 : 10;
    const double e = octaves * usc_stream_normal(purpose(f, 1), (uint64_t)i);
    return ldexp(normal_at(f, i), (int)fmax(-40, fmin(40, e)));
}

/* Neighbours along the last axis that almost cancel. */
static double cancelling(const frame *f, int64_t i)
{
    const int64_t column = i % f->columns;
    if (column % 2 == 0) return normal_at(f, i);
    return -normal_at(f, i - 1) *
           (1 + 0x1p-8 * usc_stream_normal(purpose(f, 1), (uint64_t)i));
}

static double common_offset(const frame *f, int64_t i)
{
    return 100 + normal_at(f, i);
}

static double zeros(const frame *f, int64_t i)
{
    if (i < f->first) return 0;
    if (!some(f, 1, 0.5, i)) return normal_at(f, i);
    return some(f, 3, 0.5, i) ? -0.0 : 0.0;
}

static double all_zeros(const frame *f, int64_t i)
{
    (void)f, (void)i;
    return 0;
}

static double subnormals(const frame *f, int64_t i)
{
    const double x = normal_at(f, i);
    return some(f, 1, 0.75, i) ? ldexp(x, f->info->emin) : x;
}

/* A few values whose squares overflow; sums of several of them do not, as then it hangs
 * on the order of adding whether an honest kernel overflows. */
static double near_overflow(const frame *f, int64_t i)
{
    const double x = normal_at(f, i);
    const int e = (int)(3 * uniform_at(f, 3, i));
    const double huge = ldexp(f->info->largest * (1 - 0.5 * uniform_at(f, 4, i)), -5 - e);
    return some(f, 1, 1.0 / 64, i) ? copysign(huge, x) : x;
}

static double ties(const frame *f, int64_t i)
{
    return floor(9 * uniform_at(f, 1, i)) / 4 - 1;
}

static double outliers(const frame *f, int64_t i)
{
    return normal_at(f, i) * (some(f, 1, 1.0 / 64, i) ? 200 : 1);
}

static double with_nan(const frame *f, int64_t i)
{
    return some(f, 1, 1.0 / 256, i) ? (double)NAN : normal_at(f, i);
}

static double with_inf(const frame *f, int64_t i)
{
    const double x = normal_at(f, i);
    return some(f, 1, 1.0 / 256, i) ? copysign((double)INFINITY, x) : x;
}

/* Whole numbers up to the largest one that the example has, which is there. */
static double indices(const frame *f, int64_t i)
{
    if (i == (int64_t)(uniform_at(f, 2, 0) * (double)f->n)) return (double)f->highest;
    return floor(uniform_at(f, 1, i) * ((double)f->highest + 1));
}

static double mask(const frame *f, int64_t i)
{
    return some(f, 1, 0.5, i);
}

static double one_hot(const frame *f, int64_t i)
{
    const double u = uniform_at(f, 1, i / f->columns);
    return i % f->columns == (int64_t)(u * (double)f->columns);
}

/* Ascending along the last axis, some neighbours equal. */
static double sorted(const frame *f, int64_t i)
{
    const int64_t column = i % f->columns;
    return (double)(column / 2 * 2) + (column % 4 == 3 ? uniform_at(f, 1, i) : 0);
}

static const struct kind {
    const char *text;
    recipe *value;
    bool for_floats, for_integers;
} kinds[USC_N_STRESS] = {
#define STRESS_KIND(id, text, value, floats, integers)                                   \
    [USC_STRESS_##id] = {text, value, floats, integers},
    USC_STRESS_LIST(STRESS_KIND)
#undef STRESS_KIND
};

const char *usc_stress_text(usc_stress kind)
{
    return (unsigned)kind < USC_N_STRESS ? kinds[kind].text : "unknown";
}

usc_stress usc_stress_by_text(const char *text)
{
    for (int k = 0; text != NULL && k < USC_N_STRESS; k++)
        if (strcmp(kinds[k].text, text) == 0) return (usc_stress)k;
    return USC_N_STRESS;
}

/* Draws a value into the domain of the example; NaN stays. */
static double held(const frame *f, double x)
{
    if (f->unit) return fabs(x) > 1 ? 1 / fabs(x) : fabs(x);
    if (f->positive) x = fabs(x);
    return isinf(x) ? x : fmax(-f->info->largest, fmin(f->info->largest, x));
}

static usc_status read_frame(const usc_tensor *like, usc_stream d, frame *f,
                             usc_error *err)
{
    usc_stats s;
    const usc_status st = usc_stats_compute(like, NULL, &s, err);
    if (st != USC_OK) return st;
    *f = (frame){.info = usc_dtype_info_of(like->dtype), .d = d, .n = s.n, .columns = 1};
    if (like->ndim > 0) f->columns = like->sizes[like->ndim - 1];
    if (like->ndim > 0 && like->sizes[0] > 1) f->first = s.n / like->sizes[0];
    f->highest = s.int_max > 0 ? s.int_max : 0;
    f->positive = s.min >= 0 && s.max > 0;
    f->unit = f->positive && s.max <= 1;
    return USC_OK;
}

static USC_NOINLINE void fill(const frame *f, usc_stress kind, usc_dtype dtype,
                              unsigned char *out)
{
    double values[CHUNK];
    for (int64_t from = 0; from < f->n; from += CHUNK) {
        const int64_t rest = f->n - from, n = rest < CHUNK ? rest : CHUNK;
        for (int64_t k = 0; k < n; k++) {
            const double x = kinds[kind].value(f, from + k);
            values[k] = f->info->kind != USC_KIND_FLOAT || isnan(x) ? x : held(f, x);
        }
        usc_dtype_narrow(dtype, values, out + (size_t)from * f->info->size, (size_t)n);
    }
}

usc_status usc_stress_make(usc_stress kind, const usc_tensor *like, usc_stream stream,
                           void *out, size_t size, usc_error *err)
{
    frame f;
    assert(like && (unsigned)kind < USC_N_STRESS);
    usc_status st = read_frame(like, stream, &f, err);
    if (st != USC_OK) return st;
    const bool is_float = f.info->kind == USC_KIND_FLOAT;
    if (!(is_float ? kinds[kind].for_floats : kinds[kind].for_integers))
        return usc_error_set(err, USC_E_DTYPE, -1, "no values of kind %s for %s",
                             kinds[kind].text, f.info->name);
    if (size != (size_t)f.n * f.info->size)
        return usc_error_set(err, USC_E_ARG, -1, "stress: room for %zu bytes, not %zu",
                             size, (size_t)f.n * f.info->size);
    const usc_float_env env = usc_float_env_enter();
    fill(&f, kind, like->dtype, out);
    usc_float_env_leave(env);
    return USC_OK;
}
