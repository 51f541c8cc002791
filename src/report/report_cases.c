// SPDX-License-Identifier: Apache-2.0
// Sorts calls into cases and decides which of them a baseline knows. Rule:
// docs/reference/report.md, "Baseline".
#include "report/report_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/report_index.h"
#include "result/result_reader.h"

#define WORSE_BITS 1.0 /* fewer bits by more than this is worse; less is noise */

static uint64_t hash_of(const usc_case_key *key)
{
    uint64_t h = usc_index_hash_text(0, key->op);
    h = usc_index_hash_text(h, key->module);
    h = usc_index_hash_text(h, key->phase);
    return usc_index_hash_text(h, key->args);
}

static bool same_key(const usc_report_case *c, const usc_case_key *key)
{
    return strcmp(c->op, key->op) == 0 && strcmp(c->module, key->module) == 0 &&
           strcmp(c->phase, key->phase) == 0 && strcmp(c->args, key->args) == 0;
}

usc_report_case *usc_case_of(usc_report *r, const usc_case_key *key)
{
    const uint64_t hash = hash_of(key);
    usc_indexed *node = usc_index_first(&r->cases_index, hash);
    for (; node != NULL; node = usc_index_next(node))
        if (same_key((usc_report_case *)node, key)) return (usc_report_case *)node;
    usc_report_case *c = usc_report_take(r, sizeof *c);
    if (c == NULL) return NULL;
    c->op = usc_report_keep(r, key->op);
    c->module = usc_report_keep(r, key->module);
    c->phase = usc_report_keep(r, key->phase);
    c->args = usc_report_keep(r, key->args);
    if (!c->op || !c->module || !c->phase || !c->args) return NULL;
    c->rows_end = &c->rows;
    if (usc_index_add(r, &r->cases_index, &c->indexed, hash, NULL) != USC_OK) return NULL;
    *r->cases_end = c;
    r->cases_end = &c->next;
    return c;
}

/* Verdicts stand in order of precedence, the worst first. */
static bool worse(usc_verdict verdict, double bits, const usc_known *k)
{
    if (verdict != k->verdict) return verdict < k->verdict;
    return usc_bits_shown(verdict, bits) && usc_bits_shown(k->verdict, k->bits) &&
           bits < k->bits - WORSE_BITS;
}

/* Rows come worst first, and each takes the worst that is left: what remains of this run
 * is more than there was. */
static bool is_known(usc_report_case *c, usc_verdict verdict, double bits)
{
    usc_known *worst = c->worst_left;
    if (worst == NULL) return false;
    c->worst_left = worst->next;
    worst->used = true;
    return !worse(verdict, bits, worst);
}

static int by_severity(const void *a, const void *b)
{
    const usc_known *x = *(const usc_known *const *)a;
    const usc_known *y = *(const usc_known *const *)b;
    if (x->verdict != y->verdict) return x->verdict < y->verdict ? -1 : 1;
    if (isnan(x->bits) || isnan(y->bits)) return isnan(x->bits) - isnan(y->bits);
    return (x->bits > y->bits) - (x->bits < y->bits);
}

/* What the baseline knows of a case, the worst first. */
static usc_status sort_known(usc_report *r, usc_report_case *c, usc_error *err)
{
    size_t n = 0, i = 0;
    for (const usc_known *k = c->known; k != NULL; k = k->next)
        n++;
    usc_known **all = n > 1 ? usc_report_take(r, n * sizeof *all) : NULL;
    if (n > 1 && all == NULL) return usc_report_no_memory(r, err);
    for (usc_known *k = c->known; k != NULL && n > 1; k = k->next)
        all[i++] = k;
    if (n > 1) qsort(all, n, sizeof *all, by_severity);
    for (i = 0; i + 1 < n; i++)
        all[i]->next = all[i + 1];
    if (n > 1) {
        all[n - 1]->next = NULL;
        c->known = all[0];
    }
    c->worst_left = c->known;
    return USC_OK;
}

static usc_status add_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    usc_report *r = ctx;
    const usc_case_key key = {row->op, row->module, row->phase, row->args};
    usc_report_case *c = usc_case_of(r, &key);
    if (c == NULL) return usc_report_no_memory(r, err);
    const usc_verdict v = usc_verdict_by_text(row->verdict);
    c->n++;
    c->t_total += row->t_total;
    const bool beside = usc_row_facts_of(row).left_out[0] != '\0';
    usc_report_finding *unseen = beside ? usc_report_beside_of(r, row) : NULL;
    if (beside && unseen == NULL) return usc_report_no_memory(r, err);
    if (v == USC_VERDICT_PASS) {
        c->n_pass++;
        if (beside) unseen->n_known += is_known(c, USC_VERDICT_UNJUDGED, (double)NAN);
        return USC_OK;
    }
    usc_report_finding *f = usc_report_finding_of(r, row, v);
    usc_case_row *added = usc_report_take(r, sizeof *added);
    if (f == NULL || added == NULL) return usc_report_no_memory(r, err);
    if (usc_index_add(r, &r->rows_index, &added->indexed,
                      usc_index_hash(0, &row->call, sizeof row->call), err) != USC_OK)
        return usc_report_no_memory(r, err);
    added->finding = f;
    added->call = row->call;
    added->source = usc_source_line_of(r, row->stack);
    added->sentence = usc_report_keep(r, row->sentence);
    added->known = is_known(c, v, row->bits);
    if (added->sentence == NULL) return usc_report_no_memory(r, err);
    f->n_known += added->known;
    if (beside) unseen->n_known += added->known;
    *c->rows_end = added;
    c->rows_end = &added->next;
    return USC_OK;
}

usc_status usc_cases_fill(usc_report *r, usc_error *err)
{
    if (r->cases_filled) return USC_OK;
    r->cases_filled = true;
    for (usc_report_case *c = r->cases; c != NULL; c = c->next) {
        const usc_status st = sort_known(r, c, err);
        if (st != USC_OK) return st;
    }
    return usc_result_walk_parts(r->result, USC_RESULT_LEAN, add_row, r, err);
}

const usc_case_row *usc_case_row_of(const usc_report *r, int64_t call)
{
    usc_indexed *node =
        usc_index_first(&r->rows_index, usc_index_hash(0, &call, sizeof call));
    while (node != NULL && ((const usc_case_row *)node)->call != call)
        node = usc_index_next(node);
    return (const usc_case_row *)node;
}

unsigned usc_row_marks(const usc_report *r, const usc_result_row *row,
                       const usc_report_finding *f)
{
    if (f == NULL) return 0;
    const usc_case_row *found = r->has_baseline ? usc_case_row_of(r, row->call) : NULL;
    return (found != NULL && found->known ? USC_MARK_KNOWN : 0U) |
           (usc_report_finding_allowed(f, r->options) ? USC_MARK_ALLOWED : 0U) |
           (f->usual ? USC_MARK_USUAL : 0U);
}
