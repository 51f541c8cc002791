#ifndef HELPER_CUH_
#define HELPER_CUH_
#include <cuda_fp16.h>
template <typename T>
__device__ __forceinline__ T load(const T* p) { return __ldg(p); }
#endif
