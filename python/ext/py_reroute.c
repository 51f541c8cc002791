// SPDX-License-Identifier: Apache-2.0
// `_core.Reroute`: a route of the interception glue (glue/intercept/reroute_glue.h), from
// its making to leave(). Calls never come through here.
#include "core.h"
#include "py_place.h"

#include "../../glue/intercept/reroute_glue.h"

#include <assert.h>
#include <string.h>

typedef struct reroute_object {
    PyObject_HEAD; /* the semicolon is for the formatter */
    const usc_reroute_table *glue;
    int64_t route; /* 0: torch refused it */
    bool entered;
    PyObject *function;
} reroute_object;

static int64_t *thread_numbers(PyObject *threads, int64_t *n)
{
    *n = PyTuple_GET_SIZE(threads);
    int64_t *const numbers = PyMem_New(int64_t, (size_t)*n + 1);
    if (numbers == NULL) return (int64_t *)PyErr_NoMemory();
    for (int64_t i = 0; i < *n; ++i)
        numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(threads, i));
    if (!PyErr_Occurred()) return numbers;
    PyMem_Free(numbers);
    return NULL;
}

static bool kind_named(const char *name, usc_reroute_kind *out)
{
    static const char *const names[] = {"fallback", "cast",  "substitute", "reduction",
                                        "time",     "count", "observe"};
    for (int i = 0; i < 7; ++i)
        if (strcmp(names[i], name) == 0) {
            *out = (usc_reroute_kind)i;
            return true;
        }
    PyErr_Format(PyExc_ValueError, "kind '%s'", name);
    return false;
}

static PyObject *reroute_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"glue",  "kind",   "ops",   "dtype",  "function", "threads",
                            "draws", "output", "level", "length", "modules",  NULL};
    int draws = 0;
    long long length = 0;
    const char *glue, *kind, *dtype = "";
    PyObject *function = Py_None, *threads = NULL;
    usc_reroute_options options = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sss|sOO!psiLz", names, &glue, &kind,
                                     &options.ops, &dtype, &function, &PyTuple_Type,
                                     &threads, &draws, &options.output, &options.level,
                                     &length, &options.modules) ||
        !kind_named(kind, &options.kind))
        return NULL;
    const usc_reroute_table *const table = core_glue(glue, USC_REROUTE_TABLE);
    int64_t *numbers = NULL;
    if (table == NULL || (threads != NULL && (numbers = thread_numbers(
                                                  threads, &options.n_threads)) == NULL))
        return NULL;
    reroute_object *const self = (reroute_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        PyMem_Free(numbers);
        return NULL;
    }
    self->glue = table;
    self->function = Py_NewRef(function);
    options.dtype = dtype;
    options.function = function;
    options.threads = numbers;
    options.draws = draws != 0;
    options.length = length;
    options.optimizer = py_place().optimizer;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = table->enter(&options, &self->route, &err);
    Py_END_ALLOW_THREADS;
    PyMem_Free(numbers);
    self->entered = self->route != 0;
    if (status == USC_OK) return (PyObject *)self;
    Py_DECREF(self);
    return core_raise(core_state_of(type), status, &err);
}

static void leave_now(reroute_object *self)
{
    if (!self->entered) return;
    self->entered = false;
    Py_BEGIN_ALLOW_THREADS;
    self->glue->leave(self->route);
    Py_END_ALLOW_THREADS;
}

static PyObject *reroute_leave(reroute_object *self, PyObject *unused)
{
    (void)unused;
    leave_now(self);
    Py_RETURN_NONE;
}

static PyObject *reroute_set_on(reroute_object *self, PyObject *on)
{
    const int truth = PyObject_IsTrue(on);
    if (truth < 0) return NULL;
    if (self->entered) self->glue->set_on(self->route, truth != 0);
    Py_RETURN_NONE;
}

static PyObject *reroute_adopt(reroute_object *self, PyObject *unused)
{
    (void)unused;
    Py_BEGIN_ALLOW_THREADS;
    self->glue->adopt();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *reroute_calls(reroute_object *self, PyObject *unused)
{
    (void)unused;
    PyObject *dict = PyDict_New();
    const char *op;
    int64_t n;
    for (int64_t i = 0; dict != NULL && self->glue->calls(self->route, i, &op, &n); ++i) {
        PyObject *number = PyLong_FromLongLong(n);
        if (number == NULL || PyDict_SetItemString(dict, op, number) < 0) Py_CLEAR(dict);
        Py_XDECREF(number);
    }
    return dict;
}

static PyObject *reroute_problems(reroute_object *self, PyObject *unused)
{
    (void)unused;
    PyObject *list = PyList_New(0);
    const char *text;
    for (int64_t i = 0;
         list != NULL && (text = self->glue->problem(self->route, i)) != NULL; ++i) {
        PyObject *item = core_text(text);
        if (item == NULL || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *reroute_times(reroute_object *self, PyObject *unused)
{
    (void)unused;
    PyObject *list = PyList_New(0);
    usc_reroute_time t;
    for (int64_t i = 0; list != NULL && self->glue->times(self->route, i, &t); ++i) {
        PyObject *row =
            Py_BuildValue("(ssLddO)", t.op, t.phase, (long long)t.n, t.total_ms,
                          t.most_ms, t.by_event ? Py_True : Py_False);
        if (row == NULL || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *reroute_n_operators(reroute_object *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLongLong(self->glue->n_operators(self->route));
}

static void reroute_dealloc(reroute_object *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    leave_now(self);
    Py_XDECREF(self->function);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- what program/hooks.Modules tells ---- */

/* Of a module its number is whether it is meant. */
static PyObject *reroute_module(reroute_object *self, PyObject *args)
{
    const char *path, *class_name;
    if (!PyArg_ParseTuple(args, "ss", &path, &class_name)) return NULL;
    return PyLong_FromLong(self->glue->covers(self->route, path));
}

static PyObject *reroute_enter_module(reroute_object *self, PyObject *arg)
{
    const int meant = PyObject_IsTrue(arg);
    if (meant < 0) return NULL;
    self->glue->enter_module(self->route, meant != 0);
    Py_RETURN_NONE;
}

static PyObject *reroute_leave_module(reroute_object *self, PyObject *unused)
{
    (void)unused;
    self->glue->leave_module(self->route);
    Py_RETURN_NONE;
}

static PyObject *reroute_module_depth(reroute_object *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLongLong(self->glue->module_depth(self->route));
}

static PyObject *reroute_reset_place(reroute_object *self, PyObject *unused)
{
    (void)unused;
    self->glue->leave_modules(self->route);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"leave", METHOD(reroute_leave), METH_NOARGS, "leave(): takes it back."},
    {"set_on", METHOD(reroute_set_on), METH_O, "set_on(on): on from the start."},
    {"adopt", METHOD(reroute_adopt), METH_NOARGS,
     "adopt(): takes in operators and devices that came since."},
    {"calls", METHOD(reroute_calls), METH_NOARGS, "calls() -> {operator: number}."},
    {"problems", METHOD(reroute_problems), METH_NOARGS,
     "problems() -> sentences, one an operator."},
    {"times", METHOD(reroute_times), METH_NOARGS,
     "times() -> (operator, phase, calls, total ms, longest ms, by the device's "
     "events)."},
    {"n_operators", METHOD(reroute_n_operators), METH_NOARGS,
     "n_operators() -> how many the PATTERN matched."},
    {"module", METHOD(reroute_module), METH_VARARGS,
     "module(path, class_name) -> 1 where it is meant, 0."},
    {"enter_module", METHOD(reroute_enter_module), METH_O,
     "enter_module(meant): this thread is inside it."},
    {"leave_module", METHOD(reroute_leave_module), METH_NOARGS,
     "leave_module(): the innermost ended."},
    {"module_depth", METHOD(reroute_module_depth), METH_NOARGS,
     "module_depth() -> modules entered."},
    {"reset_place", METHOD(reroute_reset_place), METH_NOARGS,
     "reset_place(): this thread is in no module."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)reroute_new},
    {Py_tp_dealloc, (void *)reroute_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Reroute(glue, kind, ops, dtype=\"\", function=None, threads=()): has "
                "operators computed another way from here on."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ulpscope._core.Reroute",
    .basicsize = sizeof(reroute_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int py_reroute_add(PyObject *module)
{
    assert(PyModule_Check(module));
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "Reroute", type);
    Py_DECREF(type);
    return result;
}
