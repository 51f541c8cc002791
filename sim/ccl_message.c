// SPDX-License-Identifier: Apache-2.0
// Messages of simccl: each ordered pair of ranks has a channel of two halves, through which
// a message goes piece by piece.
#include "ccl_shared.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static usc_status check_rank(const usc_ccl *c, int rank, const char *what, usc_error *err)
{
    if (rank < 0 || rank >= c->size || rank == c->rank)
        return usc_error_set(err, USC_E_ARG, -1,
                             "simccl: rank %d of %d cannot %s rank %d", c->rank, c->size,
                             what, rank);
    return ccl_alive(c, err);
}

static usc_status open_one(usc_ccl_buffer b, usc_sim_access access, usc_error *err)
{
    return usc_sim_device_of(b.at) >= 0 ? usc_sim_open(b.at, access, err) : USC_OK;
}

static void close_one(usc_ccl_buffer b, usc_sim_access access)
{
    if (usc_sim_device_of(b.at) >= 0) usc_sim_close(b.at, access);
}

static size_t next_size(const usc_ccl *c, uint64_t left)
{
    return left < c->piece_size ? (size_t)left : c->piece_size;
}

static usc_status send_open(usc_ccl *c, int to, int tag, usc_ccl_buffer from,
                            usc_error *err)
{
    char doing[64];
    ccl_channel *ch = ccl_channel_of(c, c->rank, to);
    const unsigned first = atomic_load_explicit(&ch->written, memory_order_relaxed);
    uint64_t sent = 0;
    snprintf(doing, sizeof doing, "receive from rank %d", c->rank);
    for (unsigned i = first;; i++) {
        const size_t n = next_size(c, from.size - sent);
        const usc_status st = ccl_await(c, &ch->read, i - 1, to, doing, err);
        if (st != USC_OK) return st;
        ch->piece[i & 1] = (ccl_piece){from.size, n, tag};
        if (n > 0) memcpy(ccl_channel_half(c, ch, i), (char *)from.at + sent, n);
        atomic_store_explicit(&ch->written, i + 1, memory_order_release);
        ccl_wake(&ch->written);
        sent += n;
        if (sent == from.size) return USC_OK;
    }
}

usc_status usc_ccl_send(usc_ccl *c, int to, int tag, usc_ccl_buffer from, usc_error *err)
{
    usc_status st = check_rank(c, to, "send to", err);
    if (st == USC_OK) st = open_one(from, USC_SIM_READ, err);
    if (st != USC_OK) return st;
    st = send_open(c, to, tag, from, err);
    close_one(from, USC_SIM_READ);
    return st;
}

/* Whoever has sent something. */
static usc_status find_sender(usc_ccl *c, int *from, usc_error *err)
{
    const struct timespec little = {.tv_nsec = 100000};
    const int64_t start = (int64_t)time(NULL);
    for (;;) {
        const usc_status st = ccl_alive(c, err);
        if (st != USC_OK) return st;
        for (int i = 0; i < c->size; i++) {
            const ccl_channel *ch = ccl_channel_of(c, i, c->rank);
            if (atomic_load(&ch->written) == atomic_load(&ch->read)) continue;
            *from = i;
            return USC_OK;
        }
        if (c->timeout_ns > 0 && (int64_t)time(NULL) - start > c->timeout_ns / 1000000000)
            return usc_error_set(
                err, USC_E_IO, -1,
                "simccl: no rank has sent anything to rank %d within %.3g s", c->rank,
                1e-9 * (double)c->timeout_ns);
        nanosleep(&little, NULL);
    }
}

static usc_status receive_open(usc_ccl *c, int from, int tag, usc_ccl_buffer to,
                               usc_error *err)
{
    char doing[64];
    usc_status wrong = USC_OK;
    ccl_channel *ch = ccl_channel_of(c, from, c->rank);
    uint64_t got = 0, size;
    snprintf(doing, sizeof doing, "send to rank %d", c->rank);
    do {
        const unsigned i = atomic_load_explicit(&ch->read, memory_order_relaxed);
        const usc_status st = ccl_await(c, &ch->written, i + 1, from, doing, err);
        if (st != USC_OK) return st;
        const ccl_piece piece = ch->piece[i & 1];
        size = piece.message_size;
        if (size != to.size)
            wrong =
                usc_error_set(err, USC_E_ARG, from,
                              "simccl: rank %d has sent %llu bytes, rank %d receives %zu",
                              from, (unsigned long long)size, c->rank, to.size);
        else if (piece.tag != tag)
            wrong =
                usc_error_set(err, USC_E_ARG, from,
                              "simccl: rank %d has sent with tag %d, rank %d receives "
                              "with tag %d; messages come in the order of sending",
                              from, piece.tag, c->rank, tag);
        else if (piece.size > 0)
            memcpy((char *)to.at + got, ccl_channel_half(c, ch, i), piece.size);
        got += piece.size;
        atomic_store_explicit(&ch->read, i + 1, memory_order_release);
        ccl_wake(&ch->read);
    } while (got < size);
    return wrong;
}

usc_status usc_ccl_receive(usc_ccl *c, int *from, int tag, usc_ccl_buffer to,
                           usc_error *err)
{
    usc_status st = *from == -1 ? find_sender(c, from, err) : USC_OK;
    if (st == USC_OK) st = check_rank(c, *from, "receive from", err);
    if (st == USC_OK) st = open_one(to, USC_SIM_WRITE, err);
    if (st != USC_OK) return st;
    st = receive_open(c, *from, tag, to, err);
    close_one(to, USC_SIM_WRITE);
    return st;
}
