// SPDX-License-Identifier: Apache-2.0
// What planted faults do to one call: the table and the arithmetic are C (sim/fault_*.c);
// here tensors are found for them.
#include "native.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/remainder.h>
#include <c10/core/ScalarType.h>
#include <ulpscope/dtype.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

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
    const usc_sim_elements elements = {dtype, dense.mutable_data_ptr(),
                                       same ? old.const_data_ptr() : nullptr,
                                       static_cast<size_t>(dense.numel()),
                                       static_cast<size_t>(t.dim() > 0 ? t.size(-1) : 1)};
    const int result = usc_sim_fault_apply(&fault, &elements);
    if (result > 0 && !dense.is_same(t)) t.copy_(dense);
    return result;
}

// ---- a call as faults see it

namespace
{

struct Arguments {
    const c10::FunctionSchema &schema;
    const torch::jit::Stack &stack;
    size_t first;
};

// Whether a value is one: neither None, false, its default, a number below 0, nor a list of
// nothing but 0 or 1.
bool is_given(const c10::Argument &a, const c10::IValue &v)
{
    if (v.isNone() || (v.isBool() && !v.toBool())) return false;
    if (v.isTensor()) return v.toTensor().defined();
    if (v.isInt() && v.toInt() < 0) return false;
    if (v.isIntList()) {
        const auto list = v.toIntVector();
        return std::any_of(list.begin(), list.end(), [](int64_t i) { return i > 1; }) ||
               (std::any_of(list.begin(), list.end(), [](int64_t i) { return i == 1; }) &&
                a.name() == "padding");
    }
    const auto &otherwise = a.default_value();
    const bool plain = v.isInt() || v.isDouble() || v.isString();
    return !(plain && otherwise && *otherwise == v);
}

bool given(const void *ctx, const char *name)
{
    const auto *all = static_cast<const Arguments *>(ctx);
    const auto i = all->schema.argumentIndexWithName(name);
    return i && is_given(all->schema.arguments()[static_cast<size_t>(*i)],
                         all->stack[all->first + static_cast<size_t>(*i)]);
}

void look_at(const at::Tensor &t, usc_sim_call *call)
{
    if (!t.defined() || !is_strided(t)) return;
    if (call->dtype == USC_DTYPE_NONE) {
        call->dtype = dtype_of(t.scalar_type());
        call->n = t.numel();
        call->n_columns = t.dim() > 0 ? t.size(-1) : 1;
        if (on_device(t)) call->stream = usc_sim_stream_current(t.device().index()).id;
    }
    call->strided = call->strided || !t.is_contiguous();
    call->has_last = call->has_last || (t.dim() == 4 && !t.is_contiguous() &&
                                        t.is_contiguous(at::MemoryFormat::ChannelsLast));
}

void look_at(const c10::IValue &v, usc_sim_call *call)
{
    if (v.isTensor()) look_at(v.toTensor(), call);
    if (v.isTensorList())
        for (const at::Tensor &t : v.toTensorVector())
            look_at(t, call);
}

usc_sim_call nothing_yet(const char *name)
{
    usc_sim_call call{};
    call.op = name;
    call.stream = -1;
    call.dtype = USC_DTYPE_NONE;
    return call;
}

// What a kernel reads that takes a tensor for contiguous: as many elements of its storage,
// from its first on, over again where that ends.
at::Tensor as_if_contiguous(const at::Tensor &t)
{
    const auto all = static_cast<int64_t>(t.storage().nbytes() / t.itemsize());
    const at::Tensor flat = at::as_strided(t, {all}, {1}, 0);
    const at::Tensor at =
        at::remainder(at::arange(t.numel(), at::kLong) + t.storage_offset(), all);
    return flat.index_select(0, at).view(t.sizes());
}

} // namespace

void Faults::take(const usc_sim_call &call)
{
    usc_sim_fault *hits = nullptr;
    const size_t n = usc_sim_fault_select(&call, &hits);
    hits_.assign(hits, hits + n);
    results_.assign(n, -1);
    std::free(hits);
}

Faults::Faults(const c10::OperatorHandle &op, const torch::jit::Stack &stack, bool tf32)
{
    if (usc_sim_fault_planted()) {
        name_ = full_name(op);
        const c10::FunctionSchema &schema = op.schema();
        const Arguments all{schema, stack, stack.size() - schema.arguments().size()};
        usc_sim_call call = nothing_yet(name_.c_str());
        for (size_t i = all.first; i < stack.size(); i++)
            look_at(stack[i], &call);
        call.ctx = &all;
        call.given = &given;
        take(call);
    }
    if (tf32) { // what the device is told to do is what the fault does unasked
        usc_sim_fault f{};
        f.id = f.output = f.tile = f.lane = -1;
        f.kind = USC_SIM_FAULT_TF32;
        hits_.push_back(f);
        results_.push_back(-1);
    }
    if (hits_.empty()) return;
    is_aten_ = op.schema().getNamespace() == "aten";
    for (const c10::Argument &a : op.schema().arguments())
        if (a.name() == "beta") has_beta_ = true;
}

Faults::Faults(const char *name, const at::Tensor &from, const at::Tensor &to)
{
    if (!usc_sim_fault_planted()) return;
    name_ = name;
    usc_sim_call call = nothing_yet(name);
    look_at(from, &call);
    look_at(to, &call);
    take(call);
}

Faults::~Faults()
{
    for (size_t i = 0; i < hits_.size(); i++)
        if (results_[i] >= 0) usc_sim_fault_note(hits_[i].id, results_[i] > 0);
}

void Faults::note(size_t i, int result)
{
    TORCH_INTERNAL_ASSERT(i < results_.size());
    results_[i] = std::max(results_[i], result);
}

const usc_sim_fault *Faults::fires(usc_sim_fault_kind kind)
{
    for (size_t i = 0; i < hits_.size(); i++)
        if (hits_[i].kind == kind) {
            note(i, 1);
            return &hits_[i];
        }
    return nullptr;
}

void Faults::before_kernel()
{
    for (const usc_sim_fault &hit : hits_) {
        const usc_sim_fault_kind kind = hit.kind;
        if (kind != USC_SIM_FAULT_CRASH && kind != USC_SIM_FAULT_HANG &&
            kind != USC_SIM_FAULT_LACKING && kind != USC_SIM_FAULT_CPU_FALLBACK)
            continue;
        usc_sim_fault_note(hit.id, true);
        if (kind == USC_SIM_FAULT_CRASH) usc_sim_crash();
        if (kind == USC_SIM_FAULT_HANG) usc_sim_hang();
        TORCH_CHECK(kind != USC_SIM_FAULT_HANG, "sim: interrupted while ", name_,
                    " hangs");
        TORCH_CHECK_NOT_IMPLEMENTED(kind != USC_SIM_FAULT_LACKING, "Could not run '",
                                    name_, "' on sim: the device has no such operator");
        TORCH_WARN("The operator '", name_, "' falls back to run on the CPU");
    }
}

// ---- arguments

c10::IValue Faults::value(const c10::Argument &argument, const c10::IValue &v)
{
    for (size_t i = 0; i < hits_.size(); i++) {
        if (hits_[i].kind != USC_SIM_FAULT_IGNORED ||
            argument.name() != hits_[i].argument)
            continue;
        note(i, 1);
        if (argument.type()->kind() == c10::TypeKind::OptionalType) return {};
        if (argument.default_value()) return *argument.default_value();
        if (v.isBool()) return false;
        if (v.isDouble()) return 0.0;
        if (v.isInt()) return static_cast<int64_t>(-100); // what torch ignores by default
    }
    return v;
}

at::Tensor Faults::seen_by(size_t i, const c10::Argument *argument, const at::Tensor &t)
{
    const usc_sim_fault &f = hits_[i];
    // Matrix units round what they multiply, not what is added afterwards.
    const bool added = argument != nullptr && (argument->name() == "bias" ||
                                               (argument->name() == "self" && has_beta_));
    switch (f.kind) {
    case USC_SIM_FAULT_STEP_PLUS_ONE:
        if (argument == nullptr || argument->name() != "state_steps") return t;
        note(i, 1);
        return at::add(t, f.params[0]);
    case USC_SIM_FAULT_WRONG_STRIDE:
        if (t.is_contiguous() || t.numel() == 0) return t;
        note(i, 1);
        return as_if_contiguous(t);
    case USC_SIM_FAULT_OFFSET_IGNORED:
        if (t.storage_offset() == 0 || t.numel() == 0) return t;
        note(i, 1);
        return at::as_strided(t, t.sizes(), t.strides(), 0);
    default:
        break;
    }
    usc_sim_fault how = f;
    if (f.kind == USC_SIM_FAULT_AUTOCAST_NARROW) {
        if (narrow_ == c10::ScalarType::Undefined || t.scalar_type() != at::kFloat)
            return t;
        how.kind =
            narrow_ == at::kHalf ? USC_SIM_FAULT_FP16_INPUTS : USC_SIM_FAULT_BF16_INPUTS;
    } else if (usc_sim_fault_info_of(f.kind)->stage != USC_SIM_STAGE_INPUT &&
               !(rounds_inner(f.kind) && is_aten_)) {
        return t;
    }
    if (added && f.kind == USC_SIM_FAULT_TF32) return t;
    at::Tensor copy = t.clone();
    const int result = apply(how, copy, at::Tensor());
    note(i, result);
    return result > 0 ? copy : t;
}

at::Tensor Faults::input(const c10::Argument *argument, const at::Tensor &host)
{
    if (hits_.empty() || !host.defined()) return host;
    if (!asked_) narrow_ = autocast_dtype();
    asked_ = true;
    at::Tensor seen = host;
    for (size_t i = 0; i < hits_.size(); i++)
        seen = seen_by(i, argument, seen);
    return seen;
}

at::Tensor Faults::remember(const at::Tensor &host) const
{
    for (const usc_sim_fault &hit : hits_)
        if (usc_sim_fault_wants_before(hit.kind) && host.defined()) return host.clone();
    return {};
}

void Faults::see(const at::Tensor &host)
{
    if (beyond_.defined() || !host.defined() || !host.is_floating_point()) return;
    for (const usc_sim_fault &hit : hits_)
        if (hit.kind == USC_SIM_FAULT_NAN_BEYOND)
            beyond_ = at::gt(at::abs(host), hit.params[0]);
}

// ---- results

// What lies behind the last element of a view, where its storage goes on.
static bool clear_behind(const at::Tensor &t)
{
    int64_t end = t.storage_offset() + 1;
    for (int64_t d = 0; d < t.dim(); d++)
        end += (t.size(d) - 1) * t.stride(d);
    const auto all = static_cast<int64_t>(t.storage().nbytes() / t.itemsize());
    if (t.numel() == 0 || end >= all) return false;
    at::as_strided(t, {1}, {1}, end).zero_();
    return true;
}

int Faults::spoil(size_t i, const at::Tensor &host, const at::Tensor &before, bool made)
{
    const usc_sim_fault &f = hits_[i];
    switch (f.kind) {
    case USC_SIM_FAULT_INPLACE_LOST:
        return made ? -1 : apply(f, host, before);
    case USC_SIM_FAULT_WRITES_OUTSIDE:
        return !made && clear_behind(host) ? 1 : -1;
    case USC_SIM_FAULT_NAN_BEYOND:
        if (!beyond_.defined() || beyond_.sizes() != host.sizes() ||
            !host.is_floating_point())
            return -1;
        host.masked_fill_(beyond_, std::numeric_limits<double>::quiet_NaN());
        return beyond_.any().item<bool>() ? 1 : 0;
    default:
        return usc_sim_fault_info_of(f.kind)->stage == USC_SIM_STAGE_OUTPUT ||
                       rounds_inner(f.kind)
                   ? apply(f, host, before)
                   : -1;
    }
}

void Faults::output(const at::Tensor &host, const at::Tensor &before, bool made)
{
    const int64_t its = i_output_++;
    for (size_t i = 0; i < hits_.size() && host.defined(); i++)
        if (hits_[i].output < 0 || hits_[i].output == its)
            note(i, spoil(i, host, before, made));
}

at::Tensor Faults::fewer(const at::Tensor &t)
{
    const usc_sim_fault *f = t.dim() > 0 ? fires(USC_SIM_FAULT_ROWS_LOST) : nullptr;
    if (f == nullptr) return t;
    const auto lost = static_cast<int64_t>(f->params[0]);
    return t.narrow(0, 0, std::max<int64_t>(0, t.size(0) - std::max<int64_t>(lost, 0)))
        .contiguous();
}

// ---- kernels

c10::OperatorHandle Faults::kernel(const c10::OperatorHandle &op)
{
    for (size_t i = 0; i < hits_.size(); i++) {
        const char *instead = usc_sim_instead(hits_[i].kind, name_.c_str());
        if (instead == nullptr) continue;
        const std::string name = instead;
        const size_t dot = name.find('.');
        const auto other = c10::Dispatcher::singleton().findSchema(
            {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
        if (!other) continue;
        note(i, 1);
        return *other;
    }
    return op;
}

bool Faults::breaks(usc_sim_numerics *numerics)
{
    bool any = false;
    for (const usc_sim_fault &hit : hits_)
        any = usc_sim_numerics_break(numerics, &hit) || any;
    return any;
}

void Faults::note_native()
{
    usc_sim_numerics unused{};
    for (size_t i = 0; i < hits_.size(); i++)
        if (usc_sim_numerics_break(&unused, &hits_[i])) note(i, 1);
}

bool Faults::rounds_inner(usc_sim_fault_kind kind)
{
    return kind == USC_SIM_FAULT_BF16_INTERMEDIATES ||
           kind == USC_SIM_FAULT_FP16_INTERMEDIATES ||
           kind == USC_SIM_FAULT_TF32_INTERMEDIATES;
}

const usc_sim_fault *Faults::intermediates() const
{
    for (const usc_sim_fault &hit : hits_)
        if (rounds_inner(hit.kind)) return &hit;
    return nullptr;
}

void Faults::note_intermediates(bool changed)
{
    for (size_t i = 0; i < hits_.size(); i++)
        if (rounds_inner(hits_[i].kind)) note(i, changed ? 1 : 0);
}

// ---- inner operators

static thread_local RoundInner *active = nullptr;

RoundInner::RoundInner(const usc_sim_fault *fault) : fault_(fault), outer_(active)
{
    if (fault_ == nullptr) return;
    active = this;
    usc_glue::include_key(INNER, true);
}

RoundInner::~RoundInner()
{
    if (fault_ == nullptr) return;
    active = outer_;
    if (outer_ == nullptr) usc_glue::include_key(INNER, false);
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

    usc_glue::WithoutKeys plain{DispatchKeySet(INNER)};
    for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); i++)
        collect((*stack)[i], made);
    if (active == nullptr) return;
    for (const at::Tensor &t : made) {
        if (!t.defined() || !t.has_storage() || shares_storage(t, read)) continue;
        if (apply(*active->fault_, t, at::Tensor()) > 0) active->changed_ = true;
    }
}

} // namespace usc_sim
