// SPDX-License-Identifier: Apache-2.0
// Bytes of touched storages; see touch.h.
#include "capture/touch.h"

#include <stdio.h>

/* Of fetched storages: views up to this many pieces are compared whole, larger ones at
 * N_LOOKS pieces. */
#define FEW_PIECES 16
#define N_LOOKS 4

bool usc_touch_is_remote(const usc_capture *c, const usc_capture_tensor *t)
{
    return t->base == NULL && t->storage_size > 0 && c->hooks.read != NULL;
}

usc_content_way usc_touch_way(const usc_capture *c, const usc_capture_tensor *t)
{
    if (usc_touch_is_remote(c, t)) return USC_CONTENT_PARTS;
    return c->stats_only ? USC_CONTENT_SAMPLED : USC_CONTENT_WHOLE;
}

/* The pieces that the view reaches, as a range without bytes. */
static usc_bytes pieces_of(const usc_touch *at)
{
    const int64_t piece = USC_CONTENT_FETCHED, size = at->t->storage_size;
    usc_bytes r = {.from = at->reach.from / piece * piece,
                   .to = (at->reach.to + piece - 1) / piece * piece};
    if (r.to > size) r.to = size;
    return r;
}

/* Once per storage: a note that tells why its content is not in the trace. */
static void tell_unreadable(usc_capture *c, usc_touch *at, const usc_error *err)
{
    char text[400];
    if (at->s != NULL && at->s->told) return;
    if (at->s != NULL) at->s->told = true;
    snprintf(text, sizeof text,
             "a tensor on %.40s is left out: it cannot be read: %.280s",
             at->t->device != NULL ? at->t->device : "its device", err->text);
    usc_session_note(c, at->call, "unreadable", text);
}

/* Makes `r` point at its bytes in the session's buffer; false: they cannot be had. */
static bool fetch(usc_capture *c, usc_touch *at, usc_bytes *r)
{
    const usc_bytes *have = &at->fetched;
    if (have->at != NULL && have->from <= r->from && r->to <= have->to) {
        r->at = have->at + (r->from - have->from);
        return true;
    }
    at->fetched.at = NULL;
    const int64_t size = r->to - r->from;
    if (at->failed || !usc_session_scratch(c, &c->bytes, (size_t)size)) return false;
    usc_error err = {0};
    c->counts.bytes_read += size;
    if (c->hooks.read(c->hooks.ctx, at->t->storage, r->from, c->bytes.at, size, &err) !=
        USC_OK) {
        tell_unreadable(c, at, &err);
        at->failed = true;
        return false;
    }
    r->at = c->bytes.at;
    at->fetched = *r;
    return true;
}

usc_bytes usc_touch_bytes(usc_capture *c, usc_touch *at)
{
    static const unsigned char nothing[1] = "";
    const usc_capture_tensor *t = at->t;
    usc_bytes r = {.from = 0, .to = t->storage_size};
    if (t->storage_size == 0) {
        r.at = nothing;
    } else if (!usc_touch_is_remote(c, t)) {
        r.at = t->base;
    } else {
        r = pieces_of(at);
        if (r.to <= r.from)
            r.at = nothing; /* an empty view */
        else if (!fetch(c, at, &r))
            r.at = NULL;
    }
    return r;
}

const void *usc_touch_view(usc_capture *c, usc_touch *at)
{
    const usc_bytes r = usc_touch_bytes(c, at);
    return r.at != NULL ? r.at + (at->reach.first - r.from) : NULL;
}

const usc_part *usc_touch_part(const usc_touch *at)
{
    const usc_storage *s = at->s;
    for (int64_t i = s->n_parts; i-- > 0;)
        if (s->parts[i].from <= at->reach.from && at->reach.to <= s->parts[i].to)
            return &s->parts[i];
    return NULL;
}

/* Looks at pieces spread over a range; whether they are as taken, or cannot be had. */
static bool looks_unchanged(usc_capture *c, usc_touch *at, usc_bytes r)
{
    const int64_t piece = USC_CONTENT_FETCHED;
    const int64_t last = (r.to - 1) / piece, first = r.from / piece;
    for (int64_t k = 0; k < N_LOOKS; k++) {
        const int64_t i = first + (last - first) * k / (N_LOOKS - 1);
        usc_bytes one = {.from = i * piece, .to = (i + 1) * piece};
        if (one.to > at->t->storage_size) one.to = at->t->storage_size;
        if (!fetch(c, at, &one)) return true;
        if (!usc_content_same(&at->s->content, one, one.from, one.to)) return false;
    }
    return true;
}

static bool is_checked(const usc_touch *at)
{
    const usc_storage *s = at->s;
    return s->checked_call == at->call && s->checked_from <= at->reach.from &&
           s->checked_to >= at->reach.to;
}

bool usc_touch_is_unchanged(usc_capture *c, usc_touch *at)
{
    usc_storage *s = at->s;
    if (is_checked(at) || !s->readable) return true;
    if (usc_touch_is_remote(c, at->t)) {
        const usc_bytes r = pieces_of(at);
        const bool large = r.to - r.from > FEW_PIECES * USC_CONTENT_FETCHED;
        if (large && usc_touch_part(at) != NULL) return looks_unchanged(c, at, r);
    }
    const usc_bytes bytes = usc_touch_bytes(c, at);
    if (bytes.at == NULL) return true; /* not readable any more */
    if (!usc_content_same(&s->content, bytes, at->reach.from, at->reach.to)) return false;
    s->checked_call = at->call;
    s->checked_from = at->reach.from;
    s->checked_to = at->reach.to;
    return true;
}
