-- Use of producer ids. An id_usage event covers 15 minutes at most; of a longer one, which only a wrong clock makes, the
-- last hour counts. So an event lies in at most two hours.
create temp table usage as
select * replace (greatest(first_ms, last_ms) as last_ms, greatest(first_ms, last_ms - 3_600_000) as first_ms)
from id_usage
where producer_id >= 0;
