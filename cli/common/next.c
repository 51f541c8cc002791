// SPDX-License-Identifier: Apache-2.0
// What to type after a result, for who looks on; programs read results, and get none.
#include "cli.h"

#include <stdarg.h>
#include <unistd.h>

static bool begin(void)
{
    if (isatty(STDERR_FILENO) == 0) return false;
    (void)fflush(stdout); /* the result comes first */
    (void)fputs("next: ", stderr);
    return true;
}

void cli_next_is(const char *format, ...)
{
    va_list args;
    if (!begin()) return;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

void cli_next_around(const char *before, char *const *command, const char *after)
{
    if (!begin()) return;
    (void)fputs(before, stderr);
    for (; *command != NULL; command++) {
        (void)fputc(' ', stderr);
        cli_put_word(stderr, *command);
    }
    (void)fprintf(stderr, "%s\n", after);
}
