// SPDX-License-Identifier: Apache-2.0
// Registers the device with torch's dispatcher, and what Python calls through ctypes.
// Loading the library registers nothing: usc_glue_sim_register() does, once.
#include "native.h"

#include <ATen/ops/ones.h>
#include <torch/library.h>
#include <ulpscope/x/pattern.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace usc_sim
{
namespace
{

using c10::DispatchKey;
using torch::Library;

// Libraries live as long as the process: the device cannot be taken back.
std::vector<Library *> &libraries()
{
    static auto *all = new std::vector<Library *>;
    return *all;
}

Library &new_library(const std::string &ns, DispatchKey key)
{
    libraries().push_back(new Library(Library::IMPL, ns, key, __FILE__, __LINE__));
    return *libraries().back();
}

torch::CppFunction boxed_fallback()
{
    return torch::CppFunction::makeFromBoxedFunction<&fallback>();
}

torch::CppFunction boxed_fallback_of_layouts()
{
    return torch::CppFunction::makeFromBoxedFunction<&fallback_of_layouts>();
}

void use_fallback(const c10::OperatorName &name,
                  DispatchKey key = DispatchKey::PrivateUse1)
{
    static std::map<std::pair<std::string, DispatchKey>, Library *> all;
    const std::string ns(name.getNamespace().value_or("_"));
    Library *&library = all[{ns, key}];
    if (library == nullptr) library = &new_library(ns, key);
    std::string local = name.name.substr(ns.size() + 2);
    if (!name.overload_name.empty()) local += "." + name.overload_name;
    library->impl(local.c_str(), key == DispatchKey::PrivateUse1
                                     ? boxed_fallback()
                                     : boxed_fallback_of_layouts());
}

bool returns_view(const c10::FunctionSchema &schema)
{
    for (const c10::Argument &r : schema.returns())
        if (r.alias_info() != nullptr && !r.alias_info()->isWrite()) return true;
    return false;
}

bool has(const c10::OperatorHandle &op, DispatchKey key)
{
    return op.hasKernelForDispatchKey(key);
}

// The text that came with the kernel that an operator runs at a key; out of its table as text
// where torch hands out no kernels. A copy: the kernel that is handed out is gone behind it.
template <typename Handle>
auto kernel_text(const Handle &op, DispatchKey key, int)
    -> std::decay_t<decltype(op.getComputedKernelForDispatchKey(key).debug())>
{
    return op.getComputedKernelForDispatchKey(key).debug();
}

template <typename Handle>
std::string kernel_text(const Handle &op, DispatchKey key, long)
{
    const std::string table = "\n" + op.dumpComputedTable();
    const size_t at = table.find(std::string("\n") + c10::toString(key) + ": ");
    return at == std::string::npos ? ""
                                   : table.substr(at + 1, table.find('\n', at + 1) - at);
}

// A kernel of its own, not one that a mode of ours put before a composite (reroute.cpp).
bool has_cpu_kernel(const c10::OperatorHandle &op)
{
    return has(op, DispatchKey::CPU) &&
           kernel_text(op, DispatchKey::CPU, 0).find("ulpscope reroute") ==
               std::string::npos;
}

bool is_composite(const c10::OperatorHandle &op)
{
    return has(op, DispatchKey::CompositeExplicitAutograd) ||
           has(op, DispatchKey::CompositeImplicitAutograd) ||
           has(op, DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// Where an operator has a CPU kernel and a composite one, the composite would win over
// the fallback: other rounding than the CPU's, and another name (add.out for add.Tensor).
void prefer_cpu_kernels()
{
    auto &dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
        const auto op = dispatcher.findSchema(name);
        if (!op || has(*op, DispatchKey::PrivateUse1) || returns_view(op->schema()))
            continue;
        if (is_composite(*op) && has_cpu_kernel(*op)) use_fallback(name);
    }
    for (const char *name : {"aten::convolution", "aten::convolution_backward"})
        use_fallback(c10::OperatorName(name, ""));
    for (const char *overload : {"", "periodic", "beta"}) // asks for the device's kernel
        use_fallback(c10::OperatorName("aten::kaiser_window", overload));
    for (const NativeRow &row :
         attention_kernels()) // torch takes them where they were chosen
        if (dispatcher.findSchema({row.op, ""})) use_fallback({row.op, ""});
    register_attention();
}

// The same for tensors of other layouts, whose kernels have keys of their own.
void register_layouts()
{
    auto &dispatcher = c10::Dispatcher::singleton();
    for (const auto &[cpu, device] : layout_keys()) {
        new_library("_", device).fallback(boxed_fallback_of_layouts());
        for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
            const auto op = dispatcher.findSchema(name);
            if (op && has(*op, cpu) && !has(*op, device) && is_composite(*op))
                use_fallback(name, device);
        }
    }
}

// ---- faults on composite operators and on those of others

std::atomic<bool> operators_changed{false};
std::atomic<bool> faults_changed{false};

struct Listener final : c10::OpRegistrationListener {
    void onOperatorRegistered(const c10::OperatorHandle &) override
    {
        operators_changed = true;
    }
    void onOperatorDeregistered(const c10::OperatorHandle &) override
    {
    }
};

std::vector<std::string> planted_patterns()
{
    std::vector<std::string> patterns;
    usc_sim_fault fault;
    for (size_t i = 0; usc_sim_fault_get(i, &fault); i++)
        patterns.push_back(fault.pattern);
    return patterns;
}

// What has a device argument may be asked for a CPU tensor; what returns a view must
// stay a view: neither is made into one kernel.
bool can_be_one_kernel(const c10::OperatorHandle &op)
{
    for (const c10::Argument &a : op.schema().arguments())
        if (a.name() == "device") return false;
    return has(op, DispatchKey::CompositeExplicitAutograd) &&
           !has(op, DispatchKey::PrivateUse1) && !returns_view(op.schema());
}

void install(const std::vector<std::string> &patterns)
{
    auto &dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
        const auto op = dispatcher.findSchema(name);
        if (!op) continue;
        const bool meant = std::any_of(
            patterns.begin(), patterns.end(), [&](const std::string &pattern) {
                return usc_pattern_match(pattern.c_str(), full_name(*op).c_str());
            });
        if (!meant) continue;
        if (can_be_one_kernel(*op))
            use_fallback(name);
        else if (has(*op, DispatchKey::PrivateUse1) &&
                 is_theirs(*op, kernel_text(*op, DispatchKey::PrivateUse1, 0)))
            put_faults_before(*op);
    }
}

void put_faults_before_theirs()
{
    auto &dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
        const auto op = dispatcher.findSchema(name);
        if (op && has(*op, DispatchKey::PrivateUse1) &&
            is_theirs(*op, kernel_text(*op, DispatchKey::PrivateUse1, 0)))
            put_faults_before(*op);
    }
}

void register_all()
{
    register_runtime();
    Library &everywhere = new_library("_", DispatchKey::PrivateUse1);
    everywhere.fallback(boxed_fallback());
    register_storage_ops(new_library("aten", DispatchKey::PrivateUse1));
    prefer_cpu_kernels();
    register_layouts();
    register_quantized_ops(new_library("aten", DispatchKey::QuantizedPrivateUse1));
    // Copying is how lazy conjugation and negation are resolved: were they resolved
    // before it, that would need a copy. CPU aliases carry both bits.
    for (const DispatchKey key : {DispatchKey::Conjugate, DispatchKey::Negative})
        new_library("aten", key)
            .impl("_copy_from", torch::CppFunction::makeFallthrough());

    // Older torch left it to the device: an operator without a gradient of its own runs.
    if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(
            DispatchKey::AutogradPrivateUse1))
        new_library("_", DispatchKey::AutogradPrivateUse1)
            .fallback(torch::CppFunction::makeFallthrough());
    new_library("_", DispatchKey::AutocastPrivateUse1)
        .fallback(torch::CppFunction::makeFallthrough());
    register_autocast(new_library("aten", DispatchKey::AutocastPrivateUse1));

    new_library("_", DispatchKey::TESTING_ONLY_GenericMode)
        .fallback(torch::CppFunction::makeFromBoxedFunction<&round_inner>());
    static auto listening = c10::Dispatcher::singleton().addRegistrationListener(
        std::make_unique<Listener>());
    operators_changed = false; // the listener has just been told of all there are
}

} // namespace

// An operator may be defined after a fault was planted on it, as extensions are imported
// after this device: looked for again whenever operators or faults are new.
void install_where_faults_need_it()
{
    if (!operators_changed.load(std::memory_order_relaxed) &&
        !faults_changed.load(std::memory_order_relaxed))
        return;
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> hold(one_at_a_time);
    // Lowered first: what changes from here on is looked at next time. Without a fault
    // there is nothing to install, and planting the next one raises the flag again.
    operators_changed = faults_changed = false;
    const auto patterns = planted_patterns();
    if (!patterns.empty()) install(patterns);
}

} // namespace usc_sim

// ---- for Python: no exception may cross into ctypes

/// Registers the device; returns "" or why it could not be done.
EXPORT const char *usc_glue_sim_register()
{
    static std::string why;
    try {
        usc_sim::register_all();
    } catch (const std::exception &e) {
        why = e.what();
    }
    return why.c_str();
}

/// To be called after faults were planted.
EXPORT void usc_glue_sim_faults_changed()
{
    usc_sim::faults_changed = true;
    usc_sim::install_where_faults_need_it();
}

/// To be called before a mode puts kernels in front of all others: those of others' operators
/// are seen to now, for what is put in later stands before the mode's.
EXPORT void usc_glue_sim_before_modes()
{
    try {
        usc_sim::put_faults_before_theirs();
    } catch (const std::exception &) {
        // Faults that are planted later tell that they fired at no call.
    }
}

/// Waits until autograd's device threads have let go of what they did last, which can
/// hold Python objects: one that is still at it while the interpreter ends aborts the
/// process. A thread takes a next task only after that, and this task holds none. Call
/// without GIL.
EXPORT void usc_glue_sim_settle()
{
    if (!usc_sim::used_other_threads) return;
    try {
        for (c10::DeviceIndex i = 0; i < usc_sim_device_count(); i++) {
            const c10::Device device(usc_sim::DEVICE, i);
            const at::Tensor x = at::ones({1}, at::TensorOptions().device(device));
            x.set_requires_grad(true).mul(2).sum().backward();
        }
    } catch (const std::exception &) {
        // The process ends either way.
    }
}

/// 0: kernels run when their turn comes; 1: in step.
EXPORT void usc_glue_sim_set_launch_blocking(int on)
{
    usc_sim::launching_later = on == 0;
    usc_sim_set_launch_blocking(on != 0);
}

EXPORT int usc_glue_sim_device_count()
{
    return usc_sim_device_count();
}

EXPORT int usc_glue_sim_current_device()
{
    return usc_sim::current_device();
}

/// Returns 0, or -1 where there is no such device.
EXPORT int usc_glue_sim_set_device(int device)
{
    if (device < 0 || device >= usc_sim_device_count()) return -1;
    usc_sim::set_current_device(static_cast<c10::DeviceIndex>(device));
    return 0;
}

/// 1: random numbers come from Philox; 0: from the CPU's generator, as at the start.
EXPORT void usc_glue_sim_use_philox(int on)
{
    usc_sim::using_philox = on != 0;
}

/// 1: a new generator of a device is its default one, until 0.
EXPORT void usc_glue_sim_hand_out_defaults(int on)
{
    usc_sim::handing_out_defaults = on != 0;
}

EXPORT void usc_glue_sim_seed(int device, uint64_t seed)
{
    usc_sim::default_generator(static_cast<c10::DeviceIndex>(device))
        .set_current_seed(seed);
}

EXPORT uint64_t usc_glue_sim_initial_seed(int device)
{
    return usc_sim::default_generator(static_cast<c10::DeviceIndex>(device))
        .current_seed();
}

/// Copies a device's generator state to `out` where `size` suffices; returns its bytes.
EXPORT int64_t usc_glue_sim_get_rng_state(int device, void *out, int64_t size)
{
    TORCH_INTERNAL_ASSERT(size <= 0 || out != nullptr);
    const at::Tensor state =
        usc_sim::default_generator(static_cast<c10::DeviceIndex>(device)).get_state();
    if (size >= state.numel())
        std::memcpy(out, state.const_data_ptr(), static_cast<size_t>(state.numel()));
    return state.numel();
}

/// Returns 0, or -1 where the bytes are no generator state.
EXPORT int usc_glue_sim_set_rng_state(int device, const void *bytes, int64_t size)
{
    auto &generator = usc_sim::default_generator(static_cast<c10::DeviceIndex>(device));
    try {
        at::Tensor state = generator.get_state().clone();
        if (size != state.numel()) return -1;
        TORCH_INTERNAL_ASSERT(bytes != nullptr);
        std::memcpy(state.mutable_data_ptr(), bytes, static_cast<size_t>(size));
        generator.set_state(state);
    } catch (const std::exception &) {
        return -1;
    }
    return 0;
}
