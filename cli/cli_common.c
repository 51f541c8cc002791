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

/* Letters to put in, take out or change to get from one word to another. */
static int distance(const char *a, const char *b)
{
    enum { MOST = 32 };
    int row[MOST + 1];
    const int n_a = (int)strlen(a), n_b = (int)strlen(b);
    if (n_a > MOST || n_b > MOST) return MOST;
    for (int j = 0; j <= n_b; j++)
        row[j] = j;
    for (int i = 1; i <= n_a; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= n_b; j++) {
            const int above = row[j], change = corner + (a[i - 1] != b[j - 1]);
            const int least = above < row[j - 1] ? above + 1 : row[j - 1] + 1;
            row[j] = change < least ? change : least;
            corner = above;
        }
    }
    return row[n_b];
}

bool cli_nearer(const char *given, const char *name, const char **best)
{
    const int n = distance(given, name);
    const int limit = (int)strlen(name) / 3 + 1;
    if (n > limit || (*best != NULL && distance(given, *best) <= n)) return false;
    *best = name;
    return true;
}

static void say_unknown(const char *command, const char *given,
                        const struct option *longs)
{
    const char *best = NULL;
    char word[40] = "";
    if (strncmp(given, "--", 2) == 0)
        (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(given + 2, "="),
                       given + 2);
    for (; word[0] != '\0' && longs->name != NULL; longs++)
        (void)cli_nearer(word, longs->name, &best);
    if (best != NULL)
        cli_fail("%s has no option '%s'; did you mean --%s? See ulpscope help %s",
                 command, given, best, command);
    else
        cli_fail("%s has no option '%s'; see ulpscope help %s", command, given, command);
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
        say_unknown(argv[0], given, longs);
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
