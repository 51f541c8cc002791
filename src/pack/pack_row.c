// SPDX-License-Identifier: Apache-2.0
// Findings of one call as a row of result.db: one sentence, numbers, worst elements. The
// same words as a check has; no cause, since naming one takes replays.
#include "base/number.h"
#include "pack/pack_finding.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SENTENCE = 1024, N_NUMBERS = 10, INDEX = 1024, HISTOGRAM = 2048 };

int64_t usc_pack_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Text in the arena; NULL where there is no memory. */
static const char *text(usc_arena *a, const char *format, ...) USC_PRINTF(2, 3);
static const char *text(usc_arena *a, const char *format, ...)
{
    char bytes[SENTENCE];
    va_list args;
    va_start(args, format);
    (void)usc_format_list(bytes, sizeof bytes, format, args);
    va_end(args);
    char *out = usc_arena_take(a, strlen(bytes) + 1);
    return out != NULL ? strcpy(out, bytes) : NULL;
}

/* A value as a person would write it. */
static const char *number(usc_arena *a, double v)
{
    if (isnan(v)) return "NaN";
    if (isinf(v)) return v > 0 ? "Inf" : "-Inf";
    return text(a, "%.6g", v);
}

/* A row-major index as "[3, 17]". */
static const char *position(usc_arena *a, const usc_pack_finding *f, int64_t flat)
{
    int64_t at[USC_MAX_DIMS];
    for (int i = f->ndim - 1; i >= 0; i--) {
        at[i] = f->sizes[i] > 0 ? flat % f->sizes[i] : 0;
        flat /= f->sizes[i] > 0 ? f->sizes[i] : 1;
    }
    char bytes[INDEX];
    size_t n = (size_t)snprintf(bytes, sizeof bytes, "[");
    for (int i = 0; i < f->ndim; i++)
        n += (size_t)snprintf(bytes + n, sizeof bytes - n, "%s%lld", i > 0 ? ", " : "",
                              (long long)at[i]);
    return text(a, "%s]", bytes);
}

static const char *example(usc_arena *a, const usc_pack_finding *f)
{
    const usc_example *e = &f->examples[0];
    return text(a, "%s instead of %s at %s", number(a, e->device),
                number(a, e->reference), position(a, f, e->index));
}

static double shown(double bits)
{
    return bits > 0 ? bits : 0;
}

/* What the number of bits suggests: a hint, in the sentence only. */
static const char *likely(const usc_pack_finding *f)
{
    if (f->j.bits >= 6.5 && f->j.bits < 9.5)
        return ": consistent with bfloat16 arithmetic";
    if (f->j.bits >= 9.5 && f->j.bits < 12.5)
        return ": consistent with TF32 or float16 arithmetic";
    return "";
}

static const char *passed(usc_arena *a, const char *op, const usc_pack_finding *f)
{
    if (f->standard != NULL) return text(a, "%s passes by %s", op, f->standard);
    if (!f->measured || f->j.n == 0 || f->ties) return text(a, "%s is as it must be", op);
    if (isnan(f->j.bits))
        return text(a, "%s gives NaN and Inf where it must; nothing finite to judge", op);
    if ((f->j.n_mismatch == 0 || f->j.exact) && f->j.n_ill == 0)
        return text(
            a, f->wide ? "%s is as good as the CPU's float64" : "%s is correctly rounded",
            op);
    return text(a, "%s computed with %s%.1f effective bits", op,
                f->j.bound ? "at least " : "", shown(f->j.bits));
}

/* What float32 gives, where that is less than all because the output shows no more. */
static const char *at_least(const usc_judgement *j)
{
    return j->yardstick_bound && j->yardstick_bits < 24 ? "at least " : "";
}

static const char *sentence(usc_arena *a, const char *op, const usc_pack_finding *f)
{
    const char *where = "";
    if (f->path[0] != '\0' && strcmp(f->path, "out[0]") != 0)
        where = text(a, " in %s", f->path);
    if (f->verdict == USC_VERDICT_PASS) return passed(a, op, f);
    if (f->verdict == USC_VERDICT_UNJUDGED || f->verdict == USC_VERDICT_UNSUPPORTED ||
        f->verdict == USC_VERDICT_UNDEFINED)
        return text(a, "%s is %s: %s", op, usc_verdict_text(f->verdict), f->reason);
    if (f->verdict == USC_VERDICT_REDUCED)
        return text(a, "%s computed with %.1f effective bits%s; float32 gives %s%.1f%s",
                    op, shown(f->j.bits), where, at_least(&f->j),
                    shown(f->j.yardstick_bits), likely(f));
    if (f->standard != NULL)
        return text(a, "%s is %s%s by %s: %s", op, usc_verdict_text(f->verdict), where,
                    f->standard, f->reason);
    if (f->n_examples == 0) return text(a, "%s is wrong%s: %s", op, where, f->reason);
    const bool bad = f->verdict == USC_VERDICT_NONFINITE;
    return text(a, "%s gives %s%s (%lld of %lld elements%s)", op, example(a, f), where,
                (long long)(bad ? f->j.n_bad : f->j.n_mismatch), (long long)f->j.n,
                bad ? "" : " differ");
}

/* ---- numbers ---- */

typedef struct metrics {
    usc_metric *items;
    int n;
    usc_arena *arena;
} metrics;

static void add_text(metrics *m, int output, const char *name, const char *value)
{
    m->items[m->n++] = (usc_metric){output, name, 0, value};
}

static const char *histogram_text(usc_arena *a, const usc_judgement *j)
{
    char bytes[HISTOGRAM];
    bool any = false;
    size_t n = (size_t)snprintf(bytes, sizeof bytes, "[");
    for (int i = 0; i < USC_N_SCORE_BINS && n < sizeof bytes - 24; i++) {
        any |= j->histogram[i] != 0;
        n += (size_t)snprintf(bytes + n, sizeof bytes - n, "%s%lld", i > 0 ? ", " : "",
                              (long long)j->histogram[i]);
    }
    char *out = any ? usc_arena_take(a, n + 2) : NULL;
    if (out == NULL) return NULL;
    memcpy(out, bytes, n);
    memcpy(out + n, "]", 2);
    return out;
}

static void add_numbers(metrics *m, int output, const usc_pack_finding *f)
{
    const usc_judgement *j = &f->j;
    const struct {
        const char *name;
        double value;
    } numbers[N_NUMBERS] = {{"max", j->max},
                            {"mid", j->mid},
                            {"q99", j->q99},
                            {"rel", j->rel},
                            {"z", j->z},
                            {"fan_in", j->fan_in},
                            {"t_max", j->t_max},
                            {"t_mid", j->t_mid},
                            {"n_mismatch", (double)j->n_mismatch},
                            {"n_bad", (double)j->n_bad}};
    char sizes[INDEX];
    size_t used = (size_t)snprintf(sizes, sizeof sizes, "[");
    for (int i = 0; i < f->ndim; i++)
        used += (size_t)snprintf(sizes + used, sizeof sizes - used, "%s%lld",
                                 i > 0 ? ", " : "", (long long)f->sizes[i]);
    add_text(m, output, "path", f->path);
    add_text(m, output, "sizes", text(m->arena, "%s]", sizes));
    for (int i = 0; i < f->n_metrics; i++)
        m->items[m->n++] =
            (usc_metric){output, f->metrics[i].name, f->metrics[i].value, NULL};
    if (!f->measured) return;
    for (int i = 0; i < N_NUMBERS; i++)
        if (isfinite(numbers[i].value))
            m->items[m->n++] =
                (usc_metric){output, numbers[i].name, numbers[i].value, NULL};
    const char *counts = histogram_text(m->arena, j);
    if (counts != NULL) add_text(m, output, "score_histogram", counts);
}

/* Numbers and worst elements, of calls that are accused. */
static usc_status add_details(const usc_pack_work *w, usc_result_row *row,
                              const usc_pack_finding *found, int n_found, usc_error *err)
{
    usc_arena *a = w->arena;
    metrics m = {.arena = a};
    m.items = usc_arena_take(
        a, (size_t)n_found * (N_NUMBERS + 3 + USC_OPINION_METRICS) * sizeof *m.items + 1);
    usc_result_example *examples =
        usc_arena_take(a, (size_t)n_found * USC_PACK_EXAMPLES * sizeof *examples + 1);
    if (m.items == NULL || examples == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", row->op);
    for (int i = 0; i < n_found; i++) {
        const usc_pack_finding *f = &found[i];
        add_numbers(&m, i, f);
        for (int k = 0; k < f->n_examples; k++)
            examples[row->n_examples++] =
                (usc_result_example){.output = i,
                                     .rank = k,
                                     .index = position(a, f, f->examples[k].index),
                                     .device = f->examples[k].device,
                                     .reference = f->examples[k].reference,
                                     .yardstick = f->examples[k].yardstick,
                                     .score = f->examples[k].score};
    }
    row->metrics = m.items;
    row->n_metrics = m.n;
    row->examples = examples;
    return USC_OK;
}

/* The worst first; what has no bits comes after what has. */
static bool before(const usc_pack_finding *a, const usc_pack_finding *b)
{
    if (a->verdict != b->verdict) return a->verdict < b->verdict;
    if (isnan(a->j.bits) || isnan(b->j.bits)) return !isnan(a->j.bits);
    return a->j.bits < b->j.bits;
}

/* Notes with one more behind a semicolon; NULL where there is no memory. */
#define EXCUSED_NOTED 0.03

static const char *with_note(usc_arena *a, const char *notes, const char *note)
{
    if (notes == NULL || note == NULL) return NULL;
    if (note[0] == '\0') return notes;
    return notes[0] == '\0' ? note : text(a, "%s; %s", notes, note);
}

static const char *shared_note(usc_arena *a, const usc_pack_finding *found, int n_found)
{
    for (int i = 0; i < n_found; i++)
        if (found[i].n_shared > 0)
            return text(
                a,
                "float32 itself overflows at %lld of %lld elements, as the device "
                "does",
                (long long)found[i].n_shared, (long long)found[i].j.n);
    return "";
}

/* As python/ulpscope/_excuses.py says it of more than a few. */
static const char *excused_note(usc_arena *a, const usc_pack_finding *found, int n_found)
{
    for (int i = 0; i < n_found; i++) {
        const usc_judgement *j = &found[i].j;
        if (!found[i].measured || found[i].verdict == USC_VERDICT_UNJUDGED) continue;
        if ((double)j->n_ill > EXCUSED_NOTED * (double)j->n)
            return text(a,
                        "%lld of %lld elements are excused: ill-conditioned, float32 "
                        "leaves fewer than 4 bits",
                        (long long)j->n_ill, (long long)j->n);
    }
    return "";
}

/* An output in which float32 keeps no bits. */
static bool is_ill(const usc_pack_finding *f)
{
    return f->measured && f->verdict == USC_VERDICT_UNJUDGED && f->j.n_ill > 0;
}

/* Whether such outputs stand aside, as _judging.py:deciding() has it: they hold no more
 * than half of what was judged. */
static bool ill_stand_aside(const usc_pack_finding *found, int n_found)
{
    int64_t n = 0, n_ill = 0;
    for (int i = 0; i < n_found; i++) {
        n += found[i].j.n;
        if (is_ill(&found[i])) n_ill += found[i].j.n;
    }
    return n_ill > 0 && 2 * n_ill <= n;
}

static const usc_pack_finding *worst_of(const usc_pack_finding *found, int n_found)
{
    const bool aside = ill_stand_aside(found, n_found);
    const usc_pack_finding *worst = NULL;
    for (int i = 0; i < n_found; i++)
        if (!(aside && is_ill(&found[i])) && (worst == NULL || before(&found[i], worst)))
            worst = &found[i];
    return worst;
}

static const char *aside_note(usc_arena *a, const usc_pack_finding *found, int n_found)
{
    if (!ill_stand_aside(found, n_found)) return "";
    for (int i = 0; i < n_found; i++)
        if (is_ill(&found[i]))
            return text(a, "%s is not judged: %s", found[i].path, found[i].reason);
    return "";
}

usc_status usc_pack_put(const usc_pack_work *w, usc_result *result, usc_result_row *row,
                        const usc_pack_finding *found, int n_found, usc_error *err)
{
    const usc_pack_finding *worst = worst_of(found, n_found);
    bool flushes = false, ties = false;
    for (int i = 0; i < n_found; i++) {
        flushes |= found[i].measured && found[i].j.flushes;
        ties |= found[i].ties;
        row->n_elements += found[i].j.n;
    }
    row->verdict = usc_verdict_text(worst->verdict);
    row->bits = worst->j.bits;
    row->yardstick_bits = worst->j.yardstick_bits;
    row->bound = worst->j.bound;
    row->output = worst->path;
    row->sentence = sentence(w->arena, row->op, worst);
    row->notes = with_note(w->arena, row->notes, flushes ? "flushes subnormals" : "");
    row->notes = with_note(w->arena, row->notes, ties ? "ties broken otherwise" : "");
    row->notes = with_note(w->arena, row->notes, shared_note(w->arena, found, n_found));
    row->notes = with_note(w->arena, row->notes, excused_note(w->arena, found, n_found));
    row->notes = with_note(w->arena, row->notes, aside_note(w->arena, found, n_found));
    if (worst->verdict == USC_VERDICT_PASS) row->stack = "";
    usc_status st = USC_OK;
    if (usc_verdict_flagged(worst->verdict))
        st = add_details(w, row, found, n_found, err);
    if (st == USC_OK && w->arena->failed)
        st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", row->op);
    return st == USC_OK ? usc_result_put(result, row, err) : st;
}

/* ---- the run ---- */

usc_status usc_pack_begin(const usc_pack_work *w, const usc_run *run, usc_result **out,
                          usc_error *err)
{
    const char *folder = w->options->out != NULL ? w->options->out : "ulpscope-out";
    usc_status st = usc_result_create(folder, run, w->options->force, out, err);
    if (st == USC_OK) st = usc_result_clear(*out, err); /* outputs may have changed */
    if (st == USC_OK) st = usc_result_set(*out, "state", "running", err);
    return st;
}

usc_status usc_pack_end(usc_result *result, int64_t n_selected, const char *remarks,
                        usc_error *err)
{
    char n[24];
    (void)snprintf(n, sizeof n, "%lld", (long long)n_selected);
    usc_status st = usc_result_set(result, "n_selected", n, err);
    if (st == USC_OK) st = usc_result_set(result, "remarks", remarks, err);
    if (st == USC_OK) st = usc_result_set(result, "state", "done", err);
    return st;
}
