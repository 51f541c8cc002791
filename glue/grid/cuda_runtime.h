// SPDX-License-Identifier: Apache-2.0
// CUDA's header of that name, for the simulated device: what kernels see, and the part of
// the runtime's functions that the device has. What it lacks is not declared.
#pragma once

#include "grid_core.h"
#include "grid_math.h"
#include "grid_vectors.h"
#include "grid_warp.h"

#include <ulpscope_sim/profile.h>

#ifdef ULPSCOPE_SIM_TORCH
#include <c10/core/impl/VirtualGuardImpl.h>
#endif

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNotReady = 600,
    cudaErrorUnknown = 999,
};
typedef cudaError_t cudaError;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
    int warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int major, minor, multiProcessorCount, maxThreadsPerMultiProcessor;
};

namespace usc_grid_cxx
{

// Of a block, unless a kernel asks for more.
inline int shared_size()
{
    usc_sim_profile profile;
    usc_sim_profile_get(&profile);
    return (int)profile.shared_size;
}

// What the last function of the runtime on this thread said.
inline std::string &last_error()
{
    static thread_local std::string text;
    return text;
}

inline cudaError_t &last_code()
{
    static thread_local cudaError_t code = cudaSuccess;
    return code;
}

inline cudaError_t said(usc_status status, const usc_error &err)
{
    if (status == USC_OK) return cudaSuccess;
    last_error() = err.text;
    return last_code() =
               status == USC_E_NOMEM ? cudaErrorMemoryAllocation : cudaErrorInvalidValue;
}

#ifdef ULPSCOPE_SIM_TORCH
inline int current_device()
{
    return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getDevice().index();
}

inline void set_current_device(int device)
{
    c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1)
        .setDevice(c10::Device(c10::DeviceType::PrivateUse1, (c10::DeviceIndex)device));
}
#else
inline int &current_device_of_thread()
{
    static thread_local int device = 0;
    return device;
}

inline int current_device()
{
    return current_device_of_thread();
}

inline void set_current_device(int device)
{
    current_device_of_thread() = device;
}
#endif

inline cudaError_t copy(void *to, const void *from, size_t size, cudaStream_t stream,
                        bool wait)
{
    const int device = usc_sim_device_of(to) >= 0     ? usc_sim_device_of(to)
                       : usc_sim_device_of(from) >= 0 ? usc_sim_device_of(from)
                                                      : current_device();
    const usc_sim_stream s = stream_from(stream, device);
    usc_error err{};
    const cudaError_t code = said(usc_sim_copy(s, to, from, size, &err), err);
    if (code != cudaSuccess || !wait) return code;
    return said(usc_sim_stream_synchronize(s, &err), err);
}

struct fill_work {
    void *to;
    int value;
    size_t size;

    static usc_status run(void *ctx, usc_error *err)
    {
        const auto *f = static_cast<const fill_work *>(ctx);
        const usc_status st = usc_sim_open(f->to, USC_SIM_WRITE, err);
        if (st != USC_OK) return st;
        std::memset(f->to, f->value, f->size);
        usc_sim_close(f->to, USC_SIM_WRITE);
        return USC_OK;
    }
    static void drop(void *ctx)
    {
        auto *f = static_cast<fill_work *>(ctx);
        usc_sim_unpin(f->to);
        delete f;
    }
};

inline cudaError_t fill(void *to, int value, size_t size, cudaStream_t stream, bool wait)
{
    const usc_sim_stream s = stream_from(stream, usc_sim_device_of(to));
    usc_sim_command c{};
    c.run = &fill_work::run;
    c.drop = &fill_work::drop;
    usc_sim_pin(to);
    c.ctx = new fill_work{to, value, size};
    std::strncpy(c.name, "cudaMemset", sizeof c.name - 1);
    usc_error err{};
    const cudaError_t code = said(usc_sim_submit(s, &c, &err), err);
    if (code != cudaSuccess || !wait) return code;
    return said(usc_sim_stream_synchronize(s, &err), err);
}

inline int attribute(cudaDeviceAttr which)
{
    switch (which) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return USC_GRID_MAX_THREADS;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return shared_size();
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return (int)USC_GRID_SHARED_SIZE_MAX;
    case cudaDevAttrWarpSize:
        return warpSize;
    case cudaDevAttrComputeCapabilityMajor:
        return 8;
    case cudaDevAttrMultiProcessorCount:
        return 1;
    case cudaDevAttrComputeCapabilityMinor:
        break;
    }
    return 0;
}

// `text` is "scale<float>, cudaFuncAttribute...": the name in it.
inline std::string kernel_name(const char *text)
{
    std::string name(text);
    name = name.substr(0, name.find_first_of("<,"));
    while (!name.empty() && (name.back() == ' ' || name.back() == ')'))
        name.pop_back();
    return name.substr(std::min(name.size(), name.find_last_of("( &") + 1));
}

inline cudaError_t set_attribute(const char *text, cudaFuncAttribute which, size_t value)
{
    usc_error err{};
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    return said(usc_grid_allow_shared(kernel_name(text).c_str(), value, &err), err);
}

} // namespace usc_grid_cxx

#include "grid_address.h"

// ---- errors: a launch that fails throws, so that none is lost

inline cudaError_t cudaGetLastError()
{
    return std::exchange(usc_grid_cxx::last_code(), cudaSuccess);
}
inline cudaError_t cudaPeekAtLastError()
{
    return usc_grid_cxx::last_code();
}
inline const char *cudaGetErrorString(cudaError_t code)
{
    return code == cudaSuccess ? "no error" : usc_grid_cxx::last_error().c_str();
}
inline const char *cudaGetErrorName(cudaError_t code)
{
    return code == cudaSuccess                 ? "cudaSuccess"
           : code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
           : code == cudaErrorNotReady         ? "cudaErrorNotReady"
                                               : "cudaErrorInvalidValue";
}

// ---- devices

inline cudaError_t cudaGetDevice(int *device)
{
    *device = usc_grid_cxx::current_device();
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = usc_sim_device_count();
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device)
{
    usc_error err{};
    if (device < 0 || device >= usc_sim_device_count())
        return usc_grid_cxx::said(
            usc_error_set(&err, USC_E_ARG, -1, "sim: there is no device %d", device),
            err);
    usc_grid_cxx::set_current_device(device);
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize()
{
    usc_error err{};
    return usc_grid_cxx::said(
        usc_sim_device_synchronize(usc_grid_cxx::current_device(), &err), err);
}
inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int)
{
    *value = usc_grid_cxx::attribute(which);
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device)
{
    *out = cudaDeviceProp{};
    size_t n_free = 0;
    std::strcpy(out->name, "sim");
    usc_sim_memory_info(device, &n_free, &out->totalGlobalMem);
    out->sharedMemPerBlock = (size_t)usc_grid_cxx::shared_size();
    out->sharedMemPerBlockOptin = USC_GRID_SHARED_SIZE_MAX;
    out->warpSize = warpSize;
    out->maxThreadsPerBlock = out->maxThreadsPerMultiProcessor = USC_GRID_MAX_THREADS;
    for (int i = 0; i < 3; i++) {
        out->maxThreadsDim[i] = i < 2 ? USC_GRID_MAX_THREADS : 64;
        out->maxGridSize[i] = i == 0 ? INT32_MAX : 65535;
    }
    out->major = 8;
    out->multiProcessorCount = 1;
    return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(size_t *n_free, size_t *total)
{
    usc_sim_memory_info(usc_grid_cxx::current_device(), n_free, total);
    return cudaSuccess;
}
template <class K>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, K, int threads,
                                                                 size_t)
{
    *n = threads > 0 ? std::max(1, USC_GRID_MAX_THREADS / threads) : 0;
    return cudaSuccess;
}
template <class K>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int *grid, int *block, K,
                                                      size_t = 0, int = 0)
{
    *grid = 1;
    *block = 256;
    return cudaSuccess;
}

// ---- memory

inline cudaError_t usc_grid_malloc(void **out, size_t size)
{
    usc_error err{};
    return usc_grid_cxx::said(
        usc_sim_malloc(usc_grid_cxx::current_device(), size, out, &err), err);
}
template <class T> inline cudaError_t cudaMalloc(T **out, size_t size)
{
    return usc_grid_malloc(reinterpret_cast<void **>(out), size);
}
inline cudaError_t cudaFree(void *p)
{
    const cudaError_t code = cudaDeviceSynchronize();
    usc_sim_free(p);
    return code;
}
template <class T> inline cudaError_t cudaMallocHost(T **out, size_t size)
{
    *out = static_cast<T *>(usc_sim_host_malloc(size));
    return *out != nullptr || size == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFreeHost(void *p)
{
    usc_sim_host_free(p);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind)
{
    return usc_grid_cxx::copy(to, from, size, nullptr, true);
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size,
                                   cudaMemcpyKind, cudaStream_t stream = nullptr)
{
    return usc_grid_cxx::copy(to, from, size, stream, false);
}
inline cudaError_t cudaMemset(void *to, int value, size_t size)
{
    return usc_grid_cxx::fill(to, value, size, nullptr, true);
}
inline cudaError_t cudaMemsetAsync(void *to, int value, size_t size,
                                   cudaStream_t stream = nullptr)
{
    return usc_grid_cxx::fill(to, value, size, stream, false);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T &symbol, const void *from, size_t size,
                                      size_t at = 0, cudaMemcpyKind = cudaMemcpyDefault)
{
    return usc_grid_cxx::copy(reinterpret_cast<char *>(&symbol) + at, from, size, nullptr,
                              true);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void *to, const T &symbol, size_t size,
                                        size_t at = 0, cudaMemcpyKind = cudaMemcpyDefault)
{
    return usc_grid_cxx::copy(to, reinterpret_cast<const char *>(&symbol) + at, size,
                              nullptr, true);
}
template <class T>
inline cudaError_t
cudaMemcpyToSymbolAsync(T &symbol, const void *from, size_t size, size_t at = 0,
                        cudaMemcpyKind = cudaMemcpyDefault, cudaStream_t stream = nullptr)
{
    return usc_grid_cxx::copy(reinterpret_cast<char *>(&symbol) + at, from, size, stream,
                              false);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbolAsync(void *to, const T &symbol, size_t size,
                                             size_t at = 0,
                                             cudaMemcpyKind = cudaMemcpyDefault,
                                             cudaStream_t stream = nullptr)
{
    return usc_grid_cxx::copy(to, reinterpret_cast<const char *>(&symbol) + at, size,
                              stream, false);
}
template <class T> inline cudaError_t cudaGetSymbolAddress(void **out, T &symbol)
{
    *out = const_cast<void *>(reinterpret_cast<const void *>(&symbol));
    return cudaSuccess;
}

// ---- streams and events

typedef usc_sim_event *cudaEvent_t;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };

inline cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    *out = usc_grid_cxx::stream_to(
        usc_sim_stream_next(usc_grid_cxx::current_device(), false));
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    return cudaStreamCreate(out);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess; // it goes back to a pool that has no end
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    usc_error err{};
    return usc_grid_cxx::said(
        usc_sim_stream_synchronize(
            usc_grid_cxx::stream_from(stream, usc_grid_cxx::current_device()), &err),
        err);
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return usc_sim_stream_query(
               usc_grid_cxx::stream_from(stream, usc_grid_cxx::current_device()))
               ? cudaSuccess
               : cudaErrorNotReady;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    usc_error err{};
    return usc_grid_cxx::said(
        usc_sim_event_create((flags & cudaEventDisableTiming) == 0, out, &err), err);
}
inline cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    usc_sim_event_free(event);
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr)
{
    usc_error err{};
    return usc_grid_cxx::said(
        usc_sim_event_record(
            event, usc_grid_cxx::stream_from(stream, usc_grid_cxx::current_device()),
            &err),
        err);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    usc_error err{};
    return usc_grid_cxx::said(usc_sim_event_synchronize(event, &err), err);
}
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    usc_error err{};
    double time = 0;
    const usc_status st = usc_sim_event_elapsed(from, to, &time, &err);
    *ms = (float)time;
    return usc_grid_cxx::said(st, err);
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                       unsigned = 0)
{
    usc_error err{};
    return usc_grid_cxx::said(
        usc_sim_stream_wait(
            usc_grid_cxx::stream_from(stream, usc_grid_cxx::current_device()), event,
            &err),
        err);
}
