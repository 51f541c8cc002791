// SPDX-License-Identifier: Apache-2.0
// Kernels of many threads on the simulated device: a grid of blocks, the threads of a block
// one after the other on one thread of the machine. A thread that waits (at a barrier, in a
// shuffle) gives way; threads that never wait share one stack. One kernel at a time runs in
// a process. What a kernel written for CUDA includes lies in glue/grid; it calls these.
//
// Threads: usc_grid_launch() and usc_grid_run() are safe from any thread. What a kernel's
//          thread calls is for the code of a kernel alone.
#ifndef ULPSCOPE_SIM_GRID_H
#define ULPSCOPE_SIM_GRID_H

#include <ulpscope_sim/memory.h>

USC_BEGIN_DECLS

#define USC_GRID_MAX_THREADS 1024
#define USC_GRID_MAX_WARP 64
#define USC_GRID_SHARED_SIZE ((size_t)48 << 10) /* of a block, unless asked for more */
#define USC_GRID_SHARED_SIZE_MAX ((size_t)99 << 10) /* that may be asked for */
#define USC_GRID_STACK_SIZE ((size_t)128 << 10)     /* of a thread */

typedef struct usc_grid_dim {
    unsigned x, y, z;
} usc_grid_dim;

/* What the code of a kernel reads: the thread that runs, and those of its block that have
 * not begun, `next` up to `end`, which lie in one row from `at` on. Who runs threads takes
 * them from there and sets `next` behind them, unless one of them has given way: others have
 * gone on then. See usc_grid_kernel. */
typedef struct usc_grid_state {
    usc_grid_dim thread, block, block_dim, grid_dim;
    usc_grid_dim at;
    unsigned next, end;
    unsigned n_waits; /* how often a thread has given way */
    bool precise; /* who runs is to be known at each instruction: a block that failed */
    void *shared; /* dynamic shared memory of the block */
} usc_grid_state;

/** The state of the kernel that runs. */
USC_API extern usc_grid_state usc_grid_now;

/* Memory that a kernel is given. */
typedef struct usc_grid_argument {
    const void *address;
    int position; /* among the arguments, from 1 */
    bool write;
    bool hidden; /* inside of another argument, where a number may look like an address */
} usc_grid_argument;

typedef struct usc_grid_kernel {
    const char *name;  /* "scale<float>"; static */
    const char *place; /* where it is launched, "scale.cu:12"; static */
    /* Runs threads until usc_grid_more() is false; called once for each thread that waits,
     * and once more. */
    void (*threads)(void *ctx);
    void (*drop)(void *ctx); /* called once in each case; NULL: nothing is to do */
    void *ctx;
    usc_grid_dim grid, block;
    size_t shared_size; /* dynamic, in bytes */
    unsigned warp_size; /* 32 or 64 */
    const usc_grid_argument *arguments;
    size_t n_arguments;
} usc_grid_kernel;

/**
 * Puts a kernel at the end of a stream's queue, as usc_sim_submit() does. The arguments that
 * lie in device memory are open while it runs, those not written for reading only.
 *
 * Memory:  copies *kernel and its arguments.
 * Errors:  USC_E_RANGE for a grid, a block or shared memory that the device does not have,
 *          USC_E_ARG for an argument in the host's memory; as usc_sim_submit(). With launch
 *          blocking what usc_grid_run() says, else the next wait says it.
 */
USC_API USC_NODISCARD usc_status usc_grid_launch(usc_sim_stream stream,
                                                 const usc_grid_kernel *kernel,
                                                 usc_error *err);

/**
 * Runs a kernel here and now.
 *
 * Errors:  as usc_grid_launch(); USC_E_ARG with kernel, block and thread where threads wait
 *          for each other, meet at different barriers, race (where it was built to tell),
 *          touch memory that is not theirs, write behind an argument, or an assertion fails;
 *          what they have written until then stays.
 */
USC_API USC_NODISCARD usc_status usc_grid_run(const usc_grid_kernel *kernel,
                                              usc_error *err);

/** Lets kernels of that name ("scale", without template arguments; copied) have that much
 * dynamic shared memory. Errors: USC_E_RANGE for more than USC_GRID_SHARED_SIZE_MAX,
 * USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_grid_allow_shared(const char *name, size_t size,
                                                       usc_error *err);

/** Whether this thread of the machine runs a kernel. */
USC_API bool usc_grid_inside(void);

/* ---- what a kernel's thread calls ------------------------------------------------ */

/** Makes threads of the block ready to begin, a row or less; false: there are none. */
USC_API bool usc_grid_more(void);

typedef enum usc_grid_vote {
    USC_GRID_COUNT, /* of threads whose predicate holds */
    USC_GRID_AND,
    USC_GRID_OR,
} usc_grid_vote;

/** Waits for all threads of the block that have not ended. `place` is static. */
USC_API int usc_grid_barrier(usc_grid_vote vote, int predicate, const char *place);

/* What lanes of a warp do together; `value` is each lane's, results are 64 bits. */
typedef enum usc_grid_meeting {
    USC_GRID_SYNC,   /* memory is ordered among them; the result is who came */
    USC_GRID_WHO,    /* who came */
    USC_GRID_TAKE,   /* the value of lane `from`; all ones where it did not come */
    USC_GRID_BALLOT, /* the lanes whose value is not 0 */
    USC_GRID_MATCH,  /* the lanes with the same value */
    USC_GRID_ADD,
    USC_GRID_MIN, /* as signed numbers */
    USC_GRID_MAX,
    USC_GRID_UMIN,
    USC_GRID_UMAX,
    USC_GRID_BITS_AND,
    USC_GRID_BITS_OR,
    USC_GRID_BITS_XOR,
} usc_grid_meeting;

/** Waits for the lanes of `mask` that have not ended; with 0 for all that come before no
 * thread can go on. `place` is static. */
USC_API uint64_t usc_grid_meet(usc_grid_meeting what, uint64_t mask, uint64_t value,
                               unsigned from, const char *place);

/** The lane of the thread that runs. */
USC_API unsigned usc_grid_lane(void);

/** Ends the kernel with a sentence; outside of one the process. Does not return. */
USC_API void usc_grid_fail(const char *format, ...) USC_PRINTF(1, 2);

/** Tells of an access, in kernels that are built to: threads that race in shared memory, and
 * what is not theirs, end the kernel. `code`: the address of who asks. */
USC_API void usc_grid_access(const void *address, size_t size, bool write, bool atomic,
                             const void *code);

USC_END_DECLS
#endif
