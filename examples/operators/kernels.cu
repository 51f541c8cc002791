// SPDX-License-Identifier: Apache-2.0
// Kernels of ops.yaml that are grids of threads, as for a GPU.
#include "sim_ops.h"

namespace
{

template <class T>
__global__ void band(const T *in, T *out, int64_t n, int64_t rows, int64_t columns,
                     int64_t diagonal, bool lower)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = i / columns % rows, column = i % columns;
        const bool keep = lower ? column - row <= diagonal : column - row >= diagonal;
        out[i] = keep ? in[i] : T(0);
    }
}

__global__ void swish(const float *x, float *out, int64_t n, float beta)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] / (1 + expf(-beta * x[i]));
}

__global__ void swish_backward(const float *grad, const float *x, float *out, int64_t n,
                               float beta)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float s = 1 / (1 + expf(-beta * x[i]));
    out[i] = grad[i] * s * (1 + beta * x[i] * (1 - s));
}

unsigned blocks_of(int64_t n)
{
    return (unsigned)((n + 255) / 256);
}

void keep_band(const at::Tensor &self, int64_t diagonal, const at::Tensor &out, bool lower)
{
    const at::Tensor in = self.contiguous();
    at::Tensor made = out.is_contiguous() ? out : at::empty_like(in);
    if (in.numel() == 0) return;
    AT_DISPATCH_ALL_TYPES(in.scalar_type(), "band", [&] {
        band<scalar_t><<<blocks_of(in.numel()), 256>>>(
            in.const_data_ptr<scalar_t>(), made.mutable_data_ptr<scalar_t>(), in.numel(),
            in.size(-2), in.size(-1), diagonal, lower);
    });
    if (!made.is_same(out)) out.copy_(made);
}

} // namespace

namespace at::sim
{

TORCH_IMPL_FUNC(Tril)(const at::Tensor &self, int64_t diagonal, const at::Tensor &out)
{
    keep_band(self, diagonal, out, true);
}

TORCH_PRECOMPUTE_META_FUNC(triu)(const at::Tensor &self, int64_t diagonal)
{
    TORCH_CHECK(self.dim() >= 2, "triu: input tensor must have at least 2 dimensions");
    set_output_raw_strided(0, self.sizes(), {}, self.options());
    return TORCH_PRECOMPUTE_STRUCT(triu)().set_first(diagonal);
}

TORCH_IMPL_FUNC(Triu)(const at::Tensor &self, int64_t first, const at::Tensor &out)
{
    keep_band(self, first, out, false);
}

at::Tensor Swish(const at::Tensor &x, double beta)
{
    const at::Tensor in = x.contiguous();
    at::Tensor out = at::empty_like(in);
    if (in.numel() > 0)
        swish<<<blocks_of(in.numel()), 256>>>(in.const_data_ptr<float>(),
                                              out.mutable_data_ptr<float>(), in.numel(),
                                              (float)beta);
    return out;
}

at::Tensor SwishBackward(const at::Tensor &grad, const at::Tensor &x, double beta)
{
    const at::Tensor up = grad.contiguous(), in = x.contiguous();
    at::Tensor out = at::empty_like(in);
    if (in.numel() > 0)
        swish_backward<<<blocks_of(in.numel()), 256>>>(
            up.const_data_ptr<float>(), in.const_data_ptr<float>(),
            out.mutable_data_ptr<float>(), in.numel(), (float)beta);
    return out;
}

} // namespace at::sim
