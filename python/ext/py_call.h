// SPDX-License-Identifier: Apache-2.0
// What a recorded call is in Python.
#ifndef ULPSCOPE_EXT_PY_CALL_H
#define ULPSCOPE_EXT_PY_CALL_H

#include "core.h"

#include <ulpscope/call.h>

/** All that a trace tells of a call, by name; its tensors as a list of dicts. NULL with an
 * exception set. */
PyObject *py_call_dict(const usc_call *call);

#endif
