-- Offenders, first level: one row per producer id that was refused, admitted or in use.

-- The first sight of each id. One that comes back after a long pause is the same producer here.
create temp table starts as
select
    "user", producer_id, min(at_ms) as started_ms, arg_min(coalesce(client_id, ''), at_ms) as client_id,
    arg_min(coalesce(address, ''), at_ms) as address, bool_or(first_admitted_ms is not null) as admitted,
    bool_or(transactional) as transactional, min(transactional_id_hash) as name,
    arg_min(hash(incarnation, connection_id), at_ms) as connection
from arrivals
group by all;

create temp table uses as
select
    "user", producer_id, sum(requests)::bigint as requests, min(first_ms) as first_ms, max(last_ms) as last_ms,
    arg_max(hash(incarnation, connection_id), last_ms) as last_connection
from usage
group by all;

-- Where ids were used that are older than the history.
create temp table old_places as
select "user", producer_id, min({'client_id': coalesce(client_id, ''), 'address': coalesce(address, '')}) as place
from usage anti join starts using ("user", producer_id)
group by all;

create temp table errors as
select "user", producer_id, max(wall_time_ms) as error_ms, min(code) as error_code
from produce_error
where producer_id >= 0
group by all;

-- started_ms: null for an id older than the history. requests: null if none was forwarded, or none reported. failed: the
-- last use came with an error (errors are reported with a slice, so one in mid-life comes before the last use).
create temp table producers as
select
    "user", producer_id, coalesce(s.client_id, place.client_id) as client_id,
    coalesce(s.address, place.address) as address, started_ms, coalesce(started_ms, first_ms) as seen_ms,
    greatest(coalesce(started_ms, first_ms), last_ms) as last_ms, coalesce(admitted, true) as admitted, requests,
    coalesce(error_ms >= last_ms, false) as failed, error_code, coalesce(transactional, false) as transactional, name,
    connection, coalesce(last_connection, connection) as last_connection
from starts s
full join uses using ("user", producer_id)
left join old_places using ("user", producer_id)
left join errors using ("user", producer_id);

create temp table span as select min(seen_ms) as first_ms, max(last_ms) as last_ms from producers;
