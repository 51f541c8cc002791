// SPDX-License-Identifier: Apache-2.0
// Regular expressions as users of Python write them, on POSIX's: groups (?P<name>...) and
// (?:...), \d, \s, \w and their opposites. What POSIX has no way to say is refused.
#ifndef USC_LOSS_CURVE_REGEX_H
#define USC_LOSS_CURVE_REGEX_H

#include <ulpscope/status.h>

typedef struct usc_curve_regex usc_curve_regex;

/** Errors: USC_E_ARG, USC_E_NOMEM; *out is NULL then. */
USC_NODISCARD usc_status usc_curve_regex_make(const char *text, usc_curve_regex **out,
                                              usc_error *err);

/** Frees; NULL is allowed. */
void usc_curve_regex_free(usc_curve_regex *regex);

/** Group `loss` (else the first) of the first match, and group `step` (NULL: none). */
bool usc_curve_regex_find(const usc_curve_regex *regex, const char *line,
                          const char **loss, size_t *n_loss, const char **step,
                          size_t *n_step);

#endif
