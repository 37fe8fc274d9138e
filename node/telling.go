package node

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// A stored message says up to which height a member's disk is synced in a run: two u64 numbers,
// little-endian. The receiver counts it at once, so callers that wait for it do not depend on a
// turn of the machine.
const storedSize = 16

// tellLater is how much later a member hears of a disk if none of its own callers waits for that. A
// lone caller's transactions follow each other within a millisecond. To tell every member of each
// at once took a tenth of the nodes' system calls.
const tellLater = 5 * time.Millisecond

// laterTelling are the members that a node has yet to tell how far its disk has got.
type laterTelling struct {
	mu      sync.Mutex
	run     uint64
	members []order.ServerID
	height  ledger.Height
	timer   *time.Timer // it is set while there are members
	stopped bool
}

// tellStored tells the members of a run how far this disk has got: at once those that proposed a
// block since it told them last, and the others later, with what comes until then. In a book of
// several shards each member passes on to other shards what is durable, so all are told at once.
// So they are once the node stops. The goroutine that synced the disk calls it.
func (l *life) tellStored(stored pipeline.Stored) {
	now := stored.Proposers
	if l.node.home.Genesis.Sharded() {
		now = stored.Members
	}
	if !l.later.add(stored, append(slices.Clone(now), l.node.home.Self), func() {
		l.work(l.tellRest)
	}) {
		now = stored.Members
	}
	l.tellMembers(now, wire.KindStored, encodeStored(stored.Run, stored.Height))
}

// tellRest tells the members that could wait.
func (l *life) tellRest() {
	run, members, height := l.later.take()
	l.tellMembers(members, wire.KindStored, encodeStored(run, height))
}

// add notes the members of a run that are not told now. If there was none before, due is called
// after tellLater. Several goroutines sync the disk, so the last one to call may not be the one
// that got furthest. After stop it notes nothing and returns false.
func (t *laterTelling) add(stored pipeline.Stored, now []order.ServerID, due func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.stopped:
		return false
	case stored.Run < t.run:
		return true // it is over
	}
	waited := len(t.members) > 0
	if stored.Run > t.run {
		t.run, t.height, t.members = stored.Run, 0, nil
	}
	t.height = max(t.height, stored.Height)
	t.members = slices.DeleteFunc(t.members, func(member order.ServerID) bool {
		return slices.Contains(now, member)
	})
	for _, member := range stored.Members {
		if !slices.Contains(now, member) && !slices.Contains(t.members, member) {
			t.members = append(t.members, member)
		}
	}
	switch {
	case len(t.members) == 0 || waited:
	case t.timer == nil:
		t.timer = time.AfterFunc(tellLater, due)
	default:
		t.timer.Reset(tellLater)
	}
	return true
}

// take returns the members to tell, and what.
func (t *laterTelling) take() (run uint64, members []order.ServerID, height ledger.Height) {
	t.mu.Lock()
	defer t.mu.Unlock()
	members, t.members = t.members, nil
	return t.run, members, t.height
}

// stop ends the timer. The caller takes what is left.
func (t *laterTelling) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// tellMembers sends a message about this node's disk to these members, except this node.
func (l *life) tellMembers(members []order.ServerID, kind wire.Kind, payload []byte) {
	for _, server := range members {
		if server == l.node.home.Self {
			continue
		}
		peer := l.node.peers.id(server)
		if peer == "" {
			continue
		}
		if err := l.node.control.Send(peer, kind, payload); err != nil {
			l.node.logger.Debug("progress of the disk not sent", "peer", peer, "error", err)
		}
	}
}

func encodeStored(run uint64, height ledger.Height) []byte {
	payload := binary.LittleEndian.AppendUint64(make([]byte, 0, storedSize), run)
	return binary.LittleEndian.AppendUint64(payload, uint64(height))
}

func (l *life) onStored(from rdmanet.Peer, payload []byte) {
	server, known := l.senderOf(from)
	if !known {
		return
	}
	if len(payload) != storedSize {
		l.complain(server, "malformed stored height dropped", "peer", from)
		return
	}
	run := binary.LittleEndian.Uint64(payload)
	l.node.pipeline.PeerStored(run, server, ledger.Height(binary.LittleEndian.Uint64(payload[8:])))
}
