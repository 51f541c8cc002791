// SPDX-License-Identifier: Apache-2.0
// Values on which kernels break. Each element is a function of the stream and its place;
// recipes that need several draws take them from streams of their own.
#include "generate/values.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/float_env.h"

typedef usc_values frame;

typedef double recipe(const frame *f, int64_t i);

/* A stream of its own for each purpose. */
static usc_stream purpose(const frame *f, unsigned which)
{
    return (usc_stream){.seed = f->d.seed, .number = f->d.number ^ (uint64_t)which << 56};
}

static double normal_at(const frame *f, int64_t i)
{
    if (i >= f->from && i - f->from < f->n_normals) return f->normals[i - f->from];
    return usc_stream_normal(f->d, (uint64_t)i);
}

static double uniform_at(const frame *f, unsigned which, int64_t i)
{
    return usc_stream_uniform(purpose(f, which), (uint64_t)i);
}

/* About that share of the elements, at least one: `which` is 1 or 3. */
static bool some(const frame *f, unsigned which, double share, int64_t i)
{
    return uniform_at(f, which, i) < share || i == f->one[which / 2];
}

/* The one that some() takes whatever the share. */
static int64_t one_of(const frame *f, unsigned which)
{
    return (int64_t)(uniform_at(f, which + 1, 0) * (double)f->n);
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
    if (!some(f, 1, 1.0 / 64, i)) return x;
    const int e = (int)(3 * uniform_at(f, 3, i));
    const double huge = ldexp(f->info->largest * (1 - 0.5 * uniform_at(f, 4, i)), -5 - e);
    return copysign(huge, x);
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
    const double lowest = (double)f->domain.lowest, highest = (double)f->domain.highest;
    if (i == (int64_t)(uniform_at(f, 2, 0) * (double)f->n)) return highest;
    return lowest + floor(uniform_at(f, 1, i) * (highest - lowest + 1));
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

/* Symmetric matrices with a diagonal heavier than what stands beside it. */
static double definite(const frame *f, int64_t i)
{
    const int64_t c = f->columns, row = i / c % f->rows, column = i % c;
    if (f->rows != c) return normal_at(f, i);
    const int64_t first = i - row * c - column;
    const int64_t at = first + (row < column ? column * c + row : row * c + column);
    const double x = normal_at(f, at);
    return row == column ? 1 + fabs(x) : 0.2 / sqrt((double)c) * x;
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
    if (f->domain.unit) return fabs(x) > 1 ? 1 / fabs(x) : fabs(x);
    if (f->domain.positive) x = fabs(x);
    return isinf(x) ? x : fmax(-f->info->largest, fmin(f->info->largest, x));
}

bool usc_stress_suits(usc_stress kind, usc_dtype dtype)
{
    const bool is_float = usc_dtype_info_of(dtype)->kind == USC_KIND_FLOAT;
    return is_float ? kinds[kind].for_floats : kinds[kind].for_integers;
}

/* Whether most elements are normal numbers, or made of one. */
static bool is_of_normals(usc_stress kind)
{
    const bool whole = kind == USC_STRESS_INDEX || kind == USC_STRESS_MASK ||
                       kind == USC_STRESS_ONE_HOT || kind == USC_STRESS_SORTED;
    return !whole && kind != USC_STRESS_TIES && kind != USC_STRESS_ALL_ZEROS;
}

void usc_values_begin(usc_values *v, usc_dtype dtype, int ndim, const int64_t *sizes)
{
    *v = (usc_values){.dtype = dtype, .info = usc_dtype_info_of(dtype), .n = 1};
    for (int axis = 0; axis < ndim; axis++)
        v->n *= sizes[axis];
    v->columns = ndim > 0 ? sizes[ndim - 1] : 1;
    v->rows = ndim > 1 ? sizes[ndim - 2] : 1;
    if (ndim > 0 && sizes[0] > 1) v->first = v->n / sizes[0];
}

USC_NOINLINE void usc_values_take(const usc_values *v, usc_stress kind, int64_t from,
                                  int64_t n, void *out)
{
    double values[USC_VALUES_CHUNK], normals[USC_VALUES_CHUNK];
    usc_values at = *v;
    assert(n <= USC_VALUES_CHUNK);
    at.one[0] = one_of(v, 1);
    at.one[1] = one_of(v, 3);
    if (is_of_normals(kind)) {
        usc_stream_normals(v->d, (uint64_t)from, n, normals);
        at.normals = normals, at.from = from, at.n_normals = n;
    }
    for (int64_t k = 0; k < n; k++) {
        const double x = kinds[kind].value(&at, from + k);
        values[k] = v->info->kind != USC_KIND_FLOAT || isnan(x) ? x : held(v, x);
    }
    usc_dtype_narrow(v->dtype, values, out, (size_t)n);
}

static usc_status read_example(const usc_tensor *like, usc_stream d, usc_values *v,
                               usc_error *err)
{
    usc_stats s;
    const usc_status st = usc_stats_compute(like, NULL, &s, err);
    if (st != USC_OK) return st;
    usc_values_begin(v, like->dtype, like->ndim, like->sizes);
    v->d = d;
    v->domain.highest = s.int_max > 0 ? s.int_max : 0;
    v->domain.positive = s.min >= 0 && s.max > 0;
    v->domain.unit = v->domain.positive && s.max <= 1;
    return USC_OK;
}

usc_status usc_stress_make(usc_stress kind, const usc_tensor *like, usc_stream stream,
                           void *out, size_t size, usc_error *err)
{
    usc_values v;
    assert(like && (unsigned)kind < USC_N_STRESS);
    usc_status st = read_example(like, stream, &v, err);
    if (st != USC_OK) return st;
    if (!usc_stress_suits(kind, like->dtype))
        return usc_error_set(err, USC_E_DTYPE, -1, "no values of kind %s for %s",
                             kinds[kind].text, v.info->name);
    if (size != (size_t)v.n * v.info->size)
        return usc_error_set(err, USC_E_ARG, -1, "stress: room for %zu bytes, not %zu",
                             size, (size_t)v.n * v.info->size);
    const usc_float_env env = usc_float_env_enter();
    for (int64_t from = 0; from < v.n; from += USC_VALUES_CHUNK) {
        const int64_t rest = v.n - from;
        usc_values_take(&v, kind, from, rest < USC_VALUES_CHUNK ? rest : USC_VALUES_CHUNK,
                        (unsigned char *)out + (size_t)from * v.info->size);
    }
    usc_float_env_leave(env);
    return USC_OK;
}
