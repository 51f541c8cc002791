// SPDX-License-Identifier: Apache-2.0
// ulpscope repro: its options, checked; the Python side (ulpscope.session.repro) writes
// the folder.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "common/cli_python.h"

enum { OPT_DEVICE = 256, OPT_IMPORT, OPT_FAULTS, OPT_FORCE };

static const cli_entry own_options[] = {
    {OPT_DEVICE, "device", "DEVICE", NULL,
     "what the script tries unless told otherwise (default: what captured the trace)"},
    {OPT_IMPORT, "import", "MODULE", NULL,
     "import this first: it registers custom operators; may be repeated"},
    {OPT_FAULTS, "faults", "SPEC", NULL,
     "plant faults in the simulated device, as in ulpscope check"},
    {'o', "out", "DIR", "repro-SEQUENCE", "the folder; it must not be there yet"},
    {OPT_FORCE, "force", NULL, NULL, "replace the folder of an earlier repro"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_repro_page = {
    .command = "repro",
    .usage = "TRACE#SEQUENCE [OPTIONS]",
    .about =
        "Writes one call of a trace into a folder to hand to those who mend the device:\n"
        "repro.py, at most 40 lines that need torch alone (and take the verdict from "
        "ulpscope where it is installed); inputs, device and reference.safetensors; and "
        "report.md, the text of a bug report.\n"
        "The script has run in a process of its own before it is said to fail; one that "
        "did not fail there, or could not be tried, says so. A call that fails is made "
        "smaller while verdict and cause stay: sizes first, then values.\n"
        "The script exits with 0 where the device is about as good as float32 on the "
        "CPU, 1 where it is not, 2 where it could not be tried.\n",
    .options = options,
    .examples = "  ulpscope repro ulpscope-trace#38 --device npu:0\n"
                "  python repro-38/repro.py --device npu:0 --import torch_npu\n",
    .codes = "0 written, 2 the call passes, so nothing is, or something went wrong",
};

enum { FOLDER, SEQUENCE, DEVICE, OUT, N_VALUES };

/* What the Python side takes: values by their places, then the modules to import. */
typedef struct settings {
    const char **word; /* ends with NULL */
    size_t n;
    char sequence[24], out[48];
    bool planted, force;
} settings;

static bool take(settings *s, int key)
{
    switch (key) {
    case OPT_DEVICE:
        s->word[DEVICE] = optarg;
        if (strncmp(optarg, "python:", 7) != 0) return true;
        return cli_fail(
                   "--device must be one that torch has: the script knows no others") ==
               0;
    case OPT_IMPORT:
        s->word[s->n++] = optarg;
        return true;
    case OPT_FAULTS: /* the script's process has it from here, too */
        s->planted = true;
        return setenv("ULPSCOPE_SIM_FAULTS", optarg, 1) == 0;
    case OPT_FORCE:
        return s->force = true;
    case 'o':
        s->word[OUT] = optarg;
        return true;
    default:
        return false;
    }
}

/* Whether the folder may be written: it is new, or an earlier one that --force replaces,
 * and never what somebody else put there. */
static bool may_write(const char *out, bool force)
{
    char *script = NULL;
    if (access(out, F_OK) != 0) return true;
    if (asprintf(&script, "%s/repro.py", out) < 0) return cli_fail("out of memory") == 0;
    const bool ours = access(script, F_OK) == 0;
    free(script);
    if (ours && force) return true;
    return cli_fail("%s is there already; name another folder with -o%s", out,
                    ours    ? ", or give --force to replace it"
                    : force ? ": it holds no repro.py that --force replaces"
                            : "") == 0;
}

static bool parse(int argc, char **argv, settings *s)
{
    int64_t call = -1;
    for (int key; (key = cli_next(&cmd_repro_page, argc, argv)) != -1;)
        if (!take(s, key)) return false;
    if (argc - optind != 1)
        return cli_fail("one call is needed: ulpscope repro TRACE#SEQUENCE") == 0;
    char *trace = argv[optind];
    s->word[FOLDER] = trace;
    if (!cli_split_call(trace, &call))
        return cli_fail("%s names no call; write %s#SEQUENCE, e.g. %s#38", trace, trace,
                        trace) == 0;
    (void)snprintf(s->sequence, sizeof s->sequence, "%lld", (long long)call);
    (void)snprintf(s->out, sizeof s->out, "repro-%lld", (long long)call);
    s->word[SEQUENCE] = s->sequence;
    if (s->word[OUT] == NULL) s->word[OUT] = s->out;
    if (s->planted && s->word[DEVICE][0] != '\0' &&
        strncmp(s->word[DEVICE], "sim", 3) != 0)
        return cli_fail("--faults: only the simulated device has planted faults; use "
                        "--device sim:0") == 0;
    const char *faults;
    if (s->planted && !cli_faults("sim", NULL, &faults)) return false;
    return may_write(s->word[OUT], s->force);
}

int cmd_repro(int argc, char **argv)
{
    settings s = {.word = calloc(N_VALUES + (size_t)argc + 1, sizeof *s.word),
                  .n = N_VALUES};
    cli_begin("repro");
    if (s.word == NULL) return cli_fail("out of memory");
    s.word[DEVICE] = "";
    const int code = parse(argc, argv, &s)
                         ? cli_python_exec("ulpscope.session.repro", s.word)
                         : CLI_TROUBLE;
    free(s.word);
    return code;
}
