-- What a database has, in a form that does not depend on how it writes its definitions.
\pset format unaligned
\pset tuples_only on
SET DateStyle = 'ISO';
SET TimeZone = 'UTC';
SET search_path = '';
SELECT * FROM app.parent ORDER BY id;
SELECT * FROM app.child ORDER BY id;
SELECT * FROM public.plain ORDER BY a, b;
SELECT * FROM public.nothing;
SELECT * FROM app.v ORDER BY id;
SELECT * FROM public.v2 ORDER BY id;
SELECT last_value, is_called FROM app.s;
SELECT last_value, is_called FROM app.parent_id_seq;
SELECT last_value, is_called FROM app.child_id_seq;
SELECT last_value, is_called FROM app.child_n_seq;
SELECT seqincrement, seqmin, seqmax, seqstart, seqcache, seqcycle FROM pg_sequence
    WHERE seqrelid = 'app.s'::regclass;
SELECT n.nspname, c.relname, c.relkind, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       a.attidentity, a.atthasdef
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE n.nspname IN ('app', 'public') AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind <> 'S'
    ORDER BY 1, 2, 4;
SELECT conrelid::regclass::text, conname, contype, conkey, confrelid::regclass::text, confupdtype, confdeltype
    FROM pg_constraint WHERE connamespace::regnamespace::text IN ('app', 'public') ORDER BY 1, 2;
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid IN ('app.child'::regclass, 'app.parent'::regclass,
    'public.nothing'::regclass) ORDER BY 1;
SELECT c.oid::regclass::text, d.objsubid, d.description FROM pg_description d JOIN pg_class c ON c.oid = d.objoid
    WHERE c.relnamespace::regnamespace::text IN ('app', 'public') AND d.classoid = 'pg_class'::regclass ORDER BY 1, 2;
SELECT n.nspname, obj_description(n.oid, 'pg_namespace') FROM pg_namespace n WHERE nspname = 'app';
SELECT conname, obj_description(oid, 'pg_constraint') FROM pg_constraint WHERE conname = 'a check';
SELECT r.rolname, has_schema_privilege(r.oid, 'app', 'USAGE'), has_table_privilege(r.oid, 'app.parent', 'SELECT'),
       has_table_privilege(r.oid, 'app.parent', 'INSERT WITH GRANT OPTION'),
       has_column_privilege(r.oid, 'app.parent', 'price', 'UPDATE'), has_table_privilege(r.oid, 'public.v2', 'SELECT'),
       has_table_privilege(r.oid, 'app.child', 'DELETE'), has_sequence_privilege(r.oid, 'app.s', 'USAGE')
    FROM pg_roles r WHERE rolname LIKE 'dump\_%' ORDER BY 1;
