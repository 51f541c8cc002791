// SPDX-License-Identifier: Apache-2.0
// What is said of a birth, in a trace and while a program runs: flow.h.
#include <ulpscope/x/flow.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ulpscope/dtype.h>

#include "base/line.h"

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

static void add_counts(usc_line *to, const usc_call *call, const usc_flow_event *e)
{
    const int64_t counts[] = {e->n_nan, e->n_pos_inf, e->n_neg_inf};
    static const char *const names[] = {"NaN", "+Inf", "-Inf"};
    const char *between = "";
    for (int i = 0; i < 3; i++) {
        if (counts[i] == 0) continue;
        usc_line_text(to, between);
        if (counts[i] < USC_COUNT_SOME) usc_line_add(to, "%" PRId64 " ", counts[i]);
        usc_line_text(to, names[i]);
        between = ", ";
    }
    usc_line_add(to, " among %" PRId64 " elements of %s", e->n,
                 text_of(call->arg[e->arg].path));
}

/* Between what the inputs lie: a root of what is negative, a logarithm or a divisor of 0
 * are no matter of size. */
static void add_ranges(usc_line *to, const usc_call *call)
{
    enum { MOST = 3 };
    int n = 0;
    for (int i = 0; i < call->n_args && n < MOST; i++) {
        const usc_call_arg *arg = &call->arg[i];
        usc_range c;
        if (arg->role != USC_ROLE_IN || !usc_call_arg_range(arg, &c)) continue;
        usc_line_add(to, "%s %s ", n++ > 0 ? "," : ";", text_of(arg->path));
        if (c.min == c.max)
            usc_line_add(to, "is %.3g", c.min);
        else
            usc_line_add(to, "lies from %.3g to %.3g", c.min, c.max);
    }
}

/* How large the inputs were, and what the output's dtype ends at. */
static void add_sizes(usc_line *to, const usc_call *call, const usc_flow_event *e)
{
    const char *name = text_of(call->arg[e->arg].dtype_name);
    const double ends = usc_dtype_info_of(usc_dtype_by_name(name))->largest;
    if (e->from < 0) {
        usc_line_text(to, "; it reads no tensor");
        return;
    }
    usc_line_add(to, "; all inputs are finite, the largest value is %.3g (%s)",
                 e->largest, text_of(call->arg[e->from].path));
    if (ends > 0) usc_line_add(to, ", %s ends at %.6g", name, ends);
    add_ranges(to, call);
}

void usc_flow_say(const usc_call *call, const usc_flow_event *e, char *out, size_t size)
{
    usc_line line = {0};
    if (size > 0) out[0] = '\0';
    if (e->arg < 0) return;
    add_counts(&line, call, e);
    if (e->kind == USC_FLOW_BORN)
        add_sizes(&line, call, e);
    else if (e->kind == USC_FLOW_TURNED)
        usc_line_add(&line, "; made of an Inf in %s", text_of(call->arg[e->from].path));
    else if (e->kind == USC_FLOW_WRITTEN)
        usc_line_text(&line, "; a number among its arguments asks for it");
    else if (e->kind == USC_FLOW_ENTERED)
        usc_line_text(&line, "; written before the capture, or by what was not captured");
    (void)snprintf(out, size, "%s", text_of(line.text));
    usc_line_free(&line);
}
