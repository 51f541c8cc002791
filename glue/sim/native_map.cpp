// SPDX-License-Identifier: Apache-2.0
// How functions of one number and dropout become kernels of sim/kernels_map.c; and how work on
// many float32 is parted.
#include "native.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <atomic>

namespace usc_sim
{

using at::IValue;
using at::Tensor;
using torch::jit::Stack;
using Results = std::vector<IValue>;

static bool is_narrow(const Tensor &t)
{
    return t.scalar_type() == at::kFloat || t.scalar_type() == at::kHalf ||
           t.scalar_type() == at::kBFloat16;
}

Tensor floats(const Tensor &t)
{
    return is_narrow(t) ? t.to(at::kFloat) : Tensor();
}

bool in_parts(int64_t n, int64_t size, const std::function<bool(int64_t, int64_t)> &work)
{
    std::atomic<bool> fine{true};
    constexpr int64_t part = 32768; // numbers, as torch parts its own work
    const int64_t grain = std::max<int64_t>(part / std::max<int64_t>(size, 1), 1);
    at::parallel_for(0, n, grain, [&](int64_t from, int64_t to) {
        if (!work(from, to)) fine = false;
    });
    return fine;
}

namespace
{

// As it lies in memory, and without holes.
Tensor dense(const Tensor &t, at::ScalarType dtype)
{
    if (t.is_non_overlapping_and_dense()) return t.to(dtype);
    return at::empty_like(t, t.options().dtype(dtype)).copy_(t);
}

Results mapped(const Stack &in, const Choice &c, usc_sim_function function)
{
    const Tensor x = in[0].toTensor();
    if (is_narrow(x)) {
        const Tensor from = dense(x, at::kFloat), out = at::empty_like(from);
        const auto *at = from.const_data_ptr<float>();
        auto *to = out.mutable_data_ptr<float>();
        if (in_parts(from.numel(), 1, [&](int64_t i, int64_t end) {
                return usc_sim_map_floats(&c.numerics, c.dtype, function, at + i,
                                          static_cast<size_t>(end - i), to + i);
            }))
            return {out.to(x.scalar_type())};
    }
    const Tensor from = dense(x, at::kDouble), out = at::empty_like(from);
    usc_sim_map(&c.numerics, c.dtype, function, from.const_data_ptr<double>(),
                static_cast<size_t>(from.numel()), out.mutable_data_ptr<double>());
    return {out.to(x.scalar_type())};
}

template <usc_sim_function function> Results mapped_by(const Stack &in, const Choice &c)
{
    return mapped(in, c, function);
}

// (self, approximate)
Results gelu(const Stack &in, const Choice &c)
{
    return mapped(in, c,
                  in[1].toStringRef() == "tanh" ? USC_SIM_GELU_TANH : USC_SIM_GELU);
}

// ---- dropout

// Of numbers and a mask that lie alike.
Tensor dropped(const Tensor &x, const Tensor &mask, double scale, const Choice &c)
{
    const auto *kept = mask.const_data_ptr<bool>();
    if (is_narrow(x)) {
        const Tensor from = x.to(at::kFloat), out = at::empty_like(from);
        const auto *at = from.const_data_ptr<float>();
        auto *to = out.mutable_data_ptr<float>();
        if (in_parts(from.numel(), 1, [&](int64_t i, int64_t end) {
                return usc_sim_drop_floats(&c.numerics, c.dtype, at + i, kept + i, scale,
                                           static_cast<size_t>(end - i), to + i);
            }))
            return out.to(x.scalar_type());
    }
    const Tensor from = x.to(at::kDouble), out = at::empty_like(from);
    usc_sim_drop(&c.numerics, c.dtype, from.const_data_ptr<double>(), kept, scale,
                 static_cast<size_t>(from.numel()), out.mutable_data_ptr<double>());
    return out.to(x.scalar_type());
}

// (input, p, train?)
Results dropout(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 3);
    const double p = in[1].toDouble(), stay = 1 - p;
    if ((!in[2].isNone() && !in[2].toBool()) || !(p >= 0 && p <= 1)) return {};
    const Tensor given = in[0].toTensor(), x = dense(given, given.scalar_type());
    const Tensor mask = at::empty_like(x, x.options().dtype(at::kBool));
    draw_mask(mask, stay, c.generator);
    return {dropped(x, mask, stay > 0 ? 1 / stay : 0, c), mask};
}

// (grad_output, mask, scale)
Results dropout_backward(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 3);
    const Tensor grad = in[0].toTensor(), mask = in[1].toTensor();
    if (mask.scalar_type() != at::kBool || mask.sizes() != grad.sizes() ||
        !grad.is_contiguous() || !mask.is_contiguous())
        return {};
    return {dropped(grad, mask, in[2].toDouble(), c)};
}

} // namespace

const std::vector<NativeRow> &map_kernels()
{
    static const std::vector<NativeRow> rows = {
        {"aten::exp", mapped_by<USC_SIM_EXP>},
        {"aten::tanh", mapped_by<USC_SIM_TANH>},
        {"aten::sigmoid", mapped_by<USC_SIM_SIGMOID>},
        {"aten::silu", mapped_by<USC_SIM_SILU>},
        {"aten::gelu", gelu},
        {"aten::native_dropout", dropout},
        {"aten::native_dropout_backward", dropout_backward},
    };
    return rows;
}

} // namespace usc_sim
