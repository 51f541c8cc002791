// SPDX-License-Identifier: Apache-2.0
// What the two runs begin with, and which calls compute at all: by the lists alone,
// nothing is read. diffs.h
#include "diff/diffs.h"

/* What lies between modules is in the trace, and not in a list of modules. */
static bool is_from_outside(const usc_diff *d, int side, const usc_diff_arg *arg)
{
    if (arg->role != USC_ROLE_IN) return false;
    return d->options.modules ? arg->writer <= 0
                              : usc_diff_list_index(&d->list[side], arg->writer) < 0;
}

/* The argument of call `to` that stands where `arg` does; NULL: none. */
static const usc_diff_arg *partner_of(const usc_diff_list *l, const usc_diff_call *to,
                                      const usc_diff_arg *arg, int at)
{
    for (int k = -1; k < to->n_args; k++) {
        const int i = k < 0 ? at : k;
        if (i < to->n_args && l->arg[to->first_arg + i].path == arg->path)
            return &l->arg[to->first_arg + i];
    }
    return NULL;
}

/* Counts one argument, unless its version was. */
static void count_arg(usc_diff *d, const usc_diff_arg *a, const usc_diff_arg *b,
                      usc_keys *seen)
{
    const usc_diff_tensor *ta = usc_diff_table_find(&d->list[0].tensors, a->tensor);
    const usc_diff_tensor *tb = usc_diff_table_find(&d->list[1].tensors, b->tensor);
    bool equal;
    if (ta == NULL || tb == NULL) return;
    const usc_hash128 key = usc_hash_bytes(&ta->version, sizeof ta->version);
    if (usc_keys_find(seen, key) != NULL ||
        usc_diff_known(d, ta, tb, &equal) == USC_DIFF_BY_NOTHING)
        return;
    (void)usc_keys_put(seen, key, 1);
    usc_diff_entered *e = &d->outside;
    if (ta->requires_grad) {
        e->n_parameters++;
        e->n_parameters_differ += !equal;
    } else {
        e->n_others++;
        e->n_others_differ += !equal;
    }
}

/* Parameters first: what an optimizer reads of them has no gradient. */
usc_status usc_diff_count_entered(usc_diff *d, usc_error *err)
{
    usc_keys seen = {0};
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < d->n; i++) {
            const int64_t at[] = {usc_diff_list_index(&d->list[0], d->row[i].call_a),
                                  usc_diff_list_index(&d->list[1], d->row[i].call_b)};
            const usc_diff_call *a = &d->list[0].call[at[0]],
                                *b = &d->list[1].call[at[1]];
            for (int k = 0; k < a->n_args; k++) {
                const usc_diff_arg *own = &d->list[0].arg[a->first_arg + k];
                const usc_diff_arg *other = partner_of(&d->list[1], b, own, k);
                const usc_diff_tensor *t =
                    usc_diff_table_find(&d->list[0].tensors, own->tensor);
                if (other != NULL && t != NULL && t->requires_grad == (pass == 0) &&
                    is_from_outside(d, 0, own) && is_from_outside(d, 1, other))
                    count_arg(d, own, other, &seen);
            }
        }
    const bool failed = seen.failed;
    usc_keys_free(&seen);
    return failed ? usc_no_memory("diff", err) : USC_OK;
}

/* Whether a call, or one inside it, wrote one of its results. */
static bool writes(const usc_diff_list *l, const usc_diff_call *call)
{
    for (int k = 0; k < call->n_args; k++) {
        const usc_diff_arg *arg = &l->arg[call->first_arg + k];
        const usc_diff_tensor *t = usc_diff_table_find(&l->tensors, arg->tensor);
        const usc_diff_version *v =
            t != NULL ? usc_diff_table_find(&l->versions, t->version) : NULL;
        if (arg->role != USC_ROLE_IN && v != NULL && v->writer >= call->sequence)
            return true;
    }
    return false;
}

/* A call around one that computes and differs made nothing itself. */
static void mark_around(usc_diff *d, int64_t i)
{
    for (int64_t up = d->row[i].parent; up >= 0; up = d->row[up].parent) {
        usc_diff_row *around = &d->row[up];
        around->computes = false;
        if (around->kind != USC_DIFF_MADE && around->kind != USC_DIFF_GREW) continue;
        around->kind = USC_DIFF_HOLDS;
        around->source = i;
    }
}

void usc_diff_find_computing(usc_diff *d)
{
    if (d->options.modules) return;
    for (int64_t i = 0; i < d->n; i++) {
        const int64_t a = usc_diff_list_index(&d->list[0], d->row[i].call_a);
        const int64_t b = usc_diff_list_index(&d->list[1], d->row[i].call_b);
        d->row[i].computes = writes(&d->list[0], &d->list[0].call[a]) ||
                             writes(&d->list[1], &d->list[1].call[b]);
    }
    for (int64_t i = d->n - 1; i >= 0; i--) /* those inside come behind */
        if (d->row[i].computes && d->row[i].kind != USC_DIFF_SAME) mark_around(d, i);
}
