// SPDX-License-Identifier: Apache-2.0
// Where the time of a check went. The ratios are those of everything but the device to
// one float64 replay of every call, its arguments read from the trace included. Accused
// calls, which are appealed for, and the search for their causes have their own.
#include "run/check.h"

static const char *const parts[USC_N_PARTS] = {"device", "reference", "perturbed",
                                               "judge", "causes"};

void usc_split_add(usc_split *s, const usc_row *row)
{
    const usc_result_row *r = &row->row;
    const bool accused = usc_verdict_flagged(row->verdict);
    const int64_t times[USC_N_PARTS] = {r->t_device, r->t_reference, r->t_perturbed,
                                        r->t_judge, row->t_causes};
    s->calls++;
    s->accused += accused;
    s->seen[row->verdict] = true;
    for (int i = 0; i < USC_N_PARTS; i++)
        s->part[i] += times[i];
    s->total += r->t_total;
    s->wide[accused] += row->t_wide;
    s->rest[accused] += r->t_total - r->t_device;
}

void usc_split_explain(usc_split *s, const usc_row *row)
{
    s->causes += row->t_causes;
    s->part[USC_N_PARTS - 1] += row->t_causes;
    s->total += row->t_causes;
}

/* Nanoseconds of all calls as milliseconds of each. */
static double each(const usc_split *s, int64_t sum)
{
    return (double)sum / (double)s->calls / 1e6;
}

static void tell_ratios(const usc_split *s, usc_line *to)
{
    if (s->wide[0] == 0) return;
    usc_line_add(to, "; without the device %.2fx one float64 replay of every call",
                 (double)s->rest[0] / (double)s->wide[0]);
    if (s->wide[1] == 0) return;
    usc_line_add(to, " that is not accused, %.0fx of the ",
                 (double)s->rest[1] / (double)s->wide[1]);
    usc_line_count(to, s->accused);
    usc_line_add(to, " accused, and %.0fx more for their causes",
                 (double)s->causes / (double)s->wide[1]);
}

void usc_split_tell(const usc_split *s, double seconds, int jobs, bool verbose,
                    usc_line *to)
{
    int64_t told = 0;
    usc_line_count(to, s->calls);
    usc_line_add(to, " call%s in %.1f s on %d worker%s", s->calls != 1 ? "s" : "",
                 seconds, jobs, jobs != 1 ? "s" : "");
    if (!verbose || s->calls == 0) return;
    usc_line_add(to, "; ms per call %.1f: ", each(s, s->total));
    for (int i = 0; i < USC_N_PARTS; i++) {
        usc_line_add(to, "%s %.1f, ", parts[i], each(s, s->part[i]));
        told += s->part[i];
    }
    usc_line_add(to, "overhead %.1f", each(s, s->total - told));
    tell_ratios(s, to);
}
