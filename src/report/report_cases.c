// SPDX-License-Identifier: Apache-2.0
// Sorts calls into cases and decides which of them a baseline knows. Rule:
// docs/report.md, "Baseline".
#include "report/report_cases.h"

#include <math.h>
#include <string.h>

enum { N_BUCKETS = 8192 };

#define WORSE_BITS 1.0 /* fewer bits by more than this is worse; less is noise */

static uint64_t hash_text(uint64_t h, const char *text)
{
    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (h ^ 0xff) * UINT64_C(0x100000001b3);
}

static size_t bucket_of(const usc_case_key *key)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    h = hash_text(h, key->op);
    h = hash_text(h, key->module);
    h = hash_text(h, key->phase);
    h = hash_text(h, key->args);
    return (size_t)(h % N_BUCKETS);
}

static bool same_key(const usc_report_case *c, const usc_case_key *key)
{
    return strcmp(c->op, key->op) == 0 && strcmp(c->module, key->module) == 0 &&
           strcmp(c->phase, key->phase) == 0 && strcmp(c->args, key->args) == 0;
}

usc_report_case *usc_case_of(usc_report *r, const usc_case_key *key)
{
    if (r->buckets == NULL)
        r->buckets = usc_report_take(r, N_BUCKETS * sizeof *r->buckets);
    if (r->buckets == NULL) return NULL;
    usc_report_case **bucket = &r->buckets[bucket_of(key)];
    for (usc_report_case *c = *bucket; c != NULL; c = c->in_bucket)
        if (same_key(c, key)) return c;
    usc_report_case *c = usc_report_take(r, sizeof *c);
    if (c == NULL) return NULL;
    c->op = usc_report_keep(r, key->op);
    c->module = usc_report_keep(r, key->module);
    c->phase = usc_report_keep(r, key->phase);
    c->args = usc_report_keep(r, key->args);
    if (!c->op || !c->module || !c->phase || !c->args) return NULL;
    c->rows_end = &c->rows;
    c->in_bucket = *bucket;
    *bucket = c;
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
    usc_known *worst = NULL;
    for (usc_known *k = c->known; k != NULL; k = k->next) {
        if (k->used) continue;
        if (worst == NULL || k->verdict < worst->verdict ||
            (k->verdict == worst->verdict && k->bits < worst->bits))
            worst = k;
    }
    if (worst == NULL) return false;
    worst->used = true;
    return !worse(verdict, bits, worst);
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
    if (v == USC_VERDICT_PASS) {
        c->n_pass++;
        return USC_OK;
    }
    usc_finding *f = usc_finding_of(r, row, v);
    usc_case_row *added = usc_report_take(r, sizeof *added);
    if (f == NULL || added == NULL) return usc_report_no_memory(r, err);
    added->finding = f;
    added->call = row->call;
    added->sentence = usc_report_keep(r, row->sentence);
    added->known = is_known(c, v, row->bits);
    if (added->sentence == NULL) return usc_report_no_memory(r, err);
    f->n_known += added->known;
    *c->rows_end = added;
    c->rows_end = &added->next;
    return USC_OK;
}

usc_status usc_cases_fill(usc_report *r, usc_error *err)
{
    if (r->cases_filled) return USC_OK;
    r->cases_filled = true;
    return usc_result_walk(r->result, add_row, r, err);
}
