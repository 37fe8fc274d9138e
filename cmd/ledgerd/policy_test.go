package main

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/client/signer"
)

// publicKey returns the public key of the keyring's key of acme.
func (s *shell) publicKey(keys string) string {
	s.t.Helper()
	return strings.TrimSpace(s.must("keys show acme --public --keys=" + keys))
}

func TestKeysRotate(t *testing.T) {
	t.Parallel()
	s := newShell(t, 2)
	s.bank()
	ring := filepath.Join(s.folder, "keys")
	before := s.publicKey(ring)
	if text := s.must("keys rotate acme --plain %n %k"); !strings.Contains(text, "signs with") {
		t.Error(text)
	}
	after := s.publicKey(ring)
	if after == before {
		t.Fatal("the key is the same")
	}
	listed := s.object("keys list acme %n %k")
	if text := fmt.Sprint(listed["keys"]); !strings.Contains(text, after) ||
		strings.Contains(text, before) || !strings.Contains(text, "in_keyring:true") {
		t.Error(text)
	}
	s.must("tx transfer acme:cash acme:vault 1 %n %k")
	// The old key is of no use any more.
	other := filepath.Join(s.folder, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(ring, "acme+old.key"), filepath.Join(other,
		"acme.key")); err != nil {
		t.Fatal(err)
	}
	if result := s.run("tx transfer acme:cash acme:vault 1 %n --keys=" + other); result.status ==
		exitDone || !strings.Contains(result.errs, "no key of organisation acme") {
		t.Error(result)
	}
	if result := s.run("keys revoke acme " + after + " %n %k"); result.status == exitDone ||
		!strings.Contains(result.errs, "keys rotate") {
		t.Error(result)
	}
}

// A rotation that was interrupted after the ledger had the new key is finished by the next call.
func TestKeysRotateGoesOn(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	ring := filepath.Join(s.folder, "keys")
	before := s.publicKey(ring)
	s.must("keys rotate acme --plain %n %k")
	next, err := os.ReadFile(filepath.Join(ring, "acme.key"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join(ring, "acme+old.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"acme+next.key": next, "acme.key": old} {
		if err := os.WriteFile(filepath.Join(ring, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s.publicKey(ring) != before {
		t.Fatal("the test has not restored the old key")
	}
	s.must("keys rotate acme --plain %n %k")
	s.must("tx transfer acme:cash acme:vault 1 %n %k")
}

// The new key is encrypted as a created one is.
func TestKeysRotateWithPassphrases(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	first, second := s.passphraseFile("first", "open sesame"), s.passphraseFile("second", "other")
	both := first + "," + second
	s.must("keys rotate acme %n %k --passphrase-file " + first)
	s.refuses("there is no terminal", "tx transfer acme:cash acme:vault 1 %n %k")
	s.must("tx transfer acme:cash acme:vault 1 %n %k --passphrase-file " + first)

	s.refuses("there is no terminal", "keys rotate acme %n %k --new-passphrase-file "+second)
	s.refuses("one file with --new-passphrase-file", "keys rotate acme %n %k --passphrase-file "+
		both)
	if _, err := os.Stat(filepath.Join(s.folder, "keys", "acme+next.key")); err == nil {
		t.Error("a refused rotation left a key")
	}
	s.must("keys rotate acme %n %k --passphrase-file " + first + " --new-passphrase-file " + second)
	transfer := "tx transfer acme:cash acme:vault 1 %n %k --passphrase-file "
	s.refuses("wrong passphrase", transfer+first)
	s.must(transfer + second)

	// A next key that waits has to open before it replaces the present one.
	s.must("keys create acme --next %k --passphrase-file " + first)
	s.refuses("wrong passphrase", "keys rotate acme %n %k --passphrase-file "+second)
	s.must("keys rotate acme %n %k --passphrase-file " + second + " --new-passphrase-file " + first)
	// Neither listing the keys nor rotating to a plain one needs more than the present one.
	s.must("keys list acme %n %k")
	s.must("keys rotate acme --plain %n %k --passphrase-file " + first)
	s.must("tx transfer acme:cash acme:vault 1 %n %k")
}

// A key that an external signer has is never replaced by one in a file.
func TestKeysRotateOfExternalSigners(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	ring := filepath.Join(s.folder, "keys")
	external := func() string {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		return serveKey(t, signer.Private(private))
	}
	for range 2 { // from a file to a signer, and from there to another
		socket := external()
		made := s.object("keys create acme --next %k --signer-socket " + socket)
		s.refuses("use it, or move the file away", "keys create acme --next --plain %k")
		s.must("keys rotate acme %n %k")
		if public := s.publicKey(ring); public != made["public_key"] {
			t.Errorf("%s signs, and not %v", public, made)
		}
		s.must("tx transfer acme:cash acme:vault 1 %n %k")
		before := s.publicKey(ring)
		s.refuses("ledgerd keys create acme --next", "keys rotate acme --plain %n %k")
		s.must("keys create acme --next %k --signer-socket " + socket)
		s.refuses("has the present key", "keys rotate acme %n %k")
		if err := os.Remove(filepath.Join(ring, "acme+next.key")); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(ring); err != nil || s.publicKey(ring) != before ||
			strings.Contains(fmt.Sprint(entries), "next") {
			t.Errorf("%v, %v", entries, err)
		}
	}
	// Back into a file only as a decision.
	s.must("keys create acme --next --plain %k")
	s.must("keys rotate acme %n %k")
	s.must("tx transfer acme:cash acme:vault 1 %n %k")
}

func TestOrgPolicy(t *testing.T) {
	t.Parallel()
	s := newShell(t, 2)
	s.bank()
	wantKeys(t, s.object("org policy acme %n"), "organisation number threshold keys "+
		"needed_for_changes")
	second, clerk := filepath.Join(s.folder, "second"), filepath.Join(s.folder, "clerk")
	s.must("keys create acme --plain --keys=" + second)
	s.must("keys create acme --plain --keys=" + clerk)
	s.must("org policy acme --set-key " + s.publicKey(second) + "=all --set-key " +
		s.publicKey(clerk) + "=post --limit unit:10=2 %n %k")
	change := s.object("block head %n")["transactions"].([]any)[0].(map[string]any)
	if text := s.must("tx status " + change["id"].(string) + " %n"); change["policy"] != true ||
		!strings.Contains(text, "1 of 3 keys sign, 2 above 10 unit") {
		t.Errorf("%v: %s", change, text)
	}
	if text := s.must("org policy acme %n"); !strings.Contains(text, "above 10 unit: 2") ||
		!strings.Contains(text, "post") {
		t.Error(text)
	}
	s.must("tx transfer acme:cash acme:vault 10 %n --keys=" + clerk)
	if result := s.run("tx transfer acme:cash acme:vault 11 %n --keys=" + clerk); result.status ==
		exitDone || !strings.Contains(result.errs, "2 keys of organisation acme") {
		t.Error(result)
	}
	// The second signature comes by a file.
	s.must("tx post --posting acme:cash=-11 --posting acme:vault=11 --out %d/payment %n --keys=" +
		clerk)
	s.must("tx submit %d/payment --sign %n --keys=" + second)
	// A change needs two keys with the role all.
	if result := s.run("org policy acme --threshold 2 %n %k"); result.status == exitDone ||
		!strings.Contains(result.errs, "--with") {
		t.Error(result)
	}
	s.must("org policy acme --assets EUR --out %d/change %n %k")
	s.must("tx submit %d/change --sign %n --keys=" + second)
	if text := s.must("org policy acme %n"); !strings.Contains(text, "only EUR") {
		t.Error(text)
	}
	s.must("keys revoke acme " + s.publicKey(clerk) + " --with " +
		filepath.Join(second, "acme.key") + " %n %k")
	if result := s.run("tx transfer acme:cash acme:vault 1 %n --keys=" + clerk); result.status ==
		exitDone {
		t.Error(result)
	}
	for _, line := range []string{"org policy acme --limit EUR %n %k",
		"org policy acme --set-key 12=all %n %k", "org policy acme --threshold 9 %n %k",
		"keys revoke acme 12 %n %k"} {
		if result := s.run(line); result.status != exitUsage {
			t.Errorf("%s: %+v", line, result)
		}
	}
}
