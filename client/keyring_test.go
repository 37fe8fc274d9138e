package client

import (
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/client/keyfile"
	"github.com/ledgerd/ledgerd/client/signer"
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
	if err != nil || !same(loaded, made) || loaded.Organisation != "acme" ||
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
		!same(again, made) {
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
	if err := os.Mkdir(filepath.Join(ring.Folder(), "folder.key"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Load("folder"); !errors.Is(err, ErrKeyFile) {
		t.Error(err)
	}
	for name, text := range map[string][]byte{"cut": good[:len(good)/2], "empty": nil,
		"other": good, "large": make([]byte, 16<<10+1)} {
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

// same reports whether two keys in memory are equal.
func same(a, b Key) bool {
	one, two := a.Signer.(signer.Private), b.Signer.(signer.Private)
	return ed25519.PrivateKey(one).Equal(ed25519.PrivateKey(two))
}

// passphrases is a person who knows some passphrases, and chooses the first for new files.
type passphrases struct {
	known []string
	asked int
}

func (p *passphrases) Open(_ string, try func([]byte) error) (err error) {
	err = ErrPassphrase
	for i := 0; i < len(p.known) && errors.Is(err, ErrPassphrase); i++ {
		p.asked++
		err = try([]byte(p.known[i]))
	}
	return err
}

func (p *passphrases) New(string) ([]byte, error) {
	if len(p.known) == 0 {
		return nil, nil
	}
	return []byte(p.known[0]), nil
}

func TestKeyringWithPassphrases(t *testing.T) {
	t.Parallel()
	ring, err := OpenKeyring(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	person := &passphrases{known: []string{"first"}}
	ring.Passphrases = person
	made, err := ring.Create("acme")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := ring.Inspect("acme")
	if err != nil || shown.Form() != keyfile.Encrypted || shown.Public != made.Public() ||
		person.asked != 0 {
		t.Fatalf("%+v, %v, asked %d times", shown, err, person.asked)
	}
	if loaded, err := ring.Load("acme"); err != nil || !same(loaded, made) {
		t.Fatal(err)
	}
	if _, err := ring.Create("acme"); !errors.Is(err, ErrKeyExists) {
		t.Error(err)
	}
	for name, source := range map[string]Passphrases{"no source": nil,
		"others": &passphrases{known: []string{"second"}}, "none": &passphrases{}} {
		ring.Passphrases = source
		if _, err := ring.Load("acme"); !errors.Is(err, ErrPassphrase) ||
			errors.Is(err, ErrKeyFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Another passphrase, none, and one again.
	next := &passphrases{known: []string{"second"}}
	path := ring.file("acme")
	for i, step := range []struct{ from, to Passphrases }{{person, next}, {next, &passphrases{}},
		{nil, person}} {
		if err := Reencrypt(path, step.from, step.to); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		ring.Passphrases = step.to
		if loaded, err := ring.Load("acme"); err != nil || !same(loaded, made) {
			t.Fatalf("step %d: %v", i, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("step %d: %v, %v", i, info.Mode(), err)
		}
	}
	if err := Reencrypt(path, next, next); !errors.Is(err, ErrPassphrase) {
		t.Error(err)
	}
	if entries, err := os.ReadDir(ring.Folder()); err != nil || len(entries) != 1 {
		t.Errorf("drafts are left: %v, %v", entries, err)
	}
}

func TestKeyringWithExternalSigner(t *testing.T) {
	t.Parallel()
	ring, err := OpenKeyring(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ring.Passphrases = &passphrases{known: []string{"never asked for"}}
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	remote := signer.Remote{Socket: filepath.Join(t.TempDir(), "none.sock")}
	text, err := keyfile.EncodeRemote("acme", ledger.PublicKey(public), remote)
	if err != nil {
		t.Fatal(err)
	}
	if err := keyfile.Create(ring.file("acme"), text); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Create("acme"); !errors.Is(err, ErrKeyExists) {
		t.Error(err)
	}
	key, err := ring.Load("acme")
	if err != nil || key.Public() != ledger.PublicKey(public) {
		t.Fatal(err)
	}
	// Nobody listens there.
	if _, err := Sign(testContext(t), []Key{key}, ledger.Transaction{Signer: "acme",
		Nonce: ledger.Nonce{Stream: 1, Sequence: 1}}); !errors.Is(err, signer.ErrExternal) {
		t.Error(err)
	}
	if err := Reencrypt(ring.file("acme"), nil, &passphrases{}); !errors.Is(err, ErrKeyFile) {
		t.Errorf("a passphrase for a key that is not there: %v", err)
	}
	if names, err := ring.List(); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}
