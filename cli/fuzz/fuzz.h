// SPDX-License-Identifier: Apache-2.0
// What the files of `ulpscope fuzz` share.
#ifndef ULPSCOPE_CLI_FUZZ_H
#define ULPSCOPE_CLI_FUZZ_H

#include <ulpscope/x/sides.h>

#include "cli.h"

/** Finds or makes the trace of examples in the cache folder: of the operators of short
 * programs, of the specifications in a file, or with false and NULL of torch's operator
 * database, where `ops` (NULL: any) has to match an operator of torch; false after a
 * sentence. The last takes minutes once, and tells of it; SIGINT and SIGTERM end it. */
bool fuzz_examples(bool programs, const char *spec, const char *ops,
                   const char *const *imports, char *path, size_t size);

/* Cases of one seed, ascending. */
typedef struct fuzz_cases {
    uint64_t seed;
    int64_t *number;
    int64_t n;
} fuzz_cases;

/** Reads "SEED:CASE", or a file with one at the beginning of each line; false after a
 * sentence. Memory: fuzz_free_cases. */
bool fuzz_read_cases(const char *text, fuzz_cases **out, size_t *n);
void fuzz_free_cases(fuzz_cases *cases, size_t n);

/* Where examples come from, as the user named it; NULL, NULL: from torch. */
typedef struct fuzz_source {
    const char *trace, *spec;
} fuzz_source;

/** Whether the cases of a file are drawn as those of this run, as far as its first line
 * says from what that was; false after a sentence. */
bool fuzz_same_kind(const char *cases, const usc_check_options *o,
                    const fuzz_source *from);

/** Tells the findings in OUT, alike ones once: as JSON lines, or as text with what to
 * type next; and writes their cases to OUT/cases.txt. False after a sentence. */
bool fuzz_tell(const usc_check_options *o, const fuzz_source *from, bool json);

/** Asks device and CPU, and tells what each dtype and layout comes to, or with `profile`
 * how long they take; the exit code. */
int fuzz_sides(const usc_check_options *o, bool profile, bool json);

#endif
