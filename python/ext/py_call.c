// SPDX-License-Identifier: Apache-2.0
// A recorded call as a dict. See py_call.h.
#include "py_call.h"
#include "py_judge.h"

#include <assert.h>

static int put_int(PyObject *dict, const char *key, int64_t value)
{
    return py_put(dict, key, PyLong_FromLongLong(value));
}

static int put_text(PyObject *dict, const char *key, const char *value)
{
    return py_put(dict, key, core_text(value));
}

static PyObject *dims_tuple(const int64_t *dims, int n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple != NULL && i < n; i++) {
        PyObject *item = PyLong_FromLongLong(dims[i]);
        if (item == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

static PyObject *arg_dict(const usc_call_arg *a)
{
    PyObject *d = PyDict_New();
    if (d == NULL) return NULL;
    const bool ok =
        put_text(d, "role", usc_role_text(a->role)) == 0 &&
        put_text(d, "path", a->path) == 0 && put_int(d, "tensor", a->tensor) == 0 &&
        put_int(d, "version", a->version) == 0 &&
        put_int(d, "storage", a->storage) == 0 &&
        put_int(d, "generation", a->generation) == 0 &&
        put_int(d, "blob", a->blob) == 0 && put_int(d, "writer", a->writer) == 0 &&
        put_int(d, "storage_bytes", a->storage_bytes) == 0 &&
        put_int(d, "first", a->first) == 0 && put_text(d, "form", a->form) == 0 &&
        put_text(d, "device", a->device) == 0 &&
        put_text(d, "dtype", a->dtype_name) == 0 &&
        py_put(d, "sizes", dims_tuple(a->sizes, a->ndim)) == 0 &&
        py_put(d, "strides", dims_tuple(a->strides, a->ndim)) == 0 &&
        put_int(d, "offset", a->offset) == 0 &&
        py_put(d, "requires_grad", PyBool_FromLong(a->requires_grad)) == 0 &&
        put_text(d, "stats", a->stats) == 0;
    if (!ok) Py_CLEAR(d);
    return d;
}

static PyObject *arg_list(const usc_call *c)
{
    PyObject *list = PyList_New(c->n_args);
    for (int i = 0; list != NULL && i < c->n_args; i++) {
        PyObject *item = arg_dict(&c->arg[i]);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

PyObject *py_call_dict(const usc_call *c)
{
    assert(c != NULL);
    PyObject *d = PyDict_New();
    if (d == NULL) return NULL;
    const bool ok =
        put_int(d, "sequence", c->sequence) == 0 && put_int(d, "step", c->step) == 0 &&
        put_int(d, "parent", c->parent) == 0 && put_int(d, "thread", c->thread) == 0 &&
        put_int(d, "module", c->module) == 0 && put_int(d, "stack", c->stack) == 0 &&
        put_int(d, "n_children", c->n_children) == 0 &&
        put_text(d, "phase", c->phase) == 0 && put_text(d, "op", c->op) == 0 &&
        put_text(d, "schema", c->schema) == 0 &&
        put_text(d, "module_path", c->module_path) == 0 &&
        put_text(d, "module_class", c->module_class) == 0 &&
        put_text(d, "frames", c->frames) == 0 && put_text(d, "args", c->args) == 0 &&
        put_text(d, "state", c->state) == 0 && put_text(d, "status", c->status) == 0 &&
        py_put(d, "composite", PyBool_FromLong(c->composite)) == 0 &&
        py_put(d, "tensors", arg_list(c)) == 0;
    if (!ok) Py_CLEAR(d);
    return d;
}
