// SPDX-License-Identifier: Apache-2.0
// Names the modules of a finding in few words.
#ifndef USC_REPORT_PLACES_H
#define USC_REPORT_PLACES_H

#include "report/report_model.h"

/**
 * Writes the modules of `f` as "layers.{0-3}.attn, head"; at most `at_most` families.
 *
 * Memory: scratch in the report's arena.
 * Errors: USC_E_NOMEM, those of `o`.
 */
USC_NODISCARD usc_status usc_places_put(usc_out *o, usc_report *r,
                                        const usc_report_finding *f, int at_most);

#endif
