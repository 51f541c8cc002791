// SPDX-License-Identifier: Apache-2.0
// Configurations and logs of a watch out of any bytes: a first line that is a
// configuration, the rest a log. Refused with a sentence, or replayed; a state that was
// saved and damaged is refused, too.
#include "fuzz.h"

static usc_watch_config config_of(const uint8_t *data, size_t size, size_t *used)
{
    char text[256];
    usc_watch_config config;
    usc_error err;
    const uint8_t *end = memchr(data, '\n', size);
    const size_t n = end != NULL ? (size_t)(end - data) : size;
    usc_watch_config_init(&config, USC_WATCH_SOUND);
    *used = n + (end != NULL);
    if (n >= sizeof text) return config;
    memcpy(text, data, n);
    text[n] = '\0';
    const usc_status st = usc_watch_config_parse(&config, text, &err);
    FUZZ_REQUIRE(st == USC_OK || err.text[0] != '\0');
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_watch_replay *r;
    usc_watch *w;
    usc_error err;
    size_t used;
    usc_watch_config config = config_of(data, size, &used);
    const char *path = fuzz_file("log", data + used, size - used);
    const usc_status st = usc_watch_replay_run(path, NULL, &config, &r, &err);
    fuzz_said(st, &err);
    if (st == USC_OK) {
        for (int64_t i = 0; i < r->n_events; i++)
            FUZZ_REQUIRE(r->events[i].sentence[0] != '\0' && r->events[i].score > 0);
        usc_watch_replay_free(r);
    }
    config.world = 1;
    FUZZ_REQUIRE(usc_watch_create(&config, &w, &err) == USC_OK);
    FUZZ_REQUIRE(usc_watch_load(w, data, size, &err) != USC_OK);
    usc_watch_free(w);
    return 0;
}
