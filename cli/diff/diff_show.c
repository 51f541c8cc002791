// SPDX-License-Identifier: Apache-2.0
// What `ulpscope diff` prints on a terminal; see diff.h.
#include "diff/diff.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "show/show.h"

enum { ROOM = 1024 };

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void put_head(const usc_diff_summary *s, const diff_words *w)
{
    const int64_t n[] = {s->n_a, s->n_b};
    for (int side = 0; side < 2; side++) {
        (void)printf("%c  ", 'A' + side);
        show_plain(w->path[side]);
        (void)printf(": %" PRId64 " call%s\n", n[side], plural(n[side]));
    }
    (void)printf("%" PRId64 " paired", s->n_paired);
    const char *between = ": ";
    for (int how = 0; how < USC_N_DIFF_HOW; how++) {
        if (s->n_how[how] == 0) continue;
        (void)printf("%s%" PRId64 " %s", between, s->n_how[how],
                     usc_diff_how_text((usc_diff_how)how));
        between = ", ";
    }
    (void)printf("; without a partner: %" PRId64 " of A, %" PRId64 " of B\n",
                 s->n_unpaired_a, s->n_unpaired_b);
    if (w->replicas != NULL) (void)printf("%s\n", w->replicas);
    if (s->basis == USC_DIFF_BY_STATISTICS)
        fputs("compared by statistics: errors that sums and ranges hide do not show\n",
              stdout);
    putchar('\n');
}

static usc_status put_row(usc_diff *d, usc_trace *const t[2], int64_t i, usc_error *err)
{
    int64_t n;
    char said[ROOM];
    usc_call call;
    const usc_diff_row *row = &usc_diff_rows(d, &n)[i];
    usc_status st = usc_diff_say(d, i, said, sizeof said, err);
    if (st == USC_OK) st = usc_trace_read_call(t[0], row->call_a, &call, err);
    if (st != USC_OK) return st;
    show_line(&call, false);
    (void)printf("       in B call %" PRId64 ", paired %s\n       %s: ", row->call_b,
                 usc_diff_how_text(row->how), usc_diff_kind_text(row->kind));
    show_plain(said);
    if (row->n_carried > 0)
        (void)printf("\n       %" PRId64 " call%s inherit%s it", row->n_carried,
                     plural(row->n_carried), row->n_carried == 1 ? "s" : "");
    putchar('\n');
    return USC_OK;
}

bool diff_is_listed(const usc_diff_row *row, const diff_words *w)
{
    return usc_diff_begins(row->kind) &&
           (row->kind != USC_DIFF_ENTERED || w->replicas != NULL);
}

static usc_status put_rows(usc_diff *d, usc_trace *const t[2], const diff_words *w,
                           usc_error *err)
{
    int64_t n, n_shown = 0, n_more = 0;
    const usc_diff_row *rows = usc_diff_rows(d, &n);
    for (int64_t i = 0; i < n; i++) {
        if (!w->all && !diff_is_listed(&rows[i], w)) continue;
        if (n_shown == w->limit) {
            n_more++;
            continue;
        }
        if (n_shown++ == 0) show_head();
        const usc_status st = put_row(d, t, i, err);
        if (st != USC_OK) return st;
    }
    if (n_more > 0) (void)printf("... and %" PRId64 " more (--limit)\n", n_more);
    if (n_shown > 0) putchar('\n');
    return USC_OK;
}

/* A call without its arguments, of which a fused optimizer has hundreds. */
static void put_short(const usc_call *call)
{
    (void)printf("%6" PRId64 "  step %" PRId64 " %-9s ", call->sequence, call->step,
                 call->phase);
    show_plain(call->op);
    if (call->module_path != NULL && call->module_path[0] != '\0') {
        fputs("  ", stdout);
        show_plain(call->module_path);
    }
    putchar('\n');
}

static usc_status put_alone(usc_diff *d, usc_trace *const t[2], const diff_words *w,
                            usc_error *err)
{
    for (int side = 0; side < 2; side++) {
        int64_t n;
        const int64_t *calls = usc_diff_alone(d, side, &n);
        if (n == 0) continue;
        (void)printf("without a partner in %c:\n", 'B' - side);
        for (int64_t i = 0; i < n && i < w->limit; i++) {
            usc_call call;
            const usc_status st = usc_trace_read_call(t[side], calls[i], &call, err);
            if (st != USC_OK) return st;
            put_short(&call);
        }
        if (n > w->limit)
            (void)printf("... and %" PRId64 " more (--limit)\n", n - w->limit);
        putchar('\n');
    }
    return USC_OK;
}

/* ---- does it matter ---- */

static usc_status put_weight(usc_trace *t, const usc_diff_row *row, const char *where,
                             usc_error *err)
{
    usc_call call;
    const usc_status st = usc_trace_read_call(t, row->call_a, &call, err);
    if (st != USC_OK) return st;
    (void)printf("  %-10s %-9s call %" PRId64 " ", call.phase, where, row->call_a);
    show_plain(call.op);
    (void)printf(": %.3g roundings apart, rounding alone gives %.3g: %s\n", row->apart,
                 row->noise, row->share > 1 ? "beyond" : "within");
    return USC_OK;
}

/* Of each phase the result furthest beyond what rounding makes; of forward its last one,
 * which is the loss, as well. */
static usc_status put_weights(usc_diff *d, usc_trace *t, const diff_amplified *a,
                              usc_error *err)
{
    int64_t n, furthest[USC_N_PHASES], last = -1;
    const usc_diff_row *rows = usc_diff_rows(d, &n);
    usc_status st = USC_OK;
    for (int i = 0; i < USC_N_PHASES; i++)
        furthest[i] = -1;
    for (int64_t i = 0; i < n && st == USC_OK; i++) {
        usc_call call;
        if (!(rows[i].noise > 0)) continue;
        st = usc_trace_read_call(t, rows[i].call_a, &call, err);
        for (int k = 0; k < USC_N_PHASES && st == USC_OK; k++)
            if (strcmp(call.phase, usc_phase_text((usc_phase)k)) == 0) {
                if (furthest[k] < 0 || rows[i].share > rows[furthest[k]].share)
                    furthest[k] = i;
                if (k == USC_PHASE_FORWARD) last = i;
            }
    }
    (void)printf(
        "rounding alone, amplified by this model (the calls of A replayed %" PRId64
        " times with other roundings):\n",
        a->n_replays);
    if (a->n_fed > 0)
        (void)printf("  %" PRId64
                     " results came as captured: their calls could not be run "
                     "again on the CPU, so that less is amplified\n",
                     a->n_fed);
    if (last >= 0 && st == USC_OK) st = put_weight(t, &rows[last], "ends at", err);
    for (int k = 0; k < USC_N_PHASES && st == USC_OK; k++)
        if (furthest[k] >= 0 && furthest[k] != last)
            st = put_weight(t, &rows[furthest[k]], "most at", err);
    putchar('\n');
    return st;
}

usc_status diff_show(usc_diff *d, usc_trace *const t[2], const diff_words *w,
                     int64_t n_left, usc_error *err)
{
    const usc_diff_summary s = usc_diff_sum(d);
    put_head(&s, w);
    usc_status st = put_rows(d, t, w, err);
    if (st == USC_OK) st = put_alone(d, t, w, err);
    if (st == USC_OK && w->amplified.n_replays > 0)
        st = put_weights(d, t[0], &w->amplified, err);
    if (st == USC_OK && w->inside) {
        fputs("limits alone tell of modules, and none that they name is sure; the "
              "operators inside are in both traces and are judged:\n\n",
              stdout);
        return USC_OK;
    }
    if (st == USC_OK) st = diff_put_end(d, t, w, n_left, err);
    return st;
}
