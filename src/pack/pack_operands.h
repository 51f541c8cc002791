// SPDX-License-Identifier: Apache-2.0
// The operands of one output as a pack or a pair of files has them, and the case that
// they answer. Neighbours: pack_answer.c (answers what a case asks), pack_row.c
// (results), pack_judge.c and pack_pair.c (bring operands and outputs together).
#ifndef USC_PACK_OPERANDS_H
#define USC_PACK_OPERANDS_H

#include <ulpscope/case.h>
#include <ulpscope/cause.h>
#include <ulpscope/pack.h>
#include <ulpscope/result.h>
#include <ulpscope/safetensors.h>
#include <ulpscope/standard.h>

#include "base/arena.h"

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
    const usc_safetensor *jump_at, *jump_values;
    const usc_safetensor *unpromised; /* at corners, or what the integer type lacks */
    const usc_safetensor *side_low, *side_high; /* F64: of corners */
    const usc_safetensor *usual; /* [K, ...]: what conversions give where it is open */
    const usc_safetensor *write_at, *writes, *write_rows; /* updates that meet */
    const usc_safetensor *added; /* the most that one accumulator loses */
    const usc_safetensor *kinds; /* of NaN and Inf that may stand for another: 1, 2, 4 */
    const usc_safetensor *choice_values; /* NULL: the output is no index */
    usc_choice choice;                   /* its values are not set here */
    const char *usual_dtype;             /* that the operator gives; NULL: nobody knows */
    bool other_dtype;                    /* the device gave one that is not allowed */
    double fan_in;
    double products;   /* fan-in of the closed form; 0: there is none */
    double natural;    /* size of the inputs where the truth is nothing beside them */
    int replays;       /* that S and N of MORE come from */
    int far, noise;    /* losses that FAR and NOISE have besides */
    bool never_rounds; /* the operator gives the only right value, to the last bit */
    bool functions;    /* float32 and float64 compute two functions */
    bool overflows;    /* a step inside overflows float32 */
    bool pairs;        /* complex, the last axis has real and imaginary part */
    bool rounding;     /* the operator gives the exact value, whatever the input */
    bool whole;        /* no order of adding rounds */
    bool exact;        /* held to the reference's bits, also if it is a float */
    bool free;         /* the operator promises no values */
    bool bare;         /* nothing is known but the reference, and maybe a scale in S */
} usc_pack_operands;

/** What a finding of our own rule was made from; device NULL where it is none on an
 * output. */
typedef struct usc_pack_seen {
    const usc_safetensor *device;
    usc_pack_operands operands;
} usc_pack_seen;

/** Arguments of a call. */
typedef struct usc_pack_inputs {
    const usc_safetensors *tensors;
    int n;
    const struct usc_pack_input {
        const char *name, *argument; /* in `tensors`; of the operator */
    } * items;
} usc_pack_inputs;

/** Where memory of one call and settings come from. */
typedef struct usc_pack_work {
    usc_arena *arena; /* reset by the caller, call by call */
    const usc_pack_options *options;
    usc_case *c; /* of the call at hand */
    usc_standard standard;
    bool foreign;        /* the standard is not our own rule */
    usc_pack_seen *seen; /* of findings, as many as there may be */
    struct usc_pack_opinions {
        int n; /* as many as there are outputs, at most */
        usc_opinion *items;
        const char **paths;
    } said;
} usc_pack_work;

/** Parses the standard of the options. Errors: USC_E_ARG (names what there is). */
USC_NODISCARD usc_status usc_pack_standard(usc_pack_work *w, usc_error *err);

/** Opens the case of a call with at most n_most outputs. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_pack_open_case(usc_pack_work *w, int n_most, usc_error *err);

/** Adds the finding on one output to the case. Errors: USC_E_NOMEM, USC_E_CORRUPT and
 * those of the judge that mean a bad pack. */
USC_NODISCARD usc_status usc_pack_output(usc_pack_work *w, const usc_safetensor *device,
                                         const usc_pack_operands *o, usc_error *err);

/** Adds a finding without numbers. */
USC_NODISCARD usc_status usc_pack_say(const usc_pack_work *w, usc_verdict verdict,
                                      const char *path, usc_error *err,
                                      const char *format, ...) USC_PRINTF(5, 6);

/** Whether a tensor holds floats; whether two have the same sizes. */
bool usc_pack_is_float(const usc_safetensor *t);
bool usc_pack_same_shape(const usc_tensor *a, const usc_tensor *b);

/** The dtype as torch spells it, or as the file does where the table lacks it. */
const char *usc_pack_dtype_text(const usc_safetensor *t);

/**
 * Fills in what the findings of a call say (verdict, numbers, sentence, metrics) and puts
 * the row. `row` brings what identifies the call.
 *
 * Errors:  USC_E_NOMEM, those of usc_result_put.
 */
USC_NODISCARD usc_status usc_pack_put(const usc_pack_work *w, usc_result *result,
                                      usc_result_row *row, usc_error *err);

/** Names the cause of what the case accuses, if the files show it; NONE else. `inputs`
 * may be NULL. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_pack_cause(const usc_pack_work *w,
                                        const usc_pack_inputs *inputs,
                                        usc_cause_found *out, usc_error *err);

/** Puts a row that usc_pack_put has filled in once more, with its cause. */
USC_NODISCARD usc_status usc_pack_put_cause(const usc_pack_work *w, usc_result *result,
                                            usc_result_row *row, const char *cause,
                                            usc_error *err);

/** Creates OUT/result.db for a run on files. */
USC_NODISCARD usc_status usc_pack_begin(const usc_pack_work *w, const usc_run *run,
                                        usc_result **out, usc_error *err);

/** Says that all is judged, with remarks (lines) for the report. */
USC_NODISCARD usc_status usc_pack_end(usc_result *result, int64_t n_selected,
                                      const char *remarks, usc_error *err);

/** Nanoseconds of a clock that only goes forward. */
int64_t usc_pack_now(void);

#endif
