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
#include <stdarg.h>
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

static const char *const operand_texts[USC_N_OPERANDS] = {
#define OPERAND_TEXT(id, name, meaning) [USC_OPERAND_##id] = name,
    USC_OPERAND_LIST(OPERAND_TEXT)
#undef OPERAND_TEXT
};

const char *usc_operand_text(usc_operand operand)
{
    return (unsigned)operand < USC_N_OPERANDS ? operand_texts[operand] : "unknown";
}

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

/* ---- what serves for a role ---- */

static const struct chain {
    usc_operand of[USC_N_OPERANDS];
    int n;
} chains[] = {
    [USC_ROLE_TRUE] = {{USC_OPERAND_REFERENCE, USC_OPERAND_YARDSTICK, USC_OPERAND_NATIVE},
                       3},
    [USC_ROLE_EXPECTED] = {{USC_OPERAND_NATIVE, USC_OPERAND_REFERENCE,
                            USC_OPERAND_YARDSTICK},
                           3},
    [USC_ROLE_RAISED] = {{USC_OPERAND_REFERENCE, USC_OPERAND_YARDSTICK,
                          USC_OPERAND_NATIVE},
                         3},
    [USC_ROLE_SECOND] = {{USC_OPERAND_BENCHMARK, USC_OPERAND_YARDSTICK,
                          USC_OPERAND_NATIVE, USC_OPERAND_REFERENCE},
                         4},
};

/* Low precisions are raised to float32, which the yardstick holds. */
static const struct chain raised_low = {
    {USC_OPERAND_YARDSTICK, USC_OPERAND_REFERENCE, USC_OPERAND_NATIVE}, 3};

static bool shapes_agree(const usc_trial *c, const usc_tensor *t, const char *what)
{
    usc_error problem;
    if (usc_walk_check_dims(what, t, c->in->device, &problem) == USC_OK) return true;
    usc_opinion *out = c->out;
    out->verdict = USC_VERDICT_WRONG;
    (void)snprintf(out->status, sizeof out->status, "%s", c->failed);
    (void)snprintf(out->reason, sizeof out->reason, "shape: %.150s", problem.text);
    return false;
}

/* The dtype that a role wants its operand in; its own where any is right. */
static usc_dtype wanted(const usc_trial *c, usc_trial_role role, usc_dtype own)
{
    const bool own_float = usc_dtype_info_of(own)->kind == USC_KIND_FLOAT;
    if (role == USC_ROLE_EXPECTED || role == USC_ROLE_SECOND)
        return own_float && c->is_float ? c->dtype : own;
    if (role == USC_ROLE_RAISED && c->is_low && own == USC_F64) return USC_F32;
    return own;
}

static void note_stand_in(usc_trial *c, usc_operand first, usc_operand used,
                          const usc_trial_reader *r)
{
    char *text = c->out->stand_in;
    if (first == used || c->out->stand_in[0] != '\0') return;
    (void)snprintf(text, sizeof c->out->stand_in, "%s%s%s in place of %s",
                   usc_operand_text(used), r->rounds ? " rounded to " : "",
                   r->rounds ? usc_dtype_info_of(r->dtype)->name : "",
                   usc_operand_text(first));
}

static bool dtype_agrees(usc_trial *c, usc_trial_role role, usc_operand used,
                         usc_dtype own)
{
    const bool exact = role == USC_ROLE_EXPECTED && used == USC_OPERAND_NATIVE;
    const bool kinds = (usc_dtype_info_of(own)->kind == USC_KIND_FLOAT) == c->is_float;
    if (exact ? own == c->dtype : kinds) return true;
    usc_trial_decide(c, false, NULL, "dtype %s where %s has %s",
                     usc_dtype_info_of(c->dtype)->name, usc_operand_text(used),
                     usc_dtype_info_of(own)->name);
    return false;
}

static void open_walk(const usc_tensor *t, usc_trial_reader *out)
{
    out->walk = usc_walk_over(t);
    out->dtype = t->dtype;
    out->rounds = false;
}

bool usc_trial_open(usc_trial *c, usc_trial_role role, usc_trial_reader *out)
{
    if (role == USC_ROLE_DEVICE) {
        open_walk(c->in->device, out);
        return true;
    }
    const struct chain *chain =
        role == USC_ROLE_RAISED && c->is_low ? &raised_low : &chains[role];
    for (int i = 0; i < chain->n; i++) {
        const usc_operand used = chain->of[i];
        const usc_tensor *t = c->in->of[used];
        if (t == NULL) continue;
        if (!shapes_agree(c, t, usc_operand_text(used)) ||
            !dtype_agrees(c, role, used, t->dtype))
            return false;
        open_walk(t, out);
        out->dtype = wanted(c, role, t->dtype);
        out->rounds = out->dtype != t->dtype;
        note_stand_in(c, chain->of[0], used, out);
        return true;
    }
    usc_trial_unjudged(c, "there is nothing to compare with");
    return false;
}

const double *usc_trial_load(usc_trial_reader *r, int64_t at, size_t count)
{
    const double *values = usc_walk_load(&r->walk, at, count, &r->room, r->values);
    if (!r->rounds) return values;
    usc_dtype_narrow(r->dtype, values, r->room.raw, count);
    usc_kernels_widen(r->dtype, r->room.raw, r->values, count);
    return r->values;
}

size_t usc_trial_count(const usc_trial *c, int64_t at)
{
    const int64_t left = c->n - at;
    return (size_t)(left < USC_JUDGE_BLOCK ? left : USC_JUDGE_BLOCK);
}

/* ---- the opinion ---- */

static void say(usc_trial *c, const char *status, const char *format, va_list args)
{
    (void)snprintf(c->out->status, sizeof c->out->status, "%s", status);
    (void)usc_format_list(c->out->reason, sizeof c->out->reason, format, args);
}

void usc_trial_decide(usc_trial *c, bool pass, const char *status, const char *format,
                      ...)
{
    va_list args;
    va_start(args, format);
    c->out->verdict = pass ? USC_VERDICT_PASS : USC_VERDICT_WRONG;
    say(c, status != NULL ? status : pass ? "pass" : c->failed, format, args);
    va_end(args);
}

void usc_trial_unjudged(usc_trial *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    c->out->verdict = USC_VERDICT_UNJUDGED;
    say(c, "unjudged", format, args);
    va_end(args);
}

bool usc_trial_no_rule(usc_trial *c)
{
    if (!c->is_float || usc_dtype_info_of(c->dtype)->size > 1) return false;
    usc_trial_unjudged(c, "it does not compare %s", usc_dtype_info_of(c->dtype)->name);
    return true;
}

void usc_trial_metric(usc_trial *c, const char *name, double value)
{
    if (c->out->n_metrics < USC_OPINION_METRICS)
        c->out->metrics[c->out->n_metrics++] = (usc_opinion_metric){name, value};
}

int64_t usc_trial_differing(usc_trial *c)
{
    usc_trial_reader a, b;
    if (!usc_trial_open(c, USC_ROLE_DEVICE, &a)) return -1;
    if (!usc_trial_open(c, USC_ROLE_EXPECTED, &b)) return -1;
    const bool raw = a.walk.dtype == b.walk.dtype; /* doubles round 64-bit integers */
    const size_t size = a.walk.size;
    int64_t n = 0;
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count = usc_trial_count(c, at);
        if (raw) {
            const char *x = usc_walk_raw(&a.walk, at, count, &a.room);
            const char *y = usc_walk_raw(&b.walk, at, count, &b.room);
            for (size_t i = 0; i < count; i++)
                n += memcmp(x + i * size, y + i * size, size) != 0;
        } else {
            const double *x = usc_trial_load(&a, at, count);
            const double *y = usc_trial_load(&b, at, count);
            for (size_t i = 0; i < count; i++)
                n += x[i] != y[i];
        }
    }
    return n;
}

void usc_trial_integers(usc_trial *c)
{
    const int64_t n = usc_trial_differing(c);
    if (n < 0) return;
    usc_trial_metric(c, "mismatched", (double)n);
    usc_trial_decide(c, n == 0, NULL, "%lld of %lld elements differ", (long long)n,
                     (long long)c->n);
}

bool usc_trial_op_is(const usc_trial *c, const char *const *names)
{
    const char *name = c->in->op != NULL ? c->in->op : "";
    const char *colons = strstr(name, "::");
    const char *dot = strrchr(name, '.');
    if (colons != NULL)
        name = colons + 2;
    else if (dot != NULL)
        name = dot + 1;
    const size_t length = strcspn(name, ".");
    for (; *names != NULL; names++) {
        const size_t n = strlen(*names);
        if ((*names)[n - 1] == '*' ? strncmp(name, *names, n - 1) == 0
                                   : n == length && memcmp(name, *names, n) == 0)
            return true;
    }
    return false;
}

double usc_trial_total(const usc_trial_sum *s)
{
    const double *l = s->lane;
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

static USC_NOINLINE void judge_trial(usc_trial *c, const struct rule *rule)
{
    const unsigned needs = c->standard->info->needs;
    for (int i = 0; i < USC_N_OPERANDS; i++)
        if (c->in->of[i] != NULL && (needs >> i & 1) != 0 &&
            !shapes_agree(c, c->in->of[i], usc_operand_text((usc_operand)i)))
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
