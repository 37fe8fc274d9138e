package testnet

import (
	"crypto/ed25519"
	"errors"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
)

// A node that joined a network has its home beside the others, whatever its index in the chain.
func TestLoadNodeThatJoined(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "net")
	made, err := Make(Layout{Dir: dir, Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	joining, err := home.CreateJoining(filepath.Join(dir, Name(2)), home.Default(), made[0].Genesis,
		key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); !errors.Is(err, home.ErrNotAdmitted) {
		t.Errorf("before it joined: %v", err)
	}
	membership := made[0].Genesis.Membership()
	membership.Members = append(membership.Members[1:],
		ledger.GroupMember{Index: 5, Member: ledger.Member{Name: "new", Key: public,
			Address: "127.0.0.1:1"}})
	if err := joining.Admit(membership); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(dir)
	if err != nil || len(loaded) != 3 || loaded[2].Self != 5 || loaded[2].Name() != "new" {
		t.Errorf("%+v, %v", loaded, err)
	}
}
