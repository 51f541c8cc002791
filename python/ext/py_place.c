// SPDX-License-Identifier: Apache-2.0
// The calling thread's Python stack as a 64-bit key (code objects and positions), its
// frames as JSON only for a new key; its innermost nn.Module, kept per thread.
#define Py_BUILD_CORE_MODULE 1 /* for pycore_frame.h, see first_frame() */
#include "py_place.h"
#include "py_api.h"

#if PY_VERSION_HEX < 0x030b0000
#include <assert.h>
#include <frameobject.h>
#elif PY_VERSION_HEX < 0x030d0000
#include <internal/pycore_frame.h>
#endif
#include <stdio.h>
#include <string.h>

enum { MAX_MODULES = 256, MAX_FRAMES = 200, MAX_RULES = 16, MAX_JSON = 16384 };

/* ---- modules and optimizer ---- */

/* A module that this thread is inside of, as one session numbers it. */
typedef struct entered {
    const void *owner; /* the session's object */
    int64_t id;
    bool late; /* entered inside a backward pass */
} entered;

static _Thread_local entered modules[MAX_MODULES];
static _Thread_local int n_modules; /* may exceed MAX_MODULES; those are not told apart */
static _Thread_local int n_optimizers;

static bool (*in_backward)(void); /* the glue's; under the GIL, as all statics below */
static PyObject *in_graph;        /* callable: device type -> bool; NULL: none has any */

void py_place_backward(bool (*backward)(void))
{
    in_backward = backward;
}

/* Where the innermost of an owner stands; -1: nowhere. */
static int innermost(const void *owner)
{
    int i = n_modules <= MAX_MODULES ? n_modules - 1 : MAX_MODULES - 1;
    while (i >= 0 && modules[i].owner != owner)
        i--;
    return i;
}

static int64_t current_module(const usc_capture *c, bool backward)
{
    const int at = innermost(c);
    return at < 0 || (backward && !modules[at].late) ? 0 : modules[at].id;
}

static bool in_optimizer(void)
{
    return n_optimizers > 0 && n_modules == 0; /* a closure runs the model in step() */
}

void py_place_enter(const usc_capture *owner, int64_t id)
{
    assert(owner != NULL);
    if (n_modules < MAX_MODULES)
        modules[n_modules] = (entered){owner, id, in_backward != NULL && in_backward()};
    ++n_modules;
}

/* Sessions begin and end one inside the other in any order, so it need not be the last.
 * None at all: hooks may have come while a module was running. */
void py_place_leave(const usc_capture *owner)
{
    assert(owner != NULL);
    const int at = innermost(owner);
    if (n_modules > MAX_MODULES) {
        --n_modules;
        return;
    }
    if (at < 0) return;
    memmove(&modules[at], &modules[at + 1],
            (size_t)(n_modules - at - 1) * sizeof modules[0]);
    --n_modules;
}

int py_place_depth(const usc_capture *owner)
{
    assert(owner != NULL);
    int n = n_modules > MAX_MODULES ? n_modules - MAX_MODULES : 0;
    for (int i = 0; i < n_modules && i < MAX_MODULES; i++)
        n += modules[i].owner == owner;
    return n;
}

void py_place_forget(const usc_capture *owner)
{
    assert(owner != NULL);
    int n = 0;
    for (int i = 0; i < n_modules && i < MAX_MODULES; i++)
        if (modules[i].owner != owner) modules[n++] = modules[i];
    n_modules = n;
    if (n == 0) n_optimizers = 0;
}

static PyObject *enter_optimizer(PyObject *self, PyObject *arg)
{
    (void)self;
    (void)arg;
    ++n_optimizers;
    Py_RETURN_NONE;
}

static PyObject *leave_optimizer(PyObject *self, PyObject *arg)
{
    (void)self;
    (void)arg;
    if (n_optimizers > 0) --n_optimizers;
    Py_RETURN_NONE;
}

static PyObject *ask_graph(PyObject *self, PyObject *arg)
{
    (void)self;
    Py_XSETREF(in_graph, arg == Py_None ? NULL : Py_NewRef(arg));
    Py_RETURN_NONE;
}

/* Whether the stream of a device type is recording a graph. A program that raises in the
 * answer is not told of it. */
static bool is_in_graph(const char *type)
{
    if (!Py_IsInitialized()) return false;
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *kind, *raised, *trace;
    PyErr_Fetch(&kind, &raised, &trace);
    PyObject *ask = Py_XNewRef(in_graph);
    PyObject *answer = ask == NULL ? NULL : PyObject_CallFunction(ask, "s", type);
    const bool yes = answer != NULL && PyObject_IsTrue(answer) > 0;
    Py_XDECREF(answer);
    Py_XDECREF(ask);
    PyErr_Restore(kind, raised, trace);
    PyGILState_Release(gil);
    return yes;
}

PyMethodDef py_place_methods[] = {
    {"ask_graph", ask_graph, METH_O, "ask_graph(f): f(type) -> a graph is recorded."},
    {"enter_optimizer", enter_optimizer, METH_NOARGS, "enter_optimizer(): step() began."},
    {"leave_optimizer", leave_optimizer, METH_NOARGS, "leave_optimizer(): step() ended."},
    {NULL, NULL, 0, NULL},
};

/* ---- stacks ---- */

typedef struct rule {
    char prefix[512];
    size_t length;
    bool shown;
} rule;

static rule rules[MAX_RULES]; /* written under the GIL, as all below */
static int n_rules;
static PyObject *codes; /* list: code objects whose addresses are part of keys */

int py_place_reset(PyObject *list, bool keeps)
{
    assert(list != NULL);
    n_rules = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list) && n_rules < MAX_RULES; ++i) {
        const char *prefix;
        int shown;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "sp", &prefix, &shown)) return -1;
        rule *r = &rules[n_rules++];
        snprintf(r->prefix, sizeof r->prefix, "%s", prefix);
        r->length = strlen(r->prefix);
        r->shown = shown != 0;
    }
    if (codes == NULL || !keeps) Py_XSETREF(codes, PyList_New(0));
    return codes == NULL ? -1 : 0;
}

static bool is_shown(const char *file)
{
    if (strncmp(file, "<frozen", 7) == 0) return false;
    size_t longest = 0;
    bool shown = true;
    for (int i = 0; i < n_rules; ++i) {
        if (rules[i].length <= longest) continue;
        if (strncmp(file, rules[i].prefix, rules[i].length) != 0) continue;
        longest = rules[i].length;
        shown = rules[i].shown;
    }
    return shown;
}

static uint64_t mix(uint64_t key, uint64_t value)
{
    key = (key ^ value) * 0x9fb21c651e98df25u;
    return key ^ (key >> 32);
}

/* A frame as this file needs it. CPython makes frame objects on demand, each an object
 * for its garbage collector: at twenty a call that cost more than all other work here.
 * Where the layout of the interpreter's own frames is known they are read in place. Until
 * 3.10 each frame has its object already, kept by the one above or by what runs. */
#if PY_VERSION_HEX < 0x030b0000
typedef PyFrameObject *frame_ref;

static frame_ref first_frame(void)
{
    return PyEval_GetFrame();
}

static frame_ref next_frame(frame_ref frame)
{
    return frame->f_back;
}

static PyCodeObject *code_of(frame_ref frame)
{
    return frame->f_code;
}

static int position_of(frame_ref frame)
{
    const int unit = PY_VERSION_HEX < 0x030a0000 ? 1 : 2; /* 3.10 counts instructions */
    return frame->f_lasti * unit;
}

static void release_frame(frame_ref frame)
{
    (void)frame;
}
#elif PY_VERSION_HEX < 0x030d0000
typedef _PyInterpreterFrame *frame_ref;

static frame_ref first_frame(void)
{
    return PyThreadState_Get()->cframe->current_frame;
}

static frame_ref next_frame(frame_ref frame)
{
    return frame->previous;
}

/* Borrowed; NULL for a frame that is no Python code (a shim of the interpreter). */
static PyCodeObject *code_of(frame_ref frame)
{
    PyObject *code = (PyObject *)frame->f_code;
    return code != NULL && PyCode_Check(code) ? (PyCodeObject *)code : NULL;
}

static int position_of(frame_ref frame)
{
    return (int)((const char *)frame->prev_instr -
                 (const char *)_PyCode_CODE(frame->f_code));
}

static void release_frame(frame_ref frame)
{
    (void)frame;
}
#else
typedef PyFrameObject *frame_ref;

static frame_ref first_frame(void)
{
    return PyThreadState_GetFrame(PyThreadState_Get());
}

static frame_ref next_frame(frame_ref frame)
{
    return PyFrame_GetBack(frame);
}

static PyCodeObject *code_of(frame_ref frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    Py_DECREF(code); /* the frame keeps it */
    return code;
}

static int position_of(frame_ref frame)
{
    return PyFrame_GetLasti(frame);
}

static void release_frame(frame_ref frame)
{
    Py_DECREF(frame);
}
#endif

/* Innermost first; each is to be released. */
static int walk(frame_ref *frames, uint64_t *key)
{
    int n = 0;
    *key = 0x9e3779b97f4a7c15u;
    frame_ref frame = first_frame();
    while (frame != NULL && n < MAX_FRAMES) {
        const frame_ref below = next_frame(frame);
        const PyCodeObject *code = code_of(frame);
        if (code != NULL) {
            *key = mix(*key, (uint64_t)(uintptr_t)code);
            *key = mix(*key, (uint64_t)position_of(frame));
            frames[n++] = frame;
        } else {
            release_frame(frame);
        }
        frame = below;
    }
    if (frame != NULL) release_frame(frame);
    if (*key == 0) *key = 1;
    return n;
}

typedef struct text {
    char at[MAX_JSON];
    size_t n;
    bool full;
} text;

static void put(text *t, const char *s, size_t n)
{
    if (t->full || t->n + n + 8 > sizeof t->at) { /* room for the closing brackets */
        t->full = true;
        return;
    }
    memcpy(t->at + t->n, s, n);
    t->n += n;
}

static void put_string(text *t, const char *s)
{
    put(t, "\"", 1);
    for (; *s != '\0'; ++s) {
        if (*s == '"' || *s == '\\') put(t, "\\", 1);
        const char *const shown = (unsigned char)*s < 0x20 ? " " : s;
        put(t, shown, 1);
    }
    put(t, "\"", 1);
}

/* Before 3.11 a code object does not know the class that it stands in. */
static PyObject *qualified_name(const PyCodeObject *code)
{
#if PY_VERSION_HEX < 0x030b0000
    return code->co_name;
#else
    return code->co_qualname;
#endif
}

static void put_frame(text *t, frame_ref frame, bool always)
{
    PyCodeObject *code = code_of(frame);
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    const char *name = PyUnicode_AsUTF8(qualified_name(code));
    const size_t before = t->n;
    if (file != NULL && name != NULL && (always || is_shown(file))) {
        char line[24];
        snprintf(line, sizeof line, ", %d, ", PyCode_Addr2Line(code, position_of(frame)));
        put(t, t->n > 1 ? ", [" : "[", t->n > 1 ? 3 : 1);
        put_string(t, file);
        put(t, line, strlen(line));
        put_string(t, name);
        put(t, "]", 1);
    }
    if (t->full) t->n = before; /* a frame stands whole or not at all */
}

/* A new key: keeps the code objects, so that no other one gets their addresses. */
static int64_t add_stack(usc_capture *c, uint64_t key, const frame_ref *frames, int n)
{
    text t = {.n = 0};
    put(&t, "[", 1);
    for (int i = 0; i < n; ++i) {
        PyObject *code = (PyObject *)code_of(frames[i]);
        if (codes != NULL && PyList_Append(codes, code) < 0) PyErr_Clear();
        put_frame(&t, frames[i], false);
    }
    if (t.n == 1 && n > 0) put_frame(&t, frames[0], true);
    memcpy(t.at + t.n, "]", 2);
    if (PyErr_Occurred()) PyErr_Clear();
    return usc_capture_stack_add(c, key, t.at);
}

static int64_t current_stack(usc_capture *c)
{
    /* A thread that Python does not know (autograd's device threads) has no stack. */
    if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == NULL) return 0;
    const PyGILState_STATE gil = PyGILState_Ensure();
    frame_ref frames[MAX_FRAMES];
    uint64_t key;
    const int n = walk(frames, &key);
    int64_t id = n == 0 ? 0 : usc_capture_stack(c, key);
    if (id == 0 && n > 0 && !PyErr_Occurred()) id = add_stack(c, key, frames, n);
    for (int i = 0; i < n; ++i)
        release_frame(frames[i]);
    PyGILState_Release(gil);
    return id;
}

usc_intercept_place py_place(void)
{
    return (usc_intercept_place){.stack = current_stack,
                                 .module = current_module,
                                 .optimizer = in_optimizer,
                                 .meet = py_api_meet(),
                                 .describe = py_api_describe,
                                 .graph = in_graph != NULL ? is_in_graph : NULL};
}

/* ---- operators ---- */

static void tell_place(void *list, const char *name, const char *place)
{
    if (PyErr_Occurred()) return;
    PyObject *pair = Py_BuildValue("ss", name, place);
    if (pair != NULL) PyList_Append(list, pair);
    Py_XDECREF(pair);
}

/* With the GIL held: Python code defines operators under it. */
PyObject *py_places(const usc_intercept_table *glue)
{
    PyObject *list = PyList_New(0);
    if (list == NULL) return NULL;
    glue->places(tell_place, list);
    if (PyErr_Occurred()) Py_CLEAR(list);
    return list;
}
