// SPDX-License-Identifier: Apache-2.0
// The finding on the output at hand: verdict, notes, what differs. Neighbours:
// case_state.h; findings.c, the list that it is put into.
#include "case/case_state.h"

#include "base/number.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LEAST_BITS                                                                       \
    11 /* nothing passes with fewer: the limits of the judge, and three                  \
        */

const char *usc_case_text(usc_case *c, const char *text)
{
    if (text[0] == '\0') return "";
    char *out = usc_arena_take(&c->work, strlen(text) + 1);
    return out != NULL ? strcpy(out, text) : "";
}

static void set_form(usc_case *c, usc_finding *f)
{
    f->path = c->o.path;
    f->wide = c->device.dtype == USC_F64;
    f->n = c->n;
    f->ndim = c->device.ndim;
    memcpy(f->sizes, c->device.sizes, sizeof f->sizes);
}

void usc_case_conclude(usc_case *c, usc_verdict verdict, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)usc_format_list(text, sizeof text, format, args);
    va_end(args);
    c->f = (usc_finding){.verdict = verdict,
                         .reason = usc_case_text(c, text),
                         .bits = verdict == USC_VERDICT_WRONG ? 0 : 24,
                         .yardstick_bits = 24};
    set_form(c, &c->f);
}

void usc_case_note(usc_case *c, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)usc_format_list(text, sizeof text, format, args);
    va_end(args);
    usc_findings_noted(c->found, &c->f, "%s", text);
}

void usc_case_excuse(usc_case *c, usc_excuse excuse, int64_t count)
{
    usc_findings_excused(c->found, &c->f, excuse, count);
}

void usc_case_differ(usc_case *c, const usc_tensor *got, const usc_tensor *want)
{
    usc_tensor marks;
    if (usc_tensor_make(&marks, c->open, USC_U8, got->ndim, got->sizes, NULL) != USC_OK)
        return;
    const usc_judgement j = c->f.judgement;
    const usc_finding_numbers numbers = c->f.numbers;
    usc_case_conclude(c, USC_VERDICT_WRONG, "%s", "");
    c->f.numbers = numbers;
    c->f.judgement = j;
    usc_finding_differs(&c->f, got, want, &marks);
    c->f.reason = usc_case_text(c, usc_differing(c->f.judgement.n_mismatch).text);
}

static const char *why(usc_excuse excuse)
{
    if (excuse == USC_EXCUSE_OUT_OF_RANGE)
        return "a float that the integer type does not hold is converted";
    if (excuse == USC_EXCUSE_WRITTEN_TWICE)
        return "several updates write one element, in no promised order";
    return "the function has a corner there, and any subgradient is one";
}

void usc_case_undefined(usc_case *c, int64_t n_differ)
{
    usc_case_conclude(c, USC_VERDICT_UNDEFINED, "%s", why(c->excuse));
    c->f.numbers = USC_NUMBERS_COUNT;
    c->f.judgement.n_mismatch = n_differ;
    usc_case_excuse(c, c->excuse, c->n_marks);
}

usc_status usc_case_keep(usc_case *c, usc_error *err)
{
    usc_findings_forget_bits(c->found, &c->f);
    const usc_finding *f = &c->f;
    assert(f->verdict != USC_VERDICT_PASS || !(f->bits < LEAST_BITS) || f->bound);
    usc_case_settle(c);
    return usc_findings_add(c->found, f, err);
}

usc_findings *usc_case_findings(usc_case *c)
{
    return c->found;
}

usc_turn *usc_case_turn(usc_case *c, double from, double to)
{
    for (int k = 0; k < c->n_turns; k++)
        if (c->turns[k].from == from && c->turns[k].to == to) return &c->turns[k];
    if (c->n_turns == USC_MOST_TURNS) return NULL;
    c->turns[c->n_turns] = (usc_turn){.from = from, .to = to};
    return &c->turns[c->n_turns++];
}
