// SPDX-License-Identifier: Apache-2.0
// What `ulpscope overflow` prints; see overflow.h.
#include "overflow/overflow.h"

#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <ulpscope/report.h>

#include "show/show.h"

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

static bool is_shown(const overflow_source *s, const overflow_words *w)
{
    return (w->all || s->event.kind != USC_FLOW_WRITTEN) &&
           usc_steps_have(w->steps, w->n_steps, s->step);
}

/* ---- text ---- */

static void put_source(const usc_call *call, const overflow_source *s)
{
    const usc_flow_event *e = &s->event;
    show_line(call, false);
    (void)printf("       %s: ", usc_flow_text(e->kind));
    char said[512];
    usc_flow_say(call, e, said, sizeof said);
    show_plain(said);
    show_own_line(call, "\n       ");
    if (s->sentence != NULL) {
        (void)printf("\n       %s: ", overflow_text(s->told));
        show_plain(s->sentence);
    }
    if (s->n_carried > 0)
        (void)printf("\n       %" PRId64 " call%s it on, the last is call %" PRId64,
                     s->n_carried, s->n_carried == 1 ? " carries" : "s carry", s->last);
    if (s->n_ended > 0)
        (void)printf("%s %" PRId64 " call%s it up", s->n_carried > 0 ? ";" : "\n      ",
                     s->n_ended, s->n_ended == 1 ? " ends" : "s end");
    fputs("\n", stdout);
}

/* ---- JSON: docs/reference/report.md, "ulpscope overflow --json" ---- */

static void put_text(const char *name, const char *value)
{
    cli_put_member(stdout, name, text_of(value));
}

static void put_json(const usc_call *call, const overflow_source *s)
{
    const usc_flow_event *e = &s->event;
    (void)printf("{\"call\": %" PRId64 ", \"step\": %" PRId64, e->call, s->step);
    put_text("phase", call->phase);
    put_text("op", call->op);
    put_text("module", call->module_path);
    put_text("kind", usc_flow_text(e->kind));
    put_text("path", call->arg[e->arg].path);
    put_text("dtype", call->arg[e->arg].dtype_name);
    (void)printf(", \"n\": %" PRId64 ", \"n_nan\": %" PRId64 ", \"n_pos_inf\": %" PRId64
                 ", \"n_neg_inf\": %" PRId64 ", \"largest_input\": ",
                 e->n, e->n_nan, e->n_pos_inf, e->n_neg_inf);
    if (e->from >= 0 && isfinite(e->largest))
        (void)printf("%.17g", e->largest);
    else
        fputs("null", stdout);
    (void)printf(", \"carried\": %" PRId64 ", \"ended\": %" PRId64, s->n_carried,
                 s->n_ended);
    put_text("told", overflow_text(s->told));
    put_text("sentence", s->sentence);
    fputs("}\n", stdout);
}

/* ---- the whole ---- */

static void put_first(const overflow_found *f, const overflow_words *w)
{
    int64_t step = -1, n_told[3] = {0}, n_births = 0;
    for (int64_t i = 0; i < f->n; i++) {
        const overflow_source *s = &f->source[i];
        if (!overflow_is_birth(s) || !is_shown(s, w)) continue;
        n_births++;
        n_told[s->told]++;
        if (s->step == step) continue;
        step = s->step;
        (void)printf("the first of step %" PRId64 " is born at call %" PRId64 "\n", step,
                     s->event.call);
    }
    (void)printf(
        "%" PRId64 " of %" PRId64 " calls have NaN or Inf; %" PRId64 " birth%s: %" PRId64
        " abnormal, %" PRId64 " normal, %" PRId64 " untold\n",
        f->n_odd, f->n_calls, n_births, n_births == 1 ? "" : "s",
        n_told[OVERFLOW_ABNORMAL], n_told[OVERFLOW_NORMAL], n_told[OVERFLOW_UNTOLD]);
}

usc_status overflow_say(const overflow_found *f, usc_trace *t, const overflow_words *w,
                        usc_error *err)
{
    int64_t n_shown = 0, n_more = 0;
    for (int64_t i = 0; i < f->n; i++) {
        usc_call call;
        if (!is_shown(&f->source[i], w)) continue;
        if (n_shown == w->limit) {
            n_more++;
            continue;
        }
        n_shown++;
        const usc_status st = usc_trace_read_call(t, f->source[i].event.call, &call, err);
        if (st != USC_OK) return st;
        if (w->json)
            put_json(&call, &f->source[i]);
        else
            put_source(&call, &f->source[i]);
    }
    if (w->json) return USC_OK;
    if (n_more > 0) (void)printf("... and %" PRId64 " more (--limit)\n", n_more);
    if (f->n_odd == 0)
        (void)printf("none of %" PRId64 " calls has NaN or Inf\n", f->n_calls);
    else
        put_first(f, w);
    return USC_OK;
}
