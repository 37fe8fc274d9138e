package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// Verified is what Verify found.
type Verified struct {
	Head
	// Certificates is the number of certified blocks, Certified the height of the highest; 0 if
	// there is none.
	Certificates int
	Certified    ledger.Height
}

// Verify checks the whole store in dir from the genesis: the hashes and roots of every block, every
// signature, every result by executing all blocks again, the state, the index, the histories, and
// every certificate. It returns a *DamageError that names the first bad block. If progress is not
// nil, Verify calls it after each block. No other process may have the store open (ErrLocked).
func Verify(ctx context.Context, dir string, genesis *ledger.Genesis, options Options,
	progress func(height, head ledger.Height)) (found Verified, err error) {
	options.DecodedCacheBytes, options.CheckAll = 1, true
	s, err := Open(dir, genesis, options)
	if err != nil {
		return Verified{}, err
	}
	defer func() {
		if closing := s.Close(); err == nil {
			err = closing
		}
	}()
	if err := s.verify(ctx, progress); err != nil {
		return Verified{}, err
	}
	found = Verified{Head: s.Head(), Certified: s.CertifiedHeight()}
	found.Certificates, err = s.verifyCertificates()
	return found, err
}

func (s *Store) verify(ctx context.Context,
	progress func(height, head ledger.Height)) (err error) {
	if missing := s.Unindexed(); missing > 0 {
		return fmt.Errorf("store: the blocks cannot be executed again from the genesis: those "+
			"up to %d lie %w and are not complete; the data that is here was checked when the "+
			"store was opened; run the node to fetch the rest from other nodes", missing, ErrAbsent)
	}
	replayed, err := s.newReplay()
	if err != nil {
		return err
	}
	head := s.AppendedHeight()
	defer func() { err = errors.Join(err, replayed.end()) }()
	if err := s.awaitWritten(head); err != nil { // the rows must be in the database
		return err
	}
	parent := state.Parent{Header: s.genesis.Block().Header, Hash: s.chainID}
	if err := s.beginTask(); err != nil { // Close waits; the next block ends the loop then
		return err
	}
	defer s.tasks.Done()
	transaction := s.db.NewTransaction(false)
	defer transaction.Discard()
	_, runs, err := readRuns(transaction)
	if err != nil {
		return damaged(head, "the row of runs: %v", err)
	}
	finder := newStepFinder(transaction, runs)
	defer finder.rows.Close()
	for height := ledger.Height(1); height <= head; height++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		block, err := s.Block(height)
		if err != nil {
			return err
		}
		if err := s.verifyBlock(parent, block, replayed, finder); err != nil {
			return err
		}
		parent = state.Parent{Header: block.Header, Hash: block.Hash}
		if progress != nil {
			progress(height, head)
		}
	}
	return nil
}

func (s *Store) verifyBlock(parent state.Parent, block *ledger.Block,
	replayed *replay, finder *stepFinder) error {
	height := block.Header.Height
	if height != parent.Header.Height+1 || block.Header.Previous != parent.Hash ||
		block.Header.Time < parent.Header.Time {
		return damaged(height, "it does not follow block %d", parent.Header.Height)
	}
	if err := ledger.VerifySignatures(block); err != nil {
		return damaged(height, "%v", err)
	}
	if early := s.tooEarly(block, replayed.state.Version()); early != "" {
		return damaged(height, "it has %s, which the chain does not take yet", early)
	}
	executed, changes, err := replayed.execute(block)
	if err != nil {
		return err
	}
	if executed.Hash != block.Hash {
		return damaged(height, "executing it again gives another result: %s",
			difference(block, executed))
	}
	return s.verifyIndexes(block, changes, finder)
}

// difference describes the first difference between two blocks with the same transactions.
func difference(stored, executed *ledger.Block) string {
	for i, entry := range stored.All() {
		if found := executed.Entry(i); found.Result != entry.Result {
			return fmt.Sprintf("transaction %d is %s, the block says %s", i, found.Result,
				entry.Result)
		}
	}
	if stored.Header.StateDigest != executed.Header.StateDigest {
		return "the state digest differs"
	}
	return "the header differs"
}

// verifyIndexes checks that look-ups find each transaction, the block and each step of a history at
// their places.
func (s *Store) verifyIndexes(block *ledger.Block, changes *state.Changes,
	finder *stepFinder) (err error) {
	height := block.Header.Height
	defer guard(height, &err)
	at := func(i int, id ledger.Hash) error {
		where, found, err := s.locate(id)
		if err == nil && (!found || where.height != height || where.index != uint32(i)) {
			err = damaged(height, "the index does not find transaction %d", i)
		}
		return err
	}
	for head := range block.Heads() {
		// One record of the index finds all transfers of a packed bundle, so its ends suffice.
		if err := errors.Join(at(head.Index, head.ID),
			at(head.Index+max(1, head.Transfers)-1, head.Last())); err != nil {
			return err
		}
	}
	if where, found, err := s.locate(block.Hash); err != nil || !found || where.height != height ||
		where.kind != indexBlock {
		return damaged(height, "the index does not find the block by its hash")
	}
	if err := s.verifyShard(finder.transaction, block, &changes.Crossings); err != nil {
		return err
	}
	for _, change := range changes.History {
		var place [1]position
		if _, err := finder.find(change.Number(), change.Ordinal, place[:]); err != nil {
			return damaged(height, "history of account %d, entry %d: %v", change.Number(),
				change.Ordinal, err)
		}
		if place[0].height != height || place[0].index != change.Index() {
			return damaged(height, "history of account %d, entry %d points elsewhere",
				change.Number(), change.Ordinal)
		}
	}
	return nil
}
