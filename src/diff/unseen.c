// SPDX-License-Identifier: Apache-2.0
// What calls without a partner made, and nothing reads that both traces have: no
// comparison of pairs has looked at it. By the lists alone, nothing is read. diffs.h
#include <stdlib.h>

#include "diff/align.h"
#include "diff/diffs.h"

/* Calls of one side while they are looked at. */
typedef struct looking {
    const usc_diff *d;
    const usc_diff_list *l;
    int side;
    usc_keys read;    /* versions that a call reads */
    usc_keys shared;  /* storages that calls with a partner touch */
    usc_keys *others; /* contents that calls without a partner leave on the other side */
    bool most;        /* of its calls have no partner */
} looking;

static usc_hash128 key_of_number(int64_t n)
{
    return usc_hash_bytes(&n, sizeof n);
}

/* Whether a call is paired, or lies in one that is: its results are those of that. */
static bool is_looked_at(const looking *k, int64_t i)
{
    for (; i >= 0; i = usc_diff_list_index(k->l, k->l->call[i].parent))
        if (k->d->row_of[k->side][i] >= 0) return true;
    return false;
}

static const usc_diff_version *version_of(const looking *k, const usc_diff_arg *arg)
{
    const usc_diff_tensor *t = usc_diff_table_find(&k->l->tensors, arg->tensor);
    return t != NULL ? usc_diff_table_find(&k->l->versions, t->version) : NULL;
}

static void note_args(looking *k)
{
    for (int64_t i = 0; i < k->l->n; i++)
        for (int a = 0; a < k->l->call[i].n_args; a++) {
            const usc_diff_arg *arg = &k->l->arg[k->l->call[i].first_arg + a];
            const usc_diff_version *v = version_of(k, arg);
            if (v == NULL) continue;
            if (arg->role == USC_ROLE_IN)
                (void)usc_keys_put(&k->read, key_of_number(v->id), 1);
            if (k->d->row_of[k->side][i] >= 0)
                (void)usc_keys_put(&k->shared, key_of_number(v->storage), 1);
        }
}

/* What a tensor holds; of nothing that was kept nothing can be told. */
static bool content_of(const looking *k, const usc_diff_tensor *t, usc_hash128 *key)
{
    const uint64_t bytes = k->d->options.statistics ? 0 : usc_diff_list_bytes(k->l, t);
    const uint64_t parts[] = {bytes != 0 ? bytes : t->stats, t->shape, t->dtype,
                              bytes != 0};
    *key = usc_hash_bytes(parts, sizeof parts);
    return parts[0] != 0;
}

/* Whether argument `a` of call `c` is something that it wrote, that no call reads and
 * that is known. */
static bool is_left(const looking *k, const usc_diff_call *c, int a, usc_hash128 *key)
{
    const usc_diff_arg *arg = &k->l->arg[c->first_arg + a];
    const usc_diff_tensor *t = usc_diff_table_find(&k->l->tensors, arg->tensor);
    const usc_diff_version *v = version_of(k, arg);
    return arg->role != USC_ROLE_IN && v != NULL && v->writer >= c->sequence &&
           (c->flags & USC_DIFF_UNWRITTEN) == 0 &&
           usc_keys_find(&k->read, key_of_number(v->id)) == NULL && content_of(k, t, key);
}

typedef void visitor(looking *k, const usc_diff_call *c, int a, usc_hash128 content,
                     usc_diff_unseen *to);

/* What calls that nobody looked at leave, in the order of calls; those of steps that the
 * other side lacks as a whole are told as such. */
static void visit(looking *k, visitor *see, usc_diff_unseen *to)
{
    usc_hash128 key;
    usc_keys steps = {0};
    for (int64_t i = 0; i < k->l->n; i++)
        if (k->d->row_of[k->side][i] >= 0)
            (void)usc_keys_put(&steps, key_of_number(k->l->call[i].step), 1);
    for (int64_t i = 0; i < k->l->n; i++) {
        const usc_diff_call *c = &k->l->call[i];
        if (usc_keys_find(&steps, key_of_number(c->step)) == NULL || is_looked_at(k, i))
            continue;
        for (int a = 0; a < c->n_args; a++)
            if (is_left(k, c, a, &key)) see(k, c, a, key, to);
    }
    k->read.failed |= steps.failed;
    usc_keys_free(&steps);
}

static void keep(looking *k, const usc_diff_call *c, int a, usc_hash128 content,
                 usc_diff_unseen *to)
{
    (void)c, (void)a, (void)to;
    (void)usc_keys_put(k->others, content, 1);
}

/* What is written into memory that both have lasts (weights); a result that nothing reads
 * may be for the program's own eyes, and a buffer for code that is not recorded: they say
 * nothing, unless they are most of what there is. */
static void count(looking *k, const usc_diff_call *c, int a, usc_hash128 content,
                  usc_diff_unseen *to)
{
    const usc_diff_version *v = version_of(k, &k->l->arg[c->first_arg + a]);
    const bool lasts = usc_keys_find(&k->shared, key_of_number(v->storage)) != NULL;
    if (usc_keys_find(k->others, content) != NULL || (!lasts && !k->most)) return;
    (void)usc_keys_put(&k->read, key_of_number(v->id),
                       1); /* a result may be an argument */
    if (to->n[k->side]++ == 0) to->first[k->side] = c->sequence;
}

/* Whether most calls of a side are not looked at. */
static bool is_most(const looking *k)
{
    int64_t n = 0;
    for (int64_t i = 0; i < k->l->n; i++)
        n += !is_looked_at(k, i);
    return 2 * n > k->l->n;
}

usc_status usc_diff_count_unseen(usc_diff *d, usc_error *err)
{
    usc_keys left[2] = {0};
    looking k[2];
    bool failed = false;
    for (int side = 0; side < 2; side++) {
        k[side] = (looking){.d = d, .l = &d->list[side], .side = side};
        k[side].others = &left[side];
        note_args(&k[side]);
        k[side].most = is_most(&k[side]);
        if (!d->options.modules) visit(&k[side], keep, NULL);
    }
    for (int side = 0; side < 2; side++) {
        k[side].others = &left[1 - side];
        if (!d->options.modules) visit(&k[side], count, &d->unseen);
    }
    for (int side = 0; side < 2; side++) {
        failed |= k[side].read.failed || k[side].shared.failed || left[side].failed;
        usc_keys_free(&k[side].shared);
        usc_keys_free(&k[side].read);
        usc_keys_free(&left[side]);
    }
    return failed ? usc_no_memory("diff", err) : USC_OK;
}
