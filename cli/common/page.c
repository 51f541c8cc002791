// SPDX-License-Identifier: Apache-2.0
// Help and parsing out of one table.
#include "common/page.h"

#include <ctype.h>
#include <getopt.h>
#include <string.h>

#include "cli.h"

enum { WIDTH = 88, COLUMN = 24, MOST_OPTIONS = 64 };

/* ---- help ---- */

/* Prints words from column `at` on, with a hanging indent; ends the line. */
static void wrap(const char *text, int at, int indent, FILE *to)
{
    bool first = true;
    while (*text != '\0') {
        const int n = (int)strcspn(text, " ");
        if (!first && at + 1 + n > WIDTH) {
            (void)fprintf(to, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        (void)fprintf(to, "%s%.*s", first ? "" : " ", n, text);
        at += n + !first;
        first = false;
        text += n + (text[n] == ' ');
    }
    (void)fputc('\n', to);
}

/* Whether its value may be left out. */
static bool takes_any(const cli_entry *e)
{
    return e->value != NULL && e->value[0] == '=';
}

static void print_entry(const cli_page *page, const cli_entry *e, FILE *to)
{
    char name[80], help[768];
    const bool letter = e->key < 128;
    char value[64] = "";
    if (e->value != NULL && e->value[0] == '[') /* of one of these alone */
        (void)snprintf(value, sizeof value, "%.*s", (int)strlen(e->value) - 2,
                       e->value + 1);
    else if (takes_any(e))
        (void)snprintf(value, sizeof value, "[%s]", e->value);
    else if (e->value != NULL)
        (void)snprintf(value, sizeof value, "%s", e->value);
    int n = 0;
    if (letter)
        n = snprintf(name, sizeof name, "  -%c%s", e->key, e->name != NULL ? ", " : "");
    (void)snprintf(name + n, sizeof name - (size_t)n, "%s%s%s%s%s", letter ? "" : "  ",
                   e->name == NULL                                  ? ""
                   : page->one_dash && strchr(e->name, '-') == NULL ? "-"
                                                                    : "--",
                   e->name != NULL ? e->name : "",
                   *value != '\0' && !takes_any(e) ? " " : "", value);
    if (e->initial != NULL)
        (void)snprintf(help, sizeof help, "%s (default %s)", e->help, e->initial);
    else
        (void)snprintf(help, sizeof help, "%s", e->help);
    const int used = (int)strlen(name);
    if (used + 2 > COLUMN)
        (void)fprintf(to, "%s\n%*s", name, COLUMN, "");
    else
        (void)fprintf(to, "%-*s", COLUMN, name);
    wrap(help, COLUMN, COLUMN, to);
}

/* Paragraphs, each line of which is one; lines that begin with a space as they are. */
static void print_about(const char *text, FILE *to)
{
    char line[1024];
    while (*text != '\0') {
        const size_t n = strcspn(text, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (line[0] == ' ' || line[0] == '\0')
            (void)fprintf(to, "%s\n", line);
        else
            wrap(line, 0, 0, to);
        text += n + (text[n] == '\n');
    }
}

void cli_page_print(const cli_page *page, FILE *to)
{
    (void)fprintf(to, "usage: ulpscope %s %s\n\n", page->command, page->usage);
    print_about(page->about, to);
    for (int l = 0; page->options[l] != NULL; l++) {
        if (l == 0) (void)fputc('\n', to);
        for (const cli_entry *e = page->options[l]; e->key != 0; e++)
            if (e->help != NULL) print_entry(page, e, to);
    }
    if (page->examples != NULL) (void)fprintf(to, "\nexamples:\n%s", page->examples);
    char codes[512];
    (void)snprintf(codes, sizeof codes, "exit code: %s", page->codes);
    (void)fputc('\n', to);
    wrap(codes, 0, 0, to);
}

/* ---- parsing ---- */

static const cli_entry *entry_of(const cli_page *page, int key)
{
    for (int l = 0; page->options[l] != NULL; l++)
        for (const cli_entry *e = page->options[l]; e->key != 0; e++)
            if (e->key == key) return e;
    return NULL;
}

typedef struct parser {
    char letters[2 * MOST_OPTIONS + 3];
    struct option longs[MOST_OPTIONS + 1];
} parser;

static parser parser_of(const cli_page *page)
{
    parser p = {.letters = ""};
    size_t n = 0, n_letters = 0;
    if (page->stops) p.letters[n_letters++] = '+';
    p.letters[n_letters++] = ':';
    for (int l = 0; page->options[l] != NULL; l++)
        for (const cli_entry *e = page->options[l]; e->key != 0 && n < MOST_OPTIONS;
             e++) {
            const int has = e->value == NULL ? no_argument
                            : takes_any(e)   ? optional_argument
                                             : required_argument;
            if (e->name != NULL)
                p.longs[n++] = (struct option){e->name, has, NULL, e->key};
            if (e->key >= 128) continue;
            p.letters[n_letters++] = (char)e->key;
            if (has == required_argument) p.letters[n_letters++] = ':';
        }
    return p;
}

static void say_unknown(const cli_page *page, const char *given)
{
    const char *best = NULL;
    char word[40] = "";
    for (int i = 0; page->elsewhere != NULL && page->elsewhere[i] != NULL; i += 2)
        if (strcmp(given, page->elsewhere[i]) == 0) {
            cli_fail("%s", page->elsewhere[i + 1]);
            return;
        }
    if (strncmp(given, "--", 2) == 0)
        (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(given + 2, "="),
                       given + 2);
    for (int l = 0; word[0] != '\0' && page->options[l] != NULL; l++)
        for (const cli_entry *e = page->options[l]; e->key != 0; e++)
            if (e->name != NULL) (void)cli_nearer(word, e->name, &best);
    if (best != NULL)
        cli_fail("there is no option '%s'; did you mean --%s? See ulpscope %s --help",
                 given, best, page->command);
    else
        cli_fail("there is no option '%s'; see ulpscope %s --help", given, page->command);
}

/* "[x|y|z]": whether a value is among them. */
static bool is_choice(const char *choices, const char *value)
{
    const size_t n = strlen(value);
    for (const char *p = choices + 1; *p != '\0';) {
        const size_t size = strcspn(p, "|]");
        if (size == n && strncmp(p, value, n) == 0) return true;
        p += size + 1;
    }
    return false;
}

static int refuse_choice(const cli_page *page, const cli_entry *e, const char *value)
{
    cli_fail("--%s '%s': one of %.*s is needed; see ulpscope %s --help", e->name, value,
             (int)strlen(e->value) - 2, e->value + 1, page->command);
    return '?';
}

int cli_page_key(const cli_page *page, int argc, char **argv)
{
    const parser p = parser_of(page);
    opterr = 0;
    return page->one_dash ? getopt_long_only(argc, argv, p.letters, p.longs, NULL)
                          : getopt_long(argc, argv, p.letters, p.longs, NULL);
}

int cli_next(const cli_page *page, int argc, char **argv)
{
    const int at = optind;
    const int key = cli_page_key(page, argc, argv);
    const cli_entry *e = entry_of(page, key == '?' || key == ':' ? optopt : key);
    if (key == -1) return -1;
    if (key != '?' && key != ':')
        return e->value != NULL && e->value[0] == '[' && !is_choice(e->value, optarg)
                   ? refuse_choice(page, e, optarg)
                   : key;
    const char *given = argv[optind > at ? optind - 1 : at];
    const bool is_long = strncmp(given, "--", 2) == 0 && e != NULL && e->name != NULL;
    if (key == ':' && e != NULL)
        is_long ? cli_fail("option --%s needs a value; see ulpscope %s --help", e->name,
                           page->command)
                : cli_fail("option -%c needs a value; see ulpscope %s --help", optopt,
                           page->command);
    else if (optopt != 0 && e != NULL && e->name != NULL)
        cli_fail("option --%s takes no value; see ulpscope %s --help", e->name,
                 page->command);
    else if (optopt != 0 && !is_long && strncmp(given, "--", 2) != 0)
        cli_fail("there is no option '-%c'; see ulpscope %s --help", optopt,
                 page->command);
    else
        say_unknown(page, given);
    return '?';
}
