// SPDX-License-Identifier: Apache-2.0
// How operators of torch become sums, products and softmax of sim/kernels.c.
#include "native.h"

#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

namespace usc_sim
{
namespace
{

using at::Tensor;
using torch::jit::Stack;

// Of the arguments of an operator, an out= argument left out; undefined: no kernel for them.
using NativeKernel = Tensor (*)(const Stack &in, const Choice &choice);

Tensor doubles(const Tensor &t)
{
    return t.to(at::kDouble).contiguous();
}

// Rows of float32 where they lie; undefined: they are of another dtype, or factors are to be
// rounded first.
std::optional<usc_sim_rows> rows_of(const Tensor &t, int64_t row, int64_t term,
                                    const Choice &c)
{
    if (t.scalar_type() != at::kFloat || c.numerics.factor_bits != 0) return std::nullopt;
    return usc_sim_rows{t.const_data_ptr<float>(), t.stride(row), t.stride(term)};
}

Tensor factors(const Tensor &t, const Choice &c)
{
    Tensor made = at::empty(t.sizes(), at::TensorOptions().dtype(at::kDouble));
    made.copy_(t);
    usc_sim_round_factors(&c.numerics, made.mutable_data_ptr<double>(),
                          static_cast<size_t>(made.numel()));
    return made;
}

// Where they lie, and as fast as the processor allows; undefined: not in this arithmetic.
Tensor fast_products(const Tensor &a, const Tensor &b, const Choice &c)
{
    auto left = rows_of(a, 1, 2, c), right = rows_of(b, 2, 1, c);
    if (!left || !right) return {};
    const int64_t n_rows = a.size(1), n_columns = b.size(2), depth = a.size(2);
    Tensor out =
        at::empty({a.size(0), n_rows, n_columns}, at::TensorOptions().dtype(at::kFloat));
    for (int64_t i = 0; i < a.size(0); i++) {
        if (!usc_sim_product_rows(
                &c.numerics, c.dtype, &*left, &*right, static_cast<size_t>(n_rows),
                static_cast<size_t>(n_columns), static_cast<size_t>(depth),
                out.mutable_data_ptr<float>() + i * n_rows * n_columns))
            return {};
        left->at += a.stride(0);
        right->at += b.stride(0);
    }
    return out;
}

} // namespace

// (b, m, k) and (b, k, n)
Tensor products(const Tensor &a, const Tensor &b, const Choice &c)
{
    if (Tensor fast = fast_products(a, b, c); fast.defined()) return fast;
    const Tensor rows = factors(a, c), columns = factors(b.transpose(1, 2), c);
    const int64_t n_rows = rows.size(1), n_columns = columns.size(1),
                  depth = rows.size(2);
    Tensor out = at::empty({rows.size(0), n_rows, n_columns},
                           at::TensorOptions().dtype(at::kDouble));
    for (int64_t i = 0; i < rows.size(0); i++)
        usc_sim_products(&c.numerics, c.dtype,
                         rows.const_data_ptr<double>() + i * n_rows * depth,
                         columns.const_data_ptr<double>() + i * n_columns * depth,
                         static_cast<size_t>(n_rows), static_cast<size_t>(n_columns),
                         static_cast<size_t>(depth),
                         out.mutable_data_ptr<double>() + i * n_rows * n_columns);
    return out;
}

namespace
{

bool fit(const Tensor &a, const Tensor &b, int64_t ndim)
{
    return a.dim() == ndim && b.dim() == ndim && a.scalar_type() == b.scalar_type() &&
           a.size(-1) == b.size(-2) && a.size(0) == (ndim == 3 ? b.size(0) : a.size(0));
}

// (self, mat2)
Tensor mm(const Stack &in, const Choice &c)
{
    const Tensor a = in[0].toTensor(), b = in[1].toTensor();
    return fit(a, b, 2) ? products(a.unsqueeze(0), b.unsqueeze(0), c).squeeze(0)
                        : Tensor();
}

Tensor bmm(const Stack &in, const Choice &c)
{
    const Tensor a = in[0].toTensor(), b = in[1].toTensor();
    return fit(a, b, 3) ? products(a, b, c) : Tensor();
}

// beta * self + alpha * sums, each step rounded as sums are.
Tensor with_self(const Stack &in, const Choice &c, const Tensor &given)
{
    if (!given.defined()) return given;
    const double beta = in[3].toScalar().toDouble(), alpha = in[4].toScalar().toDouble();
    const bool plain = beta <= 1 && beta >= 1 && alpha <= 1 && alpha >= 1;
    if (plain && given.scalar_type() == at::kFloat &&
        in[0].toTensor().scalar_type() == at::kFloat)
        return given.add(in[0].toTensor()); // rounds once, as these sums do
    Tensor sums = given.scalar_type() == at::kDouble ? given : given.to(at::kDouble);
    const Tensor self = doubles(in[0].toTensor().expand(sums.sizes()));
    usc_sim_add_self(&c.numerics, c.dtype, alpha, beta, self.const_data_ptr<double>(),
                     static_cast<size_t>(sums.numel()), sums.mutable_data_ptr<double>());
    return sums;
}

// (self, mat1, mat2, beta, alpha)
Tensor addmm(const Stack &in, const Choice &c)
{
    return with_self(in, c, mm({in[1], in[2]}, c));
}

Tensor baddbmm(const Stack &in, const Choice &c)
{
    return with_self(in, c, bmm({in[1], in[2]}, c));
}

// Of rows of `count` numbers each; undefined: not in this arithmetic.
Tensor fast_sums(const Tensor &turned, int64_t count, at::IntArrayRef shape,
                 const Choice &c)
{
    if (turned.scalar_type() != at::kFloat || count == 0 || turned.numel() == 0)
        return {};
    const Tensor rows = turned.reshape({-1, count}); // a copy only where it must be
    const usc_sim_rows at = {rows.const_data_ptr<float>(), rows.stride(0),
                             rows.stride(1)};
    Tensor out = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
    return usc_sim_sum_rows(&c.numerics, c.dtype, &at, static_cast<size_t>(rows.size(0)),
                            static_cast<size_t>(count), out.mutable_data_ptr<float>())
               ? out
               : Tensor();
}

// Row by row over the axes that are summed up; `keep`: they stay, of size 1.
Tensor sums(const Stack &in, const Choice &c, bool mean)
{
    const Tensor x = in[0].toTensor();
    const bool keep = in[2].toBool();
    if (!in[3].isNone() && in[3].toScalarType() != x.scalar_type()) return {};
    std::vector<bool> summed(static_cast<size_t>(x.dim()), in[1].isNone());
    if (!in[1].isNone()) {
        const auto axes = in[1].toIntVector();
        for (const int64_t axis : axes)
            if (axis < -x.dim() || axis >= x.dim())
                return {};
            else
                summed[static_cast<size_t>(axis < 0 ? axis + x.dim() : axis)] = true;
        if (axes.empty()) std::fill(summed.begin(), summed.end(), true);
    }
    std::vector<int64_t> order, inner, shape;
    int64_t count = 1;
    for (int64_t i = 0; i < x.dim(); i++) {
        const bool gone = summed[static_cast<size_t>(i)];
        (gone ? inner : order).push_back(i);
        if (gone) count *= x.size(i);
        if (!gone || keep) shape.push_back(gone ? 1 : x.size(i));
    }
    order.insert(order.end(), inner.begin(), inner.end());
    const Tensor turned = x.permute(order);
    Tensor out = fast_sums(turned, count, shape, c);
    if (!out.defined()) {
        const Tensor rows = doubles(turned);
        out = at::empty(shape, at::TensorOptions().dtype(at::kDouble));
        for (int64_t i = 0; i < out.numel(); i++)
            out.mutable_data_ptr<double>()[i] = usc_sim_sum(
                &c.numerics, c.dtype, rows.const_data_ptr<double>() + i * count, nullptr,
                static_cast<size_t>(count));
    }
    if (!mean) return out;
    out = out.to(at::kDouble).div_(static_cast<double>(count));
    auto *at = out.mutable_data_ptr<double>();
    for (int64_t i = 0; i < out.numel(); i++)
        at[i] = usc_sim_round_sum(&c.numerics, c.dtype, at[i]);
    return out;
}

// (self, dim?, keepdim, dtype?)
Tensor sum(const Stack &in, const Choice &c)
{
    return sums(in, c, false);
}

Tensor mean(const Stack &in, const Choice &c)
{
    return sums(in, c, true);
}

// Along the last axis; undefined: not in this arithmetic.
Tensor fast_softmax(const Tensor &turned, const Choice &c)
{
    if (turned.scalar_type() != at::kFloat || turned.numel() == 0) return {};
    const Tensor rows = turned.contiguous();
    Tensor out = at::empty(rows.sizes(), at::TensorOptions().dtype(at::kFloat));
    const int64_t count = rows.size(-1);
    return usc_sim_softmax_rows(&c.numerics, c.dtype, rows.const_data_ptr<float>(),
                                static_cast<size_t>(rows.numel() / count),
                                static_cast<size_t>(count), out.mutable_data_ptr<float>())
               ? out
               : Tensor();
}

// (self, dim, half_to_float)
Tensor softmax(const Stack &in, const Choice &c)
{
    const Tensor x = in[0].toTensor();
    if (in[2].toBool() || x.dim() == 0) return {};
    const int64_t axis = in[1].toInt();
    if (Tensor fast = fast_softmax(x.transpose(axis, -1), c); fast.defined())
        return fast.transpose(axis, -1);
    const Tensor rows = doubles(x.transpose(axis, -1));
    Tensor out = at::empty(rows.sizes(), at::TensorOptions().dtype(at::kDouble));
    const int64_t count = rows.size(-1);
    for (int64_t i = 0; count > 0 && i < rows.numel() / count; i++)
        usc_sim_softmax(&c.numerics, c.dtype, rows.const_data_ptr<double>() + i * count,
                        static_cast<size_t>(count),
                        out.mutable_data_ptr<double>() + i * count);
    return out.transpose(axis, -1);
}

const struct {
    const char *op; // ns::name.overload
    NativeKernel kernel;
    bool has_out;
} KERNELS[] = {
    {"aten::mm", mm, false},
    {"aten::mm.out", mm, true},
    {"aten::bmm", bmm, false},
    {"aten::bmm.out", bmm, true},
    {"aten::addmm", addmm, false},
    {"aten::addmm.out", addmm, true},
    {"aten::baddbmm", baddbmm, false},
    {"aten::baddbmm.out", baddbmm, true},
    {"aten::sum.dim_IntList", sum, false},
    {"aten::sum.IntList_out", sum, true},
    {"aten::mean.dim", mean, false},
    {"aten::mean.out", mean, true},
    {"aten::_softmax", softmax, false},
    {"aten::_softmax.out", softmax, true},
};

} // namespace

static const NativeRow *row_of_many(const std::string &name)
{
    for (const auto *rows : {&norm_kernels(), &attention_kernels(), &other_kernels(),
                             &map_kernels(), &step_kernels()})
        for (const NativeRow &row : *rows)
            if (name == row.op) return &row;
    return nullptr;
}

bool run_native(const c10::OperatorHandle &op, Stack *stack, Faults &faults,
                const at::Generator &generator)
{
    TORCH_INTERNAL_ASSERT(stack->size() >= op.schema().arguments().size());
    usc_sim_numerics numerics;
    const std::string name = full_name(op);
    const auto *row = std::find_if(std::begin(KERNELS), std::end(KERNELS),
                                   [&name](const auto &r) { return name == r.op; });
    const NativeRow *many = row == std::end(KERNELS) ? row_of_many(name) : nullptr;
    if (row == std::end(KERNELS) && many == nullptr) return false;
    if (!usc_sim_numerics_of(name.c_str(), &numerics)) {
        if (usc_sim_numerics_begin("*", &numerics, nullptr) != USC_OK ||
            !faults.breaks(&numerics))
            return false;
    } else {
        (void)faults.breaks(&numerics);
    }
    const size_t n = op.schema().arguments().size();
    const Stack in(stack->end() - static_cast<std::ptrdiff_t>(n), stack->end());
    if (in[0].isTensorList() && in[0].toTensorVector().empty()) return false;
    const Tensor self =
        in[0].isTensorList() ? in[0].toTensorVector()[0] : in[0].toTensor();
    const usc_dtype dtype = dtype_of(self.scalar_type());
    if (usc_dtype_info_of(dtype)->kind != USC_KIND_FLOAT) return false;
    if (many != nullptr) {
        auto results = many->kernel(in, {numerics, dtype, generator});
        if (results.empty()) return false;
        faults.note_native();
        torch::jit::drop(*stack, n);
        for (size_t i = 0; i < op.schema().returns().size(); i++)
            stack->push_back(std::move(results.at(i)));
        return true;
    }
    const Tensor made = row->kernel(in, {numerics, dtype, generator});
    if (!made.defined()) return false;
    faults.note_native();
    Tensor out;
    if (row->has_out) {
        out = in.back().toTensor();
        if (out.sizes() != made.sizes()) out.resize_(made.sizes());
        out.copy_(made);
    } else {
        out = made.to(self.scalar_type());
    }
    torch::jit::drop(*stack, n);
    torch::jit::push(*stack, out);
    return true;
}

} // namespace usc_sim
