// SPDX-License-Identifier: Apache-2.0
// The names of sites, detectors, kinds and reactions, from the lists of watch.h.
#include <ulpscope/x/watch.h>

#include <string.h>

static const char *const sites[] = {
#define NAME(id, name) [USC_WATCH_##id] = name,
    USC_WATCH_SITE_LIST(NAME)
#undef NAME
};

static const char *const detectors[][2] = {
#define NAME(id, name, sound, about) [USC_WATCH_BY_##id] = {name, about},
    USC_WATCH_DETECTOR_LIST(NAME)
#undef NAME
};

static const char *const kinds[][2] = {
#define NAME(id, name, level) [USC_WATCH_##id] = {name, level},
    USC_WATCH_KIND_LIST(NAME)
#undef NAME
};

static const char *const reactions[] = {
#define NAME(id, name) [USC_WATCH_DO_##id] = name,
    USC_WATCH_REACTION_LIST(NAME)
#undef NAME
};

const char *usc_watch_site_text(usc_watch_site site)
{
    return (unsigned)site < USC_N_WATCH_SITES ? sites[site] : "unknown";
}

bool usc_watch_site_by_name(const char *name, usc_watch_site *out)
{
    for (usc_watch_site s = 0; s < USC_N_WATCH_SITES; s++)
        if (strcmp(name, sites[s]) == 0) {
            *out = s;
            return true;
        }
    return false;
}

const char *usc_watch_detector_text(usc_watch_detector detector)
{
    return (unsigned)detector < USC_N_WATCH_DETECTORS ? detectors[detector][0]
                                                      : "unknown";
}

const char *usc_watch_detector_about(usc_watch_detector detector)
{
    return (unsigned)detector < USC_N_WATCH_DETECTORS ? detectors[detector][1] : "";
}

const char *usc_watch_reaction_text(usc_watch_reaction reaction)
{
    return (unsigned)reaction < USC_N_WATCH_REACTIONS ? reactions[reaction] : "unknown";
}

const char *usc_watch_kind_text(usc_watch_kind kind)
{
    return (unsigned)kind < USC_N_WATCH_KINDS ? kinds[kind][0] : "unknown";
}

const char *usc_watch_kind_level(usc_watch_kind kind)
{
    return (unsigned)kind < USC_N_WATCH_KINDS ? kinds[kind][1] : "unknown";
}
