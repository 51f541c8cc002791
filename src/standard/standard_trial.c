// SPDX-License-Identifier: Apache-2.0
// What a rule is given: operands by their roles, blocks of them, the opinion that it fills in.
// Neighbours: standard.c, which names the rules; one file for each family of them.
#include "standard/standard_trial.h"

#include "base/float_env.h"
#include "base/number.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const operand_texts[USC_N_OPERANDS] = {
#define OPERAND_TEXT(id, name, meaning) [USC_OPERAND_##id] = name,
    USC_OPERAND_LIST(OPERAND_TEXT)
#undef OPERAND_TEXT
};

const char *usc_operand_text(usc_operand operand)
{
    return (unsigned)operand < USC_N_OPERANDS ? operand_texts[operand] : "unknown";
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

bool usc_trial_shapes_agree(const usc_trial *c, const usc_tensor *t, const char *what)
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
        if (!usc_trial_shapes_agree(c, t, usc_operand_text(used)) ||
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
