// SPDX-License-Identifier: Apache-2.0
// What the code of a kernel sees of the simulated device: keywords, the place of a thread,
// launches, barriers. Over ulpscope_sim/grid.h, and nothing of torch. `a<<<g, b>>>(x)` is
// written USC_GRID_LAUNCH((a), g, b)(x) before it comes here (src/port/lower.c).
#pragma once

#include <ulpscope_sim/grid.h>

#include <algorithm>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <math.h>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#ifndef ULPSCOPE_SIM_WARP
#define ULPSCOPE_SIM_WARP 32
#endif
static_assert(ULPSCOPE_SIM_WARP == 32 || ULPSCOPE_SIM_WARP == 64,
              "ULPSCOPE_SIM_WARP is 32 or 64");

#define __SIMCC__ 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ static // one block at a time runs in a process
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

#define USC_GRID_TEXT_OF(x) #x
#define USC_GRID_TEXT(x) USC_GRID_TEXT_OF(x)
#define USC_GRID_HERE (::usc_grid_cxx::base_name(__FILE__ ":" USC_GRID_TEXT(__LINE__)))

// Functions that look at shared memory on purpose, atomics above all, are not watched.
#ifdef __SANITIZE_THREAD__
#define USC_GRID_UNWATCHED __attribute__((no_sanitize("thread"), noinline))
#else
#define USC_GRID_UNWATCHED
#endif

using uint3 = usc_grid_dim;

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
    constexpr dim3(uint3 d) : x(d.x), y(d.y), z(d.z)
    {
    }
    constexpr operator uint3() const
    {
        return {x, y, z};
    }
};

[[maybe_unused]] static const uint3 &threadIdx = usc_grid_now.thread;
[[maybe_unused]] static const uint3 &blockIdx = usc_grid_now.block;
[[maybe_unused]] static const uint3 &blockDim = usc_grid_now.block_dim;
[[maybe_unused]] static const uint3 &gridDim = usc_grid_now.grid_dim;
[[maybe_unused]] static constexpr int warpSize = ULPSCOPE_SIM_WARP;

// A stream as text of CUDA hands it around; nullptr is the default stream.
typedef struct usc_grid_stream *cudaStream_t;

namespace usc_grid_cxx
{

constexpr const char *base_name(const char *path)
{
    const char *name = path;
    for (const char *c = path; *c != '\0'; c++)
        if (*c == '/') name = c + 1;
    return name;
}

inline cudaStream_t stream_to(usc_sim_stream s)
{
    const uintptr_t number =
        s.id == 0 ? 0 : ((uintptr_t)s.device << 16 | (uintptr_t)s.id) << 4;
    return reinterpret_cast<cudaStream_t>(number);
}

// `device`: of the default stream, which has no number.
inline usc_sim_stream stream_from(cudaStream_t stream, int device)
{
    const uintptr_t number = reinterpret_cast<uintptr_t>(stream) >> 4;
    if (number == 0) return {device < 0 ? 0 : device, 0};
    return {(int)(number >> 16), (int64_t)(number & 0xffff)};
}

inline void check(usc_status status, const usc_error &err)
{
    if (status != USC_OK) throw std::runtime_error(err.text);
}

// ---- arguments

// Goes where a pointer to const is asked for, and nowhere else.
struct const_probe {
    template <class T, std::enable_if_t<std::is_const_v<T>, int> = 0>
    operator T *() const;
};

// Goes nowhere but where any type does: a parameter whose type is deduced says nothing.
struct any_probe {
};

template <class F, size_t I, size_t... K, class... A>
constexpr bool reads_only(std::index_sequence<K...>, const std::tuple<A...> *)
{
    return std::is_invocable_v<F, std::conditional_t<K == I, const_probe, A> &...> &&
           !std::is_invocable_v<F, std::conditional_t<K == I, any_probe, A> &...>;
}

template <class F, size_t I, class... A>
void add_argument(std::vector<usc_grid_argument> &out, const std::tuple<A...> &args)
{
    using T = std::tuple_element_t<I, std::tuple<A...>>;
    const T &arg = std::get<I>(args);
    if constexpr (std::is_pointer_v<T>) {
        constexpr bool is_const =
            std::is_const_v<std::remove_pointer_t<T>> ||
            reads_only<F, I>(std::index_sequence_for<A...>{},
                             static_cast<const std::tuple<A...> *>(nullptr));
        out.push_back({(const void *)arg, (int)I + 1, !is_const, false});
    } else if constexpr (std::is_class_v<T> && sizeof(T) >= sizeof(void *)) {
        for (size_t at = 0; at + sizeof(void *) <= sizeof(T); at += sizeof(void *)) {
            const void *word;
            std::memcpy(&word, reinterpret_cast<const char *>(&arg) + at, sizeof word);
            if (usc_sim_device_of(word) >= 0)
                out.push_back({word, (int)I + 1, true, true});
        }
    }
}

// ---- launches

// A kernel with its arguments.
template <class F, class... A> struct bound {
    F kernel;
    std::tuple<A...> args;

    static void threads(void *self)
    {
        bound own = *static_cast<const bound *>(self); // nothing else points to it
        usc_grid_state &s = usc_grid_now;
        std::apply(
            [&](A &...a) {
                while (usc_grid_more()) {
                    if (s.precise)
                        row<true>(s, own.kernel, a...);
                    else
                        row<false>(s, own.kernel, a...);
                }
            },
            own.args);
    }

    // The threads of a row, until one of them has waited: others have gone on meanwhile. The
    // compiler may hold the number of the thread in a register, and often does.
    template <bool precise>
    static __attribute__((always_inline)) inline void row(usc_grid_state &s, F &kernel,
                                                          A &...a)
    {
        const unsigned n_waits = s.n_waits, end = s.end;
        unsigned next = s.next, x = s.at.x;
        s.thread.y = s.at.y;
        s.thread.z = s.at.z;
        while (next < end) {
            s.thread.x = x++;
            next++;
            if (precise) asm volatile("" ::: "memory");
            kernel(a...);
            if (s.n_waits != n_waits) return;
        }
        s.next = end;
    }

    static void drop(void *self)
    {
        delete static_cast<bound *>(self);
    }

    template <size_t... I>
    std::vector<usc_grid_argument> arguments(std::index_sequence<I...>) const
    {
        std::vector<usc_grid_argument> found;
        (add_argument<F, I>(found, args), ...);
        return found;
    }
};

inline const char *without_parens(const char *text)
{
    static thread_local std::vector<std::pair<const char *, std::string *>> known;
    for (const auto &k : known)
        if (k.first == text) return k.second->c_str();
    std::string name(text);
    if (name.size() > 1 && name.front() == '(') name = name.substr(1, name.size() - 2);
    known.emplace_back(text, new std::string(name)); // as long as the process
    return known.back().second->c_str();
}

template <class F> struct launcher {
    F kernel;
    const char *name, *place;
    dim3 grid, block;
    size_t shared_size;
    cudaStream_t stream;

    template <class... A> void operator()(A... a) const
    {
        auto *b = new bound<F, A...>{kernel, std::tuple<A...>(a...)};
        const auto arguments = b->arguments(std::index_sequence_for<A...>{});
        int device = -1;
        for (const usc_grid_argument &at : arguments)
            if (device < 0) device = usc_sim_device_of(at.address);
        usc_grid_kernel k{};
        k.name = without_parens(name);
        k.place = place;
        k.threads = &bound<F, A...>::threads;
        k.drop = &bound<F, A...>::drop;
        k.ctx = b;
        k.grid = grid;
        k.block = block;
        k.shared_size = shared_size;
        k.warp_size = ULPSCOPE_SIM_WARP;
        k.arguments = arguments.data();
        k.n_arguments = arguments.size();
        usc_error err{};
        check(usc_grid_launch(stream_from(stream, device), &k, &err), err);
    }
};

template <class F>
launcher<F> launching(F kernel, const char *name, const char *place, dim3 grid,
                      dim3 block, size_t shared_size = 0, cudaStream_t stream = nullptr)
{
    return {kernel, name, place, grid, block, shared_size, stream};
}

// ---- kernels that are handed on as void *

typedef void any_launch(const void *, const char *, const char *, dim3, dim3, void **,
                        size_t, cudaStream_t);

struct handed_on {
    any_launch *launch; // nullptr: unknown
    const char *name;
};

struct all_handed_on {
    std::mutex lock;
    std::map<const void *, handed_on> by_address;
};

inline all_handed_on &every_handed_on()
{
    static auto *all = new all_handed_on; // threads may outlive the process's end
    return *all;
}

inline handed_on find_handed_on(const void *kernel)
{
    all_handed_on &all = every_handed_on();
    const std::lock_guard<std::mutex> held(all.lock);
    const auto found = all.by_address.find(kernel);
    return found != all.by_address.end() ? found->second : handed_on{nullptr, ""};
}

inline std::string name_of_handed_on(const void *kernel)
{
    return find_handed_on(kernel).name;
}

template <class F, class... A, size_t... I>
void launch_by_list(const launcher<F> &launch, void **args, std::index_sequence<I...>)
{
    launch(*static_cast<std::remove_cv_t<std::remove_reference_t<A>> *>(args[I])...);
}

template <class... A>
void launch_handed_on(const void *kernel, const char *name, const char *place, dim3 grid,
                      dim3 block, void **args, size_t shared_size, cudaStream_t stream)
{
    typedef void (*typed)(A...);
    const auto f = reinterpret_cast<typed>(reinterpret_cast<uintptr_t>(kernel));
    const launcher<typed> launch{f, name, place, grid, block, shared_size, stream};
    launch_by_list<typed, A...>(launch, args, std::index_sequence_for<A...>{});
}

template <class... A> void *kernel_as_void(void (*kernel)(A...), const char *name)
{
    all_handed_on &all = every_handed_on();
    void *address = reinterpret_cast<void *>(kernel);
    const std::lock_guard<std::mutex> held(all.lock);
    all.by_address.emplace(address, handed_on{&launch_handed_on<A...>, name});
    return address;
}
template <class T> void *kernel_as_void(T *other, const char *)
{
    return (void *)other;
}

// (void *)x, which notes what x takes where it is a function.
template <class T> void *as_void(T &&x, const char *name)
{
    if constexpr (std::is_pointer<std::decay_t<T>>::value)
        return kernel_as_void(static_cast<std::decay_t<T>>(x), name);
    else
        return (void *)x;
}

// ---- dynamic shared memory that is declared outside of functions

template <class T> struct dynamic_shared {
    operator T *() const
    {
        return static_cast<T *>(usc_grid_now.shared);
    }
};

} // namespace usc_grid_cxx

#define USC_GRID_LAUNCH(kernel, ...)                                                     \
    ::usc_grid_cxx::launching(                                                           \
        [=](auto &...usc_a) -> decltype((void)(kernel(usc_a...))) { kernel(usc_a...); }, \
        #kernel, USC_GRID_HERE, __VA_ARGS__)

#define USC_GRID_AS_VOID(...) (::usc_grid_cxx::as_void(__VA_ARGS__, #__VA_ARGS__))

// A step of the block that all its threads take together.
#define __syncthreads() ((void)usc_grid_barrier(USC_GRID_COUNT, 0, USC_GRID_HERE))
#define __syncthreads_count(p)                                                           \
    (usc_grid_barrier(USC_GRID_COUNT, (p) ? 1 : 0, USC_GRID_HERE))
#define __syncthreads_and(p) (usc_grid_barrier(USC_GRID_AND, (p) ? 1 : 0, USC_GRID_HERE))
#define __syncthreads_or(p) (usc_grid_barrier(USC_GRID_OR, (p) ? 1 : 0, USC_GRID_HERE))
#define __trap() usc_grid_fail("__trap() at %s", USC_GRID_HERE)
inline void __threadfence()
{
}
inline void __threadfence_block()
{
}
inline void __threadfence_system()
{
}
