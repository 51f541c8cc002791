// SPDX-License-Identifier: Apache-2.0
// cub's primitives of warps and blocks, for the simulated device, by the names and
// parameters of cub; which algorithm is asked for says nothing here. Sums go through the
// temporary storage in the order of the threads; what ran before must have met at a barrier,
// as on a GPU. Neighbours: grid_cub_items.h,
// grid_cub_device.h.
#pragma once

#include "cuda_runtime.h"
#include "grid_place.h"

namespace cub
{

// ---- operators and values

struct Sum {
    template <class T, class U> auto operator()(const T &a, const U &b) const
    {
        return a + b;
    }
};
struct Max {
    template <class T> T operator()(const T &a, const T &b) const
    {
        return a < b ? b : a;
    }
};
struct Min {
    template <class T> T operator()(const T &a, const T &b) const
    {
        return b < a ? b : a;
    }
};
struct Equality {
    template <class T, class U> bool operator()(const T &a, const U &b) const
    {
        return a == b;
    }
};

template <class K, class V> struct KeyValuePair {
    typedef K Key;
    typedef V Value;
    K key;
    V value;
};

// Of equal values the one with the smaller key.
struct ArgMax {
    template <class P> P operator()(const P &a, const P &b) const
    {
        return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <class P> P operator()(const P &a, const P &b) const
    {
        return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};

template <class T> struct Uninitialized {
    T value;
    T &Alias()
    {
        return value;
    }
};

struct NullType {
};

inline unsigned LaneId()
{
    return usc_grid_lane();
}

// ---- warps

template <class T, int N = 32> class WarpReduce
{
  public:
    struct TempStorage {
        T item[USC_GRID_MAX_WARP]; // by lane; each warp has storage of its own
    };

    explicit WarpReduce(TempStorage &s, const char *place = USC_GRID_CALLER)
        : s_(s), place_(place)
    {
    }
    // The first lane's alone.
    template <class Op> T Reduce(T v, Op op, int n_valid = N)
    {
        const unsigned lane = usc_grid_lane(), first = lane / N * N;
        const uint64_t mask = usc_grid_cxx::lanes_around(N);
        s_.item[lane] = v;
        const uint64_t came = usc_grid_meet(USC_GRID_SYNC, mask, 0, 0, place_);
        if (lane == first)
            for (int i = 1; i < n_valid && i < N; i++)
                if ((came >> (first + (unsigned)i) & 1) != 0)
                    v = op(v, s_.item[first + (unsigned)i]);
        (void)usc_grid_meet(USC_GRID_SYNC, mask, 0, 0, place_);
        return v;
    }
    T Sum(T v, int n_valid = N)
    {
        return Reduce(v, cub::Sum(), n_valid);
    }

  private:
    TempStorage &s_;
    const char *place_;
};

template <class T, int N = 32> class WarpScan
{
  public:
    typedef typename WarpReduce<T, N>::TempStorage TempStorage;

    explicit WarpScan(TempStorage &s, const char *place = USC_GRID_CALLER)
        : s_(s), place_(place)
    {
    }
    template <class Op> void InclusiveScan(T v, T &out, Op op, T &all)
    {
        scan(v, op);
        out = s_.item[usc_grid_lane()];
        all = s_.item[usc_grid_lane() / N * N + N - 1];
        settle();
    }
    template <class Op> void InclusiveScan(T v, T &out, Op op)
    {
        T all;
        InclusiveScan(v, out, op, all);
    }
    template <class Op> void ExclusiveScan(T v, T &out, T first, Op op)
    {
        scan(v, op);
        const unsigned lane = usc_grid_lane();
        out = lane % N == 0 ? first : op(first, s_.item[lane - 1]);
        settle();
    }
    void InclusiveSum(T v, T &out)
    {
        InclusiveScan(v, out, cub::Sum());
    }
    void InclusiveSum(T v, T &out, T &all)
    {
        InclusiveScan(v, out, cub::Sum(), all);
    }
    void ExclusiveSum(T v, T &out)
    {
        ExclusiveScan(v, out, T(), cub::Sum());
    }
    void ExclusiveSum(T v, T &out, T &all)
    {
        T inclusive;
        InclusiveScan(v, inclusive, cub::Sum(), all);
        out = inclusive - v;
    }
    T Broadcast(T v, unsigned lane)
    {
        s_.item[usc_grid_lane()] = v;
        settle();
        const T out = s_.item[usc_grid_lane() / N * N + lane];
        settle();
        return out;
    }

  private:
    void settle()
    {
        (void)usc_grid_meet(USC_GRID_SYNC, usc_grid_cxx::lanes_around(N), 0, 0, place_);
    }
    // The first lane goes through all.
    template <class Op> void scan(T v, Op op)
    {
        const unsigned lane = usc_grid_lane();
        s_.item[lane] = v;
        settle();
        if (lane % N == 0)
            for (unsigned i = lane + 1; i < lane + N; i++)
                s_.item[i] = op(s_.item[i - 1], s_.item[i]);
        settle();
    }

    TempStorage &s_;
    const char *place_;
};

// ---- blocks

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS,
};
enum BlockScanAlgorithm {
    BLOCK_SCAN_RAKING,
    BLOCK_SCAN_RAKING_MEMOIZE,
    BLOCK_SCAN_WARP_SCANS
};

template <class T, int X, BlockReduceAlgorithm A = BLOCK_REDUCE_WARP_REDUCTIONS,
          int Y = 1, int Z = 1, int Arch = 0>
class BlockReduce
{
  public:
    struct TempStorage {
        T item[X * Y * Z];
    };

    explicit BlockReduce(TempStorage &s, const char *place = USC_GRID_CALLER)
        : s_(s), place_(place)
    {
    }
    explicit BlockReduce(const char *place = USC_GRID_CALLER) : s_(own()), place_(place)
    {
    }
    // The first thread's alone.
    template <class Op> T Reduce(T v, Op op, int n_valid)
    {
        const unsigned t = usc_grid_cxx::thread_number();
        s_.item[t] = v;
        usc_grid_cxx::meet_block(place_);
        if (t == 0)
            for (int i = 1; i < n_valid; i++)
                v = op(v, s_.item[i]);
        return v;
    }
    template <class Op> T Reduce(T v, Op op)
    {
        return Reduce(v, op, X * Y * Z);
    }
    template <int K, class Op> T Reduce(T (&items)[K], Op op)
    {
        T v = items[0];
        for (int i = 1; i < K; i++)
            v = op(v, items[i]);
        return Reduce(v, op);
    }
    T Sum(T v)
    {
        return Reduce(v, cub::Sum());
    }
    T Sum(T v, int n_valid)
    {
        return Reduce(v, cub::Sum(), n_valid);
    }
    template <int K> T Sum(T (&items)[K])
    {
        return Reduce(items, cub::Sum());
    }

  private:
    static TempStorage &own()
    {
        static TempStorage storage;
        return storage;
    }
    TempStorage &s_;
    const char *place_;
};

template <class T, int X, BlockScanAlgorithm A = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1,
          int Arch = 0>
class BlockScan
{
  public:
    struct TempStorage {
        T item[X * Y * Z + 1]; // the last: what all come to
    };

    explicit BlockScan(TempStorage &s, const char *place = USC_GRID_CALLER)
        : s_(s), place_(place)
    {
    }
    explicit BlockScan(const char *place = USC_GRID_CALLER) : s_(own()), place_(place)
    {
    }

    template <class Op> void InclusiveScan(T v, T &out, Op op, T &all)
    {
        scan(v, op);
        out = s_.item[usc_grid_cxx::thread_number()];
        all = s_.item[X * Y * Z - 1];
    }
    template <class Op> void InclusiveScan(T v, T &out, Op op)
    {
        T all;
        InclusiveScan(v, out, op, all);
    }
    template <class Op> void ExclusiveScan(T v, T &out, T first, Op op, T &all)
    {
        scan(v, op);
        const unsigned t = usc_grid_cxx::thread_number();
        out = t == 0 ? first : op(first, s_.item[t - 1]);
        all = s_.item[X * Y * Z - 1];
    }
    template <class Op> void ExclusiveScan(T v, T &out, T first, Op op)
    {
        T all;
        ExclusiveScan(v, out, first, op, all);
    }
    void InclusiveSum(T v, T &out)
    {
        InclusiveScan(v, out, cub::Sum());
    }
    void InclusiveSum(T v, T &out, T &all)
    {
        InclusiveScan(v, out, cub::Sum(), all);
    }
    void ExclusiveSum(T v, T &out)
    {
        ExclusiveScan(v, out, T(), cub::Sum());
    }
    void ExclusiveSum(T v, T &out, T &all)
    {
        ExclusiveScan(v, out, T(), cub::Sum(), all);
    }
    // `before` is asked by the first warp, in cub, for what all blocks before came to; by
    // each thread with the same answer here.
    template <class Prefix> void ExclusiveSum(T v, T &out, Prefix &before)
    {
        T all;
        ExclusiveSum(v, out, all);
        out = ask(before, all) + out;
    }
    template <class Prefix> void InclusiveSum(T v, T &out, Prefix &before)
    {
        T all;
        InclusiveSum(v, out, all);
        out = ask(before, all) + out;
    }

    template <int K, class Op> void InclusiveScan(T (&in)[K], T (&out)[K], Op op, T &all)
    {
        T before;
        scan(sum_of(in, op), op);
        const unsigned t = usc_grid_cxx::thread_number();
        all = s_.item[X * Y * Z - 1];
        if (t > 0) before = s_.item[t - 1];
        for (int i = 0; i < K; i++) {
            before = t == 0 && i == 0 ? in[i] : op(before, in[i]);
            out[i] = before;
        }
    }
    template <int K, class Op>
    void ExclusiveScan(T (&in)[K], T (&out)[K], T first, Op op, T &all)
    {
        scan(sum_of(in, op), op);
        const unsigned t = usc_grid_cxx::thread_number();
        all = s_.item[X * Y * Z - 1];
        T before = t == 0 ? first : op(first, s_.item[t - 1]);
        for (int i = 0; i < K; i++) {
            const T next = op(before, in[i]);
            out[i] = before;
            before = next;
        }
    }
    template <int K> void InclusiveSum(T (&in)[K], T (&out)[K])
    {
        T all;
        InclusiveScan(in, out, cub::Sum(), all);
    }
    template <int K> void InclusiveSum(T (&in)[K], T (&out)[K], T &all)
    {
        InclusiveScan(in, out, cub::Sum(), all);
    }
    template <int K> void ExclusiveSum(T (&in)[K], T (&out)[K])
    {
        T all;
        ExclusiveScan(in, out, T(), cub::Sum(), all);
    }
    template <int K> void ExclusiveSum(T (&in)[K], T (&out)[K], T &all)
    {
        ExclusiveScan(in, out, T(), cub::Sum(), all);
    }

  private:
    static TempStorage &own()
    {
        static TempStorage storage;
        return storage;
    }
    template <int K, class Op> static T sum_of(T (&in)[K], Op op)
    {
        T sum = in[0];
        for (int i = 1; i < K; i++)
            sum = op(sum, in[i]);
        return sum;
    }
    template <class Prefix> T ask(Prefix &before, T all)
    {
        usc_grid_cxx::meet_block(place_);
        if (usc_grid_cxx::thread_number() == 0) s_.item[X * Y * Z] = before(all);
        usc_grid_cxx::meet_block(place_);
        return s_.item[X * Y * Z];
    }
    // The first thread goes through all.
    template <class Op> void scan(T v, Op op)
    {
        const unsigned t = usc_grid_cxx::thread_number();
        s_.item[t] = v;
        usc_grid_cxx::meet_block(place_);
        if (t == 0)
            for (int i = 1; i < X * Y * Z; i++)
                s_.item[i] = op(s_.item[i - 1], s_.item[i]);
        usc_grid_cxx::meet_block(place_);
    }

    TempStorage &s_;
    const char *place_;
};

} // namespace cub
