// SPDX-License-Identifier: Apache-2.0
// How fused optimizers become steps of sim/kernels_step.c.
#include "native.h"

#include <optional>

namespace usc_sim
{
namespace
{

using at::IValue;
using at::Tensor;
using torch::jit::Stack;
using Results = std::vector<IValue>;

// The i-th of each list in doubles; put back where it was written.
struct Written {
    Tensor to, wide;
    explicit Written(const Tensor &t)
        : to(t), wide(t.to(at::kDouble).contiguous().clone())
    {
    }
    double *at() const
    {
        return wide.mutable_data_ptr<double>();
    }
    void put_back() const
    {
        to.copy_(wide);
    }
};

bool alike(const std::vector<Tensor> &list, at::ScalarType dtype)
{
    for (const Tensor &t : list)
        if (t.scalar_type() != dtype) return false;
    return true;
}

bool is_plain(const Tensor &t)
{
    return t.scalar_type() == at::kFloat && t.is_contiguous();
}

float *floats_of(const Tensor &t)
{
    return t.mutable_data_ptr<float>();
}

// In place, where all lie alike; false: not in this arithmetic, and nothing was done.
bool fast_adam(const Choice &c, const usc_sim_step &step, const Tensor &grad,
               const std::vector<Tensor> &states)
{
    for (const Tensor &t : states)
        if (!is_plain(t)) return false;
    if (!is_plain(grad)) return false;
    const auto *g = grad.const_data_ptr<float>();
    float *param = floats_of(states.at(0)), *mean = floats_of(states.at(1)),
          *square = floats_of(states.at(2)),
          *most = states.size() > 3 ? floats_of(states.at(3)) : nullptr;
    return in_parts(grad.numel(), 1, [&](int64_t i, int64_t end) {
        return usc_sim_adam_floats(&c.numerics, c.dtype, &step, g + i,
                                   static_cast<size_t>(end - i), param + i, mean + i,
                                   square + i, most != nullptr ? most + i : nullptr);
    });
}

bool fast_sgd(const Choice &c, const usc_sim_step &step, const Tensor &grad,
              const Tensor &param, const Tensor &momentum)
{
    const bool has_momentum = momentum.defined();
    if (!is_plain(grad) || !is_plain(param) || (has_momentum && !is_plain(momentum)))
        return false;
    const auto *g = grad.const_data_ptr<float>();
    float *to = floats_of(param), *kept = has_momentum ? floats_of(momentum) : nullptr;
    return in_parts(grad.numel(), 1, [&](int64_t i, int64_t end) {
        return usc_sim_sgd_floats(&c.numerics, c.dtype, &step, g + i,
                                  static_cast<size_t>(end - i), to + i,
                                  has_momentum ? kept + i : nullptr);
    });
}

// Done, and nothing is returned.
Results done()
{
    return {IValue()};
}

// (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2,
// weight_decay, eps, amsgrad, maximize, grad_scale?, found_inf?)
Results adam(const Stack &in, const Choice &c, bool decoupled)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 15);
    const auto params = in[0].toTensorVector(), grads = in[1].toTensorVector(),
               means = in[2].toTensorVector(), squares = in[3].toTensorVector(),
               most = in[4].toTensorVector(), steps = in[5].toTensorVector();
    const at::ScalarType dtype = params.at(0).scalar_type();
    if (!in[13].isNone() || !in[14].isNone() || !alike(params, dtype) ||
        !alike(grads, dtype) || !alike(means, dtype) || !alike(squares, dtype))
        return {};
    usc_sim_step step{};
    step.lr = in[6].toDouble();
    step.beta1 = in[7].toDouble();
    step.beta2 = in[8].toDouble();
    step.weight_decay = in[9].toDouble();
    step.epsilon = in[10].toDouble();
    step.maximize = in[12].toBool();
    step.decoupled = decoupled;
    for (size_t i = 0; i < params.size(); i++) {
        step.n_steps = steps.at(i).item<double>();
        std::vector<Tensor> states{params[i], means.at(i), squares.at(i)};
        if (in[11].toBool()) states.push_back(most.at(i));
        if (fast_adam(c, step, grads.at(i), states)) continue;
        const Written param(params[i]), mean(means.at(i)), square(squares.at(i));
        const Written grad(grads.at(i));
        std::optional<Written> largest;
        if (in[11].toBool()) largest.emplace(most.at(i));
        usc_sim_adam(&c.numerics, c.dtype, &step, grad.at(),
                     static_cast<size_t>(param.wide.numel()), param.at(), mean.at(),
                     square.at(), largest ? largest->at() : nullptr);
        param.put_back();
        mean.put_back();
        square.put_back();
        if (largest) largest->put_back();
    }
    return done();
}

Results adam_plain(const Stack &in, const Choice &c)
{
    return adam(in, c, false);
}

Results adam_decoupled(const Stack &in, const Choice &c)
{
    return adam(in, c, true);
}

// (self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov,
// maximize, is_first_step, grad_scale?, found_inf?)
Results sgd(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 12);
    const auto params = in[0].toTensorVector(), grads = in[1].toTensorVector(),
               buffers = in[2].toTensorVector();
    const at::ScalarType dtype = params.at(0).scalar_type();
    if (!in[10].isNone() || !in[11].isNone() || !alike(params, dtype) ||
        !alike(grads, dtype) || !alike(buffers, dtype))
        return {};
    usc_sim_step step{};
    step.weight_decay = in[3].toDouble();
    step.momentum = in[4].toDouble();
    step.lr = in[5].toDouble();
    step.dampening = in[6].toDouble();
    step.nesterov = in[7].toBool();
    step.maximize = in[8].toBool();
    step.first = in[9].toBool();
    for (size_t i = 0; i < params.size(); i++) {
        const bool moves = step.momentum > 0;
        if (fast_sgd(c, step, grads.at(i), params[i], moves ? buffers.at(i) : Tensor()))
            continue;
        const Written param(params[i]), grad(grads.at(i));
        std::optional<Written> buffer;
        if (moves) buffer.emplace(buffers.at(i));
        usc_sim_sgd(&c.numerics, c.dtype, &step, grad.at(),
                    static_cast<size_t>(param.wide.numel()), param.at(),
                    buffer ? buffer->at() : nullptr);
        param.put_back();
        if (buffer) buffer->put_back();
    }
    return done();
}

} // namespace

const std::vector<NativeRow> &step_kernels()
{
    static const std::vector<NativeRow> rows = {
        {"aten::_fused_adam_", adam_plain},
        {"aten::_fused_adamw_", adam_decoupled},
        {"aten::_fused_sgd_", sgd},
    };
    return rows;
}

} // namespace usc_sim
