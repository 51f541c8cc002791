// SPDX-License-Identifier: Apache-2.0
// Sums of a watch against the memory's own speed: the same bytes read and added up as
// words, which is as little as one can do with them. The median of rounds that take
// turns, in processor time: what others do meanwhile is not ours.
#include <ulpscope/x/sums.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 31 };
static const size_t bytes = (size_t)128 << 20;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Eight sums, so that nothing but memory is waited for. */
static uint64_t read_words(const uint64_t *words, size_t n)
{
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < n; i += 8)
        for (size_t k = 0; k < 8; k++)
            sum[k] += words[i + k];
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

static uint64_t next_random(void)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

/* Numbers as gradients have them: finite, over some powers of two. */
static void fill(usc_dtype dtype, unsigned char *data)
{
    const size_t size = usc_dtype_info_of(dtype)->size;
    for (size_t i = 0; i < bytes; i += size) {
        const uint64_t r = next_random();
        const float small = 1e-3f * (float)(int32_t)r;
        const double wide = (double)small;
        uint32_t bits;
        memcpy(&bits, &small, sizeof bits);
        uint16_t half = (uint16_t)(bits >> 16);
        if (dtype == USC_F16)
            half = (uint16_t)((r & 0x83ff) | (4 + (r >> 16) % 16) << 10);
        memcpy(data + i,
               size == 8   ? (const void *)&wide
               : size == 4 ? (const void *)&small
                           : (const void *)&half,
               size);
    }
}

static void compare(usc_dtype dtype, unsigned char *data)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    fill(dtype, data);
    const int64_t n = (int64_t)(bytes / info->size);
    double ours[ROUNDS], theirs[ROUNDS];
    volatile uint64_t keep = 0;
    usc_tensor t;
    usc_sums out;
    if (usc_tensor_make(&t, data, dtype, 1, &n, NULL) != USC_OK) return;
    for (int i = 0; i < ROUNDS; i++) {
        const double a = now();
        if (usc_sums_compute(&t, &out, NULL) != USC_OK) return;
        const double b = now();
        keep ^= read_words((const uint64_t *)(void *)data, bytes / 8);
        ours[i] = b - a;
        theirs[i] = now() - b;
    }
    qsort(ours, ROUNDS, sizeof *ours, by_value);
    qsort(theirs, ROUNDS, sizeof *theirs, by_value);
    (void)keep;
    const double a = ours[ROUNDS / 2], b = theirs[ROUNDS / 2];
    (void)printf("%-10s %7.1f GB/s  reading alone %7.1f GB/s  %5.1f %%\n", info->name,
                 1e-9 * (double)bytes / a, 1e-9 * (double)bytes / b, 100 * b / a);
}

int main(void)
{
    unsigned char *data = malloc(bytes);
    if (data == NULL) return 1;
    (void)printf("one pass over 128 MiB: max|x|, sum|x|, sum x^2, NaN and Inf, zeros, "
                 "hash; share of the memory's speed\n");
    compare(USC_F32, data);
    compare(USC_BF16, data);
    compare(USC_F16, data);
    compare(USC_F64, data);
    free(data);
    return 0;
}
