// SPDX-License-Identifier: Apache-2.0
// Arguments and results of a Python function: JSON as docs/reference/trace-format.md
// says, tensors with their paths. All under the GIL; nothing of the program's own code
// runs.
#ifndef PY_API_ARGS_H
#define PY_API_ARGS_H

#include "py_api.h"

/* torch's types, borrowed from whoever holds them: PyObjects alone. */
typedef struct py_api_types {
    PyObject *tensor, *dtype, *device, *layout, *memory_format, *generator;
} py_api_types;

typedef void py_api_take(void *tensor, usc_role role, const char *path, usc_maybe maybe);

/** JSON of the arguments, `take` called for each tensor. This thread's, until the next
 * call; NULL where there is no memory. */
const char *py_api_arguments(const py_api_types *types, py_api_take *take, PyObject *args,
                             PyObject *kwargs);

/** Calls `take` for what a call left: its arguments, which it may have written (what lies
 * at the places in the set `writes`, "args[1]", it has, NULL: none are named; of others
 * `maybe` tells), and the tensors in its result (NULL: it raised). */
void py_api_results(const py_api_types *types, py_api_take *take, PyObject *args,
                    PyObject *kwargs, PyObject *result, PyObject *writes,
                    usc_maybe maybe);

#endif
