package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// Certificates come after their blocks, from the members' statements or from other nodes. They are
// rows of their own, which no block refers to. A crash may lose the last ones: members then state
// again what they hold, or another node passes its certificates on.

// ErrUncertified reports that there is no certificate of a block, or of one soon after it.
var ErrUncertified = errors.New("store: no certificate yet")

// EvidenceOfMember is how many pieces of evidence a store keeps of one signer. It keeps the first
// ones, and any piece with a signer of which there are fewer. So a member that tells many stories
// does not hide those of another one.
const EvidenceOfMember = 8

// MembersAt returns the members that certify the block at a height, as far as the head tells.
func (s *Store) MembersAt(height ledger.Height) *ledger.Members {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	before := s.state.MembershipAt(max(height, 1) - 1)
	return ledger.MembersOf(s.chainID, height, &before, s.state.FormerMembers())
}

// ChangeHeights returns the heights of the blocks in which members joined or left, ascending.
func (s *Store) ChangeHeights() []ledger.Height {
	s.mutex.RLock()
	membership, former := s.state.Membership(), s.state.FormerMembers()
	s.mutex.RUnlock()
	var heights []ledger.Height
	for i := range membership.Members {
		heights = append(heights, membership.Members[i].Joined)
	}
	for i := range former {
		heights = append(heights, former[i].Joined, former[i].Left)
	}
	slices.Sort(heights)
	heights = slices.Compact(heights)
	if len(heights) > 0 && heights[0] == 0 {
		heights = heights[1:]
	}
	return heights
}

// PutCertificate keeps a certificate of a block of this chain. It checks that the block is in the
// chain and that a majority of the members of its epoch signed; otherwise it returns ErrMismatch,
// ErrNotFound or ledger.ErrCertificate. If the block changed the members and the certificate does
// not prove that, PutCertificate adds the proof. The caller must not change the certificate
// afterwards. A certificate that is there already is not replaced.
func (s *Store) PutCertificate(c *ledger.Certificate) error {
	if err := s.beginTask(); err != nil {
		return err
	}
	defer s.tasks.Done()
	if err := s.checkCertificate(c); err != nil {
		return err
	}
	s.certifying.Lock()
	defer s.certifying.Unlock()
	if _, err := s.Certificate(c.Height); !errors.Is(err, ErrUncertified) {
		return err
	}
	_, changes := slices.BinarySearch(s.ChangeHeights(), c.Height)
	switch {
	case !changes:
		c.Change = nil
	case c.Change == nil:
		block, err := s.Block(c.Height)
		if err != nil {
			return err
		}
		for i, entry := range block.All() {
			if entry.Result.OK() && s.changedBy(c.Height, entry.Transaction().Change) {
				c.Change = block.Proof(i)
			}
		}
	}
	if changes {
		if err := s.checkChange(c); err != nil {
			return err
		}
	}
	if err := s.putRow(heightKey(rowCertificate, c.Height), c.Encode()); err != nil {
		return err
	}
	if uint64(c.Height) > s.certified.Load() {
		s.certified.Store(uint64(c.Height))
		close(s.certifiedMore)
		s.certifiedMore = make(chan struct{})
	}
	return nil
}

// AwaitCertificate waits until a block at or above a height has a certificate. It returns the
// context's error if that does not happen, and ErrClosed if the store is closed meanwhile.
func (s *Store) AwaitCertificate(ctx context.Context, height ledger.Height) error {
	for {
		s.certifying.Lock()
		more := s.certifiedMore
		s.certifying.Unlock()
		if s.CertifiedHeight() >= height {
			return nil
		}
		if s.isEnding() {
			return ErrClosed
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// changedBy reports whether a change is the join or leave that the block at a height made. A block
// may also have joins that repeat what was so: they succeed, and change nothing.
func (s *Store) changedBy(height ledger.Height, change *ledger.MembershipChange) bool {
	if change == nil {
		return false
	}
	s.mutex.RLock()
	membership, former := s.state.Membership(), s.state.FormerMembers()
	s.mutex.RUnlock()
	joined := func(member *ledger.GroupMember) bool {
		return change.Kind == ledger.ChangeJoin && member.Joined == height &&
			bytes.Equal(member.Key, change.Member.Key)
	}
	for i := range membership.Members {
		if joined(&membership.Members[i]) {
			return true
		}
	}
	for i := range former {
		if joined(&former[i].GroupMember) || change.Kind == ledger.ChangeLeave &&
			former[i].Left == height && former[i].Index == change.Index {
			return true
		}
	}
	return false
}

// checkChange returns ledger.ErrCertificate unless the certificate of a block that changed the
// members proves that very change.
func (s *Store) checkChange(c *ledger.Certificate) error {
	if err := c.CheckChange(); err != nil {
		return err
	}
	transaction, err := ledger.DecodeBody(c.Change.Body)
	if err == nil && !s.changedBy(c.Height, transaction.Change) {
		err = errors.New("it proves another change than the block made")
	}
	if err != nil {
		return fmt.Errorf("%w: block %d: %w", ledger.ErrCertificate, c.Height, err)
	}
	return nil
}

// checkCertificate checks a certificate against the chain.
func (s *Store) checkCertificate(c *ledger.Certificate) error {
	_, hash, err := s.Header(c.Height)
	if err != nil {
		return err
	}
	if hash != c.Hash {
		return fmt.Errorf("%w: the certificate of block %d is of %s, the chain has %s",
			ErrMismatch, c.Height, c.Hash, hash)
	}
	return s.MembersAt(c.Height).Check(c)
}

// putRow writes one row beside the blocks, if the disk has space.
func (s *Store) putRow(key, value []byte) (err error) {
	defer guard(s.AppendedHeight(), &err)
	if err := errors.Join(s.requireSpace(len(value)), s.requireDescriptors()); err != nil {
		return err
	}
	err = s.db.Update(func(transaction *badger.Txn) error {
		return transaction.Set(key, seal(key, bytes.Clone(value)))
	})
	if err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	return nil
}

// CertifiedHeight returns the height of the highest block that has a certificate here; 0 for none.
func (s *Store) CertifiedHeight() ledger.Height { return ledger.Height(s.certified.Load()) }

// Certificate returns the certificate of the block at a height, or ErrUncertified.
func (s *Store) Certificate(height ledger.Height) (c *ledger.Certificate, err error) {
	if err := s.beginTask(); err != nil {
		return nil, err
	}
	defer s.tasks.Done()
	defer guard(height, &err)
	if height > s.AppendedHeight() {
		return nil, fmt.Errorf("%w: block %d", ErrUncertified, height)
	}
	err = s.db.View(func(transaction *badger.Txn) error {
		value, err := get(transaction, heightKey(rowCertificate, height))
		if errors.Is(err, errMissing) {
			return fmt.Errorf("%w: block %d", ErrUncertified, height)
		}
		if err == nil {
			c, err = decodeCertificate(height, value)
		}
		return err
	})
	return c, err
}

// decodeCertificate decodes the row of a certificate, which keeps no memory of the value.
func decodeCertificate(height ledger.Height, value []byte) (*ledger.Certificate, error) {
	c, err := ledger.DecodeCertificate(bytes.Clone(value))
	if err != nil || c.Height != height {
		return nil, damaged(height, "certificate: malformed")
	}
	return c, nil
}

// CertificateFrom returns the certificate of the first certified block at or above a height, or
// ErrUncertified.
func (s *Store) CertificateFrom(height ledger.Height) (c *ledger.Certificate, err error) {
	for c, err := range s.certificatesFrom(height) {
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	return nil, fmt.Errorf("%w: block %d", ErrUncertified, height)
}

// Certificates returns the certificates of blocks above a height, in ascending order, until their
// encodings exceed a number of bytes. It returns at least one if there is one.
func (s *Store) Certificates(above ledger.Height, bytesMax int) ([]*ledger.Certificate, error) {
	var all []*ledger.Certificate
	size := 0
	for c, err := range s.certificatesFrom(above + 1) {
		if err != nil {
			return nil, err
		}
		if size += len(c.Encode()); len(all) > 0 && size > bytesMax {
			break
		}
		all = append(all, c)
	}
	return all, nil
}

// certificatesFrom iterates over the certificates from a height on, up to the head.
func (s *Store) certificatesFrom(height ledger.Height) func(func(*ledger.Certificate, error) bool) {
	return func(yield func(*ledger.Certificate, error) bool) {
		if err := s.beginTask(); err != nil {
			yield(nil, err)
			return
		}
		defer s.tasks.Done()
		head, going := s.AppendedHeight(), true
		err := s.scan(heightKey(rowCertificate, height), func(key, value []byte) error {
			c, err := decodeCertificate(ledger.Height(binary.BigEndian.Uint64(key[1:])), value)
			if err != nil {
				return err
			}
			if c.Height > head {
				return errEndOfScan
			}
			if going = yield(c, nil); !going {
				return errEndOfScan
			}
			return nil
		})
		if err != nil && going {
			yield(nil, err)
		}
	}
}

// errEndOfScan ends a scan before its end. It is no failure.
var errEndOfScan = errors.New("end of scan")

// scan visits the rows of the kind of a key, from that key on. Key and value are valid only during
// the call.
func (s *Store) scan(from []byte, visit func(key, value []byte) error) (err error) {
	defer guard(s.AppendedHeight(), &err)
	err = s.view(func(transaction *badger.Txn) error {
		settings := badger.DefaultIteratorOptions
		settings.Prefix, settings.PrefetchValues = from[:1], false // often only one is wanted
		rows := transaction.NewIterator(settings)
		defer rows.Close()
		for rows.Seek(from); rows.Valid(); rows.Next() {
			key := rows.Item().Key()
			if err := rows.Item().Value(func(sealed []byte) error {
				value, err := unseal(key, sealed)
				if err != nil {
					return damaged(s.AppendedHeight(), "row %x: %v", key, err)
				}
				return visit(key, value)
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errEndOfScan) {
		return nil
	}
	return err
}

// loadCertified finds the highest certificate at or below the head, and counts the evidence. It
// removes certificates of blocks that were lost in a crash: other blocks may take their places
// (`ledgerd recover`).
func (s *Store) loadCertified(height ledger.Height) error {
	remains := s.db.NewWriteBatch()
	defer remains.Cancel()
	err := s.db.View(func(transaction *badger.Txn) error {
		settings := badger.DefaultIteratorOptions
		settings.Reverse, settings.PrefetchValues = true, false
		rows := transaction.NewIterator(settings)
		defer rows.Close()
		rows.Seek(heightKey(rowCertificate, height))
		if rows.ValidForPrefix([]byte{rowCertificate}) && len(rows.Item().Key()) == 1+8 {
			s.certified.Store(binary.BigEndian.Uint64(rows.Item().Key()[1:]))
		}
		for rows.Seek([]byte{rowCertificate + 1}); rows.ValidForPrefix([]byte{rowCertificate}); {
			key := rows.Item().KeyCopy(nil)
			if len(key) == 1+8 && ledger.Height(binary.BigEndian.Uint64(key[1:])) <= height {
				break
			}
			if err := remains.Delete(key); err != nil {
				return fmt.Errorf("store: database: %w", err)
			}
			rows.Next()
		}
		for rows.Seek([]byte{rowEvidence + 1}); rows.ValidForPrefix([]byte{rowEvidence}); {
			s.evidenceCount.Add(1)
			rows.Next()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := remains.Flush(); err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	return nil
}

// Finality returns the proof that a block is final, or ErrUncertified. The block may be absent.
func (s *Store) Finality(height ledger.Height) (*ledger.Finality, error) {
	f := &ledger.Finality{}
	var err error
	if f.Certificate, err = s.CertificateFrom(height); err != nil {
		return nil, err
	}
	if f.Certificate.Height-height > ledger.MaxFinalityHeaders {
		return nil, fmt.Errorf("%w: block %d: the next certificate is of block %d", ErrUncertified,
			height, f.Certificate.Height)
	}
	for next := height + 1; next <= f.Certificate.Height; next++ {
		header, _, err := s.Header(next)
		if err != nil {
			return nil, err
		}
		f.Headers = append(f.Headers, header.Encode())
	}
	for _, at := range s.ChangeHeights() {
		if at >= f.Certificate.Height {
			break
		}
		change, err := s.Certificate(at)
		if err != nil {
			return nil, fmt.Errorf("the change of the members in block %d: %w", at, err)
		}
		f.Changes = append(f.Changes, change)
	}
	return f, nil
}

// Trail returns the certificates of the joins and leaves of this chain after the first ones, in
// order. They lead an auditor of that epoch further (ledger.Auditor.Follow). The trail ends before
// the first change that has no certificate here yet. It also ends before the certificate that makes
// it exceed a number of bytes, but not before its first one.
func (s *Store) Trail(from ledger.MembersEpoch, bytesMax int) ([]*ledger.Certificate, error) {
	var trail []*ledger.Certificate
	heights := s.ChangeHeights()
	for _, height := range heights[min(from, ledger.MembersEpoch(len(heights))):] {
		c, err := s.Certificate(height)
		if errors.Is(err, ErrUncertified) {
			break
		}
		if err != nil {
			return nil, err
		}
		if bytesMax -= len(c.Encode()); len(trail) > 0 && bytesMax < 0 {
			break
		}
		trail = append(trail, c)
	}
	return trail, nil
}

// MemberKey returns the node key of a present or former member, or nil.
func (s *Store) MemberKey(index ledger.MemberIndex) []byte {
	membership := s.Membership()
	if member, is := membership.Find(index); is {
		return member.Key
	}
	for _, former := range s.FormerMembers() {
		if former.Index == index {
			return former.Key
		}
	}
	return nil
}

// PutEvidence keeps evidence against members, unless there is enough of all its signers
// (EvidenceOfMember). It reports whether the evidence is kept and new. It returns
// ledger.ErrEvidence if it proves nothing.
func (s *Store) PutEvidence(e *ledger.Evidence) (added bool, err error) {
	if err := e.Verify(s.chainID, s.MemberKey); err != nil {
		return false, err
	}
	if err := s.beginTask(); err != nil {
		return false, err
	}
	defer s.tasks.Done()
	s.evidence.Lock()
	defer s.evidence.Unlock()
	kept, err := s.Evidence()
	id := e.ID()
	if err != nil || !fewOf(kept, e) || slices.ContainsFunc(kept,
		func(each *ledger.Evidence) bool { return each.ID() == id }) {
		return false, err
	}
	if err := s.putRow(append([]byte{rowEvidence}, id[:]...), e.Encode()); err != nil {
		return false, err
	}
	s.evidenceCount.Add(1)
	return true, nil
}

// fewOf reports whether a signer of the evidence has signed less than EvidenceOfMember of the
// pieces that are kept.
func fewOf(kept []*ledger.Evidence, e *ledger.Evidence) bool {
	pieces := make(map[ledger.MemberIndex]int)
	for _, each := range kept {
		for index := range signersOf(each) {
			pieces[index]++
		}
	}
	for index := range signersOf(e) {
		if pieces[index] < EvidenceOfMember {
			return true
		}
	}
	return false
}

// signersOf returns the members that signed one side of the evidence or both.
func signersOf(e *ledger.Evidence) map[ledger.MemberIndex]bool {
	signers := make(map[ledger.MemberIndex]bool)
	for _, side := range []*ledger.Certificate{e.First, e.Second} {
		for i := range side.Seals {
			signers[side.Seals[i].Member] = true
		}
	}
	return signers
}

// AdoptCertificates copies the evidence of another store of the same ledger to this one, which will
// replace it, and the certificates of the blocks that this one has.
func (s *Store) AdoptCertificates(from *Store) error {
	for c, err := range from.certificatesFrom(1) {
		if err != nil {
			return err
		}
		err = s.PutCertificate(c)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrMismatch) {
			break // it is of a block that is set aside
		}
		if err != nil {
			return err
		}
	}
	kept, err := from.Evidence()
	if err != nil {
		return err
	}
	for _, e := range kept {
		if _, err := s.PutEvidence(e); err != nil && !errors.Is(err, ledger.ErrEvidence) {
			return err // a signer that joined in a block that is set aside is not known
		}
	}
	return nil
}

// EvidenceCount returns how many pieces of evidence there are.
func (s *Store) EvidenceCount() int { return int(s.evidenceCount.Load()) }

// Evidence returns all evidence, ordered by height.
func (s *Store) Evidence() (all []*ledger.Evidence, err error) {
	if err := s.beginTask(); err != nil {
		return nil, err
	}
	defer s.tasks.Done()
	err = s.scan([]byte{rowEvidence}, func(key, value []byte) error {
		e, err := ledger.DecodeEvidence(bytes.Clone(value))
		if err != nil {
			return damaged(s.AppendedHeight(), "evidence: malformed")
		}
		all = append(all, e)
		return nil
	})
	slices.SortStableFunc(all, func(a, b *ledger.Evidence) int {
		return int(min(max(int64(a.Height())-int64(b.Height()), -1), 1))
	})
	return all, err
}

// verifyCertificates checks all certificates and all evidence. It returns how many certificates
// there are.
func (s *Store) verifyCertificates() (count int, err error) {
	for c, err := range s.certificatesFrom(1) {
		if err != nil {
			return 0, err
		}
		if err := s.checkCertificate(c); err != nil {
			return 0, damaged(c.Height, "%v", err)
		}
		if c.Change != nil {
			if err := s.checkChange(c); err != nil {
				return 0, damaged(c.Height, "%v", err)
			}
		}
		count++
	}
	kept, err := s.Evidence()
	if err != nil {
		return 0, err
	}
	for _, e := range kept {
		if err := e.Verify(s.chainID, s.MemberKey); err != nil {
			return 0, damaged(e.Height(), "%v", err)
		}
	}
	return count, nil
}
