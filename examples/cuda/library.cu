// SPDX-License-Identifier: Apache-2.0
// Kernels over CUDA's libraries for kernels: running sums of rows by cub, a sort by cub,
// row maxima by cooperative groups, dropout by curand's Philox.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/cub.cuh>
#include <curand_kernel.h>
#include <torch/library.h>

namespace cg = cooperative_groups;

namespace
{

constexpr int THREADS = 128;

__global__ void cumsum_kernel(const float *x, float *out, int n)
{
    typedef cub::BlockScan<float, THREADS> Scan;
    __shared__ typename Scan::TempStorage room;
    const float *row = x + blockIdx.x * n;
    float before = 0;
    for (int first = 0; first < n; first += THREADS) {
        const int i = first + threadIdx.x;
        float sum, all;
        Scan(room).InclusiveSum(i < n ? row[i] : 0.0f, sum, all);
        if (i < n) out[blockIdx.x * n + i] = before + sum;
        before += all;
        __syncthreads(); // the room is used again
    }
}

__global__ void row_max_kernel(const float *x, float *out, int rows, int n)
{
    const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    const int row = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank();
    if (row >= rows) return;
    float most = x[row * n];
    for (int i = tile.thread_rank(); i < n; i += tile.size())
        most = fmaxf(most, x[row * n + i]);
    most = cg::reduce(tile, most, cg::greater<float>());
    if (tile.thread_rank() == 0) out[row] = most;
}

__global__ void dropout_kernel(const float *x, float *out, int n, float p,
                               unsigned long long seed)
{
    const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    curandStatePhilox4_32_10_t state;
    curand_init(seed, blockIdx.x * blockDim.x + threadIdx.x, 0, &state);
    const float4 u = curand_uniform4(&state);
    const float draws[4] = {u.x, u.y, u.z, u.w};
    for (int k = 0; k < 4 && i + k < n; k++)
        out[i + k] = draws[k] > p ? x[i + k] / (1 - p) : 0.0f;
}

at::Tensor cumsum_cuda(const at::Tensor &x)
{
    const at::cuda::CUDAGuard guard(x.device());
    at::Tensor out = at::empty_like(x);
    cumsum_kernel<<<x.size(0), THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    AT_CUDA_CHECK(cudaGetLastError());
    return out;
}

at::Tensor row_max_cuda(const at::Tensor &x)
{
    const at::cuda::CUDAGuard guard(x.device());
    at::Tensor out = at::empty({x.size(0)}, x.options());
    row_max_kernel<<<(x.size(0) + 3) / 4, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1));
    AT_CUDA_CHECK(cudaGetLastError());
    return out;
}

at::Tensor sort_cuda(const at::Tensor &x)
{
    const at::cuda::CUDAGuard guard(x.device());
    at::Tensor out = at::empty_like(x);
    const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    size_t size = 0;
    cub::DeviceRadixSort::SortKeys(nullptr, size, x.data_ptr<float>(),
                                   out.data_ptr<float>(), x.numel(), 0, 32, stream);
    at::Tensor room = at::empty({(int64_t)size}, x.options().dtype(at::kByte));
    AT_CUDA_CHECK(
        cub::DeviceRadixSort::SortKeys(room.data_ptr(), size, x.data_ptr<float>(),
                                       out.data_ptr<float>(), x.numel(), 0, 32, stream));
    return out;
}

at::Tensor dropout_cuda(const at::Tensor &x, double p, int64_t seed)
{
    const at::cuda::CUDAGuard guard(x.device());
    at::Tensor out = at::empty_like(x);
    const int n = x.numel();
    dropout_kernel<<<(n + 4 * THREADS - 1) / (4 * THREADS), THREADS, 0,
                     at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), n, p, seed);
    AT_CUDA_CHECK(cudaGetLastError());
    return out;
}

} // namespace

TORCH_LIBRARY_FRAGMENT(cuda_examples, m)
{
    m.def("cumsum(Tensor x) -> Tensor");
    m.def("row_max(Tensor x) -> Tensor");
    m.def("sort(Tensor x) -> Tensor");
    m.def("dropout(Tensor x, float p, int seed) -> Tensor");
}

TORCH_LIBRARY_IMPL(cuda_examples, CUDA, m)
{
    m.impl("cumsum", &cumsum_cuda);
    m.impl("row_max", &row_max_cuda);
    m.impl("sort", &sort_cuda);
    m.impl("dropout", &dropout_cuda);
}
