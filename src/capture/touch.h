// SPDX-License-Identifier: Apache-2.0
// One tensor of a call and the bytes of its storage: where they lie, or how they are
// fetched from a device, no more of them than the tensor needs. Neighbour: take.c.
#ifndef USC_CAPTURE_TOUCH_H
#define USC_CAPTURE_TOUCH_H

#include "capture/session.h"

/* One tensor of a call, with what is found out about it on the way. */
typedef struct usc_touch {
    const usc_capture_tensor *t;
    int64_t call;
    usc_reach reach;
    usc_storage *s;
    usc_bytes fetched; /* what the session's buffer holds of the storage */
    bool failed;       /* it cannot be fetched */
} usc_touch;

/** Whether the storage's bytes must be fetched by hooks.read: not of what is looked at
 * where it lies, whose bytes nobody here can have. */
bool usc_touch_is_remote(const usc_capture *c, const usc_capture_tensor *t);

/** What the session knows of its storage; NULL: nothing, or another one lay there. */
usc_storage *usc_touch_storage(usc_capture *c, const usc_capture_tensor *t);

/** How its content is remembered. */
usc_content_way usc_touch_way(const usc_capture *c, const usc_capture_tensor *t);

/** What is taken for this tensor: the whole storage, or, fetched, the pieces that it
 * reaches. `at` NULL where nobody can read them; a note says why. */
usc_bytes usc_touch_bytes(usc_capture *c, usc_touch *at);

/** First byte of the view as fetched or in place; NULL where nobody can read it. */
const void *usc_touch_view(usc_capture *c, usc_touch *at);

/** The part of the present generation that the view lies in; NULL: none has been taken.
 */
const usc_part *usc_touch_part(const usc_touch *at);

/* The most ranges that usc_touch_looks gives. */
#define USC_MAX_LOOKS 4

/** Of fetched storages: the pieces that the view reaches, as a range without bytes. */
usc_bytes usc_touch_pieces(const usc_touch *at);

/** Of fetched storages: the ranges at which they are compared with what was taken, all or
 * some of what the view reaches; returns how many. None where no look is needed. */
int usc_touch_looks(const usc_touch *at, usc_bytes *looks);

/** Whether its bytes tell whether the call wrote an argument. */
bool usc_touch_asks_content(const usc_capture_tensor *t);

/** Whether a call wrote an argument, as far as can be told: usc_capture_tensor.maybe. */
bool usc_touch_was_written(usc_capture *c, const usc_capture_tensor *t, int64_t call);

/** Whether what the view can reach is as it was taken. */
bool usc_touch_is_unchanged(usc_capture *c, usc_touch *at);

#endif
