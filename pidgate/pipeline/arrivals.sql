-- Arrivals: the times at which users brought producer ids, admitted or not.
--
-- A stay is a series of decisions about one id of a user, each at most `remember_ms` after the one before, by
-- any gateway. A stay that begins with a known id (refresh, inherited) is no arrival: the id is older than the
-- history. Wall clocks are the only order common to several gateways.
--
-- at_ms and the client's columns are those of the stay's first decision. first_admitted_ms is null for an id
-- that was never admitted. refusals counts the recorded ones.
create temp table arrivals as
with judged as (
    select * from decision where producer_id >= 0 and decision <> 'hold'
), marked as (
    select *, coalesce(wall_time_ms - lag(wall_time_ms) over in_time > getvariable('remember_ms'), true) as begins
    from judged
    window in_time as (partition by producer_id, "user" order by wall_time_ms, gateway_id, incarnation, seq)
), numbered as (
    select *, sum(begins::int) over in_time as stay
    from marked
    window in_time as (partition by producer_id, "user" order by wall_time_ms, gateway_id, incarnation, seq)
), stays as (
    select
        "user", producer_id, stay,
        min(wall_time_ms) filter (decision = 'admit') as first_admitted_ms,
        count(*) filter (decision = 'refuse') as refusals
    from numbered
    group by all
)
select
    "user", producer_id, wall_time_ms as at_ms, first_admitted_ms, refusals, client_id, address, topic,
    transactional, transactional_id_hash, gateway_id, incarnation, connection_id
from numbered join stays using ("user", producer_id, stay)
where begins and reason not in ('refresh', 'inherited');
