// SPDX-License-Identifier: Apache-2.0
// Findings: which rows are one, in which order they stand, which of them count.
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/pattern.h>

#include "report/report_index.h"

enum { KIND_SIZE = 512 };

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

/* ---- what a row says ---- */

/* The share of an output's elements that went free; n_elements counts all outputs. */
static double share_of(const usc_result_row *row, const usc_metric *excused)
{
    double n = (double)row->n_elements;
    for (int i = 0; i < row->n_metrics; i++) {
        const usc_metric *m = &row->metrics[i];
        if (m->output == excused->output && m->text != NULL &&
            strcmp(m->name, "sizes") == 0) {
            n = 1;
            for (const char *at = strpbrk(m->text, "0123456789"); at != NULL;
                 at = strpbrk(at, "0123456789")) {
                char *end;
                n *= (double)strtoll(at, &end, 10);
                at = end;
            }
        }
    }
    return n > 0 ? fmin(1, excused->value / n) : 0;
}

usc_row_facts usc_row_facts_of(const usc_result_row *row)
{
    usc_row_facts facts = {.loss = (double)NAN,
                           .excuse = "",
                           .reason = "",
                           .lacks = "",
                           .left_out = "",
                           .internal = ""};
    for (int i = 0; i < row->n_metrics; i++) {
        const usc_metric *m = &row->metrics[i];
        if (strcmp(m->name, "excused") == 0)
            facts.excused = fmax(facts.excused, share_of(row, m));
        else if (strcmp(m->name, "excuse") == 0 && facts.excuse[0] == '\0')
            facts.excuse = text_of(m->text);
        else if (m->output != -1)
            continue;
        else if (strcmp(m->name, "loss") == 0)
            facts.loss = m->value;
        else if (strcmp(m->name, "t_causes") == 0)
            facts.t_causes = m->value > 0 ? (int64_t)m->value : 0;
        else if (strcmp(m->name, "nan_inputs") == 0)
            facts.nan = true;
        else if (strcmp(m->name, "inf_inputs") == 0)
            facts.inf = true;
        else if (strcmp(m->name, "usual") == 0)
            facts.usual = m->text != NULL || m->value > 0;
        else if (strcmp(m->name, "reason") == 0)
            facts.reason = text_of(m->text);
        else if (strcmp(m->name, "lacks") == 0)
            facts.lacks = text_of(m->text);
        else if (strcmp(m->name, "not_judged") == 0)
            facts.left_out = text_of(m->text);
        else if (strcmp(m->name, "internal") == 0)
            facts.internal = text_of(m->text);
    }
    return facts;
}

/* ---- which rows are one finding ---- */

/* Rows of older versions hold their reason in the sentence alone: "OP is VERDICT: WHY".
 */
static const char *reason_of(const usc_result_row *row, usc_verdict v)
{
    if (!usc_verdict_missing(v)) return "";
    const usc_row_facts facts = usc_row_facts_of(row);
    if (facts.reason[0] != '\0') return facts.reason;
    const char *sentence = text_of(row->sentence), *at = sentence;
    const size_t n = strlen(row->op);
    if (strncmp(at, row->op, n) != 0) return sentence;
    at += n;
    char prefix[40];
    (void)snprintf(prefix, sizeof prefix, " is %s", usc_verdict_text(v));
    if (strncmp(at, prefix, strlen(prefix)) == 0) at += strlen(prefix);
    return strncmp(at, ": ", 2) == 0 ? at + 2 : sentence;
}

/* The end of the number at `at`: digits with points, commas and an exponent, further
 * numbers of a list. */
static const char *after_number(const char *at)
{
    for (;;) {
        while (isxdigit((unsigned char)*at) || *at == 'x')
            at++;
        const bool sign = (at[-1] == 'e' || at[-1] == 'E') && (*at == '-' || *at == '+');
        const size_t gap = sign || *at == '.' || *at == ','
                               ? 1 + (size_t)(*at == ',' && at[1] == ' ')
                               : 0;
        if (gap == 0 || !isdigit((unsigned char)at[gap])) return at;
        at += gap;
    }
}

/* A text with every number as '#', so that the same reason of other sizes is the same;
 * the digits of a name, float32, belong to it. */
static void without_numbers(const char *text, char kind[KIND_SIZE])
{
    size_t n = 0;
    bool name = false;
    while (*text != '\0' && n < KIND_SIZE - 1) {
        if (isdigit((unsigned char)*text) && !name) {
            kind[n++] = '#';
            text = after_number(text);
            continue;
        }
        name = isalnum((unsigned char)*text) || *text == '_';
        kind[n++] = *text++;
    }
    kind[n] = '\0';
}

/* "inputs rounded to TF32 or float16" is what some inputs cannot tell from "inputs
   rounded to TF32": one cause. */
static bool leaves_open(const char *wide, const char *cause)
{
    const size_t n = strlen(cause);
    return n > 0 && strncmp(wide, cause, n) == 0 && strncmp(wide + n, " or ", 4) == 0;
}

static bool same_cause(const char *kept, const char *cause)
{
    return strcmp(kept, cause) == 0 || leaves_open(kept, cause) ||
           leaves_open(cause, kept);
}

/* Causes that may be one begin alike. */
static uint64_t hash_of(const usc_report_finding *f)
{
    const char *open = strstr(f->cause, " or ");
    const size_t n = open != NULL ? (size_t)(open - f->cause) : strlen(f->cause);
    const unsigned char what[2] = {(unsigned char)f->verdict, f->usual};
    uint64_t h = usc_index_hash(0, what, sizeof what);
    h = usc_index_hash_text(h, f->op);
    h = usc_index_hash_text(h, f->culprit);
    h = usc_index_hash(h, f->cause, n);
    return usc_index_hash_text(h, f->kind);
}

static bool same_finding(const usc_report_finding *a, const usc_report_finding *b)
{
    return a->verdict == b->verdict && a->usual == b->usual && a->beside == b->beside &&
           strcmp(a->lacks, b->lacks) == 0 && strcmp(a->op, b->op) == 0 &&
           strcmp(a->culprit, b->culprit) == 0 && strcmp(a->kind, b->kind) == 0 &&
           same_cause(a->cause, b->cause);
}

/* The finding under the narrower of two names; NULL without memory. */
static usc_report_finding *named_closer(usc_report *r, usc_report_finding *f,
                                        const char *cause)
{
    if (!leaves_open(f->cause, cause)) return f;
    f->cause = usc_report_keep(r, cause);
    return f->cause != NULL ? f : NULL;
}

static usc_report_finding *new_finding(usc_report *r, const usc_result_row *row,
                                       const usc_report_finding *key)
{
    usc_report_finding *f = usc_report_take(r, sizeof *f);
    if (f == NULL) return NULL;
    *f = *key;
    f->op = usc_report_keep(r, key->op);
    f->culprit = usc_report_keep(r, key->culprit);
    f->cause = usc_report_keep(r, key->cause);
    f->kind = usc_report_keep(r, key->kind);
    f->reason = usc_report_keep(r, key->reason);
    f->lacks = usc_report_keep(r, key->lacks);
    f->sentence = usc_report_keep(r, row->sentence);
    if (!f->op || !f->culprit || !f->cause || !f->kind || !f->reason || !f->lacks ||
        !f->sentence)
        return NULL;
    f->worst_call = row->call; /* rows come worst first */
    f->bits = row->bits;
    f->yardstick_bits = row->yardstick_bits;
    f->bound = row->bound;
    f->loss = (double)NAN;
    f->source = usc_source_line_of(r, row->stack);
    if (usc_index_add(r, &r->findings_index, &f->indexed, hash_of(f), NULL) != USC_OK)
        return NULL;
    usc_report_finding ***end = f->beside ? &r->beside_end : &r->findings_end;
    **end = f;
    *end = &f->next;
    return f;
}

static usc_report_finding *found_of(usc_report *r, const usc_result_row *row,
                                    const usc_report_finding *key)
{
    usc_indexed *node = usc_index_first(&r->findings_index, hash_of(key));
    for (; node != NULL; node = usc_index_next(node))
        if (same_finding((usc_report_finding *)node, key))
            return named_closer(r, (usc_report_finding *)node, key->cause);
    return new_finding(r, row, key);
}

usc_report_finding *usc_report_finding_of(usc_report *r, const usc_result_row *row,
                                          usc_verdict v)
{
    char kind[KIND_SIZE] = "";
    const char *reason = reason_of(row, v);
    const char *cause = text_of(row->cause);
    if (cause[0] == '\0') without_numbers(reason, kind);
    const usc_row_facts facts = usc_row_facts_of(row);
    const usc_report_finding key = {.reason = reason,
                                    .kind = kind,
                                    .usual = facts.usual,
                                    .lacks = facts.lacks,
                                    .op = row->op,
                                    .culprit = text_of(row->culprit),
                                    .cause = cause,
                                    .verdict = v};
    return found_of(r, row, &key);
}

static const char *place_of(usc_report *r, const usc_result_row *row)
{
    const char *module = text_of(row->module);
    if (module[0] != '\0') return usc_report_keep(r, module);
    const char *phase = row->phase != NULL && *row->phase ? row->phase : "root";
    const size_t size = strlen(phase) + 3;
    char *text = usc_report_take(r, size);
    if (text != NULL) (void)snprintf(text, size, "(%s)", phase);
    return text;
}

static usc_status add_to(usc_report *r, usc_report_finding *f, const usc_result_row *row,
                         usc_error *err)
{
    usc_place *place = f != NULL ? usc_report_take(r, sizeof *place) : NULL;
    if (place == NULL || (place->text = place_of(r, row)) == NULL || r->arena.failed)
        return usc_report_no_memory(r, err);
    place->next = f->places;
    f->places = place;
    f->n_rows++;
    f->loss = fmax(f->loss, usc_row_facts_of(row).loss); /* a NaN gives way */
    f->n_calls += row->stands_for > 0 ? row->stands_for : 1;
    return USC_OK;
}

usc_status usc_report_finding_add(usc_report *r, const usc_result_row *row, usc_verdict v,
                                  usc_error *err)
{
    return add_to(r, usc_report_finding_of(r, row, v), row, err);
}

usc_report_finding *usc_report_beside_of(usc_report *r, const usc_result_row *row)
{
    char kind[KIND_SIZE];
    const char *reason = usc_row_facts_of(row).left_out;
    without_numbers(reason, kind);
    const usc_report_finding key = {.reason = reason,
                                    .kind = kind,
                                    .beside = true,
                                    .lacks = "",
                                    .op = row->op,
                                    .culprit = "",
                                    .cause = "",
                                    .verdict = USC_VERDICT_UNJUDGED};
    return found_of(r, row, &key);
}

usc_status usc_report_add_beside(usc_report *r, const usc_result_row *row, usc_error *err)
{
    if (usc_row_facts_of(row).left_out[0] == '\0') return USC_OK;
    return add_to(r, usc_report_beside_of(r, row), row, err);
}

void usc_report_take_beside(usc_report *r)
{
    *r->findings_end = r->beside;
    if (r->beside != NULL) r->findings_end = r->beside_end;
}

const char *usc_report_finding_reason(const usc_report_finding *f)
{
    if (f->cause[0] != '\0') return f->cause;
    return f->reason[0] != '\0' ? f->reason : f->sentence;
}

/* ---- their order ---- */

void usc_findings_usual_last(usc_report *r)
{
    usc_report_finding *usual = NULL, **usual_end = &usual, **at = &r->findings;
    while (*at != NULL && usc_verdict_flagged((*at)->verdict)) {
        usc_report_finding *f = *at;
        if (!f->usual) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        f->next = NULL;
        *usual_end = f;
        usual_end = &f->next;
    }
    *usual_end = *at;
    if (usual != NULL) *at = usual;
    r->findings_end = at;
    while (*r->findings_end != NULL)
        r->findings_end = &(*r->findings_end)->next;
}

typedef struct ranked {
    usc_report_finding *f;
    size_t i;
} ranked;

static int by_loss(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    const double p = isnan(x->f->loss) ? -1 : x->f->loss;
    const double q = isnan(y->f->loss) ? -1 : y->f->loss;
    if (p > q || p < q) return p > q ? -1 : 1;
    return x->i < y->i ? -1 : 1;
}

usc_status usc_findings_by_loss(usc_report *r, usc_error *err)
{
    const size_t n = r->findings_index.n;
    ranked *all = usc_report_take(r, (n + 1) * sizeof *all);
    if (all == NULL) return usc_report_no_memory(r, err);
    size_t i = 0;
    for (usc_report_finding *f = r->findings; f != NULL; f = f->next, i++)
        all[i] = (ranked){f, i};
    qsort(all, n, sizeof *all, by_loss);
    r->findings_end = &r->findings;
    for (i = 0; i < n; i++) {
        *r->findings_end = all[i].f;
        r->findings_end = &all[i].f->next;
    }
    *r->findings_end = NULL;
    return USC_OK;
}

/* ---- what counts ---- */

usc_status usc_allow_word(const char *text, char word[USC_ALLOW_WORD],
                          const char **pattern, usc_error *err)
{
    const size_t n = strcspn(text, ":");
    (void)snprintf(word, USC_ALLOW_WORD, "%.*s", n < USC_ALLOW_WORD ? (int)n : 0, text);
    *pattern = text[n] == ':' ? text + n + 1 : NULL;
    return *pattern != NULL ? usc_pattern_check(*pattern, err) : USC_OK;
}

usc_status usc_allow_parse(const char *text, usc_allow *out, usc_error *err)
{
    *out = (usc_allow){.verdict = USC_N_VERDICTS};
    char name[USC_ALLOW_WORD];
    const char *pattern;
    const usc_status st = usc_allow_word(text, name, &pattern, err);
    const usc_verdict verdict = usc_verdict_by_text(name);
    if (verdict == USC_N_VERDICTS || verdict == USC_VERDICT_PASS ||
        verdict == USC_VERDICT_INTERNAL) {
        *out = (usc_allow){0};
        return usc_error_set(err, USC_E_ARG, 0,
                             "'%.*s' is no verdict that can be allowed; try crashed, "
                             "timeout, nonfinite, wrong, reduced, intermittent, unjudged "
                             "or unsupported",
                             (int)strcspn(text, ":"), text);
    }
    if (st != USC_OK) {
        *out = (usc_allow){0};
        return st;
    }
    *out = (usc_allow){verdict, pattern};
    return USC_OK;
}

/* Either name may match; a pattern that excludes something must let both through, lest
 * it excuse what it was told to leave out. */
static bool names_it(const char *pattern, const usc_report_finding *f)
{
    const bool op = usc_pattern_match(pattern, f->op);
    if (f->culprit[0] == '\0') return op;
    const bool culprit = usc_pattern_match(pattern, f->culprit);
    return strchr(pattern, '!') != NULL ? op && culprit : op || culprit;
}

/* "usual", or "usual:PATTERN", holds for what torch's own CPU kernel does no better. */
static bool excuses(const usc_allow *allow, const usc_report_finding *f)
{
    static const char usual[] = "usual";
    const size_t n = sizeof usual - 1;
    const char *pattern = allow->pattern;
    if (allow->verdict != f->verdict) return false;
    if (pattern == NULL) return true;
    if (strncmp(pattern, usual, n) != 0 || (pattern[n] != '\0' && pattern[n] != ':'))
        return names_it(pattern, f);
    return f->usual && (pattern[n] == '\0' || names_it(pattern + n + 1, f));
}

/* Of such a call nobody has looked at the numbers, or there are none to look at. */
static bool is_open(const usc_report_finding *f)
{
    return usc_verdict_missing(f->verdict) || f->verdict == USC_VERDICT_UNDEFINED;
}

bool usc_report_finding_counts(const usc_report_finding *f,
                               const usc_report_options *options)
{
    const bool strict = options != NULL && options->strict;
    return (usc_verdict_flagged(f->verdict) || (strict && is_open(f))) &&
           !usc_report_finding_allowed(f, options);
}

bool usc_report_finding_allowed(const usc_report_finding *f,
                                const usc_report_options *options)
{
    for (int i = 0; options != NULL && i < options->n_allow; i++)
        if (excuses(&options->allow[i], f))
            return usc_verdict_flagged(f->verdict) || is_open(f);
    return false;
}

bool usc_report_finding_flagged(const usc_report_finding *f,
                                const usc_report_options *options)
{
    return f->n_known < f->n_rows && usc_report_finding_counts(f, options);
}
