// SPDX-License-Identifier: Apache-2.0
// The counter-based generator: words, numbers, places. Nothing here calls libm but for
// sqrt, which IEEE 754 rounds exactly: other functions differ between machines.
#include "generate/values.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 10, FEISTEL_ROUNDS = 6, BLOCK = 64 };

/* Philox: in each round two products of 32 x 32 bits, their halves crossed over. In
 * variables of their own, which stay in registers. */
void usc_stream_words(usc_stream d, uint64_t i, uint32_t out[4])
{
    uint32_t key0 = (uint32_t)d.seed, key1 = (uint32_t)(d.seed >> 32);
    uint32_t c0 = (uint32_t)i, c1 = (uint32_t)(i >> 32);
    uint32_t c2 = (uint32_t)d.number, c3 = (uint32_t)(d.number >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t a = UINT64_C(0xD2511F53) * c0, b = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        key0 += 0x9E3779B9u; /* the golden ratio, and sqrt(3) - 1 */
        key1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* 53 bits of two words. */
static double fraction(uint32_t high, uint32_t low)
{
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

double usc_stream_uniform(usc_stream d, uint64_t i)
{
    uint32_t w[4];
    usc_stream_words(d, i, w);
    return fraction(w[0], w[1]);
}

/* Natural logarithm of x in (0, 1], to some 1e-15 of it: x = 2^e m, and log m by the
 * series of atanh. */
static double log_of(double x)
{
    int e;
    double m = frexp(x, &e); /* exact */
    if (m < 0x1.6a09e667f3bcdp-1) m *= 2, e--;
    const double s = (m - 1) / (m + 1), square = s * s;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * square + 1.0 / k;
    return 2 * s * sum + e * 0x1.62e42fefa39efp-1;
}

/* cos(2 pi u) for u in [0, 1): the quarter turn nearest to u, and what is left of it by
 * the series of sine or cosine. */
static double cos_of_turn(double u)
{
    const int quarter = (int)(4 * u + 0.5);
    const double x = (u - 0.25 * quarter) * 0x1.921fb54442d18p2, square = x * x;
    double sine = 0, cosine = 0;
    for (int k = 16; k >= 2; k -= 2) {
        cosine = (1 - cosine) * square / (k * (k - 1));
        sine = (1 - sine) * square / (k * (k + 1));
    }
    const double values[4] = {1 - cosine, -x * (1 - sine), cosine - 1, x * (1 - sine)};
    return values[quarter % 4];
}

double usc_stream_normal(usc_stream d, uint64_t i)
{
    uint32_t w[4];
    usc_stream_words(d, i, w);
    const double radius = sqrt(-2 * log_of(1 - fraction(w[0], w[1])));
    return radius * cos_of_turn(fraction(w[2], w[3]));
}

/* ---- many normal numbers at once ----
 *
 * The sums above, each step a loop over a block: what compilers make vectors of, with the
 * same operations in the same order, and so the same bits. */

static void radii_of(const double x[BLOCK], double out[BLOCK])
{
    double e[BLOCK], s[BLOCK], square[BLOCK], sum[BLOCK];
    for (int j = 0; j < BLOCK; j++) {
        uint64_t bits;
        double m;
        memcpy(&bits, &x[j], sizeof bits); /* of (0, 1], none subnormal: frexp */
        e[j] = (double)((int)(bits >> 52) - 1022);
        bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1022) << 52;
        memcpy(&m, &bits, sizeof m);
        if (m < 0x1.6a09e667f3bcdp-1) m *= 2, e[j]--;
        s[j] = (m - 1) / (m + 1);
        square[j] = s[j] * s[j];
        sum[j] = 0;
    }
    for (int k = 21; k >= 1; k -= 2)
        for (int j = 0; j < BLOCK; j++)
            sum[j] = sum[j] * square[j] + 1.0 / k;
    for (int j = 0; j < BLOCK; j++)
        out[j] = sqrt(-2 * (2 * s[j] * sum[j] + e[j] * 0x1.62e42fefa39efp-1));
}

static void turn(const double u[BLOCK], double out[BLOCK])
{
    int quarter[BLOCK];
    double x[BLOCK], square[BLOCK], sine[BLOCK], cosine[BLOCK];
    for (int j = 0; j < BLOCK; j++) {
        quarter[j] = (int)(4 * u[j] + 0.5);
        x[j] = (u[j] - 0.25 * quarter[j]) * 0x1.921fb54442d18p2;
        square[j] = x[j] * x[j];
        sine[j] = cosine[j] = 0;
    }
    for (int k = 16; k >= 2; k -= 2)
        for (int j = 0; j < BLOCK; j++) {
            cosine[j] = (1 - cosine[j]) * square[j] / (k * (k - 1));
            sine[j] = (1 - sine[j]) * square[j] / (k * (k + 1));
        }
    for (int j = 0; j < BLOCK; j++) {
        const int at = quarter[j] % 4;
        const double v = at % 2 == 0 ? 1 - cosine[j] : x[j] * (1 - sine[j]);
        out[j] *= at == 1 || at == 2 ? -v : v;
    }
}

void usc_stream_normals(usc_stream d, uint64_t from, int64_t n, double *out)
{
    double x[BLOCK], u[BLOCK], drawn[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        for (int j = 0; j < BLOCK; j++) {
            uint32_t w[4];
            if (j < count) usc_stream_words(d, from + (uint64_t)(at + j), w);
            x[j] = j < count ? 1 - fraction(w[0], w[1]) : 1;
            u[j] = j < count ? fraction(w[2], w[3]) : 0;
        }
        radii_of(x, drawn);
        turn(u, drawn);
        memcpy(out + at, drawn, (size_t)count * sizeof *out);
    }
}

/* A keyed function of a half, for the Feistel network below. */
static uint64_t mixed(uint64_t half, uint64_t key)
{
    uint64_t x = half + key;
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

/* A Feistel network is a permutation of all numbers of twice `bits` bits; walking on from
 * a number outside of [0, n) until one is inside makes it one of [0, n). */
uint64_t usc_stream_place(usc_stream d, uint64_t i, uint64_t n)
{
    int bits = 1;
    while (bits < 32 && ((n - 1) >> (2 * bits)) != 0)
        bits++;
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    const uint64_t key = mixed(d.number, mixed(d.seed, UINT64_C(0x9e3779b97f4a7c15)));
    if (n <= 1) return 0;
    do {
        uint64_t left = i >> bits, right = i & mask;
        for (uint64_t round = 1; round <= FEISTEL_ROUNDS; round++) {
            const uint64_t next = left ^ (mixed(right, key * (2 * round + 1)) & mask);
            left = right;
            right = next;
        }
        i = left << bits | right;
    } while (i >= n);
    return i;
}
