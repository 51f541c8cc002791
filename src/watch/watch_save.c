// SPDX-License-Identifier: Apache-2.0
// The state of a watch as bytes: a head (magic, version, size, hash of what follows), the
// names of the tensors, then of each detector its blocks (site, tensor, rank, bytes). The
// blocks are as they lie in memory: a state is read by the machine's own kind (a mark in
// the head tells), and by a version whose blocks have other sizes not at all, block by
// block.
#include "watch/watch_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { VERSION = 3, MARK = 0x01020304 };
static const char magic[8] = {'U', 'S', 'C', 'W', 'A', 'T', 'C', 'H'};

typedef struct head {
    char magic[8];
    uint32_t mark, version;
    uint64_t size, hash;
} head;

/* Before the bytes of a block. Tensor: in the order of the names; -1: of none. */
typedef struct block_head {
    uint32_t table, rank;
    int64_t tensor;
    uint64_t size;
} block_head;

static void put(usc_line *l, const void *bytes, size_t n)
{
    usc_line_put(l, bytes, n);
}

static void put_number(usc_line *l, uint64_t number)
{
    put(l, &number, sizeof number);
}

static void put_text(usc_line *l, const char *text)
{
    put_number(l, strlen(text));
    usc_line_text(l, text);
}

static size_t size_of(const usc_watch *w, usc_watch_detector d, int table)
{
    const usc_watch_rule *rule = &w->rules[d];
    if (table != USC_WATCH_OF_RANK) return rule->series_size;
    return rule->rank_size != NULL ? rule->rank_size(&w->config) : 0;
}

/* Number of blocks of a detector; writes them where `l` is given. */
static uint64_t put_blocks(usc_line *l, const usc_watch *w, usc_watch_detector d)
{
    uint64_t n = 0;
    for (int table = 0; table < USC_N_WATCH_TABLES; table++) {
        const usc_watch_table *t = &w->tables[d][table];
        const bool of_rank = table == USC_WATCH_OF_RANK;
        const int64_t world = of_rank ? 1 : w->config.world;
        for (int64_t i = 0; i < t->n * world; i++) {
            if (t->block[i] == NULL) continue;
            n++;
            if (l == NULL) continue;
            const block_head h = {.table = (uint32_t)table,
                                  .rank = (uint32_t)(of_rank ? i : i % world),
                                  .tensor = of_rank ? -1 : i / world - 1,
                                  .size = size_of(w, d, table)};
            put(l, &h, sizeof h);
            put(l, t->block[i], h.size);
        }
    }
    return n;
}

usc_status usc_watch_save(const usc_watch *w, void **bytes, size_t *size, usc_error *err)
{
    usc_line l = {0};
    head h = {.mark = MARK, .version = VERSION};
    *bytes = NULL;
    *size = 0;
    memcpy(h.magic, magic, sizeof magic);
    put(&l, &h, sizeof h);
    put(&l, &w->seconds, sizeof w->seconds);
    put_number(&l, (uint64_t)w->n_tensors);
    for (int64_t i = 0; i < w->n_tensors; i++) {
        const uint64_t about[3] = {w->tensors[i].dtype, (uint64_t)w->tensors[i].ndim,
                                   w->tensors[i].sharded};
        put_text(&l, w->tensors[i].name);
        put(&l, about, sizeof about);
    }
    for (usc_watch_detector d = 0; d < USC_N_WATCH_DETECTORS; d++) {
        const uint64_t n = put_blocks(NULL, w, d);
        if (n == 0) continue;
        put_text(&l, usc_watch_detector_text(d));
        put_number(&l, n);
        (void)put_blocks(&l, w, d);
    }
    if (l.failed) {
        usc_line_free(&l);
        return usc_no_memory("watch", err);
    }
    h.size = l.n - sizeof h;
    h.hash = usc_hash64_bytes(l.text + sizeof h, h.size);
    memcpy(l.text, &h, sizeof h);
    *bytes = l.text;
    *size = l.n;
    return USC_OK;
}

void usc_watch_saved_free(void *bytes)
{
    usc_line l = {.text = bytes};
    usc_line_free(&l);
}

/* ---- loading ---- */

typedef struct reader {
    const char *at, *end;
    bool damaged;
} reader;

static const void *take(reader *r, uint64_t n)
{
    if (r->damaged || n > (uint64_t)(r->end - r->at)) {
        r->damaged = true;
        return NULL;
    }
    const void *found = r->at;
    r->at += n;
    return found;
}

static uint64_t take_number(reader *r)
{
    uint64_t number = 0;
    const void *at = take(r, sizeof number);
    if (at != NULL) memcpy(&number, at, sizeof number);
    return number;
}

/* A copy, freed by the caller; NULL: damaged, or no memory. */
static char *take_text(reader *r)
{
    const uint64_t n = take_number(r);
    const char *at = take(r, n);
    if (at == NULL || memchr(at, '\0', n) != NULL) {
        r->damaged = true;
        return NULL;
    }
    char *text = malloc(n + 1);
    if (text == NULL) return NULL;
    memcpy(text, at, n);
    text[n] = '\0';
    return text;
}

static usc_status check_head(const void *bytes, size_t size, head *h, usc_error *err)
{
    if (size < sizeof *h || memcmp(bytes, magic, sizeof magic) != 0)
        return usc_error_set(err, USC_E_CORRUPT, 0, "this is no state of a watch");
    memcpy(h, bytes, sizeof *h);
    if (h->mark != MARK)
        return usc_error_set(err, USC_E_VERSION, -1,
                             "a state of a watch from a machine with another order of "
                             "bytes; the watch begins anew without it");
    if (h->version != VERSION)
        return usc_error_set(err, USC_E_VERSION, -1,
                             "a state of a watch in version %lu, and version %d is "
                             "known; the watch begins anew without it",
                             (unsigned long)h->version, VERSION);
    if (h->size != size - sizeof *h ||
        h->hash != usc_hash64_bytes((const char *)bytes + sizeof *h, size - sizeof *h))
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "the state of a watch is damaged (%zu bytes of %llu); the "
                             "watch begins anew without it",
                             size, (unsigned long long)(h->size + sizeof *h));
    return USC_OK;
}

static usc_status no_memory_or_damaged(const reader *r, usc_error *err)
{
    if (r->damaged)
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "the state of a watch is damaged; the watch begins anew "
                             "without it");
    return usc_no_memory("watch", err);
}

/* ids[i]: what the i-th tensor of the state is here. */
static usc_status load_tensors(usc_watch *w, reader *r, uint64_t n, int64_t *ids,
                               usc_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        char *name = take_text(r);
        uint64_t about[3];
        const void *at = take(r, sizeof about);
        if (name == NULL || at == NULL) {
            free(name);
            return no_memory_or_damaged(r, err);
        }
        memcpy(about, at, sizeof about);
        const int64_t *known = usc_keys_find(&w->names, usc_key_of(name));
        usc_status st = USC_OK;
        if (known != NULL)
            ids[i] = *known; /* what is said of it here stands */
        else
            st = usc_watch_tensor(w,
                                  &(usc_watch_tensor_info){.name = name,
                                                           .dtype = (usc_dtype)about[0],
                                                           .ndim = (int)about[1],
                                                           .sharded = about[2] != 0},
                                  &ids[i], err);
        free(name);
        if (st != USC_OK) return st;
    }
    return USC_OK;
}

/* Of a copy, since bytes of a file lie anywhere. */
static bool is_sound(const usc_watch *w, usc_watch_detector d, int table,
                     const void *bytes)
{
    const usc_watch_rule *rule = &w->rules[d];
    const bool of_rank = table == USC_WATCH_OF_RANK;
    if (of_rank ? rule->rank_sound == NULL : rule->series_sound == NULL) return true;
    const size_t size = size_of(w, d, table);
    void *copy = malloc(size);
    if (copy == NULL) return false;
    memcpy(copy, bytes, size);
    const bool sound =
        of_rank ? rule->rank_sound(&w->config, copy) : rule->series_sound(copy);
    free(copy);
    return sound;
}

static usc_status load_block(usc_watch *w, reader *r, usc_watch_detector d,
                             const int64_t *ids, uint64_t n_ids, usc_error *err)
{
    block_head h;
    const void *at = take(r, sizeof h);
    if (at != NULL) memcpy(&h, at, sizeof h);
    const void *bytes = at != NULL ? take(r, h.size) : NULL;
    if (bytes == NULL || h.table >= USC_N_WATCH_TABLES || h.tensor < -1 ||
        h.tensor >= (int64_t)n_ids) {
        r->damaged = true;
        return no_memory_or_damaged(r, err);
    }
    if (d >= USC_N_WATCH_DETECTORS || (w->config.detectors >> d & 1) == 0 ||
        h.rank >= (uint32_t)w->config.world || h.size == 0 ||
        h.size != size_of(w, d, (int)h.table))
        return USC_OK;
    if (!is_sound(w, d, (int)h.table, bytes)) {
        r->damaged = true;
        return no_memory_or_damaged(r, err);
    }
    void *to = usc_watch_bytes_at(w, d, (int)h.table, h.tensor < 0 ? -1 : ids[h.tensor],
                                  (int32_t)h.rank);
    if (to == NULL) return usc_no_memory("watch", err);
    memcpy(to, bytes, h.size);
    return USC_OK;
}

static usc_status load_detectors(usc_watch *w, reader *r, const int64_t *ids,
                                 uint64_t n_ids, usc_error *err)
{
    usc_status st = USC_OK;
    while (st == USC_OK && r->at < r->end) {
        char *name = take_text(r);
        const uint64_t n = take_number(r);
        usc_watch_detector d = 0;
        if (name == NULL) return no_memory_or_damaged(r, err);
        while (d < USC_N_WATCH_DETECTORS && strcmp(name, usc_watch_detector_text(d)) != 0)
            d++;
        free(name);
        for (uint64_t i = 0; st == USC_OK && i < n; i++)
            st = load_block(w, r, d, ids, n_ids, err);
    }
    return st;
}

usc_status usc_watch_load(usc_watch *w, const void *bytes, size_t size, usc_error *err)
{
    head h;
    usc_status st = check_head(bytes, size, &h, err);
    if (st != USC_OK) return st;
    reader r = {.at = (const char *)bytes + sizeof h, .end = (const char *)bytes + size};
    const void *seconds = take(&r, sizeof w->seconds);
    const uint64_t n = take_number(&r);
    if (seconds == NULL || n > (uint64_t)(r.end - r.at)) {
        r.damaged = true;
        return no_memory_or_damaged(&r, err);
    }
    int64_t *ids = malloc((n + 1) * sizeof *ids);
    if (ids == NULL) return usc_no_memory("watch", err);
    st = load_tensors(w, &r, n, ids, err);
    if (st == USC_OK) st = load_detectors(w, &r, ids, n, err);
    if (st == USC_OK) memcpy(&w->seconds, seconds, sizeof w->seconds);
    free(ids);
    return st;
}
