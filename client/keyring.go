package client

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/ledgerd/ledgerd/client/keyfile"
	"github.com/ledgerd/ledgerd/client/signer"
	"github.com/ledgerd/ledgerd/ledger"
)

// KeysVariable is the environment variable that names the keyring's folder.
const KeysVariable = "LEDGERD_KEYS"

// Errors of a keyring.
var (
	// ErrNoKey means that the keyring has no key of that organisation.
	ErrNoKey = errors.New("client: no key")
	// ErrKeyExists means that the keyring already has a key of that organisation.
	ErrKeyExists = errors.New("client: key exists")
	// ErrKeyFile means that a file of the keyring is damaged or is not a key file.
	ErrKeyFile = keyfile.ErrFile
	// ErrPassphrase means that a passphrase is wrong, or that there is none for an encrypted file.
	ErrPassphrase = keyfile.ErrPassphrase
)

const keyExtension = ".key"

// Keyring is a folder with one file per key, `ORGANISATION.key`, readable by its owner only (0600).
// The file holds the key, encrypted with a passphrase or plain, or names the external signer that
// has it: see package keyfile. On file systems that ignore case, two names that differ only in case
// cannot share a keyring; Create then returns ErrKeyExists.
type Keyring struct {
	// Passphrases opens encrypted files, and decides about new ones. Set it before the first call.
	// Without it, encrypted files do not open and new ones are plain.
	Passphrases Passphrases

	folder string
}

// Passphrases is a source of passphrases: a person, or a file.
type Passphrases interface {
	// Open calls try with passphrases for an encrypted file until it returns another error than
	// ErrPassphrase, or nil, and returns that. If there are no more, it returns ErrPassphrase.
	Open(file string, try func(passphrase []byte) error) error
	// New returns the passphrase of a new file, or nothing if it is to be plain. The keyring
	// overwrites it with zeros.
	New(file string) (passphrase []byte, err error)
}

// Key is the signing key of an organisation, or of an operator: then the organisation is
// ledger.Operator.
type Key struct {
	Organisation ledger.OrganisationName
	// Signer signs with the key. The key may be elsewhere.
	Signer signer.Signer
}

// NewKey returns an organisation's key from a private key.
func NewKey(organisation ledger.OrganisationName, private ed25519.PrivateKey) Key {
	return Key{Organisation: organisation, Signer: signer.Private(private)}
}

// Public returns the public half.
func (k Key) Public() ledger.PublicKey { return k.Signer.Public() }

// SignBundle adds the key's signature to a bundle. The context bounds the time that an external
// signer takes.
func (k Key) SignBundle(ctx context.Context, bundle *ledger.Bundle) error {
	if err := signer.SignBundle(ctx, bundle, k.Organisation, k.Signer); err != nil {
		if k.Organisation == ledger.Operator {
			return fmt.Errorf("client: signing as an operator: %w", err)
		}
		return fmt.Errorf("client: signing for %s: %w", k.Organisation, err)
	}
	return nil
}

// DefaultKeyringFolder returns $LEDGERD_KEYS, or ledgerd/keys in the user's configuration folder.
func DefaultKeyringFolder() (string, error) {
	if folder := os.Getenv(KeysVariable); folder != "" {
		return folder, nil
	}
	configuration, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("client: where to keep keys: %w: name a folder with --keys or %s",
			err, KeysVariable)
	}
	return filepath.Join(configuration, "ledgerd", "keys"), nil
}

// OpenKeyring returns the keyring in a folder; the empty string means DefaultKeyringFolder. The
// folder is created with the first key.
func OpenKeyring(folder string) (*Keyring, error) {
	if folder == "" {
		var err error
		if folder, err = DefaultKeyringFolder(); err != nil {
			return nil, err
		}
	}
	return &Keyring{folder: folder}, nil
}

// Folder returns the folder of the keys.
func (r *Keyring) Folder() string { return r.folder }

func (r *Keyring) file(organisation ledger.OrganisationName) string {
	return filepath.Join(r.folder, string(organisation)+keyExtension)
}

// Create makes a new key for an organisation and stores it durably. It returns ErrKeyExists if
// there is one.
func (r *Keyring) Create(organisation ledger.OrganisationName) (Key, error) {
	if err := r.vacant(organisation); err != nil {
		return Key{}, err // before a person thinks of a passphrase
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("client: making a key: %w", err)
	}
	return NewKey(organisation, private), r.Add(organisation, private)
}

// Add stores a key that was made elsewhere. It returns ErrKeyExists if there is one of that
// organisation.
func (r *Keyring) Add(organisation ledger.OrganisationName, private ed25519.PrivateKey) error {
	if err := organisation.Validate(); err != nil {
		return err
	}
	return r.add(organisation, private, r.file(organisation))
}

func (r *Keyring) add(organisation ledger.OrganisationName, private ed25519.PrivateKey,
	path string) error {
	text, err := EncodeKey(organisation, private, path, r.Passphrases)
	if err != nil {
		return err
	}
	return r.create(path, text)
}

// vacant returns ErrKeyExists if the keyring has a key of an organisation.
func (r *Keyring) vacant(organisation ledger.OrganisationName) error {
	if err := organisation.Validate(); err != nil {
		return err
	}
	if _, err := os.Lstat(r.file(organisation)); err == nil {
		return keyExists(r.file(organisation))
	}
	return nil
}

func keyExists(path string) error {
	return fmt.Errorf("%w: %s: use it, or move the file away first", ErrKeyExists, path)
}

func (r *Keyring) create(path string, text []byte) error {
	if err := os.MkdirAll(r.folder, 0o700); err != nil {
		return fmt.Errorf("client: making the keyring's folder: %w", err)
	}
	err := keyfile.Create(path, text)
	if errors.Is(err, fs.ErrExist) {
		return keyExists(path)
	}
	return err
}

// EncodeKey returns the text of a new key file as the source of passphrases wants it: encrypted, or
// plain. The organisation is ledger.Operator for an operator, and the path is for people.
func EncodeKey(organisation ledger.OrganisationName, private ed25519.PrivateKey, path string,
	passphrases Passphrases) ([]byte, error) {
	if passphrases == nil {
		return keyfile.EncodePlain(organisation, private)
	}
	passphrase, err := passphrases.New(path)
	if err != nil {
		return nil, err
	}
	defer clear(passphrase)
	if len(passphrase) == 0 {
		return keyfile.EncodePlain(organisation, private)
	}
	return keyfile.Encrypt(organisation, private, passphrase)
}

// Inspect reads what the file of an organisation's key says without its passphrase: the public key
// and how the key is kept. Errors are those of Load.
func (r *Keyring) Inspect(organisation ledger.OrganisationName) (*keyfile.File, error) {
	if err := organisation.Validate(); err != nil {
		return nil, err
	}
	return r.inspect(organisation, r.file(organisation))
}

func (r *Keyring) inspect(organisation ledger.OrganisationName, path string) (*keyfile.File,
	error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w of %s in %s: make one with `ledgerd keys create %s`", ErrNoKey,
			organisation, r.folder, organisation)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no file", ErrKeyFile, path) // a pipe might never be written
	}
	if err != nil {
		return nil, fmt.Errorf("client: reading a key: %w", err)
	}
	file, err := keyfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("client: reading a key: %w", err)
	}
	if file.Organisation != ledger.Operator && file.Organisation != organisation {
		return nil, fmt.Errorf("%w: %s: it is the key of %s", ErrKeyFile, path, file.Organisation)
	}
	return file, nil
}

// Load reads the key of an organisation. It asks for the passphrase of an encrypted file, and does
// not call an external signer yet. It returns ErrNoKey if there is no key, ErrKeyFile if the file
// is damaged, and ErrPassphrase without the right passphrase.
func (r *Keyring) Load(organisation ledger.OrganisationName) (Key, error) {
	if err := organisation.Validate(); err != nil {
		return Key{}, err
	}
	return r.load(organisation, r.file(organisation))
}

func (r *Keyring) load(organisation ledger.OrganisationName, path string) (Key, error) {
	file, err := r.inspect(organisation, path)
	if err != nil {
		return Key{}, err
	}
	by, err := OpenSigner(file, path, r.Passphrases)
	if err != nil {
		return Key{}, fmt.Errorf("client: the key of %s: %w", organisation, err)
	}
	return Key{Organisation: organisation, Signer: by}, nil
}

// OpenSigner returns the signer of a key file. The path is for people. Without passphrases,
// encrypted files do not open.
func OpenSigner(file *keyfile.File, path string, passphrases Passphrases) (signer.Signer, error) {
	if remote, named := file.Remote(); named {
		return signer.NewExternal(remote, file.Public)
	}
	private, err := OpenPrivate(file, path, passphrases)
	return signer.Private(private), err
}

// OpenPrivate returns the private key of a key file that holds one. The path is for people. Without
// passphrases, encrypted files do not open.
func OpenPrivate(file *keyfile.File, path string, passphrases Passphrases) (
	private ed25519.PrivateKey, err error) {
	open := func(passphrase []byte) (err error) {
		private, err = file.Private(passphrase)
		return err
	}
	if file.Form() == keyfile.Encrypted && passphrases != nil {
		err = passphrases.Open(path, open)
	} else {
		err = open(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return private, nil
}

// Names of the further files of a key that is replaced: a plus is in no organisation's name.
const (
	nextExtension = "+next" + keyExtension
	oldExtension  = "+old" + keyExtension
)

// OldFile returns the file with the key that Rotate replaced last.
func (r *Keyring) OldFile(organisation ledger.OrganisationName) string {
	return filepath.Join(r.folder, string(organisation)+oldExtension)
}

// NextFile returns the file with the key of Next.
func (r *Keyring) NextFile(organisation ledger.OrganisationName) string {
	return filepath.Join(r.folder, string(organisation)+nextExtension)
}

// Next returns the key that Rotate will put in place of the present one. It makes it, as Create
// does, unless NextFile is there. It makes none in place of a key that an external signer has.
func (r *Keyring) Next(organisation ledger.OrganisationName) (Key, error) {
	path := r.NextFile(organisation)
	key, err := r.load(organisation, path)
	if !errors.Is(err, ErrNoKey) {
		return key, err
	}
	present, err := r.Inspect(organisation)
	if err != nil {
		return Key{}, err
	}
	if remote, named := present.Remote(); named {
		return Key{}, fmt.Errorf("client: the key of %s is with %s, so the next one is not made "+
			"here: make it there, and name it with `ledgerd keys create %s --next` and the flags "+
			"of the signer", organisation, remote, organisation)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("client: making a key: %w", err)
	}
	return NewKey(organisation, private), r.add(organisation, private, path)
}

// Rotate puts the key of Next in place of the organisation's present key, which it keeps in
// OldFile. At any moment, at least one of the files has each of the two keys.
func (r *Keyring) Rotate(organisation ledger.OrganisationName) error {
	present, old := r.file(organisation), r.OldFile(organisation)
	if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("client: replacing a key: %w", err)
	}
	if err := os.Link(present, old); err != nil {
		return fmt.Errorf("client: replacing a key: %w", err)
	}
	if err := os.Rename(r.NextFile(organisation), present); err != nil {
		return fmt.Errorf("client: replacing a key: %w", err)
	}
	return nil
}

// Reencrypt writes a key file again as the source of new passphrases wants it: with another
// passphrase, with one for the first time, or plain. At any moment, the old or the new file is
// there.
func Reencrypt(path string, present, next Passphrases) error {
	file, err := keyfile.Read(path)
	if err != nil {
		return fmt.Errorf("client: reading a key: %w", err)
	}
	private, err := OpenPrivate(file, path, present)
	if err != nil {
		return err
	}
	text, err := EncodeKey(file.Organisation, private, path, next)
	if err != nil {
		return err
	}
	return keyfile.Replace(path, text)
}

// LoadOrCreate loads the key, or creates it if there is none.
func (r *Keyring) LoadOrCreate(organisation ledger.OrganisationName) (key Key, created bool,
	err error) {
	key, err = r.Load(organisation)
	if !errors.Is(err, ErrNoKey) {
		return key, false, err
	}
	key, err = r.Create(organisation)
	if errors.Is(err, ErrKeyExists) { // another process made it in between
		key, err = r.Load(organisation)
		return key, false, err
	}
	return key, err == nil, err
}

// List returns the organisations with a key, sorted.
func (r *Keyring) List() ([]ledger.OrganisationName, error) {
	entries, err := os.ReadDir(r.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("client: reading the keyring: %w", err)
	}
	var names []ledger.OrganisationName
	for _, entry := range entries {
		name, isKey := strings.CutSuffix(entry.Name(), keyExtension)
		if isKey && ledger.OrganisationName(name).Validate() == nil && entry.Type().IsRegular() {
			names = append(names, ledger.OrganisationName(name))
		}
	}
	sort.Slice(names, func(i, j int) bool { return names[i] < names[j] })
	return names, nil
}
