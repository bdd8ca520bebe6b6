-- Names of objects in what takes a value of any type and shows it.
CREATE TABLE w (id serial PRIMARY KEY, b bigserial, "Odd" integer);
SELECT 'x ' || 'pg_class'::regclass, 'pg_class'::regclass || ' y';
SELECT 'x ' || 'int4'::regtype, 'now'::regproc || '', 'pg_catalog'::regnamespace || '', 'w'::regclass || '';
SELECT concat('pg_class'::regclass, ' ', 'int8'::regtype), concat_ws('-', 'pg_class'::regclass, NULL::regclass, 3);
SELECT format('%s %I %L', 'pg_class'::regclass, 'pg_class'::regclass, 'pg_class'::regclass);
SELECT json_build_array('pg_class'::regclass, 'text'::regtype), jsonb_build_object('a', 'pg_class'::regclass);
SELECT num_nulls('pg_class'::regclass, NULL::regclass), pg_typeof('pg_class'::regclass);
SELECT 'x ' || oid::regclass FROM pg_class WHERE relname = 'pg_class';
SELECT oid::regclass || ' y' FROM pg_class WHERE relname = 'pg_class' ORDER BY 1;
SELECT concat(oid::regclass, '!'), format('%s', oid::regclass) FROM pg_class WHERE relname = 'pg_class';
SELECT a.attname, pg_get_expr(ad.adbin, ad.adrelid) = 'nextval(''' || (pg_get_serial_sequence(a.attrelid::regclass::text, a.attname))::regclass || '''::regclass)' FROM pg_attribute a JOIN pg_attrdef ad ON ad.adrelid = a.attrelid AND ad.adnum = a.attnum WHERE a.attrelid = 'w'::regclass ORDER BY 1;
SELECT 'x' || 5::oid, concat(5::oid), 'x' || NULL::regclass;
