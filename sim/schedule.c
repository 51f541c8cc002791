// SPDX-License-Identifier: Apache-2.0
// An order that is a seed: no thread of a stream runs anything; who submits or waits does,
// one command at a time, drawn among those that could run. What a program left unordered
// so comes in another order with each seed, and in the same one with the same.
#include "grid_parts.h"
#include "streams.h"

static bool scheduled;
static double delay;
static uint64_t state; /* of SplitMix64 */

bool usc_sim_scheduled(void)
{
    return scheduled;
}

static uint64_t draw(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool draw_below(double p)
{
    return (double)(draw() >> 11) * 0x1p-53 < p;
}

bool usc_sim_schedule_step(void)
{
    queue *q, *chosen = NULL;
    uint64_t n = 0;
    for (int i = 0; (q = usc_sim_queue_at(i)) != NULL; i++)
        if (q->running && !q->for_ranks) return false; /* one at a time */
    for (int i = 0; (q = usc_sim_queue_at(i)) != NULL; i++)
        if (!q->for_ranks && usc_sim_queue_could_run(q) && draw() % ++n == 0) chosen = q;
    if (chosen == NULL) return false;
    usc_sim_queue_run_head(chosen);
    return true;
}

void usc_sim_schedule_submitted(void)
{
    while (scheduled && !draw_below(delay) && usc_sim_schedule_step())
        ;
}

/* A program that asks until the answer is yes must get there. */
void usc_sim_schedule_asked(void)
{
    if (scheduled) (void)usc_sim_schedule_step();
}

static bool all_ended(const void *ctx)
{
    (void)ctx;
    const queue *q;
    for (int i = 0; (q = usc_sim_queue_at(i)) != NULL; i++)
        if (q->n_ended != q->n_submitted) return false;
    return true;
}

void usc_sim_schedule(const usc_sim_schedule_options *options)
{
    if (usc_sim_may_wait(NULL) != USC_OK) return;
    usc_sim_lock();
    const bool settled = usc_sim_wait_until(all_ended, NULL, NULL) == USC_OK;
    scheduled = settled ? options != NULL : scheduled;
    if (settled && scheduled) {
        state = options->seed;
        delay = options->delay < 0 ? 0 : options->delay > 1 ? 1 : options->delay;
    }
    usc_sim_unlock();
}

bool usc_sim_schedule_seed(uint64_t *seed)
{
    usc_sim_lock();
    const bool on = scheduled;
    if (on) *seed = draw();
    usc_sim_unlock();
    return on;
}
