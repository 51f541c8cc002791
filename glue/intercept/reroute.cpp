// SPDX-License-Identifier: Apache-2.0
// Which operators are computed another way, from enter to leave: kernels in front of
// those of each device, below autograd, autocast and any recording. A composite operator
// has none there; its own kernel says that the calls below it are meant. Neighbours:
// reroute_kernel.cpp, what such a kernel does; reroute_run.cpp, how a call is computed.
#include "reroute.h"

#include <ulpscope/x/pattern.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>

namespace intercept
{

namespace
{

constexpr const char *OURS = "ulpscope reroute";

struct Device {
    DispatchKey key, autograd;
};

constexpr Device devices[] = {
    {DispatchKey::CPU, DispatchKey::AutogradCPU},
    {DispatchKey::CUDA, DispatchKey::AutogradCUDA},
    {DispatchKey::XPU, DispatchKey::AutogradXPU},
    {DispatchKey::MPS, DispatchKey::AutogradMPS},
    {DispatchKey::HPU, DispatchKey::AutogradHPU},
    {DispatchKey::MTIA, DispatchKey::AutogradMTIA},
    {DispatchKey::PrivateUse1, DispatchKey::AutogradPrivateUse1},
};

struct Routes {
    std::mutex mutex;
    std::map<std::string, std::unique_ptr<Target>> targets;
    std::map<std::pair<Target *, DispatchKey>, std::unique_ptr<Slot>> slots;
    std::vector<std::unique_ptr<Route>> all; /* by id */
    std::vector<Route *> entered;            /* the latest last */
    size_t n_operators = 0, n_devices = 0;   /* when they were last looked at */
};

Routes &routes()
{
    static Routes *const instance = new Routes; /* kernels run while the process ends */
    return *instance;
}

/* ---- registration, under the mutex ---- */

bool is_meant(const Route &route, const OperatorHandle &op, const std::string &name)
{
    return usc_pattern_match(route.ops.c_str(), name.c_str()) &&
           (!route.draws || op.hasTag(at::Tag::nondeterministic_seeded));
}

struct Silence : c10::WarningHandler {
    void process(const c10::Warning &) override
    {
    }
};

bool is_there(const Device &device)
{
    static const auto empty =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::empty", "memory_format");
    return empty.hasKernelForDispatchKey(device.key);
}

/* Composite wherever it has no kernel of the device itself: one of ours there would take
 * its autograd away. */
bool is_composite_at(const OperatorHandle &op, DispatchKey key)
{
    return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
           !op.hasKernelForDispatchKey(key);
}

Covered covered_at(const OperatorHandle &op, DispatchKey key)
{
    if (!op.hasComputedKernelForDispatchKey(key)) return {};
    return kernel_at(op, key);
}

/* Whether a kernel that was registered since stands in front of ours. */
bool is_covered_up(const Slot &slot)
{
    const OperatorHandle &op = slot.target->op.handle;
    return slot.registered && op.hasComputedKernelForDispatchKey(slot.key) &&
           !runs_at(op, slot.key, *slot.kernel, OURS);
}

void put(Routes &r, Target &target, DispatchKey key, bool composite)
{
    auto &slot = r.slots[{&target, key}];
    if (!slot) {
        slot = std::make_unique<Slot>();
        slot->target = &target;
        slot->key = key;
        slot->kernel = kernel_for(slot.get());
    }
    if (is_covered_up(*slot)) slot->registered.reset();
    if (slot->registered) return;
    slot->composite = composite;
    slot->covered = covered_at(target.op.handle, key);
    slot->registered.emplace(c10::Dispatcher::singleton().registerImpl(
        target.op.handle.operator_name(), key, *slot->kernel, {}, nullptr, OURS));
}

void put_all(Routes &r, Target &target)
{
    for (const Device &device : devices) {
        if (!is_there(device)) continue;
        const bool composite = r.slots.count({&target, device.autograd}) != 0 ||
                               is_composite_at(target.op.handle, device.key);
        /* In inference mode a composite is met below autograd. */
        if (composite) put(r, target, device.autograd, true);
        put(r, target, device.key, composite);
    }
}

/* Operators whose results depend on more than their inputs' numbers, or that only hand
 * memory about. */
bool is_left_alone(const std::string &name)
{
    static const char *const beginnings[] = {"profiler::",
                                             "prim::",
                                             "rpc::",
                                             "_test::",
                                             "c10d::",
                                             "_c10d_functional",
                                             "c10d_functional",
                                             "symm_mem::",
                                             "aten::empty",
                                             "aten::new_empty",
                                             "aten::_empty",
                                             "aten::set_",
                                             "aten::resize_",
                                             "aten::_resize",
                                             "aten::_copy_from",
                                             "aten::record_stream",
                                             "aten::_unsafe_view",
                                             "aten::_local_scalar_dense",
                                             "aten::is_pinned",
                                             "aten::_pin_memory",
                                             "aten::is_set_to",
                                             "aten::_has_same_storage_numel",
                                             "aten::_nested_"};
    for (const char *b : beginnings)
        if (name.rfind(b, 0) == 0) return true;
    return false;
}

bool is_one_of(const std::string &name, std::initializer_list<const char *> list)
{
    for (const char *b : list)
        if (name == b) return true;
    return false;
}

/* Numbers drawn in another dtype are others. Attention that may drop out is more than a
 * draw. */
bool draws(const Operator &op)
{
    if (!op.random) return false;
    for (const c10::Argument &a : op.handle.schema().arguments())
        if (a.name() == "dropout_p") return false;
    return true;
}

Target &target_of(Routes &r, const OperatorHandle &handle)
{
    auto &slot = r.targets[c10::toString(handle.operator_name())];
    if (!slot || !(slot->op.handle == handle)) {
        if (slot) slot.release(); /* a thread may still be inside its kernel */
        slot = std::make_unique<Target>(handle);
    }
    return *slot;
}

/* Which routes take the operator, the latest first. */
std::unique_ptr<Target::Choices> choices_of(const Routes &r, const Target &target,
                                            const std::vector<const Route *> &below)
{
    auto choices = std::make_unique<Target::Choices>();
    for (auto it = r.entered.rbegin(); it != r.entered.rend(); ++it) {
        const bool direct = is_meant(**it, target.op.handle, target.op.name);
        const bool within = std::find(below.begin(), below.end(), *it) != below.end();
        if (direct || within) choices->push_back({*it, direct});
    }
    return choices;
}

/* Puts in what is wanted now and takes out what is not. */
void settle(Routes &r)
{
    Silence silence;
    c10::WarningUtils::WarningHandlerGuard guard(&silence);
    auto &dispatcher = c10::Dispatcher::singleton();
    std::vector<OperatorHandle> found;
    std::vector<const Route *> below; /* routes that match a composite */
    const auto names = dispatcher.getAllOpNames();
    for (Route *route : r.entered)
        route->n_operators = 0;
    for (const c10::OperatorName &name : names) {
        const auto handle = dispatcher.findSchema(name);
        if (!handle) continue;
        found.push_back(*handle);
        const std::string text = c10::toString(name);
        for (Route *route : r.entered) {
            if (!is_meant(*route, *handle, text)) continue;
            ++route->n_operators;
            if (route->kind != USC_REROUTE_SUBSTITUTE && !only_looks(*route) &&
                handle->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd))
                below.push_back(route);
        }
    }
    for (const OperatorHandle &handle : found) {
        const std::string text = c10::toString(handle.operator_name());
        bool wanted = !below.empty();
        for (const Route *route : r.entered)
            wanted = wanted || is_meant(*route, handle, text);
        if (!wanted && r.targets.count(text) == 0) continue;
        Target &target = target_of(r, handle);
        auto choices = choices_of(r, target, below);
        const bool any = !choices->empty();
        target.choices.store(choices.get());
        if (target.n_readers.load() == 0) target.kept.clear();
        target.kept.push_back(std::move(choices));
        if (any) {
            put_all(r, target);
            continue;
        }
        for (const Device &device : devices)
            for (const DispatchKey key : {device.key, device.autograd}) {
                const auto slot = r.slots.find({&target, key});
                if (slot != r.slots.end()) slot->second->registered.reset();
            }
    }
    r.n_operators = names.size();
    r.n_devices = static_cast<size_t>(
        std::count_if(std::begin(devices), std::end(devices), is_there));
}

bool dtype_named(const char *name, at::ScalarType *out)
{
    for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
        const auto dtype = static_cast<at::ScalarType>(i);
        if (!at::isFloatingType(dtype)) continue;
        const auto names = dtype_names(dtype);
        if (names.first == name || names.second == name) {
            *out = dtype;
            return true;
        }
    }
    return false;
}

Route *route_at(int64_t id)
{
    Routes &r = routes();
    std::lock_guard<std::mutex> lock(r.mutex);
    return id >= 1 && id <= static_cast<int64_t>(r.all.size())
               ? r.all[static_cast<size_t>(id) - 1].get()
               : nullptr;
}

usc_status enter(const usc_reroute_options *options, int64_t *id, usc_error *err)
{
    TORCH_INTERNAL_ASSERT(options != nullptr && options->ops != nullptr && id != nullptr);
    Routes &r = routes();
    std::lock_guard<std::mutex> lock(r.mutex);
    *id = 0;
    auto route = std::make_unique<Route>();
    route->kind = options->kind;
    route->ops = options->ops;
    route->dtype = at::kFloat;
    route->function = options->function;
    route->draws = options->draws;
    if (options->kind == USC_REROUTE_TIME)
        route->timing = make_timing(options->optimizer);
    if (options->modules != nullptr) route->modules = make_modules(options->modules);
    for (int64_t i = 0; i < options->n_threads; ++i)
        route->threads.push_back(options->threads[i]);
    if (options->kind == USC_REROUTE_CAST && !dtype_named(options->dtype, &route->dtype))
        return usc_error_set(err, USC_E_ARG, -1,
                             "dtype '%.60s': a floating dtype of torch", options->dtype);
    std::string why;
    if (options->kind == USC_REROUTE_OBSERVE) {
        route->observer = make_observer(options->output, options->level, options->length,
                                        options->optimizer, why);
        if (!route->observer)
            return usc_error_set(err, USC_E_IO, -1, "%.400s", why.c_str());
    }
    route->id = static_cast<int64_t>(r.all.size()) + 1;
    r.entered.push_back(route.get());
    r.all.push_back(std::move(route));
    *id = r.all.back()->id;
    try {
        settle(r);
    } catch (const std::exception &e) {
        r.all.back()->on.store(false);
        r.entered.pop_back(); /* or it would be in the way of all that come */
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "torch refused the kernels: %.300s", e.what());
    }
    return USC_OK;
}

void set_on(int64_t id, bool on)
{
    Route *route = route_at(id);
    if (route == nullptr) return;
    route->on.store(on, std::memory_order_release);
    if (route->observer) flush(*route->observer);
}

void leave(int64_t id)
{
    Route *route = route_at(id);
    if (route == nullptr) return;
    route->on.store(false);
    {
        Routes &r = routes();
        std::lock_guard<std::mutex> lock(r.mutex);
        r.entered.erase(std::remove(r.entered.begin(), r.entered.end(), route),
                        r.entered.end());
        try {
            settle(r);
        } catch (const std::exception &) { /* the kernels stay, and pass all through */
        }
    }
    if (in_substitute())
        return; /* from inside a substitute, which would wait for itself */
    const int64_t n_own =
        n_own_uses(*route); /* it is left from inside a call of its own */
    while (route->n_uses.load() != n_own)
        std::this_thread::yield();
    if (n_own > 0 && route->observer)
        flush(*route->observer);
    else
        route->observer.reset(); /* closes its file */
}

void adopt()
{
    Routes &r = routes();
    std::lock_guard<std::mutex> lock(r.mutex);
    if (r.entered.empty()) return;
    const size_t n_devices = static_cast<size_t>(
        std::count_if(std::begin(devices), std::end(devices), is_there));
    try {
        bool changed =
            n_devices != r.n_devices ||
            c10::Dispatcher::singleton().getAllOpNames().size() != r.n_operators;
        for (const auto &[place, slot] : r.slots)
            changed = changed || (slot->target->op.name.rfind("aten::", 0) != 0 &&
                                  is_covered_up(*slot));
        if (changed) settle(r);
    } catch (const std::exception &) { /* what came is left alone */
    }
}

bool calls(int64_t id, int64_t i, const char **op, int64_t *n)
{
    Route *route = route_at(id);
    if (route == nullptr) return false;
    std::lock_guard<std::mutex> lock(route->mutex);
    for (const auto &[target, times] : route->calls) {
        if (i-- != 0) continue;
        *op = target->op.name.c_str();
        *n = times;
        return true;
    }
    return false;
}

bool times(int64_t id, int64_t i, usc_reroute_time *out)
{
    static std::vector<std::tuple<const Target *, usc_phase, TimedCalls>> rows;
    static const char *const phases[] = {"forward", "backward", "optimizer"};
    Route *route = route_at(id);
    if (route == nullptr || !route->timing) return false;
    if (i == 0) rows = rows_of(*route->timing);
    if (i >= static_cast<int64_t>(rows.size())) return false;
    const auto &[target, phase, row] = rows[static_cast<size_t>(i)];
    *out = {target->op.name.c_str(),
            phases[phase],
            row.n,
            row.total_ms,
            row.most_ms,
            row.by_event};
    return true;
}

const char *problem(int64_t id, int64_t i)
{
    Route *route = route_at(id);
    if (route == nullptr) return nullptr;
    std::lock_guard<std::mutex> lock(route->mutex);
    for (const auto &[target, text] : route->problems)
        if (i-- == 0) return text.c_str();
    return nullptr;
}

int64_t n_operators(int64_t id)
{
    const Route *route = route_at(id);
    return route != nullptr ? route->n_operators : 0;
}

/* The modules of a route; null: it is for all. */
Modules *modules_of(int64_t id)
{
    const Route *route = route_at(id);
    return route != nullptr ? route->modules.get() : nullptr;
}

bool route_covers(int64_t id, const char *path)
{
    const Modules *modules = modules_of(id);
    return modules == nullptr || covers(*modules, path);
}

void enter_module_of(int64_t id, bool meant)
{
    if (Modules *modules = modules_of(id)) enter_module(*modules, meant);
}

void leave_module_of(int64_t id)
{
    if (Modules *modules = modules_of(id)) leave_module(*modules);
}

int64_t module_depth_of(int64_t id)
{
    Modules *modules = modules_of(id);
    return modules != nullptr ? module_depth(*modules) : 0;
}

void leave_modules_of(int64_t id)
{
    if (Modules *modules = modules_of(id)) leave_modules(*modules);
}

} // namespace

Target::Target(const OperatorHandle &handle)
    : op(handle), left_alone(is_left_alone(op.name)),
      converts(draws(op) || is_one_of(handle.schema().name(),
                                      {"aten::_to_copy", "aten::copy_", "aten::clone",
                                       "aten::_foreach_copy_", "aten::to", "aten::copy",
                                       "aten::_foreach_copy", "aten::contiguous"})),
      copies(is_one_of(handle.schema().name(), {"aten::_to_copy", "aten::copy_",
                                                "aten::_foreach_copy_", "aten::copy"}))
{
}

} // namespace intercept

extern "C" USC_API const usc_reroute_table usc_reroute;
const usc_reroute_table usc_reroute = {
    intercept::enter,           intercept::set_on,          intercept::leave,
    intercept::adopt,           intercept::calls,           intercept::problem,
    intercept::times,           intercept::n_operators,     intercept::route_covers,
    intercept::enter_module_of, intercept::leave_module_of, intercept::module_depth_of,
    intercept::leave_modules_of};
