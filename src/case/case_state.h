// SPDX-License-Identifier: Apache-2.0
// What the files of a case share. A stage is one step of the escalation: it asks, judges
// or decides, and names the stage that comes after it. case.c drives and knows the form
// of an output; case_look.c looks at floats; case_excuse.c, case_steps.c, case_free.c and
// case_corner.c find elements that go free; case_exact.c and case_choice.c have what must
// agree in every bit; case_narrow.c tries narrower formats, case_reading.c
// other readings of the call, case_own.c the steps into which torch takes it apart;
// case_finding.c keeps what was found; case_trust.c whether float32 is a yardstick;
// case_keep.c what is asked for an output that is judged later, case_kept.c what is put
// away of it; case_hull.c which
// values runs of float32 speak for; case_factor.c what all elements have in common;
// case_lost.c what they lose together, case_part.c what a part does; case_ties.c what is halfway; case_carried.c what
// only carries elements; case_piece.c large calls, piece by piece; case_chain.c a
// callable's roundings between its operators.
#ifndef USC_CASE_STATE_H
#define USC_CASE_STATE_H

#include <ulpscope/case.h>

#include "base/arena.h"
#include "case/case_chain.h"
#include "case/findings.h"

typedef usc_status usc_case_stage(usc_case *c, usc_error *err);

/* The stages that others go on with, and the functions that they are: only case.c knows
 * both, so that a stage's file needs none of the files behind it. */
#define USC_STAGE_LIST(X)                                                                \
    X(FORM, usc_case_form)                                                               \
    X(CARRIED, usc_case_carried)                                                         \
    X(END, usc_case_end)                                                                 \
    X(PUT_AWAY, usc_case_put_away)                                                       \
    X(KEEP_HULL, usc_case_keep_hull)                                                     \
    X(FLOAT, usc_case_float)                                                             \
    X(EXCUSES, usc_case_excuses)                                                         \
    X(STEPS, usc_case_steps)                                                             \
    X(FREE, usc_case_free)                                                               \
    X(CORNERS, usc_case_corners)                                                         \
    X(NOT_EXACT, usc_case_not_exact)                                                     \
    X(EXACT, usc_case_exact)                                                             \
    X(BYTES, usc_case_bytes)                                                             \
    X(NARROW, usc_case_narrow)                                                           \
    X(FACTOR, usc_case_factor)                                                           \
    X(LOST, usc_case_lost)                                                               \
    X(KEEP_LOSS, usc_case_keep_loss)                                                     \
    X(TIES, usc_case_ties)                                                               \
    X(KEEP_EXACT, usc_case_keep_exact)                                                   \
    X(TAKE_APART, usc_case_take_apart)                                                   \
    X(KEEP_CHAIN, usc_case_keep_chain)                                                   \
    X(CHAIN_WEIGHED, usc_case_chain_weighed)                                             \
    X(READ, usc_case_read)                                                               \
    X(SETTLED, usc_case_settled)                                                         \
    X(KEEP_SETTLED, usc_case_keep_settled)                                               \
    X(FREED, usc_case_freed)                                                             \
    X(KINDS, usc_case_kinds)                                                             \
    X(KEEP_FLOAT, usc_case_keep_float)

typedef enum usc_stage {
    USC_STAGE_NONE,
#define USC_STAGE_ENUM(id, function) USC_STAGE_##id,
    USC_STAGE_LIST(USC_STAGE_ENUM)
#undef USC_STAGE_ENUM
} usc_stage;

enum { USC_CASE_REPLAYS = 4 }; /* before the last look */

/* A look at one version of the output. */
typedef struct usc_look {
    usc_tensor device;
    usc_judge *judge;
    usc_judgement j;
    usc_case_stage *after; /* what to do with the finding */
    int fed;               /* replays that the judge has seen */
    usc_want_kind losses;  /* which of them are asked: LOSS, then NOISE */
    bool fresh;            /* the judge has seen no replay, and knows places */
    bool odd;              /* the first replay has another shape */
    bool movement;
    bool scaled; /* S or N may count */
    bool loud;   /* beside |R| alone it is off by more than such functions are */
    bool turned; /* the judge does not know places */
    double fan_in, natural;
    double bits_before; /* those of the appeal with LOSS */
} usc_look;

/* What moved inputs make of an output: the least and the most, step by step. */
typedef struct usc_sides {
    double *low, *high, *moved;
    double *under, *over; /* of steps: the nearest to the device's to both sides */
    uint8_t *rough;       /* counts of probes that hang on the distance */
    uint8_t *good, *asked;
    double *low_sums, *high_sums, *sums; /* of corners: over dimensions, way by way */
    int n_moved;
    bool settled;
} usc_sides;

/* Between what one accumulator's results and the truth lie. */
typedef struct usc_added {
    double *low, *high;
} usc_added;

/* Which value a step made of which, at how many elements: what runs of float32 show. */
enum { USC_MOST_TURNS = 16 };
typedef struct usc_turn {
    double from, to;
    int64_t n;
} usc_turn;

/* Which finding an output of a piece came to, and where it lies. */
typedef struct usc_case_parts {
    size_t finding;
    usc_case_part part;
} usc_case_parts;

/* Elements that are visibly off, and what runs make of them: case_hull.c. */
typedef struct usc_hull usc_hull;

struct usc_case {
    usc_alloc alloc;
    int n_threads;
    usc_arena work; /* of the present output */
    usc_findings *found;
    bool own; /* closes them */

    usc_case_output o;
    usc_tensor device, bytes; /* copies of what o points to */
    usc_tensor truth, yardstick, native;
    usc_tensor first[2]; /* replay 0 */
    const char *native_dtype;
    int64_t n;

    usc_case_stage *stage; /* NULL, and passed to none: the finding stands */
    usc_stage passed_to;   /* goes before `stage` */
    usc_want want;
    bool answered;
    usc_given given;
    usc_tensor tensors[3]; /* copies of what `given` points to */
    usc_tensor values;     /* of choice */
    usc_choice choice;
    usc_case_output known;
    usc_tensor known_device;
    char text[256];

    usc_finding f, before; /* as far as it is known; without an excuse that was tried */
    usc_look look;
    usc_hull *hull; /* of the present look */
    uint8_t *gaps;  /* elements between two groups of runs: no excuse has them */
    bool few_off;   /* of few numbers one was off by more than some roundings */
    usc_turn turns[USC_MOST_TURNS]; /* seen in any look at this output */
    int n_turns;
    bool factor_tried, ties_tried;
    double factor; /* of all elements, less 1 */

    /* copies that lie in a row, made when first needed */
    const double *r, *y, *d;
    double *wide, *low;        /* a replay that is made here */
    usc_tensor spared;         /* the output with some elements put right */
    unsigned char *spare_room; /* its elements, to be written */
    uint8_t *marks, *open;
    uint8_t *infinite; /* kinds that sums inside may become where the truth is a number */
    uint8_t *turned;   /* rows of whole numbers that runs changed */
    bool rounding;     /* ROUNDING is asked after ADMISSIBLE */
    int64_t n_marks;   /* elements of the excuse at hand */
    int64_t n_before;  /* of the same excuse, earlier */
    usc_excuse excuse;
    struct {
        bool tried, weighing;    /* what an emulation leaves open is judged */
        int row;                 /* of all emulations */
        usc_finding found;       /* without them */
        usc_tensor device;       /* as it came */
        const double *of_inputs; /* R of rounded inputs, in inputs_room */
        double *inputs_room, *rounded;
        uint8_t *same; /* what an emulation explains */
    } narrow;
    usc_sides sides;                /* of steps nearby, or of corners */
    double *first_low, *first_high; /* of corners, before activations were settled */

    usc_kept *kept;    /* of the output at hand; NULL: it is judged */
    usc_arena keeping; /* of all that is kept */
    usc_kept **all;
    size_t n_all, all_room;
    struct {
        enum { UNKNOWN, ONE_FUNCTION, ANOTHER_FUNCTION } known;
        uint8_t *far; /* where float32 lies far from float64 */
        usc_case_stage *then;
    } trust;
    usc_added added;
    struct {
        bool tried, scaled; /* S of the last look is known */
        double *squares;    /* of what runs lose, then their root mean square */
        const double *cut;  /* what is lost where accumulators are cut off, or NULL */
        double *rows;       /* squares of what runs are off by in all of a row, */
        double shares;      /* and in all of it; no number: unknown */
        double share_cut;   /* the same of `cut` */
        double *s;
        int n_runs;
    } lost;
    struct usc_case_reading {
        int at;               /* which operands are asked for: 0, of the call's own */
        bool over;            /* there is no other that makes it better */
        usc_case_output own;  /* what is known of the output, */
        usc_finding found;    /* what is found of it, */
        usc_tensor device;    /* as it came, */
        usc_tensor truth;     /* R, */
        usc_tensor yardstick; /* Y, */
        usc_kept *kept;       /* and what is kept of it, by the call's own reading */
        usc_kept *last;       /* that was kept */
        int64_t n_free;       /* elements that the one at hand excepts */
        int64_t n_refused;    /* that hang on what the CPU refuses, */
        usc_excuse refused;   /* and on what */
        const char *own_note, *note; /* of that and of the one at hand; NULL: none */
    } reading;
    struct usc_case_apart {
        bool tried, weighing; /* what lies beyond the steps is judged */
        usc_finding found;    /* with them */
        double *low, *high; /* between what its runs lie */
        uint8_t *odd; /* what else runs gave: usc_values_odd */
        int64_t n_free;
    } apart;
    struct usc_case_whole {
        const usc_case_form_of *outputs;
        int n_outputs;
        int64_t n_inputs, n_rows, large;
        uint64_t seed[2];
        const int64_t *chosen; /* rows that are judged; NULL: all */
        int64_t n_chosen;
        size_t first, end;        /* findings on pieces */
        size_t *pieces;           /* the first finding of each */
        size_t n_pieces, room;    /* 0: the outputs are no pieces */
        size_t sample;            /* the one, from 1 on, of which all losses are asked */
        const usc_finding *worst; /* of all pieces that were gone on from */
        bool accused, settled;    /* one of these is accused: what else is no worse is */
        bool settled_bad;         /* told by it; it has NaN or Inf out of place, */
        double settled_max;       /* and its worst element is so far off */
        usc_case_parts *parts;
        size_t n_parts, parts_room;
    } whole;
    struct {
        bool any, bad;
        double max;
    } seen;        /* of the present output, at first sight: as settled_bad and _max */
    bool sight;    /* of a piece beside one that is accused the first look stands */
    int64_t large; /* as in the options */
    double work_of_sample;
    int fewest;
    struct usc_case_chain {
        bool tried, weighing; /* what lies beyond its sets is judged */
        bool ended;           /* there are no more runs */
        bool narrow;          /* as it was asked for */
        usc_case_stage *resume;
        usc_tensor device, truth, yardstick; /* as they came */
        int n_runs;
        double *squares;    /* of what runs are off by, element by element */
        float *sample;      /* what the first of them are off by, every `stride`th */
        uint8_t *odd;       /* kinds that runs gave where they are no number, MANY */
        double *low, *high; /* what they gave there, without MANY */
        float *values; /* of what is kept: all of these after the first, and after all */
        uint8_t *kinds;
        double *sums;
        int64_t stride, n_sample, n_free;
        usc_chain_drifts_of_runs drift;
    } chain;
    bool s_matters;      /* S of some look is above |R| somewhere */
    bool n_matters;      /* N is, or is any where R is what float32 gives */
    unsigned char *runs; /* that gave other whole numbers, one behind the other */
    size_t n_runs, runs_room;
};

/* ---- case_base.c ---- */

/** Asks, and goes on with `then` once there is an answer. */
usc_status usc_case_ask(usc_case *c, usc_want_kind kind, int k, usc_case_stage *then);

/** Goes on with `then`, a stage of the same file, without asking. */
usc_status usc_case_go(usc_case *c, usc_case_stage *then);

/** Both with a stage of whatever file. */
usc_status usc_case_ask_for(usc_case *c, usc_want_kind kind, int k, usc_stage then);
usc_status usc_case_pass(usc_case *c, usc_stage then);

/** Whether a want that nobody can answer ends the case. */
bool usc_case_must_answer(usc_want_kind kind);

/** Forgets what is known of the output at hand by one reading of the call. */
void usc_case_forget(usc_case *c);

/** R and Y were given: goes on by the form of the output. */
usc_case_stage usc_case_form;

/** The CPU's own was given of what only carries elements: the finding stands, or the rest
 * begins. */
usc_case_stage usc_case_carried;

/** The finding stands, but for what an unusual dtype says. */
usc_case_stage usc_case_end;

/** The finding stands, unless another reading of the call makes it better. */
usc_case_stage usc_case_put_away;

bool usc_case_given(const usc_case *c, usc_given_form form);

/** n zeroed items; NULL where there is no memory, which the driver tells. */
void *usc_case_room(usc_case *c, int64_t n, size_t size);

/** The elements of a tensor in a row; where they lie so already, in place. */
const void *usc_case_plain(usc_case *c, const usc_tensor *t);

/** The same as doubles. */
const double *usc_case_wide(usc_case *c, const usc_tensor *t);

/** Loads c->r, c->y and c->d; false where there is no memory. */
bool usc_case_load(usc_case *c);

bool usc_case_fits(const usc_tensor *a, const usc_tensor *b);

/** Whether a tensor has the output's form and dtype, along a first axis. */
bool usc_case_stacked(const usc_case *c, const usc_tensor *t);

bool usc_case_is_float(const usc_tensor *t);

/** A number as the device's dtype holds it. */
double usc_case_rounded(const usc_case *c, double v);

/** How far numbers of the device's dtype lie apart at `x`. */
double usc_case_ulp(const usc_case *c, double x);

/** How far `r` lies from the reals that round to `d`, a finite number of the device's
 * dtype; their borders count as they. */
double usc_case_distance(const usc_case *c, double d, double r);

/** c->spared: a copy of `from`, of the output's form; false where there is no memory. */
bool usc_case_spare(usc_case *c, const usc_tensor *from);

/** Writes a value into c->spared, rounded to its dtype. */
void usc_case_put(usc_case *c, int64_t i, double value);

/** Makes c->spared of `from`, with the true value where c->marks are. */
bool usc_case_put_right(usc_case *c, const usc_tensor *from);

/** Remembers where the output that begins lies, if the call is judged in pieces. */
void usc_case_put_part(usc_case *c, const usc_case_part *part);

/* ---- stages ---- */

/** Looks at `device`; c->f is what is found when `after` runs. */
usc_status usc_case_look(usc_case *c, const usc_tensor *device, usc_case_stage *after,
                         usc_error *err);

/** Of an output that passes: holds elements that are visibly off to what runs of float32
 * give there, and goes on with the look's `after`. */
usc_status usc_case_hold(usc_case *c);

/** The same of an output that is kept: the sides, then KINDS. */
usc_case_stage usc_case_keep_hull;

/** What float32 lost in the run that was given of LOSS or NOISE, element by element;
 * false where that is not believed, or there is no memory. */
bool usc_case_find_loss(usc_case *c, double *out);

/** How many of those marked (NULL: of all) are zero or subnormal in float32 and another
 * number in truth; *others: how many are not. */
int64_t usc_case_underflows(usc_case *c, const uint8_t *among, int64_t *others);

/** Finds out whether float32 and float64 compute one function, once for an output, and
 * goes on with `then`, which reads c->trust.known. */
usc_status usc_case_trust(usc_case *c, usc_case_stage *then, usc_error *err);

usc_case_stage usc_case_float;     /* a float output, from its first look on */
usc_case_stage usc_case_excuses;   /* where float32 fails as well */
usc_case_stage usc_case_steps;     /* what took another side of a step */
usc_case_stage usc_case_free;      /* what the operator does not promise */
usc_case_stage usc_case_corners;   /* sides of corners */
usc_case_stage usc_case_not_exact; /* what passed, where one value alone is right */
usc_case_stage usc_case_exact;     /* what must agree in every bit */
usc_case_stage usc_case_bytes;     /* dtypes that nobody here computes with */

/** Whether an output is to be held against narrower formats, before its finding stands;
 * that. */
bool usc_case_may_be_narrow(const usc_case *c);
usc_case_stage usc_case_narrow;

/** Whether an output may be off by one factor everywhere; then that. */
bool usc_case_may_have_factor(const usc_case *c);
usc_case_stage usc_case_factor;

/** Whether all of an output may lose more than float32 does in any run; then that. The
 * same of an output that is kept: then the ties. */
bool usc_case_may_lose(usc_case *c);
usc_case_stage usc_case_lost, usc_case_keep_loss;

/** What an element loses beside runs of float32: a byte each, outputs are large. */
enum usc_case_loses { USC_LOST_UNKNOWN, USC_LOST_KNOWN, USC_LOST_FAR_MORE };

/** Marks the parts of an output (rows, columns, heads, some elements side by side) of which
 * half lose far more than runs of float32 do; false where there is none. `lost`: of each
 * element, a usc_case_loses. */
bool usc_case_part_loses(const usc_case *c, const uint8_t *lost, uint8_t *marks);

/** Keeps S of the look that ends, for that. */
usc_status usc_case_lost_scale(usc_case *c, usc_error *err);

/** Whether a result that is halfway between two numbers may be the wrong one; then that,
 * and the same of an output that is kept: then KINDS. */
bool usc_case_may_tie(usc_case *c);
usc_case_stage usc_case_ties;
usc_case_stage usc_case_keep_exact;
/** Whether an output is to be held to another reading of the call before its finding
 * stands, or was just now; that. */
bool usc_case_may_read(const usc_case *c);

/** Whether an output is to be held to the steps into which torch takes the call apart,
 * or was just now; that. */
bool usc_case_may_take_apart(const usc_case *c);
usc_case_stage usc_case_take_apart;

/** Whether the present piece is the one of its call, drawn by the call's number, of which
 * what many runs of float32 lose is asked as well; true where it is no piece. */
bool usc_case_is_sample(usc_case *c);

/** Whether what was seen of a piece is far worse than what settled the call. Keeps what is
 * seen of it at first sight; takes what is accused of it, when its finding stands, for what
 * settles the call. */
bool usc_case_is_far_worse(const usc_case *c);
void usc_case_see(usc_case *c, const usc_judgement *j);
void usc_case_settle(usc_case *c);

/** Whether an output that is accused is to be held to what its callable's own roundings
 * to 16 bits cost; then that, and `resume` where they do not explain it. The same of one
 * that is kept. */
bool usc_case_may_chain(const usc_case *c);
usc_status usc_case_chain(usc_case *c, usc_case_stage *resume);
bool usc_case_may_keep_chain(const usc_case *c);
usc_case_stage usc_case_keep_chain;

/** What lies beyond its sets was judged. */
usc_case_stage usc_case_chain_weighed;

/** R of the call's own reading was given: what is to be said of it, and what hangs on
 * something that the CPU refuses. In the end these elements count. */
void usc_case_read_own(usc_case *c);
void usc_case_refuse(usc_case *c);
usc_case_stage usc_case_read;

/** Of whole numbers that runs on moved inputs gave: what the call's steps settle, all of
 * which are exact, is right alone. */
usc_case_stage usc_case_settled;
usc_case_stage usc_case_keep_settled; /* of an output that is kept */

/** c->marks go free; c->spared is the output without them. */
usc_case_stage usc_case_freed;

/** Marks in `open` where the output differs from the right one and is not an index that
 * chooses a value as good. `got` and `want`: both in a row. */
void usc_case_mark_open(usc_case *c, const usc_choice *choice, const void *got,
                        const void *want, uint8_t *open);

/** Where the truth is no number: of which kind a device's may be; then OVERFLOWS. Of an
 * output that is kept. */
usc_case_stage usc_case_kinds;

/* ---- case_look.c, of an output that is kept ---- */

/** A judge that has seen no replay. */
usc_status usc_case_renew_judge(usc_case *c, usc_error *err);

/** Feeds the judge the replay, the loss (*fed: whether it fits) that was given. */
usc_status usc_case_feed_replay(usc_case *c, usc_error *err);
usc_status usc_case_feed_loss(usc_case *c, bool *fed, usc_error *err);

/** In the place of usc_case_float, where c->kept is not NULL. */
usc_case_stage usc_case_keep_float;

/* ---- case_finding.c ---- */

/** A copy that lives as long as the present output; "" where there is no memory, which
 * the driver tells. */
const char *usc_case_text(usc_case *c, const char *text);

/** A finding on the present output without numbers. */
void usc_case_conclude(usc_case *c, usc_verdict verdict, const char *format, ...)
    USC_PRINTF(3, 4);

/** Adds a note to the present finding. */
void usc_case_note(usc_case *c, const char *format, ...) USC_PRINTF(2, 3);

/** Counts elements that went free, and says so where they are many. */
void usc_case_excuse(usc_case *c, usc_excuse excuse, int64_t count);

/** The turn from one value to another; a new one where there is room, else NULL. */
usc_turn *usc_case_turn(usc_case *c, double from, double to);

/** `wrong` for the elements in c->open, which have to be `want`. */
void usc_case_differ(usc_case *c, const usc_tensor *got, const usc_tensor *want);

/** `undefined`: of n_differ elements all went free. */
void usc_case_undefined(usc_case *c, int64_t n_differ);

/** Copies c->f to the findings of the case. */
usc_status usc_case_keep(usc_case *c, usc_error *err);

#endif
