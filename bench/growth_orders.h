// SPDX-License-Identifier: Apache-2.0
// Sums as kernels make them: K terms of n columns at once, in an order, in float32 or in
// fewer bits; and numbers by chance. Serves bench_growth.c.
#ifndef GROWTH_ORDERS_H
#define GROWTH_ORDERS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a kernel adds. */
typedef struct way {
    const char *name;
    enum {
        SERIAL,
        REVERSED,
        PAIRWISE,
        BLOCKS,        /* of `size` terms; then their sums, in order */
        SPLIT,         /* into `size` parts; then their sums, in order */
        LANES,         /* `size` of them take turns; then their sums, pairwise */
        ATOMICS,       /* one accumulator, terms in random order */
        ATOMIC_BLOCKS, /* sums of `size` terms in random order */
    } order;
    int size;
    bool fused;  /* products are not rounded */
    int at_once; /* products that a matrix unit adds, then cuts off; else 0 */
    int accumulator, product; /* significand bits where there are fewer than 24, else 0 */
} way;

/* ---- orders of kernels, and arithmetic that is too narrow ---- */

static const way honest[] = {
    {"serial", SERIAL, 0, 0, 0, 0, 0},
    {"reversed", REVERSED, 0, 0, 0, 0, 0},
    {"pairwise", PAIRWISE, 0, 0, 0, 0, 0},
    {"blocks 32", BLOCKS, 32, 0, 0, 0, 0},
    {"blocks 64", BLOCKS, 64, 0, 0, 0, 0},
    {"blocks 128", BLOCKS, 128, 0, 0, 0, 0},
    {"blocks 256", BLOCKS, 256, 0, 0, 0, 0},
    {"blocks 512", BLOCKS, 512, 0, 0, 0, 0},
    {"lanes 4", LANES, 4, 0, 0, 0, 0},
    {"lanes 8", LANES, 8, 0, 0, 0, 0},
    {"lanes 32", LANES, 32, 0, 0, 0, 0},
    {"split 2", SPLIT, 2, 0, 0, 0, 0},
    {"split 4", SPLIT, 4, 0, 0, 0, 0},
    {"split 16", SPLIT, 16, 0, 0, 0, 0},
    {"split 64", SPLIT, 64, 0, 0, 0, 0},
    {"atomics", ATOMICS, 0, 0, 0, 0, 0},
    {"atomic blocks 32", ATOMIC_BLOCKS, 32, 0, 0, 0, 0},
    {"atomic blocks 256", ATOMIC_BLOCKS, 256, 0, 0, 0, 0},
    {"fused serial", SERIAL, 0, true, 0, 0, 0},
    {"fused blocks 128", BLOCKS, 128, true, 0, 0, 0},
    {"fused split 16", SPLIT, 16, true, 0, 0, 0},
    {"cut off", SERIAL, 0, 0, 16, 0, 0},
    {"cut off, 8 at once", SERIAL, 0, 0, 8, 0, 0},
    {"cut off, blocks 128", BLOCKS, 128, 0, 16, 0, 0},
    {"cut off, split 4", SPLIT, 4, 0, 16, 0, 0},
    {"cut off, split 16", SPLIT, 16, 0, 16, 0, 0},
};
enum { N_HONEST = sizeof honest / sizeof *honest };

static const int bits_tried[] = {11, 14, 16, 17, 19, 21};
static const way narrow[] = {
    {"accumulator serial", SERIAL, 0, 0, 0, 1, 0},
    {"accumulator blocks 128", BLOCKS, 128, 0, 0, 1, 0},
    {"accumulator lanes 32", LANES, 32, 0, 0, 1, 0},
    {"accumulator pairwise", PAIRWISE, 0, 0, 0, 1, 0},
    {"products blocks 128", BLOCKS, 128, 0, 0, 0, 1},
    {"products pairwise", PAIRWISE, 0, 0, 0, 0, 1},
};
enum { N_BITS = 6, N_NARROW = sizeof narrow / sizeof *narrow };

/* Rows of n terms each: products of a and b, or a alone. */
typedef struct terms {
    int64_t k, n;
    const float *a, *b;
    const float *p;         /* the products, rounded */
    const int64_t *shuffle; /* 0 ... k - 1 in random order */
    float *room;            /* for as many as k n partial sums */
} terms;

/* To so many significand bits, to nearest (Veltkamp). */
static inline float shortened(float x, float factor)
{
    const float c = x * factor;
    return c - (c - x);
}

static inline float factor_of(int bits)
{
    return (float)(1 << (24 - bits)) + 1;
}

static inline float toward_zero(double x)
{
    float f = (float)x;
    if (fabs((double)f) <= fabs(x)) return f;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits--;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void add_rounded(const way *w, const float *p, int64_t n, float *acc)
{
    if (w->accumulator == 0) {
        for (int64_t i = 0; i < n; i++)
            acc[i] += p[i];
        return;
    }
    const float factor = factor_of(w->accumulator);
    for (int64_t i = 0; i < n; i++)
        acc[i] = shortened(acc[i] + p[i], factor);
}

/* Exact products: what is left to round is the sum, once. */
static void add_fused(const float *a, const float *b, int64_t n, float *acc)
{
    for (int64_t i = 0; i < n; i++)
        acc[i] = (float)((double)a[i] * (double)b[i] + (double)acc[i]);
}

enum { MOST_COLUMNS = 1024 };

static void add_truncated(const terms *t, int64_t row, int64_t rows, float *acc)
{
    double sum[MOST_COLUMNS];
    for (int64_t i = 0; i < t->n; i++)
        sum[i] = (double)acc[i];
    for (int64_t k = row; k < row + rows; k++)
        for (int64_t i = 0; i < t->n; i++)
            sum[i] += (double)t->a[k * t->n + i] * (double)t->b[k * t->n + i];
    for (int64_t i = 0; i < t->n; i++)
        acc[i] = toward_zero(sum[i]);
}

/* One accumulator over `count` rows. */
static void chain(const way *w, const terms *t, int64_t from, int64_t step, int64_t count,
                  float *acc)
{
    memset(acc, 0, (size_t)t->n * sizeof *acc);
    for (int64_t j = 0; j < count; j++) {
        int64_t row = from + j * step;
        if (w->at_once > 0 && t->b != NULL) {
            const int64_t rest = count - j;
            if (j % w->at_once == 0)
                add_truncated(t, row, rest < w->at_once ? rest : w->at_once, acc);
            continue;
        }
        if (t->shuffle != NULL) row = t->shuffle[row];
        if (w->fused && t->b != NULL)
            add_fused(t->a + row * t->n, t->b + row * t->n, t->n, acc);
        else
            add_rounded(w, t->p + row * t->n, t->n, acc);
    }
}

/* Neighbours, then neighbours of those, in place. */
static void pairwise(const way *w, float *p, int64_t k, int64_t n, float *out)
{
    for (; k > 1; k = (k + 1) / 2)
        for (int64_t j = 0; j < k / 2; j++) {
            memmove(p + j * n, p + 2 * j * n, (size_t)n * sizeof *p);
            add_rounded(w, p + (2 * j + 1) * n, n, p + j * n);
            if (j == k / 2 - 1 && k % 2)
                memcpy(p + k / 2 * n, p + (k - 1) * n, (size_t)n * sizeof *p);
        }
    memcpy(out, p, (size_t)n * sizeof *p);
}

/* Sums of parts, then the sum of those. */
static void in_parts(const way *w, const terms *t, int64_t parts, float *out)
{
    const int64_t each = t->k / parts, n = t->n;
    terms own = *t;
    own.shuffle = NULL;
    for (int64_t j = 0; j < parts; j++)
        chain(w, &own, w->order == LANES ? j : j * each, w->order == LANES ? parts : 1,
              each, t->room + j * n);
    if (w->order == LANES) {
        pairwise(w, t->room, parts, n, out);
        return;
    }
    const terms sums = {.k = parts,
                        .n = n,
                        .p = t->room,
                        .shuffle = w->order == ATOMIC_BLOCKS ? t->shuffle : NULL};
    chain(w, &sums, 0, 1, parts, out);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The sums of all columns. */
static void add_up(const way *w, const terms *t, float *out)
{
    terms own = *t;
    if (w->order != ATOMICS) own.shuffle = NULL;
    switch (w->order) {
    case SERIAL:
    case ATOMICS:
        chain(w, &own, 0, 1, t->k, out);
        return;
    case REVERSED:
        chain(w, &own, t->k - 1, -1, t->k, out);
        return;
    case PAIRWISE:
        memcpy(t->room, t->p, (size_t)(t->k * t->n) * sizeof *t->room);
        pairwise(w, t->room, t->k, t->n, out);
        return;
    case BLOCKS:
        in_parts(w, &own, larger(t->k / w->size, 1), out);
        return;
    case SPLIT:
    case LANES:
        in_parts(w, &own, w->size, out);
        return;
    case ATOMIC_BLOCKS: {
        const int64_t parts = larger(t->k / w->size, 1);
        int64_t order[1 << 16], m = 0;
        for (int64_t j = 0; j < t->k; j++)
            if (t->shuffle[j] < parts) order[m++] = t->shuffle[j];
        own.shuffle = order;
        in_parts(w, &own, parts, out);
        return;
    }
    }
}

/* ---- what a small program needs ---- */

static void need(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "bench_growth: %s\n", what);
    exit(2);
}

static void *room(size_t n, size_t size)
{
    void *p = malloc(n * size);
    need(p != NULL, "no memory");
    return p;
}

static uint64_t state;

static uint64_t next_word(void)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = state;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static double unit(void)
{
    return ((double)(next_word() >> 11) + 0.5) * 0x1p-53;
}

static double normal(void)
{
    return sqrt(-2 * log(unit())) * cos(6.283185307179586 * unit());
}

#endif
