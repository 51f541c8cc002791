// SPDX-License-Identifier: Apache-2.0
// What Python answers, a process of its own for each question, and what is to be done
// about an answer that is none. See doctor.h and ulpscope.doctor_probe.
#include "doctor/doctor.h"

#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ulpscope/version.h>

#include "common/cli_python.h"

enum { TIMEOUT_MS = 300000, MOST_WORDS = CLI_MAX_IMPORTS + 8 };
#define MARK "ulpscope doctor begins here\n"

typedef struct answers {
    char output[32768]; /* lines, each ends with a zero */
    size_t size;
    int code; /* of cli_run */
} answers;

static cli_python python;

/* ---- asking ---- */

/* The value behind the last line of that name; "" for none. */
static const char *answer(const answers *a, const char *name)
{
    const size_t n = strlen(name);
    const char *found = "";
    for (const char *at = a->output; at < a->output + a->size;) {
        if (strncmp(at, name, n) == 0 && at[n] == '\t') found = at + n + 1;
        at += strlen(at) + 1;
    }
    return found;
}

/* For who waits at a terminal; torch takes seconds to load. */
static void say_loading(bool begins)
{
    if (isatty(STDERR_FILENO) == 0) return;
    (void)fprintf(stderr, "\r\033[K%s",
                  begins ? "ulpscope doctor: loading torch, to see what works" : "");
    (void)fflush(stderr);
}

static void ask(const char *const *words, answers *a)
{
    char script[PATH_MAX + 32];
    char *argv[MOST_WORDS] = {python.program, script};
    int n = 2;
    (void)snprintf(script, sizeof script, "%s/doctor_probe.py", python.package);
    for (; words[n - 2] != NULL && n + 1 < MOST_WORDS; n++)
        argv[n] = strdup(words[n - 2]);
    memset(a->output, 0, sizeof a->output);
    say_loading(true);
    a->code = cli_run(argv, TIMEOUT_MS, false, a->output, sizeof a->output - 1);
    say_loading(false);
    for (int i = 2; i < n; i++)
        free(argv[i]);
    char *at = strstr(a->output, MARK);
    const size_t rest = at != NULL ? strlen(at + strlen(MARK)) : 0;
    if (at != NULL) memmove(a->output, at + strlen(MARK), rest);
    memset(a->output + rest, 0, sizeof a->output - rest);
    a->size = rest;
    for (char *c = a->output; c < a->output + rest; c++)
        if (*c == '\n') *c = '\0';
}

/* Whether the process lived to tell; else that is added. */
static bool lived(doctor *d, const char *check, const char *what, const answers *a)
{
    doctor_finding *f;
    if (answer(a, "fine")[0] != '\0' || answer(a, "kind")[0] != '\0') return true;
    if (a->code == -2)
        f = doctor_wrong(d, check, "%s: no answer within %d s", what, TIMEOUT_MS / 1000);
    else if (a->code > 128)
        f = doctor_wrong(d, check, "%s: its process dies of SIG%s", what,
                         usc_signal_name(a->code - 128) != NULL
                             ? usc_signal_name(a->code - 128)
                             : "?");
    else
        f = doctor_wrong(d, check, "%s: its process leaves with exit code %d", what,
                         a->code);
    if (answer(a, "library")[0] != '\0')
        doctor_mend(f, "rm %s; %s -m ulpscope.program.glue", answer(a, "library"),
                    python.program);
    else if (strcmp(check, "import") == 0)
        doctor_mend(f,
                    "%s -X faulthandler -c \"import torch; import ...\" of %s shows "
                    "where; it needs a build for this torch",
                    python.program, what);
    else
        doctor_mend(f, "%s -X faulthandler -c 'import torch' shows where",
                    python.program);
    return false;
}

/* ---- what was raised ---- */

static bool in_container(void)
{
    const char *kind = getenv("container");
    return (kind != NULL && kind[0] != '\0') || access("/.dockerenv", F_OK) == 0 ||
           access("/run/.containerenv", F_OK) == 0;
}

/* What brings a driver's own libraries into a container. */
#define WITH_RUNTIME                                                                     \
    "start the container by its vendor's runtime: docker run --gpus all (cuda), --env "  \
    "MTHREADS_VISIBLE_DEVICES=all (musa), --runtime=ascend --env "                       \
    "ASCEND_VISIBLE_DEVICES=0 (npu)"

static void mend_library(doctor_finding *f, const char *name)
{
    char folder[PATH_MAX];
    if (doctor_find_library(name, folder, sizeof folder))
        doctor_mend(f, "export LD_LIBRARY_PATH=%s:$LD_LIBRARY_PATH", folder);
    else
        doctor_mend(f,
                    "find / -name '%s' 2>/dev/null; then export LD_LIBRARY_PATH=ITS "
                    "FOLDER:$LD_LIBRARY_PATH, or install what brings it%s",
                    name, in_container() ? "; if it is the driver's, " WITH_RUNTIME : "");
}

static void mend_symbol(doctor_finding *f, const answers *a, const char *what)
{
    const char *package = answer(a, "package");
    const int n = (int)strcspn(package, " ");
    if (n > 0)
        doctor_mend(f,
                    "%s -m pip install --force-reinstall --no-deps --no-build-isolation "
                    "%.*s",
                    python.program, n, package);
    else
        doctor_mend(f,
                    "build %s again with this torch (python -m pip install "
                    "--no-build-isolation --force-reinstall its source)",
                    what);
}

/* What an error that was raised means, and what mends it. */
static void judge_error(doctor *d, const char *check, const char *what, const answers *a,
                        const char *torch)
{
    char name[512];
    const char *error = answer(a, "error"), *missing = answer(a, "missing");
    const doctor_load load = doctor_load_read(error, name, sizeof name);
    doctor_finding *f;
    if (load == DOCTOR_LOAD_LIBRARY) {
        f = doctor_wrong(d, check, "%s: the library %s is not found", what, name);
        mend_library(f, name);
    } else if (load == DOCTOR_LOAD_SYMBOL) {
        f = doctor_wrong(d, check,
                         "%s: built for another torch than %s: nobody has its symbol "
                         "%.200s%s%s",
                         what, torch, name,
                         answer(a, "wants")[0] != '\0' ? "; it asks for " : "",
                         answer(a, "wants"));
        mend_symbol(f, a, what);
    } else if (load == DOCTOR_LOAD_VERSION) {
        f = doctor_wrong(d, check,
                         "%s: built on a newer system: %s is not in the one here", what,
                         name);
        doctor_mend(f, "build it here, or in a container of its own system");
    } else if (load == DOCTOR_LOAD_FILE) {
        f = doctor_wrong(d, check, "%s: %s is no whole library of this machine", what,
                         name);
        if (in_container() && strstr(error, "file too short") != NULL)
            doctor_mend(f, "%s; else rm %s, and install it again", WITH_RUNTIME, name);
        else
            doctor_mend(f, "rm %s, and install it again", name);
    } else if (strcmp(answer(a, "kind"), "ModuleNotFoundError") == 0) {
        f = doctor_wrong(d, check, "%s: there is no module '%s' in %s", what, missing,
                         python.program);
        doctor_mend(f,
                    "%s -m pip install %s, or export ULPSCOPE_PYTHON=THE ONE THAT HAS "
                    "IT",
                    python.program, missing);
    } else {
        f = doctor_wrong(d, check, "%s: %s: %.400s", what, answer(a, "kind"), error);
        doctor_mend(f,
                    "%s -c 'import torch', and the same with what it names, shows the "
                    "whole",
                    python.program);
    }
}

/* ---- the questions ---- */

/* What this torch has not; nothing of it is wrong. */
static void tell_lacking(doctor *d, const answers *a)
{
    for (const char *at = a->output; at < a->output + a->size; at += strlen(at) + 1)
        if (strncmp(at, "lacks\t", 6) == 0) doctor_fine(d, "lacks", "%s", at + 6);
}

static bool look_at_torch(doctor *d, answers *a, char *version, size_t size)
{
    const char *const words[] = {"torch", NULL};
    ask(words, a);
    if (!lived(d, "torch", "import torch", a)) return false;
    if (answer(a, "fine")[0] == '\0') {
        judge_error(d, "torch", "import torch", a, "the one it was made for");
        return false;
    }
    (void)snprintf(version, size, "%s", answer(a, "version"));
    if (answer(a, "too_old")[0] != '\0') {
        doctor_finding *f = doctor_wrong(d, "torch", "%s", answer(a, "too_old"));
        doctor_mend(f, "%s -m pip install --upgrade torch", python.program);
        return false;
    }
    doctor_fine(d, "torch", "%s in %s", version, answer(a, "where"));
    return true;
}

static bool look_at_core(doctor *d, answers *a, const char *torch)
{
    const char *const words[] = {"core", NULL};
    ask(words, a);
    if (!lived(d, "extension", "ulpscope._core", a)) return false;
    if (answer(a, "fine")[0] == '\0') {
        judge_error(d, "extension", "ulpscope._core", a, torch);
        return false;
    }
    if (strcmp(answer(a, "version"), USC_VERSION) == 0) {
        doctor_fine(d, "extension", "ulpscope %s", USC_VERSION);
        return true;
    }
    doctor_finding *f =
        doctor_wrong(d, "extension", "this program is %s, the package in %s is %s",
                     USC_VERSION, python.package, answer(a, "version"));
    doctor_mend(f, "%s -m pip install --force-reinstall --no-deps ulpscope; hash -r",
                python.program);
    return true;
}

static void look_at_glue(doctor *d, answers *a)
{
    const char *const words[] = {"glue", NULL};
    ask(words, a);
    const char *cache = answer(a, "cache"), *built = answer(a, "built");
    const bool all_built = built[0] != '\0' && strstr(built, "not built") == NULL;
    doctor_finding *f;
    if (!lived(d, "glue", "the glue to torch", a)) return;
    if (answer(a, "unwritable")[0] != '\0' && !all_built) {
        f = doctor_wrong(d, "glue", "it cannot be kept in %s: %s", cache,
                         answer(a, "unwritable"));
        doctor_mend(f, "export ULPSCOPE_CACHE=FOLDER, one that can be written");
    } else if (answer(a, "fine")[0] == '\0' && answer(a, "library")[0] == '\0') {
        f = doctor_wrong(d, "glue", "%.400s", answer(a, "error"));
        if (strstr(answer(a, "error"), "ULPSCOPE_CACHE") != NULL)
            doctor_mend(f, "export ULPSCOPE_CACHE=FOLDER, one of your own");
        else
            doctor_mend(f, "%s -m ulpscope.program.glue says more", python.program);
    } else if (answer(a, "fine")[0] == '\0') {
        f = doctor_wrong(d, "glue", "%s: %.300s", answer(a, "library"),
                         answer(a, "error"));
        doctor_mend(f, "rm %s; %s -m ulpscope.program.glue", answer(a, "library"),
                    python.program);
    } else if (strcmp(answer(a, "compiles"), "1") != 0 && !all_built) {
        f = doctor_wrong(d, "glue", "it cannot be compiled: %s", answer(a, "compiler"));
        doctor_mend(f, "apt install g++");
    } else if (strcmp(answer(a, "python_h"), "1") != 0 && !all_built) {
        f = doctor_wrong(d, "glue", "it cannot be compiled: Python.h is not there");
        doctor_mend(f, "apt install python3-dev");
    } else {
        doctor_fine(d, "glue", "%s%s%s%s, for torch %s in %s", built,
                    answer(a, "others")[0] != '\0' ? "; also for torch " : "",
                    answer(a, "others"),
                    answer(a, "others")[0] != '\0' ? " (not used)" : "",
                    answer(a, "torch"), cache);
    }
}

static void look_at_imports(doctor *d, answers *a, const char *torch)
{
    for (int i = 0; i < d->n_imports; i++) {
        const char *const words[] = {"import", d->imports[i], NULL};
        ask(words, a);
        if (!lived(d, "import", d->imports[i], a)) continue;
        if (answer(a, "fine")[0] != '\0')
            doctor_fine(d, "import", "%s", d->imports[i]);
        else
            judge_error(d, "import", d->imports[i], a, torch);
    }
}

/* ---- the device ---- */

/* Who may use a device's file is its group, which may have no name here. */
static void mend_rights(doctor_finding *f, const char *node, int n)
{
    char path[PATH_MAX];
    struct stat about;
    (void)snprintf(path, sizeof path, "%.*s", n, node);
    const bool there = stat(path, &about) == 0;
    const struct group *group = there ? getgrgid(about.st_gid) : NULL;
    if (there && group == NULL)
        doctor_mend(
            f,
            "sudo groupadd -o -g %u render && sudo usermod -aG render $USER; then "
            "log in again",
            (unsigned)about.st_gid);
    else
        doctor_mend(f, "sudo usermod -aG %s $USER; then log in again",
                    group != NULL ? group->gr_name : "render");
}

/* Why a device of a known type is not to be had; whether that was it. */
static bool judge_absence(doctor *d, const answers *a, const char *type)
{
    const char *node = answer(a, "node"), *hidden = answer(a, "hidden"),
               *count = answer(a, "count"), *colon = strchr(d->device, ':');
    const bool away = strcmp(answer(a, "available"), "0") == 0;
    const bool beyond =
        count[0] != '\0' && colon != NULL && atoi(colon + 1) >= atoi(count);
    doctor_finding *f;
    if (!away && !beyond) return false;
    if (hidden[0] != '\0') {
        f = doctor_wrong(d, "device", "%s is hidden: %s", d->device, hidden);
        doctor_mend(f, "unset %.*s", (int)strcspn(hidden, "="), hidden);
    } else if (beyond && !away) {
        f = doctor_wrong(d, "device", "%s: torch sees %s of this type, from %s:0 on",
                         d->device, count, type);
        doctor_mend(f, "--device %s:0", type);
    } else if (strcmp(answer(a, "built_for"), "the CPU alone") == 0) {
        f = doctor_wrong(d, "device", "%s: this torch is built for the CPU alone",
                         d->device);
        doctor_mend(f, "%s -m pip install --force-reinstall torch, a build for %s",
                    python.program, type);
    } else if (strstr(node, " closed") != NULL) {
        const int n = (int)strcspn(node, " ");
        f = doctor_wrong(d, "device", "%s: you may not use %.*s", d->device, n, node);
        mend_rights(f, node, n);
    } else if (strstr(node, " absent") != NULL) {
        f = doctor_wrong(d, "device",
                         "%s: there is no %.*s: its driver is not loaded, or "
                         "the container was started without the device",
                         d->device, (int)strcspn(node, " "), node);
        doctor_mend(f, "%s",
                    strcmp(type, "cuda") == 0 ? "nvidia-smi; docker run --gpus all"
                    : strcmp(type, "npu") == 0
                        ? "npu-smi info; docker run --device /dev/davinci0"
                        : "look at dmesg; docker run --device");
    } else {
        f = doctor_wrong(d, "device", "%s: torch.%s.is_available() is False", d->device,
                         type);
        doctor_mend(f, "look at dmesg for its driver");
    }
    return true;
}

static void judge_device(doctor *d, const answers *a, const char *torch)
{
    char type[64];
    (void)snprintf(type, sizeof type, "%.*s", (int)strcspn(d->device, ":"), d->device);
    const bool fine = answer(a, "fine")[0] != '\0';
    const char *brought = answer(a, "brought_by");
    doctor_finding *f;
    if (fine && answer(a, "counts")[0] != '\0') {
        f = doctor_wrong(d, "device", "%s adds 1 to [0, 1, 2, 3] and gives %s", d->device,
                         answer(a, "counts"));
        doctor_mend(f, "ulpscope check TRACE --device %s tells which operators are wrong",
                    d->device);
    } else if (fine) {
        doctor_fine(d, "device", "%s answers", d->device);
    } else if (judge_absence(d, a, type)) {
        return;
    } else if (answer(a, "unregistered")[0] != '\0') {
        f = doctor_wrong(d, "device", "torch has no device type '%s'", type);
        doctor_mend(f, "--import THE PACKAGE THAT REGISTERS IT (sim, npu, musa, mlu and "
                       "hpu are known by themselves)");
    } else if (brought[0] != '\0' &&
               strcmp(answer(a, "kind"), "ModuleNotFoundError") == 0) {
        f = doctor_wrong(d, "device", "%s is brought by %s, which is not in %s", type,
                         brought, python.program);
        doctor_mend(f, "%s -m pip install %s", python.program, brought);
    } else {
        judge_error(d, "device", brought[0] != '\0' ? brought : d->device, a, torch);
    }
}

static void look_at_device(doctor *d, answers *a, const char *torch)
{
    const char *words[CLI_MAX_IMPORTS + 3] = {"device", d->device};
    for (int i = 0; i < d->n_imports; i++)
        words[2 + i] = d->imports[i];
    ask(words, a);
    if (lived(d, "device", d->device, a)) judge_device(d, a, torch);
}

void doctor_python(doctor *d)
{
    static answers a;
    char torch[64];
    usc_error err;
    if (!cli_python_find(&python, &err)) {
        doctor_finding *f = doctor_wrong(d, "python", "%s", err.text);
        doctor_mend(f, "export ULPSCOPE_PYTHON=/path/to/your/environment/bin/python");
        return;
    }
    doctor_fine(d, "python", "%s, with the package in %s", python.program,
                python.package);
    if (!look_at_torch(d, &a, torch, sizeof torch)) return;
    if (!look_at_core(d, &a, torch)) return;
    tell_lacking(d, &a);
    look_at_glue(d, &a);
    look_at_imports(d, &a, torch);
    if (d->device != NULL) look_at_device(d, &a, torch);
}
