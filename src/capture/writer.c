// SPDX-License-Identifier: Apache-2.0
// The writer thread: takes messages off the ring, computes statistics of the bytes in
// them, turns them into rows and blobs, commits in time. See session.h.
#include "capture/writer.h"

#include "capture/recent.h"
#include "capture/session.h"
#include "capture/watch.h"
#include "trace/trace_write.h"

#include <stdio.h>
#include <string.h>

#define NAP_NS ((int64_t)20 * 1000000)
#define N_CACHED 4096 /* a power of two; a little more than a step's distinct tensors */

/* Direct-mapped: what a newer entry displaces is only not shared any more. */
typedef struct cached_stats {
    int64_t version;
    uint64_t key; /* 0: empty */
    usc_stats stats;
} cached_stats;

struct usc_stats_cache {
    cached_stats entries[N_CACHED];
};

usc_stats_cache *usc_stats_cache_make(const usc_alloc *alloc)
{
    usc_stats_cache *cache = alloc->resize(alloc->ctx, NULL, 0, sizeof *cache);
    for (size_t i = 0; cache != NULL && i < N_CACHED; i++)
        cache->entries[i].key = 0;
    return cache;
}

void usc_stats_cache_free(usc_stats_cache *cache, const usc_alloc *alloc)
{
    if (cache != NULL) alloc->resize(alloc->ctx, cache, sizeof *cache, 0);
}

static cached_stats *cache_entry(usc_stats_cache *cache, int64_t version, uint64_t key)
{
    const uint64_t i = key + (uint64_t)version * 0x9E3779B97F4A7C15u;
    return &cache->entries[(i >> 32) % N_CACHED];
}

/* Statistics of a tensor whose first element is at `bytes` (NULL: they are gone, only
 * the cache can tell); NULL: none. */
static const usc_stats *stats_of(usc_capture *c, const usc_tensor_message *m,
                                 const unsigned char *bytes)
{
    if (m->row.stats != NULL || m->has_range || m->dense_key == 0 ||
        c->stats_cache == NULL)
        return m->row.stats;
    cached_stats *e = cache_entry(c->stats_cache, m->row.version, m->dense_key);
    if (e->key == m->dense_key && e->version == m->row.version) return &e->stats;
    if (bytes == NULL) return NULL;
    union {
        const void *in;
        void *out;
    } first = {.in = bytes}; /* the view is only read */
    usc_tensor view = {.data = first.out, .dtype = m->dtype, .ndim = m->row.ndim};
    memcpy(view.sizes, m->row.sizes, (size_t)view.ndim * sizeof *view.sizes);
    memcpy(view.strides, m->row.strides, (size_t)view.ndim * sizeof *view.strides);
    e->key = 0;
    const usc_stats_options options = {.no_histogram = c->watcher != NULL};
    if (usc_stats_compute(&view, &options, &e->stats, NULL) != USC_OK) return NULL;
    e->key = m->dense_key;
    e->version = m->row.version;
    return &e->stats;
}

/* Blob of a part; a part without one cannot be. */
static int64_t *blob_of_part(usc_capture *c, int64_t part)
{
    if (!usc_session_scratch(c, &c->part_blobs, (size_t)(part + 1) * sizeof(int64_t)))
        return NULL;
    return (int64_t *)c->part_blobs.at + part;
}

static usc_status give_tensor(usc_capture *c, const usc_tensor_message *m, usc_error *err)
{
    if (c->watcher == NULL) return usc_trace_put_tensor(c->trace, &m->row, err);
    const usc_range range = m->row.stats != NULL ? usc_range_of(m->row.stats) : m->range;
    const bool known = m->has_range || m->row.stats != NULL;
    const usc_status st =
        usc_watcher_tensor(c->watcher, &m->row, known ? &range : NULL, err);
    return st != USC_OK || c->recent == NULL
               ? st
               : usc_recent_tensor(c->recent, &m->row, m->part, err);
}

/* A further view of what was taken before: what is kept of it tells its statistics. */
static const unsigned char *kept_bytes(const usc_capture *c, const usc_tensor_message *m,
                                       int64_t *from)
{
    if (c->recent == NULL) return NULL;
    *from = m->part > 0 ? m->row.first : 0;
    return usc_recent_find(c->recent, m->row.version, m->part);
}

/* `bytes` are those of its storage from byte `from` on; NULL: they are gone, unless the
 * message brings its own. */
static usc_status put_tensor(usc_capture *c, usc_unpacker *u, const unsigned char *bytes,
                             int64_t from, usc_error *err)
{
    usc_tensor_message m;
    usc_unpack_tensor(u, &m);
    if (m.bytes != NULL) bytes = m.bytes, from = m.from;
    if (bytes == NULL) bytes = kept_bytes(c, &m, &from);
    m.row.stats = stats_of(c, &m, bytes != NULL ? bytes + (m.first - from) : NULL);
    const int64_t *blob = m.part > 0 && c->trace != NULL ? blob_of_part(c, m.part) : NULL;
    if (blob != NULL) m.row.blob = *blob;
    return give_tensor(c, &m, err);
}

static usc_status stop(usc_capture *c, usc_error *err)
{
    char text[80];
    snprintf(text, sizeof text, "at the limit of %lld bytes", (long long)c->limit_bytes);
    atomic_store(&c->stopped, true);
    return usc_trace_set_meta(c->trace, "stopped", text, err);
}

static usc_status put_blob(usc_capture *c, const usc_version_message *m,
                           const void *bytes, int64_t *blob, usc_error *err)
{
    const int64_t size = m->size;
    *blob = 0;
    if (c->recent != NULL)
        return usc_recent_bytes(c->recent, m->row.id, m->part, bytes, size, err);
    if (c->watcher != NULL) return USC_OK; /* taken before that was over */
    if (c->limit_bytes > 0 && size > c->limit_bytes - atomic_load(&c->blob_bytes))
        return stop(c, err);
    const usc_status st =
        m->hashed ? usc_trace_put_hashed_blob(c->trace, m->hash, bytes, size, blob, err)
                  : usc_trace_put_blob(c->trace, bytes, size, blob, err);
    /* Ids are given in order: a higher one than ever is new content. */
    if (st == USC_OK && *blob > atomic_load(&c->n_blobs)) {
        atomic_store(&c->n_blobs, *blob);
        atomic_fetch_add(&c->blob_bytes, size);
    }
    return st;
}

static usc_status put_version_row(usc_capture *c, const usc_version_row *row,
                                  usc_error *err)
{
    if (c->watcher == NULL) return usc_trace_put_version(c->trace, row, err);
    const usc_status st = usc_watcher_version(c->watcher, row, err);
    return st != USC_OK || c->recent == NULL ? st
                                             : usc_recent_version(c->recent, row, err);
}

/* Version row, the row of the tensor for which it was taken, its bytes. */
static usc_status put_version(usc_capture *c, usc_unpacker *u, usc_error *err)
{
    usc_version_message m;
    memcpy(&m, usc_unpack_bytes(u, sizeof m), sizeof m);
    usc_unpacker tensor = *u;
    const unsigned char *bytes = NULL;
    if (m.way == USC_BYTES_BORROWED) bytes = m.borrowed;
    if (m.way == USC_BYTES_INLINE) {
        usc_tensor_message skipped;
        usc_unpack_tensor(u, &skipped);
        usc_unpack_align(u);
        bytes = u->at;
    }
    int64_t none, *blob = m.part > 0 ? blob_of_part(c, m.part) : &m.row.blob;
    if (blob == NULL) blob = &none; /* no memory: the session has failed */
    usc_status st = USC_OK;
    if (bytes != NULL) st = put_blob(c, &m, bytes, blob, err);
    if (st == USC_OK && !m.again) st = put_version_row(c, &m.row, err);
    if (st == USC_OK) st = put_tensor(c, &tensor, bytes, m.first, err);
    return st;
}

/* ---- calls ---- */

/* Text while it is put together, cut where there is no room: twice a call is too often
 * for printf. */
typedef struct short_text {
    char text[256];
    size_t n;
} short_text;

static void add_text(short_text *p, const char *text)
{
    while (*text != '\0' && p->n + 1 < sizeof p->text)
        p->text[p->n++] = *text++;
    p->text[p->n] = '\0';
}

static void add_index(short_text *p, int32_t i)
{
    char digits[16];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    digits[--at] = ']';
    do
        digits[--at] = (char)('0' + i % 10);
    while ((i /= 10) > 0);
    digits[--at] = '[';
    add_text(p, digits + at);
}

static void arg_path(short_text *to, const usc_arg_message *m, const char *keyword,
                     const char *whole, const char *part)
{
    to->n = 0;
    if (whole != NULL) {
        add_text(to, whole);
    } else if (keyword != NULL) {
        add_text(to, "kwargs.");
        add_text(to, keyword);
    } else {
        add_text(to, m->role == USC_ROLE_OUT ? "out" : "args");
        add_index(to, m->i_arg);
    }
    if (whole == NULL && m->i_item >= 0) add_index(to, m->i_item);
    if (part == NULL) return;
    add_text(to, ".");
    add_text(to, part);
}

static usc_status put_args(usc_capture *c, usc_unpacker *u, int64_t call, usc_error *err)
{
    usc_status st = USC_OK;
    for (int64_t n = usc_unpack_i64(u); st == USC_OK && n > 0; n--) {
        usc_arg_message m;
        short_text name;
        memcpy(&m, usc_unpack_bytes(u, sizeof m), sizeof m);
        const char *keyword = m.has_keyword ? usc_unpack_text(u) : NULL;
        const char *part = m.has_part ? usc_unpack_text(u) : NULL;
        arg_path(&name, &m, keyword, m.has_path ? usc_unpack_text(u) : NULL, part);
        const usc_arg_row row = {.call = call,
                                 .role = (usc_role)m.role,
                                 .path = name.text,
                                 .tensor = m.tensor};
        st = c->watcher != NULL ? usc_watcher_arg(c->watcher, &row, m.look, m.view, err)
                                : usc_trace_put_arg(c->trace, &row, err);
        if (st == USC_OK && c->recent != NULL) st = usc_recent_arg(c->recent, &row, err);
    }
    return st;
}

static usc_status put_unobserved(usc_capture *c, int64_t call, const usc_unobserved *seen,
                                 usc_error *err)
{
    char text[160];
    if (c->watcher != NULL && c->recent == NULL) return USC_OK;
    snprintf(text, sizeof text,
             "unobserved write between calls %lld and %lld to storage %lld",
             (long long)seen->since, (long long)call, (long long)seen->storage);
    if (c->recent != NULL)
        return usc_recent_text(c->recent, USC_MESSAGE_NOTE, call, "unobserved-write",
                               text, err);
    return usc_trace_put_note(c->trace, call, "unobserved-write", text, err);
}

static usc_status put_call(usc_capture *c, usc_unpacker *u, usc_error *err)
{
    usc_call_row row;
    memcpy(&row, usc_unpack_bytes(u, sizeof row), sizeof row);
    row.args = usc_unpack_text(u);
    row.state = usc_unpack_text(u);
    row.status = "unfinished";
    usc_status st = c->watcher != NULL ? usc_watcher_call(c->watcher, &row, err)
                                       : usc_trace_put_call(c->trace, &row, err);
    if (st == USC_OK && c->recent != NULL) st = usc_recent_call(c->recent, &row, err);
    if (st == USC_OK) st = put_args(c, u, row.sequence, err);
    for (int64_t n = st == USC_OK ? usc_unpack_i64(u) : 0; st == USC_OK && n > 0; n--)
        st = put_unobserved(c, row.sequence, usc_unpack_bytes(u, sizeof(usc_unobserved)),
                            err);
    return st;
}

/* Writes the last calls, once; that it cannot is no failure of the session. */
static void write_recent(usc_capture *c)
{
    if (c->recent == NULL || atomic_load(&c->keep_done)) return;
    usc_error err = {0};
    char *path = NULL;
    const usc_status st = usc_recent_write(c->recent, c->keep_path, &path, &err);
    if (st == USC_OK && path == NULL) return; /* no call yet */
    pthread_mutex_lock(&c->error_lock);
    c->kept = path;
    if (st != USC_OK) c->keep_error = err;
    pthread_mutex_unlock(&c->error_lock);
    atomic_store(&c->keep_done, true);
}

/* What comes from here on brings its statistics along. */
static void forget_recent(usc_capture *c)
{
    usc_recent_free(c->recent);
    c->recent = NULL;
    atomic_store(&c->held, 0);
}

static void end_kept(usc_capture *c, int64_t sequence, const char *status)
{
    usc_recent_end(c->recent, sequence, status);
    atomic_store(&c->held, usc_recent_held(c->recent));
    if (c->found != NULL && c->found(c->found_ctx)) write_recent(c);
}

static usc_status put_end(usc_capture *c, usc_unpacker *u, usc_error *err)
{
    const int64_t sequence = usc_unpack_i64(u);
    const int64_t how = usc_unpack_i64(u);
    const usc_status st = put_args(c, u, sequence, err);
    if (st != USC_OK || how == USC_END_NOT) return st;
    const char *status = how == USC_END_OK ? "ok" : "raised";
    if (c->watcher == NULL) return usc_trace_end_call(c->trace, sequence, status, err);
    const usc_status watched = usc_watcher_end(c->watcher, sequence, status, err);
    if (c->recent != NULL) end_kept(c, sequence, status);
    return watched;
}

/* ---- the rest ---- */

static usc_status put_storage(usc_capture *c, usc_unpacker *u, usc_error *err)
{
    usc_storage_row row = {.id = usc_unpack_i64(u), .bytes = usc_unpack_i64(u)};
    row.device = usc_unpack_text(u);
    if (c->watcher == NULL) return usc_trace_put_storage(c->trace, &row, err);
    const usc_status st = usc_watcher_storage(c->watcher, &row, err);
    return st != USC_OK || c->recent == NULL ? st
                                             : usc_recent_storage(c->recent, &row, err);
}

static usc_status put_step(usc_capture *c, usc_unpacker *u, usc_error *err)
{
    usc_step_row row;
    memcpy(&row, usc_unpack_bytes(u, sizeof row), sizeof row);
    return c->watcher != NULL ? USC_OK : usc_trace_put_step(c->trace, &row, err);
}

static usc_status put_looked(usc_capture *c, usc_unpacker *u, usc_error *err)
{
    usc_status st = USC_OK;
    if (c->watcher == NULL) return st;
    for (int64_t n = usc_unpack_i64(u); st == USC_OK && n > 0; n--)
        st = usc_watcher_looked(c->watcher, usc_unpack_bytes(u, sizeof(usc_looked)), err);
    return st == USC_OK ? usc_watcher_hand_over(c->watcher, false, err) : st;
}

static void put_gone(usc_capture *c, int64_t storage)
{
    usc_watcher_gone(c->watcher, storage);
    if (c->recent != NULL) usc_recent_gone(c->recent, storage);
}

/* Names that a watcher hands on; it wants no meta keys and no remarks. */
static usc_status watch_name(usc_capture *c, int64_t kind, usc_unpacker *u,
                             usc_error *err)
{
    usc_watcher *const w = c->watcher;
    const int64_t id = usc_unpack_i64(u);
    const char *name = usc_unpack_text(u), *second = usc_unpack_text(u);
    if (c->recent != NULL) {
        const usc_status st = usc_recent_text(c->recent, kind, id, name, second, err);
        if (st != USC_OK) return st;
    }
    if (kind == USC_MESSAGE_OP) return usc_watcher_name(w, USC_WATCHED_OP, id, name, err);
    if (kind == USC_MESSAGE_MODULE)
        return usc_watcher_name(w, USC_WATCHED_MODULE, id, name, err);
    if (kind == USC_MESSAGE_STACK)
        return usc_watcher_name(w, USC_WATCHED_STACK, id, name, err);
    return USC_OK;
}

static usc_status put_name(usc_capture *c, int64_t kind, usc_unpacker *u, usc_error *err)
{
    const int64_t id = usc_unpack_i64(u);
    const char *first = usc_unpack_text(u), *second = usc_unpack_text(u);
    if (kind == USC_MESSAGE_META) return usc_trace_set_meta(c->trace, first, second, err);
    if (kind == USC_MESSAGE_NOTE)
        return usc_trace_put_note(c->trace, id, first, second, err);
    if (kind == USC_MESSAGE_OP)
        return usc_trace_put_op(
            c->trace, &(usc_op_row){.id = id, .name = first, .schema = second}, err);
    if (kind == USC_MESSAGE_MODULE)
        return usc_trace_put_module(
            c->trace, &(usc_module_row){.id = id, .path = first, .class_name = second},
            err);
    return usc_trace_put_stack(c->trace, &(usc_stack_row){.id = id, .frames = first},
                               err);
}

static usc_status put_message(usc_capture *c, int64_t kind, const void *payload,
                              usc_error *err)
{
    usc_unpacker u = {.start = payload, .at = payload};
    switch (kind) {
    case USC_MESSAGE_STORAGE:
        return put_storage(c, &u, err);
    case USC_MESSAGE_VERSION:
        return put_version(c, &u, err);
    case USC_MESSAGE_TENSOR:
        return put_tensor(c, &u, NULL, 0, err);
    case USC_MESSAGE_CALL:
        return put_call(c, &u, err);
    case USC_MESSAGE_END:
        return put_end(c, &u, err);
    case USC_MESSAGE_STEP:
        return put_step(c, &u, err);
    case USC_MESSAGE_GONE:
        put_gone(c, usc_unpack_i64(&u));
        return USC_OK;
    case USC_MESSAGE_LOOKED:
        return put_looked(c, &u, err);
    case USC_MESSAGE_KEEP:
        write_recent(c);
        return USC_OK;
    case USC_MESSAGE_FORGET:
        forget_recent(c);
        return USC_OK;
    default:
        if (c->watcher != NULL) return watch_name(c, kind, &u, err);
        return put_name(c, kind, &u, err);
    }
}

/* Rows of calls, which end where the limit is reached; those around them do not. */
static bool is_of_calls(int64_t kind)
{
    return kind == USC_MESSAGE_STORAGE || kind == USC_MESSAGE_VERSION ||
           kind == USC_MESSAGE_TENSOR || kind == USC_MESSAGE_CALL ||
           kind == USC_MESSAGE_END || kind == USC_MESSAGE_STEP;
}

/* Once the session has failed, messages are only taken off, so that nobody waits. */
static void write_message(usc_capture *c, usc_ring_message *m)
{
    usc_error err = {0};
    const bool dropped = atomic_load(&c->stopped) && is_of_calls(m->kind);
    if (!atomic_load(&c->failed) && !dropped &&
        put_message(c, m->kind, usc_ring_payload(m), &err) != USC_OK)
        usc_session_fail(c, &err);
    usc_ring_done(&c->ring, m);
}

static void commit(usc_capture *c)
{
    usc_error err = {0};
    if (c->trace != NULL && !atomic_load(&c->failed) &&
        usc_trace_commit(c->trace, &err) != USC_OK)
        usc_session_fail(c, &err);
    usc_ring_durable(&c->ring);
}

void *usc_capture_writer_main(void *session)
{
    usc_capture *c = session;
    bool closed = false;
    while (!closed) {
        usc_ring_message *m = usc_ring_next(&c->ring, NAP_NS, &closed);
        if (m != NULL) write_message(c, m);
        if (usc_ring_due(&c->ring)) commit(c);
    }
    usc_error err = {0};
    if (c->watcher != NULL && !atomic_load(&c->failed) &&
        usc_watcher_hand_over(c->watcher, true, &err) != USC_OK)
        usc_session_fail(c, &err);
    commit(c);
    return NULL;
}
