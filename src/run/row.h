// SPDX-License-Identifier: Apache-2.0
// A row of the results: what the trace alone tells of a call, and what a worker found.
#ifndef USC_RUN_ROW_H
#define USC_RUN_ROW_H

#include <ulpscope/call.h>
#include <ulpscope/result.h>
#include <ulpscope/verdict.h>

#include "base/arena.h"
#include "json/json.h"

typedef struct usc_row {
    usc_arena arena; /* of the texts and metrics below */
    usc_result_row row;
    usc_verdict verdict;
    int64_t t_wide, t_causes; /* nanoseconds of one float64 replay, of the search */
} usc_row;

/** The row of a pick of which a worker found what stands in `found`. Errors:
 * USC_E_CORRUPT, USC_E_NOMEM. Memory: usc_row_free; needs `calls` and `found`. */
USC_NODISCARD usc_status usc_row_found(const usc_calls *calls, const usc_pick *pick,
                                       const usc_json *found, usc_row *out,
                                       usc_error *err);

/** The row of a pick whose worker did not live to tell: "OP: REASON". */
USC_NODISCARD usc_status usc_row_lost(const usc_calls *calls, const usc_pick *pick,
                                      usc_verdict verdict, const char *reason,
                                      usc_row *out, usc_error *err);

void usc_row_free(usc_row *row);

#endif
