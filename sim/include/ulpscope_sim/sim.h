// SPDX-License-Identifier: Apache-2.0
// The simulated accelerator: device memory that only a running kernel may touch, pinned
// host memory, and faults as data. Knows no torch; glue/sim registers it there.
//
// The device is one per process, as hardware is: its state is global, made on first use
// and guarded by one lock.
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_H
#define ULPSCOPE_SIM_H

#include <ulpscope/dtype.h>

USC_BEGIN_DECLS

#define USC_SIM_MOST_DEVICES 8 /* how many there are: profile.h */

typedef enum usc_sim_access {
    USC_SIM_READ,
    USC_SIM_WRITE, /* and read */
} usc_sim_access;

typedef struct usc_sim_stats {
    int64_t allocated_size; /* bytes in live blocks, whole pages */
    int64_t peak_size;      /* highest allocated_size since the last reset */
    int64_t reserved_size; /* bytes of mappings with memory behind them, in use or kept */
    int64_t n_allocs;      /* blocks handed out so far */
    int64_t n_maps;        /* of these, how many needed a fresh mapping */
    int64_t n_opens;       /* usc_sim_open() calls so far */
    int64_t n_waits;       /* usc_sim_wait() calls so far */
    int64_t requested_size; /* bytes that the callers of live blocks asked for */
    int64_t waiting_size;   /* bytes freed, and not yet through on other streams */
    int64_t peak_reserved;  /* highest reserved_size since the last reset */
    int64_t n_live;         /* live blocks */
    int64_t n_segments;     /* mappings with memory behind them */
    int64_t n_retries;      /* requests for which cached memory was given back */
    int64_t n_ooms;         /* requests refused */
} usc_sim_stats;

/**
 * Allocates `size` bytes on `device`, 64-byte aligned, ending (to within that alignment)
 * at a page that is never accessible. The contents are what was there before, as on
 * hardware. Host code that touches it faults; see usc_sim_open().
 *
 * Memory:  give back with usc_sim_free(); size 0 gives NULL.
 * Errors:  USC_E_ARG for no such device, USC_E_RANGE for more than a device has,
 *          USC_E_NOMEM; *out is NULL then.
 */
USC_API USC_NODISCARD usc_status usc_sim_malloc(int device, size_t size, void **out,
                                                usc_error *err);

/**
 * Gives a block back. It stays inaccessible until usc_sim_malloc() reuses it, so a stale
 * pointer faults too. NULL is allowed; anything else that is no live block is ignored.
 */
USC_API void usc_sim_free(void *block);

/**
 * Opens the whole block that holds `address` to every thread of the process, as a kernel
 * launch does for its arguments. Openings are counted: the block closes after as many
 * usc_sim_close() calls, and is writable while one of the open accesses is a write.
 *
 * Errors:  USC_E_ARG where `address` lies in no live block, USC_E_IO where the operating
 *          system refuses. NULL is USC_OK and opens nothing.
 */
USC_API USC_NODISCARD usc_status usc_sim_open(const void *address, usc_sim_access access,
                                              usc_error *err);

/** Undoes one usc_sim_open() of the same address and access. NULL is allowed. */
USC_API void usc_sim_close(const void *address, usc_sim_access access);

typedef struct usc_sim_opening {
    const void *address;
    usc_sim_access access;
} usc_sim_opening;

/**
 * usc_sim_open() of all, or of none: what lies in the same pages is opened at once.
 *
 * Errors:  as usc_sim_open().
 */
USC_API USC_NODISCARD usc_status usc_sim_open_all(const usc_sim_opening *all, size_t n,
                                                  usc_error *err);

/** usc_sim_close() of all. */
USC_API void usc_sim_close_all(const usc_sim_opening *all, size_t n);

/**
 * Keeps the block that holds `address` for a kernel that has been launched and will open
 * it later: until as many usc_sim_unpin() it can be opened although it is freed, and no
 * other stream gets it. What is no live device memory is left alone.
 */
USC_API void usc_sim_pin(const void *address);

/** Undoes one usc_sim_pin() of the same address. */
USC_API void usc_sim_unpin(const void *address);

/** The device whose address range holds `address`, or -1. */
USC_API int usc_sim_device_of(const void *address);

/**
 * Switches memory protection off (every block stays open: for speed runs) or on again.
 * It is on at the start.
 */
USC_API void usc_sim_set_protection(bool on);

/** Counters of one device; all zero for no such device. */
USC_API usc_sim_stats usc_sim_memory_stats(int device);

/** Counts that the host waits for a device: a copy to it that blocks, a stream or an
 * event that is waited for. No such device: nothing is counted. */
USC_API void usc_sim_wait(int device);

/** Sets peak_size to what is allocated now. */
USC_API void usc_sim_reset_peak(int device);

/** Returns the pages of blocks kept for reuse to the operating system. */
USC_API void usc_sim_empty_cache(void);

/**
 * Allocates pinned host memory, 64-byte aligned; ordinary memory that is remembered.
 *
 * Memory:  give back with usc_sim_host_free().
 * Errors:  NULL where there is no memory.
 */
USC_API void *usc_sim_host_malloc(size_t size);

/** Gives pinned memory back; NULL is allowed. */
USC_API void usc_sim_host_free(void *block);

/** Whether `address` lies in memory of usc_sim_host_malloc(). */
USC_API bool usc_sim_is_pinned(const void *address);

/* ---- faults ---------------------------------------------------------------- */

typedef enum usc_sim_stage {
    USC_SIM_STAGE_INPUT,  /* on copies of the arguments that the operator only reads */
    USC_SIM_STAGE_KERNEL, /* in place of or around the computation: the glue does it */
    USC_SIM_STAGE_OUTPUT, /* on the results and on arguments that were written */
    USC_SIM_STAGE_RANKS,  /* on what ranks exchange: ccl.h does it, and no operator */
} usc_sim_stage;

/* id, name, stage, parameter 0 and its default, parameter 1 and its default, what it
 * does. A parameter named "" is absent. Element positions count in row-major order,
 * negative ones from the end, and wrap around the element count. */
#define USC_SIM_FAULT_LIST(X)                                                            \
    X(TF32, "tf32", INPUT, "", 0, "", 0,                                                 \
      "float32 inputs rounded to 10 explicit mantissa bits (biases stay)")               \
    X(BF16_INPUTS, "bf16_inputs", INPUT, "", 0, "", 0,                                   \
      "float inputs rounded to bfloat16")                                                \
    X(FP16_INPUTS, "fp16_inputs", INPUT, "", 0, "", 0,                                   \
      "float inputs rounded to float16")                                                 \
    X(BF16_INTERMEDIATES, "bf16_intermediates", KERNEL, "", 0, "", 0,                    \
      "every result of the operator's inner operators, and its own, rounded to "         \
      "bfloat16; aten operators, which are one kernel, read rounded inputs instead")     \
    X(STEP_PLUS_ONE, "step_plus_one", KERNEL, "amount", 1, "", 0,                        \
      "a fused optimizer computes with state_steps + amount; the stored steps stay")     \
    X(CRASH, "crash", KERNEL, "", 0, "", 0, "the kernel dies with SIGSEGV")              \
    X(HANG, "hang", KERNEL, "", 0, "", 0, "the kernel never returns")                    \
    X(LACKING, "lacking", KERNEL, "", 0, "", 0, "the device has no such operator")       \
    X(CPU_FALLBACK, "cpu_fallback", KERNEL, "", 0, "", 0,                                \
      "the CPU computes it, and a warning says so")                                      \
    X(BF16_OUTPUT, "bf16_output", OUTPUT, "", 0, "", 0, "floats rounded to bfloat16")    \
    X(FP16_OUTPUT, "fp16_output", OUTPUT, "", 0, "", 0, "floats rounded to float16")     \
    X(TRUNCATE, "truncate", OUTPUT, "bits", 8, "", 0,                                    \
      "the last mantissa bits of floats cut off instead of rounded")                     \
    X(FLUSH_SUBNORMALS, "flush_subnormals", OUTPUT, "", 0, "", 0,                        \
      "subnormal floats become zero of their sign")                                      \
    X(SCALE, "scale", OUTPUT, "factor", 1.01, "", 0, "floats multiplied by factor")      \
    X(OFFSET, "offset", OUTPUT, "value", 0.01, "", 0, "value added to floats")           \
    X(NAN, "nan", OUTPUT, "index", 0, "", 0, "one float element becomes NaN")            \
    X(INF, "inf", OUTPUT, "index", 0, "sign", 1, "one float element becomes Inf")        \
    X(ZERO_ONE, "zero_one", OUTPUT, "index", 0, "", 0, "one element becomes zero")       \
    X(BIT_FLIP, "bit_flip", OUTPUT, "index", 0, "bit", 20,                               \
      "one bit of one element flips (bit 0 is the lowest)")                              \
    X(SWAP_TWO, "swap_two", OUTPUT, "a", 0, "b", 1, "two elements change places")        \
    X(DROP_TAIL, "drop_tail", OUTPUT, "n", 1, "", 0, "the last n elements become zero")  \
    X(STALE_TAIL, "stale_tail", OUTPUT, "n", 1, "", 0,                                   \
      "the last n elements keep what was in memory")                                     \
    X(RANK_LOST, "rank_lost", RANKS, "rank", 1, "", 0,                                   \
      "a collective goes on without what this rank gave")                                \
    X(RANK_TWICE, "rank_twice", RANKS, "rank", 0, "instead", 1,                          \
      "a collective takes what `rank` gave for what `instead` gave, too")                \
    X(RANKS_BF16, "ranks_bf16", RANKS, "", 0, "", 0,                                     \
      "a collective rounds to bfloat16 after each addition")                             \
    X(RANKS_STALE, "ranks_stale", RANKS, "", 0, "", 0,                                   \
      "a collective writes nothing: outputs keep what they held")

typedef enum usc_sim_fault_kind {
#define USC_SIM_FAULT_ENUM(id, name, stage, p0, d0, p1, d1, doc) USC_SIM_FAULT_##id,
    USC_SIM_FAULT_LIST(USC_SIM_FAULT_ENUM)
#undef USC_SIM_FAULT_ENUM
        USC_SIM_N_FAULT_KINDS
} usc_sim_fault_kind;

#define USC_SIM_N_PARAMS 2

typedef struct usc_sim_fault_info {
    const char *name;
    usc_sim_stage stage;
    const char *params[USC_SIM_N_PARAMS]; /* "" where there is none */
    double defaults[USC_SIM_N_PARAMS];
    const char *doc; /* one line */
} usc_sim_fault_info;

#define USC_SIM_FAULT_TEXT 256

/* As many are planted at a time at most: one call may have to answer to them all. */
#define USC_SIM_MAX_FAULTS 32

/** One planted fault, as usc_sim_fault_get() tells of it. */
typedef struct usc_sim_fault {
    int64_t id;
    char text[USC_SIM_FAULT_TEXT]; /* as given */
    char pattern[USC_SIM_FAULT_TEXT];
    usc_sim_fault_kind kind;
    double params[USC_SIM_N_PARAMS];
    int64_t nth;       /* fires on this call only, 1-based; 0: not so limited */
    int64_t every;     /* fires on each every-th call; 1: on each */
    double p;          /* fires with this probability; 1: always */
    uint64_t seed;     /* of p: the same calls fire with the same seed */
    int64_t n_calls;   /* calls of matching operators */
    int64_t n_fired;   /* of these, how many it was applied to */
    int64_t n_changed; /* of these, how many had any bit changed by it */
} usc_sim_fault;

/** The row of a kind; NULL for other values. Memory: static. */
USC_API const usc_sim_fault_info *usc_sim_fault_info_of(usc_sim_fault_kind kind);

/**
 * Plants the faults of `text`: `PATTERN:KIND[:key=value]...`, separated by `;`. Keys are
 * the kind's parameters and `nth`, `every`, `p`, `seed`. All are planted or none.
 *
 * Memory:  *first_id (may be NULL) is the id of the first; the others follow by one.
 * Errors:  USC_E_ARG naming what is wrong, USC_E_NOMEM; *first_id is 0 then.
 */
USC_API USC_NODISCARD usc_status usc_sim_fault_plant(const char *text, int64_t *first_id,
                                                     usc_error *err);

/** Removes the fault `id`; false where there is none. */
USC_API bool usc_sim_fault_remove(int64_t id);

/** Removes every fault. */
USC_API void usc_sim_fault_clear(void);

/** Whether any fault is planted. Costs one atomic load. */
USC_API bool usc_sim_fault_planted(void);

/** Copies the `i`-th planted fault into `*out`; false (and *out zero) beyond the last. */
USC_API bool usc_sim_fault_get(size_t i, usc_sim_fault *out);

/**
 * Tells which faults fire on this call of `op_name`: counts the call for each one whose
 * pattern matches, and copies those whose time has come to `hits`, at most `n_max`.
 *
 * Returns: how many were copied. Costs one atomic load while nothing is planted.
 */
USC_API size_t usc_sim_fault_select(const char *op_name, usc_sim_fault *hits,
                                    size_t n_max);

/** Counts that fault `id` was applied to a call, and whether any bit changed. */
USC_API void usc_sim_fault_note(int64_t id, bool changed);

/**
 * Applies a fault to `n` contiguous elements: what the kind says of inputs or outputs;
 * for bf16_intermediates, rounds them.
 *
 * `before` holds what lay in the buffer before the kernel ran; only stale_tail reads it,
 * and does nothing where it is NULL.
 *
 * Returns: 1 where bits changed, 0 where it applied and none did, -1 where this kind has
 *          nothing to do with this dtype or an empty buffer.
 * Numbers: computed in double, rounded once to the dtype. NaN stays as it is.
 */
USC_API int usc_sim_fault_apply(const usc_sim_fault *fault, usc_dtype dtype, void *data,
                                const void *before, size_t n);

/** Dies as a kernel does that touches memory it must not: SIGSEGV. */
USC_API void usc_sim_crash(void);

/** Never returns; a signal that has a handler does not end it. */
USC_API void usc_sim_hang(void);

USC_END_DECLS
#endif
