package home

import (
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

func create(t *testing.T, dir string) *Home {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	genesis := &ledger.Genesis{Chain: "books", Time: 1,
		Members: []ledger.Member{{Name: "node-0", Key: public, Address: "127.0.0.1:9001"}}}
	home, err := Create(dir, Default(), genesis, key)
	if err != nil {
		t.Fatal(err)
	}
	return home
}

func TestCreateThenLoad(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "node-0")
	made := create(t, dir)
	loaded, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !loaded.Key.Equal(made.Key) || loaded.Genesis.Hash() != made.Genesis.Hash() ||
		loaded.Name() != "node-0" || loaded.FabricAddress() != "127.0.0.1:9001" {
		t.Fatalf("loaded %+v, made %+v", loaded, made)
	}
	if loaded.Config.Ordering != made.Config.Ordering ||
		loaded.Config.API.Listen != made.Config.API.Listen ||
		loaded.Config.Fabric != made.Config.Fabric {
		t.Fatalf("configuration %+v, want %+v", loaded.Config, made.Config)
	}
	if info, err := os.Stat(filepath.Join(dir, KeyFile)); err != nil ||
		info.Mode().Perm() != 0o600 {
		t.Fatalf("the key's mode is %v, %v", info.Mode(), err)
	}
	if _, err := Create(dir, Default(), made.Genesis, made.Key); !errors.Is(err, ErrExists) {
		t.Fatalf("a second Create gives %v", err)
	}
}

// Errors of a damaged home name the file and what to do.
func TestDamagedHomesAreRefused(t *testing.T) {
	t.Parallel()
	replace := func(name, old, text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			after := strings.Replace(string(before), old, text, 1)
			if after == string(before) {
				t.Fatalf("%s has no %q", name, old)
			}
			if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	empty := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, name), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   error
		says   string
	}{
		"no configuration": {remove(ConfigFile), ErrHome, "ledgerd testnet"},
		"no genesis":       {remove(GenesisFile), ErrHome, GenesisFile},
		"no key":           {remove(KeyFile), ErrHome, KeyFile},
		"a key of another node": {func(t *testing.T, dir string) {
			swapKey(t, dir)
		}, ErrHome, "different chains"},
		"a key that is none": {replace(KeyFile, "PRIVATE", "PUBLIC"), ErrHome, "private key"},
		"a mistyped key": {replace(ConfigFile, "heartbeat =", "hartbeat ="), ErrConfig,
			"hartbeat"},
		"a negative time": {replace(ConfigFile, `refuse_after = "30s"`, `refuse_after = "-1s"`),
			ErrConfig, "shards.refuse_after"},
		"an engine that is none": {replace(ConfigFile, `"allconcur+"`, `"raft"`), ErrConfig,
			"ordering.engine"},
		"a fabric that is none": {replace(ConfigFile, `kind = "p2p"`, `kind = "tcp"`), ErrConfig,
			"fabric.kind"},
		"an address that is none": {replace(ConfigFile, `"127.0.0.1:8080"`, `"here"`), ErrConfig,
			"api.listen"},
		"a timeout that is short": {replace(ConfigFile, `"800ms"`, `"200ms"`), ErrConfig,
			"suspect_after"},
		"an alarm at once": {replace(ConfigFile, `alarm_after = "1m0s"`, `alarm_after = "10ms"`),
			ErrConfig, "shards.alarm_after"},
		"a limit of memory that is low": {replace(ConfigFile, "memory_limit_bytes = 0",
			"memory_limit_bytes = 1073741"), ErrConfig, "runtime.memory_limit_bytes"},
		"an empty configuration":  {empty(ConfigFile), ErrConfig, "has no api.listen"},
		"a configuration no TOML": {replace(ConfigFile, "[api]", "[api"), ErrConfig, ConfigFile},
		"a genesis with a novelty": {replace(GenesisFile, `"chain"`, `"extra": 1, "chain"`),
			ErrHome, "extra"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			create(t, dir)
			test.damage(t, dir)
			_, err := Load(dir)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("Load gives %v; want %v that mentions %q", err, test.want, test.says)
			}
		})
	}
}

func swapKey(t *testing.T, dir string) {
	other := t.TempDir()
	create(t, other)
	text, err := os.ReadFile(filepath.Join(other, KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, KeyFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A node of a book of several shards gets the genesis of its own shard.
func TestGenesisForKey(t *testing.T) {
	t.Parallel()
	keys := make([]ed25519.PrivateKey, 3)
	genesis := &ledger.Genesis{Chain: "books", Time: 1, Shards: make([][]ledger.Member, 3),
		Tree: make([]ledger.ShardID, 3)}
	for i := range keys {
		public, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		keys[i], genesis.Shards[i] = key, []ledger.Member{{Name: string(rune('a' + i)), Key: public,
			Address: "127.0.0.1:9001"}}
	}
	genesis.Members = genesis.Shards[0]
	dir := t.TempDir()
	if _, err := Create(dir, Default(), genesis, keys[2]); !errors.Is(err, ErrHome) ||
		!strings.Contains(err.Error(), "none of shard 0's 1 members") {
		t.Errorf("another shard's key: %v", err)
	}
	own, err := GenesisFor(genesis, keys[2])
	if err != nil || own.Shard != 2 || own.Book() != genesis.Book() {
		t.Fatalf("%+v, %v", own, err)
	}
	if _, err := Create(dir, Default(), own, keys[2]); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(dir)
	if err != nil || loaded.Name() != "c" || loaded.Self != 0 ||
		loaded.Genesis.Hash() != own.Hash() {
		t.Errorf("%+v, %v", loaded, err)
	}
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := GenesisFor(genesis, stranger); err != nil || same != genesis {
		t.Errorf("a stranger's: %+v, %v", same, err)
	}
}
