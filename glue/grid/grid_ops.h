// SPDX-License-Identifier: Apache-2.0
// What operators that `ulpscope ops gen` wrote stand on: one call of one (its name, planted
// faults), the classes that give structured kernels their outputs, and memory opened for
// kernels that are C++ and no grid of threads.
#pragma once

#include "grid_torch.h"

#include "../older.h"

#include <ATen/ATen.h>
#include <ATen/DeviceGuard.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorIterator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <ulpscope/dtype.h>
#include <ulpscope_sim/memory.h>
#include <ulpscope_sim/sim.h>
#include <ulpscope_sim/timeline.h>

#if __has_include(<ATen/core/Dimname.h>)
#include <ATen/core/Dimname.h>
#endif

#include <array>
#include <cstdlib>
#include <deque>
#include <initializer_list>
#include <tuple>
#include <utility>
#include <vector>

namespace usc_ops
{

using text = c10::string_view;

template <class T> T kept(const T &value)
{
    return value;
}

inline std::string kept(text value)
{
    return std::string(value);
}

inline at::OptionalTensorRef maybe(const std::optional<at::Tensor> &t)
{
    return t.has_value() && t->defined() ? at::OptionalTensorRef(*t)
                                         : at::OptionalTensorRef();
}

// ---- memory

// While it lives, a kernel in C++ may read and write the memory of tensors, by
// data_ptr<T>(), once what is queued on the current stream has run. `host` is a tensor of
// the CPU over the same bytes.
class Open
{
  public:
    Open(std::initializer_list<at::Tensor> read,
         std::initializer_list<at::Tensor> written)
    {
        for (const at::Tensor &t : read)
            add(t, USC_SIM_READ);
        for (const at::Tensor &t : written)
            add(t, USC_SIM_WRITE);
        open();
    }
    Open(const std::vector<at::Tensor> &read, const std::vector<at::Tensor> &written)
    {
        for (const at::Tensor &t : read)
            add(t, USC_SIM_READ);
        for (const at::Tensor &t : written)
            add(t, USC_SIM_WRITE);
        open();
    }
    // The operands of an iterator.
    explicit Open(const at::TensorIteratorBase &iter)
    {
        for (int i = 0; i < iter.ntensors(); i++)
            add(iter.tensor_base(i), i < iter.noutputs() ? USC_SIM_WRITE : USC_SIM_READ);
        open();
    }
    ~Open()
    {
        usc_sim_timeline_end(usc_sim_get_label(), stream_, begin_);
        usc_sim_close_all(opened_.data(), opened_.size());
    }
    Open(const Open &) = delete;
    Open &operator=(const Open &) = delete;

    static at::Tensor host(const at::Tensor &t)
    {
        return at::from_blob(const_cast<void *>(t.const_data_ptr()), t.sizes(),
                             t.strides(), t.options().device(at::kCPU));
    }

  private:
    void open()
    {
        usc_error err{};
        stream_ = usc_sim_stream_current(device_ < 0 ? usc_grid_cxx::current_device()
                                                     : device_);
        usc_grid_cxx::check(usc_sim_stream_synchronize(stream_, &err), err);
        TORCH_CHECK(usc_sim_open_all(opened_.data(), opened_.size(), &err) == USC_OK,
                    err.text);
        begin_ = usc_sim_timeline_begin();
    }

    void add(const at::TensorBase &t, usc_sim_access access)
    {
        if (!t.defined() || t.device().type() != c10::DeviceType::PrivateUse1) return;
        if (device_ < 0) device_ = t.device().index();
        const void *address = t.storage().data();
        if (address != nullptr) opened_.push_back({address, access});
    }

    std::vector<usc_sim_opening> opened_;
    int device_ = -1;
    usc_sim_stream stream_{};
    int64_t begin_ = 0;
};

// ---- one call

class Call
{
  public:
    explicit Call(const char *name) : name_(name), outer_(usc_sim_get_label())
    {
        usc_sim_set_label(name);
    }
    ~Call()
    {
        usc_sim_set_label(outer_);
        for (size_t i = 0; i < hits_.size(); i++)
            if (results_[i] >= 0) usc_sim_fault_note(hits_[i].id, results_[i] > 0);
    }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    void same_device(const char *argument, const at::Tensor &t)
    {
        if (!t.defined()) return;
        if (!device_) device_ = t.device();
        TORCH_CHECK(*device_ == t.device(),
                    "Expected all tensors to be on the same device, but found ", *device_,
                    " and ", t.device(), " (when checking argument ", argument, " of ",
                    name_, ")");
    }

    // An argument that is read, as a faulty kernel sees it.
    const at::Tensor &in(const at::Tensor &t)
    {
        meet(t);
        return hits_.empty() || !t.defined() ? t : changed(t);
    }

    at::Tensor &out(at::Tensor &t)
    {
        spoil(t);
        return t;
    }
    const at::Tensor &out(const at::Tensor &t)
    {
        spoil(t);
        return t;
    }
    at::Tensor out(at::Tensor &&t)
    {
        spoil(t);
        return std::move(t);
    }
    std::vector<at::Tensor> out(std::vector<at::Tensor> &&list)
    {
        for (const at::Tensor &t : list)
            spoil(t);
        return std::move(list);
    }
    template <class... T> std::tuple<T...> out(std::tuple<T...> &&all)
    {
        std::apply([this](const auto &...one) { (spoil(one), ...); }, all);
        return std::move(all);
    }
    template <class T, class = std::enable_if_t<!std::is_convertible_v<T, at::Tensor>>>
    T out(T value)
    {
        return value;
    }

  private:
    // The first tensor that the call meets tells what faults ask of one.
    void meet(const at::Tensor &t)
    {
        if (met_ || !t.defined() || t.layout() != at::kStrided) return;
        met_ = true;
        if (!usc_sim_fault_planted()) return;
        usc_sim_call call{};
        call.op = name_;
        call.dtype = dtype_of(t);
        call.stream = t.device().type() == c10::DeviceType::PrivateUse1
                          ? usc_sim_stream_current(t.device().index()).id
                          : -1;
        call.n = t.numel();
        call.n_columns = t.dim() > 0 ? t.size(-1) : 1;
        call.strided = !t.is_contiguous();
        call.has_last = call.strided && t.dim() == 4 &&
                        t.is_contiguous(at::MemoryFormat::ChannelsLast);
        select(call);
    }

    void select(const usc_sim_call &call)
    {
        usc_sim_fault *hits = nullptr;
        const size_t n = usc_sim_fault_select(&call, &hits);
        hits_.assign(hits, hits + n);
        results_.assign(n, -1);
        std::free(hits);
        for (size_t i = 0; i < n; i++) {
            const usc_sim_fault_kind kind = hits_[i].kind;
            if (kind != USC_SIM_FAULT_CRASH && kind != USC_SIM_FAULT_HANG &&
                kind != USC_SIM_FAULT_LACKING)
                continue;
            usc_sim_fault_note(hits_[i].id, true);
            if (kind == USC_SIM_FAULT_CRASH) usc_sim_crash();
            if (kind == USC_SIM_FAULT_HANG) usc_sim_hang();
            TORCH_CHECK(kind != USC_SIM_FAULT_HANG, "sim: interrupted while ", name_,
                        " hangs");
            TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", name_,
                                        "' on sim: the device has no such operator");
        }
    }

    static usc_dtype dtype_of(const at::Tensor &t)
    {
        return usc_dtype_by_name(usc_glue::dtype_names(t.scalar_type()).first.c_str());
    }

    // A fault on all elements of a tensor without gaps; whether a bit changed.
    int apply(const usc_sim_fault &fault, const at::Tensor &t) const
    {
        const usc_dtype dtype = dtype_of(t);
        if (usc_dtype_info_of(dtype)->size > sizeof(double)) return -1;
        const Open open({}, {t});
        const usc_sim_elements e = {dtype, const_cast<void *>(t.const_data_ptr()),
                                    nullptr, static_cast<size_t>(t.numel()),
                                    static_cast<size_t>(t.dim() > 0 ? t.size(-1) : 1)};
        return usc_sim_fault_apply(&fault, &e);
    }

    const at::Tensor &changed(const at::Tensor &t)
    {
        for (const auto &known : seen_)
            if (known.first == t.unsafeGetTensorImpl()) return known.second;
        at::Tensor copy = t;
        for (size_t i = 0; i < hits_.size(); i++) {
            if (usc_sim_fault_info_of(hits_[i].kind)->stage != USC_SIM_STAGE_INPUT)
                continue;
            const at::Tensor next = copy.clone(at::MemoryFormat::Contiguous);
            const int result = apply(hits_[i], next);
            results_[i] = std::max(results_[i], result);
            if (result > 0) copy = next;
        }
        seen_.emplace_back(t.unsafeGetTensorImpl(), copy);
        return seen_.back().second;
    }

    template <class T> void spoil(const T &)
    {
    }
    void spoil(const at::Tensor &t)
    {
        if (!t.defined() || t.layout() != at::kStrided) return;
        meet(t);
        for (size_t i = 0; i < hits_.size(); i++) {
            if (usc_sim_fault_info_of(hits_[i].kind)->stage != USC_SIM_STAGE_OUTPUT)
                continue;
            const at::Tensor dense = t.contiguous();
            const int result = apply(hits_[i], dense);
            results_[i] = std::max(results_[i], result);
            if (result > 0 && !dense.is_same(t)) t.copy_(dense);
        }
    }

    const char *name_, *outer_;
    std::optional<c10::Device> device_;
    bool met_ = false;
    std::vector<usc_sim_fault> hits_; // that fire on this call
    std::vector<int> results_;        // of each what it did, -1: nothing yet
    std::deque<std::pair<const c10::TensorImpl *, at::Tensor>> seen_;
};

// ---- outputs of structured kernels

// What shapes functions tell an operator, as this torch spells it and as older ones did,
// with names of axes.
#if __has_include(<ATen/core/Dimname.h>)
#define USC_OPS_NAMED(strided, raw)                                                      \
    void set_output_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,   \
                            at::TensorOptions options, at::DimnameList names)            \
    {                                                                                    \
        strided(i, sizes, strides, options);                                             \
        this->template tell<Op>(i, sizes, strides, options, names);                      \
    }                                                                                    \
    void set_output_raw_strided(int64_t i, at::IntArrayRef sizes,                        \
                                at::IntArrayRef strides, at::TensorOptions options,      \
                                at::DimnameList names)                                   \
    {                                                                                    \
        raw(i, sizes, strides, options);                                                 \
        this->template tell<Op>(i, sizes, strides, options, names);                      \
    }
#else
#define USC_OPS_NAMED(strided, raw)
#endif

#define USC_OPS_OUTPUTS(strided, raw)                                                    \
    void set_output_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,   \
                            at::TensorOptions options)                                   \
    {                                                                                    \
        strided(i, sizes, strides, options);                                             \
        this->template tell<Op>(i, sizes, strides, options);                             \
    }                                                                                    \
    void set_output_raw_strided(int64_t i, at::IntArrayRef sizes,                        \
                                at::IntArrayRef strides, at::TensorOptions options)      \
    {                                                                                    \
        raw(i, sizes, strides, options);                                                 \
        this->template tell<Op>(i, sizes, strides, options);                             \
    }                                                                                    \
    USC_OPS_NAMED(strided, raw)                                                          \
    template <class Base, class... A> void tell(const A &...a)                           \
    {                                                                                    \
        if constexpr (std::is_base_of_v<at::TensorIteratorBase, Base>)                   \
            Base::set_output_raw_strided(a...);                                          \
    }

inline void check_output(const at::Tensor &out, const at::TensorOptions &options)
{
    TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ",
                options.dtype(), ", but got ", out.dtype(), " instead");
    TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ",
                options.device(), ", but got ", out.device(), " instead");
}

inline at::Tensor proxy_of(const at::Tensor &out, at::IntArrayRef sizes,
                           at::IntArrayRef strides, const at::TensorOptions &options)
{
    if (strides.empty() || out.strides() == strides) return {};
    return at::empty_strided(sizes, strides, options);
}

// Makes its outputs.
template <class Op, size_t N> struct functional final : Op {
    std::array<at::Tensor, N> outputs;

    const at::Tensor &maybe_get_output(int64_t i) override
    {
        return outputs[static_cast<size_t>(i)];
    }
    at::Tensor take(size_t i)
    {
        return std::move(outputs[i]);
    }
    void make(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
              const at::TensorOptions &options)
    {
        outputs[static_cast<size_t>(i)] =
            strides.empty() ? at::empty(sizes, options)
                            : at::empty_strided(sizes, strides, options);
    }
    USC_OPS_OUTPUTS(make, make)
};

// Writes into its argument.
template <class Op> struct inplace final : Op {
    explicit inplace(at::Tensor &self) : self_(self)
    {
    }
    const at::Tensor &maybe_get_output(int64_t) override
    {
        return proxy_.defined() ? proxy_ : self_;
    }
    void settle()
    {
        if (proxy_.defined()) self_.copy_(proxy_);
    }
    void look(int64_t, at::IntArrayRef sizes, at::IntArrayRef,
              const at::TensorOptions &options)
    {
        TORCH_CHECK(options.dtype() == self_.dtype(),
                    "Bad in-place call: input tensor dtype ", self_.dtype(),
                    " and output tensor dtype ", options.dtype(), " should match");
        TORCH_CHECK(options.device() == self_.device(),
                    "Bad in-place call: input tensor device ", self_.device(),
                    " and output tensor device ", options.device(), " should match");
        TORCH_CHECK(sizes == self_.sizes(), "Bad in-place call: input tensor size ",
                    self_.sizes(), " and output tensor size ", sizes, " should match");
    }
    void shape(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
               const at::TensorOptions &options)
    {
        look(i, sizes, strides, options);
        proxy_ = proxy_of(self_, sizes, strides, options);
    }
    USC_OPS_OUTPUTS(shape, look)

  private:
    at::Tensor &self_, proxy_;
};

// Writes into the tensors of out=, which it resizes.
template <class Op, size_t N> struct out final : Op {
    explicit out(std::array<at::Tensor *, N> given) : given_(given)
    {
    }
    const at::Tensor &maybe_get_output(int64_t i) override
    {
        const auto at = static_cast<size_t>(i);
        return proxy_[at].defined() ? proxy_[at] : *given_[at];
    }
    void settle()
    {
        for (size_t i = 0; i < N; i++)
            if (proxy_[i].defined()) given_[i]->copy_(proxy_[i]);
    }
    void resize(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions &options)
    {
        const at::Tensor &t = *given_[static_cast<size_t>(i)];
        check_output(t, options);
        if (!at::native::resize_output(t, sizes)) return;
        if (!strides.empty())
            t.as_strided_(sizes, strides);
        else if (const auto format = options.memory_format_opt())
            t.unsafeGetTensorImpl()->empty_tensor_restride(*format);
    }
    void shape(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
               const at::TensorOptions &options)
    {
        resize(i, sizes, strides, options);
        const auto at = static_cast<size_t>(i);
        proxy_[at] = proxy_of(*given_[at], sizes, strides, options);
    }
    USC_OPS_OUTPUTS(shape, resize)

  private:
    std::array<at::Tensor *, N> given_;
    std::array<at::Tensor, N> proxy_;
};

#undef USC_OPS_OUTPUTS
#undef USC_OPS_NAMED

} // namespace usc_ops
