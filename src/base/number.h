// SPDX-License-Identifier: Apache-2.0
// Numbers as text, always with a point: a host program may have set a locale in which
// strtod() and printf() want a comma.
#ifndef USC_BASE_NUMBER_H
#define USC_BASE_NUMBER_H

#include <stdarg.h>
#include <stddef.h>

#include <ulpscope/api.h>

/** snprintf and vsnprintf in the locale "C", whatever the program's is. */
int usc_format(char *out, size_t size, const char *format, ...) USC_PRINTF(3, 4);
int usc_format_list(char *out, size_t size, const char *format, va_list args)
    USC_PRINTF(3, 0);

/** strtod in the locale "C": what it read ends at *end, `text` itself where nothing did.
 */
double usc_parse_number(const char *text, char **end);

enum { USC_NUMBER_SIZE = 32 };

/** The fewest digits that read back as the number, and always a float's, as Python's
 * repr() has them: "2.0", "0.1", "1e-05"; "nan", "inf", "-inf". */
void usc_number_text(double v, char out[static USC_NUMBER_SIZE]);

#endif
