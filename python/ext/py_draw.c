// SPDX-License-Identifier: Apache-2.0
// Bindings of draw.h: functions that add findings on draws to a list. Tensors come as
// torch.Tensor on the CPU and are borrowed from arguments that the caller holds.
#include "py_finding.h"
#include "py_tensor.h"

#include <ulpscope/x/draw.h>

#include <assert.h>

enum { MOST_ARGUMENTS = 32, MOST_OUTPUTS = 8 };

static core_state *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

/* None, or the exception of a status. */
static PyObject *done(PyObject *module, usc_status status, const usc_error *err)
{
    if (status != USC_OK) return core_raise(state_of(module), status, err);
    Py_RETURN_NONE;
}

static usc_findings *list_of(PyObject *findings)
{
    return ((findings_object *)findings)->findings;
}

/* A number, or a tensor; -1 with an exception set. */
static int read_value(PyObject *value, double *number, usc_tensor *room,
                      const usc_tensor **tensor)
{
    *tensor = NULL;
    *number = 0;
    if (!PyFloat_Check(value) && !PyLong_Check(value))
        return py_tensor_borrow_optional(value, room, tensor);
    *number = PyFloat_AsDouble(value);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *draw_known(PyObject *module, PyObject *args)
{
    const char *op;
    (void)module;
    if (!PyArg_ParseTuple(args, "s", &op)) return NULL;
    return PyBool_FromLong(usc_draw_known(op));
}

static PyObject *draw_count_odd(PyObject *module, PyObject *args)
{
    long long k, n;
    double p;
    (void)module;
    if (!PyArg_ParseTuple(args, "LLd", &k, &n, &p)) return NULL;
    return PyBool_FromLong(usc_draw_count_odd(k, n, p));
}

/* ---- a call ---- */

typedef struct read_call {
    usc_draw_argument arguments[MOST_ARGUMENTS];
    usc_draw_output outputs[MOST_OUTPUTS];
    usc_tensor given[MOST_ARGUMENTS], got[2 * MOST_OUTPUTS];
} read_call;

static int read_arguments(PyObject *dict, read_call *r)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int n = 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
        if (n == MOST_ARGUMENTS) {
            PyErr_SetString(PyExc_ValueError, "too many arguments");
            return -1;
        }
        usc_draw_argument *a = &r->arguments[n];
        a->name = PyUnicode_AsUTF8(key);
        if (a->name == NULL ||
            read_value(value, &a->number, &r->given[n], &a->tensor) < 0)
            return -1;
        n++;
    }
    return n;
}

static int read_outputs(PyObject *list, read_call *r)
{
    const Py_ssize_t n = PyList_GET_SIZE(list);
    if (n > MOST_OUTPUTS) {
        PyErr_SetString(PyExc_ValueError, "too many outputs");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *first, *again;
        usc_draw_output *o = &r->outputs[i];
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "sOO", &o->path, &first,
                              &again) ||
            py_tensor_borrow_optional(first, &r->got[2 * i], &o->first) < 0 ||
            py_tensor_borrow_optional(again, &r->got[2 * i + 1], &o->again) < 0)
            return -1;
        if (o->first == NULL) {
            PyErr_SetString(PyExc_TypeError, "an output is None");
            return -1;
        }
    }
    return (int)n;
}

static PyObject *draw_judge(PyObject *module, PyObject *args)
{
    const char *op;
    PyObject *findings, *arguments, *outputs;
    int complex_parts = 0;
    read_call r;
    usc_error err = {0};
    usc_status st;
    if (!PyArg_ParseTuple(args, "O!sO!O!|p", state_of(module)->findings_type, &findings,
                          &op, &PyDict_Type, &arguments, &PyList_Type, &outputs,
                          &complex_parts))
        return NULL;
    usc_draw_call call = {.op = op,
                          .arguments = r.arguments,
                          .n_arguments = read_arguments(arguments, &r),
                          .complex_parts = complex_parts,
                          .outputs = r.outputs};
    if (call.n_arguments < 0) return NULL;
    call.n_outputs = read_outputs(outputs, &r);
    if (call.n_outputs < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    st = usc_draw_judge(&call, list_of(findings), &err);
    Py_END_ALLOW_THREADS;
    return done(module, st, &err);
}

/* ---- masks ---- */

/* (kept, shown), or None; -1 with an exception set. */
static int read_pair(PyObject *pair, usc_tensor room[2], const usc_tensor **kept,
                     const usc_tensor **shown)
{
    PyObject *first, *second;
    *kept = *shown = NULL;
    if (pair == Py_None) return 0;
    if (!PyArg_ParseTuple(pair, "OO", &first, &second)) return -1;
    return py_tensor_borrow_optional(first, &room[0], kept) < 0 ||
                   py_tensor_borrow_optional(second, &room[1], shown) < 0
               ? -1
               : 0;
}

static PyObject *draw_judge_mask(PyObject *module, PyObject *args)
{
    PyObject *findings, *first, *again, *chance;
    usc_draw_mask m = {0};
    usc_tensor room[5];
    long long kept = 0, n = 0, s[3] = {0};
    usc_error err = {0};
    usc_status st;
    if (!PyArg_ParseTuple(args, "O!sOOO|(LL)(LLL)", state_of(module)->findings_type,
                          &findings, &m.path, &first, &again, &chance, &kept, &n, &s[0],
                          &s[1], &s[2]) ||
        read_pair(first, &room[0], &m.kept, &m.shown) < 0 ||
        read_pair(again, &room[2], &m.kept_again, &m.shown_again) < 0 ||
        read_value(chance, &m.chance, &room[4], &m.chances) < 0)
        return NULL;
    if (m.kept == NULL) return PyErr_Format(PyExc_TypeError, "no mask");
    m.honest_kept = kept;
    m.honest_n = n;
    m.honest = (usc_mask_search){.n_blocks = s[0], .n_found = s[1], .n_right = s[2]};
    Py_BEGIN_ALLOW_THREADS;
    st = usc_draw_judge_mask(&m, list_of(findings), &err);
    Py_END_ALLOW_THREADS;
    return done(module, st, &err);
}

/* Where `n` elements of a contiguous tensor of the caller begin; NULL with an exception
 * set. */
static void *room_of(PyObject *tensor, usc_dtype dtype, int64_t n)
{
    usc_tensor t;
    int64_t numel = 0;
    if (py_tensor_borrow(tensor, &t) < 0) return NULL;
    if (t.dtype == dtype && usc_tensor_contiguous(&t) &&
        usc_tensor_numel(&t, &numel, NULL) == USC_OK && numel == n)
        return (void *)(uintptr_t)t.data;
    PyErr_SetString(PyExc_ValueError, "no room of that form");
    return NULL;
}

static PyObject *draw_find_masks(PyObject *module, PyObject *args)
{
    PyObject *in[3], *out[5];
    usc_tensor t[3];
    usc_mask_sums m = {.columns = &t[0], .base = &t[1], .got = &t[2]};
    usc_error err = {0};
    usc_status st;
    if (!PyArg_ParseTuple(args, "OOOdOOOOO", &in[0], &in[1], &in[2], &m.eps, &out[0],
                          &out[1], &out[2], &out[3], &out[4]))
        return NULL;
    for (int i = 0; i < 3; i++)
        if (py_tensor_borrow(in[i], &t[i]) < 0) return NULL;
    if (t[0].ndim != 3) return PyErr_Format(PyExc_ValueError, "columns have three axes");
    const int64_t n = t[0].sizes[0], k = t[0].sizes[2];
    m.kept = room_of(out[0], USC_BOOL, n * k);
    m.shown = m.kept != NULL ? room_of(out[1], USC_BOOL, n * k) : NULL;
    m.sure = m.shown != NULL ? room_of(out[2], USC_BOOL, n) : NULL;
    m.left = m.sure != NULL ? room_of(out[3], USC_F64, n) : NULL;
    m.open = m.left != NULL ? room_of(out[4], USC_F64, n) : NULL;
    if (m.open == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    st = usc_draw_find_masks(&m, &err);
    Py_END_ALLOW_THREADS;
    return done(module, st, &err);
}

static PyObject *draw_try_masks(PyObject *module, PyObject *args)
{
    PyObject *in[3], *out[2];
    usc_tensor t[3];
    usc_mask_tries m = {.given = &t[0], .got = &t[1]};
    usc_error err = {0};
    usc_status st;
    if (!PyArg_ParseTuple(args, "OOOddOO", &in[0], &in[1], &in[2], &m.eps, &m.least,
                          &out[0], &out[1]))
        return NULL;
    for (int i = 0; i < 2; i++)
        if (py_tensor_borrow(in[i], &t[i]) < 0) return NULL;
    if (py_tensor_borrow_optional(in[2], &t[2], &m.noise) < 0) return NULL;
    if (t[0].ndim != 3) return PyErr_Format(PyExc_ValueError, "results have three axes");
    int64_t k = 0;
    while (k < USC_MASK_TRIED && (int64_t)1 << k < t[0].sizes[0])
        k++;
    m.kept = room_of(out[0], USC_BOOL, t[0].sizes[1] * k);
    m.shown = m.kept != NULL ? room_of(out[1], USC_BOOL, t[0].sizes[1] * k) : NULL;
    if (m.shown == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    st = usc_draw_try_masks(&m, &err);
    Py_END_ALLOW_THREADS;
    return done(module, st, &err);
}

/* ---- how far the search is to be trusted ---- */

static int read_search(PyObject *tuple, usc_mask_search *out)
{
    long long n[3];
    if (!PyArg_ParseTuple(tuple, "LLL", &n[0], &n[1], &n[2])) return -1;
    *out = (usc_mask_search){.n_blocks = n[0], .n_found = n[1], .n_right = n[2]};
    return 0;
}

static PyObject *draw_mask_limit(PyObject *module, PyObject *tensor)
{
    (void)module;
    usc_tensor t;
    if (py_tensor_borrow(tensor, &t) < 0) return NULL;
    double *left = t.ndim == 1 ? room_of(tensor, USC_F64, t.sizes[0]) : NULL;
    if (left == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "one axis is meant");
    return PyErr_Occurred() ? NULL
                            : PyFloat_FromDouble(usc_draw_mask_limit(left, t.sizes[0]));
}

static PyObject *draw_mask_tells(PyObject *module, PyObject *args)
{
    (void)module;
    long long shown, n;
    if (!PyArg_ParseTuple(args, "LL", &shown, &n)) return NULL;
    return PyBool_FromLong(usc_draw_mask_tells(shown, n));
}

static PyObject *draw_search_sound(PyObject *module, PyObject *tuple)
{
    (void)module;
    usc_mask_search honest;
    if (read_search(tuple, &honest) < 0) return NULL;
    return PyBool_FromLong(usc_draw_search_sound(&honest));
}

static PyObject *draw_judge_search(PyObject *module, PyObject *args)
{
    PyObject *findings, *output, *first, *second;
    const char *path;
    usc_tensor t;
    usc_mask_search honest, found;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "O!sOO!O!", state_of(module)->findings_type, &findings,
                          &path, &output, &PyTuple_Type, &first, &PyTuple_Type,
                          &second) ||
        py_tensor_borrow(output, &t) < 0 || read_search(first, &honest) < 0 ||
        read_search(second, &found) < 0)
        return NULL;
    return done(module,
                usc_draw_judge_search(&honest, &found, path, &t, list_of(findings), &err),
                &err);
}

/* ---- a crowd ---- */

static PyObject *draw_judge_crowd(PyObject *module, PyObject *args)
{
    PyObject *findings, *device, *again, *draws;
    usc_tensor first, second, rows[USC_DRAW_CROWD];
    usc_draw_crowd c = {.device = &first, .draws = rows};
    usc_error err = {0};
    usc_status st;
    if (!PyArg_ParseTuple(args, "O!sOOO!", state_of(module)->findings_type, &findings,
                          &c.path, &device, &again, &PyList_Type, &draws) ||
        py_tensor_borrow(device, &first) < 0 ||
        py_tensor_borrow_optional(again, &second, &c.again) < 0)
        return NULL;
    for (; c.n_draws < (int)PyList_GET_SIZE(draws) && c.n_draws < USC_DRAW_CROWD;
         c.n_draws++)
        if (py_tensor_borrow(PyList_GET_ITEM(draws, c.n_draws), &rows[c.n_draws]) < 0)
            return NULL;
    Py_BEGIN_ALLOW_THREADS;
    st = usc_draw_judge_crowd(&c, list_of(findings), &err);
    Py_END_ALLOW_THREADS;
    return done(module, st, &err);
}

static PyMethodDef functions[] = {
    {"draw_known", draw_known, METH_VARARGS, "draw_known(op) -> bool: by a bare name."},
    {"draw_count_odd", draw_count_odd, METH_VARARGS,
     "draw_count_odd(k, n, p) -> bool: see usc_draw_count_odd."},
    {"draw_judge", draw_judge, METH_VARARGS,
     "draw_judge(findings, op, arguments, outputs, complex_parts=False): numbers and\n"
     "tensors by name, [(path, tensor, tensor of another answer or None)]; see\n"
     "usc_draw_judge."},
    {"draw_judge_mask", draw_judge_mask, METH_VARARGS,
     "draw_judge_mask(findings, path, (kept, shown), the same of another answer or "
     "None,\n"
     "chance, (honest_kept, honest_n)=(0, 0), search=(0, 0, 0)): see\n"
     "usc_draw_judge_mask."},
    {"draw_try_masks", draw_try_masks, METH_VARARGS,
     "draw_try_masks(given, got, noise, eps, least, kept, shown): fills the last two, "
     "of\n"
     "bool; `noise` may be None; see usc_draw_try_masks."},
    {"draw_mask_limit", draw_mask_limit, METH_O,
     "draw_mask_limit(left) -> float: sorts it; see usc_draw_mask_limit."},
    {"draw_mask_tells", draw_mask_tells, METH_VARARGS,
     "draw_mask_tells(n_shown, n) -> bool: see usc_draw_mask_tells."},
    {"draw_search_sound", draw_search_sound, METH_O,
     "draw_search_sound((blocks, found, right)) -> bool: see usc_draw_search_sound."},
    {"draw_judge_search", draw_judge_search, METH_VARARGS,
     "draw_judge_search(findings, path, output, honest, found): (blocks, found, right)\n"
     "both; see usc_draw_judge_search."},
    {"draw_find_masks", draw_find_masks, METH_VARARGS,
     "draw_find_masks(columns, base, got, eps, kept, shown, sure, left, open): fills "
     "the\n"
     "last five, three of bool and two of float64; see usc_draw_find_masks."},
    {"draw_judge_crowd", draw_judge_crowd, METH_VARARGS,
     "draw_judge_crowd(findings, path, device, again, draws): `again` may be None; see\n"
     "usc_draw_judge_crowd."},
    {NULL, NULL, 0, NULL},
};

int py_draw_add(PyObject *module)
{
    assert(PyModule_Check(module));
    if (PyModule_AddIntConstant(module, "draw_crowd", USC_DRAW_CROWD) < 0 ||
        PyModule_AddIntConstant(module, "draw_mask_tried", USC_MASK_TRIED) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
