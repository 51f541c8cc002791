// SPDX-License-Identifier: Apache-2.0
// How convolution, running sums, losses and what is added up by index become kernels of
// sim/kernels.c, sim/rows.c and sim/kernels_index.c.
#include "native.h"

#include <ATen/ops/empty.h>
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
    const int64_t dim = in[1].toInt(), axis = dim < 0 ? dim + x.dim() : dim;
    if (x.dim() == 0 || (!in[2].isNone() && in[2].toScalarType() != x.scalar_type()))
        return {};
    if (const Tensor narrow = floats(x); narrow.defined() && x.numel() > 0) {
        const Tensor from = narrow.contiguous();
        const Tensor out = at::empty(x.sizes(), from.options());
        const int64_t count = x.size(axis), width = from.stride(axis);
        const auto *at = from.const_data_ptr<float>();
        auto *to = out.mutable_data_ptr<float>();
        const int64_t size = count * width;
        if (in_parts(x.numel() / size, size, [&](int64_t i, int64_t end) {
                return usc_sim_running_sums(&c.numerics, c.dtype, at + i * size,
                                            static_cast<size_t>(end - i),
                                            static_cast<size_t>(count),
                                            static_cast<size_t>(width), to + i * size);
            }))
            return {out.to(x.scalar_type())};
    }
    return {along(x, axis, c, usc_sim_running_sum)};
}

// (self, dim, half_to_float)
Results log_softmax(const Stack &in, const Choice &c)
{
    const Tensor x = in[0].toTensor();
    if (x.dim() == 0 || in[2].toBool()) return {};
    const int64_t axis = in[1].toInt();
    if (const Tensor narrow = floats(x); narrow.defined() && x.numel() > 0) {
        const Tensor from = narrow.transpose(axis, -1).contiguous();
        const Tensor out = at::empty(from.sizes(), from.options());
        const int64_t count = from.size(-1);
        const auto *at = from.const_data_ptr<float>();
        auto *to = out.mutable_data_ptr<float>();
        if (in_parts(x.numel() / count, count, [&](int64_t i, int64_t end) {
                return usc_sim_log_softmax_rows(
                    &c.numerics, c.dtype, at + i * count, static_cast<size_t>(end - i),
                    static_cast<size_t>(count), to + i * count);
            }))
            return {out.transpose(axis, -1).to(x.scalar_type()).contiguous()};
    }
    return {along(x, axis, c, usc_sim_log_softmax)};
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

// The same of float32 in `out`; false: not in this arithmetic, and `out` is to be made anew.
bool fast_add_rows(const Choice &c, const Tensor &index, const Tensor &more,
                   const Tensor &out, bool with_own)
{
    const usc_sim_added added = {
        index.const_data_ptr<int64_t>(),  static_cast<size_t>(index.numel()),
        more.const_data_ptr<float>(),     static_cast<size_t>(out.size(1)),
        static_cast<size_t>(out.size(0)), with_own};
    return usc_sim_add_rows(&c.numerics, c.dtype, &added, out.mutable_data_ptr<float>());
}

// (grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
Results embedding_backward(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 5);
    const Tensor grad = in[0].toTensor();
    if (in[4].toBool() || grad.dim() == 0 || grad.numel() == 0) return {};
    const Tensor index = in[1].toTensor().to(at::kLong).contiguous().view({-1}).clone();
    const int64_t padding = in[3].toInt(), n = grad.size(-1);
    auto *its = index.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < index.numel(); i++)
        if (its[i] == padding) its[i] = -1;
    const auto made = [&](at::ScalarType dtype) {
        return at::zeros({in[2].toInt(), n}, at::TensorOptions().dtype(dtype));
    };
    if (const Tensor narrow = floats(grad); narrow.defined()) {
        const Tensor out = made(at::kFloat);
        if (fast_add_rows(c, index, narrow.contiguous(), out, false))
            return {out.to(grad.scalar_type())};
    }
    const Tensor out = made(at::kDouble);
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
    const Tensor turned = x.transpose(0, axis), from = more.transpose(0, axis);
    const Tensor index = in[2].toTensor().to(at::kLong).contiguous().view({-1});
    for (int64_t i = 0; i < index.numel(); i++) {
        const int64_t its = index.const_data_ptr<int64_t>()[i];
        if (its < 0 || its >= turned.size(0)) return {}; // the CPU has the sentence
    }
    if (index.numel() != from.size(0) || turned[0].sizes() != from[0].sizes()) return {};
    const auto back = [&](const Tensor &t) {
        return t.view(turned.sizes()).transpose(0, axis).to(x.scalar_type()).contiguous();
    };
    const auto rows = [](const Tensor &t, at::ScalarType dtype) {
        return t.to(dtype).contiguous().view({t.size(0), -1});
    };
    if (floats(x).defined()) {
        const Tensor out = rows(turned, at::kFloat).clone();
        if (fast_add_rows(c, index, rows(from, at::kFloat), out, true))
            return {back(out)};
    }
    const Tensor out = rows(turned, at::kDouble).clone();
    add_rows(c, index, rows(from, at::kDouble), out, true);
    return {back(out)};
}

// ---- losses

// (self, target, weight?, reduction, ignore_index)
Results nll_loss(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 5);
    const Tensor x = in[0].toTensor(), target = in[1].toTensor();
    if (x.dim() != 2 || target.dim() != 1 || target.scalar_type() != at::kLong) return {};
    const Tensor which = target.contiguous();
    const Tensor its = maybe(in[2]), weight = its.defined() ? doubles(its) : its;
    const int64_t n = x.size(0), reduction = in[3].toInt();
    const Tensor losses = room({n}), weights = room({n}), taken = room({n});
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = which.const_data_ptr<int64_t>()[i];
        if (t != in[4].toInt() && (t < 0 || t >= x.size(1)))
            return {}; // the CPU's sentence
    }
    if (n > 0 && x.size(1) > 0)
        taken.copy_(x.gather(1, which.clamp(0, x.size(1) - 1).unsqueeze(1)).squeeze(1));
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = which.const_data_ptr<int64_t>()[i];
        const bool ignored = t == in[4].toInt();
        const double w = ignored            ? 0
                         : weight.defined() ? weight.const_data_ptr<double>()[t]
                                            : 1;
        weights.mutable_data_ptr<double>()[i] = w;
        losses.mutable_data_ptr<double>()[i] =
            ignored ? 0
                    : usc_sim_round_sum(&c.numerics, c.dtype,
                                        -taken.const_data_ptr<double>()[i] * w);
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
        {"aten::embedding_dense_backward", embedding_backward},
        {"aten::index_add", index_add},
        {"aten::nll_loss_forward", nll_loss},
    };
    return rows;
}

} // namespace usc_sim
