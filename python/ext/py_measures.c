// SPDX-License-Identifier: Apache-2.0
// Functions of `_core` that measure tensors without a judge: `perturb`, `apart`, `steep`,
// `exact`, `stats`, ... Neighbour: py_judge.c. Tensors come as torch.Tensor on the CPU and
// are borrowed through data_ptr(), shape and stride(); nothing here computes.
#include "py_judge.h"
#include "py_tensor.h"

#include <ulpscope/case.h>
#include <ulpscope/judge.h>
#include <ulpscope/stats.h>
#include <ulpscope/x/rounding_runs.h>

#include <assert.h>
#include <string.h>

enum { N_REPLAYS = 5, N_FREED = 8 };

/* Where the doubles of `out` begin, which must have the form of `like`; NULL with an
 * exception. */
static void *room_like(PyObject *out, const usc_tensor *view, const usc_tensor *like,
                       size_t item_size)
{
    bool fits =
        usc_dtype_info_of(view->dtype)->size == item_size && view->ndim == like->ndim;
    for (int i = 0; fits && i < like->ndim; i++)
        fits = view->sizes[i] == like->sizes[i];
    if (!fits || !usc_tensor_contiguous(view))
        return PyErr_Format(PyExc_ValueError,
                            "out must be contiguous, of the shape of the operand and of "
                            "%zu bytes an element",
                            item_size);
    PyObject *address = PyObject_CallMethod(out, "data_ptr", NULL);
    void *to = address != NULL ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    static double nothing; /* an empty tensor has no address */
    return to != NULL || PyErr_Occurred() ? to : &nothing;
}

static PyObject *py_perturb(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"x",        "out",   "seed",  "replay",
                            "argument", "delta", "share", NULL};
    PyObject *x, *out;
    unsigned long long seed = 0;
    usc_perturbation how = {0};
    usc_tensor source, target;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOKii|dd", names, &x, &out, &seed,
                                     &how.replay, &how.argument, &how.delta, &how.share))
        return NULL;
    if (py_tensor_borrow(x, &source) < 0 || py_tensor_borrow(out, &target) < 0)
        return NULL;
    how.seed = seed;

    usc_error err = {0};
    usc_status status;
    const bool narrow = target.dtype == USC_F32;
    void *to = room_like(out, &target, &source, narrow ? sizeof(float) : sizeof(double));
    if (to == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = narrow ? usc_perturb_narrow(&source, &how, to, &err)
                    : usc_perturb(&source, &how, to, &err);
    Py_END_ALLOW_THREADS;
    if (status != USC_OK) return core_raise(PyModule_GetState(module), status, &err);
    Py_RETURN_NONE;
}

/* Whether too many elements of float32 lie far from float64: marks where, or takes marks
 * from what a replay explains. */
static PyObject *py_apart(PyObject *module, PyObject *args)
{
    PyObject *given[5] = {NULL};
    usc_tensor t[5];
    usc_error err = {0};
    bool far = false;
    int n = 0;
    if (!PyArg_ParseTuple(args, "OOO|OO", &given[0], &given[1], &given[2], &given[3],
                          &given[4]))
        return NULL;
    for (; n < 5 && given[n] != NULL; n++)
        if (py_tensor_borrow(given[n], &t[n]) < 0) return NULL;
    if (n == 4) return PyErr_Format(PyExc_TypeError, "what it was before is missing");
    usc_status status;
    uint8_t *marks = room_like(given[2], &t[2], &t[0], sizeof *marks);
    if (marks == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = n == 3 ? usc_judge_apart(&t[0], &t[1], marks, &far, &err)
                    : usc_judge_explain(&t[0], &t[1], &t[3], &t[4], marks, &far, &err);
    Py_END_ALLOW_THREADS;
    if (status != USC_OK) return core_raise(PyModule_GetState(module), status, &err);
    return PyBool_FromLong(far);
}

static PyObject *py_steep(PyObject *module, PyObject *args)
{
    PyObject *truth, *moved;
    usc_tensor t, m;
    if (!PyArg_ParseTuple(args, "OO", &truth, &moved)) return NULL;
    if (py_tensor_borrow(truth, &t) < 0 || py_tensor_borrow(moved, &m) < 0) return NULL;

    bool found;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS status = usc_judge_steep(&t, &m, &found, &err);
    Py_END_ALLOW_THREADS return status == USC_OK
        ? PyBool_FromLong(found)
        : core_raise(PyModule_GetState(module), status, &err);
}

static PyObject *py_free_steps(PyObject *module, PyObject *args)
{
    PyObject *of[N_FREED];
    usc_tensor t[N_FREED];
    void *to[N_FREED - N_REPLAYS];
    bool any;
    usc_error err = {0};
    usc_status status;
    if (!PyArg_ParseTuple(args, "OOOOOOOO", &of[0], &of[1], &of[2], &of[3], &of[4],
                          &of[5], &of[6], &of[7]))
        return NULL;
    for (int i = 0; i < N_FREED; i++) {
        if (py_tensor_borrow(of[i], &t[i]) < 0) return NULL;
        if (i < N_REPLAYS) continue;
        to[i - N_REPLAYS] =
            room_like(of[i], &t[i], &t[0], i < N_FREED - 1 ? sizeof(double) : 1);
        if (to[i - N_REPLAYS] == NULL) return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    status = usc_judge_free_steps(&t[0], &t[1], &t[2], &t[3], &t[4], to[0], to[1], to[2],
                                  &any, &err);
    Py_END_ALLOW_THREADS;
    if (status != USC_OK) return core_raise(PyModule_GetState(module), status, &err);
    return PyBool_FromLong(any);
}

static PyObject *py_trust(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *result, *before;
    usc_tensor r, b;
    int question = 0;
    bool answer;
    usc_error err = {0};
    usc_status status;
    if (!PyArg_ParseTuple(args, "sOO", &name, &result, &before)) return NULL;
    while (question < USC_N_TRUSTS &&
           strcmp(usc_trust_text((usc_trust)question), name) != 0)
        question++;
    if (question == USC_N_TRUSTS)
        return PyErr_Format(PyExc_ValueError, "nothing is known of '%s'", name);
    if (py_tensor_borrow(result, &r) < 0 || py_tensor_borrow(before, &b) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = usc_judge_trust((usc_trust)question, &r, &b, &answer, &err);
    Py_END_ALLOW_THREADS;
    if (status != USC_OK) return core_raise(PyModule_GetState(module), status, &err);
    return PyBool_FromLong(answer);
}

static PyObject *py_exact(PyObject *module, PyObject *args)
{
    PyObject *device, *reference;
    usc_tensor d, r;
    if (!PyArg_ParseTuple(args, "OO", &device, &reference)) return NULL;
    if (py_tensor_borrow(device, &d) < 0 || py_tensor_borrow(reference, &r) < 0)
        return NULL;

    usc_judgement out;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS status = usc_judge_exact(&d, &r, &out, &err);
    Py_END_ALLOW_THREADS return status == USC_OK
        ? py_judgement(&out)
        : core_raise(PyModule_GetState(module), status, &err);
}

static PyObject *stats_dict(const usc_stats *s)
{
    return Py_BuildValue(
        "{s:L,s:L,s:L,s:L,s:L,s:L,s:d,s:d,s:d,s:d,s:L,s:L,s:O,s:O}", "n", (long long)s->n,
        "n_nan", (long long)s->n_nan, "n_pos_inf", (long long)s->n_pos_inf, "n_neg_inf",
        (long long)s->n_neg_inf, "n_zero", (long long)s->n_zero, "n_subnormal",
        (long long)s->n_subnormal, "min", s->min, "max", s->max, "mean", s->mean, "l2",
        s->l2, "int_min", (long long)s->int_min, "int_max", (long long)s->int_max,
        "sorted", s->sorted ? Py_True : Py_False, "unique",
        s->unique ? Py_True : Py_False);
}

static PyObject *py_stats(PyObject *module, PyObject *tensor)
{
    usc_tensor view;
    if (py_tensor_borrow(tensor, &view) < 0) return NULL;

    const usc_stats_options options = {.no_histogram = true};
    usc_stats out;
    usc_error err = {0};
    usc_status status;
    Py_BEGIN_ALLOW_THREADS status = usc_stats_compute(&view, &options, &out, &err);
    Py_END_ALLOW_THREADS return status == USC_OK
        ? stats_dict(&out)
        : core_raise(PyModule_GetState(module), status, &err);
}

/* same_memory(a, b, size): whether so many bytes at two addresses are the same. */
static PyObject *py_same_memory(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long a, b;
    Py_ssize_t size;
    int same = 1;
    if (!PyArg_ParseTuple(args, "KKn:same_memory", &a, &b, &size)) return NULL;
    if (size > 0) {
        const void *first = (const void *)(uintptr_t)a;
        const void *second = (const void *)(uintptr_t)b;
        Py_BEGIN_ALLOW_THREADS same = memcmp(first, second, (size_t)size) == 0;
        Py_END_ALLOW_THREADS
    }
    return PyBool_FromLong(same);
}

static PyMethodDef functions[] = {
    {"perturb", METHOD(py_perturb), METH_VARARGS | METH_KEYWORDS,
     "perturb(x, out, seed, replay, argument, delta=0, share=0): see usc_perturb."},
    {"apart", py_apart, METH_VARARGS,
     "apart(truth, yardstick, marks, moved=None, was=None) -> bool: see usc_judge_apart; "
     "with a replay usc_judge_explain. `marks` takes where, a bool tensor."},
    {"steep", py_steep, METH_VARARGS,
     "steep(truth, moved) -> bool: see usc_judge_steep."},
    {"free_steps", py_free_steps, METH_VARARGS,
     "free_steps(truth, yardstick, moved, narrow, nearer, wide, low, crossed) -> bool: "
     "see usc_judge_free_steps; the last three take what it gives."},
    {"trust", py_trust, METH_VARARGS,
     "trust(question, result, before) -> bool: see usc_judge_trust."},
    {"same_memory", py_same_memory, METH_VARARGS,
     "same_memory(address, address, size) -> bool: of memory that is kept alive."},
    {"exact", py_exact, METH_VARARGS,
     "exact(device, reference) -> dict: integers, bools and bytes, element by element."},
    {"stats", py_stats, METH_O, "stats(tensor) -> dict: statistics without histogram."},
    {NULL, NULL, 0, NULL},
};

int py_measures_add(PyObject *module)
{
    assert(PyModule_Check(module));
    return PyModule_AddFunctions(module, functions);
}
