// SPDX-License-Identifier: Apache-2.0
// Puts away what is found out of an output that is kept, where c->kept is not NULL.
#ifndef USC_CASE_KEPT_H
#define USC_CASE_KEPT_H

#include "case/case_state.h"

/** Begins, and ends, with an output. */
usc_status usc_case_keep_begin(usc_case *c, usc_error *err);
void usc_case_keep_end(usc_case *c);

/** Begins to keep another reading of the same output; keeps it with those before. */
usc_status usc_case_keep_reading(usc_case *c, usc_error *err);
void usc_case_kept_reading(usc_case *c);
void usc_case_keep_note(usc_case *c);
void usc_case_keep_excepted(usc_case *c, const usc_tensor *marks);
void usc_case_keep_apart(usc_case *c);
void usc_case_keep_refused(usc_case *c, usc_excuse excuse);

/* What was given, or has been found out. */
void usc_case_keep_dtype(usc_case *c);
void usc_case_keep_free(usc_case *c);
void usc_case_keep_kinds(usc_case *c);
void usc_case_keep_steps(usc_case *c);
void usc_case_keep_nearby(usc_case *c);
void usc_case_keep_added(usc_case *c);
void usc_case_keep_ties(usc_case *c);
void usc_case_keep_narrow(usc_case *c, int place, const double *run);
void usc_case_keep_sides(usc_case *c, const double *low, const double *high,
                         double least);
void usc_case_keep_run_steps(usc_case *c, const int64_t *at, const double *values,
                             int64_t n);
void usc_case_keep_lost(usc_case *c, const double *lost, const double *cut,
                        const double *shares, int64_t n_shares);
void usc_case_keep_native(usc_case *c);
void usc_case_keep_choice(usc_case *c, const usc_choice *how);
void usc_case_keep_run(usc_case *c, const usc_tensor *run);
void usc_case_keep_runs(usc_case *c);
void usc_case_keep_held(usc_case *c, bool any);
void usc_case_keep_usual(usc_case *c, const usc_tensor *usual);
void usc_case_keep_writes(usc_case *c, const int64_t *counts, const int64_t *rows);
void usc_case_keep_corners(usc_case *c, const uint8_t *where, int64_t n_sums);

/* Elements in a row; a tensor; numbers, as float32 where it holds all of them. */
void usc_case_keep_put(usc_case *c, const usc_tensor **to, const void *data,
                       usc_dtype dtype, int ndim, const int64_t *sizes);
void usc_case_keep_tensor(usc_case *c, const usc_tensor **to, const usc_tensor *t);
void usc_case_keep_sum(usc_case *c, const usc_tensor **to, const double *x);

#endif
