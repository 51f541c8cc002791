// SPDX-License-Identifier: Apache-2.0
// What CPython 3.9 and 3.10 lack of the C API that this extension is written in. Each is
// the newer one's definition in the words of the older.
#ifndef ULPSCOPE_EXT_OLDER_H
#define ULPSCOPE_EXT_OLDER_H

#include <Python.h>

#if PY_VERSION_HEX < 0x030a0000 /* before 3.10 */

/* Types are mutable there; one without tp_new is not made by a program, see
 * older_no_instances(). */
#define Py_TPFLAGS_IMMUTABLETYPE 0
#define Py_TPFLAGS_DISALLOW_INSTANTIATION 0

static inline PyObject *Py_NewRef(PyObject *object)
{
    Py_INCREF(object);
    return object;
}

static inline PyObject *Py_XNewRef(PyObject *object)
{
    Py_XINCREF(object);
    return object;
}

/* The macros of newer headers take any object's type. */
#define Py_NewRef(object) Py_NewRef((PyObject *)(object))
#define Py_XNewRef(object) Py_XNewRef((PyObject *)(object))

static inline int PyModule_AddObjectRef(PyObject *module, const char *name,
                                        PyObject *value)
{
    if (value == NULL) return -1;
    Py_INCREF(value);
    const int result = PyModule_AddObject(module, name, value);
    if (result < 0) Py_DECREF(value); /* taken over only where it succeeds */
    return result;
}

static inline void older_no_instances(PyTypeObject *type)
{
    type->tp_new = NULL; /* inherited from object */
}

#else

static inline void older_no_instances(PyTypeObject *type)
{
    (void)type;
}

#endif

#if PY_VERSION_HEX < 0x030b0000 /* before 3.11 */

/* Of the class itself: the extension has no subclasses, nor lets a program make some. */
static inline PyObject *PyType_GetModuleByDef(PyTypeObject *type, PyModuleDef *def)
{
    (void)def;
    return PyType_GetModule(type);
}

#endif

#endif
