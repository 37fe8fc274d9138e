package node_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
)

// doubt damages both copies of the marker that may have been the newest of a home's store.
func (s *shard) doubt(i int) {
	s.t.Helper()
	path := filepath.Join(s.homes[i].Data(), "tip")
	text, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	newest := uint64(0)
	for slot := range 4 {
		newest = max(newest, binary.BigEndian.Uint64(text[slot*4096+8:]))
	}
	other := int((newest + 1) % 2 * 2)
	clear(text[other*4096 : min(len(text), (other+1)*4096+200)])
	if err := os.WriteFile(path, text, 0o600); err != nil { // in place: the same inode
		s.t.Fatal(err)
	}
}

// The furthest home may have had more blocks. The operator continues from it, with a member that
// may come back.
func TestRecoveryOfADiskInDoubt(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.submit(0, report.LevelDurable, s.transfer())
	s.same()
	for i := range s.nodes {
		s.stop(i)
	}
	s.lose(func(h *home.Home) string { return h.Data() }, 0)
	s.doubt(1)
	options := node.RecoveryOptions{Absent: []string{"node-2"}}
	r := s.plan(options, 0, 1)
	if r.Homes[1].Perhaps == "" || r.Forms || r.Refused != nil {
		t.Fatalf("%q, forms %v, refused %v", r.Homes[1].Perhaps, r.Forms, r.Refused)
	}
	if _, err := r.Do(node.NewOperator(ledgertest.Key("operator"))); err != nil {
		t.Fatal(err)
	}
	if r := s.plan(options, 0, 1); !r.Forms {
		t.Fatalf("after the recovery: %+v, refused %v, %d more changes", r.Waiting, r.Refused,
			len(r.Changes))
	}
	s.start(0, 1)
	s.ordering(0, 1)
	s.submit(0, report.LevelDurable, s.transfer())
}
