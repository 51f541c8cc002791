// SPDX-License-Identifier: Apache-2.0
// Which operators get a kernel of ours, from attach to detach. A composite operator gets
// none: it is seen by composites.cpp and through the calls below it. Neighbour:
// calls.cpp, what the kernel does.
#include "intercept.h"
#include "looks.h"

#include <c10/util/Exception.h>

#include <ulpscope/x/pattern.h>

#include <mutex>
#include <pthread.h>
#include <thread>
#include <unordered_map>

namespace intercept
{

namespace
{

/* Profiler marks and the like: no tensors, and their results must not be held. */
bool left_alone(const std::string &name)
{
    static const char *const spaces[] = {"profiler::", "prim::", "rpc::", "_test::"};
    for (const char *space : spaces)
        if (name.rfind(space, 0) == 0) return true;
    /* Puts a tensor over a storage (a data loader does, with what its workers sent):
     * nothing is computed, and storages as such are not kept. */
    return name.rfind("aten::set_.source_Storage", 0) == 0;
}

Spelling spelling_of(const c10::Argument &argument)
{
    c10::TypePtr type = argument.real_type();
    if (type->kind() == c10::TypeKind::OptionalType)
        type = type->castRaw<c10::OptionalType>()->getElementType();
    switch (type->kind()) {
    case c10::TypeKind::ScalarTypeType:
        return Spelling::dtype;
    case c10::TypeKind::LayoutType:
        return Spelling::layout;
    case c10::TypeKind::MemoryFormatType:
        return Spelling::memory_format;
    default:
        return Spelling::plain;
    }
}

using ByName = std::unordered_map<const void *, Operator *>;

struct Slot {
    std::atomic<Session *> session{nullptr};
    std::atomic<const usc_capture *> capture{nullptr};
    std::atomic<int64_t> n_uses{0};
    bool leaving = false; /* is waited for */
};

thread_local const Use *t_use = nullptr; /* the innermost */

struct Registry {
    std::mutex mutex; /* guards all but the atomics */
    std::unordered_map<std::string, std::unique_ptr<Operator>> operators;
    std::vector<c10::RegistrationHandleRAII> kernels;
    std::unordered_map<std::string, bool> done;
    std::vector<c10::OperatorName> arrived;
    std::mutex
        arrived_mutex; /* held under the dispatcher's lock: nothing else below it */
    std::atomic<bool> any_arrived{false};
    std::optional<c10::RegistrationHandleRAII> listener;
    std::atomic<const ByName *> composites{nullptr};
    std::vector<std::unique_ptr<ByName>> composite_maps; /* readers may hold an old one */
    std::array<Slot, MOST_SESSIONS> slot;
    std::atomic<Slots> attached{0};
    int64_t n_sessions = 0;
};

Registry &registry()
{
    /* Never destroyed: kernels may run while the process ends. */
    static Registry *const instance = new Registry;
    return *instance;
}

/* Called under the dispatcher's lock, where nothing can be registered: takes note only.
 */
struct Listener : c10::OpRegistrationListener {
    void onOperatorRegistered(const OperatorHandle &op) override
    {
        Registry &r = registry();
        std::lock_guard<std::mutex> lock(r.arrived_mutex);
        r.arrived.push_back(op.operator_name());
        r.any_arrived.store(true, std::memory_order_release);
    }
    void onOperatorDeregistered(const OperatorHandle &) override
    {
    }
};

/* torch warns about an overridden kernel; here that is the purpose. */
struct Silence : c10::WarningHandler {
    void process(const c10::Warning &) override
    {
    }
};

void cover(Operator &op)
{
    op.covered = nullptr;
    if (!op.handle.hasKernelForDispatchKey(DispatchKey::BackendSelect)) return;
    op.covered = kernel_at(op.handle, DispatchKey::BackendSelect);
}

/* Made of other operators wherever it is called. Where a device has a kernel of its own
 * and autograd a formula (silu_backward), nothing is called below that could be seen. */
bool is_composite(const OperatorHandle &op)
{
    if (!op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) return false;
    if (!op.hasKernelForDispatchKey(DispatchKey::Autograd)) return true;
    for (const DispatchKey key :
         {DispatchKey::CPU, DispatchKey::CUDA, DispatchKey::PrivateUse1})
        if (op.hasKernelForDispatchKey(key)) return false;
    return true;
}

/* Under the mutex: which sessions ask for it. `one`: also, not attached yet. */
void select(Registry &r, Operator &op, const Session *one = nullptr)
{
    Slots slots = 0;
    const auto ask = [&](const Session *s) {
        if (s == nullptr) return;
        const char *ops = s->ops.empty() ? nullptr : s->ops.c_str();
        if (usc_pattern_match(ops, op.name.c_str())) slots |= bit(s->slot);
    };
    for (const Slot &slot : r.slot)
        ask(slot.session.load());
    ask(one);
    op.selected.store(slots);
}

/* Under the mutex. */
void adopt(Registry &r, const OperatorHandle &handle, ByName &composites)
{
    const std::string key = c10::toString(handle.operator_name());
    if (left_alone(key) || r.done.count(key)) return;
    std::unique_ptr<Operator> &slot = r.operators[key];
    if (!slot || !(slot->handle == handle)) {
        if (slot) slot.release(); /* a thread may still be inside its kernel */
        slot = std::make_unique<Operator>(handle);
    }
    select(r, *slot);
    slot->composite = is_composite(handle);
    r.done[key] = true;
    if (slot->composite) {
        composites[handle.schema().name().c_str()] = slot.get();
        return;
    }
    cover(*slot);
    r.kernels.push_back(c10::Dispatcher::singleton().registerImpl(
        handle.operator_name(), DispatchKey::BackendSelect,
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(slot.get())),
        {}, nullptr, "ulpscope interception"));
}

/* Under the mutex. */
void adopt_all(Registry &r, const std::vector<c10::OperatorName> &names)
{
    Silence silence;
    c10::WarningUtils::WarningHandlerGuard guard(&silence);
    const ByName *old = r.composites.load();
    auto composites = old ? std::make_unique<ByName>(*old) : std::make_unique<ByName>();
    for (const c10::OperatorName &name : names) {
        const auto handle = c10::Dispatcher::singleton().findSchema(name);
        if (handle) adopt(r, *handle, *composites);
    }
    r.composites.store(composites.get());
    r.composite_maps.push_back(std::move(composites));
}

/* A forked child (a data-loader worker) has no writer thread: it records nothing. */
void forget_session()
{
    registry().attached.store(0);
    for (Slot &slot : registry().slot) {
        slot.session.store(nullptr);
        slot.capture.store(nullptr);
        slot.n_uses.store(0);
    }
}

/* Under the mutex. Kernels go in reverse order of their coming. */
void drop_kernels(Registry &r)
{
    while (!r.kernels.empty())
        r.kernels.pop_back();
    r.done.clear();
    r.composites.store(nullptr);
}

/* Under the mutex: whether an attached session records operators. */
bool any_aten(const Registry &r)
{
    for (const Slot &slot : r.slot) {
        const Session *session = slot.session.load();
        if (session != nullptr && session->aten) return true;
    }
    return false;
}

/* Under the mutex. A call that was left still holds its slot. */
bool is_free(const Slot &slot)
{
    return slot.session.load() == nullptr && !slot.leaving && slot.n_uses.load() == 0;
}

std::unique_ptr<Session> make_session(Registry &r, usc_capture *c, int slot,
                                      const usc_intercept_options &options)
{
    TORCH_INTERNAL_ASSERT(c != nullptr && slot >= 0 && slot < MOST_SESSIONS);
    TORCH_INTERNAL_ASSERT(options.threads != nullptr || options.n_threads == 0);
    auto session = std::make_unique<Session>();
    session->capture = c;
    session->place = options.place;
    session->ops = options.ops ? options.ops : "";
    session->modules = options.modules ? options.modules : "";
    session->threads.assign(options.threads, options.threads + options.n_threads);
    session->aten = options.aten;
    session->reads = options.reads;
    session->debug = options.debug;
    session->looks = options.looks ? looks_of(c, true) : nullptr;
    session->serial = ++r.n_sessions;
    session->slot = slot;
    return session;
}

/* Under the mutex: kernels for all operators, where there are none yet. */
void register_kernels(Registry &r, const Session &session)
{
    adopt_all(r, c10::Dispatcher::singleton().getAllOpNames());
    for (const auto &entry : r.operators)
        select(r, *entry.second, &session);
    if (!r.listener) {
        r.listener.emplace(c10::Dispatcher::singleton().addRegistrationListener(
            std::make_unique<Listener>()));
        /* A new listener hears of every operator that is there: those are adopted. */
        std::lock_guard<std::mutex> arrived_lock(r.arrived_mutex);
        r.arrived.clear();
        r.any_arrived.store(false);
    }
    watch_composites(session.aten || any_aten(r));
}

usc_status attach(usc_capture *c, const usc_intercept_options *options, usc_error *err)
{
    Registry &r = registry();
    std::lock_guard<std::mutex> lock(r.mutex);
    const int present = slot_of(c);
    if (present >= 0) {
        forget_forward_calls(*r.slot[static_cast<size_t>(present)].session.load());
        return USC_OK;
    }
    size_t free = 0;
    while (free < MOST_SESSIONS && !is_free(r.slot[free]))
        ++free;
    if (free == MOST_SESSIONS)
        return usc_error_set(err, USC_E_BUSY, -1,
                             "%d captures and modes are running here already; end one "
                             "of them first",
                             MOST_SESSIONS);
    static const int at_fork = pthread_atfork(nullptr, nullptr, forget_session);
    if (at_fork != 0) return usc_error_set(err, USC_E_NOMEM, -1, "pthread_atfork failed");
    std::unique_ptr<Session> session;
    try {
        session = make_session(r, c, static_cast<int>(free), *options);
        register_kernels(r, *session);
    } catch (const std::exception &e) {
        if (attached() == 0) drop_kernels(r);
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "torch refused the interception kernels: %.300s", e.what());
    }
    r.slot[free].session.store(session.release());
    r.slot[free].capture.store(c);
    r.attached.fetch_or(bit(static_cast<int>(free)));
    return USC_OK;
}

void detach(const usc_capture *c)
{
    Registry &r = registry();
    std::unique_lock<std::mutex> lock(r.mutex);
    const int i = slot_of(c);
    if (i < 0) return;
    Slot &slot = r.slot[static_cast<size_t>(i)];
    r.attached.fetch_and(~bit(i));
    slot.capture.store(nullptr);
    Session *session = slot.session.exchange(nullptr);
    watch_composites(any_aten(r));
    if (attached() == 0) drop_kernels(r);
    slot.leaving = true;
    lock.unlock(); /* a call that is waited for may ask for it */
    /* Not for the call that this thread is in itself. */
    const int64_t n_own = Use::n_own(i);
    while (slot.n_uses.load() != n_own)
        std::this_thread::yield();
    session->left = n_own > 0;
    if (n_own == 0) delete session;
    lock.lock();
    slot.leaving = false;
}

void note_module(const usc_capture *c, int64_t id, const char *path)
{
    const int slot = slot_of(c);
    const Use use(slot >= 0 ? bit(slot) : 0);
    if (!use || use[slot].modules.empty()) return;
    const bool in = usc_pattern_covers(use[slot].modules.c_str(), path);
    std::lock_guard<std::mutex> lock(use[slot].mutex);
    use[slot].in_modules[id] = in;
}

/* Definitions alone are read: kernels come and go under other threads' hands. */
void places(void (*tell)(void *ctx, const char *name, const char *place), void *ctx)
{
    for (const c10::OperatorName &name : c10::Dispatcher::singleton().getAllOpNames()) {
        if (name.name.rfind("aten::", 0) == 0 || name.name.rfind("prims::", 0) == 0)
            continue;
        const auto handle = c10::Dispatcher::singleton().findSchema(name);
        if (handle)
            tell(ctx, c10::toString(name).c_str(), std::string(handle->debug()).c_str());
    }
}

} // namespace

Operator::Operator(const OperatorHandle &op)
    : handle(op), name(c10::toString(op.operator_name())),
      schema(c10::toString(op.schema())), n_returns(op.schema().returns().size()),
      writes(false), views(false), random(op.hasTag(at::Tag::nondeterministic_seeded)),
      composite(false), collective(name.rfind("c10d::", 0) == 0),
      paired(name.rfind("c10d::send", 0) == 0 || name.rfind("c10d::recv", 0) == 0),
      grouped(name.rfind("_c10d_functional::", 0) == 0)
{
    for (const c10::Argument &a : op.schema().arguments()) {
        const bool written = (a.alias_info() != nullptr && a.alias_info()->isWrite()) ||
                             schema_hides_write(op.schema().name(), a.name());
        arguments.push_back({spelling_of(a), a.alias_info() != nullptr, written,
                             a.kwarg_only() ? a.name() : ""});
        writes = writes || written;
        if (a.name() == "non_blocking")
            i_non_blocking = static_cast<int>(arguments.size()) - 1;
    }
    views = !writes && n_returns > 0;
    for (const c10::Argument &r : op.schema().returns())
        views = views && r.alias_info() != nullptr;
    /* What may copy after all (reshape) is composite, and so may be what it calls. */
    views = views && !op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
    for (Argument &a : arguments)
        a.unread = a.unread && views;
}

Slots attached()
{
    return registry().attached.load();
}

int slot_of(const usc_capture *c)
{
    const Registry &r = registry();
    for (size_t i = 0; i < MOST_SESSIONS; ++i)
        if (r.slot[i].capture.load() == c) return static_cast<int>(i);
    return -1;
}

Use::Use(Slots wanted) : slots_(wanted & attached()), outer_(t_use)
{
    Registry &r = registry();
    t_use = this;
    each_slot(slots_, [&](int i) {
        Slot &slot = r.slot[static_cast<size_t>(i)];
        slot.n_uses.fetch_add(1);
        session_[i] = slot.session.load();
        if (session_[i] != nullptr) return;
        slot.n_uses.fetch_sub(1);
        slots_ &= ~bit(i);
    });
}

Use::~Use()
{
    t_use = outer_;
    each_slot(slots_, [&](int i) {
        if (session_[i]->left && n_own(i) == 0) delete session_[i];
        registry().slot[static_cast<size_t>(i)].n_uses.fetch_sub(1);
    });
}

Slots Use::still(Slots slots) const
{
    Slots out = 0;
    each_slot(slots, [&](int i) { out |= session_[i]->left ? 0 : bit(i); });
    return out;
}

int64_t Use::n_own(int slot)
{
    int64_t n = 0;
    for (const Use *use = t_use; use != nullptr; use = use->outer_)
        n += (use->slots_ & bit(slot)) != 0;
    return n;
}

Operator *composite_by_name(const char *name)
{
    const ByName *map = registry().composites.load(std::memory_order_acquire);
    if (map == nullptr) return nullptr;
    const auto found = map->find(name);
    return found == map->end() ? nullptr : found->second;
}

void adopt_new_operators()
{
    Registry &r = registry();
    if (!r.any_arrived.load(std::memory_order_acquire)) return;
    std::lock_guard<std::mutex> lock(r.mutex);
    std::vector<c10::OperatorName> names;
    {
        std::lock_guard<std::mutex> arrived_lock(r.arrived_mutex);
        names.swap(r.arrived);
        r.any_arrived.store(false);
    }
    if (attached() != 0) adopt_all(r, names);
}

int64_t operator_id(const Session &session, Operator &op)
{
    const auto slot = static_cast<size_t>(session.slot);
    if (op.session[slot].load(std::memory_order_acquire) != session.serial) {
        op.id[slot].store(
            usc_capture_op(session.capture, op.name.c_str(), op.schema.c_str()));
        op.session[slot].store(session.serial, std::memory_order_release);
    }
    return op.id[slot].load();
}

} // namespace intercept

namespace
{
void settle(usc_capture *c, bool wait)
{
    const auto looks = intercept::looks_of(c, false);
    if (looks != nullptr) looks->settle(wait);
}
} // namespace

extern "C" USC_API const usc_intercept_table usc_intercept;
const usc_intercept_table usc_intercept = {
    &intercept::storage_hooks,
    intercept::attach,
    intercept::detach,
    intercept::note_module,
    intercept::adopt_new_operators,
    intercept::in_backward,
    intercept::api_enter,
    intercept::api_leave,
    intercept::knows_python() ? intercept::api_add : nullptr,
    intercept::api_begin,
    intercept::api_end,
    intercept::devices_seen,
    intercept::places,
    settle,
    intercept::forget_looks,
    intercept::api_graph,
    intercept::knows_python() ? intercept::api_parameter : nullptr};
