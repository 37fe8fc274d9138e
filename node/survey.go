package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/home"
)

// Holdings is what the home of a node that does not run holds. It is for an operator who compares
// what is left of a shard.
type Holdings struct {
	Index ledger.MemberIndex
	Name  string
	Home  string
	// Disk is what the home knows of its disk; if Renewed is set, the next start makes it a new one.
	Disk *home.Disk
	// Generation is the last one that the node heard of a decision for, and Activated the last one
	// that it took part in. Promises tells that both are known.
	Promises              bool
	Generation, Activated generation.Generation
	// Blocks tells that there is a chain, of which the rest speaks.
	Blocks  bool
	Head    store.Head
	Durable ledger.Height // known to be durable; higher blocks may be, too
	// Perhaps is why the disk perhaps announced more than it holds, from the height Missing on.
	Perhaps    string
	Missing    ledger.Height
	Membership ledger.Membership // as of the head
}

// Survey reads what a home holds, and has its blocks checked as a start does. The identity and the
// promises stay as they are. It returns the store's errors: ErrLocked while the node runs,
// ErrDamaged.
func Survey(h *home.Home, options store.Options) (*Holdings, error) {
	disk, err := h.Disk()
	if err != nil {
		return nil, fmt.Errorf("the identity of the disk: %w", err)
	}
	held := &Holdings{
		Index: ledger.MemberIndex(h.Self), Name: h.Name(), Home: h.Dir, Disk: disk,
		Membership: h.Membership(),
	}
	if err := held.readPromises(h); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(h.Data())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		held.Blocks = held.Blocks || entry.Name() != home.DiskFile
	}
	if !held.Blocks {
		return held, nil
	}
	opened, err := store.Open(h.Data(), h.Genesis, options)
	if err != nil {
		return nil, err
	}
	held.Head, held.Durable = opened.Head(), opened.KnownDurable()
	held.Membership = opened.Membership()
	_, held.Missing, held.Perhaps = opened.Perhaps()
	return held, opened.Close()
}

func (held *Holdings) readPromises(h *home.Home) error {
	text, err := os.ReadFile(h.Generation())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	state, err := generation.DecodeState(text)
	if err != nil {
		return fmt.Errorf("%w: %s", err, h.Generation())
	}
	held.Promises, held.Activated = true, state.Activated.Generation()
	if state.Decided != nil {
		held.Generation = state.Decided.Generation
	}
	return nil
}
