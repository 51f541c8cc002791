// SPDX-License-Identifier: Apache-2.0
// Operators on boxes, as a library for CUDA has them: which boxes a better one covers, 64 at
// a time by bits; intersection over union of quadrilaterals, each thread a pair.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <vector>

#include "quadri.cuh"

namespace
{

constexpr int PER_BLOCK = 64;

__device__ inline float iou_of(const float *a, const float *b, float offset)
{
    const float w = fmaxf(fminf(a[2], b[2]) - fmaxf(a[0], b[0]) + offset, 0.0f);
    const float h = fmaxf(fminf(a[3], b[3]) - fmaxf(a[1], b[1]) + offset, 0.0f);
    const float area_a = (a[2] - a[0] + offset) * (a[3] - a[1] + offset);
    const float area_b = (b[2] - b[0] + offset) * (b[3] - b[1] + offset);
    return w * h / (area_a + area_b - w * h);
}

// Block (x, y): the boxes from 64 y on, each against the 64 from 64 x on.
__global__ void nms_kernel(const float *boxes, int n, float threshold, float offset,
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
        if (first_col + i > row && iou_of(boxes + row * 4, other + i * 4, offset) > threshold)
            bits |= 1ULL << i;
    covers[row * gridDim.x + blockIdx.x] = bits;
}

at::Tensor nms_cuda(const at::Tensor &boxes, const at::Tensor &scores, double threshold,
                    int64_t offset)
{
    TORCH_CHECK(boxes.is_cuda(), "nms: boxes must be on a CUDA device");
    TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, "nms: boxes must be [n, 4]");
    const at::cuda::CUDAGuard guard(boxes.device());
    const at::Tensor order = std::get<1>(scores.sort(/*stable=*/true, 0, /*descending=*/true));
    const int n = static_cast<int>(boxes.size(0));
    if (n == 0) return order;
    const at::Tensor sorted = boxes.index_select(0, order).contiguous();
    const int n_words = (n + PER_BLOCK - 1) / PER_BLOCK;
    at::Tensor covers = at::empty({n, n_words}, boxes.options().dtype(at::kLong));
    nms_kernel<<<dim3(n_words, n_words), PER_BLOCK, 0, at::cuda::getCurrentCUDAStream()>>>(
        sorted.data_ptr<float>(), n, static_cast<float>(threshold), static_cast<float>(offset),
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

__global__ void box_iou_quadri_kernel(const float *boxes1, const float *boxes2, float *ious,
                                      int n1, int n2, bool iof, bool aligned)
{
    const int n = aligned ? n1 : n1 * n2;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    {
        Point a[4], b[4], points[MOST], hull[MOST];
        for (int k = 0; k < 4; k++) {
            const float *p = boxes1 + (aligned ? i : i / n2) * 8 + 2 * k;
            const float *q = boxes2 + (aligned ? i : i % n2) * 8 + 2 * k;
            a[k] = {p[0], p[1]};
            b[k] = {q[0], q[1]};
        }
        const float area_a = area(a, 4), area_b = area(b, 4);
        const int n_points = common_points(a, b, points);
        const int n_hull = n_points > 2 ? hull_of(points, n_points, hull) : 0;
        const float both = area(hull, n_hull);
        const float all = iof ? area_a : area_a + area_b - both;
        ious[i] = all > 1e-14f ? both / all : 0.0f;
    }
}

at::Tensor box_iou_quadri_cuda(const at::Tensor &a, const at::Tensor &b, bool iof, bool aligned)
{
    TORCH_CHECK(a.is_cuda() && b.is_cuda(), "box_iou_quadri: boxes must be on a CUDA device");
    const at::cuda::CUDAGuard guard(a.device());
    const int n = static_cast<int>(a.size(0)), m = static_cast<int>(b.size(0));
    at::Tensor ious = aligned ? at::empty({n}, a.options()) : at::empty({n, m}, a.options());
    const int total = static_cast<int>(ious.numel());
    if (total == 0) return ious;
    box_iou_quadri_kernel<<<(total + 127) / 128, 128, 0, at::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), ious.data_ptr<float>(), n, m, iof, aligned);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return ious;
}

} // namespace

TORCH_LIBRARY(boxes, m)
{
    m.def("nms(Tensor boxes, Tensor scores, float threshold, int offset) -> Tensor");
    m.def("box_iou_quadri(Tensor a, Tensor b, bool iof, bool aligned) -> Tensor");
    m.def("upsample(Tensor image) -> Tensor");
}
TORCH_LIBRARY_IMPL(boxes, CUDA, m)
{
    m.impl("nms", &nms_cuda);
    m.impl("box_iou_quadri", &box_iou_quadri_cuda);
}
