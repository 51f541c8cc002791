// SPDX-License-Identifier: Apache-2.0
// The module ulpscope._core: its state and the table of the files that fill it.
#include "core.h"

#include <ulpscope/version.h>
#include <ulpscope/x/kernels.h>

#include <assert.h>
#include <stdlib.h>

/* The files that bind something: one a line, so that additions do not meet. */
#define FILE_LIST(X)                                                                     \
    X(api)                                                                               \
    X(births)                                                                            \
    X(capture)                                                                           \
    X(case)                                                                              \
    X(cause)                                                                             \
    X(draw)                                                                              \
    X(events)                                                                            \
    X(exit)                                                                              \
    X(finding)                                                                           \
    X(fuzz)                                                                              \
    X(generate)                                                                          \
    X(held)                                                                              \
    X(inject)                                                                            \
    X(interrupt)                                                                         \
    X(judge)                                                                             \
    X(measures)                                                                          \
    X(modes)                                                                             \
    X(kept)                                                                              \
    X(launch)                                                                            \
    X(pattern)                                                                           \
    X(reroute)                                                                           \
    X(result)                                                                            \
    X(rounding)                                                                          \
    X(run)                                                                               \
    X(standard)                                                                          \
    X(products)                                                                          \
    X(sums)                                                                              \
    X(trace)                                                                             \
    X(value)                                                                             \
    X(watch)

/* Adds what one file binds; 0, or -1 with an exception set. */
static int (*const add[])(PyObject *module) = {
    core_errors_add, /* first: the others raise what it makes */
#define ADD(name) py_##name##_add,
    FILE_LIST(ADD)
#undef ADD
};

int core_numbers_add(PyObject *module, const core_number *numbers, size_t n)
{
    assert(numbers != NULL || n == 0);
    for (size_t i = 0; i < n; i++) {
        PyObject *value = PyLong_FromLongLong(numbers[i].value);
        const int added =
            value == NULL ? -1 : PyModule_AddObjectRef(module, numbers[i].name, value);
        Py_XDECREF(value);
        if (added < 0) return -1;
    }
    return 0;
}

core_state *core_state_of(PyTypeObject *type)
{
    PyObject *module = PyType_GetModuleByDef(type, &core_module);
    return module != NULL ? PyModule_GetState(module) : NULL;
}

void core_lock(PyThread_type_lock lock)
{
    if (PyThread_acquire_lock(lock, NOWAIT_LOCK)) return;
    Py_BEGIN_ALLOW_THREADS;
    PyThread_acquire_lock(lock, WAIT_LOCK);
    Py_END_ALLOW_THREADS;
}

/* The library itself reads no environment. */
static int choose_kernels(void)
{
    usc_error err;
    if (usc_kernels_select(getenv("ULPSCOPE_ISA"), &err) == USC_OK) return 0;
    (void)PyErr_Format(PyExc_ImportError, "ULPSCOPE_ISA: %s", err.text);
    return -1;
}

static int module_exec(PyObject *module)
{
    if (choose_kernels() < 0) return -1;
    for (size_t i = 0; i < sizeof add / sizeof add[0]; i++)
        if (add[i](module) < 0) return -1;
    return PyModule_AddStringConstant(module, "version", USC_VERSION);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    core_state *state = PyModule_GetState(module);
    Py_VISIT(state->error);
    Py_VISIT(state->blob_type);
    Py_VISIT(state->finding_type);
    Py_VISIT(state->findings_type);
    Py_VISIT(state->case_type);
    Py_VISIT(state->value_type);
    for (int i = 0; i < CORE_N_STATUS; i++)
        Py_VISIT(state->errors[i]);
    return 0;
}

static int module_clear(PyObject *module)
{
    core_state *state = PyModule_GetState(module);
    Py_CLEAR(state->error);
    Py_CLEAR(state->blob_type);
    Py_CLEAR(state->finding_type);
    Py_CLEAR(state->findings_type);
    Py_CLEAR(state->case_type);
    Py_CLEAR(state->value_type);
    for (int i = 0; i < CORE_N_STATUS; i++)
        Py_CLEAR(state->errors[i]);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

PyModuleDef core_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "ulpscope._core",
    .m_doc = "The C library of ulpscope, bound; use the package ulpscope instead.",
    .m_size = sizeof(core_state),
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&core_module);
}
