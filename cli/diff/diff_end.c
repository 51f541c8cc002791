// SPDX-License-Identifier: Apache-2.0
// How `ulpscope diff` ends on a terminal: what entered, what was looked at, where the
// runs part; see diff.h.
#include "diff/diff.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "show/show.h"

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Behind "call". */
static const char *differ(int64_t n)
{
    return n == 1 ? " that differs" : "s that differ";
}

/* ---- what entered ---- */

/* Where a diff of all calls begins: the step of the first pair. */
static usc_status first_step(usc_diff *d, usc_trace *t, int64_t *step, usc_error *err)
{
    int64_t n;
    usc_call call;
    const usc_diff_row *rows = usc_diff_rows(d, &n);
    *step = 0;
    if (n == 0) return USC_OK;
    const usc_status st = usc_trace_read_call(t, rows[0].call_a, &call, err);
    if (st == USC_OK) *step = call.step;
    return st;
}

static void put_share(int64_t n_differ, int64_t n, const char *what)
{
    (void)printf("%" PRId64 " of %" PRId64 " %s%s", n_differ, n, what, plural(n));
}

/* "15 of 18 parameters differ already where the traces begin; ..." */
static usc_status put_entered(usc_diff *d, usc_trace *t, const usc_diff_summary *s,
                              const diff_words *w, usc_error *err)
{
    int64_t step;
    const usc_diff_entered *e = &s->entered;
    const bool both = e->n_parameters_differ > 0 && e->n_others_differ > 0;
    if (e->n_parameters_differ + e->n_others_differ == 0 || w->replicas != NULL)
        return USC_OK;
    const usc_status st = first_step(d, t, &step, err);
    if (st != USC_OK) return st;
    if (e->n_parameters_differ > 0)
        put_share(e->n_parameters_differ, e->n_parameters, "parameter");
    if (both) fputs(" and ", stdout);
    if (e->n_others_differ > 0)
        put_share(e->n_others_differ, e->n_others,
                  e->n_parameters_differ > 0 ? "other tensor" : "tensor");
    const char *are = e->n_parameters_differ + e->n_others_differ == 1 ? "s" : "";
    if (w->part)
        (void)printf(" differ%s already where the phase begins\n", are);
    else if (step > 0)
        (void)printf(" differ%s already where the traces begin; the steps before are not "
                     "in them: capture --steps 0-%" PRId64
                     " on both, or --until-differs\n",
                     are, step);
    else
        (void)printf(
            " differ%s already where the traces begin: compare the seeds, the "
            "data and the weights that the two runs begin with (ulpscope env diff "
            "compares what they ran on)\n",
            are);
    return USC_OK;
}

/* ---- what was looked at ---- */

static void put_looked(const usc_diff_summary *s, const diff_words *w)
{
    const int64_t judged = s->n_stand + s->n_alike;
    if (w->modules || s->n_differ == 0) return;
    if (w->judged && judged > 0)
        (void)printf("judged %" PRId64 " of %" PRId64 " call%s: %" PRId64
                     " right on both sides, each on its own inputs\n",
                     judged, s->n_differ, differ(s->n_differ), s->n_stand);
    if (s->n_alike > 0)
        (void)printf("%" PRId64
                     " call%s accused on both sides alike: ulpscope check tells "
                     "more\n",
                     s->n_alike, s->n_alike == 1 ? " is" : "s are");
}

/* Calls that differ and have no verdict, unless the first error ended the search. */
static void put_not_judged(const usc_diff_summary *s, const diff_words *w, int64_t n_left)
{
    const int64_t n = s->n_untold - n_left;
    if (w->modules || n <= 0) return;
    if (!w->judged)
        (void)printf("not judged: %" PRId64 " call%s (--no-judge)\n", n, differ(n));
    else if (s->basis <= USC_DIFF_BY_STATISTICS)
        (void)printf("not judged: %" PRId64
                     " call%s, of which statistics alone were kept; capture --data full "
                     "on both\n",
                     n, differ(n));
}

/* ---- where the runs part ---- */

enum { PART = 512 };

static const char *noun(const diff_words *w, int64_t n)
{
    if (w->modules) return n == 1 ? "pass" : "passes";
    return n == 1 ? "call" : "calls";
}

/* ", bit by bit", or why not. */
static void put_how(const usc_diff_summary *s, const diff_words *w, const char *comma)
{
    const int64_t n = w->modules
                          ? s->n_kind[USC_DIFF_ROUNDED] + s->n_kind[USC_DIFF_INHERITED]
                          : s->n_differ;
    if (n == 0)
        fputs(s->basis == USC_DIFF_BY_STATISTICS ? ", as far as statistics tell"
                                                 : ", bit by bit",
              stdout);
    else if (s->n_accepted == n)
        fputs(", as far as they were compared", stdout);
    else if (w->modules)
        (void)printf(
            "%s within rounding, as far as limits tell: %" PRId64
            " pass%s of modules differ, none by more than the order of adding and "
            "what came in explain",
            comma, n, n == 1 ? "" : "es");
    else
        (void)printf("%s within rounding: %" PRId64 " call%s right on both sides", comma,
                     n - s->n_accepted,
                     n - s->n_accepted == 1 ? " differs, and is"
                                            : "s differ, and each is");
}

static void put_same(const usc_diff *d, const usc_diff_summary *s, const diff_words *w)
{
    char common[PART], alone[PART];
    const int64_t n = s->unseen.n_allowed[0] + s->unseen.n_allowed[1];
    usc_diff_say_common(d, common, alone, sizeof common);
    fputs(w->modules ? "the passes of modules are the same" : "the runs are the same",
          stdout);
    if (common[0] != '\0') (void)printf(" in %s, which is all that both have", common);
    put_how(s, w, common[0] != '\0' ? "," : "");
    if (alone[0] != '\0') (void)printf("; %s", alone);
    if (n > 0)
        (void)printf(", of which %" PRId64 " %s not compared (--allow)", n,
                     n == 1 ? "was" : "were");
    else if (alone[0] != '\0')
        fputs(w->modules ? ", but lie in some that have"
                         : ", but what came of them was compared",
              stdout);
    if (s->n_accepted > 0)
        (void)printf("; %" PRId64 " %s%s not judged (--allow)", s->n_accepted,
                     noun(w, s->n_accepted), s->n_accepted == 1 ? " was" : " were");
    if (w->modules) /* a run that differs in its optimizer alone has the same passes */
        fputs("\nnot compared: what lies between modules, and what the last step's "
              "optimizer did (a step more shows that)",
              stdout);
    putchar('\n');
}

/* "24 calls of A, from call 107, aten::addcdiv_, on". */
static usc_status put_unseen(usc_trace *t, const usc_diff_unseen *u, int side,
                             const diff_words *w, usc_error *err)
{
    usc_call call;
    const int64_t n = u->n[side];
    const usc_status st = usc_trace_read_call(t, u->first[side], &call, err);
    if (st != USC_OK) return st;
    (void)printf("%" PRId64 " %s of %c (", n, noun(w, n), "AB"[side]);
    (void)printf(n == 1 ? "call %" PRId64 ", " : "from call %" PRId64 ", ",
                 call.sequence);
    show_plain(w->modules && call.module_path != NULL ? call.module_path : call.op);
    fputs(n == 1 ? ")" : ", on)", stdout);
    return USC_OK;
}

/* All pairs are the same, but of other calls nothing was compared. */
static usc_status put_partial(const usc_diff *d, usc_trace *const t[2],
                              const usc_diff_summary *s, const diff_words *w,
                              usc_error *err)
{
    char common[PART], alone[PART];
    const usc_diff_unseen *u = &s->unseen;
    const bool both = u->n[0] > 0 && u->n[1] > 0;
    usc_status st = USC_OK;
    usc_diff_say_common(d, common, alone, sizeof common);
    (void)printf("not told: the %" PRId64 " %s that both have", s->n_paired,
                 noun(w, s->n_paired));
    if (common[0] != '\0') (void)printf(", of %s,", common);
    fputs(s->n_paired == 1 ? " is the same" : " are the same", stdout);
    put_how(s, w, "");
    fputs("; ", stdout);
    for (int side = 0; side < 2 && st == USC_OK; side++) {
        if (u->n[side] > 0) st = put_unseen(t[side], u, side, w, err);
        if (side == 0 && both) fputs(" and ", stdout);
    }
    (void)printf(
        " %s no partner and %s not compared: ", u->n[0] + u->n[1] == 1 ? "has" : "have",
        u->n[0] + u->n[1] == 1 ? "was" : "were");
    fputs(s->lacking   ? "capture the same steps on both"
          : w->modules ? "leave out --module"
          : both       ? "capture a step more on both, whose calls read what these left"
                       : "capture both alike (--ops, --level), and a step more, whose "
                         "calls read what these left",
          stdout);
    fputs(", or --allow unpaired\n", stdout);
    return st;
}

/* Where NaN comes in, a step shows little of what made it. */
static bool nan_entered(const usc_diff *d)
{
    int64_t n;
    const usc_diff_row *row = usc_diff_rows(d, &n);
    for (int64_t i = 0; i < n; i++)
        if (row[i].kind == USC_DIFF_ENTERED && row[i].in.n_special > 0) return true;
    return false;
}

/* Of modules in 16 bits, whose limits see little. */
static void put_narrow(const usc_diff_summary *s, const diff_words *w)
{
    (void)printf(
        "not told: no module is beyond its limit, but %" PRId64
        " pass%s results of 16 bits, of which limits tell little; ulpscope check ",
        s->n_untold, s->n_untold == 1 ? " gives other" : "es give other");
    show_plain(w->path[0]);
    fputs(" --device DEVICE --level module --via inductor holds what is compiled to "
          "float64\n",
          stdout);
}

static void put_not_told(const usc_diff *d, const usc_diff_summary *s,
                         const diff_words *w)
{
    if (w->modules && s->n_untold > 0) {
        put_narrow(s, w);
        return;
    }
    fputs("not told: no call makes an error that was found", stdout);
    if (s->n_untold > 0 && s->n_differ == 0)
        (void)printf(", but of %" PRId64 " call%s nothing was kept to compare",
                     s->n_untold, plural(s->n_untold));
    else if (s->n_untold > 0)
        (void)printf(", but %" PRId64 " call%s %s not judged, or not all of it",
                     s->n_untold, differ(s->n_untold), s->n_untold == 1 ? "was" : "were");
    else if (s->n_alike > 0)
        fputs(", but what both sides do alike is not right", stdout);
    if (s->n_kind[USC_DIFF_ENTERED] > 0)
        fputs(s->n_untold + s->n_alike > 0
                  ? "; what entered was made where nothing was captured"
                  : ", but what entered was made where nothing was captured",
              stdout);
    if (nan_entered(d))
        fputs("; NaN or Inf is among it: ulpscope run --nan -- COMMAND says where it is "
              "born",
              stdout);
    else if (s->n_untold > 0 && s->n_alike + s->n_kind[USC_DIFF_ENTERED] == 0)
        fputs("; --allow unjudged[:PATTERN] accepts that", stdout);
    putchar('\n');
}

static usc_status put_first(usc_diff *d, usc_trace *t, const usc_diff_summary *s,
                            usc_error *err)
{
    int64_t n;
    usc_call call;
    const usc_diff_row *row = &usc_diff_rows(d, &n)[s->first];
    usc_status st = usc_trace_read_call(t, row->call_a, &call, err);
    if (st != USC_OK) return st;
    (void)printf("the runs part at call %" PRId64 " of A, %" PRId64 " of B: ",
                 row->call_a, row->call_b);
    show_plain(call.op);
    if (call.module_path != NULL && call.module_path[0] != '\0') {
        fputs(" in ", stdout);
        show_plain(call.module_path);
    }
    (void)printf(", step %" PRId64 ", %s", call.step, call.phase);
    char said[PART];
    if (row->kind == USC_DIFF_UNPAIRED) {
        st = usc_diff_say(d, s->first, said, sizeof said, err);
        if (st != USC_OK) return st;
        fputs(": ", stdout);
        show_plain(said);
    }
    putchar('\n');
    return USC_OK;
}

usc_status diff_put_end(usc_diff *d, usc_trace *const t[2], const diff_words *w,
                        int64_t n_left, usc_error *err)
{
    const usc_diff_summary s = usc_diff_sum(d);
    const int64_t n_lost = s.n_kind[USC_DIFF_UNTOLD];
    const usc_status st = put_entered(d, t[0], &s, w, err);
    if (st != USC_OK) return st;
    put_looked(&s, w);
    put_not_judged(&s, w, n_left);
    if (n_lost > 0)
        (void)printf("nothing was kept of %" PRId64 " call%s\n", n_lost, plural(n_lost));
    if (s.first >= 0) return put_first(d, t[0], &s, err);
    if (s.partial) return put_partial(d, t, &s, w, err);
    if (s.same)
        put_same(d, &s, w);
    else
        put_not_told(d, &s, w);
    return USC_OK;
}
