-- LIMIT, OFFSET and FETCH behind a clause that locks rows.
create table q (id int primary key, state text);
insert into q select g, case when g % 2 = 0 then 'new' else 'done' end from generate_series(1, 10) g;
select id from q order by id for update limit 2;
select id from q order by id for update skip locked limit 2;
select id from q order by id for no key update nowait limit 2 offset 3;
select id from q order by id for share of q offset 8;
select id from q order by id for update fetch first 3 rows only;
select id from q order by id limit 2 for update;
select id from q where id in (select id from q where state = 'new' order by id for update skip locked limit 2) order by id;
update q set state = 'taken' where id = (select id from q where state = 'new' order by id for update skip locked limit 1) returning id, state;
delete from q where id = (select id from q where state = 'new' order by id for update limit 1) returning id;
select id from q order by id for update limit (select 1);
select id from q order by id for update for share limit 1;
select id from q order by id limit 1 for update limit 2;
