// SPDX-License-Identifier: Apache-2.0
// Values of Python as JSON of a trace, tensors among them by their paths. See
// py_api_args.h.
#include "py_api_args.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATH_SIZE = 200,
    MOST_DEPTH = 12,    /* of lists in lists */
    MOST_ITEMS = 4096,  /* of one list; a longer one is data, not arguments */
    MOST_TEXT = 1 << 20 /* bytes of a call's arguments */
};

/* One walk over values: writes JSON where `json` is set, and takes tensors. */
typedef struct walk {
    const py_api_types *types;
    py_api_take *take;
    usc_role role;
    PyObject *writes;
    usc_maybe maybe;
    bool json;
    int depth;
    char path[PATH_SIZE];
    size_t n_path;
} walk;

/* This thread's JSON; kept until the thread's next call, and for good after its last. */
static _Thread_local char *t_text;
static _Thread_local size_t t_room, t_used;
static _Thread_local bool t_failed;

static void put_bytes(const walk *w, const char *s, size_t n)
{
    if (!w->json || t_failed) return;
    if (t_used + n + 1 > t_room) {
        const size_t room = 2 * t_room + n + 256;
        char *more = room > 2 * MOST_TEXT ? NULL : realloc(t_text, room);
        if (more == NULL) {
            t_failed = true;
            return;
        }
        t_text = more;
        t_room = room;
    }
    memcpy(t_text + t_used, s, n);
    t_used += n;
    t_text[t_used] = '\0';
}

static void put(const walk *w, const char *s)
{
    put_bytes(w, s, strlen(s));
}

static void put_string(const walk *w, const char *s)
{
    put(w, "\"");
    for (; *s != '\0'; ++s) {
        char escaped[8] = {*s, '\0'};
        if (*s == '"' || *s == '\\')
            (void)snprintf(escaped, sizeof escaped, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            (void)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*s);
        put(w, escaped);
    }
    put(w, "\"");
}

static void put_mark(const walk *w, const char *mark, const char *text)
{
    put(w, "{\"");
    put(w, mark);
    put(w, "\": ");
    put_string(w, text);
    put(w, "}");
}

/* ---- single values ---- */

static void put_other(const walk *w, PyObject *value)
{
    put_mark(w, "other", Py_TYPE(value)->tp_name);
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

static void put_text(const walk *w, PyObject *value)
{
    const char *text = PyUnicode_AsUTF8(value);
    if (text != NULL && is_device(text)) {
        put_mark(w, "device", text);
        return;
    }
    if (text != NULL) {
        put_string(w, text);
        return;
    }
    PyErr_Clear(); /* half a pair of surrogates */
    put_other(w, value);
}

/* What str() says of one of torch's own objects, without "torch.". */
static void put_named(const walk *w, const char *mark, PyObject *value)
{
    PyObject *text = w->json ? PyObject_Str(value) : NULL;
    const char *name = text != NULL ? PyUnicode_AsUTF8(text) : NULL;
    if (name != NULL)
        put_mark(w, mark, strncmp(name, "torch.", 6) == 0 ? name + 6 : name);
    if (name == NULL && w->json) {
        PyErr_Clear();
        put_other(w, value);
    }
    Py_XDECREF(text);
}

static void put_generator(const walk *w, PyObject *value)
{
    PyObject *device = w->json ? PyObject_GetAttrString(value, "device") : NULL;
    if (device != NULL) put_named(w, "generator", device);
    if (device == NULL && w->json) {
        PyErr_Clear();
        put_other(w, value);
    }
    Py_XDECREF(device);
}

static void put_number_text(const walk *w, double v)
{
    char *text = PyOS_double_to_string(v, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    put(w, text != NULL ? text : "0.0");
    PyMem_Free(text);
}

static const char *strange(double v)
{
    return isfinite(v) ? NULL : isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
}

static void put_float(const walk *w, double v)
{
    if (strange(v) != NULL)
        put_mark(w, "float", strange(v));
    else
        put_number_text(w, v);
}

static void put_complex(const walk *w, PyObject *value)
{
    const double parts[2] = {PyComplex_RealAsDouble(value),
                             PyComplex_ImagAsDouble(value)};
    put(w, "{\"complex\": [");
    for (size_t i = 0; i < 2; i++) {
        if (i > 0) put(w, ", ");
        if (strange(parts[i]) != NULL)
            put_string(w, strange(parts[i]));
        else
            put_number_text(w, parts[i]);
    }
    put(w, "]}");
}

static void put_integer(const walk *w, PyObject *value)
{
    char text[32];
    int over = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &over);
    if (over != 0 || (number == -1 && PyErr_Occurred())) {
        PyErr_Clear();
        put_other(w, value);
        return;
    }
    (void)snprintf(text, sizeof text, "%lld", number);
    put(w, text);
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

static void put_items(walk *w, PyObject *list)
{
    put(w, "[");
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); i++) {
        char place[32];
        if (i > 0) put(w, ", ");
        (void)snprintf(place, sizeof place, "[%lld]", (long long)i);
        put_below(w, PySequence_Fast_GET_ITEM(list, i), place);
    }
    put(w, "]");
}

static void put_list(walk *w, PyObject *list, const char *mark)
{
    if (PySequence_Fast_GET_SIZE(list) > MOST_ITEMS) {
        put_other(w, list);
        return;
    }
    if (mark != NULL) put(w, mark);
    put_items(w, list);
    if (mark != NULL) put(w, "}");
}

static void put_slice(walk *w, PyObject *value)
{
    static const char *const places[] = {"[0]", "[1]", "[2]"};
    const PySliceObject *slice = (const PySliceObject *)value;
    PyObject *const parts[] = {slice->start, slice->stop, slice->step};
    put(w, "{\"slice\": [");
    for (size_t i = 0; i < 3; i++) {
        if (i > 0) put(w, ", ");
        put_below(w, parts[i], places[i]);
    }
    put(w, "]}");
}

static bool is_name(const char *s)
{
    for (; s != NULL && *s != '\0'; s++)
        if (strchr(".[]\"\\", *s) != NULL || (unsigned char)*s < 0x20) return false;
    return s != NULL;
}

/* Members of a dict as JSON members, each below its name. */
static void put_members(walk *w, PyObject *dict, const char *before)
{
    PyObject *key, *item;
    Py_ssize_t at = 0;
    for (bool first = true; PyDict_Next(dict, &at, &key, &item); first = false) {
        const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : NULL;
        char place[PATH_SIZE];
        if (name == NULL) PyErr_Clear();
        if (!is_name(name)) name = "?"; /* the caller has looked */
        if (!first) put(w, ", ");
        put_string(w, name);
        put(w, ": ");
        (void)snprintf(place, sizeof place, "%s%s", before, name);
        put_below(w, item, place);
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
    put(w, "{\"dict\": {");
    put_members(w, dict, ".");
    put(w, "}}");
}

/* What holds other values; false: `value` does not. */
static bool put_nest(walk *w, PyObject *value)
{
    if (w->depth >= MOST_DEPTH) return false;
    w->depth++;
    const bool nest = true;
    if (PyTuple_Check(value))
        put_list(w, value, "{\"tuple\": ");
    else if (PyList_Check(value))
        put_list(w, value, NULL);
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
        put_named(w, "dtype", value);
    else if (is_a(value, t->device))
        put_named(w, "device", value);
    else if (is_a(value, t->layout))
        put_named(w, "layout", value);
    else if (is_a(value, t->memory_format))
        put_named(w, "memory_format", value);
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
        put(w, "{\"tensor\": true}");
        w->take(value, w->role, w->path, maybe_written(w));
    } else if (value == Py_None) {
        put(w, "null");
    } else if (PyBool_Check(value)) {
        put(w, value == Py_True ? "true" : "false");
    } else if (PyLong_Check(value)) {
        put_integer(w, value);
    } else if (PyFloat_Check(value)) {
        put_float(w, PyFloat_AS_DOUBLE(value));
    } else if (PyUnicode_Check(value)) {
        put_text(w, value);
    } else if (PyComplex_Check(value)) {
        put_complex(w, value);
    } else if (value == Py_Ellipsis) {
        put(w, "{\"ellipsis\": true}");
    } else if (!put_nest(w, value) && !put_of_torch(w, value) &&
               !put_foreign_number(w, value)) {
        put_other(w, value);
    }
}

/* ---- calls ---- */

static void walk_arguments(walk *w, PyObject *args, PyObject *kwargs)
{
    put(w, "{\"args\": ");
    w->n_path = (size_t)snprintf(w->path, sizeof w->path, "args");
    put_items(w, args);
    put(w, ", \"kwargs\": {");
    w->n_path = (size_t)snprintf(w->path, sizeof w->path, "kwargs");
    if (kwargs != NULL) put_members(w, kwargs, ".");
    put(w, "}}");
}

const char *py_api_arguments(const py_api_types *types, py_api_take *take, PyObject *args,
                             PyObject *kwargs)
{
    walk w = {.types = types, .take = take, .role = USC_ROLE_IN, .json = true};
    t_used = 0;
    t_failed = false;
    walk_arguments(&w, args, kwargs);
    return t_failed ? NULL : t_text;
}

void py_api_results(const py_api_types *types, py_api_take *take, PyObject *args,
                    PyObject *kwargs, PyObject *result, PyObject *writes, usc_maybe maybe)
{
    walk w = {.types = types,
              .take = take,
              .role = USC_ROLE_MUTATED,
              .writes = writes,
              .maybe = maybe};
    walk_arguments(&w, args, kwargs);
    if (result == NULL) return;
    const bool several = PyTuple_Check(result);
    w.role = USC_ROLE_OUT;
    w.n_path = (size_t)snprintf(w.path, sizeof w.path, several ? "out" : "out[0]");
    if (several && PyTuple_GET_SIZE(result) <= MOST_ITEMS)
        put_items(&w, result);
    else if (!several)
        put_value(&w, result);
}
