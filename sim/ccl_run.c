// SPDX-License-Identifier: Apache-2.0
// Collectives of simccl. Each goes chunk by chunk: every rank copies its part of a chunk
// into its slot, all meet, and each takes what it needs from the slots of all. Slots have
// two halves, used in turn, so that one meeting a chunk is enough: who writes a half again
// has met everybody since they read it. Before the first chunk the ranks compare what they
// are about to do, so that calls that do not fit each other are named and not mixed.
#include "ccl_shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a kind's bytes lie in the slots. */
typedef enum pieces {
    ONE_OF_EACH, /* piece 0 of every rank */
    ONE_OF_ROOT,
    MINE_OF_EACH, /* the piece for this rank, of every rank */
    MINE_OF_ROOT,
} pieces;

typedef struct shape {
    bool from_each, to_each; /* EACH, otherwise ONE */
    bool root_from, root_to; /* on the root only */
    bool reduces;
    pieces taken;
} shape;

static const shape shapes[USC_CCL_N_KINDS] = {
    [USC_CCL_ALL_REDUCE] = {.reduces = true, .taken = ONE_OF_EACH},
    [USC_CCL_REDUCE] = {.reduces = true, .root_to = true, .taken = ONE_OF_EACH},
    [USC_CCL_BROADCAST] = {.root_from = true, .taken = ONE_OF_ROOT},
    [USC_CCL_ALL_GATHER] = {.to_each = true, .taken = ONE_OF_EACH},
    [USC_CCL_GATHER] = {.to_each = true, .root_to = true, .taken = ONE_OF_EACH},
    [USC_CCL_SCATTER] = {.from_each = true, .root_from = true, .taken = MINE_OF_ROOT},
    [USC_CCL_REDUCE_SCATTER] = {.from_each = true,
                                .reduces = true,
                                .taken = MINE_OF_EACH},
    [USC_CCL_ALL_TO_ALL] = {.from_each = true, .to_each = true, .taken = MINE_OF_EACH},
};

typedef struct run {
    usc_ccl *c;
    const usc_ccl_call *call;
    const shape *s;
    size_t element;    /* bytes of what must not be torn apart */
    size_t piece_size; /* what a slot's half holds of each piece */
    ccl_faults *faults;
    char doing[64];
} run;

/* ---- what the ranks are about to do ---------------------------------------------- */

static size_t n_of(const usc_ccl *c, bool each, bool root_only, int root, int rank,
                   usc_ccl_kind kind)
{
    if (kind == USC_CCL_BARRIER || (root_only && rank != root)) return 0;
    return each ? (size_t)c->size : 1;
}

static usc_status check_own(const usc_ccl *c, const usc_ccl_call *call, usc_error *err)
{
    if ((unsigned)call->kind >= USC_CCL_N_KINDS)
        return usc_error_set(err, USC_E_ARG, -1, "simccl: there is no collective %d",
                             (int)call->kind);
    const shape *s = &shapes[call->kind];
    const bool rooted = s->root_from || s->root_to;
    if (rooted && (call->root < 0 || call->root >= c->size))
        return usc_error_set(err, USC_E_ARG, -1, "simccl: %s: there is no rank %d of %d",
                             usc_ccl_kind_name(call->kind), call->root, c->size);
    const size_t from =
        n_of(c, s->from_each, s->root_from, call->root, c->rank, call->kind);
    const size_t to = n_of(c, s->to_each, s->root_to, call->root, c->rank, call->kind);
    if (call->n_from != from || call->n_to != to)
        return usc_error_set(
            err, USC_E_ARG, -1,
            "simccl: %s: %zu inputs and %zu outputs on rank %d; it takes "
            "%zu and %zu",
            usc_ccl_kind_name(call->kind), call->n_from, call->n_to, c->rank, from, to);
    if (s->reduces && !ccl_can_reduce(call->op, call->dtype))
        return usc_error_set(err, USC_E_UNSUPPORTED, -1, "simccl: %s: no %s of %s",
                             usc_ccl_kind_name(call->kind), usc_ccl_op_name(call->op),
                             usc_dtype_info_of(call->dtype)->name);
    return USC_OK;
}

static void announce(usc_ccl *c, const usc_ccl_call *call)
{
    ccl_announced *a = ccl_announced_of(c, c->rank, c->n_calls);
    const bool reduces = shapes[call->kind].reduces;
    a->n_calls = c->n_calls;
    a->kind = (int32_t)call->kind;
    a->op = reduces ? (int32_t)call->op : 0;
    a->dtype = reduces ? (int32_t)call->dtype : 0;
    a->root = call->root;
    a->n_from = call->n_from;
    a->n_to = call->n_to;
    for (size_t i = 0; i < call->n_from; i++)
        a->sizes[i] = call->from[i].size;
    for (size_t i = 0; i < call->n_to; i++)
        a->sizes[call->n_from + i] = call->to[i].size;
    ccl_place *p = ccl_place_of(c, c->rank);
    atomic_store(&p->kind, (int)call->kind);
    atomic_store(&p->n_calls, c->n_calls);
}

static void describe(const ccl_announced *a, char *out, size_t size)
{
    const shape *s = &shapes[a->kind];
    int n = snprintf(out, size, "%s", usc_ccl_kind_name((usc_ccl_kind)a->kind));
    if (s->reduces)
        n += snprintf(out + n, size - (size_t)n, " (%s of %s)",
                      usc_ccl_op_name((usc_ccl_op)a->op),
                      usc_dtype_info_of((usc_dtype)a->dtype)->name);
    if (s->root_from || s->root_to)
        n += snprintf(out + n, size - (size_t)n, " with root %d", a->root);
    if (a->n_from + a->n_to > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, " of %llu bytes",
                 (unsigned long long)a->sizes[0]);
}

static usc_status differ(const usc_ccl *c, int a, int b, usc_error *err)
{
    char left[160], right[160];
    describe(ccl_announced_of(c, a, c->n_calls), left, sizeof left);
    describe(ccl_announced_of(c, b, c->n_calls), right, sizeof right);
    return usc_error_set(
        err, USC_E_ARG, b,
        "simccl: the ranks' calls number %llu do not fit: rank %d is at %s, "
        "rank %d at %s",
        (unsigned long long)c->n_calls, a, left, b, right);
}

static uint64_t from_size(const ccl_announced *a, size_t i)
{
    return i < a->n_from ? a->sizes[i] : 0;
}

static uint64_t to_size(const ccl_announced *a, size_t i)
{
    return i < a->n_to ? a->sizes[a->n_from + i] : 0;
}

/* Whether what `sender` gives is what `taker` takes of it; every rank asks of all pairs
 * and so finds the same. */
static bool fits(const shape *s, const ccl_announced *sender, const ccl_announced *taker,
                 size_t sender_rank, size_t taker_rank)
{
    if ((s->root_from && sender->n_from == 0) || (s->root_to && taker->n_to == 0))
        return true;
    const uint64_t given = from_size(sender, s->from_each ? taker_rank : 0);
    const uint64_t taken = to_size(taker, s->to_each ? sender_rank : 0);
    return given == taken;
}

static usc_status compare(const usc_ccl *c, usc_error *err)
{
    const ccl_announced *first = ccl_announced_of(c, 0, c->n_calls);
    for (int i = 1; i < c->size; i++) {
        const ccl_announced *a = ccl_announced_of(c, i, c->n_calls);
        if (a->kind != first->kind || a->op != first->op || a->dtype != first->dtype ||
            a->root != first->root)
            return differ(c, 0, i, err);
    }
    for (int i = 0; i < c->size; i++)
        for (int k = 0; k < c->size; k++)
            if (!fits(&shapes[first->kind], ccl_announced_of(c, i, c->n_calls),
                      ccl_announced_of(c, k, c->n_calls), (size_t)i, (size_t)k)) {
                const int other = i != k ? k : i > 0 ? 0 : c->size > 1 ? 1 : 0;
                return differ(c, i < other ? i : other, i < other ? other : i, err);
            }
    return USC_OK;
}

/* ---- chunk by chunk -------------------------------------------------------------- */

static uint64_t largest(const usc_ccl *c)
{
    uint64_t most = 0;
    for (int i = 0; i < c->size; i++) {
        const ccl_announced *a = ccl_announced_of(c, i, c->n_calls);
        for (size_t k = 0; k < a->n_from; k++)
            if (a->sizes[k] > most) most = a->sizes[k];
    }
    return most;
}

/* The part of `size` bytes that is chunk k's. */
static size_t part(const run *r, uint64_t size, uint64_t k)
{
    const uint64_t before = k * r->piece_size;
    if (size <= before) return 0;
    return size - before < r->piece_size ? (size_t)(size - before) : r->piece_size;
}

static const char *piece_of(const run *r, int rank, size_t i)
{
    if (rank == r->faults->instead) rank = r->faults->twice;
    return ccl_half_of(r->c, rank, r->c->n_chunks) + i * r->piece_size;
}

static void give(const run *r, uint64_t k)
{
    char *half = ccl_half_of(r->c, r->c->rank, r->c->n_chunks);
    for (size_t i = 0; i < r->call->n_from; i++) {
        const usc_ccl_buffer *b = &r->call->from[i];
        const size_t n = part(r, b->size, k);
        if (n == 0) continue;
        memcpy(half + i * r->piece_size, (char *)b->at + k * r->piece_size, n);
        ccl_faults_input(r->faults, r->call->dtype, half + i * r->piece_size, n);
    }
}

static void take(const run *r, uint64_t k)
{
    const size_t mine = (size_t)r->c->rank;
    for (size_t i = 0; i < r->call->n_to; i++) {
        const usc_ccl_buffer *b = &r->call->to[i];
        const size_t n = part(r, b->size, k);
        const bool of_root = r->s->taken == ONE_OF_ROOT || r->s->taken == MINE_OF_ROOT;
        const int whose = of_root ? r->call->root : (int)i;
        const size_t which =
            r->s->taken == MINE_OF_EACH || r->s->taken == MINE_OF_ROOT ? mine : 0;
        if (n > 0 && whose != r->faults->lost)
            memcpy((char *)b->at + k * r->piece_size, piece_of(r, whose, which), n);
    }
}

static void reduce_piece(const run *r, size_t piece, size_t at, size_t n, void *to)
{
    const void *sources[2 * USC_CCL_MAX_RANKS];
    int n_sources = 0;
    for (int again = 0; again <= r->faults->is_twice; again++)
        for (int i = 0; i < r->c->size; i++)
            if (i != r->faults->lost || r->c->size == 1)
                sources[n_sources++] = piece_of(r, i, piece) + at;
    ccl_reduce(r->faults->is_sum ? USC_CCL_OP_SUM : r->call->op, r->call->dtype,
               r->faults->in_bf16, sources, n_sources, to, n / r->element);
}

/* Where rank i's share of n bytes begins. */
static size_t share_at(const run *r, size_t n, int i)
{
    const size_t elements = n / r->element;
    return elements * (size_t)i / (size_t)r->c->size * r->element;
}

/* Each rank adds up its share in its own slot, where nobody else reads that share, and all
 * take all shares. */
static usc_status reduce_all(const run *r, uint64_t k, usc_error *err)
{
    const usc_ccl *c = r->c;
    const size_t n = part(r, r->call->from[0].size, k);
    const size_t at = share_at(r, n, c->rank), end = share_at(r, n, c->rank + 1);
    char *own = ccl_half_of(c, c->rank, c->n_chunks);
    reduce_piece(r, 0, at, end - at, own + at);
    const usc_status st = ccl_meet(r->c, r->doing, err);
    if (st != USC_OK || r->call->n_to == 0 || r->faults->is_stale) return st;
    char *to = (char *)r->call->to[0].at + k * r->piece_size;
    for (int i = 0; i < c->size; i++) { /* each its own share, whatever it summed up */
        const size_t begin = share_at(r, n, i), stop = share_at(r, n, i + 1);
        if (stop > begin)
            memcpy(to + begin, ccl_half_of(c, i, c->n_chunks) + begin, stop - begin);
    }
    return USC_OK;
}

static usc_status take_chunk(const run *r, uint64_t k, usc_error *err)
{
    if (r->s->reduces && !r->s->from_each) return reduce_all(r, k, err);
    if (r->faults->is_stale) return USC_OK;
    if (!r->s->reduces) {
        take(r, k);
        return USC_OK;
    }
    const usc_ccl_buffer *b = &r->call->to[0];
    const size_t n = part(r, b->size, k);
    if (n > 0)
        reduce_piece(r, (size_t)r->c->rank, 0, n, (char *)b->at + k * r->piece_size);
    return USC_OK;
}

static usc_status all_chunks(run *r, usc_error *err)
{
    const size_t n_pieces = r->s->from_each ? (size_t)r->c->size : 1;
    const uint64_t most = largest(r->c);
    /* Whole cache lines, and so whole elements. */
    r->piece_size = r->c->half_size / n_pieces / 64 * 64;
    usc_status st = USC_OK;
    for (uint64_t k = 0; st == USC_OK && k * r->piece_size < most; k++) {
        give(r, k);
        st = ccl_meet(r->c, r->doing, err);
        if (st == USC_OK) st = take_chunk(r, k, err);
        r->c->n_chunks++;
    }
    return st;
}

/* ---- device memory --------------------------------------------------------------- */

static usc_status open_all(const usc_ccl_buffer *b, size_t n, usc_sim_access access,
                           size_t *n_open, usc_error *err)
{
    usc_status st = USC_OK;
    for (*n_open = 0; st == USC_OK && *n_open < n; *n_open += st == USC_OK)
        if (usc_sim_device_of(b[*n_open].at) >= 0)
            st = usc_sim_open(b[*n_open].at, access, err);
    return st;
}

static void close_all(const usc_ccl_buffer *b, size_t n, usc_sim_access access)
{
    for (size_t i = 0; i < n; i++)
        if (usc_sim_device_of(b[i].at) >= 0) usc_sim_close(b[i].at, access);
}

static usc_status run_open(run *r, usc_error *err)
{
    usc_ccl *c = r->c;
    c->n_calls++;
    snprintf(r->doing, sizeof r->doing, "%s number %llu",
             usc_ccl_kind_name(r->call->kind), (unsigned long long)c->n_calls);
    announce(c, r->call);
    usc_status st = ccl_meet(c, r->doing, err);
    if (st == USC_OK) st = compare(c, err);
    return st == USC_OK ? all_chunks(r, err) : st;
}

usc_status usc_ccl_run(usc_ccl *c, const usc_ccl_call *call, usc_error *err)
{
    size_t n_from = 0, n_to = 0;
    ccl_faults faults;
    usc_status st = ccl_alive(c, err);
    if (st == USC_OK) st = check_own(c, call, err);
    if (st == USC_OK) st = ccl_faults_begin(&faults, call->kind, err);
    if (st != USC_OK) return st;
    run r = {.c = c, .call = call, .s = &shapes[call->kind], .faults = &faults};
    r.element = r.s->reduces ? usc_dtype_info_of(call->dtype)->size : 1;
    st = open_all(call->from, call->n_from, USC_SIM_READ, &n_from, err);
    if (st == USC_OK) st = open_all(call->to, call->n_to, USC_SIM_WRITE, &n_to, err);
    if (st == USC_OK) st = run_open(&r, err);
    if (st == USC_OK)
        ccl_faults_end(&faults, call->dtype, call->to, call->n_to, &c->last);
    ccl_faults_drop(&faults);
    close_all(call->to, n_to, USC_SIM_WRITE);
    close_all(call->from, n_from, USC_SIM_READ);
    return st;
}
