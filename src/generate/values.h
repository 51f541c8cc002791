// SPDX-License-Identifier: Apache-2.0
// Values of a kind (USC_STRESS_LIST) for a tensor of some form: what stress.c makes whole
// tensors of, and fuzz_fill.c storages.
#ifndef USC_GENERATE_VALUES_H
#define USC_GENERATE_VALUES_H

#include <ulpscope/x/generate.h>

enum { USC_VALUES_CHUNK = 256 };

/* What a recipe knows of the tensor. */
typedef struct usc_values {
    usc_dtype dtype;
    const usc_dtype_info *info;
    usc_stream d;
    int64_t n, rows, columns;
    int64_t first; /* elements of the first slice, 0 where it is all */
    usc_stress_domain domain;
    const double *normals; /* those of elements [from, from + n_normals) */
    int64_t from, n_normals, one[2];
} usc_values;

/** Of a form whose elements can be counted; stream and domain are zero. */
void usc_values_begin(usc_values *v, usc_dtype dtype, int ndim, const int64_t *sizes);

/** Elements [from, from + n) in row-major order, at most USC_VALUES_CHUNK; inside
 * usc_float_env_enter. */
void usc_values_take(const usc_values *v, usc_stress kind, int64_t from, int64_t n,
                     void *out);

/** usc_stream_normal of [from, from + n), in the same bits. */
void usc_stream_normals(usc_stream d, uint64_t from, int64_t n, double *out);

/** Whether a dtype may have values of a kind. */
bool usc_stress_suits(usc_stress kind, usc_dtype dtype);

#endif
