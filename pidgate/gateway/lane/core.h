/* What one connection may pass without asking Python. PURE: no sockets, no clock, no allocation.

   Python decides; the core repeats a decision. Python gives it a Grant: Produce requests with this beginning, of this
   producer id, to these topics and partitions may pass until a time, and requests of other APIs that no handler reads
   may pass too. The core looks at the bytes of both directions and answers how many of them may be forwarded. All else
   goes back to Python before any of it was sent.

   The reference is protocol/repeated_produce.py, protocol/produce_answers.py and protocol/fetch.py: the core passes
   nothing that they would not pass, and counts what they count. */

#ifndef PIDGATE_LANE_CORE_H
#define PIDGATE_LANE_CORE_H

#include <stddef.h>
#include <stdint.h>

enum {
    MOST_TOPICS = 64,          /* of a grant */
    MOST_TOPIC_BYTES = 126,    /* of a name as it is written: its length takes one byte */
    MOST_PARTITIONS = 1024,    /* a higher index goes to Python */
    MOST_BATCHES = 100,        /* of a request: repeated_produce.MOST_BATCHES */
    MOST_SAME_BYTES = 512,     /* repeated_produce.LONGEST_KEPT */
    MOST_IN_FLIGHT = 64,
    MOST_API_KEYS = 128,
    MOST_API_VERSIONS = 32,
    MOST_NEEDLES = 16,
    MOST_NEEDLE_BYTES = 256,
    MOST_KEPT_BYTES = 1280 * 1024 + 4,  /* an incomplete request that its owner keeps; a longer one goes to Python */
    MOST_KEPT_ANSWER_BYTES = 65536,  /* an incomplete Produce answer */
    MOST_SEARCHED_BYTES = 4194304,   /* of a guarded request: protocol/work.py */
    MOST_UNIT_BYTES = 4096,    /* a unit of a Fetch answer that is cut; a longer one is BROKEN */
    SIZE_PREFIX_BYTES = 4
};

/* How the answer to a request in flight passes. */
typedef enum {
    ASK = 0,            /* the request goes to Python */
    UNREAD = 1,         /* the answer passes unread */
    ENDS_IN_TAGS = 2,   /* Fetch from version 16: read up to its last tags, which may hold addresses */
    PLAIN_SUCCESS = 3   /* Produce: passes if it is a plain success */
} Passing;

/* APIs that pass. The same for all connections, and unchanged while anyone refers to it. */
typedef struct {
    uint8_t passing[MOST_API_KEYS][MOST_API_VERSIONS];  /* Passing; Produce is ASK here: see Grant */
    uint8_t is_guarded[MOST_API_KEYS];   /* may name a gateway topic: passes if no needle occurs in it */
    int needles;
    uint16_t needle_bytes[MOST_NEEDLES];
    uint8_t needle[MOST_NEEDLES][MOST_NEEDLE_BYTES];
} Apis;

typedef struct {
    uint16_t name_bytes;
    uint8_t name[MOST_TOPIC_BYTES];   /* as in a request: a name without its length, or the 16 bytes of a topic id */
    uint64_t allowed[MOST_PARTITIONS / 64];
    uint64_t written[MOST_PARTITIONS / 64];   /* since the counts were taken */
} Topic;

typedef struct {
    uint16_t same_bytes;             /* 0: no Produce passes */
    uint8_t head[4];                 /* API key and version */
    uint8_t same[MOST_SAME_BYTES];   /* from the client id to just before the topic count */
    uint8_t id[10];                  /* producer id and epoch, as written */
    int16_t version;                 /* 9 to 13 */
    int16_t acks;
    uint8_t is_transactional;
    int64_t until_ms;                /* monotonic */
    uint32_t most_streamed_bytes;    /* a larger Produce goes to Python */
    uint64_t leased_bytes;           /* of a byte rate: what may still pass */
    int topics;
    Topic topic[];
} Grant;

typedef struct {
    uint32_t correlation_id;
    uint8_t api_key;
    uint8_t version;
    uint8_t passing;
} InFlight;

/* A Produce that was recognised: what is counted when its last byte has passed. */
typedef struct {
    uint32_t correlation_id;
    uint32_t request_bytes;
    uint64_t records;
    int batches;
    uint8_t topic[MOST_BATCHES];
    uint16_t partition[MOST_BATCHES];
} Recognised;

/* The next unit of a Fetch answer (see protocol/fetch.py). Records lie between UNIT_RECORDS and UNIT_PARTITION_END. */
typedef enum {
    UNIT_NONE = 0,       /* no answer is walked */
    UNIT_HEAD,
    UNIT_TOPIC,
    UNIT_PARTITION,      /* up to the number of aborted transactions */
    UNIT_ABORTED,        /* one aborted transaction */
    UNIT_RECORDS,        /* preferred replica and the length of the records */
    UNIT_PARTITION_END,
    UNIT_TOPIC_END,
    UNIT_TAIL
} Unit;

/* Where in a Fetch answer the walk is. */
typedef struct {
    uint8_t unit;
    uint32_t topics, partitions, elements;   /* still to come */
} Walk;

typedef struct {
    uint64_t produce_requests, produce_bytes, batches, records;   /* of the granted id */
    int64_t last_produce_ms;
    uint64_t other_requests;
} Counts;

typedef struct {
    Grant *grant;
    const Apis *apis;
    Counts counts;
    uint32_t *requests_by_api;    /* MOST_API_KEYS numbers, shared by a thread's connections; every request counts in it */
    /* requests */
    uint8_t may_stream;           /* a Produce of which a part has arrived may pass from its beginning on */
    uint64_t request_left;        /* bytes of the inside of the request under way, which nobody reads */
    Recognised under_way;
    /* answers */
    InFlight in_flight[MOST_IN_FLIGHT];   /* a ring: `count` of them from `at` on */
    int at, count;
    uint64_t answer_left;         /* bytes of the answer under way that are still to come */
    uint64_t answer_unread;       /* of them, so many at once that nobody reads */
    Walk walk;                    /* of the Fetch answer under way */
} Core;

typedef enum {
    MORE = 0,       /* what did not pass is the beginning of a frame, or of a unit of a Fetch answer: come again with
                       more bytes behind it */
    TO_PYTHON = 1,  /* what did not pass begins with a frame that Python has to see */
    AT_TAGS = 2,    /* the rest of the answer under way are its last tags, and Python has to see them */
    BROKEN = 3      /* the Fetch answer under way is malformed. Its beginning has been forwarded, so that the client
                       cannot be helped: close both sides, as after a malformed answer that Python reads */
} Next;

typedef struct {
    size_t passed;   /* bytes at the beginning of the buffer to forward */
    Next next;
} Look;

/* Look at bytes of the client. Produce passes whole, or from its beginning on if it has one batch (`request_left`). */
Look core_requests(Core *core, const uint8_t *buf, size_t bytes, int64_t now_ms);
/* Look at bytes of the broker. */
Look core_answers(Core *core, const uint8_t *buf, size_t bytes);
/* Pass bytes of the inside that never came to a buffer (splice). At most request_left, or answer_unread. */
void core_skip_request(Core *core, uint64_t bytes, int64_t now_ms);
void core_skip_answer(Core *core, uint64_t bytes);

#endif
