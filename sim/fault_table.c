// SPDX-License-Identifier: Apache-2.0
// The faults that are planted now: their text form, when they fire, how often they did.
// What they do to a buffer: fault_apply.c.
#include <ulpscope/x/pattern.h>
#include <ulpscope_sim/sim.h>

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static usc_sim_fault *faults;
static size_t n_faults, capacity;
static int64_t next_id = 1;
static atomic_size_t n_planted; /* n_faults, readable without the lock */

/* ---- text
 * ------------------------------------------------------------------------------ */

typedef struct span {
    const char *at;
    size_t n;
} span;

static span trim(span s)
{
    while (s.n > 0 && isspace((unsigned char)s.at[0]))
        s.at++, s.n--;
    while (s.n > 0 && isspace((unsigned char)s.at[s.n - 1]))
        s.n--;
    return s;
}

/* Cuts what stands before the next single colon off `*rest`; `::` belongs to a name. */
static span next_part(span *rest)
{
    size_t i = 0;
    while (i < rest->n) {
        const bool colon = rest->at[i] == ':';
        const bool twice = colon && i + 1 < rest->n && rest->at[i + 1] == ':';
        if (colon && !twice) break;
        i += twice ? 2 : 1;
    }
    const span part = {rest->at, i};
    if (i < rest->n) i++;
    *rest = (span){rest->at + i, rest->n - i};
    return trim(part);
}

static bool span_is(span s, const char *text)
{
    return strlen(text) == s.n && memcmp(s.at, text, s.n) == 0;
}

static void copy_span(char *to, span from)
{
    memcpy(to, from.at, from.n);
    to[from.n] = '\0';
}

static usc_status parse_kind(usc_sim_fault *f, span name, usc_error *err)
{
    for (int k = 0; k < USC_SIM_N_FAULT_KINDS; k++) {
        const usc_sim_fault_info *info = usc_sim_fault_info_of((usc_sim_fault_kind)k);
        if (!span_is(name, info->name)) continue;
        f->kind = (usc_sim_fault_kind)k;
        memcpy(f->params, info->defaults, sizeof f->params);
        return USC_OK;
    }
    char known[300] = "";
    for (int k = 0, n = 0; k < USC_SIM_N_FAULT_KINDS && n < (int)sizeof known; k++)
        n += snprintf(known + n, sizeof known - (size_t)n, "%s%s", k > 0 ? ", " : "",
                      usc_sim_fault_info_of((usc_sim_fault_kind)k)->name);
    return usc_error_set(err, USC_E_ARG, -1,
                         "fault '%.100s': there is no kind '%.*s'; known: %s", f->text,
                         (int)(name.n < 40 ? name.n : 40), name.at, known);
}

static bool parse_number(span text, double *out)
{
    char copy[64];
    if (text.n == 0 || text.n >= sizeof copy) return false;
    copy_span(copy, text);
    char *end;
    *out = usc_parse_number(copy, &end);
    return *end == '\0' && isfinite(*out);
}

static double *param_slot(usc_sim_fault *f, span key)
{
    const usc_sim_fault_info *info = usc_sim_fault_info_of(f->kind);
    for (int i = 0; i < USC_SIM_N_PARAMS; i++)
        if (info->params[i][0] != '\0' && span_is(key, info->params[i]))
            return &f->params[i];
    return NULL;
}

/* Sets `nth`, `every`, `p` or `seed`; false where the key is none of these or the value
 * is out of its range. */
static bool set_when(usc_sim_fault *f, span key, double value)
{
    if (span_is(key, "p")) {
        f->p = value;
        return value >= 0 && value <= 1;
    }
    if (value < 0 || value > 0x1p53 || value > floor(value)) return false;
    if (span_is(key, "seed"))
        f->seed = (uint64_t)value;
    else if (span_is(key, "nth"))
        f->nth = (int64_t)value;
    else if (span_is(key, "every"))
        f->every = (int64_t)value;
    else
        return false;
    return f->every > 0 && (f->nth > 0 || !span_is(key, "nth"));
}

static usc_status parse_setting(usc_sim_fault *f, span part, usc_error *err)
{
    const char *equals = part.n > 0 ? memchr(part.at, '=', part.n) : NULL;
    const size_t n_key = equals != NULL ? (size_t)(equals - part.at) : 0;
    double value;
    if (equals == NULL ||
        !parse_number(trim((span){equals + 1, part.n - n_key - 1}), &value))
        return usc_error_set(err, USC_E_ARG, -1, "fault '%s': '%.*s' is not key=number",
                             f->text, (int)part.n, part.at);
    const span key = trim((span){part.at, n_key});
    double *slot = param_slot(f, key);
    if (slot != NULL)
        *slot = value;
    else if (!set_when(f, key, value))
        return usc_error_set(
            err, USC_E_ARG, -1,
            "fault '%s': '%.*s' is neither a parameter of %s nor a valid "
            "nth, every, p or seed",
            f->text, (int)part.n, part.at, usc_sim_fault_info_of(f->kind)->name);
    return USC_OK;
}

static usc_status parse_fault(usc_sim_fault *f, span text, usc_error *err)
{
    *f = (usc_sim_fault){.every = 1, .p = 1.0};
    if (text.n >= sizeof f->text)
        return usc_error_set(err, USC_E_ARG, -1, "fault of %zu characters, %zu at most",
                             text.n, sizeof f->text - 1);
    copy_span(f->text, text);
    span rest = text;
    const span pattern = next_part(&rest);
    const span kind = next_part(&rest);
    if (pattern.n == 0 || kind.n == 0)
        return usc_error_set(err, USC_E_ARG, -1, "fault '%s': not PATTERN:KIND", f->text);
    copy_span(f->pattern, pattern);
    usc_status st = usc_pattern_check(f->pattern, err);
    if (st == USC_OK) st = parse_kind(f, kind, err);
    while (st == USC_OK && rest.n > 0)
        st = parse_setting(f, next_part(&rest), err);
    return st;
}

/* ---- the table
 * --------------------------------------------------------------------------- */

static bool grow(void)
{
    if (n_faults < capacity) return true;
    const size_t wanted = capacity > 0 ? 2 * capacity : 8;
    usc_sim_fault *more = realloc(faults, wanted * sizeof *more);
    if (more == NULL) return false;
    faults = more;
    capacity = wanted;
    return true;
}

static usc_status plant_one(span text, usc_error *err)
{
    if (n_faults == USC_SIM_MAX_FAULTS)
        return usc_error_set(err, USC_E_ARG, -1,
                             "fault '%.*s': %d are planted already, the most at a time",
                             (int)(text.n < 100 ? text.n : 100), text.at,
                             USC_SIM_MAX_FAULTS);
    if (!grow()) return usc_error_set(err, USC_E_NOMEM, -1, "fault: out of memory");
    const usc_status st = parse_fault(&faults[n_faults], text, err);
    if (st == USC_OK) faults[n_faults++].id = next_id++;
    return st;
}

usc_status usc_sim_fault_plant(const char *text, int64_t *first_id, usc_error *err)
{
    usc_status st = USC_OK;
    pthread_mutex_lock(&lock);
    const size_t n_before = n_faults;
    const int64_t id = next_id;
    for (const char *rest = text; rest != NULL && st == USC_OK;) {
        const char *end = strchr(rest, ';');
        const size_t n = end != NULL ? (size_t)(end - rest) : strlen(rest);
        const span item = trim((span){rest, n});
        if (item.n > 0) st = plant_one(item, err);
        rest = end != NULL ? end + 1 : NULL;
    }
    if (st != USC_OK) n_faults = n_before;
    if (first_id != NULL) *first_id = st == USC_OK ? id : 0;
    atomic_store(&n_planted, n_faults);
    pthread_mutex_unlock(&lock);
    return st;
}

static usc_sim_fault *find(int64_t id)
{
    for (size_t i = 0; i < n_faults; i++)
        if (faults[i].id == id) return &faults[i];
    return NULL;
}

bool usc_sim_fault_remove(int64_t id)
{
    pthread_mutex_lock(&lock);
    usc_sim_fault *f = find(id);
    if (f != NULL) {
        const size_t n_after = (size_t)(faults + n_faults - f) - 1;
        memmove(f, f + 1, n_after * sizeof *f);
        n_faults--;
        atomic_store(&n_planted, n_faults);
    }
    pthread_mutex_unlock(&lock);
    return f != NULL;
}

void usc_sim_fault_clear(void)
{
    pthread_mutex_lock(&lock);
    n_faults = 0;
    atomic_store(&n_planted, 0);
    pthread_mutex_unlock(&lock);
}

bool usc_sim_fault_get(size_t i, usc_sim_fault *out)
{
    pthread_mutex_lock(&lock);
    const bool there = i < n_faults;
    *out = there ? faults[i] : (usc_sim_fault){0};
    pthread_mutex_unlock(&lock);
    return there;
}

bool usc_sim_fault_planted(void)
{
    return atomic_load_explicit(&n_planted, memory_order_relaxed) > 0;
}

void usc_sim_fault_note(int64_t id, bool changed)
{
    pthread_mutex_lock(&lock);
    usc_sim_fault *f = find(id);
    if (f != NULL) {
        f->n_fired++;
        if (changed) f->n_changed++;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- when
 * ---------------------------------------------------------------------------------- */

/* A number in [0, 1) made of nothing but the seed and the call's number, so that a run
 * can be repeated (splitmix64). */
static double chance(uint64_t seed, int64_t i_call)
{
    uint64_t z = seed + (uint64_t)i_call * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

static bool is_time(const usc_sim_fault *f)
{
    if (f->nth > 0 && f->n_calls != f->nth) return false;
    if (f->n_calls % f->every != 0) return false;
    return f->p >= 1.0 || chance(f->seed, f->n_calls) < f->p;
}

size_t usc_sim_fault_select(const char *op_name, usc_sim_fault *hits, size_t n_max)
{
    if (atomic_load_explicit(&n_planted, memory_order_relaxed) == 0) return 0;
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_faults; i++) {
        usc_sim_fault *f = &faults[i];
        if (!usc_pattern_match(f->pattern, op_name)) continue;
        f->n_calls++;
        if (n < n_max && is_time(f)) hits[n++] = *f;
    }
    pthread_mutex_unlock(&lock);
    return n;
}
