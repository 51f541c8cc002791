// SPDX-License-Identifier: Apache-2.0
// `_core.Trace`: a trace opened for reading (ulpscope/trace.h). Blobs are read-only
// memoryviews; the files stay mapped until the last of them is gone.
#include "py_call.h"
#include "py_judge.h"

#include <assert.h>
#include <stdbool.h>
#include <ulpscope/trace.h>

typedef struct trace_object {
    PyObject_HEAD usc_trace *trace;
    PyThread_type_lock lock; /* one thread at a time in `trace`, results built included */
    Py_ssize_t n_views;      /* blob objects alive */
    bool closed;
} trace_object;

/* What a memoryview of a blob holds on to. */
typedef struct blob_object {
    PyObject_HEAD trace_object *owner;
    const void *data;
    Py_ssize_t size;
} blob_object;

/* ---- the object ---- */

static PyObject *trace_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", NULL};
    PyObject *path = NULL;
    const core_state *state = core_state_of(type);
    if (state == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "O&:Trace", names,
                                                      PyUnicode_FSConverter, &path))
        return NULL;
    trace_object *self = (trace_object *)type->tp_alloc(type, 0);
    if (self != NULL && (self->lock = PyThread_allocate_lock()) == NULL) {
        PyErr_NoMemory();
        Py_CLEAR(self);
    }
    if (self == NULL) {
        Py_DECREF(path);
        return NULL;
    }
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_trace_open(PyBytes_AS_STRING(path), NULL, &self->trace, &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    if (status != USC_OK) {
        Py_DECREF(self);
        return core_raise(state, status, &err);
    }
    return (PyObject *)self;
}

/* Takes the lock of an open trace; false with an exception set where it is closed. */
static bool enter(trace_object *self)
{
    core_lock(self->lock);
    if (!self->closed) return true;
    PyThread_release_lock(self->lock);
    PyErr_SetString(PyExc_ValueError, "the trace is closed");
    return false;
}

static void leave(trace_object *self)
{
    PyThread_release_lock(self->lock);
}

/* Closes the files where nobody looks at them any more. */
static void close_unused(trace_object *self)
{
    if (!self->closed || self->n_views > 0) return;
    usc_trace_close(self->trace);
    self->trace = NULL;
}

static void trace_dealloc(trace_object *self)
{
    PyTypeObject *type = Py_TYPE(self);
    usc_trace_close(self->trace);
    if (self->lock != NULL) PyThread_free_lock(self->lock);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *trace_close(trace_object *self, PyObject *unused)
{
    (void)unused;
    core_lock(self->lock);
    self->closed = true;
    close_unused(self);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *trace_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *trace_exit(trace_object *self, PyObject *args)
{
    (void)args;
    return trace_close(self, NULL);
}

static PyObject *trace_meta(trace_object *self, PyObject *arg)
{
    const char *key = PyUnicode_AsUTF8(arg);
    if (key == NULL || !enter(self)) return NULL;
    const char *value;
    Py_BEGIN_ALLOW_THREADS;
    value = usc_trace_meta(self->trace, key);
    Py_END_ALLOW_THREADS;
    PyObject *result = core_text(value);
    leave(self);
    return result;
}

static PyObject *trace_select(trace_object *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ops", "module", "phase", "step", "top_only", NULL};
    usc_trace_filter filter = {.step = -1};
    long long step = -1;
    int top_only = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zzzLp:select", names, &filter.ops,
                                     &filter.module, &filter.phase, &step, &top_only) ||
        !enter(self))
        return NULL;
    filter.step = step;
    filter.top_only = top_only != 0;
    usc_error err = {0};
    const int64_t *found;
    int64_t n;
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_trace_select(self->trace, &filter, &found, &n, &err);
    Py_END_ALLOW_THREADS;
    PyObject *list = status == USC_OK ? PyList_New((Py_ssize_t)n) : NULL;
    for (int64_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = PyLong_FromLongLong(found[i]);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    leave(self);
    return status == USC_OK ? list
                            : core_raise(core_state_of(Py_TYPE(self)), status, &err);
}

static PyObject *trace_call(trace_object *self, PyObject *arg)
{
    const long long sequence = PyLong_AsLongLong(arg);
    if ((sequence == -1 && PyErr_Occurred()) || !enter(self)) return NULL;
    usc_error err = {0};
    usc_call call;
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_trace_read_call(self->trace, sequence, &call, &err);
    Py_END_ALLOW_THREADS;
    PyObject *result = status == USC_OK ? py_call_dict(&call) : NULL;
    leave(self);
    return status == USC_OK ? result
                            : core_raise(core_state_of(Py_TYPE(self)), status, &err);
}

/* ---- forwards of modules ---- */

static PyObject *numbers_list(const int64_t *numbers, int64_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (int64_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = PyLong_FromLongLong(numbers[i]);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

static PyObject *forward_dict(const usc_pick *pick)
{
    const usc_forward *f = pick->forward;
    return Py_BuildValue(
        "{s:L,s:L,s:N,s:N,s:N,s:N,s:N}", "call", (long long)pick->call, "stands_for",
        (long long)pick->stands_for, "op", core_text(f->op), "path", core_text(f->path),
        "module_class", core_text(f->module_class), "calls",
        numbers_list(f->call, f->n_calls), "kept", numbers_list(f->kept, f->n_kept));
}

static PyObject *forwards_list(const usc_selection *picks)
{
    PyObject *list = PyList_New((Py_ssize_t)picks->n);
    for (int64_t i = 0; list != NULL && i < picks->n; i++) {
        PyObject *item = forward_dict(&picks->pick[i]);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

static PyObject *trace_forwards(trace_object *self, PyObject *arg)
{
    const int distinct = PyObject_IsTrue(arg);
    if (distinct < 0 || !enter(self)) return NULL;
    const usc_select_options options = {.distinct = distinct != 0,
                                        .level = USC_LEVEL_MODULE};
    usc_error err = {0};
    usc_calls *calls = NULL;
    usc_selection picks = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_calls_create(&calls, &err);
    if (status == USC_OK) status = usc_trace_read_calls(self->trace, calls, &err);
    if (status == USC_OK) status = usc_select(calls, &options, &picks, &err);
    Py_END_ALLOW_THREADS;
    leave(self);
    PyObject *list = status == USC_OK
                         ? forwards_list(&picks)
                         : core_raise(core_state_of(Py_TYPE(self)), status, &err);
    usc_selection_free(&picks);
    usc_calls_free(calls);
    return list;
}

/* ---- blobs ---- */

static int blob_getbuffer(blob_object *self, Py_buffer *view, int flags)
{
    union { /* Py_buffer knows no const; readonly is 1 below */
        const void *from;
        void *to;
    } data = {.from = self->data};
    return PyBuffer_FillInfo(view, (PyObject *)self, data.to, self->size, 1, flags);
}

static void blob_dealloc(blob_object *self)
{
    PyTypeObject *type = Py_TYPE(self);
    trace_object *owner = self->owner;
    if (owner != NULL) {
        core_lock(owner->lock);
        owner->n_views--;
        close_unused(owner);
        leave(owner);
        Py_DECREF(owner);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *trace_blob(trace_object *self, PyObject *arg)
{
    const core_state *state = core_state_of(Py_TYPE(self));
    const long long id = PyLong_AsLongLong(arg);
    if (state == NULL || (id == -1 && PyErr_Occurred())) return NULL;
    blob_object *blob = (blob_object *)state->blob_type->tp_alloc(state->blob_type, 0);
    if (blob == NULL) return NULL;
    if (!enter(self)) {
        Py_DECREF(blob);
        return NULL;
    }
    usc_error err = {0};
    int64_t size;
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_trace_blob(self->trace, id, &blob->data, &size, &err);
    Py_END_ALLOW_THREADS;
    if (status == USC_OK) {
        blob->size = (Py_ssize_t)size;
        blob->owner = (trace_object *)Py_NewRef((PyObject *)self);
        self->n_views++;
    }
    leave(self);
    PyObject *view = status == USC_OK ? PyMemoryView_FromObject((PyObject *)blob)
                                      : core_raise(state, status, &err);
    Py_DECREF(blob);
    return view;
}

static PyObject *trace_read(trace_object *self, PyObject *args)
{
    long long blob, first;
    Py_buffer out;
    if (!PyArg_ParseTuple(args, "LLw*:read", &blob, &first, &out)) return NULL;
    if (!enter(self)) {
        PyBuffer_Release(&out);
        return NULL;
    }
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status =
        usc_trace_read_blob(self->trace, blob, first, (int64_t)out.len, out.buf, &err);
    Py_END_ALLOW_THREADS;
    leave(self);
    PyBuffer_Release(&out);
    if (status != USC_OK) return core_raise(core_state_of(Py_TYPE(self)), status, &err);
    Py_RETURN_NONE;
}

static PyObject *trace_hash(PyObject *type, PyObject *arg)
{
    (void)type;
    Py_buffer data;
    char text[33];
    if (PyObject_GetBuffer(arg, &data, PyBUF_SIMPLE) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    usc_trace_hash(data.buf, (size_t)data.len, text);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&data);
    return PyUnicode_FromString(text);
}

/* ---- the types ---- */

static PyMethodDef trace_methods[] = {
    {"meta", METHOD(trace_meta), METH_O, "meta(key) -> str | None"},
    {"select", METHOD(trace_select), METH_VARARGS | METH_KEYWORDS,
     "select(ops=None, module=None, phase=None, step=-1, top_only=False) -> list[int]: "
     "sequence numbers of the calls that pass every filter."},
    {"call", METHOD(trace_call), METH_O,
     "call(sequence) -> dict: the call; its arguments and results are in 'tensors'."},
    {"forwards", METHOD(trace_forwards), METH_O,
     "forwards(distinct) -> list[dict]: the forwards of modules, of calls in one run."},
    {"blob", METHOD(trace_blob), METH_O, "blob(id) -> memoryview: read-only bytes."},
    {"read", METHOD(trace_read), METH_VARARGS,
     "read(id, first, buffer): fills a writable buffer with bytes of a blob."},
    {"hash", trace_hash, METH_O | METH_STATIC,
     "hash(buffer) -> str: that of a blob with these bytes."},
    {"close", METHOD(trace_close), METH_NOARGS,
     "close(): the files go when the last memoryview of a blob does."},
    {"__enter__", trace_enter, METH_NOARGS, NULL},
    {"__exit__", METHOD(trace_exit), METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* A fact of the run as the prompt shows it; NULL after an error. */
static PyObject *shown_fact(PyObject *self, const char *key)
{
    PyObject *fact = PyObject_CallMethod(self, "meta", "s", key);
    if (fact != Py_None) return fact;
    Py_DECREF(fact);
    return PyUnicode_FromString("?");
}

static PyObject *trace_repr(PyObject *self)
{
    static const char *const keys[] = {"argv", "devices", "created"};
    PyObject *fact[3] = {NULL}, *out = NULL;
    if (((trace_object *)self)->closed) return PyUnicode_FromString("<Trace, closed>");
    for (int i = 0; i < 3; i++)
        if ((fact[i] = shown_fact(self, keys[i])) == NULL) goto done;
    out = PyUnicode_FromFormat("<Trace of %U on %U, %U>", fact[0], fact[1], fact[2]);
done:
    for (int i = 0; i < 3; i++)
        Py_XDECREF(fact[i]);
    return out;
}

static PyType_Slot trace_slots[] = {
    {Py_tp_repr, (void *)trace_repr},
    {Py_tp_doc, "Trace(path): a trace opened for reading."},
    {Py_tp_new, trace_new},
    {Py_tp_dealloc, trace_dealloc},
    {Py_tp_methods, trace_methods},
    {0, NULL},
};

static PyType_Spec trace_spec = {
    .name = "ulpscope._core.Trace",
    .basicsize = sizeof(trace_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = trace_slots,
};

static PyType_Slot blob_slots[] = {
    {Py_tp_dealloc, blob_dealloc},
    {Py_bf_getbuffer, blob_getbuffer},
    {0, NULL},
};

static PyType_Spec blob_spec = {
    .name = "ulpscope._core._Blob",
    .basicsize = sizeof(blob_object),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = blob_slots,
};

int py_trace_add(PyObject *module)
{
    assert(PyModule_Check(module));
    core_state *state = PyModule_GetState(module);
    state->blob_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &blob_spec, NULL);
    if (state->blob_type == NULL) return -1;
    older_no_instances(state->blob_type);
    PyObject *type = PyType_FromModuleAndSpec(module, &trace_spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "Trace", type);
    Py_DECREF(type);
    return result;
}
