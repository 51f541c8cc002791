// SPDX-License-Identifier: Apache-2.0
// A configuration out of "k:v,k:v": the names of NPU_ASD_CONFIG, and what it lacks said.
#include <ulpscope/x/watch.h>

#include <ulpscope/x/pattern.h>

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { MOST_TEXT = 64 };

typedef struct number_key {
    const char *name;
    size_t at;
    int64_t initial, least, most;
} number_key;

static const number_key numbers[] = {
#define KEY(name, initial, least, most, about)                                           \
    {#name, offsetof(usc_watch_config, name), initial, least, most},
    USC_WATCH_KEY_LIST(KEY)
#undef KEY
};

static const struct {
    const char *name;
    size_t at;
} flags[] = {
    {"enable", offsetof(usc_watch_config, enable)},
    {"with_checksum", offsetof(usc_watch_config, with_checksum)},
    {"loss_scaling", offsetof(usc_watch_config, loss_scaling)},
};

static const char *const others[] = {"mode", "world", "detectors", "action"};

enum {
    N_NUMBERS = sizeof numbers / sizeof numbers[0],
    N_FLAGS = sizeof flags / sizeof flags[0],
    N_OTHERS = sizeof others / sizeof others[0],
};

static int64_t *number_at(usc_watch_config *c, size_t at)
{
    return (int64_t *)(void *)((char *)c + at);
}

void usc_watch_config_init(usc_watch_config *config, usc_watch_mode mode)
{
    static const bool sound[] = {
#define ROW(id, name, in_sound, about) in_sound,
        USC_WATCH_DETECTOR_LIST(ROW)
#undef ROW
    };
    *config =
        (usc_watch_config){.mode = mode, .enable = mode == USC_WATCH_SOUND, .world = 1};
    for (size_t i = 0; i < N_NUMBERS; i++)
        *number_at(config, numbers[i].at) = numbers[i].initial;
    if (mode == USC_WATCH_ASD) config->detectors = 1u << USC_WATCH_BY_ASD;
    for (unsigned d = 0; mode == USC_WATCH_SOUND && d < USC_N_WATCH_DETECTORS; d++)
        if (sound[d]) config->detectors |= 1u << d;
}

/* ---- the nearest name ---- */

static void take_nearer(const char *given, const char *name, const char **best,
                        double *most)
{
    const double like = usc_likeness(given, name);
    if (like <= *most) return;
    *most = like;
    *best = name;
}

static const char *nearest_key(const char *given)
{
    const char *best = "enable";
    double most = 0;
    for (size_t i = 0; i < N_FLAGS; i++)
        take_nearer(given, flags[i].name, &best, &most);
    for (size_t i = 0; i < N_NUMBERS; i++)
        take_nearer(given, numbers[i].name, &best, &most);
    for (size_t i = 0; i < N_OTHERS; i++)
        take_nearer(given, others[i], &best, &most);
    return best;
}

/* ---- values ---- */

static usc_status take_number(const char *name, const char *value, int64_t least,
                              int64_t most, int64_t *out, usc_error *err)
{
    size_t digits = 0;
    while (value[digits] >= '0' && value[digits] <= '9')
        digits++;
    errno = 0;
    const long long number = digits > 0 ? strtoll(value, NULL, 10) : 0;
    if (digits > 0 && value[digits] == '\0' && errno == 0 && number >= least &&
        number <= most) {
        *out = number;
        return USC_OK;
    }
    return usc_error_set(err, USC_E_ARG, -1,
                         "%s:%s: a whole number from %lld to %lld is needed, without "
                         "blanks",
                         name, value, (long long)least, (long long)most);
}

/* NPU_ASD_CONFIG's own: of a number that is none for it torch_npu takes the default. */
static bool is_theirs(const number_key *key)
{
    return key->at <= offsetof(usc_watch_config, grad_sample_interval);
}

static usc_status take_key(usc_watch_config *c, const number_key *key, const char *value,
                           usc_error *err)
{
    usc_error why = {0};
    const usc_status st =
        take_number(key->name, value, key->least, key->most, number_at(c, key->at), &why);
    if (st == USC_OK || c->mode != USC_WATCH_ASD || !is_theirs(key)) {
        if (st != USC_OK && err != NULL) *err = why;
        return st;
    }
    const size_t n = strlen(c->remark);
    *number_at(c, key->at) = key->initial;
    (void)usc_format(c->remark + n, sizeof c->remark - n,
                     "%s%s; the default, %lld, stands", n > 0 ? "; " : "", why.text,
                     (long long)key->initial);
    return USC_OK;
}

static usc_status take_flag(const char *name, const char *value, bool *out,
                            usc_error *err)
{
    if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return usc_error_set(err, USC_E_ARG, -1, "%s:%s: true or false is needed", name,
                             value);
    *out = value[0] == 't';
    return USC_OK;
}

static usc_status take_mode(usc_watch_config *c, const char *value, bool first,
                            usc_error *err)
{
    const int32_t world = c->world;
    const bool is_asd = strcmp(value, "asd") == 0;
    if (!is_asd && strcmp(value, "sound") != 0)
        return usc_error_set(err, USC_E_ARG, -1, "mode:%s: sound or asd is needed",
                             value);
    if (!first)
        return usc_error_set(err, USC_E_ARG, -1,
                             "mode:%s: it sets what the others change: name it first",
                             value);
    usc_watch_config_init(c, is_asd ? USC_WATCH_ASD : USC_WATCH_SOUND);
    c->world = world;
    return USC_OK;
}

static usc_status take_detector(const char *name, uint32_t *out, usc_error *err)
{
    const char *best = usc_watch_detector_text(USC_WATCH_BY_TEMPORAL);
    double most = 0;
    for (usc_watch_detector d = 0; d < USC_N_WATCH_DETECTORS; d++) {
        if (strcmp(name, usc_watch_detector_text(d)) == 0) {
            *out |= 1u << d;
            return USC_OK;
        }
        take_nearer(name, usc_watch_detector_text(d), &best, &most);
    }
    return usc_error_set(err, USC_E_ARG, -1, "no detector '%s'; did you mean '%s'?", name,
                         best);
}

static usc_status take_detectors(const char *text, char between, uint32_t *out,
                                 usc_error *err)
{
    uint32_t found = 0;
    for (const char *at = text;; at++) {
        char name[MOST_TEXT];
        const char *end = strchr(at, between);
        const size_t n = end != NULL ? (size_t)(end - at) : strlen(at);
        if (n == 0 || n >= sizeof name)
            return usc_error_set(err, USC_E_ARG, -1,
                                 "'%.64s': names of detectors with '%c' between them are "
                                 "needed, e.g. temporal%cranks",
                                 text, between, between);
        memcpy(name, at, n);
        name[n] = '\0';
        const usc_status st = take_detector(name, &found, err);
        if (st != USC_OK) return st;
        at += n;
        if (*at == '\0') break;
    }
    *out = found;
    return USC_OK;
}

usc_status usc_watch_detectors_parse(const char *text, uint32_t *out, usc_error *err)
{
    return take_detectors(text, ',', out, err);
}

static usc_status take_action(const char *value, usc_watch_reaction *out, usc_error *err)
{
    const char *best = usc_watch_reaction_text(USC_WATCH_DO_LOG);
    double most = 0;
    for (usc_watch_reaction r = 0; r < USC_N_WATCH_REACTIONS; r++) {
        if (strcmp(value, usc_watch_reaction_text(r)) == 0) {
            *out = r;
            return USC_OK;
        }
        take_nearer(value, usc_watch_reaction_text(r), &best, &most);
    }
    return usc_error_set(err, USC_E_ARG, -1,
                         "action:%s: one of log, skip, raise and stop is needed; did you "
                         "mean '%s'?",
                         value, best);
}

static usc_status take(usc_watch_config *c, const char *name, const char *value,
                       bool first, usc_error *err)
{
    int64_t world;
    for (size_t i = 0; i < N_FLAGS; i++)
        if (strcmp(name, flags[i].name) == 0)
            return take_flag(name, value, (bool *)(void *)((char *)c + flags[i].at), err);
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (strcmp(name, numbers[i].name) == 0)
            return take_key(c, &numbers[i], value, err);
    if (strcmp(name, "mode") == 0) return take_mode(c, value, first, err);
    if (strcmp(name, "detectors") == 0)
        return take_detectors(value, '+', &c->detectors, err);
    if (strcmp(name, "action") == 0) return take_action(value, &c->action, err);
    if (strcmp(name, "world") != 0)
        return usc_error_set(err, USC_E_ARG, -1,
                             "no key '%s'; did you mean '%s'? Blanks count", name,
                             nearest_key(name));
    const usc_status st = take_number(name, value, 1, USC_WATCH_MOST_RANKS, &world, err);
    if (st == USC_OK) c->world = (int32_t)world;
    return st;
}

usc_status usc_watch_config_parse(usc_watch_config *config, const char *text,
                                  usc_error *err)
{
    usc_watch_config c = *config;
    for (const char *at = text; *at != '\0';) {
        char name[MOST_TEXT], value[4 * MOST_TEXT];
        const size_t n = strcspn(at, ","), colon = strcspn(at, ":");
        if (colon >= n || colon >= sizeof name || n - colon > sizeof value ||
            memchr(at + colon + 1, ':', n - colon - 1) != NULL)
            return usc_error_set(err, USC_E_ARG, (int64_t)(at - text),
                                 "'%.*s': key:value is needed, e.g. cooldown:5",
                                 n < MOST_TEXT ? (int)n : MOST_TEXT, at);
        memcpy(name, at, colon);
        name[colon] = '\0';
        memcpy(value, at + colon + 1, n - colon - 1);
        value[n - colon - 1] = '\0';
        const usc_status st = take(&c, name, value, at == text, err);
        if (st != USC_OK) return st;
        at += n;
        if (*at == ',' && *++at == '\0')
            return usc_error_set(err, USC_E_ARG, (int64_t)(at - text),
                                 "key:value is needed behind the last comma");
    }
    *config = c;
    return USC_OK;
}
