// SPDX-License-Identifier: Apache-2.0
// The name that somebody meant who wrote another one.
#ifndef SIM_NEAREST_H
#define SIM_NEAREST_H

#include <stddef.h>

/* The i-th name; NULL beyond the last. */
typedef const char *(*sim_name)(const void *ctx, size_t i);

/* Of all names the one that usc_likeness finds most alike; NULL where there are none. */
const char *sim_nearest(const char *word, size_t n, sim_name name, const void *ctx);

#endif
