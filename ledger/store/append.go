package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// Apply verifies the signatures of a delivered round, seals the round, executes the block and
// appends it. Bundles with a wrong signature are left out. The block is readable when Apply
// returns, and durable after the next Sync. The block is nil if the round has nothing new. The
// payloads must not change any more. After ErrDiskFull or ErrNoDescriptors the store is unchanged,
// and Apply may be called again with the same round. A *DamageError from a look-up of transaction
// ids or accounts changes nothing either. After ErrFailed or ErrClosed the store accepts no more
// blocks.
func (s *Store) Apply(epoch ledger.Epoch, round ledger.Round, payloads [][]byte) (*ledger.Block,
	error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	size := 0
	for _, payload := range payloads {
		size += len(payload)
	}
	if err := s.ready(size); err != nil {
		return nil, err
	}
	defer s.spendsWithBlocks()()
	draft, err := s.seal(epoch, round, s.options.Verify(payloads))
	if err != nil {
		return nil, fmt.Errorf("store: sealing round %d: %w", round, err)
	}
	if draft == nil {
		return nil, nil
	}
	if err := s.admit(s.head.Header.Height+1, draft); err != nil {
		return nil, err
	}
	return s.executeSealed(draft)
}

// executeSealed executes a block that this node sealed, and appends it. No correct node makes one
// with transactions out of place: others would refuse it, and so would this one's next start. So
// the store accepts no more blocks then, and nobody reads this one.
func (s *Store) executeSealed(draft *state.Draft) (*ledger.Block, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	block, changes := s.state.Execute(draft)
	if err := s.checkVersion(block); err != nil {
		return nil, err
	}
	if changes.OutOfPlace > 0 {
		s.failure = fmt.Errorf("%w: the round of block %d was sealed with %d transactions out of "+
			"place", ErrFailed, block.Header.Height, changes.OutOfPlace)
		s.changed.Broadcast()
		return nil, s.failure
	}
	s.publish(block, changes)
	return block, nil
}

// checkVersion returns an error, and lets the store accept no more blocks, if an executed block
// made the chain one of a version that this program does not know. The caller must hold the mutex.
func (s *Store) checkVersion(block *ledger.Block) error {
	if err := ledger.CheckVersion(s.state.Version()); err != nil {
		s.failure = fmt.Errorf("%w: block %d: %w", ErrFailed, block.Header.Height, err)
		s.changed.Broadcast()
	}
	return s.failure
}

// seal makes the draft of the next block from a round. It returns nil if the round has nothing new.
func (s *Store) seal(epoch ledger.Epoch, round ledger.Round,
	batches []*ledger.VerifiedBatch) (draft *state.Draft, err error) {
	if s.genesis.Sharded() {
		return s.sealShard(epoch, round, batches)
	}
	parent := s.head
	parent.Members = s.Membership
	parent.Version = s.Charter().Version
	parent.Due = func(at ledger.Milliseconds) []ledger.Transaction {
		s.mutex.RLock()
		defer s.mutex.RUnlock()
		return s.state.Due(at)
	}
	parent.Packed = ledger.TakesPacked(parent.Version, s.genesis)
	draft = state.Seal(parent, epoch, round, batches, func(id ledger.Hash,
		transaction *ledger.Transaction) bool {
		known, failure := s.executed(id, transaction)
		if failure != nil && err == nil {
			err = failure
		}
		return known
	})
	return draft, err
}

// Append appends a block that another node made. The block must follow the head; otherwise Append
// returns ErrMismatch and changes nothing. It executes the block. If that gives another block,
// Append also returns ErrMismatch, and the store accepts no more blocks, because one of the two
// nodes is wrong. Append verifies the signatures first: if one is wrong, it returns an error that
// matches ledger.ErrSignature, and changes nothing. As in Verify, the block's time must not be
// before its parent's. No other check of the time is possible, because the clocks that determined
// it are in the round and not in the block.
func (s *Store) Append(block *ledger.Block) error {
	if err := ledger.VerifySignatures(block); err != nil {
		return fmt.Errorf("block %d: %w", block.Header.Height, err)
	}
	return s.AppendVerified(block)
}

// AppendVerified is Append for a block whose signatures this node has verified before, such as one
// of its own chain.
func (s *Store) AppendVerified(block *ledger.Block) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if err := s.ready(0); err != nil {
		return err
	}
	defer s.spendsWithBlocks()()
	if block.Header.Height != s.head.Header.Height+1 || block.Header.Previous != s.head.Hash {
		return fmt.Errorf("%w: block %d after %s, the head is block %d %s", ErrMismatch,
			block.Header.Height, block.Header.Previous, s.head.Header.Height, s.head.Hash)
	}
	if block.Header.Time < s.head.Header.Time {
		return fmt.Errorf("%w: block %d has time %d, the block before has %d", ErrMismatch,
			block.Header.Height, block.Header.Time, s.head.Header.Time)
	}
	s.mutex.RLock()
	early := s.tooEarly(block, s.state.Version())
	s.mutex.RUnlock()
	if early != "" {
		return fmt.Errorf("%w: block %d has %s, which the chain does not take yet", ErrMismatch,
			block.Header.Height, early)
	}
	draft := state.Redraft(block)
	if err := s.admit(block.Header.Height, draft); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	executed, changes := s.state.Execute(draft)
	// The version comes first: the rules of one that is unknown may give another block.
	if err := s.checkVersion(executed); err != nil {
		return err
	}
	if executed.Hash != block.Hash || changes.OutOfPlace > 0 {
		s.failure = fmt.Errorf("%w: %w: executing block %d gives %s, with %d transactions out "+
			"of place; it says %s", ErrFailed, ErrMismatch, block.Header.Height, executed.Hash,
			changes.OutOfPlace, block.Hash)
		s.changed.Broadcast()
		return s.failure
	}
	s.publish(executed, changes)
	return nil
}

// tooEarly returns what a block has that a chain does not take, with this version before the block,
// or "". Sealing leaves it out.
func (s *Store) tooEarly(block *ledger.Block, version int) string {
	if !ledger.TakesPacked(version, s.genesis) &&
		slices.ContainsFunc(block.Bundles, func(seal ledger.BundleSeal) bool {
			return seal.Packed()
		}) {
		return "packed bundles"
	}
	if version >= ledger.NewestVersion {
		return ""
	}
	for i := range block.Unpacked {
		transaction := block.Unpacked[i].Transaction()
		switch {
		case transaction.NeedsVersion() <= version:
		case transaction.Cancellation != nil:
			return "cancellations"
		default:
			return "deadlines"
		}
	}
	return ""
}

// ready waits until there are not too many blocks that the database does not have, and checks that
// the disk has space for size more bytes.
func (s *Store) ready(size int) error {
	s.mutex.RLock()
	begins := len(s.unwritten.newest().blocks) == 0
	s.mutex.RUnlock()
	err := s.requireSpace(size)
	// To ask for descriptors takes many system calls, so the first block of a layer asks for all.
	if begins || s.starved.Load() {
		err = errors.Join(err, s.requireDescriptors())
	}
	if err != nil {
		return fmt.Errorf("%w; the node then resumes by itself", err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for !s.closed && s.failure == nil && !s.hasRoom() {
		s.changed.Wait()
	}
	if s.closed {
		return ErrClosed
	}
	return s.failure
}

// hasRoom reports whether another block may wait for the database. The caller must hold the mutex.
func (s *Store) hasRoom() bool {
	// A merged run that is complete waits for the next layer, and so must not be waited for.
	if s.options.Eager && len(s.merging.under) > 0 && s.merging.made == nil &&
		s.pileUp(s.options.fanOut+eagerPile) {
		return false
	}
	return len(s.unwritten.blocks) < maxPendingBlocks && s.unwritten.held < maxPendingBytes
}

// executed reports whether a transaction was in an earlier block.
func (s *Store) executed(id ledger.Hash, transaction *ledger.Transaction) (bool, error) {
	s.mutex.RLock()
	unseen := s.unseen(id, transaction)
	s.mutex.RUnlock()
	if unseen {
		return false, nil
	}
	return s.Known(id)
}

// unseen reports that a transaction was in no earlier block, if that is certain without reading the
// disk. This is the common case. A transaction with a fresh nonce was never applied, and s.failed
// has the ids of those that are not known by their nonces (state.KnownByNonce), unless their
// deadline is over. For a packed bundle, it is asked for the first transfer only: that one's nonce
// is not fresh, or it failed, if the bundle is in a block. The caller must hold the mutex, and no
// block may be appended meanwhile.
func (s *Store) unseen(id ledger.Hash, transaction *ledger.Transaction) bool {
	if !s.state.Unseen(transaction) {
		return false
	}
	return !s.failed.mayHave(shortID(id), transaction.Deadline)
}

func shortID(id ledger.Hash) uint64 { return binary.BigEndian.Uint64(id[:]) }

// publish makes an executed block visible. The caller must hold the mutex.
func (s *Store) publish(block *ledger.Block, changes *state.Changes) {
	s.failed.addBlock(block)
	s.head = state.Parent{Header: block.Header, Hash: block.Hash}
	s.chain.append(block.Hash)
	s.unwritten.add(&pendingBlock{block: block, encoded: block.Encode(), changes: changes})
	s.showHead()
	s.dropAccounts()
	if s.full() {
		s.changed.Broadcast()
	}
}
