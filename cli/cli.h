// SPDX-License-Identifier: Apache-2.0
// What the subcommands of the program share. Each lives in cmd_NAME.c and is one row of
// the table in main.c.
#ifndef ULPSCOPE_CLI_H
#define ULPSCOPE_CLI_H

#include <getopt.h>
#include <limits.h>
#include <stdio.h>

#include <ulpscope/call.h>
#include <ulpscope/report.h>
#include <ulpscope/standard.h>
#include <ulpscope/status.h>
#include <ulpscope/trace.h>

#include "common/page.h"

/* What the program exits with. */
enum { CLI_SAME = 0, CLI_DIFFERS = 1, CLI_TROUBLE = 2, CLI_INTERRUPTED = 130 };

typedef struct cli_command {
    int (*run)(int argc, char **argv); /* argv[0] is the name */
    const char *summary;               /* one line of `ulpscope --help` */
    const cli_page *page;
} cli_command;

int cmd_start(int argc, char **argv);
int cmd_capture(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_compat(int argc, char **argv);
int cmd_import(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_judge(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_loss(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_bisect(int argc, char **argv);
int cmd_schema(int argc, char **argv);
int cmd_sql(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_overflow(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_coverage(int argc, char **argv);
int cmd_repro(int argc, char **argv);
int cmd_fuzz(int argc, char **argv);
int cmd_port(int argc, char **argv);
int cmd_ops(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_trial(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_config(int argc, char **argv);

extern const cli_page cmd_start_page;
extern const cli_page cmd_capture_page;
extern const cli_page cmd_run_page;
extern const cli_page cmd_check_page;
extern const cli_page cmd_report_page;
extern const cli_page cmd_pack_page;
extern const cli_page cmd_compat_page;
extern const cli_page cmd_import_page;
extern const cli_page cmd_export_page;
extern const cli_page cmd_judge_page;
extern const cli_page cmd_show_page;
extern const cli_page cmd_overflow_page;
extern const cli_page cmd_repro_page;
extern const cli_page cmd_fuzz_page;
extern const cli_page cmd_info_page;
extern const cli_page cmd_completion_page;
extern const cli_page cmd_config_page;
extern const cli_page cmd_loss_page;
extern const cli_page cmd_watch_page;
extern const cli_page cmd_bisect_page;
extern const cli_page cmd_schema_page;
extern const cli_page cmd_sql_page;
extern const cli_page cmd_explain_page;
extern const cli_page cmd_env_page;
extern const cli_page cmd_doctor_page;
extern const cli_page cmd_diff_page;
extern const cli_page cmd_coverage_page;
extern const cli_page cmd_port_page;
extern const cli_page cmd_ops_page;
extern const cli_page cmd_trial_page;

/** What cli_fail says stands for a command from here on: `ulpscope check: ...`. */
void cli_begin(const char *command);

/** Says `ulpscope: ...` on stderr and returns CLI_TROUBLE. */
int cli_fail(const char *format, ...) USC_PRINTF(1, 2);

/** Whether `name` is what `given` may have meant, more than *best (NULL: none yet) is;
 * *best becomes it then. */
bool cli_nearer(const char *given, const char *name, const char **best);

/** Parses a whole number >= 0; false after a sentence on stderr. */
bool cli_number(const char *option, const char *text, int64_t *out);

/** Parses a finite number, whatever the locale; false without a word. */
bool cli_real(const char *text, double *out);

/** Parses "6GiB", "500MB" or a number of bytes; false after a sentence on stderr. */
bool cli_size(const char *option, const char *text, int64_t *out);

/** Parses a number of seconds above 0; `off` is 0 where that is allowed. --OPTION is
 * named without its dashes. False after a sentence on stderr. */
bool cli_seconds(const char *option, const char *text, bool or_off, double *out);

/** Parses "90s", "10m", "1.5h" or "90", to seconds; false after a sentence on stderr. */
bool cli_time(const char *option, const char *text, double *out);

/** Takes the value of --step, which show and overflow have; false after a sentence. */
bool cli_steps(usc_steps **steps, size_t *n);

/** Takes the value of -j, a number of workers; false after a sentence. */
bool cli_jobs(int *jobs);

enum { CLI_MAX_IMPORTS = 64 };

/** Takes the value of one more --import; false after a sentence. */
bool cli_import(const char *imports[CLI_MAX_IMPORTS], int *n);

/** Whether two devices are of one type: sim and sim:0 are. */
bool cli_same_type(const char *a, const char *b);

/** Gives the faults planted in a device, from the option (`given`, NULL: none) or the
 * environment, where it reads them; NULL for one that is not simulated. False after a
 * sentence where they are none that it knows. */
bool cli_faults(const char *device, const char *given, const char **out);

bool cli_is_folder(const char *path);

/** Whether two paths name one file or folder, by whatever links. */
bool cli_is_one_file(const char *a, const char *b);

/** Writes a word of a command line, in quotes where a shell would take it apart. */
void cli_put_word(FILE *to, const char *word);

/** Whether a file, what `option` names, can be written; false after a sentence. */
bool cli_writable(const char *option, const char *path);

/** The same of a folder that is to be made, with those above it. */
bool cli_makeable(const char *option, const char *folder);

/** Says on a terminal what to type after a result: "next: ...". */
void cli_next_is(const char *format, ...) USC_PRINTF(1, 2);

/** The same of a command line: "next: BEFORE COMMAND... AFTER". */
void cli_next_around(const char *before, char *const *command, const char *after);

/** Whether `text` is TRACE#N, and no folder of that name: a folder may have a # in it.
 * Then it is cut to TRACE, and *call is N. */
bool cli_split_call(char *text, int64_t *call);

/** Whether call `below` of a trace lies under `call`, or is it; false also where it
 * cannot be read. */
bool cli_lies_below(usc_trace *t, int64_t below, int64_t call);

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

/* The options of every command that ends with a report; cli_report_option takes them. */
extern const cli_entry cli_report_options[];

/** Sets the defaults. */
void cli_report_begin(cli_report *r);

/** Takes one option; false for others and after a sentence on stderr. */
bool cli_report_option(cli_report *r, int option);

/** Takes one VERDICT[:PATTERN] of --allow; false after a sentence on stderr. */
bool cli_report_allow(cli_report *r, const char *text);

/** Takes the `text` of an --allow that knows one word, "unpaired[:PATTERN]", or two
 * (`other` NULL: one), each once: *pattern is "*" without one. False after a sentence on
 * stderr. */
bool cli_allow_one(const char *word, const char *text, const char **pattern,
                   const char *other, const char **other_pattern);

/** Completes it after the last option; false after a sentence on stderr. */
bool cli_report_ready(cli_report *r);

/** Whether what it names can be read and written, so that work is not done in vain; false
 * after a sentence on stderr. */
bool cli_report_reachable(const cli_report *r);

/* The same for one rank of a job: files and baseline of its own. */
typedef struct cli_rank_report {
    cli_report report;
    char junit[PATH_MAX], baseline[PATH_MAX];
} cli_rank_report;

void cli_report_of_rank(const cli_report *r, long rank, cli_rank_report *out);

/** The rank after `last` whose folder rank-N in `folder` holds `file`; -1 for none, and
 * where `folder` itself holds it. */
long cli_next_rank(const char *folder, long last, const char *file);

/** Of a list as usc_pattern_unmatched gives it, "'a', 'b'", what stands in `other`, too,
 * stays. */
void cli_keep_common(char *list, const char *other);

/** Says which names of --ops no call of a trace matches; `ops` may be NULL. Whether there
 * was one: what is shown then is not all that was asked for, which is no exit code 0. */
bool cli_ops_unmatched(const char *trace, const char *ops);

/** Whether a folder holds a trace, or one of each rank. */
bool cli_is_trace(const char *folder);

/** Writes the page of a trace to a file (NULL: TRACE.html) and says so; the exit code. */
int cli_trace_page(const char *trace, const char *file);

/** The same of its calls as events that Perfetto shows. */
int cli_trace_events(const char *trace, const char *file);

/** Writes files and table of the results in folder `out`; the exit code. */
int cli_report_show(const cli_report *r, const char *out);

/** Prints what was not judged in the results in folder `out`, a line where there is any
 * (usc_report_unjudged): the last one of whatever judges. The exit code: 0, or 2 after a
 * sentence. */
int cli_report_unjudged(const cli_report *r, const char *out, FILE *to);

/** Writes the files of the results in folder `out`, and no table; the exit code. */
int cli_report_write(const cli_report *r, const char *out);

/** A text as JSON; NULL as null. A stream that fails shows so at its end. */
void cli_put_text(FILE *to, const char *text);

/** The same as a member of an object behind its first: `, "name": text`. */
void cli_put_member(FILE *to, const char *name, const char *text);

/** Columns of the terminal on stdout, 100 where it is none. */
int cli_width(void);

/** Whether to colour, for `--color WHEN`; -1 after a sentence where WHEN is unknown. */
int cli_color(const char *when);

#endif
