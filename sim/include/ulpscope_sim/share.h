// SPDX-License-Identifier: Apache-2.0
/// Memory of the device that several processes hold at once, over a file without a name. What
/// one of them frees the others keep: it is gone with the last that holds it, however that
/// ends.
#ifndef ULPSCOPE_SIM_SHARE_H
#define ULPSCOPE_SIM_SHARE_H

#include <ulpscope_sim/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

#define USC_SIM_SHARE_NEW (-1)
#define USC_SIM_SHARE_NOT (-2)

/**
 * Says that the next block which this thread makes is shared: over `fd`, which another process
 * got from usc_sim_shared_fd() for a block of the same size, over a file of its own
 * (USC_SIM_SHARE_NEW), or not (USC_SIM_SHARE_NOT), as at the start.
 *
 * Memory:  `fd` stays the caller's.
 * Threads: each thread has its own.
 */
USC_API void usc_sim_share_next(int fd);

/**
 * The file behind a shared block that begins at `address`; -1: it is not shared.
 *
 * Memory:  open as long as the block is live; the caller sends it on and does not close it.
 * Threads: safe while nobody frees the block.
 */
USC_API int usc_sim_shared_fd(const void *address);

/**
 * Whether a block begins at `address` that nothing launched, captured ones included, holds: it
 * may be moved elsewhere.
 *
 * Threads: safe at any time.
 */
USC_API bool usc_sim_may_move(const void *address);

#ifdef __cplusplus
}
#endif

#endif
