// SPDX-License-Identifier: Apache-2.0
// The one matcher of operator names: capture, check, faults and live modes all use it;
// and of module paths.
//
// A PATTERN is a comma-separated list of globs (`*` any run of characters, `?` one);
// spaces around a glob do not count, `!` before it excludes. A glob with `::` is held
// against `ns::name.overload` and `ns::name`, one without against `name.overload` and
// `name`. The overload of a name without one is `default`. A Python function has no `::`
// in its name: a glob is held against all of it (`torch.nn.functional.linear`) and
// against its last word (`linear`). An operator matches where at least one plain glob
// does (or there is none) and no excluding glob does.
//
// Threads: safe.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_PATTERN_H
#define ULPSCOPE_X_PATTERN_H

#include <ulpscope/status.h>

USC_BEGIN_DECLS

/**
 * Whether `op_name` ("aten::add.Tensor", "aten::mm") matches `pattern`.
 *
 * NULL or a blank pattern matches every operator. A pattern that usc_pattern_check()
 * refuses matches as far as its globs make sense.
 *
 * Memory:  allocates nothing.
 * Threads: safe.
 */
USC_API bool usc_pattern_match(const char *pattern, const char *op_name);

/**
 * Whether a PATTERN over module paths covers `path` ("layers.0.attn"): a plain glob is
 * the path of it or of a module around it, and no excluding one is.
 *
 * NULL or a blank pattern covers every path; that of an outermost module is "".
 *
 * Memory:  allocates nothing.
 * Threads: safe.
 */
USC_API bool usc_pattern_covers(const char *pattern, const char *path);

/**
 * Whether `pattern` is well formed: no empty glob between commas, only characters that
 * an operator name can hold besides `*`, `?`, `!`, `,` and spaces. NULL, which is every
 * operator, is.
 *
 * Errors:  USC_E_ARG (err->where: the byte of `pattern` that is wrong).
 */
USC_API USC_NODISCARD usc_status usc_pattern_check(const char *pattern, usc_error *err);

/**
 * How like two names are, 0 (no letter in common) to 1 (the same but for upper case):
 * twice the longest common subsequence over the sum of lengths (D. S. Hirschberg 1975 for
 * the row-by-row computation; Dice 1945 for the share). What misspelt names are held
 * against, everywhere: a letter more, less, changed or out of place in a name of n
 * letters gives 1 - 1/n or a little more. Of a name of more than 63 characters the first
 * 63 count.
 *
 * Memory:  allocates nothing.
 * Threads: safe.
 */
USC_API double usc_likeness(const char *a, const char *b);

USC_END_DECLS
#endif
