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

/** What an output is held against: as it was kept (kept.h). Tensors may be NULL but for
 * the reference. */
typedef struct usc_pack_operands {
    const char *path, *op;
#define USC_KEPT_FIELD(name) const usc_safetensor *name;
    USC_KEPT_LIST(USC_KEPT_FIELD)
#undef USC_KEPT_FIELD
    USC_KEPT_FACTS
    usc_choice how;          /* its values are `choice` */
    const char *usual_dtype; /* that the operator gives; NULL: nobody knows */
    bool other_dtype;        /* the device gave one that is not allowed */
    bool bare; /* nothing is known but the reference, and maybe a scale in s1 to s4 */
    const char *reading; /* the want that asks for it; "": the call's own */
    const char *refused; /* code of the excuse for `excepted`; "": none */
    const char *note;    /* what is to be said where it stands */
    int n_readings;      /* of the call, beside its own: */
    const struct usc_pack_operands *readings;
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
    const char *lacks;   /* USC_LACKS_...: the side of it that nobody gave; NULL: none */
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

/** Adds that it cannot be judged because one side (USC_LACKS_...) was not given. */
USC_NODISCARD usc_status usc_pack_lack(usc_pack_work *w, const char *side,
                                       usc_verdict verdict, const char *why,
                                       usc_error *err);

/** Whether the operands of an output fit together. Errors: USC_E_CORRUPT. */
USC_NODISCARD usc_status usc_pack_check(const usc_pack_operands *o, usc_error *err);

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
