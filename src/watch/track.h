// SPDX-License-Identifier: Apache-2.0
// A site followed over time, tensor by tensor and rank by rank, by two numbers in log2:
// the level (mean |x|) and the peak (largest |x| against the mean, which one changed
// element moves and a change of data or of scale does not). What all tensors of a rank do
// together is the data's, or the scaler's, and taken off before.
// docs/reference/watch-reference.md.
#ifndef USC_WATCH_TRACK_H
#define USC_WATCH_TRACK_H

#include "watch/tracker.h"
#include "watch/watch_state.h"

typedef enum usc_channel {
    USC_CHANNEL_LEVEL,
    USC_CHANNEL_PEAK,
    USC_N_CHANNELS
} usc_channel;

/* Below so many tensors nobody tells what they have in common. */
enum { USC_TRACK_LEAST_COMMON = 4 };

/* Of one (site, tensor, rank). */
typedef struct usc_track { /* at most USC_WATCH_SERIES_BYTES, a pointer to it included */
    usc_tracker channel[USC_N_CHANNELS];
    int32_t n_nonfinite; /* steps in a row */
} usc_track;

/* Of one rank, for each site. */
typedef struct usc_track_rank {
    struct {
        double level; /* what all tensors did together so far, in bits */
        double last;  /* the last jump of all at once that was told */
        int64_t step;
    } site[USC_N_WATCH_SITES];
} usc_track_rank;

typedef struct usc_track_spec {
    usc_watch_site site;
    const char *what;             /* "gradient" */
    double least[USC_N_CHANNELS]; /* a deviation below is none, in bits */
    double alone;                 /* the same of the level, of few tensors */
    double norm; /* the same of a norm alone that grows; 0: as of few tensors */
} usc_track_spec;

/** The two numbers of a row. False: it is zero everywhere, or nothing is known. */
bool usc_track_bits(const usc_watch_row *r, double out[USC_N_CHANNELS]);

/** Whether a row has NaN or Inf. */
bool usc_row_nonfinite(const usc_watch_row *r);

/** What the rows of each rank have in common: the median of their numbers (NaN: none),
 * NaN of fewer than USC_TRACK_LEAST_COMMON. `common` and `ends` have a place for each
 * rank, `sorted` one for each row. */
void usc_track_common(const usc_watch_row *rows, size_t n, int32_t world,
                      const double *off, double *common, double *ends, double *sorted);

/** Decides the rows of a site. */
void usc_track_site(usc_watch_view *v, const usc_track_spec *spec);

/** Whether bytes from outside are a usc_track. */
bool usc_track_sound(const void *series);

size_t usc_track_rank_size(const usc_watch_config *config);

/** Median of n > 0 numbers, whose order changes. */
double usc_median(double *x, size_t n);

#endif
