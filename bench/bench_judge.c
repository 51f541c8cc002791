// SPDX-License-Identifier: Apache-2.0
// Speed of the judge on one core. "judge" is all that most honest outputs cost: open and
// look, over device, reference and yardstick; "first" is what the rest costs beside it:
// open, and look with the first replay, whose two results it reads as well. Then its
// parts where more replays follow, the appeal of an honest output and of one that fails
// everywhere, and perturbation. In ns per element, GB/s, and as a fraction of a plain sum
// over the same operands in the same run: least and median CPU time of some rounds (wall
// time where there are threads). ULPSCOPE_ISA chooses the instruction set. Usage:
// bench_judge [MIB_OF_FLOAT32] [THREADS]
#include <ulpscope/judge.h>
#include <ulpscope/x/kernels.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct operands {
    usc_dtype dtype;
    int64_t n;
    void *d, *spoiled;
    double *r, *rk, *moved;
    float *y, *yk;
} operands;

static clockid_t clock_used = CLOCK_THREAD_CPUTIME_ID;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(clock_used, &t);
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

/* An honest kernel whose float32 intermediate is off by up to two roundings, or a device
 * that computes with ten bits. */
static operands make(usc_dtype dtype, int64_t n)
{
    const size_t size = usc_dtype_info_of(dtype)->size;
    operands o = {.dtype = dtype, .n = n};
    o.d = malloc((size_t)n * size);
    o.spoiled = malloc((size_t)n * size);
    o.r = malloc((size_t)n * sizeof(double));
    o.rk = malloc((size_t)n * sizeof(double));
    o.moved = malloc((size_t)n * sizeof(double));
    o.y = malloc((size_t)n * sizeof(float));
    o.yk = malloc((size_t)n * sizeof(float));
    need(o.d && o.spoiled && o.r && o.rk && o.moved && o.y && o.yk, "no memory");
    uint64_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        const double x = random_unit(&state) * 4 - 2, noise = random_unit(&state) - 0.5;
        const double honest = x * (1 + noise * (dtype == USC_F64 ? 0x1p-51 : 0x1p-22)),
                     spoiled = x * (1 + noise * 0x1p-9);
        o.r[i] = x;
        o.y[i] = (float)x;
        o.rk[i] = x * (1 + (i % 2 ? 0x1p-20 : -0x1p-20));
        o.yk[i] = (float)o.rk[i];
        usc_dtype_narrow(dtype, &honest, (char *)o.d + (size_t)i * size, 1);
        usc_dtype_narrow(dtype, &spoiled, (char *)o.spoiled + (size_t)i * size, 1);
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

/* Seconds for a plain sum over D and R, and so many bytes an element of Y, R1 (or of S
 * and N, which are as large) and Y1. */
static double time_sum(const operands *o, size_t y, size_t rk, size_t yk)
{
    const double start = now();
    const size_t n = (size_t)o->n;
    sink = sum_bytes(o->d, n * usc_dtype_info_of(o->dtype)->size) +
           sum_bytes(o->r, n * 8) + sum_bytes(o->y, n * y) + sum_bytes(o->rk, n * rk) +
           sum_bytes(o->yk, n * yk);
    return now() - start;
}

enum {
    SUM_OPEN,
    JUDGE,
    SUM_ALL,
    FIRST,
    SUM,
    LOOK,
    SUM_APPEAL,
    APPEAL,
    FAIL,
    REPLAY,
    PERTURB,
    N_TIMED
};
enum { ROUNDS = 9 };

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct timings {
    double t[N_TIMED][ROUNDS];
} timings;

/* Bytes an element that each row reads; replays also read and write accumulators. */
static void print_rows(const operands *o, timings *all)
{
    const double n = (double)o->n, size = (double)usc_dtype_info_of(o->dtype)->size;
    const struct row {
        const char *what;
        double bytes;
        int timed, sum;
    } rows[] = {{"sum", size + 12, SUM_OPEN, SUM_OPEN},
                {"judge", size + 12, JUDGE, SUM_OPEN},
                {"sum", size + 24, SUM_ALL, SUM_ALL},
                {"first", size + 24, FIRST, SUM_ALL},
                {"look", size + 16, LOOK, SUM},
                {"appeal", size + 20, APPEAL, SUM_APPEAL},
                {"fail", size + 20, FAIL, SUM_APPEAL},
                {"replay", size + 8 + 8 + 4 + 8 + 1, REPLAY, SUM_APPEAL},
                {"perturb", size, PERTURB, 0}};
    for (int i = 0; i < N_TIMED; i++)
        qsort(all->t[i], ROUNDS, sizeof(double), compare_doubles);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double *t = all->t[rows[i].timed];
        printf("%-9s %-7s %8.2f %8.2f %8.2f", usc_dtype_info_of(o->dtype)->name,
               rows[i].what, 1e9 * t[0] / n, 1e9 * t[ROUNDS / 2] / n,
               rows[i].bytes * n / t[0] * 1e-9);
        if (rows[i].timed != PERTURB)
            printf(" %8.0f %%", 100 * all->t[rows[i].sum][0] / t[0]);
        printf("\n");
    }
}

static double since(double *start)
{
    const double end = now(), spent = end - *start;
    *start = end;
    return spent;
}

static void measure(usc_dtype dtype, int64_t n, int n_threads)
{
    operands o = make(dtype, n);
    const usc_tensor d = view(o.d, dtype, n), r = view(o.r, USC_F64, n);
    const usc_tensor spoiled = view(o.spoiled, dtype, n);
    const usc_tensor y = view(o.y, USC_F32, n), rk = view(o.rk, USC_F64, n);
    const usc_tensor yk = view(o.yk, USC_F32, n);
    const usc_judge_options options = {.n_threads = n_threads};
    const usc_appeal appeal = {.fan_in = 16};
    const usc_perturbation how = {.seed = 1};
    usc_judge *judge = NULL, *strict = NULL;
    usc_judgement v;
    need(usc_judge_open(&d, &r, &y, &options, &judge, NULL) == USC_OK, "open");
    need(usc_judge_open(&spoiled, &r, &y, &options, &strict, NULL) == USC_OK, "open");
    need(usc_judge_replay(judge, &rk, &yk, NULL) == USC_OK, "replay");
    need(usc_judge_replay(strict, &rk, &yk, NULL) == USC_OK, "replay");
    timings all;
    for (int i = 0; i < ROUNDS; i++) {
        usc_judge *whole = NULL;
        double start = now();
        need(usc_judge_open(&d, &r, &y, &options, &whole, NULL) == USC_OK, "open");
        need(usc_judge_look(whole, &v, NULL) == USC_OK, "look");
        usc_judge_close(whole);
        all.t[JUDGE][i] = since(&start);
        need(usc_judge_open(&d, &r, &y, &options, &whole, NULL) == USC_OK, "open");
        need(usc_judge_first(whole, &rk, &yk, &v, NULL) == USC_OK, "first");
        usc_judge_close(whole);
        all.t[FIRST][i] = since(&start);
        need(v.verdict == USC_VERDICT_PASS || dtype == USC_F64,
             "an honest output that does not pass");
        need(usc_judge_replay(judge, &rk, &yk, NULL) == USC_OK, "replay");
        all.t[REPLAY][i] = since(&start);
        need(usc_judge_look(judge, &v, NULL) == USC_OK, "look");
        all.t[LOOK][i] = since(&start);
        need(!v.needs_appeal || dtype == USC_F64,
             "an honest output that needs an appeal");
        need(usc_judge_appeal(judge, &appeal, &v, NULL) == USC_OK, "appeal");
        all.t[APPEAL][i] = since(&start);
        need(usc_judge_appeal(strict, &appeal, &v, NULL) == USC_OK, "appeal");
        all.t[FAIL][i] = since(&start);
        need(usc_perturb(&d, &how, o.moved, NULL) == USC_OK, "perturb");
        all.t[PERTURB][i] = since(&start);
        all.t[SUM][i] = time_sum(&o, 0, 8, 0);
        all.t[SUM_OPEN][i] = time_sum(&o, 4, 0, 0);
        all.t[SUM_APPEAL][i] = time_sum(&o, 4, 8, 0);
        all.t[SUM_ALL][i] = time_sum(&o, 4, 8, 4);
    }
    print_rows(&o, &all);
    usc_judge_close(judge);
    usc_judge_close(strict);
    free(o.d);
    free(o.spoiled);
    free(o.r);
    free(o.rk);
    free(o.moved);
    free(o.y);
    free(o.yk);
}

int main(int argc, char **argv)
{
    const int64_t mib = argc > 1 ? atoll(argv[1]) : 64;
    const int n_threads = argc > 2 ? atoi(argv[2]) : 1;
    const int64_t n = mib * 1024 * 1024 / 4;
    if (n_threads > 1) clock_used = CLOCK_MONOTONIC;
    const usc_dtype dtypes[] = {USC_F32, USC_BF16, USC_F16, USC_F8_E4M3, USC_F64};
    need(usc_kernels_select(getenv("ULPSCOPE_ISA"), NULL) == USC_OK,
         "this processor has no instruction set ULPSCOPE_ISA");
    printf("%lld elements, threads: %d, rounds: %d, instruction set: %s\n", (long long)n,
           n_threads, ROUNDS, usc_kernels_isa());
    printf("output    pass     ns/elem   median     GB/s  of a plain sum\n");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        measure(dtypes[i], n, n_threads);
    return 0;
}
