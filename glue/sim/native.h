// SPDX-License-Identifier: Apache-2.0
// Kernels of the device's own (ulpscope_sim/numerics.h), for operators whose arithmetic was
// chosen, or broken by a fault: native.cpp products, sums and softmax, native_norm.cpp norms,
// native_attention.cpp attention, native_more.cpp what reads or writes by index, convolution,
// running sums, activations and losses, native_step.cpp fused optimizers.
#pragma once

#include "sim_glue.h"

namespace usc_sim
{

struct Choice {
    const usc_sim_numerics &numerics;
    usc_dtype dtype; // of the operands
};

// A kernel of several results: of the arguments of an operator; none: not for these. One of
// an operator that returns nothing gives a None.
struct NativeRow {
    const char *op; // ns::name.overload
    std::vector<c10::IValue> (*kernel)(const torch::jit::Stack &in, const Choice &choice);
};
const std::vector<NativeRow> &norm_kernels();
const std::vector<NativeRow> &attention_kernels();
const std::vector<NativeRow> &other_kernels();
const std::vector<NativeRow> &step_kernels();
// native.cpp: factors of (b, m, k) and (b, k, n), rounded as chosen, and their products.
at::Tensor products(const at::Tensor &a, const at::Tensor &b, const Choice &c);
void register_attention();

// Computes a call of CPU tensors on the stack; false: nothing was chosen or planted for it,
// or there is no kernel for these arguments, and nothing was done.
bool run_native(const c10::OperatorHandle &op, torch::jit::Stack *stack, Faults &faults);

// faults.cpp: the library's own name of a dtype; NONE: it has none that fits a double.
usc_dtype dtype_of(c10::ScalarType type);

} // namespace usc_sim
