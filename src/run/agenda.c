// SPDX-License-Identifier: Apache-2.0
// One list: first the picks that are the first of something, in their order; then the
// others, each operator's in a chain of its own.
#include "run/agenda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/line.h"
#include "run/crew.h"

#define UNKNOWN_BITS 24.0 /* of an operator of which no call was judged */

struct usc_agenda_op {
    usc_agenda_op *before;
    const char *name;
    int64_t count, n_left;
    int worst; /* verdict, and bits */
    double bits;
    usc_agenda_item *head, **tail; /* of those that are no firsts */
    int64_t n_heard;
    double seconds, longest; /* that those took, and one of them */
};

struct usc_agenda_item {
    int64_t index; /* of the pick */
    int64_t call;
    int level; /* 0: first of a signature, 1: of one in a module class, 2: neither */
    usc_agenda_op *op;
    usc_agenda_item *next;
};

static usc_hash128 key_of_pick(const usc_agenda *a, const usc_pick *pick, bool classes)
{
    const usc_forward *f = pick->forward;
    if (f == NULL) return usc_calls_key(a->calls, pick->call, classes);
    usc_hash128 key = usc_key_of(usc_agenda_name(a->calls, pick));
    for (int64_t i = 0; i < f->n_calls; i++) {
        const usc_hash128 pair[2] = {key, usc_calls_key(a->calls, f->call[i], false)};
        key = usc_hash_bytes(pair, sizeof pair);
    }
    return key;
}

const char *usc_agenda_name(const usc_calls *calls, const usc_pick *pick)
{
    const usc_forward *f = pick->forward;
    if (f != NULL) return f->module_class[0] != '\0' ? f->module_class : f->op;
    const usc_call *call = usc_calls_find(calls, pick->call);
    return call != NULL ? call->op : "";
}

static usc_agenda_op *op_of(usc_agenda *a, const char *name)
{
    const usc_hash128 key = usc_key_of(name);
    const int64_t *there = usc_keys_find(&a->ops, key);
    if (there != NULL) return (usc_agenda_op *)(intptr_t)*there;
    usc_agenda_op *op = usc_arena_take(&a->arena, sizeof *op);
    if (op == NULL) return NULL;
    *op = (usc_agenda_op){
        .before = a->last, .name = name, .worst = USC_VERDICT_PASS, .bits = UNKNOWN_BITS};
    op->tail = &op->head;
    a->last = op;
    (void)usc_keys_put(&a->ops, key, (int64_t)(intptr_t)op);
    return op;
}

static int level_of(usc_agenda *a, const usc_pick *pick, usc_keys *seen)
{
    const int64_t n = (int64_t)seen->n;
    if (usc_keys_put(seen, key_of_pick(a, pick, false), n) == n) {
        (void)usc_keys_put(seen, key_of_pick(a, pick, true), n);
        return 0;
    }
    if (pick->forward != NULL) return 2;
    return usc_keys_put(seen, key_of_pick(a, pick, true), n) == n ? 1 : 2;
}

static int compare_items(const void *x, const void *y)
{
    const usc_agenda_item *a = x, *b = y;
    if (a->level != b->level) return a->level - b->level;
    if (a->level < 2 && a->op->count != b->op->count)
        return a->op->count < b->op->count ? -1 : 1;
    return a->call < b->call ? -1 : a->call > b->call;
}

static void put_in_order(usc_agenda *a)
{
    if (a->n_items > 0)
        qsort(a->item, (size_t)a->n_items, sizeof *a->item, compare_items);
    while (a->n_first < a->n_items && a->item[a->n_first].level < 2)
        a->n_first++;
    for (int64_t i = a->n_first; i < a->n_items; i++) {
        usc_agenda_op *op = a->item[i].op;
        *op->tail = &a->item[i];
        op->tail = &a->item[i].next;
    }
}

usc_status usc_agenda_begin(usc_agenda *a, const int64_t *index, int64_t n, double end,
                            usc_error *err)
{
    a->arena = (usc_arena){.alloc = usc_libc_alloc};
    a->ordered = end > 0;
    a->end = end;
    usc_keys seen = {0};
    a->item = usc_arena_take(&a->arena, (size_t)(n + 1) * sizeof *a->item);
    for (int64_t i = 0; a->item != NULL && i < n; i++) {
        const usc_pick *p = &a->pick[index[i]];
        a->item[i] = (usc_agenda_item){.index = index[i],
                                       .call = p->call,
                                       .op = op_of(a, usc_agenda_name(a->calls, p))};
        if (a->item[i].op == NULL) break;
        a->item[i].op->count++;
        a->item[i].op->n_left++;
        if (a->ordered) a->item[i].level = level_of(a, p, &seen);
        a->n_items = a->n_left = i + 1;
    }
    const bool failed = a->arena.failed || a->ops.failed || seen.failed;
    usc_keys_free(&seen);
    if (failed) {
        usc_agenda_free(a);
        return usc_error_set(err, USC_E_NOMEM, -1, "agenda: no memory");
    }
    if (a->ordered)
        put_in_order(a);
    else
        a->n_first = a->n_items;
    return USC_OK;
}

void usc_agenda_free(usc_agenda *a)
{
    usc_arena_free(&a->arena);
    usc_keys_free(&a->ops);
    a->n_items = a->n_left = 0;
}

bool usc_agenda_more(const usc_agenda *a)
{
    return a->n_left > 0 && !(a->ordered && usc_run_clock() >= a->end);
}

/* Whether operator x goes on before y: worse so far, rarer, first by name. */
static bool goes_before(const usc_agenda_op *x, const usc_agenda_op *y)
{
    if (x->worst != y->worst) return x->worst < y->worst;
    if (x->bits < y->bits || x->bits > y->bits) return x->bits < y->bits;
    if (x->count != y->count) return x->count < y->count;
    return strcmp(x->name, y->name) < 0;
}

int64_t usc_agenda_take(usc_agenda *a)
{
    usc_agenda_item *item = NULL;
    if (a->i_first < a->n_first) {
        item = &a->item[a->i_first++];
    } else {
        usc_agenda_op *best = NULL;
        for (usc_agenda_op *op = a->last; op != NULL; op = op->before)
            if (op->head != NULL && (best == NULL || goes_before(op, best))) best = op;
        if (best == NULL) return -1;
        item = best->head;
        best->head = item->next;
    }
    item->op->n_left--;
    a->n_left--;
    return item->index;
}

void usc_agenda_hear(usc_agenda *a, int64_t index, usc_verdict verdict, double bits,
                     double seconds)
{
    usc_agenda_op *op = op_of(a, usc_agenda_name(a->calls, &a->pick[index]));
    if (op == NULL) return;
    op->n_heard++;
    op->seconds += seconds;
    op->longest = fmax(op->longest, seconds);
    if ((int)verdict > op->worst) return;
    if (isnan(bits)) bits = UNKNOWN_BITS;
    if ((int)verdict < op->worst || bits < op->bits) op->bits = bits;
    op->worst = (int)verdict;
}

/* What one more call of an operator takes, in seconds; `usual` where none was heard of.
 */
static double one_more(const usc_agenda_op *op, double usual)
{
    if (op->n_heard == 0) return usual;
    if (op->n_heard == 1) return op->seconds;
    return (op->seconds - op->longest) / (double)(op->n_heard - 1);
}

double usc_agenda_weight(const usc_agenda *a)
{
    double seconds = 0, left = 0;
    int64_t n_heard = 0;
    for (const usc_agenda_op *op = a->last; op != NULL; op = op->before) {
        n_heard += op->n_heard;
        seconds += op->seconds;
    }
    const double usual = n_heard > 0 ? seconds / (double)n_heard : 0;
    if (!(usual > 0)) return (double)a->n_left;
    for (const usc_agenda_op *op = a->last; op != NULL; op = op->before)
        left += (double)op->n_left * one_more(op, usual);
    return left / usual;
}

void usc_agenda_tell_left(const usc_agenda *a, char *out, size_t size)
{
    enum { MOST = 4 };
    usc_line text = {0};
    const usc_agenda_op *told[MOST] = {0};
    int n_told = 0, n_ops = 0;
    for (const usc_agenda_op *op = a->last; op != NULL; op = op->before)
        n_ops += op->n_left > 0;
    for (; n_told < MOST && n_told < n_ops; n_told++) {
        const usc_agenda_op *most = NULL;
        for (const usc_agenda_op *op = a->last; op != NULL; op = op->before) {
            bool before = op->n_left == 0;
            for (int i = 0; i < n_told; i++)
                before |= told[i] == op;
            if (!before && (most == NULL || op->n_left >= most->n_left)) most = op;
        }
        told[n_told] = most;
        usc_line_add(&text, "%s%s (", n_told > 0 ? ", " : "", most->name);
        usc_line_count(&text, most->n_left);
        usc_line_text(&text, ")");
    }
    if (n_ops > MOST) usc_line_add(&text, " and %d other operators", n_ops - MOST);
    if (size > 0) (void)snprintf(out, size, "%s", text.text != NULL ? text.text : "");
    usc_line_free(&text);
}
