package node

import (
	"bytes"
	"crypto/ed25519"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// A member in the log has its name, or its index if no name is known.
func TestLogNamesMembers(t *testing.T) {
	t.Parallel()
	var members []ledger.GroupMember
	for i, name := range []string{"node-0", "", "node-2"} {
		key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{byte(i)},
			ed25519.SeedSize)).Public().(ed25519.PublicKey)
		members = append(members, ledger.GroupMember{
			Member: ledger.Member{Name: name, Key: key}, Index: ledger.MemberIndex(i),
		})
	}
	own, err := p2p.PeerID(members[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	var known peers
	var out bytes.Buffer
	log := slog.New(&memberNames{slog.NewTextHandler(&out, nil), known.name})
	check := func(want string) {
		t.Helper()
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, &out)
		}
		out.Reset()
	}
	log.Info("before the members are known", "member", order.ServerID(2))
	check("member=2\n")
	table, err := newPeerTable(members, 0, own)
	if err != nil {
		t.Fatal(err)
	}
	known.table.Store(table)
	log.Info("by a call", "run", 7, "member", order.ServerID(2))
	check("run=7 member=node-2\n")
	log.With("member", order.ServerID(0)).Info("by a logger")
	check("member=node-0\n")
	log.WithGroup("g").Info("in a group", "member", order.ServerID(2))
	check("g.member=node-2\n")
	log.Info("without a name", "member", order.ServerID(1))
	check("member=1\n")
	log.Info("unknown", "member", order.ServerID(9))
	check("member=9\n")
	log.Info("something else", "round", order.ServerID(2), "error", err)
	check("round=2 error=<nil>\n")
}

// No package of the node logs a member under the key "server".
func TestLogKeys(t *testing.T) {
	t.Parallel()
	server := regexp.MustCompile(`"server", |"node", message`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") ||
			strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if found := server.Find(text); found != nil {
			t.Errorf("%s logs %s: use %q", path, found, memberKey)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
