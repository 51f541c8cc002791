// SPDX-License-Identifier: Apache-2.0
// `_core.Result`: OUT/result.db while a check writes it (ulpscope/result.h); `markdown`:
// one row as a bug report (ulpscope/report.h).
#include "core.h"

#include <assert.h>
#include <stdbool.h>
#include <ulpscope/report.h>
#include <ulpscope/result.h>

typedef struct result_object {
    PyObject_HEAD usc_result *result;
    PyThread_type_lock lock; /* one thread at a time in `result` */
} result_object;

/* ---- parsing: every text is borrowed from a dict that nobody else can change ---- */

/* The text under key, "" where it is missing or None; NULL with an exception set. */
static const char *dict_text(PyObject *dict, const char *key)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    if (value == NULL || value == Py_None) return "";
    return PyUnicode_AsUTF8(value);
}

static bool read_texts(PyObject *dict, const char *const *keys, const char **const *out)
{
    for (int i = 0; keys[i] != NULL; i++)
        if ((*out[i] = dict_text(dict, keys[i])) == NULL) return false;
    return true;
}

static bool read_int(PyObject *dict, const char *key, int64_t *out)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    if (value == NULL || value == Py_None) return true;
    *out = PyLong_AsLongLong(value);
    return *out != -1 || PyErr_Occurred() == NULL;
}

static bool read_double(PyObject *dict, const char *key, double *out)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    if (value == NULL || value == Py_None) return true;
    *out = PyFloat_AsDouble(value);
    return *out != -1.0 || PyErr_Occurred() == NULL;
}

static bool read_run(PyObject *dict, usc_run *run)
{
    static const char *const keys[] = {"trace",  "trace_id", "device",      "standard",
                                       "faults", "options",  "environment", NULL};
    const char **const out[] = {&run->trace,      &run->trace_id, &run->device,
                                &run->standard,   &run->faults,   &run->options,
                                &run->environment};
    int64_t goes_on = 0;
    if (!read_texts(dict, keys, out) || !read_int(dict, "goes_on", &goes_on))
        return false;
    run->goes_on = goes_on != 0;
    return true;
}

static bool read_row(PyObject *dict, usc_result_row *row)
{
    static const char *const keys[] = {
        "phase",    "op",    "culprit", "module", "module_class", "verdict", "cause",
        "sentence", "notes", "output",  "args",   "stack",        NULL};
    const char **const out[] = {&row->phase,  &row->op,           &row->culprit,
                                &row->module, &row->module_class, &row->verdict,
                                &row->cause,  &row->sentence,     &row->notes,
                                &row->output, &row->args,         &row->stack};
    int64_t bound = 0;
    const bool ok = read_texts(dict, keys, out) && read_int(dict, "call", &row->call) &&
                    read_int(dict, "step", &row->step) &&
                    read_double(dict, "bits", &row->bits) &&
                    read_double(dict, "yardstick_bits", &row->yardstick_bits) &&
                    read_int(dict, "bound", &bound) &&
                    read_int(dict, "n_elements", &row->n_elements) &&
                    read_int(dict, "stands_for", &row->stands_for) &&
                    read_int(dict, "t_device", &row->t_device) &&
                    read_int(dict, "t_reference", &row->t_reference) &&
                    read_int(dict, "t_perturbed", &row->t_perturbed) &&
                    read_int(dict, "t_judge", &row->t_judge) &&
                    read_int(dict, "t_total", &row->t_total);
    row->bound = bound != 0;
    return ok;
}

/* dict[key] as a tuple of tuples that lives until the copy of the dict does. */
static PyObject *freeze(PyObject *dict, const char *key)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    PyObject *tuple =
        value == NULL || value == Py_None ? PyTuple_New(0) : PySequence_Tuple(value);
    if (tuple == NULL || PyDict_SetItemString(dict, key, tuple) < 0) {
        Py_XDECREF(tuple);
        return NULL;
    }
    Py_DECREF(tuple); /* the dict holds it */
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        if (!PyTuple_Check(PyTuple_GET_ITEM(tuple, i))) {
            PyErr_Format(PyExc_TypeError, "%s: entry %zd is not a tuple", key, i);
            return NULL;
        }
    return tuple;
}

static usc_metric *read_metrics(PyObject *tuple)
{
    const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    usc_metric *out = PyMem_Calloc((size_t)n + 1, sizeof *out);
    if (out == NULL) return (usc_metric *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++)
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, i),
                              "isdz;a metric is (output, name, value, text)",
                              &out[i].output, &out[i].name, &out[i].value,
                              &out[i].text)) {
            PyMem_Free(out);
            return NULL;
        }
    return out;
}

static usc_result_example *read_examples(PyObject *tuple)
{
    const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    usc_result_example *out = PyMem_Calloc((size_t)n + 1, sizeof *out);
    if (out == NULL) return (usc_result_example *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        usc_result_example *e = &out[i];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, i),
                              "iisdddd;an example is (output, rank, index, device, "
                              "reference, yardstick, "
                              "score)",
                              &e->output, &e->rank, &e->index, &e->device, &e->reference,
                              &e->yardstick, &e->score)) {
            PyMem_Free(out);
            return NULL;
        }
    }
    return out;
}

/* A row with what its texts, metrics and examples lie in. */
typedef struct given_row {
    usc_result_row row;
    PyObject *dict;
    usc_metric *metrics;
    usc_result_example *examples;
} given_row;

static void drop_row(given_row *given)
{
    PyMem_Free(given->metrics);
    PyMem_Free(given->examples);
    Py_XDECREF(given->dict);
}

/* False with an exception set; to be dropped either way. */
static bool take_row(given_row *given, PyObject *arg)
{
    *given = (given_row){.row = {.stands_for = 1}};
    if (!PyDict_Check(arg)) {
        PyErr_SetString(PyExc_TypeError, "a row is a dict");
        return false;
    }
    usc_result_row *row = &given->row;
    given->dict = PyDict_Copy(arg);
    if (given->dict == NULL || !read_row(given->dict, row)) return false;
    PyObject *metrics = freeze(given->dict, "metrics");
    PyObject *examples = metrics != NULL ? freeze(given->dict, "examples") : NULL;
    if (examples == NULL || (given->metrics = read_metrics(metrics)) == NULL ||
        (given->examples = read_examples(examples)) == NULL)
        return false;
    row->metrics = given->metrics;
    row->n_metrics = (int)PyTuple_GET_SIZE(metrics);
    row->examples = given->examples;
    row->n_examples = (int)PyTuple_GET_SIZE(examples);
    return true;
}

/* ---- the object ---- */

static PyObject *result_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"out_folder", "run", "force", NULL};
    const core_state *state = core_state_of(type);
    PyObject *path = NULL, *run_dict = NULL;
    result_object *self = NULL;
    usc_run run = {0};
    usc_error err = {0};
    usc_status status = USC_E_ARG;
    int force = 0;
    if (state == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "O&O!|p:Result",
                                                      names, PyUnicode_FSConverter, &path,
                                                      &PyDict_Type, &run_dict, &force))
        return NULL;
    run_dict = PyDict_Copy(run_dict);
    if (run_dict == NULL || !read_run(run_dict, &run)) goto done;
    self = (result_object *)type->tp_alloc(type, 0);
    if (self == NULL) goto done;
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS;
    status =
        usc_result_create(PyBytes_AS_STRING(path), &run, force != 0, &self->result, &err);
    Py_END_ALLOW_THREADS;
    if (status != USC_OK) core_raise(state, status, &err);

done:
    Py_XDECREF(run_dict);
    Py_DECREF(path);
    if (status != USC_OK) Py_CLEAR(self);
    return (PyObject *)self;
}

static bool enter(result_object *self)
{
    core_lock(self->lock);
    if (self->result != NULL) return true;
    PyThread_release_lock(self->lock);
    PyErr_SetString(PyExc_ValueError, "the result is closed");
    return false;
}

static PyObject *finish(result_object *self, usc_status status, const usc_error *err)
{
    PyThread_release_lock(self->lock);
    if (status != USC_OK) return core_raise(core_state_of(Py_TYPE(self)), status, err);
    Py_RETURN_NONE;
}

static PyObject *result_close(result_object *self, PyObject *unused)
{
    (void)unused;
    core_lock(self->lock);
    Py_BEGIN_ALLOW_THREADS;
    usc_result_close(self->result);
    Py_END_ALLOW_THREADS;
    self->result = NULL;
    PyThread_release_lock(self->lock);
    Py_RETURN_NONE;
}

static PyObject *result_discard(result_object *self, PyObject *unused)
{
    (void)unused;
    core_lock(self->lock);
    Py_BEGIN_ALLOW_THREADS;
    usc_result_discard(self->result);
    Py_END_ALLOW_THREADS;
    self->result = NULL;
    PyThread_release_lock(self->lock);
    Py_RETURN_NONE;
}

static void result_dealloc(result_object *self)
{
    PyTypeObject *type = Py_TYPE(self);
    usc_result_close(self->result);
    if (self->lock != NULL) PyThread_free_lock(self->lock);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *result_put(result_object *self, PyObject *arg)
{
    given_row given;
    PyObject *result = NULL;
    if (!take_row(&given, arg) || !enter(self)) goto done;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_result_put(self->result, &given.row, &err);
    Py_END_ALLOW_THREADS;
    result = finish(self, status, &err);

done:
    drop_row(&given);
    return result;
}

static PyObject *result_set(result_object *self, PyObject *args)
{
    const char *key, *value;
    if (!PyArg_ParseTuple(args, "ss:set", &key, &value) || !enter(self)) return NULL;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_result_set(self->result, key, value, &err);
    Py_END_ALLOW_THREADS;
    return finish(self, status, &err);
}

static PyObject *result_get(result_object *self, PyObject *arg)
{
    const char *key = PyUnicode_AsUTF8(arg);
    if (key == NULL || !enter(self)) return NULL;
    const char *value;
    Py_BEGIN_ALLOW_THREADS;
    value = usc_result_get(self->result, key);
    Py_END_ALLOW_THREADS;
    PyObject *text = core_text(value);
    PyThread_release_lock(self->lock);
    return text;
}

static PyObject *result_done(result_object *self, PyObject *unused)
{
    (void)unused;
    if (!enter(self)) return NULL;
    usc_error err = {0};
    const int64_t *calls;
    int64_t n;
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_result_done(self->result, &calls, &n, &err);
    Py_END_ALLOW_THREADS;
    if (status != USC_OK) return finish(self, status, &err);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (int64_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = PyLong_FromLongLong(calls[i]);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    PyThread_release_lock(self->lock);
    return list;
}

static PyObject *result_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *result_exit(result_object *self, PyObject *args)
{
    (void)args;
    return result_close(self, NULL);
}

/* ---- a row as a bug report ---- */

usc_status py_append(void *ctx, const char *bytes, size_t n, usc_error *err)
{
    assert(ctx && bytes);
    PyObject **text = ctx; /* bytes, NULL with an exception set where memory ran out */
    PyBytes_ConcatAndDel(text, PyBytes_FromStringAndSize(bytes, (Py_ssize_t)n));
    return *text != NULL ? USC_OK : usc_error_set(err, USC_E_NOMEM, -1, "no memory");
}

PyObject *py_appended(PyObject *bytes)
{
    PyObject *text = bytes == NULL
                         ? NULL
                         : PyUnicode_DecodeUTF8(PyBytes_AS_STRING(bytes),
                                                PyBytes_GET_SIZE(bytes), "replace");
    Py_XDECREF(bytes);
    return text;
}

typedef usc_status hand_on(const usc_run *, const usc_result_row *,
                           const usc_script_run *, const usc_sink *, usc_error *);

/* args: row, run, and what became of a script, (code, alone, said) or None. */
static PyObject *handed_on(PyObject *module, PyObject *args, hand_on *function)
{
    PyObject *row, *run_dict, *tried, *text = NULL;
    given_row given = {0};
    usc_run run = {0};
    usc_script_run script = {0};
    usc_error err = {0};
    int alone = 0;
    if (!PyArg_ParseTuple(args, "OO!O", &row, &PyDict_Type, &run_dict, &tried))
        return NULL;
    if (tried != Py_None &&
        !PyArg_ParseTuple(tried, "ips", &script.code, &alone, &script.said))
        return NULL;
    script.alone = alone != 0;
    if (!take_row(&given, row) || !read_run(run_dict, &run)) goto done;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, 0);
    const usc_sink sink = {py_append, &bytes};
    const usc_status st =
        function(&run, &given.row, tried != Py_None ? &script : NULL, &sink, &err);
    if (st != USC_OK && bytes != NULL) {
        core_raise(PyModule_GetState(module), st, &err);
        Py_CLEAR(bytes);
    }
    text = py_appended(bytes);

done:
    drop_row(&given);
    return text;
}

static PyObject *py_markdown(PyObject *module, PyObject *args)
{
    return handed_on(module, args, usc_report_markdown);
}

static PyObject *py_about(PyObject *module, PyObject *args)
{
    return handed_on(module, args, usc_report_about);
}

static PyObject *py_claim(PyObject *module, PyObject *args)
{
    PyObject *path;
    const char *kind;
    usc_error err = {0};
    usc_status status;
    if (!PyArg_ParseTuple(args, "O&s:claim", PyUnicode_FSConverter, &path, &kind))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_result_claim(PyBytes_AS_STRING(path), kind, &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    if (status != USC_OK) return core_raise(PyModule_GetState(module), status, &err);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"claim", py_claim, METH_VARARGS,
     "claim(out_folder, kind): raises where OUT holds results of another kind; see "
     "usc_result_claim."},
    {"markdown", py_markdown, METH_VARARGS,
     "markdown(row, run, tried) -> str: see usc_report_markdown; tried is (code, alone, "
     "said) or None."},
    {"about", py_about, METH_VARARGS,
     "about(row, run, tried) -> str: see usc_report_about."},
    {NULL, NULL, 0, NULL},
};

/* ---- the type ---- */

static PyMethodDef methods[] = {
    {"put", METHOD(result_put), METH_O,
     "put(row): writes one verdict; metrics are (output, name, value, text) and examples "
     "(output, rank, index, device, reference, yardstick, score)."},
    {"set", METHOD(result_set), METH_VARARGS, "set(key, value): a key of table run."},
    {"get", METHOD(result_get), METH_O, "get(key) -> str | None"},
    {"done", METHOD(result_done), METH_NOARGS,
     "done() -> list[int]: calls that have a verdict."},
    {"close", METHOD(result_close), METH_NOARGS,
     "close(): makes result.db a plain file."},
    {"discard", METHOD(result_discard), METH_NOARGS,
     "discard(): closes, and takes away what was made where nothing was put."},
    {"__enter__", result_enter, METH_NOARGS, NULL},
    {"__exit__", METHOD(result_exit), METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Result(out_folder, run, force=False): opens or creates OUT/result.db."},
    {Py_tp_new, result_new},
    {Py_tp_dealloc, result_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "ulpscope._core.Result",
    .basicsize = sizeof(result_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int py_result_add(PyObject *module)
{
    assert(PyModule_Check(module));
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "Result", type);
    Py_DECREF(type);
    return result < 0 ? result : PyModule_AddFunctions(module, functions);
}
