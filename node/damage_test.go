package node_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/report"
)

// Damage that a node finds in its store after its start ends it, as damage at its start does. Its
// next start refuses.
func TestDamageAfterTheStart(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for range 40 {
		s.submit(0, report.LevelDurable, s.client.Transfer(s.client.Account("a"),
			s.client.Account("b"), 1))
	}
	s.same()
	block, err := s.nodes[0].Store().Block(20)
	if err != nil {
		t.Fatal(err)
	}
	encoded := block.Encode()
	for i := range s.nodes {
		s.stop(i)
	}
	const odd = 2
	tables, err := filepath.Glob(filepath.Join(s.homes[odd].Data(), "badger", "*.sst"))
	if err != nil || !damage(t, tables, encoded) {
		t.Fatalf("no table has the block: %v", err)
	}
	s.start(odd)
	select {
	case <-s.nodes[odd].Done():
	case <-time.After(30 * time.Second):
		t.Fatalf("the node goes on: %+v", s.nodes[odd].State())
	}
	err = s.nodes[odd].Err()
	if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "start again") {
		t.Errorf("it ended with %v", err)
	}
	s.stop(odd)
	opened, err := store.Open(s.homes[odd].Data(), s.homes[odd].Genesis, s.store)
	if !errors.Is(err, store.ErrDamaged) {
		t.Errorf("then it is opened: %v", errors.Join(err, opened.Close()))
	}
}

// damage flips a bit of a part of a block in one of the files.
func damage(t *testing.T, files []string, block []byte) bool {
	t.Helper()
	const part = 24 // that is not compressed, like a hash
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for from := len(block) - part; from >= 0; from-- {
			if at := bytes.Index(data, block[from:from+part]); at >= 0 {
				data[at] ^= 1
				if err := os.WriteFile(name, data, 0o600); err != nil {
					t.Fatal(err)
				}
				return true
			}
		}
	}
	return false
}
