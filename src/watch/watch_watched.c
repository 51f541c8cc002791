// SPDX-License-Identifier: Apache-2.0
// What a log let detectors look at, and what not and why: "nothing abnormal" is said of
// the former alone.
#include "watch/watch_watched.h"

#include <stdlib.h>
#include <string.h>

#include "base/line.h"

#define OF(site) (1u << USC_WATCH_##site)

enum { LEARN = 8 }; /* values before which a tracker judges nothing */

/* Of each detector the sites that it reads, how many ranks and steps it takes, and what
 * records such rows. */
static const struct need {
    uint32_t sites;
    int world;
    bool learns;
    const char *remedy;
} needs[USC_N_WATCH_DETECTORS] = {
    [USC_WATCH_BY_TEMPORAL] = {OF(GRAD) | OF(REDUCED) | OF(LOSS), 1, true,
                               "no gradient was recorded"},
    [USC_WATCH_BY_RANKS] = {OF(GRAD), 3, false, "no gradient was recorded"},
    [USC_WATCH_BY_REPLICAS] = {OF(WEIGHT) | OF(MOMENT1) | OF(MOMENT2) | OF(REDUCED), 2,
                               false, "no weight was recorded"},
    [USC_WATCH_BY_WEIGHTS] = {OF(WEIGHT_BEFORE) | OF(MOMENT1_BEFORE) | OF(MOMENT2_BEFORE),
                              1, false, "no weight was recorded before its use"},
    [USC_WATCH_BY_COLLECTIVES] = {OF(COLLECTIVE), 1, false, "no reduction was recorded"},
    [USC_WATCH_BY_MATMULS] = {OF(MATMUL) | OF(MATMUL_INPUT) | OF(MATMUL_WEIGHT), 1, false,
                              "no product was recorded: matmul_every:100 does, of "
                              "nn.Linear"},
    [USC_WATCH_BY_DEAD] = {OF(GRAD) | OF(REDUCED) | OF(UPDATE), 1, false,
                           "no gradient's elements were recorded"},
    [USC_WATCH_BY_RATIO] = {OF(UPDATE), 1, true, "no update was recorded"},
    [USC_WATCH_BY_MOMENTS] = {OF(MOMENT1) | OF(MOMENT2), 1, true,
                              "no optimizer state was recorded"},
    [USC_WATCH_BY_AUDIT] = {OF(REPLAY), 1, false,
                            "no micro-batch was computed again: audit:100 does"},
    [USC_WATCH_BY_ASD] = {OF(GRAD), 1, true, "no gradient was recorded"},
    [USC_WATCH_BY_ASD2] = {OF(GRAD), 1, true, "no gradient was recorded"},
    [USC_WATCH_BY_MEGATRON] = {OF(GRAD) | OF(REDUCED), 1, true,
                               "no gradient was recorded"},
    [USC_WATCH_BY_TURBULENCE] = {OF(GRAD), 1, true, "no gradient was recorded"},
    [USC_WATCH_BY_ZSCORE] = {OF(GRAD) | OF(REDUCED), 1, true, "no gradient was recorded"},
    [USC_WATCH_BY_NAN] = {OF(GRAD) | OF(REDUCED) | OF(LOSS), 1, false,
                          "no gradient was recorded"},
};

void usc_watched_take(usc_watched *w, const usc_watch_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        w->n_rows[rows[i].site]++;
        w->n_whole[rows[i].site] += rows[i].numel > 0;
    }
}

/* Whether a detector had rows to look at; else why not, to `why`. */
static bool had_rows(const usc_watched *w, usc_watch_detector d,
                     const usc_watch_config *c, int64_t n_steps, usc_line *why)
{
    const struct need *need = &needs[d];
    const bool elements = d == USC_WATCH_BY_DEAD;
    int64_t n = 0;
    for (int s = 0; s < USC_N_WATCH_SITES; s++)
        if ((need->sites >> s & 1) != 0) n += elements ? w->n_whole[s] : w->n_rows[s];
    if ((c->detectors >> d & 1) == 0)
        usc_line_text(why, "not asked for");
    else if (!c->enable)
        usc_line_text(why, "switched off: enable:true");
    else if (c->world < need->world)
        usc_line_add(why, "takes %d ranks, of %d", need->world, (int)c->world);
    else if (n == 0)
        usc_line_text(why, need->remedy);
    else if (need->learns && n_steps <= LEARN)
        usc_line_add(why, "%lld steps, of which the first %d are what it learns by",
                     (long long)n_steps, LEARN);
    else
        return true;
    return false;
}

bool usc_watched_say(const usc_watched *w, const usc_watch_config *c, int64_t n_steps,
                     usc_line *watched, usc_line *unwatched)
{
    for (usc_watch_detector d = 0; d < USC_N_WATCH_DETECTORS; d++) {
        usc_line why = {0};
        const bool asked = (c->detectors >> d & 1) != 0;
        const char *name = usc_watch_detector_text(d);
        if (!asked && d >= USC_WATCH_BY_ASD) continue; /* other tools' */
        if (had_rows(w, d, c, n_steps, &why))
            usc_line_add(watched, "%s%s", watched->n > 0 ? ", " : "", name);
        else
            usc_line_add(unwatched, "%s%s (%s)", unwatched->n > 0 ? ", " : "", name,
                         why.text != NULL ? why.text : "");
        unwatched->failed |= why.failed;
        usc_line_free(&why);
    }
    return watched->n > 0;
}
