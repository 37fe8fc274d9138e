package node_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// traitor is the host of a true node. A script decides what becomes of what the node says: it is
// said as it is, changed, withheld, or said to another member, also again and later, on any lane.
// Without a script, all is said as it is.
type traitor struct {
	*memory.Host
	members []rdmanet.PeerID

	mu     sync.Mutex
	script []byte
	said   [][]byte // the last frames of any lane
}

func (h *traitor) follow(script []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.script = script
}

// choose returns a number below n, or 0 at the end of the script. The caller must hold the mutex.
func (h *traitor) choose(n int) int {
	if len(h.script) == 0 {
		return 0
	}
	choice := int(h.script[0]) % n
	h.script = h.script[1:]
	return choice
}

// Lane implements rdmanet.Host.
func (h *traitor) Lane(peer rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	lane, err := h.Host.Lane(peer, name)
	if err != nil {
		return nil, err
	}
	return &bentLane{Lane: lane, from: h}, nil
}

// bent returns what is said in place of some frames. It says others on the side.
func (h *traitor) bent(frames [][]byte) [][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	var bent [][]byte
	for _, frame := range frames {
		const kept = 128
		if h.said = append(h.said, slices.Clone(frame)); len(h.said) > kept {
			h.said = h.said[1:]
		}
		old := slices.Clone(h.said[h.choose(len(h.said))])
		switch h.choose(16) {
		case 1: // withheld
			continue
		case 2: // a few bits
			frame = slices.Clone(frame)
			for range 1 + h.choose(4) {
				if len(frame) > 0 {
					frame[h.choose(len(frame))] ^= 1 << h.choose(8)
				}
			}
		case 3: // the largest numbers
			frame = slices.Clone(frame)
			for at := h.choose(len(frame) + 1); at < len(frame) && h.choose(5) != 0; at++ {
				frame[at] = 0xff
			}
		case 4: // of two halves
			frame = slices.Concat(frame[:h.choose(len(frame)+1)], old[h.choose(len(old)+1):])
		case 5: // twice
			bent = append(bent, slices.Clone(frame))
		case 6: // after an old one
			bent = append(bent, old)
		case 7: // beside an old one, to any member on any lane
			h.aside(old)
		case 8: // beside itself
			h.aside(slices.Clone(frame))
		}
		bent = append(bent, frame)
	}
	return bent
}

func (h *traitor) aside(frame []byte) {
	peer := h.members[h.choose(len(h.members))]
	if lane, err := h.Host.Lane(peer, lanesOfNodes[h.choose(len(lanesOfNodes))]); err == nil {
		_, _ = lane.TrySend(frame)
	}
}

// bentLane is a lane of a traitor.
type bentLane struct {
	rdmanet.Lane
	from *traitor
}

func (l *bentLane) Send(ctx context.Context, frames ...[]byte) error {
	if bent := l.from.bent(frames); len(bent) > 0 {
		return l.Lane.Send(ctx, bent...)
	}
	return nil
}

func (l *bentLane) TrySend(frames ...[]byte) (bool, error) {
	bent := l.from.bent(frames)
	if len(frames) > 0 && len(bent) == 0 {
		return true, nil
	}
	return l.Lane.TrySend(bent...)
}

// betrayed is a shard of four nodes, the last of which is a traitor.
type betrayed struct {
	*shard
	traitor *traitor
	forged  []ledger.Hash
}

func newBetrayed(t testing.TB) *betrayed {
	t.Helper()
	b := &betrayed{shard: newShard(t, 4, nil)}
	b.hosts = func(i int, host rdmanet.Host) rdmanet.Host {
		if i == 3 {
			b.traitor = &traitor{Host: host.(*memory.Host), members: b.peers[:3]}
			return b.traitor
		}
		return host
	}
	b.start(b.all()...)
	b.ordering(b.all()...)
	b.submit(0, report.LevelDurable, b.client.Register("a", "b"))
	return b
}

// converse has the traitor follow a script, while clients submit, and forges through it.
func (b *betrayed) converse(script []byte) {
	b.traitor.follow(script)
	if len(script) > 0 && script[0]%4 == 0 {
		encoded := bytes.Clone(b.client.Bundle(b.transfer()).Encode())
		clear(encoded[len(encoded)-64:])
		if forged, err := ledger.DecodeBundle(encoded); err == nil {
			b.forged = append(b.forged, forged.ID(0))
			_ = b.nodes[3].Slip(forged)
		}
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 200*time.Millisecond)
	defer cancel()
	for i := range 3 {
		bundle := b.client.Bundle(b.transfer())
		if b.nodes[i].Admit(ctx, []*ledger.Bundle{bundle}, false)[0] == nil {
			_, _ = b.nodes[i].Wait(ctx, bundle.IDs(), report.LevelDurable)
		}
	}
	b.traitor.follow(nil)
}

// judge checks what no member may break: no node ended, the durable blocks of true nodes agree, and
// no forged entry was executed. It reports whether all nodes can go on.
func (b *betrayed) judge(t *testing.T) (whole bool) {
	t.Helper()
	whole = true
	durable := b.nodes[0].State().Heights.Durable
	for i := range 3 {
		state := b.nodes[i].State()
		durable = min(durable, state.Heights.Durable)
		whole = whole && state.Mode != report.ModeHalted
	}
	_, want, err := b.nodes[0].Store().Header(durable)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, got, err := b.nodes[i].Store().Header(durable); err != nil || got != want {
			t.Fatalf("node %d has the durable block %d as %s, node 0 as %s: %v", i, durable, got,
				want, err)
		}
		for _, id := range b.forged {
			if _, err := b.nodes[i].Store().Transaction(id); err == nil {
				t.Fatalf("node %d executed a forged entry", i)
			}
		}
	}
	return whole && len(b.forged) < 8
}

// lasting is a test that lasts for several inputs of a fuzz target. TB is that of the present one.
type lasting struct {
	testing.TB
	dir      string
	cleanups []func()
}

func (l *lasting) TempDir() string {
	dir, err := os.MkdirTemp(l.dir, "")
	if err != nil {
		l.Fatal(err)
	}
	return dir
}

func (l *lasting) Context() context.Context { return context.Background() }

func (l *lasting) Cleanup(f func()) { l.cleanups = append(l.cleanups, f) }

// end runs the cleanups, the last one first.
func (l *lasting) end() {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
	l.cleanups = nil
}

// FuzzConversation has a member say anything at any time, between the true messages of its node,
// which takes part in the rounds.
func FuzzConversation(f *testing.F) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 9))
		script := make([]byte, 64<<seed)
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	test := &lasting{TB: f, dir: f.TempDir()}
	f.Cleanup(test.end)
	var b *betrayed
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 1<<14 {
			return
		}
		test.TB = t
		if b == nil {
			b = newBetrayed(test)
		}
		b.converse(script)
		if !b.judge(t) {
			test.end()
			b = nil
		}
	})
}
