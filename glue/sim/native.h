// SPDX-License-Identifier: Apache-2.0
// Kernels of the device's own (ulpscope_sim/numerics.h), for operators whose arithmetic was
// chosen, or broken by a fault: native.cpp products, sums and softmax, native_norm.cpp norms,
// native_attention.cpp attention, native_more.cpp what reads or writes by index, convolution,
// running sums and losses, native_map.cpp functions of one number and dropout, native_step.cpp
// fused optimizers.
#pragma once

#include "sim_glue.h"

#include <functional>

namespace usc_sim
{

struct Choice {
    const usc_sim_numerics &numerics;
    usc_dtype dtype;         // of the operands
    at::Generator generator; // the device's, of an operator that draws; else undefined
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
const std::vector<NativeRow> &map_kernels();
const std::vector<NativeRow> &step_kernels();
// native.cpp: factors of (b, m, k) and (b, k, n), rounded as chosen, and their products.
at::Tensor products(const at::Tensor &a, const at::Tensor &b, const Choice &c);
void register_attention();

// Computes a call of CPU tensors on the stack; false: nothing was chosen or planted for it,
// or there is no kernel for these arguments, and nothing was done.
bool run_native(const c10::OperatorHandle &op, torch::jit::Stack *stack, Faults &faults,
                const at::Generator &generator);

// native_map.cpp: what kernels of many float32 take; undefined: float32 has not all of them.
at::Tensor floats(const at::Tensor &t);
// Calls work(from, to) for parts of n rows of `size` numbers, by as many threads as torch's
// own kernels; false: one of the calls returned that.
bool in_parts(int64_t n, int64_t size, const std::function<bool(int64_t, int64_t)> &work);

// random.cpp: fills a mask of the CPU by the stream of the device's generator.
void draw_mask(const at::Tensor &mask, double p, const at::Generator &generator);

// faults.cpp: the library's own name of a dtype; NONE: it has none that fits a double.
usc_dtype dtype_of(c10::ScalarType type);

} // namespace usc_sim
