// SPDX-License-Identifier: Apache-2.0
// How convolution, running sums, activations, losses and what is added up by index become
// kernels of sim/kernels.c and sim/kernels_map.c.
#include "native.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/zeros.h>

namespace usc_sim
{
namespace
{

using at::IValue;
using at::Tensor;
using torch::jit::Stack;
using Results = std::vector<IValue>;

Tensor doubles(const Tensor &t)
{
    return t.to(at::kDouble).contiguous();
}

Tensor room(at::IntArrayRef sizes)
{
    return at::empty(sizes, at::TensorOptions().dtype(at::kDouble));
}

// A tensor that may be missing, as None or as one that is undefined.
Tensor maybe(const IValue &v)
{
    return v.isNone() ? Tensor() : v.toTensor();
}

// ---- convolution: products of weights and what each place of the output sees

// (input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups)
Results convolution(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 9);
    const Tensor x = in[0].toTensor(), w = in[1].toTensor();
    if (x.dim() != 4 || w.dim() != 4 || in[6].toBool() || x.numel() == 0 ||
        w.numel() == 0 || w.scalar_type() != x.scalar_type())
        return {};
    const auto stride = in[3].toIntVector(), padding = in[4].toIntVector(),
               dilation = in[5].toIntVector();
    if (stride.size() != 2 || padding.size() != 2 || dilation.size() != 2) return {};
    const int64_t groups = in[8].toInt(), depth = w.size(1) * w.size(2) * w.size(3);
    int64_t out_size[2];
    for (int i = 0; i < 2; i++)
        out_size[i] =
            (x.size(2 + i) + 2 * padding[i] - dilation[i] * (w.size(2 + i) - 1) - 1) /
                stride[i] +
            1;
    const int64_t n_places = out_size[0] * out_size[1];
    const Tensor seen = at::im2col(x, {w.size(2), w.size(3)}, dilation, padding, stride)
                            .view({x.size(0), groups, depth, n_places});
    const Tensor rows = w.reshape({groups, w.size(0) / groups, depth});
    Tensor out = room({x.size(0), groups, w.size(0) / groups, n_places});
    for (int64_t i = 0; i < x.size(0); i++)
        out.select(0, i).copy_(products(rows, seen.select(0, i), c));
    out = out.view({x.size(0), w.size(0), out_size[0], out_size[1]});
    if (const Tensor given = maybe(in[2]); given.defined()) {
        const Tensor bias = doubles(given.view({1, -1, 1, 1}).expand(out.sizes()));
        usc_sim_add_self(&c.numerics, c.dtype, 1, 1, bias.const_data_ptr<double>(),
                         static_cast<size_t>(out.numel()),
                         out.mutable_data_ptr<double>());
    }
    return {out.to(x.scalar_type()).contiguous(x.suggest_memory_format())};
}

// ---- row by row

using RowKernel = void (*)(const usc_sim_numerics *, usc_dtype, const double *, size_t,
                           double *);

Tensor along(const Tensor &x, int64_t axis, const Choice &c, RowKernel kernel)
{
    const Tensor rows = doubles(x.transpose(axis, -1)), out = room(rows.sizes());
    const int64_t count = rows.size(-1);
    for (int64_t i = 0; count > 0 && i < rows.numel() / count; i++)
        kernel(&c.numerics, c.dtype, rows.const_data_ptr<double>() + i * count,
               static_cast<size_t>(count), out.mutable_data_ptr<double>() + i * count);
    return out.transpose(axis, -1).to(x.scalar_type()).contiguous();
}

// (self, dim, dtype?)
Results cumsum(const Stack &in, const Choice &c)
{
    const Tensor x = in[0].toTensor();
    if (x.dim() == 0 || (!in[2].isNone() && in[2].toScalarType() != x.scalar_type()))
        return {};
    return {along(x, in[1].toInt(), c, usc_sim_running_sum)};
}

// (self, dim, half_to_float)
Results log_softmax(const Stack &in, const Choice &c)
{
    const Tensor x = in[0].toTensor();
    if (x.dim() == 0 || in[2].toBool()) return {};
    return {along(x, in[1].toInt(), c, usc_sim_log_softmax)};
}

// ---- element by element

Results mapped(const Stack &in, const Choice &c, usc_sim_function function)
{
    const Tensor x = in[0].toTensor(), from = x.to(at::kDouble),
                 out = at::empty_like(from);
    if (!from.is_non_overlapping_and_dense()) return {};
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

// ---- by index

// Row index[i] gets row i of `more` (rows of n numbers), in the order of i as the chosen one
// has it; rows of `out` that nothing is added to stay.
void add_rows(const Choice &c, const Tensor &index, const Tensor &more, const Tensor &out,
              bool with_own)
{
    const int64_t n = out.size(1);
    std::vector<std::vector<int64_t>> whose(static_cast<size_t>(out.size(0)));
    for (int64_t i = 0; i < index.numel(); i++) {
        const int64_t row = index.const_data_ptr<int64_t>()[i];
        if (row >= 0 && row < out.size(0)) whose[static_cast<size_t>(row)].push_back(i);
    }
    std::vector<double> terms;
    for (int64_t row = 0; row < out.size(0); row++) {
        const auto &its = whose[static_cast<size_t>(row)];
        double *to = out.mutable_data_ptr<double>() + row * n;
        for (int64_t j = 0; !its.empty() && j < n; j++) {
            terms.clear();
            if (with_own) terms.push_back(to[j]);
            for (const int64_t i : its)
                terms.push_back(more.const_data_ptr<double>()[i * n + j]);
            to[j] =
                usc_sim_sum(&c.numerics, c.dtype, terms.data(), nullptr, terms.size());
        }
    }
}

// (grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
Results embedding_backward(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 5);
    const Tensor grad = in[0].toTensor();
    if (in[4].toBool() || grad.dim() == 0 || grad.numel() == 0) return {};
    const Tensor index = in[1].toTensor().to(at::kLong).contiguous().view({-1}).clone();
    const int64_t padding = in[3].toInt(), n = grad.size(-1);
    for (int64_t i = 0; i < index.numel(); i++) {
        int64_t &its = index.mutable_data_ptr<int64_t>()[i];
        if (its == padding) its = -1;
    }
    const Tensor out =
        at::zeros({in[2].toInt(), n}, at::TensorOptions().dtype(at::kDouble));
    add_rows(c, index, doubles(grad).view({-1, n}), out, false);
    return {out.to(grad.scalar_type())};
}

// (self, dim, index, source, alpha)
Results index_add(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 5);
    const Tensor x = in[0].toTensor(), more = in[3].toTensor();
    const double alpha = in[4].toScalar().toDouble();
    if (alpha < 1 || alpha > 1 || x.dim() == 0 || x.dim() != more.dim() ||
        x.numel() == 0 || more.numel() == 0 || more.scalar_type() != x.scalar_type())
        return {};
    const int64_t axis = in[1].toInt();
    const Tensor turned = doubles(x.transpose(0, axis)).clone(),
                 from = doubles(more.transpose(0, axis));
    const Tensor index = in[2].toTensor().to(at::kLong).contiguous().view({-1});
    for (int64_t i = 0; i < index.numel(); i++) {
        const int64_t its = index.const_data_ptr<int64_t>()[i];
        if (its < 0 || its >= turned.size(0)) return {}; // the CPU has the sentence
    }
    if (index.numel() != from.size(0) || turned[0].sizes() != from[0].sizes()) return {};
    add_rows(c, index, from.view({from.size(0), -1}), turned.view({turned.size(0), -1}),
             true);
    return {turned.transpose(0, axis).to(x.scalar_type()).contiguous()};
}

// ---- losses

// (self, target, weight?, reduction, ignore_index)
Results nll_loss(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 5);
    const Tensor x = in[0].toTensor(), target = in[1].toTensor();
    if (x.dim() != 2 || target.dim() != 1 || target.scalar_type() != at::kLong) return {};
    const Tensor rows = doubles(x), which = target.contiguous();
    const Tensor its = maybe(in[2]), weight = its.defined() ? doubles(its) : its;
    const int64_t n = x.size(0), reduction = in[3].toInt();
    const Tensor losses = room({n}), weights = room({n});
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = which.const_data_ptr<int64_t>()[i];
        const bool ignored = t == in[4].toInt();
        if (!ignored && (t < 0 || t >= x.size(1))) return {}; // the CPU has the sentence
        const double w = ignored            ? 0
                         : weight.defined() ? weight.const_data_ptr<double>()[t]
                                            : 1;
        weights.mutable_data_ptr<double>()[i] = w;
        losses.mutable_data_ptr<double>()[i] =
            ignored
                ? 0
                : usc_sim_round_sum(&c.numerics, c.dtype, -rows[i][t].item<double>() * w);
    }
    const auto whole = [&](const Tensor &t) {
        const double sum = usc_sim_sum(&c.numerics, c.dtype, t.const_data_ptr<double>(),
                                       nullptr, static_cast<size_t>(n));
        return at::zeros({}, t.options()).fill_(sum);
    };
    const Tensor total = whole(weights);
    if (reduction == 0) return {losses.to(x.scalar_type()), at::zeros({}, x.options())};
    Tensor loss = whole(losses);
    if (reduction == 1) {
        loss.div_(total);
        loss.fill_(usc_sim_round_sum(&c.numerics, c.dtype, loss.item<double>()));
    }
    return {loss.to(x.scalar_type()), total.to(x.scalar_type())};
}

} // namespace

const std::vector<NativeRow> &other_kernels()
{
    static const std::vector<NativeRow> rows = {
        {"aten::convolution", convolution},
        {"aten::cumsum", cumsum},
        {"aten::_log_softmax", log_softmax},
        {"aten::exp", mapped_by<USC_SIM_EXP>},
        {"aten::tanh", mapped_by<USC_SIM_TANH>},
        {"aten::sigmoid", mapped_by<USC_SIM_SIGMOID>},
        {"aten::silu", mapped_by<USC_SIM_SILU>},
        {"aten::gelu", gelu},
        {"aten::embedding_dense_backward", embedding_backward},
        {"aten::index_add", index_add},
        {"aten::nll_loss_forward", nll_loss},
    };
    return rows;
}

} // namespace usc_sim
