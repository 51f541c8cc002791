// SPDX-License-Identifier: Apache-2.0
// What planted faults do to one call: the table and the arithmetic are C (sim/fault_*.c);
// here tensors are found for them.
#include "native.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/add.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <ulpscope/dtype.h>

#include <algorithm>

namespace usc_sim
{

using c10::DispatchKey;
using c10::DispatchKeySet;

// A key that nothing but torch's own tests uses: RoundInner includes it for its thread.
constexpr DispatchKey INNER = DispatchKey::TESTING_ONLY_GenericMode;

// By the library's own table, so that a fault fires on every dtype that it knows; NONE:
// no fault applies.
usc_dtype dtype_of(c10::ScalarType type)
{
    const usc_dtype dtype = usc_dtype_by_name(usc_glue::dtype_names(type).first.c_str());
    return usc_dtype_info_of(dtype)->size <= sizeof(double) ? dtype : USC_DTYPE_NONE;
}

// Applies to a CPU tensor of any strides, in row-major order of its elements.
static int apply(const usc_sim_fault &fault, const at::Tensor &t,
                 const at::Tensor &before)
{
    const usc_dtype dtype = t.defined() ? dtype_of(t.scalar_type()) : USC_DTYPE_NONE;
    if (dtype == USC_DTYPE_NONE || t.device().type() != c10::kCPU ||
        t.layout() != c10::kStrided)
        return -1;
    const bool same = before.defined() && before.sizes() == t.sizes();
    const at::Tensor dense = t.contiguous();
    const at::Tensor old = same ? before.contiguous() : at::Tensor();
    const int result = usc_sim_fault_apply(&fault, dtype, dense.mutable_data_ptr(),
                                           same ? old.const_data_ptr() : nullptr,
                                           static_cast<size_t>(dense.numel()));
    if (result > 0 && !dense.is_same(t)) t.copy_(dense);
    return result;
}

Faults::Faults(const c10::OperatorHandle &op, bool tf32)
    : n_(usc_sim_fault_planted() ? usc_sim_fault_select(full_name(op).c_str(), hits_, MAX)
                                 : 0)
{
    if (tf32) { // what the device is told to do is what the fault does unasked
        usc_sim_fault &f = hits_[n_++] = usc_sim_fault{};
        f.id = -1;
        f.kind = USC_SIM_FAULT_TF32;
    }
    if (n_ == 0) return;
    std::fill(results_, results_ + MAX, -1);
    name_ = full_name(op);
    is_aten_ = op.schema().getNamespace() == "aten";
    for (const c10::Argument &a : op.schema().arguments())
        if (a.name() == "beta") has_beta_ = true;
}

Faults::~Faults()
{
    for (size_t i = 0; i < n_; i++)
        if (results_[i] >= 0) usc_sim_fault_note(hits_[i].id, results_[i] > 0);
}

void Faults::before_kernel()
{
    for (size_t i = 0; i < n_; i++) {
        const usc_sim_fault_kind kind = hits_[i].kind;
        if (kind != USC_SIM_FAULT_CRASH && kind != USC_SIM_FAULT_HANG &&
            kind != USC_SIM_FAULT_LACKING && kind != USC_SIM_FAULT_CPU_FALLBACK)
            continue;
        usc_sim_fault_note(hits_[i].id, true);
        if (kind == USC_SIM_FAULT_CRASH) usc_sim_crash();
        if (kind == USC_SIM_FAULT_HANG) usc_sim_hang();
        TORCH_CHECK_NOT_IMPLEMENTED(kind != USC_SIM_FAULT_LACKING, "Could not run '",
                                    name_, "' on sim: the device has no such operator");
        TORCH_WARN("The operator '", name_, "' falls back to run on the CPU");
    }
}

at::Tensor Faults::input(const c10::Argument &argument, const at::Tensor &host)
{
    if (n_ == 0 || !host.defined()) return host;
    // Matrix units round what they multiply, not what is added afterwards.
    const bool added =
        argument.name() == "bias" || (argument.name() == "self" && has_beta_);
    at::Tensor seen = host;
    for (size_t i = 0; i < n_; i++) {
        const usc_sim_fault &f = hits_[i];
        int result = -1;
        if (f.kind == USC_SIM_FAULT_STEP_PLUS_ONE) {
            if (argument.name() != "state_steps") continue;
            seen = at::add(seen, f.params[0]);
            result = 1;
        } else if (usc_sim_fault_info_of(f.kind)->stage == USC_SIM_STAGE_INPUT ||
                   (f.kind == USC_SIM_FAULT_BF16_INTERMEDIATES && is_aten_)) {
            if (added && f.kind == USC_SIM_FAULT_TF32) continue;
            at::Tensor copy = seen.clone();
            result = apply(f, copy, at::Tensor());
            if (result > 0) seen = copy;
        }
        results_[i] = std::max(results_[i], result);
    }
    return seen;
}

at::Tensor Faults::remember(const at::Tensor &host) const
{
    for (size_t i = 0; i < n_; i++)
        if (hits_[i].kind == USC_SIM_FAULT_STALE_TAIL && host.defined())
            return host.clone();
    return {};
}

void Faults::output(const at::Tensor &host, const at::Tensor &before)
{
    for (size_t i = 0; i < n_; i++) {
        const usc_sim_fault &f = hits_[i];
        if (usc_sim_fault_info_of(f.kind)->stage != USC_SIM_STAGE_OUTPUT &&
            f.kind != USC_SIM_FAULT_BF16_INTERMEDIATES)
            continue;
        results_[i] = std::max(results_[i], apply(f, host, before));
    }
}

const usc_sim_fault *Faults::intermediates() const
{
    for (size_t i = 0; i < n_; i++)
        if (hits_[i].kind == USC_SIM_FAULT_BF16_INTERMEDIATES) return &hits_[i];
    return nullptr;
}

void Faults::note_intermediates(bool changed)
{
    for (size_t i = 0; i < n_; i++)
        if (hits_[i].kind == USC_SIM_FAULT_BF16_INTERMEDIATES)
            results_[i] = std::max(results_[i], changed ? 1 : 0);
}

// ---- inner operators

static thread_local RoundInner *active = nullptr;

RoundInner::RoundInner(const usc_sim_fault *fault) : fault_(fault), outer_(active)
{
    if (fault_ == nullptr) return;
    active = this;
    c10::impl::tls_set_dispatch_key_included(INNER, true);
}

RoundInner::~RoundInner()
{
    if (fault_ == nullptr) return;
    active = outer_;
    if (outer_ == nullptr) c10::impl::tls_set_dispatch_key_included(INNER, false);
}

static void collect(const c10::IValue &v, std::vector<at::Tensor> &into)
{
    if (v.isTensor()) into.push_back(v.toTensor());
    if (v.isTensorList())
        for (const at::Tensor &t : v.toTensorVector())
            into.push_back(t);
}

static bool shares_storage(const at::Tensor &t, const std::vector<at::Tensor> &with)
{
    for (const at::Tensor &other : with)
        if (other.defined() && other.has_storage() && other.is_alias_of(t)) return true;
    return false;
}

// The boxed kernel of INNER: runs the operator, then rounds what it made or wrote. What
// merely shares an argument's storage (a view, a reshape) is no result of arithmetic.
void round_inner(const c10::OperatorHandle &op, DispatchKeySet keys,
                 torch::jit::Stack *stack)
{
    const c10::FunctionSchema &schema = op.schema();
    const size_t first = stack->size() - schema.arguments().size();
    std::vector<at::Tensor> read, made;
    for (size_t i = 0; i < schema.arguments().size(); i++) {
        const c10::AliasInfo *alias = schema.arguments()[i].alias_info();
        collect((*stack)[first + i], alias != nullptr && alias->isWrite() ? made : read);
    }
    op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, INNER), stack);

    c10::impl::ExcludeDispatchKeyGuard plain(INNER);
    for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); i++)
        collect((*stack)[i], made);
    if (active == nullptr) return;
    for (const at::Tensor &t : made) {
        if (!t.defined() || !t.has_storage() || shares_storage(t, read)) continue;
        if (apply(*active->fault_, t, at::Tensor()) > 0) active->changed_ = true;
    }
}

} // namespace usc_sim
