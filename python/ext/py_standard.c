// SPDX-License-Identifier: Apache-2.0
// Bindings of standard.h: `_core.Standard` and the list `_core.standards`.
#include "core.h"
#include "py_tensor.h"

#include <ulpscope/standard.h>

#include <assert.h>
#include <string.h>

typedef struct standard_object {
    PyObject_HEAD usc_standard standard;
} standard_object;

static PyObject *standard_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", NULL};
    const char *text;
    usc_standard standard;
    usc_error err = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s", names, &text)) return NULL;
    const usc_status status = usc_standard_parse(text, &standard, &err);
    if (status != USC_OK) return core_raise(core_state_of(type), status, &err);
    standard_object *self = (standard_object *)type->tp_alloc(type, 0);
    if (self != NULL) self->standard = standard;
    return (PyObject *)self;
}

static void standard_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Names of the operands in a mask, as a tuple. */
static PyObject *operand_names(unsigned needs)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < USC_N_OPERANDS; i++) {
        if ((needs >> i & 1) == 0) continue;
        PyObject *name = PyUnicode_FromString(usc_operand_text((usc_operand)i));
        if (name == NULL || PyList_Append(list, name) < 0) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    PyObject *tuple = list != NULL ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

static PyObject *standard_name(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(((standard_object *)self)->standard.name);
}

static PyObject *standard_needs(PyObject *self, void *unused)
{
    (void)unused;
    return operand_names(((standard_object *)self)->standard.info->needs);
}

static PyObject *metrics_dict(const usc_opinion *o)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < o->n_metrics; i++) {
        PyObject *value = PyFloat_FromDouble(o->metrics[i].value);
        if (value == NULL || PyDict_SetItemString(dict, o->metrics[i].name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *opinion_dict(const usc_opinion *o)
{
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:N}", "verdict", usc_verdict_text(o->verdict),
                         "status", o->status, "reason", o->reason, "stand_in",
                         o->stand_in, "metrics", metrics_dict(o));
}

static PyObject *standard_judge(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"device",    "reference", "native", "yardstick",
                            "benchmark", "op",        NULL};
    PyObject *given[1 + USC_N_OPERANDS] = {NULL};
    usc_tensor views[1 + USC_N_OPERANDS];
    usc_standard_operands in = {.device = &views[0]};
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O|$OOOOz", names, &given[0], &given[1 + USC_OPERAND_REFERENCE],
            &given[1 + USC_OPERAND_NATIVE], &given[1 + USC_OPERAND_YARDSTICK],
            &given[1 + USC_OPERAND_BENCHMARK], &in.op))
        return NULL;
    for (int i = 0; i < 1 + USC_N_OPERANDS; i++) {
        if (given[i] == NULL || given[i] == Py_None) continue;
        if (py_tensor_borrow(given[i], &views[i]) < 0) return NULL;
        if (i > 0) in.of[i - 1] = &views[i];
    }
    if (given[0] == Py_None) return PyErr_Format(PyExc_TypeError, "device is None");

    usc_opinion out;
    usc_error err = {0};
    usc_status status;
    const usc_standard *standard = &((standard_object *)self)->standard;
    Py_BEGIN_ALLOW_THREADS status = usc_standard_judge(standard, &in, &out, &err);
    Py_END_ALLOW_THREADS if (status != USC_OK) return core_raise(
        core_state_of(Py_TYPE(self)), status, &err);
    return opinion_dict(&out);
}

static PyObject *standard_miscounted(PyObject *self, PyObject *args)
{
    long long n_given, n_due;
    usc_opinion out;
    if (!PyArg_ParseTuple(args, "LL", &n_given, &n_due)) return NULL;
    usc_opinion_miscounted(&((standard_object *)self)->standard, n_given, n_due, &out);
    return opinion_dict(&out);
}

static PyObject *standard_without(PyObject *self, PyObject *why)
{
    (void)self;
    usc_opinion out;
    const char *name = PyUnicode_AsUTF8(why);
    int i = 0;
    if (name == NULL) return NULL;
    while (i < USC_N_NO_OPINIONS &&
           strcmp(usc_no_opinion_text((usc_no_opinion)i), name) != 0)
        i++;
    if (i == USC_N_NO_OPINIONS)
        return PyErr_Format(PyExc_ValueError, "no reason '%s'", name);
    usc_opinion_without((usc_no_opinion)i, &out);
    return opinion_dict(&out);
}

static PyObject *standard_metric_name(PyObject *self, PyObject *metric)
{
    char out[256];
    const char *name = PyUnicode_AsUTF8(metric);
    if (name == NULL) return NULL;
    usc_opinion_metric_name(&((standard_object *)self)->standard, name, out, sizeof out);
    return core_text(out);
}

/* The words and the verdict of an opinion; -1 with an exception set. */
static int read_opinion(PyObject *dict, usc_opinion *o)
{
    static const char *const keys[] = {"verdict", "status", "reason", "stand_in"};
    const char *texts[4];
    for (int i = 0; i < 4; i++) {
        PyObject *value = PyDict_Check(dict) ? PyDict_GetItemString(dict, keys[i]) : NULL;
        texts[i] = value != NULL ? PyUnicode_AsUTF8(value) : NULL;
        if (texts[i] != NULL) continue;
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "not an opinion");
        return -1;
    }
    o->verdict = usc_verdict_by_text(texts[0]);
    (void)snprintf(o->status, sizeof o->status, "%s", texts[1]);
    (void)snprintf(o->reason, sizeof o->reason, "%s", texts[2]);
    (void)snprintf(o->stand_in, sizeof o->stand_in, "%s", texts[3]);
    return 0;
}

static PyObject *standard_text(PyObject *self, PyObject *args)
{
    char out[1024];
    const char *path;
    PyObject *said;
    usc_opinion o = {0};
    if (!PyArg_ParseTuple(args, "Os", &said, &path) || read_opinion(said, &o) < 0)
        return NULL;
    usc_opinion_text(&((standard_object *)self)->standard, &o, path, out, sizeof out);
    return core_text(out);
}

static PyObject *standard_worst(PyObject *self, PyObject *said)
{
    (void)self;
    PyObject *list = PySequence_List(said);
    const Py_ssize_t n = list != NULL ? PyList_GET_SIZE(list) : 0;
    usc_opinion *all = PyMem_Calloc((size_t)n + 1, sizeof *all);
    if (all == NULL) PyErr_NoMemory();
    if (n == 0 && list != NULL) PyErr_SetString(PyExc_ValueError, "no opinions");
    for (Py_ssize_t i = 0; i < n && all != NULL; i++)
        if (read_opinion(PyList_GET_ITEM(list, i), &all[i]) < 0) break;
    PyObject *worst =
        PyErr_Occurred() ? NULL : PyLong_FromLong(usc_opinions_worst(all, (int)n));
    PyMem_Free(all);
    Py_XDECREF(list);
    return worst;
}

static PyGetSetDef standard_members[] = {
    {"name", standard_name, NULL, "As it was written.", NULL},
    {"needs", standard_needs, NULL, "Names of the operands that the rule reads.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef standard_methods[] = {
    {"judge", (PyCFunction)(void (*)(void))standard_judge, METH_VARARGS | METH_KEYWORDS,
     "judge(device, *, reference=None, native=None, yardstick=None, benchmark=None,\n"
     "op=None) -> dict of verdict, status, reason, stand_in, metrics."},
    {"metric_name", standard_metric_name, METH_O,
     "metric_name(metric) -> str: its name among the metrics of a call."},
    {"text", standard_text, METH_VARARGS,
     "text(opinion, path) -> str: a dict of `judge` as one clause; see "
     "usc_opinion_text."},
    {"miscounted", standard_miscounted, METH_VARARGS,
     "miscounted(n_given, n_due) -> dict as of `judge`: see usc_opinion_miscounted."},
    {"without", standard_without, METH_O | METH_STATIC,
     "without(why) -> dict as of `judge`: see usc_opinion_without."},
    {"worst", standard_worst, METH_O | METH_STATIC,
     "worst(opinions) -> int: which of dicts of `judge` is the worst."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot standard_slots[] = {
    {Py_tp_doc, "Standard(name): a rule by its name, \"allclose:1e-3,1e-3\"."},
    {Py_tp_new, (void *)standard_new},
    {Py_tp_dealloc, (void *)standard_dealloc},
    {Py_tp_getset, standard_members},
    {Py_tp_methods, standard_methods},
    {0, NULL},
};

static PyType_Spec standard_spec = {
    .name = "ulpscope._core.Standard",
    .basicsize = sizeof(standard_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = standard_slots,
};

/* `standards`: (name, parameters, summary, needs) of each, from the one list. */
static int add_list(PyObject *module)
{
    int n;
    const usc_standard_info *infos = usc_standard_list(&n);
    PyObject *all = PyTuple_New(n);
    for (int i = 0; all != NULL && i < n; i++) {
        PyObject *one = Py_BuildValue("(sssN)", infos[i].name, infos[i].parameters,
                                      infos[i].summary, operand_names(infos[i].needs));
        if (one == NULL)
            Py_CLEAR(all);
        else
            PyTuple_SET_ITEM(all, i, one);
    }
    const int result = all == NULL ? -1 : PyModule_AddObjectRef(module, "standards", all);
    Py_XDECREF(all);
    return result;
}

/* `operands`: the names of all. */
static int add_operands(PyObject *module)
{
    PyObject *names = operand_names((1u << USC_N_OPERANDS) - 1);
    const int result =
        names == NULL ? -1 : PyModule_AddObjectRef(module, "operands", names);
    Py_XDECREF(names);
    return result;
}

int py_standard_add(PyObject *module)
{
    assert(PyModule_Check(module));
    if (add_list(module) < 0 || add_operands(module) < 0) return -1;
    PyObject *type = PyType_FromModuleAndSpec(module, &standard_spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "Standard", type);
    Py_DECREF(type);
    return result;
}
