// SPDX-License-Identifier: Apache-2.0
// ulpscope explain: what a word of a report means, from the pages of the documentation.
#include "cli.h"
#include "explain/explain.h"

#include <string.h>

enum { OPT_JSON = 256, OPT_WORDS };
enum { WIDTH = 88 };

static const cli_entry own_options[] = {
    {OPT_JSON, "json", NULL, NULL, "one JSON object per meaning and line"},
    {OPT_WORDS, "words", NULL, NULL, "the words that there are, one a line"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_explain_page = {
    .command = "explain",
    .usage = "[WORD...] [OPTIONS]",
    .about =
        "Says what a word means: a verdict, a cause, an excuse, a note, a standard, a "
        "fault of the simulated device, an error or an exit code. A whole clause of a "
        "report may be given, or a word that an explanation holds. Without a word: which "
        "there are.\n",
    .options = options,
    .examples = "  ulpscope explain reduced\n"
                "  ulpscope explain ill_conditioned\n"
                "  ulpscope explain the result is multiplied by -1\n"
                "  ulpscope explain E_BUSY --json\n",
    .codes = "0 told, 2 there is no such word",
    .stops = true, /* a clause may have a -1 in it */
};

static explain_words all;

/* ---- what is told ---- */

/* A paragraph, wrapped, two spaces before each line. */
static void print_paragraph(const char *text, size_t n)
{
    int at = 2;
    (void)fputs("  ", stdout);
    for (size_t i = 0; i < n;) {
        const size_t size = strcspn(text + i, " \n");
        const int width = (int)(i + size > n ? n - i : size);
        if (at > 2 && at + 1 + width > WIDTH) {
            (void)fputs("\n  ", stdout);
            at = 2;
        }
        at += printf("%s%.*s", at > 2 ? " " : "", width, text + i);
        i += size + strspn(text + i + size, " ");
    }
    putchar('\n');
}

/* How a report says a cause, some of them. */
static void print_clauses(const explain_entry *e)
{
    enum { MOST = 8, WIDEST = 78 };
    char text[EXPLAIN_TEXT];
    explain_clauses(e, text);
    int n = 0;
    for (const char *at = text; *at != '\0' && n < MOST; at += strcspn(at, "\n") + 1) {
        const int size = (int)strcspn(at, "\n");
        (void)printf("%s    %.*s%s\n", n++ == 0 ? "\n  in a report:\n" : "",
                     size > WIDEST ? WIDEST : size, at, size > WIDEST ? " ..." : "");
    }
}

static void print_entry(const explain_entry *e)
{
    char text[EXPLAIN_TEXT];
    explain_text(e, text);
    (void)printf("%s (%s)\n", e->word, e->kind);
    for (const char *at = text; *at != '\0';) {
        const char *end = strstr(at, "\n\n");
        const size_t n = end != NULL ? (size_t)(end - at) : strlen(at);
        putchar('\n');
        print_paragraph(at, n);
        at += n + (end != NULL ? 2 : 0);
    }
    print_clauses(e);
    (void)printf("\n  %s#%s\n", e->page, e->anchor);
}

static void print_json(const explain_entry *e)
{
    char text[EXPLAIN_TEXT];
    explain_text(e, text);
    (void)fputs("{\"word\": ", stdout);
    cli_put_text(stdout, e->word);
    (void)printf(", \"kind\": \"%s\", \"text\": ", e->kind);
    cli_put_text(stdout, text);
    (void)printf(", \"page\": \"%s#%s\"}\n", e->page, e->anchor);
}

/* All words by kind, each kind a paragraph. */
static void print_kinds(void)
{
    char line[EXPLAIN_TEXT];
    for (int i = 0; i < all.n; i++) {
        if (i > 0 && strcmp(all.entry[i].kind, all.entry[i - 1].kind) == 0) continue;
        size_t n = 0;
        for (int k = i; k < all.n && strcmp(all.entry[k].kind, all.entry[i].kind) == 0;
             k++)
            n += (size_t)snprintf(line + n, sizeof line - n, "%s%s", n > 0 ? ", " : "",
                                  all.entry[k].word);
        (void)printf("%s%s\n", i > 0 ? "\n" : "", all.entry[i].kind);
        print_paragraph(line, n);
    }
}

static void print_words(void)
{
    for (int i = 0; i < all.n; i++)
        (void)puts(all.entry[i].word);
}

/* ---- the command ---- */

static int say_none(const char *query)
{
    const char *best = NULL;
    char plain[EXPLAIN_WORD];
    explain_plain(query, strlen(query), plain, sizeof plain);
    for (int i = 0; i < all.n; i++)
        (void)cli_nearer(plain, all.entry[i].word, &best);
    if (best != NULL)
        return cli_fail("there is no word '%s'; did you mean %s?", query, best);
    return cli_fail("there is no word '%s'; ulpscope explain lists them", query);
}

static void say_among(const char *query, const explain_entry *const *found, int n)
{
    char line[EXPLAIN_TEXT];
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s (%s)",
                                 i > 0 ? ", " : "", found[i]->word, found[i]->kind);
    (void)printf("'%s' stands in what is said of:\n\n", query);
    print_paragraph(line, used);
}

static int explain(const char *query, bool json)
{
    const explain_entry *found[EXPLAIN_TOLD];
    int n = 0;
    const explain_how how = explain_find(&all, query, found, &n);
    if (how == EXPLAIN_NONE) return say_none(query);
    if (how == EXPLAIN_AMONG && !json)
        say_among(query, found, n);
    else
        for (int i = 0; i < n; i++) {
            if (i > 0 && !json) putchar('\n');
            json ? print_json(found[i]) : print_entry(found[i]);
        }
    return cli_close_output(CLI_SAME);
}

int cmd_explain(int argc, char **argv)
{
    bool json = false, words = false;
    for (int key; (key = cli_next(&cmd_explain_page, argc, argv)) != -1;)
        if (key == OPT_JSON)
            json = true;
        else if (key == OPT_WORDS)
            words = true;
        else
            return CLI_TROUBLE;
    explain_read(&all);
    char query[1024] = "";
    size_t n = 0;
    for (int i = optind; i < argc && n < sizeof query; i++)
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else
            n += (size_t)snprintf(query + n, sizeof query - n, "%s%s", n > 0 ? " " : "",
                                  argv[i]);
    if (n >= sizeof query) return cli_fail("a word, or a clause, is shorter than that");
    if (words || (n == 0 && !json)) {
        words ? print_words() : print_kinds();
        return cli_close_output(CLI_SAME);
    }
    if (n > 0) return explain(query, json);
    for (int i = 0; i < all.n; i++)
        print_json(&all.entry[i]);
    return cli_close_output(CLI_SAME);
}
