// SPDX-License-Identifier: Apache-2.0
// Bindings of case.h: `_core.Case`. Tensors come as torch.Tensor
// on the CPU and are borrowed; a case keeps those alive that it may read again.
#include "py_case.h"
#include "py_finding.h"
#include "py_tensor.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include <structmember.h>

/* ---- the object ---- */

static int case_init(PyObject *self_object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"findings", "threads", "large", "work", "fewest", NULL};
    case_object *self = (case_object *)self_object;
    usc_case_options options = {0};
    usc_error err = {0};
    const core_state *state = core_state_of(Py_TYPE(self_object));
    PyObject *findings;
    long long large = 0;
    if (state == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!|iLdi", names, state->findings_type,
                                     &findings, &options.n_threads, &large, &options.work,
                                     &options.fewest))
        return -1;
    options.large = large;
    if (self->c != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a case is opened once");
        return -1;
    }
    options.findings = ((findings_object *)findings)->findings;
    self->findings = Py_NewRef(findings);
    self->lock = PyThread_allocate_lock();
    self->kept = PyList_New(0);
    if (self->lock == NULL || self->kept == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    const usc_status status = usc_case_open(&options, &self->c, &err);
    if (status == USC_OK) return 0;
    core_raise(state, status, &err);
    return -1;
}

static void case_dealloc(PyObject *self_object)
{
    case_object *self = (case_object *)self_object;
    PyTypeObject *type = Py_TYPE(self_object);
    usc_case_close(self->c);
    Py_XDECREF(self->findings);
    Py_XDECREF(self->kept);
    Py_XDECREF(self->last);
    if (self->lock != NULL) PyThread_free_lock(self->lock);
    type->tp_free(self_object);
    Py_DECREF(type);
}

case_object *py_case_enter(PyObject *self_object)
{
    assert(self_object != NULL);
    case_object *self = (case_object *)self_object;
    if (self->c == NULL || self->kept == NULL) {
        PyErr_SetString(PyExc_ValueError, "the case is not open");
        return NULL;
    }
    core_lock(self->lock);
    return self;
}

PyObject *py_case_leave(case_object *self, usc_status status, const usc_error *err)
{
    assert(self != NULL);
    PyThread_release_lock(self->lock);
    if (status != USC_OK)
        return core_raise(core_state_of(Py_TYPE((PyObject *)self)), status, err);
    Py_RETURN_NONE;
}

/* ---- an output ---- */

/* Keywords beside path and device. */
typedef struct known {
    PyObject *bytes;
    const char *dtype, *captured;
    int flags[18];
    long long part[4];
} known;

static int parse_output(PyObject *args, PyObject *kwargs, PyObject **path,
                        PyObject **device, known *k)
{
    static char *names[] = {
        "path",         "device",   "bytes",    "dtype",      "captured",
        "free",         "exact",    "pairs",    "rounding",   "linear",
        "never_rounds", "gradient", "single",   "admissible", "any_float",
        "keep",         "narrow",   "products", "chained",    "readings",
        "carries",      "adds",     "alone",    "part",       NULL};
    int *f = k->flags;
    return PyArg_ParseTupleAndKeywords(
        args, kwargs, "UO|$Ozzpppppppppppppppppi(LLLL)", names, path, device, &k->bytes,
        &k->dtype, &k->captured, &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &f[7],
        &f[8], &f[9], &f[10], &f[11], &f[12], &f[13], &f[14], &f[15], &f[16], &f[17],
        &k->part[0], &k->part[1], &k->part[2], &k->part[3]);
}

static usc_case_output output_of(const char *path, const known *k)
{
    const int *f = k->flags;
    return (usc_case_output){.path = path,
                             .dtype = k->dtype,
                             .captured = k->captured,
                             .free = f[0],
                             .exact = f[1],
                             .pairs = f[2],
                             .rounding = f[3],
                             .linear = f[4],
                             .never_rounds = f[5],
                             .gradient = f[6],
                             .single = f[7],
                             .admissible = f[8],
                             .any_float = f[9],
                             .keep = f[10],
                             .narrow = f[11],
                             .products = f[12],
                             .chained = f[13],
                             .readings = f[14],
                             .carries = f[15],
                             .adds = f[16],
                             .alone = f[17],
                             .part = {k->part[0], k->part[1], k->part[2], k->part[3]}};
}

/* Keeps what the case points into: args and kwargs hold it. */
static int keep_output(case_object *self, PyObject *args, PyObject *kwargs)
{
    if (PyList_SetSlice(self->kept, 0, PyList_GET_SIZE(self->kept), NULL) < 0) return -1;
    Py_CLEAR(self->last);
    if (PyList_Append(self->kept, args) < 0) return -1;
    return kwargs == NULL ? 0 : PyList_Append(self->kept, kwargs);
}

static PyObject *case_begin(PyObject *self_object, PyObject *args, PyObject *kwargs)
{
    PyObject *path, *device;
    known k = {.bytes = Py_None};
    usc_tensor t, raw;
    if (!parse_output(args, kwargs, &path, &device, &k) ||
        py_tensor_borrow(device, &t) < 0 ||
        (k.bytes != Py_None && py_tensor_borrow(k.bytes, &raw) < 0))
        return NULL;
    case_object *self = py_case_enter(self_object);
    if (self == NULL) return NULL;
    const char *text = PyUnicode_AsUTF8(path);
    usc_case_output o = output_of(text, &k);
    usc_error err = {0};
    o.device = &t;
    o.bytes = k.bytes != Py_None ? &raw : NULL;
    if (text == NULL || keep_output(self, args, kwargs) < 0) {
        PyThread_release_lock(self->lock);
        return NULL;
    }
    return py_case_leave(self, usc_case_begin(self->c, &o, &err), &err);
}

static PyObject *case_next(PyObject *self_object, PyObject *unused)
{
    (void)unused;
    case_object *self = py_case_enter(self_object);
    if (self == NULL) return NULL;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_case_next(self->c, &self->want, &err);
    Py_END_ALLOW_THREADS;
    const usc_want want = self->want;
    PyObject *none = py_case_leave(self, status, &err);
    if (none == NULL || want.kind == USC_WANT_NOTHING) return none;
    Py_DECREF(none);
    return Py_BuildValue("(sii)", usc_want_text(want.kind), want.k, want.reading);
}

/* ---- answers ---- */

/* Whether the case may read an answer again after its next step. */
static bool is_kept(const usc_want *want)
{
    const usc_want_kind k = want->kind;
    const bool reads =
        k == USC_WANT_UNREAD || k == USC_WANT_UNWRITTEN || k == USC_WANT_READING;
    return reads || k == USC_WANT_REFERENCE || k == USC_WANT_NATIVE ||
           k == USC_WANT_SLOPE || k == USC_WANT_CHOICE ||
           (k == USC_WANT_REPLAY && want->k == 0);
}

static PyObject *give(PyObject *self_object, const usc_given *given, PyObject *args)
{
    case_object *self = py_case_enter(self_object);
    if (self == NULL) return NULL;
    usc_error err = {0};
    if (is_kept(&self->want) && PyList_Append(self->kept, args) < 0) {
        PyThread_release_lock(self->lock);
        return NULL;
    }
    PyObject *const before = self->last;
    self->last = Py_NewRef(args);
    PyObject *result = py_case_leave(self, usc_case_give(self->c, given, &err), &err);
    Py_XDECREF(before);
    return result;
}

static PyObject *case_give(PyObject *self, PyObject *args)
{
    PyObject *of[3] = {Py_None, Py_None, Py_None};
    usc_tensor tensors[3];
    const usc_tensor *seen[3] = {NULL, NULL, NULL};
    double number = 0;
    const char *text = NULL;
    if (!PyArg_ParseTuple(args, "|OOOdz", &of[0], &of[1], &of[2], &number, &text))
        return NULL;
    for (int i = 0; i < 3; i++) {
        if (of[i] == Py_None) continue;
        if (py_tensor_borrow(of[i], &tensors[i]) < 0) return NULL;
        seen[i] = &tensors[i];
    }
    const bool none = seen[0] == NULL;
    const usc_given given = {.form = none ? USC_GIVEN_NONE : USC_GIVEN_AS_ASKED,
                             .a = seen[0],
                             .b = seen[1],
                             .c = seen[2],
                             .number = number,
                             .text = text};
    return give(self, &given, args);
}

/* Another reading: its operands, and the output as it has it. */
static PyObject *case_read(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *of[4], *path, *device;
    usc_tensor t[4];
    usc_given given = {.form = USC_GIVEN_AS_ASKED, .a = &t[0], .b = &t[1]};
    known k = {.bytes = Py_None};
    if (!PyArg_ParseTuple(args, "OOOsO", &of[0], &of[1], &of[2], &given.text, &of[3]))
        return NULL;
    for (int i = 0; i < 4; i++)
        if (of[i] != Py_None && py_tensor_borrow(of[i], &t[i]) < 0) return NULL;
    if (of[3] != Py_None) given.c = &t[3];
    PyObject *form = Py_BuildValue("(sO)", "", of[2]);
    const int parsed = form != NULL && parse_output(form, kwargs, &path, &device, &k);
    Py_XDECREF(form);
    if (!parsed) return NULL;
    usc_case_output o = output_of("", &k);
    o.device = &t[2];
    given.known = &o;
    return give(self, &given, args);
}

static PyObject *case_tell(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"number", "size", "text", NULL};
    usc_given given = {.form = USC_GIVEN_AS_ASKED};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|ddz", names, &given.number,
                                     &given.size, &given.text))
        return NULL;
    return give(self, &given, args);
}

static PyObject *case_bytes(PyObject *self, PyObject *args)
{
    PyObject *tensor;
    usc_tensor t;
    usc_given given = {.form = USC_GIVEN_AS_ASKED, .a = &t};
    if (!PyArg_ParseTuple(args, "Os", &tensor, &given.text) ||
        py_tensor_borrow(tensor, &t) < 0)
        return NULL;
    return give(self, &given, args);
}

static PyObject *case_fail(PyObject *self, PyObject *args)
{
    usc_given given = {.form = USC_GIVEN_FAILED};
    if (!PyArg_ParseTuple(args, "s", &given.text)) return NULL;
    return give(self, &given, args);
}

/* Four numbers of each pooled dimension. */
static int read_window(PyObject *window, usc_choice *c)
{
    const Py_ssize_t n = PySequence_Size(window);
    if (n < 0 || n > USC_POOLED) {
        if (n > 0) PyErr_SetString(PyExc_ValueError, "too many pooled dimensions");
        return -1;
    }
    for (int d = 0; d < (int)n; d++) {
        long long v[4];
        PyObject *four = PySequence_GetItem(window, d);
        PyObject *tuple = four != NULL ? PySequence_Tuple(four) : NULL;
        const int ok =
            tuple != NULL && PyArg_ParseTuple(tuple, "LLLL", &v[0], &v[1], &v[2], &v[3]);
        Py_XDECREF(four);
        Py_XDECREF(tuple);
        if (!ok) return -1;
        c->kernel[d] = v[0];
        c->stride[d] = v[1];
        c->padding[d] = v[2];
        c->dilation[d] = v[3];
    }
    c->n_window = (int)n;
    return 0;
}

static PyObject *case_choose(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"values", "dim",   "once",   "cumulative",
                            "counts", "slack", "window", NULL};
    PyObject *values, *dim, *window;
    usc_tensor t;
    int once, cumulative, counts;
    usc_choice choice = {.values = &t, .dim = -1};
    const usc_given given = {.form = USC_GIVEN_AS_ASKED, .choice = &choice};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O$OpppdO", names, &values, &dim,
                                     &once, &cumulative, &counts, &choice.slack,
                                     &window) ||
        py_tensor_borrow(values, &t) < 0 || read_window(window, &choice) < 0)
        return NULL;
    if (dim != Py_None) choice.dim = (int)PyLong_AsLong(dim);
    if (PyErr_Occurred()) return NULL;
    choice.once = once;
    choice.cumulative = cumulative;
    choice.counts = counts;
    return give(self, &given, args);
}

/* ---- what is kept ---- */

const usc_case *py_case_of(PyObject *object, const core_state *state)
{
    assert(object && state);
    if (!PyObject_TypeCheck(object, state->case_type) ||
        ((case_object *)object)->c == NULL) {
        PyErr_SetString(PyExc_TypeError, "not an open Case");
        return NULL;
    }
    return ((case_object *)object)->c;
}

static PyObject *case_kept(PyObject *self_object, PyObject *unused)
{
    (void)unused;
    case_object *self = py_case_enter(self_object);
    if (self == NULL) return NULL;
    PyObject *entries = py_kept_entries(self->c);
    PyThread_release_lock(self->lock);
    return entries;
}

/* ---- the type ---- */

static PyMethodDef case_methods[] = {
    {"begin", METHOD(case_begin), METH_VARARGS | METH_KEYWORDS,
     "begin(path, device, *, bytes, dtype, captured, free, exact, ...): the next output; "
     "see usc_case_output."},
    {"call", py_case_call, METH_VARARGS,
     "call(op, number, [(path, sizes)], n_inputs, n_rows, n_products): the call as a "
     "whole; see usc_case_begin_call."},
    {"go_on", py_case_go_on, METH_NOARGS,
     "go_on() -> bool: all outputs of a piece were judged; whether it decides, so far."},
    {"rows", py_case_rows, METH_NOARGS, "rows() -> list: of a product, that are judged."},
    {"next", case_next, METH_NOARGS,
     "next() -> (want, k, reading), or None where the finding stands."},
    {"give", case_give, METH_VARARGS,
     "give(a=None, b=None, c=None, number=0, text=None): tensors, and what is known of "
     "them; none "
     "where there is no such operand, or no more."},
    {"tell", METHOD(case_tell), METH_VARARGS | METH_KEYWORDS,
     "tell(number=0, size=0, text=None): an answer without tensors."},
    {"bytes", case_bytes, METH_VARARGS,
     "bytes(tensor, dtype): bytes of a dtype that the table lacks."},
    {"choose", METHOD(case_choose), METH_VARARGS | METH_KEYWORDS,
     "choose(values, *, dim, once, cumulative, counts, slack, window): see usc_choice."},
    {"kept", case_kept, METH_NOARGS,
     "kept() -> list of dict: what was kept of each output, as a pack's manifest says "
     "it."},
    {"read", METHOD(case_read), METH_VARARGS | METH_KEYWORDS,
     "read(a, b, device, note, marks, *, exact, ...): another reading of the call, the "
     "output as it has it and what is known of that, as in begin; elements that may be "
     "something else, or None."},
    {"fail", case_fail, METH_VARARGS, "fail(text): whatever makes the operand raised."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef case_members[] = {
    {"findings", T_OBJECT_EX, offsetof(case_object, findings), READONLY,
     "Where findings go."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot case_slots[] = {
    {Py_tp_doc,
     "Case(findings, threads=0): findings go into that list; see ulpscope/case.h."},
    {Py_tp_new, METHOD(PyType_GenericNew)},
    {Py_tp_init, METHOD(case_init)},
    {Py_tp_dealloc, METHOD(case_dealloc)},
    {Py_tp_methods, case_methods},
    {Py_tp_members, case_members},
    {0, NULL},
};

static PyType_Spec case_spec = {
    .name = "ulpscope._core.Case",
    .basicsize = sizeof(case_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = case_slots,
};

/* `narrow_runs`: how and in which format, of the want "narrow" k. */
static int add_narrow_runs(PyObject *module)
{
    PyObject *rows = PyList_New(0);
    const char *how, *format;
    int bad = rows == NULL;
    for (int k = 0; !bad && (how = usc_narrow_how(k, &format)) != NULL; k++) {
        PyObject *row = Py_BuildValue("(ss)", how, format);
        bad = row == NULL || PyList_Append(rows, row) < 0;
        Py_XDECREF(row);
    }
    PyObject *all = bad ? NULL : PyList_AsTuple(rows);
    Py_XDECREF(rows);
    const int result =
        all == NULL ? -1 : PyModule_AddObjectRef(module, "narrow_runs", all);
    Py_XDECREF(all);
    return result;
}

int py_case_add(PyObject *module)
{
    assert(PyModule_Check(module));
    PyObject *type = PyType_FromModuleAndSpec(module, &case_spec, NULL);
    if (type == NULL) return -1;
    core_state *state = PyModule_GetState(module);
    state->case_type = (PyTypeObject *)type; /* takes it over */
    if (PyModule_AddObjectRef(module, "Case", type) < 0 ||
        PyModule_AddIntConstant(module, "reading_unread", USC_READING_UNREAD) < 0 ||
        PyModule_AddIntConstant(module, "reading_unwritten", USC_READING_UNWRITTEN) < 0 ||
        PyModule_AddIntConstant(module, "reading_others", USC_READING_OTHERS) < 0)
        return -1;
    return add_narrow_runs(module);
}
