// SPDX-License-Identifier: Apache-2.0
// What a fault does to elements. Bits are those of an element as an unsigned number, 0
// the lowest; what is drawn follows from seed, line and the call's number alone.
#include "watch/inject.h"

#include <ulpscope/x/pattern.h>

#include "base/arena.h"
#include "base/mix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- chance: splitmix64, each draw from a state of its own ---- */

static uint64_t mix(uint64_t x)
{
    return usc_mixed(x + 0x9e3779b97f4a7c15u);
}

typedef struct draws {
    uint64_t state;
} draws;

static uint64_t draw(draws *d)
{
    return d->state = mix(d->state);
}

static int64_t draw_below(draws *d, int64_t n)
{
    return (int64_t)(draw(d) % (uint64_t)n);
}

/* ---- elements ---- */

/* What a rule does to one buffer. */
typedef struct target {
    const usc_inject_rule *rule;
    usc_dtype dtype;
    size_t size; /* bytes of an element */
    unsigned char *data;
    int64_t n, first, every, count;
    uint64_t mask; /* of flips */
    int64_t bit, step;
    usc_injected *done;
} target;

static uint64_t load(const target *t, int64_t i)
{
    const unsigned char *at = t->data + (size_t)i * t->size;
    uint64_t bits = 0;
    for (size_t k = 0; k < t->size; k++) /* little-endian in memory as in the table */
        bits |= (uint64_t)at[k] << 8 * k;
    return bits;
}

static void store(target *t, int64_t i, uint64_t bits)
{
    const uint64_t before = load(t, i);
    if (before == bits) return;
    unsigned char *at = t->data + (size_t)i * t->size;
    for (size_t k = 0; k < t->size; k++)
        at[k] = (unsigned char)(bits >> 8 * k);
    if (t->done->n_changed++ > 0) return;
    t->done->element = i;
    t->done->before = before;
    t->done->after = bits;
}

static int64_t place_of(const target *t, int64_t k)
{
    return t->first + k * t->every;
}

static double factor_now(const target *t)
{
    const double steps = (double)(t->step - t->rule->step);
    return 1 + (t->rule->factor - 1) * pow(t->rule->growth, steps);
}

/* Through double, rounded once, or twice for bfloat16 of a wider dtype. */
static uint64_t computed(const target *t, int64_t i)
{
    double x, kept = 0;
    uint16_t narrow;
    usc_dtype_widen(t->dtype, t->data + (size_t)i * t->size, &x, 1);
    if (isnan(x)) return load(t, i); /* a NaN keeps its payload */
    if (t->rule->kind == USC_INJECT_SCALE) {
        x *= factor_now(t);
    } else {
        usc_dtype_narrow(USC_BF16, &x, &narrow, 1);
        usc_dtype_widen(USC_BF16, &narrow, &x, 1);
    }
    usc_dtype_narrow(t->dtype, &x, &kept, 1);
    const target one = {.size = t->size, .data = (unsigned char *)&kept};
    return load(&one, 0);
}

static uint64_t changed(const target *t, int64_t i)
{
    const uint64_t bits = load(t, i), one = (uint64_t)1 << t->bit;
    switch (t->rule->kind) {
    case USC_INJECT_FLIP:
    case USC_INJECT_MASK:
        return bits ^ t->mask;
    case USC_INJECT_CARRY:
        return t->rule->value != 0 ? bits + one : bits - one;
    case USC_INJECT_STUCK:
        return t->rule->value != 0 ? bits | one : bits & ~one;
    case USC_INJECT_SCALE:
    case USC_INJECT_NARROW:
        return computed(t, i);
    case USC_INJECT_ZERO:
    case USC_INJECT_STALE:
    case USC_INJECT_SHIFT:
    case USC_INJECT_SWAP:
    case USC_N_INJECT_KINDS:
        break;
    }
    return 0;
}

static uint64_t element_mask(const target *t)
{
    return t->size == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * t->size) - 1;
}

/* ---- what moves elements needs them as they were ---- */

static int64_t source_of(const target *t, int64_t k)
{
    if (t->rule->kind == USC_INJECT_SWAP) return (k + t->count / 2) % t->count;
    const int64_t by = t->rule->shift % t->count;
    return (k + by + t->count) % t->count;
}

static usc_status move_elements(target *t, usc_error *err)
{
    const int64_t count =
        t->rule->kind == USC_INJECT_SWAP ? t->count - t->count % 2 : t->count;
    uint64_t *was = malloc((size_t)(count > 0 ? count : 1) * sizeof *was);
    if (was == NULL) return usc_no_memory("the elements that are moved", err);
    t->count = count;
    for (int64_t k = 0; k < count; k++)
        was[k] = load(t, place_of(t, k));
    for (int64_t k = 0; k < count; k++)
        store(t, place_of(t, k), was[source_of(t, k)]);
    free(was);
    return USC_OK;
}

/* The first call has nothing before it and is left as it is. */
static usc_status put_stale(usc_inject_rule *r, target *t, bool wanted, usc_error *err)
{
    const size_t size = (size_t)t->n * t->size;
    unsigned char *now = malloc(size > 0 ? size : 1);
    if (now == NULL) return usc_no_memory("what a call has had", err);
    memcpy(now, t->data, size);
    if (wanted && r->kept != NULL && r->n_kept == t->n && r->size == (int64_t)t->size) {
        const target old = {.size = t->size, .data = r->kept};
        for (int64_t k = 0; k < t->count; k++)
            store(t, place_of(t, k), load(&old, place_of(t, k)));
    }
    free(r->kept);
    r->kept = now;
    r->n_kept = t->n;
    r->size = (int64_t)t->size;
    return USC_OK;
}

/* ---- rules ---- */

static bool matches(const usc_inject_rule *r, const usc_inject_place *at)
{
    if (r->rank >= 0 && r->rank != at->rank) return false;
    if (r->site != NULL && !usc_pattern_match(r->site, at->site)) return false;
    return r->name == NULL || usc_pattern_match(r->name, at->name);
}

static bool is_time(const usc_inject_rule *r, int64_t step)
{
    return step >= r->step && (r->n_steps < 0 || step - r->step < r->n_steps);
}

/* A stale fault has to see the call before its first. */
static bool is_due(const usc_inject_rule *r, const usc_inject_place *at)
{
    return matches(r, at) && (is_time(r, at->step) || r->kind == USC_INJECT_STALE);
}

bool usc_injector_due(const usc_injector *injector, const usc_inject_place *place)
{
    for (int64_t i = 0; i < injector->n_rules; i++)
        if (is_due(&injector->rule[i], place)) return true;
    return false;
}

static void choose_elements(const usc_inject_rule *r, int64_t columns, draws *d,
                            target *t)
{
    t->every = r->every > 0 ? r->every : columns > 0 ? columns : 1;
    t->first = r->drawn ? draw_below(d, t->n) : r->element % t->n;
    if (t->first < 0) t->first += t->n;
    const int64_t room = (t->n - 1 - t->first) / t->every + 1;
    t->count = r->count < 0 || r->count > room ? room : r->count;
}

static void choose_bits(const usc_inject_rule *r, draws *d, target *t)
{
    const int64_t width = 8 * (int64_t)t->size;
    t->bit = r->bit >= 0 ? r->bit : draw_below(d, width);
    t->mask = r->kind == USC_INJECT_MASK ? r->mask : (uint64_t)1 << t->bit;
    const int64_t most = r->n_bits < width ? r->n_bits : width;
    const bool drawn = t->mask == 0;
    for (int64_t k = 0; drawn && k < most;) {
        const uint64_t one = (uint64_t)1 << draw_below(d, width);
        k += (t->mask & one) == 0;
        t->mask |= one;
    }
}

static usc_status check_dtype(const usc_inject_rule *r, usc_dtype dtype, usc_error *err)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    const bool computes = r->kind == USC_INJECT_SCALE || r->kind == USC_INJECT_NARROW;
    if (computes && info->kind != USC_KIND_FLOAT)
        return usc_error_set(err, USC_E_DTYPE, -1,
                             "schedule, line %lld: %s needs floats, the tensor is %s",
                             (long long)r->line, usc_inject_kind_name(r->kind),
                             info->name);
    if (r->bit >= 8 * (int64_t)info->size)
        return usc_error_set(err, USC_E_DTYPE, -1,
                             "schedule, line %lld: bit %lld of %s: it has bits 0 to %zu",
                             (long long)r->line, (long long)r->bit, info->name,
                             8 * info->size - 1);
    return USC_OK;
}

static usc_status apply_rule(usc_inject_rule *r, draws *d, bool wanted, int64_t columns,
                             target *t, usc_error *err)
{
    choose_elements(r, columns, d, t);
    choose_bits(r, d, t);
    if (r->kind == USC_INJECT_STALE) return put_stale(r, t, wanted, err);
    if (!wanted) return USC_OK;
    if (r->kind == USC_INJECT_SHIFT || r->kind == USC_INJECT_SWAP)
        return move_elements(t, err);
    for (int64_t k = 0; k < t->count; k++) {
        const int64_t i = place_of(t, k);
        store(t, i, changed(t, i) & element_mask(t));
    }
    return USC_OK;
}

static void note(usc_injector *injector, const usc_injected *done)
{
    if (done->n_changed > 0 && injector->n_done < USC_INJECT_MOST_DONE)
        injector->done[injector->n_done++] = *done;
}

usc_status usc_injector_apply(usc_injector *injector, const usc_inject_place *place,
                              usc_dtype dtype, void *data, int64_t n, int64_t columns,
                              usc_error *err)
{
    if (dtype == USC_DTYPE_NONE)
        return usc_error_set(err, USC_E_DTYPE, -1,
                             "%s: a dtype that is not in the table; no fault is put in",
                             place->name);
    if (n <= 0) return USC_OK;
    for (int64_t i = 0; i < injector->n_rules; i++) {
        usc_inject_rule *r = &injector->rule[i];
        if (!is_due(r, place)) continue;
        usc_status st = check_dtype(r, dtype, err);
        if (st != USC_OK) return st;
        draws d = {mix(injector->seed ^ mix((uint64_t)r->line)) + (uint64_t)r->n_calls++};
        const double chance = (double)(draw(&d) >> 11) * 0x1p-53;
        usc_injected done = {.step = place->step, .line = r->line};
        target t = {.rule = r,
                    .dtype = dtype,
                    .size = usc_dtype_info_of(dtype)->size,
                    .data = data,
                    .n = n,
                    .step = place->step,
                    .done = &done};
        const bool wanted = is_time(r, place->step) && chance < r->p;
        st = apply_rule(r, &d, wanted, columns, &t, err);
        if (st != USC_OK) return st;
        note(injector, &done);
    }
    return USC_OK;
}

bool usc_injector_done(const usc_injector *injector, int64_t i, usc_injected *out)
{
    *out = (usc_injected){0};
    if (i < 0 || i >= injector->n_done) return false;
    *out = injector->done[i];
    return true;
}

/* ---- the whole schedule ---- */

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

static int64_t count_lines(const char *text, size_t size)
{
    int64_t n = 1;
    for (size_t i = 0; i < size; i++)
        n += text[i] == '\n';
    return n;
}

static usc_status read_lines(usc_injector *injector, const char *text, size_t size,
                             usc_error *err)
{
    int64_t line = 1;
    for (size_t at = 0; at < size; line++) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t n = end != NULL ? (size_t)(end - text) - at : size - at;
        if (!is_blank(text + at, n)) {
            usc_inject_rule *r = &injector->rule[injector->n_rules++];
            const usc_status st = usc_inject_read(text + at, n, line, r, err);
            if (st != USC_OK) return st;
        }
        at += n + 1;
    }
    return USC_OK;
}

usc_status usc_injector_make(const char *schedule, size_t size, uint64_t seed,
                             usc_injector **out, usc_error *err)
{
    *out = NULL;
    usc_injector *injector = calloc(1, sizeof *injector);
    if (injector == NULL) return usc_no_memory("a schedule of faults", err);
    injector->seed = seed;
    injector->rule = calloc((size_t)count_lines(schedule, size), sizeof *injector->rule);
    injector->done = calloc(USC_INJECT_MOST_DONE, sizeof *injector->done);
    usc_status st = injector->rule == NULL || injector->done == NULL
                        ? usc_no_memory("a schedule of faults", err)
                        : read_lines(injector, schedule, size, err);
    if (st == USC_OK) {
        *out = injector;
        injector = NULL;
    }
    usc_injector_free(injector);
    return st;
}

void usc_injector_free(usc_injector *injector)
{
    if (injector == NULL) return;
    for (int64_t i = 0; i < injector->n_rules; i++)
        usc_inject_rule_free(&injector->rule[i]);
    free(injector->rule);
    free(injector->done);
    free(injector);
}
