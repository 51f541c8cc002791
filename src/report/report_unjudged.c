// SPDX-License-Identifier: Apache-2.0
// The last line of whatever judges: what was not judged, why, and what to do. Reports, a
// diff and the modes inside a program hand over their counts.
#include <ulpscope/x/unjudged.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"
#include "report/report_model.h"

enum { MOST_TOLD = 4, REASON_SIZE = 200, REMEDY_SIZE = 160 };

/* ---- what to do ---- */

/* What helps; %s: the operator. */
typedef struct remedy {
    const char *where, *text;
} remedy;

/* Where it is known which side was not given. */
static const remedy given[] = {
    {USC_LACKS_OUTPUT, "save it as pack.json names it, or --allow unsupported:%s"},
    {USC_LACKS_REFERENCE, "give one, or --allow unjudged:%s"},
    {USC_LACKS_FINER, "write the reference in float64, or --allow unjudged:%s"},
    {USC_LACKS_OTHER, "name what the device gave, and what it is held to"},
    {USC_LACKS_SCALE, "give the size of the terms with --scale FILE, or hold it to "
                      "another rule: --standard torch-close"},
};

/* Else what a reason holds, of torch's own words and a worker's. The first that fits. */
static const remedy heard[] = {
    {"internal error", ""}, /* it says so itself */
    {"--import", ""},       /* so does this */
    {"ill-conditioned", "judge it on tamer inputs"},
    {"overflows", "judge it on tamer inputs"},
    {"needs more memory", "run it where there is more"},
    {"no room or time", "check fewer steps or operators, or give it more time"},
    {"was not captured", "capture it with --data full"},
    {"was not kept", "capture it with --data full"},
    {"device and CPU both refuse", ""},
    {"the CPU rejects", ""},
    {"reference", "write ulpscope.reference.register(\"%s\")"},
    {"unknown",
     "--import the module or file that registers it; live_check(imports=[...])"},
    {"belongs to a library of",
     "capture on the device, which has another operator there"},
    {"lacks", "ulpscope coverage lists what is missing"},
    {"Could not run", "ulpscope coverage lists what is missing"},
    {"not implemented", "ulpscope coverage lists what is missing"},
};

static void fill_in(const char *text, const char *op, char *out, size_t size)
{
    const char *at = strstr(text, "%s");
    if (at == NULL)
        (void)snprintf(out, size, "%s", text);
    else
        (void)snprintf(out, size, "%.*s%s%s", (int)(at - text), text, op, at + 2);
}

void usc_unjudged_remedy(const usc_unjudged *item, char *out, size_t size)
{
    const char *text = NULL;
    if (item->lacks != NULL)
        for (size_t i = 0; text == NULL && i < sizeof given / sizeof given[0]; i++)
            if (strcmp(item->lacks, given[i].where) == 0) text = given[i].text;
    for (size_t i = 0; text == NULL && i < sizeof heard / sizeof heard[0]; i++)
        if (strstr(item->reason, heard[i].where) != NULL) text = heard[i].text;
    fill_in(text != NULL ? text : "", item->op, out, size);
}

/* ---- the line ---- */

static int most_first(const void *a, const void *b)
{
    const usc_unjudged *x = a, *y = b;
    if (x->n != y->n) return x->n < y->n ? 1 : -1;
    const int op = strcmp(x->op, y->op);
    return op != 0 ? op : strcmp(x->reason, y->reason);
}

/* Items of one operator and reason as one; how many are left. */
static size_t merged(usc_unjudged *item, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < kept && (strcmp(item[k].op, item[i].op) != 0 ||
                            strcmp(item[k].reason, item[i].reason) != 0))
            k++;
        if (item[i].n <= 0) continue;
        if (k < kept)
            item[k].n += item[i].n;
        else
            item[kept++] = item[i];
    }
    return kept;
}

/* The first sentence of a reason, on one line. */
static void put_reason(usc_out *o, const char *reason)
{
    size_t n = strcspn(reason, "\n");
    const char *end = strstr(reason, ". ");
    if (end != NULL && (size_t)(end - reason) < n) n = (size_t)(end - reason);
    const bool cut = n > REASON_SIZE;
    for (n = cut ? REASON_SIZE : n; cut && n > 0 && reason[n] != ' ';)
        n--;
    usc_out_terminal(o, reason, n);
    if (cut) usc_out_text(o, " ...");
}

static void put_item(usc_out *o, const usc_unjudged *item)
{
    char helps[REMEDY_SIZE];
    usc_out_terminal(o, item->op, strlen(item->op));
    usc_out_format(o, "%s%lld call%s", item->op[0] != '\0' ? " " : "", (long long)item->n,
                   item->n == 1 ? "" : "s");
    if (item->reason[0] == '\0') return;
    usc_out_text(o, " (");
    put_reason(o, item->reason);
    usc_unjudged_remedy(item, helps, sizeof helps);
    if (helps[0] != '\0') usc_out_text(o, "; ");
    usc_out_terminal(o, helps, strlen(helps));
    usc_out_text(o, ")");
}

usc_status usc_unjudged_put(const usc_unjudged *items, size_t n, const usc_sink *sink,
                            usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    usc_unjudged *item = malloc((n + 1) * sizeof *item);
    if (item == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
    if (n > 0) memcpy(item, items, n * sizeof *item);
    const size_t kept = merged(item, n);
    qsort(item, kept, sizeof *item, most_first);
    int64_t rest = 0;
    for (size_t i = 0; i < kept; i++) {
        if (i >= MOST_TOLD) {
            rest += item[i].n;
            continue;
        }
        usc_out_text(&o, i == 0 ? "not judged: " : "; ");
        put_item(&o, &item[i]);
    }
    if (rest > 0) usc_out_format(&o, "; and %lld more calls", (long long)rest);
    free(item);
    return usc_out_end(&o);
}

/* ---- of a report ---- */

usc_status usc_report_unjudged(usc_report *report, const usc_sink *sink, usc_error *err)
{
    size_t n = 0;
    for (const usc_report_finding *f = report->findings; f != NULL; f = f->next)
        n += usc_verdict_missing(f->verdict);
    usc_unjudged *items = usc_report_take(report, (n + 1) * sizeof *items);
    if (items == NULL) return usc_report_no_memory(report, err);
    n = 0;
    for (const usc_report_finding *f = report->findings; f != NULL; f = f->next)
        if (usc_verdict_missing(f->verdict))
            items[n++] =
                (usc_unjudged){f->op, usc_report_finding_reason(f), f->n_rows, f->lacks};
    usc_status st = usc_unjudged_put(items, n, sink, err);
    if (st == USC_OK && n > 0) st = sink->write(sink->ctx, "\n", 1, err);
    if (st != USC_OK || report->internal == NULL) return st;
    usc_out o;
    usc_out_begin(&o, sink, err);
    usc_out_text(&o, "not all causes were tried: ");
    usc_out_terminal(&o, report->internal_op, strlen(report->internal_op));
    usc_out_text(&o, " (");
    put_reason(&o, report->internal);
    usc_out_text(&o, ")\n");
    return usc_out_end(&o);
}
