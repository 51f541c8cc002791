// SPDX-License-Identifier: Apache-2.0
// Binds ulpscope/x/sums.h: what a watch wants of many tensors, with the GIL released.
#include "py_tensor.h"

#include <ulpscope/x/sums.h>

#include <assert.h>

enum { AT_ONCE = 32 }; /* tensors between two times the GIL is taken */

typedef usc_status reads(const usc_tensor *t, usc_sums *out, usc_error *err);

static usc_status compute(reads *read, const usc_tensor *views, Py_ssize_t n,
                          usc_sums *out, usc_error *err)
{
    usc_status st = USC_OK;
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < n && st == USC_OK; i++)
        st = read(&views[i], &out[i], err);
    Py_END_ALLOW_THREADS;
    return st;
}

/* Rows are what lies in memory: three doubles and four words. */
_Static_assert(sizeof(usc_sums) == 56, "docs/reference/metrics.md, Sums of a watch");

/* Tensors [first, first + n), n <= AT_ONCE. */
static int fill_rows(PyObject *module, reads *read, PyObject *tensors, Py_ssize_t first,
                     Py_ssize_t n, usc_sums *out)
{
    usc_tensor views[AT_ONCE];
    usc_error err = {0};
    for (Py_ssize_t i = 0; i < n; i++)
        if (py_tensor_borrow(PySequence_Fast_GET_ITEM(tensors, first + i), &views[i]) < 0)
            return -1;
    const usc_status st = compute(read, views, n, out + first, &err);
    if (st == USC_OK) return 0;
    (void)core_raise(PyModule_GetState(module), st, &err);
    return -1;
}

static PyObject *sums(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"tensors", "hashed", NULL};
    PyObject *argument;
    int hashed = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p", names, &argument, &hashed))
        return NULL;
    reads *const read = hashed ? usc_sums_compute : usc_sums_magnitudes;
    PyObject *tensors = PySequence_Tuple(argument); /* whose items stay */
    if (tensors == NULL) return NULL;
    const Py_ssize_t n = PyTuple_GET_SIZE(tensors);
    usc_sums *const rows = PyMem_Calloc((size_t)n + 1, sizeof *rows);
    int code = rows != NULL ? 0 : -1;
    if (rows == NULL) (void)PyErr_NoMemory();
    for (Py_ssize_t i = 0; code == 0 && i < n; i += AT_ONCE)
        code =
            fill_rows(module, read, tensors, i, n - i < AT_ONCE ? n - i : AT_ONCE, rows);
    Py_DECREF(tensors);
    PyObject *bytes = NULL;
    if (code == 0)
        bytes =
            PyBytes_FromStringAndSize((const char *)rows, n * (Py_ssize_t)sizeof *rows);
    PyMem_Free(rows);
    return bytes;
}

static PyMethodDef functions[] = {
    {"sums", (PyCFunction)(void (*)(void))sums, METH_VARARGS | METH_KEYWORDS,
     "sums(tensors, hashed=True)\n--\n\nOf each tensor on the CPU a row of 56 bytes: "
     "max |x|, sum |x|, sum x^2 (float64), elements, NaN and Inf, zeros (int64), hash or "
     "0 (uint64): docs/reference/metrics.md."},
    {NULL, NULL, 0, NULL},
};

int py_sums_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
