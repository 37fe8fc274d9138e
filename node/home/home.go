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
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
)

// Names of the files in a home.
const (
	ConfigFile     = "config.toml"
	GenesisFile    = "genesis.json"
	MembershipFile = "membership.json"
	KeyFile        = "node.key"
	GenerationFile = "generation"
	RoundsFolder   = "rounds"
	RemovedFile    = "removed"
	DataFolder     = "data"
	// DiskFile identifies the disk. It is in the home and in the data folder.
	DiskFile = "disk"
	// OperatorKeyFile is the key of an operator of the chain, in the home of a new chain's first
	// node. No node reads it.
	OperatorKeyFile = "operator.key"
)

// ErrHome reports that a folder is not a home, or not a whole one. ErrExists reports that there is
// one already. ErrNotAdmitted reports that its node has no place in the chain.
var (
	ErrHome        = errors.New("no node's home")
	ErrExists      = errors.New("home exists")
	ErrNotAdmitted = errors.New("the node has not joined its chain")
)

// Home is a node's folder, read and checked.
type Home struct {
	Dir     string
	Config  Config
	Genesis *ledger.Genesis
	Key     ed25519.PrivateKey
	// Self is the node's index among the members of the chain. It never changes.
	Self order.ServerID

	self       ledger.GroupMember
	membership ledger.Membership
}

// Name returns the node's name in the chain.
func (h *Home) Name() string { return h.self.Name }

// Membership returns the members when this home was made: those of the genesis, or of the block
// that let the node in. A node without blocks looks for the others there. The result shares its
// memory with the home.
func (h *Home) Membership() ledger.Membership { return h.membership }

// Data returns the folder of the ledger store.
func (h *Home) Data() string { return filepath.Join(h.Dir, DataFolder) }

// Generation returns the file of the node's promises and knowledge about generations.
func (h *Home) Generation() string { return filepath.Join(h.Dir, GenerationFile) }

// Rounds returns the folder of rounds that the shard may continue with and that no block holds yet.
func (h *Home) Rounds() string { return filepath.Join(h.Dir, RoundsFolder) }

// Removed returns the file that a node writes when it knows for good that it is no longer a member.
func (h *Home) Removed() string { return filepath.Join(h.Dir, RemovedFile) }

// FabricAddress returns the address at which this node listens for the others.
func (h *Home) FabricAddress() string {
	if h.Config.Fabric.Listen != "" {
		return h.Config.Fabric.Listen
	}
	return h.self.Address
}

// File returns the path of a file that the configuration names: a relative name is below the home.
// An empty name stays empty.
func (h *Home) File(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(h.Dir, name)
}

// Create makes a home in dir, which must not contain one. Errors: ErrExists, ErrHome for a key that
// the genesis does not have, and the file system's.
func Create(dir string, config Config, genesis *ledger.Genesis, key ed25519.PrivateKey) (*Home,
	error) {
	h := &Home{Dir: dir, Config: config, Genesis: genesis, Key: key}
	if err := genesis.Validate(); err != nil {
		return nil, err
	}
	if err := h.place(genesis.Membership()); err != nil {
		return nil, err
	}
	return h, h.create()
}

// CreateOperated is Create for the first node of a new chain, whose genesis names a new operator.
// The home gets the operator's key file, too, with the given text. If that fails, the home is
// removed.
func CreateOperated(dir string, config Config, genesis *ledger.Genesis, key ed25519.PrivateKey,
	operatorFile []byte) (*Home, error) {
	path := filepath.Join(dir, OperatorKeyFile)
	if err := vacant(path); err != nil {
		return nil, err
	}
	h, err := Create(dir, config, genesis, key)
	if err != nil {
		return nil, err
	}
	if err := WriteFile(path, operatorFile, 0o600); err != nil {
		for _, name := range []string{KeyFile, GenesisFile, ConfigFile, DiskFile} {
			err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
		}
		return nil, err
	}
	return h, nil
}

// CreateJoining makes a home in dir, which must not contain one, for a node that wants to join a
// chain. The node's key has no place in the chain yet; Admit gives it one. Errors: ErrExists and
// the file system's.
func CreateJoining(dir string, config Config, genesis *ledger.Genesis,
	key ed25519.PrivateKey) (*Home, error) {
	if err := genesis.Validate(); err != nil {
		return nil, err
	}
	h := &Home{Dir: dir, Config: config, Genesis: genesis, Key: key}
	return h, h.create()
}

// create writes the home's files.
func (h *Home) create() error {
	if err := h.Config.Validate(); err != nil {
		return err
	}
	for _, name := range []string{ConfigFile, GenesisFile, KeyFile, DiskFile, DataFolder} {
		if err := vacant(filepath.Join(h.Dir, name)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(h.Dir, 0o755); err != nil {
		return err
	}
	if err := h.createDisk(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(h.Genesis, "", "  ")
	if err != nil {
		return fmt.Errorf("genesis: %w", err)
	}
	key, err := keyText(h.Key)
	if err != nil {
		return err
	}
	files := []struct {
		name string
		mode fs.FileMode
		text []byte
	}{
		{KeyFile, 0o600, key},
		{GenesisFile, 0o644, append(text, '\n')},
		{ConfigFile, 0o644, []byte(h.Config.text())},
	}
	for _, f := range files {
		if err := WriteFile(filepath.Join(h.Dir, f.name), f.text, f.mode); err != nil {
			return err
		}
	}
	return nil
}

// vacant returns ErrExists if there is a file at path.
func vacant(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%w: %s is there already; choose another folder, or remove it if you "+
			"want to lose that node", ErrExists, path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Load reads a home. It returns ErrHome with what is missing or invalid, ErrNotAdmitted if the node
// has not joined its chain yet, or ErrConfig.
func Load(dir string) (*Home, error) {
	h, err := LoadJoining(dir)
	if err != nil {
		return nil, err
	}
	admitted, err := readMembership(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		admitted = h.Genesis.Membership()
		if err := h.place(admitted); err != nil {
			return nil, fmt.Errorf("%w: %w: either it still has to join (`ledgerd cluster join "+
				"--home %s` continues that), or %s and %s belong to different chains",
				ErrNotAdmitted, err, dir, KeyFile, GenesisFile)
		}
		return h, nil
	case err != nil:
		return nil, err
	}
	return h, h.place(admitted)
}

// Admit gives the node of a home from CreateJoining its place in the chain. It writes the members
// at the block that let the node in. It may be called again. It returns ErrHome if the node is not
// one of them.
func (h *Home) Admit(membership ledger.Membership) error {
	if err := membership.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrHome, err)
	}
	if err := h.place(membership); err != nil {
		return err
	}
	text, err := json.MarshalIndent(membership, "", "  ")
	if err != nil {
		return fmt.Errorf("membership: %w", err)
	}
	return WriteFile(filepath.Join(h.Dir, MembershipFile), append(text, '\n'), 0o644)
}

func readMembership(dir string) (ledger.Membership, error) {
	path := filepath.Join(dir, MembershipFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return ledger.Membership{}, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var membership ledger.Membership
	if err := decoder.Decode(&membership); err != nil {
		return ledger.Membership{}, fmt.Errorf("%w: %s: %w", ErrHome, path, err)
	}
	if err := membership.Validate(); err != nil {
		return ledger.Membership{}, fmt.Errorf("%w: %s: %w", ErrHome, path, err)
	}
	return membership, nil
}

// LoadJoining reads a home whose node may have no place in the chain yet. Self, Name and Membership
// are not set. It returns ErrHome or ErrConfig.
func LoadJoining(dir string) (*Home, error) {
	if _, err := os.Stat(filepath.Join(dir, ConfigFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has no %s; make a home with `ledgerd testnet --dir DIR "+
			"--nodes N` or `ledgerd init`", ErrHome, dir, ConfigFile)
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
	return &Home{Dir: dir, Config: config, Genesis: genesis, Key: key}, nil
}

// ReadGenesis reads a genesis file. An unknown field is an error, since the chain's identity would
// not cover it.
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

// place finds the node among the members.
func (h *Home) place(membership ledger.Membership) error {
	self, found := membership.ByKey(h.Key.Public().(ed25519.PublicKey))
	if !found {
		whose := "the genesis's"
		if membership.Number > 0 {
			whose = "those of the " + MembershipFile + "'s"
		} else if h.Genesis.Sharded() {
			whose = fmt.Sprintf("shard %d's", h.Genesis.Shard)
		}
		return fmt.Errorf("%w: the node's key is none of %s %d members", ErrHome, whose,
			len(membership.Members))
	}
	h.Self, h.self, h.membership = order.ServerID(self.Index), self, membership
	return nil
}

// GenesisFor returns the genesis of the shard to which a key's node belongs, from the genesis of
// any shard of the same book. If no node has the key, it returns the genesis unchanged.
func GenesisFor(genesis *ledger.Genesis, key ed25519.PrivateKey) (*ledger.Genesis, error) {
	public := key.Public().(ed25519.PublicKey)
	for i, members := range genesis.Shards {
		if slices.ContainsFunc(members, func(member ledger.Member) bool {
			return bytes.Equal(member.Key, public)
		}) {
			return genesis.ForShard(ledger.ShardID(i))
		}
	}
	return genesis, nil
}

// WriteKey writes an ed25519 key as PKCS #8 in PEM, readable by its owner only.
func WriteKey(path string, key ed25519.PrivateKey) error {
	text, err := keyText(key)
	if err != nil {
		return err
	}
	return WriteFile(path, text, 0o600)
}

func keyText(key ed25519.PrivateKey) ([]byte, error) {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}

// WriteFile writes a file whole or not at all. It writes under another name, syncs, renames, and
// syncs the folder.
func WriteFile(path string, text []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // has no effect after the rename
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(dir)
}
