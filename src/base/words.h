// SPDX-License-Identifier: Apache-2.0
// Sentences that several folders say, as formats of printf.
#ifndef USC_BASE_WORDS_H
#define USC_BASE_WORDS_H

/* Of a call of a pack. */
#define USC_NOT_GIVEN "no output of it was given"

/* Of two tensors in which both sides agree, for want of numbers. */
#define USC_NOTHING_COMPARED ": nothing is compared"

/* Of a call: long long, long long. */
#define USC_MISCOUNTED "%lld outputs where the operator has %lld"

#endif
