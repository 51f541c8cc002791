// SPDX-License-Identifier: Apache-2.0
// A comparison from within. Neighbours: diff.c (pairs, where a difference begins),
// diff_rows.c (what all ask of a pair),
// regroup.c (pairs by content), compare.c (one pair), entered.c (what came from outside),
// unseen.c (what no pair has looked at),
// heard.c (verdicts), amplified.c (what rounding makes of them), diff_say.c and
// diff_part.c (words).
#ifndef USC_DIFF_DIFFS_H
#define USC_DIFF_DIFFS_H

#include <ulpscope/x/diff.h>

#include "base/arena.h"
#include "base/keys.h"
#include "diff/lists.h"

struct usc_diff {
    usc_diff_options options;
    usc_diff_list list[2];
    usc_diff_row *row;
    int64_t n;
    int64_t *row_of[2]; /* by index of a call; -1: it has no partner */
    int64_t *alone[2], n_alone[2];
    int64_t shift[2];    /* of steps: from where both count */
    usc_keys entered;    /* version of A from outside -> row that read it first */
    usc_keys measured;   /* two contents -> index into `size` */
    usc_diff_size *size; /* of what was measured */
    int64_t n_sizes, size_room;
    usc_diff_heard *said; /* texts are malloc'd */
    int64_t *said_of;     /* by row: its place in `said`, from 1; 0: nothing was heard */
    int64_t n_said, said_room;
    usc_diff_entered outside;
    usc_diff_unseen unseen;
    usc_arena texts; /* of the two calls at hand */
};

/** Pairs calls again that are alike in all and read what calls without a partner wrote,
 * by what they read. `pair` has room for as many as the shorter list has calls. Errors:
 * those of the traces, USC_E_NOMEM. */
USC_NODISCARD usc_status usc_diff_regroup(usc_diff *d, usc_diff_pair *pair, int64_t *n,
                                          usc_error *err);

/** What of two tensors is known without looking at them: by what, and whether they are
 * equal. compare.c */
usc_diff_basis usc_diff_known(const usc_diff *d, const usc_diff_tensor *a,
                              const usc_diff_tensor *b, bool *equal);

/** Counts what came from outside (d->outside). entered.c. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_diff_count_entered(usc_diff *d, usc_error *err);

/** Counts calls of which nothing was compared (d->unseen). unseen.c. Errors:
 * USC_E_NOMEM. */
USC_NODISCARD usc_status usc_diff_count_unseen(usc_diff *d, usc_error *err);

/** Sets `computes` of all rows. entered.c */
void usc_diff_find_computing(usc_diff *d);

/** Sources of rows again, from the first on, and how many inherit from each. diff.c */
void usc_diff_carry(usc_diff *d);

/** A difference that begins in a call below another one does not begin in that. diff.c */
void usc_diff_clear_holders(usc_diff *d);

/** Whether no call of a step of that side has a partner, of any of its steps. diff_part.c
 */
bool usc_diff_lacks_steps(const usc_diff *d, int side);

/** Frees what was heard. heard.c */
void usc_diff_forget_heard(usc_diff *d);

/** Compares the calls of row i, which has its partners alone; those before are done.
 * Errors: those of the traces. */
USC_NODISCARD usc_status usc_diff_compare(usc_diff *d, int64_t i, usc_error *err);

/** A call of one side with its texts, which stay until d->texts is reset. Errors: those
 * of the trace. */
USC_NODISCARD usc_status usc_diff_read(usc_diff *d, int side, int64_t sequence,
                                       usc_call *out, usc_error *err);

/** What a module's results hang on beside what came in: gradients on its forward and on
 * its pass for another result, whichever lies further apart; a forward, by its
 * parameters, on gradients of a step before. */
typedef struct usc_diff_behind {
    int64_t row;   /* -1: none differs */
    double height; /* of that row */
} usc_diff_behind;

/** Looks at the rows of A's call, which are compared. backward.c */
usc_diff_behind usc_diff_look_behind(const usc_diff *d, const usc_diff_call *call);

/** Numbers that a gradient of a parameter sums, about. */
double usc_diff_gradient_fan(const usc_call *c);

/** What a gradient of a vector of parameters counts as at least: such sums may cancel (a
 * bias before a normalisation). 0 for others. */
double usc_diff_gradient_scale(const usc_call *c, const usc_call_arg *arg);

/** Whether what `arg`, the whole gradient of an input, has of this module is told by
 * itself on both sides. */
bool usc_diff_is_covered(const usc_call *a, const usc_call *b, const usc_call_arg *arg);

/** The larger distance; infinite where NaN or Inf stands on one side. */
double usc_diff_height(const usc_diff_size *s);

/** The argument of `in` that stands where `arg` does; -1: none. `at` is tried first. */
int usc_diff_partner(const usc_call *in, const usc_call_arg *arg, int at);

#endif
