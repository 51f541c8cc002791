// SPDX-License-Identifier: Apache-2.0
// What every file of a session does: say that it failed, grow memory, send a message to
// the writer. See session.h. Neighbours: session.c (its life, names and steps).
#include "capture/session.h"

void usc_session_fail(usc_capture *c, const usc_error *err)
{
    pthread_mutex_lock(&c->error_lock);
    if (c->error.status == USC_OK) c->error = *err;
    pthread_mutex_unlock(&c->error_lock);
    atomic_store(&c->failed, true);
}

void usc_session_fail_memory(usc_capture *c, const char *what)
{
    usc_error err;
    (void)usc_error_set(&err, USC_E_NOMEM, -1, "capture: no memory for %s", what);
    usc_session_fail(c, &err);
}

usc_status usc_capture_status(usc_capture *c, usc_error *err)
{
    if (!atomic_load(&c->failed)) return USC_OK;
    pthread_mutex_lock(&c->error_lock);
    const usc_status st = c->error.status;
    if (err != NULL) *err = c->error;
    pthread_mutex_unlock(&c->error_lock);
    return st;
}

bool usc_session_scratch(usc_capture *c, usc_scratch *s, size_t size)
{
    if (size <= s->size) return true;
    const size_t grown = size > 2 * s->size ? size : 2 * s->size;
    void *at = c->alloc->resize(c->alloc->ctx, s->at, s->size, grown);
    if (at == NULL) {
        usc_session_fail_memory(c, "a call's tensors");
        return false;
    }
    *s = (usc_scratch){.at = at, .size = grown};
    return true;
}

bool usc_session_send(usc_capture *c, usc_message_kind kind, usc_pack_function *pack,
                      const void *what)
{
    usc_packer p = {0};
    pack(&p, what);
    unsigned char *payload = usc_ring_start(&c->ring, kind, p.n);
    if (payload == NULL) {
        usc_session_fail_memory(c, "a message");
        return false;
    }
    p = (usc_packer){.at = payload};
    pack(&p, what);
    usc_ring_send(&c->ring, 0);
    return true;
}

/* A row of up to two texts under an id; what META, OP, MODULE, STACK and NOTE carry. */
typedef struct text_row {
    int64_t id;
    const char *first, *second;
} text_row;

static void pack_text_row(usc_packer *p, const void *what)
{
    const text_row *row = what;
    usc_pack_i64(p, row->id);
    usc_pack_text(p, row->first);
    usc_pack_text(p, row->second);
}

bool usc_session_send_texts(usc_capture *c, usc_message_kind kind, int64_t id,
                            const char *first, const char *second)
{
    const text_row row = {.id = id, .first = first, .second = second};
    return usc_session_send(c, kind, pack_text_row, &row);
}

void usc_session_note(usc_capture *c, int64_t call, const char *kind, const char *text)
{
    usc_session_send_texts(c, USC_MESSAGE_NOTE, call, kind, text);
}
