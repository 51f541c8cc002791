// SPDX-License-Identifier: Apache-2.0
// The coordinator: hands the calls of a trace to worker processes and keeps what they
// find. A worker is any program that speaks the line protocol
// (docs/background/architecture.md); one that dies or hangs costs the call that it held.
// Neighbours: call.h (which calls), result.h (what is kept).
//
// Threads: safe; a run calls its hooks in the thread that started it.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_RUN_H
#define ULPSCOPE_X_RUN_H

#include <ulpscope/call.h>
#include <ulpscope/result.h>

USC_BEGIN_DECLS

#define USC_RUN_TIMEOUT 120.0 /* seconds that one call may take */
#define USC_RUN_REPEAT 2      /* runs of a call on the device */
#define USC_RUN_CAUSES 2.0    /* seconds for the cause of one finding */

/* What a rank is answered that is no share. */
enum { USC_SHARE_LATER = -1, USC_SHARE_OVER = -2, USC_SHARE_LOST = -3 };

/**
 * Processes that check one trace together (docs/reference/ranks.md). All choose the same
 * calls, cut them into the same shares and claim these; rank 0 writes OUT, the others
 * OUT/part-N, and rank 0 takes that in at the end.
 */
typedef struct usc_run_ranks {
    void *ctx;
    int rank, n;
    /* Rank 0: the others may begin; 0. Others: waits for that; 0, USC_SHARE_OVER where
     * there is nothing for them to do, USC_SHARE_LOST where rank 0 is gone. */
    int (*meet)(void *ctx);
    /* A share that is nobody's, without waiting; USC_SHARE_LATER: others work on all that
     * are left, USC_SHARE_OVER: all are done (and rank 0 hears it last), USC_SHARE_LOST:
     * nobody will ever tell. 0 shares: none is wanted, for the time is over;
     * USC_SHARE_OVER as soon as the others, too, are done with theirs. */
    int64_t (*claim)(void *ctx, int64_t n_shares);
    void (*done)(void *ctx, int64_t share);
} usc_run_ranks;

/** What a run needs of its surroundings. Whatever is NULL is left out, but `command`. */
typedef struct usc_run_hooks {
    void *ctx;
    /* The command of a worker: NULL-terminated arguments, to which two are added (see the
     * protocol); NULL after a set error. Asked once, before the first worker starts. */
    char *const *(*command)(void *ctx, usc_error *err);
    char *const *environment; /* of the workers, NULL-terminated; NULL: empty */
    /* One sentence for the user. */
    void (*say)(void *ctx, const char *text);
    /* `done` of `total` are done; `what` is "checking" or "self-test". */
    void (*progress)(void *ctx, const char *what, int64_t done, int64_t total,
                     int64_t flagged);
    /* Of drawn cases, before progress is told: from how many operators those so far were
     * drawn. */
    void (*covered)(void *ctx, int64_t n_operators);
    /* Of calls of a trace, before progress is told: how many calls as those so far took
     * what is left amounts to. */
    void (*expected)(void *ctx, double n_calls);
    /* Whether to stop now: asked at least once a second, and after each signal. */
    bool (*stopped)(void *ctx);
    const usc_run_ranks *ranks; /* usc_check_trace alone; NULL: no others */
} usc_run_hooks;

/** Cases that are drawn from the calls of a trace, in place of those calls (fuzz.h). */
typedef struct usc_fuzz_options {
    uint64_t seed;
    int64_t n_cases;     /* how many in all, those of earlier parts of the run too */
    const int64_t *list; /* their numbers, ascending; NULL: from 0 on */
    bool stress;
    bool signatures; /* each example as it is first, then what is drawn */
    bool relations;  /* cases that pass are put once more, in another form */
    bool programs;   /* short programs, each with the operator of a call of the trace */
} usc_fuzz_options;

#define USC_FUZZ_CASES INT64_C(1000000000000) /* as many as there is time for */

/** The call of a trace from which a case is drawn. Errors: those of opening the trace,
 * USC_E_NOT_FOUND where it holds nothing to draw from, USC_E_NOMEM; *call is 0 then. */
USC_API USC_NODISCARD usc_status usc_fuzz_find(const char *trace, uint64_t seed,
                                               int64_t number, int64_t *call,
                                               usc_error *err);

typedef struct usc_check_options {
    const char *trace, *out; /* folders */
    const char *device;      /* "sim:0", "python:MODULE:FUNCTION" */
    const char *runs_on;     /* what workers open for it: "cuda:3" for "cuda"; NULL: it */
    const char *via;         /* backend of torch.compile; NULL or "": none */
    const char *standard;    /* NULL: ulpscope */
    const char *compared;    /* one more that is asked; NULL: see compare_standards */
    const char *faults;      /* planted in the simulated device; NULL: none */
    const char *ops, *module, *phase, *step; /* filters; NULL: all */
    int64_t call;                            /* one call and those below; -1: all */
    const int64_t *calls; /* these and those below, ascending; NULL: all */
    int64_t n_calls;
    const char *const *imports; /* modules and files to import */
    int n_imports;
    usc_level level;
    bool bisect; /* forwards of modules: where one that is accused departs */
    bool distinct, compare_standards, self_test, force, verbose;
    bool
        partial; /* other runs have part in it: a fault that fires nowhere here is not told */
    int jobs;            /* workers; 0: one for each core */
    int cores;           /* that may be used; at least 1 */
    int threads;         /* of each worker; 0: an equal part of the cores */
    int repeat;          /* 0: USC_RUN_REPEAT */
    int64_t memory;      /* bytes for all workers; 0: 75 % of what is free */
    double timeout;      /* seconds for one call; 0: USC_RUN_TIMEOUT */
    double causes;       /* seconds for one search; 0: none */
    double budget;       /* seconds for all; 0: no limit */
    const char *version; /* of the program, for the report */
    /* NULL: the calls themselves. A row's call is the number of its case then; a run that
     * is finished goes on with more cases; `ops` and `budget` of the filters hold. */
    const usc_fuzz_options *fuzz;
} usc_check_options;

/** How a run ended that met no trouble. */
typedef enum usc_run_end {
    USC_RUN_DONE,
    USC_RUN_INTERRUPTED /* hooks->stopped said so; what was judged is kept */
} usc_run_end;

/**
 * Checks a trace: OUT/result.db holds a verdict on each call when it ends.
 *
 * What was cut short goes on where it stopped, with what computed before; what was
 * finished begins anew. What ranks left in OUT/part-N of this run is taken in first; else
 * nothing of OUT is touched before a worker is ready.
 *
 * Memory:  keeps nothing.
 * Threads: starts none, and processes of its own; waits for all of them.
 * Errors:  those of opening trace and results, USC_E_NOT_FOUND where nothing is selected,
 *          USC_E_ARG for options that do not fit the trace, USC_E_IO for what workers
 *          cannot do; the text is the sentence for the user and says what to do.
 */
USC_API USC_NODISCARD usc_status usc_check_trace(const usc_check_options *options,
                                                 const usc_run_hooks *hooks,
                                                 usc_run_end *end, usc_error *err);

typedef struct usc_pack_run_options {
    const char *trace, *out; /* folders; `out` must not be there */
    const char *ops;         /* filter; NULL: all */
    const char *const *imports;
    int n_imports;
    bool distinct;
    int jobs;  /* workers; 0: by the number of calls, one for each core at most */
    int cores; /* that may be used; at least 1 */
} usc_pack_run_options;

/**
 * Packs a trace: writes inputs and operands of its calls (docs/reference/pack-format.md).
 * The folder appears when it is complete; hooks->say hears what is in it.
 *
 * Threads: as usc_check_trace.
 * Errors:  as usc_check_trace; USC_E_EXISTS where `out` is there; USC_E_UNSUPPORTED where
 * a mistake of a worker left out calls: the others are packed.
 */
USC_API USC_NODISCARD usc_status usc_pack_trace(const usc_pack_run_options *options,
                                                const usc_run_hooks *hooks,
                                                usc_run_end *end, usc_error *err);

/** Bytes that may be allocated without swapping, within the limits of the control groups
 * of this process (Linux); 0 where nobody tells. */
USC_API int64_t usc_memory_free(void);

#define USC_DIGEST_SIZE 64

/**
 * A hash of a file's content, for USC_DIGEST_SIZE bytes at `out`; of a very large one its
 * size and time.
 *
 * Errors:  USC_E_IO, USC_E_NOT_FOUND.
 */
USC_API USC_NODISCARD usc_status usc_file_digest(const char *path, char *out,
                                                 usc_error *err);

/** How far the results in a folder are. */
typedef enum usc_check_state {
    USC_CHECK_NONE,    /* none are there, or none that can be read */
    USC_CHECK_CUT,     /* cut short */
    USC_CHECK_CHANGED, /* done, with files that are not what they were */
    USC_CHECK_DONE
} usc_check_state;

/**
 * How far the results in OUT are; `inputs` gets what computed them as JSON, NULL where
 * there are none. For the ranks of a job that was cut short.
 *
 * Memory:  *inputs is freed by the caller, with free().
 */
USC_API usc_check_state usc_check_state_of(const char *out, char **inputs);

USC_END_DECLS
#endif
