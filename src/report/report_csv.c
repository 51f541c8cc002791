// SPDX-License-Identifier: Apache-2.0
// result.csv and details.csv. Columns: docs/reference/report.md.
#include <math.h>
#include <string.h>

#include "report/report_standards.h"
#include "result/result_reader.h"

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

static void put_text(usc_out *o, const char *text)
{
    usc_out_csv(o, text_of(text));
    usc_out_text(o, ",");
}

static void put_int(usc_out *o, int64_t v)
{
    usc_out_format(o, "%lld,", (long long)v);
}

static void put_bits(usc_out *o, usc_verdict verdict, double bits)
{
    if (usc_bits_shown(verdict, bits)) usc_out_number(o, bits);
    usc_out_text(o, ",");
}

static void put_loss(usc_out *o, const usc_result_row *row)
{
    const double loss = usc_row_facts_of(row).loss;
    if (!isnan(loss)) usc_out_number(o, loss);
    usc_out_text(o, ",");
}

/* A standard's verdict on a call, "" where it was not asked. */
static void put_opinion(usc_out *o, const usc_result_row *row, const char *name)
{
    usc_out_text(o, ",");
    for (int i = 0; i < row->n_metrics; i++) {
        const char *is = usc_standard_named(&row->metrics[i]);
        if (is != NULL && strcmp(is, name) == 0)
            usc_out_text(o, usc_standard_word(&row->metrics[i]));
    }
}

typedef struct rows {
    usc_out *o;
    usc_report *r;
    const usc_standard_sum *standards; /* that were compared */
} rows;

static bool put_marks(const rows *w, const usc_result_row *row, usc_verdict verdict)
{
    const usc_row_facts facts = usc_row_facts_of(row);
    const usc_report_finding *f = NULL;
    if (verdict != USC_VERDICT_PASS) {
        f = usc_report_finding_of(w->r, row, verdict);
        if (f == NULL) return false;
    }
    const unsigned marks = usc_row_marks(w->r, row, f);
    usc_out_format(w->o, "%d,%d,%d,", (marks & USC_MARK_KNOWN) != 0,
                   (marks & USC_MARK_ALLOWED) != 0, (marks & USC_MARK_USUAL) != 0);
    usc_out_number(w->o, facts.excused);
    usc_out_text(w->o, ",");
    usc_out_csv(w->o, facts.excuse);
    return true;
}

static usc_status result_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    const rows *w = ctx;
    usc_out *o = w->o;
    const usc_verdict verdict = usc_verdict_by_text(text_of(row->verdict));
    put_int(o, row->call);
    put_int(o, row->step);
    put_text(o, row->phase);
    put_text(o, row->op);
    put_text(o, row->culprit);
    put_text(o, row->module);
    put_text(o, row->module_class);
    put_text(o, row->verdict);
    put_bits(o, verdict, row->bits);
    put_bits(o, verdict, row->yardstick_bits);
    usc_out_text(o, row->bound ? "1," : "0,");
    put_loss(o, row);
    put_text(o, row->cause);
    put_text(o, row->sentence);
    put_text(o, row->notes);
    put_text(o, row->output);
    put_text(o, row->args);
    put_int(o, row->n_elements);
    put_int(o, row->stands_for);
    put_int(o, row->t_device);
    put_int(o, row->t_reference);
    put_int(o, row->t_perturbed);
    put_int(o, row->t_judge);
    put_int(o, row->t_total);
    if (!put_marks(w, row, verdict)) return usc_report_no_memory(w->r, err);
    for (const usc_standard_sum *s = w->standards; s != NULL; s = s->next)
        put_opinion(o, row, s->name);
    usc_out_text(o, "\n");
    return o->status;
}

usc_status usc_report_csv(usc_report *report, const usc_sink *sink, usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    usc_out_text(&o, "call,step,phase,op,culprit,module,module_class,verdict,bits,"
                     "yardstick_bits,bound,loss,cause,sentence,notes,output,args,"
                     "n_elements,stands_for,t_device_ns,t_reference_ns,t_perturbed_ns,"
                     "t_judge_ns,t_total_ns,known,allowed,usual,excused,excuse");
    const usc_standard_sum *compared =
        usc_standards_compared(report) ? report->standards : NULL;
    for (const usc_standard_sum *s = compared; s != NULL; s = s->next) {
        usc_out_text(&o, ",");
        usc_out_csv(&o, s->name);
    }
    usc_out_text(&o, "\n");
    rows w = {&o, report, compared};
    const usc_status st =
        usc_result_walk_parts(report->result, USC_RESULT_LEAN, result_row, &w, err);
    return st != USC_OK ? st : usc_out_end(&o);
}

static usc_status detail_rows(void *ctx, const usc_result_row *row, usc_error *err)
{
    (void)err;
    usc_out *o = ctx;
    for (int i = 0; i < row->n_metrics; i++) {
        const usc_metric *m = &row->metrics[i];
        put_int(o, row->call);
        put_text(o, row->op);
        put_text(o, row->verdict);
        put_int(o, m->output);
        put_text(o, m->name);
        if (m->text == NULL) usc_out_number(o, m->value);
        usc_out_text(o, ",");
        usc_out_csv(o, text_of(m->text));
        usc_out_text(o, "\n");
    }
    return o->status;
}

usc_status usc_report_details(usc_report *report, const usc_sink *sink, usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    usc_out_text(&o, "call,op,verdict,output,metric,value,text\n");
    const usc_status st =
        usc_result_walk_parts(report->result, USC_RESULT_LEAN, detail_rows, &o, err);
    return st != USC_OK ? st : usc_out_end(&o);
}
