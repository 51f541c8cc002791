// SPDX-License-Identifier: Apache-2.0
// The program `ulpscope`: a table of subcommands, git-style. Exit codes: 0 same, 1
// differs or flagged, 2 trouble. Reports go to stdout, messages to stderr.
#include "cli.h"
#include "common/version.h"
#include "config/config.h"

#include <ulpscope/version.h>
#include <ulpscope/x/kernels.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const cli_command commands[] = {
    {cmd_start, "which command answers your question", &cmd_start_page},
    {cmd_capture, "run a command line and record one step of its operators",
     &cmd_capture_page},
    {cmd_run, "watch a command line while it runs: NaN, wrong calls", &cmd_run_page},
    {cmd_check, "replay a trace on a device and judge every call", &cmd_check_page},
    {cmd_report, "show what a check found; write CSV, JSON and HTML", &cmd_report_page},
    {cmd_sql, "questions in SQL to a trace, or to what a check found", &cmd_sql_page},
    {cmd_explain, "what a verdict, a cause, an excuse, an error means",
     &cmd_explain_page},
    {cmd_pack, "write inputs and operands for devices without torch", &cmd_pack_page},
    {cmd_import, "make a trace of another tool's dump", &cmd_import_page},
    {cmd_export, "write a trace as another tool's dump", &cmd_export_page},
    {cmd_compat, "what other tools are called by, for those who used them",
     &cmd_compat_page},
    {cmd_judge, "verdicts on outputs that lie in files", &cmd_judge_page},
    {cmd_show, "list the calls of a trace, or one call whole", &cmd_show_page},
    {cmd_bisect, "which operators make the loss differ, by trials", &cmd_bisect_page},
    {cmd_loss, "where loss curves part, and whether it is noise", &cmd_loss_page},
    {cmd_watch, "silent corruption in what a run has recorded", &cmd_watch_page},
    {cmd_overflow, "where NaN and Inf are born, and whether rightly", &cmd_overflow_page},
    {cmd_diff, "where two runs part: the call that makes the difference", &cmd_diff_page},
    {cmd_fuzz, "find wrong operators before a model does: random calls", &cmd_fuzz_page},
    {cmd_port, "sources for CUDA under the names of another device", &cmd_port_page},
    {cmd_ops, "operators of a device, from YAML to C++", &cmd_ops_page},
    {cmd_coverage, "which operators of a run a device has", &cmd_coverage_page},
    {cmd_repro, "hand on a failing call: a small script, a bug report", &cmd_repro_page},
    {cmd_env, "what numbers depend on here; what two machines differ in", &cmd_env_page},
    {cmd_doctor, "what is wrong with this machine, and what mends it", &cmd_doctor_page},
    {cmd_trial, "whether all of this works on a new device", &cmd_trial_page},
    {cmd_info, "version, instruction set, torch and its devices", &cmd_info_page},
    {cmd_config, "defaults of options, and where each comes from", &cmd_config_page},
    {cmd_schema, "what a command's JSON holds, for programs", &cmd_schema_page},
    {cmd_completion, "a script for bash, zsh or fish", &cmd_completion_page},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int usage(FILE *to)
{
    fputs("usage: ulpscope COMMAND [OPTIONS]\n"
          "\n"
          "Know whether an accelerator computes your model correctly; when it does not:\n"
          "which operator, why, and how many bits were lost.\n"
          "\n",
          to);
    for (int i = 0; i < N_COMMANDS; i++)
        (void)fprintf(to, "  %-11s %s\n", commands[i].page->command, commands[i].summary);
    fputs(
        "  help        help on a command: ulpscope help check; as a manual page: --man\n"
        "\n"
        "--no-config before a command leaves out the defaults of ulpscope.toml (ulpscope "
        "help config)\n"
        "\n"
        "examples:\n"
        "  ulpscope start                                  what to type in your case\n"
        "  ulpscope capture -- python train.py             record the second step\n"
        "  ulpscope check ulpscope-trace --device npu:0    is every operator right "
        "there?\n"
        "  ulpscope report ulpscope-out                    the findings, worst first\n"
        "  ulpscope show ulpscope-trace --ops '*softmax*'  what exactly was recorded\n"
        "\n"
        "exit codes: 0 nothing to object to, 1 differs or flagged, 2 not told, or "
        "trouble\n",
        to);
    return 0;
}

static const cli_command *command_of(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].page->command, name) == 0) return &commands[i];
    return NULL;
}

/* Help as roff: nothing in it may be taken for a request. */
static void print_roff(FILE *from)
{
    bool starts = true;
    for (int c; (c = getc(from)) != EOF; starts = c == '\n') {
        if (starts && (c == '.' || c == '\'')) fputs("\\&", stdout);
        if (c == '\\' || c == '-')
            (void)printf("\\%c", c == '-' ? '-' : 'e');
        else
            putchar(c);
    }
}

/* The help of a command as a manual page, laid out as it is. */
static int manual(const char *name)
{
    const cli_command *command = command_of(name);
    if (command == NULL) return cli_config_no_command(name);
    (void)printf(".TH ULPSCOPE-%s 1 \"\" \"ulpscope " USC_VERSION "\"\n", name);
    (void)printf(".SH NAME\nulpscope\\-%s \\- %s\n.SH DESCRIPTION\n.nf\n", name,
                 command->summary);
    FILE *text = tmpfile();
    if (text == NULL) return cli_fail("no temporary file can be made");
    cli_page_print(command->page, text);
    rewind(text);
    print_roff(text);
    (void)fclose(text);
    fputs(".fi\n", stdout);
    return cli_close_output(CLI_SAME);
}

/* All commands as docs/reference/cli.md. */
static int markdown(void)
{
    (void)puts("# The command line\n\nMade of the program's own tables by `./run docs`; "
               "`ulpscope help COMMAND` says the same.");
    for (int i = 0; i < N_COMMANDS; i++)
        cli_page_markdown(commands[i].page, commands[i].summary, stdout);
    return cli_close_output(CLI_SAME);
}

static int help(int argc, char **argv)
{
    if (argc < 2) return cli_close_output(usage(stdout));
    if (strcmp(argv[1], "--man") == 0)
        return argc > 2 ? manual(argv[2]) : cli_fail("help --man needs a command");
    if (strcmp(argv[1], "--markdown") == 0) return markdown();
    const cli_command *command = command_of(argv[1]);
    if (command == NULL) return cli_config_no_command(argv[1]);
    cli_page_print(command->page, stdout);
    return cli_close_output(CLI_SAME);
}

/* --help among the options, not among the words of a command line that follows. */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

/* --no-config before the command or right behind it. */
static bool take_no_config(int *argc, char **argv)
{
    for (int i = 1; i < *argc && i < 3; i++)
        if (strcmp(argv[i], "--no-config") == 0) {
            memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof *argv);
            --*argc;
            return setenv("ULPSCOPE_CONFIG", "off", 1) == 0;
        }
    return false;
}

int main(int argc, char **argv)
{
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on files is an error to be told */
    (void)take_no_config(&argc, argv);
    static const cli_page *pages[N_COMMANDS + 1];
    for (int i = 0; i < N_COMMANDS; i++)
        pages[i] = commands[i].page;
    cli_config_begin(pages);
    if (argc < 2) {
        usage(stderr);
        return CLI_TROUBLE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) return cli_version();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        strcmp(name, "help") == 0)
        return help(argc - 1, argv + 1);
    if (name[0] == '-')
        return cli_fail("there is no option '%s' before a command; try ulpscope --help",
                        name);

    const cli_command *command = command_of(name);
    if (command == NULL) return cli_config_no_command(name);
    if (asks_for_help(argc - 1, argv + 1)) {
        cli_page_print(command->page, stdout);
        return cli_close_output(CLI_SAME);
    }
    usc_error err;
    if (usc_kernels_select(getenv("ULPSCOPE_ISA"), &err) != USC_OK)
        return cli_fail("ULPSCOPE_ISA: %s", err.text);
    argc--;
    char **words = cli_config_apply(command->page, &argc, argv + 1);
    return words != NULL ? command->run(argc, words) : CLI_TROUBLE;
}
