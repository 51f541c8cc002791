// SPDX-License-Identifier: Apache-2.0
// Rows get the form that statistics or operators ask for. Used by stand_in.c.
#ifndef USC_GENERATE_ROWS_H
#define USC_GENERATE_ROWS_H

#include "generate/bins.h"

/** Gives elements [from, from + n) of a float tensor, one row where the structure speaks
 * of rows, their form: sorted, normalised, one-hot, of a matrix as `need` asks. */
void usc_rows_form_floats(const usc_shape *shape, usc_need need, const usc_stats *s,
                          usc_stream stream, int64_t from, int64_t n, double *row);

/** Sorts a row of integers where the structure has sorted rows, and makes it one-hot. */
void usc_rows_order_integers(unsigned structure, bool is_unsigned, uint64_t *row,
                             int64_t n);

#endif
