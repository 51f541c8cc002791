// SPDX-License-Identifier: Apache-2.0
// What the bench of the simulated device stands beside: a device that is the host's memory under another name, whose
// operators all run through torch's own at::native::cpu_fallback. Compiled by bench_sim.py.
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>

namespace
{

constexpr auto DEVICE = c10::DeviceType::PrivateUse1;

struct Memory final : c10::Allocator {
    c10::DataPtr allocate(size_t size) override
    {
        void *p = size > 0 ? std::malloc(size) : nullptr;
        return {p, p, &std::free, c10::Device(DEVICE, 0)};
    }
    c10::DeleterFnPtr raw_deleter() const override
    {
        return &std::free;
    }
    void copy_data(void *to, const void *from, size_t size) const override
    {
        std::memcpy(to, from, size);
    }
} memory;

using Guard = c10::impl::NoOpDeviceGuardImpl<DEVICE>;

at::Tensor empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout>, std::optional<c10::Device>,
                 std::optional<bool>, std::optional<c10::MemoryFormat> format)
{
    return at::detail::empty_generic(sizes, &memory,
                                     c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                         std::optional<c10::Device>, std::optional<bool>)
{
    return at::detail::empty_strided_generic(
        sizes, strides, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        c10::dtype_or_default(dtype));
}

at::Tensor host(const at::Tensor &t)
{
    if (t.is_cpu()) return t;
    return at::from_blob(t.data_ptr(), t.sizes(), t.strides(),
                         t.options().device(c10::kCPU));
}

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool)
{
    host(to).copy_(host(from));
    return to;
}

at::Tensor copy_and_resize(const at::Tensor &from, const at::Tensor &to)
{
    return copy_from(from, to, false); // cpu_fallback gives tensors of the same sizes
}

void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    at::native::cpu_fallback(op, stack);
}

c10::impl::DeviceGuardImplRegistrar guard(DEVICE, new Guard);

} // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("_copy_from", copy_from);
    m.impl("_copy_from_and_resize", copy_and_resize);
    m.impl("as_strided", at::native::as_strided_tensorimpl);
}
