package calls

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait for an expected event.
const patience = 30 * time.Second

// asker is in shard 0; the others are the members of shard 1.
const asker = rdmanet.PeerID("asker")

func find(peer rdmanet.PeerID) (ledger.ShardID, bool) {
	switch {
	case peer == asker:
		return 0, true
	case strings.HasPrefix(string(peer), "member-"):
		return 1, true
	}
	return 0, false
}

func candidates(peers ...rdmanet.PeerID) func(ledger.ShardID) []rdmanet.PeerID {
	return func(shard ledger.ShardID) []rdmanet.PeerID {
		if shard != 1 {
			return nil
		}
		return peers
	}
}

func closeHost(t testing.TB, host rdmanet.Host) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		// Do not wait for frames in the windows of dead peers.
		_ = host.Close(ctx)
	})
}

func memoryHost(t testing.TB, network *memory.Network, id rdmanet.PeerID) rdmanet.Host {
	t.Helper()
	host, err := network.Host(id)
	if err != nil {
		t.Fatal(err)
	}
	closeHost(t, host)
	return host
}

// start makes a Calls on a host; change may be nil.
func start(t testing.TB, host rdmanet.Host, serve http.Handler, change func(*Config)) *Calls {
	t.Helper()
	config := Config{Host: host, Find: find, Candidates: candidates("member-1", "member-2"),
		Serve: serve, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&config)
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// named is a handler that answers with a name and the request.
func named(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-From", r.RemoteAddr)
		_, _ = io.WriteString(w, name+" "+r.Method+" "+r.RequestURI+" ")
		_, _ = io.Copy(w, r.Body)
	})
}

// waiting is a handler that waits for its context's end, and signals its begin and end.
func waiting(began, ended chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	})
}

// mute is a member that takes frames and never answers: its process hangs.
func mute(t testing.TB, host rdmanet.Host) {
	t.Helper()
	if err := host.Receive(LaneName, func(rdmanet.Peer, [][]byte) {}); err != nil {
		t.Fatal(err)
	}
}

// post makes a call and returns the answer's status and body.
func post(ctx context.Context, c *Calls, body string) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, URL(1)+"/path?q=1",
		strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	response, err := c.Transport(1).RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// within returns a context that ends with the test, or after a time limit.
func within(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func receive(t testing.TB, what string, from <-chan struct{}) {
	t.Helper()
	select {
	case <-from:
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
	}
}

// await waits for a condition.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// overP2P makes hosts that know each other.
func overP2P(t testing.TB, number int) []*p2p.Host {
	t.Helper()
	hosts, members := make([]*p2p.Host, number), make(map[rdmanet.PeerID]string)
	for i := range hosts {
		key, err := p2p.NewIdentity(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if hosts[i], err = p2p.New(p2p.Options{PrivateKey: key,
			Listen: "127.0.0.1:0"}); err != nil {
			t.Fatal(err)
		}
		closeHost(t, hosts[i])
		members[hosts[i].ID()] = hosts[i].Address()
	}
	for _, host := range hosts {
		if err := host.SetMembers(members); err != nil {
			t.Fatal(err)
		}
	}
	return hosts
}
