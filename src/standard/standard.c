// SPDX-License-Identifier: Apache-2.0
// Names of the standards, their parameters, and which operand serves where one is
// missing. The rules themselves: standard_close.c, standard_bits.c, standard_norm.c,
// standard_ascend.c, standard_ascend_ratio.c.
#include "standard/standard_trial.h"

#include "base/compiler.h"
#include "base/float_env.h"
#include "base/number.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEEDS(id) (1u << USC_OPERAND_##id)
#define RAISED (NEEDS(REFERENCE) | NEEDS(YARDSTICK))

static const usc_standard_info infos[] = {
    {"ulpscope", "", "our own rule: effective bits against what float32 can do",
     NEEDS(REFERENCE) | NEEDS(YARDSTICK)},
    {"ascend-v1", "",
     "cosine, absolute and relative error shares; pass, warning or error", RAISED},
    {"ascend-absolute", "", "no element beyond the dtype's relative or absolute bound",
     RAISED},
    {"ascend-ulp", "", "mean and share of errors in ulps, or no worse than a benchmark",
     RAISED | NEEDS(BENCHMARK)},
    {"ascend-benchmark", "", "errors as ratios to those of a second device",
     RAISED | NEEDS(BENCHMARK)},
    {"torch-close", "", "torch.testing.assert_close with its tolerances per dtype",
     NEEDS(NATIVE)},
    {"allclose", ":ATOL,RTOL", "torch.allclose", NEEDS(NATIVE)},
    {"ulp", ":K", "no element more than K units in the last place from the truth",
     NEEDS(REFERENCE)},
    {"bitwise", "", "the same bits as the CPU's own run", NEEDS(NATIVE)},
    {"cosine", ":X", "cosine similarity with the truth of at least X", NEEDS(REFERENCE)},
    {"neuron-3way", "", "errors distributed like those of the CPU in the same dtype",
     RAISED | NEEDS(NATIVE)},
    {"inductor-same", "[:TOL]", "torch._dynamo.utils.same: close, or a like RMSE",
     NEEDS(REFERENCE) | NEEDS(NATIVE)},
    {"ggml-nmse", "[:LIMIT]", "normalised mean squared error, as test-backend-ops",
     NEEDS(NATIVE)},
    {"kernelbench", "", "torch.allclose with 1e-4, or 1e-2 for 16 bits", NEEDS(NATIVE)},
};

enum { N_STANDARDS = sizeof infos / sizeof infos[0] };

/* What only this library knows of a standard; same order as `infos`. */
static const struct rule {
    void (*judge)(usc_trial *c);
    int least, most;                          /* number of parameters */
    double defaults[USC_STANDARD_PARAMETERS]; /* NaN: the rule chooses */
} rules[N_STANDARDS] = {
    {NULL, 0, 0, {0}},
    {usc_rule_ascend_v1, 0, 0, {0}},
    {usc_rule_ascend_absolute, 0, 0, {0}},
    {usc_rule_ascend_ulp, 0, 0, {0}},
    {usc_rule_ascend_benchmark, 0, 0, {0}},
    {usc_rule_torch_close, 0, 0, {0}},
    {usc_rule_allclose, 2, 2, {0}},
    {usc_rule_ulp, 1, 1, {0}},
    {usc_rule_bitwise, 0, 0, {0}},
    {usc_rule_cosine, 1, 1, {0}},
    {usc_rule_neuron, 0, 0, {0}},
    {usc_rule_inductor, 0, 1, {1e-4}},
    {usc_rule_ggml, 0, 1, {-1}},
    {usc_rule_kernelbench, 0, 0, {0}},
};

const usc_standard_info *usc_standard_list(int *n)
{
    *n = N_STANDARDS;
    return infos;
}

/* ---- parsing ---- */

static usc_status unknown_name(const char *text, size_t length, usc_error *err)
{
    char known[384] = "";
    size_t used = 0;
    for (int i = 0; i < N_STANDARDS; i++) {
        const int wrote = snprintf(known + used, sizeof known - used, "%s%s%s",
                                   i > 0 ? ", " : "", infos[i].name, infos[i].parameters);
        if (wrote > 0 && used + (size_t)wrote < sizeof known) used += (size_t)wrote;
    }
    return usc_error_set(err, USC_E_ARG, 0, "no standard is named '%.*s'; known: %s",
                         (int)(length < 40 ? length : 40), text, known);
}

/* Reads "1e-3,1e-5" into values; the number of values, -1 where it is none. */
static int read_numbers(const char *text, double values[USC_STANDARD_PARAMETERS])
{
    int n = 0;
    while (n < USC_STANDARD_PARAMETERS) {
        char *end;
        const double value = usc_parse_number(text, &end);
        if (end == text || !isfinite(value) || value < 0) return -1;
        values[n++] = value;
        if (*end == '\0') return n;
        if (*end != ',') return -1;
        text = end + 1;
    }
    return -1;
}

usc_status usc_standard_parse(const char *text, usc_standard *out, usc_error *err)
{
    assert(text);
    assert(out);
    *out = (usc_standard){0};
    const char *colon = strchr(text, ':');
    const size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    int at = 0;
    while (at < N_STANDARDS && (strlen(infos[at].name) != length ||
                                memcmp(infos[at].name, text, length) != 0))
        at++;
    if (at == N_STANDARDS) return unknown_name(text, length, err);

    const struct rule *rule = &rules[at];
    usc_standard found = {.info = &infos[at]};
    memcpy(found.parameters, rule->defaults, sizeof found.parameters);
    const int n = colon != NULL ? read_numbers(colon + 1, found.parameters) : 0;
    if (n < rule->least || n > rule->most || strlen(text) >= sizeof found.name)
        return usc_error_set(err, USC_E_ARG, (int64_t)length,
                             "standard '%.60s': it is written %s%s%s", text,
                             infos[at].name, infos[at].parameters,
                             rule->most > 0 ? ", with numbers from 0 on" : "");
    memcpy(found.name, text, strlen(text) + 1);
    *out = found;
    return USC_OK;
}

static USC_NOINLINE void judge_trial(usc_trial *c, const struct rule *rule)
{
    const unsigned needs = c->standard->info->needs;
    for (int i = 0; i < USC_N_OPERANDS; i++)
        if (c->in->of[i] != NULL && (needs >> i & 1) != 0 &&
            !usc_trial_shapes_agree(c, c->in->of[i], usc_operand_text((usc_operand)i)))
            return;
    if (c->n == 0)
        usc_trial_decide(c, true, NULL, "no elements");
    else
        rule->judge(c);
}

/* What no rule can be applied to. */
static usc_status check(const usc_trial *c, const struct rule *rule, usc_error *err)
{
    if (rule->judge == NULL)
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "ulpscope's own rule is usc_judge, not a standard to apply");
    bool any = false;
    for (int i = -1; i < USC_N_OPERANDS; i++) {
        const usc_tensor *t = i < 0 ? c->in->device : c->in->of[i];
        if (t == NULL) continue;
        any |= i >= 0;
        if (usc_dtype_info_of(t->dtype)->kind == USC_KIND_NONE)
            return usc_error_set(err, USC_E_DTYPE, -1, "dtype %s cannot be compared",
                                 usc_dtype_info_of(t->dtype)->name);
    }
    if (any) return USC_OK;
    return usc_error_set(err, USC_E_ARG, -1, "%s: there is nothing to compare with",
                         c->standard->name);
}

usc_status usc_standard_judge(const usc_standard *standard,
                              const usc_standard_operands *operands, usc_opinion *out,
                              usc_error *err)
{
    assert(standard && standard->info);
    assert(operands && operands->device);
    assert(out);
    *out = (usc_opinion){.verdict = USC_VERDICT_UNJUDGED};
    const usc_dtype_info *info = usc_dtype_info_of(operands->device->dtype);
    const struct rule *rule = &rules[standard->info - infos];
    usc_trial c = {
        .standard = standard,
        .in = operands,
        .dtype = operands->device->dtype,
        .is_float = info->kind == USC_KIND_FLOAT,
        .is_low = info->kind == USC_KIND_FLOAT && info->size < 4,
        .failed = strncmp(standard->name, "ascend", 6) == 0 ? "error" : "fail",
        .out = out,
    };
    usc_status st = check(&c, rule, err);
    if (st == USC_OK) st = usc_tensor_numel(operands->device, &c.n, err);
    if (st != USC_OK) {
        *out = (usc_opinion){0};
        return st;
    }
    const usc_float_env env = usc_float_env_enter();
    judge_trial(&c, rule);
    usc_float_env_leave(env);
    return USC_OK;
}
