// SPDX-License-Identifier: Apache-2.0
// The crew of a run: worker processes that each hold one job at a time. A worker that
// dies or hangs costs the job it held; another takes its place. Knows nothing of
// verdicts: what a loss means is said by whom it works for.
#ifndef USC_RUN_CREW_H
#define USC_RUN_CREW_H

#include <ulpscope/x/run.h>

#include "base/line.h"
#include "run/known.h"
#include "json/json.h"

/** What became of a job. */
typedef enum usc_crew_event {
    USC_CREW_ROW,   /* `row` is what was found */
    USC_CREW_CAUSE, /* `row` is that row once more, with its cause; NULL: none comes */
    USC_CREW_LOST,  /* its worker died: `how` */
    USC_CREW_LATE   /* its worker hung */
} usc_crew_event;

typedef struct usc_crew_news {
    usc_crew_event event;
    int64_t job;
    const usc_json *row;
    const char *phase; /* in which a worker was lost */
    const char *how;   /* "died of SIGSEGV" */
    const char *words; /* what it last wrote during the job; "" for nothing */
    bool searching;    /* a cause follows */
} usc_crew_news;

/** For whom a crew works. */
typedef struct usc_crew_work {
    void *ctx;
    bool (*more)(void *ctx);    /* whether jobs are left to be taken */
    int64_t (*take)(void *ctx); /* the next of them */
    bool (*waits)(void *ctx);   /* whether there may be more later; NULL: never */
    int64_t (*room)(void *ctx, int64_t job); /* bytes that it may take; NULL: no limits */
    /* The request for a worker, without the brace at its end. */
    void (*request)(void *ctx, int64_t job, usc_line *to);
    /* What the first worker says when it is ready; NULL: nobody asks. */
    usc_status (*ready)(void *ctx, const usc_json *message, usc_error *err);
    usc_status (*hear)(void *ctx, const usc_crew_news *news, usc_error *err);
} usc_crew_work;

typedef struct usc_crew_settings {
    const char *text; /* JSON for each worker */
    int size;         /* workers */
    double timeout;   /* seconds for a job */
    int64_t memory;   /* bytes for all; 0: no limit */
    bool meet;        /* start one also where there is no job */
} usc_crew_settings;

/**
 * Works until no job is left or hooks->stopped; all workers are gone then. *stopped tells
 * which. Errors: those of `ready` and `hear`; USC_E_IO where a worker cannot start,
 * USC_E_ARG for what a worker says it cannot do.
 */
USC_NODISCARD usc_status usc_crew_run(const usc_crew_settings *settings,
                                      const usc_crew_work *work,
                                      const usc_run_hooks *hooks, bool *stopped,
                                      usc_error *err);

/** Seconds on a clock that only goes forward. */
double usc_run_clock(void);

#endif
