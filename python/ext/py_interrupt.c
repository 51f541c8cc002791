// SPDX-License-Identifier: Apache-2.0
// Signals of the program while the simulated device's runtime waits for it in C, where the
// interpreter would see to none.
#include "core.h"

#include <assert.h>
#include <stdbool.h>

static PyObject
    *raised[3]; /* what a handler raised: type, value, traceback. Under the GIL */

static int raise_again(void *unused)
{
    (void)unused;
    PyErr_Restore(raised[0], raised[1], raised[2]);
    raised[0] = raised[1] = raised[2] = NULL;
    return -1;
}

/* Runs the handlers of signals that have come (in the main thread; Python does nothing in
 * others); whether one raised. What it raised comes in the main thread when the wait has
 * ended. From any thread, with the GIL or without. */
static bool is_interrupted(void)
{
    if (!Py_IsInitialized()) return false;
    const PyGILState_STATE state = PyGILState_Ensure();
    bool now = raised[0] != NULL; /* not said yet: whoever waits ends */
    if (!now && PyErr_CheckSignals() != 0) {
        PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
        if (Py_AddPendingCall(raise_again, NULL) != 0)
            raise_again(NULL); /* so many calls are pending: as it is */
        now = true;
    }
    PyGILState_Release(state);
    return now;
}

static PyObject *interrupted_address(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    bool (*const asked)(void) = is_interrupted;
    return PyLong_FromVoidPtr(*(void *const *)&asked);
}

static PyMethodDef functions[] = {
    {"interrupted_address", interrupted_address, METH_NOARGS,
     "interrupted_address()\n--\n\nThe address of a C function without arguments: "
     "whether a "
     "signal's handler raises, which ends a wait of usc_sim_on_wait()."},
    {NULL, NULL, 0, NULL},
};

int py_interrupt_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
