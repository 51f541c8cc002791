// SPDX-License-Identifier: Apache-2.0
// Values of Python as values of a trace, tensors among them by their paths. See
// py_api_args.h.
#include "py_api_args.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <ulpscope/x/writing.h>

enum {
    PATH_SIZE = 200,
    MOST_DEPTH = 12,    /* of lists in lists */
    MOST_ITEMS = 4096,  /* of one list; a longer one is data, not arguments */
    MOST_TEXT = 1 << 20 /* bytes of a call's arguments */
};

/* One walk over values: writes them where `to` is set, and takes tensors. */
typedef struct walk {
    const py_api_types *types;
    py_api_take *take;
    usc_role role;
    PyObject *writes;
    usc_maybe maybe;
    usc_writing *to;
    int depth;
    char path[PATH_SIZE];
    size_t n_path;
} walk;

/* This thread's JSON; kept until the thread's next call, and for good after its last. */
static _Thread_local usc_writing t_writing = {.most = MOST_TEXT};

static void put(const walk *w, usc_value value)
{
    if (w->to != NULL) usc_writing_value(w->to, &value);
}

static void put_named(const walk *w, usc_value_kind kind, const char *text)
{
    put(w, (usc_value){.kind = kind, .text = text});
}

/* ---- single values ---- */

static void put_other(const walk *w, PyObject *value)
{
    put_named(w, USC_VALUE_OTHER, Py_TYPE(value)->tp_name);
}

/* "cuda:1": a text that names a device is meant as one. */
static bool is_device(const char *text)
{
    static const char *const types[] = {"cpu", "cuda", "xpu", "mps", "meta", "npu",
                                        "sim", "musa", "mlu", "hpu", "xla"};
    const size_t n = strcspn(text, ":");
    if (text[n] != '\0' &&
        (text[n + 1] == '\0' || text[n + 1 + strspn(text + n + 1, "0123456789")] != '\0'))
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i]) == n && strncmp(types[i], text, n) == 0) return true;
    return false;
}

/* Half a pair of surrogates and a zero are in no text of JSON. */
static void put_text(const walk *w, PyObject *value)
{
    Py_ssize_t size = 0;
    const char *text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text == NULL) PyErr_Clear();
    if (text == NULL || strlen(text) != (size_t)size)
        put_other(w, value);
    else
        put_named(w, is_device(text) ? USC_VALUE_DEVICE : USC_VALUE_TEXT, text);
}

/* What str() says of one of torch's own objects, without "torch.". */
static void put_said(const walk *w, usc_value_kind kind, PyObject *value)
{
    PyObject *text = w->to != NULL ? PyObject_Str(value) : NULL;
    const char *name = text != NULL ? PyUnicode_AsUTF8(text) : NULL;
    if (name != NULL)
        put_named(w, kind, strncmp(name, "torch.", 6) == 0 ? name + 6 : name);
    if (name == NULL && w->to != NULL) {
        PyErr_Clear();
        put_other(w, value);
    }
    Py_XDECREF(text);
}

static void put_generator(const walk *w, PyObject *value)
{
    PyObject *device = w->to != NULL ? PyObject_GetAttrString(value, "device") : NULL;
    if (device != NULL) put_said(w, USC_VALUE_GENERATOR, device);
    if (device == NULL && w->to != NULL) {
        PyErr_Clear();
        put_other(w, value);
    }
    Py_XDECREF(device);
}

static void put_float(const walk *w, double number)
{
    put(w, (usc_value){.kind = USC_VALUE_FLOAT, .number = {number}});
}

static void put_complex(const walk *w, PyObject *value)
{
    put(w, (usc_value){
               .kind = USC_VALUE_COMPLEX,
               .number = {PyComplex_RealAsDouble(value), PyComplex_ImagAsDouble(value)}});
}

static void put_integer(const walk *w, PyObject *value)
{
    int over = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &over);
    if (over != 0 || (number == -1 && PyErr_Occurred())) {
        PyErr_Clear();
        put_other(w, value);
        return;
    }
    put(w, (usc_value){.kind = USC_VALUE_INT, .integer = number});
}

/* Numbers of numpy and the like; false: it is none. */
static bool put_foreign_number(const walk *w, PyObject *value)
{
    static const char numpy[] = "numpy.";
    const char *type = Py_TYPE(value)->tp_name;
    if (strncmp(type, numpy, sizeof numpy - 1) != 0 || strstr(type, "array") != NULL ||
        strstr(type, "complex") != NULL)
        return false;
    PyObject *number =
        strstr(type, "int") != NULL ? PyNumber_Index(value) : PyNumber_Float(value);
    if (number == NULL) {
        PyErr_Clear();
        return false;
    }
    if (PyLong_Check(number))
        put_integer(w, number);
    else
        put_float(w, PyFloat_AS_DOUBLE(number));
    Py_DECREF(number);
    return true;
}

/* ---- values of values ---- */

static void put_value(walk *w, PyObject *value);

/* The value at a place below the present one; what has too long a path is left out. */
static void put_below(walk *w, PyObject *value, const char *place)
{
    const size_t n = strlen(place), before = w->n_path;
    if (before + n >= sizeof w->path) {
        put_other(w, value);
        return;
    }
    memcpy(w->path + before, place, n + 1);
    w->n_path += n;
    put_value(w, value);
    w->n_path = before;
    w->path[before] = '\0';
}

static void put_items(walk *w, PyObject *const *item, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        char place[32];
        (void)snprintf(place, sizeof place, "[%lld]", (long long)i);
        put_below(w, item[i], place);
    }
}

/* A list or a tuple. */
static void put_list(walk *w, PyObject *list, usc_value_kind kind)
{
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(list);
    if (n > MOST_ITEMS) {
        put_other(w, list);
        return;
    }
    if (w->to != NULL) usc_writing_open(w->to, kind);
    put_items(w, PySequence_Fast_ITEMS(list), n);
    if (w->to != NULL) usc_writing_close(w->to, kind);
}

static void put_slice(walk *w, PyObject *value)
{
    const PySliceObject *slice = (const PySliceObject *)value;
    PyObject *const parts[] = {slice->start, slice->stop, slice->step};
    if (w->to != NULL) usc_writing_open(w->to, USC_VALUE_SLICE);
    put_items(w, parts, 3);
    if (w->to != NULL) usc_writing_close(w->to, USC_VALUE_SLICE);
}

static bool is_name(const char *s)
{
    for (; s != NULL && *s != '\0'; s++)
        if (strchr(".[]\"\\", *s) != NULL || (unsigned char)*s < 0x20) return false;
    return s != NULL;
}

/* The values of a dict, each below its name; what has none that a path can hold is not
 * kept. */
static void put_members(walk *w, PyObject *dict)
{
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &item)) {
        const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : NULL;
        char place[PATH_SIZE];
        if (name == NULL) PyErr_Clear();
        const bool good = is_name(name);
        if (good)
            (void)snprintf(place, sizeof place, ".%s", name);
        else
            (void)snprintf(place, sizeof place, ".?%lld", (long long)at);
        if (w->to != NULL) usc_writing_name(w->to, good ? name : place + 1);
        if (good)
            put_below(w, item, place);
        else
            put_other(w, item);
    }
}

static bool has_names(PyObject *dict)
{
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &item))
        if (!PyUnicode_Check(key) || !is_name(PyUnicode_AsUTF8(key))) {
            PyErr_Clear();
            return false;
        }
    return PyDict_GET_SIZE(dict) <= MOST_ITEMS;
}

static void put_dict(walk *w, PyObject *dict)
{
    if (!has_names(dict)) {
        put_other(w, dict);
        return;
    }
    if (w->to != NULL) usc_writing_open(w->to, USC_VALUE_MAP);
    put_members(w, dict);
    if (w->to != NULL) usc_writing_close(w->to, USC_VALUE_MAP);
}

/* What holds other values; false: `value` does not. */
static bool put_nest(walk *w, PyObject *value)
{
    if (w->depth >= MOST_DEPTH) return false;
    w->depth++;
    const bool nest = true;
    if (PyTuple_Check(value))
        put_list(w, value, USC_VALUE_TUPLE);
    else if (PyList_Check(value))
        put_list(w, value, USC_VALUE_LIST);
    else if (PyDict_CheckExact(value))
        put_dict(w, value);
    else if (PySlice_Check(value))
        put_slice(w, value);
    else {
        w->depth--;
        return false;
    }
    w->depth--;
    return nest;
}

static bool is_a(PyObject *value, PyObject *type)
{
    return PyObject_TypeCheck(value, (PyTypeObject *)type);
}

static bool put_of_torch(const walk *w, PyObject *value)
{
    const py_api_types *t = w->types;
    if (is_a(value, t->dtype))
        put_said(w, USC_VALUE_DTYPE, value);
    else if (is_a(value, t->device))
        put_said(w, USC_VALUE_DEVICE, value);
    else if (is_a(value, t->layout))
        put_said(w, USC_VALUE_LAYOUT, value);
    else if (is_a(value, t->memory_format))
        put_said(w, USC_VALUE_MEMORY_FORMAT, value);
    else if (is_a(value, t->generator))
        put_generator(w, value);
    else
        return false;
    return true;
}

/* Of the argument that the present path leads into. */
static usc_maybe maybe_written(const walk *w)
{
    if (w->role != USC_ROLE_MUTATED) return USC_MAYBE_NOT;
    if (w->writes == NULL) return w->maybe;
    const bool named = strncmp(w->path, "kwargs.", 7) == 0;
    const size_t n = named ? 7 + strcspn(w->path + 7, ".[") : strcspn(w->path, "]") + 1;
    PyObject *place = PyUnicode_FromStringAndSize(w->path, (Py_ssize_t)n);
    const int there = place != NULL ? PySet_Contains(w->writes, place) : -1;
    if (there < 0) PyErr_Clear();
    Py_XDECREF(place);
    return there > 0 ? USC_MAYBE_NOT : w->maybe;
}

static void put_value(walk *w, PyObject *value)
{
    if (is_a(value, w->types->tensor)) {
        put(w, (usc_value){.kind = USC_VALUE_TENSOR});
        w->take(value, w->role, w->path, maybe_written(w));
    } else if (value == Py_None) {
        put(w, (usc_value){.kind = USC_VALUE_NONE});
    } else if (PyBool_Check(value)) {
        put(w, (usc_value){.kind = USC_VALUE_BOOL, .truth = value == Py_True});
    } else if (PyLong_Check(value)) {
        put_integer(w, value);
    } else if (PyFloat_Check(value)) {
        put_float(w, PyFloat_AS_DOUBLE(value));
    } else if (PyUnicode_Check(value)) {
        put_text(w, value);
    } else if (PyComplex_Check(value)) {
        put_complex(w, value);
    } else if (value == Py_Ellipsis) {
        put(w, (usc_value){.kind = USC_VALUE_ELLIPSIS});
    } else if (!put_nest(w, value) && !put_of_torch(w, value) &&
               !put_foreign_number(w, value)) {
        put_other(w, value);
    }
}

/* ---- calls ---- */

static void begin_at(walk *w, const char *path)
{
    w->n_path = (size_t)snprintf(w->path, sizeof w->path, "%s", path);
}

static void walk_arguments(walk *w, PyObject *args, PyObject *kwargs)
{
    begin_at(w, "args");
    put_items(w, PySequence_Fast_ITEMS(args), PySequence_Fast_GET_SIZE(args));
    if (w->to != NULL) usc_writing_names(w->to);
    begin_at(w, "kwargs");
    if (kwargs != NULL) put_members(w, kwargs);
}

const char *py_api_arguments(const py_api_types *types, py_api_take *take, PyObject *args,
                             PyObject *kwargs)
{
    assert(types && take && args);
    walk w = {.types = types, .take = take, .role = USC_ROLE_IN, .to = &t_writing};
    usc_writing_begin(&t_writing);
    walk_arguments(&w, args, kwargs);
    return usc_writing_end(&t_writing);
}

void py_api_results(const py_api_types *types, py_api_take *take, PyObject *args,
                    PyObject *kwargs, PyObject *result, PyObject *writes, usc_maybe maybe)
{
    assert(types && take && args);
    walk w = {.types = types,
              .take = take,
              .role = USC_ROLE_MUTATED,
              .writes = writes,
              .maybe = maybe};
    walk_arguments(&w, args, kwargs);
    if (result == NULL) return;
    w.role = USC_ROLE_OUT;
    begin_at(&w, PyTuple_Check(result) ? "out" : "out[0]");
    if (!PyTuple_Check(result))
        put_value(&w, result);
    else if (PyTuple_GET_SIZE(result) <= MOST_ITEMS)
        put_items(&w, PySequence_Fast_ITEMS(result), PyTuple_GET_SIZE(result));
}
