// SPDX-License-Identifier: Apache-2.0
// ulpscope doctor: what is wrong with this installation and this machine, and the command
// that mends it. Neighbours: doctor_machine.c, doctor_python.c, doctor_words.c.
#include "doctor/doctor.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { OPT_DEVICE = 256, OPT_IMPORT, OPT_SYMBOLS, OPT_SOURCE, OPT_JSON };

static const cli_entry own_options[] = {
    {OPT_DEVICE, "device", "DEVICE", NULL,
     "look for this device too: npu:0, cuda:0, sim:0"},
    {OPT_IMPORT, "import", "MODULE", NULL,
     "and for this module, FILE.py or FILE.so, in a process of its own: what registers a "
     "device or operators; may be repeated"},
    {OPT_SYMBOLS, "symbols", "LIB", NULL,
     "this library alone: each symbol that it lacks, by its plain name, and where it is "
     "defined: in a file that is not built, a library that is not linked, nowhere"},
    {OPT_SOURCE, "source", "TREE", NULL,
     "with --symbols: look into these sources; may be those for CUDA of a port"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_doctor_page = {
    .command = "doctor",
    .usage = "[--device DEVICE | --symbols LIB] [OPTIONS]",
    .about =
        "Looks at what capture and check need, in this order: clock, folders with their "
        "room and permissions, limits, threads, locale; Python, torch, the package's "
        "extension, the glue to torch, what --import names, the device. A line each; "
        "what "
        "is wrong says so, with the command that mends it below.\n"
        "\n"
        "What is broken may crash: each question to torch is asked in a process of its "
        "own. Nothing is changed, and nothing is compiled. With --symbols nothing is "
        "loaded "
        "or run, either.\n",
    .options = options,
    .examples = "  ulpscope doctor\n"
                "  ulpscope doctor --device npu:0\n"
                "  ulpscope doctor --device xyz:0 --import ./libtorch_xyz.so --json\n"
                "  ulpscope doctor --symbols ops/_C.so --source pytorch/aten/src/ATen\n",
    .codes = "0 all is well, 1 something is wrong, 2 it could not be looked at",
};

/* ---- telling ---- */

static void put_field(const char *name, const char *text)
{
    (void)printf("\"%s\": ", name);
    cli_put_text(stdout, text);
}

static void tell_json(const doctor *d, int n_wrong)
{
    (void)printf("{\"version\": 1, \"wrong\": %d, \"checks\": [", n_wrong);
    for (int i = 0; i < d->n; i++) {
        const doctor_finding *f = &d->finding[i];
        (void)fputs(i > 0 ? ", {" : "{", stdout);
        put_field("check", f->check);
        (void)fputs(", ", stdout);
        put_field("state", f->wrong ? "wrong" : "ok");
        (void)fputs(", ", stdout);
        put_field("text", f->text);
        (void)fputs(", ", stdout);
        put_field("mend", f->mend);
        (void)putchar('}');
    }
    (void)puts("]}");
}

static void tell(const doctor *d, int n_wrong)
{
    for (int i = 0; i < d->n; i++) {
        const doctor_finding *f = &d->finding[i];
        (void)printf("%-6s %-10s %s\n", f->wrong ? "WRONG" : "ok", f->check, f->text);
        if (f->wrong) (void)printf("%17s mend: %s\n", "", f->mend);
    }
    if (n_wrong == 0)
        (void)puts("all is well");
    else
        (void)printf("%d %s wrong\n", n_wrong, n_wrong == 1 ? "thing is" : "things are");
}

static int look(doctor *d)
{
    if (d->library != NULL) return doctor_symbols(d);
    doctor_machine(d);
    (void)fputs("ulpscope doctor: asking Python, which loads torch\n", stderr);
    doctor_python(d);
    return CLI_SAME;
}

int cmd_doctor(int argc, char **argv)
{
    bool json = false;
    cli_begin("doctor");
    doctor *d = calloc(1, sizeof *d);
    if (d == NULL) return cli_fail("out of memory");
    int code = CLI_SAME;
    for (int key;
         code == CLI_SAME && (key = cli_next(&cmd_doctor_page, argc, argv)) != -1;) {
        if (key == OPT_DEVICE) d->device = optarg;
        if (key == OPT_SYMBOLS) d->library = optarg;
        if (key == OPT_SOURCE) d->source = optarg;
        json |= key == OPT_JSON;
        if (key == '?' || (key == OPT_IMPORT && !cli_import(d->imports, &d->n_imports)))
            code = CLI_TROUBLE;
    }
    if (code == CLI_SAME && optind != argc)
        code = cli_fail("doctor takes no argument '%s'; name a device with --device",
                        argv[optind]);
    if (code == CLI_SAME && d->device != NULL && d->device[0] == '\0')
        code = cli_fail("--device names no device");
    if (code == CLI_SAME && d->source != NULL && d->library == NULL)
        code = cli_fail("--source is of --symbols LIB, which is not given");
    if (code == CLI_SAME && d->library != NULL && (d->device != NULL || d->n_imports > 0))
        code = cli_fail("--symbols looks at a library alone: leave out %s",
                        d->device != NULL ? "--device" : "--import");
    if (code == CLI_SAME) code = look(d);
    if (code == CLI_SAME) {
        int n_wrong = 0;
        for (int i = 0; i < d->n; i++)
            n_wrong += d->finding[i].wrong;
        if (json)
            tell_json(d, n_wrong);
        else
            tell(d, n_wrong);
        code = cli_close_output(n_wrong > 0 ? CLI_DIFFERS : CLI_SAME);
    }
    free(d->finding);
    free(d);
    return code;
}
