// SPDX-License-Identifier: Apache-2.0
// Bindings of generate.h: `_core.need`, `_core.stand_in`, `_core.stress`,
// `_core.uniform`.
#include "core.h"
#include "py_tensor.h"

#include <ulpscope/trace.h>
#include <ulpscope/x/generate.h>

#include <assert.h>
#include <string.h>

/* A text of a dict that may be missing or None: "" then; NULL with an exception set. */
static const char *text_of(PyObject *dict, const char *key)
{
    PyObject *value = PyDict_GetItemString(dict, key); /* borrowed */
    return value == NULL || value == Py_None ? "" : PyUnicode_AsUTF8(value);
}

/* A list of integers of a dict; how many, -1 with an exception set. */
static int integers_of(PyObject *dict, const char *key, int64_t *out)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    PyObject *fast =
        value != NULL ? PySequence_Fast(value, "sizes are no sequence") : NULL;
    if (fast == NULL) {
        if (!PyErr_Occurred()) (void)PyErr_Format(PyExc_KeyError, "%s", key);
        return -1;
    }
    Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
    if (n > USC_MAX_DIMS) {
        (void)PyErr_Format(PyExc_ValueError, "%zd axes", n);
        n = -1;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        out[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
    Py_DECREF(fast);
    return PyErr_Occurred() ? -1 : (int)n;
}

typedef struct dims {
    int64_t sizes[USC_MAX_DIMS], strides[USC_MAX_DIMS];
} dims;

/* A row of a tensor as `Trace.call` gives it, which points into `of`; -1 with an exception
 * set. */
static int read_arg(PyObject *dict, usc_call_arg *out, dims *of)
{
    *out =
        (usc_call_arg){.role = USC_ROLE_IN, .sizes = of->sizes, .strides = of->strides};
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "a row of a tensor is a dict");
        return -1;
    }
    const char *role = text_of(dict, "role");
    out->path = text_of(dict, "path");
    out->dtype_name = text_of(dict, "dtype");
    out->stats = text_of(dict, "stats");
    if (role == NULL || out->path == NULL || out->dtype_name == NULL ||
        out->stats == NULL)
        return -1;
    if (strcmp(role, usc_role_text(USC_ROLE_OUT)) == 0) out->role = USC_ROLE_OUT;
    if (strcmp(role, usc_role_text(USC_ROLE_MUTATED)) == 0) out->role = USC_ROLE_MUTATED;
    out->ndim = integers_of(dict, "sizes", of->sizes);
    if (out->ndim < 0) return -1;
    return integers_of(dict, "strides", of->strides) == out->ndim ? 0 : -1;
}

/* What the operator of the row `call` (None: none) asks of `arg`. */
static int read_need(const core_state *state, PyObject *call, const usc_call_arg *arg,
                     usc_stand_in_options *out)
{
    *out = (usc_stand_in_options){0};
    if (call == Py_None) return 0;
    PyObject *rows = PyDict_Check(call) ? PyDict_GetItemString(call, "tensors") : NULL;
    PyObject *fast = rows != NULL ? PySequence_Fast(rows, "tensors are no list") : NULL;
    if (fast == NULL) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "no row of a call");
        return -1;
    }
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
    usc_call_arg *args = PyMem_Calloc((size_t)n + 1, sizeof *args);
    dims *of = PyMem_Calloc((size_t)n + 1, sizeof *of);
    int result = args != NULL && of != NULL ? 0 : (PyErr_NoMemory(), -1);
    for (Py_ssize_t i = 0; result == 0 && i < n; i++)
        result = read_arg(PySequence_Fast_GET_ITEM(fast, i), &args[i], &of[i]);
    const usc_call row = {.op = text_of(call, "op"),
                          .args = text_of(call, "args"),
                          .n_args = (int)n,
                          .arg = args};
    usc_error err = {0};
    if (PyErr_Occurred()) result = -1;
    const usc_status st = result == 0 ? usc_stand_in_need(&row, arg, out, &err) : USC_OK;
    PyMem_Free(args);
    PyMem_Free(of);
    Py_DECREF(fast);
    if (st == USC_OK) return result;
    (void)core_raise(state, st, &err);
    return -1;
}

static PyObject *made(const core_state *state, const usc_call_arg *arg,
                      const usc_stand_in_options *options, const char *trace,
                      long long sequence)
{
    usc_stats stats;
    usc_error err = {0};
    size_t size = 0;
    usc_tensor like = {.dtype = usc_dtype_by_name(arg->dtype_name), .ndim = arg->ndim};
    for (int i = 0; i < arg->ndim; i++) {
        like.sizes[i] = arg->sizes[i];
        like.strides[i] = arg->strides[i];
    }
    usc_status st = usc_stats_from_json(arg->stats, &stats, &err);
    if (st == USC_OK) st = usc_stand_in_size(&like, &size, &err);
    if (st != USC_OK) return core_raise(state, st, &err);
    PyObject *bytes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (bytes == NULL) return NULL;
    char *to = PyByteArray_AS_STRING(bytes);
    const usc_stream stream = usc_stand_in_stream(&stats, trace, sequence, arg->path);
    Py_BEGIN_ALLOW_THREADS st =
        usc_stand_in_make(&like, &stats, options, stream, to, size, &err);
    Py_END_ALLOW_THREADS if (st != USC_OK)
    {
        Py_DECREF(bytes);
        return core_raise(state, st, &err);
    }
    return bytes;
}

static PyObject *stand_in(PyObject *module, PyObject *args)
{
    const core_state *state = PyModule_GetState(module);
    usc_stand_in_options options;
    usc_call_arg arg;
    dims of;
    const char *trace;
    long long sequence;
    PyObject *tensor, *call;
    if (!PyArg_ParseTuple(args, "sLOO", &trace, &sequence, &tensor, &call)) return NULL;
    if (read_arg(tensor, &arg, &of) < 0 || read_need(state, call, &arg, &options) < 0)
        return PyErr_Occurred()
                   ? NULL
                   : PyErr_Format(PyExc_ValueError, "sizes and strides differ in number");
    return made(state, &arg, &options, trace, sequence);
}

static PyObject *need(PyObject *module, PyObject *args)
{
    static const char *const texts[] = {"", "index", "definite", "triangular"};
    const core_state *state = PyModule_GetState(module);
    usc_stand_in_options options;
    usc_call_arg arg;
    dims of;
    PyObject *tensor, *call;
    if (!PyArg_ParseTuple(args, "OO", &tensor, &call)) return NULL;
    if (read_arg(tensor, &arg, &of) < 0 || read_need(state, call, &arg, &options) < 0)
        return PyErr_Occurred()
                   ? NULL
                   : PyErr_Format(PyExc_ValueError, "sizes and strides differ in number");
    return Py_BuildValue("(sL)", texts[options.need], (long long)options.limit);
}

static PyObject *stress(PyObject *module, PyObject *args)
{
    const core_state *state = PyModule_GetState(module);
    const char *text;
    PyObject *like;
    unsigned long long seed, stream;
    usc_tensor view;
    usc_error err = {0};
    int64_t n = 0;
    if (!PyArg_ParseTuple(args, "sOKK", &text, &like, &seed, &stream)) return NULL;
    const usc_stress kind = usc_stress_by_text(text);
    if (kind == USC_N_STRESS)
        return PyErr_Format(PyExc_ValueError, "no values of kind '%s'", text);
    if (py_tensor_borrow(like, &view) < 0) return NULL;
    usc_status st = usc_tensor_numel(&view, &n, &err);
    if (st != USC_OK) return core_raise(state, st, &err);
    const size_t size = (size_t)n * usc_dtype_info_of(view.dtype)->size;
    PyObject *bytes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (bytes == NULL) return NULL;
    char *to = PyByteArray_AS_STRING(bytes);
    const usc_stream of = {.seed = seed, .number = stream};
    Py_BEGIN_ALLOW_THREADS st = usc_stress_make(kind, &view, of, to, size, &err);
    Py_END_ALLOW_THREADS if (st != USC_OK)
    {
        Py_DECREF(bytes);
        return core_raise(state, st, &err);
    }
    return bytes;
}

static PyObject *uniform(PyObject *module, PyObject *args)
{
    unsigned long long seed, number, i;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKK", &seed, &number, &i)) return NULL;
    const usc_stream stream = {.seed = seed, .number = number};
    return PyFloat_FromDouble(usc_stream_uniform(stream, i));
}

static PyMethodDef functions[] = {
    {"uniform", uniform, METH_VARARGS,
     "uniform(seed, number, i) -> float of [0, 1): see usc_stream_uniform."},
    {"stress", stress, METH_VARARGS,
     "stress(kind, like, seed, stream) -> bytearray: see usc_stress_make."},
    {"need", need, METH_VARARGS,
     "need(tensor, call) -> (what, limit): what the operator of the row `call` asks of "
     "its "
     "row\n`tensor`: '', 'index' below `limit` (0: not known), 'definite', "
     "'triangular'."},
    {"stand_in", stand_in, METH_VARARGS,
     "stand_in(trace, sequence, tensor, call) -> bytearray: see usc_stand_in_make. "
     "`tensor`\nis a row of `call`, a row of a trace or None."},
    {NULL, NULL, 0, NULL},
};

int py_generate_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
