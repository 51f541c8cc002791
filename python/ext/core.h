// SPDX-License-Identifier: Apache-2.0
// What the files of the extension share. Each py_X.c binds one public header and gives
// `int py_X_add(PyObject *module)`, named once in the table of core_module.c.
#ifndef ULPSCOPE_EXT_CORE_H
#define ULPSCOPE_EXT_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "older.h"

#include <ulpscope/status.h>

/* One slot per status, by its value. */
#define CORE_STATUS_SLOT(name, value, text) CORE_SLOT_##name = (value),
enum { USC_STATUS_LIST(CORE_STATUS_SLOT) CORE_N_STATUS };
#undef CORE_STATUS_SLOT

typedef struct core_state {
    PyObject *error;                 /* UlpscopeError */
    PyObject *errors[CORE_N_STATUS]; /* its subclasses: E_NOT_FOUND is NotFoundError */
    PyTypeObject *blob_type;         /* py_trace.c */
    PyTypeObject *finding_type, *findings_type; /* py_finding.c */
    PyTypeObject *case_type;                    /* py_case.c */
    PyTypeObject *value_type;                   /* py_value.c */
} core_state;

extern PyModuleDef core_module;

/** State of the module that a type of this extension was made in; NULL with an
 * exception set. */
core_state *core_state_of(PyTypeObject *type);

/** Raises the exception of `status` with err->text, `.status` ("E_IO") and `.where`;
 * always NULL. */
PyObject *core_raise(const core_state *state, usc_status status, const usc_error *err);

/** The class DtypeError, for what borrows tensors and holds no state: a new reference,
 * NULL with an exception set. */
PyObject *core_dtype_error(void);

/** Text of bytes from wherever: what is no UTF-8 is replaced; None for NULL. */
PyObject *core_text(const char *bytes);

/** A number of the C library, by its name in the module. */
typedef struct core_number {
    const char *name;
    int64_t value;
} core_number;

/** Adds numbers to the module; -1 with an exception set. */
int core_numbers_add(PyObject *module, const core_number *numbers, size_t n);

/** Waits for a lock with the GIL released where it must wait. */
void core_lock(PyThread_type_lock lock);

int core_errors_add(PyObject *module);
int py_api_add(PyObject *module);
int py_births_add(PyObject *module);
int py_capture_add(PyObject *module);
int py_case_add(PyObject *module);
int py_cause_add(PyObject *module);
int py_draw_add(PyObject *module);
int py_events_add(PyObject *module);
int py_exit_add(PyObject *module);
int py_finding_add(PyObject *module);
int py_fuzz_add(PyObject *module);
int py_generate_add(PyObject *module);
int py_held_add(PyObject *module);
int py_inject_add(PyObject *module);
int py_judge_add(PyObject *module);
int py_measures_add(PyObject *module);
/** A sink's write that appends to the bytes object at `ctx`; NULL there, with an
 * exception set, where memory ran out. */
usc_status py_append(void *ctx, const char *bytes, size_t n, usc_error *err);

/** What was appended as a text, taking over the reference; NULL where it is NULL. */
PyObject *py_appended(PyObject *bytes);

int py_kept_add(PyObject *module);
int py_launch_add(PyObject *module);
int py_modes_add(PyObject *module);
int py_pattern_add(PyObject *module);
int py_reroute_add(PyObject *module);
int py_result_add(PyObject *module);
int py_rounding_add(PyObject *module);
int py_run_add(PyObject *module);
int py_interrupt_add(PyObject *module);
int py_standard_add(PyObject *module);
int py_sums_add(PyObject *module);
int py_products_add(PyObject *module);
int py_trace_add(PyObject *module);
int py_value_add(PyObject *module);
int py_watch_add(PyObject *module);

/** The table `name` of the glue at `path`, which stays loaded: kernels live in it. NULL
 * with ImportError set. */
const void *core_glue(const char *path, const char *name);

/* A C function of any of the calling conventions, as a method table wants it. */
#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

#endif
