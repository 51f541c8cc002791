// SPDX-License-Identifier: Apache-2.0
// A verdict in words. Neighbours: findings.h.
#include "case/findings.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

/* Text that grows; cut where it does not fit. */
typedef struct line {
    char *out;
    size_t size, used;
} line;

static void say(line *l, const char *format, ...) USC_PRINTF(2, 3);
static void say(line *l, const char *format, ...)
{
    va_list args;
    if (l->used >= l->size) return;
    va_start(args, format);
    const int n = usc_format_list(l->out + l->used, l->size - l->used, format, args);
    va_end(args);
    l->used = n > 0 ? l->used + (size_t)n : l->used;
}

void usc_position(const usc_finding *f, int64_t flat, int64_t at[USC_MAX_DIMS])
{
    for (int i = f->ndim - 1; i >= 0; i--) {
        at[i] = f->sizes[i] > 0 ? flat % f->sizes[i] : 0;
        flat /= f->sizes[i] > 0 ? f->sizes[i] : 1;
    }
}

void usc_position_text(const usc_finding *f, int64_t flat, char *out, size_t size)
{
    int64_t at[USC_MAX_DIMS];
    line l = {.out = out, .size = size};
    usc_position(f, flat, at);
    say(&l, "[");
    for (int i = 0; i < f->ndim; i++)
        say(&l, "%s%lld", i > 0 ? ", " : "", (long long)at[i]);
    say(&l, "]");
}

/* A value as a person would write it. */
static void say_number(line *l, double v)
{
    if (isnan(v))
        say(l, "NaN");
    else if (isinf(v))
        say(l, v > 0 ? "Inf" : "-Inf");
    else
        say(l, "%.6g", v);
}

double usc_said_bits(usc_verdict verdict, const usc_finding *f, double *yardstick)
{
    const bool none = f == NULL || verdict == USC_VERDICT_UNJUDGED ||
                      verdict == USC_VERDICT_UNSUPPORTED ||
                      verdict == USC_VERDICT_UNDEFINED;
    const bool unseen =
        !none && verdict == USC_VERDICT_PASS && f->bound && !(f->bits > 0);
    if (yardstick != NULL) *yardstick = none || unseen ? (double)NAN : f->yardstick_bits;
    return none || unseen ? (double)NAN : f->bits;
}

static double shown(double bits)
{
    return bits > 0 ? bits : 0;
}

/* Where the worst element is, what it holds and what is true. */
static void say_example(line *l, const usc_finding *f)
{
    char at[1024];
    usc_position_text(f, f->examples[0].index, at, sizeof at);
    say_number(l, f->examples[0].device);
    say(l, " instead of ");
    say_number(l, f->examples[0].reference);
    say(l, " at %s", at);
}

static bool is_excused(const usc_finding *f)
{
    int64_t n = 0;
    for (int i = 0; i < USC_N_EXCUSES; i++)
        n += f->excused[i];
    return n > 0;
}

static void say_passed(line *l, const usc_finding *f)
{
    const usc_judgement *j = f != NULL ? &f->judgement : NULL;
    if (f != NULL && isnan(f->bits)) { /* nothing was measured */
        say(l, "passes: %s", f->reason[0] != '\0' ? f->reason : "nothing to measure");
        return;
    }
    if (f == NULL || f->numbers == USC_NUMBERS_NONE || f->n == 0) {
        say(l, "is as it must be");
        return;
    }
    const bool all = f->numbers == USC_NUMBERS_ALL;
    if (!all && !is_excused(f) &&
        j->n_mismatch > 0) { /* of what must agree in every bit */
        say(l, "is right: %s of %s elements are not the CPU's, and as good",
            usc_count(j->n_mismatch).text, usc_count(f->n).text);
        return;
    }
    if (all && j->n_finite == 0) {
        say(l, "gives NaN and Inf where it must; nothing finite to judge");
        return;
    }
    if ((j->n_mismatch == 0 || (all && j->exact)) && !is_excused(f))
        say(l, f->wide ? "is as good as the CPU's float64" : "is correctly rounded");
    else
        say(l, "computed with %s%.1f effective bits", f->bound ? "at least " : "",
            shown(f->bits));
}

/* float32's bits may be all that the output can show, and not all that there are. */
static void say_reduced(line *l, const usc_finding *f, const char *where)
{
    const bool more = f->numbers == USC_NUMBERS_ALL && f->judgement.yardstick_bound &&
                      f->yardstick_bits < 24;
    if (f->bits > f->yardstick_bits - 1 &&
        f->reason[0] != '\0') { /* bits do not tell it */
        say(l, "is reduced%s: %s", where, f->reason);
        return;
    }
    say(l, "computed with %.1f effective bits%s; float32 gives %s%.1f", shown(f->bits),
        where, more ? "at least " : "", shown(f->yardstick_bits));
}

static void say_example_or_reason(line *l, usc_verdict verdict, const usc_finding *f,
                                  const char *where)
{
    const bool bad = verdict == USC_VERDICT_NONFINITE;
    if (f->n_examples == 0 || (!bad && f->factor != 0)) {
        say(l, "is %s%s: %s", bad ? "nonfinite" : "wrong", where, f->reason);
        return;
    }
    const int64_t n_bad = f->judgement.n_bad > 0 ? f->judgement.n_bad : 1;
    say(l, "gives ");
    say_example(l, f);
    say(l, "%s (%s of %s elements%s)", where,
        usc_count(bad ? n_bad : f->judgement.n_mismatch).text, usc_count(f->n).text,
        bad ? "" : " differ");
}

static void say_statement(line *l, const usc_said *s)
{
    char where[512] = "";
    const usc_finding *f = s->worst;
    const bool reason = s->reason != NULL && s->reason[0] != '\0';
    if (s->verdict == USC_VERDICT_PASS && !reason) {
        say_passed(l, f);
        return;
    }
    if (s->verdict == USC_VERDICT_PASS) {
        say(l, "passes: %s", s->reason);
        return;
    }
    if (reason || f == NULL || s->verdict == USC_VERDICT_UNJUDGED ||
        s->verdict == USC_VERDICT_UNSUPPORTED ||
        (s->verdict == USC_VERDICT_UNDEFINED && f->n == 0)) {
        say(l, "is %s: %s", usc_verdict_text(s->verdict),
            reason      ? s->reason
            : f != NULL ? f->reason
                        : "");
        return;
    }
    if (f->path[0] != '\0' && strcmp(f->path, "out[0]") != 0)
        (void)snprintf(where, sizeof where, " in %s", f->path);
    if (s->verdict == USC_VERDICT_REDUCED)
        say_reduced(l, f, where);
    else if (s->verdict == USC_VERDICT_UNDEFINED)
        say(l, "is undefined%s at %s of %s elements: %s", where,
            usc_count(f->judgement.n_mismatch).text, usc_count(f->n).text, f->reason);
    else
        say_example_or_reason(l, s->verdict, f, where);
}

void usc_said_sentence(const usc_said *s, char *out, size_t size)
{
    line l = {.out = out, .size = size};
    if (size > 0) out[0] = '\0';
    say(&l, "%s ", s->op);
    say_statement(&l, s);
    if (s->culprit != NULL && s->culprit[0] != '\0' && strcmp(s->culprit, s->op) != 0)
        say(&l, "; the fault is in %s", s->culprit);
    if (s->cause != NULL && s->cause[0] != '\0') say(&l, ": %s", s->cause);
    if (s->left_out != NULL && s->left_out[0] != '\0')
        say(&l, "; not judged: %s", s->left_out);
}
