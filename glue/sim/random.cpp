// SPDX-License-Identifier: Apache-2.0
// What Philox fills: the four operators that random numbers come from. Numbers are made in
// double and rounded once; row-major order, whatever the strides.
#include "native.h"

#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include <cmath>
#include <limits>

namespace usc_sim
{
namespace
{

using at::Tensor;
using torch::jit::Stack;

Tensor dense_like(const Tensor &t, at::ScalarType dtype)
{
    return at::empty(t.sizes(), at::TensorOptions().dtype(dtype).device(c10::kCPU));
}

Tensor first_of(const Stack &args)
{
    TORCH_INTERNAL_ASSERT(!args.empty() && args.front().isTensor());
    return args.front().toTensor();
}

Stack taken(Stack *stack, size_t n)
{
    Stack last(stack->end() - static_cast<std::ptrdiff_t>(n), stack->end());
    torch::jit::drop(*stack, n);
    return last;
}

Tensor uniform_numbers(const Tensor &like, usc_sim_random &r, bool fine)
{
    Tensor u = dense_like(like, at::kDouble);
    usc_sim_random_uniform(&r, fine, u.mutable_data_ptr<double>(),
                           static_cast<size_t>(u.numel()));
    return u;
}

// (self, from, to, generator): of [from, to), also where rounding would give `to`.
void uniform(Stack *stack, usc_sim_random &r)
{
    const Stack in = taken(stack, 4);
    const Tensor self = first_of(in);
    const double from = in[1].toDouble(), to = in[2].toDouble();
    TORCH_CHECK(from <= to,
                "uniform_ expects to return a [from, to) range, but found from=", from,
                " > to=", to);
    self.copy_(uniform_numbers(self, r, self.scalar_type() == at::kDouble)
                   .mul_(to - from)
                   .add_(from));
    if (from < to) self.masked_fill_(at::eq(self, to), from);
    torch::jit::push(stack, self);
}

// (self, mean, std, generator)
void normal(Stack *stack, usc_sim_random &r)
{
    const Stack in = taken(stack, 4);
    const Tensor self = first_of(in);
    const double mean = in[1].toDouble(), std = in[2].toDouble();
    TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
    const bool complex = self.is_complex(); // whose parts have half the variance each
    const Tensor real = complex ? at::view_as_real(self) : self;
    Tensor z = dense_like(real, at::kDouble);
    usc_sim_random_normal(&r, z.mutable_data_ptr<double>(),
                          static_cast<size_t>(z.numel()));
    self.copy_(complex ? at::view_as_complex(z).mul(std / std::sqrt(2.0)).add(mean)
                       : z.mul_(std).add_(mean));
    torch::jit::push(stack, self);
}

void integers(Stack *stack, const Tensor &self, usc_sim_random &r, int64_t from,
              uint64_t range)
{
    Tensor k = dense_like(self, at::kLong);
    auto *at = reinterpret_cast<uint64_t *>(k.mutable_data_ptr<int64_t>());
    usc_sim_random_integers(&r, range, at, static_cast<size_t>(k.numel()));
    for (int64_t i = 0; i < k.numel(); i++)
        at[i] += static_cast<uint64_t>(from);
    self.copy_(k);
    torch::jit::push(stack, self);
}

// The largest integer up to which a dtype has them all.
int64_t largest(at::ScalarType dtype)
{
    switch (dtype) {
    case at::kDouble:
        return int64_t(1) << 53;
    case at::kFloat:
        return 1 << 24;
    case at::kHalf:
        return 1 << 11;
    case at::kBFloat16:
        return 1 << 8;
    case at::kBool:
        return 1;
    case at::kByte:
        return 255;
    case at::kChar:
        return 127;
    case at::kShort:
        return 32767;
    case at::kInt:
        return std::numeric_limits<int32_t>::max();
    default:
        return std::numeric_limits<int64_t>::max();
    }
}

// (self, generator)
void random_all(Stack *stack, usc_sim_random &r)
{
    const Tensor self = first_of(taken(stack, 2));
    integers(stack, self, r, 0, static_cast<uint64_t>(largest(self.scalar_type())) + 1);
}

// (self, to, generator)
void random_to(Stack *stack, usc_sim_random &r)
{
    const Stack in = taken(stack, 3);
    const int64_t to = in[1].toInt();
    TORCH_CHECK(to > 0,
                "random_ expects 'from' to be less than 'to', but got from=0 >= to=", to);
    integers(stack, first_of(in), r, 0, static_cast<uint64_t>(to));
}

// (self, from, to?, generator)
void random_from(Stack *stack, usc_sim_random &r)
{
    const Stack in = taken(stack, 4);
    const Tensor self = first_of(in);
    const int64_t from = in[1].toInt();
    if (in[2].isNone()) {
        const uint64_t most = static_cast<uint64_t>(largest(self.scalar_type()));
        integers(stack, self, r, from, most - static_cast<uint64_t>(from) + 1);
        return;
    }
    const int64_t to = in[2].toInt();
    TORCH_CHECK(from < to,
                "random_ expects 'from' to be less than 'to', but got from=", from,
                " >= to=", to);
    integers(stack, self, r, from,
             static_cast<uint64_t>(to) - static_cast<uint64_t>(from));
}

void check_probability(bool fine)
{
    TORCH_CHECK(fine, "bernoulli_ expects p to be in [0, 1]");
}

// (self, p, generator)
void bernoulli(Stack *stack, usc_sim_random &r)
{
    const Stack in = taken(stack, 3);
    const Tensor self = first_of(in);
    const double p = in[1].toDouble();
    check_probability(p >= 0 && p <= 1);
    self.copy_(at::lt(uniform_numbers(self, r, false), p));
    torch::jit::push(stack, self);
}

void bernoulli_tensor(Stack *stack, usc_sim_random &r)
{
    const Stack in = taken(stack, 3);
    const Tensor self = first_of(in), p = in[1].toTensor().to(at::kDouble);
    check_probability(p.numel() == 0 ||
                      (p.min().item<double>() >= 0 && p.max().item<double>() <= 1));
    self.copy_(at::lt(uniform_numbers(self, r, false), p));
    torch::jit::push(stack, self);
}

const struct {
    const char *op;
    RandomKernel kernel;
} KERNELS[] = {
    {"aten::uniform_", uniform},
    {"aten::normal_", normal},
    {"aten::random_", random_all},
    {"aten::random_.to", random_to},
    {"aten::random_.from", random_from},
    {"aten::bernoulli_.float", bernoulli},
    {"aten::bernoulli_.Tensor", bernoulli_tensor},
};

} // namespace

void draw_mask(const Tensor &mask, double p, const at::Generator &generator)
{
    if (!using_philox) {
        mask.bernoulli_(p, cpu_generator(generator));
        return;
    }
    Stack in{mask, p, c10::IValue()};
    run_random(bernoulli, &in, generator);
}

RandomKernel random_kernel(const c10::OperatorHandle &op)
{
    for (const auto &row : KERNELS)
        if (full_name(op) == row.op) return row.kernel;
    return nullptr;
}

} // namespace usc_sim
