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
        const Written param(params[i]), mean(means.at(i)), square(squares.at(i));
        const Written grad(grads.at(i));
        std::optional<Written> largest;
        if (in[11].toBool()) largest.emplace(most.at(i));
        step.n_steps = steps.at(i).item<double>();
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
        const Written param(params[i]), grad(grads.at(i));
        std::optional<Written> buffer;
        if (step.momentum > 0) buffer.emplace(buffers.at(i));
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
