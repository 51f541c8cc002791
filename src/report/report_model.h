// SPDX-License-Identifier: Apache-2.0
// What a report knows besides the rows: sums made in one walk over the result database.
#ifndef USC_REPORT_MODEL_H
#define USC_REPORT_MODEL_H

#include <ulpscope/report.h>
#include <ulpscope/result.h>

#include "base/arena.h"
#include "report/report_out.h"

/* What makes a node findable by report_index.h: its first member. */
typedef struct usc_indexed {
    struct usc_indexed *in_bucket;
    uint64_t hash;
} usc_indexed;

typedef struct usc_index {
    usc_indexed **buckets;
    size_t n_buckets, n;
} usc_index;

/* A place in the model: the module path, or the phase in brackets where there is none. */
typedef struct usc_place {
    const char *text;
    struct usc_place *next;
} usc_place;

/* What the metrics of a row say of the call as a whole. */
typedef struct usc_row_facts {
    double loss;          /* effect on the loss to first order; NaN: not known */
    int64_t t_causes;     /* ns */
    bool nan, inf;        /* among the inputs */
    bool usual;           /* no worse than torch's own CPU kernel of that dtype */
    double excused;       /* largest share of an output's elements that went free */
    const char *excuse;   /* codes of what excused them; "" */
    const char *reason;   /* why it could not be judged; "" */
    const char *lacks;    /* which side of it nobody gave (base/words.h); "" */
    const char *left_out; /* which of its outputs were not, beside others; "" */
    const char *internal; /* a mistake of ulpscope in the search for a cause; "" */
} usc_row_facts;

/* A line of a source. */
typedef struct usc_source_line {
    const char *file; /* "" where none is known; relative inside the working directory */
    int64_t line;
} usc_source_line;

/* Calls that do not pass, with the same operator, culprit, verdict and cause; and as
 * `unjudged` once more those of which outputs were not judged beside others. */
typedef struct usc_report_finding {
    usc_indexed indexed;
    const char *reason; /* of calls not judged; else "" */
    const char *kind;   /* that reason without its numbers: what tells findings apart */
    bool usual;
    const char *lacks; /* which side of it nobody gave (base/words.h); "" */
    bool beside;       /* outputs of calls that have a verdict of others */
    int64_t i;         /* place in the list of the page; -1: left out */
    const char *op, *culprit, *cause, *sentence;
    usc_verdict verdict;
    int64_t n_rows;     /* judged calls */
    int64_t n_calls;    /* calls that they stand for */
    int64_t n_known;    /* judged calls that the baseline excuses */
    int64_t n_detailed; /* calls whose details the page embeds */
    int64_t worst_call; /* its numbers and sentence are the ones shown */
    double bits, yardstick_bits;
    bool bound;
    usc_source_line source; /* of the worst call */
    double loss;            /* largest effect on the loss; NaN: not known */
    usc_place *places;      /* one per row, latest first */
    struct usc_report_finding *next;
} usc_report_finding;

typedef struct usc_op_sum {
    usc_indexed indexed;
    const char *op;
    int i;                     /* place in the list */
    int64_t n[USC_N_VERDICTS]; /* rows */
    struct usc_op_sum *next;
} usc_op_sum;

typedef struct usc_report_case usc_report_case;

typedef struct usc_times {
    int64_t device, reference, perturbed, judge, causes, total; /* ns */
} usc_times;

/* Calls with NaN or Inf among their inputs: metrics `nan_inputs` and `inf_inputs`. */
typedef struct usc_odd_inputs {
    int64_t n, n_nan, n_pass, n_nan_pass;
    int64_t first; /* the earliest of them */
} usc_odd_inputs;

/* Calls of which more than USC_EXCUSED_MUCH of an output's elements went free. */
typedef struct usc_excused {
    int64_t n, first;
    const char *excuse; /* of the worst of them; "" */
    double most;
} usc_excused;

#define USC_EXCUSED_MUCH 0.03

/* Calls that pass and show less than USC_LOW_BITS of float32's 24. */
typedef struct usc_low_passes {
    int64_t n, call; /* the lowest of them */
    const char *op;
    double bits;
} usc_low_passes;

#define USC_LOW_BITS 18

typedef struct usc_run_key {
    struct usc_run_key *next;
    const char *key, *value;
} usc_run_key;

struct usc_report {
    const usc_alloc *alloc;
    usc_arena arena; /* every string and node below */
    const char *folder;
    usc_result *result;
    usc_run_key *run; /* table run */
    int64_t n_rows, n_calls;
    int64_t n[USC_N_VERDICTS];
    const char *internal, *internal_op; /* the first mistake of ours; NULL: none */
    usc_report_finding *findings, **findings_end; /* worst first */
    usc_report_finding *beside, **beside_end;     /* until they are taken */
    usc_index findings_index, ops_index;
    usc_op_sum *ops; /* the one with the worst finding first */
    usc_op_sum **ops_end;
    int n_ops;
    usc_times times;
    usc_odd_inputs odd;
    usc_excused excused;
    usc_low_passes low;
    struct usc_self_test *self_test;    /* report_selftest.h, by operator */
    struct usc_standard_sum *standards; /* report_standards.h */
    struct usc_standard_group *groups;
    usc_index cases_index; /* report_cases.h: made when somebody asks for them */
    usc_report_case *cases, **cases_end;
    usc_index rows_index;              /* usc_case_row of this run, by call */
    const usc_report_options *options; /* what the files mark as allowed; NULL: nothing */
    bool cases_filled, has_baseline;
};

/** Zeroed memory that lives as long as the report; NULL where there is none. */
void *usc_report_take(usc_report *r, size_t size);

/** Value of a key of table run, "" where there is none. */
const char *usc_report_run(const usc_report *r, const char *key);

/** Whether the check ended before every selected call had a verdict. */
bool usc_report_unfinished(const usc_report *r);

/** Whether outputs in files were judged, of a pack or of two folders: nothing ran here.
 */
bool usc_report_of_files(const usc_report *r);

/** What a row is: "call", or "tensor" where two files or folders were compared. */
const char *usc_report_noun(const usc_report *r);

/** Whether the calls are cases that a fuzz drew. */
bool usc_report_drawn(const usc_report *r);

/** Whether it is still running: the report is on what it has so far. */
bool usc_report_live(const usc_report *r);

/** Whether it ended on purpose before that (--budget): incomplete, and no failure. */
bool usc_report_over_budget(const usc_report *r);

/** Why, without repeating operator and verdict: the cause, else from the sentence. */
const char *usc_report_finding_reason(const usc_report_finding *f);

/** Copy of a text in the report's memory, "" for NULL; NULL where there is no memory. */
const char *usc_report_keep(usc_report *r, const char *text);

/** Sets USC_E_NOMEM. */
usc_status usc_report_no_memory(const usc_report *r, usc_error *err);

/** The sums of an operator that has a row; NULL for others. */
const usc_op_sum *usc_report_op(const usc_report *r, const char *op);

/** The finding that a row belongs to, made where there is none yet; NULL without memory.
 */
usc_report_finding *usc_report_finding_of(usc_report *r, const usc_result_row *row,
                                          usc_verdict v);

/** Adds a row that does not pass to its finding. Errors: USC_E_NOMEM. */
usc_status usc_report_finding_add(usc_report *r, const usc_result_row *row, usc_verdict v,
                                  usc_error *err);

/** Adds a row of which outputs were not judged beside others to what is not judged; such
 * findings stand behind the others once they are taken. Errors: USC_E_NOMEM. */
usc_status usc_report_add_beside(usc_report *r, const usc_result_row *row,
                                 usc_error *err);
void usc_report_take_beside(usc_report *r);

/** The finding on such outputs of a row; NULL without memory. */
usc_report_finding *usc_report_beside_of(usc_report *r, const usc_result_row *row);

/** Puts accused findings that are usual behind the other accused ones. */
void usc_findings_usual_last(usc_report *r);

/** Whether a verdict like this is flagged under the options, whatever the baseline. */
bool usc_report_finding_counts(const usc_report_finding *f,
                               const usc_report_options *options);

/** Whether it would be flagged, did `--allow` not say otherwise. */
bool usc_report_finding_allowed(const usc_report_finding *f,
                                const usc_report_options *options);

/** Whether a finding counts for exit code 1. */
bool usc_report_finding_flagged(const usc_report_finding *f,
                                const usc_report_options *options);

/** Whether a verdict comes with effective bits that mean something. */
bool usc_bits_shown(usc_verdict verdict, double bits);

/* What else is said of a row that looks like others. */
enum {
    USC_MARK_KNOWN = 1,   /* the baseline has it */
    USC_MARK_ALLOWED = 2, /* --allow excuses it */
    USC_MARK_USUAL = 4,
};

/** The marks of a row; `f` is its finding, NULL for a pass. */
unsigned usc_row_marks(const usc_report *r, const usc_result_row *row,
                       const usc_report_finding *f);

/** Where the caller's own code made a call: the innermost frame of a stack that is no
 * installed package, else the innermost. Memory: the report's. */
usc_source_line usc_source_line_of(usc_report *r, const char *stack);

/** Reads the metrics of a row. Memory: texts are the row's. */
usc_row_facts usc_row_facts_of(const usc_result_row *row);

/** Puts the findings with the largest effect on the loss first, unknown ones last.
 * Errors: USC_E_NOMEM. */
usc_status usc_findings_by_loss(usc_report *r, usc_error *err);

/** Writes `json` as it stands where it is valid JSON, else as a JSON string; `empty`
 * where it is "". */
void usc_out_raw_json(usc_out *o, const char *json, const char *empty);

#endif
