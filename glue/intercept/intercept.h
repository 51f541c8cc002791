// SPDX-License-Identifier: Apache-2.0
// What the files of the interception glue share: one record per operator, the attached
// session, and the translation of torch's values into C descriptors and JSON.
#pragma once

#include "intercept_glue.h"
#include "torch_older.h"

#include <ulpscope/x/aside.h>
#include <ulpscope/x/writing.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace torch::autograd
{
struct Node;
}

namespace intercept
{

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::OperatorHandle;
using c10::Stack;

/* How an argument's value is spelled in JSON where its IValue does not tell. */
enum class Spelling { plain, dtype, layout, memory_format };

struct Argument {
    Spelling spelling;
    bool unread;         /* the operator only makes a view of it */
    bool written;        /* by the schema, or by the table of schemas that lie */
    std::string keyword; /* empty: positional */
};

/* Several sessions may be attached at once, each in a slot of its own. */
enum { MOST_SESSIONS = 4 };
using Slots = uint32_t; /* a bit for each */
constexpr Slots all_slots = ~Slots(0);

inline Slots bit(int slot)
{
    return Slots(1) << slot;
}

/* Calls `f` with each slot of a set. */
template <class F> void each_slot(Slots slots, F f)
{
    for (int i = 0; slots >> i != 0; ++i)
        if ((slots & bit(i)) != 0) f(i);
}

/* One operator: what its schema says, worked out once. Never freed: kernels that other
 * threads still run point here. */
struct Operator {
    explicit Operator(const OperatorHandle &op);

    OperatorHandle handle;
    std::string name;   /* "aten::add.Tensor" */
    std::string schema; /* as torch prints it */
    std::vector<Argument> arguments;
    size_t n_returns;
    bool writes;             /* any argument */
    bool views;              /* it only makes views of its arguments */
    bool random;             /* draws from a generator */
    bool composite;          /* made of others, has none of our kernels */
    bool collective;         /* returns a c10d::Work */
    bool paired;             /* one half of a send and a receive */
    bool grouped;            /* names its process group by a text */
    int i_non_blocking = -1; /* which argument is called that; -1: none */
    /* The BackendSelect kernel that ours covers (rand, arange, ...); empty: none. */
    std::function<void(const OperatorHandle &, DispatchKeySet, Stack *)> covered;
    /* Whether it calls operators in turn: as its last call did that could be watched. */
    std::atomic<bool> nests{false};
    /* Of the attached sessions, by slot: */
    std::atomic<Slots> selected{0};
    std::array<std::atomic<int64_t>, MOST_SESSIONS> session{}, id{};
};

/* Where a forward call stood, for its backward calls. */
struct Forward {
    int64_t module, stack;
    int64_t sequence; /* 0: not known, or the call has no node */
    int64_t api;      /* sequence of the API call around it */
};

struct Watched; /* apis_backward.cpp */

class Looks; /* looks.h */

struct Session {
    usc_capture *capture = nullptr;
    usc_intercept_place place = {};
    std::string ops, modules;     /* PATTERNs; empty: all */
    std::vector<int64_t> threads; /* native ids; empty: all */
    bool aten = true, reads = false, debug = false;
    std::shared_ptr<Looks> looks; /* tensors of devices are looked at there; null: read */
    int64_t serial = 0;           /* of all sessions ever */
    int slot = 0;
    /* Ended by the program from inside a call that it records: nothing more is told to
     * it, and the Use around that call frees it. */
    bool left = false;

    std::mutex mutex;                                    /* guards what follows */
    std::unordered_map<uint64_t, Forward> forward_calls; /* by autograd node */
    std::unordered_map<int64_t, std::shared_ptr<Watched>> backward_calls; /* by forward
                                                                              call */
    std::unordered_map<int64_t, bool> in_modules; /* by the module's id */
};

/** The slots in which a session is attached. */
Slots attached();
/** The slot of a session; -1 where it is not attached. */
int slot_of(const usc_capture *c);

/* Holds those sessions of a set that are attached, while a thread uses them. */
class Use
{
  public:
    explicit Use(Slots wanted);
    ~Use();
    Use(const Use &) = delete;
    Use &operator=(const Use &) = delete;
    Session &operator[](int slot) const
    {
        return *session_[slot];
    }
    Slots slots() const
    {
        return slots_;
    }
    explicit operator bool() const
    {
        return slots_ != 0;
    }
    /** Of `slots` those that the call inside has not left. */
    Slots still(Slots slots) const;
    /** How many of this thread hold that slot. */
    static int64_t n_own(int slot);

  private:
    Slots slots_;
    const Use *const outer_;
    Session *session_[MOST_SESSIONS];
};

/* The sessions of which this thread is inside a call that is recorded; all while it works
 * for us: what happens there is not recorded. */
extern thread_local Slots t_inside;

/* How often composites.cpp was asked inside this thread's recorded call.
 */
extern thread_local int t_n_inner;

struct Inside {
    explicit Inside(Slots slots = all_slots) : before(t_inside)
    {
        t_inside |= slots;
    }
    ~Inside()
    {
        t_inside = before;
    }
    const Slots before;
};

/* While it lives, this thread does not work for the program. */
struct Aside {
    Aside() : before(usc_set_aside(true))
    {
    }
    ~Aside()
    {
        (void)usc_set_aside(before);
    }
    Aside(const Aside &) = delete;
    Aside &operator=(const Aside &) = delete;
    const bool before;
};

/* While it lives, what this thread does is seen by no mode, profiler, functorch level or
 * autograd of the user's. */
class OutOfSight
{
    Aside aside_;
    Inside inside_;
    at::RecordFunctionGuard unrecorded_{false};
    usc_glue::OnlyKeys plain_{
        c10::default_included_set,
        c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset |
            c10::default_excluded_set | DispatchKeySet(DispatchKey::ADInplaceOrView)};
};

/* Whether this thread's call runs while its device records a graph: nothing of the device
 * may be read then. */
extern thread_local bool t_graph;

/* ---- registry.cpp ---- */

/** The record of a composite operator by its schema's name text; null for others. */
Operator *composite_by_name(const char *name);
/** Registers kernels for operators that came since; cheap where there are none. */
void adopt_new_operators();
/** The operator's id in the session. */
int64_t operator_id(const Session &session, Operator &op);

/* ---- schema_lies.cpp ---- */

/** Whether the operator writes this argument although its schema does not say so. */
bool schema_hides_write(const std::string &base_name, const std::string &argument);

/* ---- describe.cpp ---- */

using Tensors = std::vector<usc_capture_tensor>;

/** Appends the tensors in `value` (a tensor, or lists of them) as argument `i_arg`. */
void describe(Tensors &out, const IValue &value, usc_role role, int i_arg,
              const Argument *argument, usc_maybe maybe = USC_MAYBE_NOT);
/** Appends a tensor at a place that only a path can say; `path` must outlive `out`. */
void describe_at(Tensors &out, const at::Tensor &tensor, usc_role role, const char *path,
                 usc_maybe maybe);
/** Why a described tensor has no content in the trace, as a sentence; empty: it has, or
 * nobody expects any. */
std::string why_bare(const usc_capture_tensor &t);
/** Calls `f` with every defined tensor in `value`. */
void each_tensor(const IValue &value, const std::function<void(const at::Tensor &)> &f);
/** Device types seen so far. */
const char *devices_seen();
extern const usc_capture_hooks storage_hooks;

/* ---- looks.cpp ---- */

/** Says of the first `n` tensors how the session comes to know their elements: those of
 * devices are looked at where it wants that, with `views` but for the results. */
void look_at(const Session &session, Tensors &tensors, size_t n, bool views = false);
/** Says that nobody looks at them: calls that are made of others, which tell. */
void look_past(const Session &session, Tensors &tensors);

/* ---- arguments.cpp ---- */

/** JSON of a call's arguments, in `text`; as a call describes itself. */
struct Arguments : usc_writing {
    Arguments() : usc_writing{}
    {
    }
    Arguments(const Arguments &) = delete;
    Arguments &operator=(const Arguments &) = delete;
    ~Arguments()
    {
        usc_writing_free(this);
    }
};

/** Writes the call's arguments; false where they are symbolic (the call is traced, not
 * run), or there is no memory. */
bool write_arguments(Arguments &out, const Operator &op, const IValue *values);
/** torch's name of a layout, static text. */
const char *layout_name(int64_t value);
/** JSON of what a call depends on besides its arguments; empty: nothing. */
std::string random_state(const IValue *values, size_t n);
std::string autocast_state();

/* ---- places.cpp ---- */

/** Where a call stands. */
struct Where {
    usc_phase phase;
    int64_t module, stack, thread;
    uint64_t key;     /* of the autograd node whose forward call this may be; 0: none */
    int64_t forward;  /* sequence of the call whose autograd node runs now; 0: none */
    int64_t backward; /* of the API call around that one: its backward call; 0: none */
    std::string node; /* its name, as "MulBackward0" */
};
Where where_now(Session &session);
/** The sequence of that call, which is known only when the session has taken its inputs. */
void number_forward(Session &session, const Where &where, int64_t sequence);
/** Whether the session's modules hold that place. */
bool in_scope(Session &session, const Where &where);
int64_t thread_number();
bool in_backward();
void forget_forward_calls(Session &session);

/* ---- calls.cpp ---- */

/** The kernel that stands in front of an operator's own kernels. */
struct Kernel : c10::OperatorKernel {
    explicit Kernel(Operator *op) : op_(op)
    {
    }
    void operator()(const OperatorHandle &op, DispatchKeySet keys, Stack *stack);

  private:
    Operator *op_;
};

/* Arguments by number, kept beyond the call that consumes its stack. */
using Kept = std::vector<std::pair<size_t, IValue>>;

/* ---- copies.cpp ---- */

/** The device that a copy which does not block reads from; the CPU where nobody waits. */
c10::Device source_of_copy(const Operator &op, const IValue *values);
/** Returns once what such a copy leaves on the host stands. */
void await_copy(c10::Device source, const Kept &written, const IValue *results, size_t n);

/* ---- composites.cpp ---- */

/** Starts and stops watching for composite calls. */
void watch_composites(bool on);
/** Sequence of the composite or else API call around this thread, whose row is written
 * now if it was not; 0: none. */
int64_t parent_of(Session &session, const Where &where);
/** The sessions whose pattern asks for a composite or API call around this thread. */
Slots parent_selected();

/* ---- apis.cpp ---- */

/** Has API calls of this thread seen from here on, where they are not yet. */
void meet_thread(const Session &session);
/** Sequence of the API call around this thread, whose row is written now if it was not;
 * 0: none. */
int64_t api_of(Session &session, const Where &where);
/** The sessions whose pattern asks for the API call around this thread. */
Slots api_selected();
/** Writes the row of the API call around this thread if it is due: where operators are
 * not recorded. */
void note_api(Session &session);
void api_enter(usc_intercept_api *call);
void api_leave(usc_intercept_api *call);
void api_add(void *object, usc_role role, const char *path, usc_maybe maybe);
void api_begin(usc_intercept_api *call);
void api_end(usc_intercept_api *call, bool ok);
void api_graph(const usc_intercept_api *call, int64_t op, uint64_t first);
void api_parameter(const usc_intercept_api *call, void *object, const char *path);
/** The sequence of the row of the API call around this thread; 0: it has none yet. */
int64_t api_sequence(const Session &session);

/* ---- apis_backward.cpp ---- */

/* An API call that ended, and what its graph is told by. */
struct ApiForward {
    int slot;
    int64_t serial, op, sequence, module, stack;
    uint64_t first_node; /* autograd's number of the first node that it can have made */
    int64_t backward_op; /* of a module: what its backward pass is called; else 0 */
};

/* An input that asks for a gradient, before the call; a parameter of a module. */
struct ApiInput {
    const at::Tensor *tensor;    /* valid as long as the call */
    torch::autograd::Node *node; /* NULL: a leaf */
    uint32_t nr;
    std::string path = {}; /* of a parameter's gradient */
};

/** Records the backward pass of a call when it comes. */
void watch_backward(Session &session, const ApiForward &f, std::vector<ApiInput> inputs,
                    const std::vector<const at::Tensor *> &outputs);
/** The backward call that belongs to a forward call of an API; 0: none was recorded. */
int64_t backward_of(Session &session, int64_t forward);

/** Whether this glue can look into Python's tensors. */
bool knows_python();

/* ---- collectives.cpp ---- */

/** What an argument that is an object says of itself: "ReduceOp sum", "ProcessGroup NAME
 * rank 0 of 2"; its kind where nothing is known of it. */
std::string describe_object(const IValue &value);

/** Name, rank and size of the process group that is named among the arguments, as
 * `call.state` says it; empty where none is found. */
std::string group_state(const IValue *values, size_t n);

enum class Ended { standing, failed, unknown };

/** Waits for the Work among a call's results. `standing`: they are as they stay, also
 * where there is no Work. `unknown`: what the call writes may come later, since the Work
 * does not tell when it ends, did not end in good time, or is `paired` (send and
 * receive), whose other half this thread may have to issue first. */
Ended await_work(const IValue *results, size_t n, bool paired);

} // namespace intercept
