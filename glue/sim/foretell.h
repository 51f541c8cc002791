// SPDX-License-Identifier: Apache-2.0
// What a call gives, told before its kernel has run: by its meta function, or by the kernel
// itself on zeros. It depends on what the arguments look like and on nothing else, so that
// it is kept for the next call whose arguments look the same: a meta function that is
// written in Python takes a hundred times what the rest of a small launch takes.
#pragma once

#include "twins.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/DefaultDtype.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace usc_sim
{

using torch::jit::Stack;

// ---- what arguments look like

// As bytes; calls with the same bytes have results that look the same.
class Likeness
{
  public:
    explicit Likeness(const c10::FunctionSchema &schema)
    {
        put(&schema);
        put(c10::get_default_dtype_as_scalartype());
    }

    // False: of a kind that is not told here.
    bool add(const c10::IValue &v)
    {
        if (v.isTensor()) return add(v.toTensor());
        if (v.isNone()) return put('n');
        if (v.isInt()) return put('i') && put(v.toInt());
        if (v.isDouble()) return put('d') && put(v.toDouble());
        if (v.isBool()) return put('b') && put(v.toBool());
        if (v.isComplexDouble()) return put('c') && put(v.toComplexDouble());
        if (v.isString()) return put('s') && add_bytes(v.toStringRef());
        if (v.isIntList()) return add_all('I', v.toIntVector());
        if (v.isDoubleList()) return add_all('D', v.toDoubleVector());
        if (v.isTensorList()) return add_list(v.toTensorVector());
        if (!v.isList()) return false;
        const c10::ArrayRef<c10::IValue> list = v.toListRef();
        put('L');
        put(list.size());
        for (const c10::IValue &one : list)
            if (!add(one)) return false;
        return true;
    }

    const std::string &bytes() const
    {
        return bytes_;
    }

  private:
    template <class T> bool put(const T &value)
    {
        bytes_.append(reinterpret_cast<const char *>(&value), sizeof value);
        return true;
    }
    bool add_bytes(const std::string &s)
    {
        put(s.size());
        bytes_ += s;
        return true;
    }
    template <class T> bool add_all(char kind, const T &list)
    {
        put(kind);
        put(list.size());
        for (const auto &one : list)
            put(one);
        return true;
    }
    bool add_list(const std::vector<at::Tensor> &list)
    {
        put('T');
        put(list.size());
        for (const at::Tensor &t : list)
            add(t);
        return true;
    }

    bool add(const at::Tensor &t)
    {
        if (!t.defined()) return put('u');
        put('t');
        put(t.scalar_type());
        put(on_device(t));
        put(t.unsafeGetTensorImpl()->is_wrapped_number());
        put(t.is_conj());
        put(t.is_neg());
        add_all('z', t.sizes());
        add_all('r', t.strides());
        put(t.storage_offset());
        put(t.storage().nbytes());
        size_t i = 0; // which of the storages it shares
        while (i < storages_.size() && storages_[i] != t.storage().unsafeGetStorageImpl())
            i++;
        if (i == storages_.size())
            storages_.push_back(t.storage().unsafeGetStorageImpl());
        return put(i);
    }

    std::string bytes_;
    std::vector<const c10::StorageImpl *> storages_;
};

// ---- what a call gives

struct Result {
    enum Kind { UNDEFINED, ARGUMENT, FRESH } kind;
    size_t i_argument; // among all tensors of all arguments
    std::vector<int64_t> sizes, strides;
    at::ScalarType dtype;
};

struct Returned {
    bool is_list;
    std::vector<Result> results;
};

struct Told {
    bool fine =
        false; // else the call runs at once, and the kernel has the better sentence
    std::vector<Returned> returned;
};

inline std::vector<at::Tensor> tensors_of(const Stack &args)
{
    std::vector<at::Tensor> all;
    for (const c10::IValue &v : args)
        each_tensor(v, [&](const at::Tensor &t) { all.push_back(t); });
    return all;
}

// Runs the meta function, or the kernel on zeros; false: it refuses.
inline bool run_twin(const c10::OperatorHandle &op, c10::DispatchKey key, Stack &out)
{
    try {
        const at::AutoDispatchBelowADInplaceOrView below_autograd;
        const usc_glue::WithoutKeys no_autocast{c10::autocast_dispatch_keyset};
        const Kernel own = key == c10::DispatchKey::CPU ? cell_kernel(op) : nullptr;
        if (own != nullptr)
            own(&out);
        else
            op.redispatchBoxed(c10::DispatchKeySet(key), &out);
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

// `twins`: the tensors of the twin's call. A result that is an argument stays that
// argument; one that shares its memory otherwise cannot be told.
inline bool tell_result(const std::vector<at::Tensor> &twins, const at::Tensor &m,
                        Result *out)
{
    *out = {Result::UNDEFINED, 0, {}, {}, at::ScalarType::Undefined};
    if (!m.defined()) return true;
    for (size_t i = 0; i < twins.size(); i++)
        if (twins[i].is_same(m)) {
            out->kind = Result::ARGUMENT;
            out->i_argument = i;
            return true;
        }
    for (const at::Tensor &t : twins)
        if (t.defined() && t.is_alias_of(m)) return false;
    if (!is_strided(m) || m.storage_offset() != 0 || m.is_conj() || m.is_neg())
        return false;
    *out = {Result::FRESH, 0, m.sizes().vec(), m.strides().vec(), m.scalar_type()};
    return true;
}

// An out= argument that grew is more than a kernel can do later.
inline bool kept_their_shapes(const std::vector<at::Tensor> &args,
                              const std::vector<at::Tensor> &twins)
{
    for (size_t i = 0; i < args.size(); i++)
        if (args[i].defined() && (twins[i].sizes() != args[i].sizes() ||
                                  twins[i].strides() != args[i].strides()))
            return false;
    return true;
}

template <class Its>
Told tell_by(const c10::OperatorHandle &op, const Stack &args, c10::DispatchKey key)
{
    Told told;
    Its its;
    Stack stack;
    for (const c10::IValue &v : args)
        stack.push_back(its.of(v));
    const std::vector<at::Tensor> twins = tensors_of(stack);
    if (!run_twin(op, key, stack) || !kept_their_shapes(tensors_of(args), twins))
        return told;
    told.fine = true;
    for (const c10::IValue &v : stack) {
        Returned r{!v.isTensor(), {}};
        each_tensor(v, [&](const at::Tensor &m) {
            r.results.emplace_back();
            told.fine = told.fine && tell_result(twins, m, &r.results.back());
        });
        told.returned.push_back(std::move(r));
    }
    return told;
}

using SharedTold = std::shared_ptr<const Told>;

inline SharedTold told_by_meta(const c10::OperatorHandle &op, const Stack &args)
{
    return std::make_shared<Told>(tell_by<Metas>(op, args, c10::DispatchKey::Meta));
}

// Kept of torch's own operators alone: others may come again as something else.
inline SharedTold tell_by_meta(const c10::OperatorHandle &op, const Stack &args)
{
    constexpr size_t most = 4096;
    static std::mutex one_at_a_time;
    static auto *kept = new std::unordered_map<std::string, SharedTold>;
    if (op.schema().getNamespace() != "aten") return told_by_meta(op, args);
    Likeness likeness(op.schema());
    for (const c10::IValue &v : args)
        if (!likeness.add(v)) return told_by_meta(op, args);
    {
        const std::lock_guard<std::mutex> hold(one_at_a_time);
        const auto found = kept->find(likeness.bytes());
        if (found != kept->end()) return found->second;
    }
    SharedTold told = told_by_meta(op, args);
    const std::lock_guard<std::mutex> hold(one_at_a_time);
    if (kept->size() >= most) kept->clear();
    (*kept)[likeness.bytes()] = told;
    return told;
}

inline SharedTold tell_by_trial(const c10::OperatorHandle &op, const Stack &args)
{
    return std::make_shared<Told>(tell_by<Trials>(op, args, c10::DispatchKey::CPU));
}

// The tensors that a call returns; those that its kernel fills are in `fresh`, too.
inline Stack make_results(const Told &told, const Stack &args, c10::DeviceIndex device,
                          std::vector<at::Tensor> &fresh)
{
    const std::vector<at::Tensor> given = tensors_of(args);
    const auto made = [&](const Result &r) {
        if (r.kind == Result::ARGUMENT) return given[r.i_argument];
        fresh.push_back(r.kind == Result::UNDEFINED
                            ? at::Tensor()
                            : at::empty_strided(r.sizes, r.strides,
                                                at::TensorOptions().dtype(r.dtype).device(
                                                    DEVICE, device)));
        return fresh.back();
    };
    Stack results;
    for (const Returned &r : told.returned) {
        if (!r.is_list) {
            results.push_back(made(r.results.at(0)));
            continue;
        }
        c10::List<at::Tensor> list;
        for (const Result &one : r.results)
            list.push_back(made(one));
        results.push_back(list);
    }
    return results;
}

} // namespace usc_sim
