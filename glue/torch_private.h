// SPDX-License-Identifier: Apache-2.0
// The private names of torch that the glue needs, each by a name of ours: where torch changes,
// this file does, and its neighbours do: torch_private_device.h (what registers a device),
// torch_private_attention.h, _autograd.h, _python.h and _ranks.h, each parsed by
// those alone who need it. What older torch has under other public names is in older.h.
//
// Each is asked for by feature. Of a member, an overload asks. Of what lies in a namespace,
// lookup does: that namespace names `way_on` below behind its own, so that what torch has is
// found first, and ours where torch has nothing of that name.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <string>

namespace usc_glue
{

/* ---- keys of this thread: what the dispatcher leaves out ---- */

namespace way_on
{

// The keys of a thread, which nothing public reaches: what sets them as a whole has to be there.
inline c10::impl::LocalDispatchKeySet keys_of(c10::DispatchKeySet included,
                                              c10::DispatchKeySet excluded)
{
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    keys.included_ = included;
    keys.excluded_ = excluded;
    return keys;
}

// Without torch's guards: the keys are set, and set back.
class ForceDispatchKeyGuard
{
  public:
    explicit ForceDispatchKeyGuard(const c10::impl::LocalDispatchKeySet &keys)
        : before_(c10::impl::tls_local_dispatch_key_set())
    {
        c10::impl::_force_tls_local_dispatch_key_set(keys);
    }
    ForceDispatchKeyGuard(const ForceDispatchKeyGuard &) = delete;
    ForceDispatchKeyGuard &operator=(const ForceDispatchKeyGuard &) = delete;
    ~ForceDispatchKeyGuard()
    {
        c10::impl::_force_tls_local_dispatch_key_set(before_);
    }

  private:
    c10::impl::LocalDispatchKeySet before_;
};

class ExcludeDispatchKeyGuard
{
  public:
    explicit ExcludeDispatchKeyGuard(c10::DispatchKeySet keys)
        : forced_(keys_of(c10::impl::tls_local_dispatch_key_set().included_,
                          c10::impl::tls_local_dispatch_key_set().excluded_ | keys))
    {
    }

  private:
    ForceDispatchKeyGuard forced_;
};

inline bool tls_is_dispatch_key_included(c10::DispatchKey key)
{
    return c10::impl::tls_local_dispatch_key_set().included_.has(key);
}

inline void tls_set_dispatch_key_included(c10::DispatchKey key, bool on)
{
    const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    const c10::DispatchKeySet included =
        on ? keys.included_.add(key) : keys.included_.remove(key);
    c10::impl::_force_tls_local_dispatch_key_set(keys_of(included, keys.excluded_));
}

// Without what asks a device by its type: a guard puts another stream in front of the
// current one, says which that was, and puts it back.
class VirtualGuardImpl
{
  public:
    explicit VirtualGuardImpl(c10::DeviceType)
    {
    }
    c10::Stream getStream(c10::Device device) const
    {
        const c10::DeviceGuard there(device);
        return c10::StreamGuard(c10::Stream(c10::Stream::DEFAULT, there.current_device()))
            .original_stream();
    }
};

} // namespace way_on
} // namespace usc_glue

namespace c10::impl
{
using namespace usc_glue::way_on;
}

namespace usc_glue
{

/** While it lives, this thread's calls leave a set of keys out. */
using WithoutKeys = c10::impl::ExcludeDispatchKeyGuard;

/** While it lives, this thread has these keys, whatever it had. */
class OnlyKeys
{
  public:
    OnlyKeys(c10::DispatchKeySet included, c10::DispatchKeySet excluded)
        : forced_(way_on::keys_of(included, excluded))
    {
    }

  private:
    c10::impl::ForceDispatchKeyGuard forced_;
};

/** Whether this thread's calls go by a key that its tensors may not have. */
inline bool includes_key(c10::DispatchKey key)
{
    return c10::impl::tls_is_dispatch_key_included(key);
}

inline void include_key(c10::DispatchKey key, bool on)
{
    c10::impl::tls_set_dispatch_key_included(key, on);
}

/* ---- streams ---- */

/** The stream that this thread's calls on a device go to. */
inline c10::Stream current_stream(c10::Device device)
{
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/* ---- the kernels of the dispatcher ---- */

namespace asked
{

// The table of an operator's kernels is private where its handle does not hand them out. An
// explicit instantiation may name what is private.
struct Table {
    friend auto table_of(Table);
};
template <auto Member> struct Opened {
    friend auto table_of(Table)
    {
        return Member;
    }
};
template struct Opened<&c10::OperatorHandle::operatorDef_>;

template <typename Handle>
auto kernel_at(const Handle &op, c10::DispatchKey key, int)
    -> decltype(op.getComputedKernelForDispatchKey(key))
{
    return op.getComputedKernelForDispatchKey(key);
}

template <typename Handle>
c10::KernelFunction kernel_at(const Handle &op, c10::DispatchKey key, long)
{
    return (op.*table_of(Table{}))->op.lookup(c10::DispatchKeySet(key));
}

template <typename Kernel>
auto is_of(const Kernel &kernel, const c10::KernelFunction &, const char *name, int)
    -> decltype(kernel.debug().find(name) != std::string::npos)
{
    return kernel.debug().find(name) != std::string::npos;
}

template <typename Kernel>
bool is_of(const Kernel &kernel, const c10::KernelFunction &ours, const char *, long)
{
    return kernel._equalsBoxedAndUnboxed(ours);
}

} // namespace asked

/** What an operator runs at a key, as this torch hands it out; there has to be something. */
inline auto kernel_at(const c10::OperatorHandle &op, c10::DispatchKey key)
{
    return asked::kernel_at(op, key, 0);
}

/** Whether what an operator runs at a key is `ours`, registered with that text. */
inline bool runs_at(const c10::OperatorHandle &op, c10::DispatchKey key,
                    const c10::KernelFunction &ours, const char *name)
{
    return asked::is_of(kernel_at(op, key), ours, name, 0);
}

/* ---- tensors ---- */

namespace asked
{

template <class Tensor>
auto is_zerotensor(const Tensor &t, int) -> decltype(t._is_zerotensor())
{
    return t._is_zerotensor();
}

template <class Tensor> bool is_zerotensor(const Tensor &t, long)
{
    return t.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::ZeroTensor);
}

template <class Impl>
auto set_lazy(Impl *made, bool conjugate, bool negative, int)
    -> decltype(made->_set_conj(true), made->_set_neg(true))
{
    if (conjugate) made->_set_conj(true);
    if (negative) made->_set_neg(true);
}

template <class Impl> void set_lazy(Impl *, bool conjugate, bool negative, long)
{
    TORCH_CHECK_NOT_IMPLEMENTED(
        !conjugate && !negative,
        "conjugate and negative views are not made with this torch");
}

} // namespace asked

/** Whether a tensor has no storage at all. */
inline bool is_zerotensor(const at::Tensor &t)
{
    return asked::is_zerotensor(t, 0);
}

/** Makes a tensor a view that is conjugated or negated when it is read. */
inline void set_lazy(c10::TensorImpl *made, bool conjugate, bool negative)
{
    asked::set_lazy(made, conjugate, negative, 0);
}

} // namespace usc_glue
