// SPDX-License-Identifier: Apache-2.0
// Kernels by name and by address: a part of cuda_runtime.h, which includes it behind what
// it needs.
#pragma once

// Of a kernel's name: a template that has no address of its own may be meant.
#define cudaFuncSetAttribute(...)                                                        \
    ::usc_grid_cxx::set_attribute_last(#__VA_ARGS__,                                     \
                                       [&](auto with) { return with(__VA_ARGS__); })

namespace usc_grid_cxx
{

struct asked_attribute {
    std::string name; // "": as it is written
    cudaFuncAttribute which;
    size_t value;
};

struct last_two {
    template <class K>
    asked_attribute operator()(K &&kernel, cudaFuncAttribute which, size_t value) const
    {
        const void *address = nullptr;
        if constexpr (std::is_convertible<K, const void *>::value) address = kernel;
        return {address != nullptr ? name_of_handed_on(address) : "", which, value};
    }
};

template <class F> cudaError_t set_attribute_last(const char *text, F call)
{
    const auto asked = call(last_two{});
    return set_attribute(asked.name.empty() ? text : asked.name.c_str(), asked.which,
                         asked.value);
}

} // namespace usc_grid_cxx

enum cudaFuncCache {
    cudaFuncCachePreferNone,
    cudaFuncCachePreferShared,
    cudaFuncCachePreferL1,
    cudaFuncCachePreferEqual
};
enum cudaSharedMemConfig {
    cudaSharedMemBankSizeDefault,
    cudaSharedMemBankSizeFourByte,
    cudaSharedMemBankSizeEightByte
};

// Hints: here there is nothing to prefer.
#define cudaFuncSetCacheConfig(...) (cudaSuccess)
#define cudaFuncSetSharedMemConfig(...) (cudaSuccess)

// A kernel by its address, with the addresses of its arguments. What those are is known of
// a kernel that this library has handed on as void *, or that is given as it is.
#define cudaLaunchKernel(...)                                                            \
    ::usc_grid_cxx::launch_by_address(USC_GRID_HERE, __VA_ARGS__)

namespace usc_grid_cxx
{

template <class... A>
cudaError_t launch_by_address(const char *place, void (*kernel)(A...), dim3 grid,
                              dim3 block, void **args, size_t shared_size = 0,
                              cudaStream_t stream = nullptr)
{
    launch_handed_on<A...>(reinterpret_cast<const void *>(kernel), "(kernel)", place,
                           grid, block, args, shared_size, stream);
    return cudaSuccess;
}

inline cudaError_t launch_by_address(const char *place, const void *kernel, dim3 grid,
                                     dim3 block, void **args, size_t shared_size = 0,
                                     cudaStream_t stream = nullptr)
{
    usc_error err{};
    const handed_on known = find_handed_on(kernel);
    if (known.launch == nullptr)
        return said(
            usc_error_set(&err, USC_E_ARG, -1,
                          "cudaLaunchKernel at %s: nobody knows the arguments of "
                          "this kernel: hand it on as (void *)NAME in this library",
                          place),
            err);
    known.launch(kernel, known.name, place, grid, block, args, shared_size, stream);
    return cudaSuccess;
}

} // namespace usc_grid_cxx
