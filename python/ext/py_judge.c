// SPDX-License-Identifier: Apache-2.0
// Bindings of judge.h: `_core.Judge`. Neighbour: py_measures.c (functions).
// Tensors come as torch.Tensor on the CPU and are borrowed through data_ptr(), shape and
// stride(); nothing here computes.
#include "py_judge.h"
#include "py_tensor.h"

#include <ulpscope/case.h>
#include <ulpscope/judge.h>

#include <assert.h>

int py_put(PyObject *dict, const char *key, PyObject *value)
{
    assert(dict && key);
    if (value == NULL) return -1;
    const int result = PyDict_SetItemString(dict, key, value);
    Py_DECREF(value);
    return result;
}

static PyObject *int_list(const int64_t *values, int n)
{
    PyObject *list = PyList_New(n);
    for (int i = 0; list != NULL && i < n; ++i) {
        PyObject *item = PyLong_FromLongLong(values[i]);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static int put_counts(PyObject *dict, const usc_judgement *j)
{
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"n", j->n},           {"n_mismatch", j->n_mismatch}, {"n_bad", j->n_bad},
        {"n_free", j->n_free}, {"n_ill", j->n_ill},           {"i_worst", j->i_worst},
        {"i_bad", j->i_bad},   {"n_finite", j->n_finite},     {"n_flushed", j->n_flushed},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i)
        if (py_put(dict, counts[i].name, PyLong_FromLongLong(counts[i].value)) < 0)
            return -1;
    return 0;
}

static int put_numbers(PyObject *dict, const usc_judgement *j)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"bits", j->bits},     {"yardstick_bits", j->yardstick_bits},
        {"max", j->max},       {"mid", j->mid},
        {"q99", j->q99},       {"rel", j->rel},
        {"z", j->z},           {"mean_sign", j->mean_sign},
        {"spread", j->spread}, {"expected_share", j->expected_share},
        {"fan_in", j->fan_in}, {"t_max", j->t_max},
        {"t_mid", j->t_mid},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i)
        if (py_put(dict, numbers[i].name, PyFloat_FromDouble(numbers[i].value)) < 0)
            return -1;
    return 0;
}

static int put_flags(PyObject *dict, const usc_judgement *j)
{
    const struct {
        const char *name;
        bool value;
    } flags[] = {
        {"needs_appeal", j->needs_appeal},
        {"exact", j->exact},
        {"flushes", j->flushes},
        {"bound", j->bound},
        {"yardstick_bound", j->yardstick_bound},
    };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; ++i)
        if (py_put(dict, flags[i].name, PyBool_FromLong(flags[i].value)) < 0) return -1;
    return 0;
}

PyObject *py_judgement(const usc_judgement *j)
{
    assert(j != NULL);
    PyObject *dict = PyDict_New();
    if (dict == NULL) return NULL;
    if (py_put(dict, "verdict", PyUnicode_FromString(usc_verdict_text(j->verdict))) < 0 ||
        py_put(dict, "reason", core_text(j->reason)) < 0 || put_counts(dict, j) < 0 ||
        put_numbers(dict, j) < 0 || put_flags(dict, j) < 0 ||
        py_put(dict, "histogram", int_list(j->histogram, USC_N_SCORE_BINS)) < 0)
        Py_CLEAR(dict);
    return dict;
}

/* ---- the Judge object ---- */

typedef struct judge_object {
    PyObject_HEAD; /* the semicolon is for the formatter */
    usc_judge *judge;
    PyThread_type_lock lock; /* one thread at a time, also while the GIL is released */
    PyObject *operands;      /* tuple: keeps the borrowed tensors alive */
    PyObject *first;         /* the same for a first replay, or NULL */
    int ndim;
} judge_object;

static int judge_init(PyObject *self_object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"device", "reference", "yardstick", "threads", "pairs", NULL};
    judge_object *self = (judge_object *)self_object;
    PyObject *device, *reference, *yardstick;
    usc_judge_options options = {0};
    usc_tensor d, r, y;
    int pairs = 0;
    if (self->lock == NULL && (self->lock = PyThread_allocate_lock()) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|ip", names, &device, &reference,
                                     &yardstick, &options.n_threads, &pairs))
        return -1;
    options.pairs = pairs != 0;
    if (py_tensor_borrow(device, &d) < 0 || py_tensor_borrow(reference, &r) < 0 ||
        py_tensor_borrow(yardstick, &y) < 0)
        return -1;
    PyObject *operands = PyTuple_Pack(3, device, reference, yardstick);
    if (operands == NULL) return -1;

    usc_judge *judge = NULL;
    usc_error err = {0};
    const usc_status status = usc_judge_open(&d, &r, &y, &options, &judge, &err);
    if (status != USC_OK) {
        Py_DECREF(operands);
        core_raise(core_state_of(Py_TYPE(self_object)), status, &err);
        return -1;
    }
    core_lock(self->lock);
    usc_judge *const before = self->judge;
    self->judge = judge;
    self->ndim = d.ndim;
    PyThread_release_lock(self->lock);
    usc_judge_close(before);
    Py_XSETREF(self->operands, operands);
    return 0;
}

static void judge_dealloc(PyObject *self_object)
{
    judge_object *self = (judge_object *)self_object;
    PyTypeObject *type = Py_TYPE(self_object);
    usc_judge_close(self->judge);
    Py_XDECREF(self->operands);
    Py_XDECREF(self->first);
    if (self->lock != NULL) PyThread_free_lock(self->lock);
    type->tp_free(self_object);
    Py_DECREF(type);
}

/* Takes the lock of an open judge; NULL with an exception set where it is not open. */
static usc_judge *enter(PyObject *self_object)
{
    judge_object *self = (judge_object *)self_object;
    if (self->lock != NULL) {
        core_lock(self->lock);
        if (self->judge != NULL) return self->judge;
        PyThread_release_lock(self->lock);
    }
    PyErr_SetString(PyExc_ValueError, "the judge is not open");
    return NULL;
}

static void leave(PyObject *self_object)
{
    PyThread_release_lock(((judge_object *)self_object)->lock);
}

static PyObject *judge_replay(PyObject *self, PyObject *args)
{
    PyObject *reference, *yardstick;
    usc_tensor r, y;
    if (!PyArg_ParseTuple(args, "OO", &reference, &yardstick) ||
        py_tensor_borrow(reference, &r) < 0 || py_tensor_borrow(yardstick, &y) < 0)
        return NULL;
    usc_judge *judge = enter(self);
    if (judge == NULL) return NULL;

    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_judge_replay(judge, &r, &y, &err);
    Py_END_ALLOW_THREADS;
    leave(self);
    if (status != USC_OK) return core_raise(core_state_of(Py_TYPE(self)), status, &err);
    Py_RETURN_NONE;
}

static PyObject *judge_first(PyObject *self_object, PyObject *args)
{
    judge_object *self = (judge_object *)self_object;
    PyObject *reference, *yardstick;
    usc_tensor r, y;
    if (!PyArg_ParseTuple(args, "OO", &reference, &yardstick) ||
        py_tensor_borrow(reference, &r) < 0 || py_tensor_borrow(yardstick, &y) < 0)
        return NULL;
    usc_judge *judge = enter(self_object);
    if (judge == NULL) return NULL;

    usc_judgement out;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_judge_first(judge, &r, &y, &out, &err);
    Py_END_ALLOW_THREADS;
    PyObject *const before = self->first;
    if (status == USC_OK) self->first = Py_NewRef(args); /* it reads both again */
    leave(self_object);
    if (status != USC_OK)
        return core_raise(core_state_of(Py_TYPE(self_object)), status, &err);
    Py_XDECREF(before);
    return py_judgement(&out);
}

static PyObject *judge_look(PyObject *self, PyObject *unused)
{
    (void)unused;
    usc_judge *judge = enter(self);
    if (judge == NULL) return NULL;

    usc_judgement out;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_judge_look(judge, &out, &err);
    Py_END_ALLOW_THREADS;
    leave(self);
    return status == USC_OK ? py_judgement(&out)
                            : core_raise(core_state_of(Py_TYPE(self)), status, &err);
}

static PyObject *judge_appeal(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fan_in", "movement", "flushed", "natural", NULL};
    usc_appeal appeal = {0};
    usc_tensor flushed_view;
    int movement = 0;
    PyObject *flushed = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "d|pOd", names, &appeal.fan_in,
                                     &movement, &flushed, &appeal.natural))
        return NULL;
    appeal.movement = movement != 0;
    if (flushed != Py_None) {
        if (py_tensor_borrow(flushed, &flushed_view) < 0) return NULL;
        appeal.flushed = &flushed_view;
    }
    usc_judge *judge = enter(self);
    if (judge == NULL) return NULL;

    usc_judgement out;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_judge_appeal(judge, &appeal, &out, &err);
    Py_END_ALLOW_THREADS;
    leave(self);
    return status == USC_OK ? py_judgement(&out)
                            : core_raise(core_state_of(Py_TYPE(self)), status, &err);
}

#define MOST_EXAMPLES 256

static PyObject *judge_worst(PyObject *self, PyObject *args)
{
    int n = 0;
    if (!PyArg_ParseTuple(args, "i", &n)) return NULL;
    if (n < 0 || n > MOST_EXAMPLES)
        return PyErr_Format(PyExc_ValueError, "between 0 and %d examples", MOST_EXAMPLES);
    usc_judge *judge = enter(self);
    if (judge == NULL) return NULL;

    usc_example found[MOST_EXAMPLES];
    int n_found = 0;
    usc_error err = {0};
    const usc_status status = usc_judge_worst(judge, n, found, &n_found, &err);
    leave(self);
    if (status != USC_OK) return core_raise(core_state_of(Py_TYPE(self)), status, &err);
    return py_examples(found, n_found);
}

PyObject *py_examples(const usc_example *found, int n)
{
    assert(found != NULL || n == 0);
    PyObject *list = PyList_New(n);
    for (int i = 0; list != NULL && i < n; ++i) {
        const usc_example *e = &found[i];
        PyObject *item = Py_BuildValue("(Ldddd)", (long long)e->index, e->device,
                                       e->reference, e->yardstick, e->score);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *float_list(const float *values, int n)
{
    PyObject *list = PyList_New(n);
    for (int i = 0; list != NULL && i < n; ++i) {
        PyObject *item = PyFloat_FromDouble((double)values[i]);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *judge_positions(PyObject *self, PyObject *unused)
{
    (void)unused;
    usc_judge *judge = enter(self);
    if (judge == NULL) return NULL;

    float shares[USC_MAX_DIMS][64];
    usc_error err = {0};
    const usc_status status = usc_judge_positions(judge, shares, &err);
    const int ndim = ((judge_object *)self)->ndim;
    leave(self);
    if (status != USC_OK) return core_raise(core_state_of(Py_TYPE(self)), status, &err);
    return py_slices(&shares[0][0], ndim);
}

PyObject *py_slices(const float *shares, int n_rows)
{
    assert(shares != NULL || n_rows == 0);
    PyObject *list = PyList_New(n_rows);
    for (int i = 0; list != NULL && i < n_rows; ++i) {
        PyObject *item = float_list(shares + (size_t)i * 64, 64);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyMethodDef judge_methods[] = {
    {"replay", judge_replay, METH_VARARGS,
     "replay(reference_k, yardstick_k): adds the results on one perturbed input."},
    {"first", judge_first, METH_VARARGS,
     "first(reference_1, yardstick_1) -> dict: first replay and first look in one pass."},
    {"look", judge_look, METH_NOARGS, "look() -> dict: the first look."},
    {"appeal", METHOD(judge_appeal), METH_VARARGS | METH_KEYWORDS,
     "appeal(fan_in, movement=False, flushed=None, natural=0) -> dict: the full "
     "rule."},
    {"worst", judge_worst, METH_VARARGS,
     "worst(n) -> [(index, device, reference, yardstick, score)], worst first."},
    {"positions", judge_positions, METH_NOARGS,
     "positions() -> per axis the failing share in 64 slices."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot judge_slots[] = {
    {Py_tp_doc, "Judge(device, reference, yardstick, threads=1, pairs=False): see "
                "ulpscope/judge.h."},
    {Py_tp_new, METHOD(PyType_GenericNew)},
    {Py_tp_init, METHOD(judge_init)},
    {Py_tp_dealloc, METHOD(judge_dealloc)},
    {Py_tp_methods, judge_methods},
    {0, NULL},
};

static PyType_Spec judge_spec = {
    .name = "ulpscope._core.Judge",
    .basicsize = sizeof(judge_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = judge_slots,
};

/* `verdicts`: (text, flagged) in order of precedence, from the one list in judge.h. */
static int add_verdicts(PyObject *module)
{
    PyObject *all = PyTuple_New(USC_N_VERDICTS);
    for (int i = 0; all != NULL && i < USC_N_VERDICTS; i++) {
        const usc_verdict v = (usc_verdict)i;
        PyObject *one = Py_BuildValue("(sN)", usc_verdict_text(v),
                                      PyBool_FromLong(usc_verdict_flagged(v)));
        if (one == NULL) Py_CLEAR(all);
        if (one != NULL) PyTuple_SET_ITEM(all, i, one);
    }
    const int result = all == NULL ? -1 : PyModule_AddObjectRef(module, "verdicts", all);
    Py_XDECREF(all);
    return result;
}

int py_judge_add(PyObject *module)
{
    assert(PyModule_Check(module));
    if (add_verdicts(module) < 0 ||
        PyModule_AddObject(module, "near_reach", PyFloat_FromDouble(USC_NEAR_REACH)) <
            0 ||
        PyModule_AddObject(module, "nearer_part", PyFloat_FromDouble(USC_NEARER_PART)) <
            0 ||
        PyModule_AddIntConstant(module, "noise_own_steps", USC_NOISE_OWN_STEPS) < 0 ||
        PyModule_AddIntConstant(module, "noise_rough", USC_NOISE_ROUGH) < 0 ||
        PyModule_AddIntConstant(module, "alone_steady", USC_ALONE_STEADY) < 0 ||
        PyModule_AddIntConstant(module, "alone_sharp", USC_ALONE_SHARP) < 0 ||
        PyModule_AddIntConstant(module, "run_otherwise", USC_RERUN_OTHERWISE) < 0 ||
        PyModule_AddIntConstant(module, "run_nearby", USC_RERUN_NEARBY) < 0 ||
        PyModule_AddIntConstant(module, "run_cut", USC_RERUN_CUT) < 0 ||
        PyModule_AddIntConstant(module, "few_numbers", USC_FEW_NUMBERS) < 0)
        return -1;
    PyObject *type = PyType_FromModuleAndSpec(module, &judge_spec, NULL);
    if (type == NULL) return -1;
    const int result = PyModule_AddObjectRef(module, "Judge", type);
    Py_DECREF(type);
    return result;
}
