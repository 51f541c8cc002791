// SPDX-License-Identifier: Apache-2.0
// What py_capture.c needs of `_core.Births`.
#ifndef ULPSCOPE_EXT_PY_BIRTHS_H
#define ULPSCOPE_EXT_PY_BIRTHS_H

#include "core.h"

#include <ulpscope/x/capture.h>

#include <stdbool.h>
#include <string.h>

/** Whom a session hands its calls to; false where it is no Births. The object must
 * outlive the session. */
bool py_births_watch(PyObject *births, usc_capture_watch *out);

#endif
