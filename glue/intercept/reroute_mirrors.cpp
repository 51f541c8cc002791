// SPDX-License-Identifier: Apache-2.0
// Copies of a call's tensors elsewhere, and the way back of what was written. Neighbour:
// reroute_run.cpp, which calls the operator in between.
#include "reroute.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

namespace intercept
{

namespace
{

/* An offset into memory keeps its distance from a cache line: kernels of the CPU may sum
 * in another order where it changes. */
constexpr int64_t LINE = 64;

int64_t span_of(const at::Tensor &t)
{
    int64_t last = 0;
    for (int64_t d = 0; d < t.dim(); ++d) {
        if (t.size(d) == 0) return 0;
        last += (t.size(d) - 1) * t.stride(d);
    }
    return last + 1;
}

const void *storage_of(const at::Tensor &t)
{
    return t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr;
}

bool is_plain(const at::Tensor &t)
{
    return t.layout() == at::kStrided && t.has_storage() && !t.is_quantized() &&
           !t.is_conj() && !t.is_neg() && !t.is_nested();
}

} // namespace

IValue with_tensors(const IValue &value,
                    const std::function<at::Tensor(const at::Tensor &)> &f)
{
    if (value.isTensor()) return f(value.toTensor());
    if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor &t : value.toTensorVector())
            list.push_back(f(t));
        return list;
    }
    if (value.isOptionalTensorList()) {
        const auto tensors = value.toOptionalTensorVector();
        /* std's, or older torch's own */
        using Optional = typename decltype(tensors)::value_type;
        c10::List<Optional> list;
        for (const Optional &t : tensors)
            list.push_back(t ? Optional(f(*t)) : t);
        return list;
    }
    if (value.isTuple()) {
        std::vector<IValue> elements;
        for (const IValue &v : value.toTupleRef().elements())
            elements.push_back(with_tensors(v, f));
        return c10::ivalue::Tuple::create(std::move(elements));
    }
    if (value.isList()) {
        const auto old = value.toList();
        c10::List<IValue> list(old.elementType());
        for (const IValue &v : value.toListRef())
            list.push_back(with_tensors(v, f));
        return list;
    }
    return value;
}

bool Mirrors::wanted(const at::Tensor &t) const
{
    return t.defined() && ((cpu_ && !t.is_cpu()) || as_(t) != t.scalar_type());
}

void Mirrors::add(const at::Tensor &t, bool written)
{
    if (!wanted(t)) return;
    if (home_.is_cpu()) home_ = t.device();
    const auto [place, is_new] =
        index_.try_emplace(t.unsafeGetTensorImpl(), pairs_.size());
    if (is_new) pairs_.push_back({t, at::Tensor(), false, {}, {}});
    pairs_[place->second].written |= written;
}

void Mirrors::take(const Target &target, IValue *values)
{
    const std::vector<Argument> &arguments = target.op.arguments;
    TORCH_INTERNAL_ASSERT(values != nullptr || arguments.empty());
    for (size_t i = 0; i < arguments.size(); ++i)
        each_tensor(values[i],
                    [&](const at::Tensor &t) { add(t, arguments[i].written); });
    make();
    for (size_t i = 0; i < arguments.size(); ++i)
        values[i] =
            with_tensors(values[i], [this](const at::Tensor &t) { return of(t); });
}

at::TensorOptions Mirrors::options(const at::Tensor &t) const
{
    const at::TensorOptions o = at::TensorOptions().dtype(as_(t)).layout(t.layout());
    return o.device(cpu_ ? c10::Device(at::kCPU) : t.device());
}

void Mirrors::make_one(Pair &pair) const
{
    const at::Tensor &t = pair.own;
    const at::TensorOptions o = options(t);
    if (t.layout() != at::kStrided || t.is_quantized() || t.is_nested()) {
        pair.copy = t.to(o.device(), t.is_quantized() ? t.scalar_type() : as_(t));
    } else if (t.is_non_overlapping_and_dense()) {
        pair.copy = at::empty_strided(t.sizes(), t.strides(), o);
        pair.copy.copy_(t);
    } else if (!is_plain(t) || !make_group({&pair})) {
        pair.copy = at::empty(t.sizes(), o);
        pair.copy.copy_(t);
    }
}

/* Tensors over the same memory: that of all is copied as one, and they are put over the
 * copy as they lay. False where they are of several dtypes. */
bool Mirrors::make_group(const std::vector<Pair *> &group) const
{
    const at::Tensor &first = group[0]->own;
    int64_t begin = INT64_MAX, end = 0;
    for (const Pair *p : group) {
        if (!is_plain(p->own) || p->own.scalar_type() != first.scalar_type())
            return false;
        begin = std::min(begin, p->own.storage_offset());
        end = std::max(end, p->own.storage_offset() + span_of(p->own));
    }
    begin -= begin % LINE;
    const at::Tensor whole =
        at::empty({0}, first.options()).set_(first.storage(), begin, {end - begin}, {1});
    const at::Tensor copy = at::empty({end - begin}, options(first)).copy_(whole);
    for (Pair *p : group)
        p->copy = copy.as_strided(p->own.sizes(), p->own.strides(),
                                  p->own.storage_offset() - begin);
    return true;
}

void Mirrors::make()
{
    std::map<const void *, std::vector<Pair *>> by_storage;
    for (Pair &p : pairs_) {
        if (is_plain(p.own))
            by_storage[storage_of(p.own)].push_back(&p);
        else
            make_one(p);
    }
    for (auto &[storage, group] : by_storage)
        if (group.size() == 1 || !make_group(group))
            for (Pair *p : group)
                make_one(*p);
    for (Pair &p : pairs_) {
        if (p.own.unsafeGetTensorImpl()->is_wrapped_number())
            p.copy.unsafeGetTensorImpl()->set_wrapped_number(true);
        if (!p.copy.has_storage() || p.copy.layout() != at::kStrided) continue;
        p.sizes = p.copy.sizes().vec();
        p.strides = p.copy.strides().vec();
    }
}

at::Tensor Mirrors::of(const at::Tensor &t) const
{
    if (!t.defined()) return t;
    const auto found = index_.find(t.unsafeGetTensorImpl());
    return found == index_.end() ? t : pairs_[found->second].copy;
}

void Mirrors::write_back()
{
    for (const Pair &p : pairs_) {
        if (!p.written) continue;
        if (p.own.layout() != at::kStrided) {
            p.own.copy_(p.copy);
            continue;
        }
        if (p.copy.sizes() != p.sizes) p.own.resize_(p.copy.sizes());
        if (p.copy.sizes() != p.sizes || p.copy.strides() != p.strides)
            p.own.as_strided_(p.copy.sizes(), p.copy.strides(), p.own.storage_offset());
        p.own.copy_(p.copy);
    }
}

const Mirrors::Pair *Mirrors::pair_of(const at::Tensor &copy) const
{
    for (const Pair &p : pairs_)
        if (p.copy.is_same(copy)) return &p;
    if (copy.layout() != at::kStrided || !copy.has_storage()) return nullptr;
    for (const Pair &p : pairs_)
        if (is_plain(p.copy) && storage_of(p.copy) == storage_of(copy) &&
            p.copy.scalar_type() == copy.scalar_type() && is_plain(p.own))
            return &p;
    return nullptr;
}

at::Tensor Mirrors::result(const at::Tensor &made, c10::Device home,
                           std::optional<at::ScalarType> dtype) const
{
    if (!made.defined()) return made;
    if (const Pair *p = pair_of(made)) {
        if (p->copy.is_same(made)) return p->own;
        return p->own.as_strided(made.sizes(), made.strides(),
                                 p->own.storage_offset() + made.storage_offset() -
                                     p->copy.storage_offset());
    }
    const at::ScalarType as = dtype.value_or(made.scalar_type());
    const bool moves = cpu_ && made.is_cpu() && !home.is_cpu();
    if (!moves && as == made.scalar_type()) return made;
    const c10::Device to = moves ? home : made.device();
    if (made.layout() != at::kStrided || !made.is_non_overlapping_and_dense())
        return made.to(to, as);
    return at::empty_strided(made.sizes(), made.strides(),
                             made.options().device(to).dtype(as))
        .copy_(made);
}

} // namespace intercept
