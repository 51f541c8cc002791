// SPDX-License-Identifier: Apache-2.0
// The words of a clause on draws.
#include "draw/draws.h"

#include "base/number.h"

#include <stdarg.h>

bool usc_clause_set(usc_clause *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)usc_format_list(out->text, sizeof out->text, format, args);
    va_end(args);
    return true;
}
