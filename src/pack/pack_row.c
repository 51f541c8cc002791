// SPDX-License-Identifier: Apache-2.0
// Findings of one call as a row of result.db: one sentence, numbers, worst elements. The
// same words as a check has. Neighbour: pack_cause.c, for the second time that it is put.
#include "base/number.h"
#include "pack/pack_operands.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SENTENCE = 1024, N_NUMBERS = 10, INDEX = 1024, HISTOGRAM = 2048, NOTES = 4096 };

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

static const char *sentence(const usc_pack_work *w, const char *op, const usc_finding *f,
                            const char *standard, const char *cause)
{
    char out[SENTENCE];
    const usc_said said = {.op = op, .verdict = f->verdict, .worst = f, .cause = cause};
    if (standard == NULL || f->verdict == USC_VERDICT_UNJUDGED) {
        usc_case_sentence(&said, out, sizeof out);
        return text(w->arena, "%s", out);
    }
    if (f->verdict == USC_VERDICT_PASS)
        return text(w->arena, "%s passes by %s", op, standard);
    const bool whole = f->path[0] == '\0' || strcmp(f->path, "out[0]") == 0;
    return text(w->arena, "%s is %s%s%s by %s: %s", op, usc_verdict_text(f->verdict),
                whole ? "" : " in ", whole ? "" : f->path, standard, f->reason);
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

static void add_form(metrics *m, int output, const char *path, int ndim,
                     const int64_t *sizes)
{
    char bytes[INDEX];
    size_t used = (size_t)snprintf(bytes, sizeof bytes, "[");
    for (int i = 0; i < ndim; i++)
        used += (size_t)snprintf(bytes + used, sizeof bytes - used, "%s%lld",
                                 i > 0 ? ", " : "", (long long)sizes[i]);
    add_text(m, output, "path", path);
    add_text(m, output, "sizes", text(m->arena, "%s]", bytes));
}

static void add_numbers(metrics *m, int output, const usc_finding *f)
{
    const usc_judgement *j = &f->judgement;
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
    for (int i = 0; i < N_NUMBERS && f->numbers == USC_NUMBERS_ALL; i++)
        if (isfinite(numbers[i].value))
            m->items[m->n++] =
                (usc_metric){output, numbers[i].name, numbers[i].value, NULL};
    if (f->numbers == USC_NUMBERS_COUNT)
        m->items[m->n++] =
            (usc_metric){output, "n_mismatch", (double)j->n_mismatch, NULL};
    const char *counts =
        f->numbers == USC_NUMBERS_ALL ? histogram_text(m->arena, j) : NULL;
    if (counts != NULL) add_text(m, output, "score_histogram", counts);
}

/* How many elements went free by an excuse, and by which. */
static void add_excused(metrics *m, int output, const usc_finding *f)
{
    const char *codes = "";
    int64_t n = 0;
    for (int i = 0; i < USC_N_EXCUSES; i++) {
        if (f->excused[i] == 0) continue;
        n += f->excused[i];
        codes = text(m->arena, "%s%s%s", codes, codes[0] != '\0' ? "," : "",
                     usc_excuse_info_of((usc_excuse)i)->code);
        if (codes == NULL) return;
    }
    if (n == 0) return;
    m->items[m->n++] = (usc_metric){output, "excused", (double)n, NULL};
    add_text(m, output, "excuse", codes);
}

static void add_examples(const usc_pack_work *w, usc_result_row *row,
                         usc_result_example *examples, int output, const usc_finding *f)
{
    char at[INDEX];
    for (int k = 0; k < f->n_examples; k++) {
        usc_position_text(f, f->examples[k].index, at, sizeof at);
        examples[row->n_examples++] =
            (usc_result_example){.output = output,
                                 .rank = k,
                                 .index = text(w->arena, "%s", at),
                                 .device = f->examples[k].device,
                                 .reference = f->examples[k].reference,
                                 .yardstick = f->examples[k].yardstick,
                                 .score = f->examples[k].score};
    }
}

static usc_status no_room(const usc_result_row *row, usc_error *err)
{
    return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", row->op);
}

/* Numbers and worst elements of calls that are accused; of all, what went free. */
static usc_status add_details(const usc_pack_work *w, usc_result_row *row, bool accused,
                              usc_error *err)
{
    const int n_found = usc_case_count(w->c);
    metrics m = {.arena = w->arena};
    const size_t most = N_NUMBERS + 5 + USC_OPINION_METRICS;
    m.items = usc_arena_take(w->arena, (size_t)n_found * most * sizeof *m.items + 1);
    usc_result_example *examples = usc_arena_take(
        w->arena, (size_t)n_found * USC_FINDING_EXAMPLES * sizeof *examples + 1);
    if (m.items == NULL || examples == NULL) return no_room(row, err);
    for (int i = 0; i < n_found; i++) {
        const usc_finding *f = usc_case_finding(w->c, i);
        const usc_pack_opinion *said = &w->opinions[i];
        const bool foreign = said->standard != NULL;
        add_excused(&m, i, f);
        if (!accused) continue;
        add_form(&m, i, f->path, foreign ? said->ndim : f->ndim,
                 foreign ? said->sizes : f->sizes);
        for (int k = 0; k < said->n_metrics; k++)
            m.items[m.n++] =
                (usc_metric){i, said->metrics[k].name, said->metrics[k].value, NULL};
        add_numbers(&m, i, f);
        add_examples(w, row, examples, i, f);
    }
    row->metrics = m.items;
    row->n_metrics = m.n;
    row->examples = examples;
    return USC_OK;
}

/* Notes of the call, and of its outputs behind a semicolon. */
static const char *all_notes(const usc_pack_work *w, const char *own)
{
    char notes[NOTES];
    usc_case_notes(w->c, notes, sizeof notes);
    const bool both = own[0] != '\0' && notes[0] != '\0';
    const size_t size = strlen(own) + strlen(notes) + 3;
    char *out = usc_arena_take(w->arena, size);
    if (out != NULL) (void)snprintf(out, size, "%s%s%s", own, both ? "; " : "", notes);
    return out;
}

usc_status usc_pack_put(const usc_pack_work *w, usc_result *result, usc_result_row *row,
                        usc_error *err)
{
    const usc_finding *worst = usc_case_worst(w->c);
    const char *standard = NULL;
    for (int i = 0; i < usc_case_count(w->c); i++) {
        const usc_finding *f = usc_case_finding(w->c, i);
        row->n_elements += w->opinions[i].standard != NULL ? w->opinions[i].n : f->n;
        if (f == worst) standard = w->opinions[i].standard;
    }
    row->verdict = usc_verdict_text(worst->verdict);
    row->bits = standard != NULL ? (double)NAN : worst->bits; /* they have none */
    row->yardstick_bits = standard != NULL ? (double)NAN : worst->yardstick_bits;
    row->bound = worst->bound;
    row->output = worst->path;
    row->sentence = sentence(w, row->op, worst, standard, "");
    row->notes = all_notes(w, row->notes);
    if (worst->verdict == USC_VERDICT_PASS) row->stack = "";
    const usc_status st = add_details(w, row, usc_verdict_flagged(worst->verdict), err);
    if (st != USC_OK) return st;
    return w->arena->failed ? no_room(row, err) : usc_result_put(result, row, err);
}

usc_status usc_pack_put_cause(const usc_pack_work *w, usc_result *result,
                              usc_result_row *row, const char *cause, usc_error *err)
{
    row->cause = cause;
    row->sentence = sentence(w, row->op, usc_case_worst(w->c), NULL, cause);
    return w->arena->failed ? no_room(row, err) : usc_result_put(result, row, err);
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
