-- What frameworks send.
CREATE TABLE writer (id SERIAL NOT NULL, name character varying(60) NOT NULL, tags text array NOT NULL DEFAULT '{}', sizes integer ARRAY[3], CONSTRAINT pk PRIMARY KEY (id));
INSERT INTO writer (name, sizes) VALUES ('Jane', '{1,2,3,4}') RETURNING *;
ALTER TABLE writer ADD COLUMN more numeric(6, 2) ARRAY;
ALTER TABLE writer ALTER COLUMN sizes TYPE bigint array;
SELECT attname, format_type(atttypid, atttypmod), attndims FROM pg_attribute WHERE attrelid = 'writer'::regclass AND attnum > 0 ORDER BY attnum;
CREATE TABLE wrong (a text array[);
CREATE TABLE wrong (a text array[x]);
CREATE TABLE wrong (a text[] array);
CREATE TABLE tagged (id serial, tags varchar(5)[]);
INSERT INTO tagged VALUES (DEFAULT, ARRAY[]::varchar(5)[]), (DEFAULT, ARRAY['a', 'bcd']::VARCHAR(5)[]), (DEFAULT, NULL) RETURNING *;
SELECT ARRAY[]::text[], ARRAY[]::varchar(255)[], CAST(ARRAY[] AS integer[]);
SELECT ARRAY['1', NULL, 3]::bigint[], ARRAY[1.5, 2]::integer[], ARRAY['abcdef'::text]::varchar(3)[];
SELECT ARRAY['x']::integer[];
SELECT ARRAY[ARRAY[1, 2], ARRAY[3, 4]]::text[], (ARRAY[1, 2])::text[];
SELECT ARRAY[];
SELECT ARRAY[]::integer;
SELECT id, ARRAY[id, 2]::text[] FROM tagged WHERE tags <> ARRAY[]::varchar[] ORDER BY id;
UPDATE tagged SET tags = ARRAY[]::text[] WHERE id = 3 RETURNING tags;
