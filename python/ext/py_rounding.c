// SPDX-License-Identifier: Apache-2.0
// What runs of `executors.noise` need of <ulpscope/x/rounding_runs.h>: sums in other
// orders, steps and terms moved by roundings, large pages. Tensors are borrowed.
#include "py_tensor.h"

#include <ulpscope/x/rounding_runs.h>

#include <assert.h>

/* Borrows a contiguous tensor of one dtype; its address, or NULL with an exception. */
static void *whole(PyObject *tensor, usc_dtype dtype, int64_t *n)
{
    usc_tensor t;
    int64_t found = 0;
    if (py_tensor_borrow(tensor, &t) < 0) return NULL;
    const bool fits = t.dtype == dtype && usc_tensor_contiguous(&t) &&
                      usc_tensor_numel(&t, &found, NULL) == USC_OK;
    if (!fits || (*n >= 0 && found != *n))
        return PyErr_Format(PyExc_ValueError, "a contiguous tensor of %s is meant",
                            usc_dtype_info_of(dtype)->name);
    *n = found;
    PyObject *address = PyObject_CallMethod(tensor, "data_ptr", NULL);
    void *data = address != NULL ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    static double nothing; /* an empty tensor has no address */
    return data != NULL || PyErr_Occurred() ? data : &nothing;
}

/* The same of one that may be None: false with an exception. */
static bool maybe(PyObject *tensor, usc_dtype dtype, int64_t *n, void **out)
{
    *out = NULL;
    if (tensor == Py_None) return true;
    *out = whole(tensor, dtype, n);
    return *out != NULL;
}

static PyObject *py_sum_in_order(PyObject *module, PyObject *args)
{
    PyObject *given, *centre, *out;
    usc_order order = {0};
    int backwards, stalls = 0;
    int64_t n_rows = -1;
    usc_tensor terms;
    void *middle;
    usc_error err = {0};
    usc_status status;
    if (!PyArg_ParseTuple(args, "OOOiip|p", &given, &centre, &out, &order.n_inner,
                          &order.n_parts, &backwards, &stalls) ||
        py_tensor_borrow(given, &terms) < 0)
        return NULL;
    order.backwards = backwards == 1;
    order.stalls = stalls == 1;
    float *to = whole(out, USC_F32, &n_rows);
    int64_t rows = 1;
    for (int i = 0; i < terms.ndim - order.n_inner; i++)
        rows *= terms.sizes[i];
    if (to == NULL || !maybe(centre, USC_F32, &n_rows, &middle)) return NULL;
    if (rows != n_rows) return PyErr_Format(PyExc_ValueError, "a sum for each row");
    Py_BEGIN_ALLOW_THREADS;
    status = usc_sum_in_order(&terms, &order, middle, to, &err);
    Py_END_ALLOW_THREADS;
    if (status != USC_OK) return core_raise(PyModule_GetState(module), status, &err);
    Py_RETURN_NONE;
}

static PyObject *py_step_moved(PyObject *module, PyObject *args)
{
    PyObject *out, *exact, *flat, *ulps, *to;
    usc_step step = {0};
    bool stayed = false;
    int64_t n = -1;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOddO", &out, &exact, &flat, &ulps, &step.low,
                          &step.high, &to))
        return NULL;
    void *room[3], *between;
    if ((room[0] = whole(out, USC_F32, &n)) == NULL ||
        (room[1] = whole(exact, USC_F64, &n)) == NULL ||
        !maybe(flat, USC_F64, &n, &between) ||
        (room[2] = whole(ulps, USC_I8, &n)) == NULL)
        return NULL;
    float *moved = whole(to, USC_F32, &n);
    if (moved == NULL) return NULL;
    step.out = room[0], step.exact = room[1], step.flat = between;
    step.ulps = room[2], step.n = n;
    Py_BEGIN_ALLOW_THREADS usc_step_moved(&step, moved, &stayed);
    Py_END_ALLOW_THREADS return PyBool_FromLong(stayed);
}

static PyObject *py_terms_moved(PyObject *module, PyObject *args)
{
    PyObject *given, *signs, *out;
    double ulp;
    int64_t n = -1;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOdO", &given, &signs, &ulp, &out)) return NULL;
    const float *x = whole(given, USC_F32, &n);
    const uint8_t *up = x != NULL ? whole(signs, USC_U8, &n) : NULL;
    double *to = up != NULL ? whole(out, USC_F64, &n) : NULL;
    if (to == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS usc_terms_moved(x, up, ulp, n, to);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *py_beyond_float32(PyObject *module, PyObject *args)
{
    PyObject *tensor;
    int maybe;
    usc_tensor t;
    bool found;
    usc_error err = {0};
    usc_status status;
    if (!PyArg_ParseTuple(args, "Op", &tensor, &maybe) ||
        py_tensor_borrow(tensor, &t) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = usc_beyond_float32(&t, maybe == 1, &found, &err);
    Py_END_ALLOW_THREADS return status == USC_OK
        ? PyBool_FromLong(found)
        : core_raise(PyModule_GetState(module), status, &err);
}

static PyObject *py_round_to(PyObject *module, PyObject *args)
{
    PyObject *given;
    usc_number_format format;
    int64_t n = -1;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oiii", &given, &format.bits, &format.emin, &format.emax))
        return NULL;
    if (format.bits < 2 || format.bits > 52 || format.emin < -900 || format.emax > 1022)
        return PyErr_Format(PyExc_ValueError, "no format of %d bits", format.bits);
    double *x = whole(given, USC_F64, &n);
    if (x == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS usc_round_to(&format, x, n);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *py_unit_of(PyObject *module, PyObject *tensor)
{
    usc_tensor t;
    double unit;
    usc_error err = {0};
    usc_status status;
    if (py_tensor_borrow(tensor, &t) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS status = usc_unit_of(&t, &unit, &err);
    Py_END_ALLOW_THREADS return status == USC_OK
        ? PyFloat_FromDouble(unit)
        : core_raise(PyModule_GetState(module), status, &err);
}

static PyObject *py_large_pages(PyObject *module, PyObject *args)
{
    unsigned long long address;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "Kn:large_pages", &address, &size)) return NULL;
    if (size > 0) usc_large_pages((void *)(uintptr_t)address, (size_t)size);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"sum_in_order", py_sum_in_order, METH_VARARGS,
     "sum_in_order(terms, centre, out, n_inner, n_parts, backwards, stalls=False): see "
     "usc_sum_in_order."},
    {"step_moved", py_step_moved, METH_VARARGS,
     "step_moved(out, exact, flat, ulps, low, high, to) -> bool: see usc_step_moved."},
    {"terms_moved", py_terms_moved, METH_VARARGS,
     "terms_moved(x, up, ulp, out): see usc_terms_moved."},
    {"beyond_float32", py_beyond_float32, METH_VARARGS,
     "beyond_float32(tensor, maybe) -> bool: see usc_beyond_float32."},
    {"round_to", py_round_to, METH_VARARGS,
     "round_to(x, bits, emin, emax): doubles in their place, see usc_round_to."},
    {"unit_of", py_unit_of, METH_O, "unit_of(tensor) -> float: see usc_unit_of."},
    {"large_pages", py_large_pages, METH_VARARGS,
     "large_pages(address, size): of memory that nobody has touched."},
    {NULL, NULL, 0, NULL},
};

int py_rounding_add(PyObject *module)
{
    assert(PyModule_Check(module));
    if (PyModule_AddIntConstant(module, "never_stalls", USC_NEVER_STALLS) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
