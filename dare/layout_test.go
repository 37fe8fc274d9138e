package dare

import (
	"bytes"
	"testing"
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

// FuzzLog fills a log with any bytes. Reading it neither panics nor finds entries that are no
// entries, because a server's memory is written by others.
func FuzzLog(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint64(1))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 40), uint64(1))
	f.Add(bytes.Repeat([]byte{255}, 999), uint64(1<<63))
	g := newGroup(f, 1, 3, nil)
	f.Fuzz(func(t *testing.T, memory []byte, index uint64) {
		s := g.servers[0]
		log := s.held.Region.Bytes()
		clear(log)
		for at := 0; len(memory) > 0 && at < len(log); at += len(memory) {
			copy(log[at:], memory)
		}
		if e := s.at(index); e.index != 0 {
			readBody(s.body(e), s.proposals)
		}
		s.last()
		s.list()
		s.held.Region.Store(logTail, index)
		s.list()
		s.apply()
		s.halted = ""
	})
}
