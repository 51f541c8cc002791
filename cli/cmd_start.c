// SPDX-License-Identifier: Apache-2.0
// ulpscope start: which of the commands answers what somebody wants to know. Asks, or
// takes a sentence; prints what to type, with the user's own script in it.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum { OPT_DEVICE = 256 };

static const cli_entry own_options[] = {
    {OPT_DEVICE, "device", "DEVICE", NULL, "the device under test, e.g. npu:0"}, {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_start_page = {
    .command = "start",
    .usage = "[WHAT IS THE MATTER] [--device DEVICE] [-- COMMAND [ARGS]...]",
    .about =
        "Prints the commands that answer your question, with your own script in them; "
        "nothing is run. Without a sentence it asks three questions: what the matter is, "
        "how the program is started, and on which device.\n",
    .options = options,
    .examples =
        "  ulpscope start\n"
        "  ulpscope start \"the loss differs from the GPU's\" -- python train.py\n"
        "  ulpscope start NaN at step 400 -- torchrun --nproc-per-node 4 train.py\n"
        "  ulpscope start is my kernel right --device npu:0\n",
    .codes = "0 told, 2 nothing fits the sentence",
};

/* What in a step stands for what is known of the user's own. */
#define COMMAND_MARK "{command}"
#define DEVICE_MARK "{device}"

/* Words of who asks what a device has; they tell more than a word for an operator. */
#define MISSING "lack missing unsupported unimplemented coverage "

typedef struct start_case {
    const char *asks;     /* the case as its users say it */
    const char *words;    /* what such a sentence holds; beginnings of words */
    const char *steps[6]; /* lines to type, and behind # what each is for */
    const char *more;     /* page of docs/how-to */
} start_case;

enum { OF_VALUES, OF_NAN, OF_DEVICE = 3, OF_FILES = 6 }; /* their places in cases */

/* Words that decide, whatever else the sentence holds. */
static const char nan_words[] = "nan nans inf infs infinit";

/* Words of every complaint: they count where nothing but a device is named beside them.
 */
static const char wrong_words[] =
    "wrong garbage gibberish nonsense rubbish incorrect bad broken mismatch unequal "
    "result answer";

/* Words of who has files alone, and of others: they count where nothing else fits. */
static const char file_words[] = "only output numpy";

static const start_case cases[] = {
    {"the loss or the outputs are off, or differ from another machine's",
     "loss accura inaccura converg diverg differ gpu curve wors off",
     {"ulpscope capture -- {command}", "ulpscope check ulpscope-trace --device {device}",
      "# where both machines are at hand: capture on each, then",
      "ulpscope diff TRACE-A TRACE-B"},
     "the-loss-is-a-little-off"},
    {"NaN or Inf appears",
     "overflow spike explod scaler",
     {"ulpscope run --nan --keep 1000 -- {command}",
      "ulpscope overflow ulpscope-nan              # whether the device is to blame"},
     "where-was-this-nan-born"},
    {"is my kernel right?",
     "kernel operator op triton cuda custom extension function",
     {"# in a test: ulpscope.testing.assert_accurate(kernel, reference, *args, "
      "inputs=\"stress\")",
      "ulpscope fuzz --device {device} --ops '*softmax*'    # of torch's own operators"},
     "is-my-kernel-right"},
    {"a new device, chip or driver",
     "device chip npu accelerator driver bring port backend hardware board new " MISSING
         MISSING,
     {"ulpscope doctor --device {device}", "ulpscope fuzz --device {device} --time 10m",
      "# of a model of yours:", "ulpscope capture -- {command}",
      "ulpscope coverage ulpscope-trace --device {device}"},
     "does-it-compute-my-model"},
    {"is what a compiler generates right?",
     "compil inductor dynamo xla graph fus",
     {"ulpscope capture --no-compile -- {command}",
      "ulpscope check ulpscope-trace --device {device} --via inductor --distinct"},
     "does-it-compute-my-model"},
    {"is a run of weeks sound?",
     "week month long silent corrupt sdc watch monitor cluster production hour day",
     {"ulpscope run --watch --watch-log watched.log -- {command}",
      "ulpscope watch watched.log"},
     "is-a-run-of-weeks-sound"},
    {"there are only files: outputs, dumps, logs",
     "file dump log logs npy npz onnx tensorrt csv safetensors",
     {"ulpscope judge DEVICE.safetensors RIGHT.safetensors    # outputs",
      "ulpscope import DUMP -o TRACE                          # another tool's dump",
      "ulpscope loss A.log B.log                              # loss curves"},
     "i-have-only-outputs"},
    {"sources for CUDA are to run on another device",
     "port port cuda source code translat hipify migrat",
     {"ulpscope port SOURCES --to npu -o PORTED    # or musa, xpu, sim; it says what is "
      "left for you",
      "# a kernel that was ported, in a test: "
      "ulpscope.testing.assert_accurate(kernel, reference, *args)"},
     "port-cuda-code"},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

typedef struct start {
    char text[1024];    /* the sentence */
    char typed[1024];   /* the command as it was typed, "" where it is not known */
    char *const *words; /* or as the words of the command line; NULL: not known */
    char device[64];
} start;

/* ---- which case ---- */

/* How many words of the sentence begin as one of `words`. */
static int fits(const char *words, const char *text)
{
    int n = 0;
    for (const char *at = text; *at != '\0';) {
        at += strcspn(at, "abcdefghijklmnopqrstuvwxyz");
        const size_t size = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
        for (const char *w = words; size > 0 && *w != '\0';) {
            const size_t width = strcspn(w, " ");
            const bool whole = width <= 3; /* op is no option, inf no information */
            n += width <= size && (!whole || width == size) && strncmp(at, w, width) == 0;
            w += width + (w[width] == ' ');
        }
        at += size;
    }
    return n;
}

static const start_case *case_of(const char *sentence)
{
    char text[sizeof((start *)0)->text];
    (void)snprintf(text, sizeof text, "%s", sentence);
    for (char *c = text; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    if (fits(nan_words, text) > 0) return &cases[OF_NAN];
    const start_case *best = NULL;
    int most = 0;
    for (int i = 0; i < N_CASES; i++) {
        const int n = fits(cases[i].words, text);
        if (n <= most) continue;
        most = n;
        best = &cases[i];
    }
    const bool vague = best == NULL || best == &cases[OF_DEVICE];
    if (vague && fits(wrong_words, text) > 0) return &cases[OF_VALUES];
    return best == NULL && fits(file_words, text) > 0 ? &cases[OF_FILES] : best;
}

/* A number of the list, or a sentence. */
static const start_case *chosen(const char *text)
{
    char *end;
    const long number = strtol(text, &end, 10);
    if (end == text || end[strspn(end, " \t.)")] != '\0') return case_of(text);
    return number >= 1 && number <= N_CASES ? &cases[number - 1] : NULL;
}

static void list_cases(FILE *to)
{
    for (int i = 0; i < N_CASES; i++)
        (void)fprintf(to, "  %d  %s\n", i + 1, cases[i].asks);
}

/* ---- what is told ---- */

static bool names(const start_case *c, const char *mark)
{
    for (size_t i = 0; c->steps[i] != NULL; i++)
        if (strstr(c->steps[i], mark) != NULL) return true;
    return false;
}

static bool knows_command(const start *s)
{
    return s->words != NULL || s->typed[0] != '\0';
}

static void put_command(const start *s)
{
    if (s->words == NULL)
        fputs(s->typed[0] != '\0' ? s->typed : "python train.py", stdout);
    for (int i = 0; s->words != NULL && s->words[i] != NULL; i++) {
        if (i > 0) putchar(' ');
        cli_put_word(stdout, s->words[i]);
    }
}

static void put_step(const start *s, const char *step)
{
    fputs("  ", stdout);
    while (*step != '\0') {
        const bool command = strncmp(step, COMMAND_MARK, strlen(COMMAND_MARK)) == 0;
        const bool device = strncmp(step, DEVICE_MARK, strlen(DEVICE_MARK)) == 0;
        if (command)
            put_command(s);
        else if (device)
            fputs(s->device[0] != '\0' ? s->device : "npu:0", stdout);
        else
            putchar(*step);
        step += command ? strlen(COMMAND_MARK) : device ? strlen(DEVICE_MARK) : 1;
    }
    putchar('\n');
}

static int tell(const start *s, const start_case *c)
{
    (void)printf("%s\n\n", c->asks);
    for (size_t i = 0; c->steps[i] != NULL; i++)
        put_step(s, c->steps[i]);
    (void)printf("\nmore: docs/how-to/%s.md\n", c->more);
    if (!knows_command(s) && names(c, COMMAND_MARK))
        puts("python train.py stands for your own command");
    if (s->device[0] == '\0' && names(c, DEVICE_MARK))
        puts("npu:0 stands for your device (ulpscope info lists them)");
    return cli_close_output(CLI_SAME);
}

/* ---- what is asked ---- */

static bool ask(const char *question, char *out, size_t size)
{
    (void)fputs(question, stdout);
    (void)fflush(stdout);
    out[0] = '\0';
    if (fgets(out, (int)size, stdin) == NULL) return false;
    out[strcspn(out, "\n")] = '\0';
    return true;
}

static int interview(start *s)
{
    puts("What is the matter? A number, or a sentence of your own:");
    list_cases(stdout);
    if (!ask("> ", s->text, sizeof s->text)) return CLI_TROUBLE;
    const start_case *c = chosen(s->text);
    if (c == NULL) return cli_fail("nothing fits '%s'; give a number", s->text);
    if (!knows_command(s) && !ask("How do you start the program? (python train.py) ",
                                  s->typed, sizeof s->typed))
        return CLI_TROUBLE;
    if (s->device[0] == '\0' &&
        !ask("Which device is under test? (npu:0) ", s->device, sizeof s->device))
        return CLI_TROUBLE;
    putchar('\n');
    return tell(s, c);
}

/* ---- words of the command line ---- */

static bool parse(int argc, char **argv, start *s)
{
    int end = 1; /* of what is ours */
    while (end < argc && strcmp(argv[end], "--") != 0)
        end++;
    if (end + 1 < argc) s->words = argv + end + 1;
    for (int key; (key = cli_next(&cmd_start_page, end, argv)) != -1;) {
        if (key != OPT_DEVICE) return false;
        (void)snprintf(s->device, sizeof s->device, "%s", optarg);
    }
    size_t n = 0;
    for (int i = optind; i < end && n < sizeof s->text; i++)
        n += (size_t)snprintf(s->text + n, sizeof s->text - n, "%s%s", n > 0 ? " " : "",
                              argv[i]);
    return n < sizeof s->text || cli_fail("the sentence is too long") == 0;
}

int cmd_start(int argc, char **argv)
{
    start s = {0};
    cli_begin("start");
    if (!parse(argc, argv, &s)) return CLI_TROUBLE;
    if (s.text[0] == '\0' && isatty(STDIN_FILENO)) return interview(&s);
    if (s.text[0] == '\0') {
        puts("What is the matter? Say it, or its number, behind the command: ulpscope "
             "start NaN at "
             "step 400 -- python train.py");
        list_cases(stdout);
        return cli_close_output(CLI_SAME);
    }
    const start_case *c = chosen(s.text);
    if (c != NULL) return tell(&s, c);
    (void)cli_fail("nothing fits '%s'; it knows of:", s.text);
    list_cases(stderr);
    return CLI_TROUBLE;
}
