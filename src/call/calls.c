// SPDX-License-Identifier: Apache-2.0
// A list of calls in memory. Equal texts are kept once.
#include "call/calls.h"

#include <string.h>

#include "base/arena.h"
#include "base/line.h"
#include "json/json.h"

usc_status usc_calls_create(usc_calls **out, usc_error *err)
{
    *out = usc_libc_alloc.resize(NULL, NULL, 0, sizeof **out);
    if (*out == NULL) return usc_no_memory("list of calls", err);
    **out = (usc_calls){.arena = {.alloc = usc_libc_alloc}};
    return USC_OK;
}

void usc_calls_free(usc_calls *calls)
{
    if (calls == NULL) return;
    usc_arena_free(&calls->arena);
    usc_keys_free(&calls->texts);
    usc_keys_free(&calls->views);
    (void)usc_libc_alloc.resize(NULL, calls, sizeof *calls, 0);
}

const usc_call *usc_calls_list(const usc_calls *calls, int64_t *n)
{
    *n = calls->n;
    return calls->call;
}

int64_t usc_calls_index(const usc_calls *calls, int64_t sequence)
{
    int64_t low = 0, high = calls->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (calls->call[middle].sequence < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low < calls->n && calls->call[low].sequence == sequence ? low : -1;
}

const usc_call *usc_calls_find(const usc_calls *calls, int64_t sequence)
{
    const int64_t i = usc_calls_index(calls, sequence);
    return i >= 0 ? &calls->call[i] : NULL;
}

const char *usc_role_text(usc_role role)
{
    switch (role) {
    case USC_ROLE_IN:
        return "in";
    case USC_ROLE_OUT:
        return "out";
    case USC_ROLE_MUTATED:
        return "mutated";
    }
    return "unknown";
}

/* The only copy of some bytes; NULL: no memory. */
static const void *only(usc_calls *c, usc_keys *copies, const void *bytes, size_t size)
{
    const usc_hash128 key = usc_hash_bytes(bytes, size);
    const int64_t *there = usc_keys_find(copies, key);
    if (there != NULL) return (const void *)(intptr_t)*there;
    const void *copy = usc_arena_copy(&c->arena, bytes, size);
    if (copy != NULL) (void)usc_keys_put(copies, key, (int64_t)(intptr_t)copy);
    return copy;
}

/* NULL stays NULL. */
static const char *kept(usc_calls *c, const char *text)
{
    return text != NULL ? only(c, &c->texts, text, strlen(text) + 1) : NULL;
}

static const int64_t *kept_dims(usc_calls *c, const int64_t *dims, int ndim)
{
    return ndim > 0 ? only(c, &c->views, dims, (size_t)ndim * sizeof *dims) : NULL;
}

static void keep_texts(usc_calls *c, usc_call *call)
{
    const char **const texts[] = {&call->phase,  &call->op,          &call->schema,
                                  &call->args,   &call->module_path, &call->module_class,
                                  &call->frames, &call->state,       &call->status};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = kept(c, *texts[i]);
}

static void keep_args(usc_calls *c, usc_call *call)
{
    const size_t n = (size_t)call->n_args;
    usc_call_arg *args = usc_arena_take(&c->arena, (n + 1) * sizeof *args);
    if (args == NULL) return;
    for (size_t i = 0; i < n; i++) {
        args[i] = call->arg[i];
        args[i].path = kept(c, args[i].path);
        args[i].device = kept(c, args[i].device);
        args[i].dtype_name = kept(c, args[i].dtype_name);
        args[i].stats = kept(c, args[i].stats);
        args[i].form = kept(c, args[i].form);
        args[i].sizes = kept_dims(c, args[i].sizes, args[i].ndim);
        args[i].strides = kept_dims(c, args[i].strides, args[i].ndim);
    }
    call->arg = args;
}

/* ---- facts ---- */

/* The bit of "cuda" for "cuda:1"; 0 where there are too many types. */
static uint64_t bit_of(usc_calls *c, const char *device)
{
    const size_t n = strcspn(device, ":");
    int i = 0;
    while (i < c->n_types &&
           !(strncmp(c->type[i], device, n) == 0 && c->type[i][n] == '\0'))
        i++;
    if (i == c->n_types) {
        char name[64];
        if (i == MAX_DEVICE_TYPES || n == 0 || n >= sizeof name) return 0;
        memcpy(name, device, n);
        name[n] = '\0';
        c->type[i] = kept(c, name);
        if (c->type[i] == NULL) return 0;
        c->n_types++;
    }
    return (uint64_t)1 << i;
}

/* Devices that a value names; what was not kept in it makes a call not portable. */
static void look_at(usc_calls *c, const usc_value *value, usc_call_facts *f)
{
    if (value->kind == USC_VALUE_DEVICE)
        f->devices |= bit_of(c, value->text);
    else if (value->kind == USC_VALUE_OTHER)
        f->portable = false;
    for (int64_t i = 0; usc_value_has_items(value) && i < value->n; i++)
        look_at(c, &value->item[i], f);
    for (int64_t i = 0; value->kind == USC_VALUE_MAP && i < value->n; i++)
        look_at(c, &value->member[i].value, f);
}

static usc_status facts_of_arguments(usc_calls *c, const usc_call *call,
                                     usc_call_facts *f, usc_error *err)
{
    usc_arguments given;
    const usc_status st = usc_arguments_read(call->args, &given, err);
    for (int64_t i = 0; i < given.n; i++)
        look_at(c, &given.argument[i].value, f);
    usc_arguments_free(&given);
    return st;
}

/* Under autocast casts happened inside an operator: it cannot be replayed as a whole.
 * Python functions are replayed under autocast. */
static usc_status facts_of_state(const usc_call *call, usc_call_facts *f, usc_error *err)
{
    usc_json *state = NULL;
    if (call->state == NULL || *call->state == '\0') return USC_OK;
    const usc_status st =
        usc_json_parse(call->state, strlen(call->state), "state of a call",
                       "not as a trace has it", &state, err);
    const usc_json *cast = usc_json_get(state, "autocast");
    const bool empty = usc_json_is_object(cast) && usc_json_size(cast) == 0;
    if (cast != NULL && !empty && !usc_call_is_api(call)) f->portable = false;
    const usc_json *forward = usc_json_get(state, "forward");
    if (forward != NULL) (void)usc_json_as_integer(forward, &f->forward);
    usc_json_free(state);
    return st;
}

static usc_hash128 hash_of_views(const usc_call *call, bool *failed)
{
    usc_line text = {0};
    const char *state = call->state != NULL ? call->state : "";
    usc_line_add(&text, "%s\n%s", call->op, call->args != NULL ? call->args : "");
    if (strstr(state, "\"autocast\"") != NULL) usc_line_add(&text, "\n%s", state);
    for (int i = 0; i < call->n_args; i++) {
        const usc_call_arg *t = &call->arg[i];
        if (t->role != USC_ROLE_IN) continue;
        usc_line_add(&text, "\n%s %s", t->path, t->dtype_name);
        for (int axis = 0; axis < t->ndim; axis++)
            usc_line_add(&text, " %lld:%lld", (long long)t->sizes[axis],
                         (long long)t->strides[axis]);
    }
    const usc_hash128 hash = usc_hash_bytes(text.text, text.n);
    *failed |= text.failed;
    usc_line_free(&text);
    return hash;
}

usc_hash128 usc_calls_key(const usc_calls *calls, int64_t sequence, bool classes)
{
    const int64_t i = usc_calls_index(calls, sequence);
    if (i < 0) return (usc_hash128){0};
    if (!classes) return calls->fact[i].views;
    const usc_hash128 parts[2] = {calls->fact[i].views,
                                  usc_key_of(calls->call[i].module_class)};
    return usc_hash_bytes(parts, sizeof parts);
}

/* Whether a tensor has a content that a trace can hold: what torch.func wraps has none,
 * the calls below see what is inside. */
static bool is_kept(const usc_call_arg *t)
{
    const char *form = t->form != NULL ? t->form : "";
    const size_t n = strcspn(form, " ");
    return n == 0 || strncmp(form, "sparse", 6) == 0 ||
           (n == 4 && strncmp(form, "conj", 4) == 0) ||
           (n == 3 && strncmp(form, "neg", 3) == 0);
}

static usc_status find_facts(usc_calls *c, const usc_call *call, usc_call_facts *f,
                             usc_error *err)
{
    *f = (usc_call_facts){.portable = true};
    for (int i = 0; i < call->n_args; i++) {
        const usc_call_arg *t = &call->arg[i];
        if (t->device != NULL) f->devices |= bit_of(c, t->device);
        if (t->role == USC_ROLE_IN && !is_kept(t)) f->portable = false;
    }
    usc_status st = facts_of_arguments(c, call, f, err);
    if (st == USC_OK) st = facts_of_state(call, f, err);
    f->views = hash_of_views(call, &c->arena.failed);
    return st;
}

usc_status usc_calls_add(usc_calls *c, const usc_call *call, usc_error *err)
{
    if (c->n > 0 && call->sequence <= c->call[c->n - 1].sequence)
        return usc_error_set(err, USC_E_ARG, call->sequence, "call %lld comes too late",
                             (long long)call->sequence);
    const size_t n = (size_t)c->n;
    if (n == c->call_room) {
        void *more =
            usc_arena_grow(&c->arena, c->call, n, &c->call_room, sizeof *c->call);
        if (more == NULL) return usc_no_memory("list of calls", err);
        c->call = more;
    }
    if (n == c->fact_room) {
        void *more =
            usc_arena_grow(&c->arena, c->fact, n, &c->fact_room, sizeof *c->fact);
        if (more == NULL) return usc_no_memory("list of calls", err);
        c->fact = more;
    }
    usc_call *own = &c->call[n];
    *own = *call;
    keep_texts(c, own);
    keep_args(c, own);
    if (c->arena.failed || c->texts.failed || c->views.failed)
        return usc_no_memory("list of calls", err);
    const usc_status st = find_facts(c, own, &c->fact[n], err);
    if (st == USC_OK && c->arena.failed) return usc_no_memory("list of calls", err);
    if (st == USC_OK) c->n++;
    return st;
}

bool usc_call_is_api(const usc_call *call)
{
    return call->op != NULL && strstr(call->op, "::") == NULL;
}
