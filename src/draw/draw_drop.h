// SPDX-License-Identifier: Apache-2.0
// Dropouts and rrelu: what hangs on chance in their outputs, and what does not.
// Neighbours: draw_operator.c (which operator is which), draw_drop.c (masks, slopes),
// draw_drop_value.c (what was kept).
#ifndef USC_DRAW_DRAW_DROP_H
#define USC_DRAW_DRAW_DROP_H

#include "draw/draws.h"

/** Which dropout. */
typedef struct usc_drop_form {
    bool p_keeps;  /* its p is the chance to keep */
    bool alpha;    /* affine, so that mean and variance stay as they were */
    bool features; /* drops whole ones: a sample's channel */
    int unbatched; /* axes of an input without samples; 0: there always are some */
    double p;      /* chance to drop */
} usc_drop_form;

/** An argument by its name; NULL where there is none. */
const usc_draw_argument *usc_draw_argument_of(const usc_draw_call *call,
                                              const char *name);

/** What the operator works on; NULL with an error. */
const usc_tensor *usc_draw_input(const usc_draw_call *call, usc_error *err);

/** Findings on a dropout: what was kept by the rule for floats, its mask by its law. */
USC_NODISCARD usc_status usc_judge_dropout(const usc_draw_call *call,
                                           const usc_drop_form *form, usc_arena *arena,
                                           usc_findings *f, usc_error *err);

/** Findings on rrelu: x where it is not negative, else x times an even draw from [low,
 * high). */
USC_NODISCARD usc_status usc_judge_slopes(const usc_draw_call *call, double low,
                                          double high, usc_arena *arena, usc_findings *f,
                                          usc_error *err);

/** What becomes of a number that is kept or dropped. */
double usc_drop_value(const usc_drop_form *form, double x, bool kept);

/** One answer of a dropout, row-major. */
typedef struct usc_drop_answer {
    const usc_tensor *x, *y;
    const double *xs, *ys;
    unsigned char *kept, *shown;
    int64_t n;
} usc_drop_answer;

/** Adds the finding on what was kept and dropped, by the rule for floats. */
USC_NODISCARD usc_status usc_judge_kept(const usc_drop_form *form,
                                        const usc_drop_answer *a, const char *path,
                                        usc_arena *arena, usc_findings *f,
                                        usc_error *err);

#endif
