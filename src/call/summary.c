// SPDX-License-Identifier: Apache-2.0
// The arguments of a call in one line, as a person would write them.
#include <ulpscope/call.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/line.h"
#include "base/number.h"

enum { MOST_SHOWN = 4, LONGEST = 400 };

bool usc_call_arg_stat(const usc_call_arg *arg, const char *name, double *out)
{
    char member[32], *end;
    *out = 0;
    if (arg->stats == NULL) return false;
    (void)snprintf(member, sizeof member, "\"%s\":", name);
    const char *at = strstr(arg->stats, member); /* it stands there once */
    if (at == NULL) return false;
    at += strlen(member);
    const double value = usc_parse_number(at, &end);
    if (end == at || !isfinite(value)) return false; /* null: no finite element */
    *out = value;
    return true;
}

/* What no number of elements can be counts as none. */
static int64_t count_of(const usc_call_arg *arg, const char *name)
{
    double value;
    (void)usc_call_arg_stat(arg, name, &value);
    return value > 0 && value < 0x1p53 ? (int64_t)value : 0;
}

bool usc_call_arg_range(const usc_call_arg *arg, usc_range *out)
{
    *out = (usc_range){0};
    if (arg->range != NULL) {
        *out = *arg->range;
        if (!isfinite(out->min) || !isfinite(out->max)) out->min = out->max = 0;
        return true;
    }
    if (arg->stats == NULL) return false;
    out->n = count_of(arg, "n");
    out->n_nan = count_of(arg, "n_nan");
    out->n_pos_inf = count_of(arg, "n_pos_inf");
    out->n_neg_inf = count_of(arg, "n_neg_inf");
    (void)usc_call_arg_stat(arg, "min", &out->min);
    (void)usc_call_arg_stat(arg, "max", &out->max);
    return true;
}

static const usc_call_arg *input_at(const usc_call *call, const char *path)
{
    for (int i = 0; i < call->n_args; i++)
        if (call->arg[i].role == USC_ROLE_IN && strcmp(call->arg[i].path, path) == 0)
            return &call->arg[i];
    return NULL;
}

static void tell_tensor(const usc_call_arg *t, usc_line *to)
{
    usc_line_text(to, t->dtype_name != NULL ? t->dtype_name : "");
    for (int i = 0; i < t->ndim; i++)
        usc_line_add(to, "%s%lld", i > 0 ? ", " : "[", (long long)t->sizes[i]);
    usc_line_text(to, t->ndim > 0 ? "]" : "[]");
}

static void tell(const usc_call *call, const usc_value *value, usc_line *to);

static void tell_list(const usc_call *call, const usc_value *list, usc_line *to)
{
    usc_line_text(to, "[");
    for (int64_t i = 0; i < list->n && i < MOST_SHOWN; i++) {
        if (i > 0) usc_line_text(to, ", ");
        tell(call, &list->item[i], to);
    }
    usc_line_text(to, list->n > MOST_SHOWN ? ", ...]" : "]");
}

static void tell(const usc_call *call, const usc_value *value, usc_line *to)
{
    const bool is_tensor = value->kind == USC_VALUE_TENSOR;
    const usc_call_arg *tensor = is_tensor ? input_at(call, value->place) : NULL;
    char text[LONGEST];
    usc_value_text(value, text, sizeof text);
    if (usc_value_has_items(value))
        tell_list(call, value, to);
    else if (tensor != NULL)
        tell_tensor(tensor, to);
    else if (value->kind == USC_VALUE_GENERATOR)
        usc_line_text(to, "None"); /* its device is not the argument */
    else
        usc_line_text(to, text);
}

/* The first bytes of a text, cut at a character. */
static void copy_start(const usc_line *from, char *out, size_t size)
{
    size_t n = from->n < LONGEST ? from->n : LONGEST;
    if (n >= size) n = size - 1;
    while (n > 0 && n < from->n && ((unsigned char)from->text[n] & 0xc0) == 0x80)
        n--;
    if (n > 0) memcpy(out, from->text, n);
    out[n] = '\0';
}

usc_status usc_call_summary(const usc_call *call, char *out, size_t size, usc_error *err)
{
    usc_arguments given;
    usc_line to = {0};
    if (size == 0) return USC_OK;
    out[0] = '\0';
    usc_status st = usc_arguments_read(call->args, &given, err);
    for (int64_t i = 0; i < given.n; i++) {
        const usc_argument *a = &given.argument[i];
        if (i > 0) usc_line_text(&to, ", ");
        if (a->name != NULL) usc_line_add(&to, "%s=", a->name);
        tell(call, &a->value, &to);
    }
    if (to.failed)
        st = usc_error_set(err, USC_E_NOMEM, -1, "arguments of a call: no memory");
    if (st != USC_E_NOMEM) copy_start(&to, out, size);
    usc_line_free(&to);
    usc_arguments_free(&given);
    return st == USC_E_NOMEM ? st : USC_OK;
}
