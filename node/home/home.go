package home

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
)

// Names of the files in a home.
const (
	ConfigFile     = "config.toml"
	GenesisFile    = "genesis.json"
	KeyFile        = "node.key"
	GenerationFile = "generation"
	DataFolder     = "data"
)

// ErrHome says that a folder is no home, or not a whole one; ErrExists that there is one already.
var (
	ErrHome   = errors.New("no node's home")
	ErrExists = errors.New("home exists")
)

// Home is a node's folder, read and checked.
type Home struct {
	Dir     string
	Config  Config
	Genesis *ledger.Genesis
	Key     ed25519.PrivateKey
	// Self is the node's place among the genesis's members.
	Self order.ServerID
}

// Name is the node's name in the genesis.
func (h *Home) Name() string { return h.Genesis.Members[h.Self].Name }

// Data is the folder of the ledger store.
func (h *Home) Data() string { return filepath.Join(h.Dir, DataFolder) }

// Generation is the file of what the node promised and learned about generations.
func (h *Home) Generation() string { return filepath.Join(h.Dir, GenerationFile) }

// FabricAddress is where this node listens for the others.
func (h *Home) FabricAddress() string {
	if h.Config.Fabric.Listen != "" {
		return h.Config.Fabric.Listen
	}
	return h.Genesis.Members[h.Self].Address
}

// Create makes a home in dir, which must not hold one. ErrExists, ErrHome for a key that the genesis does not have, and the file system's errors.
func Create(dir string, config Config, genesis *ledger.Genesis, key ed25519.PrivateKey) (*Home, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := genesis.Validate(); err != nil {
		return nil, err
	}
	self, err := place(genesis, key)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{ConfigFile, GenesisFile, KeyFile, DataFolder} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return nil, fmt.Errorf("%w: %s is there already; choose another folder, or remove it if you want to lose that node", ErrExists, filepath.Join(dir, name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(genesis, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("genesis: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("node key: %w", err)
	}
	files := []struct {
		name string
		mode fs.FileMode
		text []byte
	}{
		{KeyFile, 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})},
		{GenesisFile, 0o644, append(text, '\n')},
		{ConfigFile, 0o644, []byte(config.text())},
	}
	for _, f := range files {
		if err := WriteFile(filepath.Join(dir, f.name), f.text, f.mode); err != nil {
			return nil, err
		}
	}
	return &Home{Dir: dir, Config: config, Genesis: genesis, Key: key, Self: self}, nil
}

// Load reads a home. It returns ErrHome with what is missing or does not fit, or ErrConfig.
func Load(dir string) (*Home, error) {
	if _, err := os.Stat(filepath.Join(dir, ConfigFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has no %s; make a home with `ledgerd testnet --dir DIR --nodes N` or `ledgerd init`", ErrHome, dir, ConfigFile)
	}
	config, err := readConfig(filepath.Join(dir, ConfigFile))
	if err != nil {
		return nil, err
	}
	genesis, err := ReadGenesis(filepath.Join(dir, GenesisFile))
	if err != nil {
		return nil, err
	}
	key, err := readKey(filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, err
	}
	self, err := place(genesis, key)
	if err != nil {
		return nil, err
	}
	return &Home{Dir: dir, Config: config, Genesis: genesis, Key: key, Self: self}, nil
}

// ReadGenesis reads a genesis file. A field that is not known is an error, since it would be left out of the chain's identity.
func ReadGenesis(path string) (*ledger.Genesis, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHome, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	genesis := new(ledger.Genesis)
	if err := decoder.Decode(genesis); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrHome, path, err)
	}
	if err := genesis.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrHome, path, err)
	}
	return genesis, nil
}

func readKey(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHome, err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%w: %s holds no private key in PEM", ErrHome, path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrHome, path, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: %s holds a %T, not an ed25519 key", ErrHome, path, parsed)
	}
	return key, nil
}

func place(genesis *ledger.Genesis, key ed25519.PrivateKey) (order.ServerID, error) {
	public := key.Public().(ed25519.PublicKey)
	for i, member := range genesis.Members {
		if bytes.Equal(member.Key, public) {
			return order.ServerID(i), nil
		}
	}
	return 0, fmt.Errorf("%w: the node's key is none of the genesis's %d members; %s and %s belong to different chains", ErrHome, len(genesis.Members), KeyFile, GenesisFile)
}

// WriteFile writes a file whole or not at all: beside, synced, renamed, and the folder synced.
func WriteFile(path string, text []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already after the rename
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
