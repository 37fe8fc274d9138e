package webhook

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/client/sink/sinktest"
)

var secret = []byte("0123456789abcdef")

func TestMain(m *testing.M) {
	sinktest.Main(m, func(argument string) (sink.Target, error) {
		url, folder, _ := strings.Cut(argument, " ")
		return New(Config{URL: url, Secret: secret, Folder: folder, Sink: "books",
			Backoff: time.Millisecond})
	}, nil)
}

// receiver is a server that does as the documentation says: it checks the signature and drops what
// is not after the last position that it has.
type receiver struct {
	t     *testing.T
	mutex sync.Mutex
	last  *sink.Mark
	kept  []sinktest.Seen
	drops int
	// before is called with the number of each request, and may answer it.
	before func(count int, to http.ResponseWriter, request *http.Request) (answered bool)
	// after is called once a request was taken, and may answer it.
	after func(count int, to http.ResponseWriter) (answered bool)
	count atomic.Int32
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(to http.ResponseWriter, request *http.Request) {
	count := int(r.count.Add(1))
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the sender was killed
	}
	if r.before != nil && r.before(count, to, request) {
		return
	}
	mark, err := Verify(secret, request.Header, body, time.Now(), time.Minute)
	if err != nil {
		r.t.Errorf("%v: %v", err, request.Header)
		to.WriteHeader(http.StatusForbidden)
		return
	}
	r.mutex.Lock()
	if r.last == nil || mark.After(r.last.Position) {
		r.last = &mark
		r.kept = append(r.kept, sinktest.Seen{Position: mark.Position.String(),
			Line: string(body)})
	} else {
		r.drops++
		if mark != *r.last {
			r.t.Errorf("%s came again after %s", mark.Position, r.last.Position)
		}
	}
	r.mutex.Unlock()
	if r.after != nil && r.after(count, to) {
		return
	}
	to.WriteHeader(http.StatusNoContent)
}

func (r *receiver) seen() []sinktest.Seen {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Clone(r.kept)
}

func serve(t *testing.T, r *receiver) string {
	t.Helper()
	r.t = t
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return server.URL
}

func open(t *testing.T, config Config) *target {
	t.Helper()
	if config.Secret == nil {
		config.Secret = secret
	}
	if config.Folder == "" {
		config.Folder = filepath.Join(t.TempDir(), "positions")
	}
	config.Sink, config.Backoff = "books", time.Millisecond
	made, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	return made.(*target)
}

// A receiver that fails, is slow, and takes requests without an answer gets each entry at least
// once, in order, and the last one only twice. A crash between request and position is among it.
func TestOnce(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := &receiver{
		before: func(count int, to http.ResponseWriter, _ *http.Request) bool {
			switch {
			case count%7 == 0:
				to.Header().Set("Retry-After", "0")
				to.WriteHeader(http.StatusServiceUnavailable)
			case count%31 == 0: // slower than the time-out
				<-release
			default:
				return false
			}
			return true
		},
		after: func(count int, _ http.ResponseWriter) bool {
			if count%11 == 0 {
				panic(http.ErrAbortHandler) // it has taken the entry, and the answer is lost
			}
			return false
		}}
	url := serve(t, r)
	t.Cleanup(func() { close(release) })
	chain := sinktest.NewLedger("test", 20, 12)
	made := open(t, Config{URL: url, Timeout: 200 * time.Millisecond, Tries: 2})
	crashes := 0
	made.between = func() error {
		if crashes++; crashes%9 == 0 {
			return errors.New("a planted crash")
		}
		return nil
	}
	if err := sink.Run(t.Context(), chain, made, sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	if err := sinktest.Compare(r.seen(), chain.Want(t)); err != nil {
		t.Fatal(err)
	}
	if r.drops < 10 {
		t.Fatalf("only %d doubles", r.drops)
	}
}

// A planted bug, a position that is kept before the receiver has the entry, loses entries.
func TestPositionFirstLoses(t *testing.T) {
	t.Parallel()
	r := &receiver{}
	url := serve(t, r)
	chain := sinktest.NewLedger("test", 3, 4)
	made := open(t, Config{URL: url})
	genesis, err := chain.ShardGenesis(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := made.Open(t.Context(), sink.Chain{Genesis: genesis.Hash()})
	if err != nil {
		t.Fatal(err)
	}
	if err := opened.(*lane).positions.write(&sink.Mark{Genesis: genesis.Hash(),
		Block: chain.Blocks[1].Hash, Position: sink.Position{Height: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sink.Run(t.Context(), chain, made, sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	if err := sinktest.Compare(r.seen(), chain.Want(t)); err == nil ||
		!strings.Contains(err.Error(), "0/1/0 did not arrive") {
		t.Fatal(err)
	}
}

func TestKilled(t *testing.T) {
	t.Parallel()
	r := &receiver{}
	url := serve(t, r)
	sinktest.Killed(t, url+" "+t.TempDir(), r.seen)
}

// A signature is good for its headers, its body and its time only.
func TestVerify(t *testing.T) {
	t.Parallel()
	var header http.Header
	var body []byte
	r := &receiver{before: func(_ int, _ http.ResponseWriter, request *http.Request) bool {
		header = request.Header.Clone()
		return false
	}}
	url := serve(t, r)
	chain := sinktest.NewLedger("test", 1, 0)
	if err := sink.Run(t.Context(), chain, open(t, Config{URL: url}),
		sinktest.Options()); err != nil {
		t.Fatal(err)
	}
	body = []byte(r.seen()[0].Line)
	if _, err := Verify(secret, header, body, time.Now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]func() error{
		"another secret": func() error {
			_, err := Verify([]byte("0123456789abcdeg"), header, body, time.Now(), time.Minute)
			return err
		},
		"another body": func() error {
			_, err := Verify(secret, header, append(body, ' '), time.Now(), time.Minute)
			return err
		},
		"too old": func() error {
			_, err := Verify(secret, header, body, time.Now().Add(time.Hour), time.Minute)
			return err
		},
	} {
		if err := wrong(); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range append(slices.Clone(signed), HeaderSignature) {
		changed := header.Clone()
		changed.Set(name, header.Get(name)+"0")
		if _, err := Verify(secret, changed, body, time.Now(), time.Minute); !errors.Is(err,
			ErrSignature) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

// A redirect, a damaged file and a second process are errors that say what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := &receiver{before: func(_ int, to http.ResponseWriter, _ *http.Request) bool {
		to.Header().Set("Location", "https://elsewhere.example")
		to.WriteHeader(http.StatusTemporaryRedirect)
		return true
	}}
	chain := sinktest.NewLedger("test", 2, 2)
	made := open(t, Config{URL: serve(t, r)})
	refused := func(words string) {
		t.Helper()
		if err := sink.Run(t.Context(), chain, made, sinktest.Options()); !errors.Is(err,
			sink.ErrRefused) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	refused("elsewhere.example")
	first, err := made.Open(t.Context(), sink.Chain{})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.(*lane).positions.write(&sink.Mark{Genesis: chain.Blocks[0].Hash,
		Block: chain.Blocks[0].Hash}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	made.config.Sink = "others"
	refused(`the sink "books"`)
	made.config.Sink = "books"
	refused("another chain")
	if err := os.WriteFile(filepath.Join(made.config.Folder, "shard-0.json"), []byte("{"),
		0o600); err != nil {
		t.Fatal(err)
	}
	refused("damaged")
	if first, err = made.Open(t.Context(), sink.Chain{}); err != nil {
		t.Fatal(err)
	}
	if _, err := made.Open(t.Context(), sink.Chain{}); err == nil ||
		!strings.Contains(err.Error(), "another process") {
		t.Error(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
}

// Errors do not have the URL's query, which may have a secret.
func TestQueryIsNotShown(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&receiver{t: t})
	url := server.URL
	server.Close()
	options := sinktest.Options()
	options.GiveUp = 1
	err := sink.Run(t.Context(), sinktest.NewLedger("test", 1, 0), open(t, Config{Tries: 1,
		URL: url + "/x?key=hunter2"}), options)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, config := range []Config{
		{URL: "books.example", Secret: secret, Folder: "x"},
		{URL: "http://books.example", Secret: secret, Folder: "x"},
		{URL: "https://u:hunter2@books.example", Secret: secret, Folder: "x"},
		{URL: "https://books.example", Secret: secret[1:], Folder: "x"},
		{URL: "https://books.example", Secret: secret},
		{URL: "https://books.example", Secret: secret, Folder: "x", Tries: -1},
	} {
		if _, err := New(config); err == nil || strings.Contains(err.Error(), "hunter2") ||
			strings.Contains(err.Error(), string(secret[1:])) {
			t.Errorf("%+v: %v", config, err)
		}
	}
	for _, config := range []Config{
		{URL: "http://127.0.0.1:1/x", Secret: secret, Folder: "x"},
		{URL: "http://books.example", Secret: secret, Folder: "x", AllowHTTP: true},
	} {
		if _, err := New(config); err != nil {
			t.Errorf("%+v: %v", config, err)
		}
	}
}

// Nothing is sent while the next position could not be kept, as on a full disk. Otherwise each try
// would send an entry again.
func TestNothingIsSentWithoutRoomForThePosition(t *testing.T) {
	t.Parallel()
	r := &receiver{}
	config := Config{URL: serve(t, r), Secret: secret, Folder: t.TempDir(), Sink: "books"}
	next := filepath.Join(config.Folder, "shard-0.json.next")
	if err := os.Mkdir(next, 0o700); err != nil { // no file can be written there
		t.Fatal(err)
	}
	made := open(t, config)
	if lane, err := made.Open(t.Context(), sink.Chain{}); err == nil {
		t.Error("it opens", lane.Close())
	}
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	lane, err := made.Open(t.Context(), sink.Chain{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lane.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(config.Folder); err != nil || len(left) != 1 || len(r.seen()) > 0 {
		t.Errorf("%v, %v, sent %v", left, err, r.seen())
	}
}
