#define _GNU_SOURCE
#include "threads.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_EVENTS = 64, CLIENT = 0, BROKER = 1 };

static const uint64_t STOP = UINT64_MAX;

int64_t lane_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- blocks and pipes ---------------------------------------------------------------------------------------- */

static bool make_blocks(Blocks *blocks, int count, uint32_t block_bytes) {
    size_t bytes = (size_t)count * block_bytes;
    blocks->block_bytes = block_bytes;
    blocks->memory = malloc(bytes);  /* resident only where it was used */
    if (!blocks->memory)
        return false;
    blocks->end = blocks->memory + bytes;
    for (int at = 0; at < count; at++)
        blocks->unused[blocks->unused_count++] = blocks->memory + (size_t)at * block_bytes;
    return true;
}

static Blocks *blocks_of(Lane *lane, const uint8_t *block) {
    return block >= lane->blocks.memory && block < lane->blocks.end ? &lane->blocks : &lane->long_blocks;
}

/* Take a block for so many bytes. Returns NULL if there is none left. */
static uint8_t *take_block(Lane *lane, size_t bytes) {
    Blocks *blocks = bytes <= BLOCK_BYTES ? &lane->blocks : &lane->long_blocks;
    return bytes <= blocks->block_bytes && blocks->unused_count ? blocks->unused[--blocks->unused_count] : NULL;
}

static void give_block(Lane *lane, uint8_t **block) {
    if (*block) {
        Blocks *blocks = blocks_of(lane, *block);
        blocks->unused[blocks->unused_count++] = *block;
    }
    *block = NULL;
}

static bool take_pipe(Lane *lane, Flow *flow) {
    if (flow->pipe < 0 && lane->free_pipe_count)
        flow->pipe = lane->free_pipes[--lane->free_pipe_count];
    return flow->pipe >= 0;
}

static void give_pipe(Lane *lane, Flow *flow) {
    if (flow->pipe >= 0)
        lane->free_pipes[lane->free_pipe_count++] = flow->pipe;
    flow->pipe = -1;
}

/* ---- what a connection waits for ------------------------------------------------------------------------------ */

static bool is_blocked(const Flow *flow) { return flow->unsent_bytes || flow->piped_bytes; }

static uint64_t event_key(const Connection *connection, int side) {
    return (uint64_t)connection->generation << 32 | (uint64_t)connection->index << 1 | (uint64_t)side;
}

static void listen_for(Lane *lane, Connection *connection, int side, uint32_t events) {
    uint32_t *now = side == CLIENT ? &connection->client_events : &connection->broker_events;
    if (*now == events)
        return;
    *now = events;
    struct epoll_event event = {.events = events, .data.u64 = event_key(connection, side)};
    int fd = side == CLIENT ? connection->requests.from : connection->answers.from;
    epoll_ctl(lane->epoll, EPOLL_CTL_MOD, fd, &event);
}

/* Read a side while the other one takes what comes from it; wait for a side to take more while something is unsent. */
static void update_events(Lane *lane, Connection *connection) {
    bool requests_wait = is_blocked(&connection->requests), answers_wait = is_blocked(&connection->answers);
    listen_for(lane, connection, CLIENT, (requests_wait ? 0u : EPOLLIN) | (answers_wait ? EPOLLOUT : 0u));
    listen_for(lane, connection, BROKER, (answers_wait ? 0u : EPOLLIN) | (requests_wait ? EPOLLOUT : 0u));
}

/* ---- the end of a lending ------------------------------------------------------------------------------------- */

static void announce(Lane *lane, Connection *connection, uint32_t bytes) {
    lane->announced_bytes += bytes;
    lane->announced_bytes -= connection->announced_bytes;
    connection->announced_bytes = bytes;
}

static void copy_out(uint8_t **copy, size_t *copied, const uint8_t *bytes, size_t count) {
    if (!count)
        return;
    uint8_t *grown = realloc(*copy, *copied + count);
    if (!grown)
        abort();  /* bytes that were taken from a socket would be lost without a word */
    memcpy(grown + *copied, bytes, count);
    *copy = grown;
    *copied += count;
}

static void clear_flow(Lane *lane, Flow *flow, Residue *residue) {
    if (flow->unsent_bytes)
        copy_out(&residue->unsent, &residue->unsent_bytes, flow->unsent + flow->unsent_at, flow->unsent_bytes);
    while (flow->piped_bytes) {
        uint8_t part[4096];
        ssize_t count = read(lane->pipes[flow->pipe][0], part, sizeof part);
        if (count <= 0)
            break;
        copy_out(&residue->unsent, &residue->unsent_bytes, part, (size_t)count);
        flow->piped_bytes -= (uint32_t)count;
    }
    copy_out(&residue->rest, &residue->rest_bytes, flow->kept, flow->kept_bytes);
    flow->unsent_bytes = flow->kept_bytes = 0;
    give_block(lane, &flow->unsent);
    give_block(lane, &flow->kept);
    give_pipe(lane, flow);
}

void lane_leave(Lane *lane, Connection *connection, Next why) {
    if (!connection->is_lent)
        return;
    connection->is_lent = false;
    connection->why = why;
    lane->lent_count--;
    announce(lane, connection, 0);
    if (lane->has_thread) {
        epoll_ctl(lane->epoll, EPOLL_CTL_DEL, connection->requests.from, NULL);
        epoll_ctl(lane->epoll, EPOLL_CTL_DEL, connection->answers.from, NULL);
    }
    clear_flow(lane, &connection->requests, &connection->of_requests);
    clear_flow(lane, &connection->answers, &connection->of_answers);
}

/* Leave, and tell Python. */
static void leave_and_tell(Lane *lane, Connection *connection, Next why) {
    lane_leave(lane, connection, why);
    connection->has_left = true;
    connection->next_left = lane->left;
    lane->left = connection;
    if (!lane->is_told) {
        lane->is_told = true;
        uint64_t one = 1;
        if (write(lane->left_event, &one, sizeof one) < 0)
            abort();  /* an eventfd takes one always */
    }
}

/* ---- carrying --------------------------------------------------------------------------------------------------- */

static void note_counts(Lane *lane, Connection *connection) {
    if (connection->has_counts)
        return;
    connection->has_counts = true;
    connection->next_counted = lane->counted;
    lane->counted = connection;
}

static bool is_revoked(const Connection *connection) {
    for (int at = 0; at < CELLS; at++)
        if (connection->cells[at] &&
            atomic_load_explicit(&connection->cells[at]->number, memory_order_relaxed) != connection->seen[at])
            return true;
    return false;
}

/* Send bytes on. Returns whether the connection is still lent. */
static bool forward(Lane *lane, Flow *flow, Residue *residue, const uint8_t *bytes, size_t count) {
    if (!count)
        return true;
    ssize_t sent = send(flow->to, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == (ssize_t)count)
        return true;
    if (sent < 0)
        sent = 0;  /* full; or broken, which the transport finds as well */
    bool is_broken = sent == 0 && errno != EAGAIN && errno != EINTR;
    size_t left = count - (size_t)sent;
    uint8_t *block = is_broken ? NULL : take_block(lane, left);
    if (!block) {
        copy_out(&residue->unsent, &residue->unsent_bytes, bytes + sent, left);
        return false;
    }
    flow->unsent = block;
    flow->unsent_at = 0;
    flow->unsent_bytes = (uint32_t)left;
    memcpy(block, bytes + sent, left);
    return true;
}

/* Send what is unsent. Returns false if the other side is gone. */
static bool flush(Lane *lane, Flow *flow, bool has_more) {
    if (flow->unsent_bytes) {
        ssize_t sent = send(flow->to, flow->unsent + flow->unsent_at, flow->unsent_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        flow->unsent_at += (uint32_t)sent;
        flow->unsent_bytes -= (uint32_t)sent;
        if (flow->unsent_bytes)
            return true;
        give_block(lane, &flow->unsent);
    }
    while (flow->piped_bytes) {
        unsigned flags = SPLICE_F_NONBLOCK | SPLICE_F_MOVE | (has_more ? SPLICE_F_MORE : 0u);
        ssize_t sent = splice(lane->pipes[flow->pipe][0], NULL, flow->to, NULL, flow->piped_bytes, flags);
        if (sent <= 0)
            return sent < 0 && (errno == EAGAIN || errno == EINTR);
        flow->piped_bytes -= (uint32_t)sent;
    }
    give_pipe(lane, flow);
    return true;
}

/* Note whether a Produce is under way. */
static void note_frame(Lane *lane, Connection *connection) {
    const Core *core = &connection->core;
    announce(lane, connection, core->request_left ? core->under_way.request_bytes : 0);
    if (!core->request_left)
        connection->in_frame_since_ms = 0;
    else if (!connection->in_frame_since_ms)
        connection->in_frame_since_ms = lane_now_ms();
}

static void skip(Lane *lane, Connection *connection, bool is_request, uint64_t bytes) {
    if (is_request) {
        core_skip_request(&connection->core, bytes, lane_now_ms());
        connection->request_bytes += bytes;
        note_frame(lane, connection);
    } else {
        core_skip_answer(&connection->core, bytes);
        connection->answer_bytes += bytes;
    }
}

static uint64_t unread_bytes(const Connection *connection, bool is_request) {
    return is_request ? connection->core.request_left : connection->core.answer_unread;
}

/* Pass the inside of a frame on without copying it. Returns false if the other side, or this one, is gone. */
static bool splice_inside(Lane *lane, Connection *connection, Flow *flow, bool is_request) {
    uint64_t left = unread_bytes(connection, is_request);
    size_t most = left < PIPE_BYTES ? (size_t)left : PIPE_BYTES;
    ssize_t count = splice(flow->from, NULL, lane->pipes[flow->pipe][1], NULL, most, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    if (count <= 0) {
        give_pipe(lane, flow);
        return count < 0 && (errno == EAGAIN || errno == EINTR);
    }
    flow->piped_bytes = (uint32_t)count;
    skip(lane, connection, is_request, (uint64_t)count);
    return flush(lane, flow, (uint64_t)count < left);
}

static bool may_splice(Lane *lane, Connection *connection, Flow *flow, bool is_request) {
    return !is_blocked(flow) && unread_bytes(connection, is_request) >= SPLICED_FROM_BYTES && take_pipe(lane, flow);
}

/* Keep the beginning of a frame or unit until the rest comes. Returns false if there is no block for it. */
static bool keep(Lane *lane, Flow *flow, bool is_request, const uint8_t *rest, size_t bytes) {
    size_t whole = bytes + 1;  /* at least */
    if (is_request && bytes >= SIZE_PREFIX_BYTES) {
        size_t told = (size_t)rest[0] << 24 | (size_t)rest[1] << 16 | (size_t)rest[2] << 8 | rest[3];
        if (SIZE_PREFIX_BYTES + told <= MOST_KEPT_BYTES)  /* a longer one is waited for up to its first batch only */
            whole = SIZE_PREFIX_BYTES + told;
    }
    if (flow->kept && blocks_of(lane, flow->kept)->block_bytes >= whole)
        memmove(flow->kept, rest, bytes);
    else {
        uint8_t *block = take_block(lane, whole);
        if (!block)
            return false;
        memcpy(block, rest, bytes);
        give_block(lane, &flow->kept);
        flow->kept = block;
    }
    flow->kept_bytes = (uint32_t)bytes;
    return true;
}

/* Look at bytes of one side, and count those that pass. */
static Look look_at(Lane *lane, Connection *connection, bool is_request, const uint8_t *buffer, size_t bytes) {
    Core *core = &connection->core;
    Look look;
    if (!is_request) {
        look = core_answers(core, buffer, bytes);
        connection->answer_bytes += look.passed;
        return look;
    }
    core->may_stream = lane->announced_bytes < MOST_ANNOUNCED_BYTES;
    if (!is_revoked(connection))
        look = core_requests(core, buffer, bytes, lane_now_ms());
    else {
        size_t last = core->request_left < bytes ? (size_t)core->request_left : bytes;  /* of the frame under way */
        look = (Look){0, TO_PYTHON};
        if (last)
            look = (Look){core_requests(core, buffer, last, lane_now_ms()).passed, last < bytes ? TO_PYTHON : MORE};
    }
    connection->request_bytes += look.passed;
    note_frame(lane, connection);
    return look;
}

bool lane_carry(Lane *lane, Connection *connection, bool is_request, const uint8_t **bytes, size_t *count) {
    Residue *residue = is_request ? &connection->of_requests : &connection->of_answers;
    note_counts(lane, connection);
    if (*count > MOST_CARRIED_BYTES) {
        copy_out(&residue->rest, &residue->rest_bytes, *bytes, *count);
        lane_leave(lane, connection, MORE);
        return false;
    }
    if (residue->rest_bytes) {
        memcpy(lane->buffer, residue->rest, residue->rest_bytes);
        memcpy(lane->buffer + residue->rest_bytes, *bytes, *count);
        *bytes = lane->buffer;
        *count += residue->rest_bytes;
        residue->rest_bytes = 0;
    }
    Look look = look_at(lane, connection, is_request, *bytes, *count);
    copy_out(&residue->rest, &residue->rest_bytes, *bytes + look.passed, *count - look.passed);
    *count = look.passed;
    if (look.next == MORE && residue->rest_bytes <= MOST_KEPT_HERE_BYTES)
        return true;
    copy_out(&residue->unsent, &residue->unsent_bytes, *bytes, *count);
    lane_leave(lane, connection, look.next);
    return false;
}

/* One read of one side, and what it means. */
static void carry(Lane *lane, Connection *connection, bool is_request) {
    Flow *flow = is_request ? &connection->requests : &connection->answers;
    Residue *residue = is_request ? &connection->of_requests : &connection->of_answers;
    note_counts(lane, connection);
    if (may_splice(lane, connection, flow, is_request)) {
        if (!splice_inside(lane, connection, flow, is_request))
            leave_and_tell(lane, connection, MORE);
        return;
    }
    size_t kept = flow->kept_bytes;
    uint8_t *buffer = flow->kept ? flow->kept : lane->buffer;
    uint64_t inside = unread_bytes(connection, is_request);
    size_t room = flow->kept ? blocks_of(lane, buffer)->block_bytes - kept : READ_BYTES;
    if (room > READ_BYTES)
        room = READ_BYTES;
    if (flow->is_bulk && inside + HEAD_READ_BYTES < room)
        room = (size_t)inside + HEAD_READ_BYTES;
    ssize_t count = recv(flow->from, buffer + kept, room, MSG_DONTWAIT);
    if (count <= 0) {
        if (count == 0 || (errno != EAGAIN && errno != EINTR))
            leave_and_tell(lane, connection, MORE);  /* the transport finds the same */
        return;
    }
    size_t bytes = kept + (size_t)count;
    flow->kept_bytes = 0;
    Look look = look_at(lane, connection, is_request, buffer, bytes);
    uint64_t unread = unread_bytes(connection, is_request);
    if (look.passed && !inside)
        flow->is_bulk = unread >= SPLICED_FROM_BYTES;
    bool is_lent = forward(lane, flow, residue, buffer, look.passed);
    size_t rest = bytes - look.passed;
    if (rest && look.next == MORE && is_lent) {
        if (keep(lane, flow, is_request, buffer + look.passed, rest))
            return;
        is_lent = false;
    }
    if (!is_lent || look.next != MORE) {
        copy_out(&residue->rest, &residue->rest_bytes, buffer + look.passed, rest);
        leave_and_tell(lane, connection, look.next);
        return;
    }
    give_block(lane, &flow->kept);
    if (may_splice(lane, connection, flow, is_request) && !splice_inside(lane, connection, flow, is_request))
        leave_and_tell(lane, connection, MORE);
}

static void on_event(Lane *lane, Connection *connection, int side, uint32_t events) {
    bool is_request = side == CLIENT;
    Flow *in = is_request ? &connection->requests : &connection->answers;
    Flow *out = is_request ? &connection->answers : &connection->requests;
    if (events & EPOLLOUT && !flush(lane, out, unread_bytes(connection, !is_request) > 0)) {
        leave_and_tell(lane, connection, MORE);
        return;
    }
    if (!is_blocked(in)) {
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
            carry(lane, connection, is_request);
    } else if (events & (EPOLLHUP | EPOLLERR))
        leave_and_tell(lane, connection, MORE);  /* it would be told of that without end */
    if (connection->is_lent)
        update_events(lane, connection);
}

static void *run(void *argument) {
    Lane *lane = argument;
    struct epoll_event events[MOST_EVENTS];
    for (;;) {
        int count = epoll_wait(lane->epoll, events, MOST_EVENTS, -1);
        for (int at = 0; at < count; at++) {
            uint64_t key = events[at].data.u64;
            if (key == STOP)
                return NULL;
            pthread_mutex_lock(&lane->lock);
            /* It may have been taken back, or have left, since epoll_wait returned. */
            Connection *connection = lane_find(lane, (uint32_t)key >> 1, (uint32_t)(key >> 32));
            if (connection && connection->is_lent)
                on_event(lane, connection, (int)(key & 1), events[at].events);
            pthread_mutex_unlock(&lane->lock);
        }
    }
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

Connection *lane_find(Lane *lane, uint32_t index, uint32_t generation) {
    Connection *connection = index < lane->connection_count ? lane->connections[index] : NULL;
    return connection && connection->generation == generation ? connection : NULL;
}

Connection *lane_new_connection(Lane *lane) {
    if (lane->free_connection_count)
        return lane->connections[lane->free_connections[--lane->free_connection_count]];
    if (lane->connection_count == lane->connection_room) {
        uint32_t room = lane->connection_room ? 2 * lane->connection_room : 64;
        Connection **connections = realloc(lane->connections, room * sizeof *connections);
        if (connections)
            lane->connections = connections;
        uint32_t *indexes = realloc(lane->free_connections, room * sizeof *indexes);
        if (indexes)
            lane->free_connections = indexes;
        if (!connections || !indexes)
            return NULL;
        lane->connection_room = room;
    }
    Connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        return NULL;
    connection->index = lane->connection_count;
    lane->connections[lane->connection_count++] = connection;
    return connection;
}

void lane_free_connection(Lane *lane, Connection *connection) {
    lane_unlist(lane, connection);
    free(connection->core.grant);
    free(connection->of_requests.rest);
    free(connection->of_requests.unsent);
    free(connection->of_answers.rest);
    free(connection->of_answers.unsent);
    uint32_t index = connection->index, generation = connection->generation;
    memset(connection, 0, sizeof *connection);
    connection->index = index;
    connection->generation = generation + 1;
    lane->free_connections[lane->free_connection_count++] = index;
}

/* Have epoll tell of both sockets. Returns false with errno. */
static bool begin_to_read(Lane *lane, Connection *connection) {
    int client = connection->requests.from, broker = connection->answers.from;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = event_key(connection, CLIENT)};
    if (epoll_ctl(lane->epoll, EPOLL_CTL_ADD, client, &event) < 0)
        return false;
    event.data.u64 = event_key(connection, BROKER);
    if (epoll_ctl(lane->epoll, EPOLL_CTL_ADD, broker, &event) == 0)
        return true;
    int error = errno;
    epoll_ctl(lane->epoll, EPOLL_CTL_DEL, client, NULL);
    errno = error;
    return false;
}

bool lane_lend(Lane *lane, Connection *connection, int client, int broker) {
    connection->requests = (Flow){.from = client, .to = broker, .pipe = -1};
    connection->answers = (Flow){.from = broker, .to = client, .pipe = -1};
    connection->client_events = connection->broker_events = EPOLLIN;
    connection->core.requests_by_api = lane->requests_by_api;
    if (lane->has_thread && !begin_to_read(lane, connection))
        return false;
    connection->is_lent = true;
    lane->lent_count++;
    return true;
}

Connection *lane_take_left(Lane *lane) {
    Connection *connection = lane->left;
    if (connection) {
        lane->left = connection->next_left;
        connection->has_left = false;
    } else
        lane->is_told = false;
    return connection;
}

Connection *lane_take_counted(Lane *lane) {
    Connection *connection = lane->counted;
    if (connection) {
        lane->counted = connection->next_counted;
        connection->has_counts = false;
    }
    return connection;
}

void lane_unlist(Lane *lane, Connection *connection) {
    if (connection->has_left) {
        Connection **at = &lane->left;
        while (*at != connection)
            at = &(*at)->next_left;
        *at = connection->next_left;
        connection->has_left = false;
    }
    if (connection->has_counts) {
        Connection **at = &lane->counted;
        while (*at != connection)
            at = &(*at)->next_counted;
        *at = connection->next_counted;
        connection->has_counts = false;
    }
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

static void free_lane(Lane *lane) {
    if (lane->epoll >= 0)
        close(lane->epoll);
    if (lane->stop_event >= 0)
        close(lane->stop_event);
    if (lane->left_event >= 0)
        close(lane->left_event);
    for (int at = 0; at < MOST_PIPES; at++)
        for (int end = 0; end < 2; end++)
            if (lane->pipes[at][end] >= 0)
                close(lane->pipes[at][end]);
    for (uint32_t at = 0; at < lane->connection_count; at++)
        free(lane->connections[at]);
    free(lane->connections);
    free(lane->free_connections);
    free(lane->buffer);
    free(lane->blocks.memory);
    free(lane->long_blocks.memory);
    pthread_mutex_destroy(&lane->lock);
    free(lane);
}

static bool make_thread_parts(Lane *lane) {
    lane->epoll = epoll_create1(EPOLL_CLOEXEC);
    lane->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    lane->left_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lane->epoll < 0 || lane->stop_event < 0 || lane->left_event < 0 ||
        !make_blocks(&lane->blocks, MOST_BLOCKS, BLOCK_BYTES) ||
        !make_blocks(&lane->long_blocks, MOST_LONG_BLOCKS, LONG_BLOCK_BYTES))
        return false;
    for (int at = 0; at < MOST_PIPES; at++) {
        if (pipe2(lane->pipes[at], O_NONBLOCK | O_CLOEXEC) < 0) {
            lane->pipes[at][0] = lane->pipes[at][1] = -1;
            break;  /* without a pipe the bytes are copied */
        }
        (void)fcntl(lane->pipes[at][0], F_SETPIPE_SZ, PIPE_BYTES);  /* may be refused: then it is smaller */
        lane->free_pipes[lane->free_pipe_count++] = at;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = STOP};
    return epoll_ctl(lane->epoll, EPOLL_CTL_ADD, lane->stop_event, &event) == 0;
}

Lane *lane_start(bool has_thread) {
    Lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return NULL;
    pthread_mutex_init(&lane->lock, NULL);
    for (int at = 0; at < MOST_PIPES; at++)
        lane->pipes[at][0] = lane->pipes[at][1] = -1;
    lane->epoll = lane->stop_event = lane->left_event = -1;
    lane->has_thread = has_thread;
    lane->buffer = malloc(READ_BYTES);
    if (!lane->buffer || (has_thread && !make_thread_parts(lane)))
        goto failed;
    if (!has_thread)
        return lane;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  /* signals are for Python's thread */
    int error = pthread_create(&lane->thread, NULL, run, lane);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error)
        return lane;
    errno = error;
failed:;
    int kept = errno;
    free_lane(lane);
    errno = kept;
    return NULL;
}

void lane_stop(Lane *lane) {
    uint64_t one = 1;
    if (lane->has_thread) {
        if (write(lane->stop_event, &one, sizeof one) < 0)
            abort();
        pthread_join(lane->thread, NULL);
    }
    free_lane(lane);
}
