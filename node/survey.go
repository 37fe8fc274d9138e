package node

import (
	"crypto/rand"
	"crypto/sha256"
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
	"github.com/ledgerd/ledgerd/shard"
)

// Holdings is what the home of a stopped node holds. Operators use it to compare what is left of a
// shard.
type Holdings struct {
	Index ledger.MemberIndex
	Name  string
	Home  string
	// Disk is what the home knows of its disk. If Renewed is set, the next start gives the disk a
	// new identity.
	Disk *home.Disk
	// Generation is the last one for which the node knows a decision. Activated is the last one
	// that it took part in with this disk. Promises reports whether both are known.
	Promises              bool
	Generation, Activated generation.Generation
	// Blocks reports whether there is a chain. The fields below describe it.
	Blocks  bool
	Head    store.Head
	Durable ledger.Height // known to be durable; higher blocks may be durable, too
	// Perhaps is why the disk may have announced more than it holds, from the height Missing on.
	Perhaps    string
	Missing    ledger.Height
	Membership ledger.Membership // as of the head
	charter    ledger.Charter    // as of the head

	state  generation.State  // as in the file, whichever disk it was for
	report generation.Report // what the node would report of its chain
	// record is the record in the store's journal, nil if there is none that counts, and contents
	// are those of its rounds.
	record   *shard.Record
	contents map[[32]byte][]byte
	// absent is the last missing block below the snapshot that the store began with, or 0.
	absent ledger.Height
}

// survey reads a home and checks the headers of all its blocks. The identity and the promises stay
// unchanged. It also returns the open store, or nil if there is none. It returns the store's
// errors, such as ErrLocked while the node runs, and ErrDamaged.
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
	options.CheckAll = true // what is decided on it must not rest on what is found later
	opened, err := store.Open(h.Data(), h.Genesis, options)
	if err != nil {
		return nil, nil, err
	}
	held.Head, held.Durable = opened.Head(), opened.KnownDurable()
	held.Membership, held.absent = opened.Membership(), opened.Absent()
	held.charter = opened.Charter()
	_, held.Missing, held.Perhaps = opened.Perhaps()
	held.readReport(opened)
	if err := held.readRecord(opened); err != nil {
		return nil, nil, errors.Join(err, opened.Close())
	}
	return held, opened, nil
}

// readRecord adds the record of complete rounds to the report, as shard.Member does.
func (held *Holdings) readRecord(opened *store.Store) error {
	bytes := opened.LastRecord()
	if bytes == nil {
		return nil
	}
	contents := map[[32]byte][]byte{}
	r, err := decodeRecord(bytes, func(content []byte) [32]byte {
		hash := sha256.Sum256(content)
		contents[hash] = content
		return hash
	})
	if err != nil {
		return err
	}
	counts, err := r.Counts(held.counted().Activated, uint64(held.Head.Height),
		func(height uint64) ([32]byte, error) {
			_, hash, err := opened.Header(ledger.Height(height))
			return hash, err
		})
	if counts {
		held.record, held.contents = r, contents
		r.Report(&held.report)
	}
	return err
}

// readReport fills in the report that shard.Member.holdings would return.
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

// counted returns the state with which the node would start. If the next start gives the disk a new
// identity, that identity is not known yet, and a random one stands for it.
func (held *Holdings) counted() generation.State {
	disk, original := generation.DiskID(held.Disk.ID), held.Disk.Original
	switch {
	case held.Disk.Renewed:
		_, _ = rand.Read(disk[:]) // never fails
		original = false
	case held.Disk.ID.IsZero():
		// The home is of an older version. Its disk gets the name that the promises have.
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
