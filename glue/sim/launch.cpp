// SPDX-License-Identifier: Apache-2.0
// How a kernel gets at device memory: CPU tensors that alias it while it is open.
#include "../torch_private_device.h"
#include "sim_glue.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace usc_sim
{

using c10::DispatchKey;
using c10::DispatchKeySet;

// A kernel's own calls on its arguments are not the user's: no graph, no casts.
struct Launch::Guards {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    usc_glue::WithoutKeys no_autocast{c10::autocast_dispatch_keyset};
};

static usc_sim_access access_of(bool write)
{
    return write ? USC_SIM_WRITE : USC_SIM_READ;
}

Launch::Launch() : guards_(std::make_unique<Guards>())
{
}

Launch::~Launch()
{
    c10::SmallVector<usc_sim_opening, 8> opened;
    for (const Bound &b : bound_)
        if (b.opened) opened.push_back({b.address, access_of(b.write)});
    usc_sim_close_all(opened.data(), opened.size());
}

void Launch::open()
{
    c10::SmallVector<usc_sim_opening, 8> wanted;
    for (const Bound &b : bound_)
        if (!b.opened) wanted.push_back({b.address, access_of(b.write)});
    usc_error err{};
    TORCH_CHECK(usc_sim_open_all(wanted.data(), wanted.size(), &err) == USC_OK, err.text);
    for (Bound &b : bound_)
        b.opened = true;
}

c10::DeviceIndex Launch::index() const
{
    return index_ < 0 ? current_device() : index_;
}

void Launch::set_index(c10::DeviceIndex index)
{
    index_ = index;
}

static void open(const void *address, bool write)
{
    usc_error err{};
    TORCH_CHECK(usc_sim_open(address, access_of(write), &err) == USC_OK, err.text);
}

static c10::Storage alias_of(const c10::Storage &storage, void *address)
{
    auto keep = [](void *) {};
    // Resizable, with the CPU's allocator: an out= kernel may grow it; see settle().
    return c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
        c10::DataPtr(address, nullptr, keep, c10::Device(c10::kCPU)),
        c10::GetCPUAllocator(), true);
}

Launch::Bound &Launch::bind(const c10::Storage &storage, bool write)
{
    for (Bound &b : bound_) {
        if (b.device.unsafeGetStorageImpl() != storage.unsafeGetStorageImpl()) continue;
        if (write && !b.write && b.opened) {
            ::usc_sim::open(b.address, true);
            usc_sim_close(b.address, USC_SIM_READ);
        }
        b.write = b.write || write;
        return b;
    }
    void *address = const_cast<void *>(storage.data());
    bound_.push_back({storage, alias_of(storage, address), address, write, false});
    return bound_.back();
}

Launch::Bound *Launch::bound_to_host(const c10::StorageImpl *host)
{
    for (Bound &b : bound_)
        if (b.host.unsafeGetStorageImpl() == host) return &b;
    return nullptr;
}

at::Tensor make_like(const at::Tensor &t, const c10::Storage &storage, DispatchKey key)
{
    at::Tensor made = usc_glue::tensor_of<c10::TensorImpl>(
        c10::Storage(storage), DispatchKeySet(key), t.dtype());
    c10::TensorImpl *impl = made.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    usc_glue::set_lazy(impl, t.is_conj(), t.is_neg());
    return made;
}

at::Tensor Launch::host(const at::Tensor &t, bool write)
{
    if (!on_device(t)) return t;
    if (!is_strided(t)) return host_of_layout(*this, t, write);
    const c10::DeviceIndex its = t.device().index();
    if (index_ < 0) index_ = its;
    TORCH_CHECK(its == index_ || allow_mixed,
                "Expected all tensors to be on the same device, but found sim:",
                static_cast<int>(index_), " and sim:", static_cast<int>(its));
    return make_like(t, bind(t.storage(), write).host, DispatchKey::CPU);
}

Launch::Bound &Launch::move_to_device(const c10::Storage &host)
{
    const size_t size = host.nbytes();
    c10::DataPtr fresh = allocate_on(index(), size);
    void *address = fresh.get();
    c10::Storage device = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), size, std::move(fresh), allocator(), true);
    // The kernel's own CPU storage stands in the table: another result may share it.
    ::usc_sim::open(address, true);
    bound_.push_back({device, host, address, true, true});
    return bound_.back();
}

at::Tensor Launch::destination(const at::Tensor &t)
{
    Bound *b = bound_to_host(t.storage().unsafeGetStorageImpl());
    if (b == nullptr) b = &move_to_device(t.storage());
    return make_like(t, alias_of(b->device, b->address), DispatchKey::CPU);
}

at::Tensor Launch::device(const at::Tensor &t)
{
    if (!t.defined() || t.device().type() != c10::kCPU) return t;
    if (!is_strided(t)) return device_of_layout(*this, t);
    check_dtype(t.scalar_type());
    Bound *b = bound_to_host(t.storage().unsafeGetStorageImpl());
    if (b == nullptr) b = &move_to_device(t.storage());
    // A second result in the same storage copies the same bytes again.
    if (b->address != nullptr && b->address != b->host.data())
        std::memcpy(b->address, b->host.data(), b->host.nbytes());
    return make_like(t, b->device, DispatchKey::PrivateUse1);
}

void Launch::settle(const at::Tensor &device_tensor, const at::Tensor &host_tensor)
{
    TORCH_INTERNAL_ASSERT(device_tensor.defined() && host_tensor.defined());
    if (!is_strided(device_tensor)) {
        settle_layout(*this, device_tensor, host_tensor);
        return;
    }
    const c10::Storage &device = device_tensor.storage();
    const c10::Storage &host = host_tensor.storage();
    if (host.data() != device.data() && host.nbytes() != 0) {
        c10::DataPtr fresh = allocate_on(device.device().index(), host.nbytes());
        ::usc_sim::open(fresh.get(), true);
        std::memcpy(fresh.get(), host.data(), host.nbytes());
        usc_sim_close(fresh.get(), USC_SIM_WRITE);
        // In place, so that whoever shares the storage sees the new one.
        replaced_.push_back(device.set_data_ptr(std::move(fresh)));
        device.unsafeGetStorageImpl()->set_nbytes(host.nbytes());
    }
    if (host_tensor.sizes() != device_tensor.sizes() ||
        host_tensor.strides() != device_tensor.strides() ||
        host_tensor.storage_offset() != device_tensor.storage_offset())
        device_tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
            host_tensor.sizes(), host_tensor.strides(), host_tensor.storage_offset());
}

at::Tensor Launch::part(const at::Tensor &t, bool write)
{
    at::Tensor its = host(t, write);
    parts_.emplace_back(t, its);
    return its;
}

at::Tensor Launch::settle_part(const at::Tensor &host_tensor)
{
    for (const auto &p : parts_) {
        if (!p.second.is_same(host_tensor)) continue;
        settle(p.first, host_tensor);
        return p.first;
    }
    return device(host_tensor);
}

} // namespace usc_sim
