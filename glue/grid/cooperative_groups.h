// SPDX-License-Identifier: Apache-2.0
// CUDA's header of that name, for the simulated device: groups up to the block. A group of
// the grid does not exist here (it is refused when a kernel is built).
#pragma once

#include "cuda_runtime.h"
#include "grid_place.h"

namespace cooperative_groups
{

namespace details
{

inline unsigned count(uint64_t mask)
{
    return (unsigned)__builtin_popcountll(mask);
}

// The lane of the n-th of a mask.
inline unsigned lane_of(uint64_t mask, unsigned n)
{
    while (n-- > 0)
        mask &= mask - 1;
    return mask != 0 ? (unsigned)__builtin_ctzll(mask) : usc_grid_lane();
}

inline unsigned rank_in(uint64_t mask)
{
    return count(mask & (((uint64_t)1 << usc_grid_lane()) - 1));
}

// Bits of lanes as bits of ranks.
inline unsigned long long packed(uint64_t mask, uint64_t bits)
{
    unsigned long long out = 0;
    unsigned n = 0;
    for (uint64_t left = mask; left != 0; left &= left - 1, n++)
        if ((bits & left & -left) != 0) out |= 1ull << n;
    return out;
}

// Values of any size go word by word.
template <class T> T take(const char *place, uint64_t mask, const T &value, unsigned from)
{
    static_assert(std::is_trivially_copyable_v<T>, "a shuffle copies bytes");
    T out;
    const char *in = reinterpret_cast<const char *>(&value);
    for (size_t at = 0; at < sizeof(T); at += 8) {
        uint64_t word = 0;
        const size_t n = sizeof(T) - at < 8 ? sizeof(T) - at : 8;
        std::memcpy(&word, in + at, n);
        word = usc_grid_meet(USC_GRID_TAKE, mask, word, from, place);
        std::memcpy(reinterpret_cast<char *>(&out) + at, &word, n);
    }
    return out;
}

// Lanes of one warp.
class lanes
{
  public:
    explicit lanes(uint64_t mask) : mask_(mask)
    {
    }
    unsigned thread_rank() const
    {
        return rank_in(mask_);
    }
    unsigned num_threads() const
    {
        return count(mask_);
    }
    unsigned size() const
    {
        return num_threads();
    }
    void sync(const char *place = USC_GRID_CALLER) const
    {
        (void)usc_grid_meet(USC_GRID_SYNC, mask_, 0, 0, place);
    }
    template <class T>
    T shfl(const T &v, unsigned from, const char *place = USC_GRID_CALLER) const
    {
        return take(place, mask_, v, lane_of(mask_, from % size()));
    }
    template <class T>
    T shfl_up(const T &v, unsigned by, const char *place = USC_GRID_CALLER) const
    {
        const unsigned rank = thread_rank();
        return take(place, mask_, v, lane_of(mask_, by > rank ? rank : rank - by));
    }
    template <class T>
    T shfl_down(const T &v, unsigned by, const char *place = USC_GRID_CALLER) const
    {
        const unsigned rank = thread_rank();
        return take(place, mask_, v,
                    lane_of(mask_, rank + by >= size() ? rank : rank + by));
    }
    template <class T>
    T shfl_xor(const T &v, unsigned with, const char *place = USC_GRID_CALLER) const
    {
        const unsigned rank = thread_rank(), other = rank ^ with;
        return take(place, mask_, v, lane_of(mask_, other < size() ? other : rank));
    }
    unsigned long long ballot(int p, const char *place = USC_GRID_CALLER) const
    {
        return packed(mask_, usc_grid_meet(USC_GRID_BALLOT, mask_, p != 0, 0, place));
    }
    int any(int p, const char *place = USC_GRID_CALLER) const
    {
        return ballot(p, place) != 0;
    }
    int all(int p, const char *place = USC_GRID_CALLER) const
    {
        return ballot(p == 0, place) == 0;
    }
    template <class T>
    unsigned long long match_any(const T &v, const char *place = USC_GRID_CALLER) const
    {
        return packed(mask_, usc_grid_meet(USC_GRID_MATCH, mask_,
                                           usc_grid_cxx::bits_of(v), 0, place));
    }
    uint64_t mask() const
    {
        return mask_;
    }

  protected:
    uint64_t mask_;
};

} // namespace details

class thread_block
{
  public:
    static void sync(const char *place = USC_GRID_CALLER)
    {
        usc_grid_cxx::meet_block(place);
    }
    static unsigned thread_rank()
    {
        return usc_grid_cxx::thread_number();
    }
    static unsigned num_threads()
    {
        return usc_grid_cxx::block_size();
    }
    static unsigned size()
    {
        return num_threads();
    }
    static dim3 group_index()
    {
        return blockIdx;
    }
    static dim3 thread_index()
    {
        return threadIdx;
    }
    static dim3 dim_threads()
    {
        return blockDim;
    }
    static dim3 group_dim()
    {
        return blockDim;
    }
};

inline thread_block this_thread_block()
{
    return {};
}

template <unsigned N, class Parent = void> class thread_block_tile : public details::lanes
{
    static_assert(N > 0 && (N & (N - 1)) == 0 && N <= ULPSCOPE_SIM_WARP,
                  "a tile is a power of two, and no wider than a warp");

  public:
    thread_block_tile() : lanes(usc_grid_cxx::lanes_around(N))
    {
    }
    static constexpr unsigned num_threads()
    {
        return N;
    }
    static constexpr unsigned size()
    {
        return N;
    }
    static unsigned thread_rank()
    {
        return usc_grid_lane() % N;
    }
    static unsigned meta_group_rank()
    {
        return usc_grid_cxx::thread_number() / N;
    }
    static unsigned meta_group_size()
    {
        return (usc_grid_cxx::block_size() + N - 1) / N;
    }
};

class coalesced_group : public details::lanes
{
  public:
    using lanes::lanes;
};

// What a group is that is not known before it runs: a block, or lanes.
class thread_group
{
  public:
    thread_group(const thread_block &)
    {
    }
    thread_group(const details::lanes &lanes) : lanes_(lanes.mask())
    {
    }
    void sync(const char *place = USC_GRID_CALLER) const
    {
        if (lanes_ != 0)
            details::lanes(lanes_).sync(place);
        else
            thread_block::sync(place);
    }
    unsigned thread_rank() const
    {
        return lanes_ != 0 ? details::rank_in(lanes_) : thread_block::thread_rank();
    }
    unsigned size() const
    {
        return lanes_ != 0 ? details::count(lanes_) : thread_block::size();
    }
    unsigned num_threads() const
    {
        return size();
    }

  private:
    uint64_t lanes_ = 0;
};

template <unsigned N, class Parent>
thread_block_tile<N, Parent> tiled_partition(const Parent &)
{
    return {};
}

inline thread_group tiled_partition(const thread_group &, unsigned n)
{
    return details::lanes(usc_grid_cxx::lanes_around(n));
}

inline coalesced_group coalesced_threads(const char *place = USC_GRID_CALLER)
{
    return coalesced_group(usc_grid_meet(USC_GRID_WHO, 0, 0, 0, place));
}

template <class Group> void sync(const Group &g, const char *place = USC_GRID_CALLER)
{
    g.sync(place);
}

// ---- cooperative_groups/reduce.h, scan.h, memcpy_async.h

template <class T> struct plus {
    T operator()(const T &a, const T &b) const
    {
        return a + b;
    }
};
template <class T> struct less {
    T operator()(const T &a, const T &b) const
    {
        return b < a ? b : a;
    }
};
template <class T> struct greater {
    T operator()(const T &a, const T &b) const
    {
        return a < b ? b : a;
    }
};
template <class T> struct bit_and {
    T operator()(const T &a, const T &b) const
    {
        return a & b;
    }
};
template <class T> struct bit_or {
    T operator()(const T &a, const T &b) const
    {
        return a | b;
    }
};
template <class T> struct bit_xor {
    T operator()(const T &a, const T &b) const
    {
        return a ^ b;
    }
};

// All lanes get the result.
template <class T, class Op>
T reduce(const details::lanes &g, T v, Op op, const char *place = USC_GRID_CALLER)
{
    const unsigned rank = g.thread_rank(), n = g.size();
    for (unsigned by = 1; by < n; by *= 2) {
        const T other = g.shfl_down(v, by, place);
        if (rank % (2 * by) == 0 && rank + by < n) v = op(v, other);
    }
    return g.shfl(v, 0, place);
}

template <class T, class Op = plus<T>>
T inclusive_scan(const details::lanes &g, T v, Op op = {},
                 const char *place = USC_GRID_CALLER)
{
    for (unsigned by = 1; by < g.size(); by *= 2) {
        const T other = g.shfl_up(v, by, place);
        if (g.thread_rank() >= by) v = op(other, v);
    }
    return v;
}

template <class T, class Op = plus<T>>
T exclusive_scan(const details::lanes &g, T v, Op op = {},
                 const char *place = USC_GRID_CALLER)
{
    const T before = g.shfl_up(inclusive_scan(g, v, op, place), 1, place);
    return g.thread_rank() == 0 ? T{} : before;
}

// The bytes are there behind wait(); nothing says when before.
template <class Group, class T>
void memcpy_async(const Group &g, T *to, const T *from, size_t size)
{
    const auto n = g.size();
    auto *out = reinterpret_cast<char *>(to);
    const auto *in = reinterpret_cast<const char *>(from);
    for (size_t i = g.thread_rank(); i < size; i += n)
        out[i] = in[i];
}

template <class Group> void wait(const Group &g, const char *place = USC_GRID_CALLER)
{
    g.sync(place);
}

} // namespace cooperative_groups
