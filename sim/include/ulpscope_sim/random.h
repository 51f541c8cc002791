// SPDX-License-Identifier: Apache-2.0
// The random numbers of the simulated accelerator: Philox4x32-10 (Salmon et al., "Parallel
// random numbers: as easy as 1, 2, 3", 2011), a function of seed and offset and nothing else.
//
// A seed has one sequence of 32-bit words; `offset` is how many have been taken. Word 4k + i
// is the i-th of the block whose counter is k. Each call takes what it needs and then moves
// to the next multiple of 4.
//
// Threads: the caller sees to it that one thread at a time uses a usc_sim_random.
#ifndef ULPSCOPE_SIM_RANDOM_H
#define ULPSCOPE_SIM_RANDOM_H

#include <ulpscope/status.h>

USC_BEGIN_DECLS

typedef struct usc_sim_random {
    uint64_t seed, offset;
} usc_sim_random;

/** The four words of a block. */
USC_API void usc_sim_philox(uint64_t seed, uint64_t counter, uint32_t out[4]);

/** Numbers of [0, 1): multiples of 2^-24, a word each, or with `fine` of 2^-53, two each. */
USC_API void usc_sim_random_uniform(usc_sim_random *r, bool fine, double *out, size_t n);

/** Numbers of the normal distribution: four words for each two (Box-Muller). */
USC_API void usc_sim_random_normal(usc_sim_random *r, double *out, size_t n);

/** Integers below `end`; 0: of all 64 bits. Two words each, the first one the lower half,
 * modulo `end`. */
USC_API void usc_sim_random_integers(usc_sim_random *r, uint64_t end, uint64_t *out,
                                     size_t n);

USC_END_DECLS
#endif
