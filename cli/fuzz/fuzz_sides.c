// SPDX-License-Identifier: Apache-2.0
// ulpscope fuzz --matrix and --profile: a device beside the CPU, operator by operator.
// Neither is a verdict.
#include "fuzz/fuzz.h"

#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/hooks.h"
#include "show/show.h"

static void put_json_text(const char *key, const char *text)
{
    (void)printf("\"%s\": ", key);
    cli_put_text(stdout, text);
}

/* ---- the matrix ---- */

/* The rows of one operator, and what is to be said of all of them. */
typedef struct forms {
    const usc_sided *row;
    int64_t n;
    bool lacks, only; /* the device has no form that the CPU takes; the other way round */
    int64_t n_refused, n_only;
} forms;

static bool is_loss(const usc_sided *r)
{
    return r->side == USC_SIDE_REFUSED || r->side == USC_SIDE_DIED;
}

static forms next_operator(const usc_sides *s, int64_t from)
{
    forms f = {.row = s->row + from};
    int64_t n_both = 0, n_died = 0;
    while (from + f.n < s->n && strcmp(f.row[f.n].op, f.row->op) == 0) {
        const usc_sided *r = &f.row[f.n++];
        f.n_refused += is_loss(r);
        f.n_only += r->side == USC_SIDE_CPU_REFUSED;
        n_both += r->side == USC_SIDE_BOTH;
        n_died += r->side == USC_SIDE_DIED;
    }
    f.lacks = n_both == 0 && n_died == 0 && f.n_refused > 0;
    f.only = n_both == 0 && f.n_refused == 0 && f.n_only > 0;
    return f;
}

static const char *class_of(const usc_sided *r)
{
    return r->side == USC_SIDE_DIED ? "died"
           : r->raised[0] != '\0'   ? r->raised
                                    : "refused";
}

/* Whether two forms are told together. */
static bool alike(const usc_sided *a, const usc_sided *b)
{
    return a->side == b->side && strcmp(class_of(a), class_of(b)) == 0;
}

/* Of the first layout, which stands for all of them where it is refused. */
static void put_form(const usc_sided *r)
{
    (void)printf("%s%s%s", r->dtype, strcmp(r->layout, "dense") == 0 ? "" : " ",
                 strcmp(r->layout, "dense") == 0 ? "" : r->layout);
}

static void put_why(const usc_sided *r)
{
    fputs(": ", stdout);
    if (r->side != USC_SIDE_DIED) fputs(class_of(r), stdout);
    if (r->why[0] != '\0') {
        if (r->side != USC_SIDE_DIED) fputs(", ", stdout);
        show_plain(r->why);
    }
    fputs("\n", stdout);
}

static void put_some(const forms *f, const char *device, usc_side side)
{
    for (int64_t i = 0; i < f->n; i++) {
        const usc_sided *first = &f->row[i];
        bool told = first->side != side;
        for (int64_t k = 0; k < i && !told; k++)
            told = alike(&f->row[k], first);
        if (told) continue;
        show_plain(first->op);
        (void)printf("  %s ", side == USC_SIDE_CPU_REFUSED ? "the CPU" : device);
        fputs(side == USC_SIDE_DIED ? "dies with " : "refuses ", stdout);
        for (int64_t k = i; k < f->n; k++) {
            if (!alike(&f->row[k], first)) continue;
            if (k > i) fputs(", ", stdout);
            put_form(&f->row[k]);
        }
        put_why(first);
    }
}

static void put_operator(const forms *f, const char *device)
{
    const usc_sided *first = f->row;
    while (f->lacks && !is_loss(first))
        first++;
    while (f->only && first->side != USC_SIDE_CPU_REFUSED)
        first++;
    if (f->lacks || f->only) {
        show_plain(first->op);
        (void)printf("  is missing on %s", f->lacks ? device : "the CPU");
        put_why(first);
        return;
    }
    put_some(f, device, USC_SIDE_REFUSED);
    put_some(f, device, USC_SIDE_DIED);
    put_some(f, device, USC_SIDE_CPU_REFUSED);
}

static void put_operator_json(const forms *f)
{
    bool first = true;
    fputs("{", stdout);
    put_json_text("op", f->row->op);
    (void)printf(", \"missing\": %s, \"forms\": [", f->lacks  ? "\"device\""
                                                    : f->only ? "\"cpu\""
                                                              : "null");
    for (int64_t i = 0; i < f->n; i++) {
        const usc_sided *r = &f->row[i];
        if (!is_loss(r) && r->side != USC_SIDE_CPU_REFUSED) continue;
        fputs(first ? "{" : ", {", stdout);
        first = false;
        put_json_text("dtype", r->dtype);
        fputs(", ", stdout);
        put_json_text("layout", r->layout);
        fputs(", ", stdout);
        put_json_text("side", usc_side_text(r->side));
        fputs(", ", stdout);
        put_json_text("raised", r->raised);
        fputs(", ", stdout);
        put_json_text("why", r->why);
        fputs("}", stdout);
    }
    fputs("]}\n", stdout);
}

static int tell_matrix(const char *device, const usc_sides *s, bool json)
{
    int64_t n_some = 0, n_lacks = 0, n_untold = 0;
    for (int64_t from = 0; from < s->n;) {
        const forms f = next_operator(s, from);
        int64_t n_told = 0;
        for (int64_t i = 0; i < f.n; i++)
            n_told += f.row[i].side != USC_SIDE_UNTOLD;
        n_untold += n_told == 0;
        n_lacks += f.lacks;
        n_some += !f.lacks && f.n_refused > 0;
        if (f.n_refused + f.n_only > 0 && json) put_operator_json(&f);
        if (f.n_refused + f.n_only > 0 && !json) put_operator(&f, device);
        from += f.n;
    }
    if (!json)
        (void)printf("%s takes what the CPU takes of %" PRId64 " of %" PRId64
                     " operators, refuses some of %" PRId64 ", all of %" PRId64 "%s\n",
                     device, s->n_ops - n_some - n_lacks - n_untold, s->n_ops, n_some,
                     n_lacks, n_untold > 0 ? "; the others could not be asked" : "");
    if (s->n_ops == n_untold) return CLI_TROUBLE;
    return n_some + n_lacks > 0 ? CLI_DIFFERS : CLI_SAME;
}

/* ---- the profile ---- */

static void put_time(const usc_sided *r, int width)
{
    (void)printf("%-*s ", width, r->op);
    if (r->side == USC_SIDE_BOTH)
        (void)printf("%10.1f %10.1f %7.2f %10.4g %7.2f  ", r->device * 1e6, r->cpu * 1e6,
                     r->cpu > 0 ? r->device / r->cpu : 0, (double)r->bytes / 1e6,
                     r->device > 0 ? (double)r->bytes / r->device / 1e9 : 0);
    show_plain(r->args);
    if (r->side != USC_SIDE_BOTH) {
        (void)printf("  not timed, %s", usc_side_text(r->side));
        put_why(r);
        return;
    }
    fputs("\n", stdout);
}

static void put_time_json(const usc_sided *r)
{
    fputs("{", stdout);
    put_json_text("op", r->op);
    fputs(", ", stdout);
    put_json_text("args", r->args);
    fputs(", ", stdout);
    put_json_text("side", usc_side_text(r->side));
    if (r->side == USC_SIDE_BOTH)
        (void)printf(", \"device_seconds\": %.9g, \"cpu_seconds\": %.9g, \"ratio\": "
                     "%.6g, \"bytes\": %" PRId64,
                     r->device, r->cpu, r->cpu > 0 ? r->device / r->cpu : 0, r->bytes);
    else {
        fputs(", ", stdout);
        put_json_text("raised", r->raised);
        fputs(", ", stdout);
        put_json_text("why", r->why);
    }
    fputs("}\n", stdout);
}

static int tell_profile(const char *device, const usc_sides *s, bool json)
{
    int width = 8;
    int64_t n_both = 0;
    for (int64_t i = 0; i < s->n; i++)
        if ((int)strlen(s->row[i].op) > width) width = (int)strlen(s->row[i].op);
    if (!json)
        (void)printf("%-*s %10s %10s %7s %10s %7s  %s\n", width, "operator", "device us",
                     "CPU us", "ratio", "MB moved", "GB/s", "arguments");
    for (int64_t i = 0; i < s->n; i++) {
        n_both += s->row[i].side == USC_SIDE_BOTH;
        if (json)
            put_time_json(&s->row[i]);
        else
            put_time(&s->row[i], width);
    }
    if (!json)
        (void)printf("%s and the CPU, medians of one call; %" PRId64 " of %" PRId64
                     " operators timed on both\n",
                     device, n_both, s->n_ops);
    return n_both > 0 ? CLI_SAME : CLI_TROUBLE;
}

int fuzz_sides(const usc_check_options *o, bool profile, bool json)
{
    usc_error err;
    usc_run_end end;
    usc_sides found;
    cli_hooks hooks;
    char device[256];
    const bool compiled = o->via != NULL && o->via[0] != '\0';
    (void)snprintf(device, sizeof device, "%s%s%s", o->device, compiled ? " via " : "",
                   compiled ? o->via : "");
    cli_hooks_begin(&hooks, "fuzz");
    const usc_status st = usc_sides_ask(o, profile, &hooks.hooks, &found, &end, &err);
    cli_hooks_end(&hooks);
    if (st != USC_OK) return cli_fail("%s", err.text);
    if (end == USC_RUN_INTERRUPTED) return CLI_INTERRUPTED;
    int code =
        profile ? tell_profile(device, &found, json) : tell_matrix(device, &found, json);
    if (found.unmatched[0] != '\0') {
        (void)fprintf(stderr,
                      "ulpscope: no operator to draw from matches %s of --ops%s\n",
                      found.unmatched, code == CLI_SAME ? "; hence exit code 2" : "");
        if (code == CLI_SAME) code = CLI_TROUBLE;
    }
    usc_sides_free(&found);
    return cli_close_output(code);
}
