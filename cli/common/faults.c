// SPDX-License-Identifier: Apache-2.0
// Faults planted in the simulated device: read by the device's own library, before a worker
// takes its seconds to start. Neighbour: cli_python.c, which knows where that lies.
#include <dlfcn.h>
#include <stdlib.h>

#include "cli.h"
#include "common/cli_python.h"

typedef usc_status plant_function(const char *text, int64_t *first_id, usc_error *err);

/* Where there is no such library the worker says what lacks. */
static bool hold(const char *faults)
{
    static cli_python python;
    static char path[PATH_MAX + 32];
    usc_error err;
    if (!cli_python_find(&python, NULL)) return true;
    (void)snprintf(path, sizeof path, "%s/libulpscope_sim.so", python.package);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return true;
    void *found = dlsym(library, "usc_sim_fault_plant");
    plant_function *plant;
    *(void **)&plant = found;
    const bool held = plant == NULL || plant(faults, NULL, &err) == USC_OK;
    if (!held)
        cli_fail("%s; nothing was started. All kinds: docs/reference/faults.md",
                 err.text);
    (void)dlclose(library);
    return held;
}

bool cli_faults(const char *device, const char *given, const char **out)
{
    static const char name[] = "ULPSCOPE_SIM_FAULTS";
    if (given != NULL) (void)setenv(name, given, 1);
    *out = cli_same_type(device, "sim") ? getenv(name) : NULL;
    return *out == NULL || hold(*out);
}
