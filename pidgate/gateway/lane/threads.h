/* Threads that carry lent connections: sockets, epoll, buffers. They never hold the GIL. A lane without a thread carries
   what Python's thread reads and writes, because the sockets' bytes are encrypted.

   One lock for each thread, held for one event at a time (one read, what it means, one write: some 10 us). Whoever holds
   it sees every connection of the thread between two events. So Python's thread lends, takes back, counts and changes
   what grants depend on as if the thread stood still, and there is nothing to await. */

#ifndef PIDGATE_LANE_THREADS_H
#define PIDGATE_LANE_THREADS_H

#include "core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    READ_BYTES = 256 * 1024,
    BLOCK_BYTES = 256 * 1024,   /* what waits in one direction of a connection: a read, or a frame's beginning */
    MOST_BLOCKS = 32,           /* of a thread; when they are used up, a connection that needs one goes back to Python */
    LONG_BLOCK_BYTES = MOST_KEPT_BYTES,  /* the same for a request that is longer */
    MOST_LONG_BLOCKS = 8,
    MOST_PIPES = 16,
    MOST_ANNOUNCED_BYTES = 64 * 1024 * 1024,  /* a broker allocates a frame at its length: half frames are not free */
    PIPE_BYTES = 1024 * 1024,
    SPLICED_FROM_BYTES = 16 * 1024,  /* less is copied: a splice takes two system calls and a pipe's pages */
    HEAD_READ_BYTES = 1024,     /* of a frame that will be spliced */
    CELLS = 2,
    MOST_THREADS = 64,
    MOST_CARRIED_BYTES = 64 * 1024,  /* of a read of Python's thread; more is cheaper in its own large buffer */
    MOST_KEPT_HERE_BYTES = 4096      /* an incomplete beginning: reading.SCARCE_READ_BYTES, which nobody counts */
};

/* A number that changes when a decision that depends on it does not hold any more. */
typedef struct {
    _Atomic uint64_t number;
} Cell;

/* Blocks of one size that are not in use. */
typedef struct {
    uint8_t *memory, *end;
    uint8_t *unused[MOST_BLOCKS];
    int unused_count;
    uint32_t block_bytes;
} Blocks;

/* One direction of a connection. */
typedef struct {
    int from, to;              /* descriptors */
    uint8_t *kept;             /* a block: the incomplete beginning of a frame or unit, which was not forwarded */
    uint32_t kept_bytes;
    uint8_t *unsent;           /* a block: forwarded, and not yet taken by the other side */
    uint32_t unsent_at, unsent_bytes;
    int pipe;                  /* index, or -1 */
    uint32_t piped_bytes;      /* in the pipe */
    bool is_bulk;              /* the last frame was long: read the beginning of the next one alone */
} Flow;

/* What is left of one direction when the connection goes back. */
typedef struct {
    uint8_t *rest;             /* read, and not forwarded */
    size_t rest_bytes;
    uint8_t *unsent;           /* to be written before all else */
    size_t unsent_bytes;
} Residue;

typedef struct Connection {
    uint32_t index, generation;
    bool is_lent, has_left, has_counts;
    Next why;                  /* it left */
    struct Connection *next_left, *next_counted;
    void *owner;               /* a PyObject, which only threads with the GIL touch */
    Core core;
    const Cell *cells[CELLS];
    uint64_t seen[CELLS];
    Flow requests, answers;
    uint32_t client_events, broker_events;
    uint64_t request_bytes, answer_bytes;   /* forwarded since they were counted */
    uint32_t announced_bytes;               /* of the Produce under way */
    int64_t in_frame_since_ms;              /* a Produce is under way; 0: none */
    Residue of_requests, of_answers;
} Connection;

typedef struct {
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    int epoll, stop_event, left_event;
    bool is_told;              /* of those that left; until they are taken */
    uint8_t *buffer;
    Blocks blocks, long_blocks;
    int pipes[MOST_PIPES][2];
    int free_pipes[MOST_PIPES];
    int free_pipe_count;
    Connection **connections;
    uint32_t connection_count, connection_room;
    uint32_t *free_connections;
    uint32_t free_connection_count;
    uint32_t lent_count;
    uint64_t announced_bytes;
    Connection *left, *counted;
    uint32_t requests_by_api[MOST_API_KEYS];
} Lane;

int64_t lane_now_ms(void);
/* Returns NULL with errno. */
Lane *lane_start(bool has_thread);
/* All connections must have been taken back. */
void lane_stop(Lane *lane);

/* All below need the lock. */
Connection *lane_new_connection(Lane *lane);          /* NULL: no memory */
void lane_free_connection(Lane *lane, Connection *connection);
Connection *lane_find(Lane *lane, uint32_t index, uint32_t generation);
/* Begin to read both sockets; -1, -1: lane_carry is called instead. Returns false with errno. */
bool lane_lend(Lane *lane, Connection *connection, int client, int broker);
/* End it: the thread touches neither socket from here on. */
void lane_leave(Lane *lane, Connection *connection, Next why);
/* Look at bytes that Python's thread has read from one side of a connection without descriptors. Sets what it has to
   send, valid until the next call. Returns false if the connection has left, with all of it in its residues. */
bool lane_carry(Lane *lane, Connection *connection, bool is_request, const uint8_t **bytes, size_t *count);
Connection *lane_take_left(Lane *lane);               /* NULL: none */
Connection *lane_take_counted(Lane *lane);            /* NULL: none */
void lane_unlist(Lane *lane, Connection *connection);

#endif
