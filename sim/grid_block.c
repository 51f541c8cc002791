// SPDX-License-Identifier: Apache-2.0
// The threads of a block: who runs next, barriers, and what it means when nobody can go on.
#include <stdio.h>
#include <string.h>

#include "grid_parts.h"

grid_run usc_grid;
usc_grid_state usc_grid_now;

uint64_t usc_grid_draw(void)
{
    uint64_t z = usc_grid.seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- queues ---------------------------------------------------------------------- */

static void push(grid_queue *q, fiber *f)
{
    f->next = NULL;
    if (q->head == NULL)
        q->head = f;
    else
        q->tail->next = f;
    q->tail = f;
}

static fiber *pop(grid_queue *q)
{
    fiber *f = q->head;
    q->head = f->next;
    return f;
}

/* Any of them, where a seed orders them. */
static fiber *take_ready(void)
{
    grid_queue *q = &usc_grid.ready;
    if (q->head == NULL) return NULL;
    if (!usc_grid.scheduled) return pop(q);
    unsigned n = 0;
    for (const fiber *f = q->head; f != NULL; f = f->next)
        n++;
    for (uint64_t i = usc_grid_draw() % n; i > 0; i--)
        push(q, pop(q));
    return pop(q);
}

void usc_grid_ready(fiber *f)
{
    usc_grid.waiting[f->linear] = NULL;
    usc_grid.n_waiting--;
    push(&usc_grid.ready, f);
}

/* ---- nobody can go on -------------------------------------------------------------- */

void usc_grid_stop(void)
{
    usc_grid.failed = true;
    usc_fiber_leave_for(&usc_grid.host);
}

typedef struct tally {
    const char *place;
    unsigned n;
    bool at_barrier;
} tally;

/* How many threads wait where, the first few places. */
static size_t tally_up(tally *found, size_t most)
{
    size_t n = 0;
    for (unsigned i = 0; i < usc_grid.n_threads; i++) {
        const fiber *f = usc_grid.waiting[i];
        size_t at = 0;
        if (f == NULL) continue;
        while (at < n && (found[at].at_barrier != f->at_barrier ||
                          strcmp(found[at].place, f->waits_at) != 0))
            at++;
        if (at == n && n == most) continue;
        if (at == n) found[n++] = (tally){f->waits_at, 0, f->at_barrier};
        found[at].n++;
    }
    return n;
}

static void stuck(bool barriers)
{
    tally found[4];
    char where[512];
    size_t used = 0;
    const size_t n = tally_up(found, 4);
    where[0] = '\0';
    for (size_t i = 0; i < n && used < sizeof where - 1; i++) {
        const int more = snprintf(
            where + used, sizeof where - used, "%s%u %s %s", i > 0 ? ", " : "",
            found[i].n, found[i].at_barrier ? "at the barrier in" : "at", found[i].place);
        used += more > 0 ? (size_t)more : 0;
    }
    const usc_grid_dim b = usc_grid_now.block;
    const unsigned n_ended = usc_grid.n_threads - usc_grid.n_waiting;
    (void)usc_error_set(
        &usc_grid.failure, USC_E_ARG, -1,
        "kernel %s, block (%u,%u,%u): %s: %s; %u of %u threads have ended",
        usc_grid.kernel->name, b.x, b.y, b.z,
        barriers ? "threads meet at different barriers"
                 : "threads wait for each other and none can go on",
        where, n_ended, usc_grid.n_threads);
    usc_grid_stop();
}

/* All that have not ended wait at a barrier: one and the same in the source. */
static void release_barrier(void)
{
    if (usc_grid.other_barrier) stuck(true);
    usc_grid_race_barrier();
    usc_grid.barrier_yes = usc_grid.n_yes;
    usc_grid.barrier_came = usc_grid.n_at_barrier;
    usc_grid.n_waiting = usc_grid.n_at_barrier = usc_grid.n_yes = 0;
    usc_grid.ready = usc_grid.barrier; /* none was ready */
    usc_grid.barrier.head = NULL;
}

/* ---- who runs next ------------------------------------------------------------------ */

static void threads_of(void)
{
    for (;;) {
        usc_grid.kernel->threads(usc_grid.kernel->ctx);
        fiber *self = usc_grid.now;
        self->next = usc_grid.idle;
        usc_grid.idle = self;
        usc_grid_wait();
    }
}

static fiber *fresh(void)
{
    fiber *f = usc_grid.idle;
    if (f != NULL) {
        usc_grid.idle = f->next;
        return f;
    }
    f = usc_fiber_at(usc_grid.n_waiting, threads_of); /* all others wait */
    if (f == NULL) {
        usc_grid.failed = true;
        (void)usc_error_set(&usc_grid.failure, USC_E_NOMEM, -1,
                            "kernel %s: no memory for the stacks of %u threads",
                            usc_grid.kernel->name, usc_grid.n_threads);
    }
    return f;
}

static bool some_left(void)
{
    return usc_grid_now.next < usc_grid.run_end || usc_grid.i_warp < usc_grid.n_warps ||
           (usc_grid.n_waiting == 0 && usc_grid.n_blocks_left > 0);
}

static fiber *next_fiber(void)
{
    for (;;) {
        fiber *f = take_ready();
        if (f != NULL) return f;
        if (some_left()) {
            f = fresh();
            if (f == NULL) usc_grid_stop();
            return f;
        }
        if (usc_grid.n_waiting == 0) return &usc_grid.host; /* all is done */
        if (usc_grid.n_at_barrier == usc_grid.n_waiting)
            release_barrier();
        else if (!usc_grid_warps_settle())
            stuck(false);
    }
}

void usc_grid_wait(void)
{
    fiber *self = usc_grid.now, *to = next_fiber();
    usc_grid_now.n_waits++;
    if (to != self) {
        usc_grid.now = to;
        usc_fiber_switch(self, to);
    }
    usc_grid_now.thread = self->thread;
}

fiber *usc_grid_will_wait(const char *place)
{
    fiber *self = usc_grid.now;
    self->thread = usc_grid_now.thread;
    self->linear = usc_grid_linear();
    self->waits_at = place;
    if (self->fresh) usc_grid_now.next = self->linear + 1;
    self->fresh = false;
    usc_grid.waiting[self->linear] = self;
    usc_grid.n_waiting++;
    return self;
}

static void draw_order(void)
{
    for (unsigned i = 0; i < usc_grid.n_warps; i++)
        usc_grid.order[i] = i;
    for (unsigned i = usc_grid.n_warps; usc_grid.scheduled && i > 1; i--) {
        const unsigned k = (unsigned)(usc_grid_draw() % i), other = usc_grid.order[k];
        usc_grid.order[k] = usc_grid.order[i - 1];
        usc_grid.order[i - 1] = other;
    }
}

/* The next block begins; false: that was the last. With a seed the blocks come in steps of
 * a number that has no divisor in common with how many they are, so that each comes once. */
static bool next_block(void)
{
    usc_grid_dim *b = &usc_grid_now.block;
    const usc_grid_dim g = usc_grid_now.grid_dim;
    if (usc_grid.n_blocks_left == 0) return false;
    usc_grid.n_blocks_left--;
    if (usc_grid.scheduled) {
        const uint64_t at = usc_grid.block_at;
        *b = (usc_grid_dim){(unsigned)(at % g.x), (unsigned)(at / g.x % g.y),
                            (unsigned)(at / g.x / g.y)};
        usc_grid.block_at = (at + usc_grid.block_step) % usc_grid.n_blocks;
        draw_order();
    } else if (++b->x == g.x) {
        b->x = 0;
        if (++b->y == g.y) {
            b->y = 0;
            b->z++;
        }
    }
    usc_grid.i_warp = 0;
    usc_grid_race_barrier();
    return true;
}

/* Warps, or the whole block, whose threads begin; false: none are left, or others wait. */
static bool next_run(void)
{
    usc_grid_state *s = &usc_grid_now;
    if (usc_grid.i_warp >= usc_grid.n_warps &&
        (usc_grid.n_waiting > 0 || usc_grid.ready.head != NULL || !next_block()))
        return false;
    const unsigned n = usc_grid.n_threads;
    const unsigned width = usc_grid.scheduled ? usc_grid.kernel->warp_size : n;
    s->next = usc_grid.order[usc_grid.i_warp++] * width;
    usc_grid.run_end = s->next + width < n ? s->next + width : n;
    return true;
}

bool usc_grid_more(void)
{
    usc_grid_state *s = &usc_grid_now;
    if (s->next == usc_grid.run_end && !next_run()) return false;
    unsigned row = 0, x = s->next;
    if (x >= s->block_dim.x) {
        row = x / s->block_dim.x;
        x -= row * s->block_dim.x;
    }
    const unsigned row_end = s->next + s->block_dim.x - x;
    s->at = (usc_grid_dim){x, row < s->block_dim.y ? row : row % s->block_dim.y,
                           row < s->block_dim.y ? 0 : row / s->block_dim.y};
    s->end = row_end < usc_grid.run_end ? row_end : usc_grid.run_end;
    usc_grid.now->fresh = true;
    return true;
}

int usc_grid_barrier(usc_grid_vote vote, int predicate, const char *place)
{
    fiber *self = usc_grid_will_wait(place);
    const fiber *first = usc_grid.barrier.head;
    if (first == NULL)
        usc_grid.other_barrier = false;
    else if (first->waits_at != place && strcmp(first->waits_at, place) != 0)
        usc_grid.other_barrier = true;
    self->at_barrier = true;
    usc_grid.n_at_barrier++;
    if (predicate != 0) usc_grid.n_yes++;
    push(&usc_grid.barrier, self);
    usc_grid_wait();
    self->at_barrier = false;
    usc_grid.waiting[self->linear] = NULL;
    if (vote == USC_GRID_COUNT) return (int)usc_grid.barrier_yes;
    return vote == USC_GRID_AND ? usc_grid.barrier_yes == usc_grid.barrier_came
                                : usc_grid.barrier_yes > 0;
}

static uint64_t drawn_step(uint64_t n)
{
    for (;;) {
        const uint64_t step = 1 + usc_grid_draw() % n;
        uint64_t a = n, b = step;
        while (b != 0) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return step;
    }
}

void usc_grid_blocks_run(bool again)
{
    const usc_grid_dim g = usc_grid_now.grid_dim;
    usc_grid.n_blocks = (uint64_t)g.x * g.y * g.z;
    usc_grid.n_blocks_left = again ? 0 : usc_grid.n_blocks;
    if (usc_grid.scheduled && !again) {
        usc_grid.block_step = drawn_step(usc_grid.n_blocks);
        usc_grid.block_at = usc_grid_draw() % usc_grid.n_blocks;
    }
    if (!usc_grid.scheduled) usc_grid.order[0] = 0;
    if (!again) usc_grid_now.block = (usc_grid_dim){~0u, 0, 0}; /* before the first */
    usc_grid.i_warp = again ? 0 : usc_grid.n_warps;
    usc_grid_now.next = usc_grid.run_end = 0;
    fiber *first = fresh();
    if (first == NULL) return;
    usc_grid.now = first;
    usc_fiber_switch(&usc_grid.host, first);
}
