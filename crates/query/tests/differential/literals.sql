-- String literals, and what settings make of them.
SELECT e'\xc3\xa9', e'\303\251', e'\u00e9', e'\U000000e9';
SELECT e'\x80';
SELECT e'\xc3(';
SELECT e'\0';
SELECT e'\x00';
SELECT e'\400', e'\60', e'\608', e'\x4', e'\x411', e'\xg', e'\q', e'\v', e'\\', e'\'', e'''', e'\"';
SELECT e'\uD83D\uDE00', e'\U0001F600', e'\ud83d\U0000de00';
SELECT e'\uD83D';
SELECT e'\uD83Dx';
SELECT e'\uDE00';
SELECT e'\uD83D\u0041';
SELECT e'\u00zz';
SELECT e'\U0001';
SELECT e'\u0000';
SELECT e'\U00110000';
SELECT ascii(e'\b'), ascii(e'\f'), ascii(e'\n'), ascii(e'\r'), ascii(e'\t'), e'\é';
SELECT 'a'
'b', e'a'
 'b\tc', 'a'
   'b\tc';
SELECT 'a' -- a comment
'b', E'a' -- another
-- and one more
'\x41';
SELECT 'a' 'b';
SELECT 'a' /* no */
'b';
SELECT U&'\0041', u&'d\0061t\+000061', U&'\\', U&'it''s';
SELECT U&'\0041' UESCAPE '!', U&'!0041' UESCAPE '!', U&'d!0061t!+000061!!' uescape '!';
SELECT U&'\00zz';
SELECT U&'\41';
SELECT U&'\D83D\DE00', U&'\+01F600';
SELECT U&'\D83D';
SELECT U&'\D83Dx';
SELECT U&'\DE00';
SELECT U&'\0000';
SELECT U&'\+110000';
SELECT U&'a' UESCAPE 'ab';
SELECT U&'a' UESCAPE '+';
SELECT U&'a' UESCAPE ' ';
SELECT U&'a' UESCAPE '0';
SELECT U&'a' UESCAPE x;
SELECT U&"d\0061t" FROM (SELECT 1 AS dat) x;
SELECT x.U&"d!0061t" UESCAPE '!' FROM (SELECT 1 AS dat) x;
SELECT 1 AS U&"\0041b", 2 AS "a\n";
SELECT U&'a\0062'
'c\0064';
SELECT '\', 'a\nb', '\\', length('\'), $$a\nb$$, $x$it's$x$, $x$\$x$;
SELECT 'é\', '日本' || e'\t日\\本', 'x';
SELECT e'a' || /* e'\x80' */ 'b' -- e'\x80'
 || "e'\x80" FROM (SELECT 'c' AS "e'\x80") x;
SELECT n'abc' || 'x', N'a''b' || '';
CREATE TABLE lit (id int PRIMARY KEY, t text DEFAULT e'\t\\', CHECK (t <> e'a\'b\\'));
INSERT INTO lit VALUES (1, 'a\b'), (2, e'a\\b'), (3, DEFAULT);
INSERT INTO lit VALUES (4, e'a''b\\');
CREATE VIEW litv AS SELECT id, e'\\n' || t AS t FROM lit WHERE t <> e'\'\\';
SELECT * FROM litv ORDER BY id;
SHOW standard_conforming_strings;
SHOW backslash_quote;
SHOW escape_string_warning;
SET standard_conforming_strings = off;
SELECT 'a\nb', 'it\'s', '\\', 'a\tb', '\101', '\x41', '\u0041', 'a''b';
SELECT * FROM litv ORDER BY id;
INSERT INTO lit VALUES (5, 'x\\y\'z');
SELECT t FROM lit WHERE t = 'x\\y\'z';
SELECT 'abc'
 'd\n', e'a\n';
SELECT N'a\tb' || '';
SELECT $$a\nb$$, "a\n" FROM (SELECT 1 AS "a\n") x;
SELECT U&'\0041';
SELECT U&"\0041" FROM (SELECT 1 AS "A") x;
SELECT '\0';
SELECT '\u00z';
CREATE VIEW litw AS SELECT id, '\\n' || t AS t FROM lit WHERE t <> '\'\\';
SELECT * FROM litw ORDER BY id;
COMMENT ON TABLE lit IS 'it\'s \\';
SELECT obj_description('lit'::regclass);
SET escape_string_warning = off;
SELECT 'a\nb', E'c\nd';
SET backslash_quote = off;
SELECT 'it\'s';
SELECT e'it\'s';
SELECT 'it''s', '\\';
SET backslash_quote = on;
SELECT 'it\'s';
SET backslash_quote = safe_encoding;
SELECT 'it\'s', e'\'';
SET client_encoding = 'SJIS';
SELECT e'it\'s';
SELECT 'it''s';
RESET client_encoding;
SET backslash_quote = maybe;
SET LOCAL standard_conforming_strings = on;
BEGIN;
SET LOCAL standard_conforming_strings = on;
SELECT 'a\nb';
COMMIT;
SELECT 'a\nb';
SET standard_conforming_strings = on;
SELECT 'a\nb', E'c\nd';
SELECT * FROM litw ORDER BY id;
RESET ALL;
SELECT 1 'b';
SELECT date '2020-01-01' 'b';
