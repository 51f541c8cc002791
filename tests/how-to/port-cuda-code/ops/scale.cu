#include <ATen/cuda/CUDAContext.h>
#include "helper.cuh"

__global__ void scale(float* x, int n) {
  const int lane = threadIdx.x % 32;
  if (lane < n) x[lane] = 2 * load(x + lane);
}

void scale_cuda(at::Tensor x) {
  TORCH_CHECK(x.is_cuda());
  scale<<<1, 32, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), 32);
}
