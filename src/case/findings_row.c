// SPDX-License-Identifier: Apache-2.0
// The findings of a call as a row of result.db: one sentence, numbers, worst elements.
// Neighbours: findings.h; src/result writes rows.
#include "case/findings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE = 2048, N_NUMBERS = 10, INDEX = 1024, HISTOGRAM = 4096 };
enum { OF_ONE = N_NUMBERS + 6, OF_CALL = 2 }; /* metrics at the most */

/* Metrics as they are filled in. */
typedef struct metrics {
    usc_metric *items;
    int n;
    usc_findings *f;
} metrics;

static void add_text(metrics *m, int output, const char *name, const char *value)
{
    m->items[m->n++] = (usc_metric){output, name, 0, usc_findings_text(m->f, value)};
}

static void add_number(metrics *m, int output, const char *name, double value)
{
    m->items[m->n++] = (usc_metric){output, name, value, NULL};
}

/* ---- numbers ---- */

/* A JSON list; cut where it does not fit. */
static void list_text(const int64_t *values, int n, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < n && used < size - 24; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)values[i]);
    (void)snprintf(out + used, size - used, "]");
}

static void add_form(metrics *m, int output, const usc_finding *f)
{
    char sizes[INDEX];
    list_text(f->sizes, f->ndim, sizes, sizeof sizes);
    add_text(m, output, "path", f->path);
    add_text(m, output, "sizes", sizes);
}

static void add_histogram(metrics *m, int output, const usc_judgement *j)
{
    char text[HISTOGRAM];
    int last = USC_N_SCORE_BINS - 1;
    while (last >= 0 && j->histogram[last] == 0)
        last--;
    if (last < 0) return;
    list_text(j->histogram, USC_N_SCORE_BINS, text, sizeof text);
    add_text(m, output, "score_histogram", text);
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
    if (f->numbers == USC_NUMBERS_COUNT)
        add_number(m, output, "n_mismatch", (double)j->n_mismatch);
    if (f->numbers != USC_NUMBERS_ALL) return;
    for (int i = 0; i < N_NUMBERS; i++)
        if (isfinite(numbers[i].value))
            add_number(m, output, numbers[i].name, numbers[i].value);
    add_histogram(m, output, j);
}

/* How many elements went free by an excuse, and by which. */
static void add_excused(metrics *m, int output, const usc_finding *f)
{
    char codes[512] = "";
    size_t used = 0;
    int64_t n = 0;
    for (int i = 0; i < USC_N_EXCUSES; i++) {
        if (f->excused[i] == 0 || used >= sizeof codes) continue;
        n += f->excused[i];
        used += (size_t)snprintf(codes + used, sizeof codes - used, "%s%s",
                                 used > 0 ? "," : "",
                                 usc_excuse_info_of((usc_excuse)i)->code);
    }
    if (n == 0) return;
    add_number(m, output, "excused", (double)n);
    add_text(m, output, "excuse", codes);
}

/* NaN and Inf of the device, right ones too: whether an overflow was seen at all. */
static void add_nan_inf(metrics *m, int output, const usc_finding *f)
{
    if (f->numbers == USC_NUMBERS_ALL && f->judgement.n_nan_inf > 0)
        add_number(m, output, "n_nan_inf", (double)f->judgement.n_nan_inf);
}

/* Why it was not judged: reports sum up calls by it. */
static void add_reason(metrics *m, const usc_said *said)
{
    if (said->verdict != USC_VERDICT_UNJUDGED && said->verdict != USC_VERDICT_UNSUPPORTED)
        return;
    const char *reason = said->reason != NULL ? said->reason : "";
    if (reason[0] == '\0' && said->worst != NULL) reason = said->worst->reason;
    if (reason[0] != '\0') add_text(m, -1, "reason", reason);
}

/* Which outputs nobody judged beside those that decide: these count as such calls do. */
static void add_left_out(metrics *m, const usc_said *said)
{
    if (said->left_out[0] != '\0') add_text(m, -1, "not_judged", said->left_out);
}

static void put_metrics(usc_findings *f, const usc_said *said, usc_result_row *row)
{
    const bool accused = usc_verdict_flagged(said->verdict);
    metrics m = {.f = f};
    const size_t most = f->n * OF_ONE + OF_CALL + (size_t)row->n_metrics;
    m.items = usc_arena_take(&f->arena, most * sizeof *m.items);
    if (m.items == NULL) return;
    for (size_t i = 0; i < f->n; i++) {
        if (accused) add_form(&m, (int)i, f->items[i]);
        if (accused) add_numbers(&m, (int)i, f->items[i]);
        add_excused(&m, (int)i, f->items[i]);
        add_nan_inf(&m, (int)i, f->items[i]);
    }
    add_reason(&m, said);
    add_left_out(&m, said);
    if (row->n_metrics > 0)
        memcpy(m.items + m.n, row->metrics, (size_t)row->n_metrics * sizeof *m.items);
    row->metrics = m.items;
    row->n_metrics += m.n;
}

/* ---- elements ---- */

static void put_examples(usc_findings *f, usc_result_row *row)
{
    char at[INDEX];
    usc_result_example *examples =
        usc_arena_take(&f->arena, f->n * USC_FINDING_EXAMPLES * sizeof *examples + 1);
    if (examples == NULL) return;
    row->n_examples = 0;
    for (size_t i = 0; i < f->n; i++) {
        const usc_finding *one = f->items[i];
        for (int k = 0; k < one->n_examples; k++) {
            const usc_example *e = &one->examples[k];
            usc_position_text(one, e->index, at, sizeof at);
            examples[row->n_examples++] =
                (usc_result_example){.output = (int)i,
                                     .rank = k,
                                     .index = usc_findings_text(f, at),
                                     .device = e->device,
                                     .reference = e->reference,
                                     .yardstick = e->yardstick,
                                     .score = e->score};
        }
    }
    row->examples = examples;
}

/* ---- words ---- */

/* Notes of the outputs, and what else is known of the call behind a semicolon. */
static const char *all_notes(usc_findings *f, const char *own)
{
    int n = 0;
    const char *const *notes = NULL;
    if (usc_findings_notes(f, &notes, &n, NULL) != USC_OK) return "";
    if (own == NULL) own = "";
    size_t size = strlen(own) + 1;
    for (int i = 0; i < n; i++)
        size += strlen(notes[i]) + 2;
    char *out = usc_arena_take(&f->arena, size), *at = out;
    if (out == NULL) return "";
    for (int i = 0; i < n; i++)
        at +=
            snprintf(at, size - (size_t)(at - out), "%s%s", i > 0 ? "; " : "", notes[i]);
    (void)snprintf(at, size - (size_t)(at - out), "%s%s",
                   n > 0 && own[0] != '\0' ? "; " : "", own);
    return out;
}

usc_status usc_findings_row(usc_findings *f, const usc_said *said, usc_result_row *row,
                            usc_error *err)
{
    char sentence[SENTENCE];
    usc_said s = *said;
    if (s.worst == NULL) s.worst = usc_findings_worst(f);
    s.left_out = usc_findings_left_out(f);
    usc_said_sentence(&s, sentence, sizeof sentence);
    row->verdict = usc_verdict_text(s.verdict);
    row->bits = usc_said_bits(s.verdict, s.worst, &row->yardstick_bits);
    row->bound = s.worst != NULL && s.worst->bound;
    row->output = s.worst != NULL ? s.worst->path : "";
    row->sentence = usc_findings_text(f, sentence);
    row->notes = all_notes(f, row->notes);
    row->n_elements = 0;
    for (size_t i = 0; i < f->n; i++)
        row->n_elements += f->items[i]->n;
    put_metrics(f, &s, row);
    if (usc_verdict_flagged(s.verdict)) put_examples(f, row);
    return usc_findings_status(f, err);
}
