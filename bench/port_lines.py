# SPDX-License-Identifier: Apache-2.0
"""Lines of C++ for CUDA, labelled by hand: names that a port has to change, and what must stay as it is."""

# code, names that must be gone, words that must be there as often as before
LINES: list[tuple[str, str, str]] = [
    (
        "cudaMalloc(&p, n); cudaMallocCount(n); my_cudaMalloc(n);",
        "cudaMalloc",
        "cudaMallocCount my_cudaMalloc",
    ),
    ("at::Tensor Accumulate(at::Tensor x); int cudart = 0;", "", "Accumulate cudart"),
    ('#include "barracuda.h"', "", "barracuda.h"),
    ('printf("cudaMalloc failed on cuda\\n");', "", "cudaMalloc cuda"),
    ("// cudaFree(p) is called by the caller of cudaMalloc\nint x;", "", "cudaFree cudaMalloc"),
    ("/* launch as k<<<1, 1>>>, see cudaLaunchKernel */ int y;", "", "cudaLaunchKernel k<<<1"),
    ("#include <cuda_runtime.h>", "cuda_runtime.h", ""),
    ("#include <cuda.h>\n#include <cuda_fp16.h>", "cuda.h cuda_fp16.h", ""),
    ("#include <ATen/cuda/CUDAContext.h>", "ATen/cuda/CUDAContext.h", ""),
    ("#include <c10/cuda/CUDAGuard.h>", "c10/cuda/CUDAGuard.h", ""),
    ("#include <curand_kernel.h>\n#include <cublas_v2.h>", "curand_kernel.h cublas_v2.h", ""),
    (
        "cudaStream_t s = at::cuda::getCurrentCUDAStream();",
        "cudaStream_t getCurrentCUDAStream at::cuda",
        "",
    ),
    (
        "auto s = c10::cuda::getCurrentCUDAStream().stream();",
        "c10::cuda getCurrentCUDAStream",
        "stream",
    ),
    ("const at::cuda::OptionalCUDAGuard g(device_of(x));", "OptionalCUDAGuard", "device_of"),
    ("c10::cuda::CUDAGuard guard{x.device()};", "CUDAGuard", "guard"),
    ("C10_CUDA_CHECK(cudaGetLastError());", "C10_CUDA_CHECK cudaGetLastError", ""),
    ("C10_CUDA_KERNEL_LAUNCH_CHECK();", "C10_CUDA_KERNEL_LAUNCH_CHECK", ""),
    (
        "AT_CUDA_CHECK(cudaMemcpyAsync(d, h, n, cudaMemcpyHostToDevice, s));",
        "AT_CUDA_CHECK cudaMemcpyAsync cudaMemcpyHostToDevice",
        "",
    ),
    ('TORCH_CHECK(x.is_cuda(), "x must be on cuda");', "is_cuda", 'cuda"'),
    ("bool is_cuda = true; use(is_cuda);", "", "is_cuda"),
    ("if (x.device().type() == at::kCUDA) f();", "kCUDA", ""),
    ("auto d = c10::DeviceType::CUDA; int CUDA = 1;", "DeviceType::CUDA", ""),
    ('TORCH_LIBRARY_IMPL(ops, CUDA, m) { m.impl("f", &f); }', "CUDA,", "f"),
    ("auto o = torch::empty({1}, torch::kCUDA);", "kCUDA", "empty"),
    ('auto y = x.to(torch::Device("cuda:0"));', "cuda:0", ""),
    ('std::string mode = "cuda"; log(mode);', "", "cuda"),
    ("#define CUDA_1D_KERNEL_LOOP(i, n) for (int i = 0; i < (n); i++)", "", "CUDA_1D_KERNEL_LOOP"),
    ("void nms_cuda(at::Tensor b) { nms_cuda(b); }", "", "nms_cuda"),
    (
        "cublasHandle_t h; cublasCreate(&h); cublasSgemm(h);",
        "cublasHandle_t cublasCreate cublasSgemm",
        "",
    ),
    (
        "curandStatePhilox4_32_10_t s; curand_init(0, 0, 0, &s);",
        "curandStatePhilox4_32_10_t curand_init",
        "",
    ),
    (
        "ncclComm_t c; ncclAllReduce(a, b, n, ncclFloat, ncclSum, c, s);",
        "ncclComm_t ncclAllReduce ncclFloat",
        "",
    ),
    ("cufftHandle plan; cufftPlan1d(&plan, n, t, 1);", "cufftHandle cufftPlan1d", "plan"),
    ("cudaError_t e = cudaSuccess; if (e != cudaSuccess) throw e;", "cudaError_t cudaSuccess", ""),
    (
        "cudaEvent_t a; cudaEventCreate(&a); cudaEventRecord(a, s);",
        "cudaEvent_t cudaEventCreate cudaEventRecord",
        "",
    ),
    (
        "cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);",
        "cudaDeviceProp cudaGetDeviceProperties",
        "",
    ),
    ("k<<<g, b, 0, at::cuda::getCurrentCUDAStream()>>>(x);", "getCurrentCUDAStream", "k<<<g"),
    ('const char *s = R"(cudaFree(p))"; int n = 1\'000;', "", "cudaFree"),
    ("cuda\\\nFree(p);", "cuda\\\nFree", ""),
    ("mine::cudaThing t; thing.cudaFree = 1;", "", "cudaThing thing.cudaFree"),
    ("cudaOccupancyMaxPotentialBlockSize(&g, &b, k);", "cudaOccupancyMaxPotentialBlockSize", ""),
    (
        "cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, n);",
        "cudaFuncSetAttribute cudaFuncAttributeMaxDynamicSharedMemorySize",
        "",
    ),
    ("__nv_bfloat16 b; __nv_bfloat162 c;", "__nv_bfloat16 __nv_bfloat162", ""),
    (
        "#ifdef __CUDACC__\n#define HD __host__ __device__\n#endif",
        "__CUDACC__",
        "__host__ __device__",
    ),
    ("at::cuda::CUDAStream s2 = at::cuda::getStreamFromPool();", "CUDAStream at::cuda", ""),
    ("auto gen = at::cuda::detail::getDefaultCUDAGenerator();", "getDefaultCUDAGenerator", ""),
    ("cusparseHandle_t h2; cusparseSpMM(h2);", "cusparseHandle_t cusparseSpMM", ""),
    ("int cuda_version = 3; f(cuda_version);", "", "cuda_version"),
    ('#include "my/cuda/helper.h"', "", "my/cuda/helper.h"),
    ("cudaSetDevice(0); cudaDeviceSynchronize();", "cudaSetDevice cudaDeviceSynchronize", ""),
    ("c10::cuda::CUDACachingAllocator::emptyCache();", "CUDACachingAllocator", "emptyCache"),
]

# HIP answers to CUDA's name there
CALLED_SO_AT_HIP = {"is_cuda", "kCUDA", "DeviceType::CUDA", "CUDA,", "cuda:0"}
