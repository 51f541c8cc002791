// SPDX-License-Identifier: Apache-2.0
// The float modes of the calling thread as one number: what a device's code leaves changed
// is seen and put back (executors/left_behind.py). Neighbour: src/base/float_env.c, where
// our own formulas take the modes that they assume.
#include "core.h"

#include <assert.h>

#if defined(__SSE2__)
#include <xmmintrin.h>

enum { FLAGS = 0x3f }; /* of what happened: no modes */

static unsigned long long modes(void)
{
    return _mm_getcsr() & ~(unsigned)FLAGS;
}

static void set_modes(unsigned long long wanted)
{
    _mm_setcsr((unsigned)wanted);
}
#elif defined(__aarch64__)
static unsigned long long modes(void)
{
    unsigned long long now;
    __asm__ volatile("mrs %0, fpcr" : "=r"(now));
    return now;
}

static void set_modes(unsigned long long wanted)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(wanted));
}
#else
#include <fenv.h>

static unsigned long long modes(void)
{
    return (unsigned long long)fegetround();
}

static void set_modes(unsigned long long wanted)
{
    (void)fesetround((int)wanted);
}
#endif

static PyObject *float_modes(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromUnsignedLongLong(modes());
}

static PyObject *set_float_modes(PyObject *module, PyObject *wanted)
{
    (void)module;
    const unsigned long long given = PyLong_AsUnsignedLongLong(wanted);
    if (PyErr_Occurred()) return NULL;
    set_modes(given);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"float_modes", float_modes, METH_NOARGS,
     "float_modes()\n--\n\nThe calling thread's modes of rounding and of subnormals, as "
     "a "
     "number of the processor's own."},
    {"set_float_modes", set_float_modes, METH_O,
     "set_float_modes(modes)\n--\n\nSets what float_modes() gave."},
    {NULL, NULL, 0, NULL},
};

int py_modes_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
