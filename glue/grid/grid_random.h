// SPDX-License-Identifier: Apache-2.0
// curand's functions for kernels, for the simulated device: Philox4x32-10 (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", 2011) with the words, and what is made of
// them, in curand's order. States of its other generators draw from Philox, too: other
// numbers than a GPU's, of the same law.
#pragma once

#include "cuda_runtime.h"

struct curandStatePhilox4_32_10 {
    unsigned counter[4], key[2], word[4];
    unsigned next; // of the words
    int extra_is_there;
    float extra;
    int extra_double_is_there;
    double extra_double;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;
typedef curandStatePhilox4_32_10 curandState, curandState_t, curandStateXORWOW,
    curandStateXORWOW_t, curandStateMRG32k3a, curandStateMRG32k3a_t;

namespace usc_grid_cxx
{

inline void philox(const unsigned counter[4], const unsigned key[2], unsigned out[4])
{
    unsigned c[4] = {counter[0], counter[1], counter[2], counter[3]};
    unsigned k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const unsigned next[4] = {(unsigned)(b >> 32) ^ c[1] ^ k[0], (unsigned)b,
                                  (unsigned)(a >> 32) ^ c[3] ^ k[1], (unsigned)a};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

// Adds to the 64 bits of a counter from its word `at` on; the carry goes on.
inline void advance(unsigned counter[4], int at, unsigned long long n)
{
    const uint64_t low = ((uint64_t)counter[at + 1] << 32 | counter[at]) + n;
    counter[at] = (unsigned)low;
    counter[at + 1] = (unsigned)(low >> 32);
    if (at == 0 && low < n && ++counter[2] == 0) counter[3]++;
}

constexpr float of_32_bits = 2.3283064e-10f;                   // 2^-32
constexpr float turn_of_32_bits = 2.3283064e-10f * 6.2831855f; // 2 pi 2^-32
constexpr double of_53_bits = 1.1102230246251565e-16;          // 2^-53

inline void normal_pair(unsigned x, unsigned y, float out[2])
{
    const float u = (float)x * of_32_bits + of_32_bits / 2;
    const float v = (float)y * turn_of_32_bits + turn_of_32_bits / 2;
    const float s = sqrtf(-2.0f * logf(u));
    out[0] = sinf(v) * s;
    out[1] = cosf(v) * s;
}

inline double uniform_double(unsigned x, unsigned y)
{
    const uint64_t z = (uint64_t)x ^ ((uint64_t)y << 21);
    return (double)z * of_53_bits + of_53_bits / 2;
}

} // namespace usc_grid_cxx

inline void skipahead(unsigned long long n, curandStatePhilox4_32_10 *s)
{
    s->next += (unsigned)(n & 3);
    usc_grid_cxx::advance(s->counter, 0, n / 4 + s->next / 4);
    s->next %= 4;
    usc_grid_cxx::philox(s->counter, s->key, s->word);
}

inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10 *s)
{
    usc_grid_cxx::advance(s->counter, 2, n);
    usc_grid_cxx::philox(s->counter, s->key, s->word);
}

inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                        unsigned long long offset, curandStatePhilox4_32_10 *s)
{
    *s = {};
    s->key[0] = (unsigned)seed;
    s->key[1] = (unsigned)(seed >> 32);
    skipahead_sequence(subsequence, s);
    skipahead(offset, s);
}

inline unsigned curand(curandStatePhilox4_32_10 *s)
{
    const unsigned word = s->word[s->next++];
    if (s->next == 4) {
        s->next = 0;
        usc_grid_cxx::advance(s->counter, 0, 1);
        usc_grid_cxx::philox(s->counter, s->key, s->word);
    }
    return word;
}

inline uint4 curand4(curandStatePhilox4_32_10 *s)
{
    uint4 out;
    out.x = curand(s);
    out.y = curand(s);
    out.z = curand(s);
    out.w = curand(s);
    return out;
}

// In (0, 1].
inline float curand_uniform(curandStatePhilox4_32_10 *s)
{
    using namespace usc_grid_cxx;
    return (float)curand(s) * of_32_bits + of_32_bits / 2;
}

inline float4 curand_uniform4(curandStatePhilox4_32_10 *s)
{
    float4 out;
    out.x = curand_uniform(s);
    out.y = curand_uniform(s);
    out.z = curand_uniform(s);
    out.w = curand_uniform(s);
    return out;
}

inline double curand_uniform_double(curandStatePhilox4_32_10 *s)
{
    const unsigned x = curand(s);
    return usc_grid_cxx::uniform_double(x, curand(s));
}

inline double2 curand_uniform2_double(curandStatePhilox4_32_10 *s)
{
    double2 out;
    out.x = curand_uniform_double(s);
    out.y = curand_uniform_double(s);
    return out;
}

inline float2 curand_normal2(curandStatePhilox4_32_10 *s)
{
    const unsigned x = curand(s);
    float pair[2];
    usc_grid_cxx::normal_pair(x, curand(s), pair);
    float2 out;
    out.x = pair[0];
    out.y = pair[1];
    return out;
}

inline float curand_normal(curandStatePhilox4_32_10 *s)
{
    if (s->extra_is_there) {
        s->extra_is_there = 0;
        return s->extra;
    }
    const float2 pair = curand_normal2(s);
    s->extra_is_there = 1;
    s->extra = pair.y;
    return pair.x;
}

inline float4 curand_normal4(curandStatePhilox4_32_10 *s)
{
    const float2 a = curand_normal2(s), b = curand_normal2(s);
    float4 out;
    out.x = a.x;
    out.y = a.y;
    out.z = b.x;
    out.w = b.y;
    return out;
}

inline double curand_normal_double(curandStatePhilox4_32_10 *s)
{
    if (s->extra_double_is_there) {
        s->extra_double_is_there = 0;
        return s->extra_double;
    }
    const double u = curand_uniform_double(s), v = 2 * curand_uniform_double(s);
    const double r = sqrt(-2 * log(u));
    s->extra_double_is_there = 1;
    s->extra_double = cos(v * 3.14159265358979323846) * r;
    return sin(v * 3.14159265358979323846) * r;
}

inline float curand_log_normal(curandStatePhilox4_32_10 *s, float mean, float deviation)
{
    return expf(mean + deviation * curand_normal(s));
}
