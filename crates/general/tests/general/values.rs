//! Types and their values on their way through a query.

use crate::support::{Database, rows};

#[test]
fn joins_and_aggregates() {
    let database = Database::of(
        "CREATE TABLE a (id int, name text, price numeric(10,2));
         INSERT INTO a VALUES (1, 'one', 1.50), (2, 'two', 2.25), (3, NULL, 4.00);
         CREATE TABLE b (a int, n bigint);
         INSERT INTO b VALUES (1, 10), (1, 11), (2, 20), (4, 40);",
    );
    assert_eq!(rows(&database, "SELECT 1 + 1"), ["2"]);
    assert_eq!(rows(&database, "SELECT * FROM a ORDER BY id DESC"), ["3|∅|4.00", "2|two|2.25", "1|one|1.50"]);
    assert_eq!(
        rows(&database, "SELECT a.name, sum(b.n), count(*) FROM a JOIN b ON a.id = b.a GROUP BY a.name ORDER BY 1"),
        ["one|21|2", "two|20|1"]
    );
    assert_eq!(
        rows(&database, "SELECT id, n FROM a LEFT JOIN b ON a = id WHERE price > 1.6 ORDER BY id, n"),
        ["2|20", "3|∅"]
    );
    assert_eq!(rows(&database, "SELECT avg(price), sum(price), max(name) FROM a"), ["2.5833333333333333|7.75|two"]);
}
