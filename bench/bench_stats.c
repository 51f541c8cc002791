// SPDX-License-Identifier: Apache-2.0
// Speed of usc_stats_compute() on one core beside a plain sum of the same memory and
// memcpy. Prints GB/s of bytes read, best of several runs. Usage: bench_stats [MiB]
#include <ulpscope/stats.h>
#include <ulpscope/x/kernels.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_RUNS = 15 };

typedef struct work {
    usc_tensor tensor;
    char *bytes; /* of the tensor */
    usc_stats_options options;
    unsigned char *copy;
    size_t size;
    uint64_t sink; /* keeps results in use */
} work;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void do_stats(work *w)
{
    usc_stats stats;
    if (usc_stats_compute(&w->tensor, &w->options, &stats, NULL) != USC_OK) exit(2);
    w->sink += (uint64_t)stats.n_zero;
}

static void do_sum(work *w)
{
    const uint64_t *words = w->tensor.data;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i + 4 <= w->size / 8; i += 4) {
        a += words[i];
        b += words[i + 1];
        c += words[i + 2];
        d += words[i + 3];
    }
    w->sink += a + b + c + d;
}

static void do_copy(work *w)
{
    memcpy(w->copy, w->tensor.data, w->size);
    w->sink += w->copy[w->size / 2];
}

static double best_speed(work *w, void (*run)(work *))
{
    double best = 1e30;
    for (int i = 0; i < N_RUNS; i++) {
        const int n_calls = 1 + (int)((32u << 20) / w->size);
        const double start = now();
        for (int k = 0; k < n_calls; k++)
            run(w);
        const double seconds = (now() - start) / n_calls;
        if (seconds < best) best = seconds;
    }
    return (double)w->size / best / 1e9;
}

static void bench_dtype(work *w, usc_dtype dtype)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    const int64_t n = (int64_t)(w->size / info->size);
    double wide[64];
    uint64_t seed = 1;
    for (int64_t i = 0; i < n; i += 64) {
        for (int k = 0; k < 64; k++) { /* roughly normal: a sum of four uniforms */
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            wide[k] = ((double)(seed >> 48 & 255) + (double)(seed >> 40 & 255) +
                       (double)(seed >> 56) + (double)(seed >> 32 & 255) - 510.3) /
                      147.0;
        }
        usc_dtype_narrow(dtype, wide, w->bytes + (size_t)i * info->size, 64);
    }
    if (usc_tensor_make(&w->tensor, w->tensor.data, dtype, 1, &n, NULL) != USC_OK)
        exit(2);
    const char *const levels[] = {"scalar", "avx2"};
    for (int i = 0; i < 2; i++) {
        if (usc_kernels_select(levels[i], NULL) != USC_OK) continue;
        w->options = (usc_stats_options){0};
        const double all = best_speed(w, do_stats);
        w->options.no_histogram = true;
        printf("stats %-9s %-6s   %6.2f GB/s, without histogram %6.2f\n", info->name,
               levels[i], all, best_speed(w, do_stats));
    }
}

int main(int argc, char **argv)
{
    const long mib = argc > 1 ? strtol(argv[1], NULL, 10) : 4;
    if (mib < 1 || mib > 4096) {
        fputs("usage: bench_stats [MiB, 1 to 4096]\n", stderr);
        return 2;
    }
    work w = {.size = (size_t)mib << 20};
    w.tensor.data = w.bytes = calloc(1, w.size);
    w.copy = calloc(1, w.size);
    if (w.tensor.data == NULL || w.copy == NULL) return 2;
    printf("%ld MiB, one thread\n", mib);
    const usc_dtype dtypes[] = {USC_F32, USC_BF16, USC_F16, USC_F64, USC_I64};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        bench_dtype(&w, dtypes[i]);
    printf("memory sum                %6.2f GB/s\n", best_speed(&w, do_sum));
    printf("memcpy                    %6.2f GB/s\n", best_speed(&w, do_copy));
    free(w.bytes);
    free(w.copy);
    return w.sink == 42; /* never; keeps the work from being left out */
}
