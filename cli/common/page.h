// SPDX-License-Identifier: Apache-2.0
// What a command takes, once: a page of texts and options from which parsing, help, the
// manual page and what a mistyped option may have meant are made. Completion asks help.
#ifndef ULPSCOPE_CLI_PAGE_H
#define ULPSCOPE_CLI_PAGE_H

#include <stdbool.h>
#include <stdio.h>

/* One option. `key` is what cli_next gives, and with a letter the short option. */
typedef struct cli_entry {
    int key;
    const char *name;    /* "device"; NULL: a letter alone */
    const char *value;   /* "DEVICE", NULL: takes none; "[x|y]": one of these alone;
                            "=DEVICE": one may be given, behind = */
    const char *initial; /* what it is where it is not given; NULL: nothing to tell */
    const char *help;    /* NULL: another name of the option with this key before it */
} cli_entry;

typedef struct cli_page {
    const char *command;
    const char *usage; /* what follows the name: "TRACE -o PACK [OPTIONS]" */
    const char *about; /* paragraphs, wrapped where they are shown; a line that begins
                          with a space stands as it is */
    const cli_entry *const *options; /* lists, each ends with a zero row; NULL ends */
    const char *examples;            /* lines as they are; NULL: none */
    const char *codes;               /* what follows "exit code: " */
    bool one_dash;                   /* -forward is --forward, as argparse has it */
    const char *const *elsewhere; /* options that another command has, and what to type;
                                     in pairs, ends with NULL; NULL: none */
    bool stops;                   /* options end at the first word that is none */
} cli_page;

/** Prints the help of a command. */
void cli_page_print(const cli_page *page, FILE *to);

/** The same as a section of a page of Markdown. */
void cli_page_markdown(const cli_page *page, const char *summary, FILE *to);

/**
 * The key of the next option, its value in `optarg`; -1 behind the last, with the other
 * words from argv[optind] on; '?' after a sentence on stderr.
 */
int cli_next(const cli_page *page, int argc, char **argv);

/** The same without a word: what getopt_long gives, '?' or ':' for what is wrong. */
int cli_page_key(const cli_page *page, int argc, char **argv);

#endif
