// SPDX-License-Identifier: Apache-2.0
// Life of a capture session, its names, steps and remarks. See session.h.
#include "capture/session.h"

#include "base/arena.h"
#include "capture/fetch.h"
#include "capture/recent.h"
#include "capture/sift.h"
#include "capture/watch.h"
#include "capture/writer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/unmatched.h>

#define RING_SIZE ((int64_t)1 << 30)
#define RING_SIZE_STATS ((int64_t)64 << 20) /* no bytes go through it */
#define WARM ((int64_t)128 << 20)           /* about twice what was ever found waiting */
#define WARM_STATS ((int64_t)4 << 20)
#define COMMIT_BYTES ((int64_t)64 << 20)
#define COMMIT_MS 200

/* Takes the lock where the session still records; false, unlocked, where not. */
static bool enter(usc_capture *c)
{
    if (atomic_load(&c->failed)) return false;
    pthread_mutex_lock(&c->lock);
    return true;
}

static void leave(usc_capture *c)
{
    pthread_mutex_unlock(&c->lock);
}

/* ---- life ---- */

/* Frees what there is; the writer has been joined and the trace finished. */
static void free_session(usc_capture *c)
{
    if (c == NULL) return;
    const usc_alloc *alloc = c->alloc;
    usc_scratch *scratch[] = {&c->ids, &c->unobserved, &c->bytes, &c->part_blobs};
    for (size_t i = 0; i < sizeof scratch / sizeof scratch[0]; i++)
        if (scratch[i]->at != NULL)
            alloc->resize(alloc->ctx, scratch[i]->at, scratch[i]->size, 0);
    usc_sift_step(c);
    usc_fetch_free(c);
    usc_stats_cache_free(c->stats_cache, alloc);
    usc_watcher_free(c->watcher);
    usc_recent_free(c->recent);
    free(c->keep_path);
    free(c->kept);
    usc_storage_map_free(&c->storages);
    usc_arena_free(&c->names);
    usc_intern_free(&c->ops, alloc);
    usc_intern_free(&c->modules, alloc);
    usc_intern_free(&c->stacks, alloc);
    usc_ring_free(&c->ring);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->error_lock);
    alloc->resize(alloc->ctx, c, sizeof *c, 0);
}

static usc_status make_ring(usc_capture *c, const usc_capture_options *o, usc_error *err)
{
    const int64_t size = c->stats_only ? RING_SIZE_STATS : RING_SIZE;
    const usc_ring_options ring = {
        .alloc = c->alloc,
        .size = o->ring_size > 0 ? o->ring_size : size,
        .warm = c->stats_only ? WARM_STATS : WARM,
        .limit_bytes = o->trace.commit_bytes > 0 ? o->trace.commit_bytes : COMMIT_BYTES,
        .limit_ns = (o->trace.commit_ms > 0 ? o->trace.commit_ms : COMMIT_MS) * 1000000,
    };
    return usc_ring_make(&c->ring, &ring, err);
}

/* Everything but trace and thread. */
static usc_status make_session(const usc_capture_hooks *hooks,
                               const usc_capture_options *options, usc_capture **out,
                               usc_error *err)
{
    const usc_alloc *alloc = options->alloc != NULL ? options->alloc : &usc_libc_alloc;
    usc_capture *c = alloc->resize(alloc->ctx, NULL, 0, sizeof *c);
    if (c == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "capture: no memory");
    memset(c, 0, sizeof *c);
    c->alloc = alloc;
    if (hooks != NULL) c->hooks = *hooks;
    c->stats_only =
        options->stats_only || (options->watch != NULL && options->keep_calls == 0);
    c->limit_bytes = options->limit_bytes;
    c->distinct = options->distinct;
    c->most_bytes = options->most_bytes;
    c->pass_first = options->pass_first;
    c->names.alloc = *alloc;
    c->storages.alloc = alloc;
    c->storages.hooks = &c->hooks;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->error_lock, NULL);
    usc_status st = make_ring(c, options, err);
    if (st == USC_OK) {
        c->stats_cache = usc_stats_cache_make(alloc);
        if (c->stats_cache == NULL)
            st = usc_error_set(err, USC_E_NOMEM, -1, "capture: no memory for statistics");
    }
    if (st != USC_OK) {
        free_session(c);
        return st;
    }
    *out = c;
    return USC_OK;
}

static usc_status make_watcher(usc_capture *c, const usc_capture_options *options,
                               usc_error *err)
{
    usc_status st = usc_watcher_make(options->watch, &c->watcher, err);
    if (st != USC_OK || options->keep_calls <= 0) return st;
    c->keeps = true;
    c->found = options->watch->found;
    c->found_ctx = options->watch->ctx;
    c->keep_path = strdup(options->keep_path);
    st = usc_recent_make(options->keep_calls, options->keep_bytes, &c->recent, err);
    return c->keep_path != NULL ? st : usc_no_memory("the last calls", err);
}

static usc_status make_sink(usc_capture *c, const char *path,
                            const usc_capture_options *options, usc_error *err)
{
    usc_trace_options trace = options->trace;
    trace.alloc = c->alloc;
    return options->watch != NULL ? make_watcher(c, options, err)
                                  : usc_trace_create(path, &trace, &c->trace, err);
}

usc_status usc_capture_open(const char *path, const usc_capture_hooks *hooks,
                            const usc_capture_options *options, usc_capture **out,
                            usc_error *err)
{
    assert(out);
    static const usc_capture_options defaults = {0};
    if (options == NULL) options = &defaults;
    assert(path || options->watch);
    *out = NULL;
    usc_capture *c = NULL;
    usc_status st = make_session(hooks, options, &c, err);
    if (st != USC_OK) return st;
    st = make_sink(c, path, options, err);
    if (st != USC_OK) goto done;
    if (pthread_create(&c->writer, NULL, usc_capture_writer_main, c) != 0) {
        st = usc_error_set(err, USC_E_NOMEM, -1, "capture: cannot start the writer");
        const usc_status also = usc_trace_finish(c->trace, false, NULL);
        (void)also; /* the first error is the one to tell */
        goto done;
    }
    *out = c;
    c = NULL;

done:
    free_session(c);
    return st;
}

usc_status usc_capture_flush(usc_capture *c, usc_error *err)
{
    pthread_mutex_lock(&c->lock);
    usc_ring_flush(&c->ring);
    pthread_mutex_unlock(&c->lock);
    return usc_capture_status(c, err);
}

usc_status usc_capture_close(usc_capture *c, bool complete, usc_error *err)
{
    if (c == NULL) return USC_OK;
    usc_capture_step_end_as(c, false);
    usc_ring_end(&c->ring);
    pthread_join(c->writer, NULL);
    usc_error late = {0};
    const bool whole = complete && !atomic_load(&c->failed) && !atomic_load(&c->stopped);
    if (usc_trace_finish(c->trace, whole, &late) != USC_OK) usc_session_fail(c, &late);
    const usc_status st = usc_capture_status(c, err);
    free_session(c);
    return st;
}

void usc_capture_count(usc_capture *c, usc_capture_counts *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->counts;
    out->wait_ns = atomic_load(&c->ring.wait_ns);
    pthread_mutex_unlock(&c->lock);
    out->stopped = atomic_load(&c->stopped);
    out->bytes_held = atomic_load(&c->held);
    out->n_blobs = atomic_load(&c->n_blobs);
    out->bytes_written = atomic_load(&c->blob_bytes);
    out->ring_peak = atomic_load(&c->ring.peak);
}

/* ---- the last calls ---- */

static void pack_nothing(usc_packer *p, const void *what)
{
    (void)what;
    usc_pack_i64(p, 0);
}

void usc_capture_keep(usc_capture *c)
{
    if (!c->keeps || !enter(c)) return;
    usc_session_send(c, USC_MESSAGE_KEEP, pack_nothing, NULL);
    leave(c);
}

usc_status usc_capture_kept(usc_capture *c, const char **path, usc_error *err)
{
    pthread_mutex_lock(&c->error_lock);
    *path = c->kept;
    const usc_status st = c->keep_error.status;
    if (st != USC_OK && err != NULL) *err = c->keep_error;
    pthread_mutex_unlock(&c->error_lock);
    return st;
}

/* ---- looks ---- */

typedef struct looked_rows {
    const usc_looked *rows;
    int64_t n;
} looked_rows;

static void pack_looked(usc_packer *p, const void *what)
{
    const looked_rows *all = what;
    usc_pack_i64(p, all->n);
    for (int64_t i = 0; i < all->n; i++)
        usc_pack_bytes(p, &all->rows[i], sizeof all->rows[i]);
}

void usc_capture_looked(usc_capture *c, const usc_looked *rows, int64_t n)
{
    if (n == 0 || !enter(c)) return;
    const looked_rows all = {.rows = rows, .n = n};
    usc_session_send(c, USC_MESSAGE_LOOKED, pack_looked, &all);
    leave(c);
}

/* ---- names ---- */

/* Id of a key; where it is new, its row is sent. */
static int64_t intern(usc_capture *c, usc_intern *table, usc_hash128 key,
                      usc_message_kind kind, const char *first, const char *second)
{
    int64_t id = usc_intern_find(table, key);
    if (id != 0) return id;
    id = usc_intern_add(table, c->alloc, key);
    if (id == 0) {
        usc_session_fail_memory(c, "a name");
        return 0;
    }
    return usc_session_send_texts(c, kind, id, first, second) ? id : 0;
}

static void remember(usc_capture *c, const char *name)
{
    const char *copy = usc_arena_text(&c->names, name);
    if (c->n_op_names == c->op_names_room) {
        const char **more = usc_arena_grow(&c->names, c->op_name, c->n_op_names,
                                           &c->op_names_room, sizeof *more);
        if (more != NULL) c->op_name = more;
    }
    if (c->names.failed)
        usc_session_fail_memory(c, "a name");
    else
        c->op_name[c->n_op_names++] = copy;
}

int64_t usc_capture_op(usc_capture *c, const char *name, const char *schema)
{
    if (!enter(c)) return 0;
    const usc_hash128 key = usc_hash_bytes(name, strlen(name));
    const bool is_new = usc_intern_find(&c->ops, key) == 0;
    const int64_t id = intern(c, &c->ops, key, USC_MESSAGE_OP, name, schema);
    if (is_new && id != 0) remember(c, name);
    leave(c);
    return id;
}

void usc_capture_unmatched(usc_capture *c, const char *pattern, char *out, size_t size)
{
    if (size > 0) out[0] = '\0';
    if (!enter(c)) return;
    usc_pattern_unmatched(pattern, c->op_name, (int64_t)c->n_op_names, out, size);
    leave(c);
}

int64_t usc_capture_module(usc_capture *c, const char *path, const char *class_name)
{
    if (!enter(c)) return 0;
    usc_hash128 key = usc_hash_bytes(path, strlen(path));
    if (class_name != NULL) key.low ^= usc_hash64_bytes(class_name, strlen(class_name));
    const int64_t id = intern(c, &c->modules, key, USC_MESSAGE_MODULE, path, class_name);
    leave(c);
    return id;
}

int64_t usc_capture_stack(usc_capture *c, uint64_t key)
{
    if (!enter(c)) return 0;
    const int64_t id = usc_intern_find(&c->stacks, (usc_hash128){.low = key});
    leave(c);
    return id;
}

int64_t usc_capture_stack_add(usc_capture *c, uint64_t key, const char *frames)
{
    if (!enter(c)) return 0;
    const int64_t id =
        intern(c, &c->stacks, (usc_hash128){.low = key}, USC_MESSAGE_STACK, frames, NULL);
    leave(c);
    return id;
}

void usc_capture_meta(usc_capture *c, const char *key, const char *value)
{
    if (!enter(c)) return;
    usc_session_send_texts(c, USC_MESSAGE_META, 0, key, value);
    leave(c);
}

void usc_capture_note(usc_capture *c, int64_t sequence, const char *kind,
                      const char *text)
{
    if (!enter(c)) return;
    usc_session_note(c, sequence, kind, text);
    leave(c);
}

/* ---- steps ---- */

static void pack_step(usc_packer *p, const void *what)
{
    usc_pack_bytes(p, what, sizeof(usc_step_row));
}

/* A step has its row from its start on, so that a killed run shows it as cut short. */
static void send_step(usc_capture *c, bool complete)
{
    const bool any = c->counts.n_calls > c->step_first;
    const usc_step_row row = {.step = c->step,
                              .first_call = any ? c->step_first + 1 : 0,
                              .last_call = any ? c->counts.n_calls : 0,
                              .complete = complete};
    usc_session_send(c, USC_MESSAGE_STEP, pack_step, &row);
}

static void end_step(usc_capture *c, bool complete)
{
    if (c->step_open) send_step(c, complete);
    c->step_open = false;
}

void usc_capture_step_begin(usc_capture *c, int64_t step)
{
    if (!enter(c)) return;
    end_step(c, true);
    c->step_open = true;
    c->step = step;
    usc_sift_step(c);
    c->step_first = c->counts.n_calls;
    send_step(c, false);
    leave(c);
}

void usc_capture_step_end(usc_capture *c)
{
    usc_capture_step_end_as(c, true);
}

void usc_capture_step_end_as(usc_capture *c, bool complete)
{
    if (!enter(c)) return;
    end_step(c, complete);
    leave(c);
}
