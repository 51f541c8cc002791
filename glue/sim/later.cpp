// SPDX-License-Identifier: Apache-2.0
// Kernels that run when their stream's turn comes. What a call gives is foretold by its
// meta function: results are made at once, and the kernel fills them later. Calls whose
// results cannot be foretold (item, nonzero, random numbers, out= that grows) run at once,
// behind what is queued.
#include "foretell.h"
#include "sim_glue.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <ulpscope/x/aside.h>
#include <ulpscope_sim/foretold.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace usc_sim
{

std::atomic<bool> launching_later{false};

namespace
{

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

// ---- whose calls

// What a kernel calls in turn is no call of the program's.
class Aside
{
  public:
    Aside() = default;
    ~Aside()
    {
        (void)usc_set_aside(before_);
    }
    Aside(const Aside &) = delete;
    Aside &operator=(const Aside &) = delete;

  private:
    const bool before_ = usc_set_aside(true);
    const at::RecordFunctionGuard unrecorded_{false};
};

// ---- which operators

bool is_plain(const c10::TypePtr &type)
{
    switch (type->kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::SymFloatType:
    case c10::TypeKind::SymBoolType:
        return true;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
        return is_plain(type->containedType(0));
    default: // devices, generators, storages, layouts: rare, and seldom on a hot path
        return false;
    }
}

bool returns_tensors(const c10::FunctionSchema &schema)
{
    for (const c10::Argument &r : schema.returns()) {
        const c10::TypePtr &t = r.type();
        const bool list = t->kind() == c10::TypeKind::ListType;
        if ((list ? t->containedType(0) : t)->kind() != c10::TypeKind::TensorType)
            return false;
        if (r.alias_info() != nullptr && !r.alias_info()->isWrite()) return false;
    }
    return true;
}

bool decide(const c10::OperatorHandle &op)
{
    for (const c10::Argument &a : op.schema().arguments())
        if (!is_plain(a.type()) &&
            a.type()->str().find("ScalarType") == std::string::npos)
            return false;
    return op.hasComputedKernelForDispatchKey(DispatchKey::Meta) &&
           cell_kernel(op) == nullptr && returns_tensors(op.schema()) &&
           (!op.hasTag(at::Tag::dynamic_output_shape) ||
            usc_sim_shape_by_mask(op.schema().name().c_str())) &&
           !op.hasTag(at::Tag::data_dependent_output) &&
           !op.hasTag(at::Tag::nondeterministic_seeded);
}

bool can_wait(const c10::OperatorHandle &op)
{
    static std::mutex one_at_a_time;
    static auto *known = new std::unordered_map<const c10::FunctionSchema *, bool>;
    const std::lock_guard<std::mutex> hold(one_at_a_time);
    const auto found = known->find(&op.schema());
    if (found != known->end()) return found->second;
    return (*known)[&op.schema()] = decide(op);
}

// Whether a graph may run it again and again: what it gives is known from shapes alone.
bool can_be_captured(const c10::OperatorHandle &op)
{
    return returns_tensors(op.schema()) && !op.hasTag(at::Tag::dynamic_output_shape) &&
           !op.hasTag(at::Tag::data_dependent_output) &&
           (cell_kernel(op) != nullptr ||
            op.hasComputedKernelForDispatchKey(DispatchKey::CPU));
}

// ---- launches

struct Launched {
    Launched(const c10::OperatorHandle &o, bool again)
        : op(o), tf32(uses_tf32(o)), repeats(again)
    {
    }
    c10::OperatorHandle op;
    bool tf32;    // as it was set at the launch
    bool repeats; // runs more than once
    Frozen frozen;
    Stack stack;
    std::vector<at::Tensor> outputs;
};

// No exception may cross the device's C.
template <class Act> usc_status guarded(usc_error *err, Act act)
{
    const Aside aside;
    try {
        act();
        return USC_OK;
    } catch (const c10::Error &e) {
        return usc_error_set(err, USC_E_ARG, -1, "%s", e.what_without_backtrace());
    } catch (const std::exception &e) {
        return usc_error_set(err, USC_E_ARG, -1, "%s", e.what());
    }
}

usc_status run_launched(void *ctx, usc_error *err)
{
    auto *l = static_cast<Launched *>(ctx);
    TORCH_INTERNAL_ASSERT(l != nullptr);
    return guarded(err, [l] {
        Stack its = l->repeats ? l->stack : std::move(l->stack);
        run_kernel(l->op, &its, &l->outputs, l->tf32);
    });
}

template <class T> void drop(void *ctx)
{
    delete static_cast<T *>(ctx);
}

template <class T>
void submit(usc_sim_stream stream, std::unique_ptr<T> work,
            usc_status (*run)(void *, usc_error *), const char *name)
{
    usc_sim_command c{};
    c.run = run;
    c.drop = &drop<T>;
    c.ctx = work.release(); // dropped in each case
    std::strncpy(c.name, name, sizeof c.name - 1);
    write_place(c.place, sizeof c.place);
    usc_error err{};
    check(usc_sim_submit(stream, &c, &err), err);
}

// Of all arguments, but for numbers of the host that are only read. None: there is none,
// or an argument that a kernel cannot wait with.
std::optional<c10::DeviceIndex> common_device(const c10::FunctionSchema &schema,
                                              const Stack &args)
{
    std::optional<c10::DeviceIndex> device;
    bool fine = true;
    for (size_t i = 0; i < args.size(); i++) {
        const c10::AliasInfo *alias = schema.arguments()[i].alias_info();
        const bool written = alias != nullptr && alias->isWrite();
        const char *name = schema.arguments()[i].name().c_str();
        const bool number =
            !written && usc_sim_takes_host(schema.name().c_str(), name, true);
        each_tensor(args[i], [&](const at::Tensor &t) {
            if (!t.defined() || (t.is_cpu() && t.dim() == 0 && number)) return;
            if (!on_device(t) || !is_strided(t) || usc_glue::is_zerotensor(t))
                fine = false;
            else if (!device)
                device = t.device().index();
            else
                fine = fine && *device == t.device().index();
        });
    }
    return fine ? device : std::nullopt;
}

// Whether the kernel is going to refuse where it writes: elements that share memory, or
// that another argument has in part. It says so at the call.
bool writes_are_apart(const c10::FunctionSchema &schema, const Stack &args)
{
    std::vector<at::Tensor> written, all;
    for (size_t i = 0; i < args.size(); i++) {
        const c10::AliasInfo *alias = schema.arguments()[i].alias_info();
        each_tensor(args[i], [&](const at::Tensor &t) {
            if (!on_device(t)) return;
            all.push_back(t);
            if (alias != nullptr && alias->isWrite()) written.push_back(t);
        });
    }
    for (const at::Tensor &w : written) {
        if (at::has_internal_overlap(w) == at::MemOverlap::Yes) return false;
        for (const at::Tensor &t : all)
            if (at::get_overlap_status(w, t) == at::MemOverlapStatus::Partial)
                return false;
    }
    return true;
}

// Whether the call is one whose result torch's meta function tells right.
bool is_foretold(const c10::OperatorHandle &op, const Stack &args)
{
    const char *name = op.schema().name().c_str();
    bool narrow = false, mask = false;
    for (const IValue &v : args)
        each_tensor(v, [&](const at::Tensor &t) {
            if (!t.defined()) return;
            narrow = narrow || (t.is_floating_point() && t.itemsize() < sizeof(float));
            mask = mask || t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
        });
    return usc_sim_foretells(name, narrow) && !(mask && usc_sim_shape_by_mask(name));
}

} // namespace

// What lies alike goes as bytes.
void copy_bytes(const at::Tensor &to, const at::Tensor &from)
{
    const bool alike = to.dtype() == from.dtype() && to.sizes() == from.sizes() &&
                       to.strides() == from.strides() && to.is_conj() == from.is_conj() &&
                       to.is_neg() == from.is_neg() && to.is_non_overlapping_and_dense();
    if (!alike)
        to.copy_(from);
    else if (to.numel() > 0)
        std::memmove(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
}

bool is_captured(c10::DeviceIndex device)
{
    return usc_sim_has_captures() && usc_sim_capturing(usc_sim_stream_current(device));
}

bool launch_later(const c10::OperatorHandle &op, Stack *stack)
{
    if (!usc_sim_has_captures() && !can_wait(op)) return false;
    const auto first =
        stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
    const Stack args(first, stack->end());
    const auto device = common_device(op.schema(), args);
    if (!device) return false;
    const bool captured = is_captured(*device);
    if (!(captured ? can_be_captured(op) : can_wait(op)) ||
        (usc_sim_fault_planted() && usc_sim_fault_concerns(full_name(op).c_str())) ||
        !writes_are_apart(op.schema(), args))
        return false;
    const bool told = is_foretold(op, args) && can_wait(op);
    if (!captured && !told) return false;

    const Aside aside; // results are made and metas computed on nobody's behalf
    const bool draws = op.hasTag(at::Tag::nondeterministic_seeded);
    const SharedTold its =
        told || draws ? tell_by_meta(op, args) : tell_by_trial(op, args);
    if (!its->fine) return false;
    std::vector<at::Tensor> fresh;
    const Stack results = make_results(*its, args, *device, fresh);

    auto launched = std::make_unique<Launched>(op, captured);
    for (const IValue &v : args)
        launched->stack.push_back(launched->frozen.of(v));
    for (const at::Tensor &t : fresh)
        launched->outputs.push_back(launched->frozen.of(t));
    if (!captured) launched->frozen.let_go(); // a graph keeps its memory
    submit(usc_sim_stream_current(*device), std::move(launched), &run_launched,
           op.operator_name().name.c_str());
    stack->erase(first, stack->end());
    for (const IValue &v : results)
        stack->push_back(v);
    return true;
}

namespace
{

// Host tensors are owned until the copy has run; device memory is pinned.
struct Copy {
    Frozen frozen;
    at::Tensor from, to;
};

usc_status run_copy(void *ctx, usc_error *err)
{
    auto *c = static_cast<Copy *>(ctx);
    return guarded(err, [c] {
        Launch launch;
        launch.allow_mixed = true;
        const at::Tensor to = launch.host(c->to, true),
                         from = launch.host(c->from, false);
        launch.open();
        copy_bytes(to, from);
    });
}

constexpr size_t SET_ASIDE = 64 << 10; // as hardware's drivers do: more is waited for

void order(usc_sim_stream behind, usc_sim_stream other)
{
    usc_error err{};
    check(usc_sim_stream_wait_stream(behind, other, &err), err);
}

} // namespace

// Between devices and between device and pinned memory a copy takes its turn; from other
// host memory it does as well, of bytes that are set aside now, as hardware's driver does.
bool copy_later(const at::Tensor &from, const at::Tensor &to, bool non_blocking)
{
    if (!is_strided(from) || !is_strided(to) || usc_glue::is_zerotensor(from) ||
        !(on_device(from) || on_device(to)) || usc_sim_fault_concerns(COPY))
        return false;
    const auto pinned = [](const at::Tensor &t) {
        return t.is_cpu() && usc_sim_is_pinned(t.storage().data());
    };
    const Aside aside;
    at::Tensor source = from;
    if (!on_device(from) && !pinned(from) && is_captured(to.device().index()))
        return false; // the bytes of now would be copied for ever
    if (!on_device(from) && !pinned(from)) {
        if (!non_blocking && from.nbytes() > SET_ASIDE) return false;
        const at::AutoDispatchBelowADInplaceOrView below_autograd;
        source = from.clone();
    } else if (!(on_device(from) && on_device(to)) &&
               !(non_blocking && (pinned(from) || pinned(to)))) {
        return false;
    }
    auto copy = std::make_unique<Copy>();
    copy->from = on_device(source) ? copy->frozen.of(source) : source;
    copy->to = on_device(to) ? copy->frozen.of(to) : to;
    if (!is_captured((on_device(from) ? from : to).device().index()))
        copy->frozen.let_go();
    const auto of = [](const at::Tensor &t) {
        return usc_sim_stream_current(t.device().index());
    };
    const usc_sim_stream stream = on_device(from) ? of(from) : of(to);
    const bool crosses = on_device(from) && on_device(to) && from.device() != to.device();
    if (crosses) order(stream, of(to));
    submit(stream, std::move(copy), &run_copy, "aten::_copy_from");
    if (crosses) order(of(to), stream);
    return true;
}

} // namespace usc_sim
