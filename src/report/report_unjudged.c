// SPDX-License-Identifier: Apache-2.0
// The last line of whatever judges: what was not judged, why, and what to do. Reports, a
// diff and the modes inside a program hand over their counts.
#include <ulpscope/x/pattern.h>
#include <ulpscope/x/unjudged.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"
#include "report/report_summary.h"

enum { MOST_TOLD = 4, REASON_SIZE = 200, REMEDY_SIZE = 160 };

/* ---- what to do ---- */

/* What helps; %s: the operator. */
typedef struct remedy {
    const char *where, *text;
} remedy;

/* Where it is known which side was not given. */
static const remedy given[] = {
    {USC_LACKS_OUTPUT, "save it as pack.json names it"},
    {USC_LACKS_REFERENCE, "give one"},
    {USC_LACKS_FINER, "write the reference in float64"},
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

static void put_item(usc_out *o, const usc_unjudged *item, const char *noun)
{
    char helps[REMEDY_SIZE];
    usc_out_terminal(o, item->op, strlen(item->op));
    usc_out_format(o, "%s%lld %s%s", item->op[0] != '\0' ? " " : "", (long long)item->n,
                   noun, item->n == 1 ? "" : "s");
    if (item->reason[0] == '\0') return;
    usc_out_text(o, " (");
    put_reason(o, item->reason);
    usc_unjudged_remedy(item, helps, sizeof helps);
    if (helps[0] != '\0') usc_out_text(o, "; ");
    usc_out_terminal(o, helps, strlen(helps));
    usc_out_text(o, ")");
}

/* Behind "not judged" or more words. */
static bool put_items(usc_out *o, const char *head, const usc_unjudged *items, size_t n,
                      const char *noun)
{
    usc_unjudged *item = malloc((n + 1) * sizeof *item);
    if (item == NULL) return false;
    if (n > 0) memcpy(item, items, n * sizeof *item);
    const size_t kept = merged(item, n);
    qsort(item, kept, sizeof *item, most_first);
    int64_t rest = 0;
    for (size_t i = 0; i < kept; i++) {
        if (i >= MOST_TOLD) {
            rest += item[i].n;
            continue;
        }
        usc_out_text(o, i == 0 ? head : "; ");
        put_item(o, &item[i], noun);
    }
    if (rest > 0) usc_out_format(o, "; and %lld more %ss", (long long)rest, noun);
    free(item);
    return true;
}

usc_status usc_unjudged_put(const usc_unjudged *items, size_t n, const usc_sink *sink,
                            usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    if (!put_items(&o, "not judged: ", items, n, "call"))
        return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
    return usc_out_end(&o);
}

/* ---- of a report ---- */

/* Of what nobody looked at: excused, or of a baseline, or neither. */
typedef enum unseen { ALLOWED, KNOWN, OPEN, N_UNSEEN } unseen;

static const char *const heads[N_UNSEEN] = {
    [ALLOWED] = "not judged, accepted by --allow: ",
    [KNOWN] = "not judged, as in the baseline: ",
    [OPEN] = "not judged: ",
};

static int64_t n_of(const usc_report_finding *f, const usc_report_options *options,
                    unseen which)
{
    if (!usc_report_unseen(f)) return 0;
    if (usc_report_finding_allowed(f, options)) return which == ALLOWED ? f->n_rows : 0;
    if (which == KNOWN) return f->n_known;
    return which == OPEN ? f->n_rows - f->n_known : 0;
}

/* Whether a name is a glob of its own. */
static bool is_plain(const char *name)
{
    return name[0] != '\0' && usc_pattern_check(name, NULL) == USC_OK &&
           strpbrk(name, "*?!, ") == NULL;
}

/* "--allow unjudged:ext::norm,ext::gate", by operator where a few are all of it. */
static void put_allow(usc_out *o, usc_report *r, const usc_report_options *options,
                      usc_verdict verdict)
{
    const char *name[MOST_TOLD];
    int n = 0;
    bool named = true;
    for (const usc_report_finding *f = r->findings; f != NULL; f = f->next) {
        if (f->verdict != verdict || usc_report_left(r, f, options) == 0) continue;
        int i = 0;
        while (i < n && strcmp(name[i], f->op) != 0)
            i++;
        if (i < n) continue;
        named = named && n < MOST_TOLD && is_plain(f->op);
        if (named) name[n++] = f->op;
        if (!named) break;
    }
    if (named && n == 0) return;
    usc_out_format(o, " --allow %s", usc_verdict_text(verdict));
    for (int i = 0; i < n && named; i++)
        usc_out_format(o, "%c%s", i == 0 ? ':' : ',', name[i]);
}

/* Where what is left decides the exit code: of how many, and what to type. */
static void put_way_on(usc_out *o, usc_report *r, const usc_report_options *options)
{
    const usc_seen s = usc_report_seen(r, options);
    if (r->n[USC_VERDICT_INTERNAL] > 0 || !usc_report_thin(r, options) ||
        usc_report_exit_code(r, options) != 2)
        return;
    usc_out_format(o, "; %lld of %lld %s%s, hence exit code 2", (long long)s.n_open,
                   (long long)s.n, usc_report_noun(r), s.n == 1 ? "" : "s");
    if (s.n_judged == 0) return; /* nothing excuses that */
    usc_out_format(o, "; to accept %s:", s.n_open == 1 ? "it" : "them");
    put_allow(o, r, options, USC_VERDICT_UNJUDGED);
    put_allow(o, r, options, USC_VERDICT_UNSUPPORTED);
}

static bool put_unseen(usc_out *o, usc_report *r, const usc_report_options *options,
                       unseen which)
{
    size_t n = 0;
    for (const usc_report_finding *f = r->findings; f != NULL; f = f->next)
        n += n_of(f, options, which) > 0;
    if (n == 0) return true;
    usc_unjudged *items = usc_report_take(r, n * sizeof *items);
    if (items == NULL) return false;
    n = 0;
    for (const usc_report_finding *f = r->findings; f != NULL; f = f->next)
        if (n_of(f, options, which) > 0)
            items[n++] = (usc_unjudged){f->op, usc_report_finding_reason(f),
                                        n_of(f, options, which), f->lacks};
    if (!put_items(o, heads[which], items, n, usc_report_noun(r))) return false;
    if (which == OPEN) put_way_on(o, r, options);
    usc_out_text(o, "\n");
    return true;
}

/* What ran and is not in the trace: nobody looked at that. */
static void put_unrecorded(usc_out *o, const usc_report *r,
                           const usc_report_options *options)
{
    const long n = usc_report_unrecorded(r);
    const bool accepted = options != NULL && options->unrecorded;
    if (n == 0) return;
    usc_out_format(o, "not recorded%s: %ld compiled region%s",
                   accepted ? ", accepted by --allow" : "", n, n == 1 ? "" : "s");
    if (!accepted && usc_report_exit_code(r, options) == 2)
        usc_out_text(o, "; hence exit code 2; capture --no-compile, or --allow "
                        "unrecorded");
    usc_out_text(o, "\n");
}

usc_status usc_report_unjudged(usc_report *report, const usc_report_options *options,
                               const usc_sink *sink, usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    if (report->internal != NULL) {
        usc_out_text(&o, "not all causes were tried: ");
        usc_out_terminal(&o, report->internal_op, strlen(report->internal_op));
        usc_out_text(&o, " (");
        put_reason(&o, report->internal);
        usc_out_text(&o, ")\n");
    }
    put_unrecorded(&o, report, options);
    for (unseen which = ALLOWED; which < N_UNSEEN; which++)
        if (!put_unseen(&o, report, options, which))
            return usc_report_no_memory(report, err);
    return usc_out_end(&o);
}
