// SPDX-License-Identifier: Apache-2.0
// Generators that devices draw from: Philox 4x32-10 as accelerators have it, mt19937 as
// the CPU has, a hash of a counter. Tests of draws take numbers from each.
#ifndef USC_TESTS_DRAW_GENERATORS_H
#define USC_TESTS_DRAW_GENERATORS_H

#include <math.h>
#include <stdint.h>

enum { PHILOX, MT19937, COUNTER, N_GENERATORS };

typedef struct generator {
    int kind;
    uint32_t key[2], counter[4], got[4];
    int left; /* of got */
    uint32_t state[624];
    int at; /* of state */
    uint64_t count, seed;
} generator;

static inline void philox_block(generator *g)
{ /* Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011) */
    uint32_t k0 = g->key[0], k1 = g->key[1], c[4];
    for (int i = 0; i < 4; i++)
        c[i] = g->counter[i];
    for (int round = 0; round < 10; round++) {
        const uint64_t a = UINT64_C(0xD2511F53) * c[0], b = UINT64_C(0xCD9E8D57) * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)b;
        c[3] = (uint32_t)a;
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    for (int i = 0; i < 4; i++)
        g->got[i] = c[i];
    g->left = 4;
    if (++g->counter[0] == 0) g->counter[1]++;
}

static inline uint32_t mt_next(generator *g)
{ /* Matsumoto, Nishimura (1998) */
    if (g->at == 624) {
        for (int i = 0; i < 624; i++) {
            const uint32_t y = (g->state[i] & UINT32_C(0x80000000)) |
                               (g->state[(i + 1) % 624] & UINT32_C(0x7fffffff));
            const uint32_t odd = (y & 1) != 0 ? UINT32_C(0x9908b0df) : 0;
            g->state[i] = g->state[(i + 397) % 624] ^ y >> 1 ^ odd;
        }
        g->at = 0;
    }
    uint32_t y = g->state[g->at++];
    y ^= y >> 11;
    y ^= y << 7 & UINT32_C(0x9d2c5680);
    y ^= y << 15 & UINT32_C(0xefc60000);
    return y ^ y >> 18;
}

static inline uint32_t counter_next(generator *g)
{ /* murmur3's finalizer twice over a counter */
    uint64_t x = g->seed * UINT64_C(0xff51afd7ed558ccd) + g->count++;
    for (int i = 0; i < 2; i++) {
        x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
        x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
        x = (x ^ x >> 33) + UINT64_C(0x9e3779b97f4a7c15);
    }
    return (uint32_t)(x >> 32);
}

static inline uint32_t draw_word(generator *g)
{
    if (g->kind == MT19937) return mt_next(g);
    if (g->kind == COUNTER) return counter_next(g);
    if (g->left == 0) philox_block(g);
    return g->got[4 - g->left--];
}

static inline void generator_seed(generator *g, int kind, uint64_t seed)
{
    *g = (generator){.kind = kind, .seed = seed, .at = 624};
    g->key[0] = (uint32_t)seed;
    g->key[1] = (uint32_t)(seed >> 32);
    g->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < 624; i++)
        g->state[i] =
            UINT32_C(1812433253) * (g->state[i - 1] ^ g->state[i - 1] >> 30) + i;
}

/* 24 bits, as devices make floats. */
static inline double draw_even(generator *g)
{
    return (double)(draw_word(g) >> 8) * 0x1p-24;
}

static inline uint64_t draw_long(generator *g)
{
    const uint64_t high = draw_word(g);
    return high << 32 | draw_word(g);
}

static inline double draw_normal(generator *g)
{ /* Box and Muller (1958) */
    const double r = sqrt(-2 * log(1 - draw_even(g)));
    return r * cos(6.283185307179586 * draw_even(g));
}

#endif
