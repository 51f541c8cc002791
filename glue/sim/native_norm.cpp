// SPDX-License-Identifier: Apache-2.0
// How norms of torch become rows of sim/kernels_norm.c. rms_norm has no operator of its own
// on a device like this one: its parts are computed, the mean of squares by native.cpp.
#include "native.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace usc_sim
{
namespace
{

using at::IValue;
using at::Tensor;
using torch::jit::Stack;

Tensor doubles(const Tensor &t)
{
    return t.to(at::kDouble).contiguous();
}

Tensor room(at::IntArrayRef sizes)
{
    return at::empty(sizes, at::TensorOptions().dtype(at::kDouble));
}

// A tensor that may be missing.
Tensor maybe(const IValue &v)
{
    return v.isNone() ? Tensor() : v.toTensor();
}

Tensor maybe_doubles(const IValue &v)
{
    const Tensor t = maybe(v);
    return t.defined() ? doubles(t) : t;
}

const double *at_or_null(const Tensor &t)
{
    return t.defined() ? t.const_data_ptr<double>() : nullptr;
}

struct Stats {
    Tensor mean, variance, scale;
};

// n_rows rows of n; weight and bias of row i begin at i * step.
Stats norm_rows(const Choice &c, usc_sim_norm norm, int64_t n_rows, int64_t step,
                const Tensor &out)
{
    Stats s{room({n_rows}), room({n_rows}), room({n_rows})};
    const usc_sim_norm first = norm;
    for (int64_t i = 0; i < n_rows; i++) {
        norm.x = first.x + i * static_cast<int64_t>(norm.n);
        if (first.weight != nullptr) norm.weight = first.weight + i % step;
        if (first.bias != nullptr) norm.bias = first.bias + i % step;
        usc_sim_norm_row(
            &c.numerics, c.dtype, &norm, s.mean.mutable_data_ptr<double>() + i,
            s.variance.mutable_data_ptr<double>() + i,
            s.scale.mutable_data_ptr<double>() + i,
            out.mutable_data_ptr<double>() + i * static_cast<int64_t>(norm.n));
    }
    return s;
}

bool are_floats(std::initializer_list<Tensor> tensors)
{
    return std::all_of(tensors.begin(), tensors.end(), [](const Tensor &t) {
        return !t.defined() || t.scalar_type() == at::kFloat;
    });
}

const float *floats_of(const Tensor &t)
{
    return t.defined() ? t.const_data_ptr<float>() : nullptr;
}

// Rows of float32, all at once; false: not in this arithmetic.
bool fast_rows(const Choice &c, const Tensor &x, const Tensor &w, const Tensor &b,
               usc_sim_norms norms, Stats &s, Tensor &out)
{
    if (!are_floats({x, w, b})) return false;
    const Tensor rows = x.contiguous(), weight = w.defined() ? w.contiguous() : w,
                 bias = b.defined() ? b.contiguous() : b;
    const auto made = [&](at::IntArrayRef sizes) {
        return at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
    };
    const auto n_rows = static_cast<int64_t>(norms.n_rows);
    s = {made({n_rows}), made({n_rows}), made({n_rows})};
    out = made(x.sizes());
    norms.x = floats_of(rows);
    norms.weight = floats_of(weight);
    norms.bias = floats_of(bias);
    return usc_sim_norm_rows(
        &c.numerics, c.dtype, &norms, s.mean.mutable_data_ptr<float>(),
        s.variance.mutable_data_ptr<float>(), s.scale.mutable_data_ptr<float>(),
        out.mutable_data_ptr<float>());
}

// The same of means and scales that are known, of rows that lie one behind the other.
bool fast_applied(const Choice &c, const Tensor &rows, const Tensor &w, const Tensor &b,
                  usc_sim_norms norms, const Stats &s, Tensor &out)
{
    if (!are_floats({rows, w, b}) || !usc_sim_keeps_float32(&c.numerics, c.dtype))
        return false;
    const Tensor weight = w.defined() ? w.contiguous() : w,
                 bias = b.defined() ? b.contiguous() : b;
    out = at::empty(rows.sizes(), rows.options());
    norms.x = floats_of(rows);
    norms.weight = floats_of(weight);
    norms.bias = floats_of(bias);
    usc_sim_norm_apply_rows(&norms, floats_of(s.mean), floats_of(s.scale),
                            out.mutable_data_ptr<float>());
    return true;
}

// Of what is kept of a row: float32 where narrow inputs have wide weights.
at::ScalarType stats_dtype(const Tensor &x, const Tensor &weight)
{
    return weight.defined() ? weight.scalar_type() : x.scalar_type();
}

int64_t inner_of(const Tensor &x, size_t n_axes)
{
    int64_t n = 1;
    for (size_t i = 0; i < n_axes; i++)
        n *= x.size(x.dim() - 1 - static_cast<int64_t>(i));
    return n;
}

std::vector<int64_t> stats_shape(const Tensor &x, size_t n_axes)
{
    std::vector<int64_t> shape = x.sizes().vec();
    std::fill(shape.end() - static_cast<std::ptrdiff_t>(n_axes), shape.end(), 1);
    return shape;
}

// (input, normalized_shape, weight?, bias?, eps)
std::vector<IValue> layer_norm(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 5);
    const Tensor x = in[0].toTensor();
    const size_t n_axes = in[1].toIntVector().size();
    const int64_t n = inner_of(x, n_axes);
    if (x.numel() == 0) return {};
    const auto n_rows = static_cast<size_t>(x.numel() / n);
    Stats fast;
    if (Tensor made; fast_rows(c, x, maybe(in[2]), maybe(in[3]),
                               {nullptr, nullptr, nullptr, n_rows, static_cast<size_t>(n),
                                1, 1, in[4].toDouble(), true},
                               fast, made))
        return {made, fast.mean.view(stats_shape(x, n_axes)),
                fast.scale.view(stats_shape(x, n_axes))};
    const Tensor w = maybe_doubles(in[2]), b = maybe_doubles(in[3]);
    const Tensor rows = doubles(x), out = room(x.sizes());
    const usc_sim_norm norm = {rows.const_data_ptr<double>(),
                               at_or_null(w),
                               at_or_null(b),
                               static_cast<size_t>(n),
                               1,
                               in[4].toDouble(),
                               true};
    const Stats s = norm_rows(c, norm, x.numel() / n, 1, out);
    const at::ScalarType kept = stats_dtype(x, maybe(in[2]));
    const auto shape = stats_shape(x, n_axes);
    return {out.to(x.scalar_type()), s.mean.view(shape).to(kept),
            s.scale.view(shape).to(kept)};
}

// (input, weight?, bias?, N, C, HxW, group, eps)
std::vector<IValue> group_norm(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 8);
    const Tensor x = in[0].toTensor();
    const int64_t n_images = in[3].toInt(), n_channels = in[4].toInt(),
                  size = in[5].toInt(), n_groups = in[6].toInt();
    if (x.numel() == 0) return {};
    const int64_t in_group = n_channels / n_groups;
    Stats fast;
    if (Tensor made;
        fast_rows(c, x, maybe(in[1]), maybe(in[2]),
                  {nullptr, nullptr, nullptr, static_cast<size_t>(n_images * n_groups),
                   static_cast<size_t>(in_group * size), static_cast<size_t>(size),
                   static_cast<size_t>(n_groups), in[7].toDouble(), true},
                  fast, made))
        return {made, fast.mean.view({n_images, n_groups}),
                fast.scale.view({n_images, n_groups})};
    const Tensor w = maybe_doubles(in[1]), b = maybe_doubles(in[2]);
    const Tensor rows = doubles(x), out = room(x.sizes());
    Tensor mean = room({n_images, n_groups}), scale = room({n_images, n_groups});
    for (int64_t i = 0; i < n_images * n_groups; i++) {
        const int64_t at = i * in_group * size, channel = i % n_groups * in_group;
        const usc_sim_norm norm = {rows.const_data_ptr<double>() + at,
                                   w.defined() ? at_or_null(w) + channel : nullptr,
                                   b.defined() ? at_or_null(b) + channel : nullptr,
                                   static_cast<size_t>(in_group * size),
                                   static_cast<size_t>(size),
                                   in[7].toDouble(),
                                   true};
        double variance;
        usc_sim_norm_row(&c.numerics, c.dtype, &norm, mean.mutable_data_ptr<double>() + i,
                         &variance, scale.mutable_data_ptr<double>() + i,
                         out.mutable_data_ptr<double>() + at);
    }
    const at::ScalarType kept = stats_dtype(x, maybe(in[1]));
    return {out.to(x.scalar_type()), mean.to(kept), scale.to(kept)};
}

void move_on(const Tensor &running, const Tensor &now, double momentum)
{
    if (!running.defined()) return;
    running.copy_(doubles(running) * (1 - momentum) + now * momentum);
}

// Averages that were taken before, as rows of fast_rows(); false: not of float32.
bool fast_averages(const Choice &c, const Stack &in, Stats &s)
{
    const Tensor mean = maybe(in[3]), variance = maybe(in[4]);
    for (const Tensor &t : {mean, variance})
        if (!t.defined() || t.scalar_type() != at::kFloat) return false;
    s.mean = mean.contiguous();
    s.scale = at::empty(mean.sizes(), mean.options());
    const Tensor kept = variance.contiguous();
    for (int64_t i = 0; i < kept.numel(); i++)
        s.scale.mutable_data_ptr<float>()[i] = static_cast<float>(usc_sim_norm_scale(
            &c.numerics, c.dtype, kept.const_data_ptr<float>()[i], in[7].toDouble()));
    return true;
}

// Of float32; empty: not in this arithmetic.
std::vector<IValue> fast_batch_norm(const Stack &in, const Choice &c)
{
    const Tensor x = in[0].toTensor(), w = maybe(in[1]), b = maybe(in[2]);
    const auto n_channels = static_cast<size_t>(x.size(1)),
               n = static_cast<size_t>(x.numel()) / n_channels;
    const usc_sim_norms norms = {nullptr, nullptr,    nullptr,          n_channels, n,
                                 n,       n_channels, in[7].toDouble(), true};
    const Tensor rows = x.transpose(0, 1).contiguous();
    Stats s;
    Tensor made;
    const auto back = [&] {
        return made.transpose(0, 1).contiguous(x.suggest_memory_format());
    };
    if (!in[5].toBool()) {
        if (!fast_averages(c, in, s) || !fast_applied(c, rows, w, b, norms, s, made))
            return {};
        const Tensor none = at::empty({0}, s.mean.options());
        return {back(), none, none.clone()};
    }
    if (!fast_rows(c, rows, w, b, norms, s, made)) return {};
    const double count = static_cast<double>(n);
    move_on(maybe(in[3]), doubles(s.mean), in[6].toDouble());
    move_on(maybe(in[4]), doubles(s.variance) * (n > 1 ? count / (count - 1) : 1),
            in[6].toDouble());
    return {back(), s.mean, s.scale};
}

// (input, weight?, bias?, running_mean?, running_var?, training, momentum, eps)
std::vector<IValue> batch_norm(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 8);
    const Tensor x = in[0].toTensor();
    if (x.numel() == 0 || x.dim() < 2) return {};
    if (auto fast = fast_batch_norm(in, c); !fast.empty()) return fast;
    const Tensor w = maybe_doubles(in[1]), b = maybe_doubles(in[2]);
    const int64_t n_channels = x.size(1), n = x.numel() / n_channels;
    const Tensor turned = x.transpose(0, 1);
    const Tensor rows = doubles(turned), out = room(rows.sizes());
    const double epsilon = in[7].toDouble();
    const usc_sim_norm norm = {rows.const_data_ptr<double>(),
                               at_or_null(w),
                               at_or_null(b),
                               static_cast<size_t>(n),
                               static_cast<size_t>(n),
                               epsilon,
                               true};
    const auto back = [&] {
        return out.transpose(0, 1)
            .contiguous(x.suggest_memory_format())
            .to(x.scalar_type());
    };
    const at::ScalarType kept = stats_dtype(x, maybe(in[1]));
    if (in[5].toBool()) {
        const Stats s = norm_rows(c, norm, n_channels, n_channels, out);
        const auto count = static_cast<double>(n);
        move_on(maybe(in[3]), s.mean, in[6].toDouble());
        move_on(maybe(in[4]), s.variance * (n > 1 ? count / (count - 1) : 1),
                in[6].toDouble());
        return {back(), s.mean.to(kept), s.scale.to(kept)};
    }
    const Tensor mean = maybe_doubles(in[3]), variance = maybe_doubles(in[4]);
    if (!mean.defined() || !variance.defined()) return {};
    for (int64_t i = 0; i < n_channels; i++) {
        usc_sim_norm one = norm;
        one.x += i * n;
        if (one.weight != nullptr) one.weight += i;
        if (one.bias != nullptr) one.bias += i;
        usc_sim_norm_apply(&c.numerics, c.dtype, &one, mean.const_data_ptr<double>()[i],
                           usc_sim_norm_scale(&c.numerics, c.dtype,
                                              variance.const_data_ptr<double>()[i],
                                              epsilon),
                           out.mutable_data_ptr<double>() + i * n);
    }
    const Tensor none = at::empty({0}, at::TensorOptions().dtype(kept));
    return {back(), none, none.clone()};
}

// The sum of each column, in the chosen order.
Tensor columns_summed(const Choice &c, const Tensor &t)
{
    const Tensor columns = t.t().contiguous();
    Tensor out = room({columns.size(0)});
    for (int64_t i = 0; i < columns.size(0); i++)
        out.mutable_data_ptr<double>()[i] = usc_sim_sum(
            &c.numerics, c.dtype, columns.const_data_ptr<double>() + i * columns.size(1),
            nullptr, static_cast<size_t>(columns.size(1)));
    return out;
}

// Gradients of the input, of weights and of bias, of float32; empty: not in this arithmetic.
std::vector<Tensor> fast_gradients(const Stack &in, const Choice &c, int64_t n_rows,
                                   int64_t n)
{
    const Tensor w = maybe(in[5]);
    const auto wanted = in[7].toBoolList();
    if (!are_floats({in[0].toTensor(), in[1].toTensor(), in[3].toTensor(),
                     in[4].toTensor(), w, maybe(in[6])}))
        return {};
    const Tensor grad = in[0].toTensor().contiguous(), x = in[1].toTensor().contiguous(),
                 mean = in[3].toTensor().contiguous(),
                 scale = in[4].toTensor().contiguous(),
                 weight = w.defined() ? w.contiguous() : w;
    const usc_sim_norms norms = {floats_of(x),
                                 floats_of(weight),
                                 nullptr,
                                 static_cast<size_t>(n_rows),
                                 static_cast<size_t>(n),
                                 1,
                                 1,
                                 0,
                                 true};
    std::vector<Tensor> all(3);
    if (wanted[0]) {
        all[0] = at::empty(x.sizes(), x.options());
        if (!usc_sim_norm_back_rows(&c.numerics, c.dtype, &norms, floats_of(grad),
                                    floats_of(mean), floats_of(scale),
                                    all[0].mutable_data_ptr<float>()))
            return {};
    }
    if (!wanted[1] && !wanted[2]) return all;
    for (const size_t i : {1, 2})
        all[i] = at::empty({n}, x.options());
    if (!usc_sim_norm_back_weights(&c.numerics, c.dtype, &norms, floats_of(grad),
                                   floats_of(mean), floats_of(scale),
                                   all[1].mutable_data_ptr<float>(),
                                   all[2].mutable_data_ptr<float>()))
        return {};
    return all;
}

// grad * ((x - mean) * scale), each step rounded as sums are; rows of n.
Tensor along_rows(const Choice &c, const Tensor &x, const Tensor &grad,
                  const Tensor &mean, const Tensor &scale)
{
    const Tensor out = room(x.sizes());
    const auto kept = [&](double v) {
        return usc_sim_round_sum(&c.numerics, c.dtype, v);
    };
    const auto *a = x.const_data_ptr<double>(), *g = grad.const_data_ptr<double>();
    for (int64_t i = 0, n = x.size(1); i < x.numel(); i++) {
        const double away = kept(a[i] - mean.const_data_ptr<double>()[i / n]);
        out.mutable_data_ptr<double>()[i] =
            kept(g[i] * kept(away * scale.const_data_ptr<double>()[i / n]));
    }
    return out;
}

// (grad_out, input, normalized_shape, mean, rstd, weight?, bias?, output_mask)
std::vector<IValue> layer_norm_backward(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 8);
    const Tensor x = in[1].toTensor();
    const auto wanted = in[7].toBoolList();
    const auto axes = in[2].toIntVector();
    const int64_t n = inner_of(x, axes.size());
    if (x.numel() == 0) return {};
    const int64_t n_rows = x.numel() / n;
    if (const auto fast = fast_gradients(in, c, n_rows, n); !fast.empty())
        return {fast[0], wanted[1] ? fast[1].view(axes) : Tensor(),
                wanted[2] ? fast[2].view(axes) : Tensor()};
    const Tensor rows = doubles(x), grad = doubles(in[0].toTensor()),
                 mean = doubles(in[3].toTensor()), scale = doubles(in[4].toTensor()),
                 w = maybe_doubles(in[5]), out = room(x.sizes());
    usc_sim_norm norm = {rows.const_data_ptr<double>(),
                         at_or_null(w),
                         nullptr,
                         static_cast<size_t>(n),
                         1,
                         0,
                         true};
    for (int64_t i = 0; wanted[0] && i < n_rows; i++, norm.x += n)
        usc_sim_norm_back(
            &c.numerics, c.dtype, &norm, grad.const_data_ptr<double>() + i * n,
            mean.const_data_ptr<double>()[i], scale.const_data_ptr<double>()[i],
            out.mutable_data_ptr<double>() + i * n);
    std::vector<IValue> all{wanted[0] ? out.to(x.scalar_type()) : Tensor(), Tensor(),
                            Tensor()};
    const Tensor flat = grad.view({n_rows, n});
    if (wanted[1])
        all[1] =
            columns_summed(c, along_rows(c, rows.view({n_rows, n}), flat, mean, scale))
                .view(axes)
                .to(in[5].toTensor().scalar_type());
    if (wanted[2])
        all[2] = columns_summed(c, flat).view(axes).to(
            maybe(in[6]).defined() ? in[6].toTensor().scalar_type() : x.scalar_type());
    return all;
}

} // namespace

const std::vector<NativeRow> &norm_kernels()
{
    static const std::vector<NativeRow> rows = {
        {"aten::native_layer_norm", layer_norm},
        {"aten::native_layer_norm_backward", layer_norm_backward},
        {"aten::native_group_norm", group_norm},
        {"aten::native_batch_norm", batch_norm},
    };
    return rows;
}

} // namespace usc_sim
