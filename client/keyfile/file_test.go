package keyfile

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ledgerd/ledgerd/client/signer"
	"github.com/ledgerd/ledgerd/ledger"
)

// lowWork is the work factor of tests that are not about it.
const lowWork = 4

var (
	private = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	public  = ledger.PublicKey(private.Public().(ed25519.PublicKey))
)

// texts returns a file of each form.
func texts(t testing.TB) map[Form][]byte {
	t.Helper()
	must := func(text []byte, err error) []byte {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return text
	}
	return map[Form][]byte{
		Plain:     must(EncodePlain("acme", private)),
		Encrypted: must(encrypt("acme", private, []byte("open sesame"), lowWork)),
		Command: must(EncodeRemote("acme", public, signer.Remote{Command: []string{"/bin/sign",
			"with: \"signs\"\n", "-----END PUBLIC KEY-----"}})),
		Socket: must(EncodeRemote("acme", public, signer.Remote{Socket: "/run/sign.sock"})),
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	for form, text := range texts(t) {
		file, err := Parse(text)
		if err != nil || file.Form() != form || file.Public != public ||
			file.Organisation != "acme" {
			t.Errorf("%s: %+v, %v", form, file, err)
			continue
		}
		got, err := file.Private([]byte("open sesame"))
		remote, named := file.Remote()
		if form == Plain || form == Encrypted {
			if err != nil || !got.Equal(private) || named {
				t.Errorf("%s: %v, %v", form, err, remote)
			}
			continue
		}
		if !errors.Is(err, ErrFile) || !named || remote.Validate() != nil {
			t.Errorf("%s: %v, %v", form, err, remote)
		}
	}
	file, err := Parse(texts(t)[Command])
	if err != nil {
		t.Fatal(err)
	}
	if remote, _ := file.Remote(); len(remote.Command) != 3 ||
		remote.Command[1] != "with: \"signs\"\n" {
		t.Errorf("%q", remote.Command)
	}
}

// Files of earlier versions have the organisation within the block.
func TestEarlierFiles(t *testing.T) {
	t.Parallel()
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded,
		Headers: map[string]string{"Organisation": "acme"}})
	if file, err := Parse(text); err != nil || file.Organisation != "acme" ||
		file.Public != public {
		t.Errorf("%+v, %v", file, err)
	}
	if _, err := Parse(append([]byte("Organisation: zeta\n"), text...)); !errors.Is(err, ErrFile) {
		t.Error(err)
	}
}

// The operator's files of earlier versions, and those of openssl, name no organisation.
func TestFilesWithoutOrganisation(t *testing.T) {
	t.Parallel()
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	file, err := Parse(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	if err != nil || file.Organisation != ledger.Operator || file.Public != public {
		t.Fatalf("%+v, %v", file, err)
	}
	text, err := encrypt(ledger.Operator, private, []byte("x"), lowWork)
	if err != nil || bytes.Contains(text, []byte(organisationHeader)) {
		t.Fatalf("%s, %v", text, err)
	}
	if file, err = Parse(text); err != nil {
		t.Fatal(err)
	}
	if got, err := file.Private([]byte("x")); err != nil || !got.Equal(private) {
		t.Error(err)
	}
}

func TestPassphrases(t *testing.T) {
	t.Parallel()
	text, err := Encrypt("acme", private, []byte("open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := file.Private([]byte("open sesame")); err != nil || !got.Equal(private) {
		t.Error(err)
	}
	for _, wrong := range []string{"", "open sesame ", "\x00"} {
		if _, err := file.Private([]byte(wrong)); !errors.Is(err, ErrPassphrase) ||
			errors.Is(err, ErrFile) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	for _, bad := range []int{0, PassphraseBytesMax + 1} {
		if _, err := Encrypt("acme", private, make([]byte, bad)); !errors.Is(err, ErrPassphrase) {
			t.Errorf("a passphrase of %d bytes: %v", bad, err)
		}
	}
	if bytes.Contains(text, []byte("PRIVATE")) {
		t.Errorf("the file shows a private key:\n%s", text)
	}
}

// A file that asks for more work than allowed is refused before any of it. Without the bound this
// test takes hours.
func TestHostileWork(t *testing.T) {
	t.Parallel()
	text, err := encrypt("acme", private, []byte("x"), lowWork)
	if err != nil {
		t.Fatal(err)
	}
	shown, rest := pem.Decode(text)
	inner, _ := pem.Decode(rest)
	lines := strings.SplitAfter(string(inner.Bytes), "\n")
	if !strings.HasSuffix(lines[1], " 4\n") {
		t.Fatalf("no work factor in %q", lines[1])
	}
	for _, factor := range []string{"19", "30", "99999999999999999999"} {
		lines[1] = strings.TrimSuffix(lines[1], lines[1][strings.LastIndex(lines[1], " "):]) + " " +
			factor + "\n"
		inner.Bytes = []byte(strings.Join(lines, ""))
		file, err := Parse(append(encodeBlock(headers("acme"), publicBlock, shown.Bytes),
			pem.EncodeToMemory(inner)...))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Private([]byte("x")); !errors.Is(err, ErrFile) ||
			errors.Is(err, ErrPassphrase) {
			t.Errorf("work factor %s: %v", factor, err)
		}
	}
}

// What is encrypted has to be the key of the public key that the file shows.
func TestForeignContents(t *testing.T) {
	t.Parallel()
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
	seal := func(content []byte, recipient age.Recipient) []byte {
		var sealed bytes.Buffer
		writer, err := age.Encrypt(&sealed, recipient)
		if err == nil {
			_, err = writer.Write(content)
		}
		if err := errors.Join(err, writer.Close()); err != nil {
			t.Fatal(err)
		}
		shown, err := encodePublic(public, headers("acme"))
		if err != nil {
			t.Fatal(err)
		}
		return append(shown, pem.EncodeToMemory(&pem.Block{Type: encryptedBlock,
			Bytes: sealed.Bytes()})...)
	}
	passphrase, err := age.NewScryptRecipient("x")
	if err != nil {
		t.Fatal(err)
	}
	passphrase.SetWorkFactor(lowWork)
	plain := func(organisation ledger.OrganisationName, key ed25519.PrivateKey) []byte {
		text, err := EncodePlain(organisation, key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	cut := seal(plain("acme", private), passphrase)
	block, rest := pem.Decode(cut)
	inner, _ := pem.Decode(rest)
	inner.Bytes = inner.Bytes[:len(inner.Bytes)-3]
	cut = append(encodeBlock(headers("acme"), publicBlock, block.Bytes),
		pem.EncodeToMemory(inner)...)
	for name, text := range map[string][]byte{
		"another key":          seal(plain("acme", other), passphrase),
		"another organisation": seal(plain("zeta", private), passphrase),
		"an encrypted file":    seal(texts(t)[Encrypted], passphrase),
		"no key":               seal([]byte("hello"), passphrase),
		"nothing":              seal(nil, passphrase),
		"much":                 seal(make([]byte, fileBytesMax/2), passphrase),
		"for a recipient":      seal(plain("acme", private), identity.Recipient()),
		"cut":                  cut,
	} {
		file, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := file.Private([]byte("x")); !errors.Is(err, ErrFile) ||
			errors.Is(err, ErrPassphrase) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	good := texts(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := x509.MarshalPKCS8PrivateKey(curve)
	if err != nil {
		t.Fatal(err)
	}
	foreignPublic, err := x509.MarshalPKIXPublicKey(curve.Public())
	if err != nil {
		t.Fatal(err)
	}
	shown, sealed := pem.Decode(good[Encrypted])
	withHeader := func(key, value string) []byte {
		return append([]byte(key+": "+value+"\n"), pem.EncodeToMemory(shown)...)
	}
	for name, text := range map[string][]byte{
		"empty":              nil,
		"nonsense":           []byte("nonsense"),
		"large":              make([]byte, fileBytesMax+1),
		"cut":                good[Plain][:len(good[Plain])/2],
		"a public key only":  pem.EncodeToMemory(shown),
		"no public key":      sealed,
		"something after":    append(bytes.Clone(good[Encrypted]), "and more"...),
		"two":                append(bytes.Clone(good[Encrypted]), good[Encrypted]...),
		"both":               append(bytes.Clone(good[Socket]), sealed...),
		"a header twice":     append([]byte("Organisation: acme\n"), good[Plain]...),
		"no organisation":    bytes.Replace(good[Plain], []byte("acme"), []byte("a/b"), 1),
		"another curve":      pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: foreign}),
		"another public":     encodeBlock(nil, publicBlock, foreignPublic),
		"a certificate":      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: foreign}),
		"no list":            withHeader(commandHeader, "/bin/sign"),
		"an empty list":      withHeader(commandHeader, "[]"),
		"a relative command": withHeader(commandHeader, `["sign"]`),
		"a relative socket":  withHeader(socketHeader, "sign.sock"),
		"many words":         withHeader(commandHeader, `["/bin/sign"`+strings.Repeat(`,"a"`, 40)+`]`),
	} {
		if file, err := Parse(text); !errors.Is(err, ErrFile) {
			t.Errorf("%s: %+v, %v", name, file, err)
		}
	}
	if _, err := EncodeRemote("acme", public, signer.Remote{Socket: "/a\nb: c"}); err == nil {
		t.Error("a path with a line break is in a header")
	}
}

func TestFilesOnDisk(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	good := texts(t)
	if err := Create(at("acme.key"), good[Plain]); err != nil {
		t.Fatal(err)
	}
	if err := Create(at("acme.key"), good[Socket]); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if err := Replace(at("acme.key"), good[Encrypted]); err != nil {
		t.Fatal(err)
	}
	file, err := Read(at("acme.key"))
	if err != nil || file.Form() != Encrypted {
		t.Errorf("%+v, %v", file, err)
	}
	if info, err := os.Stat(at("acme.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if _, err := Read(at("none.key")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Read(folder); !errors.Is(err, ErrFile) {
		t.Error(err)
	}
	// Others could have this user run anything.
	if err := Create(at("token.key"), good[Command]); err != nil {
		t.Fatal(err)
	}
	for mode, allowed := range map[fs.FileMode]bool{0o600: true, 0o644: true, 0o620: false,
		0o602: false} {
		if err := os.Chmod(at("token.key"), mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(at("token.key")); (err == nil) != allowed {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

// openssl reads plain files, and the public key of the others.
func TestOpenSSLReadsKeys(t *testing.T) {
	t.Parallel()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	for form, text := range texts(t) {
		path := filepath.Join(t.TempDir(), "acme.key")
		if err := Create(path, text); err != nil {
			t.Fatal(err)
		}
		arguments := []string{"pkey", "-in", path, "-noout", "-text"}
		if form != Plain {
			arguments = append(arguments, "-pubin")
		}
		out, err := exec.Command(openssl, arguments...).CombinedOutput()
		if err != nil || !strings.Contains(strings.ToLower(string(out)), "ed25519") {
			t.Errorf("%s: %v\n%s", form, err, out)
		}
	}
}

// FuzzFile parses anything, and opens what it parsed.
func FuzzFile(f *testing.F) {
	for _, text := range texts(f) {
		f.Add(text)
	}
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrFile) {
				t.Fatal(err)
			}
			return
		}
		opened, err := file.decrypt([]byte("open sesame"), lowWork)
		if err == nil && ledger.PublicKey(opened.Public().(ed25519.PublicKey)) != file.Public {
			t.Fatalf("the key of %s is another one", file.Public)
		}
		if remote, named := file.Remote(); named && remote.Validate() != nil {
			t.Fatalf("%+v", remote)
		}
	})
}

// FuzzEncrypted opens anything that age may find after the public key.
func FuzzEncrypted(f *testing.F) {
	_, rest := pem.Decode(texts(f)[Encrypted])
	sealed, _ := pem.Decode(rest)
	f.Add(sealed.Bytes)
	f.Add([]byte("age-encryption.org/v1\n-> scrypt c2FsdHNhbHRzYWx0c2FsdA 18\n"))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		file := &File{Organisation: "acme", Public: public, encrypted: sealed}
		opened, err := file.decrypt([]byte("open sesame"), lowWork)
		if (err == nil) != (opened != nil) || err == nil && !opened.Equal(private) {
			t.Fatalf("%v", err)
		}
		if err != nil && !errors.Is(err, ErrFile) && !errors.Is(err, ErrPassphrase) {
			t.Fatal(err)
		}
	})
}
