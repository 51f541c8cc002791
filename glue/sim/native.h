// SPDX-License-Identifier: Apache-2.0
// Kernels of the device's own (ulpscope_sim/numerics.h), for operators whose arithmetic was
// chosen.
#pragma once

#include "sim_glue.h"

#include <ulpscope_sim/numerics.h>

namespace usc_sim
{

// Computes a call of CPU tensors on the stack; false: nothing was chosen for it, or there
// is no kernel for these arguments, and nothing was done.
bool run_native(const c10::OperatorHandle &op, torch::jit::Stack *stack);

// faults.cpp: the library's own name of a dtype; NONE: it has none that fits a double.
usc_dtype dtype_of(c10::ScalarType type);

} // namespace usc_sim
