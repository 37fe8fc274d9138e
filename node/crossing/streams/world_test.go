package streams

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

var _ Chain = (*store.Store)(nil)

var errTakenBack = errors.New("the child has what the parent took back")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	parentShard ledger.ShardID = 0
	childShard  ledger.ShardID = 1
)

// world is two shards, the second one the child of the first, with ideal chains: entries that the
// child's members propose are ordered at once, and each member executes them in its own time.
type world struct {
	t       *testing.T
	network *memory.Network
	listen  func(rdmanet.PeerID) (rdmanet.RegionHost, error)
	kill    func(rdmanet.PeerID)
	fault   fault
	vouched bool
	// liars write something else than the parent's entries.
	liars map[rdmanet.PeerID]bool

	mu   sync.Mutex
	tree *ledger.ShardTree
	// childTree is the tree as the child's members know it, if it is another one.
	childTree *ledger.ShardTree
	nodes     map[rdmanet.PeerID]*testNode
	present   [2][]Member // by shard
	changed   chan struct{}
	// stream is the parent's: entry n in block n. Members have executed up to appended, and have on
	// disk up to durable.
	stream            [][]byte
	appended, durable ledger.Height
	// taken is the child's: block n carried the stream up to its item.
	taken        []uint64
	position     uint64
	childDurable ledger.Height
	held         bool // the child's chain does not become durable
	repeated     int
	// batches are the last ones of the child's running members. With vouched, an entry is taken if
	// more than half of the members vouch for it in these.
	batches map[rdmanet.PeerID]batch
	refuses bool // the child's chain takes nothing
	room    int  // of a batch, in bytes

	patience time.Duration
	wrong    error
}

// batch is what a member of the child puts into a round.
type batch struct {
	carried []ledger.Carried
	vouched []ledger.Vouched
}

// testNode is one member; it is dead if streams is nil.
type testNode struct {
	world   *world
	id      rdmanet.PeerID
	shard   ledger.ShardID
	host    rdmanet.RegionHost
	streams *Streams
	ready   chan struct{}
	stopped chan struct{}
	done    chan struct{}
	log     *lines
	made    atomic.Int32 // batches
	// began is the first entry in its chain.
	began uint64
}

func newWorld(t *testing.T, parents, children int) *world {
	w := &world{t: t, network: memory.NewNetwork(memory.Options{MendTimeout: 2 * time.Second}),
		nodes: map[rdmanet.PeerID]*testNode{}, changed: make(chan struct{}),
		liars: map[rdmanet.PeerID]bool{}, batches: map[rdmanet.PeerID]batch{},
		room: 4 << 20, patience: 50 * time.Millisecond}
	w.listen = func(id rdmanet.PeerID) (rdmanet.RegionHost, error) { return w.network.Host(id) }
	w.kill = w.network.Kill
	w.tree = (&ledger.Genesis{Tree: []ledger.ShardID{0, 0},
		Shards: make([][]ledger.Member, 2)}).ShardTree()
	for shard, count := range []int{parents, children} {
		for i := range count {
			id := rdmanet.PeerID(fmt.Sprintf("%d/%d", shard, i))
			w.present[shard] = append(w.present[shard],
				Member{Index: ledger.MemberIndex(i), Peer: id})
		}
	}
	t.Cleanup(func() {
		for _, id := range w.all() {
			w.stop(id)
		}
	})
	return w
}

func (w *world) all() (ids []rdmanet.PeerID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, members := range w.present {
		for _, member := range members {
			ids = append(ids, member.Peer)
		}
	}
	for id := range w.nodes {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *world) startAll() {
	for _, id := range w.all() {
		w.start(id, 1)
	}
}

// directory is a node's view of the world.
type directory struct {
	*world
	own ledger.ShardID
}

func (d directory) Own() ledger.ShardID { return d.own }
func (d directory) Tree() *ledger.ShardTree {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.own == childShard && d.childTree != nil {
		return d.childTree
	}
	return d.tree
}
func (d directory) Members(shard ledger.ShardID) []Member {
	d.mu.Lock()
	defer d.mu.Unlock()
	if int(shard) >= len(d.present) {
		return nil
	}
	return d.present[shard]
}

func (d directory) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// setTree changes the tree.
func (w *world) setTree(tree *ledger.ShardTree) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tree = tree
	close(w.changed)
	w.changed = make(chan struct{})
}

// setMembers changes the members of a shard.
func (w *world) setMembers(shard ledger.ShardID, members []Member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.present[shard] = members
	close(w.changed)
	w.changed = make(chan struct{})
}

// start starts a member, in a new life if it lived before. Its chain has the entries from began on.
func (w *world) start(id rdmanet.PeerID, began uint64) *testNode {
	w.t.Helper()
	host, err := w.listen(id)
	if err != nil {
		w.t.Fatal(err)
	}
	n := &testNode{world: w, id: id, host: host, ready: make(chan struct{}, 1),
		stopped: make(chan struct{}), done: make(chan struct{}), began: began, log: &lines{}}
	w.mu.Lock()
	for shard, members := range w.present {
		if slices.ContainsFunc(members, func(m Member) bool { return m.Peer == id }) {
			n.shard = ledger.ShardID(shard)
		}
	}
	w.mu.Unlock()
	c, err := wire.NewDatagrams(host, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	n.streams, err = New(Config{
		Directory: directory{w, n.shard}, Host: host, Control: c, Chain: func() Chain {
			return n
		}, Durable: n.durableHeight,
		Ready:    func() { wake(n.ready) },
		Patience: w.patience, AskEvery: 50 * time.Millisecond,
		RepeatAfter: 50 * time.Millisecond, RingSize: 3 << 20, fault: w.fault,
		Vouched: w.vouched, Logger: slog.New(slog.NewTextHandler(n.log, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	host.Watch(n.streams.Event)
	w.mu.Lock()
	w.nodes[id] = n
	w.mu.Unlock()
	go n.propose()
	return n
}

// stop ends a member, if it is running.
func (w *world) stop(id rdmanet.PeerID) {
	w.t.Helper()
	w.mu.Lock()
	n := w.nodes[id]
	delete(w.nodes, id)
	delete(w.batches, id)
	w.mu.Unlock()
	if n == nil {
		return
	}
	close(n.stopped)
	<-n.done
	// The memory that peers write goes with the host, so its readers must end first. The other
	// members must not notice that.
	for _, other := range w.all() {
		w.network.Cut(id, other)
	}
	if err := n.streams.Close(); err != nil {
		w.t.Errorf("closing %s: %v", id, err)
	}
	w.kill(id)
	for _, other := range w.all() {
		w.network.Mend(id, other)
	}
}

func wake(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// Stream implements Chain.
func (n *testNode) Stream(child ledger.ShardID, from uint64, limit int,
	upTo ledger.Height) (entries []ledger.Carried, _ error) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if child != childShard || n.shard != parentShard {
		return nil, errors.New("no such stream")
	}
	for number := from; number <= uint64(min(upTo, w.appended)) && len(entries) < limit; number++ {
		if number < n.began {
			return nil, store.ErrAbsent
		}
		bundle := w.stream[number-1]
		if w.liars[n.id] {
			bundle = append([]byte("forged"), bundle[6:]...)
		}
		entries = append(entries, ledger.Carried{Number: number, Bundle: bundle})
	}
	return entries, nil
}

// FirstUntaken implements Chain.
func (n *testNode) FirstUntaken(child ledger.ShardID, taken uint64) (first, last uint64, any bool) {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	last = uint64(n.world.appended)
	return taken + 1, last, child == childShard && n.shard == parentShard && taken < last
}

// Carried implements Chain.
func (n *testNode) Carried() uint64 {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	return n.world.position
}

// AppendedHeight implements Chain.
func (n *testNode) AppendedHeight() ledger.Height {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	if n.shard == parentShard {
		return n.world.appended
	}
	return ledger.Height(len(n.world.taken))
}

func (n *testNode) durableHeight() ledger.Height {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	if n.shard == parentShard {
		return n.world.durable
	}
	return n.world.childDurable
}

// propose puts the member's entries into the child's chain.
func (n *testNode) propose() {
	defer close(n.done)
	for {
		select {
		case <-n.stopped:
			return
		case <-n.ready:
		}
		n.made.Add(1)
		n.world.order(n.id, n.batch(n.world.room))
	}
}

// batch returns the member's next batch.
func (n *testNode) batch(room int) (made batch) {
	n.streams.Propose(room, func(entries []ledger.Carried, vouched []ledger.Vouched) {
		for _, entry := range entries {
			made.carried = append(made.carried, ledger.Carried{Number: entry.Number,
				Bundle: slices.Clone(entry.Bundle)})
		}
		made.vouched = slices.Clone(vouched)
	})
	return made
}

// order takes a batch into the child's chain.
func (w *world) order(from rdmanet.PeerID, made batch) {
	w.mu.Lock()
	for _, entry := range w.taking(from, made) {
		if entry.Number != w.position+1 {
			w.repeated++
			continue
		}
		w.position++
		if w.wrong == nil && (int(entry.Number) > len(w.stream) ||
			!bytes.Equal(entry.Bundle, w.stream[entry.Number-1])) {
			w.wrong = fmt.Errorf("entry %d is not the parent's", entry.Number)
		}
	}
	w.taken = append(w.taken, w.position)
	height, position := ledger.Height(len(w.taken)), w.position
	if !w.held {
		w.childDurable = height
	}
	members := w.members(childShard)
	for _, n := range members {
		n.streams.Applied(height, position)
		n.streams.DurableTo(w.childDurable)
	}
	w.mu.Unlock()
}

// taking returns the entries that the child's chain takes, now that a member made another batch.
// The caller holds the lock.
func (w *world) taking(from rdmanet.PeerID, made batch) (entries []ledger.Carried) {
	if !w.vouched {
		if len(made.vouched) > 0 && w.wrong == nil {
			w.wrong = errors.New("a book without vouchers has one")
		}
		return made.carried
	}
	if err := w.judgeBatch(made); err != nil && w.wrong == nil {
		w.wrong = fmt.Errorf("%s: %w", from, err)
	}
	if w.nodes[from] != nil {
		w.batches[from] = made
	}
	for next := w.position + 1; !w.refuses; next++ {
		var carried *ledger.Carried
		for _, other := range w.batches {
			for i := range other.carried {
				if entry := &other.carried[i]; entry.Number == next &&
					w.majority(next, ledger.CarriedHash(entry.Bundle)) {
					carried = entry
				}
			}
		}
		if carried == nil {
			break
		}
		entries = append(entries, *carried)
	}
	return entries
}

// judgeBatch checks that a batch vouches for entries of the parent only, in a row, and for all that
// it carries, and keeps to its room.
func (w *world) judgeBatch(made batch) error {
	for i, v := range made.vouched {
		if i > 0 && v.Number != made.vouched[i-1].Number+1 {
			return fmt.Errorf("vouches for %d after %d", v.Number, made.vouched[i-1].Number)
		}
		if v.Number > uint64(len(w.stream)) ||
			v.Hash != ledger.CarriedHash(w.stream[v.Number-1]) {
			return fmt.Errorf("vouches for a forged entry %d", v.Number)
		}
	}
	size := len(made.vouched) * ledger.VouchedSize
	for _, entry := range made.carried {
		if size += len(entry.Bundle); size > w.room {
			return fmt.Errorf("has %d bytes, want at most %d", size, w.room)
		}
		if !slices.Contains(made.vouched, ledger.Vouched{Number: entry.Number,
			Hash: ledger.CarriedHash(entry.Bundle)}) {
			return fmt.Errorf("carries entry %d, for which it does not vouch", entry.Number)
		}
	}
	return nil
}

// majority reports whether more than half of the child's members vouch for an entry.
func (w *world) majority(number uint64, hash ledger.Hash) bool {
	count := 0
	for _, member := range w.present[childShard] {
		if slices.Contains(w.batches[member.Peer].vouched, ledger.Vouched{Number: number,
			Hash: hash}) {
			count++
		}
	}
	return 2*count > len(w.present[childShard])
}

// lines counts the lines of a log that name a member that lies.
type lines struct{ liars atomic.Int32 }

func (l *lines) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("writes other entries")) {
		l.liars.Add(1)
	}
	return len(line), nil
}

// bothWays runs a test with and without vouchers.
func bothWays(t *testing.T, test func(t *testing.T, vouched bool)) {
	t.Parallel()
	for name, vouched := range map[string]bool{"one suffices": false, "vouched": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, vouched)
		})
	}
}

// members returns the running members. The caller holds the lock.
func (w *world) members(shard ledger.ShardID) (members []*testNode) {
	for _, n := range w.nodes {
		if n.shard == shard {
			members = append(members, n)
		}
	}
	return members
}

// payload returns the payload of an entry.
func payload(number uint64, size int) []byte {
	b := make([]byte, max(8, size))
	for i := range b {
		b[i] = byte(number + uint64(i))
	}
	binary.LittleEndian.PutUint64(b, number)
	return b
}

// extend makes the parent order count more entries.
func (w *world) extend(count, size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range count {
		w.stream = append(w.stream, payload(uint64(len(w.stream)+1), size))
	}
	w.appended = ledger.Height(len(w.stream))
	w.durable = w.appended
	w.tellParent()
}

// tellParent reports the heights to the parent's members. The caller holds the lock.
func (w *world) tellParent() {
	for _, n := range w.members(parentShard) {
		n.streams.Applied(w.appended, 0)
		n.streams.DurableTo(w.durable)
	}
}

// arrived reports whether the child has all entries, and returns an error if it has a wrong one.
func (w *world) arrived() (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.position == uint64(len(w.stream)), w.wrong
}

// arrive waits until the child has all entries.
func (w *world) arrive(patience time.Duration) error {
	return eventually(patience, w.arrived, func() string {
		w.mu.Lock()
		nodes := []*testNode{}
		for _, n := range w.nodes {
			nodes = append(nodes, n)
		}
		text := fmt.Sprintf("the child has %d of %d entries", w.position, len(w.stream))
		w.mu.Unlock()
		for _, n := range nodes {
			status := n.streams.Status()
			text += fmt.Sprintf("\n%s: in %+v, out %+v", n.id, status.Incoming, status.Outgoing)
		}
		return text
	})
}

func eventually(patience time.Duration, done func() (bool, error), describe func() string) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		switch so, err := done(); {
		case err != nil:
			return err
		case so:
			return nil
		case time.Now().After(deadline):
			return errors.New(describe())
		}
	}
}

func (w *world) mustArrive() {
	w.t.Helper()
	if err := w.arrive(20 * time.Second); err != nil {
		w.t.Fatal(err)
	}
}

// attached waits until each member of the parent has its rings to all running members of the child.
func (w *world) attached(rings int) {
	w.t.Helper()
	err := eventually(20*time.Second, func() (bool, error) {
		w.mu.Lock()
		members := w.members(parentShard)
		w.mu.Unlock()
		for _, n := range members {
			if n.streams.Status().Outgoing[0].Rings != rings {
				return false, nil
			}
		}
		return true, nil
	}, func() string { return "the rings are not attached" })
	if err != nil {
		w.t.Fatal(err)
	}
}
