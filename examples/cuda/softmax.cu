// SPDX-License-Identifier: Apache-2.0
// Softmax of each row: largest and sum by shuffles in each warp, then over the warps by
// dynamic shared memory.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <limits>

struct Larger {
    __device__ float operator()(float a, float b) const
    {
        return fmaxf(a, b);
    }
};

struct Sum {
    __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

template <typename Op> __device__ float over_warp(float v, Op op)
{
#pragma unroll
    for (int by = warpSize / 2; by > 0; by >>= 1)
        v = op(v, __shfl_xor_sync(__activemask(), v, by));
    return v;
}

template <typename Op> __device__ float over_block(float v, float none, Op op)
{
    extern __shared__ float of_warp[];
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    v = over_warp(v, op);
    if (lane == 0) of_warp[warp] = v;
    __syncthreads();
    const int n_warps = blockDim.x / warpSize;
    v = over_warp(lane < n_warps ? of_warp[lane] : none, op);
    __syncthreads();
    return v;
}

__global__ void softmax_kernel(const float *x, float *y, int n)
{
    const float *row = x + (int64_t)blockIdx.x * n;
    float *out = y + (int64_t)blockIdx.x * n;
    float largest = -std::numeric_limits<float>::infinity();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        largest = fmaxf(largest, row[i]);
    largest = over_block(largest, -std::numeric_limits<float>::infinity(), Larger());
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        sum += expf(row[i] - largest);
    sum = over_block(sum, 0.0f, Sum());
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        out[i] = expf(row[i] - largest) / sum;
}

at::Tensor softmax_cuda(const at::Tensor &x)
{
    const at::cuda::CUDAGuard guard(x.device());
    const at::Tensor in = x.contiguous();
    at::Tensor out = at::empty_like(in);
    if (in.numel() == 0) return out;
    const int n = static_cast<int>(in.size(-1)), rows = static_cast<int>(in.numel() / n);
    const dim3 block(128);
    softmax_kernel<<<rows, block, 32 * sizeof(float), at::cuda::getCurrentCUDAStream()>>>(
        in.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

TORCH_LIBRARY_FRAGMENT(cuda_examples, m)
{
    m.def("softmax(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(cuda_examples, CUDA, m)
{
    m.impl("softmax", &softmax_cuda);
}
