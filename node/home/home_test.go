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
	genesis := &ledger.Genesis{Chain: "books", Time: 1, Members: []ledger.Member{{Name: "node-0", Key: public, Address: "127.0.0.1:9001"}}}
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
	if !loaded.Key.Equal(made.Key) || loaded.Genesis.Hash() != made.Genesis.Hash() || loaded.Name() != "node-0" || loaded.FabricAddress() != "127.0.0.1:9001" {
		t.Fatalf("loaded %+v, made %+v", loaded, made)
	}
	if loaded.Config.Ordering != made.Config.Ordering || loaded.Config.API.Listen != made.Config.API.Listen || loaded.Config.Fabric != made.Config.Fabric {
		t.Fatalf("configuration %+v, want %+v", loaded.Config, made.Config)
	}
	if info, err := os.Stat(filepath.Join(dir, KeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the key's mode is %v, %v", info.Mode(), err)
	}
	if _, err := Create(dir, Default(), made.Genesis, made.Key); !errors.Is(err, ErrExists) {
		t.Fatalf("a second Create gives %v", err)
	}
}

// What is wrong with a home is told with the file, and what to do.
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
	for name, test := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   error
		says   string
	}{
		"no configuration":         {remove(ConfigFile), ErrHome, "ledgerd testnet"},
		"no genesis":               {remove(GenesisFile), ErrHome, GenesisFile},
		"no key":                   {remove(KeyFile), ErrHome, KeyFile},
		"a key of another node":    {func(t *testing.T, dir string) { swapKey(t, dir) }, ErrHome, "different chains"},
		"a key that is none":       {replace(KeyFile, "PRIVATE", "PUBLIC"), ErrHome, "private key"},
		"a mistyped key":           {replace(ConfigFile, "heartbeat =", "hartbeat ="), ErrConfig, "hartbeat"},
		"an engine that is none":   {replace(ConfigFile, `"allconcur+"`, `"raft"`), ErrConfig, "ordering.engine"},
		"a fabric that is none":    {replace(ConfigFile, `kind = "p2p"`, `kind = "tcp"`), ErrConfig, "fabric.kind"},
		"an address that is none":  {replace(ConfigFile, `"127.0.0.1:8080"`, `"here"`), ErrConfig, "api.listen"},
		"a timeout that is short":  {replace(ConfigFile, `"5s"`, `"600ms"`), ErrConfig, "suspect_after"},
		"a configuration no TOML":  {replace(ConfigFile, "[api]", "[api"), ErrConfig, ConfigFile},
		"a genesis with a novelty": {replace(GenesisFile, `"chain"`, `"extra": 1, "chain"`), ErrHome, "extra"},
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
