// SPDX-License-Identifier: Apache-2.0
// What the files of simccl share: ccl.c (making, meeting, ending), ccl_run.c
// (collectives), ccl_message.c (messages), ccl_sum.c (arithmetic). The shared memory holds
//   shared | place[size] | announced[2][size] | slot[size] | channel[size][size]
// and is written by nobody but its owner: a place, an announcement and a slot by their
// rank, a channel's halves by its sender.
#ifndef USC_CCL_SHARED_H
#define USC_CCL_SHARED_H

#include <ulpscope_sim/ccl.h>

#include <stdatomic.h>
#include <sys/types.h>

#define CCL_WHY_TEXT 256

typedef struct ccl_shared {
    atomic_uint aborted; /* 1: being written, 2: `why` is there */
    char why[CCL_WHY_TEXT];
} ccl_shared;

/* Where a rank is. */
typedef struct ccl_place {
    _Alignas(64) atomic_uint arrived; /* how often it came to a meeting; a futex */
    atomic_int pid;                   /* 0: not there yet */
    atomic_uint_fast64_t n_calls;     /* collectives begun */
    atomic_int kind;                  /* of the last one */
} ccl_place;

/* What a rank is about to do, for the others to compare with. Sizes: n_from and then n_to
 * of them, as many as ranks at most. */
typedef struct ccl_announced {
    uint64_t n_calls;
    int32_t kind, op, dtype, root;
    uint64_t n_from, n_to;
    uint64_t sizes[];
} ccl_announced;

/* One half of a channel carries one piece of a message. */
typedef struct ccl_piece {
    uint64_t message_size, size;
    int32_t tag;
} ccl_piece;

typedef struct ccl_channel {
    _Alignas(64) atomic_uint written; /* pieces; a futex */
    _Alignas(64) atomic_uint read;    /* pieces; a futex */
    _Alignas(64) ccl_piece piece[2];
} ccl_channel; /* its two halves follow */

/* What a communicator's last collective gave here, kept while a fault asks for it. */
typedef struct ccl_last {
    char *at;
    size_t size;
} ccl_last;

struct usc_ccl {
    int rank, size, fd;
    pid_t pid; /* who opened it: a forked child must not use it */
    _Atomic int64_t timeout_ns;
    char *base;
    size_t mapped_size;
    size_t half_size;  /* of a slot */
    size_t piece_size; /* of a channel's half */
    size_t announced_at, slots_at, channels_at, announced_size, channel_size;
    unsigned n_met;    /* meetings so far */
    unsigned n_chunks; /* chunks so far: odd ones lie in the second half */
    uint64_t n_calls;
    ccl_last last;
};

/* ---- where things lie */

static inline ccl_shared *ccl_shared_of(const usc_ccl *c)
{
    return (ccl_shared *)c->base;
}

ccl_place *ccl_place_of(const usc_ccl *c, int rank);
ccl_announced *ccl_announced_of(const usc_ccl *c, int rank, uint64_t n_calls);
char *ccl_half_of(const usc_ccl *c, int rank, unsigned chunk);
ccl_channel *ccl_channel_of(const usc_ccl *c, int from, int to);
char *ccl_channel_half(const usc_ccl *c, ccl_channel *ch, unsigned piece);

/* ---- waiting (ccl.c) */

/* Until *word, which rank `whose` counts up, is `goal` or beyond. `doing` is for the error:
 * "all_reduce number 7". */
usc_status ccl_await(usc_ccl *c, atomic_uint *word, unsigned goal, int whose,
                     const char *doing, usc_error *err);
/* Something has changed at `word`. */
void ccl_wake(atomic_uint *word);
/* Until every rank has come here as often. */
usc_status ccl_meet(usc_ccl *c, const char *doing, usc_error *err);
/* USC_OK while nobody has aborted and this is the process that opened it. */
usc_status ccl_alive(const usc_ccl *c, usc_error *err);
/* Whether a rank's process is there. */
bool ccl_rank_lives(const usc_ccl *c, int rank);

/* ---- planted faults (ccl_fault.c) */

/* The faults that fire on one call, and what they make of it. */
typedef struct ccl_faults {
    usc_sim_fault *hits;
    int *results; /* as usc_sim_fault_apply() says; the largest */
    size_t n;
    int lost;           /* rank; -1: none */
    int twice, instead; /* ranks; -1: none */
    bool in_bf16, is_stale, is_sum, is_twice, is_last;
} ccl_faults;

/* Selects for "simccl::<kind>"; crashes or hangs where that is planted. USC_E_UNSUPPORTED
 * where the device is to lack it. */
usc_status ccl_faults_begin(ccl_faults *f, usc_ccl_kind kind, usc_error *err);
/* What this rank gives, as it lies in its slot; `dtype` NONE: nothing is done. */
void ccl_faults_input(ccl_faults *f, usc_dtype dtype, void *data, size_t size);
/* What this rank got, whole; counts what fired. `last` is what it got the time before. */
void ccl_faults_end(ccl_faults *f, usc_dtype dtype, const usc_ccl_buffer *to, size_t n_to,
                    ccl_last *last);
/* In place of it, where the collective failed. */
void ccl_faults_drop(ccl_faults *f);

/* ---- arithmetic (ccl_sum.c) */

/* Whether an op is there for a dtype. */
bool ccl_can_reduce(usc_ccl_op op, usc_dtype dtype);
/* to[i] = sources[0][i] op sources[1][i] ...; `to` may be one of the sources. `in_bf16`:
 * floats are rounded to bfloat16 after each step, as a planted fault has it. */
void ccl_reduce(usc_ccl_op op, usc_dtype dtype, bool in_bf16, const void *const *sources,
                int n_sources, void *to, size_t n);

#endif
