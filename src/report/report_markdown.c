// SPDX-License-Identifier: Apache-2.0
// The text of a bug report on one call, in Markdown: what, where, numbers, environment.
// For those who mend the device: `ulpscope repro` writes it, a button of report.html
// copies it.
#include "report/report_markdown.h"

#include <string.h>

#include "json/json.h"

/* A text that means itself: GitHub's Markdown takes a backslash before any of these. */
static void put_plain(usc_out *o, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        const char c = (unsigned char)*text < 0x20 ? ' ' : *text;
        if (strchr("\\`*_[]<>|~", c) != NULL) usc_out_text(o, "\\");
        usc_out_bytes(o, &c, 1);
    }
}

/* A name as code; nothing is an escape there, so that what would end it is another mark.
 */
static void put_code(usc_out *o, const char *text)
{
    usc_out_text(o, "`");
    for (; *text != '\0'; text++) {
        const char c = *text == '`' ? '\'' : (unsigned char)*text < 0x20 ? ' ' : *text;
        usc_out_bytes(o, &c, 1);
    }
    usc_out_text(o, "`");
}

static bool has(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static void put_fact(usc_out *o, const char *name, const char *text, bool code)
{
    if (!has(text)) return;
    usc_out_format(o, "- %s: ", name);
    if (code)
        put_code(o, text);
    else
        put_plain(o, text);
    usc_out_text(o, "\n");
}

static void put_bits(usc_out *o, const usc_result_row *row)
{
    if (!usc_bits_shown(usc_verdict_by_text(row->verdict), row->bits)) return;
    usc_out_format(o, "- Effective bits: %s%.1f", row->bound ? "at least " : "",
                   row->bits > 0 ? row->bits : 0.0);
    if (row->yardstick_bits > 0)
        usc_out_format(o, ", of which float32 on the CPU gives %.1f",
                       row->yardstick_bits);
    usc_out_text(o, "\n");
}

/* Where a call stands; `put` writes names. */
static void put_where(usc_out *o, const usc_run *run, const usc_result_row *row,
                      void (*put)(usc_out *, const char *))
{
    usc_out_format(o, "call %lld", (long long)row->call);
    if (has(run->trace)) {
        usc_out_text(o, " of ");
        put(o, run->trace);
    }
    usc_out_format(o, ", step %lld", (long long)row->step);
    if (has(row->phase)) usc_out_format(o, ", %s", row->phase);
    if (!has(row->module)) return;
    usc_out_text(o, ", in ");
    put(o, row->module);
    usc_out_text(o, has(row->module_class) ? " (" : "");
    put_plain(o, row->module_class);
    usc_out_text(o, has(row->module_class) ? ")" : "");
}

static const char *path_of(const usc_result_row *row, int output)
{
    for (int i = 0; i < row->n_metrics; i++) {
        const usc_metric *m = &row->metrics[i];
        if (m->output == output && strcmp(m->name, "path") == 0 && has(m->text))
            return m->text;
    }
    return has(row->output) ? row->output : "out";
}

static void put_examples(usc_out *o, const usc_result_row *row)
{
    if (row->n_examples == 0) return;
    usc_out_text(o, "\nWorst elements:\n\n"
                    "| Element | Device | Correct (float64) | Float32 on the CPU |\n"
                    "|---|---:|---:|---:|\n");
    for (int i = 0; i < row->n_examples; i++) {
        const usc_result_example *e = &row->examples[i];
        const double numbers[] = {e->device, e->reference, e->yardstick};
        usc_out_text(o, "| ");
        put_plain(o, path_of(row, e->output));
        put_plain(o, e->index);
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
            usc_out_text(o, " | ");
            usc_out_number(o, numbers[k]);
        }
        usc_out_text(o, " |\n");
    }
}

/* Members that are texts or numbers; what is no JSON says nothing. */
static void put_environment(usc_out *o, const usc_run *run)
{
    usc_json *root = NULL;
    usc_error ignored = {0};
    const char *text = has(run->environment) ? run->environment : "{}";
    usc_out_text(o, "\nEnvironment:\n\n");
    put_fact(o, "device", run->device, true);
    put_fact(o, "planted faults", run->faults, true);
    if (usc_json_parse(text, strlen(text), "environment", "", &root, &ignored) != USC_OK)
        return;
    const char *key;
    const usc_json *value;
    for (void *at = NULL; usc_json_next(root, &at, &key, &value);) {
        int64_t n;
        if (usc_json_as_integer(value, &n))
            usc_out_format(o, "- %s: %lld\n", key, (long long)n);
        else
            put_fact(o, key, usc_json_as_text(value), false);
    }
    usc_json_free(root);
}

/* ---- what became of a script ---- */

static void put_tried(usc_out *o, const usc_script_run *t,
                      void (*put)(usc_out *, const char *))
{
    if (t->code < 0) {
        usc_out_format(o, "in a process of its own it ends that process (signal %d)",
                       -t->code);
    } else if (t->code == 1) {
        usc_out_text(o, "in a process of its own it fails (exit code 1)");
        if (has(t->said)) {
            usc_out_text(o, ": ");
            put(o, t->said);
            return;
        }
        usc_out_text(o, t->alone ? ", also by its own comparison (--plain)"
                                 : ", but its own comparison is too coarse to see it");
    } else if (t->code == 0) {
        usc_out_text(o, "NOT REPRODUCED: in a process of its own it does not fail");
    } else {
        usc_out_text(o, "NOT TRIED: ");
        put(o, t->said);
    }
}

usc_status usc_report_markdown(const usc_run *run, const usc_result_row *row,
                               const usc_script_run *tried, const usc_sink *sink,
                               usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    usc_out_text(&o, "## ");
    put_code(&o, row->op);
    usc_out_format(&o, " on ");
    put_code(&o, run->device);
    usc_out_format(&o, ": %s\n\n", row->verdict);
    put_plain(&o, row->sentence);
    usc_out_text(&o, "\n\n");
    put_bits(&o, row);
    put_fact(&o, "Cause", row->cause, false);
    put_fact(&o, "Fault below", row->culprit, true);
    put_fact(&o, "Arguments", row->args, true);
    put_fact(&o, "Decided by", row->output, true);
    put_fact(&o, "Notes", row->notes, false);
    usc_out_text(&o, "- Where: ");
    put_where(&o, run, row, put_code);
    usc_out_text(&o, "\n");
    put_examples(&o, row);
    if (tried != NULL) {
        usc_out_text(&o, "\nTo see it again: `python repro.py`; ");
        put_tried(&o, tried, put_plain);
        usc_out_text(&o, "\n");
    }
    put_environment(&o, run);
    return usc_out_end(&o);
}

/* ---- in a script ---- */

/* Text of a docstring: on one line, and nothing in it ends that. */
static void put_quoted(usc_out *o, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        const char c = (unsigned char)*text < 0x20 ? ' '
                       : *text == '\\'             ? '/'
                       : *text == '"'              ? '\''
                                                   : *text;
        usc_out_bytes(o, &c, 1);
    }
}

usc_status usc_report_about(const usc_run *run, const usc_result_row *row,
                            const usc_script_run *tried, const usc_sink *sink,
                            usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    put_quoted(&o, row->op);
    usc_out_text(&o, " on ");
    put_quoted(&o, run->device);
    usc_out_text(&o, ", ");
    put_where(&o, run, row, put_quoted);
    if (tried != NULL) {
        usc_out_text(&o, "\n");
        put_quoted(&o, row->sentence);
        usc_out_text(&o, has(row->sentence) ? "; " : "");
        put_tried(&o, tried, put_quoted);
    }
    return usc_out_end(&o);
}

/* ---- as a text ---- */

static usc_status count_write(void *ctx, const char *bytes, size_t n, usc_error *err)
{
    (void)bytes;
    (void)err;
    *(size_t *)ctx += n;
    return USC_OK;
}

static usc_status copy_write(void *ctx, const char *bytes, size_t n, usc_error *err)
{
    (void)err;
    char **at = ctx;
    memcpy(*at, bytes, n);
    *at += n;
    return USC_OK;
}

const char *usc_markdown_text(usc_report *r, const usc_result_row *row)
{
    const usc_run run = {.trace = usc_report_run(r, "trace"),
                         .device = usc_report_run(r, "device"),
                         .faults = usc_report_run(r, "faults"),
                         .environment = usc_report_run(r, "environment")};
    size_t n = 0;
    const usc_sink counting = {count_write, &n};
    if (usc_report_markdown(&run, row, NULL, &counting, NULL) != USC_OK) return NULL;
    char *text = usc_report_take(r, n + 1), *at = text;
    const usc_sink copying = {copy_write, &at};
    if (text == NULL || usc_report_markdown(&run, row, NULL, &copying, NULL) != USC_OK)
        return NULL;
    return text;
}
