-- Recommend, second level: when each user was seen, with which client, and the topic that most decisions name.
-- days: with data. seen_weekly: they are whole weeks apart.
create temp table stories as
with named as (
    select "user", client, topic, sum(decisions) as decisions from seen group by grouping sets (("user", client), ("user", topic))
), most as (
    select
        "user", max({'n': decisions, 'name': client}) filter (client is not null).name as client,
        max({'n': decisions, 'name': topic}) filter (topic is not null).name as top_topic
    from named
    group by all
), met as (
    select
        "user", min(first_ms) as first_ms, max(last_ms) as last_ms, sum(unnamed_refusals)::bigint as unnamed_refusals,
        count(distinct day) as days, count(distinct day % 7) = 1 and max(day) > min(day) as seen_weekly
    from seen
    group by all
)
select * from met join most using ("user");
