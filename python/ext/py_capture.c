// SPDX-License-Identifier: Apache-2.0
// `_core.Capture`: a capture session fed by the interception glue. Python says when a
// step begins and ends; calls never come through here. Neighbour: py_place.c.
#include "core.h"
#include "py_api.h"
#include "py_births.h"
#include "py_place.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include <ulpscope/x/unmatched.h>

typedef struct capture_object {
    PyObject_HEAD; /* the semicolon is for the formatter */
    usc_capture *session;
    int n_users; /* threads that use the session with the GIL released; under the GIL */
    const usc_intercept_table *glue;
    PyObject *ops, *modules; /* str or None */
    PyObject *threads;       /* bytes: int64 each; NULL: all */
    PyObject *births;        /* in place of a trace, or None */
    int aten;                /* record operators, not only the API calls around them */
    int reads;               /* look whether calls write what they only read */
    bool looks;              /* at tensors of devices, where they lie */
    int debug;
    bool attached; /* the glue feeds this session, not another one */
    unsigned
        n_forks; /* a forked child must not touch the session: its writer is not there */
} capture_object;

static unsigned n_forks; /* between the first process and this one */
static int n_open;       /* sessions; under the GIL */

static void count_fork(void)
{
    ++n_forks;
}

static bool is_usable(capture_object *self)
{
    if (self->session != NULL && self->n_forks == n_forks) return true;
    PyErr_SetString(PyExc_RuntimeError, self->session == NULL
                                            ? "the capture is closed"
                                            : "the capture belongs to another process");
    return false;
}

/* Takes the session for work without the GIL, during which another thread may close it:
 * that one waits. No lock: a recorded call may hold the session and come here again. */
static usc_capture *borrow(capture_object *self)
{
    if (!is_usable(self)) return NULL;
    ++self->n_users;
    return self->session;
}

static void give_back(capture_object *self)
{
    --self->n_users;
}

static PyObject *capture_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path",       "glue",       "stats_only", "ops",
                            "debug",      "ring_size",  "frames",     "limit",
                            "aten",       "births",     "distinct",   "most",
                            "keep_calls", "keep_bytes", "keep_path",  "reads",
                            "pass_first", "looks",      NULL};
    PyObject *path = NULL, *births = Py_None;
    const char *glue;
    int stats_only = 0, debug = 0, aten = 1, distinct = 0, reads = 0, looks = 0;
    long long ring_size = 0, limit = 0, most = 0, keep_calls = 0, keep_bytes = 0,
              pass_first = 0;
    const char *keep_path = NULL;
    PyObject *ops = Py_None, *frames = NULL;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "Os|pOpLO!LpOpLLLspLp", names, &path, &glue, &stats_only, &ops,
            &debug, &ring_size, &PyList_Type, &frames, &limit, &aten, &births, &distinct,
            &most, &keep_calls, &keep_bytes, &keep_path, &reads, &pass_first, &looks))
        return NULL;
    usc_capture_watch watch = {0};
    if (births != Py_None ? !py_births_watch(births, &watch)
                          : !PyUnicode_FSConverter(path, &path)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "births: Births or None");
        return NULL;
    }
    if (births != Py_None) path = Py_NewRef(Py_None);
    const usc_intercept_table *table = core_glue(glue, USC_INTERCEPT_TABLE);
    capture_object *self = NULL;
    if (table != NULL && (frames == NULL || py_place_reset(frames, n_open > 0) == 0))
        self = (capture_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_DECREF(path);
        return NULL;
    }
    py_place_backward(table->backward);
    self->glue = table;
    self->ops = Py_NewRef(ops);
    self->births = Py_NewRef(births);
    self->reads = reads;
    self->looks = looks && births != Py_None && keep_path == NULL;
    self->debug = debug;
    self->aten = aten;
    self->n_forks = n_forks;

    const usc_capture_options options = {.watch = watch.call != NULL ? &watch : NULL,
                                         .stats_only = stats_only != 0,
                                         .ring_size = ring_size,
                                         .limit_bytes = limit,
                                         .distinct = distinct != 0,
                                         .keep_calls = keep_path != NULL ? keep_calls : 0,
                                         .keep_bytes = keep_bytes,
                                         .keep_path = keep_path,
                                         .most_bytes = most,
                                         .pass_first = pass_first};
    const char *name = births == Py_None ? PyBytes_AS_STRING(path) : NULL;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_capture_open(name, table->hooks, &options, &self->session, &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    if (status == USC_OK) {
        ++n_open;
        return (PyObject *)self;
    }
    Py_DECREF(self);
    return core_raise(core_state_of(type), status, &err);
}

/* ---- steps ---- */

static const int64_t *thread_ids(const capture_object *self)
{
    return self->threads == NULL
               ? NULL
               : (const int64_t *)(const void *)PyBytes_AS_STRING(self->threads);
}

static int n_thread_ids(const capture_object *self)
{
    return self->threads == NULL
               ? 0
               : (int)(PyBytes_GET_SIZE(self->threads) / (Py_ssize_t)sizeof(int64_t));
}

static PyObject *capture_begin(capture_object *self, PyObject *arg)
{
    const long long step = PyLong_AsLongLong(arg);
    if (step == -1 && PyErr_Occurred()) return NULL;
    const char *ops = self->ops == Py_None ? NULL : PyUnicode_AsUTF8(self->ops);
    if (ops == NULL && self->ops != Py_None) return NULL;
    const bool any = self->modules == NULL || self->modules == Py_None;
    const char *modules = any ? NULL : PyUnicode_AsUTF8(self->modules);
    if (modules == NULL && !any) return NULL;
    const usc_intercept_options options = {.place = py_place(),
                                           .ops = ops,
                                           .modules = modules,
                                           .threads = thread_ids(self),
                                           .n_threads = n_thread_ids(self),
                                           .aten = self->aten != 0,
                                           .reads = self->reads != 0,
                                           .looks = self->looks,
                                           .debug = self->debug != 0};
    usc_capture *const session = borrow(self);
    if (session == NULL) return NULL;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    usc_capture_step_begin(session, step);
    status = self->glue->attach(session, &options, &err);
    if (status != USC_OK) usc_capture_step_end(session);
    Py_END_ALLOW_THREADS;
    if (status == USC_OK) self->attached = true;
    give_back(self);
    if (status != USC_OK) return core_raise(core_state_of(Py_TYPE(self)), status, &err);
    Py_RETURN_NONE;
}

static PyObject *capture_end(capture_object *self, PyObject *arg)
{
    const int goes_on = PyObject_IsTrue(arg);
    if (goes_on < 0) return NULL;
    usc_capture *const session = borrow(self);
    if (session == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (!goes_on && self->attached) self->glue->detach(session);
    if (!goes_on) self->attached = false;
    self->glue->settle(session, false);
    usc_capture_step_end(session);
    Py_END_ALLOW_THREADS;
    give_back(self);
    Py_RETURN_NONE;
}

static PyObject *capture_adopt(capture_object *self, PyObject *unused)
{
    (void)unused;
    if (!is_usable(self)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    self->glue->adopt();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* ---- what the session is told ---- */

static PyObject *capture_module(capture_object *self, PyObject *args)
{
    const char *path, *class_name;
    if (!PyArg_ParseTuple(args, "ss", &path, &class_name) || !is_usable(self))
        return NULL;
    const int64_t id = usc_capture_module(self->session, path, class_name);
    Py_BEGIN_ALLOW_THREADS;
    self->glue->module(self->session, id, path);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(id);
}

static PyObject *capture_enter_module(capture_object *self, PyObject *arg)
{
    const long long id = PyLong_AsLongLong(arg);
    if (id == -1 && PyErr_Occurred()) return NULL;
    if (self->session != NULL) py_place_enter(self->session, id);
    Py_RETURN_NONE;
}

static PyObject *capture_leave_module(capture_object *self, PyObject *unused)
{
    (void)unused;
    if (self->session != NULL) py_place_leave(self->session);
    Py_RETURN_NONE;
}

static PyObject *capture_module_depth(capture_object *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLong(py_place_depth(self->session));
}

static PyObject *capture_reset_place(capture_object *self, PyObject *unused)
{
    (void)unused;
    py_place_forget(self->session);
    Py_RETURN_NONE;
}

/* Which modules and threads are recorded, from the next begin_step on: (PATTERN or None,
 * list of native ids or None). */
static PyObject *capture_scope(capture_object *self, PyObject *args)
{
    PyObject *modules, *threads, *ids = NULL;
    if (!PyArg_ParseTuple(args, "OO", &modules, &threads)) return NULL;
    if (threads != Py_None) {
        const Py_ssize_t n = PySequence_Size(threads);
        if (n < 0) return NULL;
        ids = PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(int64_t));
        for (Py_ssize_t i = 0; ids != NULL && i < n; i++) {
            PyObject *item = PySequence_GetItem(threads, i);
            ((int64_t *)(void *)PyBytes_AS_STRING(ids))[i] =
                item != NULL ? PyLong_AsLongLong(item) : -1;
            Py_XDECREF(item);
        }
        if (PyErr_Occurred()) Py_CLEAR(ids);
        if (ids == NULL) return NULL;
    }
    Py_XSETREF(self->modules, Py_NewRef(modules));
    Py_XSETREF(self->threads, ids);
    Py_RETURN_NONE;
}

static PyObject *capture_meta(capture_object *self, PyObject *args)
{
    const char *key, *value;
    if (!PyArg_ParseTuple(args, "ss", &key, &value) || !is_usable(self)) return NULL;
    usc_capture_meta(self->session, key, value);
    Py_RETURN_NONE;
}

static PyObject *capture_devices(capture_object *self, PyObject *unused)
{
    (void)unused;
    return PyUnicode_FromString(self->glue->devices());
}

static PyObject *capture_places(capture_object *self, PyObject *unused)
{
    (void)unused;
    return py_places(self->glue);
}

/* ---- what it says ---- */

static PyObject *capture_counts(capture_object *self, PyObject *unused)
{
    (void)unused;
    if (!is_usable(self)) return NULL;
    usc_capture_counts n;
    usc_capture_count(self->session, &n);
    return Py_BuildValue(
        "{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:O}", "calls",
        (long long)n.n_calls, "tensors", (long long)n.n_tensors, "blobs",
        (long long)n.n_blobs, "unobserved", (long long)n.n_unobserved, "bytes_seen",
        (long long)n.bytes_seen, "bytes_copied", (long long)n.bytes_copied,
        "bytes_written", (long long)n.bytes_written, "bytes_read",
        (long long)n.bytes_read, "ring_peak", (long long)n.ring_peak, "wait_ns",
        (long long)n.wait_ns, "repeated", (long long)n.n_repeated, "left",
        (long long)n.n_left, "refused", (long long)n.first_refused, "held",
        (long long)n.bytes_held, "stopped", n.stopped ? Py_True : Py_False);
}

static PyObject *capture_unmatched(capture_object *self, PyObject *unused)
{
    enum { MOST = 4096 };
    char out[MOST] = "";
    (void)unused;
    if (!is_usable(self)) return NULL;
    if (self->ops != Py_None)
        usc_capture_unmatched(self->session, PyUnicode_AsUTF8(self->ops), out, MOST);
    return PyUnicode_FromString(out);
}

static PyObject *capture_error(capture_object *self, PyObject *unused)
{
    (void)unused;
    if (!is_usable(self)) return NULL;
    usc_error err = {0};
    if (usc_capture_status(self->session, &err) == USC_OK) Py_RETURN_NONE;
    return PyUnicode_FromString(err.text);
}

static PyObject *capture_flush(capture_object *self, PyObject *unused)
{
    (void)unused;
    usc_capture *const session = borrow(self);
    if (session == NULL) return NULL;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    self->glue->settle(session, true);
    status = usc_capture_flush(session, &err);
    Py_END_ALLOW_THREADS;
    give_back(self);
    if (status != USC_OK) return core_raise(core_state_of(Py_TYPE(self)), status, &err);
    Py_RETURN_NONE;
}

static PyObject *capture_keep(capture_object *self, PyObject *unused)
{
    (void)unused;
    usc_capture *const session = borrow(self);
    if (session == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    usc_capture_keep(session);
    Py_END_ALLOW_THREADS;
    give_back(self);
    Py_RETURN_NONE;
}

static PyObject *capture_kept(capture_object *self, PyObject *unused)
{
    (void)unused;
    if (!is_usable(self)) return NULL;
    usc_error err = {0};
    const char *path = NULL;
    const usc_status status = usc_capture_kept(self->session, &path, &err);
    if (status != USC_OK) return core_raise(core_state_of(Py_TYPE(self)), status, &err);
    if (path == NULL) Py_RETURN_NONE;
    return PyUnicode_DecodeFSDefault(path);
}

static usc_status close_session(capture_object *self, bool complete, usc_error *err)
{
    usc_capture *const session = self->session;
    self->session = NULL;
    n_open -= session != NULL;
    if (session == NULL || self->n_forks != n_forks) return USC_OK;
    usc_status status;
    while (self->n_users > 0) {
        Py_BEGIN_ALLOW_THREADS;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        Py_END_ALLOW_THREADS;
    }
    Py_BEGIN_ALLOW_THREADS;
    if (self->attached) self->glue->detach(session);
    self->attached = false;
    self->glue->forget_looks(session);
    status = usc_capture_close(session, complete, err);
    Py_END_ALLOW_THREADS;
    return status;
}

static PyObject *capture_close(capture_object *self, PyObject *arg)
{
    const int complete = PyObject_IsTrue(arg);
    if (complete < 0) return NULL;
    usc_error err = {0};
    const usc_status status = close_session(self, complete != 0, &err);
    if (status != USC_OK) return core_raise(core_state_of(Py_TYPE(self)), status, &err);
    Py_RETURN_NONE;
}

static void capture_dealloc(capture_object *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    usc_error err = {0};
    if (close_session(self, false, &err) != USC_OK)
        PySys_FormatStderr("ulpscope: %s\n", err.text);
    Py_XDECREF(self->ops);
    Py_XDECREF(self->modules);
    Py_XDECREF(self->threads);
    Py_XDECREF(self->births);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"begin_step", METHOD(capture_begin), METH_O, "begin_step(n): records from here on."},
    {"end_step", METHOD(capture_end), METH_O,
     "end_step(goes_on): records no longer; goes_on: the next begin_step is near."},
    {"adopt", METHOD(capture_adopt), METH_NOARGS, "adopt(): looks for new operators."},
    {"module", METHOD(capture_module), METH_VARARGS, "module(path, class_name) -> id."},
    {"enter_module", METHOD(capture_enter_module), METH_O,
     "enter_module(id): this thread is inside it."},
    {"leave_module", METHOD(capture_leave_module), METH_NOARGS,
     "leave_module(): the innermost ended."},
    {"module_depth", METHOD(capture_module_depth), METH_NOARGS,
     "module_depth() -> modules entered."},
    {"reset_place", METHOD(capture_reset_place), METH_NOARGS,
     "reset_place(): this thread is in no module, no step()."},
    {"scope", METHOD(capture_scope), METH_VARARGS,
     "scope(modules, threads): records these alone, from the next begin_step on."},
    {"meta", METHOD(capture_meta), METH_VARARGS, "meta(key, value): sets a meta key."},
    {"devices", METHOD(capture_devices), METH_NOARGS, "devices() -> 'cpu,sim:0'."},
    {"places", METHOD(capture_places), METH_NOARGS,
     "places() -> [(operator, where it was defined)], without torch's own."},
    {"counts", METHOD(capture_counts), METH_NOARGS, "counts() -> dict of counters."},
    {"unmatched", METHOD(capture_unmatched), METH_NOARGS,
     "unmatched() -> globs of ops that no operator has met so far, \"'a', 'b'\"."},
    {"error", METHOD(capture_error), METH_NOARGS, "error() -> first error or None."},
    {"flush", METHOD(capture_flush), METH_NOARGS, "flush(): everything is on disk then."},
    {"keep", METHOD(capture_keep), METH_NOARGS, "keep(): has the last calls written."},
    {"kept", METHOD(capture_kept), METH_NOARGS,
     "kept() -> the folder that they were written to, None: they were not."},
    {"close", METHOD(capture_close), METH_O, "close(complete): finishes the trace."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)capture_new},
    {Py_tp_dealloc, (void *)capture_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "Capture(path, glue, stats_only=False, ops=None, debug=False, ring_size=0, "
     "frames=[], limit=0, aten=True, births=None, distinct=False, most=0, "
     "keep_calls=0, keep_bytes=0, keep_path=None, reads=False, pass_first=0): a "
     "session of usc_capture_open; with births it writes no trace and path is None."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ulpscope._core.Capture",
    .basicsize = sizeof(capture_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

py_api_target py_capture_target(PyObject *capture)
{
    assert(capture != NULL);
    if (strcmp(Py_TYPE(capture)->tp_name, spec.name) != 0) return (py_api_target){0};
    capture_object *self = (capture_object *)capture;
    if (self->session == NULL || self->n_forks != n_forks) return (py_api_target){0};
    return (py_api_target){.session = self->session,
                           .glue = self->glue,
                           .ops =
                               self->ops == Py_None ? NULL : PyUnicode_AsUTF8(self->ops)};
}

/* Adds what this file and py_place.c bind to `_core`; 0, or -1 with an exception set. */
int py_capture_add(PyObject *module)
{
    assert(PyModule_Check(module));
    static bool counting;
    if (!counting && pthread_atfork(NULL, NULL, count_fork) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    counting = true;
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "Capture", type);
    Py_DECREF(type);
    return result < 0 ? -1 : PyModule_AddFunctions(module, py_place_methods);
}
