// SPDX-License-Identifier: Apache-2.0
// Other readings of a call, which are as right as its own: numbers rounded first, casts
// that a callable has inside, the same numbers in rows. What is accused by the call's own
// is held to each of them as a whole, from its form on, and the first by which it passes
// stands. So an element may be what one of them gives, and all of an output is held to
// one and the same. Neighbours: case_state.h.
#include "case/case_state.h"

#include <math.h>
#include <string.h>

#define ALIKE 0x1p-40 /* of a number: what float64 itself may lose */

enum { MOST_READINGS = 16 };

static usc_case_stage take_reading;

static usc_status ask_from(usc_case *c, int number)
{
    const usc_status st = usc_case_ask(c, USC_WANT_READING, number - 1, take_reading);
    c->want.reading = number;
    return st;
}

/* There is none that makes it better: what was found stands. */
static usc_status leave(usc_case *c)
{
    c->o = c->reading.own;
    c->f = c->reading.found;
    c->kept = c->reading.kept;
    c->reading.note = c->reading.own_note;
    c->reading.over = true;
    return usc_case_go(c, usc_case_put_away);
}

static usc_status ask_next(usc_case *c, int number)
{
    c->reading.at = 0;
    return number < MOST_READINGS ? ask_from(c, number + 1) : leave(c);
}

/* ---- one that was given ---- */

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= ALIKE * fabs(a);
}

/* Whether its truth is that of the call's own: what is accused there is accused here. */
static bool is_same(usc_case *c, const usc_tensor *truth)
{
    const usc_tensor *own = &c->reading.truth;
    if (own->dtype == truth->dtype && !usc_case_is_float(truth)) {
        const void *a = usc_case_plain(c, own), *b = usc_case_plain(c, truth);
        const size_t size = usc_dtype_info_of(truth->dtype)->size;
        return a != NULL && b != NULL && memcmp(a, b, (size_t)c->n * size) == 0;
    }
    const double *a = usc_case_wide(c, own), *b = usc_case_wide(c, truth);
    for (int64_t i = 0; i < c->n && a != NULL && b != NULL; i++)
        if (!same_number(a[i], b[i])) return false;
    return true;
}

/* What is known of the output as that reading has it. */
static usc_case_output as_read(const usc_case *c)
{
    const usc_case_output *own = &c->reading.own, *known = c->given.known;
    usc_case_output o = known != NULL ? *known : *own;
    o.path = own->path;
    o.device = own->device; /* points to c->device */
    o.bytes = own->bytes;
    o.dtype = own->dtype;
    o.captured = own->captured;
    o.keep = own->keep;
    o.narrow = false; /* what has another format's numbers does not pass */
    o.bare = own->bare;
    o.readings = own->readings;
    return o;
}

static usc_status begin(usc_case *c, int number, usc_error *err)
{
    usc_tensor truth = *c->given.a, yardstick = truth;
    if (c->given.b != NULL) yardstick = *c->given.b;
    c->device = c->reading.device;
    if (c->given.known != NULL && c->given.known->device != NULL)
        c->device = c->known_device;
    c->o = as_read(c);
    c->reading.at = number;
    c->reading.note = c->text[0] != '\0' ? usc_case_text(c, c->text) : NULL;
    usc_case_forget(c);
    c->tensors[0] = truth;
    c->tensors[1] = yardstick;
    c->given =
        (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &c->tensors[0], .b = &c->tensors[1]};
    const usc_status st = c->o.keep ? usc_case_keep_reading(c, err) : USC_OK;
    return st == USC_OK ? usc_case_go(c, usc_case_form) : st;
}

static usc_status take_reading(usc_case *c, usc_error *err)
{
    const int number = c->want.reading;
    const usc_tensor *truth = c->given.a;
    if (usc_case_given(c, USC_GIVEN_NONE)) return leave(c);
    const usc_case_output *known = c->given.known;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || truth == NULL ||
        !usc_case_fits(truth, &c->reading.truth) || is_same(c, truth) ||
        (known != NULL && known->device != NULL &&
         (c->known_device.dtype != c->reading.device.dtype ||
          !usc_case_fits(&c->known_device, &c->reading.device))))
        return ask_next(c, number);
    return begin(c, number, err);
}

/* ---- in turn ---- */

void usc_case_read_own(usc_case *c)
{
    const char *note = c->text[0] != '\0' ? usc_case_text(c, c->text) : NULL;
    c->reading.note = c->reading.own_note = note;
    if (c->kept != NULL) usc_case_keep_note(c);
}

bool usc_case_may_read(const usc_case *c)
{
    const struct usc_case_reading *r = &c->reading;
    if (!c->o.readings || r->over || c->o.free || c->o.bytes != NULL ||
        c->truth.dtype == USC_DTYPE_NONE)
        return false;
    if (r->at > 0) return true;
    return c->kept != NULL ? c->f.verdict != USC_VERDICT_UNJUDGED
                           : usc_verdict_flagged(c->f.verdict);
}

usc_status usc_case_read(usc_case *c, usc_error *err)
{
    struct usc_case_reading *r = &c->reading;
    (void)err;
    if (r->at == 0) {
        r->own = c->o;
        r->found = c->f;
        r->device = c->device;
        r->truth = c->truth;
        r->kept = r->last = c->kept;
        return ask_next(c, 0);
    }
    if (c->kept != NULL) {
        usc_case_kept_reading(c);
        return ask_next(c, r->at);
    }
    if (c->f.verdict != USC_VERDICT_PASS) return ask_next(c, r->at);
    r->over = true;
    return usc_case_go(c, usc_case_put_away);
}
