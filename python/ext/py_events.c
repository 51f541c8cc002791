// SPDX-License-Identifier: Apache-2.0
// Binds ulpscope/x/event_file.h: the bytes of one record.
#include "core.h"

#include <ulpscope/x/event_file.h>

#include <assert.h>

/* Of a dict of names and numbers; -1 with an exception set. */
static int take_scalars(PyObject *dict, usc_scalar *out)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    for (; PyDict_Next(dict, &at, &name, &value); out++) {
        out->name = PyUnicode_AsUTF8AndSize(name, NULL);
        if (out->name == NULL) return -1;
        out->value = PyFloat_AsDouble(value);
        if (PyErr_Occurred() != NULL) return -1;
    }
    return 0;
}

static PyObject *event_record(PyObject *module, PyObject *args)
{
    double wall;
    long long step;
    PyObject *dict, *bytes = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "dLO!", &wall, &step, &PyDict_Type, &dict)) return NULL;
    const size_t n = (size_t)PyDict_Size(dict);
    usc_scalar *scalars = PyMem_Calloc(n + 1, sizeof *scalars);
    if (scalars == NULL) return PyErr_NoMemory();
    if (take_scalars(dict, scalars) == 0) {
        const size_t size = usc_event_record(wall, step, scalars, n, NULL, 0);
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (bytes != NULL)
            (void)usc_event_record(wall, step, scalars, n, PyBytes_AsString(bytes), size);
    }
    PyMem_Free(scalars);
    return bytes;
}

static PyMethodDef functions[] = {
    {"event_record", event_record, METH_VARARGS,
     "event_record(wall, step, {name: number}) -> bytes of one record of TensorBoard's "
     "event files; of no number the one with which a file begins."},
    {NULL, NULL, 0, NULL},
};

int py_events_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
