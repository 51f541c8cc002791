// SPDX-License-Identifier: Apache-2.0
// The order of questions in the search for the cause of one accused output.
// Neighbours: cause_open.c, which opens the search.
#include "cause/cause_state.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* What leaves little to be off is looked at closely, too. */
static bool damage(usc_cause *c, usc_cause_found *out)
{
    const marks *far = usc_cause_far(c), *fine = usc_cause_fine(c);
    if (far == NULL || fine == NULL) return false;
    const bool few = fine->n > 0 && fine->n < c->d.n / 2 && fine->n != far->n;
    return (few && usc_cause_damage(c, fine, out)) || usc_cause_damage(c, far, out);
}

/* NaN or Inf out of place, where something else than a formula made them. */
static bool plain_kinds(usc_cause *c, usc_cause_found *out)
{
    const marks *far = usc_cause_far(c);
    int64_t finite = 0;
    if (far == NULL || usc_cause_saturated(c, out)) return far != NULL;
    if (far->n == 1 && usc_cause_damage(c, far, out)) return true;
    if (usc_cause_opposite(c) && usc_cause_size(c, out) && (out->code == USC_CAUSE_SIGN))
        return true;
    for (int64_t i = 0; i < c->d.n; i++)
        finite += far->at[i] && isfinite(value_at(&c->t, i));
    if (2 * finite > far->n && usc_cause_damage(c, far, out) &&
        (c->held == HOLDS_ZERO || c->held == HOLDS_STALE))
        return true;
    return usc_cause_moved(c, out) || usc_cause_slid(c, out);
}

static bool plain(usc_cause *c, usc_cause_found *out)
{
    if (usc_cause_lost(c, out) || usc_cause_uniform(c, out) || usc_cause_ties(c, out))
        return true;
    if (usc_cause_kinds_differ(c)) return plain_kinds(c, out);
    return usc_cause_saturated(c, out) || usc_cause_padded(c, out) || damage(c, out) ||
           usc_cause_exchanged_outputs(c, out) || usc_cause_moved(c, out) ||
           usc_cause_slid(c, out);
}

/* NaN and Inf out of place, and what was not written there. */
static bool kinds(usc_cause *c, usc_cause_found *out)
{
    const marks *far = usc_cause_far(c);
    usc_cause_found other = {0};
    if (far == NULL || !usc_cause_kinds_differ(c)) return false;
    const bool also = usc_cause_damage(c, far, &other);
    if (!usc_cause_kinds(c, out)) {
        if (also) *out = other;
        return also;
    }
    const bool swallowed =
        out->code == USC_CAUSE_SWALLOWED || out->code == USC_CAUSE_SWALLOWED_BY;
    const size_t n = strlen(out->text), more = strlen(other.text) + 2;
    if (swallowed && also && n + more < sizeof out->text) {
        memcpy(out->text + n, "; ", 2);
        memcpy(out->text + n + 2, other.text, more - 1);
    }
    return true;
}

static bool places(usc_cause *c, usc_cause_found *out)
{
    const marks *far = usc_cause_far(c);
    return far != NULL && (usc_cause_zero_slices(c, out) || usc_cause_by_slices(c, out) ||
                           usc_cause_format(c, out) || usc_cause_spread(c, out) ||
                           usc_cause_uniform(c, out) || usc_cause_likely(c, out));
}

static bool look_at(usc_cause *c, usc_cause_look look, usc_cause_found *out)
{
    switch (look) {
    case USC_CAUSE_PLAIN:
        return plain(c, out);
    case USC_CAUSE_KINDS:
        return kinds(c, out);
    case USC_CAUSE_SIZE:
        return usc_cause_size(c, out);
    case USC_CAUSE_ORDER:
        return usc_cause_reordered(c, out) || usc_cause_shuffled(c, out);
    case USC_CAUSE_CLIP:
        return usc_cause_clipped(c, out);
    case USC_CAUSE_SIDE:
        return usc_cause_by_sign(c, out);
    case USC_CAUSE_PLACES:
        return places(c, out);
    case USC_CAUSE_PLACE:
        return usc_cause_where(c, out);
    case USC_CAUSE_ANYTHING:
        break;
    }
    return false;
}

usc_status usc_cause_ask(usc_cause *c, usc_cause_look look, usc_cause_found *out,
                         usc_error *err)
{
    const usc_cause_found nothing = {.left = (double)INFINITY};
    const bool all = look == USC_CAUSE_ANYTHING;
    const usc_cause_look last = all ? USC_CAUSE_PLACES : look;
    assert(c && out);
    c->alone = all;
    for (int i = all ? USC_CAUSE_PLAIN : (int)look; i <= (int)last; i++) {
        *out = nothing;
        usc_arena_reset(&c->work);
        const bool found = look_at(c, (usc_cause_look)i, out);
        if (c->work.failed || c->kept.failed) {
            *out = nothing;
            return usc_no_memory("search for a cause", err);
        }
        if (found) return USC_OK;
    }
    *out = nothing;
    return USC_OK;
}

usc_status usc_cause_add_place(usc_cause *c, usc_cause_found *io, usc_error *err)
{
    usc_cause_found place;
    if (usc_cause_tells_place(usc_cause_code_text(io->code))) return USC_OK;
    const usc_status st = usc_cause_ask(c, USC_CAUSE_PLACE, &place, err);
    const size_t used = strlen(io->text);
    if (st != USC_OK || place.code == USC_CAUSE_NONE) return st;
    (void)snprintf(io->text + used, sizeof io->text - used, "%s; %s",
                   used == 0 ? "cause unknown" : "", place.text);
    return USC_OK;
}
