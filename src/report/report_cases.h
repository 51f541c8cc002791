// SPDX-License-Identifier: Apache-2.0
// Calls under the name that they keep from run to run: operator, module, phase,
// arguments. What a baseline is matched by and what JUnit counts.
#ifndef USC_REPORT_CASES_H
#define USC_REPORT_CASES_H

#include "report/report_model.h"

/* A call of the baseline that did not pass. */
typedef struct usc_known {
    usc_verdict verdict;
    double bits;
    bool used; /* a call of this run was matched with it */
    struct usc_known *next;
} usc_known;

/* A call of this run that did not pass, the worst first. */
typedef struct usc_case_row {
    usc_indexed indexed;
    const usc_report_finding *finding;
    int64_t call;
    usc_source_line source;
    const char *sentence;
    bool known;
    struct usc_case_row *next;
} usc_case_row;

struct usc_report_case {
    usc_indexed indexed;
    const char *op, *module, *phase, *args;
    int64_t n, n_pass;             /* calls of this run */
    int64_t t_total;               /* ns */
    usc_known *known, *worst_left; /* the worst first once the cases are filled */
    usc_case_row *rows, **rows_end;
    usc_report_case *next;
};

typedef struct usc_case_key {
    const char *op, *module, *phase, *args; /* none is NULL */
} usc_case_key;

/** The case of that key, made where there is none; NULL where there is no memory. */
usc_report_case *usc_case_of(usc_report *r, const usc_case_key *key);

/** The row of a call that did not pass, once the cases are filled; NULL if none. */
const usc_case_row *usc_case_row_of(const usc_report *r, int64_t call);

/** Sorts the calls of this run into cases, once, and matches them with the baseline. */
USC_NODISCARD usc_status usc_cases_fill(usc_report *r, usc_error *err);

#endif
