// SPDX-License-Identifier: Apache-2.0
// A hand-made result database for the tests of the report, and a sink into memory.
#ifndef USC_TESTS_REPORT_SAMPLE_H
#define USC_TESTS_REPORT_SAMPLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include <ulpscope/report.h>
#include <ulpscope/result.h>

#include "trace_sample.h"

#define REPORT_EVIL "</script><b>\"&\033[31m"

typedef struct report_memory {
    char *bytes; /* NUL-terminated */
    size_t n;
} report_memory;

static inline usc_status report_memory_write(void *ctx, const char *bytes, size_t n,
                                             usc_error *err)
{
    (void)err;
    report_memory *m = ctx;
    m->bytes = realloc(m->bytes, m->n + n + 1);
    if (m->bytes == NULL) abort();
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
    m->bytes[m->n] = '\0';
    return USC_OK;
}

/** One row with all fields; the caller changes what it is about. */
static inline usc_result_row report_row(int64_t call, const char *op, const char *verdict)
{
    return (usc_result_row){.call = call,
                            .step = 1,
                            .phase = "forward",
                            .op = op,
                            .culprit = "",
                            .module = "layers.0.attn",
                            .module_class = "Attention",
                            .verdict = verdict,
                            .bits = 23.5,
                            .yardstick_bits = 23.5,
                            .cause = "",
                            .sentence = "a sentence",
                            .notes = "",
                            .output = "out[0]",
                            .args = "float32[2, 3]",
                            .stack = "[[\"train.py\", 7, \"step\"]]",
                            .n_elements = 6,
                            .stands_for = 1,
                            .t_device = 1,
                            .t_reference = 2,
                            .t_perturbed = 3,
                            .t_judge = 4,
                            .t_total = 20};
}

static inline void report_put(usc_result *r, const usc_result_row *row)
{
    usc_error err;
    if (usc_result_put(r, row, &err) != USC_OK) fail_msg("%s", err.text);
}

static inline usc_result *report_create(const char *folder)
{
    const usc_run run = {.trace = "demo",
                         .trace_id = "id",
                         .device = "sim:0",
                         .standard = "ulpscope",
                         .faults = "",
                         .options = "{\"ops\": null}",
                         .environment = "{\"torch\": \"2.13.0\"}"};
    usc_result *r = NULL;
    usc_error err;
    if (usc_result_create(folder, &run, false, &r, &err) != USC_OK)
        fail_msg("%s", err.text);
    return r;
}

/** Ends the check that wrote `r` and opens its report. */
static inline usc_report *report_finish(usc_result *r, const char *folder,
                                        const char *state)
{
    usc_report *report = NULL;
    usc_error err;
    if (usc_result_set(r, "state", state, &err) != USC_OK) fail_msg("%s", err.text);
    usc_result_close(r);
    if (usc_report_open(folder, NULL, &report, &err) != USC_OK) fail_msg("%s", err.text);
    return report;
}

/** Twelve linears reduced in layers 0-11, one AdamW wrong, one call each of unjudged,
 * unsupported and pass, and names that try to break out of every format. */
static inline usc_report *report_sample(const char *folder)
{
    usc_result *r = report_create(folder);
    for (int i = 0; i < 12; i++) {
        char module[32];
        snprintf(module, sizeof module, "layers.%d.attn", i);
        usc_result_row row = report_row(10 + i, "aten::linear", "reduced");
        row.culprit = "aten::addmm";
        row.module = module;
        row.bits = 10.8 + 0.01 * i;
        row.cause = "inputs rounded to TF32";
        row.sentence = i == 0 ? "linear computed with 10.8 effective bits" : "another";
        report_put(r, &row);
    }
    const usc_metric metrics[] = {{0, "max", (double)INFINITY, NULL},
                                  {0, "path", 0, "out[0]"},
                                  {0, "score_histogram", 0, "[0, 3, 1]"}};
    const usc_result_example examples[] = {
        {0, 0, "[0, 2]", (double)NAN, 0.5, 0.25, (double)INFINITY}};
    usc_result_row adamw = report_row(2, "aten::_fused_adamw_", "wrong");
    adamw.module = "";
    adamw.phase = "optimizer";
    adamw.bits = 4.2;
    adamw.n_metrics = 3;
    adamw.metrics = metrics;
    adamw.n_examples = 1;
    adamw.examples = examples;
    report_put(r, &adamw);
    usc_result_row unjudged = report_row(3, "aten::dropout", "unjudged");
    unjudged.cause = "random operator";
    report_put(r, &unjudged);
    unjudged = report_row(6, "aten::dropout", "unjudged");
    unjudged.sentence = "aten::dropout is unjudged: no reference within 60 s";
    report_put(r, &unjudged);
    usc_result_row unsupported = report_row(4, "aten::lgamma", "unsupported");
    unsupported.sentence = "the device has no lgamma";
    report_put(r, &unsupported);
    usc_result_row evil = report_row(5, "evil::" REPORT_EVIL, "undefined");
    evil.module = REPORT_EVIL;
    evil.sentence = "a, \"b\"\nc";
    evil.stack = "no JSON" REPORT_EVIL;
    report_put(r, &evil);
    usc_result_row pass = report_row(1, "aten::gelu", "pass");
    pass.bound = true;
    pass.stands_for = 3;
    report_put(r, &pass);
    return report_finish(r, folder, "done");
}

/** Renders into fresh memory, which the caller frees. */
static inline char *report_render(usc_report *report,
                                  usc_status (*render)(usc_report *, const usc_sink *,
                                                       usc_error *))
{
    report_memory memory = {0};
    const usc_sink sink = {report_memory_write, &memory};
    usc_error err;
    if (render(report, &sink, &err) != USC_OK) fail_msg("%s", err.text);
    return memory.bytes;
}

static inline void assert_contains(const char *text, const char *needle)
{
    if (text == NULL || strstr(text, needle) == NULL)
        fail_msg("no '%s' in:\n%s", needle, text != NULL ? text : "");
}

static inline void assert_lacks(const char *text, const char *needle)
{
    if (text == NULL || strstr(text, needle) != NULL)
        fail_msg("'%s' in:\n%s", needle, text != NULL ? text : "");
}

#endif
