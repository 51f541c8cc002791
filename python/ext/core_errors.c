// SPDX-License-Identifier: Apache-2.0
// Python's exceptions, made from the one list of statuses: UlpscopeError and for each
// failure a subclass with the same name in Python's spelling, E_NOT_FOUND NotFoundError.
#include "core.h"

#include <assert.h>
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>

/* E_NOT_FOUND: NotFoundError */
static void class_name(const char *status, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "ulpscope._core.");
    int upper = 1;
    for (const char *p = status + 2; *p != '\0' && n + 8 < size; p++) {
        if (*p == '_') {
            upper = 1;
            continue;
        }
        out[n++] = (char)(upper ? *p : tolower((unsigned char)*p));
        upper = 0;
    }
    snprintf(out + n, size - n, "Error");
}

static int add_class(PyObject *module, core_state *state, const char *status, int slot,
                     const char *text)
{
    char name[96], doc[128];
    class_name(status, name, sizeof name);
    snprintf(doc, sizeof doc, "USC_%s: %s.", status, text);
    PyObject *kind = PyErr_NewExceptionWithDoc(name, doc, state->error, NULL);
    if (kind == NULL) return -1;
    state->errors[slot] = kind;
    return PyModule_AddObjectRef(module, name + sizeof "ulpscope._core." - 1, kind);
}

int core_errors_add(PyObject *module)
{
    assert(PyModule_Check(module));
    static const struct {
        const char *name;
        int slot;
        const char *text;
    } list[] = {
#define ROW(name, value, text) {#name, CORE_SLOT_##name, text},
        USC_STATUS_LIST(ROW)
#undef ROW
    };
    core_state *state = PyModule_GetState(module);
    state->error = PyErr_NewExceptionWithDoc(
        "ulpscope._core.UlpscopeError",
        "The library refused. status: its name, e.g. 'E_IO'; where: axis, element, byte "
        "or row, -1 where no position applies; advice: what to do about a trace.",
        PyExc_RuntimeError, NULL);
    if (state->error == NULL) return -1;
    if (PyModule_AddObjectRef(module, "UlpscopeError", state->error) < 0) return -1;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].slot != USC_OK &&
            add_class(module, state, list[i].name, list[i].slot, list[i].text) < 0)
            return -1;
    return 0;
}

PyObject *core_dtype_error(void)
{
    PyObject *module = PyImport_ImportModule("ulpscope._core");
    PyObject *kind = module == NULL ? NULL : PyObject_GetAttrString(module, "DtypeError");
    Py_XDECREF(module);
    return kind;
}

static int set_attribute(PyObject *object, const char *name, PyObject *value)
{
    if (value == NULL) return -1;
    const int result = PyObject_SetAttrString(object, name, value);
    Py_DECREF(value);
    return result;
}

PyObject *core_text(const char *bytes)
{
    if (bytes == NULL) Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "replace");
}

PyObject *core_raise(const core_state *state, usc_status status, const usc_error *err)
{
    assert(state != NULL);
    PyObject *kind = state->error;
    if ((unsigned)status < CORE_N_STATUS && state->errors[status] != NULL)
        kind = state->errors[status];
    const char *text = err->text[0] != '\0' ? err->text : usc_status_text(status);
    PyObject *message = core_text(text);
    if (message == NULL) return NULL;
    PyObject *error = PyObject_CallOneArg(kind, message);
    Py_DECREF(message);
    if (error == NULL) return NULL;
    if (set_attribute(error, "status", PyUnicode_FromString(usc_status_name(status))) ==
            0 &&
        set_attribute(error, "advice", PyUnicode_FromString(usc_status_advice(status))) ==
            0 &&
        set_attribute(error, "where", PyLong_FromLongLong(err->where)) == 0)
        PyErr_SetObject(kind, error);
    Py_DECREF(error);
    return NULL;
}

const void *core_glue(const char *path, const char *name)
{
    assert(path && name);
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const void *const table = library == NULL ? NULL : dlsym(library, name);
    if (table == NULL)
        PyErr_Format(PyExc_ImportError, "interception glue: %s", dlerror());
    return table;
}
