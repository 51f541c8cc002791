// SPDX-License-Identifier: Apache-2.0
// The faults that are planted now: when they fire, how often they did. Their text:
// fault_text.c and fault_lines.c; what they do to a buffer: fault_apply.c.
#include "fault_parts.h"

#include <ulpscope/x/pattern.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static usc_sim_fault *faults;
static size_t n_faults, capacity;
static int64_t next_id = 1;
static atomic_size_t n_planted; /* n_faults, readable without the lock */
static _Atomic int64_t now_step, now_rank;

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

static usc_status take(fault_taker *self, const usc_sim_fault *f, usc_error *err)
{
    (void)self;
    if (!grow()) return usc_error_set(err, USC_E_NOMEM, -1, "fault: out of memory");
    faults[n_faults] = *f;
    faults[n_faults++].id = next_id++;
    return USC_OK;
}

/* `name` NULL: text. */
static usc_status plant(const char *text, const char *name, int64_t *first_id,
                        usc_error *err)
{
    fault_taker taker = {take};
    pthread_mutex_lock(&lock);
    const size_t n_before = n_faults;
    const int64_t id = next_id;
    const usc_status st = name == NULL ? fault_read_text(text, &taker, err)
                                       : fault_read_lines(text, name, &taker, err);
    if (st != USC_OK) n_faults = n_before;
    if (first_id != NULL) *first_id = st == USC_OK ? id : 0;
    atomic_store(&n_planted, n_faults);
    pthread_mutex_unlock(&lock);
    return st;
}

usc_status usc_sim_fault_plant(const char *text, int64_t *first_id, usc_error *err)
{
    return plant(text, NULL, first_id, err);
}

usc_status usc_sim_fault_plant_lines(const char *lines, const char *name,
                                     int64_t *first_id, usc_error *err)
{
    return plant(lines, name, first_id, err);
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

void usc_sim_fault_set_step(int64_t step)
{
    atomic_store(&now_step, step);
}

int64_t usc_sim_fault_step(void)
{
    return atomic_load(&now_step);
}

void usc_sim_fault_set_rank(int64_t rank)
{
    atomic_store(&now_rank, rank);
}

double fault_chance(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + i * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

static bool has_its_layout(const usc_sim_fault *f, const usc_sim_call *c)
{
    switch (f->layout) {
    case USC_SIM_STRIDED:
        return c->strided;
    case USC_SIM_CHANNELS_LAST:
        return c->has_last;
    case USC_SIM_ANY_LAYOUT:
    default:
        return true;
    }
}

static bool meets(const usc_sim_fault *f, const usc_sim_call *c)
{
    if (!usc_pattern_match(f->pattern, c->op)) return false;
    if (f->step >= 0 && f->step != atomic_load(&now_step)) return false;
    if (f->rank >= 0 && f->rank != atomic_load(&now_rank)) return false;
    if (f->stream >= 0 && f->stream != c->stream) return false;
    if (f->dtype[0] != '\0' &&
        (c->dtype == USC_DTYPE_NONE ||
         !usc_pattern_match(f->dtype, usc_dtype_info_of(c->dtype)->name)))
        return false;
    if (f->remainder > 0 && c->n_columns % f->remainder == 0) return false;
    if (f->more >= 0 && c->n <= f->more) return false;
    if (f->argument[0] != '\0' && (c->given == NULL || !c->given(c->ctx, f->argument)))
        return false;
    return has_its_layout(f, c);
}

static bool is_time(const usc_sim_fault *f)
{
    if (f->nth > 0 && f->n_calls != f->nth) return false;
    if (f->n_calls % f->every != 0) return false;
    return f->p >= 1.0 || fault_chance(f->seed, (uint64_t)f->n_calls) < f->p;
}

static bool push(usc_sim_fault **hits, size_t n, const usc_sim_fault *f)
{
    if ((n & (n - 1)) == 0) { /* room for the next power of two */
        usc_sim_fault *more = realloc(*hits, (n > 0 ? 2 * n : 1) * sizeof *more);
        if (more == NULL) return false;
        *hits = more;
    }
    (*hits)[n] = *f;
    return true;
}

size_t usc_sim_fault_select(const usc_sim_call *call, usc_sim_fault **hits)
{
    *hits = NULL;
    if (!usc_sim_fault_planted()) return 0;
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_faults; i++) {
        usc_sim_fault *f = &faults[i];
        if (!meets(f, call)) continue;
        f->n_calls++;
        if (is_time(f) && push(hits, n, f)) n++;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

bool usc_sim_fault_concerns(const char *op)
{
    if (!usc_sim_fault_planted()) return false;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_faults && !found; i++) {
        const usc_sim_stage stage = usc_sim_fault_info_of(faults[i].kind)->stage;
        found = stage != USC_SIM_STAGE_TIME && stage != USC_SIM_STAGE_RANKS &&
                usc_pattern_match(faults[i].pattern, op);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Whether a kind fires on what is no operator; counted as applied. */
static bool fires(usc_sim_fault_kind kind, const char *op, int64_t stream)
{
    usc_sim_fault *hits;
    const usc_sim_call call = {.op = op, .stream = stream, .dtype = USC_DTYPE_NONE};
    const size_t n = usc_sim_fault_select(&call, &hits);
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (hits[i].kind != kind) continue;
        any = true;
        usc_sim_fault_note(hits[i].id, true);
    }
    free(hits);
    return any;
}

bool usc_sim_fault_early(const char *op, int64_t stream)
{
    return fires(USC_SIM_FAULT_EARLY, op, stream);
}

bool usc_sim_fault_storage_lost(void)
{
    return fires(USC_SIM_FAULT_STORAGE_LOST, "sim::load", -1);
}
