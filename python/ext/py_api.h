// SPDX-License-Identifier: Apache-2.0
// Calls of Python functions around operators: the function mode that sees them, and their
// arguments as JSON and tensors for the interception glue.
#ifndef PY_API_H
#define PY_API_H

#include "core.h"

#include "../../glue/intercept/intercept_glue.h"

/** The glue's question for the arguments of a call that this file began. */
const char *py_api_describe(usc_intercept_api *call);

/** The glue's `meet`: calls the newest mode's function of that name; NULL where no mode
 * wants to meet threads. */
void (*py_api_meet(void))(void);

/** What an ApiMode records into; `session` and `glue` NULL where the object is no open
 * capture of this process. */
typedef struct py_api_target {
    usc_capture *session;
    const usc_intercept_table *glue;
    const char *ops; /* PATTERN or NULL */
} py_api_target;

/** That of a `_core.Capture`. Under the GIL; good until it is released. */
py_api_target py_capture_target(PyObject *capture);

#endif
