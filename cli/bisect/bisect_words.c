// SPDX-License-Identifier: Apache-2.0
// What `ulpscope bisect` says.
#include "bisect/bisect.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

const char *bisect_place(const bisect_options *o)
{
    static char text[64];
    if (strcmp(o->to, "cpu") == 0) return "on the CPU";
    (void)snprintf(text, sizeof text, "in %s", o->to);
    return text;
}

static const char *function_of(const bisect_options *o, const char *op)
{
    for (int i = 0; i < o->n_substitutes; i++)
        if (strcmp(o->substitutes[i].op, op) == 0) return o->substitutes[i].function;
    return NULL;
}

/* How an operator is computed in a trial: "on the CPU", "computed by ref:f". */
static void say_way(const bisect_options *o, const char *op, char *out, size_t size)
{
    const char *function = function_of(o, op);
    (void)snprintf(out, size, "%s%s", function != NULL ? "computed by " : "",
                   function != NULL ? function : bisect_place(o));
}

static double percent(const bisect_run *r, double distance)
{
    return r->level > 0 ? 100 * distance / r->level : distance;
}

static void say_set(const bisect_run *r, const bisect_trial *t, char *out, size_t size)
{
    int n = 0;
    const char *name = "", *more = r->options->n_substitutes > 0 ? " or substituted" : "";
    char way[300];
    for (int i = 0; t->kind == BISECT_SOME && i < r->n_operators; i++)
        if (t->moved != NULL && t->moved[i]) n++, name = r->operators[i].name;
    if (t->kind == BISECT_GOOD)
        (void)snprintf(out, size, "the command of --good");
    else if (t->kind == BISECT_CPU)
        (void)snprintf(out, size, "all operators on the CPU");
    else if (t->kind == BISECT_ALL)
        (void)snprintf(out, size, "all operators %s%s", bisect_place(r->options), more);
    else if (n == 0)
        (void)snprintf(out, size, "the program as it is");
    else if (n == 1) {
        say_way(r->options, name, way, sizeof way);
        (void)snprintf(out, size, "%s %s", name, way);
    } else
        (void)snprintf(out, size, "%d operators %s%s", n, bisect_place(r->options), more);
}

void bisect_say_running(bisect_run *r, const bisect_trial *trials, int n, double now)
{
    enum { PATIENCE_S = 1, AGAIN_S = 1, AGAIN_IN_A_LOG_S = 30 };
    const bool terminal = isatty(STDERR_FILENO) != 0;
    const bisect_trial *first = NULL;
    char set[320], more[32] = "";
    int running = 0;
    for (int i = 0; i < n; i++) {
        if (trials[i].pid == 0) continue;
        running++;
        if (first == NULL || trials[i].began < first->began) first = &trials[i];
    }
    if (first == NULL || now - first->began < PATIENCE_S) return;
    const double since = r->said_s > first->began ? now - r->said_s : HUGE_VAL;
    if (since < (terminal ? AGAIN_S : AGAIN_IN_A_LOG_S)) return;
    say_set(r, first, set, sizeof set);
    if (running > 1) (void)snprintf(more, sizeof more, " and %d more", running - 1);
    (void)fprintf(stderr, "%s  %s%s: runs, %.0f s%s", terminal ? "\r\033[K" : "", set,
                  more, now - first->began, terminal ? "" : "\n");
    (void)fflush(stderr);
    r->said_s = now;
    r->drawn = terminal;
}

static void draw_over(bisect_run *r)
{
    if (r->drawn) (void)fputs("\r\033[K", stderr);
    r->drawn = false;
}

void bisect_say_trial(bisect_run *r, const bisect_trial *t, int left)
{
    char set[320], eta[64] = "";
    const int n_new = r->n_trials - r->n_old;
    draw_over(r);
    say_set(r, t, set, sizeof set);
    if (left > 0 && n_new > 0)
        (void)snprintf(eta, sizeof eta, "; about %.0f s to go",
                       left * r->spent_s / n_new);
    if (t->why[0] != '\0')
        (void)fprintf(stderr, "  %s: %s; its output is in %s/output%s\n", set, t->why,
                      t->folder, eta);
    else if (r->reference == NULL || !isfinite(t->distance))
        (void)fprintf(stderr, "  %s: %lld losses%s, %.1f s%s%s\n", set,
                      (long long)t->curve->n,
                      r->reference == NULL ? "" : ", some missing or NaN", t->seconds,
                      t->old ? " (earlier)" : "", eta);
    else
        (void)fprintf(stderr, "  %s: loss %.3g %% off, %s, %.1f s%s%s\n", set,
                      percent(r, t->distance), t->good ? "right" : "not right",
                      t->seconds, t->old ? " (earlier)" : "", eta);
}

/* ---- the end ---- */

static void say_operator(const bisect_run *r, int i)
{
    const bisect_operator *op = &r->operators[i];
    char place[300];
    say_way(r->options, op->name, place, sizeof place);
    (void)printf("%s makes the loss differ: %s it comes right", op->name, place);
    if (isfinite(r->without[i]))
        (void)printf("; left as it is, it stays %.3g %% off", percent(r, r->without[i]));
    (void)printf(" (%lld calls)\n", op->n_calls);
}

static void put_number(double value)
{
    if (isfinite(value))
        (void)printf("%.9g", value);
    else
        (void)fputs("null", stdout);
}

static void put_json(const bisect_run *r)
{
    bool first = true;
    (void)fputs("{\"version\": 1, \"guilty\": [", stdout);
    for (int i = 0; r->guilty != NULL && i < r->n_operators; i++) {
        if (!r->guilty[i]) continue;
        const char *function = function_of(r->options, r->operators[i].name);
        (void)printf("%s{\"op\": \"%s\", \"calls\": %lld, \"do\": \"%s\", \"without\": ",
                     first ? "" : ", ", r->operators[i].name, r->operators[i].n_calls,
                     function != NULL                     ? "substitute"
                     : strcmp(r->options->to, "cpu") == 0 ? "fallback"
                                                          : "cast");
        put_number(r->without[i]);
        (void)putchar('}');
        first = false;
    }
    (void)printf("], \"operators\": %d, \"trials\": %d, \"failed\": %d, \"level\": ",
                 r->n_operators, r->n_trials, r->n_failed);
    put_number(r->level);
    (void)fputs(", \"before\": ", stdout);
    put_number(r->plain);
    (void)fputs(", \"after\": ", stdout);
    put_number(r->left);
    (void)fputs(", \"limit\": ", stdout);
    put_number(r->limit);
    (void)fputs("}\n", stdout);
}

static void say_failed(const bisect_run *r)
{
    if (r->n_failed > 0)
        (void)fprintf(stderr, "%d of %d trials failed and count as not right: %s\n",
                      r->n_failed, r->n_trials, r->options->out);
}

int bisect_say_found(const bisect_run *r)
{
    say_failed(r);
    if (r->options->json) {
        put_json(r);
        return cli_close_output(CLI_DIFFERS);
    }
    for (int i = 0; i < r->n_operators; i++)
        if (r->guilty[i]) say_operator(r, i);
    (void)printf("\n%d trials over %d operators; the loss was %.3g %% off, and is %.3g "
                 "%% off with these %s%s. Each "
                 "trial's output: %s\n",
                 r->n_trials, r->n_operators, percent(r, r->plain), percent(r, r->left),
                 bisect_place(r->options),
                 r->options->n_substitutes > 0 ? " or substituted" : "", r->options->out);
    const int code = cli_close_output(CLI_DIFFERS);
    if (code == CLI_DIFFERS)
        cli_next_around("ulpscope capture --", r->options->command,
                        " ; ulpscope check ulpscope-trace --device DEVICE");
    return code;
}

int bisect_say_same(const bisect_run *r)
{
    if (r->options->json)
        put_json(r);
    else
        (void)printf(
            "no difference to look for: as it is, the program's loss is %.3g %% off "
            "the reference, and up to %.3g %% is none\n",
            percent(r, r->plain), percent(r, r->limit));
    return cli_close_output(CLI_SAME);
}
