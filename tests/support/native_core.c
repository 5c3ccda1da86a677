/* The core of the lane for tests, by ctypes (native_core.py). Every input lies in memory of exactly its size, so that a
   sanitizer sees a read beyond it. */

#include "core.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Core core;
    Apis apis;
    uint32_t requests_by_api[MOST_API_KEYS];
} Tested;

/* Numbers of 64 bits alone, as native_core.py reads them. */
typedef struct {
    uint64_t request_left, answer_left, answer_unread, unit;
    uint64_t produce_requests, produce_bytes, batches, records, last_produce_ms, other_requests;
} State;

Tested *tested_new(
    const uint8_t *head, const uint8_t *same, size_t same_bytes, const uint8_t *id, int version, int acks,
    int is_transactional, int64_t until_ms, uint32_t most_streamed_bytes, uint64_t leased_bytes,
    int topics) {
    Tested *tested = calloc(1, sizeof *tested);
    Grant *grant = calloc(1, sizeof *grant + (size_t)topics * sizeof(Topic));
    if (!tested || !grant)
        abort();
    grant->same_bytes = (uint16_t)same_bytes;
    memcpy(grant->head, head, sizeof grant->head);
    memcpy(grant->same, same, same_bytes);
    memcpy(grant->id, id, sizeof grant->id);
    grant->version = (int16_t)version;
    grant->acks = (int16_t)acks;
    grant->is_transactional = (uint8_t)is_transactional;
    grant->until_ms = until_ms;
    grant->most_streamed_bytes = most_streamed_bytes;
    grant->leased_bytes = leased_bytes;
    tested->core.may_stream = 1;
    grant->topics = topics;
    tested->core.grant = grant;
    tested->core.apis = &tested->apis;
    tested->core.requests_by_api = tested->requests_by_api;
    return tested;
}

void tested_free(Tested *tested) {
    free(tested->core.grant);
    free(tested);
}

void tested_name_topic(Tested *tested, int topic, const uint8_t *name, size_t name_bytes) {
    tested->core.grant->topic[topic].name_bytes = (uint16_t)name_bytes;
    memcpy(tested->core.grant->topic[topic].name, name, name_bytes);
}

void tested_allow(Tested *tested, int topic, int partition) {
    tested->core.grant->topic[topic].allowed[partition / 64] |= UINT64_C(1) << partition % 64;
}

int tested_is_written(const Tested *tested, int topic, int partition) {
    return tested->core.grant->topic[topic].written[partition / 64] >> partition % 64 & 1;
}

void tested_pass_api(Tested *tested, int api_key, int version, int passing, int is_guarded) {
    tested->apis.passing[api_key][version] = (uint8_t)passing;
    tested->apis.is_guarded[api_key] = (uint8_t)is_guarded;
}

void tested_add_needle(Tested *tested, const uint8_t *needle, size_t bytes) {
    tested->apis.needle_bytes[tested->apis.needles] = (uint16_t)bytes;
    memcpy(tested->apis.needle[tested->apis.needles++], needle, bytes);
}

/* Have a core pass what another one does, which has to live as long. */
void tested_share_apis(Tested *tested, const Tested *other) {
    tested->core.apis = &other->apis;
}

/* Count requests by API in 128 numbers of the caller, as a thread's connections do. */
void tested_count_in(Tested *tested, uint32_t *requests_by_api) {
    tested->core.requests_by_api = requests_by_api;
}

void tested_allow_bits(Tested *tested, int topic, const uint8_t *bits) {
    memcpy(tested->core.grant->topic[topic].allowed, bits, MOST_PARTITIONS / 8);
}

void tested_put_in_flight(Tested *tested, int correlation_id, int api_key, int version, int passing) {
    Core *core = &tested->core;
    core->in_flight[core->count++] =
        (InFlight){(uint32_t)correlation_id, (uint8_t)api_key, (uint8_t)version, (uint8_t)passing};
}

void tested_may_stream(Tested *tested, int may_stream) {
    tested->core.may_stream = (uint8_t)may_stream;
}

void tested_forget_counts(Tested *tested) {
    memset(&tested->core.counts, 0, sizeof tested->core.counts);
}

/* Move the bits of the partitions written out. Returns whether there are any. */
int tested_take_written(Tested *tested, int topic, uint8_t *bits) {
    uint64_t *written = tested->core.grant->topic[topic].written, any = 0;
    for (int word = 0; word < MOST_PARTITIONS / 64; word++)
        any |= written[word];
    memcpy(bits, written, MOST_PARTITIONS / 8);
    memset(written, 0, MOST_PARTITIONS / 8);
    return any != 0;
}

/* Write correlation id, bytes, records, topic and partition of the Produce under way. */
void tested_under_way(const Tested *tested, uint64_t numbers[5]) {
    const Recognised *produce = &tested->core.under_way;
    numbers[0] = produce->correlation_id;
    numbers[1] = produce->request_bytes;
    numbers[2] = produce->records;
    numbers[3] = produce->topic[0];
    numbers[4] = produce->partition[0];
}

uint32_t tested_requests(const Tested *tested, int api_key) {
    return tested->requests_by_api[api_key];
}

/* Bytes that pass, times four, and the Next. */
uint64_t tested_look(Tested *tested, int is_request, const uint8_t *bytes, size_t count, int64_t now_ms) {
    uint8_t *exact = malloc(count);
    if (count && !exact)
        abort();
    if (count)
        memcpy(exact, bytes, count);
    Look look = is_request ? core_requests(&tested->core, exact, count, now_ms)
                           : core_answers(&tested->core, exact, count);
    free(exact);
    return (uint64_t)look.passed << 2 | look.next;
}

void tested_skip(Tested *tested, int is_request, uint64_t bytes, int64_t now_ms) {
    if (is_request)
        core_skip_request(&tested->core, bytes, now_ms);
    else
        core_skip_answer(&tested->core, bytes);
}

/* Return how many are in flight, and write the correlation id, API key, version and passing of each. */
int tested_in_flight(const Tested *tested, uint32_t (*requests)[4]) {
    const Core *core = &tested->core;
    for (int n = 0; n < core->count && n < MOST_IN_FLIGHT; n++) {
        const InFlight *request = &core->in_flight[(core->at + n) % MOST_IN_FLIGHT];
        requests[n][0] = request->correlation_id;
        requests[n][1] = request->api_key;
        requests[n][2] = request->version;
        requests[n][3] = request->passing;
    }
    return core->count;
}

/* Write the walk of the Fetch answer under way. */
void tested_walk(const Tested *tested, uint32_t numbers[4]) {
    const Walk *walk = &tested->core.walk;
    numbers[0] = walk->unit;
    numbers[1] = walk->topics;
    numbers[2] = walk->partitions;
    numbers[3] = walk->elements;
}

void tested_state(const Tested *tested, State *state) {
    const Core *core = &tested->core;
    const Counts *counts = &core->counts;
    *state = (State){
        core->request_left, core->answer_left, core->answer_unread, core->walk.unit,
        counts->produce_requests, counts->produce_bytes, counts->batches, counts->records,
        (uint64_t)counts->last_produce_ms, counts->other_requests};
}
