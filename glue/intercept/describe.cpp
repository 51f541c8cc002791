// SPDX-License-Identifier: Apache-2.0
// Tensors as C descriptors, and what the session asks about their storages.
#include "intercept.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <map>
#include <mutex>

namespace intercept
{

namespace
{

struct DtypeName {
    std::string name;
    usc_dtype dtype;
};

const DtypeName &dtype_name(at::ScalarType type)
{
    static const auto table = [] {
        std::array<DtypeName, static_cast<size_t>(at::ScalarType::NumOptions) + 1> names;
        for (size_t i = 0; i < names.size(); ++i) {
            try {
                names[i].name = c10::getDtypeNames(static_cast<at::ScalarType>(i)).first;
            } catch (const std::exception &) {
                names[i].name = "unknown"; /* numbers that torch left unused */
            }
            names[i].dtype = usc_dtype_by_name(names[i].name.c_str());
        }
        return names;
    }();
    return table[static_cast<size_t>(type)];
}

struct Devices {
    std::mutex mutex;
    std::map<std::string, int> names; /* node addresses stay */
    std::string types;
};

Devices &devices()
{
    static Devices *const instance = new Devices;
    return *instance;
}

/* Static text of a device. */
const char *device_name(c10::Device device)
{
    static std::atomic<bool> cpu_seen{false};
    if (device.is_cpu() && cpu_seen.load(std::memory_order_relaxed)) return "cpu";
    Devices &d = devices();
    std::lock_guard<std::mutex> lock(d.mutex);
    const auto added = d.names.try_emplace(device.is_cpu() ? "cpu" : device.str(), 0);
    if (device.is_cpu()) cpu_seen = true;
    return device.is_cpu() ? "cpu" : added.first->first.c_str();
}

/* Bytes that exist: not the empty promise of a wrapper subclass or a zero tensor. */
bool has_bytes(const at::TensorImpl &t)
{
    return t.has_storage() && t.layout() == at::kStrided && !t.is_meta() &&
           !t.key_set().has(DispatchKey::ZeroTensor) &&
           !t.key_set().has(DispatchKey::Python);
}

void set_geometry(usc_capture_tensor &out, const at::TensorImpl &t)
{
    if (t.layout() != at::kStrided || t.dim() > USC_MAX_DIMS) return;
    out.view.ndim = static_cast<int>(t.dim());
    for (int i = 0; i < out.view.ndim; ++i) {
        out.view.sizes[i] = t.size(i);
        out.view.strides[i] = t.stride(i);
    }
    out.offset = t.storage_offset();
}

void set_storage(usc_capture_tensor &out, const at::TensorImpl &t)
{
    const c10::StorageImpl *storage = t.unsafe_storage().unsafeGetStorageImpl();
    const void *base = storage->data();
    const int64_t size = static_cast<int64_t>(storage->nbytes());
    if (base == nullptr && size > 0) return;
    out.storage = const_cast<c10::StorageImpl *>(storage);
    out.storage_size = size;
    if (!t.device().is_cpu()) return;
    out.base = base;
    if (base != nullptr)
        out.view.data = const_cast<char *>(static_cast<const char *>(base)) +
                        t.storage_offset() * static_cast<int64_t>(t.itemsize());
}

void describe_one(Tensors &out, const at::Tensor &tensor, usc_role role, int i_arg,
                  int i_item, const Argument *argument)
{
    if (!tensor.defined()) return;
    out.emplace_back();
    usc_capture_tensor &d = out.back();
    const at::TensorImpl &t = *tensor.unsafeGetTensorImpl();
    const DtypeName &dtype = dtype_name(tensor.scalar_type());
    d.view.dtype = dtype.dtype;
    d.dtype_name = dtype.name.c_str();
    d.device = device_name(t.device());
    d.requires_grad = t.requires_grad();
    d.role = role;
    d.i_arg = i_arg;
    d.i_item = i_item;
    if (argument != nullptr) {
        d.written = argument->written;
        d.keyword = argument->keyword.empty() ? nullptr : argument->keyword.c_str();
    }
    set_geometry(d, t);
    if (has_bytes(t)) set_storage(d, t);
}

/* Lists of lists (collectives) are numbered through. */
void describe_items(Tensors &out, const IValue &value, usc_role role, int i_arg,
                    int *i_item, const Argument *argument)
{
    if (value.isTensor())
        describe_one(out, value.toTensor(), role, i_arg, (*i_item)++, argument);
    else if (value.isList())
        for (const IValue &item : value.toListRef())
            describe_items(out, item, role, i_arg, i_item, argument);
    else
        ++*i_item;
}

} // namespace

void describe(Tensors &out, const IValue &value, usc_role role, int i_arg,
              const Argument *argument)
{
    if (value.isTensor()) {
        describe_one(out, value.toTensor(), role, i_arg, -1, argument);
    } else if (value.isTensorList()) {
        int i_item = 0;
        for (const at::Tensor &t : value.toTensorList())
            describe_one(out, t, role, i_arg, i_item++, argument);
    } else if (value.isList()) {
        int i_item = 0;
        describe_items(out, value, role, i_arg, &i_item, argument);
    }
}

void each_tensor(const IValue &value, const std::function<void(const at::Tensor &)> &f)
{
    if (value.isTensor()) {
        if (value.toTensor().defined()) f(value.toTensor());
    } else if (value.isTensorList()) {
        for (const at::Tensor &t : value.toTensorList())
            if (t.defined()) f(t);
    } else if (value.isList()) {
        for (const IValue &item : value.toListRef())
            each_tensor(item, f);
    }
}

const char *devices_seen()
{
    Devices &d = devices();
    std::lock_guard<std::mutex> lock(d.mutex);
    d.types.clear();
    for (const auto &entry : d.names)
        d.types += (d.types.empty() ? "" : ",") + entry.first;
    return d.types.c_str();
}

/* ---- storages ---- */

namespace
{

using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;

void *hold(void *, void *storage)
{
    auto *impl = static_cast<c10::StorageImpl *>(storage);
    return new Weak(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl));
}

bool alive(void *, void *held)
{
    return !static_cast<Weak *>(held)->expired();
}

void release(void *, void *held)
{
    delete static_cast<Weak *>(held);
}

/* Device memory is the device's own to read: the storage is seen as bytes and copied by
 * torch, below autograd and below our kernels. */
usc_status read(void *, void *storage, void *destination, int64_t size, usc_error *err)
{
    Inside inside;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    try {
        auto impl = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
            static_cast<c10::StorageImpl *>(storage));
        const c10::Device device = impl->device();
        at::Tensor bytes =
            at::empty({0}, at::TensorOptions().dtype(at::kByte).device(device));
        bytes.set_(c10::Storage(std::move(impl)), 0, {size}, {1});
        at::from_blob(destination, {size}, at::kByte).copy_(bytes);
    } catch (const std::exception &e) {
        return usc_error_set(err, USC_E_IO, -1, "cannot read device memory: %.300s",
                             e.what());
    }
    return USC_OK;
}

} // namespace

const usc_capture_hooks storage_hooks = {nullptr, hold, alive, release, read};

} // namespace intercept
