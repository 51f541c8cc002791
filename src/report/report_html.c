// SPDX-License-Identifier: Apache-2.0
// report.html: the page in report.html, with report.css and the scripts beside it
// (embedded at build time by cmake/embed.cmake) and the data as JSON that the scripts
// show.
#include <math.h>
#include <string.h>

#include "report/report_index.h"
#include "report/report_json.h"
#include "report/report_markdown.h"
#include "report/report_standards.h"
#include "report/report_trace.h"
#include "result/result_reader.h"

/* Made by cmake/embed.cmake. */
extern const char usc_page_html[], usc_page_css[], usc_page_js[], usc_page_overview_js[],
    usc_page_step_js[], usc_page_call_js[], usc_page_trace_js[];

/* What keeps a page of 100,000 calls small enough to open: findings of a kind that have a
 * card, and calls with numbers of their own, of which each finding gets a few at least.
 */
enum { MOST_FINDINGS = 1000, MANY_DETAILED = 5000, MOST_DETAILED = 8000 };
enum { MANY_OF_FINDING = 500, FEW_OF_FINDING = 5 };

typedef struct page_text {
    usc_indexed indexed;
    const char *text;
    int64_t i;
} page_text;

typedef struct page {
    usc_out *o;
    usc_report *r;
    usc_index texts; /* every text once */
    const char **list;
    size_t n_texts, capacity;
    bool any;
    int64_t n_detailed;
    bool full; /* no further call gets an element of its own */
} page;

static bool grow(page *p)
{
    if (p->n_texts < p->capacity) return true;
    const size_t capacity = p->capacity > 0 ? 4 * p->capacity : 256;
    const char **list = usc_report_take(p->r, capacity * sizeof *list);
    if (list == NULL) return false;
    if (p->n_texts > 0) memcpy(list, p->list, p->n_texts * sizeof *list);
    p->list = list;
    p->capacity = capacity;
    return true;
}

/* The place of a text in the list; -1 without memory. */
static int64_t text_id(page *p, const char *text)
{
    if (text == NULL) text = "";
    const uint64_t hash = usc_index_hash_text(0, text);
    usc_indexed *node = usc_index_first(&p->texts, hash);
    for (; node != NULL; node = usc_index_next(node))
        if (strcmp(((page_text *)node)->text, text) == 0) return ((page_text *)node)->i;
    page_text *t = usc_report_take(p->r, sizeof *t);
    if (t == NULL || (t->text = usc_report_keep(p->r, text)) == NULL || !grow(p) ||
        usc_index_add(p->r, &p->texts, &t->indexed, hash, NULL) != USC_OK)
        return -1;
    t->i = (int64_t)p->n_texts;
    p->list[p->n_texts++] = t->text;
    return t->i;
}

static void put_int(page *p, int64_t v)
{
    usc_out_format(p->o, ",%lld", (long long)v);
}

static void put_number(page *p, double v)
{
    usc_out_text(p->o, ",");
    if (isfinite(v))
        usc_out_number(p->o, v);
    else
        usc_out_text(p->o, "null");
}

/* Digits behind the sixth are more than anybody sees. */
static void put_bits(page *p, usc_verdict verdict, double bits)
{
    put_number(p, usc_bits_shown(verdict, bits) ? round(bits * 1e6) / 1e6 : (double)NAN);
}

/* p, w or u for each standard in the order of the summary, - where it was not asked. */
static void put_opinions(page *p, const usc_result_row *row)
{
    usc_out_text(p->o, ",\"");
    for (const usc_standard_sum *s = p->r->standards; s != NULL; s = s->next) {
        const char *word = "-";
        for (int i = 0; i < row->n_metrics; i++) {
            const char *name = usc_standard_named(&row->metrics[i]);
            if (name != NULL && strcmp(name, s->name) == 0)
                word = usc_standard_word(&row->metrics[i]);
        }
        usc_out_bytes(p->o, word, 1);
    }
    usc_out_text(p->o, "\"");
}

/* A call has an element of its own where it has numbers, so that they are parsed when
 * somebody opens it. */
static bool is_detailed(page *p, const usc_result_row *row, usc_report_finding *f)
{
    const bool any = row->n_metrics > 0 || (row->stack != NULL && row->stack[0] != '\0');
    const int64_t of_finding = f != NULL ? f->n_detailed : MANY_OF_FINDING - 1;
    const bool few = of_finding < FEW_OF_FINDING && p->n_detailed < MOST_DETAILED;
    const bool many = of_finding < MANY_OF_FINDING && p->n_detailed < MANY_DETAILED;
    if (!any || !(few || many)) return false;
    p->n_detailed++;
    if (f != NULL) f->n_detailed++;
    return true;
}

enum { MARK_BOUND = 8, MARK_DETAILED = 16 };

static bool put_texts(page *p, const char *const texts[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t id = text_id(p, texts[i]);
        if (id < 0) return false;
        put_int(p, id);
    }
    return true;
}

static usc_status finding_of(page *p, const usc_result_row *row, usc_verdict verdict,
                             usc_report_finding **out, usc_error *err)
{
    *out = NULL;
    if (verdict == USC_VERDICT_PASS) return USC_OK;
    *out = usc_report_finding_of(p->r, row, verdict);
    return *out != NULL ? USC_OK : usc_report_no_memory(p->r, err);
}

/* One list per call, in the order of FIELDS in report.js. */
static usc_status put_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    page *p = ctx;
    const usc_verdict verdict = usc_verdict_by_text(row->verdict);
    const usc_row_facts facts = usc_row_facts_of(row);
    usc_report_finding *f;
    const usc_status st = finding_of(p, row, verdict, &f, err);
    if (st != USC_OK) return st;
    const unsigned marks = usc_row_marks(p->r, row, f) | (row->bound ? MARK_BOUND : 0U) |
                           (is_detailed(p, row, f) ? MARK_DETAILED : 0U);
    usc_out_format(p->o, "%s[%lld", p->any ? ",\n" : "\n", (long long)row->call);
    p->any = true;
    put_int(p, row->step);
    const char *const texts[] = {row->phase,  row->op,           row->culprit,
                                 row->module, row->module_class, row->verdict,
                                 row->cause,  row->sentence,     row->notes,
                                 row->output, row->args,         facts.excuse};
    if (!put_texts(p, texts, sizeof texts / sizeof texts[0]))
        return usc_report_no_memory(p->r, err);
    put_int(p, f != NULL ? f->i : -1);
    put_int(p, marks);
    put_bits(p, verdict, row->bits);
    put_bits(p, verdict, row->yardstick_bits);
    put_number(p, facts.loss);
    put_number(p, facts.excused);
    put_opinions(p, row);
    const int64_t numbers[] = {row->n_elements,  row->stands_for,  row->t_device,
                               row->t_reference, row->t_perturbed, row->t_judge,
                               facts.t_causes,   row->t_total};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        put_int(p, numbers[i]);
    usc_out_text(p->o, "]");
    return p->o->status;
}

/* The bug report on the worst call of a finding, for the button that copies it. */
static usc_status put_markdown(page *p, const usc_result_row *row,
                               const usc_report_finding *f)
{
    if (f == NULL || f->worst_call != row->call) return USC_OK;
    const char *text = usc_markdown_text(p->r, row);
    if (text == NULL) return usc_report_no_memory(p->r, p->o->err);
    usc_out_text(p->o, ", \"markdown\": ");
    usc_out_json(p->o, text);
    return USC_OK;
}

static usc_status put_numbers(void *ctx, const usc_result_row *row, usc_error *err)
{
    page *p = ctx;
    usc_report_finding *f;
    p->full = p->n_detailed == MOST_DETAILED;
    if (p->full) return USC_E_BUSY; /* ends the walk */
    usc_status st = finding_of(p, row, usc_verdict_by_text(row->verdict), &f, err);
    if (st != USC_OK || !is_detailed(p, row, f)) return st;
    usc_out_format(p->o, "<script type=\"application/json\" id=\"data-%lld\">{",
                   (long long)row->call);
    p->o->in_script = true;
    usc_report_json_numbers(p->o, row);
    st = put_markdown(p, row, f);
    p->o->in_script = false;
    usc_out_text(p->o, "}</script>\n");
    return st != USC_OK ? st : p->o->status;
}

/* The second walk makes the same choices as the first. */
static void begin_walk(page *p)
{
    p->n_detailed = 0;
    for (usc_report_finding *f = p->r->findings; f != NULL; f = f->next)
        f->n_detailed = 0;
}

static usc_status data(usc_out *o, usc_report *r)
{
    page p = {.o = o, .r = r};
    usc_out_text(o, "<script type=\"application/json\" id=\"data\">");
    o->in_script = true;
    usc_out_text(o, "{");
    usc_status st = usc_report_json_head(o, r, MOST_FINDINGS);
    if (st != USC_OK) return st;
    usc_out_text(o, ",\n\"calls\": [");
    begin_walk(&p);
    st = usc_result_walk_parts(r->result, USC_RESULT_LEAN, put_row, &p, o->err);
    if (st != USC_OK) return st;
    usc_out_text(o, "],\n\"texts\": [");
    for (size_t i = 0; i < p.n_texts; i++) {
        usc_out_text(o, i > 0 ? ",\n" : "\n");
        usc_out_json(o, p.list[i]);
    }
    usc_out_text(o, "]}");
    o->in_script = false;
    usc_out_text(o, "</script>\n");
    begin_walk(&p);
    st = usc_result_walk(r->result, put_numbers, &p, o->err);
    return p.full ? o->status : st;
}

/* What stands in a page: the report on a check, or traces. */
typedef struct page_of {
    usc_report *report;
    const usc_trace_page *traces;
} page_of;

/* The page holds marks such as {{css}}. */
static usc_status mark(usc_out *o, const page_of *of, const char *name, size_t n)
{
    static const struct {
        const char *name, *text;
    } parts[] = {{"css", usc_page_css},
                 {"js", usc_page_js},
                 {"overview_js", usc_page_overview_js},
                 {"step_js", usc_page_step_js},
                 {"trace_js", usc_page_trace_js},
                 {"call_js", usc_page_call_js}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strlen(parts[i].name) == n && memcmp(parts[i].name, name, n) == 0)
            usc_out_text(o, parts[i].text);
    if (n == 6 && memcmp(name, "device", n) == 0)
        usc_out_html(o, of->report != NULL ? usc_report_run(of->report, "device")
                                           : of->traces->rank[0].path);
    else if (n == 4 && memcmp(name, "data", n) == 0)
        return of->report != NULL ? data(o, of->report)
                                  : usc_trace_page_data(o, of->traces);
    return o->status;
}

static usc_status put_page(const page_of *of, const usc_sink *sink, usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    const char *rest = usc_page_html;
    for (const char *open; (open = strstr(rest, "{{")) != NULL;) {
        usc_out_bytes(&o, rest, (size_t)(open - rest));
        const char *close = strstr(open, "}}");
        const char *name = open + 2;
        const usc_status st = mark(&o, of, name, (size_t)(close - name));
        if (st != USC_OK) return st;
        rest = close + 2;
    }
    usc_out_text(&o, rest);
    return usc_out_end(&o);
}

usc_status usc_report_html(usc_report *report, const usc_sink *sink, usc_error *err)
{
    const page_of of = {.report = report};
    return put_page(&of, sink, err);
}

usc_status usc_report_traces(const usc_trace_page *traces, const usc_sink *sink,
                             usc_error *err)
{
    const page_of of = {.traces = traces};
    return put_page(&of, sink, err);
}
