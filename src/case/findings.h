// SPDX-License-Identifier: Apache-2.0
// What the files of findings share with a case. Neighbours: findings.c (the list, which
// of them decides), findings_call.c (pieces, other answers), findings_row.c
// (rows), said.c (sentences).
#ifndef USC_CASE_FINDINGS_H
#define USC_CASE_FINDINGS_H

#include <ulpscope/finding.h>

#include "base/arena.h"

struct usc_findings {
    usc_arena arena;
    usc_finding **items;
    size_t n, capacity;
};

/** A copy that lives as long as the list; "" where there is no memory, which the arena
 * tells. */
const char *usc_findings_text(usc_findings *f, const char *text);

/** Adds a note to a finding of the list, or to one that is made. */
void usc_findings_noted(usc_findings *f, usc_finding *one, const char *format, ...)
    USC_PRINTF(3, 4);

/** Counts elements that went free, and says so where they are many. */
void usc_findings_excused(usc_findings *f, usc_finding *one, usc_excuse excuse,
                          int64_t n);

/** Bits are of what was held to the rule: of a pass whose elements mostly had to lie among
 * other values alone nobody knows them, and it says so. */
void usc_findings_forget_bits(usc_findings *f, usc_finding *one);

/** Notes how many elements are no numbers in truth. */
void usc_findings_noted_odd(usc_findings *f, usc_finding *one, int64_t n_odd);

/** Takes the place of finding i, or of none where i is the count. NULL: no memory. */
usc_finding *usc_findings_put(usc_findings *f, size_t i, const usc_finding *one);

/** Counts the elements that are marked, and says of the first what they hold and what
 * they must; all of equal dims. The finding keeps its verdict. */
void usc_finding_differs(usc_finding *one, const usc_tensor *got, const usc_tensor *want,
                         const usc_tensor *marks);

/** The finding that decides of those from `first` on; NULL: there is none. */
const usc_finding *usc_findings_worst_from(const usc_findings *f, size_t first);

/** USC_E_NOMEM where the arena failed. */
usc_status usc_findings_status(const usc_findings *f, usc_error *err);

/** A whole number with commas, e.g. "65,536". */
typedef struct usc_count_text {
    char text[32];
} usc_count_text;
usc_count_text usc_count(int64_t n);

/** "65,536 elements differ". */
typedef struct usc_differing_text {
    char text[64];
} usc_differing_text;
usc_differing_text usc_differing(int64_t n);

/* Of an output: the dtype that it has, the one that it should have. */
#define USC_OTHER_DTYPE "dtype %s where the operator gives %s"

/** Whether an output has another shape than `want`; then says so. */
bool usc_misshapen(const usc_tensor *got, const usc_tensor *want, char *out, size_t size);

#endif
