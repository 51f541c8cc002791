// SPDX-License-Identifier: Apache-2.0
// What the files about planted faults share: fault_text.c and fault_lines.c read them,
// fault_table.c has them.
#ifndef SIM_FAULT_PARTS_H
#define SIM_FAULT_PARTS_H

#include <ulpscope_sim/fault.h>

typedef struct span {
    const char *at;
    size_t n;
} span;

typedef enum fault_section {
    FAULT_TOP,
    FAULT_WHEN,
    FAULT_WHERE,
    FAULT_PARAMS, /* the kind's own */
    FAULT_ANY,
} fault_section;

/* Takes one fault into the table, or refuses. */
typedef struct fault_taker {
    usc_status (*take)(struct fault_taker *self, const usc_sim_fault *f, usc_error *err);
} fault_taker;

/* A fault that nothing is known of yet; `text` is what will be told of it. */
usc_status fault_begin(usc_sim_fault *f, span text, usc_error *err);
usc_status fault_set_pattern(usc_sim_fault *f, span pattern, usc_error *err);
usc_status fault_set_kind(usc_sim_fault *f, span name, usc_error *err);
/* Keys of a section alone; the kind has to be set. */
usc_status fault_set(usc_sim_fault *f, fault_section section, span key, span value,
                     usc_error *err);
/* What only a whole fault shows to be wrong. */
usc_status fault_finish(const usc_sim_fault *f, usc_error *err);

/* Text, lines and files give their faults to the taker one by one. */
usc_status fault_read_text(const char *text, fault_taker *taker, usc_error *err);
usc_status fault_read_lines(const char *lines, const char *name, fault_taker *taker,
                            usc_error *err);
usc_status fault_read_file(const char *path, fault_taker *taker, usc_error *err);
usc_status fault_read_bug(span name, fault_taker *taker, usc_error *err);

/* What the kind makes of each value; the result as usc_sim_fault_apply() has it. */
int fault_map_all(const usc_sim_fault *fault, const usc_sim_elements *e);

/* A number in [0, 1) made of a seed and a count alone (splitmix64). */
double fault_chance(uint64_t seed, uint64_t i);

#endif
