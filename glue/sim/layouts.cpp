// SPDX-License-Identifier: Apache-2.0
// Tensors that are more than a view of one storage: sparse (COO and the compressed ones),
// quantized and nested. Each is made of strided tensors, which launch.cpp carries to the
// host and back; how it is made of them stands here, and nowhere else.
#include "../torch_private_device.h"
#include "sim_glue.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DeviceGuard.h>

namespace usc_sim
{

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;

namespace
{

// An older torch has no key for compressed tensors of other devices.
template <class Key>
auto csr_key(int) -> decltype(static_cast<Key>(Key::SparseCsrPrivateUse1))
{
    return Key::SparseCsrPrivateUse1;
}
template <class Key> Key csr_key(long)
{
    return Key::Undefined;
}

bool is_compressed(const Tensor &t)
{
    const c10::Layout l = t.layout();
    return l == c10::kSparseCsr || l == c10::kSparseCsc || l == c10::kSparseBsr ||
           l == c10::kSparseBsc;
}

at::SparseTensorImpl *coo(const Tensor &t)
{
    return static_cast<at::SparseTensorImpl *>(t.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl *csr(const Tensor &t)
{
    return static_cast<at::SparseCsrTensorImpl *>(t.unsafeGetTensorImpl());
}

usc_glue::NestedTensorImpl *nested(const Tensor &t)
{
    return static_cast<usc_glue::NestedTensorImpl *>(t.unsafeGetTensorImpl());
}

// A tensor as `t` is, of the parts that `move` makes of t's.
template <class Move> Tensor coo_like(const Tensor &t, DispatchKey key, Move move)
{
    at::SparseTensorImpl *from = coo(t);
    const Tensor indices = move(from->indices()), values = move(from->values());
    const c10::DeviceGuard its(values.device()); // of what it is made with at first
    Tensor made =
        usc_glue::tensor_of<at::SparseTensorImpl>(DispatchKeySet(key), t.dtype());
    coo(made)->raw_resize_(from->sparse_dim(), from->dense_dim(), t.sizes());
    coo(made)->set_indices_and_values_unsafe(indices, values);
    coo(made)->set_coalesced(from->coalesced());
    return made;
}

template <class Move> Tensor csr_like(const Tensor &t, DispatchKey key, Move move)
{
    at::SparseCsrTensorImpl *from = csr(t);
    TORCH_CHECK_NOT_IMPLEMENTED(key != DispatchKey::Undefined, "sim: layout ", t.layout(),
                                " needs a newer torch");
    const Tensor compressed = move(from->compressed_indices()),
                 plain = move(from->plain_indices()), values = move(from->values());
    Tensor made = usc_glue::tensor_of<at::SparseCsrTensorImpl>(
        DispatchKeySet(key), values.device(), t.layout(), t.dtype());
    csr(made)->set_member_tensors(compressed, plain, values, t.sizes());
    return made;
}

template <class Move> Tensor nested_like(const Tensor &t, Move move)
{
    usc_glue::NestedTensorImpl *from = nested(t);
    return usc_glue::tensor_of<usc_glue::NestedTensorImpl>(
        move(from->get_unsafe_storage_as_tensor()), from->get_nested_sizes(),
        from->get_nested_strides(), from->get_storage_offsets());
}

template <class Move> at::QuantizerPtr quantizer_like(const Tensor &t, Move move)
{
    at::QuantizerPtr its = at::get_qtensorimpl(t)->quantizer();
    const auto scheme = its->qscheme();
    if (scheme != at::kPerChannelAffine && scheme != at::kPerChannelAffineFloatQParams)
        return its; // numbers of the host
    const auto *from = static_cast<at::PerChannelAffineQuantizer *>(its.get());
    const Tensor scales = move(from->scales()), zeros = move(from->zero_points());
    if (scheme == at::kPerChannelAffine)
        return c10::make_intrusive<at::PerChannelAffineQuantizer>(
            its->scalar_type(), scales, zeros, from->axis());
    return c10::make_intrusive<at::PerChannelAffineFloatQParamsQuantizer>(
        its->scalar_type(), scales, zeros, from->axis());
}

template <class Move>
Tensor quantized_like(const Tensor &t, DispatchKey key, DispatchKey flat, Move move)
{
    at::QuantizerPtr quantizer = quantizer_like(t, move);
    const Tensor its = move(make_like(t, t.storage(), flat));
    Tensor made = usc_glue::tensor_of<at::QTensorImpl>(
        c10::Storage(its.storage()), DispatchKeySet(key), t.dtype(), quantizer);
    made.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(),
                                                      t.storage_offset());
    return made;
}

// `host`: the CPU's twin of a device's tensor, else the reverse.
template <class Move> Tensor like(const Tensor &t, bool host, Move move)
{
    TORCH_INTERNAL_ASSERT(!is_strided(t));
    if (t.is_nested()) return nested_like(t, move);
    if (t.is_quantized())
        return quantized_like(
            t, host ? DispatchKey::QuantizedCPU : DispatchKey::QuantizedPrivateUse1,
            host ? DispatchKey::PrivateUse1 : DispatchKey::CPU, move);
    if (t.layout() == c10::kSparse)
        return coo_like(t, host ? DispatchKey::SparseCPU : DispatchKey::SparsePrivateUse1,
                        move);
    TORCH_CHECK_NOT_IMPLEMENTED(is_compressed(t), "sim: layout ", t.layout(),
                                " is not supported");
    return csr_like(t, host ? DispatchKey::SparseCsrCPU : csr_key<DispatchKey>(0), move);
}

} // namespace

bool is_strided(const Tensor &t)
{
    return t.layout() == c10::kStrided && !t.is_quantized() && !t.is_nested();
}

Tensor host_of_layout(Launch &launch, const Tensor &t, bool write)
{
    return like(t, true, [&](const Tensor &part) { return launch.part(part, write); });
}

Tensor device_of_layout(Launch &launch, const Tensor &t)
{
    return like(t, false, [&](const Tensor &part) { return launch.settle_part(part); });
}

void settle_layout(Launch &launch, const Tensor &device, const Tensor &host)
{
    const auto move = [&](const Tensor &part) { return launch.settle_part(part); };
    if (device.is_nested()) return; // its buffer is not another one
    if (device.is_quantized()) {
        const Tensor its = make_like(device, device.storage(), DispatchKey::PrivateUse1);
        launch.settle(its, make_like(host, host.storage(), DispatchKey::CPU));
        device.unsafeGetTensorImpl()->set_sizes_and_strides(its.sizes(), its.strides(),
                                                            its.storage_offset());
        at::get_qtensorimpl(device)->set_quantizer_(quantizer_like(host, move));
        return;
    }
    if (device.layout() == c10::kSparse) {
        const Tensor indices = move(coo(host)->indices()),
                     values = move(coo(host)->values());
        coo(device)->raw_resize_(coo(host)->sparse_dim(), coo(host)->dense_dim(),
                                 host.sizes());
        coo(device)->set_indices_and_values_unsafe(indices, values);
        coo(device)->set_coalesced(coo(host)->coalesced());
        return;
    }
    csr(device)->set_member_tensors(move(csr(host)->compressed_indices()),
                                    move(csr(host)->plain_indices()),
                                    move(csr(host)->values()), host.sizes());
}

Tensor with_own_numbers(const Tensor &t)
{
    if (t.is_quantized())
        at::get_qtensorimpl(t)->set_quantizer_(
            quantizer_like(t, [](const Tensor &part) { return part.clone(); }));
    return t;
}

bool is_of_host(const Tensor &of, const Tensor &t)
{
    return of.is_nested() && (t.is_same(nested(of)->get_nested_sizes()) ||
                              t.is_same(nested(of)->get_nested_strides()) ||
                              t.is_same(nested(of)->get_storage_offsets()));
}

std::vector<std::pair<DispatchKey, DispatchKey>> layout_keys()
{
    std::vector<std::pair<DispatchKey, DispatchKey>> keys = {
        {DispatchKey::SparseCPU, DispatchKey::SparsePrivateUse1},
        {DispatchKey::QuantizedCPU, DispatchKey::QuantizedPrivateUse1},
        {DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorPrivateUse1},
    };
    if (csr_key<DispatchKey>(0) != DispatchKey::Undefined)
        keys.emplace_back(DispatchKey::SparseCsrCPU, csr_key<DispatchKey>(0));
    return keys;
}

} // namespace usc_sim
