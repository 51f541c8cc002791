// SPDX-License-Identifier: Apache-2.0
// What the subcommands of the program share. Each lives in cmd_NAME.c and is one row of
// the table in main.c.
#ifndef ULPSCOPE_CLI_H
#define ULPSCOPE_CLI_H

#include <getopt.h>
#include <stdio.h>

#include <ulpscope/report.h>
#include <ulpscope/status.h>

/* What the program exits with. */
enum { CLI_SAME = 0, CLI_DIFFERS = 1, CLI_TROUBLE = 2 };

typedef struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name */
    const char *summary;               /* one line of `ulpscope --help` */
    const char *help;
} cli_command;

int cmd_capture(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_judge(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_repro(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_completion(int argc, char **argv);

extern const char cmd_capture_help[], cmd_check_help[], cmd_report_help[],
    cmd_pack_help[], cmd_judge_help[], cmd_repro_help[], cmd_show_help[], cmd_info_help[],
    cmd_completion_help[];

/** Says `ulpscope: ...` on stderr and returns CLI_TROUBLE. */
int cli_fail(const char *format, ...) USC_PRINTF(1, 2);

/**
 * getopt_long without its own messages: the next option's value, -1 at the end, '?' after
 * a clear sentence on stderr. `longs` ends with a zero row; there are no short options
 * but those of `shorts`.
 */
int cli_option(int argc, char **argv, const char *shorts, const struct option *longs);

/** Whether `name` is what `given` may have meant, more than *best (NULL: none yet) is;
 * *best becomes it then. */
bool cli_nearer(const char *given, const char *name, const char **best);

/** Parses a whole number >= 0; false after a sentence on stderr. */
bool cli_number(const char *option, const char *text, int64_t *out);

/** Flushes stdout: CLI_TROUBLE with a sentence where it could not be written. */
int cli_close_output(int code);

enum { CLI_MAX_ALLOW = 64 };

/** How a command that ends with a report shows it, and what counts. */
typedef struct cli_report {
    usc_report_options options;
    usc_allow allow[CLI_MAX_ALLOW];
    const char *when, *baseline, *junit;
    bool annotate;
} cli_report;

/* Rows of a table of long options; their values belong to cli_report_option(). */
#define CLI_REPORT_OPTIONS                                                               \
    {"color", required_argument, NULL, 'c'}, {"allow", required_argument, NULL, 'a'},    \
        {"strict", no_argument, NULL, 's'}, {"no-files", no_argument, NULL, 'n'},        \
        {"baseline", required_argument, NULL, 'b'},                                      \
        {"junit", required_argument, NULL, 'j'},                                         \
        {"min-judged", required_argument, NULL, 'm'},                                    \
        {"sort", required_argument, NULL, 'r'},                                          \
    {                                                                                    \
        "annotate", no_argument, NULL, 'g'                                               \
    }

/** Sets the defaults. */
void cli_report_begin(cli_report *r);

/** Takes one option; false for others and after a sentence on stderr. */
bool cli_report_option(cli_report *r, int option);

/** Completes it after the last option; false after a sentence on stderr. */
bool cli_report_ready(cli_report *r);

/** Writes files and table of the results in folder `out`; the exit code. */
int cli_report_show(const cli_report *r, const char *out);

/** Columns of the terminal on stdout, 100 where it is none. */
int cli_width(void);

/** Whether to colour, for `--color WHEN`; -1 after a sentence where WHEN is unknown. */
int cli_color(const char *when);

#endif
