// SPDX-License-Identifier: Apache-2.0
// Where a thread is in the user's Python program: stack, module, optimizer. Asked for by
// the interception glue before every call.
#ifndef PY_PLACE_H
#define PY_PLACE_H

#include "core.h"

#include "../../glue/intercept/intercept_glue.h"

/** The functions that the glue calls. */
usc_intercept_place py_place(void);

/**
 * Sets which frames a stack leaves out: a list of (path prefix, shown), of which the
 * longest prefix of a file's path decides; forgets the code objects of the last session,
 * unless another one `keeps` them. 0, or -1 with an exception set.
 */
int py_place_reset(PyObject *rules, bool keeps);

/** This thread is inside a module, as a session numbers it; no longer; inside how many;
 * in none, and in no optimizer: at a step's end, whatever hooks of this thread missed. */
void py_place_enter(const usc_capture *owner, int64_t id);
void py_place_leave(const usc_capture *owner);
int py_place_depth(const usc_capture *owner);
void py_place_forget(const usc_capture *owner);

/** The glue's answer to whether this thread runs a node of an autograd graph. */
void py_place_backward(bool (*backward)(void));

/** The methods ask_graph, enter_optimizer, leave_optimizer. */
extern PyMethodDef py_place_methods[];

/** [(operator, where it was defined)] as the glue knows them; a new reference. */
PyObject *py_places(const usc_intercept_table *glue);

#endif
