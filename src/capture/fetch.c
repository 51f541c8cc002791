// SPDX-License-Identifier: Apache-2.0
// Reading ahead; see fetch.h. Under the lock it is found out which bytes a call will ask
// for, without it they are read, under it again they hold if their storage has no newer
// generation. What is missing all the same is read by touch.c, under the lock.
#include "capture/fetch.h"

#include "capture/touch.h"

#include <string.h>

/* A call whose storages others keep writing stops asking after so many rounds. */
#define MAX_ROUNDS 4

/* The call at hand while its bytes are looked for. */
typedef struct plan {
    usc_capture *c;
    usc_fetches *f;
    int64_t sequence;
    bool missing;
} plan;

/* ---- the list ---- */

static bool grow(plan *p)
{
    usc_fetches *f = p->f;
    if (f->n < f->max) return true;
    const usc_alloc *alloc = p->c->alloc;
    const int64_t max = f->max > 0 ? 2 * f->max : 8;
    usc_fetch *list = alloc->resize(alloc->ctx, f->list, (size_t)f->max * sizeof *list,
                                    (size_t)max * sizeof *list);
    if (list == NULL) return false;
    memset(list + f->max, 0, (size_t)(max - f->max) * sizeof *list);
    f->list = list;
    f->max = max;
    return true;
}

static void want(plan *p, const usc_touch *at, usc_bytes r)
{
    if (r.to <= r.from || usc_fetches_find(p->f, at->t, r.from, r.to) != NULL || !grow(p))
        return;
    usc_fetch *e = &p->f->list[p->f->n++];
    e->t = at->t;
    e->id = at->s != NULL ? at->s->id : 0;
    e->generation = at->s != NULL ? at->s->generation : 0;
    e->from = r.from;
    e->to = r.to;
    e->is_read = false;
    e->err.status = USC_OK;
    p->missing = true;
}

/* Drops what another call has replaced since it was read. */
static void drop_outdated(plan *p)
{
    usc_fetches *f = p->f;
    for (int64_t i = 0; i < f->n;) {
        usc_fetch *e = &f->list[i];
        const usc_storage *s = usc_touch_storage(p->c, e->t);
        const int64_t id = s != NULL ? s->id : 0;
        const int64_t generation = s != NULL ? s->generation : 0;
        if (e->id == id && e->generation == generation) {
            i++;
            continue;
        }
        const usc_fetch dropped = *e; /* with its memory, which stays */
        *e = f->list[--f->n];
        f->list[f->n] = dropped;
    }
}

/* ---- what a call will ask for: as take.c and touch.c do ---- */

/* Whether the bytes as fetched differ from those that were taken; all that this needs is
 * wanted first. */
static bool differs(plan *p, const usc_touch *at)
{
    usc_bytes looks[USC_MAX_LOOKS];
    const int n = usc_touch_looks(at, looks);
    bool all = true;
    for (int i = 0; i < n; i++) {
        want(p, at, looks[i]);
        const usc_fetch *e = usc_fetches_find(p->f, at->t, looks[i].from, looks[i].to);
        if (e == NULL || !e->is_read || e->err.status != USC_OK) {
            all = false;
            continue;
        }
        looks[i].at = e->at + (looks[i].from - e->from);
        if (all &&
            !usc_content_same(&at->s->content, looks[i], looks[i].from, looks[i].to))
            return true;
    }
    return false;
}

static bool is_taken_anew(plan *p, const usc_touch *at)
{
    const usc_storage *s = at->s;
    const usc_role role = at->t->role;
    if (s == NULL) return true;
    if (role != USC_ROLE_IN && s->writer == p->sequence) return false;
    if (role == USC_ROLE_MUTATED && s->writer < p->sequence &&
        !usc_touch_asks_content(at->t))
        return at->t->maybe == USC_MAYBE_NOT;
    return s->readable && differs(p, at);
}

static bool lacks_stats(const plan *p, const usc_touch *at)
{
    const usc_storage *s = at->s;
    if (!p->c->stats_only || !at->reach.known || at->t->view.dtype == USC_DTYPE_NONE)
        return false;
    const uint64_t key = usc_view_stats_key(at->t, &at->reach);
    for (int64_t i = 0; i < s->n_stats; i++)
        if (s->stats[i].key == key) return false;
    for (int64_t i = 0; i < s->n_ranges; i++)
        if (s->ranges[i].key == key) return false;
    return true;
}

static void plan_tensor(plan *p, const usc_capture_tensor *t)
{
    if (t->storage == NULL || t->unread || !usc_touch_is_remote(p->c, t)) return;
    usc_touch at = {.t = t, .call = p->sequence, .reach = usc_view_reach(t)};
    at.s = usc_touch_storage(p->c, t);
    if (at.s != NULL && usc_touch_asks_content(t)) at.s->checked_call = 0;
    if (is_taken_anew(p, &at) ||
        (at.s->readable && (usc_touch_part(&at) == NULL || lacks_stats(p, &at))))
        want(p, &at, usc_touch_pieces(&at));
}

/* ---- the call ---- */

static bool any_remote(const usc_capture *c, const usc_capture_tensor *tensors, int n)
{
    for (int i = 0; i < n; i++)
        if (!tensors[i].unread && usc_touch_is_remote(c, &tensors[i])) return true;
    return false;
}

/* Without the lock; returns the bytes read. */
static int64_t read_missing(const usc_capture *c, usc_fetches *f)
{
    int64_t n = 0;
    for (int64_t i = 0; i < f->n; i++) {
        usc_fetch *e = &f->list[i];
        const int64_t size = e->to - e->from;
        if (e->is_read) continue;
        if (size > e->room) {
            unsigned char *at =
                c->alloc->resize(c->alloc->ctx, e->at, (size_t)e->room, (size_t)size);
            if (at == NULL) continue; /* touch.c will see to it */
            e->at = at;
            e->room = size;
        }
        e->is_read = true;
        n += size;
        e->err.status =
            c->hooks.read(c->hooks.ctx, e->t->storage, e->from, e->at, size, &e->err);
    }
    return n;
}

static usc_fetches *take_idle(usc_capture *c)
{
    usc_fetches *f = c->idle_fetches;
    if (f != NULL) {
        c->idle_fetches = f->next_idle;
        return f;
    }
    f = c->alloc->resize(c->alloc->ctx, NULL, 0, sizeof *f);
    if (f != NULL) *f = (usc_fetches){0};
    return f;
}

void usc_fetch_ahead(usc_capture *c, const usc_capture_tensor *tensors, int n,
                     int64_t sequence)
{
    pthread_mutex_lock(&c->lock);
    if (!any_remote(c, tensors, n) || (sequence == 0 && !c->step_open)) return;
    plan p = {.c = c, .f = take_idle(c), .sequence = sequence};
    for (int round = 0; p.f != NULL; round++) {
        p.missing = false;
        drop_outdated(&p);
        for (int i = 0; i < n; i++)
            plan_tensor(&p, &tensors[i]);
        if (!p.missing || round == MAX_ROUNDS) break;
        pthread_mutex_unlock(&c->lock);
        const int64_t n_bytes = read_missing(c, p.f);
        pthread_mutex_lock(&c->lock);
        c->counts.bytes_read += n_bytes;
    }
    c->fetched = p.f;
}
