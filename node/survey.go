package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/order"
)

// Holdings is what the home of a node that does not run holds. It is for an operator who compares
// what is left of a shard.
type Holdings struct {
	Index ledger.MemberIndex
	Name  string
	Home  string
	// Disk is what the home knows of its disk; if Renewed is set, the next start makes it a new
	// one.
	Disk *home.Disk
	// Generation is the last one that the node heard of a decision for, and Activated the last one
	// that it took part in with this disk. Promises reports that both are known.
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

	state  generation.State  // as the file has it, by whatever disk
	report generation.Report // what the node would tell of its chain
	// absent is the last block that is not there, since the store began with a snapshot; 0 for
	// none.
	absent ledger.Height
}

// Survey reads what a home holds, and has its blocks checked as a start does. The identity and the
// promises stay as they are. It returns the store's errors: ErrLocked while the node runs,
// ErrDamaged.
func Survey(h *home.Home, options store.Options) (*Holdings, error) {
	held, opened, err := survey(h, options)
	if err != nil || opened == nil {
		return held, err
	}
	return held, opened.Close()
}

// survey is Survey, and returns the open store; nil if there is none.
func survey(h *home.Home, options store.Options) (*Holdings, *store.Store, error) {
	disk, err := h.Disk()
	if err != nil {
		return nil, nil, fmt.Errorf("the identity of the disk: %w", err)
	}
	held := &Holdings{
		Index: ledger.MemberIndex(h.Self), Name: h.Name(), Home: h.Dir, Disk: disk,
		Membership: h.Membership(),
	}
	if err := held.readPromises(h); err != nil {
		return nil, nil, err
	}
	held.report = generation.Report{
		Membership: synodMembership(
			h.Genesis.Membership(),
		), Head: generation.Head{Hash: h.Genesis.Hash()},
	}
	entries, err := os.ReadDir(h.Data())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, entry := range entries {
		held.Blocks = held.Blocks || entry.Name() != home.DiskFile
	}
	if !held.Blocks {
		return held, nil, nil
	}
	opened, err := store.Open(h.Data(), h.Genesis, options)
	if err != nil {
		return nil, nil, err
	}
	held.Head, held.Durable = opened.Head(), opened.KnownDurable()
	held.Membership, held.absent = opened.Membership(), opened.Absent()
	_, held.Missing, held.Perhaps = opened.Perhaps()
	held.readReport(opened)
	return held, opened, nil
}

// readReport reads what shard.Member.holdings would.
func (held *Holdings) readReport(opened *store.Store) {
	held.report = generation.Report{
		Membership: synodMembership(
			held.Membership,
		), Durable: uint64(held.Durable), Perhaps: held.Perhaps != "",
		Head: generation.Head{
			Height: uint64(held.Head.Height), Hash: held.Head.Hash,
			Round: order.Round(held.Head.Round),
		},
	}
	for changed := held.Membership.Height; changed > held.Durable; {
		before := opened.MembershipAt(changed - 1)
		held.report.Former = append(held.report.Former, generation.Former{
			Membership: synodMembership(before), Until: uint64(changed),
		})
		changed = before.Height
	}
	slices.Reverse(held.report.Former)
}

// counted is the state as the node would start with it. If the next start makes the disk a new one,
// nobody knows its identity yet.
func (held *Holdings) counted() generation.State {
	disk, original := generation.DiskID(held.Disk.ID), held.Disk.Original
	switch {
	case held.Disk.Renewed:
		_, _ = rand.Read(disk[:]) // which never fails
		original = false
	case held.Disk.ID.IsZero():
		// of an older version: the disk gets the name that the promises have
		disk = held.state.Disk
	}
	return held.state.OnDisk(disk, original)
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
	held.state = state
	held.Promises, held.Activated = true, held.counted().Activated.Generation()
	if state.Decided != nil {
		held.Generation = state.Decided.Generation
	}
	return nil
}
