// SPDX-License-Identifier: Apache-2.0
// What goes into a package of AOTInductor that is compiled for the simulated device, in
// front of the code that Inductor writes (python/ulpscope/sim_packages.py), and what its
// runner (packages.cpp) knows of that. Memory of such a package is the device's, and each
// kernel has its arguments open while it runs; operators that are no kernels of Inductor go
// through torch's dispatcher, as in Python.
#pragma once

#include <cstddef>
#include <cstdint>

// One argument of a kernel: an address within what it may touch.
struct usc_sim_package_argument {
    const void *address;
    bool written;
};

// What the runner does for a package. Each gives NULL, or why it could not be done.
struct usc_sim_package_calls {
    const char *(*allocate)(size_t size, void **out);
    void (*free)(void *block);
    const char *(*copy)(void *to, const void *from,
                        size_t size); // either may be the host's
    const char *(*open)(const char *kernel, const usc_sim_package_argument *all,
                        size_t n);
    void (*close)(const usc_sim_package_argument *all, size_t n);
    // An operator by the arguments of its C shim, each in a word.
    const char *(*call)(const char *op, const char *overload, const uint64_t *words,
                        size_t n);
};

// The one symbol of a package that its runner looks for, `usc_sim_package`.
struct usc_sim_package_head {
    uint64_t form; // USC_SIM_PACKAGE_FORM of what it was compiled with
    const char *torch;
    const char *inputs; // a letter for each: s on the device, h in the host's memory
    const usc_sim_package_calls *calls; // set by the runner, before anything else
};

#define USC_SIM_PACKAGE_FORM 1

#ifdef USC_SIM_PACKAGE_TORCH // in a package: torch's version; _INPUTS as above

// Torch's runtime of a package knows four devices by name; the device takes the place of
// the one whose memory is told by a block and an offset in it.
#define USE_MPS 1
#define aoti_torch_device_type_mps aoti_torch_device_type_privateuse1
#define aoti_torch_mps_malloc usc_sim_package_malloc
#define aoti_torch_mps_free usc_sim_package_free
#define aoti_torch_mps_memcpy usc_sim_package_memcpy
#define aoti_torch_mps_copy_buffer usc_sim_package_copy

#include <torch/csrc/inductor/aoti_include/common.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_aten.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <cstring>
#include <stdexcept>
#include <type_traits>

extern "C" {

__attribute__((visibility("default"))) usc_sim_package_head usc_sim_package = {
    USC_SIM_PACKAGE_FORM, USC_SIM_PACKAGE_TORCH, USC_SIM_PACKAGE_INPUTS, nullptr};

static inline void usc_sim_package_check(const char *why)
{
    if (why != nullptr) throw std::runtime_error(why);
}

AOTITorchError usc_sim_package_malloc(void **buffer, size_t num_bytes)
{
    usc_sim_package_check(usc_sim_package.calls->allocate(num_bytes, buffer));
    return AOTI_TORCH_SUCCESS;
}

AOTITorchError usc_sim_package_free(void *ptr)
{
    usc_sim_package.calls->free(ptr);
    return AOTI_TORCH_SUCCESS;
}

AOTITorchError usc_sim_package_memcpy(void *buffer, size_t constant_offset,
                                      size_t bytes_read, size_t data_size,
                                      uint8_t *constants_start)
{
    usc_sim_package_check(
        usc_sim_package.calls->copy(static_cast<char *>(buffer) + constant_offset,
                                    constants_start + bytes_read, data_size));
    return AOTI_TORCH_SUCCESS;
}

AOTITorchError usc_sim_package_copy(void *src_buffer, void *dst_buffer, size_t data_size,
                                    size_t src_offset, size_t dst_offset)
{
    if (src_offset != 0)
        throw std::runtime_error(
            "sim: a constant of a package is replaced by a view into "
            "another tensor; give it a clone()");
    usc_sim_package_check(usc_sim_package.calls->copy(
        static_cast<char *>(dst_buffer) + dst_offset, src_buffer, data_size));
    return AOTI_TORCH_SUCCESS;
}
}

namespace
{

// Sizes and dtypes of inputs are held to what the package was made for, unless
// AOTI_RUNTIME_CHECK_INPUTS=0 says that the caller does that.
inline const char *usc_sim_package_getenv(const char *name)
{
    const char *value = getenv(name);
    return value == nullptr && std::strcmp(name, "AOTI_RUNTIME_CHECK_INPUTS") == 0
               ? "1"
               : value;
}
#define getenv usc_sim_package_getenv

// A kernel's arguments are open while it lives.
template <size_t N> struct usc_sim_package_kernel {
    usc_sim_package_argument all[N];
    usc_sim_package_kernel(const char *kernel, const usc_sim_package_argument (&given)[N])
    {
        std::memcpy(all, given, sizeof all);
        usc_sim_package_check(usc_sim_package.calls->open(kernel, all, N));
    }
    ~usc_sim_package_kernel()
    {
        usc_sim_package.calls->close(all, N);
    }
    usc_sim_package_kernel(const usc_sim_package_kernel &) = delete;
    usc_sim_package_kernel &operator=(const usc_sim_package_kernel &) = delete;
};

template <class T> uint64_t usc_sim_package_word(T value)
{
    if constexpr (std::is_floating_point_v<T>) {
        const double wide = value;
        uint64_t word;
        std::memcpy(&word, &wide, sizeof word);
        return word;
    } else if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<uintptr_t>(value);
    } else {
        return static_cast<uint64_t>(static_cast<int64_t>(value));
    }
}

// An operator in the form of its C shim for the CPU.
template <class Shim> struct usc_sim_package_shim;
template <class... A> struct usc_sim_package_shim<AOTITorchError(A...)> {
    const char *op, *overload;
    AOTITorchError operator()(A... given) const
    {
        const uint64_t words[] = {usc_sim_package_word(given)...};
        usc_sim_package_check(
            usc_sim_package.calls->call(op, overload, words, sizeof...(A)));
        return AOTI_TORCH_SUCCESS;
    }
};

} // namespace

#endif
