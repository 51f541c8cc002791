// SPDX-License-Identifier: Apache-2.0
// Configurations and logs of a watch out of any bytes: a first line that is a
// configuration, the rest a log. Refused with a sentence, or replayed. Behind a line
// "state" the rest is one, whose head is made here (its hash would refuse all others):
// refused, or gone on from.
#include "fuzz.h"

#include <ulpscope/x/watch.h>
#include <ulpscope/x/watch_log.h>

#include "base/hash.h"

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

static void go_on(usc_watch *w)
{
    usc_error err;
    usc_watch_event e;
    for (int64_t step = 1000; step < 1012; step++) {
        for (int64_t t = 0; t < usc_watch_n_tensors(w) && t < 8; t++)
            for (int site = USC_WATCH_GRAD; site <= USC_WATCH_REPLAY; site++) {
                const usc_watch_row r = {.step = step,
                                         .rank = (int32_t)(step % 3),
                                         .site = (usc_watch_site)site,
                                         .tensor = t,
                                         .max_abs = step == 1010 ? 1e30 : 2,
                                         .sum_abs = 8,
                                         .sum_sq = 9,
                                         .numel = 8,
                                         .n_nonfinite = step == 1011,
                                         .hash64 = 5};
                FUZZ_REQUIRE(usc_watch_feed(w, &r, 1, &err) == USC_OK);
            }
        FUZZ_REQUIRE(usc_watch_step(w, step, 400.0 * (double)step, &err) == USC_OK);
        while (usc_watch_next(w, &e))
            FUZZ_REQUIRE(e.sentence != NULL);
    }
}

/* The head as watch_save.c writes it. */
static void load(const uint8_t *data, size_t size)
{
    struct {
        char magic[8];
        uint32_t mark, version;
        uint64_t size, hash;
    } head = {"USCWATC", 0x01020304, 1, size, usc_hash64_bytes(data, size)};
    head.magic[7] = 'H';
    usc_watch *w;
    usc_error err;
    usc_watch_config c;
    char *bytes = malloc(sizeof head + size);
    FUZZ_REQUIRE(bytes != NULL);
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, data, size);
    usc_watch_config_init(&c, USC_WATCH_SOUND);
    c.world = 3;
    c.with_checksum = true;
    c.detectors = (1u << USC_N_WATCH_DETECTORS) - 1;
    FUZZ_REQUIRE(usc_watch_create(&c, &w, &err) == USC_OK);
    const usc_status st = usc_watch_load(w, bytes, sizeof head + size, &err);
    fuzz_said(st, &err);
    if (st == USC_OK) go_on(w);
    usc_watch_free(w);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_watch_replay *r;
    usc_error err;
    size_t used;
    if (size > 6 && memcmp(data, "state\n", 6) == 0) {
        load(data + 6, size - 6);
        return 0;
    }
    usc_watch_config config = config_of(data, size, &used);
    const char *path = fuzz_file("log", data + used, size - used);
    const usc_status st = usc_watch_replay_run(path, NULL, &config, &r, &err);
    fuzz_said(st, &err);
    if (st == USC_OK) {
        for (int64_t i = 0; i < r->n_events; i++)
            FUZZ_REQUIRE(r->events[i].sentence[0] != '\0' && r->events[i].score > 0);
        usc_watch_replay_free(r);
    }
    return 0;
}
