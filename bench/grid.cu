// SPDX-License-Identifier: Apache-2.0
// The two kernels of bench_grid.py against loops in C++, in processor time.
#include <cuda_runtime.h>

#include <time.h>

enum { N = 10000000, THREADS = 256, EACH = 64, TURNS = 5 };

__global__ void saxpy(int n, float a, const float *x, float *y)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

/* 64 numbers for each thread, then a tree: 8 barriers between its levels. */
__global__ void block_sum(const float *x, float *out, int n)
{
    __shared__ float part[THREADS];
    const int first = blockIdx.x * THREADS * EACH, end = min(n, first + THREADS * EACH);
    float sum = 0.0f;
    for (int i = first + threadIdx.x; i < end; i += THREADS)
        sum += x[i];
    part[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

static double seconds()
{
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

template <class Work> static double best(Work work)
{
    double least = 1e9;
    for (int i = 0; i < TURNS; i++) {
        const double begin = seconds();
        work();
        least = std::min(least, seconds() - begin);
    }
    return least;
}

static __attribute__((noinline)) void saxpy_loop(int n, float a, const float *x, float *y)
{
    for (int i = 0; i < n; i++)
        y[i] = a * x[i] + y[i];
}

static __attribute__((noinline)) float sum_loop(const float *x, int n)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

int main()
{
    usc_sim_set_launch_blocking(true);
    std::vector<float> x(N, 0.5f), y(N, 0.25f);
    const int blocks = (N + THREADS * EACH - 1) / (THREADS * EACH);
    float *dx, *dy, *out;
    volatile float kept = 0;
    cudaMalloc(&dx, N * sizeof(float));
    cudaMalloc(&dy, N * sizeof(float));
    cudaMalloc(&out, blocks * sizeof(float));
    cudaMemcpy(dx, x.data(), N * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(dy, y.data(), N * sizeof(float), cudaMemcpyHostToDevice);
    const double grid = best(
        [&] { saxpy<<<(N + THREADS - 1) / THREADS, THREADS>>>(N, 0.5f, dx, dy); });
    usc_error err; // the loops read and write the same memory
    usc_grid_cxx::check(usc_sim_open(dx, USC_SIM_READ, &err), err);
    usc_grid_cxx::check(usc_sim_open(dy, USC_SIM_WRITE, &err), err);
    const double loop = best([&] { saxpy_loop(N, 0.5f, dx, dy); });
    const double tree = best([&] { block_sum<<<blocks, THREADS>>>(dx, out, N); });
    const double serial = best([&] { kept = sum_loop(dx, N); });
    printf("%g %g %g %g\n", grid, loop, tree, serial);
}
