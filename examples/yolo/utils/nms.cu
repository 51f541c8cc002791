// SPDX-License-Identifier: Apache-2.0
// Boxes that a better one covers are dropped: which covers which, 64 at a time by bits,
// on the device; who stays, on the host.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <vector>

namespace
{

constexpr int PER_BLOCK = 64;

__device__ inline float iou_of(const float *a, const float *b)
{
    const float w = fmaxf(fminf(a[2], b[2]) - fmaxf(a[0], b[0]), 0.0f);
    const float h = fmaxf(fminf(a[3], b[3]) - fmaxf(a[1], b[1]), 0.0f);
    const float both = w * h;
    const float area_a = (a[2] - a[0]) * (a[3] - a[1]);
    const float area_b = (b[2] - b[0]) * (b[3] - b[1]);
    return both / (area_a + area_b - both);
}

// Block (x, y): the boxes from 64 y on, each against the 64 from 64 x on.
__global__ void nms_kernel(const float *boxes, int n, float threshold,
                           unsigned long long *covers)
{
    const int first_row = blockIdx.y * PER_BLOCK, first_col = blockIdx.x * PER_BLOCK;
    const int n_rows = min(n - first_row, PER_BLOCK), n_cols = min(n - first_col, PER_BLOCK);
    __shared__ float other[PER_BLOCK * 4];
    if (threadIdx.x < n_cols)
        for (int k = 0; k < 4; k++)
            other[threadIdx.x * 4 + k] = boxes[(first_col + threadIdx.x) * 4 + k];
    __syncthreads();
    if (threadIdx.x >= n_rows) return;
    const int row = first_row + threadIdx.x;
    unsigned long long bits = 0;
    for (int i = 0; i < n_cols; i++)
        if (first_col + i > row && iou_of(boxes + row * 4, other + i * 4) > threshold)
            bits |= 1ULL << i;
    covers[row * gridDim.x + blockIdx.x] = bits;
}

__global__ void box_iou_kernel(const float *a, const float *b, float *iou, int n, int m)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * m) iou[i] = iou_of(a + i / m * 4, b + i % m * 4);
}

at::Tensor nms_cuda(const at::Tensor &boxes, const at::Tensor &scores, double threshold)
{
    TORCH_CHECK(boxes.is_cuda(), "nms: boxes must be on a CUDA device");
    TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, "nms: boxes must be [n, 4]");
    const at::cuda::CUDAGuard guard(boxes.device());
    const at::Tensor order = std::get<1>(scores.sort(/*stable=*/true, 0, /*descending=*/true));
    const int n = static_cast<int>(boxes.size(0));
    if (n == 0) return order;
    const at::Tensor sorted = boxes.index_select(0, order).to(at::kFloat).contiguous();
    const int n_words = (n + PER_BLOCK - 1) / PER_BLOCK;
    at::Tensor covers = at::empty({n, n_words}, boxes.options().dtype(at::kLong));
    nms_kernel<<<dim3(n_words, n_words), PER_BLOCK, 0, at::cuda::getCurrentCUDAStream()>>>(
        sorted.data_ptr<float>(), n, static_cast<float>(threshold),
        reinterpret_cast<unsigned long long *>(covers.data_ptr<int64_t>()));
    C10_CUDA_KERNEL_LAUNCH_CHECK();

    const at::Tensor on_host = covers.cpu();
    const int64_t *words = on_host.data_ptr<int64_t>();
    std::vector<int64_t> gone(n_words, 0), kept;
    for (int64_t i = 0; i < n; i++) {
        if (gone[i / PER_BLOCK] >> (i % PER_BLOCK) & 1) continue;
        kept.push_back(i);
        for (int64_t k = i / PER_BLOCK; k < n_words; k++)
            gone[k] |= words[i * n_words + k];
    }
    return order.index_select(0, at::tensor(kept, at::kLong).to(order.device()));
}

at::Tensor box_iou_cuda(const at::Tensor &a, const at::Tensor &b)
{
    TORCH_CHECK(a.is_cuda() && b.is_cuda(), "box_iou: boxes must be on a CUDA device");
    const at::cuda::CUDAGuard guard(a.device());
    const int n = static_cast<int>(a.size(0)), m = static_cast<int>(b.size(0));
    at::Tensor iou = at::empty({n, m}, a.options());
    if (n * m == 0) return iou;
    box_iou_kernel<<<(n * m + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), iou.data_ptr<float>(), n, m);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return iou;
}

} // namespace

TORCH_LIBRARY_IMPL(yolo, CUDA, m)
{
    m.impl("nms", &nms_cuda);
    m.impl("box_iou", &box_iou_cuda);
}
