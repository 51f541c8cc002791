// SPDX-License-Identifier: Apache-2.0
// What was looked at where it lies; see looked.h.
#include "capture/looked.h"

#include "base/arena.h"

#include <math.h>

#define FIRST_UNSEEN ((int64_t)1 << 56) /* above every version */

typedef struct come {
    usc_id_node in;
    usc_range range;
} come;

typedef struct shown {
    usc_id_node in;
    int64_t version, as; /* as: what it is called since an unseen write */
    uint64_t view;       /* that was looked at last; 0: none */
    usc_range range;
} shown;

usc_status usc_looked_put(usc_looked_list *l, const usc_looked *row, usc_error *err)
{
    if (usc_looked_has(l, row->look)) return USC_OK;
    come *c = usc_id_add(&l->ranges, row->look, sizeof *c);
    if (c == NULL) return usc_no_memory("capture", err);
    c->range = row->range;
    return USC_OK;
}

bool usc_looked_has(const usc_looked_list *l, int64_t look)
{
    return usc_id_find(&l->ranges, look) != NULL;
}

bool usc_looked_take(usc_looked_list *l, int64_t look, usc_range *out)
{
    const come *c = usc_id_find(&l->ranges, look);
    if (c == NULL) return false;
    *out = c->range;
    usc_id_drop(&l->ranges, look);
    return out->n >= 0;
}

static bool same(double a, double b)
{
    return !(a < b || a > b) && isnan(a) == isnan(b);
}

int64_t usc_looked_version(usc_looked_list *l, const usc_call_arg *arg, uint64_t view,
                           usc_range *range)
{
    shown *s = usc_id_find(&l->storages, arg->storage);
    if (s == NULL && range == NULL) return arg->version;
    if (s == NULL) s = usc_id_add(&l->storages, arg->storage, sizeof *s);
    if (s == NULL) return arg->version; /* no memory: an unseen write stays unseen */
    if (s->version != arg->version) {
        s->version = s->as = arg->version;
        s->view = 0;
    }
    if (range == NULL) return s->as;
    if (s->view == view) {
        if (same(s->range.min, range->min) && same(s->range.max, range->max))
            *range = s->range;
        else
            s->as = FIRST_UNSEEN + ++l->n_unseen;
    }
    s->view = view;
    s->range = *range;
    return s->as;
}

void usc_looked_gone(usc_looked_list *l, int64_t storage)
{
    usc_id_drop(&l->storages, storage);
}

void usc_looked_free(usc_looked_list *l)
{
    usc_id_empty(&l->ranges);
    usc_id_empty(&l->storages);
}
