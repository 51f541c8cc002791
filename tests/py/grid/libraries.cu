// SPDX-License-Identifier: Apache-2.0
// cub, cooperative groups and curand's functions for kernels, tried one after the other:
// built without torch, run by tests/py/test_grid_headers.py. Prints what is not as it should
// be.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cub/block/block_reduce.cuh>
#include <cub/cub.cuh>
#include <cuda_runtime.h>
#include <curand_kernel.h>

#include <cstdlib>
#include <numeric>
#include <vector>

namespace cg = cooperative_groups;

#define CHECK(c)                                                                         \
    do {                                                                                 \
        if (!(c)) printf("line %d: %s\n", __LINE__, #c);                                 \
    } while (0)

template <class T> struct Buffer {
    T *at = nullptr;
    size_t n;
    explicit Buffer(size_t n_) : n(n_)
    {
        CHECK(cudaMalloc(&at, n * sizeof(T)) == cudaSuccess);
        CHECK(cudaMemset(at, 0, n * sizeof(T)) == cudaSuccess);
    }
    explicit Buffer(const std::vector<T> &v) : Buffer(v.size())
    {
        cudaMemcpy(at, v.data(), n * sizeof(T), cudaMemcpyHostToDevice);
    }
    ~Buffer()
    {
        cudaFree(at);
    }
    std::vector<T> host() const
    {
        std::vector<T> v(n);
        if (cudaDeviceSynchronize() != cudaSuccess)
            printf("%s\n", cudaGetErrorString(cudaGetLastError()));
        cudaMemcpy(v.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost);
        return v;
    }
};

// ---- cub, block and warp

typedef cub::BlockReduce<float, 128> Reduce;
typedef cub::BlockScan<int, 128> Scan;

__global__ void block_sums(const float *in, float *out, int *scanned, int n)
{
    __shared__ typename Reduce::TempStorage room;
    __shared__ union {
        Scan::TempStorage scan;
        Reduce::TempStorage reduce;
    } more;
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    const float sum = Reduce(room).Sum(i < n ? in[i] : 0.f);
    const float most = Reduce(more.reduce).Reduce(i < n ? in[i] : 0.f, cub::Max());
    __syncthreads();
    int before, all, inclusive;
    Scan(more.scan).ExclusiveSum(t % 3, before, all);
    __syncthreads();
    Scan(more.scan).InclusiveSum(t % 3, inclusive);
    if (i < n) scanned[i] = before + 1000 * all + 1000000 * (inclusive - before == t % 3);
    __syncthreads();
    const float few = Reduce(room).Sum(1.f, 10);
    if (t == 0) {
        out[3 * blockIdx.x] = sum;
        out[3 * blockIdx.x + 1] = most;
        out[3 * blockIdx.x + 2] = few;
    }
}

static void test_blocks()
{
    const int n = 300;
    std::vector<float> in((size_t)n);
    for (int i = 0; i < n; i++)
        in[(size_t)i] = (float)(i * 7 % 101);
    Buffer<float> x(in), out(9);
    Buffer<int> scanned((size_t)n);
    block_sums<<<3, 128>>>(x.at, out.at, scanned.at, n);
    const auto o = out.host();
    const auto s = scanned.host();
    for (int b = 0; b < 3; b++) {
        float sum = 0, most = 0;
        for (int i = 128 * b; i < n && i < 128 * (b + 1); i++) {
            sum += in[(size_t)i];
            most = most < in[(size_t)i] ? in[(size_t)i] : most;
        }
        CHECK(o[3 * (size_t)b] == sum && o[3 * (size_t)b + 1] == most);
        CHECK(o[3 * (size_t)b + 2] == 10);
    }
    for (int i = 0, before = 0; i < 128; before += i % 3, i++)
        CHECK(s[(size_t)i] == before + 127000 + 1000000);
}

struct Running {
    int total;
    __device__ int operator()(int block)
    {
        const int before = total;
        total += block;
        return before;
    }
};

__global__ void items(const int *in, int *sums, int *sorted, int *places, int *running)
{
    typedef cub::BlockLoad<int, 32, 4, cub::BLOCK_LOAD_VECTORIZE> Load;
    typedef cub::BlockStore<int, 32, 4> Store;
    typedef cub::BlockRadixSort<int, 32, 4, int> Sort;
    typedef cub::BlockScan<int, 32> Prefix;
    __shared__ typename Load::TempStorage load;
    __shared__ typename Store::TempStorage store;
    __shared__ typename Sort::TempStorage sort;
    __shared__ typename Prefix::TempStorage prefix;
    int own[4], sum[4], where[4];
    Load(load).Load(in, own, 126, -1);
    Prefix(prefix).InclusiveSum(own, sum);
    Store(store).Store(sums, sum);
    for (int i = 0; i < 4; i++)
        where[i] = threadIdx.x * 4 + i;
    Sort(sort).SortDescending(own, where);
    Store(store).Store(sorted, own);
    Store(store).Store(places, where, 128);
    Running run{100};
    for (int round = 0; round < 2; round++) {
        int out;
        __syncthreads();
        Prefix(prefix).ExclusiveSum(1, out, run);
        running[round * 32 + threadIdx.x] = out;
    }
}

static void test_items()
{
    std::vector<int> in(128);
    for (int i = 0; i < 128; i++)
        in[(size_t)i] = i * 37 % 64 - 20;
    Buffer<int> x(in), sums(128), sorted(128), places(128), running(64);
    items<<<1, 32>>>(x.at, sums.at, sorted.at, places.at, running.at);
    in[126] = in[127] = -1;
    const auto s = sums.host(), o = sorted.host(), p = places.host(), r = running.host();
    for (size_t i = 0; i < 128; i++) {
        CHECK(s[i] == std::accumulate(in.begin(), in.begin() + (long)i + 1, 0));
        CHECK(o[i] == in[(size_t)p[i]]);
        CHECK(i == 0 || o[i - 1] > o[i] || (o[i - 1] == o[i] && p[i - 1] < p[i]));
    }
    for (int i = 0; i < 64; i++)
        CHECK(r[(size_t)i] == 100 + i);
}

struct Wide {
    double a, b;
};
struct Add {
    __device__ Wide operator()(const Wide &x, const Wide &y) const
    {
        return {x.a + y.a, x.b + y.b};
    }
};

__global__ void warp_sums(int *out)
{
    typedef cub::WarpReduce<Wide> Sum;
    typedef cub::WarpScan<int, 16> Prefix;
    __shared__ Sum::TempStorage room[8];
    __shared__ Prefix::TempStorage scan[8];
    const int t = threadIdx.x, w = t / warpSize;
    const Wide sum = Sum(room[w]).Reduce(Wide{1. * t, 1}, Add());
    int before;
    Prefix(scan[w]).ExclusiveSum(t % 16, before);
    out[t] = before;
    if (t % 32 == 0) out[128 + t / 32] = (int)(sum.a + 1000 * sum.b);
}

static void test_warps()
{
    Buffer<int> out(132);
    warp_sums<<<1, 128>>>(out.at);
    const auto o = out.host();
    for (int i = 0; i < 128; i++)
        CHECK(o[(size_t)i] == (i % 16) * (i % 16 - 1) / 2);
    for (int w = 0; w < 4; w++)
        CHECK(o[128 + (size_t)w] == 32 * 32 * w + 31 * 16 + 32000);
}

// ---- cub, whole arrays

template <class Call> static void with_storage(Call call)
{
    size_t size = 0;
    void *storage = nullptr;
    CHECK(call(storage, size) == cudaSuccess && size > 0);
    CHECK(cudaMalloc(&storage, size) == cudaSuccess);
    if (call(storage, size) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess)
        printf("%s\n", cudaGetErrorString(cudaGetLastError()));
    cudaFree(storage);
}

static void test_arrays()
{
    const int n = 1000;
    std::vector<float> in((size_t)n);
    for (int i = 0; i < n; i++)
        in[(size_t)i] = (float)(i * 613 % 997) - 400;
    std::vector<int> number((size_t)n);
    std::iota(number.begin(), number.end(), 0);
    Buffer<float> x(in), y((size_t)n), one(3);
    Buffer<int> v(number), w((size_t)n), count(1);
    Buffer<cub::KeyValuePair<int, float>> most(1);

    with_storage([&](void *s, size_t &size) {
        return cub::DeviceReduce::Sum(s, size, x.at, one.at, n);
    });
    with_storage([&](void *s, size_t &size) {
        return cub::DeviceReduce::Max(s, size, x.at, one.at + 1, n);
    });
    with_storage([&](void *s, size_t &size) {
        return cub::DeviceReduce::Min(s, size, x.at, one.at + 2, n);
    });
    with_storage([&](void *s, size_t &size) {
        return cub::DeviceReduce::ArgMax(s, size, x.at, most.at, n);
    });
    const auto o = one.host();
    CHECK(o[0] == std::accumulate(in.begin(), in.end(), 0.f));
    const auto top = std::max_element(in.begin(), in.end());
    CHECK(o[1] == *top && o[2] == *std::min_element(in.begin(), in.end()));
    CHECK(most.host()[0].key == top - in.begin() && most.host()[0].value == *top);

    with_storage([&](void *s, size_t &size) {
        return cub::DeviceScan::InclusiveSum(s, size, v.at, w.at, n);
    });
    CHECK(w.host()[999] == 999 * 500);
    with_storage([&](void *s, size_t &size) {
        return cub::DeviceScan::ExclusiveSum(s, size, v.at, w.at, n);
    });
    CHECK(w.host()[0] == 0 && w.host()[999] == 999 * 499);

    with_storage([&](void *s, size_t &size) {
        return cub::DeviceRadixSort::SortPairsDescending(s, size, x.at, y.at, v.at, w.at,
                                                         n);
    });
    const auto sorted = y.host();
    const auto from = w.host();
    for (size_t i = 0; i < (size_t)n; i++) {
        CHECK(sorted[i] == in[(size_t)from[i]]);
        CHECK(i == 0 || sorted[i - 1] > sorted[i] ||
              (sorted[i - 1] == sorted[i] && from[i - 1] < from[i]));
    }
    with_storage([&](void *s, size_t &size) {
        return cub::DeviceRadixSort::SortKeys(s, size, v.at, w.at, n, 0, 4);
    });
    for (size_t i = 1; i < (size_t)n; i++) /* four bits alone: those stay in order */
        CHECK((w.host()[i - 1] & 15) <= (w.host()[i] & 15));

    const auto odd = [] __device__(const int &i) { return i % 2 == 1; };
    with_storage([&](void *s, size_t &size) {
        return cub::DeviceSelect::If(s, size, v.at, w.at, count.at, n, odd);
    });
    CHECK(count.host()[0] == 500 && w.host()[499] == 999);
    cub::CountingInputIterator<int> numbers(5);
    with_storage([&](void *s, size_t &size) {
        return cub::DeviceReduce::Sum(s, size, numbers, w.at, 4);
    });
    CHECK(w.host()[0] == 26);
}

// ---- cooperative groups

__global__ void groups(int *out)
{
    __shared__ int room[64];
    const cg::thread_block block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<8>(block);
    const int t = block.thread_rank();
    room[t] = t;
    block.sync();
    int ok = room[63 - t] == 63 - t && block.size() == 64;
    ok += tile.size() == 8 && (int)tile.thread_rank() == t % 8;
    ok += (int)tile.meta_group_rank() == t / 8 && tile.meta_group_size() == 8;
    ok += tile.shfl(t, 3) == t / 8 * 8 + 3 && tile.shfl_xor(t, 1) == (t ^ 1);
    ok += tile.shfl_down(t, 2) == (t % 8 < 6 ? t + 2 : t);
    ok += tile.ballot(t % 2) == 0xaa && tile.any(t % 8 == 7) && !tile.all(t % 8 == 7);
    ok += cg::reduce(tile, t, cg::plus<int>()) == 8 * (t / 8 * 8) + 28;
    ok += cg::reduce(tile, t % 5, cg::greater<int>()) == 4;
    if (t % 4 == 1) {
        const auto some = cg::coalesced_threads();
        ok += some.size() == warpSize / 4 && some.shfl(t, 0) % warpSize == 1;
        ok += (int)some.thread_rank() == t % warpSize / 4;
    } else {
        ok += 2;
    }
    const cg::thread_group any = cg::tiled_partition(block, 16);
    any.sync();
    ok += any.size() == 16 && (int)any.thread_rank() == t % 16;
    block.sync();
    cg::memcpy_async(block, room, out, sizeof(int) * 64);
    cg::wait(block);
    ok += room[63 - t] == 0;
    cg::sync(block);
    out[t] = ok;
}

static void test_groups()
{
    Buffer<int> out(64);
    groups<<<1, 64>>>(out.at);
    for (const int ok : out.host())
        CHECK(ok == 12);
}

// ---- curand

__global__ void draws(unsigned *words, float *values, int n)
{
    curandStatePhilox4_32_10_t a, b, c;
    curand_init(0, 0, 0, &a);
    for (int i = 0; i < 4; i++)
        words[i] = curand(&a);
    curand_init(0, 0, 6, &b); // two blocks of four words on, and two words
    curand_init(0, 0, 0, &c);
    for (int i = 0; i < 6; i++)
        (void)curand(&c);
    words[4] = curand(&b);
    words[5] = curand(&c);
    curand_init(7, 3, 0, &a);
    for (int i = 0; i < n; i += 4) {
        const float4 v = curand_uniform4(&a);
        values[i] = v.x;
        values[i + 1] = v.y;
        values[i + 2] = v.z;
        values[i + 3] = v.w;
    }
    for (int i = 0; i < n; i++)
        values[n + i] = curand_normal(&a);
}

static void test_draws()
{
    const int n = 4000;
    Buffer<unsigned> words(6);
    Buffer<float> values(2 * (size_t)n);
    draws<<<1, 1>>>(words.at, values.at, n);
    const auto w = words.host();
    // Of the generator's own test vectors: key and counter 0.
    CHECK(w[0] == 0x6627e8d5u && w[1] == 0xe169c58du && w[2] == 0xbc57ac4cu);
    CHECK(w[3] == 0x9b00dbd8u && w[4] == w[5]);
    const auto v = values.host();
    double mean = 0, square = 0, normal = 0, variance = 0;
    for (size_t i = 0; i < (size_t)n; i++) {
        CHECK(v[i] > 0 && v[i] <= 1);
        mean += v[i] / n;
        square += (double)v[i] * v[i] / n;
        normal += v[(size_t)n + i] / n;
        variance += (double)v[(size_t)n + i] * v[(size_t)n + i] / n;
    }
    CHECK(fabs(mean - 0.5) < 0.02 && fabs(square - 1. / 3) < 0.02);
    CHECK(fabs(normal) < 0.06 && fabs(variance - 1) < 0.1);
}

int main()
{
    test_blocks();
    test_items();
    test_warps();
    test_arrays();
    test_groups();
    test_draws();
    const cudaError_t last = cudaDeviceSynchronize();
    if (last != cudaSuccess) printf("%s\n", cudaGetErrorString(last));
    printf("done, warps of %d\n", warpSize);
    return 0;
}
