//go:build cgo

package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/keyfile"
	"github.com/ledgerd/ledgerd/client/signer"
	"github.com/ledgerd/ledgerd/ledger"
)

const pin = "123456"

// softHSM makes a token "ledger" of SoftHSM, and returns the module and a file with its PIN.
func softHSM(t *testing.T) (module, pinFile string) {
	t.Helper()
	tool, err := exec.LookPath("softhsm2-util")
	if err != nil {
		t.Skip("SoftHSM is not installed (Debian: apt-get install softhsm2)")
	}
	for _, pattern := range []string{"/usr/lib/softhsm/libsofthsm2.so",
		"/usr/lib/*/softhsm/libsofthsm2.so", "/usr/local/lib/softhsm/libsofthsm2.so",
		"/opt/homebrew/lib/softhsm/libsofthsm2.so"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			module = found[0]
		}
	}
	if module == "" {
		t.Skip("SoftHSM is installed, but not where its module is looked for")
	}
	folder := t.TempDir()
	pinFile = filepath.Join(folder, "pin")
	configuration := filepath.Join(folder, "softhsm2.conf")
	tokens := filepath.Join(folder, "tokens")
	if err := os.Mkdir(tokens, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{pinFile: pin + "\n",
		configuration: "directories.tokendir = " + tokens + "\nlog.level = ERROR\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SOFTHSM2_CONF", configuration)
	t.Setenv(pinVariable, "")
	if out, err := exec.Command(tool, "--init-token", "--free", "--label", "ledger", "--pin", pin,
		"--so-pin", pin).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return module, pinFile
}

// programs builds ledgerd and this program into one folder.
func programs(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	out, err := exec.Command("go", "build", "-o", folder, "../ledgerd", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return folder
}

func run(t *testing.T, words ...string) (string, error) {
	t.Helper()
	command := exec.Command(words[0], words[1:]...)
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return strings.TrimSpace(string(out)), err
}

func must(t *testing.T, words ...string) string {
	t.Helper()
	out, err := run(t, words...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", words, err, out)
	}
	return out
}

// The story of docs/keys.md: a key on a token signs for an organisation and for an operator, by
// way of a command and of a socket.
func TestKeysOnAToken(t *testing.T) {
	module, pinFile := softHSM(t)
	folder := programs(t)
	here, ledgerd := filepath.Join(folder, "ledgerd-pkcs11"), filepath.Join(folder, "ledgerd")
	on := []string{"--module", module, "--token", "ledger", "--pin-file", pinFile}
	ours := func(words ...string) []string {
		return append(append([]string{here}, words...), on...)
	}

	if list := must(t, here, "list", "--module", module); !strings.Contains(list, `"ledger"`) {
		t.Error(list)
	}
	public := must(t, ours("generate", "--key", "acme")...)
	if _, err := run(t, ours("generate", "--key", "acme")...); err == nil ||
		!strings.Contains(err.Error(), "already") {
		t.Errorf("a second key of that name: %v", err)
	}
	keys := filepath.Join(folder, "keys")
	token := []string{"--pkcs11-module", module, "--token-label", "ledger", "--pin-file", pinFile}
	must(t, append([]string{ledgerd, "keys", "create", "acme", "--keys", keys}, token...)...)
	if shown := must(t, ledgerd, "keys", "show", "acme", "--public", "--keys",
		keys); shown != public {
		t.Errorf("the keyring has the key %s, and the token %s", shown, public)
	}
	operator := filepath.Join(folder, "operator.key")
	must(t, append([]string{ledgerd, "keys", "create", "--file", operator, "--key-label", "acme"},
		token...)...)
	made := must(t, ledgerd, "init", "--home", filepath.Join(folder, "home"), "--operator",
		operator)
	if !strings.Contains(made, public) {
		t.Errorf("the operator is not %s:\n%s", public, made)
	}
	ring, err := client.OpenKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	byCommand, err := ring.Load("acme")
	if err != nil {
		t.Fatal(err)
	}
	file, err := keyfile.Read(operator)
	if err != nil {
		t.Fatal(err)
	}
	forOperator, err := client.OpenSigner(file, operator, nil)
	if err != nil {
		t.Fatal(err)
	}
	socket := serveSocket(t, ours("serve", "--key", "acme"))
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("others may use the socket: %v, %v", info, err)
	}
	must(t, ledgerd, "keys", "create", "socket", "--keys", keys, "--signer-socket", socket)
	bySocket, err := ring.Load("socket")
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range []client.Key{byCommand, bySocket,
		{Organisation: ledger.Operator, Signer: forOperator}} {
		bundle, err := client.Sign(t.Context(), []client.Key{each}, transaction())
		if err != nil {
			t.Fatal(err)
		}
		signature := bundle.Signatures()[0]
		if signature.Key.String() != public || !ed25519.Verify(signature.Key[:],
			bundle.SigningMessage(), signature.Bytes[:]) {
			t.Errorf("%+v", signature)
		}
	}
	wrongPIN := filepath.Join(folder, "wrong")
	if err := os.WriteFile(wrongPIN, []byte("654321\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sign := []string{here, "sign", "--module", module, "--token"}
	for says, words := range map[string][]string{
		"no token":           append(sign, "another", "--key", "acme", "--pin-file", pinFile),
		"no Ed25519 key":     append(sign, "ledger", "--key", "none", "--pin-file", pinFile),
		"PINs":               append(sign, "ledger", "--key", "acme", "--pin-file", wrongPIN),
		"no such file":       append(sign, "ledger", "--key", "acme", "--pin-file", folder+"/none"),
		"shared library":     {here, "list", "--module", folder + "/none.so"},
		"no PKCS #11 module": {here, "list", "--module", wrongPIN},
	} {
		if _, err := run(t, words...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", words, err)
		}
	}
}

func transaction() ledger.Transaction {
	return ledger.Transaction{Ledger: ledger.Hash{1}, Signer: "acme",
		Nonce: ledger.Nonce{Stream: 1, Sequence: 1},
		Postings: []ledger.Posting{
			{Account: "acme:a", Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-5)},
			{Account: "acme:b", Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(5)},
		}}
}

// serveSocket runs ledgerd-pkcs11 serve and returns its socket, once it answers.
func serveSocket(t *testing.T, words []string) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "pkcs11-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(folder, "sock")
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, words[0], append(words[1:], "--listen", socket)...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = command.Wait()
		_ = os.RemoveAll(folder)
	})
	for range 300 {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
			return socket
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the socket does not answer")
	return ""
}

// One process answers several requests, and refuses what it must not sign.
func TestServingAKey(t *testing.T) {
	module, pinFile := softHSM(t)
	o := options{module: module, token: "ledger", key: "acme", pin: pinFile}
	err := o.with(t.Context(), true, func(tk *token) error {
		k, err := tk.generate(o.key)
		if err != nil {
			return err
		}
		path := filepath.Join(t.TempDir(), "s")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, path, k, io.Discard) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		var external *signer.External
		for range 100 {
			public, err := signer.Remote{Socket: path}.PublicKey(ctx, "acme")
			if err != nil {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			if external, err = signer.NewExternal(signer.Remote{Socket: path},
				public); err != nil {
				return err
			}
			break
		}
		if external == nil || external.Public() != k.Public() {
			t.Fatal("the socket does not answer")
		}
		defer external.Close()
		for range 3 {
			if err := external.Test(ctx, "acme"); err != nil {
				t.Error(err)
			}
		}
		_, err = external.Sign(ctx, signer.Message{Kind: signer.KindBundle, Organisation: "acme",
			Bytes: []byte("anything"), Bundle: nil})
		if err == nil {
			t.Error("it signed a message without its bundle")
		}
		if err := serve(ctx, path, k, io.Discard); err == nil ||
			!strings.Contains(err.Error(), "another process") {
			t.Errorf("a second server: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPoints(t *testing.T) {
	t.Parallel()
	point := bytes.Repeat([]byte{7}, 32)
	for name, value := range map[string][]byte{
		"as it is":     point,
		"octet string": append([]byte{4, 32}, point...),
		"bit string":   append([]byte{3, 33, 0}, point...),
	} {
		if public, err := parsePoint(value); err != nil || !bytes.Equal(public[:], point) {
			t.Errorf("%s: %v, %v", name, public, err)
		}
	}
	for _, bad := range []string{"", "00", "0420", "04200707", "0321", "30220420",
		"0421" + hex.EncodeToString(append(point, 7)),
		"0321" + hex.EncodeToString(append(point, 7))} {
		value, err := hex.DecodeString(bad)
		if err != nil {
			t.Fatal(err)
		}
		if public, err := parsePoint(value); err == nil {
			t.Errorf("%s is the point %v", bad, public)
		}
	}
}

// FuzzPoint parses any public key that a token may show.
func FuzzPoint(f *testing.F) {
	f.Add(append([]byte{4, 32}, make([]byte, 32)...))
	f.Add(append([]byte{3, 33, 0}, make([]byte, 32)...))
	f.Fuzz(func(t *testing.T, value []byte) {
		if public, err := parsePoint(value); err == nil && !bytes.Contains(value, public[:]) {
			t.Fatal("a point that the value does not have")
		}
	})
}
