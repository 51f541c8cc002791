// SPDX-License-Identifier: Apache-2.0
// Which calls of a list a replay takes, and what belongs to each.
#include "call/picks.h"

#include <stdlib.h>
#include <string.h>

/* ---- which calls can be replayed ---- */

/* They give nothing of their own: what a wait finds belongs to the collective before. */
static bool is_silent(const char *op)
{
    static const char *const silent[] = {
        USC_CALL_FORWARD,          USC_CALL_BACKWARD,     "c10d::barrier",
        "c10d::monitored_barrier", "c10d::check_for_nan", "_c10d_functional::wait",
        "_c10d_functional::_wrap"};
    for (size_t i = 0; i < sizeof silent / sizeof silent[0]; i++)
        if (strncmp(op, silent[i], strlen(silent[i])) == 0) return true;
    return false;
}

static bool is_collective(const char *op)
{
    return strncmp(op, "c10d::", 6) == 0 || strncmp(op, "_c10d_functional::", 18) == 0;
}

/* Index of the type that captured the calls: the accelerator that most of them use; -1
 * for the cpu, where none uses one. */
static int home_of(const usc_calls *c)
{
    int64_t counts[MAX_DEVICE_TYPES] = {0};
    int home = -1;
    for (int64_t i = 0; i < c->n; i++)
        for (int t = 0; t < c->n_types; t++)
            counts[t] += (c->fact[i].devices >> t & 1) != 0;
    for (int t = 0; t < c->n_types; t++) {
        if (strcmp(c->type[t], "cpu") == 0 || strcmp(c->type[t], "meta") == 0) continue;
        if (counts[t] > 0 && (home < 0 || counts[t] > counts[home])) home = t;
    }
    return home;
}

/* Whether calls of its kind stand for what is below them at that level. */
static bool is_of_level(const usc_call *call, usc_level level)
{
    if (level == USC_LEVEL_CALL) return true;
    return (level == USC_LEVEL_API) == usc_call_is_api(call);
}

/* The calls of a list as a forest of those that can be replayed. */
typedef struct forest {
    const usc_calls *calls;
    bool *usable, *whole;  /* by index */
    int64_t *below, *next; /* first call below, the next one beside it; -1 for none */
} forest;

static bool is_usable(const usc_calls *c, int64_t i, int home)
{
    const usc_call *call = &c->call[i];
    const char *status = call->status != NULL ? call->status : "";
    if (*status != '\0' && strcmp(status, "ok") != 0) return false;
    if (is_silent(call->op)) return false;
    return home < 0 || (c->fact[i].devices >> home & 1);
}

/* What waits for other ranks cannot be replayed, nor what is around it. */
static void spoil_above(forest *f, int64_t i)
{
    while ((i = usc_calls_index(f->calls, f->calls->call[i].parent)) >= 0)
        f->whole[i] = false;
}

static bool plant(forest *f, int home, usc_level level, usc_arena *arena)
{
    const usc_calls *c = f->calls;
    const size_t n = (size_t)c->n + 1;
    f->usable = usc_arena_take(arena, n * sizeof *f->usable);
    f->whole = usc_arena_take(arena, n * sizeof *f->whole);
    f->below = usc_arena_take(arena, n * sizeof *f->below);
    f->next = usc_arena_take(arena, n * sizeof *f->next);
    if (arena->failed) return false;
    for (int64_t i = 0; i < c->n; i++) {
        f->usable[i] = is_usable(c, i, home);
        f->whole[i] = f->usable[i] && c->call[i].composite && c->fact[i].portable &&
                      is_of_level(&c->call[i], level);
        f->below[i] = f->next[i] = -1;
    }
    for (int64_t i = c->n; i-- > 0;) {
        const int64_t parent = usc_calls_index(c, c->call[i].parent);
        if (is_collective(c->call[i].op)) spoil_above(f, i);
        if (!f->usable[i] || parent < 0) continue;
        f->next[i] = f->below[parent];
        f->below[parent] = i;
    }
    return true;
}

/* Whether a call lies below one that is replayed as a whole. */
static bool is_covered(const forest *f, int64_t i)
{
    for (;;) {
        i = usc_calls_index(f->calls, f->calls->call[i].parent);
        if (i < 0 || !f->usable[i]) return false;
        if (f->whole[i]) return true;
    }
}

static void add_leaves(const forest *f, int64_t i, usc_numbers *leaves, usc_arena *arena)
{
    for (int64_t b = f->below[i]; b >= 0; b = f->next[b])
        if (f->calls->call[b].composite)
            add_leaves(f, b, leaves, arena);
        else
            (void)usc_numbers_add(leaves, f->calls->call[b].sequence, arena);
}

/* Whether a Python function is above a call. */
static bool is_below_api(const forest *f, int64_t i)
{
    while ((i = usc_calls_index(f->calls, f->calls->call[i].parent)) >= 0)
        if (usc_call_is_api(&f->calls->call[i])) return true;
    return false;
}

/* Whether a call is replayed, `leaves`: with all others that have none below them. */
static bool is_picked(const forest *f, int64_t i, usc_level level, bool leaves)
{
    const bool composite = f->calls->call[i].composite;
    if (!f->usable[i]) return false;
    if (leaves)
        return !composite ||
               (f->below[i] < 0 && f->whole[i] && usc_call_is_api(&f->calls->call[i]));
    if (is_covered(f, i)) return false;
    if (level != USC_LEVEL_API) return !composite || f->whole[i];
    return composite ? f->whole[i] : is_below_api(f, i);
}

static void pick_all(usc_picks *p, int home, bool at_home)
{
    const usc_level level = p->options->level;
    const bool alone = at_home && level != USC_LEVEL_API;
    forest f = {.calls = p->calls};
    if (!plant(&f, home, level, p->arena)) return;
    for (int64_t i = 0; i < p->calls->n; i++) {
        const usc_call *call = &p->calls->call[i];
        if (!is_picked(&f, i, level, alone)) continue;
        usc_pick *pick = usc_picks_add(p, call->sequence);
        if (pick == NULL) return;
        if (!alone && f.whole[i]) {
            usc_numbers leaves = {0};
            add_leaves(&f, i, &leaves, p->arena);
            pick->child = leaves.at;
            pick->n_children = leaves.n;
        }
    }
}

/* ---- narrowing ---- */

static int compare_picks(const void *a, const void *b)
{
    const int64_t x = ((const usc_pick *)a)->call, y = ((const usc_pick *)b)->call;
    return x < y ? -1 : x > y;
}

/* Keeps the picks that are wanted, or those below one that are. */
static void narrow(usc_picks *p)
{
    usc_picks out = *p;
    out.pick = NULL;
    out.n = 0;
    out.room = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const usc_pick *pick = &p->pick[i];
        if (usc_picks_wants(p, pick->call)) {
            usc_pick *copy = usc_picks_add(&out, pick->call);
            if (copy != NULL) *copy = *pick;
            continue;
        }
        for (int64_t k = 0; k < pick->n_children; k++)
            if (usc_picks_wants(p, pick->child[k]))
                (void)usc_picks_add(&out, pick->child[k]);
    }
    if (out.n > 0) qsort(out.pick, (size_t)out.n, sizeof *out.pick, compare_picks);
    *p = out;
}

static usc_hash128 signature_of(const usc_picks *p, int64_t i)
{
    return usc_calls_key(p->calls, p->pick[i].call, true);
}

/* ---- backward calls ---- */

/* A backward call by what it belongs to: its forward call, or where Python made the
 * node, operator and module. */
typedef struct linked {
    usc_hash128 key;
    int64_t call;
} linked;

typedef struct links {
    int64_t n;
    linked *at; /* by key, then by number */
    size_t room;
} links;

static int compare_linked(const void *a, const void *b)
{
    const linked *x = a, *y = b;
    if (x->key.high != y->key.high) return x->key.high < y->key.high ? -1 : 1;
    if (x->key.low != y->key.low) return x->key.low < y->key.low ? -1 : 1;
    return x->call < y->call ? -1 : x->call > y->call;
}

static usc_hash128 key_of_forward(int64_t sequence)
{
    return (usc_hash128){.low = (uint64_t)sequence};
}

static usc_hash128 key_of_name(const char *op, const char *ending, int64_t module)
{
    char name[512];
    const size_t n = strlen(op), m = strlen(ending);
    if (n + m + sizeof module >= sizeof name) return usc_key_of(op);
    memcpy(name, op, n);
    memcpy(name + n, ending, m);
    memcpy(name + n + m, &module, sizeof module);
    return usc_hash_bytes(name, n + m + sizeof module);
}

static void add_link(links *l, usc_hash128 key, int64_t call, usc_arena *arena)
{
    if ((size_t)l->n == l->room) {
        void *more = usc_arena_grow(arena, l->at, l->room, &l->room, sizeof *l->at);
        if (more == NULL) return;
        l->at = more;
    }
    l->at[l->n++] = (linked){key, call};
}

static links all_links(const usc_calls *c, usc_arena *arena)
{
    links l = {0};
    for (int64_t i = 0; i < c->n; i++) {
        const usc_call *call = &c->call[i];
        if (c->fact[i].forward != 0)
            add_link(&l, key_of_forward(c->fact[i].forward), call->sequence, arena);
        else if (call->phase != NULL && strcmp(call->phase, "backward") == 0)
            add_link(&l, key_of_name(call->op, "", call->module), call->sequence, arena);
    }
    if (l.n > 0) qsort(l.at, (size_t)l.n, sizeof *l.at, compare_linked);
    return l;
}

/* The calls of one key become those of `of` in a pick. */
static void link_key(const links *l, usc_hash128 key, int64_t of, usc_numbers *calls,
                     usc_backward *out, usc_arena *arena)
{
    int64_t low = 0, high = l->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (compare_linked(&l->at[middle], &(linked){key, 0}) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < l->n && l->at[low].key.low == key.low && l->at[low].key.high == key.high;
         low++)
        (void)usc_numbers_add(calls, l->at[low].call, arena);
    *out = (usc_backward){.of = of, .n = calls->n, .call = calls->at};
}

static void link_pick(const usc_picks *p, const links *l, usc_pick *pick)
{
    usc_backward *found =
        usc_arena_take(p->arena, (size_t)(pick->n_children + 1) * sizeof *found);
    if (found == NULL) return;
    pick->backward = found;
    for (int64_t i = -1; i < pick->n_children; i++) {
        const int64_t of = i < 0 ? pick->call : pick->child[i];
        usc_numbers calls = {0};
        link_key(l, key_of_forward(of), of, &calls, &found[pick->n_backward], p->arena);
        if (calls.n > 0) pick->n_backward++;
    }
    if (pick->n_backward > 0) return;
    const usc_call *call = usc_calls_find(p->calls, pick->call);
    usc_numbers calls = {0};
    link_key(l, key_of_name(call->op, "_backward", call->module), pick->call, &calls,
             &found[0], p->arena);
    pick->n_backward = calls.n > 0;
}

static void link_all(usc_picks *p)
{
    const links l = all_links(p->calls, p->arena);
    for (int64_t i = 0; i < p->n && l.n > 0; i++)
        link_pick(p, &l, &p->pick[i]);
}

/* ---- the whole ---- */

static void choose(usc_picks *p)
{
    if (p->options->level == USC_LEVEL_MODULE) {
        usc_picks_forwards(p);
        return;
    }
    if (p->options->wanted != NULL) narrow(p);
    if (p->options->distinct) usc_picks_first(p, signature_of);
    link_all(p);
}

usc_status usc_select(const usc_calls *calls, const usc_select_options *options,
                      usc_selection *out, usc_error *err)
{
    *out = (usc_selection){0};
    usc_arena *arena = usc_libc_alloc.resize(NULL, NULL, 0, sizeof *arena);
    if (arena == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "selection: no memory");
    *arena = (usc_arena){.alloc = usc_libc_alloc};
    out->memory = arena;
    const int home = home_of(calls);
    out->home = home >= 0 ? calls->type[home] : "cpu";
    usc_picks p = {.calls = calls, .options = options, .arena = arena};
    pick_all(&p, home,
             options->target == NULL || strcmp(options->target, out->home) == 0);
    choose(&p);
    if (arena->failed) {
        usc_selection_free(out);
        return usc_error_set(err, USC_E_NOMEM, -1, "selection: no memory");
    }
    out->n = p.n;
    out->pick = p.pick;
    return USC_OK;
}

void usc_selection_free(usc_selection *s)
{
    usc_arena *arena = s->memory;
    if (arena != NULL) {
        usc_arena_free(arena);
        (void)usc_libc_alloc.resize(NULL, arena, sizeof *arena, 0);
    }
    *s = (usc_selection){0};
}
