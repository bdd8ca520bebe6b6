package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// monotonic reads the clock that all processes of the machine share, in ns.
func monotonic() int64 {
	var at syscall.Timespec
	// CLOCK_MONOTONIC.
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}

// class tells the SQLSTATE that the server has sent, or what happened to the connection.
func class(err error, stage string) string {
	var said *pgconn.PgError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &said):
		return said.Code
	case stage == "get":
		return "none"
	case errors.Is(err, context.DeadlineExceeded):
		return "silent"
	}
	return "lost"
}

// poolUser writes rows through a pool until it has to stop.
type poolUser struct {
	name    string
	pool    *pgxpool.Pool
	silence time.Duration
	numbers *atomic.Int64
	stop    *atomic.Bool
	printed *sync.Mutex
}

func (w poolUser) work() {
	for !w.stop.Load() {
		number := w.numbers.Add(1)
		token, stage, session, port := "-", "get", "-", "-"
		begun := monotonic()
		var ended int64
		err := w.transaction(number, &begun, &ended, &token, &stage, &session, &port)
		if ended == 0 {
			ended = monotonic()
		}
		why := ""
		if err != nil {
			why = strings.Join(strings.Fields(err.Error()), " ")
		}
		w.printed.Lock()
		fmt.Printf("%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t%d\t%s\n", w.name, session, port, number, token, stage, class(err, stage), begun, ended, why)
		w.printed.Unlock()
		if stage == "get" && err != nil {
			// The pool says at once that no host is the primary.
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func (w poolUser) transaction(number int64, begun, ended *int64, token, stage, session, port *string) error {
	patience, cancel := context.WithTimeout(ctx, time.Second)
	connection, err := w.pool.Acquire(patience)
	cancel()
	if err != nil {
		return err
	}
	defer connection.Release()
	own := connection.Conn().PgConn()
	remote := own.Conn().RemoteAddr().String()
	*session, *port = fmt.Sprintf("%p-%d", own, own.PID()), remote[strings.LastIndex(remote, ":")+1:]
	*begun, *stage = monotonic(), "begin"
	bound := ctx
	if w.silence > 0 {
		bound, cancel = context.WithTimeout(ctx, w.silence)
		defer cancel()
	}
	tx, err := connection.Begin(bound)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	defer func() { *ended = monotonic() }()
	if err = tx.QueryRow(bound, "SELECT freshet_transaction_token()::text").Scan(token); err != nil {
		return err
	}
	*stage = "insert"
	if _, err = tx.Exec(bound, "INSERT INTO pooled VALUES ($1)", number); err != nil {
		return err
	}
	*stage = "commit"
	return tx.Commit(bound)
}

// pools writes rows until standard input ends; see pools/main.py for what it prints.
func pools() {
	var hosts []string
	for _, port := range strings.Split(os.Getenv("HOSTS"), ",") {
		hosts = append(hosts, "127.0.0.1:"+port)
	}
	seconds, err := strconv.ParseFloat(os.Getenv("SILENCE"), 64)
	check(err, "SILENCE")
	base, err := strconv.ParseInt(os.Getenv("BASE"), 10, 64)
	check(err, "BASE")
	more := "/freshet?sslmode=disable&connect_timeout=1"
	several := "postgres://freshet@" + strings.Join(hosts, ",") + more + "&target_session_attrs=read-write"
	routed := "postgres://freshet@127.0.0.1:" + os.Getenv("ROUTED") + more + "&options=-cfreshet.route%3Dprimary"
	var numbers atomic.Int64
	numbers.Store(base)
	var stop atomic.Bool
	var printed sync.Mutex
	var threads sync.WaitGroup
	for _, kind := range []struct {
		name, url string
		size      int
		silence   time.Duration
	}{{"pgx", several, 8, time.Duration(seconds * float64(time.Second))}, {"pgx, routed", routed, 2, 0}} {
		// A connection that was given up since its node was silent has its place for 15 s more.
		pool, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", kind.url, 3*kind.size))
		check(err, "pool")
		defer pool.Close()
		for range kind.size {
			threads.Go(poolUser{kind.name, pool, kind.silence, &numbers, &stop, &printed}.work)
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	check(err, "standard input")
	stop.Store(true)
	threads.Wait()
}
