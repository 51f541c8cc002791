// SPDX-License-Identifier: Apache-2.0
// `ulpscope bisect` in parts: what is asked for (cmd_bisect.c), trials as processes and
// what they leave in OUT (bisect_trial.c), which sets of operators are tried
// (bisect_search.c), what is said (bisect_words.c).
#ifndef ULPSCOPE_CLI_BISECT_H
#define ULPSCOPE_CLI_BISECT_H

#include <limits.h>
#include <sys/types.h>

#include <ulpscope/x/loss.h>

#include "cli.h"

enum { BISECT_MOST_NOISE = 32, BISECT_MOST_SUBSTITUTES = 64, BISECT_MOST_JOBS = 64 };

typedef struct bisect_substitute {
    const char *op, *function; /* "module:function" */
} bisect_substitute;

typedef struct bisect_options {
    char **command; /* ends with NULL */
    const char *out, *to, *ops, *reference, *good, *curve;
    usc_curve_options read; /* of what trials print, or write to `curve` */
    const char *noise[BISECT_MOST_NOISE];
    bisect_substitute substitutes[BISECT_MOST_SUBSTITUTES];
    int n_noise, n_substitutes, jobs;
    int64_t seed, limit_s; /* -1: none */
    double within, tolerance;
    bool deterministic, json, force;
} bisect_options;

/* An operator that the run uses. */
typedef struct bisect_operator {
    char *name;
    long long n_calls;
} bisect_operator;

typedef enum bisect_kind {
    BISECT_SOME, /* the operators of the set are moved; none: the program as it is */
    BISECT_ALL,  /* whatever matches, before the operators are known */
    BISECT_CPU,  /* all on the CPU: the reference */
    BISECT_GOOD  /* the command of --good */
} bisect_kind;

typedef struct bisect_trial {
    bisect_kind kind;
    bool *moved; /* of SOME, an entry for each operator */
    char folder[PATH_MAX];
    pid_t pid; /* 0: it does not run */
    double began, seconds;
    bool late, old; /* old: an earlier run of the same command made it */
    int status;     /* exit code, 128 + n after signal n */
    usc_curve *curve;
    char why[USC_ERROR_TEXT]; /* it gave no curve; "": it did */
    double distance;          /* from the reference: mean |difference|; Inf: no curve */
    bool good;
} bisect_trial;

typedef struct bisect_run {
    const bisect_options *options;
    char *bootstrap; /* folder in front of PYTHONPATH; NULL: none */
    bisect_operator *operators;
    int n_operators;
    usc_curve *reference, *noise[BISECT_MOST_NOISE];
    double level,
        limit; /* mean |loss| of the reference; distance up to which it is good */
    double plain, best, left; /* distances with nothing, all, and those found moved */
    int n_trials, n_old, n_failed;
    double spent_s;  /* of trials that ran */
    double said_s;   /* clock, when it was said last that one runs; 0: never */
    bool drawn;      /* that is a line of a terminal, to be drawn over */
    bool *guilty;    /* an entry for each operator */
    double *without; /* distance where that one alone is not moved; NaN: unknown */
} bisect_run;

/** Runs `n` trials, at most options->jobs at a time, or reads what an earlier run left of
 * them. False after a sentence, and where a signal asked to stop. */
bool bisect_run_trials(bisect_run *r, bisect_trial *trials, int n);

/** Takes the operators that a trial listed; false after a sentence. */
bool bisect_take_operators(bisect_run *r, const bisect_trial *t);

/** Frees what a trial holds. */
void bisect_trial_free(bisect_trial *t);

/** Sets distance and `good` of a trial that ended. False after a sentence. */
bool bisect_weigh(const bisect_run *r, bisect_trial *t);

/** Finds the smallest set of operators that has to be moved, to r->guilty; 0, else an
 * exit code after a sentence. */
int bisect_search(bisect_run *r);

/** Says what runs, and for how long, from the second second on. */
void bisect_say_running(bisect_run *r, const bisect_trial *trials, int n, double now);

/** Says how a trial went, on stderr. `left`: trials that are likely to follow. */
void bisect_say_trial(bisect_run *r, const bisect_trial *t, int left);

/** Says what was found; the exit code. */
int bisect_say_found(const bisect_run *r);

/** Says that there is nothing to look for. */
int bisect_say_same(const bisect_run *r);

/** Where operators are moved to, in words: "on the CPU". */
const char *bisect_place(const bisect_options *o);

#endif
