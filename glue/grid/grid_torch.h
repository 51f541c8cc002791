// SPDX-License-Identifier: Apache-2.0
// What text of CUDA has from ATen/cuda and c10/cuda, for the simulated device: the current
// stream, checks. What `ulpscope port --to sim` puts in their place.
#pragma once

#include "cuda_runtime.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

namespace ulpscope_sim
{

// The stream that this thread has chosen on a device; -1: on the current one.
class Stream
{
  public:
    explicit Stream(usc_sim_stream stream) : stream_(stream)
    {
    }
    operator cudaStream_t() const
    {
        return stream();
    }
    cudaStream_t stream() const
    {
        return usc_grid_cxx::stream_to(stream_);
    }
    int device_index() const
    {
        return stream_.device;
    }
    void synchronize() const
    {
        usc_error err{};
        usc_grid_cxx::check(usc_sim_stream_synchronize(stream_, &err), err);
    }

  private:
    usc_sim_stream stream_;
};

inline Stream getCurrentStream(int device = -1)
{
    return Stream(
        usc_sim_stream_current(device < 0 ? usc_grid_cxx::current_device() : device));
}

inline Stream getDefaultStream(int device = -1)
{
    return Stream({device < 0 ? usc_grid_cxx::current_device() : device, 0});
}

inline cudaDeviceProp *getCurrentDeviceProperties()
{
    static thread_local cudaDeviceProp properties;
    (void)cudaGetDeviceProperties(&properties, usc_grid_cxx::current_device());
    return &properties;
}

inline int warp_size()
{
    return warpSize;
}

// So many parts of `b` that `a` has its place in them.
template <class T> T ATenCeilDiv(T a, T b)
{
    return (a + b - 1) / b;
}

} // namespace ulpscope_sim

// Accessors of tensors in kernels: torch's headers have these for compilers of CUDA alone.
#if __has_include(<ATen/core/TensorAccessor.h>) && !defined(__CUDACC__) && !defined(__HIPCC__)
namespace at
{
template <typename T> struct RestrictPtrTraits {
    typedef T *__restrict__ PtrType;
};
} // namespace at
#endif

#define USC_SIM_CHECK(expression)                                                        \
    do {                                                                                 \
        const cudaError_t usc_code = (expression);                                       \
        TORCH_CHECK(usc_code == cudaSuccess, "sim: ", cudaGetErrorString(usc_code));     \
    } while (0)
#define USC_SIM_LAUNCH_CHECK() USC_SIM_CHECK(cudaGetLastError())
