// SPDX-License-Identifier: Apache-2.0
// In what order a check takes its picks, and when it stops. Without a budget the order is
// that of the trace. With one the most telling come first: one of each signature, the
// rarest operators before the others; then one of each signature in each further module
// class; then the rest, from the operator whose calls came out worst so far, among equals
// from the rarest.
#ifndef USC_RUN_AGENDA_H
#define USC_RUN_AGENDA_H

#include <ulpscope/call.h>
#include <ulpscope/verdict.h>

#include "base/arena.h"
#include "base/keys.h"
#include "call/calls.h"

typedef struct usc_agenda_op usc_agenda_op;
typedef struct usc_agenda_item usc_agenda_item;

typedef struct usc_agenda {
    usc_arena arena;
    const usc_calls *calls;
    const usc_pick *pick;
    int64_t n_items, n_first, i_first, n_left;
    usc_agenda_item *item; /* the first ones of their kind before the others */
    usc_keys ops;          /* hash of a name -> usc_agenda_op */
    usc_agenda_op *last;
    bool ordered; /* by what they tell, until `end` */
    double end;
} usc_agenda;

/** Takes in `n` indices of a->pick, in a->calls; the rest of *a is zero. `end`: when the
 * time is over on usc_run_clock; 0: never, and in the order given. Errors: USC_E_NOMEM.
 */
USC_NODISCARD usc_status usc_agenda_begin(usc_agenda *a, const int64_t *index, int64_t n,
                                          double end, usc_error *err);
void usc_agenda_free(usc_agenda *a);

/** Whether something is left and there is time for it. */
bool usc_agenda_more(const usc_agenda *a);

/** The next one; -1 where nothing is left. */
int64_t usc_agenda_take(usc_agenda *a);

/** A pick was judged, which took `seconds`. */
void usc_agenda_hear(usc_agenda *a, int64_t index, usc_verdict verdict, double bits,
                     double seconds);

/** How many calls as those judged so far took what is left amounts to: of each operator
 * by what its own calls took, but for the longest, which found nothing loaded. */
double usc_agenda_weight(const usc_agenda *a);

/** Name that a pick goes by among others: its operator, the class of a module. */
const char *usc_agenda_name(const usc_calls *calls, const usc_pick *pick);

/** What is left, as text: "aten::mm (12), aten::add.Tensor (3) and 2 other operators". */
void usc_agenda_tell_left(const usc_agenda *a, char *out, size_t size);

#endif
