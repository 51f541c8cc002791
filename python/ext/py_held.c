// SPDX-License-Identifier: Apache-2.0
// Binding of held.h: `_core.bring`, outputs as they are held to others.
#include "core.h"
#include "py_tensor.h"

#include <ulpscope/x/held.h>

#include <assert.h>

enum { MOST_OUTPUTS = 64 };

/* (path, device, truth) in rows. */
static int read_output(PyObject *given, usc_held *out)
{
    PyObject *device, *truth;
    if (!PyArg_ParseTuple(given, "sOO", &out->path, &device, &truth) ||
        py_tensor_borrow(device, &out->device) < 0 ||
        py_tensor_borrow(truth, &out->truth) < 0)
        return -1;
    if (usc_tensor_contiguous(&out->device) && usc_tensor_contiguous(&out->truth))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s does not lie in rows", out->path);
    return -1;
}

static int read_freedom(PyObject *kwargs, usc_freedom *out)
{
    static char *names[] = {"dim",    "inverse",  "gauge", "ndim",
                            "fewest", "rounding", NULL};
    int dim = -1;
    const char *gauge = NULL;
    long long fewest = 0;
    PyObject *none = PyTuple_New(0);
    *out = (usc_freedom){.inverse = -1};
    const int ok =
        none != NULL &&
        PyArg_ParseTupleAndKeywords(none, kwargs, "|iisiLd", names, &dim, &out->inverse,
                                    &gauge, &out->ndim, &fewest, &out->rounding);
    Py_XDECREF(none);
    if (!ok) return -1;
    out->unsorted = dim >= 0;
    out->dim = dim;
    out->fewest = fewest;
    out->gauge = gauge != NULL ? usc_gauge_by_name(gauge) : NULL;
    if (gauge == NULL || out->gauge != NULL) return 0;
    PyErr_Format(PyExc_ValueError, "%s: no such decomposition", gauge);
    return -1;
}

/* The bytes of what was changed, None for what was not. */
static PyObject *brought(const usc_held *outputs, const void *const *before, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
        const usc_tensor *t = &outputs[i].device;
        int64_t count = 0;
        if (usc_tensor_numel(t, &count, NULL) != USC_OK) count = 0;
        const size_t size = (size_t)count * usc_dtype_info_of(t->dtype)->size;
        PyObject *item = t->data == before[i]
                             ? Py_NewRef(Py_None)
                             : PyByteArray_FromStringAndSize(t->data, (Py_ssize_t)size);
        if (item == NULL) Py_CLEAR(list);
        if (item != NULL) PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *bring(PyObject *module, PyObject *args, PyObject *kwargs)
{
    const core_state *state = PyModule_GetState(module);
    usc_held outputs[MOST_OUTPUTS];
    const void *before[MOST_OUTPUTS];
    usc_held_room *keep = NULL;
    usc_freedom what;
    usc_error err = {0};
    PyObject *list;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list) ||
        read_freedom(kwargs, &what) < 0)
        return NULL;
    const Py_ssize_t n = PyList_GET_SIZE(list);
    if (n > MOST_OUTPUTS) return PyErr_Format(PyExc_ValueError, "%zd outputs", n);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (read_output(PyList_GET_ITEM(list, i), &outputs[i]) < 0) return NULL;
        before[i] = outputs[i].device.data;
    }
    usc_status st;
    Py_BEGIN_ALLOW_THREADS st = usc_held_bring(&what, outputs, (int)n, NULL, &keep, &err);
    Py_END_ALLOW_THREADS if (st != USC_OK) return core_raise(state, st, &err);
    PyObject *found = brought(outputs, before, n);
    usc_held_free(keep);
    return found;
}

static PyMethodDef functions[] = {
    {"bring", (PyCFunction)(void (*)(void))bring, METH_VARARGS | METH_KEYWORDS,
     "bring([(path, device, truth)], dim=-1, inverse=-1, gauge=None, ndim=0, fewest=0, "
     "rounding=0.0)\n-> [bytearray or None]: see usc_held_bring."},
    {NULL, NULL, 0, NULL},
};

int py_held_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
