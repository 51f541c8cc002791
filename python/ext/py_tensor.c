// SPDX-License-Identifier: Apache-2.0
// Borrows torch tensors: address, dtype, shape and strides as the C library sees them.
#include "py_tensor.h"

#include <assert.h>

/* Reads a tuple of integers (shape, stride()) into `out`; -1 with an exception set. */
static int read_dims(PyObject *tuple, int64_t *out)
{
    PyObject *fast = PySequence_Fast(tuple, "shape and strides must be sequences");
    if (fast == NULL) return -1;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
    int result = -1;
    if (n > USC_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "a tensor of %zd axes; at most %d are judged", n,
                     USC_MAX_DIMS);
        goto done;
    }
    for (Py_ssize_t i = 0; i < n; ++i) {
        out[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
        if (out[i] == -1 && PyErr_Occurred()) goto done;
    }
    result = (int)n;

done:
    Py_DECREF(fast);
    return result;
}

static int read_dtype(PyObject *tensor, usc_dtype *out)
{
    PyObject *dtype = PyObject_GetAttrString(tensor, "dtype");
    PyObject *text = dtype == NULL ? NULL : PyObject_Str(dtype);
    Py_XDECREF(dtype);
    if (text == NULL) return -1;
    const char *name = PyUnicode_AsUTF8(text);
    *out = name == NULL ? USC_DTYPE_NONE : usc_dtype_by_name(name);
    if (*out == USC_DTYPE_NONE && name != NULL) {
        PyObject *kind = core_dtype_error();
        if (kind != NULL) PyErr_Format(kind, "dtype %s is not in the table", name);
        Py_XDECREF(kind);
    }
    Py_DECREF(text);
    return *out == USC_DTYPE_NONE ? -1 : 0;
}

/* The tensor's bytes are host memory: device memory is not ours to touch. */
static int require_cpu(PyObject *tensor)
{
    PyObject *flag = PyObject_GetAttrString(tensor, "is_cpu");
    if (flag == NULL) return -1;
    int on_cpu = PyObject_IsTrue(flag);
    Py_DECREF(flag);
    if (on_cpu == 0) PyErr_SetString(PyExc_ValueError, "the tensor is not on the CPU");
    return on_cpu == 1 ? 0 : -1;
}

int py_tensor_borrow(PyObject *tensor, usc_tensor *out)
{
    assert(tensor && out);
    *out = (usc_tensor){.dtype = USC_DTYPE_NONE};
    if (require_cpu(tensor) < 0 || read_dtype(tensor, &out->dtype) < 0) return -1;
    PyObject *shape = PyObject_GetAttrString(tensor, "shape");
    out->ndim = shape == NULL ? -1 : read_dims(shape, out->sizes);
    Py_XDECREF(shape);
    if (out->ndim < 0) return -1;
    PyObject *strides = PyObject_CallMethod(tensor, "stride", NULL);
    const int n = strides == NULL ? -1 : read_dims(strides, out->strides);
    Py_XDECREF(strides);
    if (n < 0) return -1;
    PyObject *address = PyObject_CallMethod(tensor, "data_ptr", NULL);
    if (address == NULL) return -1;
    out->data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

int py_tensor_borrow_optional(PyObject *tensor, usc_tensor *room, const usc_tensor **out)
{
    assert(room && out);
    *out = NULL;
    if (tensor == NULL || tensor == Py_None) return 0;
    *out = room;
    return py_tensor_borrow(tensor, room);
}
