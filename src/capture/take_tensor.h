// SPDX-License-Identifier: Apache-2.0
// What one tensor of a call touches. Neighbours: take.c (calls), touch.c (bytes).
#ifndef USC_CAPTURE_TAKE_TENSOR_H
#define USC_CAPTURE_TAKE_TENSOR_H

#include "capture/touch.h"

#define USC_LEFT_OUT (-1) /* instead of the id of a tensor's row: it gets none */

/** Takes what a tensor of the call shows, as far as its role asks and nobody took it yet;
 * the id of its row, USC_LEFT_OUT, or 0: the session failed. Under the lock. */
int64_t usc_take_tensor(usc_capture *c, const usc_capture_tensor *t, int64_t call);

#endif
