//go:build linux

package torture

import (
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// refusal checks that a run of the program fails with the given status, and that its messages
// contain all parts and no stack.
func refusal(t *testing.T, status int, parts []string, arguments ...string) {
	t.Helper()
	o := ledgerd(t, arguments...)
	said := o.out + o.errs
	if o.status != status {
		t.Errorf("ledgerd %q: exit status %d, want %d\n%s", arguments, o.status, status, said)
	}
	for _, part := range append(parts, "ledgerd: ") {
		if !strings.Contains(said, part) {
			t.Errorf("ledgerd %q: it does not say %q:\n%s", arguments, part, said)
		}
	}
	if strings.Contains(said, "goroutine ") || strings.Contains(said, "panic") {
		t.Errorf("ledgerd %q: it crashed:\n%s", arguments, said)
	}
}

// occupy listens on an address until the test ends.
func occupy(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
}

// rewrite changes a file.
func rewrite(t *testing.T, path string, change func(text []byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestEnvironment starts a node in environments where it cannot run.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		harm   func(t *testing.T, s *shard) // nil: nothing
		status int
		says   func(s *shard) []string
		flags  []string
	}{
		{name: "occupied API port", status: 1, harm: func(t *testing.T, s *shard) {
			occupy(t, s.homes[0].Config.API.Listen)
		},
			says: func(s *shard) []string {
				return []string{"cannot listen", s.homes[0].Config.API.Listen, home.ConfigFile}
			}},
		{name: "occupied fabric port", status: 1, harm: func(t *testing.T, s *shard) {
			occupy(t, s.homes[0].FabricAddress())
		},
			says: func(s *shard) []string {
				return []string{"cannot listen", s.homes[0].FabricAddress()}
			}},
		{name: "no key", status: 1, harm: func(t *testing.T, s *shard) {
			if err := os.Remove(filepath.Join(s.homes[0].Dir, home.KeyFile)); err != nil {
				t.Fatal(err)
			}
		}, says: func(*shard) []string { return []string{"no node's home", home.KeyFile} }},
		{name: "half a key", status: 1, harm: func(t *testing.T, s *shard) {
			rewrite(t, filepath.Join(s.homes[0].Dir, home.KeyFile), func(text []byte) []byte {
				return text[:len(text)/2]
			})
		}, says: func(*shard) []string { return []string{"no node's home", home.KeyFile} }},
		{name: "no home at all", status: 1, harm: func(t *testing.T, s *shard) {
			if err := os.RemoveAll(s.homes[0].Dir); err != nil {
				t.Fatal(err)
			}
		}, says: func(*shard) []string { return []string{"no node's home", "ledgerd testnet"} }},
		{name: "another chain's genesis", status: 1, harm: func(t *testing.T, s *shard) {
			foreign := newShard(t, 2)
			text, err := os.ReadFile(filepath.Join(foreign.homes[0].Dir, home.GenesisFile))
			if err != nil {
				t.Fatal(err)
			}
			rewrite(t, filepath.Join(s.homes[0].Dir, home.GenesisFile), func([]byte) []byte {
				return text
			})
		}, says: func(*shard) []string {
			return []string{"different chains", home.KeyFile, home.GenesisFile}
		}},
		{name: "genesis cut off", status: 1, harm: func(t *testing.T, s *shard) {
			rewrite(t, filepath.Join(s.homes[0].Dir, home.GenesisFile), func(text []byte) []byte {
				return text[:len(text)/2]
			})
		}, says: func(*shard) []string { return []string{home.GenesisFile} }},
		{name: "unknown key in the configuration", status: 1, harm: func(t *testing.T, s *shard) {
			rewrite(t, filepath.Join(s.homes[0].Dir, home.ConfigFile), func(text []byte) []byte {
				return append(text, "\n[api2]\nlisten = \"x\"\n"...)
			})
		}, says: func(*shard) []string {
			return []string{"unknown key api2.listen", home.ConfigFile}
		}},
		{name: "promises damaged", status: 1, harm: func(t *testing.T, s *shard) {
			if err := os.WriteFile(filepath.Join(s.homes[0].Dir, home.GenerationFile),
				[]byte("nonsense"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, says: func(*shard) []string { return []string{home.GenerationFile, "move"} }},
		{name: "unknown flag", status: 2, flags: []string{"--hoem", "x"},
			says: func(*shard) []string {
				return []string{"--hoem"}
			}},
		{name: "argument too many", status: 2, flags: []string{"x"}, says: func(*shard) []string {
			return []string{"x"}
		}},
		{name: "bad log level", status: 2, flags: []string{"--log-level", "loud"},
			says: func(*shard) []string {
				return []string{"loud"}
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShard(t, 2)
			if test.harm != nil {
				test.harm(t, s)
			}
			refusal(t, test.status, test.says(s),
				append([]string{"start", "--home", s.homes[0].Dir}, test.flags...)...)
		})
	}
}

// TestForeignData starts a node in a home whose data folder belongs to another chain, and a node
// that already runs.
func TestForeignData(t *testing.T) {
	t.Parallel()
	s, other := newRunningShard(t, 1), newShard(t, 1)
	s.newParty("acme", []string{"cash"}, 0)
	h := s.homes[0]

	// The node runs already: its port is in use. With another port, its folder would be in use.
	refusal(t, 1, []string{"cannot listen", h.Config.API.Listen}, "start", "--home", h.Dir)
	rewrite(t, filepath.Join(h.Dir, home.ConfigFile), func(text []byte) []byte {
		return []byte(strings.ReplaceAll(string(text), h.Config.API.Listen, "127.0.0.1:0"))
	})
	refusal(t, 1, []string{"running already", h.Data()}, "start", "--home", h.Dir)
	refusal(t, 1, []string{"running", "stop it first"}, "verify", "--home", h.Dir)
	refusal(t, 1, []string{"running", "stop it first"}, "export", "--home", h.Dir, "--blocks")
	s.alive(0)
	s.newParty("still", []string{"cash"}, 0)
	s.stop(0)

	if err := os.Rename(h.Data(), other.homes[0].Data()); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"start"}, {"verify"}, {"export", "--blocks"},
		{"export", "--balances"}} {
		refusal(t, 1, []string{"chain", other.homes[0].Data()},
			append(command, "--home", other.homes[0].Dir)...)
	}
	refusal(t, 1, []string{"no blocks", h.Dir}, "verify", "--home", h.Dir)
}

// TestDamagedData flips bits in a stopped node's files, one place at a time. Wherever the bit is,
// either nothing changes for a reader, or the program reports that the folder is damaged. It never
// exports other bytes, and never crashes.
func TestDamagedData(t *testing.T) {
	t.Parallel()
	places := 4
	if testing.Short() {
		places = 1
	}
	t.Logf("-seed %d", *seedFlag)
	random := rand.New(rand.NewPCG(*seedFlag, 2))
	s := newRunningShard(t, 1)
	acme := s.newParty("acme", []string{"bank", "cash"}, 0)
	for k := range 20 {
		acme.post(t, acme.transfer("bank", "cash", int64(k+1)), ledgerdv1.Level_LEVEL_STORED)
		acme.post(t, acme.put("document", strings.Repeat("words of a document ", 100)),
			ledgerdv1.Level_LEVEL_STORED)
	}
	s.same(0)
	s.stop(0)
	h := s.homes[0]
	blocks, balances := succeed(t, "export", "--home", h.Dir, "--blocks"),
		succeed(t, "export", "--home", h.Dir, "--balances")
	sound := filepath.Join(t.TempDir(), "sound")
	if err := os.CopyFS(sound, os.DirFS(h.Data())); err != nil {
		t.Fatal(err)
	}
	found, harmless := 0, 0
	err := fs.WalkDir(os.DirFS(sound), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(sound, path))
		if err != nil {
			return err
		}
		// Files are longer than their contents.
		used := len(strings.TrimRight(string(text), "\x00"))
		if used == 0 {
			return nil
		}
		for range places {
			if err := os.RemoveAll(h.Data()); err != nil {
				return err
			}
			if err := os.CopyFS(h.Data(), os.DirFS(sound)); err != nil {
				return err
			}
			at, bit := random.IntN(used), byte(1)<<random.IntN(8)
			rewrite(t, filepath.Join(h.Data(), path), func(text []byte) []byte {
				text[at] ^= bit
				return text
			})
			if damaged(t, h, blocks, balances) {
				found++
			} else {
				harmless++
			}
			if t.Failed() {
				t.Fatalf("bit %08b of byte %d of %s (%d bytes) was flipped", bit, at, path, used)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d flips were found, %d changed nothing for a reader", found, harmless)
	if found == 0 {
		t.Error("no flip was found: the test shows nothing")
	}
}

// damaged reports whether the program finds a home damaged. It checks that the program exports
// nothing but the true bytes.
func damaged(t *testing.T, h *home.Home, blocks, balances string) bool {
	t.Helper()
	for _, export := range []struct {
		flag, truth string
	}{{"--blocks", blocks}, {"--balances", balances}} {
		o := ledgerd(t, "export", "--home", h.Dir, export.flag)
		if o.status == 0 && o.out != export.truth {
			t.Errorf("export %s gives other bytes, with exit status 0: %d, not %d", export.flag,
				len(o.out), len(export.truth))
		}
		if o.status != 0 && !strings.HasPrefix(export.truth, o.out) {
			t.Errorf("export %s gives wrong bytes before it fails", export.flag)
		}
		crashed(t, o)
	}
	o := ledgerd(t, "verify", "--home", h.Dir)
	crashed(t, o)
	if o.status != 0 && !strings.Contains(o.out+o.errs, "damage") {
		t.Errorf("verify does not say that the home is damaged: exit status %d\n%s%s", o.status,
			o.out, o.errs)
	}
	return o.status != 0
}

// crashed fails the test if a run of the program ended in a panic.
func crashed(t *testing.T, o outcome) {
	t.Helper()
	if strings.Contains(o.errs, "goroutine ") || o.status > 2 || o.status < 0 {
		t.Errorf("exit status %d\n%s", o.status, o.errs)
	}
}

// TestDamagedComesBack damages one node of a shard. The node names the block and the remedy. After
// the remedy, it comes back with the same chain.
func TestDamagedComesBack(t *testing.T) {
	t.Parallel()
	s := newRunningShard(t, 3)
	acme := s.newParty("acme", []string{"bank", "cash"}, 0)
	for range 10 {
		acme.post(t, acme.transfer("bank", "cash", 5), ledgerdv1.Level_LEVEL_DURABLE)
	}
	s.same(s.all()...)
	s.stop(2)
	tables, err := filepath.Glob(filepath.Join(s.homes[2].Data(), "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	inner, err := filepath.Glob(filepath.Join(s.homes[2].Data(), "*", "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	if tables = append(tables, inner...); len(tables) == 0 {
		t.Fatal("the store has no tables where they are looked for")
	}
	for _, table := range tables {
		rewrite(t, table, func(text []byte) []byte {
			for at := range min(len(text), 2000) {
				text[at] ^= 0xff
			}
			return text
		})
	}
	refusal(t, 1, []string{"damage", "move " + s.homes[2].Data() + " away"}, "start", "--home",
		s.homes[2].Dir)
	if err := os.Rename(s.homes[2].Data(), filepath.Join(s.dir, "damaged")); err != nil {
		t.Fatal(err)
	}
	s.start(2)
	s.ordering(s.all()...)
	acme.at(s.clientOf(2)).post(t, acme.put("back", testnet.Name(2)), ledgerdv1.Level_LEVEL_DURABLE)
	s.same(s.all()...)
	s.exports(s.all()...)
}
