// SPDX-License-Identifier: Apache-2.0
// Sentences that several folders say, as formats of printf.
#ifndef USC_BASE_WORDS_H
#define USC_BASE_WORDS_H

/* Of a call: long long, long long. */
#define USC_MISCOUNTED "%lld outputs where the operator has %lld"

#endif
