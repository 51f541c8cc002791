// SPDX-License-Identifier: Apache-2.0
// A watch inside, and what a detector is: sizes of the plain bytes that it keeps, and one
// function that decides the rows of a step. The framework (watch_core.c) holds the bytes,
// so that saving, another world size and added tensors are its matter alone
// (watch_save.c).
#ifndef USC_WATCH_STATE_H
#define USC_WATCH_STATE_H

#include <ulpscope/x/watch.h>

#include "base/arena.h"
#include "base/keys.h"
#include "base/line.h"

typedef struct usc_watch_view usc_watch_view;

/* What a detector keeps is zero to begin with, has no pointers, and may be written to a
 * file as it is. */
typedef struct usc_watch_rule {
    size_t series_size;                                  /* of one (site, tensor, rank) */
    size_t (*rank_size)(const usc_watch_config *config); /* of a rank; NULL: none */
    /* Whether bytes of a series that came from outside may be used; NULL: all may. Those
     * of a rank: rank_sound. */
    bool (*series_sound)(const void *series);
    bool (*rank_sound)(const usc_watch_config *config, const void *rank);
    void (*decide)(usc_watch_view *v);
} usc_watch_rule;

extern const usc_watch_rule usc_watch_rules[USC_N_WATCH_DETECTORS];

/* Sites and, as one more, what is kept of a rank. */
enum { USC_WATCH_OF_RANK = USC_N_WATCH_SITES, USC_N_WATCH_TABLES };

/* Of a detector: one block of bytes, or NULL, for each tensor (from -1 on) and rank. */
typedef struct usc_watch_table {
    void **block;
    int64_t n; /* tensors it has room for, -1 among them */
} usc_watch_table;

typedef struct usc_watch_tensor_row {
    const char *name;
    usc_dtype dtype;
    int ndim;
    bool sharded;
} usc_watch_tensor_row;

typedef struct usc_watch_said {
    usc_watch_event event; /* texts in `texts` */
    usc_line texts;        /* sentence, zero, action, zero */
    size_t action_at;
} usc_watch_said;

struct usc_watch {
    usc_watch_config config;
    const usc_watch_rule *rules; /* of each detector */
    usc_watch_tensor_row *tensors;
    int64_t n_tensors, tensors_size, tensors_version;
    usc_keys names;
    usc_arena texts, blocks; /* names; the detectors' bytes */
    int64_t n_bytes;
    usc_watch_table tables[USC_N_WATCH_DETECTORS][USC_N_WATCH_TABLES];
    usc_watch_row *rows; /* not decided yet */
    size_t n_rows, rows_size;
    double *scratch; /* usc_watch_scratch */
    size_t scratch_size;
    int64_t *sampled; /* mode asd: of each tensor, which one has its state, or -1 */
    int64_t sampled_version;
    double seconds, given; /* of the last step: as counted here, as the clock said */
    double score;
    int64_t rounded_away_step; /* at which weights that low precision keeps still */
    bool rounded_away_told;    /* were told of */
    bool wants_checksum;
    usc_watch_said *said; /* a ring */
    size_t n_said, first_said, said_size;
    int64_t n_lost;
    usc_line taken; /* texts of the event that was taken last */
};

/* Whether they count from 1970: of years from 2001 on. */
static inline bool usc_watch_is_date(double seconds)
{
    return seconds >= 1e9 && seconds < 1e11;
}

/* The rows of one step, in order of site, tensor, rank. */
struct usc_watch_view {
    usc_watch *w;
    usc_watch_detector detector;
    int64_t step;
    double seconds;
    const usc_watch_row *rows;
    size_t n;
    size_t n_found, n_told; /* events of this detector at this step */
    usc_status status;
    usc_error *err;
};

/** The rows of a site: their number, from *rows on. */
size_t usc_watch_rows_of(const usc_watch_view *v, usc_watch_site site,
                         const usc_watch_row **rows);

/** How many of n rows are of the same tensor as the first. */
size_t usc_watch_same_tensor(const usc_watch_row *rows, size_t n);

/** The detector's bytes for (site, tensor, rank); NULL where there is no memory, which
 * v->status then says. */
void *usc_watch_series(usc_watch_view *v, usc_watch_site site, int64_t tensor,
                       int32_t rank);

/** The same of a rank. */
void *usc_watch_rank(usc_watch_view *v, int32_t rank);

/* The same for who has no view (watch_save.c): the place of the bytes, and the bytes,
 * made where there are none. NULL: no memory. */
void **usc_watch_block(usc_watch *w, usc_watch_detector d, int table, int64_t tensor,
                       int32_t rank);
void *usc_watch_bytes_at(usc_watch *w, usc_watch_detector d, int table, int64_t tensor,
                         int32_t rank);

/** Room for n numbers, until it is asked for again; NULL as above. */
double *usc_watch_scratch(usc_watch_view *v, size_t n);

/** Takes note of a score: also of what is not abnormal. */
void usc_watch_note(usc_watch_view *v, double score, double threshold);

/** Says what was found; usc_watch_note is part of it. At most USC_WATCH_TOLD events of a
 * detector and step are kept, the last of which says how many more there were. */
enum { USC_WATCH_TOLD = 8 };

typedef struct usc_watch_finding {
    usc_watch_kind kind;
    int64_t tensor;
    int32_t rank;
    double score, threshold;
    const char *action;
} usc_watch_finding;

void usc_watch_say(usc_watch_view *v, const usc_watch_finding *f, const char *format, ...)
    USC_PRINTF(3, 4);

/** After the last finding of a step: the last event kept says how many were not. */
void usc_watch_count_more(usc_watch_view *v);

/** Name of a tensor; "" for -1. */
const char *usc_watch_name(const usc_watch_view *v, int64_t tensor);

/* What to type next. */
#define USC_WATCH_CHECK "ulpscope check {trace} --device DEVICE"
#define USC_WATCH_OVERFLOW "ulpscope overflow {trace}"

/* Whether bytes from outside are a series of theirs. */
bool usc_dead_sound(const void *series);
bool usc_zscore_sound(const void *series);

void usc_watch_temporal(usc_watch_view *v);
void usc_watch_ranks(usc_watch_view *v);
void usc_watch_replicas(usc_watch_view *v);
void usc_watch_weights(usc_watch_view *v);
void usc_watch_collectives(usc_watch_view *v);
void usc_watch_matmuls(usc_watch_view *v);
void usc_watch_dead(usc_watch_view *v);
void usc_watch_ratio(usc_watch_view *v);
void usc_watch_moments(usc_watch_view *v);
void usc_watch_audit(usc_watch_view *v);
void usc_watch_asd(usc_watch_view *v);
void usc_watch_asd2(usc_watch_view *v);
void usc_watch_megatron(usc_watch_view *v);
void usc_watch_turbulence(usc_watch_view *v);
void usc_watch_zscore(usc_watch_view *v);
void usc_watch_nan(usc_watch_view *v);

#endif
