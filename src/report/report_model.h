// SPDX-License-Identifier: Apache-2.0
// What a report knows besides the rows: sums made in one walk over the result database.
#ifndef USC_REPORT_MODEL_H
#define USC_REPORT_MODEL_H

#include <ulpscope/report.h>
#include <ulpscope/result.h>

#include "report/report_out.h"

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

/* A place in the model: the module path, or the phase in brackets where there is none. */
typedef struct usc_place {
    const char *text;
    struct usc_place *next;
} usc_place;

/* Calls that do not pass, with the same operator, culprit, verdict and cause. */
typedef struct usc_finding {
    const char *op, *culprit, *cause, *sentence;
    usc_verdict verdict;
    int64_t n_rows;     /* judged calls */
    int64_t n_calls;    /* calls that they stand for */
    int64_t n_known;    /* judged calls that the baseline excuses */
    int64_t worst_call; /* its numbers and sentence are the ones shown */
    double bits, yardstick_bits;
    bool bound;
    double loss;       /* largest effect on the loss; NaN: not known */
    usc_place *places; /* one per row, latest first */
    struct usc_finding *next;
} usc_finding;

typedef struct usc_op_sum {
    const char *op;
    int64_t n[USC_N_VERDICTS]; /* rows */
    struct usc_op_sum *next;
} usc_op_sum;

typedef struct usc_report_case usc_report_case;

typedef struct usc_times {
    int64_t device, reference, perturbed, judge, causes, total; /* ns */
} usc_times;

/* Calls with NaN or Inf among their inputs: metrics `nan_inputs` and `inf_inputs`. */
typedef struct usc_odd_inputs {
    int64_t n, n_nan, n_pass;
    int64_t first; /* the earliest of them */
} usc_odd_inputs;

typedef struct usc_arena_chunk usc_arena_chunk;

struct usc_report {
    const usc_alloc *alloc;
    usc_arena_chunk *chunks; /* every string and node below */
    const char *folder;
    usc_result *result;
    sqlite3 *json_db; /* an empty database, for SQLite's json() */
    sqlite3_stmt *json_check;
    int64_t n_rows, n_calls;
    int64_t n[USC_N_VERDICTS];
    usc_finding *findings, **findings_end; /* worst first */
    usc_op_sum *ops;                       /* the one with the worst finding first */
    usc_op_sum **ops_end;
    int n_ops;
    usc_times times;
    usc_odd_inputs odd;
    struct usc_self_test *self_test;    /* report_selftest.h, by operator */
    struct usc_standard_sum *standards; /* report_standards.h */
    struct usc_standard_group *groups;
    usc_report_case **buckets; /* report_cases.h: made when somebody asks for them */
    usc_report_case *cases, **cases_end;
    bool cases_filled, has_baseline;
};

/** Zeroed memory that lives as long as the report; NULL where there is none. */
void *usc_report_take(usc_report *r, size_t size);

/** Value of a key of table run, "" where there is none. Valid until the next read. */
const char *usc_report_run(const usc_report *r, const char *key);

/** Whether the check ended before every selected call had a verdict. */
bool usc_report_unfinished(const usc_report *r);

/** Whether it ended on purpose before that (--budget): incomplete, and no failure. */
bool usc_report_over_budget(const usc_report *r);

/** Why, without repeating operator and verdict: the cause, else from the sentence. */
const char *usc_finding_reason(const usc_finding *f);

/** Copy of a text in the report's memory, "" for NULL; NULL where there is no memory. */
const char *usc_report_keep(usc_report *r, const char *text);

/** Sets USC_E_NOMEM. */
usc_status usc_report_no_memory(const usc_report *r, usc_error *err);

/** The finding that a row belongs to: there is one for each row that does not pass. */
usc_finding *usc_finding_of(usc_report *r, const usc_result_row *row, usc_verdict v);

/** Whether a verdict like this is flagged under the options, whatever the baseline. */
bool usc_finding_counts(const usc_finding *f, const usc_report_options *options);

/** Whether a finding counts for exit code 1. */
bool usc_finding_flagged(const usc_finding *f, const usc_report_options *options);

/** Whether a verdict comes with effective bits that mean something. */
bool usc_bits_shown(usc_verdict verdict, double bits);

/** The effect of a call's error on the loss to first order; NaN where it is not known. */
double usc_row_loss(const usc_result_row *row);

/** Puts the findings with the largest effect on the loss first, unknown ones last. */
void usc_findings_by_loss(usc_report *r);

/** Writes `json` as it stands where it is valid JSON, else as a JSON string; `empty`
 * where it is "". */
void usc_out_raw_json(usc_out *o, usc_report *r, const char *json, const char *empty);

#endif
