// SPDX-License-Identifier: Apache-2.0
// The contracts stand in track.h. A row's deviation from its own median, less the median
// of the deviations of all tensors of its rank, is held against the row's own threshold.
// Histories hold values less what all tensors did together so far, so that a jump of all
// (another loss scale, a larger batch) moves none of them.
#include "watch/track.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { SCALER_STEPS = 16, JUMP_STEPS = 8, SUBJECT = 1024 };
#define JUMP_BITS 10.0 /* all tensors at once by a factor of 1024 */

bool usc_track_sound(const void *series)
{
    const usc_track *t = series;
    return usc_tracker_sound(&t->channel[0]) && usc_tracker_sound(&t->channel[1]) &&
           t->n_nonfinite >= 0;
}

size_t usc_track_rank_size(const usc_watch_config *config)
{
    (void)config;
    return sizeof(usc_track_rank);
}

bool usc_row_nonfinite(const usc_watch_row *r)
{
    return r->n_nonfinite > 0 || (r->numel == 0 && !isfinite(r->value));
}

bool usc_track_bits(const usc_watch_row *r, double out[USC_N_CHANNELS])
{
    if (r->numel == 0) { /* a norm alone */
        out[USC_CHANNEL_LEVEL] = log2(fabs(r->value));
        out[USC_CHANNEL_PEAK] = (double)NAN;
        return r->value != 0 && isfinite(r->value);
    }
    if (!(r->max_abs > 0) || !isfinite(r->max_abs)) return false;
    const double mean = r->sum_abs / (double)r->numel;
    /* a sum that overflowed: the largest element makes it */
    const double level =
        isfinite(mean) && mean > 0 ? log2(mean) : log2(r->max_abs / (double)r->numel);
    out[USC_CHANNEL_LEVEL] = level;
    out[USC_CHANNEL_PEAK] = log2(r->max_abs) - level;
    return true;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double usc_median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, compare);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

/* ---- what all tensors of a rank do together ---- */

/* Where rows are of many ranks: the numbers of each rank side by side in `sorted`, whose
 * slices end at `ends`. Both and `common` have a place a rank. */
void usc_track_common(const usc_watch_row *rows, size_t n, int32_t world,
                      const double *off, double *common, double *ends, double *sorted)
{
    for (int32_t r = 0; r < world; r++)
        ends[r] = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(off[i])) ends[rows[i].rank]++;
    double start = 0;
    for (int32_t r = 0; r < world; r++) {
        const double count = ends[r];
        ends[r] = start;
        start += count;
    }
    for (size_t i = 0; i < n; i++)
        if (!isnan(off[i])) sorted[(size_t)ends[rows[i].rank]++] = off[i];
    for (int32_t r = 0; r < world; r++) {
        const size_t first = r > 0 ? (size_t)ends[r - 1] : 0;
        const size_t count = (size_t)ends[r] - first;
        common[r] = count >= USC_TRACK_LEAST_COMMON ? usc_median(sorted + first, count)
                                                    : (double)NAN;
    }
}

/* One jump of everything is told, its way back is not. */
static void tell_jump(usc_watch_view *v, const usc_track_spec *spec, int32_t rank,
                      usc_track_rank *state, double bits)
{
    const bool back = state->site[spec->site].last * bits < 0 &&
                      v->step - state->site[spec->site].step <= JUMP_STEPS;
    usc_watch_note(v, back ? 0 : fabs(bits), JUMP_BITS);
    if (fabs(bits) <= JUMP_BITS) return;
    state->site[spec->site].last = back ? 0 : bits;
    state->site[spec->site].step = v->step;
    if (back) return;
    const usc_watch_finding f = {.kind = bits > 0 ? USC_WATCH_SPIKE : USC_WATCH_DROP,
                                 .tensor = -1,
                                 .rank = rank,
                                 .score = fabs(bits),
                                 .threshold = JUMP_BITS,
                                 .action = USC_WATCH_CHECK};
    usc_watch_say(v, &f,
                  "all %ss of rank %ld became 2^%.1f times %s at once, at step %lld: a "
                  "fault ahead of them all, or the data",
                  spec->what, (long)rank, fabs(bits), bits > 0 ? "larger" : "smaller",
                  (long long)v->step);
}

/* ---- one row ---- */

typedef struct look {
    const usc_track_spec *spec;
    const usc_watch_row *row;
    double bits[USC_N_CHANNELS]; /* less what all did so far, this step included */
    double off[USC_N_CHANNELS];  /* from its own median; NaN: not known */
    bool few;                    /* nobody to compare with */
} look;

/* Whether a row is a number for a whole tensor or model, of which no element is known. */
static bool is_value(const usc_track_spec *spec, const usc_watch_row *r)
{
    return r->numel == 0 && (spec->norm > 0 || spec->site == USC_WATCH_LOSS);
}

/* What a row is, in words: "gradient of 'w' on rank 0", "gradient norm 'grad_norm'",
 * "loss". */
static const char *subject(const usc_watch_view *v, const usc_track_spec *spec,
                           const usc_watch_row *r, char out[SUBJECT])
{
    const char *name = r->tensor >= 0 ? usc_watch_name(v, r->tensor) : "";
    const bool value = is_value(spec, r);
    const char *joint = !value ? " of" : spec->norm > 0 ? " norm" : "";
    const bool named = !value || name[0] != '\0';
    (void)usc_format(out, SUBJECT, "%s%s%s%s%s", spec->what, joint, named ? " '" : "",
                     name, named ? "'" : "");
    if (value && v->w->config.world == 1) return out;
    const size_t n = strlen(out);
    (void)usc_format(out + n, SUBJECT - n, " on rank %ld", (long)r->rank);
    return out;
}

static void tell(usc_watch_view *v, const look *l, usc_channel c, double threshold)
{
    char room[SUBJECT];
    const double off = l->off[c];
    const usc_watch_finding f = {.kind = c == USC_CHANNEL_PEAK ? USC_WATCH_OUTLIER
                                         : off > 0             ? USC_WATCH_SPIKE
                                                               : USC_WATCH_DROP,
                                 .tensor = l->row->tensor,
                                 .rank = l->row->rank,
                                 .score = fabs(off),
                                 .threshold = threshold,
                                 .action = USC_WATCH_CHECK};
    if (c == USC_CHANNEL_PEAK)
        usc_watch_say(
            v, &f,
            "the %s has an element that stands out at step %lld: %.3g against a "
            "mean of %.3g, 2^%.1f times what is usual (up to 2^%.1f is)",
            subject(v, l->spec, l->row, room), (long long)v->step, l->row->max_abs,
            l->row->sum_abs / (double)l->row->numel, off, threshold);
    else if (is_value(l->spec, l->row))
        usc_watch_say(v, &f,
                      "the %s became 2^%.1f times %s at step %lld: %.4g (up to 2^%.1f is "
                      "usual)",
                      subject(v, l->spec, l->row, room), fabs(off),
                      off > 0 ? "larger" : "smaller", (long long)v->step, l->row->value,
                      threshold);
    else
        usc_watch_say(v, &f,
                      "the %s became 2^%.1f times %s at step %lld%s (up to 2^%.1f is "
                      "usual)",
                      subject(v, l->spec, l->row, room), fabs(off),
                      off > 0 ? "larger" : "smaller", (long long)v->step,
                      l->few ? "" : ", and the other tensors did not", threshold);
}

static void tell_shift(usc_watch_view *v, const look *l, usc_channel c, double threshold)
{
    char room[SUBJECT];
    const usc_watch_finding f = {.kind = USC_WATCH_SHIFT,
                                 .tensor = l->row->tensor,
                                 .rank = l->row->rank,
                                 .score = fabs(l->off[c]),
                                 .threshold = threshold,
                                 .action = USC_WATCH_CHECK};
    usc_watch_say(v, &f,
                  "the %s stays 2^%.1f times %s since at most %d steps, at step %lld; "
                  "from here on that is taken as usual",
                  subject(v, l->spec, l->row, room), fabs(l->off[c]),
                  l->off[c] > 0 ? "larger" : "smaller", USC_TRACK_APART,
                  (long long)v->step);
}

static void look_at(usc_watch_view *v, const look *l, usc_channel c, usc_tracker *t)
{
    if (isnan(l->bits[c])) return;
    if (isnan(l->off[c])) {
        usc_tracker_accept(t, l->bits[c]);
        return;
    }
    const bool grown = l->row->numel == 0 && l->spec->norm > 0 && l->off[c] > 0;
    const double alone = grown ? l->spec->norm : l->spec->alone;
    const double least = c == USC_CHANNEL_LEVEL && l->few ? alone : l->spec->least[c];
    const double threshold =
        usc_tracker_threshold(t, least, (double)v->w->config.deviations);
    /* less of a peak than usual is no element that stands out */
    const double score = c == USC_CHANNEL_PEAK ? l->off[c] : fabs(l->off[c]);
    usc_watch_note(v, score, threshold);
    if (score <= threshold) {
        usc_tracker_accept(t, l->bits[c]);
        return;
    }
    if ((t->outside & 1) == 0) tell(v, l, c, threshold);
    if (usc_tracker_reject(t, l->bits[c], threshold)) tell_shift(v, l, c, threshold);
}

static void tell_nonfinite(usc_watch_view *v, const usc_track_spec *spec,
                           const usc_watch_row *r, int32_t run)
{
    char room[SUBJECT];
    const usc_watch_finding f = {.kind = USC_WATCH_NONFINITE,
                                 .tensor = r->tensor,
                                 .rank = r->rank,
                                 .score = HUGE_VAL,
                                 .threshold = 1,
                                 .action = USC_WATCH_OVERFLOW};
    if (v->w->config.loss_scaling)
        usc_watch_say(v, &f,
                      "the %s is NaN or Inf since %ld steps, at step %lld: more than a "
                      "loss scaler needs to find its scale",
                      subject(v, spec, r, room), (long)run, (long long)v->step);
    else if (r->numel == 0)
        usc_watch_say(v, &f, "the %s is %s at step %lld", subject(v, spec, r, room),
                      isnan(r->value) ? "NaN" : "Inf", (long long)v->step);
    else
        usc_watch_say(v, &f, "the %s has NaN or Inf at step %lld (%lld of %lld elements)",
                      subject(v, spec, r, room), (long long)v->step,
                      (long long)r->n_nonfinite, (long long)r->numel);
}

/* NaN and Inf are a state of their own, told once, and enter no history. */
static void take_nonfinite(usc_watch_view *v, const usc_track_spec *spec,
                           const usc_watch_row *r, usc_track *track)
{
    if (!usc_row_nonfinite(r)) {
        track->n_nonfinite = 0;
        return;
    }
    if (track->n_nonfinite < INT32_MAX) track->n_nonfinite++;
    const int32_t told_at = v->w->config.loss_scaling ? SCALER_STEPS : 1;
    if (track->n_nonfinite == told_at) tell_nonfinite(v, spec, r, track->n_nonfinite);
}

/* ---- a site ---- */

/* Whether there is more to a row than its hash. */
static bool is_known(const usc_watch_row *r)
{
    return r->numel > 0 || r->value != 0;
}

/* How far each row lies off its own past, and what it is. */
static bool measure(usc_watch_view *v, const usc_track_spec *spec, usc_channel c,
                    const usc_watch_row *rows, size_t n, double *bits, double *off)
{
    for (size_t i = 0; i < n; i++) {
        const usc_watch_row *r = &rows[i];
        double both[USC_N_CHANNELS];
        bits[i] = off[i] = (double)NAN;
        if (!is_known(r) || usc_row_nonfinite(r) || !usc_track_bits(r, both)) continue;
        const usc_track *track = usc_watch_series(v, spec->site, r->tensor, r->rank);
        const usc_track_rank *rank = usc_watch_rank(v, r->rank);
        if (track == NULL || rank == NULL) return false;
        bits[i] = both[c];
        if (c == USC_CHANNEL_LEVEL) bits[i] -= rank->site[spec->site].level;
        if (usc_tracker_ready(&track->channel[c]))
            off[i] = bits[i] - usc_tracker_median(&track->channel[c]);
    }
    return true;
}

static void take_jumps(usc_watch_view *v, const usc_track_spec *spec,
                       const double *common)
{
    for (int32_t r = 0; r < v->w->config.world; r++) {
        if (isnan(common[r])) continue;
        usc_track_rank *rank = usc_watch_rank(v, r);
        if (rank == NULL) return;
        tell_jump(v, spec, r, rank, common[r]);
        rank->site[spec->site].level += common[r];
    }
}

static void look_at_channel(usc_watch_view *v, const usc_track_spec *spec, usc_channel c,
                            const usc_watch_row *rows, size_t n, double *room)
{
    const int32_t world = v->w->config.world;
    double *bits = room, *off = bits + n, *sorted = off + n, *common = sorted + n,
           *ends = common + world;
    if (!measure(v, spec, c, rows, n, bits, off)) return;
    usc_track_common(rows, n, world, off, common, ends, sorted);
    if (c == USC_CHANNEL_LEVEL) take_jumps(v, spec, common);
    for (size_t i = 0; i < n && v->status == USC_OK; i++) {
        if (isnan(bits[i])) continue;
        usc_track *track = usc_watch_series(v, spec->site, rows[i].tensor, rows[i].rank);
        const double all = isnan(common[rows[i].rank]) ? 0 : common[rows[i].rank];
        look l = {.spec = spec, .row = &rows[i], .few = isnan(common[rows[i].rank])};
        l.bits[c] = bits[i] - (c == USC_CHANNEL_LEVEL ? all : 0);
        l.off[c] = off[i] - all;
        if (track != NULL) look_at(v, &l, c, &track->channel[c]);
    }
}

void usc_track_site(usc_watch_view *v, const usc_track_spec *spec)
{
    const usc_watch_row *rows;
    const size_t n = usc_watch_rows_of(v, spec->site, &rows);
    for (size_t i = 0; i < n; i++) {
        if (!is_known(&rows[i])) continue;
        usc_track *track = usc_watch_series(v, spec->site, rows[i].tensor, rows[i].rank);
        if (track == NULL) return;
        take_nonfinite(v, spec, &rows[i], track);
    }
    double *room = usc_watch_scratch(v, 3 * n + 2 * (size_t)v->w->config.world);
    for (usc_channel c = 0; n > 0 && room != NULL && c < USC_N_CHANNELS; c++)
        look_at_channel(v, spec, c, rows, n, room);
}
