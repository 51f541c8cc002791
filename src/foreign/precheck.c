// SPDX-License-Identifier: Apache-2.0
// The two tables of the Ascend precheck, made of a check of an imported dump: by call
// forward and backward in one row, and by output. A call is named as its dump names it
// (state "dumped", import_ascend_v1.c). Columns: docs/how-to/migrate-msprobe.md.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ulpscope/trace.h>
#include <ulpscope/x/foreign.h>
#include <ulpscope/x/pattern.h>

#include "base/line.h"
#include "base/number.h"
#include "base/path.h"
#include "json/json.h"

enum { MOST_OUTPUTS = 4096 };

/* One output of a call, by the metrics "ascend-v1.NAME". */
typedef struct output {
    char status[16], form[160];
    double cosine, max_abs, share[3], mismatched;
} output;

/* One call that has a verdict. */
typedef struct item {
    int64_t sequence;
    bool backward;
    bool open; /* nobody looked at it, and that is not allowed */
    char *name, *sentence, *cause, *reason; /* reason: of the standard */
    char status[16];                        /* of the standard */
    usc_verdict verdict;
    double bits, n_odd; /* NaN and Inf that the device gave */
    int n_outputs;
    output *outputs;
} item;

typedef struct tables {
    const usc_precheck_options *options;
    usc_trace *trace;
    item *item;
    int64_t n, room;
    usc_line line;
    FILE *result, *details;
} tables;

/* ---- reading ---- */

static bool keep_text(const char *text, char **out)
{
    *out = strdup(text != NULL ? text : "");
    return *out != NULL;
}

static void take_opinion(item *to, const char *text)
{
    usc_json *opinion = NULL;
    if (text == NULL || usc_json_parse(text, strlen(text), "standard", "no JSON",
                                       &opinion, NULL) != USC_OK)
        return;
    const char *status = usc_json_as_text(usc_json_get(opinion, "status"));
    const char *reason = usc_json_as_text(usc_json_get(opinion, "reason"));
    (void)usc_format(to->status, sizeof to->status, "%s", status != NULL ? status : "");
    free(to->reason);
    (void)keep_text(reason, &to->reason);
    usc_json_free(opinion);
}

static void take_metric(output *to, const char *name, const usc_metric *m)
{
    static const char *const shares[] = {"share_1e-2", "share_1e-3", "share_1e-4"};
    if (strcmp(name, "status") == 0)
        (void)usc_format(to->status, sizeof to->status, "%s",
                         m->text != NULL ? m->text : "");
    else if (strcmp(name, "form") == 0)
        (void)usc_format(to->form, sizeof to->form, "%s", m->text != NULL ? m->text : "");
    else if (strcmp(name, "cosine") == 0)
        to->cosine = m->value;
    else if (strcmp(name, "max_abs") == 0)
        to->max_abs = m->value;
    else if (strcmp(name, "mismatched") == 0)
        to->mismatched = m->value;
    for (int i = 0; i < 3; i++)
        if (strcmp(name, shares[i]) == 0) to->share[i] = m->value;
}

static usc_status take_metrics(item *to, const usc_result_row *row, usc_error *err)
{
    static const char standard[] = "standard:ascend-v1", prefix[] = "ascend-v1.";
    for (int i = 0; i < row->n_metrics; i++)
        if (row->metrics[i].output >= to->n_outputs &&
            row->metrics[i].output < MOST_OUTPUTS)
            to->n_outputs = row->metrics[i].output + 1;
    to->outputs = calloc((size_t)to->n_outputs + 1, sizeof *to->outputs);
    if (to->outputs == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "tables: no memory");
    const double nan = (double)NAN;
    for (int i = 0; i < to->n_outputs; i++)
        to->outputs[i] = (output){
            .cosine = nan, .max_abs = nan, .share = {nan, nan, nan}, .mismatched = nan};
    for (int i = 0; i < row->n_metrics; i++) {
        const usc_metric *m = &row->metrics[i];
        if (strcmp(m->name, "n_nan_inf") == 0 && m->value > 0) to->n_odd += m->value;
        if (m->output == -1 && strcmp(m->name, standard) == 0)
            take_opinion(to, m->text);
        else if (m->output >= 0 && m->output < to->n_outputs &&
                 strncmp(m->name, prefix, sizeof prefix - 1) == 0)
            take_metric(&to->outputs[m->output], m->name + sizeof prefix - 1, m);
    }
    return USC_OK;
}

/* The name that the dump has for a call; the operator's where it comes from elsewhere. */
static usc_status name_of(usc_trace *t, int64_t sequence, item *to, usc_error *err)
{
    usc_call call;
    usc_json *state = NULL;
    const usc_status st = usc_trace_read_call(t, sequence, &call, err);
    if (st != USC_OK) return st;
    if (call.state != NULL && usc_json_parse(call.state, strlen(call.state), "state",
                                             "no JSON", &state, err) != USC_OK)
        return USC_E_CORRUPT;
    const char *name = usc_json_as_text(usc_json_get(state, "dumped"));
    const bool kept = keep_text(name != NULL ? name : call.op, &to->name);
    to->backward = call.phase != NULL && strcmp(call.phase, "backward") == 0;
    usc_json_free(state);
    return kept ? USC_OK : usc_error_set(err, USC_E_NOMEM, -1, "tables: no memory");
}

static bool is_open(const usc_precheck_options *o, const usc_result_row *row)
{
    const usc_verdict verdict = usc_verdict_by_text(row->verdict);
    for (int i = 0; i < o->n_allow; i++)
        if (o->allow[i].verdict == verdict &&
            usc_pattern_match(o->allow[i].pattern, row->op))
            return false;
    return usc_verdict_missing(verdict);
}

static usc_status take_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    tables *t = ctx;
    if (t->n == t->room) {
        const int64_t room = t->room > 0 ? 2 * t->room : 64;
        item *more = realloc(t->item, (size_t)room * sizeof *more);
        if (more == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "tables: no memory");
        t->item = more;
        t->room = room;
    }
    item *to = &t->item[t->n++];
    *to = (item){.sequence = row->call,
                 .open = is_open(t->options, row),
                 .verdict = usc_verdict_by_text(row->verdict),
                 .bits = row->bits};
    if (!keep_text(row->sentence, &to->sentence) || !keep_text(row->cause, &to->cause) ||
        !keep_text("", &to->reason))
        return usc_error_set(err, USC_E_NOMEM, -1, "tables: no memory");
    const usc_status st = name_of(t->trace, row->call, to, err);
    return st == USC_OK ? take_metrics(to, row, err) : st;
}

static int by_sequence(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

/* ---- what it comes to ---- */

/* TRUE, FALSE, or SKIP where nobody could judge. The standard decides where it says
 * anything; of random operators it says nothing. */
static const char *word_of(const item *i)
{
    if (i == NULL) return "N/A";
    if (i->verdict == USC_VERDICT_CRASHED || i->verdict == USC_VERDICT_TIMEOUT)
        return "FALSE";
    if (i->status[0] != '\0' && strcmp(i->status, "unjudged") != 0)
        return strcmp(i->status, "pass") == 0 ? "TRUE" : "FALSE";
    if (usc_verdict_missing(i->verdict) || i->verdict == USC_VERDICT_UNDEFINED)
        return "SKIP";
    return i->verdict == USC_VERDICT_PASS ? "TRUE" : "FALSE";
}

/* ---- writing ---- */

/* A number in 14 digits; a space where there is none. */
static void put_number(usc_line *to, double value, bool known)
{
    if (!known)
        usc_line_text(to, " ");
    else if (isnan(value))
        usc_line_text(to, "nan");
    else
        usc_line_add(to, "%.14g", value);
    usc_line_text(to, ",");
}

static void put_own(usc_line *to, const item *i)
{
    usc_line_text(to, ",");
    if (i != NULL) usc_line_text(to, usc_verdict_text(i->verdict));
    usc_line_text(to, ",");
    const bool has_bits = i != NULL && isfinite(i->bits) && i->n_outputs > 0;
    if (has_bits) usc_line_add(to, "%.3g", i->bits);
    usc_line_text(to, ",");
    if (i != NULL) usc_line_csv(to, i->cause);
}

/* What there is to say of a call that is not as it should be, by either rule. */
static void put_message(usc_line *to, const item *forward, const item *backward)
{
    const item *const both[] = {forward, backward};
    usc_line text = {0};
    for (int k = 0; k < 2; k++) {
        const item *i = both[k];
        if (i == NULL) continue;
        const bool passed = strcmp(word_of(i), "TRUE") == 0;
        if (passed && i->verdict == USC_VERDICT_PASS) continue;
        if (text.n > 0) usc_line_text(&text, "; ");
        usc_line_text(&text, i->verdict != USC_VERDICT_PASS ? i->sentence : i->reason);
    }
    usc_line_csv(to, text.text != NULL ? text.text : "");
    to->failed = to->failed || text.failed;
    usc_line_free(&text);
}

static void put_result(usc_line *to, const item *forward, const item *backward)
{
    usc_line_csv(to, forward != NULL ? forward->name : backward->name);
    usc_line_add(to, ",%s,%s,", word_of(forward), word_of(backward));
    put_message(to, forward, backward);
    put_own(to, forward);
    put_own(to, backward);
    usc_line_text(to, "\n");
}

/* The dtype in which the document's CPU computes. */
static const char *bench_dtype(const char *dtype)
{
    static const char *const raised[][2] = {{"float16", "torch.float32"},
                                            {"bfloat16", "torch.float32"},
                                            {"float32", "torch.float64"}};
    for (int i = 0; i < 3; i++)
        if (strcmp(dtype, raised[i][0]) == 0) return raised[i][1];
    return NULL;
}

static void put_output(usc_line *to, const item *i, int k)
{
    const output *o = &i->outputs[k];
    char dtype[32];
    const size_t n = strcspn(o->form, "[");
    (void)usc_format(dtype, sizeof dtype, "%.*s", (int)n, o->form);
    const char *raised = bench_dtype(dtype);
    const bool is_exact = !isnan(o->mismatched);
    const bool measured = !isnan(o->share[0]);
    usc_line_csv(to, i->name);
    usc_line_add(to, ".%s.output.%d,", i->backward ? "backward" : "forward", k);
    if (raised != NULL)
        usc_line_add(to, "%s,", raised);
    else
        usc_line_add(to, "torch.%s,", dtype);
    usc_line_add(to, "torch.%s,", dtype);
    usc_line_csv(to, o->form + n);
    usc_line_text(to, ",");
    put_number(to, o->cosine, !isnan(o->cosine));
    put_number(to, o->max_abs, measured || !isnan(o->max_abs));
    for (int s = 0; s < 3; s++)
        put_number(to, o->share[s], measured);
    put_number(to, o->mismatched, is_exact);
    usc_line_text(to, o->status);
    put_own(to, i);
    usc_line_text(to, "\n");
}

static usc_status flush(usc_line *line, FILE *file, const char *path, usc_error *err)
{
    if (line->failed) return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", path);
    const bool good = line->n == 0 || fwrite(line->text, 1, line->n, file) == line->n;
    usc_line_clear(line);
    return good ? USC_OK
                : usc_error_set(err, USC_E_IO, -1, "%s: %s", path, strerror(errno));
}

static void count_row(usc_precheck_counts *counts, const item *forward,
                      const item *backward)
{
    const item *const both[] = {forward, backward};
    bool failed = false, skipped = false, open = false;
    usc_verdict worst = USC_VERDICT_PASS; /* the order of verdicts is precedence */
    for (int k = 0; k < 2; k++) {
        failed = failed || strcmp(word_of(both[k]), "FALSE") == 0;
        const bool skip = strcmp(word_of(both[k]), "SKIP") == 0;
        skipped = skipped || skip;
        open = open || (skip && both[k]->open);
        if (both[k] != NULL && both[k]->verdict < worst) worst = both[k]->verdict;
    }
    counts->failed += failed;
    counts->skipped += skipped && !failed;
    counts->open += open && !failed;
    counts->passed += !failed && !skipped;
    counts->total++;
    if (failed || !usc_verdict_flagged(worst)) return;
    counts->by[worst]++;
    if (counts->accused++ == 0)
        (void)usc_format(counts->first_accused, sizeof counts->first_accused, "%s",
                         forward != NULL ? forward->name : backward->name);
}

static usc_status write_rows(tables *t, const usc_precheck_options *o,
                             usc_precheck_counts *counts, usc_error *err)
{
    usc_status st = USC_OK;
    usc_line line = {0};
    for (int64_t i = 0; st == USC_OK && i < t->n;) {
        const item *first = &t->item[i], *second = NULL;
        if (i + 1 < t->n && !first->backward && t->item[i + 1].backward &&
            strcmp(first->name, t->item[i + 1].name) == 0)
            second = &t->item[i + 1];
        const item *forward = first->backward ? NULL : first;
        const item *backward = first->backward ? first : second;
        put_result(&line, forward, backward);
        st = flush(&line, t->result, o->result_csv, err);
        for (int64_t m = i; st == USC_OK && m < i + 1 + (second != NULL); m++) {
            for (int k = 0; k < t->item[m].n_outputs; k++)
                put_output(&line, &t->item[m], k);
            st = flush(&line, t->details, o->details_csv, err);
        }
        count_row(counts, forward, backward);
        i += 1 + (second != NULL);
    }
    usc_line_free(&line);
    return st;
}

/* ---- files that appear whole ---- */

static const char result_head[] =
    "API name,Forward Test Success,Backward Test Success,Message,Forward Verdict,"
    "Forward Effective Bits,Forward Cause,Backward Verdict,Backward Effective "
    "Bits,Backward Cause\n";
static const char details_head[] =
    "Npu Name,Bench Dtype,NPU Dtype,Shape,Cosine Similarity,Max Abs Error,"
    "Relative  Error (dual hundredth),Relative  Error (dual thousandth),"
    "Relative  Error (dual ten thousandth),Error Rate,Status,Verdict,Effective "
    "Bits,Cause\n";

static usc_status open_table(const char *path, const char *head, FILE **out,
                             usc_error *err)
{
    char part[USC_PATH_SIZE];
    if (usc_format(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", path);
    *out = fopen(part, "wbe");
    return *out != NULL && fputs(head, *out) >= 0
               ? USC_OK
               : usc_error_set(err, USC_E_IO, -1, "%s: %s", part, strerror(errno));
}

static usc_status close_table(const char *path, FILE **file, bool keep, usc_error *err)
{
    char part[USC_PATH_SIZE];
    if (*file == NULL) return USC_OK;
    (void)usc_format(part, sizeof part, "%s.part", path);
    const bool good = fclose(*file) == 0;
    *file = NULL;
    if (!keep) {
        (void)unlink(part);
        return USC_OK;
    }
    return good && rename(part, path) == 0
               ? USC_OK
               : usc_error_set(err, USC_E_IO, -1, "%s: %s", path, strerror(errno));
}

static usc_status read_items(tables *t, const usc_precheck_options *o, usc_error *err)
{
    usc_result *result = NULL;
    usc_status st = usc_trace_open(o->trace, NULL, &t->trace, err);
    if (st == USC_OK) st = usc_result_open(o->results, &result, err);
    if (st == USC_OK) st = usc_result_walk(result, take_row, t, err);
    usc_result_close(result);
    usc_trace_close(t->trace);
    if (t->n > 1) qsort(t->item, (size_t)t->n, sizeof *t->item, by_sequence);
    return st;
}

static void free_items(tables *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        item *one = &t->item[i];
        free(one->name);
        free(one->sentence);
        free(one->cause);
        free(one->reason);
        free(one->outputs);
    }
    free(t->item);
}

usc_status usc_precheck_tables(const usc_precheck_options *options,
                               usc_precheck_counts *counts, usc_error *err)
{
    tables t = {.options = options};
    *counts = (usc_precheck_counts){0};
    usc_status st = options->results != NULL ? read_items(&t, options, err) : USC_OK;
    if (st == USC_OK) st = open_table(options->result_csv, result_head, &t.result, err);
    if (st == USC_OK)
        st = open_table(options->details_csv, details_head, &t.details, err);
    if (st == USC_OK) st = write_rows(&t, options, counts, err);
    const bool good = st == USC_OK;
    usc_error why = {0};
    const usc_status a = close_table(options->details_csv, &t.details, good, &why);
    const usc_status b = close_table(options->result_csv, &t.result, good, &why);
    if (good && (a != USC_OK || b != USC_OK))
        st = usc_error_set(err, a != USC_OK ? a : b, -1, "%s", why.text);
    free_items(&t);
    return st;
}

usc_status usc_precheck_walk(const usc_precheck_options *options,
                             usc_status (*each)(void *ctx, const usc_precheck_call *call,
                                                usc_error *err),
                             void *ctx, usc_error *err)
{
    tables t = {.options = options};
    usc_status st = read_items(&t, options, err);
    for (int64_t i = 0; st == USC_OK && i < t.n; i++) {
        const item *one = &t.item[i];
        const usc_precheck_call call = {.sequence = one->sequence,
                                        .name = one->name,
                                        .backward = one->backward,
                                        .verdict = one->verdict,
                                        .word = word_of(one),
                                        .sentence = one->sentence,
                                        .n_nan_inf = one->n_odd};
        st = each(ctx, &call, err);
    }
    free_items(&t);
    return st;
}
