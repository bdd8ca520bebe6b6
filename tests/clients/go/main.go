// Pgx with its pool, lib/pq below database/sql, and GORM, against a primary and its standby. With
// the argument `listen` only notifications are tried; with `pools`, failovers.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lib/pq"
)

var ctx = context.Background()

func address(port string) string {
	return fmt.Sprintf("postgres://freshet@127.0.0.1:%s/freshet?sslmode=disable", os.Getenv(port))
}

// fail tells what went wrong, and ends the process.
func fail(what ...any) {
	fmt.Fprintln(os.Stderr, what...)
	os.Exit(1)
}

func check(err error, what string) {
	if err != nil {
		fail(what+":", err)
	}
}

func same(found, wanted any, what string) {
	if !reflect.DeepEqual(found, wanted) {
		fail(fmt.Sprintf("%s: expected %#v, found %#v", what, wanted, found))
	}
}

// refused expects an error with this SQLSTATE.
func refused(err error, state, what string) *pgconn.PgError {
	var said *pgconn.PgError
	if !errors.As(err, &said) || said.Code != state {
		fail(fmt.Sprintf("%s: expected SQLSTATE %s, found %v", what, state, err))
	}
	return said
}

type item struct {
	ID    int64
	Name  string
	Price pgtype.Numeric
	Tags  []string
	Extra map[string]any
	Made  time.Time
	Key   pgtype.UUID
	Data  []byte
}

func migrated(pool *pgxpool.Pool) {
	for _, step := range []string{
		`CREATE SCHEMA go_app`,
		`CREATE TABLE IF NOT EXISTS go_app.schema_migrations (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)`,
		`SELECT pg_advisory_lock(7); SELECT pg_advisory_unlock(7)`,
		`CREATE TABLE go_app.item (
			id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, price numeric(10, 2) CHECK (price >= 0),
			tags text[] NOT NULL DEFAULT '{}', extra jsonb, made timestamptz NOT NULL DEFAULT now(),
			key uuid NOT NULL DEFAULT gen_random_uuid(), data bytea);
		 CREATE INDEX ON go_app.item (made DESC);
		 INSERT INTO go_app.schema_migrations VALUES (1, false)`,
		`ALTER TABLE go_app.item ADD COLUMN note text DEFAULT 'none'; UPDATE go_app.schema_migrations SET version = 2`,
	} {
		_, err := pool.Exec(ctx, step, pgx.QueryExecModeSimpleProtocol)
		check(err, step)
	}
}

func types(pool *pgxpool.Pool) {
	day := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	moment := time.Date(2024, 2, 29, 12, 0, 0, 1000, time.UTC)
	for _, it := range []struct {
		kind  string
		value any
	}{
		{"bool", true}, {"int2", int16(-32768)}, {"int4", int32(2147483647)}, {"int8", int64(-9223372036854775808)},
		{"float4", float32(1.5)}, {"float8", -1e300}, {"text", "äöü €"}, {"varchar(10)", "ten chars!"}, {"bytea", []byte{0, 1, 255}},
		{"date", day}, {"timestamp", moment}, {"uuid", [16]byte{1, 2}},
	} {
		var found any
		check(pool.QueryRow(ctx, "SELECT $1::"+it.kind, it.value).Scan(&found), it.kind)
		same(found, it.value, it.kind)
	}
	var list []*int32
	check(pool.QueryRow(ctx, "SELECT ARRAY[1, NULL, 3]").Scan(&list), "array")
	same([]any{*list[0], list[1] == nil, *list[2]}, []any{int32(1), true, int32(3)}, "array")
	var span time.Duration
	check(pool.QueryRow(ctx, "SELECT $1::interval", 90*time.Minute).Scan(&span), "interval")
	same(span, 90*time.Minute, "interval")
	var number pgtype.Numeric
	check(number.Scan("-99999999999999999999.123456789"), "numeric")
	var back string
	check(pool.QueryRow(ctx, "SELECT ($1::numeric)::text", number).Scan(&back), "numeric")
	same(back, "-99999999999999999999.123456789", "numeric")
	check(number.Scan("NaN"), "NaN")
	check(pool.QueryRow(ctx, "SELECT ($1::numeric)::text", number).Scan(&back), "NaN")
	same(back, "NaN", "NaN")
}

func items(pool *pgxpool.Pool) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		var id int64
		check(pool.QueryRow(ctx, "INSERT INTO go_app.item (name, price, tags, extra, data) VALUES ($1, $2, $3, $4, $5) RETURNING id",
			mode, mode.String(), "1.50", []string{"a", "b c"}, json.RawMessage(`{"a": [1, null]}`), []byte{1}).Scan(&id), mode.String())
		rows, err := pool.Query(ctx, "SELECT id, name, price, tags, extra, made, key, data FROM go_app.item WHERE id = $1", id)
		check(err, mode.String())
		found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[item])
		check(err, mode.String())
		same([]any{found.Name, found.Tags, found.Extra, found.Data}, []any{mode.String(), []string{"a", "b c"}, map[string]any{"a": []any{1.0, nil}}, []byte{1}}, "an item")
	}
	copied, err := pool.CopyFrom(ctx, pgx.Identifier{"go_app", "item"}, []string{"name", "price", "tags"},
		pgx.CopyFromSlice(5000, func(n int) ([]any, error) {
			return []any{fmt.Sprintf("copied %d", n), pgtype.Numeric{Int: nil, Valid: false}, []string{fmt.Sprint(n)}}, nil
		}))
	check(err, "CopyFrom")
	same(copied, int64(5000), "CopyFrom")
	batch := &pgx.Batch{}
	for n := range 50 {
		batch.Queue("UPDATE go_app.item SET price = $2 WHERE name = $1", fmt.Sprintf("copied %d", n), n)
	}
	batch.Queue("SELECT sum(price)::float8 FROM go_app.item WHERE name LIKE 'copied%'").QueryRow(func(row pgx.Row) error {
		var sum float64
		check(row.Scan(&sum), "a sum in a batch")
		same(sum, 1225.0, "a sum in a batch")
		return nil
	})
	check(pool.SendBatch(ctx, batch).Close(), "a batch")
	failing := &pgx.Batch{}
	failing.Queue("DELETE FROM go_app.item")
	failing.Queue("SELECT 1 / 0")
	refused(pool.SendBatch(ctx, failing).Close(), "22012", "a batch that fails")
	_, err = pool.Exec(ctx, "INSERT INTO go_app.item (name) VALUES ('copied 1')")
	same(refused(err, "23505", "a duplicate").ConstraintName, "item_name_key", "constraint")
	_, err = pool.Exec(ctx, "INSERT INTO go_app.item (name, price) VALUES ('x', -1)")
	refused(err, "23514", "a check")
	check(pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly, DeferrableMode: pgx.Deferrable}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DECLARE c CURSOR FOR SELECT id FROM go_app.item ORDER BY id")
		check(err, "DECLARE")
		rows, _ := tx.Query(ctx, "FETCH 3 FROM c")
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		check(err, "FETCH")
		same(len(ids), 3, "FETCH")
		return nil
	}), "a transaction")
	same(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		inner, err := tx.Begin(ctx)
		check(err, "a savepoint")
		_, err = inner.Exec(ctx, "DELETE FROM go_app.item")
		check(err, "DELETE")
		check(inner.Rollback(ctx), "ROLLBACK TO")
		var count int
		check(tx.QueryRow(ctx, "SELECT count(*) FROM go_app.item").Scan(&count), "count")
		same(count, 5005, "after ROLLBACK TO")
		return pgx.ErrNoRows
	}), pgx.ErrNoRows, "a transaction that is given up")
	_, err = pool.Exec(ctx, "CREATE TABLE go_app.counter (id int PRIMARY KEY, n int); INSERT INTO go_app.counter VALUES (1, 0)", pgx.QueryExecModeSimpleProtocol)
	check(err, "counter")
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				var n int
				if err := tx.QueryRow(ctx, "SELECT n FROM go_app.counter WHERE id = 1 FOR NO KEY UPDATE").Scan(&n); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "UPDATE go_app.counter SET n = $1 WHERE id = 1", n+1)
				return err
			}), "counting")
		})
	}
	all.Wait()
	var n int
	check(pool.QueryRow(ctx, "SELECT n FROM go_app.counter").Scan(&n), "counted")
	same(n, 40, "counted by many at once")
	brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err = pool.Exec(brief, "SELECT pg_sleep(60)"); !pgconn.Timeout(err) {
		fail("a time-out:", err)
	}
}

func databaseSQL() {
	db, err := sql.Open("postgres", address("PRIMARY"))
	check(err, "lib/pq")
	defer db.Close()
	check(db.Ping(), "ping")
	statement, err := db.Prepare("SELECT name, price, tags, made FROM go_app.item WHERE name = $1")
	check(err, "prepare")
	for n := range 20 {
		var name, price string
		var tags []string
		var made time.Time
		check(statement.QueryRow(fmt.Sprintf("copied %d", n)).Scan(&name, &price, pq.Array(&tags), &made), "a row")
		same([]any{price, tags}, []any{fmt.Sprintf("%d.00", n), []string{fmt.Sprint(n)}}, "a row")
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	check(err, "BEGIN")
	copying, err := tx.Prepare(pq.CopyInSchema("go_app", "item", "name", "tags"))
	check(err, "COPY")
	for n := range 100 {
		_, err = copying.Exec(fmt.Sprintf("by pq %d", n), pq.Array([]string{"x"}))
		check(err, "a row of COPY")
	}
	_, err = copying.Exec()
	check(err, "the end of COPY")
	check(copying.Close(), "the end of COPY")
	check(tx.Commit(), "COMMIT")
	_, err = db.Exec("INSERT INTO go_app.item (name) VALUES ($1)", "by pq 1")
	var said *pq.Error
	if !errors.As(err, &said) || said.Code.Name() != "unique_violation" {
		fail("a duplicate:", err)
	}
}

func atTheStandby(lsn string) {
	config, err := pgxpool.ParseConfig(address("STANDBY"))
	check(err, "configuration")
	config.AfterConnect = func(ctx context.Context, connection *pgx.Conn) error {
		_, err := connection.Exec(ctx, "SET freshet.read_after = '"+lsn+"'")
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	check(err, "standby")
	defer pool.Close()
	var count int
	check(pool.QueryRow(ctx, "SELECT count(*) FROM go_app.item").Scan(&count), "count")
	same(count, 5105, "at the standby")
	_, err = pool.Exec(ctx, "DELETE FROM go_app.item")
	refused(err, "25006", "a change at a standby")
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "pools" {
		pools()
		return
	}
	pool, err := pgxpool.New(ctx, address("PRIMARY")+"&pool_max_conns=8")
	check(err, "pool")
	defer pool.Close()
	if len(os.Args) == 2 && os.Args[1] == "listen" {
		notified(pool)
		return
	}
	for _, part := range []struct {
		name string
		work func(*pgxpool.Pool)
	}{{"migrated", migrated}, {"types", types}, {"items", items}} {
		fmt.Println("   pgx:", part.name)
		part.work(pool)
	}
	fmt.Println("   lib/pq")
	databaseSQL()
	fmt.Println("   GORM")
	withGORM()
	fmt.Println("   pgx: at the standby")
	var lsn string
	check(pool.QueryRow(ctx, "SHOW freshet.last_commit").Scan(&lsn), "lsn")
	atTheStandby(lsn)
	_, err = pool.Exec(ctx, "DROP SCHEMA go_app CASCADE")
	check(err, "the end")
}
