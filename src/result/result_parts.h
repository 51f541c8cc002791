// SPDX-License-Identifier: Apache-2.0
// Results of one run that were written apart: taken in, and taken away.
#ifndef USC_RESULT_PARTS_H
#define USC_RESULT_PARTS_H

#include <ulpscope/result.h>

/**
 * Copies all rows of the results in folder `part` into `r`, as they are, in one
 * transaction; *n counts them. Where `r` says nothing of what computed ("inputs"), it
 * takes that over as well.
 *
 * Errors: USC_E_EXISTS where `part` is of another run or computed by something else (the
 * text says what), those of usc_result_open.
 */
USC_NODISCARD usc_status usc_result_adopt(usc_result *r, const char *part, int64_t *n,
                                          usc_error *err);

/** Removes the results in a folder, and the folder where nothing else is in it. */
void usc_result_remove(const char *folder);

#endif
