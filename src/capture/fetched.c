// SPDX-License-Identifier: Apache-2.0
// The list of what was read ahead; see fetch.h. Neighbours: fetch.c, which fills it.
#include "capture/fetch.h"

const usc_fetch *usc_fetches_find(const usc_fetches *f, const usc_capture_tensor *t,
                                  int64_t from, int64_t to)
{
    for (int64_t i = 0; i < f->n; i++) {
        const usc_fetch *e = &f->list[i];
        if (e->t->storage == t->storage && e->from <= from && to <= e->to) return e;
    }
    return NULL;
}

void usc_fetch_done(usc_capture *c)
{
    usc_fetches *f = c->fetched;
    if (f == NULL) return;
    f->n = 0;
    f->next_idle = c->idle_fetches;
    c->idle_fetches = f;
    c->fetched = NULL;
}

const usc_fetch *usc_fetch_find(const usc_capture *c, const usc_capture_tensor *t,
                                int64_t from, int64_t to)
{
    const usc_fetch *e =
        c->fetched != NULL ? usc_fetches_find(c->fetched, t, from, to) : NULL;
    return e != NULL && e->is_read ? e : NULL;
}

void usc_fetch_free(usc_capture *c)
{
    while (c->idle_fetches != NULL) {
        usc_fetches *f = c->idle_fetches;
        c->idle_fetches = f->next_idle;
        for (int64_t i = 0; i < f->max; i++)
            if (f->list[i].at != NULL)
                c->alloc->resize(c->alloc->ctx, f->list[i].at, (size_t)f->list[i].room,
                                 0);
        c->alloc->resize(c->alloc->ctx, f->list, (size_t)f->max * sizeof *f->list, 0);
        c->alloc->resize(c->alloc->ctx, f, sizeof *f, 0);
    }
}
