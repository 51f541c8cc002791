// SPDX-License-Identifier: Apache-2.0
// cub's algorithms over whole arrays, for the simulated device: one thread of a grid goes
// through them. Asked for the size of their temporary storage (with nullptr) they say 1.
#pragma once

#include "grid_cub_items.h"

#include <limits>

namespace cub
{

template <class T> struct DoubleBuffer {
    T *d_buffers[2];
    int selector = 0;
    DoubleBuffer(T *now, T *other) : d_buffers{now, other}
    {
    }
    T *Current() const
    {
        return d_buffers[selector];
    }
    T *Alternate() const
    {
        return d_buffers[selector ^ 1];
    }
};

template <class T, class Offset = ptrdiff_t> struct CountingInputIterator {
    typedef T value_type;
    T first;
    explicit CountingInputIterator(T v) : first(v)
    {
    }
    template <class I> T operator[](I i) const
    {
        return first + (T)i;
    }
    T operator*() const
    {
        return first;
    }
    template <class I> CountingInputIterator operator+(I n) const
    {
        return CountingInputIterator(first + (T)n);
    }
};

template <class T, class Op, class In, class Offset = ptrdiff_t>
struct TransformInputIterator {
    typedef T value_type;
    In from;
    Op op;
    TransformInputIterator(In in, Op o) : from(in), op(o)
    {
    }
    template <class I> T operator[](I i) const
    {
        return op(from[i]);
    }
    T operator*() const
    {
        return op(*from);
    }
    template <class I> TransformInputIterator operator+(I n) const
    {
        return TransformInputIterator(from + n, op);
    }
};

namespace details
{

template <class In> using value_of = std::decay_t<decltype(std::declval<In>()[0])>;

// True: it was asked for a size.
inline bool asked(void *storage, size_t &size)
{
    if (storage != nullptr) return false;
    size = 1;
    return true;
}

template <class In, class Out, class Op, class T>
void reduce(In in, Out out, long long n, Op op, T first)
{
    T sum = first;
    for (long long i = 0; i < n; i++)
        sum = op(sum, in[i]);
    out[0] = sum;
}

template <class In, class Out, class Op, class T>
void scan(In in, Out out, long long n, Op op, T sum, bool inclusive, bool has_first)
{
    for (long long i = 0; i < n; i++) {
        const T v = in[i]; // out may be in
        const T next = i == 0 && !has_first ? v : (T)op(sum, v);
        out[i] = inclusive ? next : sum;
        sum = next;
    }
}

template <class In, class Out, class Pair>
void arg(In in, Out out, int n, bool most, Pair)
{
    Pair best{};
    for (int i = 0; i < n; i++)
        if (i == 0 || (most ? best.value < in[i] : in[i] < best.value)) best = {i, in[i]};
    out[0] = best;
}

// The bits of a key that are asked for, in the order of unsigned numbers.
template <class K> uint64_t ordered(K key, int begin, int end)
{
    uint64_t bits = 0;
    std::memcpy(&bits, &key, sizeof key);
    const uint64_t sign = (uint64_t)1 << (8 * sizeof(K) - 1);
    const uint64_t all = sign | (sign - 1);
    if (!std::is_integral_v<K>) {
        if ((bits & ~sign & all) == 0) bits = 0; // -0 is 0
        bits = (bits & sign) != 0 ? ~bits & all : bits | sign;
    } else if (std::is_signed_v<K>) {
        bits ^= sign;
    }
    bits >>= begin;
    const int n = end - begin;
    return n >= 64 ? bits : bits & (((uint64_t)1 << n) - 1);
}

template <class K, class V>
void sort(const K *in, K *out, const V *values, V *values_out, long long n, bool down,
          int begin, int end)
{
    std::vector<long long> order((size_t)n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](long long a, long long b) {
        const uint64_t x = ordered(in[a], begin, end), y = ordered(in[b], begin, end);
        return down ? y < x : x < y;
    });
    for (long long i = 0; i < n; i++) {
        out[i] = in[order[(size_t)i]];
        if constexpr (!std::is_same_v<V, NullType>)
            values_out[i] = values[order[(size_t)i]];
    }
}

template <class K, class V, class Offsets>
void sort_segments(const K *in, K *out, const V *values, V *values_out, int n,
                   Offsets first, Offsets last, bool down, int begin, int end)
{
    for (int i = 0; i < n; i++)
        sort(in + first[i], out + first[i], values + first[i], values_out + first[i],
             (long long)(last[i] - first[i]), down, begin, end);
}

template <class In, class Flags, class Out, class Count>
void flagged(In in, Flags flags, Out out, Count count, long long n)
{
    long long k = 0;
    for (long long i = 0; i < n; i++)
        if (flags[i]) out[k++] = in[i];
    count[0] = k;
}

template <class In, class Out, class Count, class Keep>
void select(In in, Out out, Count count, long long n, Keep keep)
{
    long long k = 0;
    for (long long i = 0; i < n; i++)
        if (keep(in[i])) out[k++] = in[i];
    count[0] = k;
}

template <class In, class Out, class Lengths, class Count>
void encode(In in, Out out, Lengths lengths, Count count, long long n)
{
    long long k = 0;
    for (long long i = 0; i < n; i++) {
        if (i == 0 || !(in[i] == in[i - 1])) {
            out[k] = in[i];
            lengths[k++] = 0;
        }
        lengths[k - 1]++;
    }
    count[0] = k;
}

template <class In, class Out, class Count>
void unique(In in, Out out, Count count, long long n)
{
    long long k = 0;
    for (long long i = 0; i < n; i++)
        if (i == 0 || !(in[i] == in[i - 1])) out[k++] = in[i];
    count[0] = k;
}

} // namespace details

#define USC_CUB_RUN(kernel, stream, ...)                                                 \
    do {                                                                                 \
        USC_GRID_LAUNCH((kernel), 1, 1, 0, stream)(__VA_ARGS__);                         \
        return cudaGetLastError();                                                       \
    } while (0)
#define USC_CUB_ASKED                                                                    \
    if (details::asked(storage, size)) return cudaSuccess

struct DeviceReduce {
    template <class In, class Out, class Op, class T>
    static cudaError_t Reduce(void *storage, size_t &size, In in, Out out, int n, Op op,
                              T first, cudaStream_t stream = nullptr, bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::reduce, stream, in, out, (long long)n, op, first);
    }
    template <class In, class Out>
    static cudaError_t Sum(void *storage, size_t &size, In in, Out out, int n,
                           cudaStream_t stream = nullptr, bool = false)
    {
        return Reduce(storage, size, in, out, n, cub::Sum(), details::value_of<Out>(),
                      stream);
    }
    template <class In, class Out>
    static cudaError_t Max(void *storage, size_t &size, In in, Out out, int n,
                           cudaStream_t stream = nullptr, bool = false)
    {
        return Reduce(storage, size, in, out, n, cub::Max(),
                      std::numeric_limits<details::value_of<In>>::lowest(), stream);
    }
    template <class In, class Out>
    static cudaError_t Min(void *storage, size_t &size, In in, Out out, int n,
                           cudaStream_t stream = nullptr, bool = false)
    {
        return Reduce(storage, size, in, out, n, cub::Min(),
                      std::numeric_limits<details::value_of<In>>::max(), stream);
    }
    template <class In, class Out>
    static cudaError_t ArgMax(void *storage, size_t &size, In in, Out out, int n,
                              cudaStream_t stream = nullptr, bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::arg, stream, in, out, n, true, details::value_of<Out>());
    }
    template <class In, class Out>
    static cudaError_t ArgMin(void *storage, size_t &size, In in, Out out, int n,
                              cudaStream_t stream = nullptr, bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::arg, stream, in, out, n, false, details::value_of<Out>());
    }
};

struct DeviceScan {
    template <class In, class Out, class Op>
    static cudaError_t InclusiveScan(void *storage, size_t &size, In in, Out out, Op op,
                                     int n, cudaStream_t stream = nullptr, bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::scan, stream, in, out, (long long)n, op,
                    details::value_of<In>(), true, false);
    }
    template <class In, class Out, class Op, class T>
    static cudaError_t ExclusiveScan(void *storage, size_t &size, In in, Out out, Op op,
                                     T first, int n, cudaStream_t stream = nullptr,
                                     bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::scan, stream, in, out, (long long)n, op, first, false, true);
    }
    template <class In, class Out>
    static cudaError_t InclusiveSum(void *storage, size_t &size, In in, Out out, int n,
                                    cudaStream_t stream = nullptr, bool = false)
    {
        return InclusiveScan(storage, size, in, out, cub::Sum(), n, stream);
    }
    template <class In, class Out>
    static cudaError_t ExclusiveSum(void *storage, size_t &size, In in, Out out, int n,
                                    cudaStream_t stream = nullptr, bool = false)
    {
        return ExclusiveScan(storage, size, in, out, cub::Sum(), details::value_of<Out>(),
                             n, stream);
    }
};

struct DeviceRadixSort {
    template <class K>
    static cudaError_t SortKeys(void *storage, size_t &size, const K *in, K *out, int n,
                                int begin = 0, int end = sizeof(K) * 8,
                                cudaStream_t stream = nullptr, bool = false)
    {
        return run<K, NullType>(storage, size, in, out, nullptr, nullptr, n, false, begin,
                                end, stream);
    }
    template <class K>
    static cudaError_t SortKeysDescending(void *storage, size_t &size, const K *in,
                                          K *out, int n, int begin = 0,
                                          int end = sizeof(K) * 8,
                                          cudaStream_t stream = nullptr, bool = false)
    {
        return run<K, NullType>(storage, size, in, out, nullptr, nullptr, n, true, begin,
                                end, stream);
    }
    template <class K, class V>
    static cudaError_t SortPairs(void *storage, size_t &size, const K *in, K *out,
                                 const V *values, V *values_out, int n, int begin = 0,
                                 int end = sizeof(K) * 8, cudaStream_t stream = nullptr,
                                 bool = false)
    {
        return run(storage, size, in, out, values, values_out, n, false, begin, end,
                   stream);
    }
    template <class K, class V>
    static cudaError_t SortPairsDescending(void *storage, size_t &size, const K *in,
                                           K *out, const V *values, V *values_out, int n,
                                           int begin = 0, int end = sizeof(K) * 8,
                                           cudaStream_t stream = nullptr, bool = false)
    {
        return run(storage, size, in, out, values, values_out, n, true, begin, end,
                   stream);
    }
    template <class K, class V>
    static cudaError_t SortPairs(void *storage, size_t &size, DoubleBuffer<K> &keys,
                                 DoubleBuffer<V> &values, int n, int begin = 0,
                                 int end = sizeof(K) * 8, cudaStream_t stream = nullptr,
                                 bool = false)
    {
        USC_CUB_ASKED;
        const cudaError_t code = run(storage, size, (const K *)keys.Current(),
                                     keys.Alternate(), (const V *)values.Current(),
                                     values.Alternate(), n, false, begin, end, stream);
        keys.selector ^= 1;
        values.selector ^= 1;
        return code;
    }

  private:
    template <class K, class V>
    static cudaError_t run(void *storage, size_t &size, const K *in, K *out,
                           const V *values, V *values_out, int n, bool down, int begin,
                           int end, cudaStream_t stream)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::sort, stream, in, out, values, values_out, (long long)n,
                    down, begin, end);
    }
};

struct DeviceSegmentedRadixSort {
    template <class K, class V, class Offsets>
    static cudaError_t SortPairs(void *storage, size_t &size, const K *in, K *out,
                                 const V *values, V *values_out, int, int n_segments,
                                 Offsets first, Offsets last, int begin = 0,
                                 int end = sizeof(K) * 8, cudaStream_t stream = nullptr,
                                 bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::sort_segments, stream, in, out, values, values_out,
                    n_segments, first, last, false, begin, end);
    }
    template <class K, class V, class Offsets>
    static cudaError_t SortPairsDescending(void *storage, size_t &size, const K *in,
                                           K *out, const V *values, V *values_out, int,
                                           int n_segments, Offsets first, Offsets last,
                                           int begin = 0, int end = sizeof(K) * 8,
                                           cudaStream_t stream = nullptr, bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::sort_segments, stream, in, out, values, values_out,
                    n_segments, first, last, true, begin, end);
    }
};

struct DeviceSelect {
    template <class In, class Flags, class Out, class Count>
    static cudaError_t Flagged(void *storage, size_t &size, In in, Flags flags, Out out,
                               Count count, int n, cudaStream_t stream = nullptr,
                               bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::flagged, stream, in, flags, out, count, (long long)n);
    }
    template <class In, class Out, class Count, class Keep>
    static cudaError_t If(void *storage, size_t &size, In in, Out out, Count count, int n,
                          Keep keep, cudaStream_t stream = nullptr, bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::select, stream, in, out, count, (long long)n, keep);
    }
    template <class In, class Out, class Count>
    static cudaError_t Unique(void *storage, size_t &size, In in, Out out, Count count,
                              int n, cudaStream_t stream = nullptr, bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::unique, stream, in, out, count, (long long)n);
    }
};

struct DeviceRunLengthEncode {
    template <class In, class Out, class Lengths, class Count>
    static cudaError_t Encode(void *storage, size_t &size, In in, Out out,
                              Lengths lengths, Count count, int n,
                              cudaStream_t stream = nullptr, bool = false)
    {
        USC_CUB_ASKED;
        USC_CUB_RUN(details::encode, stream, in, out, lengths, count, (long long)n);
    }
};

#undef USC_CUB_RUN
#undef USC_CUB_ASKED

} // namespace cub
