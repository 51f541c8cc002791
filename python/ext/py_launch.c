// SPDX-License-Identifier: Apache-2.0
// Binds ulpscope/launch.h: what other processes of a captured command have reported.
#include "core.h"

#include <ulpscope/launch.h>

static bool read_reports(PyObject *module, PyObject *folder, usc_launch_reports *out)
{
    usc_error err = {0};
    usc_status st;
    const char *path = PyBytes_AS_STRING(folder);
    Py_BEGIN_ALLOW_THREADS;
    st = usc_launch_reports_read(path, out, &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(folder);
    if (st != USC_OK) (void)core_raise(PyModule_GetState(module), st, &err);
    return st == USC_OK;
}

static PyObject *all_done(PyObject *module, PyObject *argument)
{
    usc_launch_reports reports;
    PyObject *folder;
    if (!PyUnicode_FSConverter(argument, &folder)) return NULL;
    if (!read_reports(module, folder, &reports)) return NULL;
    const bool done = usc_launch_all_done(&reports);
    usc_launch_reports_free(&reports);
    return PyBool_FromLong(done);
}

static PyObject *is_left(PyObject *module, PyObject *args)
{
    usc_launch_reports reports;
    PyObject *folder;
    const char *place;
    long long pid;
    if (!PyArg_ParseTuple(args, "O&sL", PyUnicode_FSConverter, &folder, &place, &pid))
        return NULL;
    if (!read_reports(module, folder, &reports)) return NULL;
    const bool left = usc_launch_is_left(&reports, place, pid);
    usc_launch_reports_free(&reports);
    return PyBool_FromLong(left);
}

static PyMethodDef functions[] = {
    {"launch_all_done", all_done, METH_O,
     "launch_all_done(folder)\n--\n\nWhether every rank has recorded its steps, short of "
     "the program's end, by the reports in a folder."},
    {"launch_is_left", is_left, METH_VARARGS,
     "launch_is_left(folder, place, pid)\n--\n\nWhether a process other than `pid` left "
     "a "
     "trace at `place` short of its steps."},
    {NULL, NULL, 0, NULL},
};

int py_launch_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
