// SPDX-License-Identifier: Apache-2.0
// What a comparison of two curves comes to, in words.
#ifndef USC_LOSS_SAY_H
#define USC_LOSS_SAY_H

#include <ulpscope/x/loss.h>

/** The one sentence, cut to `size`. */
void usc_loss_sentence(const usc_curve *a, const usc_curve *b, const usc_loss_result *r,
                       char *out, size_t size);

/** Why it cannot be told of two curves that do not differ by a rule whether they are the
 * same, and the way on; false where it can. `tolerance`: relative; `given`: by the user,
 * who takes less than that for rounding. */
bool usc_loss_doubt(const usc_curve *a, const usc_curve *b, const usc_loss_result *r,
                    double tolerance, bool given, char *out, size_t size);

/** What sentences call the curve: the file, or the column where `other` is of that, too.
 */
const char *usc_loss_name(const usc_curve *curve, const usc_curve *other);

/** A share in per cent with its sign: "+1.82 %". */
const char *usc_loss_percent(double share, char out[32]);

/** What the noise is taken from. */
const char *usc_loss_noise_words(const usc_loss_result *r, char out[96]);

#endif
