// SPDX-License-Identifier: Apache-2.0
// What `check --self-test` found, by operator: key `self_test` of result.db.
#ifndef USC_REPORT_SELFTEST_H
#define USC_REPORT_SELFTEST_H

#include "report/report_model.h"

typedef struct usc_self_test {
    const char *op;
    const char *skipped;           /* why it could not be probed; "" where it was */
    double noise, element, factor; /* b of the smallest error 2^-b that is caught, of all
                                      elements, one, all alike; NaN: none is */
    int n_caught, n_unseen;        /* planted mistakes without a size */
    const char *unseen;            /* their names behind "; " */
    int64_t n_pass;                /* calls of the operator that pass */
    struct usc_self_test *next;
} usc_self_test;

/** Reads them into r->self_test; nothing where there was no self-test. What is no such
 * JSON counts as none. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_report_read_self_test(usc_report *r, usc_error *err);

#endif
