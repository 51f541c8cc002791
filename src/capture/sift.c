// SPDX-License-Identifier: Apache-2.0
// A live check records to judge at once, so it looks before a byte is read whether a call
// is worth it. What is left out leaves no trace but in the counters; what it wrote shows
// where the storage is used again, as for any write that nobody told of.
#include "capture/sift.h"

#include "capture/touch.h"

#include <string.h>

/* What two calls of one signature have in common of a tensor, packed without gaps. */
typedef struct form {
    int64_t dtype, ndim, role;
    int64_t sizes[USC_MAX_DIMS], strides[USC_MAX_DIMS];
} form;

static usc_hash128 mixed(usc_hash128 key, const void *bytes, size_t size)
{
    const usc_hash128 parts[2] = {key, usc_hash_bytes(bytes, size)};
    return usc_hash_bytes(parts, sizeof parts);
}

static usc_hash128 signature_of(const usc_capture_call *call)
{
    const int64_t first[2] = {call->op, (int64_t)call->phase};
    const char *args = call->args != NULL ? call->args : "";
    usc_hash128 key = mixed((usc_hash128){0}, first, sizeof first);
    key = mixed(key, args, strlen(args));
    for (int i = 0; i < call->n_tensors; i++) {
        const usc_capture_tensor *t = &call->tensors[i];
        form f;
        memset(&f, 0, sizeof f);
        f.dtype = (int64_t)t->view.dtype;
        f.ndim = t->view.ndim;
        f.role = t->i_arg;
        const size_t size = (size_t)t->view.ndim * sizeof(int64_t);
        if (t->view.ndim > 0) memcpy(f.sizes, t->view.sizes, size);
        if (t->view.ndim > 0) memcpy(f.strides, t->view.strides, size);
        key = mixed(key, &f, sizeof f);
    }
    return key;
}

/* Bytes that an argument would add: of a storage that is fetched no more than its view
 * reaches. What the session knows is there already, unless it was written, which shows
 * when it is taken. */
static int64_t would_add(usc_capture *c, const usc_capture_tensor *t)
{
    const usc_touch at = {
        .t = t, .reach = usc_view_reach(t), .s = usc_touch_storage(c, t)};
    if (!usc_touch_is_remote(c, t))
        return at.s == NULL || t->written ? t->storage_size : 0;
    if (at.s != NULL && !t->written && usc_touch_part(&at) != NULL) return 0;
    const usc_bytes pieces = usc_touch_pieces(&at);
    return t->unread || pieces.to <= pieces.from ? 0 : pieces.to - pieces.from;
}

/* The same of all arguments of a call. */
static int64_t would_take(usc_capture *c, const usc_capture_call *call)
{
    int64_t size = 0;
    for (int i = 0; i < call->n_tensors; i++) {
        const usc_capture_tensor *t = &call->tensors[i];
        if (t->storage != NULL) size += would_add(c, t);
    }
    return size;
}

static bool has_room(usc_capture *c, const usc_capture_call *call)
{
    return c->most_bytes == 0 ||
           c->counts.bytes_copied + would_take(c, call) <= c->most_bytes;
}

/* Whether the call is behind those that had their turn, and there is room. A composite
 * one is there for those inside it. */
static bool is_its_turn(usc_capture *c, const usc_capture_call *call)
{
    if (call->composite) return c->n_offered >= c->pass_first && has_room(c, call);
    const int64_t number = ++c->n_offered;
    if (number <= c->pass_first) return false;
    if (has_room(c, call)) return true;
    if (c->counts.first_refused == 0) c->counts.first_refused = number;
    return false;
}

static bool is_first(usc_capture *c, const usc_capture_call *call)
{
    if (!c->distinct) return true;
    const int64_t n = (int64_t)c->seen.n;
    return usc_keys_put(&c->seen, signature_of(call), n) == n;
}

bool usc_sift_wants(usc_capture *c, const usc_capture_call *call)
{
    if (!c->distinct && c->most_bytes == 0 && c->pass_first == 0) return true;
    pthread_mutex_lock(&c->lock);
    bool wanted = true;
    if (c->step_open && !is_first(c, call)) {
        c->counts.n_repeated++;
        wanted = false;
    } else if (c->step_open && !is_its_turn(c, call)) {
        c->counts.n_left += !call->composite;
        wanted = false;
    }
    if (c->seen.failed) usc_session_fail_memory(c, "signatures");
    pthread_mutex_unlock(&c->lock);
    return wanted;
}

void usc_sift_step(usc_capture *c)
{
    usc_keys_free(&c->seen);
    c->seen = (usc_keys){0};
    if (c->n_offered > 0) c->pass_first = 0;
    c->n_offered = 0;
}
