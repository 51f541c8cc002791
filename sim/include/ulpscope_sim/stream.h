// SPDX-License-Identifier: Apache-2.0
// Command queues of the simulated accelerator: streams, events, and the order in which
// what a program left unordered runs. A command runs when its turn comes: those of one
// stream one after the other on the stream's own thread, those of different streams side
// by side unless an event orders them. Memory and faults: sim.h.
//
// Threads: every function is safe to call from any thread. A command may submit, record
//          and query; it must not wait for a stream or an event.
#ifndef ULPSCOPE_SIM_STREAM_H
#define ULPSCOPE_SIM_STREAM_H

#include <ulpscope_sim/sim.h>

USC_BEGIN_DECLS

/* Streams of a device: its default stream, 0, and a pool of each priority, whose members
 * are handed out in turn. A stream has no end: it costs a thread once it is used. */
#define USC_SIM_POOL_STREAMS 16
#define USC_SIM_RANK_STREAMS 64 /* for what waits for other processes: ccl.h */
#define USC_SIM_N_STREAMS (1 + 2 * USC_SIM_POOL_STREAMS + USC_SIM_RANK_STREAMS)

typedef struct usc_sim_stream {
    int device;
    int64_t id; /* 0: the device's default stream */
} usc_sim_stream;

typedef struct usc_sim_event usc_sim_event;

#define USC_SIM_NAME_TEXT 96
#define USC_SIM_PLACE_TEXT 160

/** What a stream runs. `drop` is called once in each case: after `run`, on the same thread,
 * and where submitting fails. */
typedef struct usc_sim_command {
    usc_status (*run)(void *ctx, usc_error *err);
    void (*drop)(void *ctx); /* NULL: nothing is to do */
    void *ctx;
    char name[USC_SIM_NAME_TEXT];   /* the operator; for errors */
    char place[USC_SIM_PLACE_TEXT]; /* where it was launched, "train.py:12", or "" */
} usc_sim_command;

/* ---- streams -------------------------------------------------------------------- */

/** Whether there is such a stream. */
USC_API bool usc_sim_stream_exists(usc_sim_stream stream);

/** The next stream of a pool, in turn: after USC_SIM_POOL_STREAMS the first comes again. A
 * command of a stream of high priority that could run begins before those of others of its
 * device. No such device: the default stream of device 0. */
USC_API usc_sim_stream usc_sim_stream_next(int device, bool high_priority);

/**
 * The next stream for commands that wait for other processes: it has a thread of its own
 * with launch blocking and a schedule too, since what it waits for may wait for what this
 * process does next. After USC_SIM_RANK_STREAMS the first comes again.
 */
USC_API usc_sim_stream usc_sim_stream_next_for_ranks(int device);

/** Whether a stream comes from the pool of high priority. */
USC_API bool usc_sim_stream_is_high(usc_sim_stream stream);

/** The stream that this thread has chosen on a device: the default one at first. */
USC_API usc_sim_stream usc_sim_stream_current(int device);

/** Makes `stream` the one this thread uses on the stream's device. No such stream: does
 * nothing. */
USC_API void usc_sim_stream_set_current(usc_sim_stream stream);

/**
 * Puts a command at the end of a stream's queue. With launch blocking it waits for its
 * end, and the command's own error is returned.
 *
 * Errors:  USC_E_ARG for no such stream, USC_E_NOMEM, USC_E_IO where no thread can be
 *          made, USC_E_UNSUPPORTED in a child that was forked while streams had threads.
 */
USC_API USC_NODISCARD usc_status usc_sim_submit(usc_sim_stream stream,
                                                const usc_sim_command *command,
                                                usc_error *err);

/**
 * Lets a stream say that `name` failed on its behalf elsewhere, as a command of its own that
 * failed does: to the next who waits for it. Whoever waits for what failed by way of this
 * stream hears of it, where it is said before that has ended. No such stream: does nothing.
 *
 * NULL: neither `name` nor `why`.
 */
USC_API void usc_sim_stream_fail(usc_sim_stream stream, const char *name,
                                 const usc_error *why);

/**
 * Copies `size` bytes when the stream's turn comes, between any two of host, pinned and
 * device memory. The blocks stay what they are until then, also where they are freed.
 *
 * Errors:  as usc_sim_submit(); a range that is no live device memory is told where the
 *          copy would have run.
 */
USC_API USC_NODISCARD usc_status usc_sim_copy(usc_sim_stream stream, void *to,
                                              const void *from, size_t size,
                                              usc_error *err);

/** Where the command that this thread runs was launched; NULL: it runs none. Memory: the
 * command's. */
USC_API const char *usc_sim_command_place(void);

/** Whether any stream was ever given anything that could not run at once: until then there
 * is nothing to wait for. Costs one atomic load. */
USC_API bool usc_sim_has_worked(void);

/** Whether all that was submitted has ended. */
USC_API bool usc_sim_stream_query(usc_sim_stream stream);

/**
 * Waits until all that was submitted so far has ended.
 *
 * Errors:  what the first command of the stream that failed since the last such wait said,
 *          behind its name and place; later commands have run nevertheless.
 */
USC_API USC_NODISCARD usc_status usc_sim_stream_synchronize(usc_sim_stream stream,
                                                            usc_error *err);

/**
 * Asked about five times a second in each wait of this library, and while a kernel hangs on
 * purpose, on the thread that waits and outside of all locks: true has the wait end with
 * USC_E_IO ("interrupted"). A program's own signals are seen to so.
 *
 * NULL:    nobody is asked, as to begin with.
 */
USC_API void usc_sim_on_wait(bool (*asked)(void));

/** Whether a wait was ever interrupted: what it waited for may never end. */
USC_API bool usc_sim_was_interrupted(void);

/** The same of all streams of a device; of every device for -1. Errors: the same. */
USC_API USC_NODISCARD usc_status usc_sim_device_synchronize(int device, usc_error *err);

/** What is submitted to `stream` from now on begins when all that was submitted to `other`
 * so far has ended. Errors: as usc_sim_submit(). */
USC_API USC_NODISCARD usc_status usc_sim_stream_wait_stream(usc_sim_stream stream,
                                                            usc_sim_stream other,
                                                            usc_error *err);

/* ---- events --------------------------------------------------------------------- */

/**
 * Makes an event; `timing`: it is going to be asked for time.
 *
 * Memory:  give back with usc_sim_event_free(), also while a stream waits for it.
 * Errors:  USC_E_NOMEM; *out is NULL then.
 */
USC_API USC_NODISCARD usc_status usc_sim_event_create(bool timing, usc_sim_event **out,
                                                      usc_error *err);

/** NULL is allowed. */
USC_API void usc_sim_event_free(usc_sim_event *event);

/** The event stands for what was submitted to `stream` so far; what waits for what it
 * stood for goes on waiting for that. Errors: as usc_sim_submit(). */
USC_API USC_NODISCARD usc_status usc_sim_event_record(usc_sim_event *event,
                                                      usc_sim_stream stream,
                                                      usc_error *err);

/** What is submitted to `stream` from now on begins when what the event stands for has
 * ended; one that was never recorded is not waited for. Errors: as usc_sim_submit(). */
USC_API USC_NODISCARD usc_status usc_sim_stream_wait(usc_sim_stream stream,
                                                     usc_sim_event *event,
                                                     usc_error *err);

/** Whether what the event stands for has ended; true where it was never recorded. */
USC_API bool usc_sim_event_query(usc_sim_event *event);

/** Waits for that. Errors: as usc_sim_stream_synchronize() of the stream that recorded. */
USC_API USC_NODISCARD usc_status usc_sim_event_synchronize(usc_sim_event *event,
                                                           usc_error *err);

/**
 * Milliseconds on the device between two events.
 *
 * Errors:  USC_E_ARG where one was made without timing, was never recorded, or has not
 *          ended; *ms is 0 then.
 */
USC_API USC_NODISCARD usc_status usc_sim_event_elapsed(usc_sim_event *from,
                                                       usc_sim_event *to, double *ms,
                                                       usc_error *err);

/* ---- order ---------------------------------------------------------------------- */

/** On: each command has ended when usc_sim_submit() returns, on the caller's thread where
 * the stream is idle. Off at the start. */
USC_API void usc_sim_set_launch_blocking(bool on);
USC_API bool usc_sim_launch_blocking(void);

typedef struct usc_sim_schedule_options {
    uint64_t seed;
    double delay; /* in [0, 1]: how much is held back until somebody waits; 1: all */
} usc_sim_schedule_options;

/**
 * From now on the seed alone, and not the machine, orders what the program has left
 * unordered: commands run one at a time, on the thread that submits or waits, the next one
 * drawn among those that could run. The same program with the same seed has the same
 * order, as long as one of its threads at a time uses the device. NULL: threads again.
 * Both wait for all that was submitted before, and do nothing in a command. Priorities and
 * launch blocking stay.
 */
USC_API void usc_sim_schedule(const usc_sim_schedule_options *options);

USC_END_DECLS
#endif
