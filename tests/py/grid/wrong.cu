// SPDX-License-Identifier: Apache-2.0
// Kernels with one mistake each, and the same without it where `right` says so.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <grid_torch.h>
#include <torch/library.h>

__global__ void tail(const float *x, float *y, int n, int off)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n + off) y[i] = 2 * x[i];
}

__global__ void block_sum(const float *x, float *y, bool right)
{
    extern __shared__ float part[];
    const int t = threadIdx.x;
    part[t] = x[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half]; // the race
        if (right) __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}

__global__ void barriers(float *y, int n)
{
    if (threadIdx.x < n)
        __syncthreads(); // the first
    else
        __syncthreads(); // the second
    y[threadIdx.x] = 1;
}

__global__ void checked(const float *x, int n)
{
    if ((int)threadIdx.x < n) CUDA_KERNEL_ASSERT(x[threadIdx.x] < 3);
}

#include <ATen/ops/empty.h>
#include <cub/cub.cuh>

__global__ void reuse(const float *x, float *y, bool right)
{
    typedef cub::BlockReduce<float, 64> Reduce;
    __shared__ typename Reduce::TempStorage room;
    const float sum = Reduce(room).Sum(x[threadIdx.x]);
    if (right) __syncthreads();
    const float most = Reduce(room).Reduce(x[threadIdx.x], cub::Max());
    if (threadIdx.x == 0) y[0] = sum + most;
}

static at::Tensor reuse_of(const at::Tensor &x, bool right)
{
    at::Tensor y = at::empty({1}, x.options());
    reuse<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), right);
    return y;
}

static at::Tensor tail_of(const at::Tensor &x, int64_t off, int64_t threads)
{
    at::Tensor y = at::empty_like(x);
    const int n = x.numel();
    tail<<<(n + threads - 1) / threads, threads>>>(x.data_ptr<float>(),
                                                   y.data_ptr<float>(), n, off);
    return y;
}

static at::Tensor block_sum_of(const at::Tensor &x, bool right)
{
    at::Tensor y = at::full({x.numel() / 64}, 0.0, x.options());
    block_sum<<<x.numel() / 64, 64, 64 * sizeof(float)>>>(x.data_ptr<float>(),
                                                          y.data_ptr<float>(), right);
    return y;
}

static at::Tensor barriers_of(const at::Tensor &x, int64_t n)
{
    at::Tensor y = at::empty_like(x);
    barriers<<<1, x.numel()>>>(y.data_ptr<float>(), n);
    return y;
}

static at::Tensor checked_of(const at::Tensor &x)
{
    checked<<<1, 64>>>(x.data_ptr<float>(), x.numel());
    return x;
}

TORCH_LIBRARY_FRAGMENT(USC_TEST_NAMESPACE, m)
{
    m.def("tail(Tensor x, int off, int threads) -> Tensor");
    m.def("block_sum(Tensor x, bool right) -> Tensor");
    m.def("barriers(Tensor x, int n) -> Tensor");
    m.def("checked(Tensor x) -> Tensor");
    m.def("reuse(Tensor x, bool right) -> Tensor");
    m.def("on_any(Tensor x, int off, int threads) -> Tensor", &tail_of);
}

TORCH_LIBRARY_IMPL(USC_TEST_NAMESPACE, PrivateUse1, m)
{
    m.impl("tail", &tail_of);
    m.impl("block_sum", &block_sum_of);
    m.impl("barriers", &barriers_of);
    m.impl("checked", &checked_of);
    m.impl("reuse", &reuse_of);
}
