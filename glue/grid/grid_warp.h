// SPDX-License-Identifier: Apache-2.0
// Shuffles, votes and matches of the lanes of a warp, and atomics. Neighbour: grid_core.h.
#pragma once

#include "grid_core.h"

// A mask of lanes, as wide as a warp.
#if ULPSCOPE_SIM_WARP == 64
typedef unsigned long long usc_grid_mask;
#else
typedef unsigned usc_grid_mask;
#endif

namespace usc_grid_cxx
{

template <class T> inline T take(const char *place, uint64_t mask, T value, unsigned from)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>,
                  "a shuffle moves up to 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = usc_grid_meet(USC_GRID_TAKE, mask, bits, from, place);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
inline T shfl(const char *place, uint64_t mask, T value, int from, int width = warpSize)
{
    const unsigned lane = usc_grid_lane(), w = (unsigned)width;
    return take(place, mask, value, (lane & ~(w - 1)) | ((unsigned)from & (w - 1)));
}

template <class T>
inline T shfl_up(const char *place, uint64_t mask, T value, unsigned by,
                 int width = warpSize)
{
    const unsigned lane = usc_grid_lane(), in = lane & ((unsigned)width - 1);
    return take(place, mask, value, by > in ? lane : lane - by);
}

template <class T>
inline T shfl_down(const char *place, uint64_t mask, T value, unsigned by,
                   int width = warpSize)
{
    const unsigned lane = usc_grid_lane(), in = lane & ((unsigned)width - 1);
    return take(place, mask, value, by >= (unsigned)width - in ? lane : lane + by);
}

template <class T>
inline T shfl_xor(const char *place, uint64_t mask, T value, int with,
                  int width = warpSize)
{
    const unsigned lane = usc_grid_lane(), other = lane ^ (unsigned)with;
    const unsigned end = (lane & ~((unsigned)width - 1)) + (unsigned)width;
    return take(place, mask, value, other < end ? other : lane);
}

inline usc_grid_mask ballot(const char *place, uint64_t mask, int predicate)
{
    return (usc_grid_mask)usc_grid_meet(USC_GRID_BALLOT, mask, predicate != 0, 0, place);
}

inline int any(const char *place, uint64_t mask, int predicate)
{
    return ballot(place, mask, predicate) != 0;
}

inline int all(const char *place, uint64_t mask, int predicate)
{
    return ballot(place, mask, predicate == 0) == 0;
}

template <class T> inline uint64_t bits_of(T value)
{
    static_assert(sizeof(T) <= 8, "a match looks at up to 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
inline usc_grid_mask match_any(const char *place, uint64_t mask, T value)
{
    return (usc_grid_mask)usc_grid_meet(USC_GRID_MATCH, mask, bits_of(value), 0, place);
}

template <class T>
inline usc_grid_mask match_all(const char *place, uint64_t mask, T value, int *same)
{
    const uint64_t with = usc_grid_meet(USC_GRID_MATCH, mask, bits_of(value), 0, place);
    const uint64_t here = usc_grid_meet(USC_GRID_WHO, mask, 0, 0, place);
    *same = with == here;
    return (usc_grid_mask)(with == here ? here : 0);
}

template <class T>
inline T reduce(const char *place, usc_grid_meeting what, uint64_t mask, T value)
{
    static_assert(std::is_integral_v<T>, "whole numbers alone are reduced");
    const uint64_t wide =
        std::is_signed_v<T> ? (uint64_t)(int64_t)value : (uint64_t)value;
    return (T)usc_grid_meet(what, mask, wide, 0, place);
}

} // namespace usc_grid_cxx

#define __shfl_sync(...) ::usc_grid_cxx::shfl(USC_GRID_HERE, __VA_ARGS__)
#define __shfl_up_sync(...) ::usc_grid_cxx::shfl_up(USC_GRID_HERE, __VA_ARGS__)
#define __shfl_down_sync(...) ::usc_grid_cxx::shfl_down(USC_GRID_HERE, __VA_ARGS__)
#define __shfl_xor_sync(...) ::usc_grid_cxx::shfl_xor(USC_GRID_HERE, __VA_ARGS__)
// Without a mask: of those lanes that come.
#define __shfl(...) ::usc_grid_cxx::shfl(USC_GRID_HERE, 0, __VA_ARGS__)
#define __shfl_up(...) ::usc_grid_cxx::shfl_up(USC_GRID_HERE, 0, __VA_ARGS__)
#define __shfl_down(...) ::usc_grid_cxx::shfl_down(USC_GRID_HERE, 0, __VA_ARGS__)
#define __shfl_xor(...) ::usc_grid_cxx::shfl_xor(USC_GRID_HERE, 0, __VA_ARGS__)
#define __ballot_sync(m, p) ::usc_grid_cxx::ballot(USC_GRID_HERE, m, (p) ? 1 : 0)
#define __any_sync(m, p) ::usc_grid_cxx::any(USC_GRID_HERE, m, (p) ? 1 : 0)
#define __all_sync(m, p) ::usc_grid_cxx::all(USC_GRID_HERE, m, (p) ? 1 : 0)
#define __ballot(p) ::usc_grid_cxx::ballot(USC_GRID_HERE, 0, (p) ? 1 : 0)
#define __any(p) ::usc_grid_cxx::any(USC_GRID_HERE, 0, (p) ? 1 : 0)
#define __all(p) ::usc_grid_cxx::all(USC_GRID_HERE, 0, (p) ? 1 : 0)
#define __match_any_sync(m, v) ::usc_grid_cxx::match_any(USC_GRID_HERE, m, v)
#define __match_all_sync(m, v, same) ::usc_grid_cxx::match_all(USC_GRID_HERE, m, v, same)
#define __activemask()                                                                   \
    ((usc_grid_mask)usc_grid_meet(USC_GRID_WHO, 0, 0, 0, USC_GRID_HERE))
#define USC_GRID_ALL ((uint64_t) ~(usc_grid_mask)0)
// The mask may be left out.
#define __syncwarp(...)                                                                  \
    ((void)usc_grid_meet(USC_GRID_SYNC, ::usc_grid_cxx::mask_or_all(__VA_ARGS__), 0, 0,  \
                         USC_GRID_HERE))
#define USC_GRID_SIGNED(v, a, b) (std::is_signed_v<decltype(v)> ? a : b)
#define __reduce_add_sync(m, v) ::usc_grid_cxx::reduce(USC_GRID_HERE, USC_GRID_ADD, m, v)
#define __reduce_min_sync(m, v)                                                          \
    ::usc_grid_cxx::reduce(USC_GRID_HERE,                                                \
                           USC_GRID_SIGNED(v, USC_GRID_MIN, USC_GRID_UMIN), m, v)
#define __reduce_max_sync(m, v)                                                          \
    ::usc_grid_cxx::reduce(USC_GRID_HERE,                                                \
                           USC_GRID_SIGNED(v, USC_GRID_MAX, USC_GRID_UMAX), m, v)
#define __reduce_and_sync(m, v)                                                          \
    ::usc_grid_cxx::reduce(USC_GRID_HERE, USC_GRID_BITS_AND, m, v)
#define __reduce_or_sync(m, v)                                                           \
    ::usc_grid_cxx::reduce(USC_GRID_HERE, USC_GRID_BITS_OR, m, v)
#define __reduce_xor_sync(m, v)                                                          \
    ::usc_grid_cxx::reduce(USC_GRID_HERE, USC_GRID_BITS_XOR, m, v)

namespace usc_grid_cxx
{

inline uint64_t mask_or_all(uint64_t mask = USC_GRID_ALL)
{
    return mask;
}

// ---- atomics: one thread of the machine runs all threads of a kernel, one after the other

template <class T> using same = std::common_type_t<T>; // the address alone says the type

template <class T, class Change> USC_GRID_UNWATCHED T change(T *at, Change with)
{
#ifdef __SANITIZE_THREAD__
    usc_grid_access((const void *)at, sizeof(T), true, true, __builtin_return_address(0));
#endif
    typedef T __attribute__((may_alias)) any; // doubles are added through integers
    any *const place = at;
    const T old = *place;
    *place = with(old);
    return old;
}

} // namespace usc_grid_cxx

#define USC_GRID_ATOMIC(name, expression)                                                \
    template <class T> inline T name(T *at, usc_grid_cxx::same<T> v)                     \
    {                                                                                    \
        return usc_grid_cxx::change(at, [v](T old) -> T { return (T)(expression); });    \
    }                                                                                    \
    template <class T> inline T name##_block(T *at, usc_grid_cxx::same<T> v)             \
    {                                                                                    \
        return name(at, v);                                                              \
    }                                                                                    \
    template <class T> inline T name##_system(T *at, usc_grid_cxx::same<T> v)            \
    {                                                                                    \
        return name(at, v);                                                              \
    }

USC_GRID_ATOMIC(atomicAdd, old + v)
USC_GRID_ATOMIC(atomicSub, old - v)
USC_GRID_ATOMIC(atomicExch, ((void)old, v))
USC_GRID_ATOMIC(atomicMin, v < old ? v : old)
USC_GRID_ATOMIC(atomicMax, old < v ? v : old)
USC_GRID_ATOMIC(atomicInc, old >= v ? T(0) : T(old + 1))
USC_GRID_ATOMIC(atomicDec, old == T(0) || old > v ? v : T(old - 1))
USC_GRID_ATOMIC(atomicAnd, old &v)
USC_GRID_ATOMIC(atomicOr, old | v)
USC_GRID_ATOMIC(atomicXor, old ^ v)
USC_GRID_ATOMIC(gpuAtomicAdd, old + v)
USC_GRID_ATOMIC(gpuAtomicAddNoReturn, old + v)
#undef USC_GRID_ATOMIC

template <class T>
inline T atomicCAS(T *at, usc_grid_cxx::same<T> compare, usc_grid_cxx::same<T> v)
{
    return usc_grid_cxx::change(
        at, [compare, v](T old) -> T { return old == compare ? v : old; });
}
