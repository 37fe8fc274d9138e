package apitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/api/route"
	"github.com/ledgerd/ledgerd/node/report"
)

// Book is a book of several shards. Each shard is a Cluster, executed by the real ledger. Book
// copies the entries of the streams and the verdicts from one store to the other. Calls between
// shards are made in memory.
type Book struct {
	clusters []*Cluster
	doors    []*TestServer
	// alarmAfter is api.Options.AlarmAfter. Unless it is 0, a transaction that waits is overdue at
	// once if the genesis is older than that: the blocks' times follow the genesis.
	alarmAfter time.Duration

	mutex  sync.Mutex
	silent map[ledger.ShardID]bool
	still  map[ledger.ShardID]bool
	// obstacles are what the nodes of each shard know.
	obstacles map[ledger.ShardID][]report.Obstacle
}

// NewBook makes the book from the genesis of any of its shards, such as that of
// ledgertest.ShardedGenesis. It serves the first member of each shard with a door.
func NewBook(tb testing.TB, any *ledger.Genesis, options api.Options) *Book {
	tb.Helper()
	b := &Book{silent: make(map[ledger.ShardID]bool), still: make(map[ledger.ShardID]bool),
		obstacles:  make(map[ledger.ShardID][]report.Obstacle),
		alarmAfter: options.AlarmAfter}
	for shard := range any.Shards {
		genesis, err := any.ForShard(ledger.ShardID(shard))
		if err != nil {
			tb.Fatalf("the genesis of shard %d: %v", shard, err)
		}
		b.clusters = append(b.clusters, NewCluster(tb,
			Options{Nodes: len(genesis.Members), Genesis: *genesis, book: b}))
	}
	for _, cluster := range b.clusters {
		server, err := route.New(cluster.Node(0), b.Shards(cluster.store.Shard()), options)
		if err != nil {
			tb.Fatalf("making the API server: %v", err)
		}
		b.doors = append(b.doors, serve(tb, listen(tb), server, options))
	}
	for _, cluster := range b.clusters {
		cluster.run(tb)
	}
	return b
}

// Shard returns the cluster of a shard.
func (b *Book) Shard(shard ledger.ShardID) *Cluster { return b.clusters[shard] }

// Shards returns the book as a node of one shard sees it.
func (b *Book) Shards(own ledger.ShardID) route.Shards { return &shards{book: b, own: own} }

// Door returns the API of a shard's first node.
func (b *Book) Door(shard ledger.ShardID) *TestServer { return b.doors[shard] }

// Silence makes a shard's nodes stop answering the other shards' calls, or answer again.
func (b *Book) Silence(shard ledger.ShardID, silent bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.silent[shard] = silent
}

// Stand stops a shard's chain, or lets it continue.
func (b *Book) Stand(shard ledger.ShardID, still bool) {
	b.mutex.Lock()
	b.still[shard] = still
	b.mutex.Unlock()
	b.clusters[shard].wanted()
}

// Obstruct sets the obstacles that the nodes of all shards know. To its own nodes a shard is never
// down.
func (b *Book) Obstruct(obstacles ...report.Obstacle) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for shard := range b.clusters {
		own := ledger.ShardID(shard)
		b.obstacles[own] = slices.DeleteFunc(slices.Clone(obstacles),
			func(o report.Obstacle) bool { return !o.Full && o.Shard == own })
	}
}

func (b *Book) stands(shard ledger.ShardID) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.still[shard]
}

// moved makes the other shards check for new entries and verdicts of a shard.
func (b *Book) moved(from *Cluster) {
	if b == nil {
		return
	}
	for _, cluster := range b.clusters {
		if cluster != from {
			cluster.wanted()
		}
	}
}

// beside returns the other shards' entries and verdicts for this shard's next block, nil if there
// are none.
func (c *Cluster) beside() (*ledger.Batch, error) {
	if c.book == nil {
		return nil, nil
	}
	own := c.store.Shard()
	batch := new(ledger.Batch)
	if parent, below := c.tree().Parent(own); below {
		above := c.book.clusters[parent]
		var err error
		if batch.Carried, err = above.store.Stream(own, c.store.Carried()+1, store.MaxStreamPage,
			above.durable()); err != nil {
			return nil, fmt.Errorf("the stream of shard %d: %w", parent, err)
		}
	}
	for _, waiting := range c.store.Awaiting() {
		for _, shard := range waiting.Waits {
			other := c.book.clusters[shard]
			verdict, made, err := other.store.Verdict(waiting.ID, own, other.durable())
			if err != nil {
				return nil, fmt.Errorf("a verdict of shard %d: %w", shard, err)
			}
			if made {
				batch.Verdicts = append(batch.Verdicts, verdict)
			}
		}
	}
	coming, next := c.store.Coming()
	for i := range coming {
		other := c.book.clusters[coming[i].From]
		arrivals, err := other.store.Arrivals(context.Background(), coming[i].Number, own,
			other.durable())
		if err != nil {
			return nil, fmt.Errorf("what comes from shard %d: %w", coming[i].From, err)
		}
		for _, each := range arrivals {
			if id := each.ID(0); id == next[i] {
				batch.Bundles = append(batch.Bundles, each.Encode())
				next[i] = each.Transaction(0).Arrival.Next
			}
		}
	}
	if len(batch.Carried)+len(batch.Verdicts)+len(batch.Bundles) == 0 {
		return nil, nil
	}
	return batch, nil
}

// tree returns the tree as the shard's chain has it, of the shards that the book began with.
func (c *Cluster) tree() *ledger.ShardTree {
	tree := c.store.ShardTree()
	return tree.Before(tree.GenesisShards(), len(tree.Rehung()))
}

func (c *Cluster) durable() ledger.Height {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.heights.Durable
}

// shards is a book as a node of one shard sees it.
type shards struct {
	book *Book
	own  ledger.ShardID
}

// Own implements route.Shards.
func (s *shards) Own() ledger.ShardID { return s.own }

// Tree implements route.Shards.
func (s *shards) Tree() *ledger.ShardTree { return s.book.clusters[s.own].tree() }

// TreeChanged implements route.Shards: nothing changes.
func (s *shards) TreeChanged() <-chan struct{} { return nil }

// Client implements route.Shards.
func (s *shards) Client(shard ledger.ShardID) ledgerdv1connect.LedgerServiceClient {
	return ledgerdv1connect.NewLedgerServiceClient(&http.Client{Transport: &transport{book: s.book,
		shard: shard}}, "http://shard")
}

// Obstacles implements route.Shards.
func (s *shards) Obstacles() []report.Obstacle {
	s.book.mutex.Lock()
	defer s.book.mutex.Unlock()
	return s.book.obstacles[s.own]
}

// States implements route.Shards.
func (s *shards) States() []report.ShardState {
	states := make([]report.ShardState, len(s.book.clusters))
	for shard, cluster := range s.book.clusters {
		state := &states[shard]
		s.book.mutex.Lock()
		silent := s.book.silent[ledger.ShardID(shard)]
		s.book.mutex.Unlock()
		state.Shard, state.Streamed = ledger.ShardID(shard), make(map[ledger.ShardID]uint64)
		for i, node := range cluster.nodes {
			own := node.NodeState()
			member := report.ShardMember{Index: uint32(i), Name: own.Name, Self: i == 0 &&
				state.Shard == s.own}
			if !silent {
				member.Mode, member.OrderedHeight, member.LastHeard = own.Mode, own.Heights.Ordered,
					time.Unix(1_700_000_000, 0)
				state.Mode, state.Height, state.Durable = report.ShardOrdering, own.Heights.Ordered,
					own.Heights.Durable
			}
			state.Members = append(state.Members, member)
		}
		if silent {
			continue
		}
		state.LastHeard = time.Unix(1_700_000_000, 0)
		state.TransactionsTotal, state.AccountsTotal = cluster.store.Head().Total,
			uint64(cluster.store.AccountCount())
		state.Pending, state.Carried = uint64(cluster.store.PendingCount()), cluster.store.Carried()
		state.Waiting = cluster.waiting()
		for _, child := range cluster.tree().Children(state.Shard) {
			state.Streamed[child] = cluster.store.Streamed(child)
		}
	}
	return states
}

// waiting returns what entries of this shard's chain wait for.
func (c *Cluster) waiting() (found report.Waiting) {
	if c.book == nil {
		return found
	}
	cutoff := ledger.Milliseconds(0)
	if c.book.alarmAfter > 0 {
		cutoff = ledger.Milliseconds(time.Now().Add(-c.book.alarmAfter).UnixMilli())
	}
	waitOf := func(wait *store.Wait) report.Wait {
		return report.Wait{Shard: wait.Shard, Count: wait.Count, Overdue: wait.Old,
			Since: time.UnixMilli(int64(wait.Since))}
	}
	by, old, err := c.store.Waiting(cutoff)
	if err != nil {
		return found
	}
	found.Overdue = old
	for i := range by {
		found.Verdicts = append(found.Verdicts, waitOf(&by[i]))
		if since := found.Verdicts[i].Since; i == 0 || since.Before(found.Since) {
			found.Since = since
		}
	}
	for _, child := range c.tree().Children(c.store.Shard()) {
		taken := c.book.clusters[child].store.Carried()
		if wait, err := c.store.Untaken(child, taken, cutoff); err == nil && wait.Old > 0 {
			found.Streams = append(found.Streams, waitOf(&wait))
		}
	}
	return found
}

// transport makes calls to a shard's first node in memory.
type transport struct {
	book  *Book
	shard ledger.ShardID
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	t.book.mutex.Lock()
	silent := t.book.silent[t.shard]
	t.book.mutex.Unlock()
	if silent {
		return nil, connect.NewError(connect.CodeUnavailable,
			fmt.Errorf("no node of shard %d answers", t.shard))
	}
	answer := &answer{header: make(http.Header), status: http.StatusOK}
	t.book.doors[t.shard].Server.Forwarded().ServeHTTP(answer,
		request.WithContext(bare{request.Context()}))
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: answer.status, Header: answer.header, Body: io.NopCloser(&answer.body),
		Request: request, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// bare is a context without its values, which no call takes to another node.
type bare struct{ context.Context }

// Value implements context.Context.
func (bare) Value(any) any { return nil }

// answer records what a handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(data []byte) (int, error) { return a.body.Write(data) }
