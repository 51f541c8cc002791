// SPDX-License-Identifier: Apache-2.0
// Tensors as C descriptors, and what the session asks about their storages.
#include "intercept.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
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
                names[i].name = dtype_names(static_cast<at::ScalarType>(i)).first;
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

/* What strides do not tell of a tensor (static text), null: nothing. `bare`: it has no
 * bytes in one place that sizes and strides describe, so none are taken. */
const char *form_of(const at::TensorImpl &t, bool *bare)
{
    const DispatchKeySet keys = t.key_set();
    *bare = true;
    if (keys.has(DispatchKey::Python)) return "subclass";
    if (t.is_nested()) return "nested";
    if (keys.has(DispatchKey::FuncTorchBatched) ||
        keys.has(DispatchKey::FuncTorchGradWrapper))
        return "functorch";
    if (t.is_meta()) return "meta";
    if (keys.has(DispatchKey::ZeroTensor)) return "zero";
    if (t.layout() != at::kStrided) return layout_name(static_cast<int64_t>(t.layout()));
    if (!t.has_storage()) return "opaque";
    if (t.has_symbolic_sizes_strides()) return "symbolic";
    if (t.dim() > USC_MAX_DIMS) return "over 32 axes";
    *bare = false;
    const bool conj = keys.has(DispatchKey::Conjugate);
    if (keys.has(DispatchKey::Negative)) return conj ? "conj neg" : "neg";
    if (conj) return "conj";
    return c10::isQIntType(c10::typeMetaToScalarType(t.dtype())) ? "quantized" : nullptr;
}

/* Sizes and strides, where there are any to tell; no code of a subclass runs for them. */
void set_geometry(usc_capture_tensor &out, const at::TensorImpl &t)
{
    if (t.is_nested() || t.has_symbolic_sizes_strides()) return;
    const at::IntArrayRef sizes = t.sizes_default();
    if (sizes.size() > USC_MAX_DIMS) return;
    out.view.ndim = static_cast<int>(sizes.size());
    std::copy(sizes.begin(), sizes.end(), out.view.sizes);
    if (t.layout() != at::kStrided) return;
    const at::IntArrayRef strides = t.strides_default();
    std::copy(strides.begin(), strides.end(), out.view.strides);
    out.offset = t.storage_offset_default();
}

void describe_one(Tensors &out, const at::Tensor &tensor, usc_role role, int i_arg,
                  int i_item, const Argument *argument, const char *path = nullptr,
                  usc_maybe maybe = USC_MAYBE_NOT);

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

/* A subclass may answer by running Python; its storage does not. */
c10::Device device_of(const at::TensorImpl &t)
{
    if (!t.key_set().has(DispatchKey::Python)) return t.device();
    return t.has_storage() ? t.unsafe_storage().device() : c10::Device(at::kCPU);
}

bool is_compressed(at::Layout l)
{
    return l == at::kSparseCsr || l == at::kSparseCsc || l == at::kSparseBsr ||
           l == at::kSparseBsc;
}

/* The strided tensors that a sparse one is made of, as further rows of its place. */
void describe_parts(Tensors &out, const at::Tensor &tensor)
{
    const usc_capture_tensor whole = out.back();
    std::array<std::pair<const char *, at::Tensor>, 3> parts;
    if (tensor.layout() == at::kSparse) {
        const auto *impl =
            static_cast<const at::SparseTensorImpl *>(tensor.unsafeGetTensorImpl());
        if (impl->coalesced()) out.back().form = "sparse_coo coalesced";
        parts = {{{"indices", impl->indices()}, {"values", impl->values()}, {}}};
    } else if (is_compressed(tensor.layout())) {
        const auto *impl =
            static_cast<const at::SparseCsrTensorImpl *>(tensor.unsafeGetTensorImpl());
        parts = {{{"ends", impl->compressed_indices()},
                  {"places", impl->plain_indices()},
                  {"values", impl->values()}}};
    }
    for (const auto &[name, part] : parts) {
        if (!part.defined()) continue;
        describe_one(out, part, whole.role, whole.i_arg, whole.i_item, nullptr);
        out.back().keyword = whole.keyword;
        out.back().path = whole.path;
        out.back().maybe = whole.maybe;
        out.back().written = whole.written;
        out.back().part = name;
    }
}

void describe_one(Tensors &out, const at::Tensor &tensor, usc_role role, int i_arg,
                  int i_item, const Argument *argument, const char *path, usc_maybe maybe)
{
    if (!tensor.defined()) return;
    usc_capture_tensor &d = out.emplace_back();
    const at::TensorImpl &t = *tensor.unsafeGetTensorImpl();
    const DtypeName &dtype = dtype_name(c10::typeMetaToScalarType(t.dtype()));
    d.view.dtype = dtype.dtype;
    d.dtype_name = dtype.name.c_str();
    d.requires_grad = t.requires_grad();
    d.role = role;
    d.i_arg = i_arg;
    d.i_item = i_item;
    d.path = path;
    d.maybe = maybe;
    if (argument != nullptr) {
        d.written = argument->written;
        d.unread = argument->unread && role == USC_ROLE_IN;
        d.keyword = argument->keyword.empty() ? nullptr : argument->keyword.c_str();
    }
    bool bare = true;
    d.form = form_of(t, &bare);
    d.device = device_name(device_of(t));
    set_geometry(d, t);
    if (!bare && t_graph && !t.device().is_cpu())
        d.form = "graph";
    else if (!bare)
        set_storage(d, t);
    const bool sparse = t.layout() != at::kStrided && !t.is_meta() &&
                        !t.key_set().has(DispatchKey::Python);
    if (sparse) describe_parts(out, tensor); /* `d` may move */
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
              const Argument *argument, usc_maybe maybe)
{
    const size_t before = out.size();
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
    for (size_t i = before; i < out.size(); ++i)
        out[i].maybe = maybe;
}

void describe_at(Tensors &out, const at::Tensor &tensor, usc_role role, const char *path,
                 usc_maybe maybe)
{
    describe_one(out, tensor, role, 0, -1, nullptr, path, maybe);
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

std::string why_bare(const usc_capture_tensor &t)
{
    static const char *const silent[] = {"meta", "zero", "sparse", "strided"};
    if (t.form == nullptr || t.storage != nullptr) return {};
    for (const char *form : silent)
        if (std::strncmp(t.form, form, std::strlen(form)) == 0) return {};
    const std::string place = t.role == USC_ROLE_OUT ? "result " : "argument ";
    if (std::strcmp(t.form, "graph") == 0)
        return place + std::to_string(t.i_arg) +
               " was not captured: its device was recording a graph";
    return place + std::to_string(t.i_arg) + " is left out: a tensor of the form '" +
           t.form + "' has no bytes that sizes and strides describe";
}

/* ---- storages ---- */

namespace
{

/* Weak counts by hand: an object for each would cost an allocation. */
namespace weak = c10::raw::weak_intrusive_ptr;

void *hold(void *, void *storage)
{
    auto *impl = static_cast<c10::StorageImpl *>(storage);
    weak::incref(impl);
    return impl;
}

bool alive(void *, void *held)
{
    return weak::use_count(static_cast<c10::StorageImpl *>(held)) != 0;
}

void release(void *, void *held)
{
    weak::decref(static_cast<c10::StorageImpl *>(held));
}

/* Device memory is the device's own to read: the range is seen as bytes and copied by
 * torch. */
usc_status read(void *, void *storage, int64_t offset, void *destination, int64_t size,
                usc_error *err)
{
    try {
        TORCH_INTERNAL_ASSERT(storage != nullptr && offset >= 0 && size >= 0 &&
                              (destination != nullptr || size == 0));
        const OutOfSight here;
        auto impl = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
            static_cast<c10::StorageImpl *>(storage));
        const c10::Device device = impl->device();
        at::Tensor bytes =
            at::empty({0}, at::TensorOptions().dtype(at::kByte).device(device));
        bytes.set_(c10::Storage(std::move(impl)), offset, {size}, {1});
        at::from_blob(destination, {size}, at::kByte).copy_(bytes);
    } catch (const std::exception &e) {
        return usc_error_set(err, USC_E_IO, -1, "%.200s", e.what());
    } catch (...) {
        return usc_error_set(err, USC_E_IO, -1, "the device does not say why");
    }
    return USC_OK;
}

} // namespace

const usc_capture_hooks storage_hooks = {nullptr, hold, alive, release, read};

} // namespace intercept
