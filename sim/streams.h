// SPDX-License-Identifier: Apache-2.0
// What the files of the command queues share: queue.c (streams and commands), event.c,
// schedule.c (order by a seed). One lock guards it all: a command is long against it.
#ifndef USC_SIM_STREAMS_H
#define USC_SIM_STREAMS_H

#include <ulpscope_sim/fault.h>
#include <ulpscope_sim/graph.h>
#include <ulpscope_sim/stream.h>
#include <ulpscope_sim/timeline.h>

#include <pthread.h>

/* A point in a stream: done when all that was submitted before it has ended. */
typedef struct mark {
    int n_refs;
    bool done;
    int64_t time; /* nanoseconds; 0 until done */
    usc_sim_stream stream;
    usc_sim_graph *graph; /* of a capture; NULL: of none */
    size_t n_kept;        /* there, before it */
} mark;

typedef enum entry_kind {
    ENTRY_COMMAND,
    ENTRY_RECORD, /* `point` is reached */
    ENTRY_WAIT,   /* goes on when `point` is done */
} entry_kind;

typedef struct entry {
    struct entry *next;
    entry_kind kind;
    mark *point;
    usc_status *told; /* where its submitter waits for it: status and text go there */
    usc_error *told_text;
    usc_sim_command command;
    usc_sim_launched launched;
} entry;

typedef struct queue {
    usc_sim_stream stream;
    bool high;
    bool for_ranks; /* its commands are never in step with who submits */
    entry *head, *tail;
    bool running;
    bool has_thread;
    uint64_t n_submitted, n_ended;
    pthread_cond_t wake;     /* of its thread */
    usc_error failure;       /* of the first command that failed, until told */
    usc_sim_graph *captured; /* where its commands go; NULL: they run */
    size_t n_unjoined;       /* of the graph, with what it kept last; 0: is waited for */
} queue;

/* All with the lock held, but for usc_sim_lock(). */
void usc_sim_lock(void);
void usc_sim_unlock(void);
queue *usc_sim_queue_of(usc_sim_stream stream); /* NULL: no such stream */
queue *usc_sim_queue_at(int i);                 /* i-th of all devices; NULL at the end */
bool usc_sim_queue_could_run(const queue *q);
void usc_sim_queue_run_head(queue *q); /* lets go of the lock while the command runs */
usc_status usc_sim_queue_push(queue *q, entry *e, usc_error *err);
usc_status usc_sim_queue_tell(queue *q, usc_error *err); /* its failure, once to the
                                                               program */
usc_status usc_sim_may_wait(usc_error *err);             /* a command may not */
/* Until met(ctx); with a schedule this thread runs what comes meanwhile. USC_E_IO:
 * interrupted. */
usc_status usc_sim_wait_until(bool (*met)(const void *), const void *ctx, usc_error *err);
/* graph.c; of a queue that is captured, or with a mark of one */
usc_status usc_sim_graph_keep(queue *q, const usc_sim_command *command, usc_error *err);
usc_status usc_sim_graph_meet(queue *q, const mark *m, usc_error *err);
void usc_sim_graph_mark(const queue *q, mark *m);
usc_status usc_sim_graph_may_wait(const queue *q, usc_error *err);
/* wait.c */
bool usc_sim_is_asked(void);   /* whether anybody is */
bool usc_sim_interrupts(void); /* asks, outside of the lock */
void usc_sim_next_question(struct timespec *when);
void usc_sim_wait_for_nothing(void); /* until interrupted */

void usc_sim_mark_drop(mark *m);
int64_t usc_sim_now(void);

/* schedule.c */
bool usc_sim_scheduled(void);
bool usc_sim_schedule_step(void);      /* runs one; false: none could */
void usc_sim_schedule_submitted(void); /* perhaps some of what could run does now */
void usc_sim_schedule_asked(void);     /* somebody asks whether something has ended */

#endif
