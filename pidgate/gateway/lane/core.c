/* See core.h. In the order of the file: repeated Produce requests, other requests, Produce answers, Fetch answers. */

#define _GNU_SOURCE  /* memmem */
#include "core.h"

#include <stdbool.h>
#include <string.h>

enum {
    PRODUCE = 0,
    FETCH = 1,
    REQUEST_HEAD_BYTES = 8,   /* API key, version, correlation id */
    ANSWER_HEAD_BYTES = 4     /* correlation id */
};

static uint16_t read_u16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static size_t least(uint64_t one, size_t other) {
    return one < other ? (size_t)one : other;
}

static void put_in_flight(Core *core, uint32_t correlation_id, uint8_t api_key, uint8_t version, uint8_t passing) {
    InFlight *request = &core->in_flight[(core->at + core->count++) % MOST_IN_FLIGHT];
    *request = (InFlight){correlation_id, api_key, version, passing};
}

/* ---- Produce requests: protocol/repeated_produce.py -------------------------------------------------------------- */

enum {
    BATCH_LENGTH_AT = 8,   /* in a batch (KIP-98) */
    MAGIC_AT = 16,
    ATTRIBUTES_AT = 22,    /* the lower of two bytes */
    ID_AT = 43,
    RECORD_COUNT_AT = 57,
    BATCH_HEADER_BYTES = 61,
    LENGTH_OVERHEAD = 12,  /* of a batch: not in its length */
    TRANSACTIONAL = 0x10,
    FIRST_TOPIC_ID = 13,
    TOPIC_ID_BYTES = 16,
    MOST_BEFORE_RECORDS_BYTES = 4 + 4 + BATCH_HEADER_BYTES,      /* partition index, length, batch header */
    LEAST_ENTRY_BYTES = 4 + 1 + BATCH_HEADER_BYTES + 1,          /* a partition with its tags */
    LEAST_TOPIC_BYTES = 1 + 1 + LEAST_ENTRY_BYTES + 1,           /* empty name, one partition, tags */
    TAGS_BYTES = 3                                               /* empty tags of partition, topic and request */
};

typedef enum {
    DIFFERS,      /* from the grant */
    INCOMPLETE,   /* as the grant so far */
    BEGINS,       /* the beginning of a request with one batch, and the rest is the inside of that batch */
    WHOLE
} Recognition;

/* Read the partition at `at`, whose tags are at `last` or before. At least MOST_BEFORE_RECORDS_BYTES have arrived.
   Returns the position of the tags; 0: it differs. */
static size_t recognise_partition(
    const Grant *grant, int topic, const uint8_t *frame, size_t at, size_t last, Recognised *produce) {
    uint32_t partition = read_u32(frame + at);
    if (partition >= MOST_PARTITIONS || !(grant->topic[topic].allowed[partition / 64] >> partition % 64 & 1))
        return 0;
    at += 4;
    uint32_t length = 0;  /* compact: seven bits a byte, and one more than the value; four bytes at most */
    for (unsigned shift = 0;; shift += 7) {
        uint32_t byte = frame[at++];
        length |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
        if (shift == 21)
            return 0;
    }
    if (length < BATCH_HEADER_BYTES + 1 || length - 1 > last - at)
        return 0;
    length--;
    const uint8_t *batch = frame + at;
    if (batch[MAGIC_AT] != 2 || read_u32(batch + BATCH_LENGTH_AT) != length - LENGTH_OVERHEAD)
        return 0;
    uint32_t records = read_u32(batch + RECORD_COUNT_AT);
    if (records > INT32_MAX || memcmp(batch + ID_AT, grant->id, sizeof grant->id) != 0)
        return 0;
    if (grant->is_transactional && !(batch[ATTRIBUTES_AT] & TRANSACTIONAL))
        return 0;
    produce->topic[produce->batches] = (uint8_t)topic;
    produce->partition[produce->batches] = (uint16_t)partition;
    produce->batches++;
    produce->records += records;
    return at + length;
}

static int find_topic(const Grant *grant, const uint8_t *name, size_t name_bytes) {
    for (int topic = 0; topic < grant->topics; topic++)
        if (grant->topic[topic].name_bytes == name_bytes && memcmp(grant->topic[topic].name, name, name_bytes) == 0)
            return topic;
    return -1;
}

/* Recognise the topic at `at`, which has LEAST_TOPIC_BYTES before `stop`. Sets `at` to its partition count. */
static Recognition recognise_topic(
    const Grant *grant, const uint8_t *frame, size_t arrived, size_t stop, size_t *at, int *topic) {
    if (*at >= arrived)
        return INCOMPLETE;
    size_t name_at = *at, name_bytes = TOPIC_ID_BYTES;
    if (grant->version < FIRST_TOPIC_ID) {
        if (frame[name_at] == 0 || frame[name_at] >= 0x80)
            return DIFFERS;
        name_bytes = frame[name_at++] - 1u;
    }
    *at = name_at + name_bytes;
    if (*at >= stop)
        return DIFFERS;
    if (*at >= arrived)
        return INCOMPLETE;
    *topic = find_topic(grant, frame + name_at, name_bytes);
    return *topic < 0 ? DIFFERS : WHOLE;
}

/* Compare a Produce request of `size` bytes, of which `arrived` are here, with the grant. */
static Recognition recognise(
    const Grant *grant, const uint8_t *frame, size_t arrived, size_t size, Recognised *produce) {
    size_t at = REQUEST_HEAD_BYTES + (size_t)grant->same_bytes, stop = size - 1;  /* stop: the tags of the request */
    if (memcmp(frame, grant->head, sizeof grant->head) != 0 || size < at + 1 + LEAST_TOPIC_BYTES + 1 ||
        memcmp(frame + REQUEST_HEAD_BYTES, grant->same, least(arrived - REQUEST_HEAD_BYTES, grant->same_bytes)) != 0)
        return DIFFERS;
    if (at >= arrived)
        return INCOMPLETE;
    int topics = frame[at++] - 1;  /* array counts of one byte, and none of them empty */
    if (topics < 1 || topics >= 0x7f)
        return DIFFERS;
    for (int topic_at = 0; topic_at < topics; topic_at++) {
        if (stop - at < LEAST_TOPIC_BYTES)
            return DIFFERS;
        int topic = 0;
        Recognition found = recognise_topic(grant, frame, arrived, stop, &at, &topic);
        if (found != WHOLE)
            return found;
        int partitions = frame[at++] - 1;
        if (partitions < 1 || partitions >= 0x7f || produce->batches + partitions > MOST_BATCHES)
            return DIFFERS;
        for (int partition_at = 0; partition_at < partitions; partition_at++) {
            if (stop - at < LEAST_ENTRY_BYTES + 1)  /* the tags of the topic */
                return DIFFERS;
            if (arrived - at < MOST_BEFORE_RECORDS_BYTES)
                return INCOMPLETE;
            at = recognise_partition(grant, topic, frame, at, stop - 2, produce);
            if (!at)
                return DIFFERS;
            if (arrived < size && topics == 1 && partitions == 1)
                return at + TAGS_BYTES == size ? BEGINS : DIFFERS;
            if (at >= arrived)
                return INCOMPLETE;
            if (frame[at++])
                return DIFFERS;
        }
        if (at >= stop)
            return DIFFERS;
        if (at >= arrived)
            return INCOMPLETE;
        if (frame[at++])
            return DIFFERS;
    }
    if (at != stop)
        return DIFFERS;
    if (at >= arrived)
        return INCOMPLETE;
    return frame[at] ? DIFFERS : WHOLE;
}

/* Put a Produce under way that passes from here on. Returns MORE with nothing under way if more of it is needed. */
static Next begin_produce(Core *core, const uint8_t *frame, size_t arrived, size_t size, int64_t now_ms) {
    Grant *grant = core->grant;
    Recognised *produce = &core->under_way;
    if (!grant || !grant->same_bytes || now_ms >= grant->until_ms || size > grant->most_streamed_bytes || size > grant->leased_bytes)
        return TO_PYTHON;
    produce->correlation_id = read_u32(frame + 4);
    produce->request_bytes = (uint32_t)size;
    produce->records = 0;
    produce->batches = 0;
    switch (recognise(grant, frame, arrived, size, produce)) {
    case BEGINS:
        if (!core->may_stream)
            return TO_PYTHON;
        /* fall through */
    case WHOLE:
        core->request_left = SIZE_PREFIX_BYTES + size;
        grant->leased_bytes -= size;
        return MORE;
    case INCOMPLETE:
        /* Before the first batch header it may still be a request that passes from its beginning on. */
        return produce->batches == 0 || SIZE_PREFIX_BYTES + size <= MOST_KEPT_BYTES ? MORE : TO_PYTHON;
    case DIFFERS:
        break;
    }
    return TO_PYTHON;
}

/* Count the Produce under way, whose last byte has passed. */
static void finish_produce(Core *core, int64_t now_ms) {
    const Recognised *produce = &core->under_way;
    Grant *grant = core->grant;
    core->counts.produce_requests++;
    core->counts.produce_bytes += produce->request_bytes;
    core->counts.batches += (uint64_t)produce->batches;
    core->counts.records += produce->records;
    core->counts.last_produce_ms = now_ms;
    core->requests_by_api[PRODUCE]++;
    for (int at = 0; at < produce->batches; at++) {
        uint16_t partition = produce->partition[at];
        grant->topic[produce->topic[at]].written[partition / 64] |= UINT64_C(1) << partition % 64;
    }
    if (grant->acks)
        put_in_flight(core, produce->correlation_id, PRODUCE, (uint8_t)grant->version, PLAIN_SUCCESS);
}

void core_skip_request(Core *core, uint64_t bytes, int64_t now_ms) {
    core->request_left -= bytes;
    if (core->request_left == 0)
        finish_produce(core, now_ms);
}

/* ---- other requests ---------------------------------------------------------------------------------------------- */

static bool may_name_gateway_topic(const Apis *apis, const uint8_t *frame, size_t size) {
    if (size > MOST_SEARCHED_BYTES)
        return true;
    for (int at = 0; at < apis->needles; at++)
        if (memmem(frame, size, apis->needle[at], apis->needle_bytes[at]))
            return true;
    return false;
}

/* Pass a whole request of another API. Adds to `passed`. Returns MORE with nothing passed if more of it is needed. */
static Next pass_other(Core *core, const uint8_t *frame, size_t arrived, size_t size, size_t *passed) {
    const Apis *apis = core->apis;
    uint16_t api_key = read_u16(frame), version = read_u16(frame + 2);
    if (api_key >= MOST_API_KEYS || version >= MOST_API_VERSIONS || apis->passing[api_key][version] == ASK)
        return TO_PYTHON;
    if (arrived < size)
        return SIZE_PREFIX_BYTES + size <= MOST_KEPT_BYTES ? MORE : TO_PYTHON;
    if (apis->is_guarded[api_key] && may_name_gateway_topic(apis, frame, size))
        return TO_PYTHON;
    core->counts.other_requests++;
    core->requests_by_api[api_key]++;
    put_in_flight(core, read_u32(frame + 4), (uint8_t)api_key, (uint8_t)version, apis->passing[api_key][version]);
    *passed += SIZE_PREFIX_BYTES + size;
    return MORE;
}

Look core_requests(Core *core, const uint8_t *buf, size_t bytes, int64_t now_ms) {
    Look look = {0, MORE};
    for (;;) {
        size_t before = look.passed, left = bytes - before;
        if (core->request_left) {
            size_t inside = least(core->request_left, left);
            if (!inside)
                return look;
            core_skip_request(core, inside, now_ms);
            look.passed += inside;
            continue;
        }
        if (left < SIZE_PREFIX_BYTES)
            return look;
        const uint8_t *frame = buf + before + SIZE_PREFIX_BYTES;
        size_t size = read_u32(buf + before), arrived = least(size, left - SIZE_PREFIX_BYTES);
        if (size < REQUEST_HEAD_BYTES || size > INT32_MAX)
            look.next = TO_PYTHON;
        else if (arrived < REQUEST_HEAD_BYTES)
            return look;
        else if (core->count == MOST_IN_FLIGHT)
            look.next = TO_PYTHON;
        else if (read_u16(frame) == PRODUCE)
            look.next = begin_produce(core, frame, arrived, size, now_ms);
        else
            look.next = pass_other(core, frame, arrived, size, &look.passed);
        if (look.next != MORE || (look.passed == before && !core->request_left))
            return look;
    }
}

/* ---- Produce answers: protocol/produce_answers.py ---------------------------------------------------------------- */

enum {
    FIRST_FLEXIBLE = 9,
    LAST_PRODUCE = 13,
    PLAIN_ENTRY_BYTES = 33,   /* a partition of versions 9 to 13 without record errors, message and tags */
    LEAST_PLAIN_BYTES = 4 + 1 + 1 + 1 + 1 + PLAIN_ENTRY_BYTES + 1 + 4 + 1
};

/* The end of an answer whose last partition has no error, without throttle and tags. */
static const uint8_t QUIET_END[9] = {1};

/* Whether all partitions succeeded, without throttle, endpoints and tags. `answer` begins with the correlation id. */
static bool is_plain_success(const uint8_t *answer, size_t size, uint8_t version) {
    if (version < FIRST_FLEXIBLE || version > LAST_PRODUCE || size < LEAST_PLAIN_BYTES ||
        memcmp(answer + size - sizeof QUIET_END, QUIET_END, sizeof QUIET_END) != 0)
        return false;
    int topics = answer[5] - 1;
    if (answer[4] || topics < 1 || topics >= 0x7f)
        return false;
    size_t at = 6;
    for (int topic = 0; topic < topics; topic++) {
        if (version >= FIRST_TOPIC_ID)
            at += TOPIC_ID_BYTES;
        else if (at < size && answer[at] < 0x80)
            at += answer[at];
        else
            return false;
        if (at >= size)
            return false;
        int partitions = answer[at++] - 1;
        if (partitions < 1 || partitions >= 0x7f || at + (size_t)partitions * PLAIN_ENTRY_BYTES >= size)
            return false;
        for (int partition = 0; partition < partitions; partition++, at += PLAIN_ENTRY_BYTES)
            if (answer[at + 4] || answer[at + 5])  /* the error code */
                return false;
        if (answer[at++])
            return false;
    }
    return at + 5 == size;  /* throttle and tags */
}

/* ---- Fetch answers: protocol/fetch.py ---------------------------------------------------------------------------- */

enum {
    FIRST_WALKED = 16,
    LAST_WALKED = 18,
    MOST_TAGS = 32,
    LEAST_FETCHED_TOPIC_BYTES = 18,
    LEAST_FETCHED_PARTITION_BYTES = 22,
    LEAST_ABORTED_BYTES = 17,
    LEAST_BEHIND_RECORDS_BYTES = 3   /* tags of partition, topic and answer */
};

typedef enum {
    READ = 0,
    CUT,    /* the bytes end within */
    BAD     /* malformed, with any bytes behind */
} Reading;

/* After a read that fails, every further one does nothing: `reading` tells it at the end. */
typedef struct {
    const uint8_t *at, *end;
    uint64_t behind;   /* bytes of the answer behind `end` */
    Reading reading;
} Cursor;

static void skip(Cursor *cursor, uint32_t bytes) {
    if (cursor->reading)
        return;
    if (bytes > (size_t)(cursor->end - cursor->at))
        cursor->reading = CUT;
    else
        cursor->at += bytes;
}

/* As Kafka's ByteUtils.readUnsignedVarint: any encoding of up to five bytes, bits above 32 dropped. */
static uint32_t read_uvarint(Cursor *cursor) {
    uint32_t value = 0;
    for (unsigned shift = 0; shift < 35 && !cursor->reading; shift += 7) {
        if (cursor->at == cursor->end) {
            cursor->reading = CUT;
            return 0;
        }
        uint32_t byte = *cursor->at++;
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    if (!cursor->reading)
        cursor->reading = BAD;
    return 0;
}

static void skip_tags(Cursor *cursor) {
    uint32_t tags = read_uvarint(cursor);
    if (tags > MOST_TAGS)
        cursor->reading = BAD;
    for (; tags && !cursor->reading; tags--) {
        read_uvarint(cursor);
        skip(cursor, read_uvarint(cursor));
    }
}

/* Read a compact length; null counts as 0. BAD if so many elements of at least `least_bytes`, and `behind_them` bytes,
   are more than what is left of the answer. */
static uint32_t read_length(Cursor *cursor, uint32_t least_bytes, uint32_t behind_them) {
    uint32_t length = read_uvarint(cursor);
    if (length)
        length--;
    uint64_t left = (uint64_t)(cursor->end - cursor->at) + cursor->behind;
    if (!cursor->reading && (uint64_t)length * least_bytes + behind_them > left)
        cursor->reading = BAD;
    return length;
}

/* Read a unit. Returns the number of its topics, partitions or aborted transactions, or of the bytes of the records. */
static uint32_t read_unit(uint8_t unit, Cursor *cursor) {
    switch (unit) {
    case UNIT_HEAD:
        skip(cursor, 4);  /* correlation id */
        skip_tags(cursor);
        skip(cursor, 4 + 2 + 4);  /* throttle, error code, session id */
        return read_length(cursor, LEAST_FETCHED_TOPIC_BYTES, 0);
    case UNIT_TOPIC:
        skip(cursor, TOPIC_ID_BYTES);
        return read_length(cursor, LEAST_FETCHED_PARTITION_BYTES, 0);
    case UNIT_PARTITION:
        skip(cursor, 4 + 2 + 3 * 8);  /* index, error code, three offsets */
        return read_length(cursor, LEAST_ABORTED_BYTES, 0);
    case UNIT_ABORTED:
        skip(cursor, 8 + 8);
        break;
    case UNIT_RECORDS:
        skip(cursor, 4);  /* preferred replica */
        return read_length(cursor, 1, LEAST_BEHIND_RECORDS_BYTES);
    default:
        break;
    }
    skip_tags(cursor);
    return 0;
}

static uint8_t topic_or_tail(const Walk *walk) {
    return walk->topics ? UNIT_TOPIC : UNIT_TAIL;
}

static uint8_t partition_or_end(const Walk *walk) {
    return walk->partitions ? UNIT_PARTITION : UNIT_TOPIC_END;
}

/* Go on to the unit behind the one that was read, with the length that it told. */
static void next_unit(Core *core, uint32_t length) {
    Walk *walk = &core->walk;
    switch (walk->unit) {
    case UNIT_HEAD:
        walk->topics = length;
        walk->unit = topic_or_tail(walk);
        break;
    case UNIT_TOPIC:
        walk->topics--;
        walk->partitions = length;
        walk->unit = partition_or_end(walk);
        break;
    case UNIT_PARTITION:
        walk->partitions--;
        walk->elements = length;
        walk->unit = length ? UNIT_ABORTED : UNIT_RECORDS;
        break;
    case UNIT_ABORTED:
        walk->elements--;
        walk->unit = walk->elements ? UNIT_ABORTED : UNIT_RECORDS;
        break;
    case UNIT_RECORDS:
        core->answer_unread = length;
        walk->unit = UNIT_PARTITION_END;
        break;
    case UNIT_PARTITION_END:
        walk->unit = partition_or_end(walk);
        break;
    default:
        walk->unit = topic_or_tail(walk);
        break;
    }
}

/* Read one unit. All `bytes` belong to the answer under way. CUT: more of the unit is needed. */
static Reading walk_unit(Core *core, const uint8_t *buf, size_t bytes, size_t *walked) {
    Cursor cursor = {buf, buf + bytes, core->answer_left - bytes, READ};
    uint32_t length = read_unit(core->walk.unit, &cursor);
    if (cursor.reading == CUT && (cursor.behind == 0 || bytes >= MOST_UNIT_BYTES))
        return BAD;
    if (cursor.reading == READ) {
        next_unit(core, length);
        *walked = (size_t)(cursor.at - buf);
    }
    return cursor.reading;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void finish_answer(Core *core) {
    core->at = (core->at + 1) % MOST_IN_FLIGHT;
    core->count--;
    core->walk.unit = UNIT_NONE;
}

void core_skip_answer(Core *core, uint64_t bytes) {
    core->answer_unread -= bytes;
    core->answer_left -= bytes;
    if (core->answer_left == 0)
        finish_answer(core);
}

/* Pass bytes of the answer under way, until it ends or they do. Adds to `passed`. */
static Next pass_answer(Core *core, const uint8_t *buf, size_t bytes, size_t *passed) {
    for (size_t at = 0;;) {
        size_t unread = least(core->answer_unread, bytes - at);
        if (unread) {
            core_skip_answer(core, unread);
            at += unread;
            *passed += unread;
        }
        if (core->answer_unread || core->answer_left == 0)
            return MORE;
        if (core->walk.unit == UNIT_TAIL && (core->answer_left > 1 || (at < bytes && buf[at])))
            return AT_TAGS;
        if (at == bytes)
            return MORE;
        if (core->walk.unit == UNIT_TAIL) {
            core->answer_unread = 1;  /* no tags */
            continue;
        }
        size_t walked = 0;
        Reading reading = walk_unit(core, buf + at, least(core->answer_left, bytes - at), &walked);
        if (reading == CUT)
            return MORE;
        at += walked;
        *passed += walked;
        core->answer_left -= walked;
        if (reading == BAD || core->answer_left == 0)
            return BROKEN;
    }
}

/* Begin the answer at `buf`, which has this size, to the next request in flight. Returns MORE with nothing passed and
   nothing under way if more of it is needed. */
static Next begin_answer(Core *core, const uint8_t *buf, size_t bytes, size_t size, size_t *passed) {
    const InFlight *request = &core->in_flight[core->at];
    switch (request->passing) {
    case UNREAD:
        core->answer_left = core->answer_unread = SIZE_PREFIX_BYTES + size;
        return MORE;
    case ENDS_IN_TAGS:
        if (request->api_key != FETCH || request->version < FIRST_WALKED || request->version > LAST_WALKED)
            return TO_PYTHON;
        core->walk.unit = UNIT_HEAD;
        core->answer_left = size;
        *passed += SIZE_PREFIX_BYTES;
        return MORE;
    case PLAIN_SUCCESS:
        if (bytes < SIZE_PREFIX_BYTES + size)
            return SIZE_PREFIX_BYTES + size <= MOST_KEPT_ANSWER_BYTES ? MORE : TO_PYTHON;
        if (!is_plain_success(buf + SIZE_PREFIX_BYTES, size, request->version))
            return TO_PYTHON;
        *passed += SIZE_PREFIX_BYTES + size;
        finish_answer(core);
        return MORE;
    default:
        return TO_PYTHON;
    }
}

Look core_answers(Core *core, const uint8_t *buf, size_t bytes) {
    Look look = {0, MORE};
    for (;;) {
        size_t before = look.passed, left = bytes - before;
        if (core->answer_left) {
            look.next = pass_answer(core, buf + before, left, &look.passed);
            if (look.next != MORE || core->answer_left)
                return look;
            continue;
        }
        if (left < SIZE_PREFIX_BYTES + ANSWER_HEAD_BYTES)
            return look;
        size_t size = read_u32(buf + before);
        uint32_t correlation_id = read_u32(buf + before + SIZE_PREFIX_BYTES);
        if (size < ANSWER_HEAD_BYTES || size > INT32_MAX || core->count == 0 ||
            core->in_flight[core->at].correlation_id != correlation_id)
            look.next = TO_PYTHON;
        else
            look.next = begin_answer(core, buf + before, left, size, &look.passed);
        if (look.next != MORE || (look.passed == before && !core->answer_left))
            return look;
    }
}
