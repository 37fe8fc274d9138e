package protected

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// TestRewrittenEntries makes a leader take over a group in which two servers hold different
// entries of one index, and one holds the same entry as the leader. At no instant is an entry in
// any log a mix of two, and an entry that stays is never gone: a revocation may come at any
// instant, and the entry must be intact then.
func TestRewrittenEntries(t *testing.T) {
	t.Parallel()
	stays, goes := slices.Repeat([]byte("stays"), 100),
		slices.Repeat([]byte("goes, and is longer"), 30)
	run := func(seed uint64, fault Fault) error {
		g := newGroup(t, seed, 3, LogConfig{EntryMax: 700, Fault: fault}, nil)
		g.leaveEntry(0, 2, 1, 2, stays)
		g.leaveEntry(1, 1, 1, 1, goes)
		g.leaveEntry(2, 2, 1, 2, stays)
		g.servers[0].log.Lead(0)
		done := func() bool {
			return g.servers[0].log.Status().Ordered >= 2 &&
				g.servers[1].log.at(1).Timestamp == g.servers[2].log.at(1).Timestamp
		}
		g.tick()
		for g.network.Now() < 50*time.Millisecond && !done() {
			g.network.Step()
			g.poll()
			for server, r := range g.servers {
				h := r.log.at(1)
				if h.Index == 0 && server != 1 {
					return fmt.Errorf("server %d: an entry that may be ordered is gone", server)
				}
				if h.Index == 0 {
					continue
				}
				if entry := string(r.log.Bytes(h)); entry != string(stays) &&
					entry != string(goes) {
					return fmt.Errorf("server %d: entry %+v is neither of the two: %.60q...",
						server, h, entry)
				}
			}
		}
		if !done() {
			return fmt.Errorf("not done: %v", g.servers[0])
		}
		return nil
	}
	for seed := range uint64(30) {
		if err := run(seed, FaultNone); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	for seed := range uint64(30) {
		if err := run(seed, FaultRewrittenInPlace); err != nil {
			t.Logf("planted: %v", err)
			return
		}
	}
	t.Error("entries that are rewritten in place are not noticed")
}

// TestEntriesBehindHoles makes a leader take over a group in which one log has an entry behind
// empty slots, and the group has another entry there. A leader that takes the first empty slot
// for the log's end does not erase the entry's mark, and the log holds a mix of the two for a
// while.
func TestEntriesBehindHoles(t *testing.T) {
	t.Parallel()
	const window = 4
	stays, goes := slices.Repeat([]byte("stays"), 100),
		slices.Repeat([]byte("goes, and is longer"), 30)
	run := func(seed, last uint64, fault Fault) error {
		g := newGroup(t, seed, 3, LogConfig{EntryMax: 700, Window: window, Fault: fault},
			nil)
		for index := uint64(1); index <= last; index++ {
			g.leaveAt(0, 2, index, stays)
			g.leaveAt(2, 2, index, stays)
		}
		g.leaveEntry(1, 1, last, 2*window, goes)
		g.servers[0].log.Lead(0)
		done := func() bool {
			return g.servers[0].log.Status().Ordered > last &&
				g.servers[1].log.at(last).Timestamp == g.servers[2].log.at(last).Timestamp
		}
		g.tick()
		for g.network.Now() < 50*time.Millisecond && !done() {
			g.network.Step()
			g.poll()
			r := g.servers[1]
			if h := r.log.at(last); h.Index != 0 {
				if entry := r.log.Bytes(h); !bytes.Equal(entry, stays) &&
					!bytes.Equal(entry, goes) {
					return fmt.Errorf("entry %+v is neither of the two: %.60q...", h, entry)
				}
			}
		}
		if !done() {
			return fmt.Errorf("not done: %v", g.servers[0])
		}
		return nil
	}
	for _, last := range []uint64{2, window} {
		for seed := range uint64(20) {
			if err := run(seed, last, FaultNone); err != nil {
				t.Fatalf("entry %d, seed %d: %v", last, seed, err)
			}
		}
		for _, fault := range []Fault{FaultRewrittenInPlace, FaultFirstHole} {
			var found error
			for seed := uint64(0); seed < 20 && found == nil; seed++ {
				found = run(seed, last, fault)
			}
			if found == nil {
				t.Errorf("entry %d: the planted bug is not noticed: %d", last, fault)
			}
			t.Logf("entry %d, fault %d: %v", last, fault, found)
		}
	}
}

// markedLog is a server's own log that notes the mark of an entry whenever its other bytes are
// written, or may be.
type markedLog struct {
	rdmanet.Region
	mark  int // the offset of the mark
	marks []uint64
}

func (l *markedLog) Bytes() []byte {
	l.marks = append(l.marks, l.Load(l.mark))
	return l.Region.Bytes()
}

func (l *markedLog) Store(offset int, value uint64) {
	if offset != l.mark {
		l.marks = append(l.marks, l.Load(l.mark))
	}
	l.Region.Store(offset, value)
}

// TestOwnMarkIsErased makes a server put an entry into its own log where another entry of the
// same index is. Another leader may read this log at any instant, so the index is not there until
// the new entry is whole.
func TestOwnMarkIsErased(t *testing.T) {
	t.Parallel()
	if err := putsUnderNoMark(t, FaultNone); err != nil {
		t.Error(err)
	}
	if putsUnderNoMark(t, FaultOwnMarkKept) == nil {
		t.Error("a mark that is kept is not noticed")
	}
}

// putsUnderNoMark puts entries of one index into a server's log. The error says that one was
// written under the mark of another one.
func putsUnderNoMark(t *testing.T, fault Fault) error {
	g := newGroup(t, 1, 1, LogConfig{EntryMax: 700, Fault: fault}, nil)
	r := g.servers[0]
	log := &markedLog{Region: r.log.held.Region, mark: r.log.ring.End(1) + logIndex}
	r.log.held.Region = log
	for counter, text := range []string{"the first", "another one, which is longer", "short"} {
		entry := slices.Repeat([]byte(text), 20)
		log.marks = nil
		g.leaveAt(0, uint64(counter+1), 1, entry)
		if len(log.marks) < 5 {
			t.Fatalf("only %d writes were seen", len(log.marks))
		}
		if slices.Contains(log.marks, 1) {
			return fmt.Errorf("entry %d is written under a mark that is there: %v", counter+1,
				log.marks)
		}
		if h := r.log.at(1); h.Index != 1 || !bytes.Equal(r.log.Bytes(h), entry) {
			t.Errorf("entry %d is not there: %+v", counter+1, h)
		}
	}
	return nil
}

// FuzzTrailer: a trailer of any bytes gives a harmless entry, or none, and an entry that a leader
// writes reads the same.
func FuzzTrailer(f *testing.F) {
	f.Add(make([]byte, logTrailer))
	h := Entry{Timestamp: MakeTimestamp(3, 2), ordered: 6, taken: 1, Origin: 2, Length: 99,
		Number: 4, Index: 7}
	f.Add(appendTrailer(nil, h))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != logTrailer {
			return
		}
		h := parseTrailer(b, 1000)
		if h.Index == 0 {
			return
		}
		if h.Length > 1000 || h.ordered > h.Index || h.taken > h.Index {
			t.Fatalf("%x reads as %+v", b, h)
		}
		if again := appendTrailer(nil, h); !bytes.Equal(again, b) {
			t.Fatalf("%x reads as %x", b, again)
		}
	})
}

func appendTrailer(b []byte, h Entry) []byte {
	for _, w := range []uint64{uint64(h.Timestamp), h.known(), h.origin(), h.Number, h.Index} {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}
