// SPDX-License-Identifier: Apache-2.0
// What other standards say of the calls: metrics `standard:NAME` of result.db, summed up.
#ifndef USC_REPORT_STANDARDS_H
#define USC_REPORT_STANDARDS_H

#include "report/report_model.h"

/* One standard over all calls. */
typedef struct usc_standard_sum {
    const char *name;
    int64_t n_pass, n_wrong;
    int64_t n_missed; /* accused by the verdict, passed by the standard */
    int64_t n_extra;  /* passed by the verdict, accused by the standard */
    struct usc_standard_sum *next;
} usc_standard_sum;

/* Calls of one operator of which all say the same. */
typedef struct usc_standard_group {
    const char *op, *accused, *unjudged; /* names behind commas */
    usc_verdict verdict;
    int64_t n_rows, first_call;
    struct usc_standard_group *next;
} usc_standard_group;

/** Adds what the standards say of a row with verdict `v`. Errors: USC_E_NOMEM. */
usc_status usc_report_add_standards(usc_report *r, const usc_result_row *row,
                                    usc_verdict v, usc_error *err);

/** The standard whose opinion a metric is; NULL where it is none. */
const char *usc_standard_named(const usc_metric *m);

/** Its verdict: "pass", "wrong" or "unjudged". */
const char *usc_standard_word(const usc_metric *m);

/** Whether several standards were compared: one alone is the verdict itself. */
bool usc_standards_compared(const usc_report *r);

/** Calls of which a standard said nothing. */
int64_t usc_standard_unjudged(const usc_report *r, const usc_standard_sum *s);

#endif
