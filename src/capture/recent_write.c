// SPDX-License-Identifier: Apache-2.0
// The last calls become a trace: see recent.h. What they name is marked, and its rows are
// put as a writer puts them while it records.
#include "capture/recent_rows.h"

#include "base/arena.h"
#include "base/folder.h"
#include "base/line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FOLDERS = 1000 };

/* Runs a step of putting; what fails ends the function. */
#define PUT(call)                                                                        \
    do {                                                                                 \
        const usc_status put_ = (call);                                                  \
        if (put_ != USC_OK) return put_;                                                 \
    } while (0)

static usc_status put_names(const usc_recent *r, usc_trace_writer *w, usc_error *err)
{
    for (int of = 0; of < USC_N_RECENT; of++)
        for (size_t i = 0; i < r->names[of].n; i++) {
            const usc_recent_name *n = usc_rows_at(&r->names[of], i);
            const usc_op_row op = {.id = n->id, .name = n->first, .schema = n->second};
            const usc_module_row module = {n->id, n->first, n->second};
            const usc_stack_row stack = {n->id, n->first};
            if (of == USC_RECENT_OPS) PUT(usc_trace_put_op(w, &op, err));
            if (of == USC_RECENT_MODULES) PUT(usc_trace_put_module(w, &module, err));
            if (of == USC_RECENT_STACKS) PUT(usc_trace_put_stack(w, &stack, err));
            if (of == USC_RECENT_META)
                PUT(usc_trace_set_meta(w, n->first, n->second, err));
        }
    return USC_OK;
}

/* Whether a device of `list`, with commas between them, is this one. */
static bool is_listed(const char *list, const char *device)
{
    const size_t n = strlen(device);
    for (const char *at = list; at != NULL && *at != '\0';) {
        const size_t length = strcspn(at, ",");
        if (length == n && memcmp(at, device, n) == 0) return true;
        at += length + (at[length] == ',');
    }
    return false;
}

static usc_status put_storages(const usc_recent *r, usc_trace_writer *w, usc_error *err)
{
    usc_line devices = {0};
    usc_status st = USC_OK;
    for (size_t i = 0; st == USC_OK && i < r->storages.n; i++) {
        const usc_recent_place *s = usc_rows_at(&r->storages, i);
        if (!s->used) continue;
        const usc_storage_row row = {s->id, s->device, s->bytes};
        st = usc_trace_put_storage(w, &row, err);
        if (!is_listed(devices.text, s->device))
            usc_line_add(&devices, "%s%s", devices.n > 0 ? "," : "", s->device);
    }
    if (st == USC_OK && devices.text != NULL)
        st = usc_trace_set_meta(w, "devices", devices.text, err);
    free(devices.text);
    return st;
}

/* 0 where the bytes are not held. */
static usc_status put_data(const usc_rows *rows, int64_t id, usc_trace_writer *w,
                           int64_t *blob, usc_error *err)
{
    const usc_recent_data *d = usc_rows_find(rows, id);
    *blob = 0;
    if (d == NULL || d->at == NULL) return USC_OK;
    return usc_trace_put_blob(w, d->at, d->size, blob, err);
}

static usc_status put_versions(const usc_recent *r, int64_t first, usc_trace_writer *w,
                               usc_error *err)
{
    for (size_t i = 0; i < r->versions.n; i++) {
        const usc_recent_generation *v = usc_rows_at(&r->versions, i);
        usc_version_row row = v->row;
        if (!v->used) continue;
        if (row.call < first) row.call = 0;
        PUT(put_data(&r->data, v->id, w, &row.blob, err));
        PUT(usc_trace_put_version(w, &row, err));
    }
    return USC_OK;
}

static usc_status put_tensors(const usc_recent *r, usc_trace_writer *w, usc_error *err)
{
    usc_stats stats = {0};
    for (size_t i = 0; i < r->tensors.n; i++) {
        const usc_recent_view *t = usc_rows_at(&r->tensors, i);
        if (!t->used) continue;
        usc_tensor_row row = t->row;
        row.dtype_name = t->dtype;
        row.form = t->form[0] != '\0' ? t->form : NULL;
        row.sizes = t->block;
        row.strides = t->block + row.ndim;
        row.stats = t->stats != NULL ? &stats : NULL;
        if (t->stats != NULL) memcpy(&stats, t->stats, USC_RECENT_STATS);
        if (t->part > 0) PUT(put_data(&r->parts, t->part, w, &row.blob, err));
        PUT(usc_trace_put_tensor(w, &row, err));
    }
    return USC_OK;
}

static usc_status put_call(const usc_recent *r, const usc_recent_call_row *c,
                           int64_t first, usc_trace_writer *w, usc_error *err)
{
    usc_call_row row = c->row;
    row.args = c->args;
    row.state = c->state;
    row.status = c->status;
    if (row.parent < first) row.parent = 0;
    PUT(usc_trace_put_call(w, &row, err));
    for (int i = 0; i < c->n_args; i++) {
        const usc_recent_arg_row *a = &c->arg[i];
        const usc_arg_row arg = {c->id, a->role, a->path, a->tensor};
        if (usc_rows_find(&r->tensors, a->tensor) == NULL) continue;
        PUT(usc_trace_put_arg(w, &arg, err));
    }
    return USC_OK;
}

/* Of each step what is there of it: that is all that was asked for. */
static usc_status put_steps(const usc_recent *r, usc_trace_writer *w, usc_error *err)
{
    const usc_rows *calls = &r->calls;
    for (size_t i = usc_recent_first(r); i < calls->n;) {
        const usc_recent_call_row *c = usc_rows_at(calls, i);
        usc_step_row row = {.step = c->row.step, .first_call = c->id, .complete = true};
        for (; i < calls->n && c->row.step == row.step; c = usc_rows_at(calls, i)) {
            row.last_call = c->id;
            if (++i == calls->n) break;
        }
        PUT(usc_trace_put_step(w, &row, err));
    }
    return USC_OK;
}

static usc_status put_notes(const usc_recent *r, int64_t first, usc_trace_writer *w,
                            usc_error *err)
{
    for (size_t i = 0; i < r->notes.n; i++) {
        const usc_recent_name *n = usc_rows_at(&r->notes, i);
        if (n->call >= first)
            PUT(usc_trace_put_note(w, n->call, n->first, n->second, err));
    }
    return USC_OK;
}

static usc_status put_all(const usc_recent *r, usc_trace_writer *w, usc_error *err)
{
    const size_t i_first = usc_recent_first(r);
    const int64_t first = *(const int64_t *)usc_rows_at(&r->calls, i_first);
    PUT(put_names(r, w, err));
    PUT(put_storages(r, w, err));
    PUT(put_versions(r, first, w, err));
    PUT(put_tensors(r, w, err));
    for (size_t i = i_first; i < r->calls.n; i++)
        PUT(put_call(r, usc_rows_at(&r->calls, i), first, w, err));
    PUT(put_steps(r, w, err));
    return put_notes(r, first, w, err);
}

/* The first of path, path-2, ... that holds nothing. */
static usc_status create(const char *path, char *at, size_t size, usc_trace_writer **w,
                         usc_error *err)
{
    usc_status st = USC_E_EXISTS;
    for (int i = 1; st == USC_E_EXISTS && i <= MOST_FOLDERS; i++) {
        if (i == 1)
            (void)snprintf(at, size, "%s", path);
        else
            (void)snprintf(at, size, "%s-%d", path, i);
        st = usc_trace_create(at, NULL, w, err);
    }
    return st;
}

static usc_status make_above(const char *path, usc_error *err)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) return USC_OK;
    char *above = strndup(path, (size_t)(slash - path));
    if (above == NULL) return usc_no_memory("the last calls", err);
    const usc_status st = usc_folder_make(above, "", err);
    free(above);
    return st;
}

usc_status usc_recent_write(usc_recent *r, const char *path, char **written,
                            usc_error *err)
{
    *written = NULL;
    if (r->calls.n == 0) return USC_OK;
    const size_t size = strlen(path) + 8;
    char *at = malloc(size);
    if (at == NULL) return usc_no_memory("the last calls", err);
    usc_trace_writer *w = NULL;
    usc_status st = make_above(path, err);
    if (st == USC_OK) st = create(path, at, size, &w, err);
    if (st == USC_OK) {
        usc_recent_mark(r);
        st = put_all(r, w, err);
        usc_recent_unmark(r);
        usc_error late = {0};
        const usc_status end = usc_trace_finish(w, st == USC_OK, &late);
        if (st == USC_OK && end != USC_OK) {
            st = end;
            if (err != NULL) *err = late;
        }
        if (st != USC_OK) usc_folder_remove(at);
    }
    if (st == USC_OK)
        *written = at;
    else
        free(at);
    return st;
}
