// SPDX-License-Identifier: Apache-2.0
// The table of a command as a section of docs/reference/cli.md.
#include "common/page.h"

#include <string.h>

#include "cli.h"

/* Prose: what Markdown would take for marks of its own is escaped. */
static void put_prose(const char *text, size_t n, FILE *to)
{
    for (size_t i = 0; i < n; i++) {
        if (strchr("*_<[`\\", text[i]) != NULL) (void)fputc('\\', to);
        (void)fputc(text[i], to);
    }
}

/* Paragraphs, each of which is a line; lines that begin with a space are a block. */
static void put_about(const char *text, FILE *to)
{
    bool block = false;
    while (*text != '\0') {
        const size_t n = strcspn(text, "\n");
        const bool inside = text[0] == ' ';
        if (inside != block) (void)fputs(inside ? "\n```\n" : "```\n", to);
        block = inside;
        if (inside)
            (void)fwrite(text, 1, n, to);
        else
            put_prose(text, n, to);
        (void)fputc('\n', to);
        text += n + (text[n] == '\n');
    }
    if (block) (void)fputs("```\n", to);
}

static void put_option(const cli_page *page, const cli_entry *e, FILE *to)
{
    const bool letter = e->key < 128, long_one = e->name != NULL;
    const char *dash =
        page->one_dash && long_one && strchr(e->name, '-') == NULL ? "-" : "--";
    (void)fputs("- `", to);
    if (letter) (void)fprintf(to, "-%c%s", e->key, long_one ? ", " : "");
    if (long_one) (void)fprintf(to, "%s%s", dash, e->name);
    if (e->value != NULL && e->value[0] == '[')
        (void)fprintf(to, " %.*s", (int)strlen(e->value) - 2, e->value + 1);
    else if (e->value != NULL && e->value[0] == '=')
        (void)fprintf(to, "[%s]", e->value);
    else if (e->value != NULL)
        (void)fprintf(to, " %s", e->value);
    (void)fputs("`: ", to);
    put_prose(e->help, strlen(e->help), to);
    if (e->initial != NULL) {
        (void)fputs(" (default ", to);
        put_prose(e->initial, strlen(e->initial), to);
        (void)fputc(')', to);
    }
    (void)fputc('\n', to);
}

void cli_page_markdown(const cli_page *page, const char *summary, FILE *to)
{
    (void)fprintf(to, "\n## %s: ", page->command);
    put_prose(summary, strlen(summary), to);
    (void)fprintf(to, "\n\n```\nulpscope %s %s\n```\n\n", page->command, page->usage);
    put_about(page->about, to);
    for (int l = 0; page->options[l] != NULL; l++) {
        if (l == 0) (void)fputc('\n', to);
        for (const cli_entry *e = page->options[l]; e->key != 0; e++)
            if (e->help != NULL) put_option(page, e, to);
    }
    if (page->examples != NULL) (void)fprintf(to, "\n```\n%s```\n", page->examples);
    (void)fputs("\nExit code: ", to);
    put_prose(page->codes, strlen(page->codes), to);
    (void)fputs(".\n", to);
}
