// SPDX-License-Identifier: Apache-2.0
// Which storage does a tensor of a call touch, which generation of it is that, and are its
// bytes taken already? See take_tensor.h.
#include "capture/take_tensor.h"

/* ---- tensor rows ---- */

static bool wants_stats(const usc_touch *at)
{
    return at->reach.known && at->t->view.dtype != USC_DTYPE_NONE;
}

/* The elements of a tensor, as a view; false: they cannot be had. */
static bool view_of(usc_capture *c, usc_touch *at, usc_tensor *view)
{
    union {
        const void *in;
        void *out;
    } first = {.in = usc_touch_view(c, at)}; /* the view is only read */
    *view = at->t->view;
    view->data = first.out;
    return first.in != NULL;
}

/* Without data kept, statistics of large tensors are computed here, once per distinct
 * bytes. NULL: none. */
static const usc_stats *stats_here(usc_capture *c, usc_touch *at, uint64_t key)
{
    usc_storage *s = at->s;
    usc_tensor view;
    for (int64_t i = 0; i < s->n_stats; i++)
        if (s->stats[i].key == key) return &s->stats[i].stats;
    if (!view_of(c, at, &view)) return NULL;
    usc_stats *stats = usc_storage_add_stats(&c->storages, s, key);
    if (stats == NULL)
        usc_session_fail_memory(c, "statistics");
    else if (usc_stats_compute(&view, NULL, stats, NULL) != USC_OK)
        s->n_stats--, stats = NULL;
    return stats;
}

/* A watcher wants the range alone, which is as fast as a copy. */
static void add_range(usc_capture *c, usc_touch *at, usc_tensor_message *m)
{
    usc_storage *s = at->s;
    const uint64_t key = m->dense_key;
    usc_tensor view;
    const usc_range *known = NULL;
    for (int64_t i = 0; i < s->n_ranges && known == NULL; i++)
        if (s->ranges[i].key == key) known = &s->ranges[i].range;
    if (known == NULL) {
        if (!view_of(c, at, &view)) return;
        usc_range *range = usc_storage_add_range(&c->storages, s, key);
        if (range == NULL) {
            usc_session_fail_memory(c, "statistics");
            return;
        }
        if (usc_range_compute(&view, range, NULL) != USC_OK) {
            s->n_ranges--;
            return;
        }
        known = range;
    }
    m->has_range = true;
    m->range = *known;
}

/* Bytes up to which a tensor is copied for the writer to compute its statistics: that is
 * cheaper than to compute them here, up to where a histogram counts every element. What
 * had to be fetched is not fetched again for a second view. */
#define WORTH_COPYING ((int64_t)32 << 10)

/* Without data kept: statistics of the tensor, or what they can be computed from. */
static void add_stats(usc_capture *c, usc_touch *at, usc_tensor_message *m)
{
    const int64_t size = at->reach.to - at->reach.from;
    if (c->watcher != NULL) {
        add_range(c, at, m);
        return;
    }
    if (size > WORTH_COPYING || usc_touch_is_remote(c, at->t)) {
        m->row.stats = stats_here(c, at, m->dense_key);
        return;
    }
    const unsigned char *first = usc_touch_view(c, at);
    if (first == NULL) return;
    m->bytes = first - (at->reach.first - at->reach.from);
    m->from = at->reach.from;
    m->size = size;
}

static usc_tensor_message tensor_message(usc_capture *c, usc_touch *at)
{
    const usc_capture_tensor *t = at->t;
    usc_tensor_message m = {
        .row = {.id = ++c->n_tensors,
                .version = at->s->version,
                .dtype_name = t->dtype_name != NULL
                                  ? t->dtype_name
                                  : usc_dtype_info_of(t->view.dtype)->name,
                .ndim = t->view.ndim,
                .sizes = t->view.sizes,
                .strides = t->view.strides,
                .offset = t->offset,
                .form = t->form,
                .requires_grad = t->requires_grad},
        .dtype = t->view.dtype,
        .first = at->reach.first,
    };
    const usc_part *part = usc_touch_part(at);
    if (part != NULL && !c->stats_only) m.part = part->id, m.row.first = part->from;
    if (!wants_stats(at)) return m;
    m.dense_key = usc_view_stats_key(t, &at->reach);
    if (c->stats_only) add_stats(c, at, &m);
    return m;
}

static void pack_tensor(usc_packer *p, const void *what)
{
    usc_pack_tensor(p, what);
}

/* Id of the tensor's row, which is made where this view is new; 0: failed. */
static int64_t tensor_id(usc_capture *c, usc_touch *at)
{
    usc_storage *s = at->s;
    const uint64_t key = usc_view_key(at->t);
    for (int64_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].key == key) return s->tensors[i].id;
    const usc_tensor_message m = tensor_message(c, at);
    if (!usc_session_send(c, USC_MESSAGE_TENSOR, pack_tensor, &m)) return 0;
    if (!usc_storage_add_tensor(&c->storages, s, key, m.row.id)) {
        usc_session_fail_memory(c, "a tensor");
        return 0;
    }
    return m.row.id;
}

/* ---- versions ---- */

typedef struct version_payload {
    usc_version_message version;
    usc_tensor_message tensor;
} version_payload;

static void pack_version(usc_packer *p, const void *what)
{
    const version_payload *v = what;
    usc_pack_bytes(p, &v->version, sizeof v->version);
    usc_pack_tensor(p, &v->tensor);
    if (v->version.way == USC_BYTES_INLINE) usc_pack_align(p);
}

/* Too large for the ring: written straight from where they are, while the caller waits.
 */
static bool lend_version(usc_capture *c, usc_touch *at, version_payload *v,
                         usc_bytes bytes)
{
    v->version.way = USC_BYTES_BORROWED;
    v->version.borrowed = bytes.at;
    usc_hash128 unused;
    (void)usc_content_take(&at->s->content, bytes, NULL, &unused);
    if (!usc_session_send(c, USC_MESSAGE_VERSION, pack_version, v)) return false;
    usc_ring_drain(&c->ring);
    return true;
}

/* Sends the version with `bytes` of its storage. */
static bool send_version(usc_capture *c, usc_touch *at, version_payload *v,
                         usc_bytes bytes)
{
    const bool keep = bytes.at != NULL && !c->stats_only;
    v->version.size = bytes.to - bytes.from;
    v->version.way = keep ? USC_BYTES_INLINE : USC_BYTES_NONE;
    usc_packer p = {0};
    pack_version(&p, v);
    const int64_t size = p.n, with = keep ? v->version.size : 0;
    c->counts.bytes_copied += with;
    if (size + with > usc_ring_largest(&c->ring) && keep)
        return lend_version(c, at, v, bytes);
    unsigned char *to = usc_ring_start(&c->ring, USC_MESSAGE_VERSION, size + with);
    if (to == NULL) {
        usc_session_fail_memory(c, "a message");
        return false;
    }
    if (bytes.at != NULL)
        v->version.hashed = usc_content_take(&at->s->content, bytes,
                                             keep ? to + size : NULL, &v->version.hash);
    p = (usc_packer){.at = to};
    pack_version(&p, v);
    usc_ring_send(&c->ring, 0);
    return true;
}

/* Sends the storage's present bytes as its version, or as a further part of it. */
static bool send_bytes(usc_capture *c, usc_touch *at, bool again)
{
    usc_storage *s = at->s;
    const usc_bytes bytes = usc_touch_bytes(c, at);
    s->readable = bytes.at != NULL;
    version_payload v = {.version = {.row = {.id = s->version,
                                             .storage = s->id,
                                             .generation = s->generation,
                                             .call = s->writer},
                                     .again = again}};
    if (s->content.way == USC_CONTENT_PARTS && s->readable) {
        const usc_part part = {.id = ++c->n_parts, .from = bytes.from, .to = bytes.to};
        if (!usc_storage_add_part(&c->storages, s, part)) {
            usc_session_fail_memory(c, "a part of a storage");
            return false;
        }
        v.version.part = part.id;
        v.version.first = part.from;
    }
    v.tensor = tensor_message(c, at);
    if (!send_version(c, at, &v, bytes)) return false;
    if (!usc_storage_add_tensor(&c->storages, s, usc_view_key(at->t), v.tensor.row.id)) {
        usc_session_fail_memory(c, "a tensor");
        return false;
    }
    s->checked_call = at->call;
    s->checked_from = bytes.from;
    s->checked_to = bytes.to;
    return true;
}

/* Begins the storage's generation `generation`, written by call `writer`. */
static bool begin_version(usc_capture *c, usc_touch *at, int64_t generation,
                          int64_t writer)
{
    usc_storage *s = at->s;
    for (int64_t i = 0; i < s->n_parts; i++)
        usc_content_drop(&s->content, s->parts[i].from, s->parts[i].to);
    usc_storage_renew(&c->storages, s);
    s->generation = generation;
    s->version = ++c->n_versions;
    s->writer = writer;
    s->readable = true;
    if (!usc_content_size(&s->content, c->alloc, s->size, usc_touch_way(c, at->t))) {
        usc_session_fail_memory(c, "hashes");
        return false;
    }
    return true;
}

/* Takes the storage's present bytes as that generation. */
static bool take(usc_capture *c, usc_touch *at, int64_t generation, int64_t writer)
{
    return begin_version(c, at, generation, writer) && send_bytes(c, at, false);
}

/* Of storages that must be fetched: takes what this view reaches and none before did. */
static bool take_part(usc_capture *c, usc_touch *at)
{
    const usc_storage *s = at->s;
    if (s->content.way != USC_CONTENT_PARTS || !s->readable || at->failed ||
        usc_touch_part(at) != NULL)
        return true;
    return send_bytes(c, at, true);
}

/* ---- storages ---- */

static void pack_storage(usc_packer *p, const void *what)
{
    const usc_storage_row *row = what;
    usc_pack_i64(p, row->id);
    usc_pack_i64(p, row->bytes);
    usc_pack_text(p, row->device);
}

static void pack_gone(usc_packer *p, const void *what)
{
    usc_pack_i64(p, ((const usc_storage *)what)->id);
}

/* Finds the touched storage or makes it (`*fresh`); false: failed. One whose size changed
 * is another storage: its row tells one size. */
static bool find_storage(usc_capture *c, usc_touch *at, bool *fresh)
{
    const usc_capture_tensor *t = at->t;
    usc_storage *s = usc_storage_find(&c->storages, t->storage);
    *fresh = s == NULL || s->size != t->storage_size;
    if (*fresh && s != NULL) {
        s->n_parts = 0;
        if (c->watcher != NULL) usc_session_send(c, USC_MESSAGE_GONE, pack_gone, s);
    }
    if (s == NULL) s = usc_storage_add(&c->storages, t->storage);
    if (s == NULL) {
        usc_session_fail_memory(c, "a storage");
        return false;
    }
    at->s = s;
    c->counts.bytes_seen += t->storage_size;
    if (!*fresh) return true;
    s->id = ++c->n_storages;
    s->size = t->storage_size;
    s->last_call = at->call;
    const usc_storage_row row = {
        .id = s->id, .device = t->device != NULL ? t->device : "cpu", .bytes = s->size};
    return usc_session_send(c, USC_MESSAGE_STORAGE, pack_storage, &row);
}

/* ---- roles ---- */

static bool remember_unobserved(usc_capture *c, const usc_storage *s)
{
    const size_t n = (size_t)c->n_unobserved;
    if (!usc_session_scratch(c, &c->unobserved, (n + 1) * sizeof(usc_unobserved)))
        return false;
    ((usc_unobserved *)c->unobserved.at)[n] =
        (usc_unobserved){.storage = s->id, .since = s->last_call};
    c->n_unobserved++;
    c->counts.n_unobserved++;
    return true;
}

static bool touch_input(usc_capture *c, usc_touch *at, bool fresh)
{
    if (fresh) return take(c, at, 0, 0);
    if (usc_touch_is_unchanged(c, at)) return true;
    return remember_unobserved(c, at->s) && take(c, at, at->s->generation + 1, 0);
}

/* An argument that the call wrote, after it: a new generation, once per call. Where calls
 * inside this one wrote it last, that generation is the one. */
static bool touch_mutated(usc_capture *c, usc_touch *at, bool fresh)
{
    if (fresh) return take(c, at, 0, at->call);
    if (at->s->writer == at->call) return true;
    if (at->s->writer > at->call && usc_touch_is_unchanged(c, at)) return true;
    return take(c, at, at->s->generation + 1, at->call);
}

/* A result: new, a view of an input (unchanged by promise of the schema), or something
 * that was there before; what then changed, the call wrote. */
static bool touch_output(usc_capture *c, usc_touch *at, bool fresh)
{
    if (fresh) return take(c, at, 0, at->call);
    if (at->s->writer == at->call || usc_touch_is_unchanged(c, at)) return true;
    return take(c, at, at->s->generation + 1, at->call);
}

/* An argument of which the call only makes a view, behind hooks.read: no byte of it is
 * fetched for that. Its row has no content, unless a part that lies there is kept
 * already.
 */
static int64_t touch_unread(usc_capture *c, usc_touch *at, bool fresh)
{
    usc_storage *s = at->s;
    if (!fresh && usc_touch_part(at) != NULL) return tensor_id(c, at);
    at->reach.known = false; /* nothing to compute statistics from */
    if (fresh && !begin_version(c, at, 0, 0)) return 0;
    const version_payload v = {.version = {.row = {.id = s->version, .storage = s->id},
                                           .way = USC_BYTES_NONE,
                                           .again = !fresh},
                               .tensor = tensor_message(c, at)};
    if (!usc_session_send(c, USC_MESSAGE_VERSION, pack_version, &v)) return 0;
    return v.tensor.row.id;
}

/* A tensor without storage (meta, sparse): rows that tell its shape and device and that
 * no content is kept. */
static int64_t touch_bare(usc_capture *c, usc_touch *at)
{
    usc_storage none = {.id = ++c->n_storages, .version = ++c->n_versions};
    const char *device = at->t->device != NULL ? at->t->device : "cpu";
    const usc_storage_row row = {.id = none.id, .device = device};
    at->s = &none;
    at->reach.known = false; /* nothing to compute statistics from */
    const version_payload v = {
        .version = {.row = {.id = none.version,
                            .storage = none.id,
                            .call = at->t->role == USC_ROLE_IN ? 0 : at->call},
                    .way = USC_BYTES_NONE},
        .tensor = tensor_message(c, at)};
    if (!usc_session_send(c, USC_MESSAGE_STORAGE, pack_storage, &row) ||
        !usc_session_send(c, USC_MESSAGE_VERSION, pack_version, &v))
        return 0;
    return v.tensor.row.id;
}

/* Id of the tensor row for one tensor of a call; 0: failed. */
int64_t usc_take_tensor(usc_capture *c, const usc_capture_tensor *t, int64_t call)
{
    usc_touch at = {.t = t, .call = call, .reach = usc_view_reach(t)};
    c->counts.n_tensors++;
    if (t->storage == NULL) return touch_bare(c, &at);
    bool fresh = false, ok = find_storage(c, &at, &fresh);
    if (ok && t->unread && usc_touch_is_remote(c, t)) {
        at.s->last_call = call;
        return touch_unread(c, &at, fresh);
    }
    if (ok && t->role == USC_ROLE_IN) ok = touch_input(c, &at, fresh);
    if (ok && t->role == USC_ROLE_MUTATED) ok = touch_mutated(c, &at, fresh);
    if (ok && t->role == USC_ROLE_OUT) ok = touch_output(c, &at, fresh);
    ok = ok && take_part(c, &at);
    if (!ok || atomic_load(&c->failed)) return 0;
    at.s->last_call = call;
    return tensor_id(c, &at);
}
