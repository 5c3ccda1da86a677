-- Offenders, second level: the sums behind the features of each application's calm producers. Calm are those of sources
-- without a pattern.

-- A producer that sends seldom counts as present until the last close at its place before the next start there.
create temp table calm as
with quiet as (
    select * from known anti join patterns using (source)
), starts as (
    select "user", client_id, address, seen_ms, max(producer_id) as producer_id from quiet group by all
), closed as (
    select s."user", s.producer_id, max(wall_time_ms) as place_closed_ms
    from connection c
    asof join starts s
        on c."user" = s."user" and coalesce(c.client_id, '') = s.client_id and coalesce(c.address, '') = s.address
            and c.wall_time_ms >= s.seen_ms
    group by all
)
select
    "user", app, client_id, address, started_ms, admitted, seen_ms, greatest(gone_ms, place_closed_ms) as last_ms,
    coalesce(started_ms > getvariable('head_until_ms'), false) as late,
    greatest(gone_ms, place_closed_ms) < getvariable('open_from_ms') as over,
    greatest(gone_ms, place_closed_ms) - seen_ms as life_ms, life_ms >= getvariable('long_ms') as is_long
from quiet left join closed using ("user", producer_id);

create temp table lives as
select
    "user", app, count(*) as ids, count(*) filter (started_ms is not null and admitted) as new_ids, count(*) filter (late) as late_ids,
    count(*) filter (late and is_long) as late_long, count(*) filter (over) as over_ids,
    sum(round(1e6 * ln(greatest(life_ms, 1)))::bigint) filter (over)::bigint as log_over_life,
    count(*) filter (is_long) as long_ids, coalesce(sum(life_ms) filter (is_long), 0)::bigint as long_ms,
    sum(life_ms)::bigint as lives_ms, min(seen_ms) as first_ms, max(last_ms) as end_ms,
    sum(round(1e6 * cos(started_ms % 86_400_000 * 2 * pi() / 86_400_000))::bigint) filter (late)::bigint as starts_across,
    sum(round(1e6 * sin(started_ms % 86_400_000 * 2 * pi() / 86_400_000))::bigint) filter (late)::bigint as starts_up,
    sum(round(1e6 * cos(last_ms % 86_400_000 * 2 * pi() / 86_400_000))::bigint) filter (over)::bigint as ends_across,
    sum(round(1e6 * sin(last_ms % 86_400_000 * 2 * pi() / 86_400_000))::bigint) filter (over)::bigint as ends_up,
    if(min(client_id) = max(client_id), min(client_id), null) as only_client_id,
    if(min(address) = max(address), min(address), null) as address
from calm
group by all;

-- The address with the most client ids, and the client id with the most addresses.
create temp table crowds as
with there as (
    select
        "user", app, client_id, address, sum(life_ms) as lives_ms, min(seen_ms) as first_ms, max(last_ms) as end_ms
    from calm
    group by all
), met as (
    select
        "user", app, 'address' as kind, address as key, count(*) as met, sum(lives_ms)::bigint as lives_ms,
        greatest(max(end_ms) - min(first_ms), 1) as length_ms
    from there
    group by all
    union all
    select
        "user", app, 'client_id', client_id, count(*), sum(lives_ms)::bigint,
        greatest(max(end_ms) - min(first_ms), 1)
    from there
    group by all
)
select * from met
qualify row_number() over (partition by "user", app, kind order by met desc, lives_ms / length_ms desc, key desc) = 1;

-- Sessions: groups of starts that follow each other. A session replaces instances if as many end as start.
create temp table sessions as
with moments as (
    select "user", app, seen_ms as at_ms, 1 as starts, 0 as ends from calm
    union all
    select "user", app, last_ms, 0, 1 from calm where over
), minutes as (
    select
        "user", app, at_ms - at_ms % getvariable('minute_ms') as ms, sum(starts) as starts, sum(ends) as ends
    from moments
    group by all
), timed as (
    select
        *, last_value(if(starts > 0, ms, null) ignore nulls) over (in_time rows between unbounded preceding and 1 preceding)
            as last_start_ms,
        if(starts > 0, ms, last_start_ms) as start_ms, sum(starts - ends) over in_time as alive,
        alive - (starts - ends) as alive_before,
        starts > 0 and coalesce(ms - last_start_ms > getvariable('session_gap_ms'), true) as begins
    from minutes
    window in_time as (partition by "user", app order by ms)
), numbered as (
    select *, sum(begins::int) over (partition by "user", app order by ms) as session from timed
)
select
    "user", app, min(ms) as session_ms, sum(starts) as starts,
    coalesce(sum(ends) filter (2 * (ms - start_ms) <= getvariable('session_gap_ms')), 0) as ends,
    arg_min(alive_before, ms) as before, max(alive) as most, min(alive) as least
from numbered
group by "user", app, session
having min(ms) > getvariable('head_until_ms');

create temp table apps as
with judged as (
    select
        *, starts >= getvariable('fewest_instances')
            and least(ends, before) >= getvariable('replaced') * starts
            and starts >= getvariable('replaced') * before as is_replacement,
        ends < getvariable('replaced') * starts as is_growth
    from sessions
), summed as (
    select
        "user", app, count(*) as sessions, count(*) filter (is_replacement) as replacements,
        coalesce(sum(starts) filter (is_replacement), 0)::bigint as replaced_ids,
        max(starts) filter (is_replacement)::bigint as instances, count(*) filter (is_growth) as growths,
        max(most)::bigint as alive_most, min(least)::bigint as alive_least
    from judged
    group by all
), at_address as (
    select
        "user", app, key as crowd_address, met as met_at_address, lives_ms as lives_at_address,
        length_ms as length_at_address
    from crowds
    where kind = 'address'
), of_client as (
    select
        "user", app, key as crowd_client_id, met as met_at_client_id, lives_ms as lives_at_client_id,
        length_ms as length_at_client_id
    from crowds
    where kind = 'client_id'
)
select
    * replace (coalesce(late_long, 0) / nullif(late_ids, 0) as late_long), long_ms / greatest(1, lives_ms) as long_time,
    lives_ms / greatest(1, end_ms - first_ms) as alive, lives_at_address / length_at_address as alive_at_address,
    lives_at_client_id / length_at_client_id as alive_at_client_id
from lives
left join summed using ("user", app)
left join at_address using ("user", app)
left join of_client using ("user", app);

-- Each place of a harmful source. A place of its own that fits no pattern is harmful where others of its application at
-- its address are: it may have more ids than they because they were refused.
create temp table harmful_places as
with harmful as (
    select places.*, pattern from places join patterns using (source) where is_harmful
), of_app as (
    select "user", app, address, min(pattern) as pattern
    from harmful
    where not alone and app <> '*'
    group by all
)
select "user", client_id, address, pattern from harmful
union all
select "user", client_id, address, of_app.pattern
from places
join of_app using ("user", app, address)
anti join patterns on places.source = patterns.source
where alone and source in (select source from sources);
