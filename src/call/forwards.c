// SPDX-License-Identifier: Apache-2.0
// Which forward passes of modules a list of calls holds. The forward of a module is a run
// of calls, one after the other, that it or a module inside it made. One that consists of
// the same calls as a module inside it is that module.
#include "call/picks.h"

#include <string.h>

enum { MOST_DEPTH = 128 };

/* One forward while it is found. */
typedef struct forward {
    usc_forward told;
    int64_t sequence;  /* what names it: a call of its own */
    int64_t last;      /* number of the last call below it */
    usc_numbers picks; /* indices of picks */
} forward;

/* A module that is being run. */
typedef struct opened {
    size_t n_path; /* of the module's path, which begins the path at hand */
    forward *forward;
} opened;

typedef struct finder {
    usc_picks *picks;
    int64_t n;
    forward **found; /* by first call, inner ones last */
    size_t room;
    int n_open;
    opened open[MOST_DEPTH]; /* the outermost first */
    int64_t step, thread;
} finder;

static forward *begin(finder *f, const char *path, size_t n_path)
{
    usc_arena *arena = f->picks->arena;
    if ((size_t)f->n == f->room) {
        void *more = usc_arena_grow(arena, f->found, f->room, &f->room, sizeof *f->found);
        if (more == NULL) return NULL;
        f->found = more;
    }
    forward *made = usc_arena_take(arena, sizeof *made);
    char *own = usc_arena_take(arena, n_path + 1);
    if (made == NULL || own == NULL) return NULL;
    memcpy(own, path, n_path);
    own[n_path] = '\0';
    *made = (forward){.told.path = own};
    f->found[f->n++] = made;
    return made;
}

/* Bytes of the next longer path of an enclosing module: "" is the model, then "a" and
 * "a.b" of "a.b"; -1 behind the last. */
static long longer(const char *path, long n)
{
    if (n < 0) return 0;
    const size_t at = (size_t)n;
    if (path[at] == '\0') return -1;
    const size_t from = n > 0 ? at + 1 : 0;
    return (long)(from + strcspn(path + from, "."));
}

/* Closes what a call at another place ends. */
static void close_ended(finder *f, const usc_call *call, const char *path)
{
    if (f->n_open > 0 &&
        (path == NULL || call->step != f->step || call->thread != f->thread))
        f->n_open = 0;
    int n = 0;
    for (long end = -1; n < f->n_open && (end = longer(path, end)) >= 0; n++)
        if ((size_t)end != f->open[n].n_path ||
            strncmp(f->open[n].forward->told.path, path, (size_t)end) != 0)
            break;
    f->n_open = n;
}

static void add_call(finder *f, int64_t pick)
{
    const usc_pick *p = &f->picks->pick[pick];
    const usc_call *call = usc_calls_find(f->picks->calls, p->call);
    const bool forwards = call->phase != NULL && strcmp(call->phase, "forward") == 0;
    const char *path = forwards ? call->module_path : NULL;
    close_ended(f, call, path);
    if (path == NULL) return;
    f->step = call->step;
    f->thread = call->thread;
    int depth = 0;
    for (long end = -1; (end = longer(path, end)) >= 0 && depth < MOST_DEPTH; depth++) {
        if (depth == f->n_open) {
            f->open[depth] = (opened){(size_t)end, begin(f, path, (size_t)end)};
            if (f->open[depth].forward == NULL) return;
            f->n_open++;
        }
        forward *to = f->open[depth].forward;
        (void)usc_numbers_add(&to->picks, pick, f->picks->arena);
        if (p->call > to->last) to->last = p->call;
        for (int64_t i = 0; i < p->n_children; i++)
            if (p->child[i] > to->last) to->last = p->child[i];
    }
}

static int64_t call_at(const finder *f, const forward *from, int64_t i)
{
    return f->picks->pick[from->picks.at[i]].call;
}

/* Leaves out the hull of one module inside it. */
static void keep_innermost(finder *f)
{
    usc_keys last = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < f->n; i++) {
        const forward *w = f->found[i];
        const usc_hash128 key = {(uint64_t)call_at(f, w, 0),
                                 (uint64_t)call_at(f, w, w->picks.n - 1)};
        (void)usc_keys_put(&last, key, i);
        int64_t *place = usc_keys_find(&last, key);
        if (place != NULL) *place = i;
    }
    for (int64_t i = 0; i < f->n; i++) {
        forward *w = f->found[i];
        const int64_t *place =
            usc_keys_find(&last, (usc_hash128){(uint64_t)call_at(f, w, 0),
                                               (uint64_t)call_at(f, w, w->picks.n - 1)});
        if (place != NULL && *place == i) f->found[n++] = w;
    }
    f->n = n;
    f->picks->arena->failed |= last.failed;
    usc_keys_free(&last);
}

/* ---- what is told of each ---- */

static usc_hash128 key_of_number(int64_t number)
{
    return (usc_hash128){.low = (uint64_t)number};
}

/* The last call in the forward pass that reads each version of a tensor. */
static usc_keys last_readers(const usc_calls *c)
{
    usc_keys readers = {0};
    for (int64_t i = 0; i < c->n; i++) {
        const usc_call *call = &c->call[i];
        if (call->phase == NULL || strcmp(call->phase, "forward") != 0 ||
            strcmp(call->op, USC_CALL_FORWARD) == 0)
            continue;
        for (int k = 0; k < call->n_args; k++) {
            if (call->arg[k].role != USC_ROLE_IN) continue;
            const usc_hash128 key = key_of_number(call->arg[k].version);
            (void)usc_keys_put(&readers, key, call->sequence);
            int64_t *last = usc_keys_find(&readers, key);
            if (last != NULL) *last = call->sequence;
        }
    }
    return readers;
}

static bool holds(const usc_numbers *list, int64_t value)
{
    for (int64_t i = 0; i < list->n; i++)
        if (list->at[i] == value) return true;
    return false;
}

static void sort_up(usc_numbers *list)
{
    for (int64_t i = 1; i < list->n; i++) {
        const int64_t value = list->at[i];
        int64_t at = i;
        for (; at > 0 && list->at[at - 1] > value; at--)
            list->at[at] = list->at[at - 1];
        list->at[at] = value;
    }
}

/* Versions that calls of a forward made and later ones of the forward pass read. */
static void find_kept(const finder *f, forward *w, const usc_keys *readers)
{
    usc_numbers kept = {0};
    for (int64_t i = 0; i < w->picks.n; i++) {
        const usc_call *call = usc_calls_find(f->picks->calls, call_at(f, w, i));
        for (int k = 0; k < call->n_args; k++) {
            const int64_t version = call->arg[k].version;
            const int64_t *last = usc_keys_find(readers, key_of_number(version));
            if (call->arg[k].role != USC_ROLE_IN && last != NULL && *last > w->last &&
                !holds(&kept, version))
                (void)usc_numbers_add(&kept, version, f->picks->arena);
        }
    }
    sort_up(&kept);
    w->told.kept = kept.at;
    w->told.n_kept = kept.n;
}

static const char *class_of(const usc_calls *c, const char *path)
{
    for (int64_t i = 0; i < c->n; i++)
        if (c->call[i].module_path != NULL && strcmp(c->call[i].module_path, path) == 0)
            return c->call[i].module_class != NULL ? c->call[i].module_class : "";
    return "";
}

static const char *name_of(const char *path, usc_arena *arena)
{
    static const char kind[] = "module:", model[] = "(model)";
    const char *rest = *path != '\0' ? path : model;
    const size_t n = strlen(rest);
    char *name = usc_arena_take(arena, sizeof kind + n);
    if (name == NULL) return kind;
    memcpy(name, kind, sizeof kind - 1);
    memcpy(name + sizeof kind - 1, rest, n + 1);
    return name;
}

static void describe(finder *f, forward *w, const usc_keys *readers)
{
    usc_arena *arena = f->picks->arena;
    int64_t *calls = usc_arena_take(arena, (size_t)w->picks.n * sizeof *calls);
    if (calls == NULL) return;
    for (int64_t i = 0; i < w->picks.n; i++)
        calls[i] = call_at(f, w, i);
    w->told.call = calls;
    w->told.n_calls = w->picks.n;
    w->told.op = name_of(w->told.path, arena);
    w->told.module_class = class_of(f->picks->calls, w->told.path);
    find_kept(f, w, readers);
}

/* Each is named by a call of its own; inner ones have fewer to choose from. Behind the
 * last call of the list there are numbers to spare. */
static void give_numbers(finder *f)
{
    const usc_calls *c = f->picks->calls;
    int64_t spare = c->n > 0 ? c->call[c->n - 1].sequence : 0;
    usc_keys taken = {0};
    for (int64_t i = f->n; i-- > 0;) {
        forward *w = f->found[i];
        for (int64_t k = 0; k < w->picks.n && w->sequence == 0; k++)
            if (usc_keys_find(&taken, key_of_number(call_at(f, w, k))) == NULL)
                w->sequence = call_at(f, w, k);
        if (w->sequence == 0) w->sequence = ++spare;
        (void)usc_keys_put(&taken, key_of_number(w->sequence), 0);
    }
    f->picks->arena->failed |= taken.failed;
    usc_keys_free(&taken);
}

/* ---- the whole ---- */

static bool is_wanted(const finder *f, const forward *w)
{
    if (f->picks->options->wanted == NULL) return true;
    for (int64_t i = 0; i < w->picks.n; i++) {
        const usc_pick *p = &f->picks->pick[w->picks.at[i]];
        if (usc_picks_wants(f->picks, p->call)) return true;
        for (int64_t k = 0; k < p->n_children; k++)
            if (usc_picks_wants(f->picks, p->child[k])) return true;
    }
    return false;
}

/* The same calls, one after the other. */
static usc_hash128 signature_of(const usc_picks *p, int64_t i)
{
    const usc_forward *w = p->pick[i].forward;
    usc_hash128 key = {0};
    for (int64_t k = 0; k < w->n_calls; k++) {
        const usc_hash128 pair[2] = {key, usc_calls_key(p->calls, w->call[k], true)};
        key = usc_hash_bytes(pair, sizeof pair);
    }
    return key;
}

void usc_picks_forwards(usc_picks *p)
{
    finder f = {.picks = p};
    for (int64_t i = 0; i < p->n && !p->arena->failed; i++)
        add_call(&f, i);
    if (p->arena->failed) return;
    keep_innermost(&f);
    give_numbers(&f);
    usc_keys readers = last_readers(p->calls);
    usc_picks out = {.calls = p->calls, .options = p->options, .arena = p->arena};
    for (int64_t i = 0; i < f.n; i++) {
        forward *w = f.found[i];
        if (!is_wanted(&f, w)) continue;
        describe(&f, w, &readers);
        usc_pick *pick = usc_picks_add(&out, w->sequence);
        if (pick != NULL) pick->forward = &w->told;
    }
    p->arena->failed |= readers.failed;
    usc_keys_free(&readers);
    *p = out;
    if (p->options->distinct) usc_picks_first(p, signature_of);
}
