// SPDX-License-Identifier: Apache-2.0
// The operators that are about storage rather than arithmetic, and convolution, whose
// CPU entry points are not where other operators have theirs.
#include "../torch_private_device.h"
#include "sim_glue.h"

#include <ulpscope_sim/timeline.h>

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <tuple>
#include <type_traits>

namespace usc_sim
{
namespace
{

using at::IntArrayRef;
using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;

c10::Device device_or_current(optional<c10::Device> device)
{
    return device.value_or(c10::Device(DEVICE, current_device()));
}

Tensor empty(IntArrayRef sizes, optional<c10::ScalarType> dtype, optional<c10::Layout>,
             optional<c10::Device> device, optional<bool>,
             optional<c10::MemoryFormat> memory_format)
{
    const c10::DeviceGuard guard(device_or_current(device));
    check_dtype(c10::dtype_or_default(dtype));
    return usc_glue::empty_on(sizes, allocator(), DispatchKey::PrivateUse1,
                              c10::dtype_or_default(dtype), memory_format);
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides,
                     optional<c10::ScalarType> dtype, optional<c10::Layout>,
                     optional<c10::Device> device, optional<bool>)
{
    const c10::DeviceGuard guard(device_or_current(device));
    check_dtype(c10::dtype_or_default(dtype));
    return usc_glue::empty_strided_on(sizes, strides, allocator(),
                                      DispatchKey::PrivateUse1,
                                      c10::dtype_or_default(dtype));
}

Tensor copy_from(const Tensor &from, const Tensor &to, bool non_blocking)
{
    TORCH_INTERNAL_ASSERT(on_device(from) || on_device(to));
    install_where_faults_need_it();
    const bool captured = is_captured((on_device(from) ? from : to).device().index());
    if ((launching_later || captured) && copy_later(from, to, non_blocking)) return to;
    TORCH_CHECK(!captured, "sim: a copy that the host waits for cannot be captured: copy "
                           "from and to pinned memory, with non_blocking=True");
    if (to.is_cpu() && !non_blocking) usc_sim_wait(from.device().index());
    Faults faults(COPY, from, to);
    const bool early = faults.fires(USC_SIM_FAULT_EARLY) != nullptr;
    for (const Tensor &t : {from, to})
        if (on_device(t) && usc_sim_has_worked() && !early) catch_up(t.device().index());
    Launch launch;
    launch.allow_mixed = true;
    const at::Tensor written = launch.host(to, true), read = launch.host(from, false);
    launch.open();
    const int64_t begin = usc_sim_timeline_begin();
    const at::Tensor before = faults.remember(written);
    copy_bytes(written, faults.input(nullptr, read));
    if (faults.any()) faults.output(written, before, false);
    const Tensor &there = on_device(from) ? from : to;
    usc_sim_timeline_end("aten::_copy_from",
                         usc_sim_stream_current(there.device().index()), begin);
    return to;
}

Tensor copy_from_and_resize(const Tensor &from, const Tensor &to)
{
    if (to.sizes() != from.sizes()) to.resize_(from.sizes());
    return copy_from(from, to, false);
}

const Tensor &resize_(const Tensor &t, IntArrayRef sizes,
                      optional<c10::MemoryFormat> memory_format)
{
    c10::TensorImpl *impl = t.unsafeGetTensorImpl();
    if (impl->sizes() != sizes) impl->set_sizes_contiguous(sizes); // else strides stay
    if (memory_format && *memory_format != c10::MemoryFormat::Contiguous)
        impl->empty_tensor_restride(*memory_format);
    const auto needed =
        static_cast<size_t>(impl->numel() + impl->storage_offset()) * impl->itemsize();
    if (impl->numel() > 0 && t.storage().nbytes() < needed)
        resize_storage(t.storage(), needed);
    return t;
}

void record_stream(Tensor &t, c10::Stream stream)
{
    TORCH_CHECK(stream.device_type() == DEVICE, "sim: a stream of ", stream.device(),
                " cannot be recorded on a tensor of ", t.device());
    usc_error err{};
    if (t.storage().data() != nullptr)
        check(usc_sim_record_stream(t.storage().data(),
                                    {stream.device_index(), stream.id()}, &err),
              err);
}

Tensor &set_storage_offset(Tensor &t, c10::Storage storage, int64_t offset,
                           IntArrayRef sizes, IntArrayRef strides)
{
    c10::TensorImpl *impl = t.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(std::move(storage));
    if (strides.empty() && !sizes.empty()) {
        impl->set_storage_offset(offset);
        impl->set_sizes_contiguous(sizes);
    } else {
        impl->set_sizes_and_strides(sizes, strides, offset);
    }
    return t;
}

Tensor &set_storage(Tensor &t, c10::Storage storage)
{
    const auto n = static_cast<int64_t>(storage.nbytes() / t.itemsize());
    return set_storage_offset(t, std::move(storage), 0, {n}, {1});
}

Tensor &set_tensor(Tensor &t, const Tensor &other)
{
    return set_storage_offset(t, other.storage(), other.storage_offset(), other.sizes(),
                              other.strides());
}

Tensor &set_empty(Tensor &t)
{
    c10::Storage none(c10::Storage::use_byte_size_t(), 0,
                      allocate_on(t.device().index(), 0), allocator(), true);
    return set_storage_offset(t, std::move(none), 0, {0}, {1});
}

// Convolution runs as aten::convolution through the fallback; torch reaches these two
// only where somebody calls _convolution itself. Which of their numbers may be symbolic
// differs from torch to torch (in 2.1 none): the signature at hand says it.
template <class Signature> struct convolution_as;

template <class Steps, class Padding, class Number>
struct convolution_as<Tensor(const Tensor &, const Tensor &, const optional<Tensor> &,
                             Steps, Padding, Steps, bool, Padding, Number)> {
    static constexpr bool plain = std::is_same_v<Padding, IntArrayRef>;

    static Tensor forward(const Tensor &input, const Tensor &weight,
                          const optional<Tensor> &bias, Steps stride, Padding padding,
                          Steps dilation, bool transposed, Padding output_padding,
                          Number groups)
    {
        if constexpr (plain)
            return at::convolution(input, weight, bias, stride, padding, dilation,
                                   transposed, output_padding, groups);
        else
            return at::convolution_symint(input, weight, bias, stride, padding, dilation,
                                          transposed, output_padding, std::move(groups));
    }

    static std::tuple<Tensor, Tensor, Tensor>
    backward(const Tensor &grad, const Tensor &input, const Tensor &weight, Steps stride,
             Padding padding, Steps dilation, bool transposed, Padding output_padding,
             Number groups, std::array<bool, 3> wanted)
    {
        if constexpr (plain) {
            const int64_t bias[] = {grad.size(1)};
            return at::convolution_backward(
                grad, input, weight,
                wanted[2] ? at::OptionalIntArrayRef(bias) : at::OptionalIntArrayRef(),
                stride, padding, dilation, transposed, output_padding, groups, wanted);
        } else {
            const c10::SymInt bias[] = {grad.sym_size(1)};
            return at::convolution_backward_symint(
                grad, input, weight,
                wanted[2] ? at::OptionalSymIntArrayRef(bias)
                          : at::OptionalSymIntArrayRef(),
                stride, padding, dilation, transposed, output_padding, std::move(groups),
                wanted);
        }
    }
};

using convolution = convolution_as<usc_glue::convolution_signature>;

} // namespace

void register_storage_ops(torch::Library &aten)
{
    aten.impl("empty.memory_format", empty);
    aten.impl("empty_strided", empty_strided);
    aten.impl("as_strided", usc_glue::views::as_strided);
    aten.impl("view", usc_glue::views::view);
    aten.impl("_reshape_alias", usc_glue::views::reshape_alias);
    aten.impl("unfold", usc_glue::views::unfold);
    aten.impl("view_as_real", usc_glue::views::view_as_real);
    aten.impl("view_as_complex", usc_glue::views::view_as_complex);
    aten.impl("_copy_from", copy_from);
    aten.impl("_copy_from_and_resize", copy_from_and_resize);
    aten.impl("resize_", resize_);
    aten.impl("record_stream", record_stream);
    aten.impl("set_", set_empty);
    aten.impl("set_.source_Storage", set_storage);
    aten.impl("set_.source_Storage_storage_offset", set_storage_offset);
    aten.impl("set_.source_Tensor", set_tensor);
    aten.impl("convolution_overrideable", convolution::forward);
    aten.impl("convolution_backward_overrideable", convolution::backward);
}

void register_quantized_ops(torch::Library &aten)
{
    aten.impl("_copy_from", copy_from);
    aten.impl("set_.source_Storage", set_storage);
    aten.impl("set_.source_Storage_storage_offset", set_storage_offset);
    aten.impl("set_.source_Tensor", set_tensor);
}

} // namespace usc_sim
