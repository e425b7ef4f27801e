-- The materialized view `pages`: every run recomputes it from all of `page_views`.
CREATE MATERIALIZED VIEW pages AS
SELECT page, count(*) AS views, count(DISTINCT user_id) AS users, round(avg(dwell_s), 1) AS dwell_s
FROM page_views
GROUP BY page;
