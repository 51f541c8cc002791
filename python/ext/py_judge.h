// SPDX-License-Identifier: Apache-2.0
// What a judgement and its worst elements are in Python, for whoever binds something that
// has them.
#ifndef ULPSCOPE_EXT_PY_JUDGE_H
#define ULPSCOPE_EXT_PY_JUDGE_H

#include "core.h"

#include <ulpscope/judge.h>

/** Adds value to dict under key, taking over the reference; -1 with an exception set. */
int py_put(PyObject *dict, const char *key, PyObject *value);

/** All numbers of a judgement by name; NULL with an exception set. */
PyObject *py_judgement(const usc_judgement *j);

/** [(index, device, reference, yardstick, score)]; NULL with an exception set. */
PyObject *py_examples(const usc_example *found, int n);

/** `n_rows` lists of 64 numbers each; NULL with an exception set. */
PyObject *py_slices(const float *shares, int n_rows);

#endif
