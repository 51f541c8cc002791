// SPDX-License-Identifier: Apache-2.0
// `_core.Watch`: a watch (watch.h) that Python feeds. Rows come as one buffer of float64
// a table, so that a step's statistics cross once.
#include "core.h"

#include <ulpscope/watch.h>

#include <string.h>

/* Columns of a fed table; a hash goes beside, as it has more bits than a double. */
enum {
    COLUMN_RANK,
    COLUMN_TENSOR,
    COLUMN_MAX_ABS,
    COLUMN_SUM_ABS,
    COLUMN_SUM_SQ,
    COLUMN_NUMEL,
    COLUMN_NONFINITE,
    COLUMN_ZERO,
    COLUMN_VALUE,
    N_COLUMNS
};

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

static usc_watch_row row_of(long long step, usc_watch_site site, const double *c,
                            uint64_t hash)
{
    return (usc_watch_row){.step = step,
                           .rank = (int32_t)c[COLUMN_RANK],
                           .site = site,
                           .tensor = (int64_t)c[COLUMN_TENSOR],
                           .max_abs = c[COLUMN_MAX_ABS],
                           .sum_abs = c[COLUMN_SUM_ABS],
                           .sum_sq = c[COLUMN_SUM_SQ],
                           .numel = (int64_t)c[COLUMN_NUMEL],
                           .n_nonfinite = (int64_t)c[COLUMN_NONFINITE],
                           .n_zero = (int64_t)c[COLUMN_ZERO],
                           .value = c[COLUMN_VALUE],
                           .hash64 = hash};
}

/* Whether the whole numbers among the columns are ones that fit. */
static bool is_sound(const double *c)
{
    static const int whole[] = {COLUMN_RANK, COLUMN_TENSOR, COLUMN_NUMEL,
                                COLUMN_NONFINITE, COLUMN_ZERO};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        if (!(c[whole[i]] >= -1 && c[whole[i]] < 0x1p53)) return false;
    return c[COLUMN_RANK] < 0x1p31;
}

static usc_status feed(watch_object *self, long long step, usc_watch_site site,
                       const Py_buffer *table, const Py_buffer *hashes, usc_error *err)
{
    enum { PIECE = 64 };
    const size_t n = (size_t)table->len / (N_COLUMNS * sizeof(double));
    usc_watch_row rows[PIECE];
    usc_status status = USC_OK;
    for (size_t at = 0; status == USC_OK && at < n;) {
        size_t filled = 0;
        for (; filled < PIECE && at < n; filled++, at++) {
            double columns[N_COLUMNS];
            uint64_t hash = 0;
            memcpy(columns, (const char *)table->buf + at * sizeof columns,
                   sizeof columns);
            if (hashes->buf != NULL)
                memcpy(&hash, (const char *)hashes->buf + at * sizeof hash, sizeof hash);
            if (!is_sound(columns))
                return usc_error_set(err, USC_E_RANGE, (int64_t)at,
                                     "row %zu: a rank, a tensor or a number of elements "
                                     "that is none",
                                     at);
            rows[filled] = row_of(step, site, columns, hash);
        }
        status = usc_watch_feed(self->watch, rows, filled, err);
    }
    return status;
}

static PyObject *watch_feed(watch_object *self, PyObject *args)
{
    long long step;
    const char *name;
    Py_buffer table, hashes = {0};
    usc_watch_site site;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "Lsy*|z*", &step, &name, &table, &hashes)) return NULL;
    const size_t row = N_COLUMNS * sizeof(double), n = (size_t)table.len / row;
    usc_status status = USC_OK;
    if (!usc_watch_site_by_name(name, &site))
        status = usc_error_set(&err, USC_E_ARG, -1, "no site '%s'", name);
    else if ((size_t)table.len % row != 0 ||
             (hashes.buf != NULL && (size_t)hashes.len != n * sizeof(uint64_t)))
        status =
            usc_error_set(&err, USC_E_SHAPE, -1,
                          "a table of %d float64 a row is needed, and a uint64 a row "
                          "for the hashes",
                          N_COLUMNS);
    if (status == USC_OK) {
        core_lock(self->lock);
        status = feed(self, step, site, &table, &hashes, &err);
        PyThread_release_lock(self->lock);
    }
    PyBuffer_Release(&table);
    if (hashes.buf != NULL) PyBuffer_Release(&hashes);
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

#define METHOD(f) (PyCFunction)(void (*)(void))(f)

static PyMethodDef methods[] = {
    {"tensor", METHOD(watch_tensor), METH_VARARGS | METH_KEYWORDS,
     "tensor(name, dtype, ndim=0, sharded=False) -> id."},
    {"feed", METHOD(watch_feed), METH_VARARGS,
     "feed(step, site, table, hashes=None): table, float64 a row of rank, tensor, "
     "max_abs, sum_abs, sum_sq, numel, nonfinite, zeros, value; hashes, uint64 a row."},
    {"step", METHOD(watch_step), METH_VARARGS,
     "step(step, seconds) -> events, as dicts, of all rows up to this step."},
    {"save", METHOD(watch_save), METH_NOARGS, "save() -> bytes."},
    {"load", METHOD(watch_load), METH_VARARGS, "load(bytes): goes on from a state."},
    {"about", METHOD(watch_about), METH_NOARGS,
     "about() -> dict: tensors, bytes, lost, score, wants_checksum."},
    {"config", METHOD(watch_config), METH_NOARGS,
     "config() -> dict: action, and the keys that have a number."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)watch_new},
    {Py_tp_dealloc, (void *)watch_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Watch(config='', mode='sound', world=1): docs/watch.md."},
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
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "Watch", type);
    Py_DECREF(type);
    return result;
}
