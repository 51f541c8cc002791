// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 and what is made of its words.
#include <ulpscope_sim/random.h>

#include <math.h>

#define N_ROUNDS 10

void usc_sim_philox(uint64_t seed, uint64_t counter, uint32_t out[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    for (int i = 0; i < N_ROUNDS; i++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c[0];
        const uint64_t b = (uint64_t)0xcd9e8d57u * c[2];
        const uint32_t x = (uint32_t)(b >> 32) ^ c[1] ^ key[0];
        const uint32_t y = (uint32_t)(a >> 32) ^ c[3] ^ key[1];
        c[0] = x;
        c[1] = (uint32_t)b;
        c[2] = y;
        c[3] = (uint32_t)a;
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

typedef struct words {
    usc_sim_random *r;
    uint32_t block[4];
    unsigned n_taken; /* of the block */
} words;

static words begin(usc_sim_random *r)
{
    return (words){.r = r, .n_taken = 4};
}

static uint32_t next(words *w)
{
    if (w->n_taken == 4) {
        usc_sim_philox(w->r->seed, w->r->offset / 4, w->block);
        w->r->offset += 4;
        w->n_taken = 0;
    }
    return w->block[w->n_taken++];
}

static uint64_t next_two(words *w)
{
    const uint64_t low = next(w);
    return low | (uint64_t)next(w) << 32;
}

void usc_sim_random_uniform(usc_sim_random *r, bool fine, double *out, size_t n)
{
    words w = begin(r);
    for (size_t i = 0; i < n; i++)
        out[i] = fine ? (double)(next_two(&w) >> 11) * 0x1p-53
                      : (double)(next(&w) >> 8) * 0x1p-24;
}

void usc_sim_random_normal(usc_sim_random *r, double *out, size_t n)
{
    const double turn = 6.283185307179586;
    words w = begin(r);
    for (size_t i = 0; i < n; i += 2) {
        const double u = (double)((next_two(&w) >> 11) + 1) * 0x1p-53; /* not zero */
        const double angle = turn * ((double)(next_two(&w) >> 11) * 0x1p-53);
        const double radius = sqrt(-2 * log(u));
        out[i] = radius * cos(angle);
        if (i + 1 < n) out[i + 1] = radius * sin(angle);
    }
}

void usc_sim_random_integers(usc_sim_random *r, uint64_t end, uint64_t *out, size_t n)
{
    words w = begin(r);
    for (size_t i = 0; i < n; i++) {
        const uint64_t x = next_two(&w);
        out[i] = end > 0 ? x % end : x;
    }
}
