package dare

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// FuzzBody reads any bytes as the body of an entry. What is accepted is what appendBody writes.
func FuzzBody(f *testing.F) {
	f.Add([]byte{}, 3)
	f.Add(appendBody(nil, []proposal{{1, []byte("x")}, {}, {7, nil}}), 3)
	f.Add(appendBody(nil, []proposal{{1, bytes.Repeat([]byte{5}, 40)}}), 1)
	f.Fuzz(func(t *testing.T, body []byte, servers int) {
		proposals := make([]proposal, min(max(servers, 1), ServersMax))
		if !readBody(body, proposals) || len(body) == 0 {
			return
		}
		if again := appendBody(nil, proposals); !bytes.Equal(again, body) {
			t.Errorf("%x is read as %v, which is written as %x", body, proposals, again)
		}
	})
}

// FuzzRemoval reads any bytes as the body of an entry that takes a server out.
func FuzzRemoval(f *testing.F) {
	f.Add([]byte{}, 3)
	f.Add(appendRemoval(nil, 2), 3)
	f.Add(appendRemoval(nil, 1<<32-1), ServersMax)
	f.Fuzz(func(t *testing.T, body []byte, servers int) {
		server, is := readRemoval(body, min(max(servers, 1), ServersMax))
		if !is {
			return
		}
		if again := appendRemoval(nil, server); !bytes.Equal(again, body) ||
			server >= max(servers, 1) {
			t.Errorf("%x takes out server %d of %d, which is written as %x", body, server, servers,
				again)
		}
	})
}

// FuzzLog fills a log with any bytes. Reading it neither panics nor finds entries that are no
// entries, because a server's memory is written by others. Only a run with an end takes servers
// out, and only another one changes its group.
func FuzzLog(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint64(1))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 40), uint64(1))
	f.Add(bytes.Repeat([]byte{255}, 999), uint64(1<<63))
	for k := range uint64(kindLast) + 1 { // an entry of each kind, whatever its body
		memory := make([]byte, 8*word)
		binary.NativeEndian.PutUint64(memory[4*word:], k<<kindShift|removalSize)
		binary.NativeEndian.PutUint64(memory[7*word:], 1)
		f.Add(memory, uint64(1))
	}
	groups := []*group{newGroup(f, 1, 3, nil), newGroup(f, 1, 3, changing)}
	f.Fuzz(func(t *testing.T, memory []byte, index uint64) {
		for _, g := range groups {
			s := g.servers[0]
			log := s.held.Region.Bytes()
			clear(log)
			for at := 0; len(memory) > 0 && at < len(log); at += len(memory) {
				copy(log[at:], memory)
			}
			if e := s.at(index); e.index != 0 {
				d, is := s.delivery(e, 0)
				if is && (e.kind == kindConfig || e.kind == kindRemoval && !s.config.fixed() ||
					(len(d.Removed) > 0) != (e.kind == kindRemoval)) {
					t.Errorf("an entry of kind %d is the round %v", e.kind, d)
				}
			}
			s.last()
			s.list()
			s.held.Region.Store(logTail, index)
			s.seek()
			s.list()
			s.apply()
			s.remains()
			if s.config.fixed() && len(s.configs)+int(s.configs[0].index) > 1 {
				t.Error("a run with an end changed its group")
			}
			s.halted = ""
		}
	})
}

// FuzzConfiguration reads any bytes as a configuration. What is accepted is what
// appendConfiguration writes, and has majorities.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte{}, 3)
	stable := firstConfiguration([]rdmanet.Peer{{ID: "a", Incarnation: 1}, {ID: "b",
		Incarnation: 7}}, 3, 2)
	f.Add(appendConfiguration(nil, &stable), 3)
	extended := stable.with(2, Seat{rdmanet.Peer{ID: "c", Incarnation: 1 << 60}, 12})
	extended.Phase, extended.Next, extended.head = Extended, 3, 11
	f.Add(appendConfiguration(nil, &extended), 3)
	f.Fuzz(func(t *testing.T, b []byte, seats int) {
		c, is := readConfiguration(b, min(max(seats, 1), ServersMax))
		if !is {
			return
		}
		if again := appendConfiguration(nil, &c); !bytes.Equal(again, b) {
			t.Errorf("%x is read as %v, which is written as %x", b, c, again)
		}
		if c.most(func(int) bool { return false }) {
			t.Errorf("nobody is a majority of %v", c)
		}
		c.reached(func(int) uint64 { return 1 })
	})
}

// FuzzSnapshot reads any bytes as a snapshot: another server writes them while they are read.
func FuzzSnapshot(f *testing.F) {
	g := newGroup(f, 1, 3, nil)
	s := g.servers[0]
	s.publish()
	view := bytes.Clone(s.view.Bytes())
	if snap, is := readSnapshot(view, 3); !is || snap.Size != 3 {
		f.Errorf("what is published is not read: %v", snap)
	}
	f.Add(view)
	view[viewHead+5] ^= 1
	if _, is := readSnapshot(view, 3); is {
		f.Error("a change is not noticed")
	}
	f.Add(view)
	f.Fuzz(func(t *testing.T, view []byte) {
		if len(view) >= viewHead {
			readSnapshot(view, 3)
		}
	})
}
