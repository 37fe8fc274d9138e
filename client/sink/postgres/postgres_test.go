package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/client/sink/sinktest"
)

// server is the PostgreSQL of all tests of the package, in a temporary folder.
type server struct {
	folder string
	url    string
	failed error
	stop   func()
}

var running server

// start starts the server once.
var start = sync.OnceFunc(func() { running.failed = running.start() })

func TestMain(m *testing.M) {
	sinktest.Main(m, func(url string) (sink.Target, error) {
		return New(Config{URL: url, Schema: "killed", Sink: "books"})
	}, func() {
		if running.stop != nil {
			running.stop()
		}
	})
}

// binary returns the path of a program of PostgreSQL, which Debian keeps off the PATH.
func binary(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", errors.Join(exec.ErrNotFound, err)
	}
	return found[len(found)-1], nil
}

// connect returns the address of a new database.
func connect(t *testing.T) string {
	t.Helper()
	if _, err := binary("initdb"); err != nil {
		sinktest.Missing(t, "PostgreSQL",
			"Debian: apt-get install --no-install-recommends postgresql")
	}
	if start(); running.failed != nil {
		t.Fatal(running.failed)
	}
	name := "test_" + strings.ToLower(strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()))
	admin := query(t, running.url)
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(running.url, "dbname=postgres", "dbname="+name, 1)
}

// query returns a connection of the test's own.
func query(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close(context.Background()) })
	return connection
}

// start makes a cluster and starts its server, which listens on a socket in the folder only. It
// refuses to run as root, so root runs it as nobody.
func (s *server) start() (err error) {
	if s.folder, err = os.MkdirTemp("", "ledgerd-pg"); err != nil {
		return err
	}
	s.stop = func() { _ = os.RemoveAll(s.folder) }
	var as *syscall.SysProcAttr
	if os.Getuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return err
		}
		uid, err := strconv.Atoi(nobody.Uid)
		if err != nil {
			return err
		}
		gid, err := strconv.Atoi(nobody.Gid)
		if err != nil {
			return err
		}
		if err := os.Chown(s.folder, uid, gid); err != nil {
			return err
		}
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid),
			Gid: uint32(gid)}}
	}
	command := func(name string, arguments ...string) (*exec.Cmd, *bytes.Buffer, error) {
		path, err := binary(name)
		if err != nil {
			return nil, nil, err
		}
		made, said := exec.Command(path, arguments...), new(bytes.Buffer)
		made.Dir, made.Stdout, made.Stderr, made.SysProcAttr = s.folder, said, said, as
		return made, said, nil
	}
	data := filepath.Join(s.folder, "data")
	made, said, err := command("initdb", "--no-sync", "--auth=trust", "--username=ledgerd",
		"--encoding=UTF8", "--locale=C", "--pgdata="+data)
	if err != nil {
		return err
	}
	if err := made.Run(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, said)
	}
	postgres, said, err := command("postgres", "-D", data, "-F", "-c", "listen_addresses=", "-c",
		"unix_socket_directories="+s.folder, "-c", "shared_buffers=16MB", "-c",
		"max_connections=40")
	if err != nil {
		return err
	}
	if err := postgres.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- postgres.Wait() }()
	s.stop = func() {
		_ = postgres.Process.Signal(os.Interrupt) // a fast shutdown
		<-ended
		_ = os.RemoveAll(s.folder)
	}
	s.url = "host=" + s.folder + " user=ledgerd dbname=postgres"
	for deadline := time.Now().Add(30 * time.Second); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		connection, err := pgx.Connect(ctx, s.url)
		if err == nil {
			err = connection.Close(ctx)
			cancel()
			return err
		}
		cancel()
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("postgres ended: %w: %s", err, said)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// rows returns the entries of a stream, in their order; none before there is a table.
func rows(t *testing.T, connection *pgx.Conn, schema string) (seen []sinktest.Seen) {
	t.Helper()
	var there bool
	if err := connection.QueryRow(t.Context(), "SELECT to_regclass($1) IS NOT NULL",
		schema+".posting").Scan(&there); err != nil || !there {
		return nil
	}
	found, err := connection.Query(t.Context(), "SELECT shard || '/' || height || '/' || index, "+
		"line::text FROM "+schema+".entry ORDER BY shard, height, index")
	if err != nil {
		t.Fatal(err)
	}
	seen, err = pgx.CollectRows(found, pgx.RowToStructByPos[sinktest.Seen])
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func open(t *testing.T, config Config) *target {
	t.Helper()
	made, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return made.(*target)
}

// Each entry is there once, with its postings, wherever a lane breaks off, and when the server ends
// the connection between the rows and the position.
func TestOnce(t *testing.T) {
	t.Parallel()
	url := connect(t)
	connection := query(t, url)
	chain := sinktest.NewLedger("test", 20, 12)
	made := open(t, Config{URL: url, Sink: "books"})
	var writes atomic.Int32
	made.between = func(lane *pgx.Conn) {
		if writes.Add(1)%5 != 0 {
			return
		}
		killed, err := pgx.Connect(context.Background(), url)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := killed.Exec(context.Background(), "SELECT pg_terminate_backend($1, 5000)",
			int32(lane.PgConn().PID())); err != nil {
			t.Error(err)
		}
		if err := killed.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if err := sink.Run(t.Context(), chain, sinktest.Break(made, 1),
		sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	if err := sinktest.Compare(rows(t, connection, "ledgerd"), chain.Want(t)); err != nil {
		t.Fatal(err)
	}
	var count int
	var total, largest string
	if err := connection.QueryRow(t.Context(), "SELECT count(*), sum(amount)::text, "+
		"max(amount)::text FROM ledgerd.posting").Scan(&count, &total, &largest); err != nil ||
		count != 2*12*19 || total != "0" || largest != "12" {
		t.Fatalf("%d postings, the sum is %s, the largest amount %s: %v", count, total, largest,
			err)
	}
	if writes.Load() < 20 {
		t.Fatalf("only %d writes", writes.Load())
	}
}

// A planted bug, a position that is written in another transaction than the rows, makes doubles,
// and the primary keys refuse them.
func TestDoublesAreRefused(t *testing.T) {
	t.Parallel()
	url := connect(t)
	connection := query(t, url)
	chain := sinktest.NewLedger("test", 6, 4)
	made := open(t, Config{URL: url, Sink: "books"})
	if err := sink.Run(t.Context(), chain, made, sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Exec(t.Context(), "UPDATE ledgerd.position SET height = 3, index = 1, "+
		"block = $1", chain.Blocks[2].Hash.String()); err != nil {
		t.Fatal(err)
	}
	err := sink.Run(t.Context(), chain, made, sinktest.Options())
	if !errors.Is(err, sink.ErrRefused) || !strings.Contains(err.Error(), "did not write") {
		t.Fatal(err)
	}
	if err := sinktest.Compare(rows(t, connection, "ledgerd"), chain.Want(t)); err != nil {
		t.Fatal(err)
	}
}

// Two sinks of one name do not write beside each other, with the lock and without it.
func TestTwoSinks(t *testing.T) {
	t.Parallel()
	url := connect(t)
	made := open(t, Config{URL: url, Sink: "books"})
	chain := sinktest.NewLedger("test", 3, 2)
	genesis, err := chain.ShardGenesis(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	place := sink.Chain{Name: "test", Genesis: genesis.Hash()}
	first, err := made.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := made.Open(t.Context(), place); err == nil ||
		!strings.Contains(err.Error(), "another process") {
		t.Fatal(err)
	}
	other := open(t, Config{URL: url, Sink: "other"})
	second, err := other.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	batch := &sink.Batch{Chain: place, Through: sink.Mark{Genesis: place.Genesis,
		Position: sink.Position{Height: 1}}}
	if err := first.Write(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if err := first.Write(t.Context(), batch); err == nil ||
		!strings.Contains(err.Error(), "not where it was") {
		t.Fatal(err)
	}
	later := &sink.Batch{Chain: place, After: &sink.Mark{Genesis: place.Genesis,
		Position: sink.Position{Height: 1, Index: 1}}, Through: sink.Mark{Genesis: place.Genesis,
		Position: sink.Position{Height: 2}}}
	if err := first.Write(t.Context(), later); err == nil {
		t.Fatal("a batch that does not begin at the position was taken")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestKilled(t *testing.T) {
	t.Parallel()
	url := connect(t)
	connection := query(t, url)
	sinktest.Killed(t, url, func() []sinktest.Seen { return rows(t, connection, "killed") })
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, config := range []Config{{URL: "postgres://%"}, {Schema: "Big"}, {Schema: "a;b"}} {
		if _, err := New(config); err == nil {
			t.Errorf("%+v is taken", config)
		}
	}
	if _, err := New(Config{URL: "postgres://u:hunter2@h:x/"}); err == nil ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error is %v", err)
	}
}
