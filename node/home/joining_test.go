package home

import (
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// A node's home is made before the chain admits the node. Then the home gets the node's place, and
// keeps the members of that moment.
func TestJoining(t *testing.T) {
	t.Parallel()
	first := create(t, t.TempDir())
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "node-9")
	config := Default()
	config.API.Listen = "127.0.0.1:9100"
	if _, err := CreateJoining(dir, config, first.Genesis, key); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateJoining(dir, config, first.Genesis, key); !errors.Is(err, ErrExists) {
		t.Errorf("a second time: %v", err)
	}
	if _, err := Load(dir); !errors.Is(err, ErrNotAdmitted) || !errors.Is(err, ErrHome) {
		t.Errorf("before it joined: %v", err)
	}
	joining, err := LoadJoining(dir)
	if err != nil || !joining.Key.Equal(key) {
		t.Fatalf("the unfinished home is %+v, %v", joining, err)
	}
	membership := first.Genesis.Membership()
	if err := joining.Admit(membership); !errors.Is(err, ErrHome) {
		t.Errorf("a group without the node: %v", err)
	}
	membership.Number, membership.Height = 4, 12
	membership.Members = append(membership.Members, ledger.GroupMember{Index: 9,
		Member: ledger.Member{Name: "node-9", Key: public, Address: "127.0.0.1:9101"}, Joined: 12})
	for range 2 {
		if err := joining.Admit(membership); err != nil {
			t.Fatal(err)
		}
	}
	loaded, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	group := loaded.Membership()
	if loaded.Self != 9 || loaded.Name() != "node-9" ||
		loaded.FabricAddress() != "127.0.0.1:9101" ||
		loaded.Config.API.Listen != "127.0.0.1:9100" || group.Number != 4 ||
		len(group.Members) != 2 {
		t.Errorf("loaded %+v", loaded)
	}
	if group := first.Membership(); group.Number != 0 || len(group.Members) != 1 {
		t.Errorf("a home of the genesis has members %+v", group)
	}
	path := filepath.Join(dir, MembershipFile)
	for name, text := range map[string]string{
		"no members": `{"number": 4}`, "no JSON": `{`, "a novelty": `{"extra": 1}`,
		"others only": `{"number": 1, "members": [{"index": 0, "name": "node-0", ` +
			`"key": "AAAA", "address": "a"}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); !errors.Is(err, ErrHome) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
