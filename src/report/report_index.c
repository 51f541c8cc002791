// SPDX-License-Identifier: Apache-2.0
// The hash index of report_index.h: chains, and four times the buckets when full.
#include "report/report_index.h"

#include <string.h>

#include "base/hash.h"

uint64_t usc_index_hash(uint64_t h, const void *bytes, size_t n)
{
    return (h ^ usc_hash64_bytes(bytes, n)) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

uint64_t usc_index_hash_text(uint64_t h, const char *text)
{
    return usc_index_hash(h, text, text != NULL ? strlen(text) : 0);
}

usc_indexed *usc_index_first(const usc_index *index, uint64_t hash)
{
    usc_indexed *node =
        index->n_buckets > 0 ? index->buckets[hash % index->n_buckets] : NULL;
    while (node != NULL && node->hash != hash)
        node = node->in_bucket;
    return node;
}

usc_indexed *usc_index_next(const usc_indexed *node)
{
    const uint64_t hash = node->hash;
    usc_indexed *next = node->in_bucket;
    while (next != NULL && next->hash != hash)
        next = next->in_bucket;
    return next;
}

static usc_status grow(usc_report *r, usc_index *index, usc_error *err)
{
    const size_t n = index->n_buckets > 0 ? 4 * index->n_buckets : 8;
    usc_indexed **buckets = usc_report_take(r, n * sizeof *buckets);
    if (buckets == NULL) return usc_report_no_memory(r, err);
    for (size_t i = 0; i < index->n_buckets; i++) {
        for (usc_indexed *node = index->buckets[i], *next; node != NULL; node = next) {
            next = node->in_bucket;
            node->in_bucket = buckets[node->hash % n];
            buckets[node->hash % n] = node;
        }
    }
    index->buckets = buckets;
    index->n_buckets = n;
    return USC_OK;
}

usc_status usc_index_add(usc_report *r, usc_index *index, usc_indexed *node,
                         uint64_t hash, usc_error *err)
{
    if (index->n >= index->n_buckets) {
        const usc_status st = grow(r, index, err);
        if (st != USC_OK) return st;
    }
    node->hash = hash;
    node->in_bucket = index->buckets[hash % index->n_buckets];
    index->buckets[hash % index->n_buckets] = node;
    index->n++;
    return USC_OK;
}

const usc_op_sum *usc_report_op(const usc_report *r, const char *op)
{
    usc_indexed *node = usc_index_first(&r->ops_index, usc_index_hash_text(0, op));
    while (node != NULL && strcmp(((const usc_op_sum *)node)->op, op) != 0)
        node = usc_index_next(node);
    return (const usc_op_sum *)node;
}
