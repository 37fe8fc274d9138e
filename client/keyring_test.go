package client

import (
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

func TestKeyring(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "a", "keys")
	ring, err := OpenKeyring(folder)
	if err != nil {
		t.Fatal(err)
	}
	if names, err := ring.List(); err != nil || len(names) != 0 {
		t.Fatalf("an empty keyring lists %v, %v", names, err)
	}
	if _, err := ring.Load("acme"); !errors.Is(err, ErrNoKey) {
		t.Fatal(err)
	}
	made, err := ring.Create("acme")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := ring.Load("acme")
	if err != nil || !loaded.Private.Equal(made.Private) || loaded.Organisation != "acme" ||
		loaded.Public() != made.Public() {
		t.Fatalf("%v, %v", loaded, err)
	}
	if info, err := os.Stat(filepath.Join(folder, "acme.key")); err != nil ||
		info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if _, err := ring.Create("acme"); !errors.Is(err, ErrKeyExists) {
		t.Fatal(err)
	}
	if again, created, err := ring.LoadOrCreate("acme"); err != nil || created ||
		!again.Private.Equal(made.Private) {
		t.Fatalf("%v, %v", created, err)
	}
	if _, created, err := ring.LoadOrCreate("zeta"); err != nil || !created {
		t.Fatalf("%v, %v", created, err)
	}
	if err := os.WriteFile(filepath.Join(folder, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	names, err := ring.List()
	if err != nil || len(names) != 2 || names[0] != "acme" || names[1] != "zeta" {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range []string{"", "../acme", "a/b", ".hidden"} {
		if _, err := ring.Create(ledger.OrganisationName(name)); !errors.Is(err, ledger.ErrName) {
			t.Errorf("a key of %q: %v", name, err)
		}
		if _, err := ring.Load(ledger.OrganisationName(name)); !errors.Is(err, ledger.ErrName) {
			t.Errorf("a key of %q: %v", name, err)
		}
	}
}

func TestDamagedKeyFiles(t *testing.T) {
	t.Parallel()
	ring, err := OpenKeyring(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Create("acme"); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(ring.file("acme"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"cut": good[:len(good)/2], "empty": nil,
		"other": good, "large": make([]byte, maxKeyFile+1)} {
		if err := os.WriteFile(filepath.Join(ring.Folder(), name+keyExtension), text,
			0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ring.Load(ledger.OrganisationName(name)); !errors.Is(err, ErrKeyFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeyringFolder(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(KeysVariable, folder)
	if ring, err := OpenKeyring(""); err != nil || ring.Folder() != folder {
		t.Fatalf("%v, %v", ring, err)
	}
	t.Setenv(KeysVariable, "")
	t.Setenv("XDG_CONFIG_HOME", folder)
	if ring, err := OpenKeyring(""); err != nil || filepath.Base(ring.Folder()) != "keys" {
		t.Fatalf("%v, %v", ring, err)
	}
}

func FuzzKeyFile(f *testing.F) {
	ring, err := OpenKeyring(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	if _, err := ring.Create("acme"); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(ring.file("acme"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if key, err := parseKey(text, "acme"); err == nil && len(key) != ed25519.PrivateKeySize {
			t.Fatalf("a key of %d bytes", len(key))
		}
	})
}
