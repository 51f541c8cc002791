// SPDX-License-Identifier: Apache-2.0
// `_core.Births`: births of NaN and Inf of a session that writes no trace (flow.h).
// Filled by the session's thread, read by any. Neighbour: py_capture.c.
#include "py_births.h"
#include "core.h"

#include <ulpscope/x/flow.h>

#include <assert.h>

typedef struct births_object {
    PyObject_HEAD; /* the semicolon is for the formatter */
    usc_births *births;
} births_object;

static PyObject *births_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"most", NULL};
    long long most = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|L", names, &most)) return NULL;
    births_object *self = (births_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    usc_error err = {0};
    const usc_status status = usc_births_create(most, &self->births, &err);
    if (status == USC_OK) return (PyObject *)self;
    Py_DECREF(self);
    return core_raise(core_state_of(type), status, &err);
}

static PyObject *births_count(births_object *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLongLong(usc_births_count(self->births, NULL));
}

static PyObject *dict_of(const usc_birth *b)
{
    return Py_BuildValue("{s:L,s:L,s:s,s:s,s:N,s:s,s:N,s:N,s:N,s:N}", "call",
                         (long long)b->event.call, "step", (long long)b->step, "kind",
                         usc_flow_text(b->event.kind), "value", b->value, "op",
                         core_text(b->op), "phase", b->phase, "module",
                         core_text(b->module), "inputs", core_text(b->inputs), "sentence",
                         core_text(b->sentence), "frames", core_text(b->frames));
}

static PyObject *births_read(births_object *self, PyObject *arg)
{
    long long first = PyLong_AsLongLong(arg);
    if (first == -1 && PyErr_Occurred()) return NULL;
    PyObject *list = PyList_New(0);
    const usc_birth *b;
    for (; list != NULL && (b = usc_births_at(self->births, first)) != NULL; first++) {
        PyObject *item = dict_of(b);
        if (item == NULL || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static void births_dealloc(births_object *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    usc_births_free(self->births);
    type->tp_free(self);
    Py_DECREF(type);
}

static usc_status take_call(void *ctx, const usc_call *call, usc_error *err)
{
    return usc_births_call(ctx, call, err);
}

static void forget(void *ctx, int64_t storage)
{
    usc_births_forget(ctx, storage);
}

static bool has_found(void *ctx)
{
    return usc_births_count(ctx, NULL) > 0;
}

static PyMethodDef methods[] = {
    {"count", METHOD(births_count), METH_NOARGS, "count() -> births, kept or not."},
    {"read", METHOD(births_read), METH_O, "read(first) -> list of dicts from there on."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)births_new},
    {Py_tp_dealloc, (void *)births_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Births(most=0): what a Capture without a trace finds."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ulpscope._core.Births",
    .basicsize = sizeof(births_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

bool py_births_watch(PyObject *births, usc_capture_watch *out)
{
    assert(births && out);
    if (strcmp(Py_TYPE(births)->tp_name, spec.name) != 0) return false;
    *out = (usc_capture_watch){.ctx = ((births_object *)births)->births,
                               .call = take_call,
                               .gone = forget,
                               .found = has_found};
    return true;
}

int py_births_add(PyObject *module)
{
    assert(PyModule_Check(module));
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "Births", type);
    Py_DECREF(type);
    return result;
}
