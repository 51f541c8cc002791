// SPDX-License-Identifier: Apache-2.0
// What is said of a call: `_core.sentence`, `settle`, `no_worse`, `position`, and the row
// of
// `_core.Findings`. Neighbour: py_finding.c.
#include "py_finding.h"
#include "py_judge.h"

#include <ulpscope/x/unjudged.h>

#include <assert.h>
#include <string.h>

enum { SENTENCE = 2048, MOST_ANSWERS = 256 };

/* The entry behind an argument, NULL for None; -1 with an exception set for all else. */
static int read_entry(const core_state *state, PyObject *given, const usc_finding **out)
{
    *out = NULL;
    if (given == Py_None) return 0;
    if (state == NULL || Py_TYPE(given) != state->finding_type) {
        if (state != NULL) PyErr_SetString(PyExc_TypeError, "not a Finding");
        return -1;
    }
    *out = ((finding_object *)given)->f;
    return 0;
}

static PyObject *py_sentence(PyObject *module, PyObject *args)
{
    char out[SENTENCE];
    const char *verdict;
    PyObject *worst;
    usc_said said = {0};
    if (!PyArg_ParseTuple(args, "sssssO|s", &said.op, &verdict, &said.reason,
                          &said.culprit, &said.cause, &worst, &said.left_out) ||
        read_entry(PyModule_GetState(module), worst, &said.worst) < 0 ||
        (said.verdict = py_verdict(verdict)) == USC_N_VERDICTS)
        return NULL;
    usc_said_sentence(&said, out, sizeof out);
    return PyUnicode_DecodeUTF8(out, (Py_ssize_t)strlen(out), "ignore");
}

static PyObject *py_bits(PyObject *module, PyObject *args)
{
    const char *text;
    PyObject *given;
    const usc_finding *f = NULL;
    usc_verdict verdict;
    double yardstick;
    if (!PyArg_ParseTuple(args, "sO", &text, &given) ||
        read_entry(PyModule_GetState(module), given, &f) < 0 ||
        (verdict = py_verdict(text)) == USC_N_VERDICTS)
        return NULL;
    const double bits = usc_said_bits(verdict, f, &yardstick);
    return Py_BuildValue("(dd)", bits, yardstick);
}

static usc_status add_bytes(void *ctx, const char *bytes, size_t n, usc_error *err)
{
    PyObject *piece = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)n, "replace");
    PyObject **text = ctx;
    if (piece != NULL) PyUnicode_AppendAndDel(text, piece);
    if (piece != NULL && *text != NULL) return USC_OK;
    PyErr_Clear();
    return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
}

static PyObject *py_unjudged_told(PyObject *module, PyObject *given)
{
    (void)module;
    const char *reason = PyUnicode_AsUTF8(given);
    return reason != NULL ? PyBool_FromLong(usc_unjudged_is_told(reason)) : NULL;
}

static PyObject *py_unjudged(PyObject *module, PyObject *given)
{
    usc_error err;
    PyObject *list = PySequence_Fast(given, "items (op, reason, n) are wanted"), *text;
    if (list == NULL) return NULL;
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
    usc_unjudged *items = PyMem_Calloc((size_t)n + 1, sizeof *items);
    bool good = items != NULL;
    for (Py_ssize_t i = 0; good && i < n; i++) {
        long long count;
        good = PyArg_ParseTuple(PySequence_Fast_GET_ITEM(list, i), "ssL", &items[i].op,
                                &items[i].reason, &count) != 0;
        items[i].n = good ? count : 0;
    }
    text = good ? PyUnicode_FromString("") : NULL;
    const usc_sink sink = {add_bytes, &text};
    const usc_status st =
        text != NULL ? usc_unjudged_put(items, (size_t)n, &sink, &err) : USC_OK;
    if (st != USC_OK) {
        Py_CLEAR(text);
        (void)core_raise(PyModule_GetState(module), st, &err);
    }
    if (items == NULL) PyErr_NoMemory();
    PyMem_Free(items);
    Py_DECREF(list);
    return text;
}

static PyObject *py_no_worse(PyObject *module, PyObject *args)
{
    PyObject *device, *own;
    const usc_finding *a, *b;
    const core_state *state = PyModule_GetState(module);
    if (!PyArg_ParseTuple(args, "OO", &device, &own) ||
        read_entry(state, device, &a) < 0 || read_entry(state, own, &b) < 0)
        return NULL;
    return PyBool_FromLong(a != NULL && b != NULL && usc_finding_no_worse(a, b));
}

/* (kind, verdict, worst, reason) of one answer. */
static int read_answer(const core_state *state, PyObject *item, usc_said_of *out)
{
    int kind;
    const char *verdict;
    PyObject *worst;
    if (!PyTuple_Check(item) ||
        !PyArg_ParseTuple(item, "isOs", &kind, &verdict, &worst, &out->reason)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "an answer is a tuple");
        return -1;
    }
    out->kind = (usc_run_kind)kind;
    out->verdict = py_verdict(verdict);
    return out->verdict == USC_N_VERDICTS ? -1 : read_entry(state, worst, &out->worst);
}

static PyObject *py_settle(PyObject *module, PyObject *list)
{
    usc_said_of said[MOST_ANSWERS];
    usc_settled out;
    const Py_ssize_t n = PyList_Check(list) ? PyList_GET_SIZE(list) : 0;
    if (n < 2 || n > MOST_ANSWERS)
        return PyErr_Format(PyExc_ValueError, "a list of 2 to %d answers", MOST_ANSWERS);
    for (Py_ssize_t i = 0; i < n; i++)
        if (read_answer(PyModule_GetState(module), PyList_GET_ITEM(list, i), &said[i]) <
            0)
            return NULL;
    usc_settle_answers(said, (int)n, &out);
    return Py_BuildValue("(isss)", out.i, usc_verdict_text(out.verdict), out.reason,
                         out.note);
}

static PyMethodDef functions[] = {
    {"sentence", py_sentence, METH_VARARGS,
     "sentence(op, verdict, reason, culprit, cause, worst, left_out=\"\") -> str: see "
     "usc_said_sentence; "
     "worst: a Finding or None."},
    {"bits", py_bits, METH_VARARGS,
     "bits(verdict, finding) -> (bits, those of float32): see usc_said_bits; finding: a "
     "Finding or None."},
    {"no_worse", py_no_worse, METH_VARARGS,
     "no_worse(device, own) -> bool: see usc_finding_no_worse."},
    {"settle", py_settle, METH_O,
     "settle([(kind, verdict, worst, reason)]) -> (i, verdict, reason, note): see "
     "usc_settle_answers; kind: usc_run_kind."},
    {"unjudged_told", py_unjudged_told, METH_O,
     "unjudged_told(reason) -> bool: see usc_unjudged_is_told."},
    {"unjudged", py_unjudged, METH_O,
     "unjudged([(op, reason, n)]) -> str: see usc_unjudged_put; \"\" for nothing."},
    {NULL, NULL, 0, NULL},
};

/* ---- rows ---- */

static PyObject *metrics_list(const usc_result_row *row)
{
    PyObject *list = PyList_New(row->n_metrics);
    for (int i = 0; list != NULL && i < row->n_metrics; i++) {
        const usc_metric *m = &row->metrics[i];
        PyObject *one =
            Py_BuildValue("(isdN)", m->output, m->name, m->value, core_text(m->text));
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, one);
    }
    return list;
}

static PyObject *examples_list(const usc_result_row *row)
{
    PyObject *list = PyList_New(row->n_examples);
    for (int i = 0; list != NULL && i < row->n_examples; i++) {
        const usc_result_example *e = &row->examples[i];
        PyObject *one = Py_BuildValue("(iisdddd)", e->output, e->rank, e->index,
                                      e->device, e->reference, e->yardstick, e->score);
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, one);
    }
    return list;
}

static PyObject *row_dict(const usc_result_row *row)
{
    return Py_BuildValue("{s:s,s:d,s:d,s:O,s:N,s:N,s:N,s:L,s:N,s:N}", "verdict",
                         row->verdict, "bits", row->bits, "yardstick_bits",
                         row->yardstick_bits, "bound", row->bound ? Py_True : Py_False,
                         "output", core_text(row->output), "sentence",
                         core_text(row->sentence), "notes", core_text(row->notes),
                         "n_elements", (long long)row->n_elements, "metrics",
                         metrics_list(row), "examples", examples_list(row));
}

PyObject *py_findings_row(PyObject *self, PyObject *args, PyObject *kwargs)
{
    assert(self && args);
    static char *names[] = {"op", "verdict", "reason", "culprit", "cause", "notes", NULL};
    const char *verdict;
    usc_said said = {0};
    usc_result_row row = {0};
    usc_error err = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ss|$zzzz", names, &said.op, &verdict,
                                     &said.reason, &said.culprit, &said.cause,
                                     &row.notes) ||
        (said.verdict = py_verdict(verdict)) == USC_N_VERDICTS)
        return NULL;
    const usc_status st =
        usc_findings_row(((findings_object *)self)->findings, &said, &row, &err);
    if (st != USC_OK) return core_raise(core_state_of(Py_TYPE(self)), st, &err);
    return row_dict(&row);
}

int py_finding_said_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
