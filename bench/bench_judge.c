// SPDX-License-Identifier: Apache-2.0
// Speed of the judge on one core: replay, first look and appeal, in ns per element, GB/s
// over the operands each reads, and as a fraction of a plain sum over the same bytes in
// the same run. Usage: bench_judge [MIB_OF_FLOAT32] [THREADS]
#include <ulpscope/judge.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct operands {
    usc_dtype dtype;
    int64_t n;
    void *d;
    double *r, *rk;
    float *y, *yk;
} operands;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void need(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "bench_judge: %s\n", what);
    exit(2);
}

static double random_unit(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

/* An honest kernel whose float32 intermediate is off by up to two roundings. */
static operands make(usc_dtype dtype, int64_t n)
{
    const size_t size = usc_dtype_info_of(dtype)->size;
    operands o = {.dtype = dtype, .n = n};
    o.d = malloc((size_t)n * size);
    o.r = malloc((size_t)n * sizeof(double));
    o.rk = malloc((size_t)n * sizeof(double));
    o.y = malloc((size_t)n * sizeof(float));
    o.yk = malloc((size_t)n * sizeof(float));
    need(o.d && o.r && o.rk && o.y && o.yk, "no memory");
    uint64_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        const double x = random_unit(&state) * 4 - 2;
        const double d = x * (1 + (random_unit(&state) - 0.5) * 0x1p-22);
        o.r[i] = x;
        o.y[i] = (float)x;
        o.rk[i] = x * (1 + (i % 2 ? 0x1p-20 : -0x1p-20));
        o.yk[i] = (float)o.rk[i];
        usc_dtype_narrow(dtype, &d, (char *)o.d + (size_t)i * size, 1);
    }
    return o;
}

static usc_tensor view(void *data, usc_dtype dtype, int64_t n)
{
    usc_tensor t;
    need(usc_tensor_make(&t, data, dtype, 1, &n, NULL) == USC_OK, "bad view");
    return t;
}

/* Eight sums over the bytes as 64-bit words: what the memory gives. */
static uint64_t sum_bytes(const void *data, size_t bytes)
{
    uint64_t lanes[8] = {0};
    const unsigned char *at = data;
    for (size_t i = 0; i + 64 <= bytes; i += 64) {
        uint64_t words[8];
        memcpy(words, at + i, 64);
        for (int k = 0; k < 8; k++)
            lanes[k] += words[k];
    }
    uint64_t sum = 0;
    for (int k = 0; k < 8; k++)
        sum += lanes[k];
    return sum;
}

static volatile uint64_t sink;

/* Seconds for a plain sum over D, R and two float arrays, and optionally Y. */
static double time_sum(const operands *o, bool with_y)
{
    const double start = now();
    const size_t n = (size_t)o->n;
    sink = sum_bytes(o->d, n * usc_dtype_info_of(o->dtype)->size) +
           sum_bytes(o->r, n * 8) + sum_bytes(o->rk, n * 8);
    if (with_y) sink += sum_bytes(o->y, n * 4);
    return now() - start;
}

static void print_row(const operands *o, const char *what, double bytes, double seconds,
                      double plain)
{
    const double n = (double)o->n;
    printf("%-9s %-7s %8.2f %8.2f %10.0f %%\n", usc_dtype_info_of(o->dtype)->name, what,
           1e9 * seconds / n, bytes * n / seconds * 1e-9, 100 * plain / seconds);
}

static void measure(usc_dtype dtype, int64_t n, int n_threads)
{
    operands o = make(dtype, n);
    const usc_tensor d = view(o.d, dtype, n), r = view(o.r, USC_F64, n);
    const usc_tensor y = view(o.y, USC_F32, n), rk = view(o.rk, USC_F64, n);
    const usc_tensor yk = view(o.yk, USC_F32, n);
    const usc_judge_options options = {.n_threads = n_threads};
    const usc_appeal appeal = {.fan_in = 16};
    const double size = (double)usc_dtype_info_of(dtype)->size;
    usc_judge *judge = NULL;
    usc_judgement v;
    need(usc_judge_open(&d, &r, &y, &options, &judge, NULL) == USC_OK, "open");
    need(usc_judge_replay(judge, &rk, &yk, NULL) == USC_OK, "replay");
    double best[5] = {1e9, 1e9, 1e9, 1e9, 1e9};
    for (int round = 0; round < 5; round++) {
        double t[6];
        t[0] = now();
        need(usc_judge_replay(judge, &rk, &yk, NULL) == USC_OK, "replay");
        t[1] = now();
        need(usc_judge_look(judge, &v, NULL) == USC_OK, "look");
        t[2] = now();
        need(!v.needs_appeal, "an honest output that needs an appeal");
        need(usc_judge_appeal(judge, &appeal, &v, NULL) == USC_OK, "appeal");
        t[3] = now();
        const double spent[] = {t[1] - t[0], t[2] - t[1], t[3] - t[2],
                                time_sum(&o, false), time_sum(&o, true)};
        for (int i = 0; i < 5; i++)
            best[i] = fmin(best[i], spent[i]);
    }
    print_row(&o, "sum", size + 16, best[3], best[3]);
    print_row(&o, "look", size + 16, best[1], best[3]);
    print_row(&o, "appeal", size + 20, best[2], best[4]);
    /* a replay also reads and writes accumulators: bytes read are counted */
    print_row(&o, "replay", size + 8 + 8 + 4 + 8 + 1, best[0], best[4]);
    usc_judge_close(judge);
    free(o.d);
    free(o.r);
    free(o.rk);
    free(o.y);
    free(o.yk);
}

int main(int argc, char **argv)
{
    const int64_t mib = argc > 1 ? atoll(argv[1]) : 64;
    const int n_threads = argc > 2 ? atoi(argv[2]) : 1;
    const int64_t n = mib * 1024 * 1024 / 4;
    const usc_dtype dtypes[] = {USC_F32, USC_BF16, USC_F16};
    printf("%lld elements, threads: %d\n", (long long)n, n_threads);
    printf("output    pass     ns/elem     GB/s  of a plain sum\n");
    for (size_t i = 0; i < 3; i++)
        measure(dtypes[i], n, n_threads);
    return 0;
}
