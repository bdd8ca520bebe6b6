-- What frameworks send.
CREATE TABLE writer (id SERIAL NOT NULL, name character varying(60) NOT NULL, tags text array NOT NULL DEFAULT '{}', sizes integer ARRAY[3], CONSTRAINT pk PRIMARY KEY (id));
INSERT INTO writer (name, sizes) VALUES ('Jane', '{1,2,3,4}') RETURNING *;
ALTER TABLE writer ADD COLUMN more numeric(6, 2) ARRAY;
ALTER TABLE writer ALTER COLUMN sizes TYPE bigint array;
SELECT attname, format_type(atttypid, atttypmod), attndims FROM pg_attribute WHERE attrelid = 'writer'::regclass AND attnum > 0 ORDER BY attnum;
CREATE TABLE wrong (a text array[);
CREATE TABLE wrong (a text array[x]);
CREATE TABLE wrong (a text[] array);
