// SPDX-License-Identifier: Apache-2.0
// Sentences that several folders say, as formats of printf.
#ifndef USC_BASE_WORDS_H
#define USC_BASE_WORDS_H

/* Of a call of a pack. */
#define USC_NOT_GIVEN "no output of it was given"

/* Values of the metric `lacks`: which side of what was to be judged nobody gave. */
#define USC_LACKS_OUTPUT "output"
#define USC_LACKS_REFERENCE "reference"
#define USC_LACKS_SCALE "scale"
#define USC_LACKS_FINER "finer" /* a reference of a finer dtype */
#define USC_LACKS_OTHER "other" /* both sides are one file */

/* Of what was looked at and cannot be told: float32 has few bits, there are few draws. */
#define USC_SAID_ILL "ill-conditioned: float32 leaves fewer than 4 bits at"
#define USC_SAID_FEW "elements are too few to tell"

/* Of a call: long long, long long. */
#define USC_MISCOUNTED "%lld outputs where the operator has %lld"

#endif
