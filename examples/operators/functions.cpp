// SPDX-License-Identifier: Apache-2.0
// Kernels of ops.yaml that are plain C++: the device's memory is opened for them.
#include "sim_ops.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/Lerp.h>
#include <ATen/native/cpu/Loops.h>

namespace at::native
{
namespace
{

void lerp_scalar(at::TensorIteratorBase &iter, const c10::Scalar &weight)
{
    const usc_ops::Open open(iter);
    AT_DISPATCH_FLOATING_TYPES(iter.common_dtype(), "lerp", [&] {
        const auto w = weight.to<scalar_t>();
        cpu_kernel(iter,
                   [w](scalar_t a, scalar_t b) -> scalar_t { return lerp(a, b, w); });
    });
}

} // namespace

REGISTER_PRIVATEUSE1_DISPATCH(lerp_kernel_scalar_weight, &lerp_scalar)

} // namespace at::native

namespace at::sim
{

at::Tensor &AddTensorOut(const at::Tensor &self, const at::Tensor &other,
                         const at::Scalar &alpha, at::Tensor &out)
{
    at::native::resize_output(out, at::infer_size(self.sizes(), other.sizes()));
    const usc_ops::Open open({self, other}, {out});
    at::Tensor host = usc_ops::Open::host(out);
    at::add_out(host, usc_ops::Open::host(self), usc_ops::Open::host(other), alpha);
    return out;
}

at::Tensor AddTensor(const at::Tensor &self, const at::Tensor &other,
                     const at::Scalar &alpha)
{
    at::Tensor out = at::empty({0}, self.options().dtype(at::result_type(self, other)));
    return AddTensorOut(self, other, alpha, out);
}

at::Tensor &AddTensor_(at::Tensor &self, const at::Tensor &other, const at::Scalar &alpha)
{
    return AddTensorOut(self, other, alpha, self);
}

at::Tensor IsNan(const at::Tensor &self)
{
    at::Tensor out = at::empty(self.sizes(), self.options().dtype(at::kBool));
    const usc_ops::Open open({self}, {out});
    usc_ops::Open::host(out).copy_(at::isnan(usc_ops::Open::host(self)));
    return out;
}

// The stop-gap for an operator that nobody has written: by the CPU, with copies.
at::Tensor Nonzero(const at::Tensor &self)
{
    return at::nonzero(self.cpu()).to(self.device());
}

} // namespace at::sim
