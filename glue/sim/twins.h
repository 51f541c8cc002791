// SPDX-License-Identifier: Apache-2.0
// Tensors that stand for those of a call: without memory, for its meta function, or of the
// same memory without owning it, for a kernel that runs later (later.cpp).
#pragma once

#include "sim_glue.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>

#include <cstring>
#include <utility>
#include <vector>

namespace usc_sim
{

// Maps each tensor of a stack; equal storages give equal storages.
class Twins
{
  public:
    virtual ~Twins() = default;
    std::vector<c10::Storage> storages, twins;

    // Whose twins they are is known while they are made, and no longer.
    void let_go()
    {
        storages.clear();
    }

    at::Tensor of(const at::Tensor &t)
    {
        if (!t.defined()) return t;
        if (!on_device(t)) return of_number(t);
        c10::Storage twin;
        for (size_t i = 0; i < storages.size(); i++)
            if (storages[i].is_alias_of(t.storage())) twin = twins[i];
        if (!twin) {
            twin = make(t);
            storages.push_back(t.storage());
            twins.push_back(twin);
        }
        return make_like(t, twin, key);
    }

    c10::IValue of(const c10::IValue &v)
    {
        if (v.isTensor()) return of(v.toTensor());
        if (v.isTensorList()) {
            c10::List<at::Tensor> list;
            for (const at::Tensor &t : v.toTensorVector())
                list.push_back(of(t));
            return list;
        }
        if (v.isOptionalTensorList()) {
            c10::List<optional<at::Tensor>> list;
            for (const optional<at::Tensor> &t : v.toOptionalTensorVector())
                list.push_back(t ? optional<at::Tensor>(of(*t)) : t);
            return list;
        }
        return v;
    }

  protected:
    explicit Twins(c10::DispatchKey k) : key(k)
    {
    }
    virtual c10::Storage make(const at::Tensor &t) = 0;
    virtual at::Tensor of_number(const at::Tensor &t) = 0; // one element, of the host
    const c10::DispatchKey key;
};

// Of no memory: what a meta function computes on.
class Metas final : public Twins
{
  public:
    Metas() : Twins(c10::DispatchKey::Meta)
    {
    }

  private:
    c10::Storage make(const at::Tensor &t) override
    {
        return c10::make_intrusive<c10::StorageImpl>(
            c10::StorageImpl::use_byte_size_t(), t.storage().nbytes(),
            c10::DataPtr(nullptr, c10::Device(c10::kMeta)), c10::GetAllocator(c10::kMeta),
            true);
    }
    at::Tensor of_number(const at::Tensor &t) override
    {
        return t;
    }
};

// Zeros of the host: what a kernel is tried on, to see what it gives.
class Trials final : public Twins
{
  public:
    Trials() : Twins(c10::DispatchKey::CPU)
    {
    }

  private:
    c10::Storage make(const at::Tensor &t) override
    {
        const size_t size = t.storage().nbytes();
        c10::DataPtr zeros = c10::GetAllocator(c10::kCPU)->allocate(size);
        if (size > 0) std::memset(zeros.get(), 0, size);
        return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                     size, std::move(zeros),
                                                     c10::GetAllocator(c10::kCPU), true);
    }
    at::Tensor of_number(const at::Tensor &t) override
    {
        return t;
    }
};

// Of the same device memory, without owning it: a kernel that was launched does not keep
// its arguments alive, only where they lie. The blocks are pinned, not the tensors.
class Frozen final : public Twins
{
  public:
    Frozen() : Twins(c10::DispatchKey::PrivateUse1)
    {
    }
    ~Frozen() override
    {
        for (const void *address : pinned_)
            usc_sim_unpin(address);
    }

  private:
    c10::Storage make(const at::Tensor &t) override
    {
        void *address = const_cast<void *>(t.storage().data());
        usc_sim_pin(address);
        pinned_.push_back(address);
        return c10::make_intrusive<c10::StorageImpl>(
            c10::StorageImpl::use_byte_size_t(), t.storage().nbytes(),
            c10::DataPtr(
                address, nullptr, [](void *) {}, t.device()),
            allocator(), true);
    }
    // As it is now: the program may change it before the kernel runs.
    at::Tensor of_number(const at::Tensor &t) override
    {
        const at::AutoDispatchBelowADInplaceOrView below_autograd;
        at::Tensor copy = t.clone();
        if (t.unsafeGetTensorImpl()->is_wrapped_number())
            copy.unsafeGetTensorImpl()->set_wrapped_number(true);
        return copy;
    }
    std::vector<void *> pinned_;
};

template <class Visit> void each_tensor(const c10::IValue &v, Visit visit)
{
    if (v.isTensor()) visit(v.toTensor());
    if (v.isTensorList())
        for (const at::Tensor &t : v.toTensorVector())
            visit(t);
    if (v.isOptionalTensorList())
        for (const optional<at::Tensor> &t : v.toOptionalTensorVector())
            if (t) visit(*t);
}

} // namespace usc_sim
