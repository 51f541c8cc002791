// SPDX-License-Identifier: Apache-2.0
// What glue/torch_private.h and torch_private_device.h give, by torch's own names and by the
// ways on without them. With MISSING, torch's headers are read with other names in these
// places, as those of a torch that has none of them: then ours have to be found.
#ifdef MISSING
#define VirtualGuardImpl gone_1
#define ExcludeDispatchKeyGuard gone_2
#define ForceDispatchKeyGuard gone_3
#define tls_is_dispatch_key_included gone_4
#define tls_set_dispatch_key_included gone_5
#define getComputedKernelForDispatchKey gone_6
#define empty_generic gone_7
#define empty_strided_generic gone_8
#define DeviceGuardImplRegistrar gone_9
#define _GeneratorRegister gone_10
#define _is_zerotensor gone_11
#define _set_conj gone_12
#endif
#include <ATen/EmptyTensor.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/convolution_overrideable.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/FakeGuardImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#ifdef MISSING
#undef VirtualGuardImpl
#undef ExcludeDispatchKeyGuard
#undef ForceDispatchKeyGuard
#undef tls_is_dispatch_key_included
#undef tls_set_dispatch_key_included
#undef getComputedKernelForDispatchKey
#undef empty_generic
#undef empty_strided_generic
#undef DeviceGuardImplRegistrar
#undef _GeneratorRegister
#undef _is_zerotensor
#undef _set_conj
#endif

#include "torch_private.h"
#include "torch_private_device.h"

#include <type_traits>

using c10::DispatchKey;
using c10::DispatchKeySet;
namespace ways = usc_glue::way_on;

#ifdef MISSING
constexpr bool OURS = true;
#else
constexpr bool OURS = false;
#endif

#define IS_OURS(name, way) (std::is_same_v<name, usc_glue::way_on::way> == OURS)
static_assert(IS_OURS(c10::impl::VirtualGuardImpl, VirtualGuardImpl));
static_assert(IS_OURS(usc_glue::WithoutKeys, ExcludeDispatchKeyGuard));
static_assert(IS_OURS(c10::impl::ForceDispatchKeyGuard, ForceDispatchKeyGuard));
static_assert(IS_OURS(c10::impl::DeviceGuardImplRegistrar,
                      guards::DeviceGuardImplRegistrar));
static_assert(IS_OURS(at::_GeneratorRegister, generators::_GeneratorRegister));
static_assert((&c10::impl::tls_set_dispatch_key_included ==
               &ways::tls_set_dispatch_key_included) == OURS);
static_assert((&c10::impl::tls_is_dispatch_key_included ==
               &ways::tls_is_dispatch_key_included) == OURS);

#ifndef MISSING
#define CHECK(what)                                                                      \
    if (!(what)) return #what
#define RAISES(what)                                                                     \
    [&] {                                                                                \
        try {                                                                            \
            (void)(what);                                                                \
        } catch (const c10::Error &) {                                                   \
            return true;                                                                 \
        }                                                                                \
        return false;                                                                    \
    }()

namespace
{

constexpr c10::DeviceType FAKE = c10::DeviceType::HPU;
using Fake = c10::impl::FakeGuardImpl<FAKE>;

auto now()
{
    return c10::impl::tls_local_dispatch_key_set();
}

bool is_now(DispatchKeySet included, DispatchKeySet excluded)
{
    return now().included_ == included && now().excluded_ == excluded;
}

template <class Without, class Only> const char *keys()
{
    const auto before = now();
    const DispatchKeySet casts(DispatchKey::AutocastCPU), tracer(DispatchKey::Tracer);
    {
        const Without outer{casts};
        CHECK(now().excluded_ == (before.excluded_ | casts));
        {
            const Without inner{casts | tracer};
            CHECK(now().excluded_ == (before.excluded_ | casts | tracer));
        }
        CHECK(is_now(before.included_, before.excluded_ | casts));
        const Only only{ways::keys_of(tracer, DispatchKeySet())};
        CHECK(is_now(tracer, DispatchKeySet()));
    }
    CHECK(is_now(before.included_, before.excluded_));
    return nullptr;
}

template <class Tell, class Set> const char *one_key(Tell tell, Set set)
{
    const auto before = now();
    CHECK(!tell(DispatchKey::Tracer));
    set(DispatchKey::Tracer, true);
    CHECK(tell(DispatchKey::Tracer) && !tell(DispatchKey::Batched));
    CHECK(
        is_now(before.included_ | DispatchKeySet(DispatchKey::Tracer), before.excluded_));
    set(DispatchKey::Tracer, false);
    CHECK(is_now(before.included_, before.excluded_));
    return nullptr;
}

template <class Guard> const char *streams()
{
    const c10::Device first(FAKE, 0), second(FAKE, 1);
    const Guard guard(FAKE);
    c10::impl::VirtualGuardImpl its(FAKE);
    its.setDevice(second);
    its.exchangeStream(c10::Stream(c10::Stream::UNSAFE, first, 3));
    its.exchangeStream(c10::Stream(c10::Stream::UNSAFE, second, 7));
    CHECK(guard.getStream(first).id() == 3 && guard.getStream(first).device() == first);
    CHECK(guard.getStream(second).id() == 7);
    CHECK(usc_glue::current_stream(first).id() == 3);
    CHECK(its.getDevice() == second);
    CHECK(Fake::getCurrentStreamIdFor(0) == 3 && Fake::getCurrentStreamIdFor(1) == 7);
    return nullptr;
}

const char *current_device_without_a_number()
{
    c10::impl::VirtualGuardImpl(FAKE).setDevice(c10::Device(FAKE, 1));
    CHECK(ways::VirtualGuardImpl(FAKE).getStream(c10::Device(FAKE)).id() == 7);
    return nullptr;
}

template <class Kernel>
const char *adds(const Kernel &kernel, const c10::OperatorHandle &op)
{
    torch::jit::Stack stack{at::ones({2}), at::ones({2}), c10::Scalar(2)};
    kernel.callBoxed(op, DispatchKeySet(DispatchKey::CPU), &stack);
    CHECK(stack.size() == 1 && stack[0].toTensor().sum().template item<float>() == 6);
    return nullptr;
}

struct Nothing : c10::OperatorKernel {
    void operator()(const c10::OperatorHandle &, DispatchKeySet, torch::jit::Stack *)
    {
    }
};

const char *kernels()
{
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor");
    if (const char *wrong = adds(usc_glue::kernel_at(op, DispatchKey::CPU), op))
        return wrong;
    if (const char *wrong =
            adds(usc_glue::asked::kernel_at(op, DispatchKey::CPU, 0L), op))
        return wrong;
    const auto other =
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Nothing>());
    CHECK(!usc_glue::runs_at(op, DispatchKey::CPU, other, "no such text"));
    auto own = usc_glue::asked::kernel_at(op, DispatchKey::CPU, 0L);
    CHECK(usc_glue::asked::is_of(own, own, "", 0L));
    CHECK(!usc_glue::asked::is_of(own, other, "", 0L));
    return nullptr;
}

const char *tensors()
{
    const at::Tensor zeros = at::_efficientzerotensor({2}, at::kFloat),
                     plain = at::ones({2});
    CHECK(usc_glue::is_zerotensor(zeros) && !usc_glue::is_zerotensor(plain));
    CHECK(usc_glue::asked::is_zerotensor(zeros, 0L));
    CHECK(!usc_glue::asked::is_zerotensor(plain, 0L));
    const at::Tensor complex = at::ones({2}, at::kComplexFloat);
    usc_glue::set_lazy(complex.unsafeGetTensorImpl(), true, true);
    CHECK(complex.is_conj() && complex.is_neg());
    c10::TensorImpl *impl = plain.unsafeGetTensorImpl();
    CHECK(RAISES(usc_glue::asked::set_lazy(impl, true, false, 0L)));
    CHECK(!RAISES(usc_glue::asked::set_lazy(impl, false, false, 0L)));
    return nullptr;
}

bool alike(const at::Tensor &a, const at::Tensor &b)
{
    return a.sizes() == b.sizes() && a.strides() == b.strides() &&
           a.dtype() == b.dtype() && a.key_set() == b.key_set() &&
           a.storage().nbytes() == b.storage().nbytes() &&
           a.is_contiguous() == b.is_contiguous() && b.storage().resizable() &&
           a.is_contiguous(at::MemoryFormat::ChannelsLast) ==
               b.is_contiguous(at::MemoryFormat::ChannelsLast);
}

const char *memory()
{
    c10::Allocator *host = c10::GetCPUAllocator();
    const DispatchKeySet cpu(DispatchKey::CPU);
    using Sizes = std::vector<int64_t>;
    for (const auto format :
         {std::optional<at::MemoryFormat>(), std::optional(at::MemoryFormat::Contiguous),
          std::optional(at::MemoryFormat::ChannelsLast)})
        for (const Sizes &sizes :
             {Sizes{2, 3, 4, 5}, Sizes{2, 0, 4, 5}, Sizes{1, 1, 1, 1}})
            CHECK(alike(
                usc_glue::empty_on(sizes, host, DispatchKey::CPU, at::kHalf, format),
                ways::detail::empty_generic(sizes, host, cpu, at::kHalf, format)));
    const std::optional<at::MemoryFormat> none;
    for (const Sizes &sizes : {Sizes{}, Sizes{0}, Sizes{7}})
        CHECK(alike(usc_glue::empty_on(sizes, host, DispatchKey::CPU, at::kDouble, none),
                    ways::detail::empty_generic(sizes, host, cpu, at::kDouble, none)));
    const std::vector<std::pair<Sizes, Sizes>> strided = {
        {{2, 3}, {1, 2}}, {{2, 3}, {0, 1}}, {{4}, {3}}, {{0, 3}, {9, 1}}, {{}, {}}};
    for (const auto &[sizes, strides] : strided)
        CHECK(alike(
            usc_glue::empty_strided_on(sizes, strides, host, DispatchKey::CPU, at::kInt),
            ways::detail::empty_strided_generic(sizes, strides, host, cpu, at::kInt)));
    const Sizes negative{-1}, huge(4, int64_t{1} << 40), one{1};
    for (const Sizes &sizes : {negative, huge}) {
        CHECK(RAISES(usc_glue::empty_on(sizes, host, DispatchKey::CPU, at::kInt, none)));
        CHECK(RAISES(ways::detail::empty_generic(sizes, host, cpu, at::kInt, none)));
    }
    CHECK(RAISES(ways::detail::empty_strided_generic(huge, huge, host, cpu, at::kInt)));
    CHECK(RAISES(ways::detail::empty_strided_generic(one, {}, host, cpu, at::kInt)));
    return nullptr;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const char *what_is_wrong()
{
    static const Fake fake, again;
    usc_glue::register_guard(FAKE, &fake);
    c10::impl::VirtualGuardImpl(FAKE).setDevice(c10::Device(FAKE, 0));
    using Exclude = ways::ExcludeDispatchKeyGuard;
    using Force = ways::ForceDispatchKeyGuard;
    for (const char *wrong :
         {keys<usc_glue::WithoutKeys, c10::impl::ForceDispatchKeyGuard>(),
          keys<Exclude, Force>(), one_key(usc_glue::includes_key, usc_glue::include_key),
          one_key(ways::tls_is_dispatch_key_included,
                  ways::tls_set_dispatch_key_included),
          streams<c10::impl::VirtualGuardImpl>(), streams<ways::VirtualGuardImpl>(),
          current_device_without_a_number(), kernels(), tensors(), memory()})
        if (wrong != nullptr) return wrong;
    {
        const auto before = now();
        const DispatchKeySet tracer(DispatchKey::Tracer);
        const usc_glue::OnlyKeys only(tracer, before.included_);
        if (!is_now(tracer, before.included_)) return "OnlyKeys";
    }
    const ways::guards::DeviceGuardImplRegistrar registrar(FAKE, &again);
    return c10::impl::getDeviceGuardImpl(FAKE) == &again ? ""
                                                         : "a guard is not registered";
}
#endif
