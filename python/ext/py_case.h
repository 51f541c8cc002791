// SPDX-License-Identifier: Apache-2.0
// A case in Python, as its files share it. Neighbours: py_case.c (outputs, answers),
// py_case_call.c (large calls, piece by piece), py_kept.c (what it has kept).
#ifndef ULPSCOPE_EXT_PY_CASE_H
#define ULPSCOPE_EXT_PY_CASE_H

#include "core.h"

#include <ulpscope/case.h>

typedef struct case_object {
    PyObject_HEAD; /* the semicolon is for the formatter */
    usc_case *c;
    PyThread_type_lock lock; /* one thread at a time, also while the GIL is released */
    usc_want want;
    PyObject *findings;
    PyObject *kept, *last; /* of the output at hand; of the last answer */
} case_object;

/** Takes the lock of an open case; NULL with an exception set where it is not open. */
case_object *py_case_enter(PyObject *self);

/** Gives the lock back; None, or NULL with the exception that a status is. */
PyObject *py_case_leave(case_object *self, usc_status status, const usc_error *err);

/* Methods of a call as a whole. */
PyObject *py_case_call(PyObject *self, PyObject *args);
PyObject *py_case_go_on(PyObject *self, PyObject *unused);
PyObject *py_case_rows(PyObject *self, PyObject *unused);

/** The case of a `_core.Case`; NULL with an exception set where it is none. */
const usc_case *py_case_of(PyObject *object, const core_state *state);

/** [entry of the manifest of a pack] of all that a case has kept. */
PyObject *py_kept_entries(const usc_case *c);

#endif
