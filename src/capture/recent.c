// SPDX-License-Identifier: Apache-2.0
// The last calls of a session: see recent.h. Rows are added one by one and forgotten many
// at a time: what the calls that stay name is marked, and the rest goes.
#include "capture/recent_rows.h"

#include "base/arena.h"
#include "base/number.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows by id ---- */

void *usc_rows_at(const usc_rows *rows, size_t i)
{
    return rows->at + i * rows->item;
}

static int64_t id_at(const usc_rows *rows, size_t i)
{
    return *(const int64_t *)usc_rows_at(rows, i);
}

/* Number of the first that is not below `id`. */
static size_t lower(const usc_rows *rows, int64_t id)
{
    size_t from = 0, to = rows->n;
    if (to > 0 && id_at(rows, to - 1) < id) return to;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (id_at(rows, middle) < id)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

void *usc_rows_find(const usc_rows *rows, int64_t id)
{
    const size_t i = lower(rows, id);
    return i < rows->n && id_at(rows, i) == id ? usc_rows_at(rows, i) : NULL;
}

/* A zeroed item, or the one that is there; NULL: no memory. */
static void *add(usc_rows *rows, int64_t id)
{
    const size_t i = lower(rows, id);
    if (i < rows->n && id_at(rows, i) == id) return usc_rows_at(rows, i);
    if (rows->n == rows->room) {
        const size_t room = rows->room > 0 ? 2 * rows->room : 64;
        char *more = realloc(rows->at, room * rows->item);
        if (more == NULL) return NULL;
        rows->at = more;
        rows->room = room;
    }
    char *at = usc_rows_at(rows, i);
    memmove(at + rows->item, at, (rows->n - i) * rows->item);
    memset(at, 0, rows->item);
    *(int64_t *)(void *)at = id;
    rows->n++;
    return at;
}

/* Frees the items for which `stays` is false, and closes the gaps. */
static void keep_if(usc_rows *rows, bool (*stays)(usc_recent *r, void *item),
                    void (*release)(usc_recent *r, void *item), usc_recent *r)
{
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++) {
        void *item = usc_rows_at(rows, i);
        if (!stays(r, item)) {
            if (release != NULL) release(r, item);
            continue;
        }
        if (n != i) memcpy(usc_rows_at(rows, n), item, rows->item);
        n++;
    }
    rows->n = n;
}

/* ---- life ---- */

static void free_name(usc_recent *r, void *item)
{
    (void)r;
    usc_recent_name *n = item;
    free(n->first);
    free(n->second);
}

static void free_view(usc_recent *r, void *item)
{
    (void)r;
    usc_recent_view *v = item;
    free(v->block);
    free(v->stats);
}

static void free_data(usc_recent *r, void *item)
{
    usc_recent_data *d = item;
    if (d->at != NULL) r->bytes -= d->size;
    free(d->at);
    d->at = NULL;
}

static void free_call(usc_recent *r, void *item)
{
    (void)r;
    usc_recent_call_row *c = item;
    for (int i = 0; i < c->n_args; i++)
        free(c->arg[i].path);
    free(c->arg);
    free(c->args);
    free(c->state);
}

static bool never(usc_recent *r, void *item)
{
    (void)r;
    (void)item;
    return false;
}

usc_status usc_recent_make(int64_t calls, int64_t bytes, usc_recent **out, usc_error *err)
{
    usc_recent *r = *out = calloc(1, sizeof *r);
    if (r == NULL) return usc_no_memory("capture", err);
    r->most_calls = calls;
    r->most_bytes = bytes;
    for (int i = 0; i < USC_N_RECENT; i++)
        r->names[i].item = sizeof(usc_recent_name);
    r->notes.item = sizeof(usc_recent_name);
    r->storages.item = sizeof(usc_recent_place);
    r->versions.item = sizeof(usc_recent_generation);
    r->tensors.item = sizeof(usc_recent_view);
    r->data.item = r->parts.item = sizeof(usc_recent_data);
    r->calls.item = sizeof(usc_recent_call_row);
    return USC_OK;
}

static void empty(usc_recent *r, usc_rows *rows, void (*release)(usc_recent *, void *))
{
    keep_if(rows, never, release, r);
    free(rows->at);
}

void usc_recent_free(usc_recent *r)
{
    if (r == NULL) return;
    for (int i = 0; i < USC_N_RECENT; i++)
        empty(r, &r->names[i], free_name);
    empty(r, &r->notes, free_name);
    empty(r, &r->storages, NULL);
    empty(r, &r->versions, NULL);
    empty(r, &r->tensors, free_view);
    empty(r, &r->data, free_data);
    empty(r, &r->parts, free_data);
    empty(r, &r->calls, free_call);
    free(r);
}

int64_t usc_recent_held(const usc_recent *r)
{
    return r->bytes;
}

/* ---- forgetting ---- */

size_t usc_recent_first(const usc_recent *r)
{
    const size_t most = (size_t)r->most_calls;
    return r->calls.n > most ? r->calls.n - most : 0;
}

static void mark_version(usc_recent *r, int64_t id)
{
    usc_recent_generation *v = usc_rows_find(&r->versions, id);
    if (v == NULL || v->used) return;
    v->used = true;
    usc_recent_place *s = usc_rows_find(&r->storages, v->row.storage);
    if (s != NULL) s->used = true;
}

static void mark_call(usc_recent *r, const usc_recent_call_row *c)
{
    for (int i = 0; i < c->n_args; i++) {
        usc_recent_view *t = usc_rows_find(&r->tensors, c->arg[i].tensor);
        if (t == NULL) continue;
        t->used = true;
        mark_version(r, t->row.version);
    }
}

void usc_recent_mark(usc_recent *r)
{
    for (size_t i = usc_recent_first(r); i < r->calls.n; i++)
        mark_call(r, usc_rows_at(&r->calls, i));
}

void usc_recent_unmark(usc_recent *r)
{
    for (size_t i = 0; i < r->tensors.n; i++)
        ((usc_recent_view *)usc_rows_at(&r->tensors, i))->used = false;
    for (size_t i = 0; i < r->versions.n; i++)
        ((usc_recent_generation *)usc_rows_at(&r->versions, i))->used = false;
    for (size_t i = 0; i < r->storages.n; i++)
        ((usc_recent_place *)usc_rows_at(&r->storages, i))->used = false;
}

/* Further calls may name what a storage that lives holds now. */
static void mark_living(usc_recent *r)
{
    for (size_t i = 0; i < r->storages.n; i++) {
        usc_recent_place *s = usc_rows_at(&r->storages, i);
        if (s->gone) continue;
        s->used = true;
        mark_version(r, s->version);
    }
}

static bool is_present(const usc_recent *r, int64_t version)
{
    const usc_recent_generation *v = usc_rows_find(&r->versions, version);
    const usc_recent_place *s =
        v != NULL ? usc_rows_find(&r->storages, v->row.storage) : NULL;
    return s != NULL && !s->gone && s->version == version;
}

static bool view_stays(usc_recent *r, void *item)
{
    usc_recent_view *t = item;
    const bool stays = t->used || is_present(r, t->row.version);
    t->used = false;
    return stays;
}

static bool data_stays(usc_recent *r, void *item)
{
    const usc_recent_data *d = item;
    return d->at != NULL && usc_rows_find(&r->versions, d->version) != NULL;
}

static bool version_stays(usc_recent *r, void *item)
{
    (void)r;
    usc_recent_generation *v = item;
    const bool stays = v->used;
    v->used = false;
    return stays;
}

static bool storage_stays(usc_recent *r, void *item)
{
    (void)r;
    usc_recent_place *s = item;
    const bool stays = s->used;
    s->used = false;
    return stays;
}

static bool note_stays(usc_recent *r, void *item)
{
    return ((const usc_recent_name *)item)->call >= id_at(&r->calls, 0);
}

/* Drops the oldest calls: in place, while `first` still stands, from the front. */
static void drop_calls(usc_recent *r)
{
    const size_t first = usc_recent_first(r);
    for (size_t i = 0; i < first; i++)
        free_call(r, usc_rows_at(&r->calls, i));
    memmove(r->calls.at, usc_rows_at(&r->calls, first),
            (r->calls.n - first) * r->calls.item);
    r->calls.n -= first;
}

static void forget(usc_recent *r)
{
    drop_calls(r);
    usc_recent_mark(r);
    mark_living(r);
    keep_if(&r->tensors, view_stays, free_view, r);
    keep_if(&r->versions, version_stays, NULL, r);
    keep_if(&r->storages, storage_stays, NULL, r);
    keep_if(&r->data, data_stays, free_data, r);
    keep_if(&r->parts, data_stays, free_data, r);
    keep_if(&r->notes, note_stays, free_name, r);
}

/* ---- data ---- */

static int64_t oldest(const usc_rows *rows, int64_t than)
{
    for (size_t i = 0; i < rows->n; i++) {
        const usc_recent_data *d = usc_rows_at(rows, i);
        if (d->at != NULL && d->last < than) than = d->last;
    }
    return than;
}

static void drop_oldest(usc_recent *r, usc_rows *rows, int64_t last)
{
    for (size_t i = 0; i < rows->n; i++) {
        usc_recent_data *d = usc_rows_at(rows, i);
        if (d->at != NULL && d->last <= last) free_data(r, d);
    }
}

/* Makes room for `size` bytes more. */
static void make_room(usc_recent *r, int64_t size)
{
    while (r->bytes > 0 && r->bytes > r->most_bytes - size) {
        const int64_t last = oldest(&r->parts, oldest(&r->data, INT64_MAX));
        drop_oldest(r, &r->data, last);
        drop_oldest(r, &r->parts, last);
    }
}

usc_status usc_recent_bytes(usc_recent *r, int64_t version, int64_t part,
                            const void *bytes, int64_t size, usc_error *err)
{
    if (size > r->most_bytes) return USC_OK;
    make_room(r, size);
    usc_recent_data *d = part > 0 ? add(&r->parts, part) : add(&r->data, version);
    if (d == NULL) return usc_no_memory("the last calls", err);
    free_data(r, d);
    d->at = malloc(size > 0 ? (size_t)size : 1);
    if (d->at == NULL) return usc_no_memory("the last calls", err);
    memcpy(d->at, bytes, (size_t)size);
    d->version = version;
    d->size = size;
    r->bytes += size;
    /* Its call comes behind it. */
    d->last = r->calls.n > 0 ? id_at(&r->calls, r->calls.n - 1) + 1 : 1;
    return USC_OK;
}

static usc_recent_data *data_of(const usc_recent *r, int64_t version, int64_t part)
{
    return part > 0 ? usc_rows_find(&r->parts, part) : usc_rows_find(&r->data, version);
}

const unsigned char *usc_recent_find(const usc_recent *r, int64_t version, int64_t part)
{
    const usc_recent_data *d = data_of(r, version, part);
    return d != NULL ? d->at : NULL;
}

/* ---- rows ---- */

static bool copy(char **to, const char *text)
{
    free(*to);
    *to = text != NULL ? strdup(text) : NULL;
    return text == NULL || *to != NULL;
}

usc_status usc_recent_text(usc_recent *r, int64_t kind, int64_t id, const char *first,
                           const char *second, usc_error *err)
{
    usc_rows *rows = kind == USC_MESSAGE_OP       ? &r->names[USC_RECENT_OPS]
                     : kind == USC_MESSAGE_MODULE ? &r->names[USC_RECENT_MODULES]
                     : kind == USC_MESSAGE_STACK  ? &r->names[USC_RECENT_STACKS]
                     : kind == USC_MESSAGE_META   ? &r->names[USC_RECENT_META]
                                                  : &r->notes;
    const int64_t call = id;
    if (rows == &r->notes) id = ++r->n_notes;
    if (kind == USC_MESSAGE_META) id = (int64_t)rows->n + 1;
    usc_recent_name *n = add(rows, id);
    if (n == NULL) return usc_no_memory("the last calls", err);
    n->call = call;
    const bool one = copy(&n->first, first), ok = copy(&n->second, second) && one;
    return ok ? USC_OK : usc_no_memory("the last calls", err);
}

/* One without bytes holds nothing that a later call could ask for. */
usc_status usc_recent_storage(usc_recent *r, const usc_storage_row *row, usc_error *err)
{
    usc_recent_place *s = add(&r->storages, row->id);
    if (s == NULL) return usc_no_memory("the last calls", err);
    s->bytes = row->bytes;
    s->gone = row->bytes == 0;
    (void)usc_format(s->device, sizeof s->device, "%s", row->device);
    return USC_OK;
}

void usc_recent_gone(usc_recent *r, int64_t storage)
{
    usc_recent_place *s = usc_rows_find(&r->storages, storage);
    if (s != NULL) s->gone = true;
}

usc_status usc_recent_version(usc_recent *r, const usc_version_row *row, usc_error *err)
{
    usc_recent_generation *v = add(&r->versions, row->id);
    if (v == NULL) return usc_no_memory("the last calls", err);
    v->row = *row;
    usc_recent_place *s = usc_rows_find(&r->storages, row->storage);
    if (s != NULL) s->version = row->id;
    return USC_OK;
}

usc_status usc_recent_tensor(usc_recent *r, const usc_tensor_row *row, int64_t part,
                             usc_error *err)
{
    usc_recent_view *t = add(&r->tensors, row->id);
    if (t == NULL) return usc_no_memory("the last calls", err);
    const size_t size = (size_t)row->ndim * sizeof(int64_t);
    t->row = *row;
    t->part = part;
    (void)usc_format(t->dtype, sizeof t->dtype, "%s", row->dtype_name);
    (void)usc_format(t->form, sizeof t->form, "%s", row->form != NULL ? row->form : "");
    t->block = malloc(2 * size + 1);
    t->stats = row->stats != NULL ? malloc(USC_RECENT_STATS) : NULL;
    if (t->block == NULL || (row->stats != NULL && t->stats == NULL))
        return usc_no_memory("the last calls", err);
    if (size > 0) memcpy(t->block, row->sizes, size);
    if (size > 0) memcpy(t->block + row->ndim, row->strides, size);
    if (t->stats != NULL) memcpy(t->stats, row->stats, USC_RECENT_STATS);
    return USC_OK;
}

/* ---- calls ---- */

usc_status usc_recent_call(usc_recent *r, const usc_call_row *row, usc_error *err)
{
    usc_recent_call_row *c = add(&r->calls, row->sequence);
    if (c == NULL) return usc_no_memory("the last calls", err);
    c->row = *row;
    c->status = "unfinished";
    const bool one = copy(&c->args, row->args), ok = copy(&c->state, row->state) && one;
    return ok ? USC_OK : usc_no_memory("the last calls", err);
}

static bool reserve(usc_recent_call_row *c)
{
    if (c->n_args < c->room) return true;
    const int room = c->room > 0 ? 2 * c->room : 4;
    usc_recent_arg_row *more = realloc(c->arg, (size_t)room * sizeof *more);
    if (more == NULL) return false;
    c->arg = more;
    c->room = room;
    return true;
}

usc_status usc_recent_arg(usc_recent *r, const usc_arg_row *row, usc_error *err)
{
    usc_recent_call_row *c = usc_rows_find(&r->calls, row->call);
    if (c == NULL) return USC_OK; /* it is long ago that it began */
    char *path = strdup(row->path);
    if (path == NULL || !reserve(c)) {
        free(path);
        return usc_no_memory("the last calls", err);
    }
    c->arg[c->n_args++] = (usc_recent_arg_row){row->role, row->tensor, path};
    const usc_recent_view *t = usc_rows_find(&r->tensors, row->tensor);
    usc_recent_data *d = t != NULL ? data_of(r, t->row.version, t->part) : NULL;
    if (d != NULL && d->last < row->call) d->last = row->call;
    return USC_OK;
}

/* Messages of a call come in one piece: what has come so far is named by now. */
void usc_recent_end(usc_recent *r, int64_t sequence, const char *status)
{
    usc_recent_call_row *c = usc_rows_find(&r->calls, sequence);
    if (c != NULL) c->status = status;
    const int64_t slack = r->most_calls / 2 + 64;
    if ((int64_t)r->calls.n > r->most_calls + slack) forget(r);
}
