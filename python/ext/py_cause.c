// SPDX-License-Identifier: Apache-2.0
// Bindings of cause.h: `_core.Cause`, `cause_of_shape`, `significant_bits`. Tensors come
// as torch.Tensor on the CPU and are borrowed; a Cause keeps those alive that it was made
// with.
#include "py_judge.h"
#include "py_tensor.h"

#include <ulpscope/cause.h>

#include <assert.h>
#include <string.h>

typedef struct cause_object {
    PyObject_HEAD; /* the semicolon is for the formatter */
    usc_cause *c;
    PyThread_type_lock lock; /* one thread at a time, also while the GIL is released */
    PyObject *kept;          /* what the tensors are borrowed from */
} cause_object;

/* ---- opening ---- */

/* Whether what was raised is that the table lacks a dtype: it is taken for nothing. */
static bool passed_over_dtype(void)
{
    PyObject *type, *value, *traceback, *kind;
    PyErr_Fetch(&type, &value, &traceback);
    kind = core_dtype_error();
    const bool is = kind != NULL && PyErr_GivenExceptionMatches(type, kind);
    Py_XDECREF(kind);
    if (!is) {
        PyErr_Restore(type, value, traceback);
        return false;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return true;
}

/* Tensors of a dict by name, as an array that the caller frees with PyMem_Free(). */
static int borrow_named(PyObject *dict, usc_cause_named **out, int *n)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    *n = 0;
    *out = NULL;
    if (dict == NULL || dict == Py_None) return 0;
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "named tensors come in a dict");
        return -1;
    }
    *out = PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof **out);
    if (*out == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    while (PyDict_Next(dict, &at, &key, &value)) {
        usc_cause_named *named = &(*out)[*n];
        named->name = PyUnicode_AsUTF8(key);
        if (named->name == NULL) return -1;
        if (py_tensor_borrow(value, &named->tensor) == 0) {
            (*n)++;
            continue;
        }
        if (!passed_over_dtype()) return -1;
    }
    return 0;
}

static int open_cause(PyObject *self_object, const usc_cause_operands *o)
{
    cause_object *self = (cause_object *)self_object;
    usc_error err = {0};
    usc_status status;
    usc_cause *c = NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_cause_open(o, &c, &err);
    Py_END_ALLOW_THREADS;
    self->c = c;
    if (status == USC_OK) return 0;
    core_raise(core_state_of(Py_TYPE(self_object)), status, &err);
    return -1;
}

static int cause_init(PyObject *self_object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"device",         "truth",  "yardstick", "before",
                            "inputs",         "others", "verdict",   "bits",
                            "odd_is_excused", "heads",  "parts",     NULL};
    cause_object *self = (cause_object *)self_object;
    PyObject *device, *truth, *yardstick, *before = NULL, *inputs = NULL, *others = NULL;
    usc_tensor d, t, y, b;
    usc_cause_named *in = NULL, *other = NULL;
    usc_cause_operands o = {.device = &d, .truth = &t, .yardstick = &y};
    const char *verdict = "";
    int excused = 0, heads = 0, parts = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|OOOsdppp", names, &device, &truth,
                                     &yardstick, &before, &inputs, &others, &verdict,
                                     &o.bits, &excused, &heads, &parts))
        return -1;
    if (self->c != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a cause is opened once");
        return -1;
    }
    if (self->lock == NULL) self->lock = PyThread_allocate_lock();
    o.verdict = usc_verdict_by_text(verdict);
    o.odd_is_excused = excused != 0;
    o.heads = heads != 0;
    o.parts = parts != 0;
    Py_XSETREF(self->kept, Py_BuildValue("(OOO)", args, kwargs ? kwargs : Py_None,
                                         inputs ? inputs : Py_None));
    int result = self->lock == NULL || self->kept == NULL ? -1 : 0;
    if (result == 0 &&
        (py_tensor_borrow(device, &d) < 0 || py_tensor_borrow(truth, &t) < 0 ||
         py_tensor_borrow(yardstick, &y) < 0 ||
         py_tensor_borrow_optional(before, &b, &o.before) < 0 ||
         borrow_named(inputs, &in, &o.n_inputs) < 0 ||
         borrow_named(others, &other, &o.n_others) < 0))
        result = -1;
    o.inputs = in;
    o.others = other;
    if (result == 0) result = open_cause(self_object, &o);
    PyMem_Free(in);
    PyMem_Free(other);
    return result;
}

static void cause_dealloc(PyObject *self_object)
{
    cause_object *self = (cause_object *)self_object;
    PyTypeObject *type = Py_TYPE(self_object);
    usc_cause_close(self->c);
    Py_XDECREF(self->kept);
    if (self->lock != NULL) PyThread_free_lock(self->lock);
    type->tp_free(self_object);
    Py_DECREF(type);
}

/* ---- questions ---- */

static usc_cause *enter(PyObject *self_object)
{
    cause_object *self = (cause_object *)self_object;
    if (self->c == NULL) {
        PyErr_SetString(PyExc_ValueError, "the cause is not open");
        return NULL;
    }
    core_lock(self->lock);
    return self->c;
}

static PyObject *leave(PyObject *self_object, usc_status status, const usc_error *err,
                       PyObject *result)
{
    PyThread_release_lock(((cause_object *)self_object)->lock);
    if (status == USC_OK) return result;
    Py_XDECREF(result);
    return core_raise(core_state_of(Py_TYPE(self_object)), status, err);
}

static int index_of(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return i;
    PyErr_Format(PyExc_ValueError, "there is no %s", name);
    return -1;
}

static PyObject *cause_ask(PyObject *self, PyObject *args)
{
    static const char *const looks[] = {"plain", "kinds",  "size",     "order", "clip",
                                        "side",  "places", "anything", "place"};
    const char *name;
    if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
    const int look = index_of(name, looks, USC_CAUSE_PLACE + 1);
    usc_cause *c = look >= 0 ? enter(self) : NULL;
    if (c == NULL) return NULL;

    usc_cause_found found;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_cause_ask(c, (usc_cause_look)look, &found, &err);
    Py_END_ALLOW_THREADS;
    return leave(
        self, status, &err,
        Py_BuildValue("(ssd)", usc_cause_code_text(found.code), found.text, found.left));
}

static PyObject *cause_hint(PyObject *self, PyObject *args)
{
    int adds;
    unsigned formats;
    if (!PyArg_ParseTuple(args, "pI", &adds, &formats)) return NULL;
    usc_cause *c = enter(self);
    if (c == NULL) return NULL;
    usc_cause_hint(c, adds != 0, formats);
    return leave(self, USC_OK, NULL, Py_NewRef(Py_None));
}

static PyObject *cause_weigh(PyObject *self, PyObject *args)
{
    static const char *const weights[] = {"left",      "near",        "reproduces",
                                          "same_bits", "contradicts", "unmoved",
                                          "follows",   "nearer"};
    const char *name;
    PyObject *run, *narrow = NULL;
    usc_tensor r, n;
    const usc_tensor *also;
    if (!PyArg_ParseTuple(args, "sO|O", &name, &run, &narrow)) return NULL;
    const int weight = index_of(name, weights, USC_CAUSE_NEARER + 1);
    if (weight < 0 || py_tensor_borrow(run, &r) < 0 ||
        py_tensor_borrow_optional(narrow, &n, &also) < 0)
        return NULL;
    usc_cause *c = enter(self);
    if (c == NULL) return NULL;

    double out = 0;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_cause_weigh(c, (usc_cause_weight)weight, &r, also, &out, &err);
    Py_END_ALLOW_THREADS;
    return leave(self, status, &err, PyFloat_FromDouble(out));
}

static PyObject *cause_of_size(PyObject *self, PyObject *args)
{
    enum { MOST = 16 };
    usc_tensor runs[MOST];
    PyObject *list;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list)) return NULL;
    const Py_ssize_t n = PyList_GET_SIZE(list);
    if (n > MOST) {
        PyErr_SetString(PyExc_ValueError, "too many runs");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (py_tensor_borrow(PyList_GET_ITEM(list, i), &runs[i]) < 0) return NULL;
    usc_cause *c = enter(self);
    if (c == NULL) return NULL;

    bool out = false;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_cause_of_size(c, runs, (int)n, &out, &err);
    Py_END_ALLOW_THREADS;
    return leave(self, status, &err, PyBool_FromLong(out));
}

static PyObject *cause_errors(PyObject *self, PyObject *unused)
{
    (void)unused;
    usc_cause *c = enter(self);
    if (c == NULL) return NULL;

    usc_cause_errors out;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_cause_errors_of(c, &out, &err);
    Py_END_ALLOW_THREADS;
    return leave(self, status, &err,
                 Py_BuildValue("{s:L,s:L,s:L,s:N,s:N,s:N}", "independent",
                               (long long)out.independent, "far", (long long)out.far,
                               "finite", (long long)out.finite, "mixed",
                               PyBool_FromLong(out.mixed), "one_sided",
                               PyBool_FromLong(out.one_sided), "few_values",
                               PyBool_FromLong(out.few_values)));
}

static PyObject *cause_sample(PyObject *self, PyObject *unused)
{
    const int64_t *places;
    const uint8_t *off;
    (void)unused;
    usc_cause *c = enter(self);
    if (c == NULL) return NULL;
    const Py_ssize_t n = (Py_ssize_t)usc_cause_sample(c, &places, &off);
    PyObject *list = places == NULL
                         ? Py_NewRef(Py_None)
                         : PyByteArray_FromStringAndSize((const char *)places,
                                                         n * (Py_ssize_t)sizeof *places);
    PyObject *flags = PyByteArray_FromStringAndSize((const char *)off, n);
    return leave(self, USC_OK, NULL, Py_BuildValue("(NN)", list, flags));
}

/* ---- functions ---- */

static PyObject *cause_of_shape(PyObject *module, PyObject *args)
{
    PyObject *device, *truth;
    usc_tensor d, t;
    usc_cause_found found;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &device, &truth) ||
        py_tensor_borrow(device, &d) < 0 || py_tensor_borrow(truth, &t) < 0)
        return NULL;
    usc_cause_shape(&d, &t, &found);
    return PyUnicode_FromString(found.text);
}

static PyObject *cause_tells_place(PyObject *module, PyObject *args)
{
    const char *code;
    (void)module;
    if (!PyArg_ParseTuple(args, "s", &code)) return NULL;
    return PyBool_FromLong(usc_cause_tells_place(code));
}

static PyObject *significant_bits(PyObject *module, PyObject *args)
{
    PyObject *tensor;
    usc_tensor t;
    long long least = 4;
    int out = 0;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "O|L", &tensor, &least) ||
        py_tensor_borrow(tensor, &t) < 0)
        return NULL;
    const usc_status status = usc_cause_grid(&t, least, &out, &err);
    if (status != USC_OK) return core_raise(PyModule_GetState(module), status, &err);
    return PyLong_FromLong(out);
}

static PyMethodDef functions[] = {
    {"cause_of_shape", cause_of_shape, METH_VARARGS,
     "cause_of_shape(device, truth) -> str: see usc_cause_shape."},
    {"cause_tells_place", cause_tells_place, METH_VARARGS,
     "cause_tells_place(code) -> bool: see usc_cause_tells_place."},
    {"significant_bits", significant_bits, METH_VARARGS,
     "significant_bits(tensor, least=4) -> int: see usc_cause_grid."},
    {NULL, NULL, 0, NULL},
};

/* ---- the type ---- */

static PyMethodDef methods[] = {
    {"ask", cause_ask, METH_VARARGS,
     "ask(look) -> (code, text, left): see usc_cause_ask; \"plain\", \"kinds\", "
     "\"size\", "
     "\"order\", \"side\", \"places\" or \"anything\"."},
    {"hint", cause_hint, METH_VARARGS, "hint(adds, formats): see usc_cause_hint."},
    {"weigh", cause_weigh, METH_VARARGS,
     "weigh(weight, run, narrow=None) -> float: see usc_cause_weigh; \"left\", \"near\", "
     "\"reproduces\", \"same_bits\", \"contradicts\", \"unmoved\" or \"follows\"."},
    {"of_size", cause_of_size, METH_VARARGS, "of_size(runs) -> bool."},
    {"errors", cause_errors, METH_NOARGS, "errors() -> dict: see usc_cause_errors."},
    {"sample", cause_sample, METH_NOARGS,
     "sample() -> (bytes of int64 places or None for all, bytes of bool: off)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cause_slots[] = {
    {Py_tp_doc, "Cause(device, truth, yardstick, before=None, inputs=None, others=None, "
                "verdict=\"\", bits=0, odd_is_excused=False): see ulpscope/cause.h."},
    {Py_tp_new, METHOD(PyType_GenericNew)},
    {Py_tp_init, METHOD(cause_init)},
    {Py_tp_dealloc, METHOD(cause_dealloc)},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec cause_spec = {
    .name = "ulpscope._core.Cause",
    .basicsize = sizeof(cause_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = cause_slots,
};

int py_cause_add(PyObject *module)
{
    assert(PyModule_Check(module));
    PyObject *type = PyType_FromModuleAndSpec(module, &cause_spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "Cause", type);
    Py_DECREF(type);
    if (result < 0) return -1;
    PyObject *most = PyFloat_FromDouble(USC_CAUSE_LEFT_MOST);
    const int added = PyModule_AddObjectRef(module, "cause_left_most", most);
    Py_XDECREF(most);
    return added < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
