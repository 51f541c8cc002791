// SPDX-License-Identifier: Apache-2.0
// Bindings of finding.h: `_core.Findings`, the list of what was found in one call.
// Neighbours: py_finding.c (one entry), py_finding_said.c (rows and sentences).
#include "py_finding.h"
#include "py_judge.h"
#include "py_tensor.h"

#include <assert.h>

static usc_findings *list_of(PyObject *self)
{
    assert(self != NULL);
    return ((findings_object *)self)->findings;
}

/* None, or what a status says. */
static PyObject *told(PyObject *self, usc_status st, const usc_error *err)
{
    assert(st == USC_OK || err);
    if (st == USC_OK) Py_RETURN_NONE;
    return core_raise(core_state_of(Py_TYPE(self)), st, err);
}

/* Appends copies of all that `items` yields. */
static int extend(PyObject *self, PyObject *items)
{
    const core_state *state = core_state_of(Py_TYPE(self));
    PyObject *all = PySequence_Fast(items, "findings: not a sequence");
    if (state == NULL || all == NULL) {
        Py_XDECREF(all);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(all); i++) {
        usc_error err = {0};
        PyObject *item = PySequence_Fast_GET_ITEM(all, i);
        usc_status st = USC_E_ARG;
        if (Py_TYPE(item) != state->finding_type)
            PyErr_SetString(PyExc_TypeError, "not a Finding");
        else if ((st = usc_findings_add(list_of(self), ((finding_object *)item)->f,
                                        &err)) != USC_OK)
            core_raise(state, st, &err);
        if (st != USC_OK) break;
    }
    Py_DECREF(all);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *findings_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *items = NULL;
    usc_error err = {0};
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "|O:Findings", &items)) return NULL;
    findings_object *self = (findings_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    const usc_status st = usc_findings_open(NULL, &self->findings, &err);
    if (st != USC_OK) core_raise(core_state_of(type), st, &err);
    if (st == USC_OK && (items == NULL || extend((PyObject *)self, items) == 0))
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void findings_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    usc_findings_close(list_of(self));
    type->tp_free(self);
    Py_DECREF(type);
}

static Py_ssize_t findings_length(PyObject *self)
{
    return usc_findings_count(list_of(self));
}

static PyObject *findings_item(PyObject *self, Py_ssize_t i)
{
    return py_finding_of(self, usc_findings_at(list_of(self), (int)i));
}

static PyObject *findings_worst(PyObject *self, void *unused)
{
    (void)unused;
    const usc_finding *worst = usc_findings_worst(list_of(self));
    if (worst == NULL) Py_RETURN_NONE;
    return py_finding_of(self, worst);
}

static PyObject *findings_notes(PyObject *self, void *unused)
{
    (void)unused;
    const char *const *notes;
    int n;
    usc_error err = {0};
    const usc_status st = usc_findings_notes(list_of(self), &notes, &n, &err);
    return st == USC_OK ? py_text_list(notes, n) : told(self, st, &err);
}

static PyObject *findings_left_out(PyObject *self, void *unused)
{
    (void)unused;
    return core_text(usc_findings_left_out(list_of(self)));
}

static PyObject *findings_wants_calm(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(usc_findings_want_calm(list_of(self)));
}

/* The place of a finding; -1 with an exception set where there is none. */
static int place_of(PyObject *self, int i)
{
    if (usc_findings_at(list_of(self), i) != NULL) return i;
    PyErr_SetString(PyExc_IndexError, "no such finding");
    return -1;
}

static PyObject *findings_excuse(PyObject *self, PyObject *args)
{
    int i;
    const char *code;
    long long n;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "isL", &i, &code, &n) || place_of(self, i) < 0)
        return NULL;
    const usc_excuse excuse = usc_excuse_by_code(code);
    if (excuse == USC_N_EXCUSES)
        return PyErr_Format(PyExc_ValueError, "%s: no such excuse", code);
    return told(self, usc_findings_excuse(list_of(self), i, excuse, n, &err), &err);
}

static PyObject *findings_note(PyObject *self, PyObject *args)
{
    int i;
    const char *note;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "is", &i, &note) || place_of(self, i) < 0) return NULL;
    return told(self, usc_findings_note(list_of(self), i, note, &err), &err);
}

static PyObject *findings_rename(PyObject *self, PyObject *args)
{
    int i;
    const char *path;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "is", &i, &path) || place_of(self, i) < 0) return NULL;
    return told(self, usc_findings_rename(list_of(self), i, path, &err), &err);
}

/* The list behind an argument; NULL with an exception set. */
static usc_findings *other_list(PyObject *self, PyObject *other)
{
    if (Py_TYPE(other) == Py_TYPE(self)) return list_of(other);
    PyErr_SetString(PyExc_TypeError, "not Findings");
    return NULL;
}

static PyObject *findings_calmed(PyObject *self, PyObject *args)
{
    PyObject *other;
    const char *verdict, *set;
    usc_calmed calmed;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "Oss", &other, &verdict, &set)) return NULL;
    const usc_findings *list = other_list(self, other);
    if (list == NULL) return NULL;
    const usc_status st = usc_findings_calmed(
        list_of(self), list, usc_verdict_by_text(verdict), set, &calmed, &err);
    if (st != USC_OK) return told(self, st, &err);
    return Py_BuildValue("(OOs)", calmed.accuses ? Py_True : Py_False,
                         calmed.taken ? Py_True : Py_False, calmed.note);
}

static PyObject *findings_unsaid(PyObject *self, PyObject *unused)
{
    (void)unused;
    usc_error err = {0};
    return told(self, usc_findings_unsaid(list_of(self), &err), &err);
}

/* ---- pieces ---- */

static PyObject *findings_join(PyObject *self, PyObject *args)
{
    PyObject *parts, *sizes;
    long long n;
    int decides = 0;
    usc_finding form = {0};
    usc_error err = {0};
    const core_state *state = core_state_of(Py_TYPE(self));
    if (state == NULL ||
        !PyArg_ParseTuple(args, "O!LO", &PyList_Type, &parts, &n, &sizes) ||
        py_sizes_read(sizes, &form) < 0)
        return NULL;
    usc_whole whole = {.n_parts = (int)PyList_GET_SIZE(parts), .n = n, .ndim = form.ndim};
    memcpy(whole.sizes, form.sizes, sizeof whole.sizes);
    const usc_finding **given = PyMem_Calloc((size_t)whole.n_parts + 1, sizeof *given);
    if (given == NULL) return PyErr_NoMemory();
    for (int i = 0; i < whole.n_parts; i++) {
        PyObject *item = PyList_GET_ITEM(parts, i);
        if (Py_TYPE(item) != state->finding_type) {
            PyMem_Free(given);
            return PyErr_Format(PyExc_TypeError, "not a Finding");
        }
        given[i] = ((finding_object *)item)->f;
    }
    whole.parts = given;
    const usc_status st = usc_findings_join(list_of(self), &whole, &decides, &err);
    PyMem_Free(given);
    return st == USC_OK ? PyLong_FromLong(decides) : told(self, st, &err);
}

static PyObject *findings_place(PyObject *self, PyObject *args)
{
    int i;
    PyObject *flat;
    int64_t at[USC_FINDING_EXAMPLES];
    if (!PyArg_ParseTuple(args, "iO!", &i, &PyList_Type, &flat) || place_of(self, i) < 0)
        return NULL;
    int n = 0;
    for (; n < (int)PyList_GET_SIZE(flat) && n < USC_FINDING_EXAMPLES; n++)
        at[n] = PyLong_AsLongLong(PyList_GET_ITEM(flat, n));
    if (PyErr_Occurred()) return NULL;
    usc_findings_place(list_of(self), i, at, n);
    Py_RETURN_NONE;
}

static PyObject *findings_differ(PyObject *self, PyObject *args)
{
    const char *path;
    PyObject *given[3];
    usc_tensor t[3];
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "sOOO", &path, &given[0], &given[1], &given[2]))
        return NULL;
    for (int i = 0; i < 3; i++)
        if (py_tensor_borrow(given[i], &t[i]) < 0) return NULL;
    return told(self, usc_findings_differ(list_of(self), path, &t[0], &t[1], &t[2], &err),
                &err);
}

static PyObject *findings_same(PyObject *self, PyObject *args)
{
    long long n, n_odd;
    int float_size;
    PyObject *sizes;
    usc_finding form = {0};
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "sLOiL", &form.path, &n, &sizes, &float_size, &n_odd) ||
        py_sizes_read(sizes, &form) < 0)
        return NULL;
    form.n = n;
    return told(self, usc_findings_same(list_of(self), &form, float_size, n_odd, &err),
                &err);
}

static PyObject *findings_miscounted(PyObject *self, PyObject *args)
{
    long long n_given, n_due;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "LL", &n_given, &n_due)) return NULL;
    return told(self, usc_findings_miscounted(list_of(self), n_given, n_due, &err), &err);
}

static PyObject *findings_misformed(PyObject *self, PyObject *args)
{
    const char *path;
    PyObject *got, *want;
    usc_tensor g, w;
    int dtype;
    bool wrong;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "sOOp", &path, &got, &want, &dtype) ||
        py_tensor_borrow(got, &g) < 0 || py_tensor_borrow(want, &w) < 0)
        return NULL;
    PyObject *none = told(
        self,
        usc_findings_misformed(list_of(self), path, &g, &w, dtype != 0, &wrong, &err),
        &err);
    if (none == NULL) return NULL;
    Py_DECREF(none);
    return PyBool_FromLong(wrong);
}

static PyObject *findings_extend(PyObject *self, PyObject *items)
{
    if (extend(self, items) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *findings_repr(PyObject *self)
{
    PyObject *list = PySequence_List(self);
    PyObject *out = list != NULL ? PyObject_Repr(list) : NULL;
    Py_XDECREF(list);
    return out;
}

static PyGetSetDef findings_members[] = {
    {"worst", findings_worst, NULL, "The finding that decides, or None.", NULL},
    {"notes", findings_notes, NULL, "See usc_findings_notes.", NULL},
    {"left_out", findings_left_out, NULL, "See usc_findings_left_out.", NULL},
    {"want_calm", findings_wants_calm, NULL, "See usc_findings_want_calm.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef findings_methods[] = {
    {"extend", findings_extend, METH_O, "extend(findings): copies of them, at the end."},
    {"differ", findings_differ, METH_VARARGS,
     "differ(path, got, want, marks): see usc_findings_differ."},
    {"miscounted", findings_miscounted, METH_VARARGS,
     "miscounted(n_given, n_due): see usc_findings_miscounted."},
    {"misformed", findings_misformed, METH_VARARGS,
     "misformed(path, got, want, dtype) -> bool: see usc_findings_misformed."},
    {"same", findings_same, METH_VARARGS,
     "same(path, n, sizes, float_size, n_odd): see usc_findings_same."},
    {"excuse", findings_excuse, METH_VARARGS,
     "excuse(i, code, n): see usc_findings_excuse."},
    {"note", findings_note, METH_VARARGS, "note(i, text)."},
    {"rename", findings_rename, METH_VARARGS, "rename(i, path)."},
    {"calmed", findings_calmed, METH_VARARGS,
     "calmed(calm, verdict, set) -> (accuses, taken, note): see usc_findings_calmed."},
    {"unsaid", findings_unsaid, METH_NOARGS, "unsaid(): see usc_findings_unsaid."},
    {"join", findings_join, METH_VARARGS,
     "join(parts, n, sizes) -> int: see usc_findings_join."},
    {"place", findings_place, METH_VARARGS, "place(i, flat): see usc_findings_place."},
    {"row", (PyCFunction)(void (*)(void))py_findings_row, METH_VARARGS | METH_KEYWORDS,
     "row(op, verdict, *, reason, culprit, cause, notes, metrics) -> dict: see "
     "usc_findings_row."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot findings_slots[] = {
    {Py_tp_doc, "Findings(findings=()): those of one call; see ulpscope/finding.h."},
    {Py_tp_new, (void *)findings_new},
    {Py_tp_dealloc, (void *)findings_dealloc},
    {Py_tp_repr, (void *)findings_repr},
    {Py_tp_getset, findings_members},
    {Py_tp_methods, findings_methods},
    {Py_sq_length, (void *)findings_length},
    {Py_sq_item, (void *)findings_item},
    {Py_tp_iter, (void *)PySeqIter_New}, // as `for` would do anyway, and said to who asks whether it can
    {0, NULL},
};

PyType_Spec py_findings_spec = {
    .name = "ulpscope._core.Findings",
    .basicsize = sizeof(findings_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = findings_slots,
};
