// SPDX-License-Identifier: Apache-2.0
// A case in Python, for whoever reads what it has kept.
#ifndef ULPSCOPE_EXT_PY_CASE_H
#define ULPSCOPE_EXT_PY_CASE_H

#include "core.h"

#include <ulpscope/case.h>

/** The case of a `_core.Case`; NULL with an exception set where it is none. */
const usc_case *py_case_of(PyObject *object, const core_state *state);

/** [entry of the manifest of a pack] of all that a case has kept. */
PyObject *py_kept_entries(const usc_case *c);

#endif
