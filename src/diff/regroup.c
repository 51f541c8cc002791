// SPDX-License-Identifier: Apache-2.0
// Pairs that nothing but their order tells: calls alike in all, whose inputs were written
// by calls without a partner, as gradients behind a compiled region. They are paired
// again by what they read.
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "diff/align.h"
#include "diff/diffs.h"

enum { MOST = 256 }; /* of one kind and side, in one place */

/* What a call reads first, in two numbers. */
typedef struct content {
    double l2, mean;
    bool known;
} content;

typedef struct loose {
    uint64_t key;
    int side;
    int64_t call;  /* index */
    bool unpaired; /* it reads what a call without a partner wrote */
    content content;
} loose;

/* Pairs while they are changed: of each call, index of its partner; -1: none. */
typedef struct pairing {
    usc_diff *d;
    int64_t *partner[2];
    usc_diff_how *how; /* of calls of A */
} pairing;

static int by_key(const void *a, const void *b)
{
    const loose *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->side != y->side) return x->side - y->side;
    return (x->call > y->call) - (x->call < y->call);
}

/* Who wrote what a call reads: calls with partners, somebody outside of the trace (a
 * compiled region is, too), or a call that the other side lacks. */
typedef enum writers { PAIRED, OUTSIDE, UNPAIRED } writers;

static writers writers_of(const pairing *p, int side, int64_t call)
{
    const usc_diff_list *l = &p->d->list[side];
    const usc_diff_call *c = &l->call[call];
    writers found = PAIRED;
    for (int k = 0; k < c->n_args; k++) {
        const usc_diff_arg *arg = &l->arg[c->first_arg + k];
        if (arg->role != USC_ROLE_IN || arg->writer < 0) continue;
        const int64_t at = usc_diff_list_index(l, arg->writer);
        if (at >= 0 && p->partner[side][at] < 0) return UNPAIRED;
        if (at < 0) found = OUTSIDE;
    }
    return found;
}

static uint64_t key_of(const usc_diff_item *i)
{
    const uint64_t parts[] = {i->place, i->op, i->module, i->given, i->shape, i->dtype};
    uint64_t key = 0;
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
        key = usc_diff_mix(key, parts[k]);
    return key;
}

static usc_status read_content(usc_diff *d, loose *one, usc_error *err)
{
    usc_call call;
    content *out = &one->content;
    usc_arena_reset(&d->texts);
    const usc_status st = usc_diff_read(
        d, one->side, d->list[one->side].call[one->call].sequence, &call, err);
    for (int i = 0; st == USC_OK && i < call.n_args && !out->known; i++)
        out->known = call.arg[i].role == USC_ROLE_IN &&
                     usc_call_arg_stat(&call.arg[i], "l2", &out->l2) &&
                     usc_call_arg_stat(&call.arg[i], "mean", &out->mean);
    return st;
}

static double apart(const content *a, const content *b)
{
    const double size = fmax(fabs(a->l2), fabs(b->l2));
    const double far = fabs(a->l2 - b->l2) + fabs(a->mean - b->mean);
    if (!isfinite(far)) return DBL_MAX; /* one holds Inf or NaN, or nothing */
    return size > 0 ? far / size : 0;
}

/* The closest two that have no partner; of those as close, the first. */
static bool find_closest(const pairing *p, const loose *a, int64_t n_a, const loose *b,
                         int64_t n_b, int64_t *at_a, int64_t *at_b)
{
    double best = HUGE_VAL;
    for (int64_t i = 0; i < n_a; i++)
        for (int64_t j = 0; j < n_b; j++) {
            if (p->partner[0][a[i].call] >= 0 || p->partner[1][b[j].call] >= 0) continue;
            const double own = apart(&a[i].content, &b[j].content);
            if (own < best) best = own, *at_a = i, *at_b = j;
        }
    return best < (double)INFINITY;
}

/* Calls of one kind, those of A first. */
static usc_status regroup(pairing *p, loose *list, int64_t n_a, int64_t n_b,
                          usc_error *err)
{
    loose *b = list + n_a;
    int64_t i, j;
    if (n_a == 0 || n_b == 0 || n_a > MOST || n_b > MOST) return USC_OK;
    for (int64_t k = 0; k < n_a + n_b; k++) {
        const usc_status st = read_content(p->d, &list[k], err);
        if (st != USC_OK || !list[k].content.known) return st;
    }
    for (int64_t k = 0; k < n_a + n_b; k++)
        p->partner[list[k].side][list[k].call] = -1;
    while (find_closest(p, list, n_a, b, n_b, &i, &j)) {
        p->partner[0][list[i].call] = b[j].call;
        p->partner[1][b[j].call] = list[i].call;
        p->how[list[i].call] = USC_DIFF_EXACT;
    }
    return USC_OK;
}

/* Calls that could have another partner, or one at all. */
static int64_t list_loose(const pairing *p, loose *list)
{
    int64_t n = 0;
    for (int side = 0; side < 2; side++) {
        const usc_diff_list *l = &p->d->list[side];
        for (int64_t i = 0; i < l->n; i++) {
            const int64_t other = p->partner[side][i];
            const writers own = writers_of(p, side, i);
            if (own == PAIRED) continue;
            const uint64_t key = key_of(&l->item[i]);
            if (other >= 0 && (writers_of(p, 1 - side, other) == PAIRED ||
                               key_of(&p->d->list[1 - side].item[other]) != key))
                continue;
            list[n++] =
                (loose){.key = key, .side = side, .call = i, .unpaired = own == UNPAIRED};
        }
    }
    qsort(list, (size_t)n, sizeof *list, by_key);
    return n;
}

static usc_status regroup_all(pairing *p, usc_error *err)
{
    usc_status st = USC_OK;
    loose *list = malloc((size_t)(p->d->list[0].n + p->d->list[1].n) * sizeof *list);
    if (list == NULL) return usc_no_memory("diff", err);
    const int64_t n = list_loose(p, list);
    for (int64_t from = 0; from < n && st == USC_OK;) {
        int64_t n_of[2] = {0, 0}, to = from;
        bool any = false;
        for (; to < n && list[to].key == list[from].key; to++) {
            n_of[list[to].side]++;
            any = any || list[to].unpaired;
        }
        if (any) st = regroup(p, &list[from], n_of[0], n_of[1], err);
        from = to;
    }
    free(list);
    return st;
}

usc_status usc_diff_regroup(usc_diff *d, usc_diff_pair *pair, int64_t *n, usc_error *err)
{
    const int64_t n_a = d->list[0].n, n_b = d->list[1].n;
    int64_t *const partner = malloc((size_t)(n_a + n_b) * sizeof *partner);
    usc_diff_how *const how = calloc((size_t)n_a, sizeof *how);
    pairing p = {.d = d, .partner = {partner, partner + n_a}, .how = how};
    usc_status st = USC_OK;
    if (partner == NULL || how == NULL) {
        st = usc_no_memory("diff", err);
    } else {
        for (int64_t i = 0; i < n_a + n_b; i++)
            partner[i] = -1;
        for (int64_t i = 0; i < *n; i++) {
            p.partner[0][pair[i].a] = pair[i].b;
            p.partner[1][pair[i].b] = pair[i].a;
            how[pair[i].a] = pair[i].how;
        }
        st = regroup_all(&p, err);
    }
    if (st == USC_OK) *n = 0;
    for (int64_t i = 0; i < n_a && st == USC_OK; i++)
        if (p.partner[0][i] >= 0)
            pair[(*n)++] = (usc_diff_pair){i, p.partner[0][i], how[i]};
    free(partner);
    free(how);
    return st;
}
