// SPDX-License-Identifier: Apache-2.0
// `_core.ApiMode`: a torch function mode that tells the interception glue which Python
// function (torch.nn.functional.linear, Tensor.add) the operators below it belong to.
// torch takes it off its stack while it runs, so it sees the outermost calls. Neighbours:
// py_api_args.c (arguments), glue/intercept/apis.cpp (rows).
#include "py_api_args.h"

#include <ulpscope/x/pattern.h>

#include <assert.h>

typedef struct mode_object {
    PyObject_HEAD; /* the semicolon is for the formatter */
    PyObject *capture;
    PyObject *namer;      /* function -> name, None (not to be seen), True (see below) */
    PyObject *known;      /* dict: function -> int, as `kind_of` says */
    PyObject *push, *pop; /* of torch's stack of modes */
    PyObject *through; /* calls a function past the mode on top; None: torch has none */
    py_api_types types;
} mode_object;

/* A call of a function while it runs, on the C stack. */
typedef struct running {
    usc_intercept_api told; /* first: the glue gives this back */
    const struct running *around;
    mode_object *mode;
    PyObject *args, *kwargs; /* borrowed; kwargs may be NULL */
    PyObject
        *writes; /* of an operator of the program's own: a set of places; else NULL */
} running;

/* The calls that this thread is inside of, each of another mode. */
static _Thread_local const running *t_running;

/* What Python functions call in turn is theirs. */
static bool is_inside(const mode_object *mode)
{
    const running *call = t_running;
    while (call != NULL && call->mode != mode)
        call = call->around;
    return call != NULL;
}

const char *py_api_describe(usc_intercept_api *call)
{
    assert(call != NULL);
    const running *r = (const running *)call;
    if (!Py_IsInitialized()) return NULL;
    const PyGILState_STATE gil = PyGILState_Ensure();
    const py_api_target to = py_capture_target(r->mode->capture);
    const char *json = NULL;
    if (to.glue != NULL)
        json = py_api_arguments(&r->mode->types, to.glue->api_add, r->args, r->kwargs);
    PyGILState_Release(gil);
    return json;
}

/* ---- threads ---- */

static PyObject *meeting; /* callable, or NULL; under the GIL */

static void meet(void)
{
    if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == NULL) return;
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *kind, *raised, *trace;
    PyErr_Fetch(&kind, &raised, &trace);
    PyObject *call = Py_XNewRef(meeting);
    if (call != NULL) Py_XDECREF(PyObject_CallNoArgs(call));
    Py_XDECREF(call);
    PyErr_Restore(kind, raised, trace);
    PyGILState_Release(gil);
}

void (*py_api_meet(void))(void)
{
    return meeting != NULL ? meet : NULL;
}

static PyObject *meet_threads(PyObject *self, PyObject *arg)
{
    (void)self;
    Py_XSETREF(meeting, arg == Py_None ? NULL : Py_NewRef(arg));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"meet_threads", meet_threads, METH_O,
     "meet_threads(f): f() on threads not met yet."},
    {NULL, NULL, 0, NULL},
};

/* ---- which functions ---- */

enum { NOT_SEEN = 0, PASSED_THROUGH = 1 }; /* else id of the name << 2 | selected << 1 */

/* What to do with a function whose name was asked for. */
static long long kind_of(const py_api_target *to, PyObject *name)
{
    if (name == Py_True) return PASSED_THROUGH;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (text == NULL) return NOT_SEEN;
    const int64_t op = usc_capture_op(to->session, text, "");
    return op << 2 | (long long)usc_pattern_match(to->ops, text) << 1;
}

/* What is known: a kind, or a tuple of it and the places that an operator writes. */
static long long read_kind(PyObject *known, PyObject **writes)
{
    if (!PyTuple_Check(known)) return PyLong_AsLongLong(known);
    *writes = PyTuple_GET_ITEM(known, 1);
    return PyLong_AsLongLong(PyTuple_GET_ITEM(known, 0));
}

/* NOT_SEEN where anything fails: the user's call must not. */
static long long find_kind(mode_object *self, const py_api_target *to, PyObject *func,
                           PyObject **writes)
{
    PyObject *found = PyDict_GetItemWithError(self->known, func);
    if (found != NULL) return read_kind(found, writes);
    PyErr_Clear(); /* an object that cannot be hashed */
    PyObject *name = PyObject_CallOneArg(self->namer, func);
    const bool own = name != NULL && PyTuple_Check(name) && PyTuple_GET_SIZE(name) == 2;
    PyObject *text = own ? PyTuple_GET_ITEM(name, 0) : name;
    const long long kind = name == NULL ? NOT_SEEN : kind_of(to, text);
    PyObject *value = own ? Py_BuildValue("(LO)", kind, PyTuple_GET_ITEM(name, 1))
                          : PyLong_FromLongLong(kind);
    if (own && value != NULL) *writes = PyTuple_GET_ITEM(value, 1);
    Py_XDECREF(name);
    if (value != NULL) (void)PyDict_SetItem(self->known, func, value);
    Py_XDECREF(value);
    PyErr_Clear();
    return kind;
}

/* ---- the call ---- */

static void end_row(running *call, PyObject *result)
{
    const py_api_target to = py_capture_target(call->mode->capture);
    if (to.glue == NULL) return;
    PyObject *kind, *raised, *trace;
    PyErr_Fetch(&kind, &raised, &trace);
    py_api_results(&call->mode->types, to.glue->api_add, call->args, call->kwargs, result,
                   call->writes,
                   call->writes != NULL ? USC_MAYBE_CONTENT : USC_MAYBE_CALLS);
    Py_BEGIN_ALLOW_THREADS;
    to.glue->api_end(&call->told, result != NULL);
    Py_END_ALLOW_THREADS;
    PyErr_Restore(kind, raised, trace);
}

static PyObject *run_recorded(mode_object *self, const py_api_target *to, long long kind,
                              PyObject *writes, PyObject *func, PyObject *args,
                              PyObject *kwargs)
{
    running call = {
        .told = {.session = to->session, .op = kind >> 2, .selected = (kind & 2) != 0},
        .around = t_running,
        .mode = self,
        .args = args,
        .kwargs = kwargs,
        .writes = writes};
    const usc_intercept_table *glue = to->glue; /* stays loaded */
    glue->api_enter(&call.told);
    t_running = &call;
    if (writes != NULL) {
        Py_BEGIN_ALLOW_THREADS;
        glue->api_begin(&call.told);
        Py_END_ALLOW_THREADS;
    }
    PyObject *result = PyObject_Call(func, args, kwargs);
    t_running = call.around;
    glue->api_leave(&call.told);
    if (call.told.sequence != 0) end_row(&call, result);
    return result;
}

/* A backward pass runs functions of the user's own (hooks, checkpoints), which are seen:
 * the mode goes back on the stack for it, and the function past it. */
static PyObject *run_through(mode_object *self, PyObject *func, PyObject *types,
                             PyObject *args, PyObject *kwargs)
{
    PyObject *none = kwargs == NULL ? PyDict_New() : Py_NewRef(kwargs);
    PyObject *pushed =
        none == NULL ? NULL : PyObject_CallOneArg(self->push, (PyObject *)self);
    PyObject *result = NULL;
    if (pushed != NULL)
        result =
            PyObject_CallFunctionObjArgs(self->through, func, types, args, none, NULL);
    Py_XDECREF(none);
    if (pushed == NULL) return NULL;
    Py_DECREF(pushed);
    PyObject *kind, *raised, *trace;
    PyErr_Fetch(&kind, &raised, &trace);
    PyObject *popped = PyObject_CallNoArgs(self->pop);
    if (popped != NULL && popped != (PyObject *)self)
        Py_XDECREF(PyObject_CallOneArg(self->push, popped));
    Py_XDECREF(popped);
    PyErr_Clear();
    PyErr_Restore(kind, raised, trace);
    return result;
}

/* torch calls it with (func, types, args, kwargs), of which the last may be missing. */
static PyObject *mode_function(mode_object *self, PyObject *const *a, Py_ssize_t n)
{
    if (n < 2 || (n > 2 && !PyTuple_Check(a[2]))) {
        PyErr_SetString(PyExc_TypeError, "__torch_function__(func, types, args, kwargs)");
        return NULL;
    }
    PyObject *kwargs = n > 3 && a[3] != Py_None ? a[3] : NULL;
    PyObject *args = n > 2 ? Py_NewRef(a[2]) : PyTuple_New(0);
    if (args == NULL) return NULL;
    const py_api_target to = py_capture_target(self->capture);
    long long kind = NOT_SEEN;
    PyObject *writes = NULL; /* kept by `known` */
    if (to.glue != NULL && !is_inside(self)) kind = find_kind(self, &to, a[0], &writes);
    PyObject *result;
    if (kind > PASSED_THROUGH)
        result = run_recorded(self, &to, kind, writes, a[0], args, kwargs);
    else if (kind == PASSED_THROUGH && self->through != Py_None)
        result = run_through(self, a[0], a[1], args, kwargs);
    else
        result = PyObject_Call(a[0], args, kwargs);
    Py_DECREF(args);
    return result;
}

/* ---- the type ---- */

static PyObject *mode_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"capture", "namer", "stack", "types", NULL};
    PyObject *capture, *namer, *push, *pop, *through;
    py_api_types t;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO(OOO)(OOOOOO)", names, &capture,
                                     &namer, &push, &pop, &through, &t.tensor, &t.dtype,
                                     &t.device, &t.layout, &t.memory_format,
                                     &t.generator))
        return NULL;
    const py_api_target to = py_capture_target(capture);
    if (to.glue == NULL || to.glue->api_add == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        to.glue == NULL
                            ? "there is no open capture"
                            : "the interception glue was compiled without "
                              "Python.h (Debian: python3-dev): calls of Python "
                              "functions cannot be recorded");
        return NULL;
    }
    mode_object *self = (mode_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->capture = Py_NewRef(capture);
    self->namer = Py_NewRef(namer);
    self->push = Py_NewRef(push);
    self->pop = Py_NewRef(pop);
    self->through = Py_NewRef(through);
    self->types = t;
    self->known = PyDict_New();
    PyObject *const *const kept = &self->types.tensor;
    for (size_t i = 0; i < sizeof self->types / sizeof *kept; i++)
        Py_INCREF(kept[i]);
    if (self->known != NULL) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void mode_dealloc(mode_object *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    PyObject *const kept[] = {self->capture,
                              self->namer,
                              self->known,
                              self->push,
                              self->pop,
                              self->through,
                              self->types.tensor,
                              self->types.dtype,
                              self->types.device,
                              self->types.layout,
                              self->types.memory_format,
                              self->types.generator};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        Py_XDECREF(kept[i]);
    type->tp_free(self);
    Py_DECREF(type);
}

/* The call of this mode that this thread is inside of is a module's forward. */
static PyObject *mode_graph(mode_object *self, PyObject *args)
{
    const char *name;
    unsigned long long first;
    PyObject *parameters;
    const py_api_target to = py_capture_target(self->capture);
    if (!PyArg_ParseTuple(args, "sKO!", &name, &first, &PyDict_Type, &parameters))
        return NULL;
    if (to.glue == NULL || to.glue->api_parameter == NULL || t_running == NULL ||
        t_running->mode != self)
        Py_RETURN_NONE;
    const usc_intercept_api *call = &t_running->told;
    to.glue->api_graph(call, usc_capture_op(to.session, name, ""), first);
    PyObject *path, *tensor;
    for (Py_ssize_t at = 0; PyDict_Next(parameters, &at, &path, &tensor);) {
        const char *text = PyUnicode_Check(path) ? PyUnicode_AsUTF8(path) : NULL;
        if (text == NULL) return PyErr_Format(PyExc_TypeError, "paths are texts");
        if (PyObject_TypeCheck(tensor, (PyTypeObject *)self->types.tensor))
            to.glue->api_parameter(call, tensor, text);
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"graph", (PyCFunction)mode_graph, METH_VARARGS,
     "graph(name, first, {path: parameter}): from inside a function that is recorded: it "
     "is a module's forward, and its backward pass a call of that name."},
    {"__torch_function__", (PyCFunction)(void (*)(void))mode_function, METH_FASTCALL,
     "What torch calls in place of a function of its own."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)mode_new},
    {Py_tp_dealloc, (void *)mode_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "ApiMode(capture, namer, (push, pop, skip), types): calls of Python "
                "functions, seen."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ulpscope._core.ApiMode",
    .basicsize = sizeof(mode_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int py_api_add(PyObject *module)
{
    assert(PyModule_Check(module));
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "ApiMode", type);
    Py_DECREF(type);
    return result < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
