package main

import (
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lib/pq"
)

// heard waits for a notification, which must be this one.
func heard(connection *pgx.Conn, channel, payload string) {
	said, err := connection.WaitForNotification(ctx)
	check(err, "a notification")
	same([]string{said.Channel, said.Payload}, []string{channel, payload}, "a notification")
}

// What is said at the primary is heard there and at the standby, in the order of commits.
func notified(pool *pgxpool.Pool) {
	var listeners []*pgx.Conn
	for _, port := range []string{"PRIMARY", "STANDBY"} {
		connection, err := pgx.Connect(ctx, address(port))
		check(err, port)
		defer connection.Close(ctx)
		_, err = connection.Exec(ctx, "LISTEN news")
		check(err, "LISTEN")
		listeners = append(listeners, connection)
	}
	_, err := pool.Exec(ctx, "SELECT pg_notify('news', $1)", "it rains")
	check(err, "pg_notify")
	// What is rolled back is not heard, and what is said twice in a transaction is heard once.
	for _, kept := range []bool{false, true} {
		tx, err := pool.Begin(ctx)
		check(err, "BEGIN")
		for n := range 6 {
			_, err = tx.Exec(ctx, fmt.Sprintf("NOTIFY news, '%v %d'", kept, n/2))
			check(err, "NOTIFY")
		}
		if kept {
			err = tx.Commit(ctx)
		} else {
			err = tx.Rollback(ctx)
		}
		check(err, "the end of a transaction")
	}
	for _, connection := range listeners {
		heard(connection, "news", "it rains")
		for n := range 3 {
			heard(connection, "news", fmt.Sprintf("true %d", n))
		}
		_, err = connection.Exec(ctx, "UNLISTEN *")
		check(err, "UNLISTEN")
	}

	for _, port := range []string{"PRIMARY", "STANDBY"} {
		listener := pq.NewListener(address(port), time.Second, time.Minute, func(event pq.ListenerEventType, err error) {
			if err != nil {
				fmt.Fprintln(os.Stderr, "lib/pq's listener:", err)
				os.Exit(1)
			}
		})
		check(listener.Listen("pq_news"), "LISTEN")
		_, err = pool.Exec(ctx, "NOTIFY pq_news, 'snow'")
		check(err, "NOTIFY")
		same((<-listener.Notify).Extra, "snow", "a notification")
		check(listener.Unlisten("pq_news"), "UNLISTEN")
		check(listener.Close(), "the listener's end")
	}
}
