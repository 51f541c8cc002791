// SPDX-License-Identifier: Apache-2.0
// How an operator that `ulpscope ops gen` wrote calls a kernel in C: views of its tensors,
// whose memory is open meanwhile, and an exception where the kernel gives a status.
#pragma once

#include "grid_ops.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/TypeProperties.h>
#include <ulpscope/tensor.h>

#include <cmath>

namespace usc_ops
{

template <class T> struct list_in_c {
    const T *first;
    size_t size;
};

// ---- tensors without memory: what an operator is going to give

inline at::Tensor meta(const at::Tensor &t)
{
    return t.defined()
               ? at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta))
               : t;
}
inline std::optional<at::Tensor> meta(const std::optional<at::Tensor> &t)
{
    return t.has_value() ? std::optional<at::Tensor>(meta(*t)) : t;
}
inline std::vector<at::Tensor> meta(at::TensorList all)
{
    std::vector<at::Tensor> made;
    for (const at::Tensor &t : all)
        made.push_back(meta(t));
    return made;
}
template <class T, class = std::enable_if_t<!std::is_convertible_v<T, at::Tensor> &&
                                            !std::is_convertible_v<T, at::TensorList>>>
const T &meta(const T &value)
{
    return value;
}

// Of the sizes to which tensors broadcast and the dtype that they are promoted to.
inline at::Tensor broadcast(at::TensorList all)
{
    TORCH_CHECK(!all.empty(), "an operator without tensors says its outputs: 'outputs:'");
    std::vector<int64_t> sizes = all[0].sizes().vec();
    for (const at::Tensor &t : all)
        sizes = at::infer_size(sizes, t.sizes());
    return at::empty(
        sizes, all[0].options().dtype(at::native::result_type(at::ITensorListRef(all))));
}

// ---- one call of a kernel in C

class InC
{
  public:
    explicit InC(const char *op) : op_(op)
    {
    }
    InC(const InC &) = delete;
    InC &operator=(const InC &) = delete;

    // A tensor that is read; NULL: it is not given.
    const usc_tensor *in(const char *name, const at::Tensor &t)
    {
        if (!t.defined()) return nullptr;
        look(name, t);
        read_.push_back(t.resolve_conj().resolve_neg());
        return view(name, read_.back());
    }
    const usc_tensor *in(const char *name, const std::optional<at::Tensor> &t)
    {
        return t.has_value() ? in(name, *t) : nullptr;
    }
    const usc_tensor *in(const char *name, at::OptionalTensorRef t)
    {
        return t.has_value() ? in(name, *t) : nullptr;
    }
    template <class List, class = decltype(std::declval<const List &>().begin()),
              class = std::enable_if_t<!std::is_convertible_v<List, at::Tensor>>>
    list_in_c<usc_tensor> in(const char *name, const List &all)
    {
        std::vector<usc_tensor> made;
        for (const at::Tensor &t : all)
            made.push_back(*in(name, t));
        lists_.push_back(std::move(made));
        return {lists_.back().data(), lists_.back().size()};
    }

    // A tensor that is written. Where it shares memory with one that is read, or with
    // itself, the kernel writes another, which is copied over it.
    const usc_tensor *out(const char *name, const at::Tensor &t)
    {
        look(name, t);
        TORCH_CHECK(at::has_internal_overlap(t) != at::MemOverlap::Yes, op_,
                    ": several elements of '", name,
                    "' lie at one place, and it is written; clone() it");
        bool shared = t.is_conj() || t.is_neg();
        for (const std::vector<at::Tensor> *all : {&read_, &written_})
            for (const at::Tensor &other : *all)
                shared = shared || other.storage().data() == t.storage().data();
        written_.push_back(shared ? t.clone().resolve_conj().resolve_neg() : t);
        if (shared) copied_.emplace_back(t, written_.back());
        return view(name, written_.back());
    }

    // ---- values; what may be missing is a pointer
    template <class T> auto value(const char *name, const T &given)
    {
        if constexpr (std::is_same_v<T, at::Scalar>)
            return number(name, given);
        else if constexpr (std::is_same_v<T, at::ScalarType>)
            return dtype(name, given);
        else if constexpr (std::is_same_v<T, text>)
            return kept(std::string(given));
        else if constexpr (std::is_arithmetic_v<T>)
            return given;
        else if constexpr (is_optional<T>::value)
            return maybe(name, given);
        else
            return listed(given);
    }

    at::Tensor make(const at::Tensor &shape) const
    {
        TORCH_CHECK(device_.has_value(), op_, ": no tensor says on which device it runs");
        return at::empty_strided(shape.sizes(), shape.strides(),
                                 shape.options().device(*device_));
    }
    void resize(const at::Tensor &t, const at::Tensor &shape) const
    {
        check_output(t, shape.options().device(device_.value_or(t.device())));
        at::native::resize_output(t, shape.sizes());
    }

    template <class Kernel> void run(Kernel kernel)
    {
        usc_error err{};
        usc_status status;
        {
            const Open open(read_, written_);
            status = kernel(&err);
        }
        TORCH_CHECK(status == USC_OK, op_, ": ",
                    err.text[0] != '\0' ? err.text : usc_status_text(status));
        for (const auto &pair : copied_)
            pair.first.copy_(pair.second);
    }

  private:
    void look(const char *name, const at::Tensor &t)
    {
        TORCH_CHECK(t.layout() == at::kStrided, op_, ": '", name, "' is not strided");
        if (!device_) device_ = t.device();
        TORCH_CHECK(
            t.device() == *device_ && t.device().type() == c10::DeviceType::PrivateUse1,
            "Expected all tensors to be on the same device, but found ", *device_,
            " and ", t.device(), " (when checking argument ", name, " of ", op_, ")");
    }
    const usc_tensor *view(const char *name, const at::Tensor &t)
    {
        usc_tensor made{};
        made.data = t.const_data_ptr();
        made.dtype = dtype(name, t.scalar_type());
        TORCH_CHECK(t.dim() <= USC_MAX_DIMS, op_, ": '", name, "' has ", t.dim(),
                    " axes; ", USC_MAX_DIMS, " are the most");
        made.ndim = static_cast<int>(t.dim());
        for (int i = 0; i < made.ndim; i++) {
            made.sizes[i] = t.size(i);
            made.strides[i] = t.stride(i);
        }
        views_.push_back(made);
        return &views_.back();
    }
    usc_dtype dtype(const char *name, at::ScalarType type) const
    {
        const std::string known = usc_glue::dtype_names(type).first;
        const usc_dtype found = usc_dtype_by_name(known.c_str());
        TORCH_CHECK(found != USC_DTYPE_NONE, op_, ": '", name, "' is of ", known,
                    ", which kernels in C do not get");
        return found;
    }
    double number(const char *name, const at::Scalar &given) const
    {
        TORCH_CHECK(!given.isComplex(), op_, ": '", name,
                    "' is complex, and a kernel in C gets a double");
        if (given.isFloatingPoint() || given.isBoolean()) return given.toDouble();
        const int64_t whole = given.toLong();
        TORCH_CHECK(std::abs(static_cast<double>(whole)) <= 9007199254740992.0, op_,
                    ": '", name, "' is ", whole, ", which a double does not hold");
        return static_cast<double>(whole);
    }
    const char *kept(std::string given)
    {
        texts_.push_back(std::move(given));
        return texts_.back().c_str();
    }
    template <class T> const T *stored(T given)
    {
        static_assert(sizeof(T) <= sizeof(double), "a value of C");
        values_.emplace_back();
        return new (&values_.back()) T(given);
    }
    template <class T> struct is_optional : std::false_type {
    };
    template <class T> struct is_optional<std::optional<T>> : std::true_type {
    };
    template <class T> auto maybe(const char *name, const std::optional<T> &given)
    {
        using In = decltype(value(name, std::declval<const T &>()));
        if constexpr (std::is_pointer_v<In>)
            return given.has_value() ? value(name, *given) : In(nullptr);
        else
            return given.has_value() ? stored<In>(value(name, *given))
                                     : static_cast<const In *>(nullptr);
    }
    static list_in_c<int64_t> listed(const at::OptionalIntArrayRef &given)
    {
        return given.has_value() ? list_in_c<int64_t>{given->data(), given->size()}
                                 : list_in_c<int64_t>{nullptr, 0};
    }
    template <class List>
    static auto listed(const List &given)
        -> list_in_c<std::decay_t<decltype(*given.data())>>
    {
        return {given.data(), given.size()};
    }

    const char *op_;
    std::optional<c10::Device> device_;
    std::vector<at::Tensor> read_, written_;
    std::vector<std::pair<at::Tensor, at::Tensor>> copied_;
    std::deque<usc_tensor> views_;
    std::deque<std::vector<usc_tensor>> lists_;
    std::deque<std::string> texts_;
    std::deque<double> values_;
};

} // namespace usc_ops
