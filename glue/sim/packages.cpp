// SPDX-License-Identifier: Apache-2.0
// Runs packages of AOTInductor that are compiled for the device (package_code.h): the runner
// that torch asks for by the device's name, and what it does for a package.
#include "package_code.h"
#include "sim_glue.h"

#include <torch/version.h>

// Torch's runtime of a package is made for no device but its own; this is that of 2.13.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13)

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <cstring>
#include <dlfcn.h>

namespace usc_sim
{
namespace
{

// What the last call of this thread that failed said: no exception crosses a package's
// edge.
thread_local std::string said;

template <class Work> const char *told(Work work)
{
    try {
        work();
        return nullptr;
    } catch (const c10::Error &e) {
        said = e.what_without_backtrace();
    } catch (const std::exception &e) {
        said = e.what();
    }
    return said.c_str();
}

const char *allocate(size_t size, void **out)
{
    return told([=] {
        usc_error err{};
        check(usc_sim_malloc(current_device(), size, out, &err), err);
    });
}

using Openings = c10::SmallVector<usc_sim_opening, 8>;

Openings on_the_device(const usc_sim_package_argument *all, size_t n)
{
    Openings found;
    for (size_t i = 0; i < n; i++)
        if (usc_sim_device_of(all[i].address) >= 0)
            found.push_back(
                {all[i].address, all[i].written ? USC_SIM_WRITE : USC_SIM_READ});
    return found;
}

void open_all(const Openings &wanted)
{
    usc_error err{};
    check(usc_sim_open_all(wanted.data(), wanted.size(), &err), err);
}

const char *copy(void *to, const void *from, size_t size)
{
    return told([=] {
        const usc_sim_package_argument both[] = {{to, true}, {from, false}};
        const Openings wanted = on_the_device(both, 2);
        if (size == 0) return;
        catch_up(current_device());
        open_all(wanted);
        std::memcpy(to, from, size);
        usc_sim_close_all(wanted.data(), wanted.size());
    });
}

const char *open(const char *kernel, const usc_sim_package_argument *all, size_t n)
{
    return told([=] {
        const Openings wanted = on_the_device(all, n);
        if (wanted.empty()) return;
        const int device = usc_sim_device_of(wanted[0].address);
        catch_up(static_cast<c10::DeviceIndex>(device));
        usc_sim_set_label(kernel);
        try {
            open_all(wanted);
        } catch (...) {
            usc_sim_set_label(nullptr);
            throw;
        }
    });
}

void close(const usc_sim_package_argument *all, size_t n)
{
    const Openings opened = on_the_device(all, n);
    usc_sim_close_all(opened.data(), opened.size());
    usc_sim_set_label(nullptr);
}

// ---- an operator by the arguments of its C shim

// Takes words as the shims of torch declare them: what may be missing is a pointer, a list
// a pointer and a length, a device its type and its index; truth values, dtypes, layouts and
// memory formats are 32 bits wide behind a pointer.
class Words
{
  public:
    Words(const uint64_t *words, size_t n) : words_(words), end_(words + n)
    {
    }
    bool at_end() const
    {
        return words_ == end_;
    }
    template <class T> T *pointer()
    {
        return reinterpret_cast<T *>(static_cast<uintptr_t>(next()));
    }
    c10::IValue value(const c10::TypePtr &type)
    {
        if (const auto some = type->cast<c10::OptionalType>())
            return optional_value(some->getElementType());
        if (const auto list = type->cast<c10::ListType>()) {
            const void *first = pointer<void>();
            return list_value(list->getElementType(), first, next());
        }
        if (type->kind() == c10::TypeKind::DeviceObjType) {
            const uint64_t kind = next();
            return device(static_cast<int32_t>(kind), next());
        }
        const uint64_t word = next();
        return one(type, &word, true);
    }

  private:
    uint64_t next()
    {
        TORCH_CHECK(words_ < end_, "a package gives too few arguments");
        return *words_++;
    }
    static c10::IValue device(int32_t kind, uint64_t index)
    {
        return c10::Device(static_cast<c10::DeviceType>(kind),
                           static_cast<c10::DeviceIndex>(index));
    }
    c10::IValue optional_value(const c10::TypePtr &type)
    {
        if (const auto list = type->cast<c10::ListType>()) {
            void *const *first = pointer<void *>();
            const uint64_t length = next();
            if (first == nullptr) return {};
            return list_value(list->getElementType(), *first, length);
        }
        if (type->kind() == c10::TypeKind::DeviceObjType) {
            const int32_t *kind = pointer<int32_t>();
            const uint64_t index = next();
            return kind == nullptr ? c10::IValue() : device(*kind, index);
        }
        const void *where = pointer<void>();
        return where == nullptr ? c10::IValue() : one(type, where, false);
    }
    static c10::IValue one(const c10::TypePtr &type, const void *where, bool in_word)
    {
        const auto as = [where](auto like) {
            std::memcpy(&like, where, sizeof like);
            return like;
        };
        const bool narrow = !in_word;
        switch (type->kind()) {
        case c10::TypeKind::TensorType: {
            const auto *tensor = as(static_cast<const at::Tensor *>(nullptr));
            return tensor == nullptr ? at::Tensor() : *tensor;
        }
        case c10::TypeKind::FloatType:
        case c10::TypeKind::NumberType:
            return as(0.0);
        case c10::TypeKind::BoolType:
            return narrow ? as(int32_t{0}) != 0 : as(int64_t{0}) != 0;
        case c10::TypeKind::ScalarTypeType:
        case c10::TypeKind::LayoutType:
        case c10::TypeKind::MemoryFormatType:
            return narrow ? int64_t{as(int32_t{0})} : as(int64_t{0});
        case c10::TypeKind::IntType:
        case c10::TypeKind::SymIntType:
            return as(int64_t{0});
        case c10::TypeKind::StringType:
            return std::string(as(static_cast<const char *>(nullptr)));
        default:
            TORCH_CHECK(false, "an argument of type ", type->str(),
                        ", which packages on sim do not take");
        }
    }
    static c10::IValue list_value(const c10::TypePtr &type, const void *first, size_t n)
    {
        const auto optional = type->cast<c10::OptionalType>();
        const c10::TypePtr of = optional ? optional->getElementType() : type;
        const auto filled = [&](size_t width) {
            c10::List<c10::IValue> made(type);
            for (size_t i = 0; i < n; i++) {
                const void *where = static_cast<const char *>(first) + i * width;
                if (optional) std::memcpy(&where, where, sizeof where);
                made.push_back(where == nullptr ? c10::IValue() : one(of, where, false));
            }
            return made;
        };
        if (optional) return filled(sizeof(void *));
        switch (of->kind()) {
        case c10::TypeKind::IntType:
        case c10::TypeKind::SymIntType: {
            c10::List<int64_t> made;
            for (size_t i = 0; i < n; i++)
                made.push_back(static_cast<const int64_t *>(first)[i]);
            return made;
        }
        case c10::TypeKind::FloatType: {
            c10::List<double> made;
            for (size_t i = 0; i < n; i++)
                made.push_back(static_cast<const double *>(first)[i]);
            return made;
        }
        case c10::TypeKind::BoolType: {
            c10::List<bool> made;
            for (size_t i = 0; i < n; i++)
                made.push_back(static_cast<const int32_t *>(first)[i] != 0);
            return made;
        }
        case c10::TypeKind::TensorType: {
            c10::List<at::Tensor> made;
            for (size_t i = 0; i < n; i++)
                made.push_back(*static_cast<at::Tensor *const *>(first)[i]);
            return made;
        }
        default:
            TORCH_CHECK(false, "a list of ", of->str(),
                        ", which packages on sim do not take");
        }
    }
    const uint64_t *words_, *end_;
};

bool is_out(const c10::Argument &a)
{
    return a.kwarg_only() && a.alias_info() != nullptr && a.alias_info()->isWrite();
}

// Outputs that nobody wants have no place.
void give(const c10::IValue &value, void *place)
{
    if (place == nullptr) return;
    if (value.isTensor())
        *static_cast<at::Tensor **>(place) = new at::Tensor(value.toTensor());
    else if (value.isBool())
        *static_cast<int32_t *>(place) = value.toBool();
    else if (value.isDouble())
        *static_cast<double *>(place) = value.toDouble();
    else
        *static_cast<int64_t *>(place) = value.toInt();
}

const char *call(const char *op, const char *overload, const uint64_t *words, size_t n)
{
    return told([=] {
        const c10::OperatorHandle handle =
            c10::Dispatcher::singleton().findSchemaOrThrow(op, overload);
        const c10::FunctionSchema &schema = handle.schema();
        const auto &arguments = schema.arguments();
        Words left(words, n);
        torch::jit::Stack stack(arguments.size());
        bool has_out = false;
        for (const bool out : {true, false}) // a shim has what is written in front
            for (size_t i = 0; i < arguments.size(); i++)
                if (is_out(arguments[i]) == out) {
                    has_out = has_out || out;
                    stack[i] = left.value(arguments[i].real_type());
                }
        const bool in_place = schema.name().back() == '_';
        TORCH_INTERNAL_ASSERT(stack.size() == arguments.size());
        handle.callBoxed(stack);
        if (!has_out && !in_place)
            for (const c10::IValue &result : stack)
                give(result, left.pointer<void>());
        TORCH_CHECK(left.at_end(), op, ".", overload,
                    " has other arguments in this torch than where the package was made");
    });
}

constexpr usc_sim_package_calls CALLS = {allocate, usc_sim_free, copy, open, close, call};

// ---- the runner

// Looks into a package before any of it runs; gives where it wants its inputs.
std::string prepare(const std::string &path)
{
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char *why = dlerror();
        TORCH_CHECK(false,
                    "sim: the package cannot be loaded by torch " TORCH_VERSION ": ", why,
                    "; make it by the torch that runs it");
    }
    auto *head = static_cast<usc_sim_package_head *>(dlsym(library, "usc_sim_package"));
    TORCH_CHECK(head != nullptr,
                "sim: the package has no code for this device: make it with "
                "the model on sim, after `import ulpscope.sim`");
    TORCH_CHECK(
        head->form == USC_SIM_PACKAGE_FORM,
        "sim: the package was made by another version of the device: make it anew");
    TORCH_CHECK(std::strcmp(head->torch, TORCH_VERSION) == 0,
                "sim: the package was made by torch ", head->torch,
                " and this is " TORCH_VERSION "; make it by the torch that runs it");
    head->calls = &CALLS;
    return head->inputs;
}

c10::Device device_of(const std::string &name)
{
    const c10::Device device(name);
    const c10::DeviceIndex index = device.has_index() ? device.index() : current_device();
    TORCH_CHECK(index < usc_sim_device_count(), "sim: there is no device ",
                static_cast<int>(index), "; there are ", usc_sim_device_count());
    return {DEVICE, index};
}

// In a package the device has the name whose place it takes.
std::string named_in_package(c10::Device device)
{
    return "mps:" + std::to_string(device.index());
}

class Runner final : public torch::inductor::AOTIModelContainerRunner
{
  public:
    Runner(const std::string &path, size_t n_models, c10::Device device,
           const std::string &folder, bool alone, std::string wanted)
        : AOTIModelContainerRunner(path, n_models, named_in_package(device), folder,
                                   alone),
          device_(device), wanted_(std::move(wanted))
    {
    }

  private:
    std::vector<at::Tensor> run_impl(std::vector<AtenTensorHandle> &inputs,
                                     void *stream) override
    {
        const c10::DeviceGuard guard(device_);
        for (size_t i = 0; i < inputs.size(); i++)
            check_input(i, *reinterpret_cast<const at::Tensor *>(inputs[i]));
        return AOTIModelContainerRunner::run_impl(inputs, stream);
    }
    void check_input(size_t i, const at::Tensor &given) const
    {
        const bool here = i < wanted_.size() && wanted_[i] == 'h';
        const c10::Device wanted = here ? c10::Device(c10::kCPU) : device_;
        TORCH_CHECK(given.device() == wanted, "sim: input ", i, " is on ",
                    given.device().str(), "; the package, which was loaded for ",
                    device_.str(), ", takes it on ", wanted.str());
    }
    const c10::Device device_;
    const std::string wanted_;
};

std::unique_ptr<torch::inductor::AOTIModelContainerRunner>
create(const std::string &path, size_t n_models, const std::string &device,
       const std::string &folder, const bool alone)
{
    const c10::Device its = device_of(device);
    std::string wanted = prepare(path);
    const c10::DeviceGuard guard(its);
    return std::make_unique<Runner>(path, n_models, its, folder, alone,
                                    std::move(wanted));
}

const torch::inductor::RegisterAOTIModelRunner registered("sim", &create);

} // namespace
} // namespace usc_sim

#endif
