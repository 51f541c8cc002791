// SPDX-License-Identifier: Apache-2.0
// Rows become calls again, without a trace; see watch.h.
#include "capture/watch.h"

#include "base/arena.h"
#include "capture/id_table.h"
#include "capture/looked.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

enum { NAME_SIZE = 32, PATH_SIZE = 256 };

typedef struct storage {
    usc_id_node in;
    int64_t bytes, version; /* version: the present one, 0: none yet */
    char device[NAME_SIZE];
} storage;

typedef struct version {
    usc_id_node in;
    int64_t storage;
    struct tensor *first; /* of its tensors */
} version;

typedef struct tensor {
    usc_id_node in;
    struct tensor *other; /* of the same version */
    int64_t version, storage, offset;
    char dtype[NAME_SIZE];
    bool has_range;
    usc_range range;
    int ndim;
    int64_t dims[]; /* sizes, strides */
} tensor;

/* What an argument of an open call points to: its tensor may be gone when it ends. */
typedef struct held_arg {
    char path[PATH_SIZE], device[NAME_SIZE], dtype[NAME_SIZE];
    int64_t sizes[USC_MAX_DIMS], strides[USC_MAX_DIMS];
    int64_t look;
    uint64_t view;
    bool has_range;
    usc_range range;
} held_arg;

typedef struct open_call {
    struct open_call *next;
    usc_call call;
    char *args; /* its text */
    usc_call_arg *arg;
    held_arg *held; /* as many */
    int n, most;
    int n_there;  /* held[0 .. n_there) wait for no look */
    int64_t gone; /* no call: this storage came to its end */
} open_call;

typedef struct names {
    char **text; /* by id */
    int64_t n;
} names;

struct usc_watcher {
    usc_capture_watch watch;
    usc_id_table storages, versions, tensors;
    names of[USC_N_WATCHED_NAMES];
    open_call *open, *idle;
    open_call *ended, **last; /* in turn, from the first that waits for a look */
    usc_looked_list looked;
};

usc_status usc_watcher_make(const usc_capture_watch *watch, usc_watcher **out,
                            usc_error *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return usc_no_memory("capture", err);
    (*out)->watch = *watch;
    (*out)->last = &(*out)->ended;
    return USC_OK;
}

static void free_calls(open_call *list)
{
    for (open_call *next; list != NULL; list = next) {
        next = list->next;
        free(list->args);
        free(list->arg);
        free(list->held);
        free(list);
    }
}

void usc_watcher_free(usc_watcher *w)
{
    if (w == NULL) return;
    usc_id_empty(&w->storages);
    usc_id_empty(&w->versions);
    usc_id_empty(&w->tensors);
    for (int of = 0; of < USC_N_WATCHED_NAMES; of++) {
        for (int64_t i = 0; i < w->of[of].n; i++)
            free(w->of[of].text[i]);
        free(w->of[of].text);
    }
    usc_looked_free(&w->looked);
    free_calls(w->open);
    free_calls(w->ended);
    free_calls(w->idle);
    free(w);
}

/* Cut where there is no room. */
static void copy_text(char *to, size_t size, const char *text)
{
    const size_t n = text != NULL ? strnlen(text, size - 1) : 0;
    if (n > 0) memcpy(to, text, n);
    to[n] = '\0';
}

/* One without bytes holds no numbers: of it nothing is kept. */
usc_status usc_watcher_storage(usc_watcher *w, const usc_storage_row *row, usc_error *err)
{
    if (row->bytes == 0) return USC_OK;
    storage *s = usc_id_add(&w->storages, row->id, sizeof *s);
    if (s == NULL) return usc_no_memory("capture", err);
    s->bytes = row->bytes;
    copy_text(s->device, sizeof s->device, row->device);
    return USC_OK;
}

static void drop_version(usc_watcher *w, int64_t id)
{
    const version *v = usc_id_find(&w->versions, id);
    for (tensor *t = v != NULL ? v->first : NULL, *other; t != NULL; t = other) {
        other = t->other;
        usc_id_drop(&w->tensors, t->in.id);
    }
    usc_id_drop(&w->versions, id);
}

usc_status usc_watcher_version(usc_watcher *w, const usc_version_row *row, usc_error *err)
{
    storage *s = usc_id_find(&w->storages, row->storage);
    if (s == NULL) return USC_OK;
    drop_version(w, s->version);
    version *v = usc_id_add(&w->versions, row->id, sizeof *v);
    if (v == NULL) return usc_no_memory("capture", err);
    v->storage = row->storage;
    s->version = row->id;
    return USC_OK;
}

usc_status usc_watcher_tensor(usc_watcher *w, const usc_tensor_row *row,
                              const usc_range *range, usc_error *err)
{
    version *v = usc_id_find(&w->versions, row->version);
    if (v == NULL) return USC_OK;
    const size_t size = (size_t)row->ndim * sizeof(int64_t);
    tensor *t = usc_id_add(&w->tensors, row->id, sizeof *t + 2 * size);
    if (t == NULL) return usc_no_memory("capture", err);
    t->other = v->first;
    v->first = t;
    t->version = row->version;
    t->storage = v->storage;
    t->offset = row->offset;
    t->ndim = row->ndim;
    copy_text(t->dtype, sizeof t->dtype, row->dtype_name);
    t->has_range = range != NULL;
    if (range != NULL) t->range = *range;
    if (size > 0) {
        memcpy(t->dims, row->sizes, size);
        memcpy(t->dims + row->ndim, row->strides, size);
    }
    return USC_OK;
}

usc_status usc_watcher_name(usc_watcher *w, usc_watched_name of, int64_t id,
                            const char *text, usc_error *err)
{
    names *all = &w->of[of];
    if (id >= all->n) {
        const int64_t n = id + 1 > 2 * all->n ? id + 1 : 2 * all->n;
        char **more = realloc(all->text, (size_t)n * sizeof *more);
        if (more == NULL) return usc_no_memory("capture", err);
        memset(more + all->n, 0, (size_t)(n - all->n) * sizeof *more);
        all->text = more;
        all->n = n;
    }
    free(all->text[id]);
    all->text[id] = text != NULL ? strdup(text) : NULL;
    return text == NULL || all->text[id] != NULL ? USC_OK : usc_no_memory("capture", err);
}

static const char *name_of(const usc_watcher *w, usc_watched_name of, int64_t id)
{
    return id > 0 && id < w->of[of].n ? w->of[of].text[id] : NULL;
}

/* ---- calls ---- */

static open_call **place_of(usc_watcher *w, int64_t sequence)
{
    open_call **at = &w->open;
    while (*at != NULL && (*at)->call.sequence != sequence)
        at = &(*at)->next;
    return at;
}

/* One that ended before is used again, with its memory. */
static open_call *new_call(usc_watcher *w)
{
    open_call *o = w->idle;
    if (o == NULL) return calloc(1, sizeof *o);
    w->idle = o->next;
    free(o->args);
    o->args = NULL;
    o->n = o->n_there = 0;
    o->gone = 0;
    return o;
}

static void append(usc_watcher *w, open_call *o)
{
    o->next = NULL;
    *w->last = o;
    w->last = &o->next;
}

static void tell_gone(usc_watcher *w, int64_t id)
{
    usc_looked_gone(&w->looked, id);
    if (w->watch.gone != NULL) w->watch.gone(w->watch.ctx, id);
}

void usc_watcher_gone(usc_watcher *w, int64_t id)
{
    const storage *s = usc_id_find(&w->storages, id);
    if (s != NULL) drop_version(w, s->version);
    usc_id_drop(&w->storages, id);
    open_call *o = w->ended != NULL ? new_call(w) : NULL;
    if (o == NULL) {
        tell_gone(w, id); /* no memory: calls that wait may call it new */
        return;
    }
    o->gone = id;
    append(w, o);
}

usc_status usc_watcher_call(usc_watcher *w, const usc_call_row *row, usc_error *err)
{
    open_call *o = new_call(w), *around = *place_of(w, row->parent);
    if (o == NULL) return usc_no_memory("capture", err);
    if (around != NULL) around->call.n_children++;
    o->call = (usc_call){.sequence = row->sequence,
                         .step = row->step,
                         .parent = row->parent,
                         .thread = row->thread,
                         .module = row->module,
                         .stack = row->stack,
                         .phase = usc_phase_text(row->phase),
                         .op = name_of(w, USC_WATCHED_OP, row->op),
                         .module_path = name_of(w, USC_WATCHED_MODULE, row->module),
                         .frames = name_of(w, USC_WATCHED_STACK, row->stack),
                         .composite = row->composite};
    o->next = w->open;
    w->open = o;
    o->args = row->args != NULL ? strdup(row->args) : NULL;
    return row->args == NULL || o->args != NULL ? USC_OK : usc_no_memory("capture", err);
}

static bool reserve_arg(open_call *o)
{
    if (o->n < o->most) return true;
    const int most = o->most > 0 ? 2 * o->most : 8;
    held_arg *held = realloc(o->held, (size_t)most * sizeof *held);
    if (held == NULL) return false;
    o->held = held;
    usc_call_arg *arg = realloc(o->arg, (size_t)most * sizeof *arg);
    if (arg == NULL) return false;
    memset(arg + o->most, 0, (size_t)(most - o->most) * sizeof *arg);
    o->arg = arg;
    o->most = most;
    return true;
}

usc_status usc_watcher_arg(usc_watcher *w, const usc_arg_row *row, int64_t look,
                           uint64_t view, usc_error *err)
{
    open_call *o = *place_of(w, row->call);
    const tensor *t = usc_id_find(&w->tensors, row->tensor);
    const storage *s = t != NULL ? usc_id_find(&w->storages, t->storage) : NULL;
    if (o == NULL || s == NULL) return USC_OK;
    if (!reserve_arg(o)) return usc_no_memory("capture", err);
    usc_call_arg *a =
        &o->arg[o->n]; /* of an earlier call: each field is set, or is none */
    held_arg *h = &o->held[o->n++];
    const size_t size = (size_t)t->ndim * sizeof(int64_t);
    a->role = row->role;
    a->tensor = row->tensor;
    a->version = t->version;
    a->storage = t->storage;
    a->storage_bytes = s->bytes;
    a->ndim = t->ndim;
    a->offset = t->offset;
    memcpy(h->sizes, t->dims, size);
    memcpy(h->strides, t->dims + t->ndim, size);
    copy_text(h->path, sizeof h->path, row->path);
    memcpy(h->device, s->device, sizeof h->device);
    memcpy(h->dtype, t->dtype, sizeof h->dtype);
    h->look = look;
    h->view = view;
    h->has_range = t->has_range;
    h->range = t->range;
    return USC_OK;
}

/* What a row points to is set only now: the arguments may have moved before. */
static void gather(open_call *o)
{
    for (int i = 0; i < o->n; i++) {
        const held_arg *h = &o->held[i];
        o->arg[i].path = h->path;
        o->arg[i].device = h->device;
        o->arg[i].dtype_name = h->dtype;
        o->arg[i].sizes = h->sizes;
        o->arg[i].strides = h->strides;
        o->arg[i].range = h->has_range ? &h->range : NULL;
    }
    o->call.arg = o->arg;
    o->call.n_args = o->n;
    o->call.args = o->args;
}

/* ---- what ended ---- */

/* What came by a look, in the order in which calls ended. */
static void settle(usc_watcher *w, open_call *o)
{
    for (int i = 0; i < o->n; i++) {
        held_arg *h = &o->held[i];
        if (h->look == 0) continue;
        h->has_range = h->look > 0 && usc_looked_take(&w->looked, h->look, &h->range);
        o->arg[i].version = usc_looked_version(&w->looked, &o->arg[i], h->view,
                                               h->has_range ? &h->range : NULL);
    }
}

static bool is_there(const usc_watcher *w, open_call *o)
{
    while (o->n_there < o->n && (o->held[o->n_there].look <= 0 ||
                                 usc_looked_has(&w->looked, o->held[o->n_there].look)))
        o->n_there++;
    return o->n_there == o->n;
}

static usc_status hand_over_one(usc_watcher *w, open_call *o, usc_error *err)
{
    if (o->gone != 0) {
        tell_gone(w, o->gone);
        return USC_OK;
    }
    settle(w, o);
    gather(o);
    return w->watch.call(w->watch.ctx, &o->call, err);
}

/* As far as looks have come, or `all`. */
static usc_status hand_over(usc_watcher *w, bool all, usc_error *err)
{
    usc_status st = USC_OK;
    while (st == USC_OK && w->ended != NULL && (all || is_there(w, w->ended))) {
        open_call *o = w->ended;
        w->ended = o->next;
        if (w->ended == NULL) w->last = &w->ended;
        st = hand_over_one(w, o, err);
        o->next = w->idle;
        w->idle = o;
    }
    return st;
}

usc_status usc_watcher_end(usc_watcher *w, int64_t sequence, const char *status,
                           usc_error *err)
{
    open_call **at = place_of(w, sequence), *o = *at;
    if (o == NULL) return USC_OK;
    *at = o->next;
    o->call.status = status;
    append(w, o);
    return hand_over(w, false, err);
}

usc_status usc_watcher_looked(usc_watcher *w, const usc_looked *row, usc_error *err)
{
    return usc_looked_put(&w->looked, row, err);
}

usc_status usc_watcher_hand_over(usc_watcher *w, bool all, usc_error *err)
{
    return hand_over(w, all, err);
}
