// SPDX-License-Identifier: Apache-2.0
// Binds what the Python side needs of ulpscope/x/run.h and of lists of steps.
#include "core.h"

#include <assert.h>
#include <stdlib.h>
#include <ulpscope/x/run.h>

static PyObject *memory_free(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromLongLong(usc_memory_free());
}

static PyObject *file_digest(PyObject *module, PyObject *argument)
{
    char digest[USC_DIGEST_SIZE];
    usc_error err = {0};
    PyObject *path = NULL;
    if (!PyUnicode_FSConverter(argument, &path)) return NULL;
    usc_status st;
    Py_BEGIN_ALLOW_THREADS;
    st = usc_file_digest(PyBytes_AS_STRING(path), digest, &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    if (st != USC_OK) return core_raise(PyModule_GetState(module), st, &err);
    return PyUnicode_FromString(digest);
}

static PyObject *parse_steps(PyObject *module, PyObject *argument)
{
    usc_error err = {0};
    usc_steps *steps = NULL;
    size_t n;
    const char *text = PyUnicode_AsUTF8(argument);
    if (text == NULL) return NULL;
    const usc_status st = usc_steps_read(text, &steps, &n, &err);
    if (st != USC_OK) return core_raise(PyModule_GetState(module), st, &err);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *pair =
            Py_BuildValue("LL", (long long)steps[i].first, (long long)steps[i].last);
        if (pair == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
    }
    free(steps);
    return list;
}

static PyMethodDef functions[] = {
    {"memory_free", memory_free, METH_NOARGS,
     "memory_free()\n--\n\nBytes that may be allocated without swapping; 0 where nobody "
     "tells."},
    {"file_digest", file_digest, METH_O,
     "file_digest(path)\n--\n\nA hash of a file's content as text."},
    {"parse_steps", parse_steps, METH_O,
     "parse_steps(text)\n--\n\n(first, last) of each part of '2,5-8'. Raises ArgError."},
    {NULL, NULL, 0, NULL},
};

int py_run_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
