// SPDX-License-Identifier: Apache-2.0
// Bytes of touched storages; see touch.h.
#include "capture/touch.h"

#include "capture/fetch.h"

#include <stdio.h>

/* Of fetched storages: views up to this many pieces are compared whole, larger ones at
 * USC_MAX_LOOKS pieces. */
#define FEW_PIECES 16

bool usc_touch_is_remote(const usc_capture *c, const usc_capture_tensor *t)
{
    return t->base == NULL && t->storage_size > 0 && t->look == 0 &&
           c->hooks.read != NULL;
}

usc_storage *usc_touch_storage(usc_capture *c, const usc_capture_tensor *t)
{
    usc_storage *s = usc_storage_find(&c->storages, t->storage);
    return s != NULL && s->size == t->storage_size ? s : NULL;
}

usc_content_way usc_touch_way(const usc_capture *c, const usc_capture_tensor *t)
{
    if (usc_touch_is_remote(c, t)) return USC_CONTENT_PARTS;
    return c->stats_only ? USC_CONTENT_SAMPLED : USC_CONTENT_WHOLE;
}

usc_bytes usc_touch_pieces(const usc_touch *at)
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

/* Makes `r` point at its bytes, read ahead or now; false: they cannot be had. */
static bool fetch(usc_capture *c, usc_touch *at, usc_bytes *r)
{
    const usc_bytes *have = &at->fetched;
    if (have->at != NULL && have->from <= r->from && r->to <= have->to) {
        r->at = have->at + (r->from - have->from);
        return true;
    }
    const usc_fetch *ahead = usc_fetch_find(c, at->t, r->from, r->to);
    if (at->failed) return false;
    if (ahead != NULL && ahead->err.status == USC_OK) {
        r->at = ahead->at + (r->from - ahead->from);
        return true;
    }
    if (ahead != NULL) {
        tell_unreadable(c, at, &ahead->err);
        at->failed = true;
        return false;
    }
    at->fetched.at = NULL;
    const int64_t size = r->to - r->from;
    if (!usc_session_scratch(c, &c->bytes, (size_t)size)) return false;
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
        r = usc_touch_pieces(at);
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

static bool is_checked(const usc_touch *at)
{
    const usc_storage *s = at->s;
    return s->checked_call == at->call && s->checked_from <= at->reach.from &&
           s->checked_to >= at->reach.to;
}

int usc_touch_looks(const usc_touch *at, usc_bytes *looks)
{
    const int64_t piece = USC_CONTENT_FETCHED;
    const usc_bytes r = usc_touch_pieces(at);
    if (is_checked(at) || !at->s->readable || r.to <= r.from) return 0;
    looks[0] = r;
    if (r.to - r.from <= FEW_PIECES * piece || usc_touch_part(at) == NULL) return 1;
    const int64_t last = (r.to - 1) / piece, first = r.from / piece;
    for (int64_t k = 0; k < USC_MAX_LOOKS; k++) {
        const int64_t i = first + (last - first) * k / (USC_MAX_LOOKS - 1);
        looks[k] = (usc_bytes){.from = i * piece, .to = (i + 1) * piece};
        if (looks[k].to > at->t->storage_size) looks[k].to = at->t->storage_size;
    }
    return USC_MAX_LOOKS;
}

/* The same for bytes that must be fetched: whether they are as taken, or cannot be had.
 */
static bool looks_unchanged(usc_capture *c, usc_touch *at)
{
    usc_bytes looks[USC_MAX_LOOKS];
    const int n = usc_touch_looks(at, looks);
    for (int i = 0; i < n; i++) {
        if (!fetch(c, at, &looks[i])) return true;
        if (!usc_content_same(&at->s->content, looks[i], looks[i].from, looks[i].to))
            return false;
    }
    return true;
}

bool usc_touch_is_unchanged(usc_capture *c, usc_touch *at)
{
    usc_storage *s = at->s;
    if (is_checked(at) || !s->readable) return true;
    if (usc_touch_is_remote(c, at->t)) {
        if (!looks_unchanged(c, at)) return false;
    } else {
        const usc_bytes bytes = usc_touch_bytes(c, at);
        if (!usc_content_same(&s->content, bytes, at->reach.from, at->reach.to))
            return false;
    }
    s->checked_call = at->call;
    s->checked_from = at->reach.from;
    s->checked_to = at->reach.to;
    return true;
}

bool usc_touch_asks_content(const usc_capture_tensor *t)
{
    return t->maybe == USC_MAYBE_CONTENT || t->maybe == USC_MAYBE_STRAY;
}

bool usc_touch_was_written(usc_capture *c, const usc_capture_tensor *t, int64_t call)
{
    if (t->maybe == USC_MAYBE_NOT) return true;
    usc_storage *s =
        t->storage != NULL ? usc_storage_find(&c->storages, t->storage) : NULL;
    if (s == NULL || s->size != t->storage_size) return s != NULL;
    if (t->maybe == USC_MAYBE_STRAY && s->writer >= call) return s->writer == call;
    if (s->writer >= call || t->maybe == USC_MAYBE_CALLS) return s->writer >= call;
    if (t->look != 0) return t->maybe == USC_MAYBE_CONTENT; /* nobody can tell */
    usc_touch at = {.t = t, .s = s, .call = call, .reach = usc_view_reach(t)};
    s->checked_call = 0; /* that was before it ran */
    return !usc_touch_is_unchanged(c, &at);
}
