// SPDX-License-Identifier: Apache-2.0
// What the files of device memory share: memory.c (the device's functions), segments.c
// (address ranges and who may touch them), pool.c (which block a request gets), guard.c
// (poison and red zones), share.c (blocks of several processes), keep.c (what stays open
// from one command to the next), violation.c (who touched what), launch.c (the kernel and its
// arguments), snapshot.c. One lock guards it all; it may be held where the one of the
// queues is taken, not the other way round.
#ifndef USC_SIM_BLOCKS_H
#define USC_SIM_BLOCKS_H

#include <ulpscope_sim/memory.h>
#include <ulpscope_sim/profile.h>

/* One address range per device, far from where loaders and sanitizers put things. TSan
 * keeps those addresses for itself. */
#ifdef __SANITIZE_THREAD__
#define RANGE_BASE ((uintptr_t)0x1000000000)
#define RANGE_SIZE ((size_t)1 << 35)
#else
#define RANGE_BASE ((uintptr_t)0x300000000000)
#define RANGE_SIZE ((size_t)1 << 40)
#endif

/* Size classes, 8 per power of two: of pages, or of units where blocks share pages. */
#define N_CLASSES 320
#define UNIT ((size_t)128)

/* A stream that a freed block was used on, and how far that must have got. */
typedef struct use {
    struct use *next;
    usc_sim_stream stream;
    uint64_t ticket;
} use;

typedef struct block {
    struct segment *segment;
    char *base;
    size_t size;               /* what it takes */
    char *user;                /* what the caller holds, while live */
    size_t asked;              /* what the caller asked for */
    struct block *prev, *next; /* neighbours in the segment */
    struct block *prev_free, *next_free;
    use *uses; /* by other streams than its own */
    int64_t n_readers, n_writers, n_pins;
    int protection; /* of its own pages; where they are shared the segment knows */
    bool live, waits, fresh, zoned;
    bool
        kept; /* open for one reader more, until its stream has nothing to run (keep.c) */
    const char *allocated, *opened, *freed; /* by whom, last; "": the host */
    const usc_sim_launch *opener;           /* what opened it last, while that runs */
} block;

typedef struct page_use {
    int32_t n_readers, n_writers;
    int protection;
} page_use;

/* A mapping with a guard page behind it. `whole`: one block, which ends at that page. */
typedef struct segment {
    char *base;
    size_t size;
    int device;
    int64_t stream; /* whose blocks it holds; -1: nobody's, and no memory behind it */
    bool whole, small, resident;
    int shared_fd; /* what its memory is, where other processes have it, too; else -1 */
    bool theirs;   /* and one of them made it */
    block *first;
    block **units;   /* small: the block that begins at each unit, or NULL */
    page_use *pages; /* small: page by page */
    struct segment *next;
} segment;

typedef struct device_state {
    size_t used;       /* bytes of the address range handed out */
    segment ***leaves; /* page number to segment, in two levels; NULL until used */
    segment *segments; /* all, newest first */
    block *free_lists[USC_SIM_N_STREAMS][2][N_CLASSES]; /* [stream][small] */
    block *nobodys[N_CLASSES];                          /* whole, without memory */
    block *waiting; /* freed, but used by other streams: linked by next_free */
    bool limited;
    double fraction; /* of what the device has, that may be reserved */
    usc_sim_stats stats;
} device_state;

/* memory.c */
device_state *usc_sim_device(int device);
bool usc_sim_protecting(void);
usc_sim_guard usc_sim_guard_now(void);
void usc_sim_room(int device, size_t *n_free, size_t *total);
void usc_sim_memory_lock(void);
void usc_sim_memory_unlock(void);

/* segments.c */
size_t usc_sim_page_size(void);
segment *usc_sim_segment_map(int device, size_t size, bool small); /* NULL: no room */
segment *usc_sim_segment_of(const void *address);
block *usc_sim_block_of(const void *address); /* live or not */
void usc_sim_block_count(block *b, int d_readers, int d_writers);
bool usc_sim_block_protect(block *b);                            /* as it is counted */
bool usc_sim_block_sync(block *b, int d_readers, int d_writers); /* both */
void usc_sim_segment_drop_memory(segment *s);
void usc_sim_segment_sync(segment *s);

/* pool.c */
usc_status usc_sim_pool_take(usc_sim_stream stream, size_t size, block **out,
                             usc_error *err);
void usc_sim_pool_give(block *b);
void usc_sim_pool_unpinned(block *b);       /* the last kernel let go of it */
void usc_sim_pool_collect(device_state *d); /* gives cached memory back */

/* keep.c: the first three with the lock held, the others around a command, without it */
void usc_sim_keep(block *b); /* where this thread runs a command with one behind it */
void usc_sim_keep_drop(block *b); /* its memory may be handed out */
void usc_sim_keep_drop_all(void);
void usc_sim_keep_begin(bool more);
void usc_sim_keep_end(bool more);

/* share.c */
bool usc_sim_share_wanted(int *fd); /* of the next block: once */
usc_status usc_sim_share_back(segment *s, int fd,
                              usc_error *err); /* a whole one, resident */
void usc_sim_share_drop(segment *s);

/* guard.c */
void usc_sim_guard_fresh(block *b);
void usc_sim_guard_check(block *b);

/* violation.c */
void usc_sim_violation_watch(void);
void usc_sim_violation_red_zone(const block *b, const char *at);

/* launch.c */
const usc_sim_launch *usc_sim_launch_now(void);
void usc_sim_launch_tell(const usc_sim_launch *l, const block *b, const char *at,
                         char *out, size_t size);

/* log.c */
void usc_sim_log_kernel(const usc_sim_launch *l);
void usc_sim_log_memory(usc_sim_action action, usc_sim_stream stream, const char *address,
                        size_t size);

/* snapshot.c */
void usc_sim_history_note(usc_sim_action action, usc_sim_stream stream,
                          const char *address, size_t size);

/* queue.c */
void usc_sim_lock_once(void); /* makes its lock, and what a fork does to it */
uint64_t usc_sim_queue_ticket(usc_sim_stream stream);
bool usc_sim_queue_passed(usc_sim_stream stream, uint64_t ticket);

#endif
