// SPDX-License-Identifier: Apache-2.0
// Packing of ring payloads; everything is 8-byte aligned. See message.h.
#include "capture/message.h"

static size_t round_up8(size_t n)
{
    return (n + 7) / 8 * 8;
}

void usc_pack_text(usc_packer *p, const char *text)
{
    const size_t size = text != NULL ? strlen(text) + 1 : 0;
    usc_pack_i64(p, (int64_t)size);
    usc_pack_bytes(p, text, size);
}

void usc_pack_align(usc_packer *p)
{
    p->n = (p->n + 63) / 64 * 64;
}

const void *usc_unpack_bytes(usc_unpacker *u, size_t size)
{
    const void *bytes = u->at;
    u->at += round_up8(size);
    return bytes;
}

int64_t usc_unpack_i64(usc_unpacker *u)
{
    int64_t value;
    memcpy(&value, usc_unpack_bytes(u, sizeof value), sizeof value);
    return value;
}

const char *usc_unpack_text(usc_unpacker *u)
{
    const int64_t size = usc_unpack_i64(u);
    return size > 0 ? usc_unpack_bytes(u, (size_t)size) : NULL;
}

void usc_unpack_align(usc_unpacker *u)
{
    u->at = u->start + (u->at - u->start + 63) / 64 * 64;
}

void usc_pack_tensor(usc_packer *p, const usc_tensor_message *m)
{
    const size_t dims_size = (size_t)m->row.ndim * sizeof(int64_t);
    usc_pack_bytes(p, m, sizeof *m);
    usc_pack_text(p, m->row.dtype_name);
    usc_pack_text(p, m->row.form);
    usc_pack_bytes(p, m->row.sizes, dims_size);
    usc_pack_bytes(p, m->row.strides, dims_size);
    usc_pack_i64(p, m->row.stats != NULL);
    if (m->row.stats != NULL) usc_pack_bytes(p, m->row.stats, sizeof *m->row.stats);
    if (m->bytes == NULL) return;
    usc_pack_align(p);
    usc_pack_bytes(p, m->bytes, (size_t)m->size);
}

void usc_unpack_tensor(usc_unpacker *u, usc_tensor_message *m)
{
    memcpy(m, usc_unpack_bytes(u, sizeof *m), sizeof *m);
    const size_t dims_size = (size_t)m->row.ndim * sizeof(int64_t);
    m->row.dtype_name = usc_unpack_text(u);
    m->row.form = usc_unpack_text(u);
    m->row.sizes = usc_unpack_bytes(u, dims_size);
    m->row.strides = usc_unpack_bytes(u, dims_size);
    m->row.stats = usc_unpack_i64(u) != 0 ? usc_unpack_bytes(u, sizeof(usc_stats)) : NULL;
    if (m->bytes == NULL) return;
    usc_unpack_align(u);
    m->bytes = usc_unpack_bytes(u, (size_t)m->size);
}
