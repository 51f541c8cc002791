// SPDX-License-Identifier: Apache-2.0
// Planted faults on operators of others: an extension's own kernels, which run on the device's
// memory and know of no faults. One of ours is put before each that a fault names; it spoils
// what the kernel is given and what it gave. Operators from YAML see to faults themselves
// (glue/grid/grid_ops.h). Neighbour: exports.cpp, when this is done.
#include "sim_glue.h"

#include <c10/util/Exception.h>
#include <torch/library.h>
#include <ulpscope/x/aside.h>

#include <algorithm>

namespace usc_sim
{
namespace
{

using c10::DispatchKey;
using c10::DispatchKeySet;
using torch::jit::Stack;
using usc_glue::kernel_at;

constexpr const char *OURS = "ulpscope faults";

using TheirKernel =
    decltype(kernel_at(std::declval<c10::OperatorHandle>(), DispatchKey::CPU));

void wait_for_what_is_queued(c10::DeviceIndex device)
{
    usc_error err{};
    TORCH_CHECK(usc_sim_stream_synchronize(usc_sim_stream_current(device), &err) ==
                    USC_OK,
                err.text);
}

// One call of such a kernel on which faults fire.
class Spoiled
{
  public:
    Spoiled(const c10::OperatorHandle &op, Stack *stack, Faults &faults)
        : schema_(op.schema()), stack_(stack), faults_(faults)
    {
    }

    void before()
    {
        TORCH_INTERNAL_ASSERT(stack_->size() >= schema_.arguments().size());
        faults_.before_kernel();
        Launch launch;
        const size_t first = stack_->size() - schema_.arguments().size();
        for (size_t i = 0; i < schema_.arguments().size(); i++) {
            const c10::Argument &a = schema_.arguments()[i];
            c10::IValue &v = (*stack_)[first + i];
            v = faults_.value(a, v);
            if (v.isTensor()) v = seen(launch, a, v.toTensor());
            if (v.isTensorList()) {
                c10::List<at::Tensor> list;
                for (const at::Tensor &t : v.toTensorVector())
                    list.push_back(seen(launch, a, t));
                v = list;
            }
        }
    }

    void after()
    {
        Launch launch;
        for (const Written &w : written_)
            spoil(launch, w.device, w.before, false);
        for (size_t i = stack_->size() - schema_.returns().size(); i < stack_->size();
             i++) {
            c10::IValue &v = (*stack_)[i];
            if (v.isTensor()) v = result(launch, v.toTensor());
            if (!v.isTensorList()) continue;
            c10::List<at::Tensor> list;
            for (const at::Tensor &t : v.toTensorVector())
                list.push_back(result(launch, t));
            v = list;
        }
    }

  private:
    struct Written {
        at::Tensor device, before;
    };

    at::Tensor opened(Launch &launch, const at::Tensor &t, bool write)
    {
        wait_for_what_is_queued(t.device().index());
        const at::Tensor host = launch.host(t, write);
        launch.open();
        return host;
    }

    static bool has_elements(const at::Tensor &t)
    {
        return t.defined() && on_device(t) && t.layout() == c10::kStrided;
    }

    at::Tensor seen(Launch &launch, const c10::Argument &a, const at::Tensor &t)
    {
        if (!has_elements(t)) return t;
        const at::Tensor host = opened(launch, t, false);
        faults_.see(host);
        if (a.alias_info() != nullptr && a.alias_info()->isWrite()) {
            written_.push_back({t, faults_.remember(host)});
            return t;
        }
        const at::Tensor changed = faults_.input(&a, host);
        return changed.is_same(host) ? t : launch.device(changed.clone());
    }

    void spoil(Launch &launch, const at::Tensor &t, const at::Tensor &before, bool made)
    {
        faults_.output(opened(launch, t, true), before, made);
    }

    // What an argument is given back as was spoiled as that.
    at::Tensor result(Launch &launch, const at::Tensor &t)
    {
        if (!has_elements(t)) return t;
        for (const Written &w : written_)
            if (w.device.is_same(t)) return t;
        spoil(launch, t, at::Tensor(), true);
        const at::Tensor host = opened(launch, t, false), fewer = faults_.fewer(host);
        return fewer.is_same(host) ? t : launch.device(fewer.clone());
    }

    const c10::FunctionSchema &schema_;
    Stack *stack_;
    Faults &faults_;
    std::vector<Written> written_;
};

// What a kernel of ours calls is no call of the program's.
struct SetAside {
    const bool before = usc_set_aside(true);
    ~SetAside()
    {
        (void)usc_set_aside(before);
    }
};

struct Before final : c10::OperatorKernel {
    explicit Before(TheirKernel kernel) : kernel_(std::move(kernel))
    {
    }

    void operator()(const c10::OperatorHandle &op, DispatchKeySet keys, Stack *stack)
    {
        Faults faults(op, *stack, false);
        if (!faults.any()) {
            kernel_.callBoxed(op, keys, stack);
            return;
        }
        Spoiled call(op, stack, faults);
        {
            const SetAside aside;
            call.before();
        }
        kernel_.callBoxed(op, keys, stack);
        const SetAside aside;
        call.after();
    }

  private:
    const TheirKernel kernel_;
};

// What this library and torch itself have kernels of.
bool is_torchs(const std::string &ns)
{
    static const char *const all[] = {"aten",  "prim",      "prims",    "c10d",
                                      "_c10d", "quantized", "profiler", "sim"};
    return std::any_of(std::begin(all), std::end(all), [&](const char *one) {
        return ns == one || ns.rfind(std::string(one) + "_", 0) == 0;
    });
}

struct Silence : c10::WarningHandler {
    void process(const c10::Warning &) override
    {
    }
};

} // namespace

// The text says by whom what runs there now was registered: not again before one of ours,
// nor before a mode's, which goes in front by itself (glue/intercept/reroute.cpp).
bool is_theirs(const c10::OperatorHandle &op, const std::string &registered)
{
    if (is_torchs(std::string(op.operator_name().getNamespace().value_or(""))) ||
        !op.hasKernelForDispatchKey(DispatchKey::PrivateUse1))
        return false;
    for (const char *by : {OURS, "ulpscope reroute", "sim_ops.cpp", "exports.cpp"})
        if (registered.find(by) != std::string::npos) return false;
    return true;
}

void put_faults_before(const c10::OperatorHandle &op)
{
    Silence silence; // torch warns that a kernel is covered
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    auto kernel = c10::KernelFunction::makeFromBoxedFunctor(
        std::make_unique<Before>(kernel_at(op, DispatchKey::PrivateUse1)));
    static auto *all = new std::vector<c10::RegistrationHandleRAII>; // for good
    all->push_back(c10::Dispatcher::singleton().registerImpl(
        op.operator_name(), DispatchKey::PrivateUse1, std::move(kernel), {}, nullptr,
        OURS));
}

} // namespace usc_sim
