// SPDX-License-Identifier: Apache-2.0
// How far two tensors lie apart: by their elements, or by their statistics alone.
#ifndef USC_DIFF_MEASURE_H
#define USC_DIFF_MEASURE_H

#include <ulpscope/x/diff.h>

/** One rounding of a dtype, relative: 2^-24 for float32; of complex numbers that of their
 * parts, of others 2^-24. */
double usc_diff_rounding(const char *dtype_name);

/**
 * The distance of two views of equal sizes, in one pass over both.
 *
 * Numbers: docs/reference/diff.md. `scale` is a size that an element counts as at least.
 * Errors:  USC_E_SHAPE and USC_E_RANGE of the views.
 */
USC_NODISCARD usc_status usc_diff_elements(const usc_tensor *a, const usc_tensor *b,
                                           double rounding, double scale,
                                           usc_diff_size *out, usc_error *err);

/** The distance of two tensors as far as their statistics tell it. Errors: as
 * usc_stats_from_json. */
USC_NODISCARD usc_status usc_diff_statistics(const char *a, const char *b,
                                             double rounding, double scale,
                                             usc_diff_size *out, usc_error *err);

/**
 * The distance of two arguments of calls: by data where both traces have them and not
 * `by_statistics`, else by statistics. Not told where their shapes differ.
 *
 * Errors:  those of reading the blobs and the statistics.
 */
USC_NODISCARD usc_status usc_diff_measure(usc_trace *ta, const usc_call_arg *a,
                                          usc_trace *tb, const usc_call_arg *b,
                                          bool by_statistics, double scale,
                                          usc_diff_size *out, usc_error *err);

#endif
