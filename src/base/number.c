// SPDX-License-Identifier: Apache-2.0
// The locale is changed for this thread and this one call; the contracts stand in
// number.h.
#include "base/number.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct swapped {
    locale_t plain, host;
} swapped;

/* Without memory for a locale (the C library's own "C" takes none) the host's is kept. */
static swapped enter(void)
{
    swapped s = {.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (s.plain != (locale_t)0) s.host = uselocale(s.plain);
    return s;
}

static void leave(swapped s)
{
    if (s.plain == (locale_t)0) return;
    (void)uselocale(s.host);
    freelocale(s.plain);
}

int usc_format_list(char *out, size_t size, const char *format, va_list args)
{
    const swapped s = enter();
    const int n = vsnprintf(out, size, format, args);
    leave(s);
    return n;
}

int usc_format(char *out, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = usc_format_list(out, size, format, args);
    va_end(args);
    return n;
}

double usc_parse_number(const char *text, char **end)
{
    const swapped s = enter();
    const double value = strtod(text, end);
    leave(s);
    return value;
}
