// SPDX-License-Identifier: Apache-2.0
// Between the sweep over the operands (judge_pass.c) and the rule for a single element
// (judge_element.c).
#ifndef USC_JUDGE_ELEMENT_H
#define USC_JUDGE_ELEMENT_H

#include "judge/judge_state.h"

/** One sweep. */
typedef struct usc_pass {
    usc_judge *j;
    const usc_view *view;
    const usc_walk *flushed; /* NULL where there is no such replay */
    usc_score_params params;
    usc_element_function *call;
    void *ctx;
} usc_pass;

/** One block: where it lies and what has been loaded of it. */
typedef struct usc_block {
    const usc_pass *p;
    usc_judge_scratch *s;
    int64_t at;
    size_t count;
    const double *d, *r;
    usc_scales scales;
    const double *y;       /* rounded to the device's dtype, or NULL: not loaded */
    const double *flushed; /* loaded with y, NULL where there is none */
    const double *y_raw;
} usc_block;

/** Judges element i of a block and adds it to the thread's tally. */
void usc_judge_element(usc_block *b, size_t i);

/** Loads Y as it is and as the device's dtype holds it, once. */
void usc_block_load_yardstick(usc_block *b);

/** Loads the flushed replay where there is one, once. */
void usc_block_load_flushed(usc_block *b);

#endif
