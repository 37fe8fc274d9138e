package fabric_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/sim/fabric"
)

// members is a paced network in the form that the suite needs.
type members struct {
	network *fabric.Network
}

func (m members) ID(i int) rdmanet.PeerID {
	return rdmanet.PeerID(fmt.Sprintf("member-%d", i))
}
func (m members) Start(i int) (rdmanet.Host, error) { return m.network.Start(m.ID(i)) }
func (m members) Kill(i int)                        { m.network.Crash(m.ID(i)) }
func (m members) Sever(int, int)                    {} // there are no connections
func (m members) Cut(i, j int)                      { m.network.Cut(m.ID(i), m.ID(j)) }
func (m members) Mend(i, j int)                     { m.network.Mend(m.ID(i), m.ID(j)) }
func (m members) Stranger() (rdmanet.Host, error)   { return m.network.Start("stranger") }
func (m members) Hang(int)                          {} // a program that hangs makes no calls
func (m members) Resume(int)                        {}

// TestSuite runs the suite that every provider passes, except the case of a program that hangs in a
// lane. This fabric has no lanes, and a program that hangs just makes no calls.
func TestSuite(t *testing.T) {
	t.Parallel()
	for _, c := range fabrictest.RegionCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if c.Name == "owner whose program hangs" {
				t.Skip("it takes lanes")
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			m := members{}
			var ids []rdmanet.PeerID
			for i := range c.Config.Members {
				ids = append(ids, m.ID(i))
			}
			m.network = fabric.New(fabric.Options{Seed: 1, Members: ids, Paced: true,
				OperationTimeout: c.Config.MendTimeout})
			t.Cleanup(m.network.Close)
			if err := c.Check(ctx, m); err != nil {
				t.Error(err)
			}
		})
	}
}

// life is a run of several writers and owners in virtual time, with revocations, crashes and cuts.
// It checks the contract all the time.
type life struct {
	network *fabric.Network
	random  *rand.Rand
	owners  []*owner
	writers []*writer
	trace   interface{ Write([]byte) (int, error) }
	err     error
}

const (
	entrySize  = 64
	entries    = 32
	regionSize = entrySize * entries
)

// owner has a region that one writer at a time may write.
type owner struct {
	host   *fabric.Host
	region rdmanet.Region
	holder *writer // nil while no writer has the permission
	fenced []byte  // the region's contents when it was last revoked
}

// writer writes numbered entries to all owners: 7 words that hold the entry's and the word's
// number, then the mark.
type writer struct {
	host        *fabric.Host
	number      int
	queue       rdmanet.Queue
	attachments []rdmanet.Attachment // by owner, nil for none
	next        []int                // by owner: the next entry
	posted      map[rdmanet.PeerID][]uint64
	// astray has the owners to which abandoned writes may be under way. Nothing can be written
	// there again before these writes are fenced.
	astray  map[rdmanet.PeerID]bool
	crashed bool
}

func entry(writer, number int) []byte {
	b := make([]byte, entrySize)
	for word := range entrySize / 8 {
		binary.LittleEndian.PutUint64(b[8*word:],
			uint64(writer)<<48|uint64(number+1)<<8|uint64(word+1))
	}
	return b
}

func (l *life) failf(format string, arguments ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("at %s: "+format, append([]any{l.network.Now()}, arguments...)...)
	}
}

// look checks that a mark is never seen without its entry, and that nothing lands after a
// revocation.
func (l *life) look(o *owner) {
	if o.holder == nil && o.fenced != nil && !slices.Equal(o.fenced, o.region.Bytes()) {
		l.failf("%s changed after it was revoked", o.host.ID())
	}
	for at := 0; at < regionSize; at += entrySize {
		mark := o.region.Load(at + entrySize - 8)
		if mark == 0 {
			continue
		}
		for word := range entrySize / 8 {
			if got := o.region.Load(at + 8*word); got>>8 < mark>>8 && got>>48 == mark>>48 {
				l.failf("%s: mark %x at %d, and word %d is %x", o.host.ID(), mark, at, word, got)
			}
		}
		fmt.Fprint(l.trace, at, mark)
	}
}

func (l *life) act() {
	for _, o := range l.owners {
		l.look(o)
	}
	o := l.owners[l.random.IntN(len(l.owners))]
	switch l.random.IntN(12) {
	case 0: // revoke it from its holder
		if o.holder != nil {
			if err := o.region.Revoke(o.holder.host.Peer()); err != nil {
				l.failf("revoke: %v", err)
			}
			delete(o.holder.astray, o.host.ID())
			o.holder, o.fenced = nil, slices.Clone(o.region.Bytes())
		}
	case 1: // grant it
		w := l.writers[l.random.IntN(len(l.writers))]
		if o.holder == nil && !w.crashed {
			if err := o.region.Grant(w.host.Peer(), rdmanet.PermissionReadWrite); err != nil {
				l.failf("grant: %v", err)
			}
			o.holder, o.fenced = w, nil
		}
	case 2:
		l.network.Cut(o.host.ID(), l.writers[0].host.ID())
	case 3:
		l.network.Mend(o.host.ID(), l.writers[0].host.ID())
	case 4:
		if w := l.writers[len(l.writers)-1]; l.random.IntN(20) == 0 && !w.crashed {
			l.network.Crash(w.host.ID())
			w.crashed = true
		}
	}
	for _, w := range l.writers {
		if !w.crashed {
			l.write(w)
		}
	}
}

func (l *life) write(w *writer) {
	var done [16]rdmanet.Completion
	for _, c := range done[:w.queue.Poll(done[:])] {
		fmt.Fprint(l.trace, c.Tag, c.Err)
		list := w.posted[c.Peer]
		if len(list) == 0 || list[0] != c.Tag {
			l.failf("writer %d: completion %d, want the first of %v", w.number, c.Tag, list)
			return
		}
		w.posted[c.Peer] = list[1:]
		if c.Err != nil && !errors.Is(c.Err, rdmanet.ErrAccess) &&
			!errors.Is(c.Err, rdmanet.ErrUnreachable) {
			l.failf("writer %d: %v", w.number, c.Err)
		}
	}
	for i, o := range l.owners {
		if a := w.attachments[i]; a == nil || a.Err() != nil {
			if a != nil && !errors.Is(a.Err(), rdmanet.ErrAccess) {
				w.astray[o.host.ID()] = o.holder == w
			}
			w.attachments[i] = nil
			if w.astray[o.host.ID()] {
				continue
			}
			if a, err := w.host.Attach(context.Background(), o.host.ID(), "log"); err == nil {
				w.attachments[i] = a
			}
			continue
		}
		number := w.next[i]
		w.next[i]++
		tag := uint64(number)
		err := w.queue.Post(rdmanet.Operation{To: w.attachments[i], Kind: rdmanet.OperationWrite,
			Offset: number % entries * entrySize, Bytes: entry(w.number, number), Tag: tag})
		switch {
		case err == nil:
			w.posted[o.host.ID()] = append(w.posted[o.host.ID()], tag)
		case !errors.Is(err, rdmanet.ErrQueueFull):
			l.failf("post: %v", err)
		}
	}
}

// live runs a life and returns the hash of everything that was seen.
func live(seed uint64, fault fabric.Fault) (uint64, error) {
	hash := fnv.New64a()
	network := fabric.New(fabric.Options{Seed: seed, OperationTimeout: time.Millisecond,
		Fault: fault})
	defer network.Close()
	l := &life{network: network, random: rand.New(rand.NewPCG(seed, 1)), trace: hash}
	for i := range 3 {
		host, err := network.Start(rdmanet.PeerID(fmt.Sprintf("owner-%d", i)))
		if err != nil {
			return 0, err
		}
		region, err := host.Expose("log", regionSize)
		if err != nil {
			return 0, err
		}
		l.owners = append(l.owners, &owner{host: host, region: region})
	}
	for i := range 3 {
		host, err := network.Start(rdmanet.PeerID(fmt.Sprintf("writer-%d", i)))
		if err != nil {
			return 0, err
		}
		queue, err := host.Queue(64)
		if err != nil {
			return 0, err
		}
		l.writers = append(l.writers, &writer{host: host, number: i + 1, queue: queue,
			attachments: make([]rdmanet.Attachment, 3), next: make([]int, 3),
			posted: map[rdmanet.PeerID][]uint64{}, astray: map[rdmanet.PeerID]bool{}})
	}
	for range 400 {
		network.After(time.Duration(l.random.IntN(40))*time.Microsecond, func() {})
		for range l.random.IntN(12) {
			network.Step()
		}
		l.act()
		if l.err != nil {
			return 0, fmt.Errorf("seed %d, %w", seed, l.err)
		}
	}
	// Everything completes.
	for _, o := range l.owners {
		network.Mend(o.host.ID(), l.writers[0].host.ID())
	}
	for network.Step() {
	}
	var done [64]rdmanet.Completion
	for _, w := range l.writers {
		for w.queue.Poll(done[:]) > 0 {
		}
		if left := w.queue.Outstanding(); left != 0 {
			return 0, fmt.Errorf("seed %d: writer %d: %d operations never completed",
				seed, w.number, left)
		}
	}
	return hash.Sum64(), nil
}

// TestLives checks the contract in virtual time, and that a seed always gives the same run.
func TestLives(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		first, err := live(seed, fabric.FaultNone)
		if err != nil {
			t.Fatal(err)
		}
		if seed < 4 {
			if again, err := live(seed, fabric.FaultNone); err != nil || again != first {
				t.Fatalf("seed %d: %x, and then %x, %v", seed, first, again, err)
			}
		}
	}
}

// TestPlantedFaults checks that breaches of the contract are found.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for fault := fabric.FaultLandsAfterRevoke; fault <= fabric.FaultCompletionLost; fault++ {
		found := false
		for seed := range uint64(50) {
			if _, err := live(seed, fault); err != nil {
				t.Logf("fault %d: %v", fault, err)
				found = true
				break
			}
		}
		if !found {
			t.Errorf("fault %d is not found", fault)
		}
	}
}

// TestIdle checks that a wait that can never end returns an error.
func TestIdle(t *testing.T) {
	t.Parallel()
	network := fabric.New(fabric.Options{})
	defer network.Close()
	host, err := network.Start("a")
	if err != nil {
		t.Fatal(err)
	}
	region, err := host.Expose("r", 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := region.Await(context.Background(), func() bool {
		return false
	}); !errors.Is(err, fabric.ErrIdle) {
		t.Errorf("await gives %v", err)
	}
	queue, err := host.Queue(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Wait(context.Background(), make([]rdmanet.Completion, 1)); !errors.Is(err,
		fabric.ErrIdle) {
		t.Errorf("wait gives %v", err)
	}
	if _, err := host.Lane("b", "x"); !errors.Is(err, fabric.ErrNoLanes) {
		t.Errorf("a lane gives %v", err)
	}
}
