// SPDX-License-Identifier: Apache-2.0
// Bindings of what a case asks of a call as a whole. Neighbours: py_case.h.
#include "py_case.h"
#include "py_finding.h"

#include <assert.h>
#include <string.h>

/* [(path, sizes)] as forms; NULL with an exception set. */
static usc_case_form_of *forms_of(PyObject *outputs)
{
    const Py_ssize_t n = PyList_GET_SIZE(outputs);
    usc_case_form_of *forms = PyMem_Calloc((size_t)n + 1, sizeof *forms);
    if (forms == NULL) return (usc_case_form_of *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *sizes;
        usc_finding form;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(outputs, i), "sO", &forms[i].path,
                              &sizes) ||
            py_sizes_read(sizes, &form) < 0) {
            PyMem_Free(forms);
            return NULL;
        }
        forms[i].ndim = form.ndim;
        memcpy(forms[i].sizes, form.sizes, sizeof forms[i].sizes);
    }
    return forms;
}

PyObject *py_case_call(PyObject *self_object, PyObject *args)
{
    assert(self_object && args);
    PyObject *outputs;
    long long number, n_inputs, n_rows;
    usc_case_call call = {0};
    if (!PyArg_ParseTuple(args, "sLO!LLd", &call.op, &number, &PyList_Type, &outputs,
                          &n_inputs, &n_rows, &call.n_products))
        return NULL;
    usc_case_form_of *forms = forms_of(outputs);
    case_object *self = forms != NULL ? py_case_enter(self_object) : NULL;
    if (self == NULL) {
        PyMem_Free(forms);
        return NULL;
    }
    usc_error err = {0};
    call.number = number;
    call.outputs = forms;
    call.n_outputs = (int)PyList_GET_SIZE(outputs);
    call.n_inputs = n_inputs;
    call.n_rows = n_rows;
    const usc_status st = usc_case_begin_call(self->c, &call, &err);
    PyMem_Free(forms);
    return py_case_leave(self, st, &err);
}

PyObject *py_case_go_on(PyObject *self_object, PyObject *unused)
{
    assert(self_object != NULL);
    (void)unused;
    case_object *self = py_case_enter(self_object);
    if (self == NULL) return NULL;
    usc_error err = {0};
    bool decides;
    PyObject *none = py_case_leave(self, usc_case_go_on(self->c, &decides, &err), &err);
    if (none == NULL) return NULL;
    Py_DECREF(none);
    return PyBool_FromLong(decides);
}

PyObject *py_case_rows(PyObject *self_object, PyObject *unused)
{
    assert(self_object != NULL);
    (void)unused;
    case_object *self = py_case_enter(self_object);
    if (self == NULL) return NULL;
    int64_t n;
    const int64_t *rows = usc_case_rows(self->c, &n);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (int64_t i = 0; list != NULL && i < n; i++) {
        PyObject *row = PyLong_FromLongLong(rows[i]);
        if (row == NULL) Py_CLEAR(list);
        if (row != NULL) PyList_SET_ITEM(list, (Py_ssize_t)i, row);
    }
    PyThread_release_lock(self->lock);
    return list;
}
