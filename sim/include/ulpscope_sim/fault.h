// SPDX-License-Identifier: Apache-2.0
// Faults of the simulated accelerator as data: on which operators, of what kind, when and
// where. Text and lines of JSON say the same; what a device is known to have done wrong has
// a name. docs/reference/faults.md shows which command finds what.
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_FAULT_H
#define ULPSCOPE_SIM_FAULT_H

#include <ulpscope/dtype.h>

USC_BEGIN_DECLS

typedef enum usc_sim_stage {
    USC_SIM_STAGE_INPUT,  /* on copies of the arguments that the operator only reads */
    USC_SIM_STAGE_KERNEL, /* in place of or around the computation: the glue does it */
    USC_SIM_STAGE_NATIVE, /* the device's own kernel computes it otherwise: numerics.h */
    USC_SIM_STAGE_OUTPUT, /* on the results and on arguments that were written */
    USC_SIM_STAGE_TIME,   /* on what orders streams, "sim::wait_event", or loads a file */
    USC_SIM_STAGE_RANKS,  /* on what ranks exchange: ccl.h does it, and no operator */
} usc_sim_stage;

/* Which elements a kind changes. */
typedef enum usc_sim_on {
    USC_SIM_ON_NONE, /* no buffer: somebody else does it */
    USC_SIM_ON_F32,
    USC_SIM_ON_FLOATS,
    USC_SIM_ON_INTEGERS,
    USC_SIM_ON_BOOLS,
    USC_SIM_ON_ALL,
} usc_sim_on;

/* id, name, stage, what it is on, parameter 0 and its default, parameter 1 and its default,
 * what it does. A parameter named "" is absent. Element positions count in row-major order,
 * negative ones from the end, and wrap around the element count. */
#define USC_SIM_FAULT_LIST(X)                                                            \
    X(TF32, "tf32", INPUT, F32, "", 0, "", 0,                                            \
      "float32 inputs rounded to 10 explicit mantissa bits (biases stay)")               \
    X(BF16_INPUTS, "bf16_inputs", INPUT, FLOATS, "", 0, "", 0,                           \
      "float inputs rounded to bfloat16")                                                \
    X(FP16_INPUTS, "fp16_inputs", INPUT, FLOATS, "", 0, "", 0,                           \
      "float inputs rounded to float16")                                                 \
    X(INDEX_SHIFTED, "index_shifted", INPUT, INTEGERS, "by", 1, "", 0,                   \
      "integers that are read are off by this much, within the least and the most")      \
    X(MASK_SHIFTED, "mask_shifted", INPUT, BOOLS, "by", 1, "", 0,                        \
      "booleans that are read lie this many places further on")                          \
    X(WRONG_STRIDE, "wrong_stride", KERNEL, NONE, "", 0, "", 0,                          \
      "inputs are read as if they were contiguous")                                      \
    X(OFFSET_IGNORED, "offset_ignored", KERNEL, NONE, "", 0, "", 0,                      \
      "inputs are read from the start of their storage")                                 \
    X(BF16_INTERMEDIATES, "bf16_intermediates", KERNEL, FLOATS, "", 0, "", 0,            \
      "every result of the operator's inner operators, and its own, rounded to "         \
      "bfloat16; aten operators, which are one kernel, read rounded inputs instead")     \
    X(FP16_INTERMEDIATES, "fp16_intermediates", KERNEL, FLOATS, "", 0, "", 0,            \
      "the same with float16")                                                           \
    X(TF32_INTERMEDIATES, "tf32_intermediates", KERNEL, F32, "", 0, "", 0,               \
      "the same with float32 of 10 explicit mantissa bits")                              \
    X(STEP_PLUS_ONE, "step_plus_one", KERNEL, NONE, "amount", 1, "", 0,                  \
      "a fused optimizer computes with state_steps + amount; the stored steps stay")     \
    X(DECAY_MISAPPLIED, "decay_misapplied", KERNEL, NONE, "", 0, "", 0,                  \
      "a fused AdamW adds its weight decay to the gradient, a fused Adam shrinks the "   \
      "weights")                                                                         \
    X(OVERWRITES, "overwrites", KERNEL, NONE, "", 0, "", 0,                              \
      "what is scattered overwrites instead of being added")                             \
    X(IGNORED, "ignored", KERNEL, NONE, "", 0, "", 0,                                    \
      "`argument` is as if it had not been given (found_inf, grad_scale, ...)")          \
    X(AUTOCAST_NARROW, "autocast_narrow", KERNEL, NONE, "", 0, "", 0,                    \
      "under autocast float32 inputs are rounded to its dtype, as if the operator "      \
      "stood "                                                                           \
      "in its other list")                                                               \
    X(OFFSET_KEPT, "offset_kept", KERNEL, NONE, "", 0, "", 0,                            \
      "a generator does not move on: the next call draws the same numbers")              \
    X(NAN_BEYOND, "nan_beyond", KERNEL, NONE, "limit", 44, "", 0,                        \
      "NaN where the first argument's magnitude is above limit")                         \
    X(ROWS_LOST, "rows_lost", KERNEL, NONE, "n", 1, "", 0, "results have n rows less")   \
    X(WRITES_OUTSIDE, "writes_outside", KERNEL, NONE, "", 0, "", 0,                      \
      "what lies behind a written view in its storage becomes zero")                     \
    X(CRASH, "crash", KERNEL, NONE, "", 0, "", 0, "the kernel dies with SIGSEGV")        \
    X(HANG, "hang", KERNEL, NONE, "", 0, "", 0, "the kernel never returns")              \
    X(LACKING, "lacking", KERNEL, NONE, "", 0, "", 0, "the device has no such operator") \
    X(CPU_FALLBACK, "cpu_fallback", KERNEL, NONE, "", 0, "", 0,                          \
      "the CPU computes it, and a warning says so")                                      \
    X(ACCUMULATE_BF16, "accumulate_bf16", NATIVE, NONE, "", 0, "", 0,                    \
      "sums are kept in bfloat16")                                                       \
    X(ACCUMULATE_FP16, "accumulate_fp16", NATIVE, NONE, "", 0, "", 0,                    \
      "sums are kept in float16")                                                        \
    X(TERM_MISSING, "term_missing", NATIVE, NONE, "index", 0, "", 0,                     \
      "sums lack this term")                                                             \
    X(TERM_TWICE, "term_twice", NATIVE, NONE, "index", 0, "", 0,                         \
      "sums have this term twice")                                                       \
    X(REST_MISSING, "rest_missing", NATIVE, NONE, "of", 32, "", 0,                       \
      "sums lack what is left over of whole groups of this size")                        \
    X(EPSILON_OUTSIDE, "epsilon_outside", NATIVE, NONE, "", 0, "", 0,                    \
      "a norm adds its epsilon behind the root")                                         \
    X(VARIANCE_UNBIASED, "variance_unbiased", NATIVE, NONE, "", 0, "", 0,                \
      "a norm divides its variance by n - 1")                                            \
    X(VARIANCE_MOMENTS, "variance_moments", NATIVE, NONE, "", 0, "", 0,                  \
      "a norm takes its variance as E[x^2] - E[x]^2")                                    \
    X(SCALE_BF16, "scale_bf16", NATIVE, NONE, "", 0, "", 0,                              \
      "a norm rounds the factor of a row to bfloat16")                                   \
    X(CAUSAL_LEAK, "causal_leak", NATIVE, NONE, "rows", 4, "", 0,                        \
      "attention masks the future once for this many queries")                           \
    X(BF16_OUTPUT, "bf16_output", OUTPUT, FLOATS, "", 0, "", 0,                          \
      "floats rounded to bfloat16")                                                      \
    X(FP16_OUTPUT, "fp16_output", OUTPUT, FLOATS, "", 0, "", 0,                          \
      "floats rounded to float16")                                                       \
    X(TRUNCATE, "truncate", OUTPUT, FLOATS, "bits", 8, "", 0,                            \
      "the last mantissa bits of floats cut off instead of rounded")                     \
    X(ROUND_AWAY, "round_away", OUTPUT, FLOATS, "bits", 8, "", 0,                        \
      "floats rounded away from zero to this many bits less")                            \
    X(ROUND_STOCHASTIC, "round_stochastic", OUTPUT, FLOATS, "bits", 8, "", 0,            \
      "floats rounded up or down by chance to this many bits less")                      \
    X(FLUSH_SUBNORMALS, "flush_subnormals", OUTPUT, FLOATS, "", 0, "", 0,                \
      "subnormal floats become zero of their sign")                                      \
    X(SATURATE, "saturate", OUTPUT, FLOATS, "most", 448, "", 0,                          \
      "floats of larger magnitude, Inf too, become this one")                            \
    X(NAN_SWALLOWED, "nan_swallowed", OUTPUT, FLOATS, "value", 0, "", 0,                 \
      "NaN becomes value")                                                               \
    X(SCALE, "scale", OUTPUT, FLOATS, "factor", 1.01, "", 0,                             \
      "floats multiplied by factor")                                                     \
    X(DRIFT, "drift", OUTPUT, FLOATS, "rate", 1e-3, "", 0,                               \
      "floats multiplied by 1 + rate times the number of the call")                      \
    X(OFFSET, "offset", OUTPUT, FLOATS, "value", 0.01, "", 0, "value added to floats")   \
    X(CONSTANT, "constant", OUTPUT, ALL, "value", 1, "", 0, "every element is value")    \
    X(NAN, "nan", OUTPUT, FLOATS, "index", 0, "", 0, "one float element becomes NaN")    \
    X(INF, "inf", OUTPUT, FLOATS, "index", 0, "sign", 1,                                 \
      "one float element becomes Inf")                                                   \
    X(ZERO_ONE, "zero_one", OUTPUT, ALL, "index", 0, "", 0, "one element becomes zero")  \
    X(BIT_FLIP, "bit_flip", OUTPUT, ALL, "index", 0, "bit", 20,                          \
      "one bit of one element flips (bit 0 is the lowest)")                              \
    X(BIT_FLIPS, "bit_flips", OUTPUT, ALL, "index", 0, "n", 3,                           \
      "n bits of one element flip, drawn by seed")                                       \
    X(CARRY, "carry", OUTPUT, ALL, "index", 0, "bit", 20,                                \
      "one element is read as an integer and 2^bit added")                               \
    X(STUCK_BIT, "stuck_bit", OUTPUT, ALL, "bit", 20, "to", 1,                           \
      "one bit of every element is always 0 or 1")                                       \
    X(STUCK_LANE, "stuck_lane", OUTPUT, ALL, "lane", 0, "lanes", 32,                     \
      "every lanes-th element, from lane on, has the value of the first of them")        \
    X(SWAP_TWO, "swap_two", OUTPUT, ALL, "a", 0, "b", 1, "two elements change places")   \
    X(TWO_RUNS, "two_runs", OUTPUT, ALL, "", 0, "", 0,                                   \
      "elements are sorted, those of even place first")                                  \
    X(DROP_TAIL, "drop_tail", OUTPUT, ALL, "n", 1, "", 0,                                \
      "the last n elements become zero")                                                 \
    X(STALE_TAIL, "stale_tail", OUTPUT, ALL, "n", 1, "", 0,                              \
      "the last n elements keep what was in memory")                                     \
    X(SHIFTED_TAIL, "shifted_tail", OUTPUT, ALL, "n", 8, "", 0,                          \
      "the last n elements lie one place further on")                                    \
    X(RECYCLED_TAIL, "recycled_tail", OUTPUT, ALL, "n", 8, "", 0,                        \
      "the last n elements are the first n once more")                                   \
    X(PARTIAL_TILE, "partial_tile", OUTPUT, ALL, "tile", 32, "", 0,                      \
      "what is left over of whole tiles in a row becomes zero")                          \
    X(ROW_TAIL, "row_tail", OUTPUT, ALL, "from", 16, "", 0,                              \
      "elements of a row from this one on become zero")                                  \
    X(UNWRITTEN, "unwritten", OUTPUT, ALL, "", 0, "", 0,                                 \
      "results keep what was in memory")                                                 \
    X(INPLACE_LOST, "inplace_lost", OUTPUT, ALL, "", 0, "", 0,                           \
      "arguments that are written keep what they held")                                  \
    X(EARLY, "early", TIME, NONE, "", 0, "", 0,                                          \
      "goes on without waiting: of sim::wait_event, wait_stream, record_stream, "        \
      "synchronize, copy")                                                               \
    X(STORAGE_LOST, "storage_lost", TIME, NONE, "", 0, "", 0,                            \
      "a storage that torch.load brings onto the device is never written: of sim::load") \
    X(RANK_LOST, "rank_lost", RANKS, NONE, "rank", 1, "", 0,                             \
      "a collective goes on without what this rank gave")                                \
    X(RANK_TWICE, "rank_twice", RANKS, NONE, "rank", 0, "instead", 1,                    \
      "a collective takes what `rank` gave for what `instead` gave, too")                \
    X(RANKS_BF16, "ranks_bf16", RANKS, NONE, "", 0, "", 0,                               \
      "a collective rounds to bfloat16 after each addition")                             \
    X(RANKS_SUM, "ranks_sum", RANKS, NONE, "", 0, "", 0,                                 \
      "a collective adds up, whatever it was asked for")                                 \
    X(RANKS_STALE, "ranks_stale", RANKS, NONE, "", 0, "", 0,                             \
      "a collective writes nothing: outputs keep what they held")                        \
    X(RANKS_AGAIN, "ranks_again", RANKS, NONE, "", 0, "", 0,                             \
      "a collective that adds up counts everything twice")                               \
    X(RANKS_LAST, "ranks_last", RANKS, NONE, "", 0, "", 0,                               \
      "a collective gives what the one before it gave, as far as that reaches")

typedef enum usc_sim_fault_kind {
#define USC_SIM_FAULT_ENUM(id, name, stage, on, p0, d0, p1, d1, doc) USC_SIM_FAULT_##id,
    USC_SIM_FAULT_LIST(USC_SIM_FAULT_ENUM)
#undef USC_SIM_FAULT_ENUM
        USC_SIM_N_FAULT_KINDS
} usc_sim_fault_kind;

#define USC_SIM_N_PARAMS 2

typedef struct usc_sim_fault_info {
    const char *name;
    usc_sim_stage stage;
    usc_sim_on on;
    const char *params[USC_SIM_N_PARAMS]; /* "" where there is none */
    double defaults[USC_SIM_N_PARAMS];
    const char *doc; /* one line */
} usc_sim_fault_info;

#define USC_SIM_FAULT_TEXT 512
#define USC_SIM_FAULT_WORD 40

typedef enum usc_sim_layout {
    USC_SIM_ANY_LAYOUT,
    USC_SIM_STRIDED,       /* an argument is not contiguous */
    USC_SIM_CHANNELS_LAST, /* an argument is channels_last */
} usc_sim_layout;

/** One planted fault, as usc_sim_fault_get() tells of it. */
typedef struct usc_sim_fault {
    int64_t id;
    char text[USC_SIM_FAULT_TEXT]; /* as given */
    char pattern[USC_SIM_FAULT_TEXT];
    usc_sim_fault_kind kind;
    double params[USC_SIM_N_PARAMS];
    int64_t output; /* changes this result or written argument only; -1: all */
    /* when: of calls that meet what follows ... */
    int64_t step, rank, stream;     /* -1: any */
    char dtype[USC_SIM_FAULT_WORD]; /* pattern of the first tensor's; "": any */
    usc_sim_layout layout;
    int64_t remainder;                 /* the last axis is no multiple of it; 0: any */
    int64_t more;                      /* the first tensor has more elements; -1: any */
    char argument[USC_SIM_FAULT_WORD]; /* is given, and not nothing; "": any */
    /* ... these */
    int64_t nth;   /* fires on this call only, 1-based; 0: not so limited */
    int64_t every; /* fires on each every-th call; 1: on each */
    double p;      /* fires with this probability; 1: always */
    uint64_t seed; /* of p: the same calls fire with the same seed */
    /* where: elements that it changes */
    bool has_index;
    int64_t index;           /* this one */
    int64_t tile, tile_size; /* the tile-th tile_size elements; -1: all */
    int64_t lane, lanes;     /* every lanes-th, from lane on; -1: all */
    int64_t n_calls;         /* calls of matching operators */
    int64_t n_fired;         /* of these, how many it was applied to */
    int64_t n_changed;       /* of these, how many had any bit changed by it */
} usc_sim_fault;

/** The row of a kind; NULL for other values. Memory: static. */
USC_API const usc_sim_fault_info *usc_sim_fault_info_of(usc_sim_fault_kind kind);

/**
 * Plants the faults of `text`: `PATTERN:KIND[:key=value]...`, separated by `;`, `bug:NAME`
 * of usc_sim_bug(), and `@FILE` of lines of JSON. Keys are the kind's parameters and what
 * usc_sim_fault has of when and where. All are planted or none.
 *
 * Memory:  *first_id (may be NULL) is the id of the first; the others follow by one.
 * Errors:  USC_E_ARG naming what is wrong and what comes nearest, USC_E_IO, USC_E_NOMEM;
 *          *first_id is 0 then.
 */
USC_API USC_NODISCARD usc_status usc_sim_fault_plant(const char *text, int64_t *first_id,
                                                     usc_error *err);

/**
 * Plants the faults of lines of JSON, one a line: `{"ops": PATTERN, "kind": NAME, "output":
 * 0, "params": {...}, "when": {"nth": 3, ...}, "where": {"lane": 5, ...}}`, or `{"bug":
 * NAME}`. Empty lines and those that begin with # are passed over. `name` begins the text of
 * an error: "faults.jsonl:3: ...". All are planted or none.
 *
 * Memory, Errors: as usc_sim_fault_plant(); err->where is the line, from 1.
 */
USC_API USC_NODISCARD usc_status usc_sim_fault_plant_lines(const char *lines,
                                                           const char *name,
                                                           int64_t *first_id,
                                                           usc_error *err);

/** A bug that devices are known to have had: its name, the faults that do alike and where
 * it was told; false beyond the last. Memory: static. */
USC_API bool usc_sim_bug(size_t i, const char **name, const char **faults,
                         const char **link);

/** Removes the fault `id`; false where there is none. */
USC_API bool usc_sim_fault_remove(int64_t id);

/** Removes every fault. */
USC_API void usc_sim_fault_clear(void);

/** Whether any fault is planted. Costs one atomic load. */
USC_API bool usc_sim_fault_planted(void);

/** Copies the `i`-th planted fault into `*out`; false (and *out zero) beyond the last. */
USC_API bool usc_sim_fault_get(size_t i, usc_sim_fault *out);

/** Which step and rank this process is at, for faults that ask: 0 and 0 at the start. */
USC_API void usc_sim_fault_set_step(int64_t step);
USC_API int64_t usc_sim_fault_step(void);
USC_API void usc_sim_fault_set_rank(int64_t rank);

/** A call as faults see it. */
typedef struct usc_sim_call {
    const char *op;  /* ns::name.overload */
    int64_t stream;  /* -1: none */
    usc_dtype dtype; /* of its first tensor */
    bool strided,
        has_last;         /* arguments that are not contiguous, that are channels_last */
    int64_t n_columns, n; /* of its first tensor: last axis, elements */
    const void *ctx;      /* for `given` */
    bool (*given)(const void *ctx, const char *argument); /* NULL: none is */
} usc_sim_call;

/**
 * Tells which faults fire on this call: counts it for each one whose pattern and conditions
 * it meets, and gives those whose time has come.
 *
 * Returns: how many, in *hits (NULL for none). Costs one atomic load while nothing is
 *          planted; where there is no memory, none fires.
 * Memory:  *hits is the caller's to free().
 */
USC_API size_t usc_sim_fault_select(const usc_sim_call *call, usc_sim_fault **hits);

/** Whether a call of the operator may have to answer to a fault of its kernel; counts
 * nothing. Costs one atomic load while nothing is planted. */
USC_API bool usc_sim_fault_concerns(const char *op);

/** Whether `early` fires on what orders streams, "sim::wait_event". */
USC_API bool usc_sim_fault_early(const char *op, int64_t stream);

/** Whether `storage_lost` fires on a storage that is loaded from a file, "sim::load". */
USC_API bool usc_sim_fault_storage_lost(void);

/** Counts that fault `id` was applied to a call, and whether any bit changed. */
USC_API void usc_sim_fault_note(int64_t id, bool changed);

/** Elements in row-major order, for usc_sim_fault_apply(). */
typedef struct usc_sim_elements {
    usc_dtype dtype;
    void *data;
    const void *before;  /* what lay there before the kernel ran; NULL: nobody knows */
    size_t n, n_columns; /* n_columns: of a row; 0: all are one */
} usc_sim_elements;

/** Whether a kind puts back what lay in the buffer before. */
USC_API bool usc_sim_fault_wants_before(usc_sim_fault_kind kind);

/**
 * Applies a fault to elements: what the kind says of inputs or outputs; for intermediates,
 * rounds them. Only those that its `where` selects change.
 *
 * Returns: 1 where bits changed, 0 where it applied and none did, -1 where this kind has
 *          nothing to do with this dtype or an empty buffer, or there is no memory.
 * Numbers: computed in double, rounded once to the dtype. NaN stays as it is.
 */
USC_API int usc_sim_fault_apply(const usc_sim_fault *fault, const usc_sim_elements *e);

/** Dies as a kernel does that touches memory it must not: SIGSEGV. */
USC_API void usc_sim_crash(void);

/** Never returns, unless what usc_sim_on_wait() was given says so: the kernel's caller is to
 * give up then, with an error. */
USC_API void usc_sim_hang(void);

USC_END_DECLS
#endif
