// Trade rows of 6 columns from the Go client to a QWP server, for compare.py.
//
// usage: go-peer CONF rows|paced|idle ROWS UNIT TABLES [RATE]
//
// rows:   a flush after each UNIT rows, TABLES tables in turn
// paced:  RATE rows a second, flushed one by one; `id` holds the monotonic clock
// idle:   one row, then nothing until stdin ends
//
// Prints one JSON object: seconds until the last row was given to the client, until all were
// acknowledged, and CPU seconds of the process in between.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	qdb "github.com/questdb/go-questdb-client/v4"
)

const (
	t0      = 1_700_000_000_000_000_000
	symbols = 100
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-peer:", err)
		os.Exit(1)
	}
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	fail(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// CLOCK_MONOTONIC, which the server of this host compares with.
func monotonic() int64 {
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}

type load struct {
	sender  qdb.QwpSender
	symbols []string
	names   []string
}

func (l *load) row(n int, id int64) {
	price := 0.01 * float64(n)
	l.sender.Table(l.names[n%len(l.names)])
	l.sender.Symbol("symbol", l.symbols[n%symbols])
	l.sender.Symbol("side", l.symbols[n&1])
	l.sender.Float64Column("price", price)
	l.sender.Float64Column("amount", price)
	l.sender.Int64Column("id", id)
	l.sender.BoolColumn("maker", n&1 != 0)
	fail(l.sender.AtNano(context.Background(), time.Unix(0, t0+int64(n))))
}

func (l *load) rows(count, unit int) {
	for n := 0; n < count; n++ {
		l.row(n, int64(n))
		if (n+1)%unit == 0 {
			fail(l.sender.Flush(context.Background()))
		}
	}
}

func (l *load) paced(count, rate int) {
	start := time.Now()
	for n := 0; n < count; n++ {
		time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / time.Duration(rate))))
		l.row(n, monotonic())
		fail(l.sender.Flush(context.Background()))
	}
}

// All that was given is acknowledged.
func (l *load) wait() {
	last, err := l.sender.FlushAndGetSequence(context.Background())
	fail(err)
	fail(l.sender.AwaitAckedFsn(context.Background(), last))
}

func number(i int) int {
	value, err := strconv.Atoi(os.Args[i])
	fail(err)
	return value
}

func main() {
	ctx := context.Background()
	sender, err := qdb.LineSenderFromConf(ctx, os.Args[1]+"auto_flush=off;")
	fail(err)
	l := &load{sender: sender.(qdb.QwpSender)}
	for i := 0; i < symbols; i++ {
		l.symbols = append(l.symbols, fmt.Sprintf("sym-%d", i))
	}
	count, unit := number(3), number(4)
	for i := 0; i < number(5); i++ {
		l.names = append(l.names, fmt.Sprintf("trades_%d", i))
	}
	before, start := cpuSeconds(), time.Now()
	switch os.Args[2] {
	case "idle":
		l.row(0, 0)
		l.wait()
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
	case "paced":
		l.paced(count, number(6))
	default:
		l.rows(count, unit)
	}
	given := time.Since(start)
	l.wait()
	fmt.Printf("{\"rows\":%d,\"given_s\":%.6f,\"acked_s\":%.6f,\"cpu_s\":%.6f}\n", count,
		given.Seconds(), time.Since(start).Seconds(), cpuSeconds()-before)
	fail(sender.Close(ctx))
}
