// SPDX-License-Identifier: Apache-2.0
// What of torch has private names and is needed to register a device (torch_private.h says
// how each is asked for). Some have no way on, as nothing is a device of torch's without them:
// the interface of guards and streams, the hooks, the kernels that make views of a storage.
// A torch that has moved one of these does not compile this file, and is told by that name.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution_overrideable.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <functional>
#include <limits>
#include <memory>
#include <utility>

namespace usc_glue
{

/** A tensor of one of torch's classes of them, made as that is. */
template <class Impl, class... Args> at::Tensor tensor_of(Args &&...args)
{
    c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> made(
        c10::make_intrusive<Impl>(std::forward<Args>(args)...));
    return at::Tensor(std::move(made)); // wrap_tensor_impl refuses sparse ones
}

namespace way_on
{

constexpr auto MOST = static_cast<size_t>(std::numeric_limits<int64_t>::max());

// Without torch's makers of empty tensors.
inline at::Tensor empty_of(at::IntArrayRef sizes, size_t n, c10::Allocator *allocator,
                           c10::DispatchKeySet keys, c10::ScalarType type)
{
    for (const int64_t size : sizes)
        TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size,
                    ": ", sizes);
    const caffe2::TypeMeta meta = c10::scalarTypeToTypeMeta(type);
    TORCH_CHECK(n <= MOST / meta.itemsize(), "a storage of ", n,
                " elements is larger than any");
    c10::Storage storage(c10::Storage::use_byte_size_t(), n * meta.itemsize(), allocator,
                         /*resizable=*/true);
    return tensor_of<c10::TensorImpl>(std::move(storage), keys, meta);
}

// Numbers of elements; what is too large stays so.
inline size_t times(size_t a, int64_t b)
{
    const auto n = static_cast<size_t>(b < 0 ? 0 : b);
    return n != 0 && a > MOST / n ? MOST : a * n;
}

inline size_t plus(size_t a, size_t b)
{
    return a > MOST - b ? MOST : a + b;
}

namespace detail
{

template <class Format>
at::Tensor empty_generic(at::IntArrayRef sizes, c10::Allocator *allocator,
                         c10::DispatchKeySet keys, c10::ScalarType type, Format format)
{
    size_t n = 1;
    for (const int64_t size : sizes)
        n = times(n, size);
    at::Tensor made = empty_of(sizes, n, allocator, keys, type);
    made.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    if (format && *format != c10::MemoryFormat::Contiguous)
        made.unsafeGetTensorImpl()->empty_tensor_restride(*format);
    return made;
}

inline at::Tensor empty_strided_generic(at::IntArrayRef sizes, at::IntArrayRef strides,
                                        c10::Allocator *allocator,
                                        c10::DispatchKeySet keys, c10::ScalarType type)
{
    TORCH_CHECK(sizes.size() == strides.size(), "dimensionality of sizes (", sizes.size(),
                ") must match dimensionality of strides (", strides.size(), ")");
    size_t n = 1; // up to the last element
    for (size_t i = 0; i < sizes.size(); i++)
        if (sizes[i] > 0) n = plus(n, times(times(1, strides[i]), sizes[i] - 1));
    for (const int64_t size : sizes)
        if (size == 0) n = 0;
    at::Tensor made = empty_of(sizes, n, allocator, keys, type);
    made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    return made;
}

} // namespace detail

namespace guards
{

// Without the class that registers a guard for good.
struct DeviceGuardImplRegistrar {
    DeviceGuardImplRegistrar(c10::DeviceType type,
                             const c10::impl::DeviceGuardImplInterface *guard)
    {
        c10::impl::device_guard_impl_registry[static_cast<size_t>(type)].store(guard);
    }
};

} // namespace guards

namespace generators
{

// Without it torch asks hooks, or makes no generators of this device.
struct _GeneratorRegister {
    template <class Make> explicit _GeneratorRegister(const Make &)
    {
    }
};

} // namespace generators
} // namespace way_on
} // namespace usc_glue

namespace at
{
using namespace usc_glue::way_on::generators;
namespace detail
{
using namespace usc_glue::way_on::detail;
}
} // namespace at

namespace c10::impl
{
using namespace usc_glue::way_on::guards;
}

namespace usc_glue
{

/* ---- memory ---- */

template <class Format>
at::Tensor empty_on(at::IntArrayRef sizes, c10::Allocator *allocator,
                    c10::DispatchKey key, c10::ScalarType type, Format format)
{
    return at::detail::empty_generic(sizes, allocator, c10::DispatchKeySet(key), type,
                                     format);
}

inline at::Tensor empty_strided_on(at::IntArrayRef sizes, at::IntArrayRef strides,
                                   c10::Allocator *allocator, c10::DispatchKey key,
                                   c10::ScalarType type)
{
    return at::detail::empty_strided_generic(sizes, strides, allocator,
                                             c10::DispatchKeySet(key), type);
}

/* ---- what torch asks of a device ---- */

using GuardInterface = c10::impl::DeviceGuardImplInterface;

/** A guard for all devices of a type; it stays. */
inline void register_guard(c10::DeviceType type, const GuardInterface *guard)
{
    c10::impl::DeviceGuardImplRegistrar registrar(type, guard);
}

/** How generators are made, for a torch that does not ask the hooks for them. */
template <class Make> void register_generators(Make make)
{
    at::_GeneratorRegister registrar(make);
}

/* ---- operators ---- */

/* Views of a strided storage, as torch computes them for its own devices. */
namespace views
{
inline constexpr auto &as_strided = at::native::as_strided_tensorimpl;
inline constexpr auto &view = at::native::view;
inline constexpr auto &reshape_alias = at::native::_reshape_alias;
inline constexpr auto &unfold = at::native::unfold;
inline constexpr auto &view_as_real = at::native::view_as_real;
inline constexpr auto &view_as_complex = at::native::view_as_complex;
} // namespace views

/* What convolution_overrideable takes, which of its numbers are symbolic. */
using convolution_signature = at::_ops::convolution_overrideable::schema;

using NestedTensorImpl = at::native::NestedTensorImpl;

} // namespace usc_glue

/* ---- the profiler ---- */

#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>) &&            \
    __has_include(<kineto/libkineto.h>)
/* without: the profiler sees the host alone */
#define USC_GLUE_KNOWS_KINETO 1

#include <torch/csrc/Export.h>

namespace libkineto
{
class IActivityProfiler;
}

// As that header has it, which wants Kineto's own folder among those that are searched.
namespace torch::profiler::impl
{
class TORCH_API PrivateUse1ProfilerRegistry
{
  public:
    static PrivateUse1ProfilerRegistry &instance();
    void registerFactory(
        std::function<std::unique_ptr<libkineto::IActivityProfiler>()> factory);
};
} // namespace torch::profiler::impl

namespace usc_glue
{

/** Has torch's profiler make one of the device's own wherever it begins. */
inline void
register_profiler(std::function<std::unique_ptr<libkineto::IActivityProfiler>()> make)
{
    torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
        std::move(make));
}

} // namespace usc_glue
#endif
