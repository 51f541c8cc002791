// SPDX-License-Identifier: Apache-2.0
// Option parsing, messages and the terminal, for all subcommands.
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("ulpscope: ", stderr);
    (void)vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return CLI_TROUBLE;
}

static const char *name_of(int value, const struct option *longs)
{
    for (; longs->name != NULL; longs++)
        if (longs->val == value) return longs->name;
    return "";
}

int cli_option(int argc, char **argv, const char *shorts, const struct option *longs)
{
    opterr = 0;
    const int at = optind;
    const int value = getopt_long(argc, argv, shorts, longs, NULL);
    if (value != '?' && value != ':') return value;
    const char *given = argv[optind > at ? optind - 1 : at];
    if (value == ':' && optopt != 0 && strncmp(given, "--", 2) == 0)
        cli_fail("option --%s needs a value; see ulpscope help %s",
                 name_of(optopt, longs), argv[0]);
    else if (value == ':')
        cli_fail("option -%c needs a value; see ulpscope help %s", optopt, argv[0]);
    else if (optopt != 0 && name_of(optopt, longs)[0] != '\0')
        cli_fail("option --%s takes no value; see ulpscope help %s",
                 name_of(optopt, longs), argv[0]);
    else if (optopt != 0)
        cli_fail("%s has no option '-%c'; see ulpscope help %s", argv[0], optopt,
                 argv[0]);
    else
        cli_fail("%s has no option '%s'; see ulpscope help %s", argv[0], given, argv[0]);
    return '?';
}

bool cli_number(const char *option, const char *text, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0) {
        cli_fail("%s '%s': a whole number is needed", option, text);
        return false;
    }
    *out = v;
    return true;
}

int cli_close_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    return cli_fail("cannot write to standard output: %s", strerror(errno));
}

int cli_width(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const char *columns = getenv("COLUMNS");
    const int n = columns != NULL ? atoi(columns) : 0;
    return n > 0 && n < 1000 ? n : 100;
}

int cli_color(const char *when)
{
    if (strcmp(when, "always") == 0) return 1;
    if (strcmp(when, "never") == 0) return 0;
    if (strcmp(when, "auto") == 0) {
        const char *no_color = getenv("NO_COLOR");
        const char *term = getenv("TERM");
        return isatty(STDOUT_FILENO) && (no_color == NULL || *no_color == '\0') &&
               !(term != NULL && strcmp(term, "dumb") == 0);
    }
    cli_fail("--color '%s': auto, always or never is needed", when);
    return -1;
}
