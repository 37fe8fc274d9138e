package home

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// A shard that is added to a running book begins with new nodes. Their homes are made first, like
// those of nodes that join: each has a key that has no place yet, and its member file, which the
// operators add the shard with. Once the shard is added, each home gets the genesis of the shard
// and the directory with which its chain begins (Begin).

// Names of files in the home of a node of an added shard.
const (
	// MemberFile says how the operators name the node when they add its shard.
	MemberFile = "member.json"
	// SeedFile is the directory with which the chain of the shard begins.
	SeedFile = "seed"
)

// WriteMember writes the member file of a home from CreateJoining.
func (h *Home) WriteMember(member ledger.Member) error {
	text, err := json.MarshalIndent(member, "", "  ")
	if err != nil {
		return fmt.Errorf("member: %w", err)
	}
	return WriteFile(filepath.Join(h.Dir, MemberFile), append(text, '\n'), 0o644)
}

// ReadMember reads a member file, or that of a home.
func ReadMember(path string) (ledger.Member, error) {
	if found, err := os.Stat(path); err == nil && found.IsDir() {
		path = filepath.Join(path, MemberFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ledger.Member{}, fmt.Errorf("%w: %w", ErrHome, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var member ledger.Member
	err = decoder.Decode(&member)
	if err == nil {
		err = member.Validate()
	}
	if err != nil {
		return ledger.Member{}, fmt.Errorf("%w: %s: %w", ErrHome, path, err)
	}
	return member, nil
}

// Begin gives a home from CreateJoining the genesis of a shard that was added with its node, and
// the directory with which the shard's chain begins. It may be called again. It returns ErrHome if
// the genesis is not of an added shard of the home's book with the node, or the directory is not
// the one that it names.
func (h *Home) Begin(genesis *ledger.Genesis, seed []byte) error {
	if err := genesis.Validate(); err != nil {
		return err
	}
	if len(genesis.Grown) == 0 || genesis.Book() != h.Genesis.Book() {
		return fmt.Errorf("%w: %s is no home for an added shard %d of its book", ErrHome, h.Dir,
			genesis.Shard)
	}
	public := h.Key.Public().(ed25519.PublicKey)
	if !slices.ContainsFunc(genesis.Members, func(member ledger.Member) bool {
		return bytes.Equal(member.Key, public)
	}) {
		return fmt.Errorf("%w: shard %d was not added with the node of %s", ErrHome, genesis.Shard,
			h.Dir)
	}
	if hash, want := ledger.SeedHash(seed), genesis.Grown[len(genesis.Grown)-1].Directory; hash !=
		want {
		return fmt.Errorf("%w: the directory has hash %s, and the genesis of shard %d names %s",
			ErrHome, hash, genesis.Shard, want)
	}
	text, err := json.MarshalIndent(genesis, "", "  ")
	if err != nil {
		return fmt.Errorf("genesis: %w", err)
	}
	if err := WriteFile(filepath.Join(h.Dir, SeedFile), seed, 0o644); err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(h.Dir, GenesisFile), append(text, '\n'), 0o644); err != nil {
		return err
	}
	h.Genesis = genesis
	return h.place(genesis.Membership())
}

// Seed returns the directory with which the chain of an added shard begins. It is nil if the home
// has none, as of a node of another shard, or of one that joined the shard later.
func (h *Home) Seed() ([]byte, error) {
	if len(h.Genesis.Grown) == 0 {
		return nil, nil
	}
	seed, err := os.ReadFile(filepath.Join(h.Dir, SeedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHome, err)
	}
	return seed, nil
}
