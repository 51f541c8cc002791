// SPDX-License-Identifier: Apache-2.0
// What `ulpscope capture` says of a run in its one last line.
#include "capture/capture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli.h"
#include "common/progress.h"

/* ---- steps ---- */

typedef struct step_list {
    usc_steps *range; /* ascending, apart from each other */
    size_t n;
} step_list;

static int by_first(const void *a, const void *b)
{
    const usc_steps *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

size_t capture_join_steps(usc_steps *steps, size_t n)
{
    size_t n_left = 0;
    if (n > 0) qsort(steps, n, sizeof *steps, by_first);
    for (size_t i = 0; i < n; i++) {
        usc_steps *last = n_left > 0 ? &steps[n_left - 1] : NULL;
        if (last != NULL && steps[i].first <= last->last + 1) {
            if (steps[i].last > last->last) last->last = steps[i].last;
        } else {
            steps[n_left++] = steps[i];
        }
    }
    return n_left;
}

/* The steps that a part of the reports, from `from` to before `end`, recorded. */
static step_list recorded(const usc_launch_reports *reports, int64_t from, int64_t end)
{
    step_list list = {0};
    size_t n = 0;
    for (int64_t i = from; i < end; i++)
        n += (size_t)reports->report[i].n_steps;
    list.range = malloc((n + 1) * sizeof *list.range);
    for (int64_t i = from; list.range != NULL && i < end; i++)
        for (int64_t k = 0; k < reports->report[i].n_steps; k++) {
            const int64_t step = reports->report[i].step[k];
            list.range[list.n++] = (usc_steps){step, step};
        }
    list.n = capture_join_steps(list.range, list.n);
    return list;
}

/* What of `all` is not in `known`. */
static step_list without(const usc_steps *all, size_t n, const step_list *known)
{
    step_list left = {.range = malloc((n + known->n + 1) * sizeof *left.range)};
    size_t k = 0;
    for (size_t i = 0; left.range != NULL && i < n; i++) {
        int64_t first = all[i].first;
        while (k < known->n && known->range[k].last < first)
            k++;
        for (size_t j = k; j < known->n && known->range[j].first <= all[i].last; j++) {
            if (first < known->range[j].first)
                left.range[left.n++] = (usc_steps){first, known->range[j].first - 1};
            first = known->range[j].last + 1;
        }
        if (first <= all[i].last) left.range[left.n++] = (usc_steps){first, all[i].last};
    }
    return left;
}

static void put_range(FILE *to, usc_steps s)
{
    (void)fprintf(to, "%lld", (long long)s.first);
    if (s.last > s.first) (void)fprintf(to, "-%lld", (long long)s.last);
}

/* "step 1" or "steps 2, 5-8" */
static void put_steps(FILE *to, const usc_steps *steps, size_t n)
{
    enum { MOST = 8, FIRST = 6 };
    char text[32];
    int64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += steps[i].last - steps[i].first + 1;
    (void)fprintf(to, "step%s ", total > 1 ? "s" : "");
    for (size_t i = 0; i < n && (n <= MOST || i < FIRST); i++) {
        if (i > 0) (void)fputs(", ", to);
        put_range(to, steps[i]);
    }
    if (n <= MOST) return;
    (void)fputs(", ... ", to);
    put_range(to, steps[n - 1]);
    (void)fprintf(to, " (%s in all)", cli_grouped(total, text));
}

/* ---- words ---- */

/* Bytes as people read them. */
static void put_size(FILE *to, int64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB"};
    char text[32];
    double n = (double)bytes;
    size_t unit = 0;
    for (; n >= 999.5 && unit < 3; unit++)
        n /= 1000;
    if (n < 999.5)
        (void)fprintf(to, "%.3g %s", n, units[unit]);
    else
        (void)fprintf(to, "%s %s", cli_grouped((int64_t)(n + 0.5), text), units[unit]);
}

/* How the command ended. */
static void put_ending(FILE *to, int status)
{
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const char *name = number != 0 ? usc_signal_name(number) : NULL;
    if (name != NULL)
        (void)fprintf(to, "was killed by SIG%s", name);
    else if (number != 0)
        (void)fprintf(to, "was killed by signal %d", number);
    else
        (void)fprintf(to, "failed with exit code %d", WEXITSTATUS(status));
}

/* What compiled code kept from the recorder, as a clause. */
static void put_regions(FILE *to, const usc_launch_reports *reports)
{
    int64_t n = 0;
    for (int64_t i = 0; i < reports->n; i++)
        if (reports->report[i].n_compiled_regions > n)
            n = reports->report[i].n_compiled_regions;
    if (n > 0)
        (void)fprintf(to,
                      "; %lld compiled %s not recorded; --no-compile sets "
                      "TORCH_COMPILE_DISABLE=1 for the command",
                      (long long)n,
                      n == 1 ? "region ran and was" : "regions ran and were");
}

/* What the trace folder holds of a run that was cut short, as a clause. */
static void put_remains(FILE *to, const capture_seen *s, const step_list *whole)
{
    if (!s->holds) {
        (void)fputs("; nothing was recorded", to);
        return;
    }
    (void)fputs("; ", to);
    if (whole != NULL && whole->n > 0) {
        put_steps(to, whole->range, whole->n);
        (void)fputs(" and what followed are", to);
    } else {
        (void)fputs("what was recorded is", to);
    }
    (void)fprintf(to, " in %s, marked incomplete", s->options->output);
}

/* ---- the sentences ---- */

static void say_failed(FILE *to, const capture_seen *s, const usc_launch_report *r)
{
    const char *output = s->options->output;
    (void)fputs("recording failed: ", to);
    if (r->taken) {
        (void)fprintf(to,
                      "%s holds a trace that this run did not write; nothing was "
                      "recorded, name another folder with -o",
                      output);
        return;
    }
    (void)fputs(r->error, to);
    put_remains(to, s, NULL);
}

static void put_nothing_stepped(FILE *to, const capture_options *o)
{
    static const char *const never[][2] = {
        {"manual", "it never called ulpscope.step()"},
        {"optimizer", "no optimizer stepped"},
        {"dataloader", "no data loader was asked for a second batch"}};
    const char *by = o->step_by != NULL ? o->step_by : "";
    const bool has_0 = o->steps[0].first == 0;
    const char *why = has_0 ? "it made no operator call"
                            : "no optimizer stepped, no data loader gave two batches";
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        if (strcmp(by, never[i][0]) == 0) why = never[i][1];
    (void)fputs(why, to);
    if (!has_0)
        (void)fprintf(to, "; to record the whole program: --steps 0%s",
                      strcmp(by, "manual") == 0 ? " --step-by manual" : "");
}

static const usc_launch_report *stopped(const usc_launch_reports *reports)
{
    for (int64_t i = 0; i < reports->n; i++)
        if (reports->report[i].stopped) return &reports->report[i];
    return NULL;
}

/* Why the steps were not reached by a command that ended in order. */
static void put_early(FILE *to, const capture_seen *s, const step_list *got)
{
    const capture_options *o = s->options;
    int64_t ended = 0;
    for (int64_t i = 0; i < s->reports.n; i++)
        if (s->reports.report[i].n_steps_ended > ended)
            ended = s->reports.report[i].n_steps_ended;
    if (ended == 0 && around_put_unseen(to, &s->around, o->command, "ULPSCOPE_CAPTURE"))
        return;
    step_list missing = without(o->steps, o->n_steps, got);
    const step_list all = {o->steps, o->n_steps};
    const step_list *said = missing.n > 0 ? &missing : &all;
    (void)fprintf(to, "%s ended ", o->command[0]);
    if (ended > 0)
        (void)fprintf(to, "after %lld step%s, ", (long long)ended, ended > 1 ? "s" : "");
    (void)fputs("before ", to);
    put_steps(to, said->range, said->n);
    if (ended > 0)
        (void)fputs(" ended", to);
    else
        (void)fputs(": ", to);
    if (ended == 0) put_nothing_stepped(to, o);
    free(missing.range);
}

/* Why there is no trace, or not all of it. */
static void say_missed(FILE *to, const capture_seen *s)
{
    const capture_options *o = s->options;
    const usc_launch_report *full = stopped(&s->reports);
    step_list got = recorded(&s->reports, 0, s->reports.n);
    const bool one = o->n_steps == 1 && o->steps[0].first == o->steps[0].last;
    if (full != NULL) {
        (void)fprintf(to, "recording stopped in step %lld after ",
                      (long long)full->n_steps_ended);
        put_size(to, full->bytes_written);
        (void)fputs(
            ": the limit is reached (--limit; by default 5 % of the disk stay free)", to);
    } else if (s->status != 0 && s->reports.n == 0 && s->around.not_started != NULL) {
        (void)around_put_unseen(to, &s->around, o->command, "ULPSCOPE_CAPTURE");
    } else if (s->status != 0) {
        (void)fprintf(to, "%s ", o->command[0]);
        put_ending(to, s->status);
        (void)fputs(" before ", to);
        put_steps(to, o->steps, o->n_steps);
        (void)fprintf(to, " %s captured", one ? "was" : "were");
    } else {
        put_early(to, s, &got);
    }
    put_remains(to, s, &got);
    free(got.range);
}

/* Why a trace is empty although its steps were reached. */
static void say_no_call(FILE *to, const capture_seen *s, const step_list *steps)
{
    const char *ops = s->options->ops;
    if (ops != NULL) {
        (void)fputs("no operator call of ", to);
        put_steps(to, steps->range, steps->n);
        (void)fprintf(to, " matches --ops %s", ops);
    } else {
        put_steps(to, steps->range, steps->n);
        (void)fputs(" made no operator call", to);
        put_regions(to, &s->reports);
    }
    (void)fputs("; nothing was recorded", to);
}

/* What the processes that recorded all their steps have done. */
typedef struct captured {
    const usc_launch_report *first;
    int64_t n, n_calls, bytes_written;
} captured;

/* Whether what a rank has to say comes first: a step before later ones, in it a call
 * before later ones, for what one rank made reaches the others by a collective. */
static bool speaks_before(const usc_launch_report *r, const usc_launch_report *than)
{
    if (r->said == NULL || than->said == NULL) return r->said != NULL;
    if ((r->said_step < 0) != (than->said_step < 0)) return r->said_step >= 0;
    if (r->said_step != than->said_step) return r->said_step < than->said_step;
    return r->said_call < than->said_call;
}

/* What the first has to say and, of a difference, which rank that is and from where on
 * the others have it. */
static void say_first(FILE *to, const capture_seen *s, const captured *c)
{
    const usc_launch_report *first = c->first;
    const bool ranks = c->n > 1 && first->said_step >= 0;
    (void)fputs("; ", to);
    if (ranks) (void)fprintf(to, "on rank %lld ", (long long)first->rank);
    (void)fputs(first->said, to);
    for (int64_t i = 0; ranks && i < s->reports.n; i++) {
        const usc_launch_report *r = &s->reports.report[i];
        if (r == first || !r->finished || r->said_step < 0) continue;
        (void)fprintf(to, "; rank %lld from call %lld of step %lld on",
                      (long long)r->rank, (long long)r->said_call,
                      (long long)r->said_step);
    }
}

/* The first is who has something to say. */
static captured captured_of(const usc_launch_reports *reports)
{
    captured c = {0};
    for (int64_t i = 0; i < reports->n; i++) {
        const usc_launch_report *r = &reports->report[i];
        if (!r->finished) continue;
        if (c.n++ == 0 || speaks_before(r, c.first)) c.first = r;
        c.n_calls += r->n_calls;
        c.bytes_written += r->bytes_written;
    }
    return c;
}

static void say_captured(FILE *to, const capture_seen *s, const captured *c,
                         const step_list *steps)
{
    char text[32];
    (void)fputs("captured ", to);
    put_steps(to, steps->range, steps->n);
    if (c->n > 1) (void)fprintf(to, " on %lld ranks", (long long)c->n);
    (void)fprintf(to, ": %s call%s, ", cli_grouped(c->n_calls, text),
                  c->n_calls == 1 ? "" : "s");
    put_size(to, c->bytes_written);
    (void)fprintf(to, " -> %s", s->options->output);
    if (c->first->said != NULL) say_first(to, s, c);
    if (c->first->whole)
        (void)fputs("; the last step ended with the program", to);
    else if (!s->options->keep_going)
        (void)fputs("; run ended (--keep-going to go on)", to);
    put_regions(to, &s->reports);
}

/* Whole steps up to the limit that was asked for are what was wanted; false, and nothing
 * said, of any other end. */
static bool say_limited(FILE *to, const capture_seen *s)
{
    char text[32];
    const usc_launch_report *full = stopped(&s->reports);
    step_list got = recorded(&s->reports, 0, s->reports.n);
    const bool is_asked = full != NULL && s->options->limit > 0 && got.n > 0;
    if (is_asked) {
        (void)fputs("ulpscope: captured ", to);
        put_steps(to, got.range, got.n);
        (void)fprintf(to, ": %s calls, ", cli_grouped(full->n_calls, text));
        put_size(to, full->bytes_written);
        (void)fprintf(to, " -> %s; stopped by --limit in step %lld, which is not whole",
                      s->options->output, (long long)full->n_steps_ended);
        put_regions(to, &s->reports);
    }
    free(got.range);
    return is_asked;
}

static const usc_launch_report *failed(const usc_launch_reports *reports)
{
    for (int64_t i = 0; i < reports->n; i++)
        if (reports->report[i].error != NULL) return &reports->report[i];
    return NULL;
}

/* Of steps that were recorded; says how. */
static int conclude_done(const capture_seen *s, const captured *done, FILE *to)
{
    const int64_t at = done->first - s->reports.report;
    step_list steps = recorded(&s->reports, at, at + 1);
    int code = CLI_SAME;
    if (done->n_calls == 0) {
        (void)fputs("ulpscope capture: ", to);
        say_no_call(to, s, &steps);
        code = CLI_TROUBLE;
    } else {
        (void)fputs("ulpscope: ", to);
        say_captured(to, s, done, &steps);
        if (s->status != 0 && (s->options->keep_going || done->first->whole)) {
            (void)fprintf(to, "\nulpscope capture: after that %s ",
                          s->options->command[0]);
            put_ending(to, s->status);
            code = CLI_TROUBLE;
        }
    }
    free(steps.range);
    return code;
}

int capture_conclude(const capture_seen *s, FILE *to)
{
    const usc_launch_report *bad = failed(&s->reports);
    const captured done = captured_of(&s->reports);
    int code = CLI_TROUBLE;
    if (bad == NULL && done.n > 0) {
        code = conclude_done(s, &done, to);
    } else if (bad == NULL && s->interrupted == 0 && say_limited(to, s)) {
        code = CLI_SAME;
    } else {
        (void)fputs("ulpscope capture: ", to);
        if (bad != NULL)
            say_failed(to, s, bad);
        else
            say_missed(to, s);
        if (bad == NULL && s->interrupted != 0) code = 128 + s->interrupted;
    }
    (void)fputc('\n', to);
    return code;
}

void capture_say_rate(const usc_launch_reports *reports, bool *said, FILE *to)
{
    char text[32];
    for (int64_t i = 0; !*said && i < reports->n; i++) {
        const usc_launch_report *r = &reports->report[i];
        if (r->first_step_bytes <= 0) continue;
        (void)fputs("ulpscope: the first step took ", to);
        put_size(to, r->first_step_bytes);
        (void)fputs("; there is room for ", to);
        put_size(to, r->room);
        (void)fprintf(to, ", about %s more such steps\n",
                      cli_grouped(r->room / r->first_step_bytes, text));
        *said = true;
    }
}
