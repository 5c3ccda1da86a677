-- Offenders, second level: places, sources, and the sums behind each source's features (findings/features.py).

-- A place is a client id at an address. With enough starts it is a source of its own. Otherwise it belongs to its
-- application at that address, or to its application. An application is a family of client ids; the small families of a
-- user are one together, named '*'.
create temp table places as
with counted as (
    select "user", client_id, address, count(*) as ids, count(started_ms) as starts from producers group by all
), sized as (
    select
        *, sum(ids) over (partition by "user", family) >= getvariable('own_story') as is_large,
        starts >= getvariable('own_story') as alone
    from counted join families using (client_id)
), named as (
    select *, if(is_large, family, '*') as app, if(alone, 0, starts) as other_starts from sized
), grouped as (
    select
        *, sum(other_starts) over (partition by "user", app, is_large, address) >= getvariable('own_story')
            as at_one_address
    from named
), sourced as (
    select
        "user", client_id, address, app, alone, is_large, if(alone, client_id, app) as client,
        if(alone or at_one_address, address, null) as shared_address
    from grouped
)
select *, dense_rank() over (order by "user", alone, is_large, client, shared_address) as source from sourced;

-- A process ends when its connection does: closed_ms, if the client closed or cut it. What a gateway or a broker closes
-- (idle, drain) says nothing of the client, nor does a connection with several ids.
create temp table known as
with closes as (
    select hash(incarnation, connection_id) as last_connection, max(wall_time_ms) as closed_ms, bool_or(close_reason = 'reset') as is_cut
    from connection
    group by all
), alone as (
    select last_connection, min(producer_id) as producer_id from producers group by all having count(*) = 1
)
select p.*, source, app, closed_ms, is_cut, greatest(last_ms, closed_ms) as gone_ms
from producers p
join places using ("user", client_id, address)
left join (alone join closes using (last_connection)) using (last_connection, producer_id);

-- Logarithms, sines and cosines are summed as whole millionths, so that the order of rows cannot matter.
create temp table sources as
with started as (
    select *, last_ms - started_ms as life_ms, requests is not null as was_used
    from known
    where started_ms is not null
), summed as (
    select
        source, count(*) as ids, count(*) filter (admitted) as new_ids, count(*) filter (not admitted) as refused_ids,
        count(*) filter (was_used) as used, count(*) filter (requests <= 1) as one_request, count(*) filter (requests <= 2) as two_requests,
        sum(requests)::bigint as requests,
        count(*) filter (was_used and life_ms < getvariable('short_life_ms')) as short_lived,
        sum(round(1e6 * ln(greatest(life_ms, 1)))::bigint) filter (was_used)::bigint as log_life,
        count(*) filter (was_used and failed) as failed, min(error_code) as error_code,
        count(*) filter (transactional) as transactional, count(distinct name) as names,
        count(distinct connection) as connections, min(started_ms) as first_ms, max(last_ms) as end_ms,
        sum(life_ms)::bigint as lives_ms, count(closed_ms) as closed, count(*) filter (is_cut) as cut
    from started
    group by all
), named as (
    select source, min("user") as "user", min(client) as client, min(shared_address) as address from places group by all
)
select
    * replace (
        one_request / nullif(used, 0) as one_request, two_requests / nullif(used, 0) as two_requests,
        coalesce(requests, 0) / nullif(used, 0) as requests, short_lived / nullif(used, 0) as short_lived,
        failed / nullif(used, 0) as failed, transactional / ids as transactional, connections / ids as connections
    ),
    cut / nullif(closed, 0) as resets, greatest(1, end_ms - first_ms) as active_ms, lives_ms / active_ms as alive
from summed join named using (source);

-- The beat of each source's starts, as findings/cadence.py defines it. Starts are joined by second, then to bursts: those
-- no further apart than each of the gaps.
create temp table ticks as
with seconds as (
    select source, min(started_ms) as at_ms, max(gone_ms) as end_ms, count(*) as ids
    from known
    where started_ms is not null
    group by source, started_ms // 1_000
)
select *, at_ms - lag(at_ms) over (partition by source order by at_ms) as quiet_ms from seconds;

create temp table bursts as
with counted as (
    select
        source, at_ms, end_ms, ids, gap_ms,
        sum(coalesce(quiet_ms > gap_ms, true)::int) over (partition by source, gap_ms order by at_ms)::int as number
    from ticks cross join gaps
)
select source, gap_ms, number, min(at_ms) as at_ms, max(end_ms) as end_ms, sum(ids)::bigint as ids
from counted
group by all;

-- A start follows the earliest end that no other start has followed: so several processes are told apart. `follows`: that
-- end's place among all ends. `spare`: ends before a start, less the starts up to it. Where it is lower than ever, there
-- is no such end.
create temp table steps as
with ends as (
    select
        source, gap_ms, end_ms, number as before,
        row_number() over (partition by source, gap_ms order by end_ms, number) as follows
    from bursts
), moments as (
    select *, at_ms as ms, true as is_start from bursts
    union all
    select *, end_ms, false from bursts
), counted as (
    -- rank() - 1 moments are earlier; number - 1 of them are starts.
    select *, rank() over (partition by source, gap_ms order by ms) - 2 * number as spare from moments
    qualify is_start
), followed as (
    select
        *, least(0, min(spare) over (in_time rows between unbounded preceding and 1 preceding)) as least_spare,
        if(spare < least_spare, null, number + least_spare) as follows,
        lag(at_ms) over in_time as before_ms, at_ms - before_ms as interval_ms,
        before_ms - lag(at_ms, 2) over in_time as last_interval_ms, lag(end_ms) over in_time - at_ms as overlap_ms
    from counted
    window in_time as (partition by source, gap_ms order by number)
), paused as (
    select f.*, before, at_ms - e.end_ms as pause_ms
    from followed f left join ends e using (source, gap_ms, follows)
)
select p.*, last.pause_ms as last_pause_ms
from paused p
left join paused last on last.source = p.source and last.gap_ms = p.gap_ms and last.number = p.before;

create temp table beats as
with stepped as (
    select
        *, interval_ms / last_interval_ms as step,
        pause_ms / last_pause_ms as pause_step
    from steps
)
select
    source, gap_ms, count(*) as bursts, sum(ids)::bigint as burst_ids, count(interval_ms) as intervals,
    sum(round(1e6 * ln(interval_ms))::bigint)::bigint as log_interval,
    count(pause_ms) as pauses, sum(round(1e6 * ln(pause_ms))::bigint)::bigint as log_pause,
    count(*) filter (overlap_ms > getvariable('overlap_ms')) as overlaps, count(step) as steps,
    sum(round(1e6 * ln(greatest(end_ms - at_ms, 1)))::bigint)::bigint as log_run,
    count(*) filter (step between getvariable('even_low') and getvariable('even_high')) as even,
    count(*) filter (step between getvariable('grown_low') and getvariable('grown_high')) as grown,
    count(pause_step) as pause_steps,
    count(*) filter (pause_step between getvariable('even_low') and getvariable('even_high')) as pause_even,
    count(*) filter (pause_step between getvariable('grown_low') and getvariable('grown_high')) as pause_grown
from stepped
group by all;

create temp table clocks as
with turned as (
    select
        source, gap_ms, period_ms, (at_ms % period_ms) * (2 * pi() / period_ms) as turn,
        coalesce(at_ms // period_ms <> before_ms // period_ms, true) as is_new_period
    from steps cross join periods
)
select
    source, gap_ms, period_ms, count(*) filter (is_new_period) as periods,
    sum(round(1e6 * cos(turn))::bigint)::bigint as across, sum(round(1e6 * sin(turn))::bigint)::bigint as up
from turned
group by all
having periods >= getvariable('fewest_periods');
