// SPDX-License-Identifier: Apache-2.0
// The simulated accelerator: device memory that only a running kernel may touch, pinned
// host memory, and faults as data. Knows no torch; glue/sim registers it there.
//
// The device is one per process, as hardware is: its state is global, made on first use
// and guarded by one lock.
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_H
#define ULPSCOPE_SIM_H

#include <ulpscope/dtype.h>
#include <ulpscope_sim/fault.h>

USC_BEGIN_DECLS

#define USC_SIM_MOST_DEVICES 8 /* how many there are: profile.h */

typedef enum usc_sim_access {
    USC_SIM_READ,
    USC_SIM_WRITE, /* and read */
} usc_sim_access;

typedef struct usc_sim_stats {
    int64_t allocated_size; /* bytes in live blocks, whole pages */
    int64_t peak_size;      /* highest allocated_size since the last reset */
    int64_t reserved_size; /* bytes of mappings with memory behind them, in use or kept */
    int64_t n_allocs;      /* blocks handed out so far */
    int64_t n_maps;        /* of these, how many needed a fresh mapping */
    int64_t n_opens;       /* usc_sim_open() calls so far */
    int64_t n_waits;       /* usc_sim_wait() calls so far */
    int64_t requested_size; /* bytes that the callers of live blocks asked for */
    int64_t waiting_size;   /* bytes freed, and not yet through on other streams */
    int64_t peak_reserved;  /* highest reserved_size since the last reset */
    int64_t n_live;         /* live blocks */
    int64_t n_segments;     /* mappings with memory behind them */
    int64_t n_retries;      /* requests for which cached memory was given back */
    int64_t n_ooms;         /* requests refused */
} usc_sim_stats;

/**
 * Allocates `size` bytes on `device`, 64-byte aligned, ending (to within that alignment)
 * at a page that is never accessible. The contents are what was there before, as on
 * hardware. Host code that touches it faults; see usc_sim_open().
 *
 * Memory:  give back with usc_sim_free(); size 0 gives NULL.
 * Errors:  USC_E_ARG for no such device, USC_E_RANGE for more than a device has,
 *          USC_E_NOMEM; *out is NULL then.
 */
USC_API USC_NODISCARD usc_status usc_sim_malloc(int device, size_t size, void **out,
                                                usc_error *err);

/**
 * Gives a block back. It stays inaccessible until usc_sim_malloc() reuses it, so a stale
 * pointer faults too. NULL is allowed; anything else that is no live block is ignored.
 */
USC_API void usc_sim_free(void *block);

/**
 * Opens the whole block that holds `address` to every thread of the process, as a kernel
 * launch does for its arguments. Openings are counted: the block closes after as many
 * usc_sim_close() calls, and is writable while one of the open accesses is a write.
 *
 * Errors:  USC_E_ARG where `address` lies in no live block, USC_E_IO where the operating
 *          system refuses. NULL is USC_OK and opens nothing.
 */
USC_API USC_NODISCARD usc_status usc_sim_open(const void *address, usc_sim_access access,
                                              usc_error *err);

/** Undoes one usc_sim_open() of the same address and access. NULL is allowed. */
USC_API void usc_sim_close(const void *address, usc_sim_access access);

typedef struct usc_sim_opening {
    const void *address;
    usc_sim_access access;
} usc_sim_opening;

/**
 * usc_sim_open() of all, or of none: what lies in the same pages is opened at once.
 *
 * Errors:  as usc_sim_open().
 */
USC_API USC_NODISCARD usc_status usc_sim_open_all(const usc_sim_opening *all, size_t n,
                                                  usc_error *err);

/** usc_sim_close() of all. */
USC_API void usc_sim_close_all(const usc_sim_opening *all, size_t n);

/**
 * Keeps the block that holds `address` for a kernel that has been launched and will open
 * it later: until as many usc_sim_unpin() it can be opened although it is freed, and no
 * other stream gets it. What is no live device memory is left alone.
 */
USC_API void usc_sim_pin(const void *address);

/** Undoes one usc_sim_pin() of the same address. */
USC_API void usc_sim_unpin(const void *address);

/** The device whose address range holds `address`, or -1. */
USC_API int usc_sim_device_of(const void *address);

/**
 * Switches memory protection off (every block stays open: for speed runs) or on again.
 * It is on at the start.
 */
USC_API void usc_sim_set_protection(bool on);

/** Counters of one device; all zero for no such device. */
USC_API usc_sim_stats usc_sim_memory_stats(int device);

/** Counts that the host waits for a device: a copy to it that blocks, a stream or an
 * event that is waited for. No such device: nothing is counted. */
USC_API void usc_sim_wait(int device);

/** Sets peak_size to what is allocated now. */
USC_API void usc_sim_reset_peak(int device);

/** Returns the pages of blocks kept for reuse to the operating system. */
USC_API void usc_sim_empty_cache(void);

/**
 * Allocates pinned host memory, 64-byte aligned; ordinary memory that is remembered.
 *
 * Memory:  give back with usc_sim_host_free().
 * Errors:  NULL where there is no memory.
 */
USC_API void *usc_sim_host_malloc(size_t size);

/** Gives pinned memory back; NULL is allowed. */
USC_API void usc_sim_host_free(void *block);

/** Whether `address` lies in memory of usc_sim_host_malloc(). */
USC_API bool usc_sim_is_pinned(const void *address);

USC_END_DECLS
#endif
