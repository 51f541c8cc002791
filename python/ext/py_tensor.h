// SPDX-License-Identifier: Apache-2.0
// A torch tensor on the CPU as a usc_tensor, without a copy.
#ifndef ULPSCOPE_EXT_PY_TENSOR_H
#define ULPSCOPE_EXT_PY_TENSOR_H

#include "core.h"

#include <ulpscope/tensor.h>

/** Borrows `tensor`: `*out` is valid while the caller holds it. -1 with an exception
 * set: not on the CPU (ValueError), a dtype that is not in the table (DtypeError). */
int py_tensor_borrow(PyObject *tensor, usc_tensor *out);

/** The same into `room`; `*out` is NULL for NULL and None. */
int py_tensor_borrow_optional(PyObject *tensor, usc_tensor *room, const usc_tensor **out);

#endif
