// SPDX-License-Identifier: Apache-2.0
// Which calls a session takes, where it is not to take all: one of each signature in a
// step, and no more bytes than there is room for. Neighbour: take.c.
#ifndef USC_CAPTURE_SIFT_H
#define USC_CAPTURE_SIFT_H

#include "capture/session.h"

/** Whether the call is to be taken; one that is not is counted. Takes and gives up the
 * session's lock. */
bool usc_sift_wants(usc_capture *c, const usc_capture_call *call);

/** A step begins: every signature is new again. Under the lock. */
void usc_sift_step(usc_capture *c);

#endif
