// SPDX-License-Identifier: Apache-2.0
// Bindings of kept.h and of the writer in safetensors.h: what a case has kept as entries
// of a manifest, and `_core.write_tensors`; `script`, which holds tensors too.
#include "py_case.h"
#include "py_judge.h"
#include "py_tensor.h"

#include <ulpscope/report.h>
#include <ulpscope/safetensors.h>

#include <assert.h>
#include <string.h>

/* ---- entries ---- */

/* Of reading `i`; 0: the call's own. */
static PyObject *name_of(const usc_kept *k, int i, const char *operand)
{
    if (i == 0) return PyUnicode_FromFormat("%s.%s", k->path, operand);
    return PyUnicode_FromFormat("reading%d/%s.%s", i, k->path, operand);
}

static PyObject *numbers(const int64_t *values, int n)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < n; i++) {
        PyObject *item = PyLong_FromLongLong(values[i]);
        if (item == NULL || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *dtypes_of(const usc_kept *k)
{
    const char *one = k->captured, *other = k->dtype;
    if (one != NULL && other != NULL && strcmp(one, other) != 0)
        return Py_BuildValue("[ss]", one, other);
    if (one == NULL) one = other;
    return one != NULL ? Py_BuildValue("[s]", one) : PyList_New(0);
}

static PyObject *window_of(const usc_choice *c)
{
    PyObject *list = PyList_New(0);
    for (int d = 0; list != NULL && d < c->n_window; d++) {
        const int64_t four[] = {c->kernel[d], c->stride[d], c->padding[d],
                                c->dilation[d]};
        PyObject *item = numbers(four, 4);
        if (item == NULL || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *choice_of(const usc_choice *c)
{
    PyObject *dim = c->dim < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(c->dim);
    return Py_BuildValue("{sNsNsNsNsdsN}", "dim", dim, "once", PyBool_FromLong(c->once),
                         "cumulative", PyBool_FromLong(c->cumulative), "counts",
                         PyBool_FromLong(c->counts), "slack", c->slack, "window",
                         window_of(c));
}

static PyObject *operands_of(const usc_kept *k, int i)
{
    PyObject *dict = PyDict_New();
    int bad = dict == NULL;
#define PUT(name)                                                                        \
    if (!bad && k->of.name != NULL) bad = py_put(dict, #name, name_of(k, i, #name)) < 0;
    USC_KEPT_LIST(PUT)
#undef PUT
    if (bad) Py_CLEAR(dict);
    return dict;
}

/* What is not said is false, or 0. */
static int put_known(PyObject *dict, const usc_kept *k)
{
    int bad = 0;
#define PUT(name)                                                                        \
    if (!bad && k->name) bad = py_put(dict, #name, Py_NewRef(Py_True)) < 0;
    USC_KEPT_FLAG_LIST(PUT)
#undef PUT
#define PUT(name)                                                                        \
    if (!bad && k->name > 0) bad = py_put(dict, #name, PyLong_FromLong(k->name)) < 0;
    USC_KEPT_COUNT_LIST(PUT)
#undef PUT
#define PUT(name)                                                                        \
    if (!bad && k->name > 0) bad = py_put(dict, #name, PyFloat_FromDouble(k->name)) < 0;
    USC_KEPT_NUMBER_LIST(PUT)
#undef PUT
    return bad ? -1 : 0;
}

static PyObject *entry_of(const usc_kept *k, int i);

/* Those behind the call's own. */
static PyObject *readings_of(const usc_kept *k)
{
    PyObject *list = PyList_New(0);
    int i = 0;
    while (list != NULL && (k = k->next) != NULL) {
        PyObject *entry = entry_of(k, ++i);
        if (entry == NULL || PyList_Append(list, entry) < 0) Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

static PyObject *entry_of(const usc_kept *k, int i)
{
    PyObject *dict = Py_BuildValue("{ss}", "path", k->path);
    if (dict == NULL) return NULL;
    int bad = 0;
    if (k->unjudged != NULL)
        bad = py_put(dict, "unjudged", core_text(k->unjudged)) < 0;
    else
        bad =
            py_put(dict, "dtypes", dtypes_of(k)) < 0 ||
            py_put(dict, "shape", numbers(k->sizes, k->ndim)) < 0 ||
            put_known(dict, k) < 0 ||
            (k->reading != NULL && py_put(dict, "reading", core_text(k->reading)) < 0) ||
            (k->refused != NULL && py_put(dict, "refused", core_text(k->refused)) < 0) ||
            (k->note != NULL && py_put(dict, "note", core_text(k->note)) < 0) ||
            (k->of.choice != NULL && py_put(dict, "choice", choice_of(&k->how)) < 0) ||
            py_put(dict, "operands", operands_of(k, i)) < 0 ||
            (i == 0 && k->next != NULL && py_put(dict, "readings", readings_of(k)) < 0);
    if (bad) Py_CLEAR(dict);
    return dict;
}

PyObject *py_kept_entries(const usc_case *c)
{
    assert(c != NULL);
    PyObject *list = PyList_New(0);
    const usc_kept *k;
    for (int i = 0; list != NULL && (k = usc_case_kept(c, i)) != NULL; i++) {
        PyObject *entry = entry_of(k, 0);
        if (entry == NULL || PyList_Append(list, entry) < 0) Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

/* ---- files ---- */

/* Tensors to write; `names` holds the text of their names. */
typedef struct batch {
    usc_named_tensor *items;
    Py_ssize_t n, room;
    PyObject *names;
} batch;

/* Takes over the reference to `name`. */
static int add(batch *b, PyObject *name, const usc_tensor *t)
{
    if (name == NULL) return -1;
    if (b->n == b->room) {
        const Py_ssize_t room = b->room > 0 ? 2 * b->room : 16;
        usc_named_tensor *more = PyMem_Resize(b->items, usc_named_tensor, (size_t)room);
        if (more == NULL) {
            Py_DECREF(name);
            PyErr_NoMemory();
            return -1;
        }
        b->items = more;
        b->room = room;
    }
    const char *text = PyUnicode_AsUTF8(name);
    const int held = text != NULL ? PyList_Append(b->names, name) : -1;
    Py_DECREF(name); /* the list has it */
    if (held == 0) b->items[b->n++] = (usc_named_tensor){.name = text, .tensor = *t};
    return held;
}

static int add_tensors(batch *b, PyObject *dict)
{
    PyObject *name, *tensor;
    Py_ssize_t at = 0;
    usc_tensor t;
    while (PyDict_Next(dict, &at, &name, &tensor))
        if (py_tensor_borrow(tensor, &t) < 0 || add(b, Py_NewRef(name), &t) < 0)
            return -1;
    return 0;
}

static int add_operands(batch *b, const usc_kept *k, int i)
{
#define ADD(operand)                                                                     \
    if (k->of.operand != NULL && add(b, name_of(k, i, #operand), k->of.operand) < 0)     \
        return -1;
    USC_KEPT_LIST(ADD)
#undef ADD
    return 0;
}

static int add_kept(batch *b, const usc_case *c)
{
    const usc_kept *k;
    for (int i = 0; (k = usc_case_kept(c, i)) != NULL; i++)
        for (int reading = 0; k != NULL; k = k->next, reading++)
            if (add_operands(b, k, reading) < 0) return -1;
    return 0;
}

static int add_part(batch *b, PyObject *part, const core_state *state)
{
    if (PyDict_Check(part)) return add_tensors(b, part);
    const usc_case *c = py_case_of(part, state);
    return c != NULL ? add_kept(b, c) : -1;
}

/* Whether there was anything to write. */
static PyObject *write_batch(const char *path, const batch *b, const core_state *state)
{
    usc_error err = {0};
    usc_status st = USC_OK;
    Py_BEGIN_ALLOW_THREADS;
    if (b->n > 0) st = usc_safetensors_put(path, b->items, b->n, NULL, &err);
    Py_END_ALLOW_THREADS;
    return st == USC_OK ? PyBool_FromLong(b->n > 0) : core_raise(state, st, &err);
}

static PyObject *write_tensors(PyObject *module, PyObject *args)
{
    const core_state *state = PyModule_GetState(module);
    const Py_ssize_t n = PyTuple_GET_SIZE(args);
    PyObject *path = NULL, *result = NULL;
    batch b = {.names = PyList_New(0)};
    int bad = b.names == NULL || n < 1 ||
              !PyUnicode_FSConverter(PyTuple_GET_ITEM(args, 0), &path);
    for (Py_ssize_t i = 1; i < n && !bad; i++)
        bad = add_part(&b, PyTuple_GET_ITEM(args, i), state) < 0;
    if (!bad) result = write_batch(PyBytes_AS_STRING(path), &b, state);
    if (n < 1) PyErr_SetString(PyExc_TypeError, "write_tensors: no path");
    Py_XDECREF(path);
    Py_XDECREF(b.names);
    PyMem_Free(b.items);
    return result;
}

/* ---- a script ---- */

enum { MOST_PARTS = 32 };

/* Texts of a dict; -1 with an exception set. */
static int read_parts(PyObject *dict, usc_script_part parts[MOST_PARTS])
{
    Py_ssize_t at = 0;
    int n = 0;
    for (PyObject *key, *value; n < MOST_PARTS && PyDict_Next(dict, &at, &key, &value);
         n++)
        if ((parts[n].name = PyUnicode_AsUTF8(key)) == NULL ||
            (parts[n].text = PyUnicode_AsUTF8(value)) == NULL)
            return -1;
    return n;
}

static PyObject *py_script(PyObject *module, PyObject *args)
{
    PyObject *dict, *tensors, *bytes = NULL;
    usc_script_part parts[MOST_PARTS];
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "O!O!:script", &PyDict_Type, &dict, &PyDict_Type,
                          &tensors))
        return NULL;
    const int n = read_parts(dict, parts);
    batch b = {.names = n < 0 ? NULL : PyList_New(0)};
    if (b.names == NULL || add_tensors(&b, tensors) < 0) goto done;
    bytes = PyBytes_FromStringAndSize(NULL, 0);
    const usc_sink sink = {py_append, &bytes};
    const usc_status st =
        usc_report_script(parts, (size_t)n, b.items, (size_t)b.n, &sink, &err);
    if (st != USC_OK && bytes != NULL) {
        core_raise(PyModule_GetState(module), st, &err);
        Py_CLEAR(bytes);
    }

done:
    Py_XDECREF(b.names);
    PyMem_Free(b.items);
    return py_appended(bytes);
}

static PyMethodDef kept_methods[] = {
    {"script", py_script, METH_VARARGS,
     "script(parts, tensors) -> str: see usc_report_script."},
    {"write_tensors", write_tensors, METH_VARARGS,
     "write_tensors(path, *parts) -> bool: a safetensors file of {name: tensor}s and of "
     "what a Case has kept; False, and no file, where that is "
     "nothing. See usc_safetensors_put: whoever writes many flushes their folder."},
    {NULL, NULL, 0, NULL},
};

int py_kept_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, kept_methods);
}
