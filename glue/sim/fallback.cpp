// SPDX-License-Identifier: Apache-2.0
// The boxed kernel that nearly every operator runs through: its arguments become CPU
// tensors over the same memory, the CPU's kernel runs, fresh results move to the device.
#include "native.h"

#include <ulpscope/x/aside.h>
#include <ulpscope_sim/timeline.h>

#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

namespace usc_sim
{
namespace
{

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

// Arguments that a CPU kernel writes although the schema does not say so. The memory
// protection of this device found them: without its row each one faults.
struct HiddenWrite {
    const char *op; // ns::name
    const char *argument;
};
constexpr HiddenWrite HIDDEN_WRITES[] = {
    // at::native::batch_norm_cpu_update_stats_template updates both in place
    {"aten::native_batch_norm", "running_mean"},
    {"aten::native_batch_norm", "running_var"},
    {"aten::batch_norm_update_stats", "running_mean"},
    {"aten::batch_norm_update_stats", "running_var"},
};

bool is_written(const c10::FunctionSchema &schema, const c10::Argument &argument)
{
    const c10::AliasInfo *alias = argument.alias_info();
    if (alias != nullptr && alias->isWrite()) return true;
    for (const HiddenWrite &row : HIDDEN_WRITES)
        if (schema.name() == row.op && argument.name() == row.argument) return true;
    return false;
}

struct Pair {
    at::Tensor device, host, before;
    bool written;
    const char *name; // of the argument
};

// What a violation of memory asks of a call, on whatever thread it happens.
class Watched
{
  public:
    explicit Watched(const std::vector<Pair> &pairs)
        : pairs_(pairs), place_(usc_sim_command_place()),
          thread_(python_thread()), launch_{-1, &Watched::argument, &Watched::write_place,
                                            this},
          before_(usc_sim_set_launch(&launch_))
    {
    }
    ~Watched()
    {
        (void)usc_sim_set_launch(before_);
    }
    Watched(const Watched &) = delete;
    Watched &operator=(const Watched &) = delete;

    void set_device(c10::DeviceIndex device)
    {
        launch_.device = device;
    }

  private:
    static bool argument(const void *self, size_t i, usc_sim_argument *out)
    {
        const auto &pairs = static_cast<const Watched *>(self)->pairs_;
        if (i >= pairs.size()) return false;
        const at::Tensor &t = pairs[i].host;
        static thread_local std::string dtype;
        dtype = usc_glue::dtype_names(t.scalar_type()).first;
        if (!is_strided(t)) {
            *out = {pairs[i].name, dtype.c_str(), nullptr, t.itemsize(), 0,
                    nullptr,       nullptr};
            return true;
        }
        *out = {pairs[i].name,
                dtype.c_str(),
                static_cast<const char *>(t.storage().data()) +
                    static_cast<size_t>(t.storage_offset()) * t.itemsize(),
                t.itemsize(),
                static_cast<int>(t.dim()),
                t.sizes().data(),
                t.strides().data()};
        return true;
    }
    static void write_place(const void *self, char *out, size_t size)
    {
        const auto *w = static_cast<const Watched *>(self);
        if (w->place_ != nullptr)
            (void)snprintf(out, size, "%s", w->place_);
        else
            write_place_of(w->thread_, out, size);
    }

    const std::vector<Pair> &pairs_;
    const char *place_; // of a kernel that ran later; else nullptr
    void *thread_;
    usc_sim_launch launch_;
    const usc_sim_launch *before_;
};

class Call
{
  public:
    Call(const c10::OperatorHandle &op, torch::jit::Stack *stack,
         const std::vector<at::Tensor> *outputs, bool tf32, bool by_arguments = false)
        : op_(op), schema_(op.schema()), stack_(stack), outputs_(outputs),
          by_arguments_(by_arguments), faults_(op, *stack, tf32), watched_(pairs_)
    {
        launch_.allow_mixed = schema_.name() == "aten::copy_" ||
                              schema_.name() == "aten::copy_sparse_to_sparse_";
    }

    void run()
    {
        const size_t first = stack_->size() - schema_.arguments().size();
        for (size_t i = 0; i < schema_.arguments().size(); i++)
            (*stack_)[first + i] = argument((*stack_)[first + i], schema_.arguments()[i]);
        if (target_.has_value()) launch_.set_index(*target_);
        watched_.set_device(launch_.index());
        check_places();
        launch_.open();

        faults_.before_kernel();
        {
            RoundInner inner(faults_.intermediates());
            compute(first);
            if (inner.changed()) faults_.note_intermediates(true);
        }
        for (Pair &p : pairs_) {
            if (!p.written) continue;
            if (is_strided(p.host)) faults_.output(p.host, p.before, false);
            if (on_device(p.device)) launch_.settle(p.device, p.host);
        }
        for (size_t i = stack_->size() - schema_.returns().size(); i < stack_->size();
             i++)
            (*stack_)[i] = result((*stack_)[i]);
    }

  private:
    void compute(size_t first)
    {
        at::Tensor kept; // of a generator that does not move on
        if (op_.hasTag(at::Tag::nondeterministic_seeded) &&
            faults_.fires(USC_SIM_FAULT_OFFSET_KEPT) != nullptr)
            kept = generator_of(first).get_state().clone();
        at::Generator its = kept.defined() ? generator_of(first) : at::Generator();
        draw_and_compute(first);
        if (kept.defined()) its.set_state(kept);
    }

    void draw_and_compute(size_t first)
    {
        // Only now is the device known whose generator a `generator=None` means.
        if (const RandomKernel own = using_philox ? random_kernel(op_) : nullptr) {
            run_random(own, stack_, generator_of(first));
            return;
        }
        for (size_t i = 0; i < schema_.arguments().size(); i++)
            (*stack_)[first + i] =
                generator((*stack_)[first + i], schema_.arguments()[i].name());
        if ((usc_sim_numerics_chosen() || faults_.any()) &&
            run_native(op_, stack_, faults_,
                       draws_unasked() ? generator_of(first) : at::Generator()))
            return;
        std::optional<LentGenerator> lent;
        if (draws_unasked()) lent.emplace(launch_.index());
        if (by_arguments_) { // which of the CPU's kernels it is their layouts say
            const at::RecordFunctionGuard unrecorded(false);
            op_.callBoxed(stack_);
            return;
        }
        if (const Kernel own = cell_kernel(op_))
            own(stack_);
        else
            faults_.kernel(op_).redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack_);
    }

    // From the generator that the CPU's kernel finds by itself.
    bool draws_unasked() const
    {
        return op_.hasTag(at::Tag::nondeterministic_seeded) &&
               !schema_.argumentIndexWithName("generator").has_value();
    }

    at::Tensor tensor(const at::Tensor &t, const c10::Argument &a, bool write)
    {
        if (!t.defined()) return t;
        at::Tensor host = launch_.host(t, write);
        if (on_device(t))
            has_device_tensor_ = true;
        else if (stranger_ == nullptr && !may_be_elsewhere(t, a, write))
            stranger_ = &a;
        const bool strided = is_strided(t);
        if (faults_.any() && strided) {
            launch_.open(); // they look at it now
            faults_.see(host);
        }
        if (!write && strided) {
            const at::Tensor seen = faults_.input(&a, host);
            if (!seen.is_same(host)) return seen;
        }
        if (on_device(t) || write)
            pairs_.push_back({t, host,
                              write && strided ? faults_.remember(host) : at::Tensor(),
                              write, a.name().c_str()});
        return host;
    }

    IValue argument(const IValue &given, const c10::Argument &a)
    {
        const IValue v = faults_.any() ? faults_.value(a, given) : given;
        const bool write = is_written(schema_, a);
        if (v.isTensor()) return tensor(v.toTensor(), a, write);
        if (v.isTensorList()) {
            c10::List<at::Tensor> list;
            for (const at::Tensor &t : v.toTensorVector())
                list.push_back(tensor(t, a, write));
            return list;
        }
        if (v.isOptionalTensorList()) {
            const auto tensors = v.toOptionalTensorVector();
            using Optional = typename decltype(tensors)::value_type; // older torch's own
            c10::List<Optional> list;
            for (const Optional &t : tensors)
                list.push_back(t ? Optional(tensor(*t, a, write)) : t);
            return list;
        }
        if (v.isDevice() && v.toDevice().type() == DEVICE) {
            const c10::Device d = v.toDevice();
            target_ = d.has_index() ? d.index() : current_device();
            return c10::Device(c10::kCPU);
        }
        stays_ = stays_ || (by_arguments_ && v.isDevice());
        return v;
    }

    IValue generator(const IValue &v, const std::string &name)
    {
        if (v.isGenerator()) return cpu_generator(checked(v.toGenerator()));
        if (v.isNone() && name == "generator")
            return cpu_generator(default_generator(launch_.index()));
        return v;
    }

    at::Generator checked(const at::Generator &g) const
    {
        const c10::Device its = g.device(), wanted(DEVICE, launch_.index());
        TORCH_CHECK(its.type() != DEVICE || its == wanted, "Expected a '", wanted,
                    "' generator device but found '", its, "'");
        return g;
    }

    at::Generator generator_of(size_t first)
    {
        for (size_t i = first; i < stack_->size(); i++)
            if ((*stack_)[i].isGenerator()) return checked((*stack_)[i].toGenerator());
        return default_generator(launch_.index());
    }

    // Operators of others see to their arguments themselves.
    bool may_be_elsewhere(const at::Tensor &t, const c10::Argument &a, bool write) const
    {
        const bool own = op_.hasKernelForDispatchKey(DispatchKey::CPU) ||
                         cell_kernel(op_) != nullptr ||
                         usc_sim_product_of(schema_.name().c_str()) == USC_SIM_CONV;
        return !own || schema_.getNamespace() != "aten" ||
               usc_sim_takes_host(schema_.name().c_str(), a.name().c_str(),
                                  t.dim() == 0 && !write);
    }

    // A device cannot read host memory in a kernel; the CPU's kernel could.
    void check_places() const
    {
        TORCH_CHECK(stranger_ == nullptr || !has_device_tensor_,
                    "Expected all tensors to be on the same device, but got ",
                    stranger_->name(), " is on cpu, different from other tensors on sim:",
                    static_cast<int>(launch_.index()), " (when checking argument in ",
                    schema_.name(), ")");
    }

    // What was foretold about a result was its shape, dtype and strides.
    at::Tensor into_output(const at::Tensor &t)
    {
        const at::Tensor &out = outputs_->at(i_output_++);
        TORCH_CHECK(
            t.defined() == out.defined() &&
                (!t.defined() || (t.sizes() == out.sizes() && t.dtype() == out.dtype())),
            "its meta function foretells another result than its kernel gives");
        if (!t.defined()) return out;
        const at::Tensor host = launch_.host(out, true);
        launch_.open();
        host.copy_(t);
        return out;
    }

    at::Tensor moved(const at::Tensor &t)
    {
        if (!t.defined()) return outputs_ != nullptr ? into_output(t) : t;
        for (const Pair &p : pairs_) {
            if (p.host.is_same(t)) return p.device;
            if (is_of_host(p.host, t)) return t;
        }
        if (stays_) return with_own_numbers(t);
        if (usc_glue::is_zerotensor(t))
            return launch_.device(at::zeros(t.sizes(), t.options()));
        if (outputs_ != nullptr) return into_output(t);
        if (!faults_.any() || t.device().type() != c10::kCPU || !is_strided(t))
            return launch_.device(t);
        const at::Tensor whole = faults_.fewer(t);
        faults_.output(whole, faults_.remember(launch_.destination(whole)), true);
        return launch_.device(whole);
    }

    IValue result(const IValue &v)
    {
        if (v.isTensor()) return moved(v.toTensor());
        if (!v.isTensorList()) return v;
        c10::List<at::Tensor> list;
        for (const at::Tensor &t : v.toTensorVector())
            list.push_back(moved(t));
        return list;
    }

    const c10::OperatorHandle &op_;
    const c10::FunctionSchema &schema_;
    torch::jit::Stack *stack_;
    const std::vector<at::Tensor> *outputs_;
    size_t i_output_ = 0;
    const bool by_arguments_;
    Faults faults_;
    std::vector<Pair> pairs_;
    Watched watched_; // until the memory of launch_ is closed
    Launch launch_;
    std::optional<c10::DeviceIndex> target_;
    bool has_device_tensor_ = false, stays_ = false; // stays: on the host, as asked
    const c10::Argument *stranger_ = nullptr;        // of another place than it may be
};

// What a kernel calls in turn is no call of the program's.
class Unseen
{
  public:
    Unseen() = default;
    ~Unseen()
    {
        (void)usc_set_aside(before_);
    }
    Unseen(const Unseen &) = delete;
    Unseen &operator=(const Unseen &) = delete;

  private:
    const bool before_ = usc_set_aside(true);
};

// Blocks that are allocated while it lives are the operator's.
class Label
{
  public:
    explicit Label(const c10::OperatorHandle &op) : outer_(usc_sim_get_label())
    {
        usc_sim_set_label(op.operator_name().name.c_str());
    }
    ~Label()
    {
        usc_sim_set_label(outer_);
    }
    Label(const Label &) = delete;
    Label &operator=(const Label &) = delete;

  private:
    const char *outer_;
};

// Of the first tensor or device among the arguments; else the current one.
c10::DeviceIndex device_of(const c10::OperatorHandle &op, const torch::jit::Stack &stack)
{
    const size_t n = op.schema().arguments().size();
    TORCH_INTERNAL_ASSERT(stack.size() >= n);
    for (size_t i = stack.size() - n; i < stack.size(); i++) {
        const IValue &v = stack[i];
        if (v.isTensor() && on_device(v.toTensor())) return v.toTensor().device().index();
        if (v.isTensorList())
            for (const at::Tensor &t : v.toTensorVector())
                if (on_device(t)) return t.device().index();
        if (v.isDevice() && v.toDevice().type() == DEVICE && v.toDevice().has_index())
            return v.toDevice().index();
    }
    return current_device();
}

bool launched_later(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    if (!launching_later &&
        !(usc_sim_has_captures() && is_captured(device_of(op, *stack))))
        return false;
    const Label label(op);
    return launch_later(op, stack);
}

} // namespace

std::string full_name(const c10::OperatorHandle &op)
{
    const c10::OperatorName &name = op.operator_name();
    return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// Here and now, behind what is queued.
template <class Run>
static void run_now(const c10::OperatorHandle &op, torch::jit::Stack *stack, Run run)
{
    const c10::DeviceIndex device = device_of(op, *stack);
    TORCH_CHECK(
        !is_captured(device), "sim: ", full_name(op),
        " cannot be captured: it runs when it is called, since what it gives is not "
        "known before; move it out of the graph");
    if (usc_sim_has_worked()) catch_up(device);
    const int64_t begin = usc_sim_timeline_begin();
    run();
    usc_sim_timeline_end(op.operator_name().name.c_str(), usc_sim_stream_current(device),
                         begin);
}

void fallback(const c10::OperatorHandle &op, DispatchKeySet, torch::jit::Stack *stack)
{
    TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(DispatchKey::CPU) ||
                                    cell_kernel(op) != nullptr,
                                "sim: there is no kernel for ", full_name(op),
                                ", neither here nor on the CPU");
    install_where_faults_need_it();
    if (launched_later(op, stack)) return;
    run_now(op, stack, [&] { run_kernel(op, stack, nullptr, uses_tf32(op)); });
}

void fallback_of_layouts(const c10::OperatorHandle &op, DispatchKeySet,
                         torch::jit::Stack *stack)
{
    install_where_faults_need_it();
    run_now(op, stack, [&] {
        const Label label(op);
        const Unseen unseen;
        Call(op, stack, nullptr, false, true).run();
    });
}

bool uses_tf32(const c10::OperatorHandle &op)
{
    return (usc_sim_tf32(USC_SIM_MATMUL) || usc_sim_tf32(USC_SIM_CONV)) &&
           usc_sim_tf32(usc_sim_product_of(op.schema().name().c_str()));
}

void run_kernel(const c10::OperatorHandle &op, torch::jit::Stack *stack,
                const std::vector<at::Tensor> *outputs, bool tf32)
{
    const Label label(op);
    const Unseen unseen;
    Call(op, stack, outputs, tf32).run();
}

} // namespace usc_sim
