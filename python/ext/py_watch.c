// SPDX-License-Identifier: Apache-2.0
// `_core.Watch`: a watch (watch.h) that Python feeds. Rows come as `_core.sums` and other
// ranks give them, many in one buffer.
#include "core.h"

#include <ulpscope/x/sums.h>
#include <ulpscope/x/watch.h>

#include <assert.h>
#include <string.h>

typedef struct watch_object {
    PyObject_HEAD; /* the semicolon is for the formatter */
    usc_watch *watch;
    usc_watch_config config;
    PyThread_type_lock lock; /* one thread at a time */
} watch_object;

static PyObject *watch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"config", "mode", "world", NULL};
    const char *text = "", *mode = "sound";
    long world = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|ssl", names, &text, &mode, &world))
        return NULL;
    usc_error err = {0};
    usc_watch_config config;
    usc_watch_config_init(&config,
                          strcmp(mode, "asd") == 0 ? USC_WATCH_ASD : USC_WATCH_SOUND);
    config.world = (int32_t)(world < 1 || world > INT32_MAX ? 0 : world);
    usc_status status = usc_watch_config_parse(&config, text, &err);
    watch_object *self = (watch_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->config = config;
    if (status == USC_OK) status = usc_watch_create(&config, &self->watch, &err);
    if (status == USC_OK) self->lock = PyThread_allocate_lock();
    if (status == USC_OK && self->lock != NULL) return (PyObject *)self;
    Py_DECREF(self);
    return status != USC_OK ? core_raise(core_state_of(type), status, &err)
                            : PyErr_NoMemory();
}

static PyObject *raise(watch_object *self, usc_status status, const usc_error *err)
{
    return core_raise(core_state_of(Py_TYPE(self)), status, err);
}

static PyObject *watch_tensor(watch_object *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "dtype", "ndim", "sharded", NULL};
    const char *name, *dtype;
    int ndim = 0, sharded = 0;
    int64_t id;
    usc_error err = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ss|ip", names, &name, &dtype, &ndim,
                                     &sharded))
        return NULL;
    const usc_watch_tensor_info info = {name, usc_dtype_by_name(dtype), ndim,
                                        sharded != 0};
    core_lock(self->lock);
    const usc_status status = usc_watch_tensor(self->watch, &info, &id, &err);
    PyThread_release_lock(self->lock);
    return status == USC_OK ? PyLong_FromLongLong(id) : raise(self, status, &err);
}

/* Which tensor row `at` is of: without numbers that of its place. */
static int64_t number_of(const Py_buffer *numbers, size_t at)
{
    int64_t number = (int64_t)at;
    if (numbers->buf != NULL)
        memcpy(&number, (const char *)numbers->buf + at * sizeof number, sizeof number);
    return number;
}

static usc_watch_row row_of(const usc_watch_row *of, int64_t tensor, const usc_sums *s)
{
    usc_watch_row row = *of;
    row.tensor = tensor;
    row.max_abs = s->max_abs;
    row.sum_abs = s->sum_abs;
    row.sum_sq = s->sum_sq;
    row.numel = s->numel;
    row.n_nonfinite = s->n_nonfinite;
    row.n_zero = s->n_zero;
    row.hash64 = s->hash64;
    return row;
}

/* `of`: what all rows have in common. A row of -1 elements is none. */
static usc_status feed(watch_object *self, const usc_watch_row *of, const Py_buffer *sums,
                       const Py_buffer *numbers, usc_error *err)
{
    enum { PIECE = 64 };
    const size_t n = (size_t)sums->len / sizeof(usc_sums);
    usc_watch_row rows[PIECE];
    usc_status status = USC_OK;
    for (size_t at = 0; status == USC_OK && at < n;) {
        size_t filled = 0;
        for (; filled < PIECE && at < n; at++) {
            usc_sums s;
            memcpy(&s, (const char *)sums->buf + at * sizeof s, sizeof s);
            if (s.numel != -1) rows[filled++] = row_of(of, number_of(numbers, at), &s);
        }
        status = usc_watch_feed(self->watch, rows, filled, err);
    }
    return status;
}

static usc_status site_of(const char *name, usc_watch_row *of, usc_error *err)
{
    if (usc_watch_site_by_name(name, &of->site)) return USC_OK;
    return usc_error_set(err, USC_E_ARG, -1, "no site '%s'", name);
}

static PyObject *watch_feed(watch_object *self, PyObject *args)
{
    long long step;
    const char *name;
    usc_watch_row of = {0};
    Py_buffer sums, numbers = {0};
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "Lsiy*|z*", &step, &name, &of.rank, &sums, &numbers))
        return NULL;
    of.step = step;
    const size_t row = sizeof(usc_sums), n = (size_t)sums.len / row;
    usc_status status = site_of(name, &of, &err);
    if (status == USC_OK &&
        ((size_t)sums.len % row != 0 ||
         (numbers.buf != NULL && (size_t)numbers.len != n * sizeof(int64_t))))
        status = usc_error_set(&err, USC_E_SHAPE, -1,
                               "rows of %zu bytes are needed, and an int64 a row for "
                               "the numbers of their tensors",
                               row);
    if (status == USC_OK) {
        core_lock(self->lock);
        status = feed(self, &of, &sums, &numbers, &err);
        PyThread_release_lock(self->lock);
    }
    PyBuffer_Release(&sums);
    if (numbers.buf != NULL) PyBuffer_Release(&numbers);
    if (status != USC_OK) return raise(self, status, &err);
    Py_RETURN_NONE;
}

static PyObject *watch_feed_value(watch_object *self, PyObject *args)
{
    long long step, tensor;
    unsigned long long hash = 0;
    const char *name;
    usc_watch_row row = {0};
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "LsiLd|K", &step, &name, &row.rank, &tensor, &row.value,
                          &hash))
        return NULL;
    row.step = step;
    row.tensor = tensor;
    row.hash64 = hash;
    usc_status status = site_of(name, &row, &err);
    if (status == USC_OK) {
        core_lock(self->lock);
        status = usc_watch_feed(self->watch, &row, 1, &err);
        PyThread_release_lock(self->lock);
    }
    if (status != USC_OK) return raise(self, status, &err);
    Py_RETURN_NONE;
}

static PyObject *dict_of(const usc_watch_event *e)
{
    return Py_BuildValue("{s:L,s:s,s:s,s:s,s:N,s:N,s:d,s:d,s:N,s:s}", "step",
                         (long long)e->step, "kind", usc_watch_kind_text(e->kind),
                         "level", usc_watch_kind_level(e->kind), "detector",
                         usc_watch_detector_text(e->detector), "tensor",
                         e->tensor >= 0 ? core_text(e->name) : Py_NewRef(Py_None), "rank",
                         e->rank >= 0 ? PyLong_FromLong(e->rank) : Py_NewRef(Py_None),
                         "score", e->score, "threshold", e->threshold, "sentence",
                         core_text(e->sentence), "action", e->action);
}

static PyObject *take_events(watch_object *self)
{
    PyObject *list = PyList_New(0);
    usc_watch_event e;
    while (list != NULL && usc_watch_next(self->watch, &e)) {
        PyObject *item = dict_of(&e);
        if (item == NULL || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *watch_step(watch_object *self, PyObject *args)
{
    long long step;
    double seconds;
    usc_error err = {0};
    usc_status status;
    PyObject *events = NULL;
    if (!PyArg_ParseTuple(args, "Ld", &step, &seconds)) return NULL;
    core_lock(self->lock);
    Py_BEGIN_ALLOW_THREADS;
    status = usc_watch_step(self->watch, step, seconds, &err);
    Py_END_ALLOW_THREADS;
    if (status == USC_OK) events = take_events(self);
    PyThread_release_lock(self->lock);
    return status == USC_OK ? events : raise(self, status, &err);
}

static PyObject *watch_save(watch_object *self, PyObject *unused)
{
    (void)unused;
    void *bytes;
    size_t size;
    usc_error err = {0};
    core_lock(self->lock);
    const usc_status status = usc_watch_save(self->watch, &bytes, &size, &err);
    PyThread_release_lock(self->lock);
    if (status != USC_OK) return raise(self, status, &err);
    PyObject *saved = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
    usc_watch_saved_free(bytes);
    return saved;
}

static PyObject *watch_load(watch_object *self, PyObject *args)
{
    Py_buffer saved;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "y*", &saved)) return NULL;
    core_lock(self->lock);
    const usc_status status =
        usc_watch_load(self->watch, saved.buf, (size_t)saved.len, &err);
    PyThread_release_lock(self->lock);
    PyBuffer_Release(&saved);
    if (status != USC_OK) return raise(self, status, &err);
    Py_RETURN_NONE;
}

static PyObject *watch_about(watch_object *self, PyObject *unused)
{
    (void)unused;
    core_lock(self->lock);
    PyObject *about = Py_BuildValue(
        "{s:L,s:L,s:L,s:d,s:N}", "tensors", (long long)usc_watch_n_tensors(self->watch),
        "bytes", (long long)usc_watch_bytes(self->watch), "lost",
        (long long)usc_watch_n_lost(self->watch), "score", usc_watch_score(self->watch),
        "wants_checksum", PyBool_FromLong(usc_watch_wants_checksum(self->watch)));
    PyThread_release_lock(self->lock);
    return about;
}

static int add_number(PyObject *to, const char *name, int64_t value)
{
    PyObject *number = PyLong_FromLongLong(value);
    const int result = number == NULL ? -1 : PyDict_SetItemString(to, name, number);
    Py_XDECREF(number);
    return result;
}

static PyObject *watch_remark(watch_object *self, PyObject *unused)
{
    (void)unused;
    return PyUnicode_FromString(self->config.remark);
}

static PyObject *watch_config(watch_object *self, PyObject *unused)
{
    (void)unused;
    PyObject *keys =
        Py_BuildValue("{s:s}", "action", usc_watch_reaction_text(self->config.action));
    if (keys == NULL) return NULL;
#define KEY(name, initial, least, most, about)                                           \
    if (add_number(keys, #name, self->config.name) < 0) goto failed;
    USC_WATCH_KEY_LIST(KEY)
#undef KEY
    return keys;
failed:
    Py_DECREF(keys);
    return NULL;
}

static void watch_dealloc(watch_object *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    usc_watch_free(self->watch);
    if (self->lock != NULL) PyThread_free_lock(self->lock);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"tensor", METHOD(watch_tensor), METH_VARARGS | METH_KEYWORDS,
     "tensor(name, dtype, ndim=0, sharded=False) -> id."},
    {"feed", METHOD(watch_feed), METH_VARARGS,
     "feed(step, site, rank, rows, numbers=None): rows as `sums` gives them, of the "
     "tensors with these numbers (int64), else of all in turn; one of -1 elements is "
     "none."},
    {"feed_value", METHOD(watch_feed_value), METH_VARARGS,
     "feed_value(step, site, rank, tensor, value, hash=0)."},
    {"step", METHOD(watch_step), METH_VARARGS,
     "step(step, seconds) -> events, as dicts, of all rows up to this step."},
    {"save", METHOD(watch_save), METH_NOARGS, "save() -> bytes."},
    {"load", METHOD(watch_load), METH_VARARGS, "load(bytes): goes on from a state."},
    {"about", METHOD(watch_about), METH_NOARGS,
     "about() -> dict: tensors, bytes, lost, score, wants_checksum."},
    {"remark", METHOD(watch_remark), METH_NOARGS,
     "remark() -> str: values of the configuration that were left for defaults."},
    {"config", METHOD(watch_config), METH_NOARGS,
     "config() -> dict: action, and the keys that have a number."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)watch_new},
    {Py_tp_dealloc, (void *)watch_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "Watch(config='', mode='sound', world=1): docs/reference/watch-reference.md."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ulpscope._core.Watch",
    .basicsize = sizeof(watch_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int py_watch_add(PyObject *module)
{
    assert(PyModule_Check(module));
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "Watch", type);
    Py_DECREF(type);
    return result;
}
