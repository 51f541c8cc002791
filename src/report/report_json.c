// SPDX-License-Identifier: Apache-2.0
// result.json. Schema: docs/reference/report.md.
#include "report/report_json.h"

#include <ulpscope/version.h>

#include <math.h>

#include "report/report_places.h"
#include "report/report_standards.h"
#include "report/report_summary.h"

static void member(usc_out *o, const char *name, const char *text)
{
    usc_out_format(o, "\"%s\": ", name);
    usc_out_json(o, text != NULL ? text : "");
}

static void member_int(usc_out *o, const char *name, int64_t v)
{
    usc_out_format(o, "\"%s\": %lld", name, (long long)v);
}

static void comma(usc_out *o)
{
    usc_out_text(o, ", ");
}

static void member_bits(usc_out *o, const char *name, usc_verdict verdict, double bits)
{
    usc_out_format(o, "\"%s\": ", name);
    if (usc_bits_shown(verdict, bits))
        usc_out_json_number(o, bits);
    else
        usc_out_text(o, "null");
}

static void member_bool(usc_out *o, const char *name, bool is)
{
    usc_out_format(o, ", \"%s\": %s", name, is ? "true" : "false");
}

static void member_loss(usc_out *o, double loss)
{
    usc_out_text(o, "\"loss\": ");
    if (isnan(loss))
        usc_out_text(o, "null");
    else
        usc_out_json_number(o, loss);
}

static void run(usc_out *o, usc_report *r)
{
    static const char *const texts[] = {"trace",  "trace_id", "device",  "standard",
                                        "faults", "state",    "created", "remarks"};
    static const char *const numbers[] = {"n_selected", "seconds"};
    static const char *const objects[] = {"options", "environment"};
    usc_out_text(o, "\"run\": {");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        member(o, texts[i], usc_report_run(r, texts[i]));
        comma(o);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        usc_out_format(o, "\"%s\": ", numbers[i]);
        usc_out_raw_json(o, usc_report_run(r, numbers[i]), "null");
        comma(o);
    }
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        if (i > 0) comma(o);
        usc_out_format(o, "\"%s\": ", objects[i]);
        usc_out_raw_json(o, usc_report_run(r, objects[i]), "{}");
    }
    usc_out_text(o, "}");
}

static void counts(usc_out *o, const int64_t n[USC_N_VERDICTS], bool zeros)
{
    bool first = true;
    usc_out_text(o, "{");
    for (int v = 0; v < USC_N_VERDICTS; v++) {
        if (n[v] == 0 && !zeros) continue;
        if (!first) comma(o);
        member_int(o, usc_verdict_text((usc_verdict)v), n[v]);
        first = false;
    }
    usc_out_text(o, "}");
}

static void standards(usc_out *o, const usc_report *r)
{
    usc_out_text(o, ",\n\"standards\": [");
    for (const usc_standard_sum *s = r->standards; s != NULL; s = s->next) {
        usc_out_text(o, "\n{");
        member(o, "name", s->name);
        comma(o);
        member_int(o, "accuses", s->n_wrong);
        comma(o);
        member_int(o, "passes", s->n_pass);
        comma(o);
        member_int(o, "unjudged", usc_standard_unjudged(r, s));
        comma(o);
        member_int(o, "misses", s->n_missed);
        comma(o);
        member_int(o, "extra", s->n_extra);
        usc_out_text(o, s->next != NULL ? "}," : "}");
    }
    usc_out_text(o, "]");
}

/* How many calls the baseline knows, --allow excuses, torch's own kernel does no better.
 */
static void sums(usc_out *o, const usc_report *r)
{
    int64_t n_known = 0, n_allowed = 0, n_usual = 0;
    for (const usc_report_finding *f = r->findings; f != NULL; f = f->next) {
        n_known += f->n_known;
        n_allowed += usc_report_finding_allowed(f, r->options) ? f->n_rows : 0;
        n_usual += f->usual ? f->n_rows : 0;
    }
    member_int(o, "n_known", n_known);
    comma(o);
    member_int(o, "n_allowed", n_allowed);
    comma(o);
    member_int(o, "n_usual", n_usual);
    comma(o);
    member_int(o, "n_not_judged", usc_report_seen(r, r->options).n_open);
    comma(o);
    const bool allowed = r->options != NULL && r->options->unrecorded;
    member_int(o, "n_unrecorded", allowed ? 0 : usc_report_unrecorded(r));
}

static void summary(usc_out *o, usc_report *r)
{
    usc_out_text(o, "\"summary\": {");
    member_int(o, "n_calls", r->n_rows);
    comma(o);
    member_int(o, "stands_for", r->n_calls);
    usc_out_text(o, ", \"verdicts\": ");
    counts(o, r->n, true);
    usc_out_text(o, ",\n\"time_ns\": {");
    member_int(o, "device", r->times.device);
    comma(o);
    member_int(o, "reference", r->times.reference);
    comma(o);
    member_int(o, "perturbed", r->times.perturbed);
    comma(o);
    member_int(o, "judge", r->times.judge);
    comma(o);
    member_int(o, "causes", r->times.causes);
    comma(o);
    member_int(o, "total", r->times.total);
    usc_out_text(o, "},\n\"operators\": [");
    for (const usc_op_sum *s = r->ops; s != NULL; s = s->next) {
        usc_out_text(o, "\n{");
        member(o, "op", s->op);
        usc_out_text(o, ", \"verdicts\": ");
        counts(o, s->n, false);
        usc_out_text(o, s->next != NULL ? "}," : "}");
    }
    usc_out_text(o, "]");
    standards(o, r);
    usc_out_text(o, ",\n\"odd_inputs\": {");
    member_int(o, "n_calls", r->odd.n);
    comma(o);
    member_int(o, "n_nan", r->odd.n_nan);
    comma(o);
    member_int(o, "n_pass", r->odd.n_pass);
    comma(o);
    member_int(o, "n_nan_pass", r->odd.n_nan_pass);
    usc_out_text(o, "},\n\"excused\": {");
    member_int(o, "n_calls", r->excused.n);
    comma(o);
    member_int(o, "first", r->excused.first);
    usc_out_text(o, ", \"most\": ");
    usc_out_json_number(o, r->excused.most);
    comma(o);
    member(o, "excuse", r->excused.excuse);
    usc_out_text(o, "},\n");
    sums(o, r);
    usc_out_text(o, ",\n\"self_test\": ");
    usc_out_raw_json(o, usc_report_run(r, "self_test"), "null");
    usc_out_text(o, "}");
}

static usc_status finding(usc_out *o, usc_report *r, const usc_report_finding *f)
{
    usc_text modules = {0};
    const usc_sink sink = usc_text_sink(&modules);
    usc_out piece;
    usc_out_begin(&piece, &sink, o->err);
    usc_status st = usc_places_put(&piece, r, f, 64);
    if (st == USC_OK) st = usc_out_end(&piece);
    if (st != USC_OK) return st;

    usc_out_text(o, "\n{");
    member(o, "op", f->op);
    comma(o);
    member(o, "culprit", f->culprit);
    comma(o);
    member(o, "verdict", usc_verdict_text(f->verdict));
    comma(o);
    member(o, "cause", f->cause);
    comma(o);
    member(o, "sentence", f->sentence);
    comma(o);
    member(o, "reason", usc_report_finding_reason(f));
    comma(o);
    member(o, "modules", modules.bytes);
    comma(o);
    member_int(o, "n_calls", f->n_rows);
    comma(o);
    member_int(o, "stands_for", f->n_calls);
    comma(o);
    member_int(o, "worst_call", f->worst_call);
    comma(o);
    member_bits(o, "bits", f->verdict, f->bits);
    comma(o);
    member_bits(o, "yardstick_bits", f->verdict, f->yardstick_bits);
    usc_out_text(o, f->bound ? ", \"bound\": true, " : ", \"bound\": false, ");
    member_loss(o, f->loss);
    comma(o);
    member_int(o, "n_known", f->n_known);
    member_bool(o, "allowed", usc_report_finding_allowed(f, r->options));
    member_bool(o, "usual", f->usual);
    comma(o);
    member(o, "file", f->source.file);
    comma(o);
    member_int(o, "line", f->source.line);
    usc_out_text(o, "}");
    return o->status;
}

/* Whether a finding is among the first `at_most` of its kind, accused or not. */
static bool kept(const usc_report_finding *f, int64_t at_most, int64_t n[2])
{
    return n[usc_verdict_flagged(f->verdict)]++ < at_most;
}

usc_status usc_report_json_head(usc_out *o, usc_report *r, int64_t at_most)
{
    member(o, "schema", USC_REPORT_SCHEMA);
    comma(o);
    member(o, "version", USC_VERSION);
    usc_out_text(o, ",\n");
    run(o, r);
    usc_out_text(o, ",\n");
    summary(o, r);
    usc_out_text(o, ",\n\"findings\": [");
    int64_t n[2] = {0}, n_put = 0;
    for (usc_report_finding *f = r->findings; f != NULL; f = f->next) {
        f->i = -1;
        if (!kept(f, at_most, n)) continue;
        usc_out_text(o, n_put > 0 ? "," : "");
        f->i = n_put++;
        const usc_status st = finding(o, r, f);
        if (st != USC_OK) return st;
    }
    usc_out_text(o, "],\n");
    member_int(o, "n_findings", (int64_t)r->findings_index.n);
    return o->status;
}

/* What other standards say of a call; nothing where none was asked. */
static void opinions(usc_out *o, const usc_result_row *row)
{
    bool any = false;
    for (int i = 0; i < row->n_metrics; i++) {
        const char *name = usc_standard_named(&row->metrics[i]);
        if (name == NULL) continue;
        usc_out_text(o, any ? ", " : ", \"standards\": {");
        member(o, name, usc_standard_word(&row->metrics[i]));
        any = true;
    }
    if (any) usc_out_text(o, "}");
}

/* Members that a row of a plain pass has as well, so that a reader need not ask. */
static usc_status marks(usc_out *o, usc_report *r, const usc_result_row *row,
                        usc_verdict verdict)
{
    const usc_row_facts facts = usc_row_facts_of(row);
    const usc_report_finding *f = NULL;
    if (verdict != USC_VERDICT_PASS &&
        (f = usc_report_finding_of(r, row, verdict)) == NULL)
        return usc_report_no_memory(r, o->err);
    const unsigned is = usc_row_marks(r, row, f);
    member_bool(o, "known", (is & USC_MARK_KNOWN) != 0);
    member_bool(o, "allowed", (is & USC_MARK_ALLOWED) != 0);
    member_bool(o, "usual", (is & USC_MARK_USUAL) != 0);
    usc_out_text(o, ", \"excused\": ");
    usc_out_json_number(o, facts.excused);
    comma(o);
    member(o, "excuse", facts.excuse);
    comma(o);
    member(o, "not_judged", facts.left_out);
    return o->status;
}

static usc_status brief(usc_out *o, usc_report *r, const usc_result_row *row)
{
    const char *text = row->verdict != NULL ? row->verdict : "";
    const usc_verdict verdict = usc_verdict_by_text(text);
    member_int(o, "call", row->call);
    comma(o);
    member_int(o, "step", row->step);
    comma(o);
    member(o, "phase", row->phase);
    comma(o);
    member(o, "op", row->op);
    comma(o);
    member(o, "culprit", row->culprit);
    comma(o);
    member(o, "module", row->module);
    comma(o);
    member(o, "verdict", text);
    comma(o);
    member_bits(o, "bits", verdict, row->bits);
    comma(o);
    member_bits(o, "yardstick_bits", verdict, row->yardstick_bits);
    usc_out_text(o, row->bound ? ", \"bound\": true, " : ", \"bound\": false, ");
    member_loss(o, usc_row_facts_of(row).loss);
    comma(o);
    member(o, "cause", row->cause);
    comma(o);
    member(o, "sentence", row->sentence);
    opinions(o, row);
    return marks(o, r, row, verdict);
}

static void metrics(usc_out *o, const usc_result_row *row)
{
    usc_out_text(o, "\"metrics\": [");
    for (int i = 0; i < row->n_metrics; i++) {
        const usc_metric *m = &row->metrics[i];
        usc_out_text(o, i > 0 ? ", {" : "{");
        member_int(o, "output", m->output);
        comma(o);
        member(o, "name", m->name);
        usc_out_text(o, ", \"value\": ");
        if (m->text != NULL)
            usc_out_raw_json(o, m->text, "null");
        else
            usc_out_json_number(o, m->value);
        usc_out_text(o, "}");
    }
    usc_out_text(o, "]");
}

static void examples(usc_out *o, const usc_result_row *row)
{
    usc_out_text(o, "\"examples\": [");
    for (int i = 0; i < row->n_examples; i++) {
        const usc_result_example *e = &row->examples[i];
        usc_out_text(o, i > 0 ? ", {" : "{");
        member_int(o, "output", e->output);
        comma(o);
        member_int(o, "rank", e->rank);
        usc_out_text(o, ", \"index\": ");
        usc_out_raw_json(o, e->index, "null");
        usc_out_text(o, ", \"device\": ");
        usc_out_json_number(o, e->device);
        usc_out_text(o, ", \"reference\": ");
        usc_out_json_number(o, e->reference);
        usc_out_text(o, ", \"yardstick\": ");
        usc_out_json_number(o, e->yardstick);
        usc_out_text(o, ", \"score\": ");
        usc_out_json_number(o, e->score);
        usc_out_text(o, "}");
    }
    usc_out_text(o, "]");
}

void usc_report_json_numbers(usc_out *o, const usc_result_row *row)
{
    usc_out_text(o, "\"stack\": ");
    usc_out_raw_json(o, row->stack, "[]");
    comma(o);
    metrics(o, row);
    comma(o);
    examples(o, row);
}

static void details(usc_out *o, const usc_result_row *row)
{
    member(o, "module_class", row->module_class);
    comma(o);
    member(o, "notes", row->notes);
    comma(o);
    member(o, "output", row->output);
    comma(o);
    member(o, "args", row->args);
    comma(o);
    member_int(o, "n_elements", row->n_elements);
    comma(o);
    member_int(o, "stands_for", row->stands_for);
    usc_out_text(o, ", \"time_ns\": {");
    member_int(o, "device", row->t_device);
    comma(o);
    member_int(o, "reference", row->t_reference);
    comma(o);
    member_int(o, "perturbed", row->t_perturbed);
    comma(o);
    member_int(o, "judge", row->t_judge);
    comma(o);
    member_int(o, "total", row->t_total);
    usc_out_text(o, "}, ");
    usc_report_json_numbers(o, row);
}

typedef struct rows {
    usc_out *o;
    usc_report *r;
    bool any;
} rows;

static usc_status call(void *ctx, const usc_result_row *row, usc_error *err)
{
    (void)err;
    rows *w = ctx;
    usc_out_text(w->o, w->any ? ",\n{" : "\n{");
    w->any = true;
    const usc_status st = brief(w->o, w->r, row);
    if (st != USC_OK) return st;
    comma(w->o);
    details(w->o, row);
    usc_out_text(w->o, "}");
    return w->o->status;
}

usc_status usc_report_json(usc_report *report, const usc_sink *sink, usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    usc_out_text(&o, "{");
    usc_status st = usc_report_json_head(&o, report, INT64_MAX);
    if (st != USC_OK) return st;
    usc_out_text(&o, ",\n\"calls\": [");
    rows w = {.o = &o, .r = report};
    st = usc_result_walk(report->result, call, &w, err);
    if (st != USC_OK) return st;
    usc_out_text(&o, "]}\n");
    return usc_out_end(&o);
}
