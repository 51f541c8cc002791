// SPDX-License-Identifier: Apache-2.0
// Binds ulpscope/value.h: the arguments of a call as Python has them. What only torch has
// is made by whoever asks, or stands there as a Value.
#include "core.h"

#include <ulpscope/x/writing.h>

#include <assert.h>

/* One walk over values. */
typedef struct maker {
    PyTypeObject *type; /* of a Value */
    PyObject *make;     /* what is called for what only torch has; NULL: a Value */
} maker;

static PyStructSequence_Field fields[] = {
    {"kind", "as a trace marks it: \"tensor\", \"dtype\", \"other\""},
    {"text", "its name, \"\" of a tensor"},
    {"path", "of a tensor and what was not kept: where it stands"},
    {NULL, NULL},
};

static PyStructSequence_Desc value_description = {
    .name = "ulpscope._core.Value",
    .doc = "A value of a call's arguments that Python alone does not have.",
    .fields = fields,
    .n_in_sequence = 3,
};

/* ---- values ---- */

static PyObject *make_value(const maker *m, const usc_value *value);

static PyObject *made(const maker *m, usc_value_kind kind, const char *text,
                      const char *place)
{
    PyObject *parts[3] = {core_text(usc_value_mark(kind)), core_text(text),
                          core_text(place != NULL ? place : "")};
    PyObject *out = NULL;
    const bool whole = parts[0] != NULL && parts[1] != NULL && parts[2] != NULL;
    if (whole && m->make != NULL)
        out = PyObject_Vectorcall(m->make, parts, 3, NULL);
    else if (whole)
        out = PyStructSequence_New(m->type);
    for (Py_ssize_t i = 0; i < 3; i++)
        if (out != NULL && m->make == NULL)
            PyStructSequence_SetItem(out, i, parts[i]);
        else
            Py_XDECREF(parts[i]);
    return out;
}

static PyObject *make_list(const maker *m, const usc_value *list)
{
    PyObject *out = PyList_New((Py_ssize_t)list->n);
    for (int64_t i = 0; out != NULL && i < list->n; i++) {
        PyObject *item = make_value(m, &list->item[i]);
        if (item == NULL)
            Py_CLEAR(out);
        else
            PyList_SET_ITEM(out, (Py_ssize_t)i, item);
    }
    return out;
}

static PyObject *make_tuple(const maker *m, const usc_value *tuple)
{
    PyObject *list = make_list(m, tuple);
    PyObject *out = list != NULL ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return out;
}

/* A slice of numbers: tensors would not be looked for in one. */
static PyObject *make_slice(const maker *m, const usc_value *slice)
{
    for (int64_t i = 0; i < slice->n; i++)
        if (slice->item[i].place != NULL)
            return made(m, USC_VALUE_OTHER, "slice", slice->item[i].place);
    PyObject *parts = make_list(m, slice);
    PyObject *out =
        parts != NULL ? PySlice_New(PyList_GET_ITEM(parts, 0), PyList_GET_ITEM(parts, 1),
                                    PyList_GET_ITEM(parts, 2))
                      : NULL;
    Py_XDECREF(parts);
    return out;
}

static int put_member(const maker *m, PyObject *dict, const usc_argument *one)
{
    PyObject *item = make_value(m, &one->value);
    const int result = item != NULL ? PyDict_SetItemString(dict, one->name, item) : -1;
    Py_XDECREF(item);
    return result;
}

static PyObject *make_dict(const maker *m, const usc_value *map)
{
    PyObject *out = PyDict_New();
    for (int64_t i = 0; out != NULL && i < map->n; i++)
        if (put_member(m, out, &map->member[i]) < 0) Py_CLEAR(out);
    return out;
}

static PyObject *make_value(const maker *m, const usc_value *value)
{
    switch (value->kind) {
    case USC_VALUE_NONE:
        Py_RETURN_NONE;
    case USC_VALUE_BOOL:
        return PyBool_FromLong(value->truth);
    case USC_VALUE_INT:
        return PyLong_FromLongLong(value->integer);
    case USC_VALUE_FLOAT:
        return PyFloat_FromDouble(value->number[0]);
    case USC_VALUE_COMPLEX:
        return PyComplex_FromDoubles(value->number[0], value->number[1]);
    case USC_VALUE_TEXT:
        return core_text(value->text);
    case USC_VALUE_TENSOR:
        return made(m, value->kind, "", value->place);
    case USC_VALUE_LIST:
        return make_list(m, value);
    case USC_VALUE_TUPLE:
        return make_tuple(m, value);
    case USC_VALUE_SLICE:
        return make_slice(m, value);
    case USC_VALUE_ELLIPSIS:
        return Py_NewRef(Py_Ellipsis);
    case USC_VALUE_MAP:
        return make_dict(m, value);
    case USC_VALUE_DTYPE:
    case USC_VALUE_DEVICE:
    case USC_VALUE_LAYOUT:
    case USC_VALUE_MEMORY_FORMAT:
    case USC_VALUE_GENERATOR:
    case USC_VALUE_OTHER:
        break;
    }
    return made(m, value->kind, value->text, value->place);
}

/* ---- calls ---- */

static int put_argument(const maker *m, PyObject *args, PyObject *kwargs,
                        const usc_argument *one)
{
    if (one->name != NULL) return put_member(m, kwargs, one);
    PyObject *value = make_value(m, &one->value);
    const int result = value != NULL ? PyList_Append(args, value) : -1;
    Py_XDECREF(value);
    return result;
}

static PyObject *build(const maker *m, const usc_arguments *given)
{
    PyObject *args = PyList_New(0), *kwargs = PyDict_New(), *out = NULL;
    bool whole = args != NULL && kwargs != NULL;
    for (int64_t i = 0; whole && i < given->n; i++)
        whole = put_argument(m, args, kwargs, &given->argument[i]) == 0;
    if (whole) out = PyTuple_Pack(2, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return out;
}

static PyObject *arguments(PyObject *module, PyObject *args)
{
    const core_state *state = PyModule_GetState(module);
    const char *json;
    maker m = {.type = state->value_type};
    if (!PyArg_ParseTuple(args, "z|O:arguments", &json, &m.make)) return NULL;
    usc_error err = {0};
    usc_arguments given;
    const usc_status st = usc_arguments_read(json, &given, &err);
    if (st != USC_OK) return core_raise(state, st, &err);
    PyObject *out = build(&m, &given);
    usc_arguments_free(&given);
    return out;
}

static PyObject *placed_arguments(PyObject *module, PyObject *args)
{
    const core_state *state = PyModule_GetState(module);
    const char *json;
    usc_error err = {0};
    usc_arguments given;
    usc_writing text = {.places = true};
    if (!PyArg_ParseTuple(args, "z:placed_arguments", &json)) return NULL;
    const usc_status st = usc_arguments_read(json, &given, &err);
    if (st != USC_OK) return core_raise(state, st, &err);
    const char *placed = usc_writing_arguments(&text, &given);
    PyObject *out = placed != NULL ? core_text(placed) : PyErr_NoMemory();
    usc_arguments_free(&given);
    usc_writing_free(&text);
    return out;
}

static PyMethodDef functions[] = {
    {"arguments", arguments, METH_VARARGS,
     "arguments(json, make=Value)\n--\n\nThe list and the dict that a call was given, "
     "out "
     "of the JSON of a trace. What Python alone does not have is what make(kind, text, "
     "path) gives."},
    {"placed_arguments", placed_arguments, METH_VARARGS,
     "placed_arguments(json)\n--\n\nThe same JSON with tensors by their places, as a "
     "pack "
     "has it: {\"tensor\": \"args[0]\"}."},
    {NULL, NULL, 0, NULL},
};

int py_value_add(PyObject *module)
{
    assert(PyModule_Check(module));
    core_state *state = PyModule_GetState(module);
    state->value_type = PyStructSequence_NewType(&value_description);
    if (state->value_type == NULL) return -1;
    if (PyModule_AddObjectRef(module, "Value", (PyObject *)state->value_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
