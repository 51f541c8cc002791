// SPDX-License-Identifier: Apache-2.0
// One output of one call: its operands as they were stored, and what is found of it.
// Neighbours: pack_output.c (judges one), pack_float.c (one of floats), pack_row.c (words
// and rows), pack_judge.c and pack_pair.c (bring operands and outputs together).
#ifndef USC_PACK_FINDING_H
#define USC_PACK_FINDING_H

#include <ulpscope/judge.h>
#include <ulpscope/pack.h>
#include <ulpscope/result.h>
#include <ulpscope/safetensors.h>
#include <ulpscope/standard.h>

#include "base/arena.h"

enum { USC_PACK_EXAMPLES = 10 };

enum { USC_PACK_POOLED = 3 };

/** How an index output chose: docs/pack-format.md, "choice". */
typedef struct usc_pack_choice {
    const usc_safetensor *values; /* NULL: this output is no index */
    int dim;                      /* -1: over all values, flattened */
    bool once;                    /* no index comes twice along dim */
    bool cumulative;              /* an index is not behind its own place */
    double slack;                 /* values that differ by this share are equal */
    int n_window;                 /* pooled dimensions, the last ones; 0: no pooling */
    int64_t kernel[USC_PACK_POOLED], stride[USC_PACK_POOLED];    /* kernel 0: adaptive, */
    int64_t padding[USC_PACK_POOLED], dilation[USC_PACK_POOLED]; /* -1: anywhere */
} usc_pack_choice;

/* The looks of a check at a float output, in order; each has its own S and N. */
typedef enum usc_pack_look {
    USC_PACK_SLOPE, /* a closed form's S and no N */
    USC_PACK_FIRST, /* one replay */
    USC_PACK_SECOND,
    USC_PACK_MORE,  /* all replays, with an appeal */
    USC_PACK_FAR,   /* what float32 loses further away counts as well */
    USC_PACK_NOISE, /* ... and what it loses where its steps round otherwise */
    USC_PACK_LOOKS
} usc_pack_look;

enum { USC_PACK_FLUSHED = 3 };

/** What an output is held against. Tensors may be NULL but for the reference. */
typedef struct usc_pack_operands {
    const char *path, *op;
    const usc_safetensor *reference, *yardstick, *native;
    const usc_safetensor *s[USC_PACK_LOOKS]; /* up to MORE; NULL: nowhere above |R| */
    const usc_safetensor *n[USC_PACK_LOOKS]; /* from FIRST on; NULL: likewise */
    const usc_safetensor *flushed[USC_PACK_FLUSHED];
    const usc_safetensor *jump_at, *jump_values, *unpromised;
    const usc_safetensor *side_low, *side_high; /* F64: what is open, is between these */
    const usc_safetensor *usual; /* [K, ...]: integers that may stand where it is open */
    const usc_safetensor *kinds; /* of NaN and Inf that may stand for another: 1, 2, 4 */
    const char *why_unpromised;
    usc_pack_choice choice;
    double fan_in;
    double products;   /* fan-in of the closed form; 0: there is none */
    double natural;    /* size of the inputs where the truth is nothing beside them */
    int replays;       /* that S and N of MORE come from */
    int far, noise;    /* losses that FAR and NOISE have besides */
    bool never_rounds; /* the operator gives the only right value, to the last bit */
    bool overflows;    /* a step inside overflows float32 */
    bool pairs;        /* complex, the last axis has real and imaginary part */
    bool rounding;     /* the operator gives the exact value, whatever the input */
    bool free;         /* the operator promises no values */
    bool bare;         /* nothing is known but the reference, and maybe a scale in S */
} usc_pack_operands;

typedef struct usc_pack_finding {
    const char *path;
    usc_verdict verdict;
    bool measured;    /* j holds numbers */
    bool ties;        /* only ties were broken otherwise */
    bool wide;        /* float64: the reference knows no more digits */
    int64_t n_shared; /* elements at which float32 overflows just as the device does */
    usc_judgement j;
    char reason[256];
    int ndim;
    int64_t sizes[USC_MAX_DIMS];
    int n_examples;
    usc_example examples[USC_PACK_EXAMPLES];
    const char *standard; /* judged by this one; NULL: our own */
    int n_metrics;        /* of that standard */
    usc_opinion_metric metrics[USC_OPINION_METRICS];
} usc_pack_finding;

/** Where memory of one call and settings come from. */
typedef struct usc_pack_work {
    usc_arena *arena; /* reset by the caller, call by call */
    const usc_pack_options *options;
    usc_standard standard;
    bool foreign; /* the standard is not our own rule */
} usc_pack_work;

/** Parses the standard of the options. Errors: USC_E_ARG (names what there is). */
USC_NODISCARD usc_status usc_pack_standard(usc_pack_work *w, usc_error *err);

/** Judges one output. Errors: USC_E_NOMEM and those of the judge that mean a bad pack. */
USC_NODISCARD usc_status usc_pack_output(const usc_pack_work *w,
                                         const usc_safetensor *device,
                                         const usc_pack_operands *o,
                                         usc_pack_finding *out, usc_error *err);

/** Judges an output of floats; shapes were checked. Errors: as usc_pack_output. */
USC_NODISCARD usc_status usc_pack_float(const usc_pack_work *w,
                                        const usc_safetensor *device,
                                        const usc_pack_operands *o, usc_pack_finding *f,
                                        usc_error *err);

/** `wrong` for the elements marked in `open`, which have to be exact. */
void usc_pack_say_differ(const usc_tensor *device, const usc_tensor *want,
                         const uint8_t *open, int64_t n, usc_pack_finding *f);

/** `undefined`: only elements differ of which nothing is promised. */
void usc_pack_say_undefined(const usc_pack_operands *o, int64_t n, usc_pack_finding *f);

bool usc_pack_unpromised(const usc_pack_operands *o, int64_t i);

/** n zeros in the arena; NULL where there is no memory. */
uint8_t *usc_pack_marks(const usc_pack_work *w, int64_t n);

/** Sets USC_E_NOMEM. */
usc_status usc_pack_no_memory(const char *path, usc_error *err);

/** A finding without numbers. */
void usc_pack_say(usc_pack_finding *f, usc_verdict verdict, const char *path,
                  const char *format, ...) USC_PRINTF(4, 5);

/** Marks in `open` (zeroed, one per element) where `got` differs from `want` and is not
 * an index that chooses a value as good. Both int64 where the choice has values. */
void usc_pack_mark_open(const usc_pack_work *w, const usc_pack_choice *choice,
                        const usc_tensor *got, const usc_tensor *want, uint8_t *open);

/** The dtype as torch spells it, or as the file does where the table lacks it. */
const char *usc_pack_dtype_text(const usc_safetensor *t);

/**
 * Fills in what the findings of a call say (verdict, numbers, sentence, metrics) and puts
 * the row. `row` brings what identifies the call.
 *
 * Errors:  USC_E_NOMEM, those of usc_result_put.
 */
USC_NODISCARD usc_status usc_pack_put(const usc_pack_work *w, usc_result *result,
                                      usc_result_row *row, const usc_pack_finding *found,
                                      int n_found, usc_error *err);

/** Creates OUT/result.db for a run on files. */
USC_NODISCARD usc_status usc_pack_begin(const usc_pack_work *w, const usc_run *run,
                                        usc_result **out, usc_error *err);

/** Says that all is judged, with remarks (lines) for the report. */
USC_NODISCARD usc_status usc_pack_end(usc_result *result, int64_t n_selected,
                                      const char *remarks, usc_error *err);

/** Nanoseconds of a clock that only goes forward. */
int64_t usc_pack_now(void);

#endif
