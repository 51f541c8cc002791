// SPDX-License-Identifier: Apache-2.0
// What kernels may use, tried one after the other: built without torch, run by
// tests/py/test_grid_headers.py. Prints what is not as it should be.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdlib>

#define CHECK(c)                                                                         \
    do {                                                                                 \
        if (!(c)) printf("line %d: %s\n", __LINE__, #c);                                 \
    } while (0)

template <class T> struct Buffer {
    T *at = nullptr;
    int n;
    explicit Buffer(int n_) : n(n_)
    {
        CHECK(cudaMalloc(&at, n * sizeof(T)) == cudaSuccess);
        CHECK(cudaMemset(at, 0, n * sizeof(T)) == cudaSuccess);
    }
    ~Buffer()
    {
        cudaFree(at);
    }
    T operator[](int i) const
    {
        T v;
        cudaMemcpy(&v, at + i, sizeof v, cudaMemcpyDeviceToHost);
        return v;
    }
};

// ---- places and shapes

__global__ void places(int *out)
{
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread =
        threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] += thread + 100 * block;
}

static void test_places()
{
    Buffer<int> out(2 * 3 * 2 * 24);
    const dim3 grid(2, 3, 2), block(4, 3, 2);
    places<<<grid, block>>>(out.at);
    for (int i = 0; i < out.n; i++)
        CHECK(out[i] == i % 24 + 100 * (i / 24));
}

// ---- barriers

__global__ void counting(int *out)
{
    const int t = threadIdx.x;
    if (t == 63) return; // one that has ended is not waited for
    const int n = __syncthreads_count(t < 10);
    out[t] = n + 100 * __syncthreads_and(t < 64) + 1000 * __syncthreads_or(t == 5);
}

static void test_barriers()
{
    Buffer<int> out(64);
    counting<<<1, 64>>>(out.at);
    CHECK(out[0] == 1110 && out[62] == 1110 && out[63] == 0);
}

// ---- shared memory

extern __shared__ int outside[];

template <typename T, int N> __global__ void reverses(T *x)
{
    __shared__ T tile[N];
    extern __shared__ __align__(8) char room[];
    T *more = reinterpret_cast<T *>(room);
    tile[threadIdx.x] = x[threadIdx.x];
    more[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[N - 1 - threadIdx.x] + more[N - 1 - threadIdx.x];
}

__global__ void by_name(int *x)
{
    outside[threadIdx.x] = x[threadIdx.x] + 1;
    __syncthreads();
    x[threadIdx.x] = outside[blockDim.x - 1 - threadIdx.x];
}

__global__ void numbers(int *x)
{
    x[threadIdx.x] = threadIdx.x;
}

static void test_shared()
{
    Buffer<int> x(64);
    numbers<<<1, 64>>>(x.at);
    reverses<int, 64><<<1, 64, 64 * sizeof(int)>>>(x.at);
    CHECK(x[0] == 126 && x[63] == 0);
    by_name<<<1, 64, 64 * sizeof(int)>>>(x.at);
    CHECK(x[0] == 1 && x[63] == 127);
    cudaFuncSetAttribute(reverses<int, 64>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         60000);
    reverses<int, 64><<<1, 64, 60000>>>(x.at);
    CHECK(x[63] == 2);
}

// ---- a parameter of any type is no promise to read alone

template <class In, class Out> __global__ void copies(In in, Out out)
{
    out[threadIdx.x] = in[threadIdx.x];
}

static void test_any_type()
{
    Buffer<int> x(8), y(8);
    numbers<<<1, 8>>>(x.at);
    copies<<<1, 8>>>((const int *)x.at, y.at);
    CHECK(y[7] == 7);
}

// ---- warps

__global__ void shuffles(int *out)
{
    const int t = threadIdx.x, lane = t % warpSize;
    const usc_grid_mask all = (usc_grid_mask)~0ull;
    int ok = __shfl_sync(all, t, 3) == t - lane + 3;
    ok += __shfl_sync(all, t, 9, 8) == t - lane % 8 + 1;
    ok += __shfl_up_sync(all, t, 2) == (lane < 2 ? t : t - 2);
    ok += __shfl_down_sync(all, t, 2u, 16) == (lane % 16 > 13 ? t : t + 2);
    ok += __shfl_xor_sync(all, 1.5 * t, 1) == 1.5 * (t ^ 1);
    ok += __shfl_xor(t, 4) == (t ^ 4);
    ok += __popcll(__ballot_sync(all, lane % 4 == 0)) == warpSize / 4;
    ok += __any_sync(all, lane == 7) && !__any_sync(all, lane == 99);
    ok += __all_sync(all, lane < 99) && !__all_sync(all, lane > 0);
    ok += __popcll(__match_any_sync(all, lane / 2)) == 2;
    ok += __reduce_add_sync(all, lane) == warpSize * (warpSize - 1) / 2;
    ok += __reduce_min_sync(all, lane - 5) == -5;
    int same;
    ok += __match_all_sync(all, 3.0f, &same) == all && same;
    __syncwarp();
    if (lane < 5) { // those that are here
        const usc_grid_mask here = __activemask();
        ok += here == 31;
        ok += __shfl_sync(here, t, 4) == t - lane + 4;
        __syncwarp(here);
    } else {
        ok += 2;
    }
    out[t] = ok;
}

static void test_warps()
{
    Buffer<int> out(128);
    shuffles<<<1, 128>>>(out.at);
    for (int i = 0; i < 128; i++)
        CHECK(out[i] == 15);
}

// ---- atomics

__global__ void counts(int *n, unsigned *u, float *f, double *d, __half *h,
                       unsigned long long *big)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(n, 1);
    atomicMax(n + 1, t);
    atomicMin(n + 2, -t);
    atomicOr(n + 3, 1 << t % 8);
    atomicXor(n + 4, t);
    atomicSub_block(n + 5, 2);
    atomicCAS(n + 6, t, t + 1);
    atomicExch(n + 7, 9);
    atomicInc(u, 6);
    atomicDec(u + 1, 4);
    atomicAnd(u + 2, ~(1u << t % 3));
    atomicAdd(f, 0.5f);
    atomicAdd_system(d, 0.25);
    atomicAdd(h, __float2half(1.0f));
    atomicAdd(big, 1ull << 40);
}

static void test_atomics()
{
    Buffer<int> n(8);
    Buffer<unsigned> u(3);
    Buffer<float> f(1);
    Buffer<double> d(1);
    Buffer<__half> h(1);
    Buffer<unsigned long long> big(1);
    counts<<<2, 50>>>(n.at, u.at, f.at, d.at, h.at, big.at);
    CHECK(n[0] == 100 && n[1] == 99 && n[2] == -99 && n[3] == 255 && n[4] == 0);
    CHECK(n[5] == -200 && n[6] == 100 && n[7] == 9);
    CHECK(u[0] == 100 % 7 && u[1] == 0 && u[2] == 0);
    CHECK(f[0] == 50 && d[0] == 25 && (float)h[0] == 100 && big[0] == 100ull << 40);
}

// ---- types

__constant__ float weights[4];
__device__ int counter;

__global__ void types(const float4 *v, float *out)
{
    const float4 x = __ldg(v);
    const float2 y = make_float2(x.x, x.y);
    out[0] =
        x.x * weights[0] + x.y * weights[1] + x.z * weights[2] + x.w * weights[3] + y.y;
    out[1] = __half2float(__hadd(__float2half(1.0f), __float2half(0x1p-11f)));
    out[2] =
        __half2float(__hfma(__float2half(3.0f), __float2half(5.0f), __float2half(1.0f)));
    const __half2 two = __hmul2(__floats2half2_rn(1.5f, -2.0f), __float2half2_rn(2.0f));
    out[3] = __low2float(two) + 10 * __high2float(two);
    out[4] = __bfloat162float(__float2bfloat16(1.00390625f)); // a tie goes to even
    out[5] = (float)(half(70000.0f));
    out[6] = (float)(half(1e-7f) + half(0));
    out[7] = max(1, 2.5f) + min(3u, 7) + rsqrtf(4.0f) + __expf(0.0f);
    out[8] =
        (half(1.0f) < half(2.0f)) + __hgt(half(3.0f), half(2.0f)) + __clz(1) + __ffs(8);
    out[9] = __int_as_float(__float_as_int(1.25f)) + __popc(255u) + (float)__brev(1u);
    atomicAdd(&counter, 1);
}

static void test_types()
{
    Buffer<float4> v(1);
    Buffer<float> out(10);
    const float4 one = make_float4(1, 2, 3, 4);
    const float w[4] = {1, 10, 100, 1000};
    cudaMemcpy(v.at, &one, sizeof one, cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(weights, w, sizeof w);
    types<<<1, 1>>>(v.at, out.at);
    CHECK(out[0] == 4321 + 2 && out[1] == 1 && out[2] == 16 && out[3] == 3 - 40);
    CHECK(out[4] == 1 && isinf(out[5]) && out[6] == 0x1p-23f);
    CHECK(out[7] == 2.5f + 3 + 0.5f + 1 && out[8] == 2 + 31 + 4);
    CHECK(out[9] == 1.25f + 8 + 2147483648.0f);
    int n = 0;
    cudaMemcpyFromSymbol(&n, counter, sizeof n);
    CHECK(n == 1);
}

// ---- every half there is

static void test_halves()
{
    for (unsigned bits = 0; bits < 65536; bits++) {
        __half h;
        h.bits = (uint16_t)bits;
        const __half again = __half((float)h);
        CHECK(again.bits == h.bits || __hisnan(h));
        __nv_bfloat16 b;
        b.bits = (uint16_t)bits;
        CHECK(__nv_bfloat16((float)b).bits == b.bits || __hisnan(b));
    }
}

// ---- kernels by their addresses

template <class T, int N> __global__ void times(const T *x, T *y, T more)
{
    y[threadIdx.x] = N * x[threadIdx.x] + more;
}

template <class T> static void *chosen(int n)
{
    if (n == 2) return (void *)times<T, 2>;
    return (void *)times<T, 3>;
}

static void test_addresses()
{
    const Buffer<int> x(4), y(4);
    const int values[] = {0, 1, 2, 3};
    int more = 7;
    cudaMemcpy(x.at, values, sizeof values, cudaMemcpyHostToDevice);
    void *args[] = {(void *)&x.at, (void *)&y.at, &more};
    for (int n = 2; n <= 3; n++) {
        void *kernel = chosen<int>(n);
        CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   60000) == cudaSuccess);
        CHECK(cudaLaunchKernel(kernel, 1, 4, args, 60000, nullptr) == cudaSuccess);
        CHECK(y[3] == 3 * n + 7);
    }
    CHECK(cudaLaunchKernel(times<int, 5>, 1, 4, args) == cudaSuccess && y[1] == 12);
    CHECK(cudaLaunchKernel(&more, 1, 4, args) != cudaSuccess); // nobody knows it
    const void *plain = (const void *)args; // no kernel
    CHECK(plain == args);
}

int main()
{
    usc_sim_set_launch_blocking(true);
    test_places();
    test_barriers();
    test_shared();
    test_any_type();
    test_warps();
    test_atomics();
    test_types();
    test_halves();
    test_addresses();
    printf("done, warps of %d\n", warpSize);
}
