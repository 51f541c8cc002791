// SPDX-License-Identifier: Apache-2.0
// Cells of LSTM and GRU as one kernel: torch takes them on every device but the CPU,
// whose kernels are of parts. Formulas: executors/formulas/aten.py.
#include "sim_glue.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/stack.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include <cstddef>
#include <vector>

namespace usc_sim
{
namespace
{

using at::Tensor;
using torch::jit::Stack;

Stack taken(Stack *stack, size_t n)
{
    TORCH_INTERNAL_ASSERT(stack->size() >= n);
    Stack last(stack->end() - static_cast<std::ptrdiff_t>(n), stack->end());
    torch::jit::drop(*stack, n);
    return last;
}

Tensor or_none(const c10::IValue &v)
{
    return v.isTensor() ? v.toTensor() : Tensor();
}

Tensor with_bias(const Tensor &gates, const Tensor &bias)
{
    return bias.defined() ? gates + bias : gates;
}

// (input_gates, hidden_gates, cx, input_bias?, hidden_bias?) -> hy, cy, activated gates
void lstm(Stack *stack)
{
    const Stack in = taken(stack, 5);
    const Tensor sum = with_bias(in[0].toTensor(), or_none(in[3])) +
                       with_bias(in[1].toTensor(), or_none(in[4]));
    const std::vector<Tensor> parts = sum.chunk(4, 1);
    const Tensor i = parts[0].sigmoid(), f = parts[1].sigmoid(), g = parts[2].tanh(),
                 o = parts[3].sigmoid();
    const Tensor cy = f * in[2].toTensor() + i * g;
    torch::jit::push(stack, o * cy.tanh(), cy, at::cat({i, f, g, o}, 1));
}

// (grad_hy?, grad_cy?, cx, cy, activated gates, has_bias) -> of gates, of cx, of the bias
void lstm_backward(Stack *stack)
{
    const Stack in = taken(stack, 6);
    const Tensor cy = in[3].toTensor(), bent = cy.tanh(), grad_cy = or_none(in[1]);
    const Tensor given = or_none(in[0]),
                 hy = given.defined() ? given : at::zeros_like(cy);
    const std::vector<Tensor> parts = in[4].toTensor().chunk(4, 1);
    const Tensor &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3];
    const Tensor cell = with_bias(hy * o * (1 - bent * bent), grad_cy);
    const Tensor gates =
        at::cat({cell * g * i * (1 - i), cell * in[2].toTensor() * f * (1 - f),
                 cell * i * (1 - g * g), hy * bent * o * (1 - o)},
                1);
    torch::jit::push(stack, gates, cell * f, in[5].toBool() ? gates.sum(0) : Tensor());
}

// (input_gates, hidden_gates, hx, input_bias?, hidden_bias?) -> hy, what the gradient
// needs
void gru(Stack *stack)
{
    const Stack in = taken(stack, 5);
    const Tensor hx = in[2].toTensor();
    const auto x = with_bias(in[0].toTensor(), or_none(in[3])).chunk(3, 1);
    const auto h = with_bias(in[1].toTensor(), or_none(in[4])).chunk(3, 1);
    const Tensor r = (x[0] + h[0]).sigmoid(), z = (x[1] + h[1]).sigmoid();
    const Tensor n = (x[2] + r * h[2]).tanh();
    torch::jit::push(stack, n + z * (hx - n), at::cat({r, z, n, hx, h[2]}, 1));
}

// (grad_hy, workspace, has_bias) -> of input gates, hidden gates, hx and both biases
void gru_backward(Stack *stack)
{
    const Stack in = taken(stack, 3);
    const Tensor hy = in[0].toTensor();
    const std::vector<Tensor> parts = in[1].toTensor().chunk(5, 1);
    const Tensor &r = parts[0], &z = parts[1], &n = parts[2], &hx = parts[3],
                 &h = parts[4];
    const Tensor of_n = hy * (1 - z) * (1 - n * n), of_z = hy * (hx - n) * z * (1 - z);
    const Tensor of_r = of_n * h * r * (1 - r);
    const Tensor gates = at::cat({of_r, of_z, of_n}, 1);
    const Tensor hidden = at::cat({of_r, of_z, of_n * r}, 1);
    const bool has_bias = in[2].toBool();
    torch::jit::push(stack, gates, hidden, hy * z, has_bias ? gates.sum(0) : Tensor(),
                     has_bias ? hidden.sum(0) : Tensor());
}

const struct {
    const char *op; // ns::name
    Kernel kernel;
} CELLS[] = {
    {"aten::_thnn_fused_lstm_cell", lstm},
    {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_backward},
    {"aten::_thnn_fused_gru_cell", gru},
    {"aten::_thnn_fused_gru_cell_backward", gru_backward},
};

} // namespace

Kernel cell_kernel(const c10::OperatorHandle &op)
{
    if (op.operator_name().name.compare(0, 11, "aten::_thnn") != 0) return nullptr;
    for (const auto &row : CELLS)
        if (full_name(op) == row.op) return row.kernel;
    return nullptr;
}

} // namespace usc_sim
