// SPDX-License-Identifier: Apache-2.0
// What computes the answers of a run: facts that the first worker tells. A run that was
// cut short goes on only where they are what they were.
#ifndef USC_RUN_IDENTITY_H
#define USC_RUN_IDENTITY_H

#include <ulpscope/x/run.h>

#include "json/json.h"

/** What of two sets of facts is not the same, as a clause; "" where nothing is.
 * False: no memory, and `out` may lack some of it. */
bool usc_identity_difference(const usc_json *before, const usc_json *now, char *out,
                             size_t size);

#endif
