// SPDX-License-Identifier: Apache-2.0
// One call computed on the CPU or in another dtype: what its arguments become, and its
// results. Neighbours: reroute_mirrors.cpp, reroute.cpp.
#include "reroute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace intercept
{

namespace
{

/* Below autograd and autocast, as the kernel that is replaced. */
struct Below {
    at::AutoDispatchBelowADInplaceOrView autograd;
    usc_glue::WithoutKeys autocast{c10::autocast_dispatch_keyset};
};

bool is_half(at::ScalarType t)
{
    return t == at::kHalf || t == at::kBFloat16;
}

/* Numbers of Python (x * 2.0) are not data: they have no dtype of their own. */
bool is_castable(const at::Tensor &t)
{
    return t.is_floating_point() && !t.unsafeGetTensorImpl()->is_wrapped_number();
}

at::ScalarType as_it_is(const at::Tensor &t)
{
    return t.scalar_type();
}

at::ScalarType widened(const at::Tensor &t)
{
    return is_half(t.scalar_type()) ? at::kFloat : t.scalar_type();
}

Mirrors::As cast_to(at::ScalarType dtype)
{
    return
        [dtype](const at::Tensor &t) { return is_castable(t) ? dtype : t.scalar_type(); };
}

/* Generators of a device have a stream of the CPU beside them, begun from their seed. */
at::Generator cpu_generator_of(const at::Generator &own)
{
    struct Twin {
        uint64_t seed;
        at::Generator generator;
    };
    static std::mutex mutex;
    static std::map<const void *, Twin> twins;
    std::lock_guard<std::mutex> lock(mutex);
    const auto [place, is_new] = twins.try_emplace(own.unsafeGetGeneratorImpl());
    Twin &twin = place->second;
    if (is_new || twin.seed != own.current_seed()) {
        twin.seed = own.current_seed();
        twin.generator = at::make_generator<at::CPUGeneratorImpl>(twin.seed);
    }
    return twin.generator;
}

/* ---- what the operator's own results would be ---- */

std::string signature_of(const Target &target, const IValue *values)
{
    std::string s = target.op.name;
    for (size_t i = 0; i < target.op.arguments.size(); ++i) {
        s += ' ';
        if (values[i].isInt() && target.op.arguments[i].spelling == Spelling::dtype)
            s += std::to_string(values[i].toInt());
        else if (values[i].isBool())
            s += values[i].toBool() ? 't' : 'f';
        each_tensor(values[i], [&](const at::Tensor &t) {
            s += static_cast<char>('a' + static_cast<int>(t.scalar_type()));
            if (t.dim() == 0) s += '0';
            if (t.unsafeGetTensorImpl()->is_wrapped_number()) s += 'w';
        });
    }
    return s;
}

/* Where it cannot be tried: a dtype that is asked for, else that of the floating inputs.
 */
at::ScalarType promoted(const Target &target, const IValue *values)
{
    std::optional<at::ScalarType> of_data, of_numbers;
    for (size_t i = 0; i < target.op.arguments.size(); ++i) {
        if (values[i].isInt() && target.op.arguments[i].spelling == Spelling::dtype)
            return static_cast<at::ScalarType>(values[i].toInt());
        each_tensor(values[i], [&](const at::Tensor &t) {
            if (!is_castable(t)) return;
            auto &to = t.dim() > 0 ? of_data : of_numbers;
            to = to ? c10::promoteTypes(*to, t.scalar_type()) : t.scalar_type();
        });
    }
    return of_data ? *of_data : of_numbers.value_or(at::kFloat);
}

using Dtypes = std::vector<std::optional<at::ScalarType>>;

void dtypes_of(Dtypes &out, const IValue *results, size_t n)
{
    for (size_t i = 0; i < n; ++i)
        each_tensor(results[i],
                    [&](const at::Tensor &t) { out.emplace_back(t.scalar_type()); });
}

/* Runs the operator as it is, once for each combination of dtypes, on copies of what it
 * writes. A run that draws would move the stream of random numbers: none. */
std::optional<Dtypes> tried(const Target &target, const Covered &covered,
                            DispatchKeySet keys, const Stack &arguments)
{
    if (target.op.random || !covered) return std::nullopt;
    static std::mutex mutex;
    static std::map<std::string, std::optional<Dtypes>> known;
    const std::string signature = signature_of(target, arguments.data());
    {
        std::lock_guard<std::mutex> lock(mutex);
        const auto found = known.find(signature);
        if (found != known.end()) return found->second;
    }
    std::optional<Dtypes> dtypes;
    try {
        Stack stack;
        for (size_t i = 0; i < arguments.size(); ++i)
            stack.push_back(target.op.arguments[i].written
                                ? with_tensors(arguments[i],
                                               [](const at::Tensor &t) {
                                                   return t.defined() ? t.clone() : t;
                                               })
                                : arguments[i]);
        covered(target.op.handle, keys, &stack);
        dtypes.emplace();
        dtypes_of(*dtypes, stack.data(), stack.size());
    } catch (const std::exception &) { /* the device cannot: that may be why */
    }
    std::lock_guard<std::mutex> lock(mutex);
    return known[signature] = dtypes;
}

/* ---- the call ---- */

struct Way {
    bool cpu;
    Mirrors::As as;
    std::optional<at::ScalarType> dtype; /* of a cast: also where one is asked for */
    bool casts;
};

/* Arguments that are no tensors: places, dtypes of results, generators. */
void redirect(const Way &way, const Target &target, IValue *values, c10::Device &home,
              bool &has_home)
{
    const auto &schema = target.op.handle.schema().arguments();
    for (size_t i = 0; i < target.op.arguments.size(); ++i) {
        IValue &v = values[i];
        if (way.cpu && v.isDevice()) {
            home = v.toDevice();
            has_home = true;
            v = c10::Device(at::kCPU);
        } else if (way.cpu && v.isGenerator() && !v.toGenerator().device().is_cpu()) {
            v = cpu_generator_of(v.toGenerator());
        } else if (way.casts && v.isInt() &&
                   target.op.arguments[i].spelling == Spelling::dtype && way.dtype &&
                   at::isFloatingType(static_cast<at::ScalarType>(v.toInt()))) {
            v = static_cast<int64_t>(*way.dtype);
        } else if (way.casts && v.isBool() && schema[i].name() == "half_to_float") {
            v = false;
        }
    }
}

void take_way(const Way &way, Target &target, const Covered &covered, DispatchKeySet keys,
              Stack *stack)
{
    const size_t n = target.op.arguments.size();
    TORCH_INTERNAL_ASSERT(stack->size() >= n);
    const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(n), stack->end());
    std::optional<Dtypes> dtypes;
    if (way.casts) dtypes = tried(target, covered, keys, arguments);

    Stack moved = arguments;
    Mirrors mirrors(way.cpu, way.as);
    mirrors.take(target, moved.data());
    c10::Device home = mirrors.home();
    bool has_home = false;
    redirect(way, target, moved.data(), home, has_home);
    if (way.cpu)
        target.op.handle.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &moved);
    else
        covered(target.op.handle, keys, &moved);

    mirrors.write_back();
    size_t i = 0;
    const at::ScalarType fallback = promoted(target, arguments.data());
    const auto back = [&](const at::Tensor &t) {
        std::optional<at::ScalarType> as;
        if (way.casts && t.defined() && t.is_floating_point())
            as = dtypes && i < dtypes->size() ? (*dtypes)[i] : fallback;
        i += t.defined();
        return mirrors.result(t, home, as);
    };
    stack->resize(stack->size() - n);
    for (const IValue &v : moved)
        stack->push_back(with_tensors(v, back));
}

bool has_half(const Target &target, const IValue *values)
{
    bool found = false;
    for (size_t i = 0; i < target.op.arguments.size(); ++i)
        each_tensor(values[i], [&](const at::Tensor &t) {
            found = found || is_half(t.scalar_type());
        });
    return found;
}

/* Tries one way after another. What the CPU refuses for being half precision it does in
 * float32, and that is rounded. */
bool try_ways(const Route &route, Target &target, const Covered &covered,
              DispatchKeySet keys, Stack *stack, std::string &why)
{
    const bool cpu = route.kind == USC_REROUTE_FALLBACK;
    const IValue *values = stack->data() + (stack->size() - target.op.arguments.size());
    std::vector<Way> ways;
    if (cpu) {
        ways.push_back({true, as_it_is, std::nullopt, false});
        if (has_half(target, values)) ways.push_back({true, widened, at::kFloat, true});
    } else {
        ways.push_back({false, cast_to(route.dtype), route.dtype, true});
    }
    for (const Way &way : ways) {
        try {
            take_way(way, target, covered, keys, stack);
            return true;
        } catch (const c10::Error &e) {
            if (why.empty()) why = e.what_without_backtrace();
        } catch (const std::exception &e) {
            if (why.empty()) why = e.what();
        }
    }
    return false;
}

/* Of an operator that may draw, whether this call does. */
bool drops_out(const Target &target, const IValue *values)
{
    const auto &arguments = target.op.handle.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i)
        if (arguments[i].name() == "dropout_p" && values[i].isDouble())
            return values[i].toDouble() > 0;
    return true;
}

} // namespace

bool has_work(const Route &route, const Target &target, const IValue *values)
{
    if (route.kind == USC_REROUTE_SUBSTITUTE || only_looks(route)) return true;
    if (route.kind == USC_REROUTE_REDUCTION) return is_reduction(target, values);
    if (target.left_alone || target.op.views) return false;
    if (route.draws && !drops_out(target, values)) return false;
    bool cpu = false, device = false, floats = false;
    for (size_t i = 0; i < target.op.arguments.size(); ++i) {
        if (values[i].isDevice()) (values[i].toDevice().is_cpu() ? cpu : device) = true;
        each_tensor(values[i], [&](const at::Tensor &t) {
            (t.is_cpu() ? cpu : device) = true;
            floats = floats || (is_castable(t) && t.scalar_type() != route.dtype);
        });
    }
    if (route.kind == USC_REROUTE_CAST) return floats && !target.converts;
    return device && !(target.copies && cpu);
}

bool run_moved(Route &route, Target &target, const Covered &covered, DispatchKeySet keys,
               Stack *stack)
{
    std::string why;
    {
        Below below;
        if (try_ways(route, target, covered, keys, stack, why)) return true;
    }
    if (!covered) return false;
    /* Where the device refuses as well it is the program that is wrong, and it hears so
     * in the device's words. */
    covered(target.op.handle, keys, stack);
    note_problem(route, target, why.c_str());
    return true;
}

void note_problem(Route &route, const Target &target, const char *why)
{
    std::string text = why;
    text = text.substr(0, std::min(text.find('\n'), size_t{240}));
    std::lock_guard<std::mutex> lock(route.mutex);
    route.problems.try_emplace(&target, target.op.name + " ran as it is: " +
                                            (route.kind == USC_REROUTE_CAST
                                                 ? "in that dtype it says \""
                                                 : "the CPU says \"") +
                                            text + "\"");
}

} // namespace intercept
