// SPDX-License-Identifier: Apache-2.0
// Bindings of fuzz.h: `_core.fuzz_draw`, `_core.fuzz_fill`, `_core.fuzz_program`. A
// tensor is a tuple (dtype, sizes, strides, offset, storage, room, written), as
// usc_fuzz_tensor has them.
#include "core.h"

#include <ulpscope/x/fuzz.h>

#include <assert.h>
#include <string.h>

enum { MOST_TENSORS = 256 };

static int read_dims(PyObject *given, int64_t *out, int *n)
{
    PyObject *fast = PySequence_Fast(given, "sizes and strides are sequences");
    if (fast == NULL) return -1;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    *n = (int)count;
    if (count > USC_MAX_DIMS) PyErr_Format(PyExc_ValueError, "%zd axes", count);
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++)
        out[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
    Py_DECREF(fast);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_tensor(PyObject *given, usc_fuzz_tensor *out)
{
    const char *dtype;
    PyObject *sizes, *strides;
    long long offset, storage, room;
    int written, n_strides;
    *out = (usc_fuzz_tensor){0};
    if (!PyTuple_Check(given))
        return PyErr_SetString(PyExc_TypeError, "a tensor is a tuple"), -1;
    if (!PyArg_ParseTuple(given, "sOOLLLp", &dtype, &sizes, &strides, &offset, &storage,
                          &room, &written))
        return -1;
    if (read_dims(sizes, out->sizes, &out->ndim) < 0) return -1;
    if (read_dims(strides, out->strides, &n_strides) < 0) return -1;
    if (n_strides != out->ndim)
        return PyErr_SetString(PyExc_ValueError, "sizes and strides differ in number"),
               -1;
    out->dtype = usc_dtype_by_name(dtype);
    out->offset = offset;
    out->storage = storage;
    out->room = room;
    out->written = written != 0;
    return 0;
}

static PyObject *dims_of(const int64_t *dims, int n)
{
    PyObject *list = PyTuple_New(n);
    for (int i = 0; list != NULL && i < n; i++) {
        PyObject *item = PyLong_FromLongLong(dims[i]);
        if (item == NULL) Py_CLEAR(list);
        if (item != NULL) PyTuple_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *tensor_of(const usc_fuzz_tensor *t)
{
    return Py_BuildValue("(sNNLLLO)", usc_dtype_info_of(t->dtype)->name,
                         dims_of(t->sizes, t->ndim), dims_of(t->strides, t->ndim),
                         (long long)t->offset, (long long)t->storage, (long long)t->room,
                         t->written ? Py_True : Py_False);
}

static PyObject *told(const usc_fuzz_recipe *r, const usc_fuzz_tensor *t, int n)
{
    PyObject *tensors = PyList_New(n), *sizes = PyDict_New();
    for (int i = 0; tensors != NULL && i < n; i++) {
        PyObject *item = tensor_of(&t[i]);
        if (item == NULL) Py_CLEAR(tensors);
        if (item != NULL) PyList_SET_ITEM(tensors, i, item);
    }
    for (int i = 0; sizes != NULL && i < r->n_symbols; i++) {
        PyObject *from = PyLong_FromLongLong(r->old_size[i]);
        PyObject *to = PyLong_FromLongLong(r->new_size[i]);
        if (from == NULL || to == NULL || PyDict_SetItem(sizes, from, to) < 0)
            Py_CLEAR(sizes);
        Py_XDECREF(from);
        Py_XDECREF(to);
    }
    if (tensors != NULL && sizes != NULL)
        return Py_BuildValue("(sssNiN(Li))", usc_stress_text(r->kind),
                             usc_dtype_info_of(r->from)->name,
                             usc_dtype_info_of(r->to)->name, sizes, (int)r->numbers,
                             tensors, (long long)r->count, r->which);
    Py_XDECREF(tensors);
    Py_XDECREF(sizes);
    return NULL;
}

static PyObject *fuzz_draw(PyObject *module, PyObject *args)
{
    const core_state *state = PyModule_GetState(module);
    unsigned long long seed, number;
    int attempt, stress;
    PyObject *given, *result = NULL;
    if (!PyArg_ParseTuple(args, "KKipO!", &seed, &number, &attempt, &stress, &PyList_Type,
                          &given))
        return NULL;
    const Py_ssize_t n = PyList_GET_SIZE(given);
    if (n > MOST_TENSORS) return PyErr_Format(PyExc_ValueError, "%zd tensors", n);
    if (attempt < 0 || attempt >= USC_FUZZ_ATTEMPTS)
        return PyErr_Format(PyExc_ValueError, "attempt %d", attempt);
    usc_fuzz_tensor *t = PyMem_Calloc(2 * (size_t)n + 1, sizeof *t);
    if (t == NULL) return PyErr_NoMemory();
    bool read = true;
    for (Py_ssize_t i = 0; i < n && read; i++)
        read = read_tensor(PyList_GET_ITEM(given, i), &t[i]) == 0;
    const usc_fuzz_case which = {seed, number, attempt, stress != 0};
    usc_fuzz_recipe recipe;
    usc_error err = {0};
    if (read) {
        const usc_status st = usc_fuzz_draw(&which, t, (int)n, t + n, &recipe, &err);
        result =
            st == USC_OK ? told(&recipe, t + n, (int)n) : core_raise(state, st, &err);
    }
    PyMem_Free(t);
    return result;
}

static PyObject *fuzz_fill(PyObject *module, PyObject *args)
{
    const core_state *state = PyModule_GetState(module);
    unsigned long long seed, number;
    int i, positive, unit;
    const char *kind_text;
    PyObject *given;
    long long lowest, highest;
    usc_fuzz_tensor t;
    usc_error err = {0};
    if (!PyArg_ParseTuple(args, "KKiOs(ppLL)", &seed, &number, &i, &given, &kind_text,
                          &positive, &unit, &lowest, &highest) ||
        read_tensor(given, &t) < 0)
        return NULL;
    const usc_stress kind = usc_stress_by_text(kind_text);
    if (kind == USC_N_STRESS)
        return PyErr_Format(PyExc_ValueError, "no values of kind '%s'", kind_text);
    if (t.room < 0 || t.room > PY_SSIZE_T_MAX / 16)
        return PyErr_Format(PyExc_ValueError, "room for %lld elements",
                            (long long)t.room);
    const size_t size = (size_t)t.room * usc_dtype_info_of(t.dtype)->size;
    const usc_fuzz_case which = {.seed = seed, .number = number};
    const usc_stress_domain domain = {positive != 0, unit != 0, lowest, highest};
    PyObject *bytes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (bytes == NULL) return NULL;
    char *to = PyByteArray_AS_STRING(bytes);
    usc_status st;
    Py_BEGIN_ALLOW_THREADS st =
        usc_fuzz_fill(&which, i, &t, kind, &domain, to, size, &err);
    Py_END_ALLOW_THREADS if (st == USC_OK) return bytes;
    Py_DECREF(bytes);
    return core_raise(state, st, &err);
}

static PyObject *fuzz_operator(PyObject *module, PyObject *args)
{
    unsigned long long seed, number;
    long long n;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKL", &seed, &number, &n)) return NULL;
    if (n < 1) return PyErr_Format(PyExc_ValueError, "%lld operators", n);
    return PyLong_FromLongLong(usc_fuzz_operator(seed, number, n));
}

static PyObject *fuzz_program(PyObject *module, PyObject *args)
{
    unsigned long long seed, number;
    int attempt;
    usc_fuzz_program p;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKi", &seed, &number, &attempt)) return NULL;
    usc_fuzz_draw_program(&(usc_fuzz_case){seed, number, attempt, false}, &p);
    PyObject *inputs = PyList_New(p.n_inputs);
    for (int i = 0; inputs != NULL && i < p.n_inputs; i++) {
        PyObject *item =
            Py_BuildValue("(Ns)", tensor_of(&p.input[i]), usc_stress_text(p.kind[i]));
        if (item == NULL) Py_CLEAR(inputs);
        if (item != NULL) PyList_SET_ITEM(inputs, i, item);
    }
    return inputs != NULL ? Py_BuildValue("(iiN)", p.n_steps, p.featured, inputs) : NULL;
}

static PyObject *fuzz_step(PyObject *module, PyObject *args)
{
    unsigned long long seed, number;
    int attempt, i_step, trial, n_values;
    long long n_words;
    usc_fuzz_step s;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKiiiiL", &seed, &number, &attempt, &i_step, &trial,
                          &n_values, &n_words))
        return NULL;
    if (i_step < 0 || trial < 0 || trial >= USC_FUZZ_TRIALS || n_values < 1 ||
        n_words < 1)
        return PyErr_Format(PyExc_ValueError,
                            "trial %d of step %d, %d values, %lld words", trial, i_step,
                            n_values, n_words);
    usc_fuzz_draw_step(&(usc_fuzz_case){seed, number, attempt, false}, i_step, trial,
                       n_values, n_words, &s);
    return Py_BuildValue("(L(iii)(LL))", (long long)s.word, s.operand[0], s.operand[1],
                         s.operand[2], (long long)s.number[0], (long long)s.number[1]);
}

static PyMethodDef functions[] = {
    {"fuzz_draw", fuzz_draw, METH_VARARGS,
     "fuzz_draw(seed, case, attempt, stress, tensors) -> (kind, dtype of floats before "
     "and "
     "now,\n{size: new size}, numbers, tensors, (count or 0, which)): see "
     "usc_fuzz_draw."},
    {"fuzz_fill", fuzz_fill, METH_VARARGS,
     "fuzz_fill(seed, case, i, tensor, kind, (positive, unit, lowest, highest)) -> "
     "bytearray:\nsee usc_fuzz_fill."},
    {"fuzz_operator", fuzz_operator, METH_VARARGS,
     "fuzz_operator(seed, case, n) -> int: see usc_fuzz_operator."},
    {"fuzz_program", fuzz_program, METH_VARARGS,
     "fuzz_program(seed, case, attempt) -> (steps, featured step, [(tensor, kind of "
     "values)]):\nsee usc_fuzz_draw_program."},
    {"fuzz_step", fuzz_step, METH_VARARGS,
     "fuzz_step(seed, case, attempt, i_step, trial, n_values, n_words) -> (word, "
     "operands, "
     "numbers):\nsee usc_fuzz_draw_step."},
    {NULL, NULL, 0, NULL},
};

static const core_number numbers[] = {
    {"fuzz_attempts", USC_FUZZ_ATTEMPTS},
    {"fuzz_trials", USC_FUZZ_TRIALS},
    {"fuzz_step_bit", USC_FUZZ_STEP_BIT},
    {"fuzz_steps", USC_FUZZ_STEPS},
    {"fuzz_as_is", USC_FUZZ_AS_IS},
    {"fuzz_listed", USC_FUZZ_LISTED},
    {"fuzz_all_numbers", USC_FUZZ_ALL_NUMBERS},
};

int py_fuzz_add(PyObject *module)
{
    assert(PyModule_Check(module));
    if (core_numbers_add(module, numbers, sizeof numbers / sizeof numbers[0]) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
