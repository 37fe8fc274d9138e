package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client/keyfile"
	"github.com/ledgerd/ledgerd/client/signer"
	"github.com/ledgerd/ledgerd/ledger"
)

// passphraseFile writes a file with a passphrase and returns the name that commands of the shell
// give it.
func (s *shell) passphraseFile(name, passphrase string) string {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, name), []byte(passphrase+"\n"),
		0o600); err != nil {
		s.t.Fatal(err)
	}
	return "%d/" + name
}

func (s *shell) refuses(says, line string) {
	s.t.Helper()
	if result := s.run(line); result.status == exitDone || !strings.Contains(result.errs, says) {
		s.t.Errorf("ledgerd %s: exit status %d, %q\n%s", line, result.status, result.errs,
			result.out)
	}
}

// The life of an encrypted key: made, shown without its passphrase, used, and with another
// passphrase.
func TestKeysWithPassphrases(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	first, second := s.passphraseFile("first", "open sesame"), s.passphraseFile("second", "other")
	both := first + "," + second
	// A script cannot be asked. Its key is plain, and it is told so.
	for _, line := range []string{"keys create script %k", "init --home %d/home"} {
		if result := s.run(line); result.status != exitDone ||
			!strings.Contains(result.errs, "gets no passphrase") {
			t.Errorf("ledgerd %s: %+v", line, result)
		}
	}
	if err := os.Remove(filepath.Join(s.folder, "keys", "script.key")); err != nil {
		t.Fatal(err)
	}
	made := s.object("keys create acme %k --passphrase-file " + first)
	if made["kept_by"] != "passphrase" {
		t.Error(made)
	}
	text, err := os.ReadFile(made["file"].(string))
	if err != nil || bytes.Contains(text, []byte("PRIVATE")) {
		t.Fatalf("%s, %v", text, err)
	}
	if list := s.object("keys list %k")["keys"].([]any); len(list) != 1 ||
		list[0].(map[string]any)["public_key"] != made["public_key"] {
		t.Error(list)
	}
	s.must("org add acme %n %k --passphrase-file " + first)
	s.must("org add acme %n %k") // is registered already
	s.refuses("the key is encrypted, and there is no terminal",
		"account open acme:a --issuer %n %k")
	s.refuses("wrong passphrase", "account open acme:a %n %k --passphrase-file "+second)
	s.refuses("first line of", "account open acme:a %n %k --passphrase-file /dev/null")
	s.must("account open acme:a --issuer %n %k --passphrase-file " + second + "," + first)
	// Another passphrase, none, and one again.
	change := "keys passphrase acme %k --passphrase-file "
	s.refuses("wrong passphrase", change+second+" --new-passphrase-file "+second)
	s.refuses("there is no terminal", change+first)
	s.must(change + first + " --new-passphrase-file " + second)
	s.refuses("wrong passphrase", "account open acme:b %n %k --passphrase-file "+first)
	s.must("account open acme:b %n %k --passphrase-file " + both)
	if changed := s.object(change + second + " --plain"); changed["kept_by"] != "plain" {
		t.Error(changed)
	}
	s.must("account open acme:c %n %k")
	s.must("keys passphrase --file %d/keys/acme.key --new-passphrase-file " + first)
	s.refuses("wrong passphrase", "account open acme:d %n %k --passphrase-file "+second)
	if shown := s.must("keys show acme %k"); !strings.Contains(shown, "a file with a passphrase") {
		t.Error(shown)
	}
	s.refuses("either an organisation or a key file", "keys passphrase %k")
	s.refuses("ledgerd keys create none", "keys passphrase none %k --plain")
	s.refuses("one file with --passphrase-file", "keys create zeta %k --passphrase-file "+both)
	s.refuses("none of the others can be", "keys create zeta %k --plain --passphrase-file "+first)
}

// An operator's key may have a passphrase, too. A node's may not.
func TestOperatorsWithPassphrases(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 1)
	secret := s.passphraseFile("secret", "open sesame")
	s.must("keys passphrase --file %d/operator.key --new-passphrase-file " + secret)
	s.refuses("the operator's key", "org add acme --plain --operator %d/operator.key %n %k")
	s.must("org add acme --plain --operator %d/operator.key %n %k --passphrase-file " + secret)
	made := s.object("init --home %d/home --passphrase-file " + secret)
	file, err := keyfile.Read(made["operator_key"].(string))
	if err != nil || file.Form() != keyfile.Encrypted ||
		made["operators"].([]any)[0] != file.Public.String() {
		t.Errorf("%+v, %v", file, err)
	}
	// Another chain needs its public half only.
	other := s.object("init --home %d/other --operator %d/home/operator.key")
	if other["operators"].([]any)[0] != file.Public.String() {
		t.Error(other)
	}
	s.must("keys create --file %d/second.key --passphrase-file " + secret)
	s.refuses("use it, or move the file away", "keys create --file %d/second.key --plain")
	s.refuses("a node's key is plain",
		"init --home %d/third --genesis %d/home/genesis.json --key %d/second.key")
}

// LEDGERD_PASSPHRASE_FILE stands in for the flag.
func TestPassphraseVariable(t *testing.T) {
	s := &shell{t: t, folder: t.TempDir()}
	s.passphraseFile("first", "open sesame")
	t.Setenv(passphraseVariable, filepath.Join(s.folder, "first"))
	if made := s.object("keys create acme %k"); made["kept_by"] != "passphrase" {
		t.Error(made)
	}
	s.must("keys passphrase acme %k --plain")
	if made := s.object("keys create zeta %k --plain"); made["kept_by"] != "plain" {
		t.Error(made)
	}
	// The variable is for the present passphrase, never for a new one.
	s.refuses("there is no terminal", "keys passphrase acme %k")
}

// serveKey serves a key on a socket.
func serveKey(t *testing.T, key signer.Private) (socket string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "signer-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(folder, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = signer.Serve(context.Background(), conn, conn,
					func(ledger.OrganisationName) (signer.Signer, error) { return key, nil }, nil)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		_ = os.RemoveAll(folder)
	})
	return socket
}

// An organisation and an operator whose keys are with an external signer do what others do.
func TestExternalSigner(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 4)
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	socket := serveKey(t, signer.Private(private))
	made := s.object("keys create acme %k --signer-socket " + socket)
	public := hex.EncodeToString(private.Public().(ed25519.PublicKey))
	if made["public_key"] != public || made["kept_by"] != "socket" || made["signer"] != socket {
		t.Error(made)
	}
	if shown := s.must("keys list %k"); !strings.Contains(shown, "the socket "+socket) {
		t.Error(shown)
	}
	s.must("org add acme --operator %d/operator.key %n %k")
	s.must("account open acme:mint --issuer %n %k")
	s.must("account open acme:cash %n %k")
	s.must("tx transfer acme:mint acme:cash 5 %n %k")
	s.must("tx post --posting acme:cash=-1 --posting acme:mint=1 --out %d/payment.tx %n %k")
	s.must("tx submit %d/payment.tx %n")
	lines := `{"postings":[{"account":"a","amount":-5},{"account":"b","amount":5}]}` + "\n"
	s.must("tx import - --issuer a --org acme --quiet --state=%d/state %n %k", lines)
	// The operator's key, too.
	operator := readOperatorKey(t, filepath.Join(s.folder, "operator.key"))
	s.must("keys create --file %d/outside.key --signer-socket " +
		serveKey(t, signer.Private(operator)))
	s.must("org add zeta --plain --operator %d/outside.key %n %k")
	s.must("cluster leave --name node-3 --operator %d/outside.key --via " + s.doors[0].URL)
}

func readOperatorKey(t *testing.T, path string) ed25519.PrivateKey {
	t.Helper()
	private, err := readNodeKey(path)
	if err != nil {
		t.Fatal(err)
	}
	return private
}

// A command that misbehaves signs nothing: neither when its key is registered nor later.
func TestExternalSignerThatMisbehaves(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	shown := s.object("keys show acme %k")
	public, err := ledger.ParsePublicKey(shown["public_key"].(string))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ script, says string }{
		"hangs":        {"exec sleep 60", "no answer in time"},
		"forks":        {"sleep 60 & wait", "no answer in time"},
		"lies":         {`echo '{"signature":"` + strings.Repeat("0a", 64) + `"}'`, "another key"},
		"floods":       {"yes", "more than 16384 bytes"},
		"closes early": {"exec <&- >&-", "no JSON object"},
		"fails":        {"exit 7", "exit status 7"},
		"refuses":      {`echo '{"error":"not today"}'; exit 1`, "not today"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := t.TempDir()
			script := filepath.Join(keys, "sign")
			if err := os.WriteFile(script, []byte("#!/bin/sh\n"+test.script+"\n"),
				0o700); err != nil {
				t.Fatal(err)
			}
			text, err := keyfile.EncodeRemote("acme", public,
				signer.Remote{Command: []string{script}})
			if err == nil {
				err = keyfile.Create(filepath.Join(keys, "acme.key"), text)
			}
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			result := s.run("tx transfer acme:cash acme:vault 1 --timeout 2s %n --keys=" + keys)
			if result.status != exitFailure || !strings.Contains(result.errs, test.says) ||
				!strings.Contains(result.errs, "signing for acme") || len(result.errs) > 2000 {
				t.Errorf("exit status %d: %s", result.status, result.errs)
			}
			if took := time.Since(began); took > 25*time.Second {
				t.Errorf("it took %v", took)
			}
			if name == "hangs" || name == "forks" {
				return // for two minutes
			}
			if result := s.run("keys create other --keys=" + keys + " --signer-command " +
				script); result.status != exitFailure {
				t.Errorf("it was registered: %+v", result)
			}
			if _, err := os.Stat(filepath.Join(keys, "other.key")); err == nil {
				t.Error("a refused key left a file")
			}
		})
	}
	s.refuses("is no shell command", `keys create other %k --signer-command /bin/sh'x'`)
	s.refuses("no such file", "keys create other %k --signer-command /no/such/program")
	s.refuses("--token-label is missing", "keys create other %k --pkcs11-module /m.so")
	s.refuses("--pkcs11-module", "keys create other %k --token-label t")
	s.refuses("no passphrase", "keys create other %k --plain --signer-socket /s")
	s.refuses("none of the others can be",
		"keys create other %k --signer-socket /s --signer-command /bin/true")
}
