// SPDX-License-Identifier: Apache-2.0
// What the files of the grid share: grid.c (launches), grid_block.c (the threads of a block
// and who runs next), grid_warp.c (lanes that meet), grid_race.c (who touched what),
// grid_fault.c (signals, and lines of code), fiber.c (stacks). One kernel at a time: no lock
// but the one that usc_grid_run() holds.
#ifndef USC_SIM_GRID_PARTS_H
#define USC_SIM_GRID_PARTS_H

#include <ulpscope_sim/grid.h>

#include "fiber.h"

typedef struct grid_queue {
    fiber *head, *tail;
} grid_queue;

/* Lanes with one mask that do the same; complete once all of the mask have come. */
typedef struct meeting {
    usc_grid_meeting what;
    uint64_t mask, came;
} meeting;

typedef struct warp {
    meeting open[USC_GRID_MAX_WARP];
    unsigned n_open;
    uint64_t value[USC_GRID_MAX_WARP];
    unsigned from[USC_GRID_MAX_WARP];
} warp;

typedef struct grid_run {
    const usc_grid_kernel *kernel;
    fiber host, *now, *idle;
    grid_queue ready, barrier;
    unsigned n_threads, n_waiting, n_at_barrier, n_yes;
    fiber *waiting[USC_GRID_MAX_THREADS]; /* by the thread's number; NULL: it does not */
    warp warps[USC_GRID_MAX_THREADS / 32];
    unsigned order[USC_GRID_MAX_THREADS / 32]; /* of warps, where a seed orders them */
    unsigned n_warps, i_warp, run_end;
    uint64_t n_blocks, n_blocks_left, block_at, block_step;
    unsigned barrier_yes, barrier_came; /* of the last one that all had come to */
    bool other_barrier;                 /* not all wait at the same */
    bool scheduled, failed;
    uint64_t seed; /* of SplitMix64 */
    usc_error failure;
} grid_run;

extern grid_run usc_grid;

/* The number in its block of the thread that runs. */
static inline unsigned usc_grid_linear(void)
{
    const usc_grid_state *s = &usc_grid_now;
    return s->thread.x + s->block_dim.x * (s->thread.y + s->block_dim.y * s->thread.z);
}

/* grid_block.c */
/* All blocks, or the one in usc_grid_now once more; to their end, or a failure. */
void usc_grid_blocks_run(bool again);
/* The thread that runs is going to wait: its fiber, which remembers who it is. */
fiber *usc_grid_will_wait(const char *place);
void usc_grid_wait(void); /* of the fiber that runs: until somebody made it ready */
void usc_grid_ready(fiber *f);
uint64_t usc_grid_draw(void);
void usc_grid_stop(void); /* the failure stands; back to the host */

/* grid_warp.c */
void usc_grid_warps_begin(void);
bool usc_grid_warps_settle(void); /* no thread can go on: completes what can be */

/* grid_race.c */
void usc_grid_race_begin(const usc_grid_kernel *kernel);
void usc_grid_race_barrier(void);
void usc_grid_race_sync(unsigned first,
                        uint64_t lanes); /* of the warp at thread `first` */
void usc_grid_race_end(void);

/* grid_fault.c */
void usc_grid_fault_watch(void); /* this thread of the machine, until .._end() */
void usc_grid_fault_end(void);
bool usc_grid_fault_caught(void); /* a signal ended the kernel */
/* Whether one did: the failure is told then, with who and where. */
bool usc_grid_fault_told(void);
void usc_grid_line_of(const void *code, char *out, size_t size); /* "scale.cu:12" or "" */
void usc_grid_who(char *out, size_t size); /* "kernel k, block (0,0,0), thread (1,0,0)" */
/* Where an address lies, seen from the arguments: "4 bytes behind argument 2, ...". */
void usc_grid_where(const void *address, char *out, size_t size);

/* guard.c: the bytes around the block that holds `address`. First broken one, seen from the
 * block's end (behind it: 0 and more; before the block: negative); they are mended. */
bool usc_sim_guard_mend(const void *address, int64_t *at, size_t *block_size);
/* The bytes of the block, live or not, that holds `address`. */
bool usc_sim_extent(const void *address, const char **first, const char **end,
                    bool *live);

/* schedule.c */
bool usc_sim_schedule_seed(uint64_t *seed); /* drawn; false: nothing is scheduled */

#endif
