// SPDX-License-Identifier: Apache-2.0
// Calls without a partner, of whose results no comparison of pairs has looked at any: by
// the lists alone, nothing is read. diffs.h
#include <stdlib.h>

#include "diff/align.h"
#include "diff/diffs.h"

/* Calls of one side while they are looked at. */
typedef struct looking {
    const usc_diff *d;
    const usc_diff_list *l;
    int side;
    usc_keys seen;     /* versions that something read whose results were compared */
    usc_keys shared;   /* storages that calls with a partner touch */
    usc_keys contents; /* of all tensors of this side */
    usc_keys steps;    /* in which a call has a partner */
    usc_keys touched;  /* storages; 1: memory that no call of the trace made */
    int64_t handed;    /* up to this call what it is given may go into code that is not
                          recorded (a compiled region), whose results were compared */
} looking;

/* What a call without a partner wrote. */
typedef struct written {
    bool any, seen; /* a tensor; one that was compared */
    bool lost;      /* one that lasts (a weight), and was not */
} written;

static usc_hash128 key_of_number(int64_t n)
{
    return usc_hash_bytes(&n, sizeof n);
}

static bool holds(const usc_keys *k, int64_t n)
{
    return usc_keys_find(k, key_of_number(n)) != NULL;
}

/* Whether a call is paired, or lies in one that is: its results are those of that. */
static bool is_looked_at(const looking *k, int64_t i)
{
    for (; i >= 0; i = usc_diff_list_index(k->l, k->l->call[i].parent))
        if (k->d->row_of[k->side][i] >= 0) return true;
    return false;
}

static const usc_diff_arg *args_of(const looking *k, const usc_diff_call *c)
{
    return k->l->arg + c->first_arg;
}

static const usc_diff_tensor *tensor_of(const looking *k, const usc_diff_arg *arg)
{
    return usc_diff_table_find(&k->l->tensors, arg->tensor);
}

static const usc_diff_version *version_of(const looking *k, const usc_diff_arg *arg)
{
    const usc_diff_tensor *t = tensor_of(k, arg);
    return t != NULL ? usc_diff_table_find(&k->l->versions, t->version) : NULL;
}

/* What a tensor holds in the step of a call; of nothing that was kept nothing can be
 * told. */
static bool content_of(const looking *k, const usc_diff_call *c, const usc_diff_tensor *t,
                       usc_hash128 *key)
{
    const uint64_t bytes = k->d->options.statistics ? 0 : usc_diff_list_bytes(k->l, t);
    const uint64_t parts[] = {bytes != 0 ? bytes : t->stats, t->shape, t->dtype,
                              bytes != 0, (uint64_t)(c->step - k->d->shift[k->side])};
    *key = usc_hash_bytes(parts, sizeof parts);
    return parts[0] != 0;
}

static bool is_given(const looking *k, const usc_diff_call *c, int64_t storage)
{
    for (int a = 0; a < c->n_args; a++) {
        const usc_diff_version *v = version_of(k, &args_of(k, c)[a]);
        if (v != NULL && v->storage == storage && args_of(k, c)[a].role != USC_ROLE_OUT)
            return true;
    }
    return false;
}

static void note_arg(looking *k, const usc_diff_call *c, const usc_diff_arg *arg,
                     bool paired)
{
    usc_hash128 content;
    const usc_diff_tensor *t = tensor_of(k, arg);
    const usc_diff_version *v = version_of(k, arg);
    if (t != NULL && content_of(k, c, t, &content))
        (void)usc_keys_put(&k->contents, content, 1);
    if (v != NULL && paired) (void)usc_keys_put(&k->shared, key_of_number(v->storage), 1);
    if (v != NULL)
        (void)usc_keys_put(&k->touched, key_of_number(v->storage),
                           is_given(k, c, v->storage));
}

static void note_args(looking *k)
{
    for (int64_t i = 0; i < k->l->n; i++) {
        const usc_diff_call *c = &k->l->call[i];
        const bool paired = k->d->row_of[k->side][i] >= 0;
        if (paired) (void)usc_keys_put(&k->steps, key_of_number(c->step), 1);
        for (int a = 0; a < c->n_args; a++)
            note_arg(k, c, &args_of(k, c)[a], paired);
    }
}

/* What one call of a pair reads came from a call that has no partner, what the other
 * reads from no call: code that is not recorded made it. */
static void note_handed(looking *k, const looking *other, int64_t i, int64_t partner)
{
    const usc_diff_call *c = &k->l->call[i], *p = &other->l->call[partner];
    for (int a = 0; a < c->n_args; a++) {
        const usc_diff_arg *own = &args_of(k, c)[a];
        const usc_diff_version *v = version_of(k, own), *w = NULL;
        for (int b = 0; b < p->n_args && w == NULL; b++)
            if (args_of(other, p)[b].path == own->path)
                w = version_of(other, &args_of(other, p)[b]);
        const int64_t writer = w != NULL ? usc_diff_list_index(other->l, w->writer) : -1;
        if (own->role == USC_ROLE_IN && v != NULL && v->writer <= 0 && writer >= 0 &&
            !is_looked_at(other, writer))
            k->handed = i;
    }
}

static void find_handed(looking *k, const looking *other)
{
    for (int64_t i = 0; i < k->l->n; i++) {
        const int64_t row = k->d->row_of[k->side][i];
        if (row < 0) continue;
        const usc_diff_row *r = &k->d->row[row];
        const int64_t partner =
            usc_diff_list_index(other->l, k->side == 0 ? r->call_b : r->call_a);
        if (partner >= 0) note_handed(k, other, i, partner);
    }
}

/* Whether what call i wrote lies in memory of code that is not recorded. */
static bool is_handed(const looking *k, int64_t i, const usc_diff_version *v)
{
    const int64_t *strange = usc_keys_find(&k->touched, key_of_number(v->storage));
    return i < k->handed && strange != NULL && *strange == 1 &&
           !holds(&k->shared, v->storage);
}

/* Whether somebody compared what an argument holds: a call did that read it, one inside
 * wrote it that has a partner, or the other side has the same bits in that
 * step. */
static bool is_seen(const looking *k, const usc_keys *others, const usc_diff_call *c,
                    const usc_diff_arg *arg)
{
    usc_hash128 content;
    const usc_diff_version *v = version_of(k, arg);
    return holds(&k->seen, v->id) ||
           is_looked_at(k, usc_diff_list_index(k->l, v->writer)) ||
           (content_of(k, c, tensor_of(k, arg), &content) &&
            usc_keys_find(others, content) != NULL);
}

static written look(const looking *k, const usc_keys *others, int64_t i)
{
    const usc_diff_call *c = &k->l->call[i];
    written w = {0};
    if ((c->flags & USC_DIFF_UNWRITTEN) != 0) return w;
    for (int a = 0; a < c->n_args; a++) {
        const usc_diff_arg *arg = &args_of(k, c)[a];
        const usc_diff_version *v = version_of(k, arg);
        if (arg->role == USC_ROLE_IN || v == NULL || v->writer < c->sequence) continue;
        const bool seen = is_seen(k, others, c, arg) || is_handed(k, i, v);
        w.any = true;
        w.seen = w.seen || seen;
        w.lost = w.lost || (!seen && holds(&k->shared, v->storage));
    }
    return w;
}

static void see_inputs(looking *k, const usc_diff_call *c)
{
    for (int a = 0; a < c->n_args; a++) {
        const usc_diff_arg *arg = &args_of(k, c)[a];
        const usc_diff_version *v = version_of(k, arg);
        if (v != NULL && arg->role == USC_ROLE_IN)
            (void)usc_keys_put(&k->seen, key_of_number(v->id), 1);
    }
}

static void count(const looking *k, const usc_diff_call *c, usc_diff_unseen *to)
{
    if ((c->flags & USC_DIFF_ALLOWED) != 0) {
        to->n_allowed[k->side]++;
        return;
    }
    to->n[k->side]++;
    to->first[k->side] = c->sequence;
}

/* From the last call to the first: what a call read was compared where what it made of
 * that was. Of a step that the other side lacks as a whole nothing was; nor is anything
 * known of a module's pass but the one around it. */
static void visit(looking *k, const usc_keys *others, usc_diff_unseen *to)
{
    for (int64_t i = k->l->n - 1; i >= 0; i--) {
        const usc_diff_call *c = &k->l->call[i];
        const bool looked = is_looked_at(k, i);
        const written w =
            looked ? (written){.any = true, .seen = true} : look(k, others, i);
        const bool told = !w.any || (w.seen && !w.lost);
        if (w.any && told) see_inputs(k, c);
        if (!looked && (!told || k->d->options.modules || !holds(&k->steps, c->step)))
            count(k, c, to);
    }
}

usc_status usc_diff_count_unseen(usc_diff *d, usc_error *err)
{
    looking k[2];
    bool failed = false;
    for (int side = 0; side < 2; side++) {
        k[side] = (looking){.d = d, .l = &d->list[side], .side = side};
        note_args(&k[side]);
    }
    for (int side = 0; side < 2; side++) {
        find_handed(&k[side], &k[1 - side]);
        visit(&k[side], &k[1 - side].contents, &d->unseen);
    }
    for (int side = 0; side < 2; side++) {
        usc_keys *const keys[] = {&k[side].seen, &k[side].shared, &k[side].contents,
                                  &k[side].steps, &k[side].touched};
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            failed |= keys[i]->failed;
            usc_keys_free(keys[i]);
        }
    }
    return failed ? usc_no_memory("diff", err) : USC_OK;
}
