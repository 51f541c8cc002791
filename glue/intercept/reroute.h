// SPDX-License-Identifier: Apache-2.0
// What the files of rerouting share: a route, the kernel that stands in front of a
// device's, and the ways in which a call is computed instead.
#pragma once

#include "intercept.h"
#include "reroute_glue.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>

namespace intercept
{

struct Target;
struct Timing;
struct Observer;
struct Modules;

/* Of an operator in a phase. */
struct TimedCalls {
    int64_t n = 0;
    double total_ms = 0, most_ms = 0;
    bool by_event = false; /* the device's, else the clock */
};

/* One mode that is entered. Never freed: a thread may be inside. */
struct Route {
    int64_t id;
    usc_reroute_kind kind;
    std::string ops;
    at::ScalarType dtype;
    void *function;
    bool draws; /* of the operators that match, those that draw random numbers */
    std::shared_ptr<Timing> timing;
    std::shared_ptr<Observer> observer;
    std::shared_ptr<Modules> modules; /* null: all */
    std::vector<int64_t> threads;
    std::atomic<bool> on{true};
    std::atomic<int64_t> n_uses{0};
    int64_t n_operators = 0;
    std::mutex mutex; /* guards what follows */
    std::map<const Target *, int64_t> calls;
    std::map<const Target *, std::string> problems; /* the first of each operator */
};

/* An operator and its kernels in front of each device's. */
struct Target {
    explicit Target(const OperatorHandle &handle);

    Operator op;
    bool left_alone; /* neither moved nor cast: memory, views, communication */
    bool converts;   /* not cast: that is its work, or it draws */
    bool copies;     /* moves between devices */
    /* Routes that may take it, the latest first, and whether by its own name. */
    struct Choice {
        Route *route;
        bool direct;
    };
    using Choices = std::vector<Choice>;
    std::atomic<const Choices *> choices{nullptr};
    std::vector<std::unique_ptr<Choices>> kept; /* readers may hold an old one */
    mutable std::atomic<int64_t> n_readers{0};  /* that look at `choices` right now */
};

/* Holds the choices of a target for as long as a thread looks at them. */
class Reading
{
  public:
    explicit Reading(const Target &target) : target_(target)
    {
        target_.n_readers.fetch_add(1);
        choices = target_.choices.load();
    }
    ~Reading()
    {
        target_.n_readers.fetch_sub(1);
    }
    Reading(const Reading &) = delete;
    Reading &operator=(const Reading &) = delete;

    const Target::Choices *choices; /* NULL: none yet */

  private:
    const Target &target_;
};

/* The kernel that ours covers, at one dispatch key; empty: there is none. */
using Covered = std::function<void(const OperatorHandle &, DispatchKeySet, Stack *)>;

/* One kernel of ours. Kept for good, with its functor: a thread may be about to call it.
 */
struct Slot {
    Target *target;
    DispatchKey key;
    bool composite;
    Covered covered;
    std::optional<c10::KernelFunction> kernel;
    std::optional<c10::RegistrationHandleRAII> registered;
};

/* Copies of a call's tensors on another device or in another dtype. Which of them share
 * memory stays as it is, and so do sizes, strides and conjugation. */
class Mirrors
{
  public:
    /** `cpu`: on the CPU; `as`: floating dtypes that are to be another, by their number;
     * equal: they stay. */
    using As = std::function<at::ScalarType(const at::Tensor &)>;
    Mirrors(bool cpu, As as) : cpu_(cpu), as_(std::move(as))
    {
    }

    /** Makes the copies of a call's arguments, in place of them. */
    void take(const Target &target, IValue *values);
    /** Writes what the call wrote back into its own tensors. */
    void write_back();
    /** A result as the caller is to have it: its own tensor where the call returned an
     * argument, or a view of one; else on `home`, in the dtype that `dtype` names. */
    at::Tensor result(const at::Tensor &made, c10::Device home,
                      std::optional<at::ScalarType> dtype) const;
    bool any() const
    {
        return !pairs_.empty();
    }
    /** Of the first tensor that was moved; CPU where none was. */
    c10::Device home() const
    {
        return home_;
    }

  private:
    struct Pair {
        at::Tensor own, copy;
        bool written;
        std::vector<int64_t> sizes, strides; /* of the copy, before the call */
    };
    bool wanted(const at::Tensor &t) const;
    void add(const at::Tensor &t, bool written);
    void make();
    void make_one(Pair &pair) const;
    bool make_group(const std::vector<Pair *> &group) const;
    at::TensorOptions options(const at::Tensor &t) const;
    at::Tensor of(const at::Tensor &t) const;
    const Pair *pair_of(const at::Tensor &copy) const;

    bool cpu_;
    As as_;
    c10::Device home_ = c10::Device(at::kCPU);
    std::vector<Pair> pairs_;
    std::unordered_map<const void *, size_t> index_; /* by own tensor */
};

/** `value` with every tensor in it replaced. */
IValue with_tensors(const IValue &value,
                    const std::function<at::Tensor(const at::Tensor &)> &f);

/* ---- reroute_kernel.cpp ---- */

/** Whether a route leaves calls as they are. */
bool only_looks(const Route &route);
/** Whether this thread is inside a Python function of a substitute. */
bool in_substitute();
c10::KernelFunction kernel_for(Slot *slot);

/* ---- reroute_run.cpp ---- */

/** Whether the route has anything to do for this call. */
bool has_work(const Route &route, const Target &target, const IValue *values);
/** Computes the call; false, and the stack as it was, where that could not be done. */
bool run_moved(Route &route, Target &target, const Covered &covered, DispatchKeySet keys,
               Stack *stack);
/** Keeps why an operator of a route ran as it is. */
void note_problem(Route &route, const Target &target, const char *why);

/* ---- reroute_collectives.cpp ---- */

/** Whether the call is a collective that adds numbers of half precision. */
bool is_reduction(const Target &target, const IValue *values);
/** Runs it in float32. */
void run_collective(const Target &target, const Covered &covered, DispatchKeySet keys,
                    Stack *stack);

/* ---- reroute_time.cpp ---- */

/** `optimizer`: whether this thread is inside an optimizer's step. */
std::shared_ptr<Timing> make_timing(bool (*optimizer)(void));
/** Runs a call and takes its time. */
void run_timed(Timing &timing, const Target &target, const IValue *values,
               const std::function<void()> &run);
/** What was taken so far; waits for what the device has not done yet. */
std::vector<std::tuple<const Target *, usc_phase, TimedCalls>> rows_of(Timing &timing);

/* ---- reroute_kernel.cpp ---- */

/** How many calls of this thread the route has taken that are not over. */
int64_t n_own_uses(const Route &route);

/* ---- reroute_observe.cpp ---- */

/** Null, and why, where the file cannot be written. */
std::shared_ptr<Observer> make_observer(const char *path, int level, int64_t length,
                                        bool (*optimizer)(void), std::string &why);
void flush(Observer &observer);
/** The first part of a call's line. */
std::string observed_before(const Observer &observer, const Target &target,
                            const IValue *values);
/** Writes the line; `results` NULL where the call failed. */
void observed_after(Observer &observer, const Target &target, std::string line,
                    const std::vector<std::pair<size_t, IValue>> &written,
                    const IValue *results);

/* ---- reroute_modules.cpp ---- */

std::shared_ptr<Modules> make_modules(const char *pattern);
/** Whether the PATTERN means the module of a path. */
bool covers(const Modules &modules, const char *path);
/** This thread goes into a module, out of it; is in how many; is in none. */
void enter_module(Modules &modules, bool meant);
void leave_module(Modules &modules);
int64_t module_depth(Modules &modules);
void leave_modules(Modules &modules);
/** Whether this thread is in a module that is meant, or runs the backward of what was
 * called in one. */
bool in_modules(Modules &modules);

/* ---- reroute_python.cpp ---- */

/** Computes the call by the route's Python function. What that raises is thrown. */
void run_function(const Route &route, const Target &target, Stack *stack);

} // namespace intercept
