// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share. Together they register the simulated accelerator
// (ulpscope_sim/sim.h) with torch as its PrivateUse1 device: runtime.cpp memory and guard;
// generator.cpp and random.cpp random numbers; launch.cpp how a kernel gets at device memory;
// fallback.cpp the boxed kernel that nearly every operator runs through; faults.cpp what
// planted faults do to it; layouts.cpp tensors that are more than a strided storage;
// later.cpp kernels that run when their stream's turn comes; place.cpp where they were
// launched; storage_ops.cpp the operators about storage; recurrent.cpp cells that the CPU
// lacks; exports.cpp registration and what Python calls.
#pragma once

#include "../older.h"
#include "../torch_private.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceType.h>
#include <c10/util/SmallVector.h>
#include <ulpscope_sim/graph.h>
#include <ulpscope_sim/memory.h>
#include <ulpscope_sim/numerics.h>
#include <ulpscope_sim/profile.h>
#include <ulpscope_sim/random.h>
#include <ulpscope_sim/rules.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch
{
class Library;
}

namespace usc_sim
{

constexpr c10::DeviceType DEVICE = c10::DeviceType::PrivateUse1;

// What torch's own signatures have where a value may be missing: std's, or that of an older
// torch.
template <class Some> struct kind_of_optional;
template <template <class> class Some, class Value> struct kind_of_optional<Some<Value>> {
    template <class Other> using of = Some<Other>;
};
using its_tensors =
    decltype(std::declval<const c10::IValue &>().toOptionalTensorVector());
template <class Value>
using optional = typename kind_of_optional<its_tensors::value_type>::template of<Value>;

// ---- runtime.cpp

c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index); // throws where there is no such device
c10::Allocator *allocator();
c10::DataPtr allocate_on(c10::DeviceIndex device, size_t size);
void resize_storage(const c10::Storage &storage, size_t size); // keeps what fits
void check(usc_status status, const usc_error &err);           // raises what torch would
// Waits for what this thread's stream of a device has to run.
void catch_up(c10::DeviceIndex device);
void check_dtype(c10::ScalarType dtype); // raises where the devices lack it
void register_runtime();                 // allocator, guard, hooks

inline bool on_device(const at::Tensor &t)
{
    return t.defined() && t.device().type() == DEVICE;
}

// ---- launch.cpp

// A tensor over another storage, with the sizes, strides, dtype and bits of t.
at::Tensor make_like(const at::Tensor &t, const c10::Storage &storage,
                     c10::DispatchKey key);

// While a Launch lives, host() tensors alias device memory as CPU tensors: the same
// bytes, strides and aliasing, readable, and writable where asked, once open() has opened
// all that were seen so far; they are closed at the end; dispatch below sees neither autograd nor
// autocast.
class Launch
{
  public:
    Launch();
    ~Launch();
    Launch(const Launch &) = delete;
    Launch &operator=(const Launch &) = delete;

    at::Tensor host(const at::Tensor &t, bool write);
    void open();
    // Moves a CPU result to the device; results that share a storage go on sharing it,
    // and what is a view of an argument becomes a view of the device's tensor.
    at::Tensor device(const at::Tensor &t);
    // The device memory to which device(t) is going to move `t`, with what lies there
    // now.
    at::Tensor destination(const at::Tensor &t);
    // Carries over what the kernel did to the shape and storage of an out= argument.
    void settle(const at::Tensor &device_tensor, const at::Tensor &host_tensor);

    // The strided tensors that one of another layout is made of (layouts.cpp); what
    // settle_part() is given is what part() gave, or what the kernel put in its place.
    at::Tensor part(const at::Tensor &t, bool write);
    at::Tensor settle_part(const at::Tensor &host_tensor);

    c10::DeviceIndex index() const; // of the arguments; the current device where none is
    void set_index(c10::DeviceIndex index);
    bool allow_mixed = false; // copies may name two devices

  private:
    struct Bound {
        c10::Storage device, host;
        void *address; // what was opened, and is to be closed
        bool write, opened;
    };
    Bound &bind(const c10::Storage &storage, bool write);
    Bound *bound_to_host(const c10::StorageImpl *host);
    Bound &move_to_device(const c10::Storage &host);

    c10::SmallVector<Bound, 8> bound_;
    std::vector<std::pair<at::Tensor, at::Tensor>> parts_; // device's, host's
    std::vector<c10::DataPtr> replaced_; // freed only after everything is closed
    c10::DeviceIndex index_ = -1;
    struct Guards;
    std::unique_ptr<Guards> guards_;
};

// ---- layouts.cpp

// Whether a tensor is a view of one storage and no more: neither sparse nor quantized nor
// nested.
bool is_strided(const at::Tensor &t);
at::Tensor host_of_layout(Launch &launch, const at::Tensor &t, bool write);
at::Tensor device_of_layout(Launch &launch, const at::Tensor &t);
void settle_layout(Launch &launch, const at::Tensor &device, const at::Tensor &host);
// A fresh tensor of the host, whose scales are those of an argument: they are its own then.
at::Tensor with_own_numbers(const at::Tensor &t);
// Whether t tells how a nested tensor lies, and belongs to the host.
bool is_of_host(const at::Tensor &nested, const at::Tensor &t);
// The keys of such tensors, of the CPU and of the device, one after the other.
std::vector<std::pair<c10::DispatchKey, c10::DispatchKey>> layout_keys();

// ---- faults.cpp

// The faults that fire on one call, and what has come of them.
class Faults
{
  public:
    Faults(const c10::OperatorHandle &op, const torch::jit::Stack &stack, bool tf32);
    Faults(const char *name, const at::Tensor &from, const at::Tensor &to); // of a copy
    ~Faults(); // counts what fired

    bool any() const
    {
        return !hits_.empty();
    }
    void before_kernel(); // crash, hang
    // An argument that may be ignored.
    c10::IValue value(const c10::Argument &argument, const c10::IValue &v);
    // A read-only argument as the faulty kernel sees it: itself or a changed copy.
    at::Tensor input(const c10::Argument *argument, const at::Tensor &host);
    // Copies what may have to be put back; undefined where nothing will.
    at::Tensor remember(const at::Tensor &host) const;
    void see(const at::Tensor &host); // an argument, before the kernel runs
    // `made`: a result, and no argument that was written.
    void output(const at::Tensor &host, const at::Tensor &before, bool made);
    at::Tensor fewer(const at::Tensor &t);                     // a result, with rows lost
    c10::OperatorHandle kernel(const c10::OperatorHandle &op); // another one in its place
    // Whether it fires; counted then.
    const usc_sim_fault *fires(usc_sim_fault_kind kind);
    bool breaks(usc_sim_numerics *numerics); // of the device's own kernels
    void note_native();
    const usc_sim_fault *intermediates() const;
    void note_intermediates(bool changed);

  private:
    static bool rounds_inner(usc_sim_fault_kind kind);
    void take(const usc_sim_call &call);
    void note(size_t i, int result);
    at::Tensor seen_by(size_t i, const c10::Argument *argument, const at::Tensor &t);
    int spoil(size_t i, const at::Tensor &host, const at::Tensor &before, bool made);

    std::vector<usc_sim_fault> hits_;
    std::vector<int> results_; // the largest usc_sim_fault_apply() result so far
    std::string name_;
    at::Tensor beyond_; // where an argument's magnitude is too large
    c10::ScalarType narrow_ = c10::ScalarType::Undefined;
    int64_t i_output_ = 0;
    bool has_beta_ = false, is_aten_ = false, asked_ = false;
};

// While it lives, every operator that this thread runs on the CPU has its float results
// rounded as `fault` says. NULL does nothing.
class RoundInner
{
  public:
    explicit RoundInner(const usc_sim_fault *fault);
    ~RoundInner();
    bool changed() const
    {
        return changed_;
    }

  private:
    friend void round_inner(const c10::OperatorHandle &, c10::DispatchKeySet,
                            torch::jit::Stack *);
    const usc_sim_fault *fault_;
    RoundInner *outer_;
    bool changed_ = false;
};

void round_inner(const c10::OperatorHandle &op, c10::DispatchKeySet keys,
                 torch::jit::Stack *stack);

// ---- faults_theirs.cpp

// Whether an operator's kernel is an extension's; `registered`: what torch says of it.
bool is_theirs(const c10::OperatorHandle &op, const std::string &registered);
void put_faults_before(const c10::OperatorHandle &op);

// ---- generator.cpp

at::Generator new_generator(c10::DeviceIndex device);
at::Generator &default_generator(c10::DeviceIndex device); // -1: the current device's
// The CPU's generator that a kernel of the CPU is given in place of the device's.
at::Generator cpu_generator(const at::Generator &sim_generator);
// While it lives, the CPU's own generator draws what the device's would.
class LentGenerator
{
  public:
    explicit LentGenerator(c10::DeviceIndex device);
    ~LentGenerator();

  private:
    at::Generator its_;
    at::Tensor kept_;
};
extern std::atomic<bool> using_philox;         // in place of the CPU's stream of numbers
extern std::atomic<bool> handing_out_defaults; // new_generator() gives the default one

// ---- random.cpp

// Fills its first argument from Philox and leaves that alone on the stack.
using RandomKernel = void (*)(torch::jit::Stack *, usc_sim_random &);
RandomKernel random_kernel(const c10::OperatorHandle &op); // nullptr: it has none
// Runs it; `generator` is the call's own, or undefined.
void run_random(RandomKernel kernel, torch::jit::Stack *stack,
                const at::Generator &generator);

// ---- recurrent.cpp

using Kernel = void (*)(torch::jit::Stack *); // of CPU tensors
// Computes an operator that the CPU has no kernel of; nullptr: the CPU's is taken.
Kernel cell_kernel(const c10::OperatorHandle &op);

// ---- fallback.cpp

std::string full_name(const c10::OperatorHandle &op); // ns::name.overload
extern std::atomic<bool> used_other_threads;          // than the one that loaded the glue
void fallback(const c10::OperatorHandle &op, c10::DispatchKeySet,
              torch::jit::Stack *stack);
// The same where an argument is not strided, or a result is asked to be something else.
void fallback_of_layouts(const c10::OperatorHandle &op, c10::DispatchKeySet,
                         torch::jit::Stack *stack);

// Runs the CPU's kernel on `stack`, here and now. Where `outputs` are given (device
// tensors, undefined ones included), results are written there instead of made. `tf32`: its
// factors are rounded.
void run_kernel(const c10::OperatorHandle &op, torch::jit::Stack *stack,
                const std::vector<at::Tensor> *outputs, bool tf32);
bool uses_tf32(const c10::OperatorHandle &op); // as it is set now

// The name of copies for faults.
constexpr const char *COPY = "sim::copy";

// ---- later.cpp

// Queues the kernel on the current stream and puts results on the stack that are going to
// hold what it computes; false: this call has to run now, and nothing was done.
bool launch_later(const c10::OperatorHandle &op, torch::jit::Stack *stack);
// Queues a copy; false as above.
bool copy_later(const at::Tensor &from, const at::Tensor &to, bool non_blocking);
// Copies between CPU tensors, of which one or both alias device memory.
void copy_bytes(const at::Tensor &to, const at::Tensor &from);
// Whether this thread's stream of a device is being captured: nothing may run at its call.
bool is_captured(c10::DeviceIndex device);
extern std::atomic<bool> launching_later; // whether the two above do anything

// ---- place.cpp

// The innermost Python line of this thread that is not torch's own, "train.py:12".
void write_place(char *out, size_t size);
// A thread as Python knows it, or nullptr; and the same place of it, from any thread, while
// it is inside torch.
void *python_thread();
void write_place_of(void *thread, char *out, size_t size);

// ---- storage_ops.cpp, autocast.cpp, exports.cpp

void register_storage_ops(torch::Library &aten);
void register_quantized_ops(torch::Library &aten); // that have no kernel on the CPU
void register_autocast(torch::Library &aten);
c10::ScalarType
autocast_dtype(); // of the autocast that this thread is in; none: Undefined
void install_where_faults_need_it(); // cheap unless faults or operators are new

} // namespace usc_sim
