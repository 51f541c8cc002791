// SPDX-License-Identifier: Apache-2.0
// Binds ulpscope/x/launch.h: what other processes of a captured command have reported;
// and what a capture needs that goes on until its run differs from another one.
#include "core.h"

#include <ulpscope/x/diff.h>
#include <ulpscope/x/launch.h>
#include <ulpscope/x/trace_take.h>

#include <assert.h>

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

static PyObject *diff_step(PyObject *module, PyObject *args)
{
    PyObject *path, *other;
    long long step;
    usc_step_difference found;
    usc_error err = {0};
    usc_status st;
    if (!PyArg_ParseTuple(args, "O&O&L", PyUnicode_FSConverter, &path,
                          PyUnicode_FSConverter, &other, &step))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    st = usc_diff_step(PyBytes_AS_STRING(path), PyBytes_AS_STRING(other), step, &found,
                       &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    Py_DECREF(other);
    if (st != USC_OK) return core_raise(PyModule_GetState(module), st, &err);
    if (!found.there) Py_RETURN_NONE;
    return Py_BuildValue(
        "LN", (long long)found.call,
        PyUnicode_DecodeUTF8(found.text, (Py_ssize_t)strlen(found.text), "replace"));
}

static PyObject *take_data(PyObject *module, PyObject *args)
{
    PyObject *folder, *from;
    long long step;
    usc_error err = {0};
    usc_status st;
    if (!PyArg_ParseTuple(args, "O&O&L", PyUnicode_FSConverter, &folder,
                          PyUnicode_FSConverter, &from, &step))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    st = usc_trace_take_data(PyBytes_AS_STRING(folder), PyBytes_AS_STRING(from), step,
                             &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(folder);
    Py_DECREF(from);
    if (st != USC_OK) return core_raise(PyModule_GetState(module), st, &err);
    Py_RETURN_NONE;
}

static PyObject *diff_alike(PyObject *module, PyObject *args)
{
    const char *verdict[2];
    double bits[2];
    (void)module;
    if (!PyArg_ParseTuple(args, "sdsd", &verdict[0], &bits[0], &verdict[1], &bits[1]))
        return NULL;
    return PyBool_FromLong(usc_diff_alike(verdict, bits));
}

static PyMethodDef functions[] = {
    {"launch_all_done", all_done, METH_O,
     "launch_all_done(folder)\n--\n\nWhether every rank has recorded its steps, short of "
     "the program's end, by the reports in a folder."},
    {"launch_is_left", is_left, METH_VARARGS,
     "launch_is_left(folder, place, pid)\n--\n\nWhether a process other than `pid` left "
     "a "
     "trace at `place` short of its steps."},
    {"diff_alike", diff_alike, METH_VARARGS,
     "diff_alike(verdict, bits, other, other_bits)\n--\n\nWhether both sides of a pair "
     "are "
     "accused of one thing; bits that are not known are NaN."},
    {"diff_step", diff_step, METH_VARARGS,
     "diff_step(trace, other, step)\n--\n\nWhether anything differs in that step of two "
     "traces, in a sentence; \"\": nothing, None: the other one has no such step."},
    {"take_data", take_data, METH_VARARGS,
     "take_data(folder, taken, step)\n--\n\nMoves what the trace in `taken` kept of "
     "tensors, "
     "of one step recorded beside it, into the trace in `folder`."},
    {NULL, NULL, 0, NULL},
};

int py_launch_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
