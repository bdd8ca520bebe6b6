-- COPY: its options, and rows of text and CSV.
CREATE TABLE t (a int, b text, c numeric);
CREATE TABLE s (x text);
CREATE TABLE copied_with_defaults (id int PRIMARY KEY, n text NOT NULL DEFAULT 'dflt', m int CHECK (m > 0));
CREATE TABLE "Q" ("A b" text, "c,d" text);
CREATE TABLE bare ();
CREATE VIEW v AS SELECT a, b FROM t;
CREATE SEQUENCE sq;
INSERT INTO t VALUES (1, 'one', 1.5), (2, NULL, NULL), (3, '', 0), (4, E'tab\tnl\ncr\rbs\\q"', -1), (5, '\N', 7), (6, '\.', 8), (7, 'a,b;c|d''e', 9), (NULL, 'NULL', NULL), (9, E'\x08\x0b\x0c', 1);
INSERT INTO s VALUES ('\.'), (''), (NULL), ('x'), ('"'), (' lead'), ('trail '), (E'a\nb'), ('\');
COPY t TO STDOUT ;
COPY s TO STDOUT ;
COPY t (c, a) TO STDOUT ;
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT ;
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT ;
COPY "Q" TO STDOUT ;
COPY t TO STDOUT csv;
COPY s TO STDOUT csv;
COPY t (c, a) TO STDOUT csv;
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv;
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv;
COPY "Q" TO STDOUT csv;
COPY t TO STDOUT csv header;
COPY s TO STDOUT csv header;
COPY t (c, a) TO STDOUT csv header;
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv header;
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv header;
COPY "Q" TO STDOUT csv header;
COPY t TO STDOUT header;
COPY s TO STDOUT header;
COPY t (c, a) TO STDOUT header;
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT header;
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT header;
COPY "Q" TO STDOUT header;
COPY t TO STDOUT csv force quote *;
COPY s TO STDOUT csv force quote *;
COPY t (c, a) TO STDOUT csv force quote *;
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv force quote *;
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv force quote *;
COPY "Q" TO STDOUT csv force quote *;
COPY t TO STDOUT csv force quote b;
COPY s TO STDOUT csv force quote b;
COPY t (c, a) TO STDOUT csv force quote b;
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv force quote b;
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv force quote b;
COPY "Q" TO STDOUT csv force quote b;
COPY t TO STDOUT csv force quote b, a;
COPY s TO STDOUT csv force quote b, a;
COPY t (c, a) TO STDOUT csv force quote b, a;
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv force quote b, a;
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv force quote b, a;
COPY "Q" TO STDOUT csv force quote b, a;
COPY t TO STDOUT csv null 'NULL';
COPY s TO STDOUT csv null 'NULL';
COPY t (c, a) TO STDOUT csv null 'NULL';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv null 'NULL';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv null 'NULL';
COPY "Q" TO STDOUT csv null 'NULL';
COPY t TO STDOUT null 'NULL';
COPY s TO STDOUT null 'NULL';
COPY t (c, a) TO STDOUT null 'NULL';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT null 'NULL';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT null 'NULL';
COPY "Q" TO STDOUT null 'NULL';
COPY t TO STDOUT null '';
COPY s TO STDOUT null '';
COPY t (c, a) TO STDOUT null '';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT null '';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT null '';
COPY "Q" TO STDOUT null '';
COPY t TO STDOUT null '-';
COPY s TO STDOUT null '-';
COPY t (c, a) TO STDOUT null '-';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT null '-';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT null '-';
COPY "Q" TO STDOUT null '-';
COPY t TO STDOUT csv null '-' quote '''' escape E'\\';
COPY s TO STDOUT csv null '-' quote '''' escape E'\\';
COPY t (c, a) TO STDOUT csv null '-' quote '''' escape E'\\';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv null '-' quote '''' escape E'\\';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv null '-' quote '''' escape E'\\';
COPY "Q" TO STDOUT csv null '-' quote '''' escape E'\\';
COPY t TO STDOUT delimiter '|';
COPY s TO STDOUT delimiter '|';
COPY t (c, a) TO STDOUT delimiter '|';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT delimiter '|';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT delimiter '|';
COPY "Q" TO STDOUT delimiter '|';
COPY t TO STDOUT delimiter ',';
COPY s TO STDOUT delimiter ',';
COPY t (c, a) TO STDOUT delimiter ',';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT delimiter ',';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT delimiter ',';
COPY "Q" TO STDOUT delimiter ',';
COPY t TO STDOUT csv delimiter ';';
COPY s TO STDOUT csv delimiter ';';
COPY t (c, a) TO STDOUT csv delimiter ';';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv delimiter ';';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv delimiter ';';
COPY "Q" TO STDOUT csv delimiter ';';
COPY t TO STDOUT csv delimiter E'\t';
COPY s TO STDOUT csv delimiter E'\t';
COPY t (c, a) TO STDOUT csv delimiter E'\t';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv delimiter E'\t';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv delimiter E'\t';
COPY "Q" TO STDOUT csv delimiter E'\t';
COPY t TO STDOUT csv delimiter '|' quote '''' header;
COPY s TO STDOUT csv delimiter '|' quote '''' header;
COPY t (c, a) TO STDOUT csv delimiter '|' quote '''' header;
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv delimiter '|' quote '''' header;
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv delimiter '|' quote '''' header;
COPY "Q" TO STDOUT csv delimiter '|' quote '''' header;
COPY t TO STDOUT csv quote '|';
COPY s TO STDOUT csv quote '|';
COPY t (c, a) TO STDOUT csv quote '|';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv quote '|';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv quote '|';
COPY "Q" TO STDOUT csv quote '|';
COPY t TO STDOUT csv escape '|';
COPY s TO STDOUT csv escape '|';
COPY t (c, a) TO STDOUT csv escape '|';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv escape '|';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv escape '|';
COPY "Q" TO STDOUT csv escape '|';
COPY t TO STDOUT csv escape E'\\';
COPY s TO STDOUT csv escape E'\\';
COPY t (c, a) TO STDOUT csv escape E'\\';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv escape E'\\';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv escape E'\\';
COPY "Q" TO STDOUT csv escape E'\\';
COPY t TO STDOUT csv delimiter 'a';
COPY s TO STDOUT csv delimiter 'a';
COPY t (c, a) TO STDOUT csv delimiter 'a';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv delimiter 'a';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv delimiter 'a';
COPY "Q" TO STDOUT csv delimiter 'a';
COPY t TO STDOUT delimiter 'A';
COPY s TO STDOUT delimiter 'A';
COPY t (c, a) TO STDOUT delimiter 'A';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT delimiter 'A';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT delimiter 'A';
COPY "Q" TO STDOUT delimiter 'A';
COPY t TO STDOUT delimiters '|';
COPY s TO STDOUT delimiters '|';
COPY t (c, a) TO STDOUT delimiters '|';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT delimiters '|';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT delimiters '|';
COPY "Q" TO STDOUT delimiters '|';
COPY t TO STDOUT using delimiters ';' csv;
COPY s TO STDOUT using delimiters ';' csv;
COPY t (c, a) TO STDOUT using delimiters ';' csv;
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT using delimiters ';' csv;
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT using delimiters ';' csv;
COPY "Q" TO STDOUT using delimiters ';' csv;
COPY t TO STDOUT encoding 'utf8';
COPY s TO STDOUT encoding 'utf8';
COPY t (c, a) TO STDOUT encoding 'utf8';
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT encoding 'utf8';
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT encoding 'utf8';
COPY "Q" TO STDOUT encoding 'utf8';
COPY t TO STDOUT csv encoding 'UTF-8' header;
COPY s TO STDOUT csv encoding 'UTF-8' header;
COPY t (c, a) TO STDOUT csv encoding 'UTF-8' header;
COPY (SELECT b, a FROM t ORDER BY a) TO STDOUT csv encoding 'UTF-8' header;
COPY (VALUES ('\.', 1), (NULL, 2)) TO STDOUT csv encoding 'UTF-8' header;
COPY "Q" TO STDOUT csv encoding 'UTF-8' header;
COPY t (a, b) TO STDOUT (FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT csv);
COPY t (a, b) FROM STDIN (FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORMAT text);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT text);
COPY t (a, b) FROM STDIN (FORMAT text);
\.
COPY t (a, b) TO STDOUT (FORMAT 'csv');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT 'csv');
COPY t (a, b) FROM STDIN (FORMAT 'csv');
\.
COPY t (a, b) TO STDOUT (FORMAT "CSV");
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT "CSV");
COPY t (a, b) FROM STDIN (FORMAT "CSV");
\.
COPY t (a, b) TO STDOUT (FORMAT xml);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT xml);
COPY t (a, b) FROM STDIN (FORMAT xml);
\.
COPY t (a, b) TO STDOUT (FORMAT);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT);
COPY t (a, b) FROM STDIN (FORMAT);
\.
COPY t (a, b) TO STDOUT (FORMAT csv, FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT csv, FORMAT csv);
COPY t (a, b) FROM STDIN (FORMAT csv, FORMAT csv);
\.
COPY t (a, b) TO STDOUT (HEADER);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER);
COPY t (a, b) FROM STDIN (HEADER);
\.
COPY t (a, b) TO STDOUT (HEADER true);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER true);
COPY t (a, b) FROM STDIN (HEADER true);
\.
COPY t (a, b) TO STDOUT (HEADER 'on');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER 'on');
COPY t (a, b) FROM STDIN (HEADER 'on');
\.
COPY t (a, b) TO STDOUT (HEADER off);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER off);
COPY t (a, b) FROM STDIN (HEADER off);
\.
COPY t (a, b) TO STDOUT (HEADER 1);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER 1);
COPY t (a, b) FROM STDIN (HEADER 1);
\.
COPY t (a, b) TO STDOUT (HEADER 0);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER 0);
COPY t (a, b) FROM STDIN (HEADER 0);
\.
COPY t (a, b) TO STDOUT (HEADER 2);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER 2);
COPY t (a, b) FROM STDIN (HEADER 2);
\.
COPY t (a, b) TO STDOUT (HEADER match);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER match);
COPY t (a, b) FROM STDIN (HEADER match);
\.
COPY t (a, b) TO STDOUT (HEADER MATCH, FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER MATCH, FORMAT csv);
COPY t (a, b) FROM STDIN (HEADER MATCH, FORMAT csv);
\.
COPY t (a, b) TO STDOUT (HEADER maybe);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER maybe);
COPY t (a, b) FROM STDIN (HEADER maybe);
\.
COPY t (a, b) TO STDOUT (HEADER, HEADER);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (HEADER, HEADER);
COPY t (a, b) FROM STDIN (HEADER, HEADER);
\.
COPY t (a, b) TO STDOUT (FREEZE);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FREEZE);
COPY t (a, b) TO STDOUT (FREEZE 3);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FREEZE 3);
COPY t (a, b) FROM STDIN (FREEZE 3);
\.
COPY t (a, b) TO STDOUT (FREEZE off);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FREEZE off);
COPY t (a, b) FROM STDIN (FREEZE off);
\.
COPY t (a, b) TO STDOUT (FREEZE yes);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FREEZE yes);
COPY t (a, b) FROM STDIN (FREEZE yes);
\.
COPY t (a, b) TO STDOUT (DELIMITER ';');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER ';');
COPY t (a, b) FROM STDIN (DELIMITER ';');
\.
COPY t (a, b) TO STDOUT (DELIMITER x);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER x);
COPY t (a, b) FROM STDIN (DELIMITER x);
\.
COPY t (a, b) TO STDOUT (DELIMITER 5);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER 5);
COPY t (a, b) FROM STDIN (DELIMITER 5);
\.
COPY t (a, b) TO STDOUT (DELIMITER);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER);
COPY t (a, b) FROM STDIN (DELIMITER);
\.
COPY t (a, b) TO STDOUT (DELIMITER '');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER '');
COPY t (a, b) FROM STDIN (DELIMITER '');
\.
COPY t (a, b) TO STDOUT (DELIMITER 'ab');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER 'ab');
COPY t (a, b) FROM STDIN (DELIMITER 'ab');
\.
COPY t (a, b) TO STDOUT (DELIMITER '.');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER '.');
COPY t (a, b) FROM STDIN (DELIMITER '.');
\.
COPY t (a, b) TO STDOUT (DELIMITER E'\\');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER E'\\');
COPY t (a, b) FROM STDIN (DELIMITER E'\\');
\.
COPY t (a, b) TO STDOUT (DELIMITER E'\n');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER E'\n');
COPY t (a, b) FROM STDIN (DELIMITER E'\n');
\.
COPY t (a, b) TO STDOUT (DELIMITER E'\r', FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER E'\r', FORMAT csv);
COPY t (a, b) FROM STDIN (DELIMITER E'\r', FORMAT csv);
\.
COPY t (a, b) TO STDOUT (DELIMITER 'ä');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER 'ä');
COPY t (a, b) FROM STDIN (DELIMITER 'ä');
\.
COPY t (a, b) TO STDOUT (DELIMITER as ';');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (DELIMITER as ';');
COPY t (a, b) FROM STDIN (DELIMITER as ';');
\.
COPY t (a, b) TO STDOUT (NULL);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NULL);
COPY t (a, b) FROM STDIN (NULL);
\.
COPY t (a, b) TO STDOUT (NULL '');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NULL '');
COPY t (a, b) FROM STDIN (NULL '');
\.
COPY t (a, b) TO STDOUT (NULL x);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NULL x);
COPY t (a, b) FROM STDIN (NULL x);
\.
COPY t (a, b) TO STDOUT (NULL 5);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NULL 5);
COPY t (a, b) FROM STDIN (NULL 5);
\.
COPY t (a, b) TO STDOUT (NULL -5);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NULL -5);
COPY t (a, b) FROM STDIN (NULL -5);
\.
COPY t (a, b) TO STDOUT (NULL E'a\nb');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NULL E'a\nb');
COPY t (a, b) FROM STDIN (NULL E'a\nb');
\.
COPY t (a, b) TO STDOUT (NULL E'\t');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NULL E'\t');
COPY t (a, b) FROM STDIN (NULL E'\t');
\.
COPY t (a, b) TO STDOUT (NULL 'a,b', FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NULL 'a,b', FORMAT csv);
COPY t (a, b) FROM STDIN (NULL 'a,b', FORMAT csv);
\.
COPY t (a, b) TO STDOUT (NULL 'a"b', FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NULL 'a"b', FORMAT csv);
COPY t (a, b) FROM STDIN (NULL 'a"b', FORMAT csv);
\.
COPY t (a, b) TO STDOUT (NULL 'a;b', DELIMITER ';');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NULL 'a;b', DELIMITER ';');
COPY t (a, b) FROM STDIN (NULL 'a;b', DELIMITER ';');
\.
COPY t (a, b) TO STDOUT (QUOTE 'x');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (QUOTE 'x');
COPY t (a, b) FROM STDIN (QUOTE 'x');
\.
COPY t (a, b) TO STDOUT (QUOTE 'x', FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (QUOTE 'x', FORMAT csv);
COPY t (a, b) FROM STDIN (QUOTE 'x', FORMAT csv);
\.
COPY t (a, b) TO STDOUT (QUOTE '', FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (QUOTE '', FORMAT csv);
COPY t (a, b) FROM STDIN (QUOTE '', FORMAT csv);
\.
COPY t (a, b) TO STDOUT (QUOTE 'xy', FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (QUOTE 'xy', FORMAT csv);
COPY t (a, b) FROM STDIN (QUOTE 'xy', FORMAT csv);
\.
COPY t (a, b) TO STDOUT (QUOTE ',', FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (QUOTE ',', FORMAT csv);
COPY t (a, b) FROM STDIN (QUOTE ',', FORMAT csv);
\.
COPY t (a, b) TO STDOUT (ESCAPE 'x');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (ESCAPE 'x');
COPY t (a, b) FROM STDIN (ESCAPE 'x');
\.
COPY t (a, b) TO STDOUT (ESCAPE 'x', FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (ESCAPE 'x', FORMAT csv);
COPY t (a, b) FROM STDIN (ESCAPE 'x', FORMAT csv);
\.
COPY t (a, b) TO STDOUT (ESCAPE 'xx', FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (ESCAPE 'xx', FORMAT csv);
COPY t (a, b) FROM STDIN (ESCAPE 'xx', FORMAT csv);
\.
COPY t (a, b) TO STDOUT (ESCAPE '', FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (ESCAPE '', FORMAT csv);
COPY t (a, b) FROM STDIN (ESCAPE '', FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_QUOTE *);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_QUOTE *);
COPY t (a, b) FROM STDIN (FORCE_QUOTE *);
\.
COPY t (a, b) TO STDOUT (FORCE_QUOTE *, FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_QUOTE *, FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_QUOTE *, FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_QUOTE (a), FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_QUOTE (a), FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_QUOTE (a), FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_QUOTE (a, a), FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_QUOTE (a, a), FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_QUOTE (a, a), FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_QUOTE (zz), FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_QUOTE (zz), FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_QUOTE (zz), FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_QUOTE a, FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_QUOTE a, FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_QUOTE a, FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_QUOTE ('a'), FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_QUOTE ('a'), FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_QUOTE ('a'), FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_QUOTE ("A"), FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_QUOTE ("A"), FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_QUOTE ("A"), FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_NOT_NULL *);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_NOT_NULL *);
COPY t (a, b) FROM STDIN (FORCE_NOT_NULL *);
\.
COPY t (a, b) TO STDOUT (FORCE_NOT_NULL (b), FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_NOT_NULL (b), FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_NOT_NULL (b), FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_NOT_NULL (zz), FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_NOT_NULL (zz), FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_NOT_NULL (zz), FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_NULL (b), FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_NULL (b), FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_NULL (b), FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_NULL *, FORMAT csv);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_NULL *, FORMAT csv);
COPY t (a, b) FROM STDIN (FORCE_NULL *, FORMAT csv);
\.
COPY t (a, b) TO STDOUT (FORCE_NULL (b));
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORCE_NULL (b));
COPY t (a, b) FROM STDIN (FORCE_NULL (b));
\.
COPY t (a, b) TO STDOUT (ENCODING 'utf8');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (ENCODING 'utf8');
COPY t (a, b) FROM STDIN (ENCODING 'utf8');
\.
COPY t (a, b) TO STDOUT (ENCODING 'nonsense');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (ENCODING 'nonsense');
COPY t (a, b) FROM STDIN (ENCODING 'nonsense');
\.
COPY t (a, b) TO STDOUT (ENCODING 5);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (ENCODING 5);
COPY t (a, b) FROM STDIN (ENCODING 5);
\.
COPY t (a, b) TO STDOUT (ENCODING utf8);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (ENCODING utf8);
COPY t (a, b) FROM STDIN (ENCODING utf8);
\.
COPY t (a, b) TO STDOUT (ENCODING 'UTF-8');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (ENCODING 'UTF-8');
COPY t (a, b) FROM STDIN (ENCODING 'UTF-8');
\.
COPY t (a, b) TO STDOUT (NONSENSE);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NONSENSE);
COPY t (a, b) FROM STDIN (NONSENSE);
\.
COPY t (a, b) TO STDOUT (NONSENSE 5);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (NONSENSE 5);
COPY t (a, b) FROM STDIN (NONSENSE 5);
\.
COPY t (a, b) TO STDOUT (FORMAT csv,);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT csv,);
COPY t (a, b) FROM STDIN (FORMAT csv,);
\.
COPY t (a, b) TO STDOUT ();
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH ();
COPY t (a, b) FROM STDIN ();
\.
COPY t (a, b) TO STDOUT (FORMAT text, NULL '\N', HEADER, DELIMITER '|', ENCODING 'unicode');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT text, NULL '\N', HEADER, DELIMITER '|', ENCODING 'unicode');
COPY t (a, b) FROM STDIN (FORMAT text, NULL '\N', HEADER, DELIMITER '|', ENCODING 'unicode');
\.
COPY t (a, b) TO STDOUT (FORMAT binary, HEADER);
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT binary, HEADER);
COPY t (a, b) TO STDOUT (FORMAT binary, DELIMITER 'x');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT binary, DELIMITER 'x');
COPY t (a, b) TO STDOUT (FORMAT binary, NULL 'x');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT binary, NULL 'x');
COPY t (a, b) TO STDOUT (FORMAT binary, QUOTE 'x');
COPY (SELECT a, b FROM t WHERE a = 1) TO STDOUT WITH (FORMAT binary, QUOTE 'x');
COPY nothing TO STDOUT (NONSENSE);
COPY nothing FROM STDIN (NONSENSE);
\.
COPY t (zz) TO STDOUT (NONSENSE);
COPY t (a, a) TO STDOUT;
COPY t (a, a) FROM STDIN;
\.
COPY t (zz) FROM STDIN;
\.
COPY v TO STDOUT;
COPY v FROM STDIN;
\.
COPY v (a) TO STDOUT (NONSENSE);
COPY sq TO STDOUT;
COPY sq FROM STDIN;
\.
COPY (SELECT * FROM v ORDER BY a) TO STDOUT;
COPY (SELECT 1) FROM STDIN;
COPY (INSERT INTO s VALUES ('new')) TO STDOUT;
COPY (INSERT INTO s VALUES ('new') RETURNING x, 1) TO STDOUT;
COPY (UPDATE s SET x = 'newer' WHERE x = 'new' RETURNING *) TO STDOUT (FORMAT csv, HEADER);
COPY (DELETE FROM s WHERE x = 'newer' RETURNING x) TO STDOUT;
COPY (DELETE FROM s WHERE x = 'newer') TO STDOUT (NONSENSE);
COPY (SELECT 1 AS "a,b", 2 AS "c""d") TO STDOUT csv header;
COPY (SELECT 1 AS one) TO STDOUT (FORMAT csv, FORCE_QUOTE (zz));
COPY (SELECT 1 AS one, 2 AS two) TO STDOUT (FORMAT csv, FORCE_QUOTE (two));
COPY t (a) TO STDOUT (FORMAT csv, FORCE_QUOTE (b));
COPY t (a) FROM STDIN (FORMAT csv, FORCE_NULL (b));
\.
COPY BINARY t TO STDOUT csv;
COPY t TO STDOUT csv force not null a;
COPY t TO STDOUT csv force null a;
COPY t TO STDOUT force quote *;
COPY t TO STDOUT csv csv;
COPY t TO STDOUT null 'a' null 'b';
COPY t TO STDOUT WHERE a > 1;
COPY t (a) TO STDIN;
COPY t (a) FROM STDOUT;
COPY t TO STDOUT nonsense;
COPY t TO;
COPY t;
COPY TO STDOUT;
COPY bare TO STDOUT;
COPY bare FROM STDIN;

\.
COPY bare FROM STDIN;
x
\.
SELECT count(*) FROM bare;
DELETE FROM t;
COPY t FROM STDIN ;
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;

\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x	2	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
x	y	z
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	\N	\N
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
\N	\\N	1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	a\tb\nc\rd\be\ff\vg\\h	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	\x41\x4\x\xzz\101\7\8\0101	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	\a\c\d\e\g\	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	ab\
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	ab\
2	cd	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x\
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x\ry	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x	2\.
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x\.y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
\.x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	\x00	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	\0	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	\377	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	\xe4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	\xc3\xa4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
 1 	 x 	 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	"x"	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
NULL	NULL	NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	ä€	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1e3	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
2147483648	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x	abc
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x	2

3	y	4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
1	x	2
\N	\N	\N
4	z	5
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
a	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
a	b
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
a	B	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN ;
\N	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';

\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x	2	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
x	y	z
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	\N	\N
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
\N	\\N	1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	a\tb\nc\rd\be\ff\vg\\h	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	\x41\x4\x\xzz\101\7\8\0101	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	\a\c\d\e\g\	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	ab\
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	ab\
2	cd	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x\
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x\ry	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x	2\.
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x\.y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
\.x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	\x00	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	\0	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	\377	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	\xe4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	\xc3\xa4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
 1 	 x 	 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	"x"	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
NULL	NULL	NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	ä€	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1e3	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
2147483648	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x	abc
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x	2

3	y	4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
1	x	2
\N	\N	\N
4	z	5
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
a	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
a	b
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
a	B	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null '';
\N	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';

\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x	2	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
x	y	z
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	\N	\N
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
\N	\\N	1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	a\tb\nc\rd\be\ff\vg\\h	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	\x41\x4\x\xzz\101\7\8\0101	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	\a\c\d\e\g\	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	ab\
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	ab\
2	cd	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x\
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x\ry	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x	2\.
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x\.y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
\.x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	\x00	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	\0	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	\377	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	\xe4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	\xc3\xa4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
 1 	 x 	 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	"x"	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
NULL	NULL	NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	ä€	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1e3	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
2147483648	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x	abc
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x	2

3	y	4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
1	x	2
\N	\N	\N
4	z	5
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
a	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
a	b
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
a	B	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'NULL';
\N	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';

\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x	2	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
x	y	z
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	\N	\N
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
\N	\\N	1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	a\tb\nc\rd\be\ff\vg\\h	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	\x41\x4\x\xzz\101\7\8\0101	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	\a\c\d\e\g\	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	ab\
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	ab\
2	cd	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x\
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x\ry	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x	2\.
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x\.y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
\.x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	\x00	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	\0	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	\377	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	\xe4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	\xc3\xa4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
 1 	 x 	 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	"x"	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
NULL	NULL	NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	ä€	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1e3	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
2147483648	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x	abc
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x	2

3	y	4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
1	x	2
\N	\N	\N
4	z	5
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
a	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
a	b
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
a	B	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter ',';
\N	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;

\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x	2	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
x	y	z
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	\N	\N
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
\N	\\N	1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	a\tb\nc\rd\be\ff\vg\\h	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	\x41\x4\x\xzz\101\7\8\0101	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	\a\c\d\e\g\	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	ab\
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	ab\
2	cd	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x\
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x\ry	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x	2\.
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x\.y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
\.x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	\x00	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	\0	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	\377	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	\xe4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	\xc3\xa4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
 1 	 x 	 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	"x"	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
NULL	NULL	NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	ä€	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1e3	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
2147483648	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x	abc
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x	2

3	y	4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
1	x	2
\N	\N	\N
4	z	5
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
a	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
a	b
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
a	B	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN header;
\N	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);

\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x	2	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
x	y	z
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	\N	\N
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
\N	\\N	1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	a\tb\nc\rd\be\ff\vg\\h	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	\x41\x4\x\xzz\101\7\8\0101	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	\a\c\d\e\g\	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	ab\
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	ab\
2	cd	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x\
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x\ry	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x	2\.
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x\.y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
\.x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	\x00	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	\0	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	\377	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	\xe4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	\xc3\xa4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
 1 	 x 	 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	"x"	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
NULL	NULL	NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	ä€	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1e3	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
2147483648	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x	abc
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x	2

3	y	4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
1	x	2
\N	\N	\N
4	z	5
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
a	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
a	b
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
a	B	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (HEADER MATCH);
\N	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';

\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x	2	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
x	y	z
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	\N	\N
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
\N	\\N	1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	a\tb\nc\rd\be\ff\vg\\h	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	\x41\x4\x\xzz\101\7\8\0101	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	\a\c\d\e\g\	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	ab\
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	ab\
2	cd	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x\
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x\ry	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x	2\.
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x\.y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
\.x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	\x00	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	\0	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	\377	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	\xe4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	\xc3\xa4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
 1 	 x 	 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	"x"	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
NULL	NULL	NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	ä€	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1e3	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
2147483648	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x	abc
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x	2

3	y	4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
1	x	2
\N	\N	\N
4	z	5
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
a	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
a	b
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
a	B	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN null 'x';
\N	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';

\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x	2	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
x	y	z
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	\N	\N
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
\N	\\N	1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	a\tb\nc\rd\be\ff\vg\\h	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	\x41\x4\x\xzz\101\7\8\0101	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	\a\c\d\e\g\	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	ab\
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	ab\
2	cd	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x	2
2	y	3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x\
y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x\ry	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x	2\.
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x\.y	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
\.x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	\x00	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	\0	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	\377	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	\xe4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	\xc3\xa4	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
 1 	 x 	 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	"x"	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
NULL	NULL	NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	ä€	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1e3	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
2147483648	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x	abc
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x	2

3	y	4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
1	x	2
\N	\N	\N
4	z	5
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
a	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
a	b
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
a	B	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN delimiter '|' null '-';
\N	b	c
1	x	2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv;
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv header;
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN (FORMAT csv, HEADER MATCH);
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL';
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b;
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force null b;
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv null 'NULL' force not null b force null b;
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''';
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv quote '''' escape E'\\';
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv escape E'\\';
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter ';';
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,x
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
,,
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
"1","x","2"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"a,b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"a
b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"a""b",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,a"b"c,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"a"b,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"a" ,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1, "a",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"abc,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"\"",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,\,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,\N,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
"\.",x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,x,2
3,y,4
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,x
y,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"x
y",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
\.x,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
x\.,1,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
NULL,NULL,NULL
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
"NULL","NULL","1"
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,NULL,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"NULL",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,x,2,3
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,'a,b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,'a''b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,'a\'b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,'a\\b',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,'a\xb',2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;

1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,x,2


\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
a,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
"a","b","c"
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
a,b
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
a,x,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
,b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
"a
b",b,c
1,x,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1;x;2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1|x|2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,ä€,2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
 1, x , 2 
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
1,"x""",2
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM t;
COPY t FROM STDIN csv delimiter '|' force null b, c;
"""",x,1
\.
SELECT a, b, c FROM t ORDER BY a, b, c;
DELETE FROM s;
COPY s FROM STDIN ;

\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN ;


\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN ;
x
y
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN ;
\\.
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN ;
\N
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN ;
""
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN ;
"\."
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN ;
"a
b"
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN ;
a\
b
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN csv;

\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN csv;


\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN csv;
x
y
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN csv;
\\.
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN csv;
\N
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN csv;
""
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN csv;
"\."
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN csv;
"a
b"
\.
SELECT x FROM s ORDER BY x;
DELETE FROM s;
COPY s FROM STDIN csv;
a\
b
\.
SELECT x FROM s ORDER BY x;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults  FROM STDIN;
1	a	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id, m) FROM STDIN;
1	a	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id) FROM STDIN;
1	a	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (m, id, n) FROM STDIN;
1	a	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults  FROM STDIN;
1	a	1
1	b	2
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id, m) FROM STDIN;
1	a	1
1	b	2
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id) FROM STDIN;
1	a	1
1	b	2
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (m, id, n) FROM STDIN;
1	a	1
1	b	2
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults  FROM STDIN;
1	a	0
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id, m) FROM STDIN;
1	a	0
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id) FROM STDIN;
1	a	0
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (m, id, n) FROM STDIN;
1	a	0
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults  FROM STDIN;
1	\N	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id, m) FROM STDIN;
1	\N	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id) FROM STDIN;
1	\N	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (m, id, n) FROM STDIN;
1	\N	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults  FROM STDIN;
2	b
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id, m) FROM STDIN;
2	b
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id) FROM STDIN;
2	b
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (m, id, n) FROM STDIN;
2	b
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults  FROM STDIN;
\N	b	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id, m) FROM STDIN;
\N	b	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (id) FROM STDIN;
\N	b	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
DELETE FROM copied_with_defaults;
COPY copied_with_defaults (m, id, n) FROM STDIN;
\N	b	1
\.
SELECT * FROM copied_with_defaults ORDER BY id;
COPY "Q" FROM STDIN (FORMAT csv, HEADER MATCH);
A b,"c,d"
1,2
\.
COPY "Q" ("c,d") FROM STDIN (FORMAT csv, HEADER match, FORCE_NOT_NULL ("c,d"));
"c,d"

\.
COPY "Q" TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE ("c,d"));
BEGIN;
COPY s FROM STDIN;
one
\.
SAVEPOINT a;
COPY s FROM STDIN;
two	three
\.
ROLLBACK TO a;
SELECT x FROM s WHERE x IN ('one', 'two', 'four') ORDER BY x;
COMMIT;
