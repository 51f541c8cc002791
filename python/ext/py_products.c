// SPDX-License-Identifier: Apache-2.0
// Binds ulpscope/x/watch_products.h: the sums of a product, held to their bound.
#include "py_tensor.h"

#include <ulpscope/x/watch_products.h>

#include <assert.h>

_Static_assert(sizeof(usc_product_sums) == 4 * sizeof(double), "a line of the table");

/* False with an exception set where there is no such float. */
static bool take_dtype(const char *name, usc_dtype *out)
{
    *out = usc_dtype_by_name(name);
    if (*out != USC_DTYPE_NONE && usc_dtype_info_of(*out)->kind == USC_KIND_FLOAT)
        return true;
    PyErr_Format(PyExc_ValueError, "dtype %s: a float is needed", name);
    return false;
}

static PyObject *product_over(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"sums", "dtype", "n_inner", "unit", NULL};
    PyObject *tensor;
    const char *dtype;
    long long n_inner;
    double unit = 0;
    usc_tensor sums;
    int64_t n = 1, worst;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OsL|d", names, &tensor, &dtype,
                                     &n_inner, &unit))
        return NULL;
    if (py_tensor_borrow(tensor, &sums) < 0) return NULL;
    for (int i = 0; i < sums.ndim; i++)
        n *= sums.sizes[i];
    if (sums.dtype != USC_F64 || n % 4 != 0 || !usc_tensor_contiguous(&sums))
        return PyErr_Format(PyExc_ValueError,
                            "a table of four float64 a line is needed, without gaps");
    usc_product p = {.unit = unit, .n_inner = n_inner};
    if (!take_dtype(dtype, &p.dtype)) return NULL;
    const double over = usc_product_over(&p, sums.data, n / 4, &worst);
    return Py_BuildValue("dL", over, (long long)worst);
}

static PyObject *product_settle(PyObject *module, PyObject *args)
{
    const char *dtype;
    long long n_inner;
    double unit;
    usc_product_sums s;
    usc_product_again again;
    (void)module;
    if (!PyArg_ParseTuple(args, "sLd(dddd)(ddd)", &dtype, &n_inner, &unit, &s.sum,
                          &s.expected, &s.squares, &s.terms, &again.same, &again.other,
                          &again.wide))
        return NULL;
    usc_product p = {.unit = unit, .n_inner = n_inner};
    if (!take_dtype(dtype, &p.dtype)) return NULL;
    return PyLong_FromLong((long)usc_product_settle(&p, &s, &again));
}

static PyMethodDef functions[] = {
    {"product_over", (PyCFunction)(void (*)(void))product_over,
     METH_VARARGS | METH_KEYWORDS,
     "product_over(sums, dtype, n_inner, unit=0.0) -> (largest error / bound, its line): "
     "sums, float64 a line of sum, expected, squares, terms."},
    {"product_settle", product_settle, METH_VARARGS,
     "product_settle(dtype, n_inner, unit, suspect, (same, other, wide)) -> 0: right, 1: "
     "wrong, passing, 2: wrong, lasting."},
    {NULL, NULL, 0, NULL},
};

int py_products_add(PyObject *module)
{
    assert(PyModule_Check(module));
    static const core_number columns = {"product_columns", USC_PRODUCT_COLUMNS};
    if (core_numbers_add(module, &columns, 1) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
