// SPDX-License-Identifier: Apache-2.0
// Sums of what other standards say, made in the walk that makes the findings.
#include "report/report_standards.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char prefix[] = "standard:";

const char *usc_standard_named(const usc_metric *m)
{
    const size_t n = sizeof prefix - 1;
    return m->output == -1 && strncmp(m->name, prefix, n) == 0 ? m->name + n : NULL;
}

static usc_standard_sum *sum_of(usc_report *r, const char *name)
{
    usc_standard_sum **end = &r->standards;
    for (; *end != NULL; end = &(*end)->next)
        if (strcmp((*end)->name, name) == 0) return *end;
    usc_standard_sum *s = usc_report_take(r, sizeof *s);
    if (s == NULL || (s->name = usc_report_keep(r, name)) == NULL) return NULL;
    *end = s;
    return s;
}

/* Names behind commas; what does not fit is left out. */
typedef struct names {
    char text[512];
    size_t used;
    int n;
} names;

/* The names, or one word for all of the `n` that there are, or for none. */
static const char *text_of(const names *set, int n)
{
    return set->n == n ? "all" : set->n == 0 ? "" : set->text;
}

static void add_name(names *n, const char *name)
{
    const int wrote = snprintf(n->text + n->used, sizeof n->text - n->used, "%s%s",
                               n->used > 0 ? ", " : "", name);
    if (wrote > 0 && n->used + (size_t)wrote < sizeof n->text) n->used += (size_t)wrote;
    n->text[n->used] = '\0';
    n->n++;
}

static usc_standard_group *group_of(usc_report *r, const usc_result_row *row,
                                    usc_verdict v, const char *accused,
                                    const char *unjudged)
{
    usc_standard_group **end = &r->groups;
    for (; *end != NULL; end = &(*end)->next) {
        const usc_standard_group *g = *end;
        if (g->verdict == v && strcmp(g->op, row->op) == 0 &&
            strcmp(g->accused, accused) == 0 && strcmp(g->unjudged, unjudged) == 0)
            return *end;
    }
    usc_standard_group *g = usc_report_take(r, sizeof *g);
    if (g == NULL) return NULL;
    g->op = usc_report_keep(r, row->op);
    g->accused = usc_report_keep(r, accused);
    g->unjudged = usc_report_keep(r, unjudged);
    if (g->op == NULL || g->accused == NULL || g->unjudged == NULL) return NULL;
    g->verdict = v;
    g->first_call = row->call;
    *end = g;
    return g;
}

usc_status usc_report_add_standards(usc_report *r, const usc_result_row *row,
                                    usc_verdict v, usc_error *err)
{
    names accused = {.n = 0}, unjudged = {.n = 0};
    int n = 0;
    for (int i = 0; i < row->n_metrics; i++) {
        const usc_metric *m = &row->metrics[i];
        const char *name = usc_standard_named(m);
        if (name == NULL) continue;
        n++;
        usc_standard_sum *s = sum_of(r, name);
        if (s == NULL) return usc_report_no_memory(r, err);
        const bool pass = m->value > 0, wrong = !pass && !isnan(m->value);
        s->n_pass += pass;
        s->n_wrong += wrong;
        s->n_missed += pass && usc_verdict_flagged(v);
        s->n_extra += wrong && v == USC_VERDICT_PASS;
        if (!pass) add_name(wrong ? &accused : &unjudged, name);
    }
    if (n == 0) return USC_OK;
    usc_standard_group *g =
        group_of(r, row, v, text_of(&accused, n), text_of(&unjudged, n));
    if (g == NULL) return usc_report_no_memory(r, err);
    g->n_rows++;
    return USC_OK;
}

bool usc_standards_compared(const usc_report *r)
{
    return r->standards != NULL && r->standards->next != NULL;
}

int64_t usc_standard_unjudged(const usc_report *r, const usc_standard_sum *s)
{
    return r->n_rows - s->n_pass - s->n_wrong;
}

const char *usc_standard_word(const usc_metric *m)
{
    return isnan(m->value) ? "unjudged" : m->value > 0 ? "pass" : "wrong";
}
