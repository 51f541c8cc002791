// SPDX-License-Identifier: Apache-2.0
// What the files that bind findings share.
#ifndef ULPSCOPE_EXT_PY_FINDING_H
#define ULPSCOPE_EXT_PY_FINDING_H

#include "core.h"

#include <ulpscope/finding.h>

typedef struct findings_object {
    PyObject_HEAD; /* the semicolon is for the formatter */
    usc_findings *findings;
} findings_object;

/* One entry, which its list keeps in place. */
typedef struct finding_object {
    PyObject_HEAD; /* the semicolon is for the formatter */
    PyObject *list;
    const usc_finding *f;
} finding_object;

/** The verdict of that name; USC_N_VERDICTS with an exception set. */
usc_verdict py_verdict(const char *name);

/** An entry of a list, which it keeps alive; IndexError where `f` is NULL. */
PyObject *py_finding_of(PyObject *list, const usc_finding *f);

PyObject *py_text_list(const char *const *items, int n);

/** Takes the sizes of an output from a sequence; -1 with an exception set. */
int py_sizes_read(PyObject *sizes, usc_finding *f);

extern PyType_Spec py_findings_spec;

/** Findings.row. */
PyObject *py_findings_row(PyObject *self, PyObject *args, PyObject *kwargs);

int py_finding_said_add(PyObject *module);

#endif
