// SPDX-License-Identifier: Apache-2.0
// Bindings of finding.h: `_core.Finding`, one entry of a list
// (which keeps the list alive). Neighbours: py_findings.c, py_finding_said.c.
#include "py_finding.h"
#include "py_judge.h"
#include "py_tensor.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- entries ---- */

PyObject *py_finding_of(PyObject *list, const usc_finding *f)
{
    assert(list != NULL);
    const core_state *state = core_state_of(Py_TYPE(list));
    if (state == NULL || f == NULL) {
        if (f == NULL) PyErr_SetString(PyExc_IndexError, "no such finding");
        return NULL;
    }
    finding_object *entry = PyObject_New(finding_object, state->finding_type);
    if (entry == NULL) return NULL;
    entry->list = Py_NewRef(list);
    entry->f = f;
    return (PyObject *)entry;
}

PyObject *py_text_list(const char *const *items, int n)
{
    assert(items != NULL || n == 0);
    PyObject *list = PyList_New(n);
    for (int i = 0; list != NULL && i < n; i++) {
        PyObject *one = core_text(items[i]);
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, one);
    }
    return list;
}

static PyObject *int_tuple(const int64_t *values, int n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple != NULL && i < n; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (value == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, value);
    }
    return tuple;
}

/* Coordinates of the examples. */
static PyObject *places_of(const usc_finding *f)
{
    PyObject *list = PyList_New(f->n_examples);
    for (int i = 0; list != NULL && i < f->n_examples; i++) {
        int64_t at[USC_MAX_DIMS];
        usc_position(f, f->examples[i].index, at);
        PyObject *one = int_tuple(at, f->ndim);
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, one);
    }
    return list;
}

static PyObject *numbers_of(const usc_finding *f)
{
    if (f->numbers == USC_NUMBERS_ALL) return py_judgement(&f->judgement);
    if (f->numbers == USC_NUMBERS_NONE) return PyDict_New();
    return Py_BuildValue("{s:L}", "n_mismatch", (long long)f->judgement.n_mismatch);
}

static PyObject *excused_of(const usc_finding *f)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < USC_N_EXCUSES; i++)
        if (f->excused[i] > 0 && py_put(dict, usc_excuse_info_of((usc_excuse)i)->code,
                                        PyLong_FromLongLong(f->excused[i])) < 0)
            Py_CLEAR(dict);
    return dict;
}

enum member { /* of a finding */
              PATH,
              VERDICT,
              REASON,
              BITS,
              YARDSTICK_BITS,
              BOUND,
              MEASURED,
              N,
              SIZES,
              NUMBERS,
              EXCUSED,
              NOTES,
              EXAMPLES,
              PLACES,
              POSITIONS,
};

static PyObject *finding_get(PyObject *self, void *member)
{
    const usc_finding *f = ((finding_object *)self)->f;
    switch ((enum member)(intptr_t)member) {
    case PATH:
        return core_text(f->path);
    case VERDICT:
        return core_text(usc_verdict_text(f->verdict));
    case REASON:
        return core_text(f->reason);
    case BITS:
        return PyFloat_FromDouble(f->bits);
    case YARDSTICK_BITS:
        return PyFloat_FromDouble(f->yardstick_bits);
    case BOUND:
        return PyBool_FromLong(f->bound);
    case MEASURED:
        return PyBool_FromLong(f->measured);
    case N:
        return PyLong_FromLongLong(f->n);
    case SIZES:
        return int_tuple(f->sizes, f->ndim);
    case NUMBERS:
        return numbers_of(f);
    case EXCUSED:
        return excused_of(f);
    case NOTES:
        return py_text_list(f->notes, f->n_notes);
    case EXAMPLES:
        return py_examples(f->examples, f->n_examples);
    case PLACES:
        return places_of(f);
    case POSITIONS:
        return py_slices(f->positions, f->positions != NULL ? f->ndim : 0);
    }
    Py_RETURN_NONE;
}

int py_sizes_read(PyObject *sizes, usc_finding *f)
{
    assert(f != NULL);
    if (sizes == NULL) return 0;
    const Py_ssize_t ndim = PySequence_Size(sizes);
    if (ndim < 0 || ndim > USC_MAX_DIMS) {
        if (ndim >= 0) PyErr_SetString(PyExc_ValueError, "too many dimensions");
        return -1;
    }
    f->ndim = (int)ndim;
    for (int i = 0; i < f->ndim; i++) {
        PyObject *size = PySequence_GetItem(sizes, i);
        f->sizes[i] = size != NULL ? PyLong_AsLongLong(size) : -1;
        Py_XDECREF(size);
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

usc_verdict py_verdict(const char *name)
{
    assert(name != NULL);
    const usc_verdict verdict = usc_verdict_by_text(name);
    if (verdict == USC_N_VERDICTS)
        PyErr_Format(PyExc_ValueError, "%s: no such verdict", name);
    return verdict;
}

/* A finding from keywords; what it points to is borrowed from them. */
static int read_finding(PyObject *args, PyObject *kwargs, usc_finding *f)
{
    static char *names[] = {"path", "verdict", "reason", "bits", "yardstick_bits",
                            "n",    "sizes",   "bound",  "few",  "measured",
                            NULL};
    const char *verdict, *reason = "";
    PyObject *sizes = NULL, *bits = NULL;
    long long n = 0;
    int bound = 0, few = 0, measured = 0;
    f->yardstick_bits = 24;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ss|sOdLOppp", names, &f->path,
                                     &verdict, &reason, &bits, &f->yardstick_bits, &n,
                                     &sizes, &bound, &few, &measured) ||
        (f->verdict = py_verdict(verdict)) == USC_N_VERDICTS ||
        py_sizes_read(sizes, f) < 0)
        return -1;
    f->reason = reason;
    f->bits = f->verdict == USC_VERDICT_WRONG ? 0 : 24;
    if (bits != NULL) f->bits = PyFloat_AsDouble(bits);
    f->n = n;
    f->bound = bound;
    f->few = few;
    f->measured = measured;
    return PyErr_Occurred() ? -1 : 0;
}

/* A finding in a list of its own. */
static PyObject *finding_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    usc_finding f = {0};
    const core_state *state = core_state_of(type);
    if (state == NULL || read_finding(args, kwargs, &f) < 0) return NULL;
    PyObject *list = PyObject_CallNoArgs((PyObject *)state->findings_type);
    if (list == NULL) return NULL;
    usc_error err = {0};
    usc_findings *findings = ((findings_object *)list)->findings;
    const usc_status st = usc_findings_add(findings, &f, &err);
    PyObject *entry = st == USC_OK ? py_finding_of(list, usc_findings_at(findings, 0))
                                   : core_raise(state, st, &err);
    Py_DECREF(list);
    return entry;
}

static void finding_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((finding_object *)self)->list);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *finding_compare(PyObject *a, PyObject *b, int how)
{
    if (Py_TYPE(a) != Py_TYPE(b) || (how != Py_EQ && how != Py_NE && how != Py_LT))
        Py_RETURN_NOTIMPLEMENTED;
    const usc_finding *one = ((finding_object *)a)->f, *other = ((finding_object *)b)->f;
    if (how == Py_LT) return PyBool_FromLong(usc_finding_before(one, other));
    return PyBool_FromLong((one == other) == (how == Py_EQ));
}

static Py_hash_t finding_hash(PyObject *self)
{
    return (Py_hash_t)((uintptr_t)((finding_object *)self)->f >> 4);
}

static PyObject *finding_repr(PyObject *self)
{
    const usc_finding *f = ((finding_object *)self)->f;
    return PyUnicode_FromFormat("<%s %s: %s>", f->path, usc_verdict_text(f->verdict),
                                f->reason);
}

#define GETTER(name, member, doc)                                                        \
    {                                                                                    \
        name, finding_get, NULL, doc, (void *)(intptr_t)(member)                         \
    }

static PyGetSetDef finding_members[] = {
    GETTER("path", PATH, "Of the output; \"\" for the call."),
    GETTER("verdict", VERDICT, NULL),
    GETTER("reason", REASON, "A clause."),
    GETTER("bits", BITS, "Effective bits; NaN where nothing was measured."),
    GETTER("yardstick_bits", YARDSTICK_BITS, NULL),
    GETTER("bound", BOUND, "Whether bits are what can be claimed at the least."),
    GETTER("measured", MEASURED, "Whether by scores, element by element."),
    GETTER("n", N, "Elements."),
    GETTER("sizes", SIZES, NULL),
    GETTER("numbers", NUMBERS, "Those of the judge by name, as far as there are any."),
    GETTER("excused", EXCUSED, "Excuse -> elements that went free by it."),
    GETTER("notes", NOTES, NULL),
    GETTER("examples", EXAMPLES,
           "(index, device, reference, yardstick, score), worst first."),
    GETTER("places", PLACES, "Coordinates of the examples."),
    GETTER("positions", POSITIONS, "Failing shares, 64 slices an axis."),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot finding_slots[] = {
    {Py_tp_doc, "Finding(path, verdict, reason='', bits=None, yardstick_bits=24, n=0, "
                "sizes=(), bound=False, few=False, measured=False): see usc_finding."},
    {Py_tp_new, (void *)finding_new},
    {Py_tp_dealloc, (void *)finding_dealloc},
    {Py_tp_richcompare, (void *)finding_compare},
    {Py_tp_hash, (void *)finding_hash},
    {Py_tp_repr, (void *)finding_repr},
    {Py_tp_getset, finding_members},
    {0, NULL},
};

static PyType_Spec finding_spec = {
    .name = "ulpscope._core.Finding",
    .basicsize = sizeof(finding_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = finding_slots,
};

/* ---- what is added to the module ---- */

static PyTypeObject *added(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0) Py_CLEAR(type);
    return (PyTypeObject *)type; /* the state keeps it */
}

/* `excuses`: code -> (share of an output that it may cover, words of a note). */
static int add_excuses(PyObject *module)
{
    PyObject *all = PyDict_New();
    for (int i = 0; all != NULL && i < USC_N_EXCUSES; i++) {
        const usc_excuse_info *info = usc_excuse_info_of((usc_excuse)i);
        if (py_put(all, info->code, Py_BuildValue("(ds)", info->most, info->words)) < 0)
            Py_CLEAR(all);
    }
    const int result = all == NULL ? -1 : PyModule_AddObjectRef(module, "excuses", all);
    Py_XDECREF(all);
    return result;
}

int py_finding_add(PyObject *module)
{
    assert(PyModule_Check(module));
    core_state *state = PyModule_GetState(module);
    state->finding_type = added(module, "Finding", &finding_spec);
    state->findings_type = added(module, "Findings", &py_findings_spec);
    if (state->finding_type == NULL || state->findings_type == NULL) return -1;
    return add_excuses(module) < 0 ? -1 : py_finding_said_add(module);
}
