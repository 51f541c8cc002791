// SPDX-License-Identifier: Apache-2.0
// What the devices are.
#include <ulpscope_sim/profile.h>

#include "base/number.h"
#include "blocks.h"
#include "nearest.h"

#include <ulpscope/x/pattern.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define ROW(name, lacks, devices, memory, warp, shared, doc)                             \
    {name, lacks, devices, memory, warp, shared, doc},
static const usc_sim_profile rows[] = {USC_SIM_PROFILE_LIST(ROW)};
#undef ROW
#define N_ROWS (sizeof rows / sizeof rows[0])

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static usc_sim_profile now;
static bool is_set; /* until then it is the first row */
static atomic_bool lacks_some;
static atomic_int n_devices = 2;

bool usc_sim_profile_row(size_t i, usc_sim_profile *out)
{
    *out = i < N_ROWS ? rows[i] : (usc_sim_profile){.doc = ""};
    return i < N_ROWS;
}

void usc_sim_profile_get(usc_sim_profile *out)
{
    pthread_mutex_lock(&lock);
    *out = is_set ? now : rows[0];
    pthread_mutex_unlock(&lock);
}

int usc_sim_device_count(void)
{
    return atomic_load_explicit(&n_devices, memory_order_relaxed);
}

bool usc_sim_lacks(const char *dtype)
{
    usc_sim_profile p;
    if (!atomic_load_explicit(&lacks_some, memory_order_relaxed)) return false;
    if (dtype == NULL) return true;
    usc_sim_profile_get(&p);
    return p.lacks[0] != '\0' && usc_pattern_match(p.lacks, dtype);
}

/* ---- text ------------------------------------------------------------------------- */

static const char *row_name(const void *ctx, size_t i)
{
    (void)ctx;
    return i < N_ROWS ? rows[i].text : NULL;
}

static const char *key_name(const void *ctx, size_t i)
{
    static const char *names[] = {"devices", "memory", "shared", "warp", "lacks"};
    (void)ctx;
    return i < sizeof names / sizeof names[0] ? names[i] : NULL;
}

static usc_status no_such_name(const char *text, usc_error *err)
{
    char known[200] = "";
    size_t n = 0;
    for (size_t i = 0; i < N_ROWS && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i > 0 ? ", " : "",
                              rows[i].text);
    return usc_error_set(
        err, USC_E_ARG, -1,
        "sim: there is no profile '%.60s', the nearest is '%s'; known: %s", text,
        sim_nearest(text, strcspn(text, ":"), row_name, NULL), known);
}

/* A whole number, with K, M or G behind it where it counts bytes; -1: it is none. */
static int64_t whole_number(const char *text, bool bytes)
{
    static const char units[] = "KMG";
    char *end;
    double value = usc_parse_number(text, &end);
    const char *unit = bytes && *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        value *= (double)((int64_t)1 << (10 * (unit - units + 1)));
        end++;
    }
    if (end == text || *end != '\0' || !(value >= 0 && value <= 0x1p53)) return -1;
    return (double)(int64_t)value < value ? -1 : (int64_t)value;
}

static usc_status set_key(usc_sim_profile *p, const char *key, const char *value,
                          usc_error *err)
{
    const struct {
        const char *key;
        int64_t *slot;
        bool bytes;
        int64_t least, most;
    } keys[] = {
        {"devices", &p->n_devices, false, 0, USC_SIM_MOST_DEVICES},
        {"memory", &p->memory_size, true, 0, (int64_t)1 << 40},
        {"shared", &p->shared_size, true, 0, (int64_t)1 << 30},
        {"warp", &p->warp_size, false, 1, 1024},
    };
    if (strcmp(key, "lacks") == 0) {
        (void)snprintf(p->lacks, sizeof p->lacks, "%s", value);
        return value[0] != '\0' ? usc_pattern_check(value, err) : USC_OK;
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(key, keys[i].key) != 0) continue;
        const int64_t n = whole_number(value, keys[i].bytes);
        if (n < keys[i].least || n > keys[i].most)
            return usc_error_set(
                err, USC_E_ARG, -1, "sim: profile: %s '%s' is not in %lld to %lld", key,
                value, (long long)keys[i].least, (long long)keys[i].most);
        *keys[i].slot = n;
        return USC_OK;
    }
    return usc_error_set(err, USC_E_ARG, -1,
                         "sim: profile: there is no '%s', the nearest is '%s'; devices, "
                         "memory, shared, warp and lacks are set",
                         key, sim_nearest(key, strlen(key), key_name, NULL));
}

static usc_status set_part(usc_sim_profile *p, char *part, usc_error *err)
{
    char *equals = strchr(part, '=');
    if (equals == NULL)
        return usc_error_set(err, USC_E_ARG, -1, "sim: profile: '%s' is not key=value",
                             part);
    *equals = '\0';
    return set_key(p, part, equals + 1, err);
}

static usc_status parse(const char *text, usc_sim_profile *out, usc_error *err)
{
    char copy[USC_SIM_PROFILE_TEXT], *rest = copy;
    if (strlen(text) >= sizeof copy)
        return usc_error_set(err, USC_E_ARG, -1, "sim: a profile of %zu characters",
                             strlen(text));
    (void)snprintf(copy, sizeof copy, "%s", text);
    const char *name = strsep(&rest, ":");
    size_t i = 0;
    while (i < N_ROWS && strcmp(rows[i].text, name) != 0)
        i++;
    if (i == N_ROWS) return no_such_name(name, err);
    *out = rows[i];
    (void)snprintf(out->text, sizeof out->text, "%s", text);
    usc_status st = USC_OK;
    while (st == USC_OK && rest != NULL)
        st = set_part(out, strsep(&rest, ":"), err);
    return st;
}

static bool is_used(void)
{
    for (int i = 0; i < USC_SIM_MOST_DEVICES; i++)
        if (usc_sim_memory_stats(i).n_allocs > 0) return true;
    return usc_sim_has_worked();
}

usc_status usc_sim_profile_set(const char *text, usc_error *err)
{
    usc_sim_profile wanted;
    const usc_status st = parse(text, &wanted, err);
    if (st != USC_OK) return st;
    if (wanted.n_devices != usc_sim_device_count() && is_used())
        return usc_error_set(err, USC_E_ARG, -1,
                             "sim: profile: %d devices are in use and cannot become "
                             "%lld; choose it at the start (ULPSCOPE_SIM_PROFILE)",
                             usc_sim_device_count(), (long long)wanted.n_devices);
    pthread_mutex_lock(&lock);
    now = wanted;
    is_set = true;
    pthread_mutex_unlock(&lock);
    atomic_store(&lacks_some, wanted.lacks[0] != '\0');
    atomic_store(&n_devices, (int)wanted.n_devices);
    usc_sim_set_memory_size((size_t)wanted.memory_size);
    return USC_OK;
}
