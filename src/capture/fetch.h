// SPDX-License-Identifier: Apache-2.0
// Bytes of device storages that a call needs, read before the session works on the call:
// a device takes its time, and nobody's call is to wait for another's. Neighbours:
// fetched.c (the list), touch.c, which uses them; take.c.
#ifndef USC_CAPTURE_FETCH_H
#define USC_CAPTURE_FETCH_H

#include "capture/session.h"

/* A range of a storage, as it was at one generation. */
typedef struct usc_fetch {
    const usc_capture_tensor *t;
    int64_t id, generation; /* of the storage when it was read; id 0: not known yet */
    int64_t from, to;
    unsigned char *at; /* kept from call to call, `room` bytes of it */
    int64_t room;
    bool is_read;
    usc_error err; /* status not OK: it cannot be read */
} usc_fetch;

typedef struct usc_fetches {
    usc_fetch *list; /* the first `n` are in use */
    int64_t n, max;
    struct usc_fetches *next_idle;
} usc_fetches;

/**
 * Takes the session's lock; before that, what hooks.read must give for these tensors of a
 * call has been read, as a rule, and is as recent as what the session knows. `sequence`:
 * 0 for a call that begins.
 */
void usc_fetch_ahead(usc_capture *c, const usc_capture_tensor *tensors, int n,
                     int64_t sequence);

/** The call is done with what was read for it. Under the lock, before that is given up.
 */
void usc_fetch_done(usc_capture *c);

/** What was read for the call at hand and holds [from, to) of the storage of `t`; NULL:
 * nothing. */
const usc_fetch *usc_fetch_find(const usc_capture *c, const usc_capture_tensor *t,
                                int64_t from, int64_t to);

/** What a list has of that range of the storage of `t`, read or not yet; NULL. */
const usc_fetch *usc_fetches_find(const usc_fetches *f, const usc_capture_tensor *t,
                                  int64_t from, int64_t to);

/** Frees what idle calls left. */
void usc_fetch_free(usc_capture *c);

#endif
