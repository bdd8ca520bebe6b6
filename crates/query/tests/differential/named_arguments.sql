-- Arguments of functions by their names.
select make_interval(days => 3), make_interval(days := 2), make_interval(1, 2, secs => 1.5), make_interval(secs => 0.5, years => 1), make_interval();
select make_interval(days => 3, foo => 1);
select make_interval(days => 3, days => 1);
select make_interval(days => 3, 1);
select make_interval(1, years => 1);
select make_interval(days => 'x');
select make_interval(days => '4'), make_interval(days => null);
select jsonb_set(jsonb_in => '{"a":1}', path => '{b}', replacement => '2'), jsonb_set('{"a":1}', '{b}', replacement => '2', create_if_missing => false), jsonb_insert('[1,2]', '{0}', insert_after => true, replacement => '5');
select jsonb_set_lax('{"a":1}', '{a}', null, null_value_treatment => 'delete_key');
select make_date(year => 2020, month => 2, day => 3), make_time(hour => 1, min => 2, sec => 3.5), make_timestamp(year => 2020, month => 2, mday => 3, hour => 4, min => 5, sec => 6);
select make_timestamptz(2020, 1, 2, 3, 4, 5, timezone => 'UTC'), make_timestamptz(year => 2020, month => 1, mday => 2, hour => 3, min => 4, sec => 5) is not null;
select make_date(year => 2020, month => 2);
select parse_ident(str => 'a.b', strict => false), json_object_field(from_json => '{"a":1}', field_name => 'a');
select abs(x => 1);
select length(string => 'abc');
create table na(id int primary key, t timestamp default timestamp '2020-01-01' + make_interval(days => 1));
insert into na values (1), (2);
update na set t = t + make_interval(hours => id) where t < timestamp '2020-01-01' + make_interval(days => 2);
select * from na left join (select 1 as x) b on true where t > timestamp '2020-01-02' + make_interval(mins => id) order by id;
prepare np(int) as select make_interval(days => $1, hours => $1 + 1);
execute np(3);
select count(*) over (), make_interval(weeks => 1) from na;
select sum(id) filter (where t > make_timestamp(2020, 1, 2, 0, 0, sec => 0)) from na;

-- Calls within calls.
SELECT replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace('abc', 'a', 'b'), 'b', 'c'), 'c', 'a'), 'a', 'b'), 'b', 'c'), 'c', 'a'), 'a', 'b'), 'b', 'c'), 'c', 'a'), 'a', 'b'), 'b', 'c'), 'c', 'a'), 'a', 'b'), 'b', 'c'), 'c', 'a'), 'a', 'b'), 'b', 'c'), 'c', 'a'), 'a', 'b'), 'b', 'c'), 'c', 'a'), 'a', 'b'), 'b', 'c'), 'c', 'a');
SELECT coalesce(abs(coalesce(abs(coalesce(abs(coalesce(abs(coalesce(abs(coalesce(abs(coalesce(abs(coalesce(abs(1 + 1), 2) + 1), 3) + 1), 4) + 1), 5) + 1), 6) + 1), 7) + 1), 8) + 1), 9);
SELECT make_interval(days => abs(abs(abs(abs(abs(abs(abs(abs(abs(abs(abs(abs(-3)))))))))))), hours := 2);
SELECT make_interval(1 + 1 => 2);
SELECT make_interval((days) => 2);
