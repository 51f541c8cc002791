// SPDX-License-Identifier: Apache-2.0
// Option parsing, messages and the terminal, for all subcommands.
#include "cli.h"
#include "common/progress.h"

#include <ulpscope/x/pattern.h>

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *command; /* that is run; NULL: none that says its name */

void cli_begin(const char *name)
{
    command = name;
    (void)cli_progress_clock();
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    cli_progress_hide();
    (void)fprintf(stderr, command != NULL ? "ulpscope %s: " : "ulpscope: ", command);
    (void)vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return CLI_TROUBLE;
}

bool cli_nearer(const char *given, const char *name, const char **best)
{
    enum { FAR_PERCENT = 65 }; /* "nan" is near "nun" (two of three letters) */
    const double like = usc_likeness(given, name);
    if (100 * like < FAR_PERCENT) return false;
    if (*best != NULL && usc_likeness(given, *best) >= like) return false;
    *best = name;
    return true;
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

bool cli_real(const char *text, double *out)
{
    char *end = NULL;
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0 || strspn(text, "0123456789.eE+-") != strlen(text))
        return false;
    *out = strtod_l(text, &end, plain);
    freelocale(plain);
    return end != text && *end == '\0' && isfinite(*out);
}

/* What a unit multiplies with: "", "B", "kB", "M", "GiB"; 0 for others. */
static double unit_of(const char *unit)
{
    static const char powers[] = "kmgt";
    double thousand = 1000, factor = 1;
    const char *power =
        *unit != '\0' ? strchr(powers, tolower((unsigned char)*unit)) : NULL;
    if (power != NULL) {
        unit++;
        if (*unit == 'i' || *unit == 'I') {
            thousand = 1024;
            unit++;
        }
        for (const char *p = powers; p <= power; p++)
            factor *= thousand;
    }
    if (*unit == 'b' || *unit == 'B') unit++;
    return *unit == '\0' ? factor : 0;
}

bool cli_size(const char *option, const char *text, int64_t *out)
{
    char number[32];
    double value = 0;
    const size_t digits = strspn(text, "0123456789.");
    size_t n = digits; /* 8e9 */
    if (digits > 0 && text[n] == 'e') n += 1 + strspn(text + n + 1, "0123456789");
    (void)snprintf(number, sizeof number, "%.*s", (int)n, text);
    const double factor = unit_of(text + n + strspn(text + n, " "));
    if (n < sizeof number && cli_real(number, &value) && value * factor >= 1) {
        *out = value * factor < 4e18 ? (int64_t)(value * factor) : (int64_t)4e18;
        return true;
    }
    cli_fail("%s '%s': a size is needed, e.g. 500MB, 6GiB or a number of bytes", option,
             text);
    return false;
}

bool cli_steps(usc_steps **steps, size_t *n)
{
    if (usc_steps_read(optarg, steps, n, NULL) == USC_OK) return true;
    cli_fail("--step '%s': no list of steps; write 2 or 2,5-8", optarg);
    return false;
}

bool cli_jobs(int *jobs)
{
    int64_t n;
    if (!cli_number("-j", optarg, &n)) return false;
    *jobs = n < 1 << 20 ? (int)n : 1 << 20;
    return true;
}

bool cli_import(const char *imports[CLI_MAX_IMPORTS], int *n)
{
    if (*n == CLI_MAX_IMPORTS) {
        cli_fail("more than %d --import", CLI_MAX_IMPORTS);
        return false;
    }
    imports[(*n)++] = optarg;
    return true;
}

bool cli_same_type(const char *a, const char *b)
{
    const size_t n = strcspn(a, ":");
    return n == strcspn(b, ":") && strncmp(a, b, n) == 0;
}

bool cli_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool cli_is_one_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

void cli_put_word(FILE *to, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789_@%+=:,./-";
    const bool quoted = word[0] == '\0' || word[strspn(word, plain)] != '\0';
    if (quoted) (void)fputc('\'', to);
    for (const char *c = word; *c != '\0'; c++) {
        if (*c == '\'')
            (void)fputs("'\\''", to);
        else
            (void)fputc(*c, to);
    }
    if (quoted) (void)fputc('\'', to);
}

bool cli_split_call(char *text, int64_t *call)
{
    char *mark = strrchr(text, '#');
    const size_t n = mark != NULL ? strspn(mark + 1, "0123456789") : 0;
    if (n == 0 || n > 18 || mark[1 + n] != '\0' || cli_is_folder(text)) return false;
    *call = strtoll(mark + 1, NULL, 10);
    *mark = '\0';
    return true;
}

bool cli_lies_below(usc_trace *t, int64_t below, int64_t call)
{
    usc_call read;
    while (below > call) {
        if (usc_trace_read_call(t, below, &read, NULL) != USC_OK) return false;
        below = read.parent;
    }
    return below == call;
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

bool cli_seconds(const char *option, const char *text, bool or_off, double *out)
{
    if (or_off && strcmp(text, "off") == 0) {
        *out = 0;
        return true;
    }
    if (cli_real(text, out) && isfinite(*out) && (*out > 0 || (or_off && *out >= 0)))
        return true;
    cli_fail("--%s must be a number of seconds above 0%s", option,
             or_off ? ", or off" : "");
    return false;
}

bool cli_time(const char *option, const char *text, double *out)
{
    static const char units[] = "smh";
    static const double seconds[] = {1, 60, 3600};
    char number[32];
    const size_t n = strlen(text);
    const char *unit = n > 0 ? strchr(units, text[n - 1]) : NULL;
    const size_t digits = unit != NULL && *unit != '\0' ? n - 1 : n;
    (void)snprintf(number, sizeof number, "%.*s", (int)digits, text);
    if (digits < sizeof number && strspn(number, "0123456789.") == digits &&
        cli_real(number, out) && *out > 0 && isfinite(*out)) {
        *out *= digits < n ? seconds[unit - units] : 1;
        return true;
    }
    cli_fail("%s: '%s' is no time; write 90s, 10m or 1h", option, text);
    return false;
}

void cli_put_text(FILE *to, const char *text)
{
    const usc_sink sink = usc_sink_stream(to);
    if (text == NULL)
        fputs("null", to);
    else
        (void)!usc_sink_json(&sink, text, NULL);
}

void cli_put_member(FILE *to, const char *name, const char *text)
{
    (void)fprintf(to, ", \"%s\": ", name);
    cli_put_text(to, text);
}
