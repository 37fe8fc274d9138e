package client

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

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
	ErrKeyFile = errors.New("client: damaged or foreign key file")
)

const (
	keyExtension    = ".key"
	keyBlock        = "PRIVATE KEY" // PKCS #8, as openssl reads it
	organisationTag = "Organisation"
	maxKeyFile      = 16 << 10
)

// Keyring is a folder with one file per key: `ORGANISATION.key`, readable by its owner only (0600),
// a PEM block "PRIVATE KEY" (PKCS #8, ed25519, which `openssl pkey -in FILE` reads) with the header
// `Organisation: NAME`. On file systems that ignore case, two names that differ only in case cannot
// share a keyring; Create then returns ErrKeyExists.
type Keyring struct{ folder string }

// Key is an organisation's signing key.
type Key struct {
	Organisation ledger.OrganisationName
	Private      ed25519.PrivateKey
}

// Public returns the public half.
func (k Key) Public() ledger.PublicKey {
	var public ledger.PublicKey
	copy(public[:], k.Private.Public().(ed25519.PublicKey))
	return public
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
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("client: making a key: %w", err)
	}
	key := Key{Organisation: organisation, Private: private}
	return key, r.Add(key)
}

// Add stores a key that was made elsewhere. It returns ErrKeyExists if there is one of that
// organisation.
func (r *Keyring) Add(key Key) error { return r.add(key, r.file(key.Organisation)) }

func (r *Keyring) add(key Key, path string) error {
	if err := key.Organisation.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.folder, 0o700); err != nil {
		return fmt.Errorf("client: making the keyring's folder: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key.Private)
	if err != nil {
		return fmt.Errorf("client: encoding a key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{
		Type:    keyBlock,
		Headers: map[string]string{organisationTag: string(key.Organisation)},
		Bytes:   encoded,
	})
	return r.write(path, text)
}

// write creates the file whole or not at all, and never replaces another.
func (r *Keyring) write(path string, text []byte) error {
	draft, err := os.CreateTemp(r.folder, ".new-*")
	if err != nil {
		return fmt.Errorf("client: keeping a key: %w", err)
	}
	defer os.Remove(draft.Name())
	_, err = draft.Write(text)
	err = errors.Join(err, draft.Sync(), draft.Close())
	if err != nil {
		return fmt.Errorf("client: keeping a key: %w", err)
	}
	if err := os.Link(draft.Name(), path); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s: use it, or move the file away first", ErrKeyExists, path)
	} else if err != nil {
		return fmt.Errorf("client: keeping a key: %w", err)
	}
	return nil
}

// Load reads the key of an organisation. It returns ErrNoKey if there is none, and ErrKeyFile if
// the file is damaged.
func (r *Keyring) Load(organisation ledger.OrganisationName) (Key, error) {
	if err := organisation.Validate(); err != nil {
		return Key{}, err
	}
	return r.load(organisation, r.file(organisation))
}

func (r *Keyring) load(organisation ledger.OrganisationName, path string) (Key, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, fmt.Errorf("%w of %s in %s: make one with `ledgerd keys create %s`", ErrNoKey,
			organisation, r.folder, organisation)
	}
	if err != nil {
		return Key{}, fmt.Errorf("client: reading a key: %w", err)
	}
	if info.Size() > maxKeyFile || !info.Mode().IsRegular() {
		return Key{}, fmt.Errorf("%w: %s: not a key file", ErrKeyFile, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Key{}, fmt.Errorf("client: reading a key: %w", err)
	}
	private, err := parseKey(text, organisation)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %s: %w", ErrKeyFile, path, err)
	}
	return Key{Organisation: organisation, Private: private}, nil
}

func parseKey(text []byte, organisation ledger.OrganisationName) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != keyBlock {
		return nil, fmt.Errorf("it has no PEM block %q", keyBlock)
	}
	if named, present := block.Headers[organisationTag]; present && named != string(organisation) {
		return nil, fmt.Errorf("it is the key of %.64q", named)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, ed := parsed.(ed25519.PrivateKey)
	if !ed {
		return nil, errors.New("it is not an ed25519 key")
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

// Next returns the key that Rotate will put in place of the present one. It makes it unless an
// earlier call did.
func (r *Keyring) Next(organisation ledger.OrganisationName) (Key, error) {
	path := filepath.Join(r.folder, string(organisation)+nextExtension)
	key, err := r.load(organisation, path)
	if !errors.Is(err, ErrNoKey) {
		return key, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("client: making a key: %w", err)
	}
	key = Key{Organisation: organisation, Private: private}
	return key, r.add(key, path)
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
	next := filepath.Join(r.folder, string(organisation)+nextExtension)
	if err := os.Rename(next, present); err != nil {
		return fmt.Errorf("client: replacing a key: %w", err)
	}
	return nil
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
