// SPDX-License-Identifier: Apache-2.0
// ulpscope judge: verdicts on outputs that lie in files.
#include "cli.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ulpscope/pack.h>

#include "common/judge_torch.h"
#include "common/progress.h"

enum { OPT_SCALE = 256, OPT_STANDARD, OPT_FORCE, OPT_DTYPE, OPT_SHAPE };

static const cli_entry own_options[] = {
    {OPT_SCALE, "scale", "FILE", NULL,
     "of DEVICE REFERENCE: how large the terms are that make an element, as tensors with "
     "the same names and shapes"},
    {OPT_DTYPE, "dtype", "DTYPE[,DTYPE]", NULL,
     "of raw bytes (.bin): of DEVICE and REFERENCE, e.g. bfloat16,float32"},
    {OPT_SHAPE, "shape", "N,N...", NULL, "of raw bytes: e.g. 2,3; of a scalar: ()"},
    {OPT_STANDARD, "standard", "NAME", "ulpscope", "the rule to judge by"},
    {'o', "out", "OUT", "ulpscope-judged", "folder of the results"},
    {OPT_FORCE, "force", NULL, NULL, "replace results of another run in OUT"},
    {0}};

static const cli_entry *const options[] = {own_options, cli_report_options, NULL};

const cli_page cmd_judge_page = {
    .command = "judge",
    .usage = "PACK OUTPUTS [OPTIONS]\n"
             "       ulpscope judge DEVICE REFERENCE [--scale S] [OPTIONS]",
    .about =
        "Judges what some device gave without asking the device: RTL simulation, "
        "firmware, "
        "a compiler's dump. Needs neither torch nor the trace. Writes the same results "
        "and "
        "the same report as `ulpscope check`.\n"
        "\n"
        "PACK is a folder that `ulpscope pack` wrote. Read the inputs of each call in "
        "PACK/inputs, compute, and save the outputs under the names of PACK/pack.json, "
        "e.g. "
        "\"12/out[0]\", in OUTPUTS: one safetensors file, or a folder of them.\n"
        "\n"
        "Without a pack, two files or folders of tensors are compared, the references in "
        "float64 (or float32): safetensors, .npy, .npz, .pt (tensors alone; torch reads "
        "it), JSON of polygraphy, .pb tensors of ONNX, raw bytes, folders of these in "
        "folders. Tensors are matched by "
        "name, or, where no name is in both, by place; the first that is wrong in the "
        "order of REFERENCE is named. Then nobody knows how an operator reacts to its "
        "inputs: what is right relative to |reference| passes, what is far off even "
        "beside the mean of its tensor is accused, and between them it is unjudged "
        "unless --scale says how large the terms are that are added up.\n",
    .options = options,
    .examples =
        "  ulpscope judge pack rtl-outputs -o rtl-verdicts\n"
        "  ulpscope judge dump.safetensors truth.safetensors --scale sums.safetensors\n"
        "  ulpscope judge trt-outputs.json onnxrt-outputs.json\n"
        "  ulpscope judge layers-npu/ layers-gpu/\n"
        "  ulpscope judge out.bin truth.bin --dtype float16,float32 --shape 1,1000\n",
    .codes =
        "1 when a call is flagged and not allowed; 2 when one could not be judged or "
        "was not given and is not allowed (--allow, --min-judged), or something went "
        "wrong; else 0",
};

typedef struct judge_arguments {
    usc_pack_options options;
    cli_report report;
    const char *first, *second;
    bool shape;
} judge_arguments;

/* One dtype for both, or one for each. */
static bool take_dtypes(usc_pack_options *o)
{
    char text[64];
    const char *comma = strchr(optarg, ',');
    const size_t n = comma != NULL ? (size_t)(comma - optarg) : strlen(optarg);
    (void)snprintf(text, sizeof text, "%.*s", (int)(n < 63 ? n : 63), optarg);
    o->raw_dtype[0] = usc_dtype_by_name(text);
    o->raw_dtype[1] = comma != NULL ? usc_dtype_by_name(comma + 1) : o->raw_dtype[0];
    if (o->raw_dtype[0] != USC_DTYPE_NONE && o->raw_dtype[1] != USC_DTYPE_NONE)
        return true;
    return cli_fail("--dtype '%s': dtypes are called as in torch, e.g. float16, or "
                    "bfloat16,float32 for the two sides",
                    optarg) == 0;
}

static bool take_shape(judge_arguments *a)
{
    usc_pack_options *o = &a->options;
    a->shape = true;
    o->raw_ndim = 0;
    for (const char *at = optarg; strcmp(at, "()") != 0;) {
        char *end;
        const long long size = strtoll(at, &end, 10);
        if (end == at || size < 0 || o->raw_ndim == USC_MAX_DIMS ||
            (*end != '\0' && *end != ',' && *end != 'x'))
            return cli_fail("--shape '%s': whole numbers with commas between, e.g. 2,3",
                            optarg) == 0;
        o->raw_sizes[o->raw_ndim++] = size;
        if (*end == '\0') break;
        at = end + 1;
    }
    return true;
}

static bool parse(int argc, char **argv, judge_arguments *a)
{
    *a = (judge_arguments){.options = {.out = "ulpscope-judged"}};
    cli_report_begin(&a->report);
    for (int option; (option = cli_next(&cmd_judge_page, argc, argv)) != -1;) {
        if (option == 'o')
            a->options.out = optarg;
        else if (option == OPT_SCALE)
            a->options.scale = optarg;
        else if (option == OPT_STANDARD)
            a->options.standard = optarg;
        else if (option == OPT_FORCE)
            a->options.force = true;
        else if (option == OPT_DTYPE) {
            if (!take_dtypes(&a->options)) return false;
        } else if (option == OPT_SHAPE) {
            if (!take_shape(a)) return false;
        } else if (!cli_report_option(&a->report, option))
            return false;
    }
    if (argc - optind != 2) {
        cli_fail("judge needs two arguments: PACK OUTPUTS, or DEVICE REFERENCE; see "
                 "ulpscope judge --help");
        return false;
    }
    if (a->shape != (a->options.raw_dtype[0] != USC_DTYPE_NONE))
        return cli_fail("raw bytes need both --dtype and --shape") == 0;
    a->first = argv[optind];
    a->second = argv[optind + 1];
    return cli_report_ready(&a->report);
}

static const char *next_step(usc_status status)
{
    if (status == USC_E_EXISTS)
        return "; name another folder with -o, or --force to replace it";
    return "";
}

/* Two files or folders of tensors, of which torch may have to read some. */
static usc_status judge_pair(judge_arguments *a, bool *told, usc_error *err)
{
    judge_source device = {0}, reference = {0};
    usc_status st = USC_E_IO;
    if (cli_is_one_file(a->first, a->second)) {
        *told = true;
        (void)cli_fail("%s is given twice, and a comparison with itself says "
                       "nothing: name the references",
                       a->first);
        return st;
    }
    a->options.device_name = a->first;
    a->options.reference_name = a->second;
    st = usc_pair_may_write(a->first, a->second, &a->options, err);
    if (st != USC_OK) return st; /* before torch is loaded for nothing */
    *told = !judge_source_open(a->first, &device) ||
            !judge_source_open(a->second, &reference);
    if (!*told) st = usc_pair_judge(device.path, reference.path, &a->options, err);
    judge_source_close(&reference);
    judge_source_close(&device);
    return st;
}

static bool holds(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return cli_is_folder(folder) &&
           snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_MAX &&
           access(path, F_OK) == 0;
}

int cmd_judge(int argc, char **argv)
{
    judge_arguments a;
    usc_error err = {0};
    bool told = false;
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    const bool pack = holds(a.first, "pack.json");
    if (cli_is_trace(a.first) && cli_is_trace(a.second))
        return cli_fail(
            "%s and %s are traces, not folders of tensors: ulpscope diff %s %s", a.first,
            a.second, a.first, a.second);
    if (pack && a.options.scale != NULL)
        return cli_fail(
            "--scale is for two files; a pack knows the scale of each output");
    cli_progress reads;
    cli_progress_read(&reads, "judge");
    const usc_status st = pack ? usc_pack_judge(a.first, a.second, &a.options, &err)
                               : judge_pair(&a, &told, &err);
    cli_progress_end(&reads);
    if (told) return CLI_TROUBLE;
    /* A pack without its manifest is a folder of folders. */
    const bool no_pack = !pack && cli_is_folder(a.first) &&
                         (st == USC_E_NOT_FOUND || holds(a.first, "operands"));
    if (st != USC_OK)
        return cli_fail("%s%s%s", err.text, next_step(st),
                        no_pack ? "; nor is it a folder that ulpscope pack wrote" : "");
    return cli_report_show(&a.report, a.options.out);
}
