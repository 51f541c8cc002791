// SPDX-License-Identifier: Apache-2.0
// Binds ulpscope/x/pattern.h: options that hold a PATTERN are refused before a run
// starts, and Python has no matcher of its own.
#include "core.h"

#include <ulpscope/x/pattern.h>

#include <assert.h>

static PyObject *check_pattern(PyObject *module, PyObject *argument)
{
    usc_error err = {0};
    const char *pattern = PyUnicode_AsUTF8(argument);
    if (pattern == NULL) return NULL;
    const usc_status st = usc_pattern_check(pattern, &err);
    if (st != USC_OK) return core_raise(PyModule_GetState(module), st, &err);
    Py_RETURN_NONE;
}

static PyObject *match_pattern(PyObject *module, PyObject *args)
{
    (void)module;
    const char *pattern, *op;
    if (!PyArg_ParseTuple(args, "ss", &pattern, &op)) return NULL;
    return PyBool_FromLong(usc_pattern_match(pattern, op));
}

static PyMethodDef functions[] = {
    {"check_pattern", check_pattern, METH_O,
     "check_pattern(pattern)\n--\n\nRaises ArgError where it is not well formed."},
    {"match_pattern", match_pattern, METH_VARARGS,
     "match_pattern(pattern, op)\n--\n\nWhether an operator's name matches."},
    {NULL, NULL, 0, NULL},
};

int py_pattern_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
