package keyfile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/ledgerd/ledgerd/client/signer"
	"github.com/ledgerd/ledgerd/ledger"
)

// Errors of key files.
var (
	// ErrFile means that a file is damaged, is no key file, or is another organisation's.
	ErrFile = errors.New("damaged or foreign key file")
	// ErrPassphrase means that the passphrase is wrong, or that there is none.
	ErrPassphrase = errors.New("wrong passphrase")
)

const (
	privateBlock   = "PRIVATE KEY" // PKCS #8, as openssl reads it
	publicBlock    = "PUBLIC KEY"  // PKIX
	encryptedBlock = "AGE ENCRYPTED FILE"

	organisationHeader = "Organisation"
	commandHeader      = "Signer-Command"
	socketHeader       = "Signer-Socket"

	fileBytesMax = 16 << 10
	// workFactorMax bounds it for files that are read: age itself writes 18.
	workFactorMax = 18
)

var headerNames = []string{organisationHeader, commandHeader, socketHeader}

// PassphraseBytesMax bounds a passphrase.
const PassphraseBytesMax = 1024

// File is the content of a key file.
type File struct {
	// Organisation is the one that the file names, or ledger.Operator if it names none.
	Organisation ledger.OrganisationName
	Public       ledger.PublicKey

	private   ed25519.PrivateKey // of a plain file
	encrypted []byte             // of a file with a passphrase: a binary age file
	remote    *signer.Remote     // of a file that names an external signer
}

// Form is how a file keeps a key.
type Form string

// The forms of key files.
const (
	Plain     Form = "plain"
	Encrypted Form = "passphrase"
	Command   Form = "command"
	Socket    Form = "socket"
)

// Form returns how the file keeps its key.
func (f *File) Form() Form {
	switch {
	case f.encrypted != nil:
		return Encrypted
	case f.remote != nil && f.remote.Socket != "":
		return Socket
	case f.remote != nil:
		return Command
	}
	return Plain
}

// Remote returns the external signer that the file names, if it names one.
func (f *File) Remote() (remote signer.Remote, named bool) {
	if f.remote == nil {
		return signer.Remote{}, false
	}
	return *f.remote, true
}

// Parse parses a key file, or returns ErrFile. It does not decrypt.
func Parse(text []byte) (*File, error) {
	file, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return file, nil
}

func parse(text []byte) (*File, error) {
	if len(text) > fileBytesMax {
		return nil, fmt.Errorf("it has more than %d bytes", fileBytesMax)
	}
	block, rest := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it holds no private key in PEM")
	}
	named, err := parseHeaders(text, block)
	if err != nil {
		return nil, err
	}
	file := &File{Organisation: ledger.OrganisationName(named[organisationHeader])}
	if file.Organisation != ledger.Operator {
		if err := file.Organisation.Validate(); err != nil {
			return nil, err
		}
	}
	switch block.Type {
	case privateBlock:
		return file, file.parsePrivate(block)
	case publicBlock:
		return file, file.parsePublic(block, named, rest)
	}
	return nil, fmt.Errorf("it holds no private key in PEM, but a block %.64q", block.Type)
}

// parseHeaders returns the headers of a file: the lines `NAME: VALUE` before its first block. In
// files of earlier versions they are within the block, where openssl does not read past them.
func parseHeaders(text []byte, block *pem.Block) (map[string]string, error) {
	named := map[string]string{}
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("-----BEGIN ")) {
			break
		}
		name, value, _ := strings.Cut(string(line), ":")
		if name = strings.TrimSpace(name); !slices.Contains(headerNames, name) {
			continue
		}
		if _, twice := named[name]; twice {
			return nil, fmt.Errorf("it has the header %s twice", name)
		}
		named[name] = strings.TrimSpace(value)
	}
	for _, name := range headerNames {
		value, within := block.Headers[name]
		if _, twice := named[name]; within && twice {
			return nil, fmt.Errorf("it has the header %s twice", name)
		} else if within {
			named[name] = value
		}
	}
	return named, nil
}

func (f *File) parsePrivate(block *pem.Block) error {
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return err
	}
	private, ed := parsed.(ed25519.PrivateKey)
	if !ed {
		return fmt.Errorf("it holds a %T, but keys are ed25519", parsed)
	}
	f.private = private
	f.Public = ledger.PublicKey(private.Public().(ed25519.PublicKey))
	return nil
}

// parsePublic parses a file that begins with the public key.
func (f *File) parsePublic(block *pem.Block, named map[string]string, rest []byte) error {
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return err
	}
	public, ed := parsed.(ed25519.PublicKey)
	if !ed {
		return fmt.Errorf("it holds a %T, but keys are ed25519", parsed)
	}
	f.Public = ledger.PublicKey(public)
	var remote signer.Remote
	command, hasCommand := named[commandHeader]
	remote.Socket = named[socketHeader]
	if hasCommand {
		if remote.Command, err = ParseCommand(command); err != nil {
			return fmt.Errorf("%s: %w", commandHeader, err)
		}
	}
	encrypted, after := pem.Decode(rest)
	switch isRemote := hasCommand || remote.Socket != ""; {
	case isRemote && encrypted != nil:
		return errors.New("it has both a key and an external signer")
	case isRemote:
		f.remote = &remote
		return remote.Validate()
	case encrypted == nil || encrypted.Type != encryptedBlock || len(encrypted.Headers) > 0:
		return fmt.Errorf("it holds a public key only: after it comes no block %q",
			encryptedBlock)
	case len(bytes.TrimSpace(after)) > 0:
		return fmt.Errorf("there is something after the block %q", encryptedBlock)
	}
	f.encrypted = encrypted.Bytes
	return nil
}

// ParseCommand parses a list of words in JSON.
func ParseCommand(text string) (words []string, err error) {
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		return nil, fmt.Errorf("it is no list of words in JSON: %w", err)
	}
	return words, nil
}

// Private returns the private key. The passphrase does not matter for a plain file. Errors:
// ErrPassphrase, and ErrFile if the file is damaged or has no private key.
func (f *File) Private(passphrase []byte) (ed25519.PrivateKey, error) {
	return f.decrypt(passphrase, workFactorMax)
}

func (f *File) decrypt(passphrase []byte, work int) (ed25519.PrivateKey, error) {
	switch {
	case f.private != nil:
		return f.private, nil
	case f.remote != nil:
		return nil, fmt.Errorf("%w: the key is not in the file, but with the external signer %s",
			ErrFile, f.remote)
	case len(passphrase) == 0:
		return nil, fmt.Errorf("%w: there is none", ErrPassphrase)
	}
	identity, err := age.NewScryptIdentity(string(passphrase))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPassphrase, err)
	}
	identity.SetMaxWorkFactor(work)
	reader, err := age.Decrypt(bytes.NewReader(f.encrypted), passphraseOnly{identity})
	if errors.Is(err, age.ErrIncorrectIdentity) {
		return nil, ErrPassphrase
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	text, err := io.ReadAll(io.LimitReader(reader, fileBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	defer clear(text)
	inside, err := Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("what was encrypted: %w", err)
	case inside.private == nil || inside.Public != f.Public ||
		inside.Organisation != f.Organisation:
		return nil, fmt.Errorf("%w: the key within is not that of the public key before it",
			ErrFile)
	}
	return inside.private, nil
}

// passphraseOnly is an identity that takes files with a passphrase only. age reports a file without
// one as it reports a wrong passphrase.
type passphraseOnly struct{ age.Identity }

func (p passphraseOnly) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if len(stanzas) != 1 || stanzas[0].Type != "scrypt" {
		return nil, errors.New("it is not encrypted with a passphrase")
	}
	return p.Identity.Unwrap(stanzas)
}

// EncodePlain returns the text of a plain file.
func EncodePlain(organisation ledger.OrganisationName, private ed25519.PrivateKey) ([]byte,
	error) {
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return encodeBlock(headers(organisation), privateBlock, encoded), nil
}

// Encrypt returns the text of a file with a passphrase.
func Encrypt(organisation ledger.OrganisationName, private ed25519.PrivateKey,
	passphrase []byte) ([]byte, error) {
	return encrypt(organisation, private, passphrase, workFactor)
}

func encrypt(organisation ledger.OrganisationName, private ed25519.PrivateKey,
	passphrase []byte, work int) ([]byte, error) {
	if len(passphrase) == 0 || len(passphrase) > PassphraseBytesMax {
		return nil, fmt.Errorf("%w: it has 1 to %d bytes", ErrPassphrase, PassphraseBytesMax)
	}
	plain, err := EncodePlain(organisation, private)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	recipient, err := age.NewScryptRecipient(string(passphrase))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPassphrase, err)
	}
	recipient.SetWorkFactor(work)
	text, err := encodePublic(ledger.PublicKey(private.Public().(ed25519.PublicKey)),
		headers(organisation))
	if err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(text)
	armoured := armor.NewWriter(out)
	writer, err := age.Encrypt(armoured, recipient)
	if err == nil {
		_, err = writer.Write(plain)
	}
	if err == nil {
		err = errors.Join(writer.Close(), armoured.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("encrypting a key: %w", err)
	}
	return out.Bytes(), nil
}

// EncodeRemote returns the text of a file that names an external signer.
func EncodeRemote(organisation ledger.OrganisationName, public ledger.PublicKey,
	remote signer.Remote) ([]byte, error) {
	if err := remote.Validate(); err != nil {
		return nil, err
	}
	named := headers(organisation)
	if remote.Socket != "" {
		named[socketHeader] = remote.Socket
	} else {
		words, err := json.Marshal(remote.Command)
		if err != nil {
			return nil, fmt.Errorf("encoding a command: %w", err)
		}
		named[commandHeader] = string(words)
	}
	return encodePublic(public, named)
}

func headers(organisation ledger.OrganisationName) map[string]string {
	named := map[string]string{}
	if organisation != ledger.Operator {
		named[organisationHeader] = string(organisation)
	}
	return named
}

func encodePublic(public ledger.PublicKey, named map[string]string) ([]byte, error) {
	encoded, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(public[:]))
	if err != nil {
		return nil, fmt.Errorf("encoding a public key: %w", err)
	}
	return encodeBlock(named, publicBlock, encoded), nil
}

func encodeBlock(named map[string]string, kind string, content []byte) []byte {
	var text []byte
	for _, name := range headerNames {
		if value, present := named[name]; present {
			text = fmt.Appendf(text, "%s: %s\n", name, value)
		}
	}
	return append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})...)
}
