// SPDX-License-Identifier: Apache-2.0
// Watching a training run for silent corruption: statistics of tensors in, step by step,
// events out, with the tensor and the rank named. Nothing here reads a clock, a tensor or
// the environment: who watches feeds numbers and says what time it is.
// docs/reference/watch-reference.md has each rule with its formula.
//
// Threads: one thread at a time per watch; different watches are independent.
// Memory:  bounded. A watch of T tensors on W ranks holds at most
//          USC_WATCH_SERIES_BYTES for each (tensor, rank, site) that was ever fed and for
//          each detector that reads that site (usc_watch_bytes tells), the rows of the
//          steps not yet decided, and USC_WATCH_EVENTS events.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_WATCH_H
#define ULPSCOPE_X_WATCH_H

#include <stdio.h>

#include <ulpscope/dtype.h>
#include <ulpscope/status.h>

USC_BEGIN_DECLS

/* What a row is of; id, name. GRAD before the reduction over ranks, REDUCED after it;
 * WEIGHT after the optimizer's step, WEIGHT_BEFORE before the next use, MOMENT1 and
 * MOMENT1_BEFORE (MOMENT2 likewise) of what the optimizer keeps; UPDATE is the
 * difference that the step made; of LOSS, MATMUL, COLLECTIVE `value` alone counts (MATMUL
 * and COLLECTIVE: error / bound, above 1 is wrong; in mode asd a matmul's is 1 where its
 * checksum is abnormal); of REPLAY the hash, and `value` is the rank whose micro-batch it
 * was; -1: the rank itself has found it computed wrongly; -2: with other bits at each of
 * three runs, where earlier micro-batches had the same. MATMUL_INPUT and MATMUL_WEIGHT
 * are the two products of a matmul's backward; the hash of COLLECTIVE is 3 where all
 * ranks have the same, 4 of a weight that was gathered; that of all three products 1
 * where the product is right when computed again, 2 where it is wrong again, 0 where
 * nobody did. */
#define USC_WATCH_SITE_LIST(X)                                                           \
    X(GRAD, "grad")                                                                      \
    X(REDUCED, "reduced")                                                                \
    X(WEIGHT, "weight")                                                                  \
    X(WEIGHT_BEFORE, "weight_before")                                                    \
    X(MOMENT1, "moment1")                                                                \
    X(MOMENT2, "moment2")                                                                \
    X(UPDATE, "update")                                                                  \
    X(LOSS, "loss")                                                                      \
    X(MATMUL, "matmul")                                                                  \
    X(COLLECTIVE, "collective")                                                          \
    X(REPLAY, "replay")                                                                  \
    X(MATMUL_INPUT, "matmul_input")                                                      \
    X(MATMUL_WEIGHT, "matmul_weight")                                                    \
    X(MOMENT1_BEFORE, "moment1_before")                                                  \
    X(MOMENT2_BEFORE, "moment2_before")

typedef enum usc_watch_site {
#define USC_WATCH_SITE_ENUM(id, name) USC_WATCH_##id,
    USC_WATCH_SITE_LIST(USC_WATCH_SITE_ENUM)
#undef USC_WATCH_SITE_ENUM
        USC_N_WATCH_SITES
} usc_watch_site;

/** Name of a site: "grad"; "unknown" for other values. Memory: static. */
USC_API const char *usc_watch_site_text(usc_watch_site site);

/** Whether `name` is a site's, which is then in *out. */
USC_API bool usc_watch_site_by_name(const char *name, usc_watch_site *out);

/* Detectors; id, name, whether mode sound has it, what it finds. Those of other tools
 * (from ASD on) are here to be held against. */
#define USC_WATCH_DETECTOR_LIST(X)                                                       \
    X(TEMPORAL, "temporal", true, "gradients unlike their own last 64 values")           \
    X(RANKS, "ranks", true, "gradients of one rank unlike those of its peers")           \
    X(REPLICAS, "replicas", true, "copies on several ranks that are not the same bits")  \
    X(WEIGHTS, "weights", true, "weights and moments that changed between two steps")    \
    X(COLLECTIVES, "collectives", true, "a reduction that lost or doubled something")    \
    X(MATMULS, "matmuls", true, "a matmul outside the bound of its roundings")           \
    X(DEAD, "dead", true, "gradients and updates that became zero")                      \
    X(RATIO, "ratio", true, "updates of an unusual size for their weights")              \
    X(MOMENTS, "moments", true, "optimizer state unlike its own past")                   \
    X(AUDIT, "audit", true, "a micro-batch that a neighbour computes otherwise")         \
    X(ASD, "asd", false, "torch_npu's feature value detection, version 3")               \
    X(ASD2, "asd-v2", false, "the same, version 2, as documented")                       \
    X(MEGATRON, "megatron", false, "10 times the largest of the first 100 norms")        \
    X(TURBULENCE, "turbulence", false, "msprobe's share above a moving average")         \
    X(ZSCORE, "zscore", false, "z-score of the global norm over 100 steps")              \
    X(NAN, "nan", false, "NaN and Inf alone")

typedef enum usc_watch_detector {
#define USC_WATCH_DETECTOR_ENUM(id, name, sound, what) USC_WATCH_BY_##id,
    USC_WATCH_DETECTOR_LIST(USC_WATCH_DETECTOR_ENUM)
#undef USC_WATCH_DETECTOR_ENUM
        USC_N_WATCH_DETECTORS
} usc_watch_detector;

/** Name of a detector: "temporal"; "unknown" for other values. Memory: static. */
USC_API const char *usc_watch_detector_text(usc_watch_detector detector);

/** What it finds, in a few words; "" for other values. Memory: static. */
USC_API const char *usc_watch_detector_about(usc_watch_detector detector);

/* Kinds of events; id, name, level (the logger's: "info", "warning"). The last five are
 * of mode asd, whose sentences are its log texts. */
#define USC_WATCH_KIND_LIST(X)                                                           \
    X(SPIKE, "spike", "warning")         /* far above its past */                        \
    X(DROP, "drop", "warning")           /* far below it */                              \
    X(OUTLIER, "outlier", "warning")     /* one element far above the others */          \
    X(SHIFT, "shift", "warning")         /* what was said of it has become lasting */    \
    X(NONFINITE, "nonfinite", "warning") /* NaN or Inf */                                \
    X(RANK, "rank", "warning")           /* one rank unlike its peers */                 \
    X(REPLICA, "replica", "warning")     /* copies differ, the majority names it */      \
    X(UNDECIDED, "undecided", "warning") /* copies differ, without a majority */         \
    X(CHANGED, "changed", "warning")     /* a weight changed between steps */            \
    X(COLLECTIVE_WRONG, "collective", "warning")                                         \
    X(MATMUL_WRONG, "matmul", "warning")                                                 \
    X(ZERO, "zero", "warning")   /* a gradient has become zero */                        \
    X(STILL, "still", "warning") /* a weight no longer moves */                          \
    X(RATIO_WRONG, "ratio", "warning")                                                   \
    X(REPLAY_DIFFERS, "replay", "warning")                                               \
    X(ASD_EVENT, "asd_event", "info")                                                    \
    X(ASD_WARNING, "asd_warning", "warning")                                             \
    X(CHECKSUM_ON, "checksum_on", "info")                                                \
    X(CHECKSUM_OFF, "checksum_off", "info")                                              \
    X(CHECKSUM_ABNORMAL, "checksum_abnormal", "warning")

typedef enum usc_watch_kind {
#define USC_WATCH_KIND_ENUM(id, name, level) USC_WATCH_##id,
    USC_WATCH_KIND_LIST(USC_WATCH_KIND_ENUM)
#undef USC_WATCH_KIND_ENUM
        USC_N_WATCH_KINDS
} usc_watch_kind;

/** Name and level of a kind; "unknown" for other values. Memory: static. */
USC_API const char *usc_watch_kind_text(usc_watch_kind kind);
USC_API const char *usc_watch_kind_level(usc_watch_kind kind);

/* ---- configuration ---- */

typedef enum usc_watch_mode { USC_WATCH_SOUND, USC_WATCH_ASD } usc_watch_mode;

/* What is done where something is abnormal; id, name. It is for who feeds a watch:
 * nothing here acts. */
#define USC_WATCH_REACTION_LIST(X)                                                       \
    X(LOG, "log")                                                                        \
    X(SKIP, "skip")                                                                      \
    X(RAISE, "raise")                                                                    \
    X(STOP, "stop")

typedef enum usc_watch_reaction {
#define USC_WATCH_REACTION_ENUM(id, name) USC_WATCH_DO_##id,
    USC_WATCH_REACTION_LIST(USC_WATCH_REACTION_ENUM)
#undef USC_WATCH_REACTION_ENUM
        USC_N_WATCH_REACTIONS
} usc_watch_reaction;

/** Name of a reaction: "log"; "unknown" for other values. Memory: static. */
USC_API const char *usc_watch_reaction_text(usc_watch_reaction reaction);

/* Keys of a configuration; name (also the member's), default, least, most, what it is.
 * Those up to grad_sample_interval are NPU_ASD_CONFIG's own, with its defaults; those
 * from weights_every on say what is read and done while a program trains, and change
 * nothing here. */
#define USC_WATCH_KEY_LIST(X)                                                            \
    X(cooldown, 5, 1, INT32_MAX, "minutes in which further anomalies count as one")      \
    X(strikes_num, 3, 1, INT32_MAX, "anomalies until a warning")                         \
    X(strikes_window, 480, 1, INT32_MAX, "minutes within which they count")              \
    X(checksum_cooldown, 180, 1, INT32_MAX, "minutes between two times of checksum")     \
    X(upper_thresh1, 1000000, 3, INT32_MAX, "how much above the average is abnormal")    \
    X(upper_thresh2, 100, 3, INT32_MAX, "how much above it does not enter the average")  \
    X(grad_sample_interval, 3, 1, INT32_MAX, "one of so many gradients is looked at")    \
    X(deviations, 12, 4, 1000, "robust deviations from its past that are abnormal")      \
    X(dead_steps, 2, 1, 1000000, "steps of zeros that are abnormal")                     \
    X(weights_every, 20, 1, INT32_MAX, "weights are read at one of so many steps")       \
    X(matmul_every, 0, 0, INT32_MAX, "one of so many matmuls is checked, 0: none")       \
    X(audit, 0, 0, INT32_MAX, "one of so many micro-batches is computed again")          \
    X(neighbour, 0, 0, INT32_MAX, "one of so many by the next rank")                     \
    X(keep_calls, 0, 0, INT32_MAX, "the last so many calls are kept for a trace")        \
    X(exit_code, 3, 1, 255, "of a job that is stopped")                                  \
    X(stop_after, 0, 0, INT32_MAX, "the job ends after so many steps, 0: never")

/** Zero it and call usc_watch_config_init. */
typedef struct usc_watch_config {
    usc_watch_mode mode;
    bool enable, with_checksum;
    bool loss_scaling; /* a loss scaler is at work: Inf for some steps is no fault */
    int32_t world;     /* ranks; rows have 0 .. world - 1 */
    usc_watch_reaction action;
    uint32_t detectors; /* one bit for each, 1 << usc_watch_detector */
#define USC_WATCH_KEY_MEMBER(name, initial, least, most, about) int64_t name;
    USC_WATCH_KEY_LIST(USC_WATCH_KEY_MEMBER)
#undef USC_WATCH_KEY_MEMBER
    char remark[256]; /* values that mode asd left for its defaults, a sentence each */
} usc_watch_config;

/** The defaults of a mode: of asd those of NPU_ASD_CONFIG (enable is false), of sound all
 * its detectors (enable is true). World 1. */
USC_API void usc_watch_config_init(usc_watch_config *config, usc_watch_mode mode);

/**
 * Changes `config` by a text "k:v,k:v": the keys above; enable, with_checksum and
 * loss_scaling with true or false; mode with sound or asd, which comes first where it is
 * there; world; detectors with names joined by "+"; action with the name of a reaction.
 * "" changes nothing.
 *
 * In mode asd a number of NPU_ASD_CONFIG's own keys that is out of its limits leaves the
 * default, as torch_npu does; `remark` then says so.
 *
 * Errors:  USC_E_ARG, with the nearest key, or the limits of the value; `*config` is as
 *          it was. Stricter than NPU_ASD_CONFIG's own reader, which drops keys that it
 *          does not know without a word.
 */
USC_API USC_NODISCARD usc_status usc_watch_config_parse(usc_watch_config *config,
                                                        const char *text, usc_error *err);

/** The same for a list "temporal,asd" of detectors alone. Errors: USC_E_ARG. */
USC_API USC_NODISCARD usc_status usc_watch_detectors_parse(const char *text,
                                                           uint32_t *out, usc_error *err);

/* ---- a watch ---- */

#define USC_WATCH_SERIES_BYTES 512 /* at most, for one (tensor, rank, site, detector) */
#define USC_WATCH_EVENTS 4096      /* that wait to be taken; further ones are counted */
#define USC_WATCH_MOST_TENSORS 10000000
#define USC_WATCH_MOST_RANKS 1000000

/** What one tensor was at one step on one rank. numel 0: nothing but `value` is known,
 * the L2 norm of a gradient; that 0, too: the hash alone, as of a reduced gradient that
 * is the same on all ranks and whose statistics one of them has fed. A hash64 of 0 is
 * none.
 */
typedef struct usc_watch_row {
    int64_t step;
    int32_t rank;
    usc_watch_site site;
    int64_t tensor;                  /* as usc_watch_tensor gave it; -1: of none */
    double max_abs, sum_abs, sum_sq; /* over the finite elements */
    int64_t numel, n_nonfinite, n_zero;
    uint64_t hash64;
    double value;
} usc_watch_row;

typedef struct usc_watch_event {
    int64_t step;
    usc_watch_kind kind;
    usc_watch_detector detector;
    int64_t tensor;       /* -1: of no single one */
    const char *name;     /* of the tensor; "" */
    int32_t rank;         /* -1: not known */
    double score;         /* in the detector's own unit */
    double threshold;     /* above which it is abnormal */
    const char *sentence; /* what was seen */
    const char *action;   /* what to type next; "{trace}" stands for a trace's folder */
} usc_watch_event;

typedef struct usc_watch usc_watch;

/** Memory: *out is freed by usc_watch_free; NULL after an error. Errors: USC_E_RANGE (a
 * world out of 1 .. USC_WATCH_MOST_RANKS), USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_watch_create(const usc_watch_config *config,
                                                  usc_watch **out, usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_watch_free(usc_watch *w);

/** What is known of a tensor before its first row. */
typedef struct usc_watch_tensor_info {
    const char *name; /* "layers.0.fc.weight"; of a parameter with its module */
    usc_dtype dtype;
    int ndim;     /* mode asd looks at those of 2 and more; 0: taken as 2 */
    bool sharded; /* each rank has another part: hashes are not held against each other */
} usc_watch_tensor_info;

/**
 * Makes a tensor known; *id counts from 0. A name that is known already gives its id, and
 * takes on what else has changed.
 *
 * Memory:  the name is copied.
 * Errors:  USC_E_ARG (no name), USC_E_RANGE (USC_WATCH_MOST_TENSORS), USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_watch_tensor(usc_watch *w,
                                                  const usc_watch_tensor_info *info,
                                                  int64_t *id, usc_error *err);

/** How many there are. */
USC_API int64_t usc_watch_n_tensors(const usc_watch *w);

/**
 * Takes rows, in any order and in pieces of any size: they are decided by usc_watch_step.
 * Two rows of one step, rank, site and tensor become one: sums add, hashes too.
 *
 * Memory:  copied.
 * Errors:  USC_E_RANGE (a rank, site, tensor, step or number of elements that is none;
 *          err->where: row): none of these rows is taken. USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_watch_feed(usc_watch *w, const usc_watch_row *rows,
                                                size_t n, usc_error *err);

/**
 * Decides all rows of steps up to `step`, in the order of their steps. Rows that come
 * later, of a rank that is slow, are decided with the next call, among themselves.
 *
 * Units:   seconds of a clock that does not go back; one that does counts as standing
 *          still.
 * Errors:  USC_E_NOMEM: rows that were not decided are lost.
 */
USC_API USC_NODISCARD usc_status usc_watch_step(usc_watch *w, int64_t step,
                                                double seconds, usc_error *err);

/** Takes the next event; false where there is none. Memory: its texts until the next call
 * with `w`. */
USC_API bool usc_watch_next(usc_watch *w, usc_watch_event *event);

/** Events that had no room, since the beginning. */
USC_API int64_t usc_watch_n_lost(const usc_watch *w);

/** The largest score / threshold of all that was decided by the last usc_watch_step;
 * above 1 something was abnormal. For operating curves. */
USC_API double usc_watch_score(const usc_watch *w);

/** Whether mode asd wants matmuls to be checked now: rows of site MATMUL then. */
USC_API bool usc_watch_wants_checksum(const usc_watch *w);

/** Bytes that the state of its detectors takes. */
USC_API int64_t usc_watch_bytes(const usc_watch *w);

/* ---- over a restart ---- */

/**
 * Writes the state: what detectors know of tensors, by their names. Rows not yet decided
 * and events not yet taken are left out.
 *
 * Memory:  *bytes is freed by usc_watch_saved_free.
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_watch_save(const usc_watch *w, void **bytes,
                                                size_t *size, usc_error *err);
USC_API void usc_watch_saved_free(void *bytes);

/**
 * Takes over a state. Tensors are found by name: ones that are not known here become
 * known; ranks beyond the world of `w` and detectors that it has not are left out; what
 * the state lacks begins anew.
 *
 * Errors:  USC_E_CORRUPT (cut short, damaged), USC_E_VERSION, USC_E_NOMEM: begin without
 *          it then, with a new watch.
 */
USC_API USC_NODISCARD usc_status usc_watch_load(usc_watch *w, const void *bytes,
                                                size_t size, usc_error *err);

USC_END_DECLS
#endif
