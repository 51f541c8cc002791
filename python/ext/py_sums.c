// SPDX-License-Identifier: Apache-2.0
// Binds ulpscope/sums.h: what a watch wants of many tensors, with the GIL released.
#include "py_tensor.h"

#include <ulpscope/sums.h>

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

static int append(PyObject *list, const usc_sums *s)
{
    PyObject *row = Py_BuildValue("(dddLLLK)", s->max_abs, s->sum_abs, s->sum_sq,
                                  (long long)s->numel, (long long)s->n_nonfinite,
                                  (long long)s->n_zero, (unsigned long long)s->hash64);
    const int code = row == NULL ? -1 : PyList_Append(list, row);
    Py_XDECREF(row);
    return code;
}

/* Tensors [first, first + n) of the list, n <= AT_ONCE. */
static int add_rows(PyObject *module, reads *read, PyObject *tensors, Py_ssize_t first,
                    Py_ssize_t n, PyObject *list)
{
    usc_tensor views[AT_ONCE];
    usc_sums sums[AT_ONCE];
    usc_error err = {0};
    for (Py_ssize_t i = 0; i < n; i++)
        if (py_tensor_borrow(PySequence_Fast_GET_ITEM(tensors, first + i), &views[i]) < 0)
            return -1;
    const usc_status st = compute(read, views, n, sums, &err);
    if (st != USC_OK) {
        (void)core_raise(PyModule_GetState(module), st, &err);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (append(list, &sums[i]) < 0) return -1;
    return 0;
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
    PyObject *list = tensors != NULL ? PyList_New(0) : NULL;
    const Py_ssize_t n = tensors != NULL ? PyTuple_GET_SIZE(tensors) : 0;
    for (Py_ssize_t i = 0; list != NULL && i < n; i += AT_ONCE)
        if (add_rows(module, read, tensors, i, n - i < AT_ONCE ? n - i : AT_ONCE, list) <
            0)
            Py_CLEAR(list);
    Py_XDECREF(tensors);
    return list;
}

static PyMethodDef functions[] = {
    {"sums", (PyCFunction)(void (*)(void))sums, METH_VARARGS | METH_KEYWORDS,
     "sums(tensors, hashed=True)\n--\n\nOf each tensor on the CPU (max |x|, sum |x|, "
     "sum x^2, elements, NaN and Inf, zeros, hash or 0): docs/metrics.md."},
    {NULL, NULL, 0, NULL},
};

int py_sums_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
