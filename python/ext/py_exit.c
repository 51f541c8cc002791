// SPDX-License-Identifier: Apache-2.0
// Whether the program ended by a SystemExit that nobody caught. Python tells no handler
// at exit: such an exception is dropped by the interpreter itself, when no frame is left.
// So it is looked at where it is freed.
#include "core.h"

#include <assert.h>

static destructor free_exit; /* Python's own; NULL: not watched. Under the GIL */
static unsigned long main_thread;
static bool has_failed;

/* As Python makes an exit code of it: 0 of None and 0, another one of all else. */
static bool is_failure(PyObject *code)
{
    if (code == NULL || code == Py_None) return false;
    int overflow = 0;
    return !PyLong_Check(code) || PyLong_AsLongAndOverflow(code, &overflow) != 0;
}

static void look_and_free(PyObject *self)
{
    const PySystemExitObject *ending = (const PySystemExitObject *)self;
    if (PyThread_get_thread_ident() == main_thread && PyEval_GetFrame() == NULL)
        has_failed |= is_failure(ending->code);
    free_exit(self);
}

static PyObject *watch_exit(PyObject *module, PyObject *thread)
{
    (void)module;
    PyTypeObject *type = (PyTypeObject *)PyExc_SystemExit;
    const unsigned long ident = PyLong_AsUnsignedLong(thread);
    if (PyErr_Occurred() != NULL) return NULL;
    main_thread = ident;
    if (free_exit == NULL) {
        free_exit = type->tp_dealloc;
        type->tp_dealloc = look_and_free;
    }
    Py_RETURN_NONE;
}

static PyObject *exit_failed(PyObject *module, PyObject *Py_UNUSED(none))
{
    (void)module;
    return PyBool_FromLong(has_failed);
}

static PyMethodDef functions[] = {
    {"watch_exit", watch_exit, METH_O,
     "watch_exit(thread)\n--\n\nSees from now on how the program ends, whose main thread "
     "has that ident."},
    {"exit_failed", exit_failed, METH_NOARGS,
     "exit_failed()\n--\n\nWhether the program has ended by a SystemExit with another "
     "code than 0."},
    {NULL, NULL, 0, NULL},
};

int py_exit_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
