// SPDX-License-Identifier: Apache-2.0
// Other readings of a call, which are as right as its own: the form of attention that
// reads nothing hidden, what the CPU's kernel writes, numbers rounded first, casts that a
// callable has inside, the same numbers in rows. What is accused by the call's own is
// held to each of them as a whole, from its form on, and the first by which it passes
// stands. So an element may be what one of them gives, and all of an output is held to
// one and the same. Neighbours: case_state.h.
#include "case/case_kept.h"
#include "case/case_state.h"

#include <math.h>
#include <string.h>

#define ALIKE 0x1p-40 /* of a number: what float64 itself may lose */

enum { MOST_READINGS = 16 };

static usc_case_stage take_reading;

/* There is none that makes it better: what was found stands. */
static usc_status leave(usc_case *c)
{
    c->o = c->reading.own;
    c->f = c->reading.found;
    c->kept = c->reading.kept;
    c->reading.note = c->reading.own_note;
    c->reading.over = true;
    return usc_case_pass(c, USC_STAGE_PUT_AWAY);
}

/* Whether it may make what was found better. What nobody writes may be why elements could
 * not be told of. */
static bool may_help(const usc_case *c, int number)
{
    const usc_verdict v = c->reading.found.verdict;
    if (c->reading.kept != NULL || number == USC_READING_UNWRITTEN) return true;
    return number == USC_READING_UNREAD ? v == USC_VERDICT_NONFINITE
                                        : usc_verdict_flagged(v);
}

static usc_status ask_next(usc_case *c, int before)
{
    int number = before + 1;
    c->reading.at = 0;
    while (number < MOST_READINGS && !may_help(c, number))
        number++;
    if (number >= MOST_READINGS) return leave(c);
    const int k = number - USC_READING_OTHERS;
    usc_status st;
    if (number == USC_READING_UNREAD)
        st = usc_case_ask(c, USC_WANT_UNREAD, 0, take_reading);
    else if (number == USC_READING_UNWRITTEN)
        st = usc_case_ask(c, USC_WANT_UNWRITTEN, 0, take_reading);
    else
        st = usc_case_ask(c, USC_WANT_READING, k, take_reading);
    c->want.reading = number;
    return st;
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

/* Of all an output is read otherwise, or marked elements of it may be something else. */
static bool is_other(usc_case *c, int number)
{
    const usc_tensor *truth = c->given.a, *marks = c->given.c;
    if (number >= USC_READING_OTHERS) return !is_same(c, truth);
    return marks != NULL && usc_case_fits(marks, truth);
}

static bool fits(const usc_case *c)
{
    const usc_case_output *known = c->given.known;
    const usc_tensor *as_it_came = &c->reading.device;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->reading.truth))
        return false;
    return known == NULL || known->device == NULL ||
           (c->known_device.dtype == as_it_came->dtype &&
            usc_case_fits(&c->known_device, as_it_came));
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

/* Where something hidden may reach, NaN is as good as R: one form of attention multiplies
 * it by 0. What the CPU's kernel leaves as the memory was, or hangs on something that it
 * refuses, may hold anything. */
static bool is_as_good(const usc_case *c, double got, double right)
{
    if (c->reading.at != USC_READING_UNREAD) return true;
    return isnan(got) && !isnan(usc_case_rounded(c, right));
}

/* Puts right what is as good, of the marked elements; how many. */
static int64_t put_right(usc_case *c, const usc_tensor *truth, const usc_tensor *marks)
{
    int64_t n_free = 0;
    const size_t size = usc_dtype_info_of(truth->dtype)->size;
    const unsigned char *raw = usc_case_plain(c, truth);
    const double *r = usc_case_wide(c, truth), *d = usc_case_wide(c, &c->device);
    const double *marked = usc_case_wide(c, marks);
    if (r == NULL || d == NULL || marked == NULL || !usc_case_spare(c, &c->device))
        return 0; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++) {
        if (marked[i] == 0 || !is_as_good(c, d[i], r[i])) continue;
        if (truth->dtype ==
            c->device.dtype) /* of large integers no double has all bits */
            memcpy(c->spare_room + (size_t)i * size, raw + (size_t)i * size, size);
        else
            usc_case_put(c, i, r[i]);
        n_free++;
    }
    c->device = c->spared;
    c->spared.data = NULL;
    return n_free;
}

static usc_status begin(usc_case *c, int number, usc_error *err)
{
    const usc_case_output o = as_read(c);
    const usc_given given = c->given;
    const usc_tensor truth = *given.a, yardstick = given.b != NULL ? *given.b : truth;
    const usc_tensor marks = given.c != NULL ? *given.c : truth;
    c->device = c->reading.device;
    if (given.known != NULL && given.known->device != NULL) c->device = c->known_device;
    c->o = o;
    c->reading.at = number;
    c->reading.n_free = 0;
    c->reading.note = c->text[0] != '\0' ? usc_case_text(c, c->text) : NULL;
    usc_case_forget(c);
    usc_status st = c->o.keep ? usc_case_keep_reading(c, err) : USC_OK;
    if (st == USC_OK && given.c != NULL && number < USC_READING_OTHERS) {
        if (c->o.keep)
            usc_case_keep_excepted(c, &marks);
        else
            c->reading.n_free = put_right(c, &truth, &marks);
    }
    c->tensors[0] = truth;
    c->tensors[1] = yardstick;
    c->given =
        (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &c->tensors[0], .b = &c->tensors[1]};
    return st == USC_OK ? usc_case_pass(c, USC_STAGE_FORM) : st;
}

static usc_status take_reading(usc_case *c, usc_error *err)
{
    const int number = c->want.reading;
    const bool last = number >= USC_READING_OTHERS;
    if (last && usc_case_given(c, USC_GIVEN_NONE)) return leave(c);
    if (!fits(c) || !is_other(c, number)) return ask_next(c, number);
    return begin(c, number, err);
}

/* ---- in turn ---- */

void usc_case_read_own(usc_case *c)
{
    const char *note = c->text[0] != '\0' ? usc_case_text(c, c->text) : NULL;
    c->reading.note = c->reading.own_note = note;
    if (c->kept != NULL) usc_case_keep_note(c);
    const usc_tensor *marks = c->given.c;
    const usc_excuse excuse = (usc_excuse)c->given.number;
    if (marks == NULL || c->o.bytes != NULL || c->truth.dtype == USC_DTYPE_NONE ||
        !usc_case_fits(marks, &c->truth) || usc_excuse_info_of(excuse) == NULL)
        return;
    if (c->kept != NULL) {
        usc_case_keep_excepted(c, marks);
        usc_case_keep_refused(c, excuse);
        return;
    }
    c->reading.refused = excuse;
    c->reading.n_refused = put_right(c, &c->truth, marks);
}

void usc_case_refuse(usc_case *c)
{
    const int64_t n = c->reading.n_refused;
    usc_case_excuse(c, c->reading.refused, n);
    if (c->f.verdict != USC_VERDICT_PASS) return;
    c->f.verdict = USC_VERDICT_UNDEFINED;
    c->f.reason = usc_excuse_info_of(c->reading.refused)->words;
    c->f.judgement.n_mismatch = n;
    if (c->f.numbers == USC_NUMBERS_NONE) c->f.numbers = USC_NUMBERS_COUNT;
}

static bool any_excused(const usc_finding *f)
{
    for (int i = 0; i < USC_N_EXCUSES; i++)
        if (f->excused[i] > 0) return true;
    return false;
}

/* Of what passes there is nothing to be said, unless some of it is nobody's. */
bool usc_case_may_read(const usc_case *c)
{
    const struct usc_case_reading *r = &c->reading;
    const usc_verdict v = c->f.verdict;
    if (!c->o.readings || r->over || c->apart.weighing || c->o.free ||
        c->o.bytes != NULL || c->truth.dtype == USC_DTYPE_NONE ||
        !usc_case_fits(&c->device, &c->truth))
        return false;
    if (r->at > 0) return true;
    if (c->kept != NULL) return v != USC_VERDICT_UNJUDGED;
    return v != USC_VERDICT_PASS || c->f.n_notes > 0 || any_excused(&c->f);
}

/* What is found by the reading at hand. Without what nobody writes all other elements are
 * told of better, whatever is found. */
static usc_status weigh(usc_case *c)
{
    struct usc_case_reading *r = &c->reading;
    const bool unwritten = r->at == USC_READING_UNWRITTEN;
    if (c->f.verdict != USC_VERDICT_PASS && !unwritten) return ask_next(c, r->at);
    usc_case_excuse(c, unwritten ? USC_EXCUSE_UNWRITTEN : USC_EXCUSE_MASKED, r->n_free);
    if (usc_verdict_flagged(c->f.verdict)) {
        r->found = c->f;
        return ask_next(c, r->at);
    }
    r->over = true;
    return usc_case_pass(c, USC_STAGE_PUT_AWAY);
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
        r->yardstick = c->yardstick;
        r->kept = r->last = c->kept;
        return ask_next(c, 0);
    }
    if (c->kept == NULL) return weigh(c);
    usc_case_kept_reading(c);
    return ask_next(c, r->at);
}
