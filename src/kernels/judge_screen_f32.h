// SPDX-License-Identifier: Apache-2.0
// The bound by which the quick kernels for float32 outputs (judge_screen_f32_*.c) know
// that a score computed in float has the bin of the definition.
//
// In units of 2^-24: |R - D| rounded to float, half an ulp of D (a power of two) and the
// scale give the score (|R - D| - ulp / 2) / scale. The scale is |D| instead of |R|: for
// a score up to 4 they differ by 5 * 2^-24. Errors relative to the score: those 2^-21.6,
// an approximate reciprocal with one Newton step 2^-22, four roundings 2^-22; and of the
// difference 2^-24 |R - D|, which is 2^-24 (1 + score) scales.
#ifndef USC_JUDGE_SCREEN_F32_H
#define USC_JUDGE_SCREEN_F32_H

/* The bound, more than what the head of this file adds up to. */
#define USC_F32_RELATIVE 0x1p-19f
#define USC_F32_ABSOLUTE 0x1p-23f
/* Scores below it are in bin 0, and so is it; half a quarter octave from the next edge.
 */
#define USC_F32_TINY 0x1.17p-9f
#define USC_F32_MAX_SCORE 4.0
/* |D| for which the reciprocal is a normal number. */
#define USC_F32_MAX_SIZE 0x1p120

#endif
