// SPDX-License-Identifier: Apache-2.0
// One value out of JSON that is at hand already.
#ifndef USC_CALL_VALUE_JSON_H
#define USC_CALL_VALUE_JSON_H

#include <ulpscope/value.h>

#include "json/json.h"

/** As usc_arguments_read reads it; OTHER where it is no value. Memory: the arena's, which
 * says whether there was any. */
usc_value usc_value_of_json(const usc_json *from, usc_arena *arena);

#endif
