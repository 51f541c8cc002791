// SPDX-License-Identifier: Apache-2.0
// What a comparison of two curves comes to, in words.
#ifndef USC_LOSS_SAY_H
#define USC_LOSS_SAY_H

#include <ulpscope/loss.h>

/** The one sentence, cut to `size`. */
void usc_loss_sentence(const usc_curve *a, const usc_curve *b, const usc_loss_result *r,
                       char *out, size_t size);

/** A share in per cent with its sign: "+1.82 %". */
const char *usc_loss_percent(double share, char out[32]);

/** What the noise is taken from. */
const char *usc_loss_noise_words(const usc_loss_result *r, char out[96]);

#endif
