// SPDX-License-Identifier: Apache-2.0
// Binds ulpscope/x/inject.h: a schedule of faults, applied to torch tensors on the CPU.
#include "py_tensor.h"

#include <ulpscope/x/inject.h>

#include <assert.h>

typedef struct injector_object {
    PyObject_HEAD usc_injector *injector;
} injector_object;

static PyObject *injector_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"schedule", "seed", NULL};
    const char *schedule;
    Py_ssize_t size;
    unsigned long long seed = 0;
    usc_error err = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s#|K", names, &schedule, &size,
                                     &seed))
        return NULL;
    usc_injector *made;
    const usc_status st = usc_injector_make(schedule, (size_t)size, seed, &made, &err);
    if (st != USC_OK) {
        const core_state *state = core_state_of(type);
        return state != NULL ? core_raise(state, st, &err) : NULL;
    }
    injector_object *self = (injector_object *)type->tp_alloc(type, 0);
    if (self == NULL)
        usc_injector_free(made);
    else
        self->injector = made;
    return (PyObject *)self;
}

static void injector_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    usc_injector_free(((injector_object *)object)->injector);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *injector_due(PyObject *object, PyObject *args)
{
    long long step, rank;
    usc_inject_place at = {0};
    if (!PyArg_ParseTuple(args, "LLss", &step, &rank, &at.site, &at.name)) return NULL;
    at.step = step;
    at.rank = rank;
    return PyBool_FromLong(usc_injector_due(((injector_object *)object)->injector, &at));
}

static PyObject *injector_apply(PyObject *object, PyObject *args)
{
    long long step, rank;
    usc_inject_place at = {0};
    PyObject *tensor;
    usc_tensor view;
    usc_error err = {0};
    int64_t n;
    if (!PyArg_ParseTuple(args, "OLLss", &tensor, &step, &rank, &at.site, &at.name) ||
        py_tensor_borrow(tensor, &view) < 0)
        return NULL;
    at.step = step;
    at.rank = rank;
    if (!usc_tensor_contiguous(&view)) {
        PyErr_SetString(PyExc_ValueError, "a fault is put into contiguous tensors alone");
        return NULL;
    }
    usc_status st = usc_tensor_numel(&view, &n, &err);
    if (st == USC_OK) {
        const int64_t columns = view.ndim > 0 ? view.sizes[view.ndim - 1] : 1;
        void *data = (void *)(uintptr_t)view.data; /* the one who writes through a view */
        st = usc_injector_apply(((injector_object *)object)->injector, &at, view.dtype,
                                data, n, columns, &err);
    }
    if (st == USC_OK) Py_RETURN_NONE;
    const core_state *state = core_state_of(Py_TYPE(object));
    return state != NULL ? core_raise(state, st, &err) : NULL;
}

static PyObject *injector_done(PyObject *object, PyObject *unused)
{
    (void)unused;
    PyObject *list = PyList_New(0);
    usc_injected one;
    for (int64_t i = 0; list != NULL &&
                        usc_injector_done(((injector_object *)object)->injector, i, &one);
         i++) {
        PyObject *row = Py_BuildValue(
            "{s:L,s:L,s:L,s:L,s:K,s:K}", "step", (long long)one.step, "line",
            (long long)one.line, "element", (long long)one.element, "n_changed",
            (long long)one.n_changed, "before", (unsigned long long)one.before, "after",
            (unsigned long long)one.after);
        if (row == NULL || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyMethodDef methods[] = {
    {"due", injector_due, METH_VARARGS,
     "due(step, rank, site, name)\n--\n\nWhether a fault may be put in there."},
    {"apply", injector_apply, METH_VARARGS,
     "apply(tensor, step, rank, site, name)\n--\n\nPuts in what is due."},
    {"done", injector_done, METH_NOARGS,
     "done()\n--\n\nWhat was changed: a dict for each tensor and line, in turn."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Injector(schedule, seed=0)\n--\n\nFaults by a schedule: "
                "docs/reference/watch-reference.md."},
    {Py_tp_new, injector_new},
    {Py_tp_dealloc, injector_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ulpscope._core.Injector",
    .basicsize = sizeof(injector_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int py_inject_add(PyObject *module)
{
    assert(PyModule_Check(module));
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    const int code = type == NULL ? -1 : PyModule_AddObjectRef(module, "Injector", type);
    Py_XDECREF(type);
    return code;
}
