// SPDX-License-Identifier: Apache-2.0
// Backward passes of modules: which one lies around which, and what a gradient hangs on
// beside the gradients that came in. Rows begin in the order of the backward pass, an
// outer one before or behind those inside it. lists.h, diffs.h
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff/diffs.h"
#include "trace/trace_reader.h"

void usc_diff_take_backward(usc_diff_call *call, const char *state)
{
    static const char forward[] = "\"forward\": ";
    const char *at = state != NULL ? strstr(state, forward) : NULL;
    if (at != NULL) call->forward = strtoll(at + sizeof forward - 1, NULL, 10);
}

/* The backward pass of what lies around a forward: of the innermost that has one. */
static int64_t around(const usc_diff_list *l, int64_t forward, const int64_t *latest)
{
    while (forward >= 0) {
        forward = usc_diff_list_index(l, l->call[forward].parent);
        if (forward >= 0 && latest[forward] >= 0) return latest[forward];
    }
    return -1;
}

/* Its parameters may have followed gradients of a step before. */
static void find_step_before(usc_diff_list *l, int64_t i, usc_keys *last)
{
    usc_diff_call *call = &l->call[i];
    const usc_hash128 key = {.low = l->item[i].module};
    int64_t *at = usc_keys_find(last, key);
    if ((call->flags & USC_DIFF_BACKWARD) != 0) {
        if (at != NULL)
            *at = i;
        else
            (void)usc_keys_put(last, key, i);
    } else if (at != NULL && l->call[*at].step < call->step) {
        call->twin = l->call[*at].sequence;
    }
}

usc_status usc_diff_list_nest(usc_diff_list *l, usc_error *err)
{
    int64_t *latest = malloc((size_t)(l->n + 1) * sizeof *latest);
    usc_keys last = {0};
    if (latest == NULL) return usc_no_memory(l->trace->folder, err);
    for (int64_t i = 0; i < l->n; i++)
        latest[i] = -1;
    for (int pass = 0; pass < 2; pass++) /* in the second all are known */
        for (int64_t i = 0; i < l->n; i++) {
            usc_diff_call *call = &l->call[i];
            const int64_t forward = (call->flags & USC_DIFF_BACKWARD) != 0
                                        ? usc_diff_list_index(l, call->forward)
                                        : -1;
            if (forward < 0) continue;
            if (pass == 0) {
                call->twin = latest[forward] >= 0 ? l->call[latest[forward]].sequence : 0;
                latest[forward] = i;
            }
            const int64_t up = call->parent == 0 ? around(l, forward, latest) : -1;
            if (up >= 0) call->parent = l->call[up].sequence;
        }
    for (int64_t i = 0; i < l->n; i++)
        find_step_before(l, i, &last);
    const bool failed = last.failed;
    usc_keys_free(&last);
    free(latest);
    return failed ? usc_no_memory(l->trace->folder, err) : USC_OK;
}

bool usc_diff_gave_before(const usc_diff_list *l, const usc_diff_call *call,
                          int64_t writer)
{
    const int64_t at = usc_diff_list_index(l, writer);
    return at >= 0 && (l->call[at].flags & call->flags & USC_DIFF_BACKWARD) != 0 &&
           l->call[at].forward > call->forward;
}

/* ---- what a gradient hangs on ---- */

static void look_at(const usc_diff *d, int64_t sequence, bool results,
                    usc_diff_behind *out)
{
    const int64_t at = sequence != 0 ? usc_diff_list_index(&d->list[0], sequence) : -1;
    const int64_t row = at >= 0 ? d->row_of[0][at] : -1;
    if (row < 0) return;
    const double own = fmax(usc_diff_height(&d->row[row].in),
                            results ? usc_diff_height(&d->row[row].out) : 0);
    if (own > out->height) *out = (usc_diff_behind){row, own};
}

usc_diff_behind usc_diff_look_behind(const usc_diff *d, const usc_diff_call *call)
{
    usc_diff_behind found = {-1, 0};
    const bool backward = (call->flags & USC_DIFF_BACKWARD) != 0;
    look_at(d, call->forward, true, &found);
    look_at(d, call->twin, !backward, &found);
    return found;
}

/* ---- results ---- */

static double elements_of(const usc_call_arg *arg)
{
    double n = 1;
    for (int i = 0; i < arg->ndim; i++)
        n *= (double)arg->sizes[i];
    return n;
}

static const usc_call_arg *largest_of(const usc_call *c)
{
    const usc_call_arg *found = NULL;
    for (int i = 0; i < c->n_args; i++)
        if (c->arg[i].role == USC_ROLE_IN &&
            (found == NULL || elements_of(&c->arg[i]) > elements_of(found)))
            found = &c->arg[i];
    return found;
}

double usc_diff_gradient_fan(const usc_call *c)
{
    const usc_call_arg *in = largest_of(c);
    return in != NULL && in->ndim > 0
               ? elements_of(in) / fmax((double)in->sizes[in->ndim - 1], 1)
               : 1;
}

double usc_diff_gradient_scale(const usc_call *c, const usc_call_arg *arg)
{
    const usc_call_arg *in = largest_of(c);
    double l2;
    if (in == NULL || arg->ndim > 1 || strncmp(arg->path, "grad[", 5) != 0 ||
        !usc_call_arg_stat(in, "l2", &l2) || !isfinite(l2))
        return 0;
    const double n = fmax(elements_of(in), 1), own = fmax(elements_of(arg), 1);
    return l2 / sqrt(n) * sqrt(fmax(n / own, 1));
}

bool usc_diff_is_covered(const usc_call *a, const usc_call *b, const usc_call_arg *arg)
{
    char path[64];
    int n = 0;
    if (strncmp(arg->path, "whole[", 6) != 0) return false;
    (void)snprintf(path, sizeof path, "out%s", arg->path + 5);
    for (int side = 0; side < 2; side++) {
        const usc_call *c = side == 0 ? a : b;
        for (int i = 0; i < c->n_args; i++)
            if (c->arg[i].role == USC_ROLE_OUT && strcmp(c->arg[i].path, path) == 0) {
                n++;
                break;
            }
    }
    return n == 2;
}
