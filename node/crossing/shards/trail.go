package shards

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Errors of LearnTrail; match them with errors.Is. A trail that does not hold is a
// ledger.ErrCertificate.
var (
	// ErrContradiction means that two trails of one shard hold, and differ. A majority of the
	// members of an epoch then certified two histories: they lied, lost their keys, or operators
	// recovered the shard from the loss of a majority.
	ErrContradiction = errors.New("shards: two histories of a shard's members are certified")
	// ErrForeignMember means that a member of another shard has the name or key of a member in the
	// trail.
	ErrForeignMember = errors.New("shards: a member of another shard has this name or key")
)

// trail is what is proven of a shard's members: the certificates of all joins and leaves from the
// shard's genesis on. It only grows. The value is immutable; a change replaces it.
type trail struct {
	certificates []*ledger.Certificate
	auditor      ledger.Auditor // after the last certificate
}

// Vouched reports whether this is a book with vouched crossings. There, memberships of other shards
// come from trails only, and their numbers are members' epochs: the numbers of joins and leaves.
func (d *Directory) Vouched() bool { return d.vouched }

// LearnTrail adopts the members of another shard if a trail proves them: the certificates of all
// joins and leaves from that shard's genesis on, each with its Change. It reports whether the trail
// leads further than the known one. It does nothing for the own shard, whose chain tells, and in a
// book without vouched crossings. The sender does not matter. The caller must not change the
// certificates afterwards.
//
// LearnTrail returns ledger.ErrCertificate for a trail that does not hold, ErrContradiction for one
// that holds but contradicts the known one, and ErrForeignMember. It adopts no part of such a
// trail.
func (d *Directory) LearnTrail(shard ledger.ShardID, certificates []*ledger.Certificate) (
	learned bool, err error) {
	if !d.vouched || shard == d.own || int(shard) >= d.Tree().Shards() {
		return false, nil
	}
	if _, lost := d.IsLost(shard); lost {
		return false, nil
	}
	// Signatures are verified without the lock of the readers.
	d.learning.Lock()
	defer d.learning.Unlock()
	known := d.trails[shard]
	for i := range min(len(known.certificates), len(certificates)) {
		if !sameBlock(known.certificates[i], certificates[i]) {
			return false, d.contradiction(shard, certificates)
		}
	}
	if len(certificates) <= len(known.certificates) {
		return false, nil
	}
	further := certificates[len(known.certificates):]
	auditor := known.auditor
	if _, err := follow(&auditor, further); err != nil {
		return false, fmt.Errorf("shard %d: %w", shard, err)
	}
	if err := d.adopt(shard, further, auditor); err != nil {
		return false, err
	}
	return true, nil
}

// LearnIntroduction is LearnTrail for a stranger's introduction: the certificates after an epoch,
// or the first part of these. It takes part in a book without vouched crossings, too. It adopts
// what holds even if the rest does not, so a stranger that adds a forged certificate to true ones
// causes no signature to be verified twice. wasted is the number of signatures that were verified,
// or are reckoned so, and proved nothing. Certificates that are known are not looked at.
func (d *Directory) LearnIntroduction(shard ledger.ShardID, from ledger.MembersEpoch,
	certificates []*ledger.Certificate) (learned bool, wasted int, err error) {
	if shard == d.own || int(shard) >= d.Tree().Shards() {
		return false, 0, nil
	}
	d.learning.Lock()
	defer d.learning.Unlock()
	known := d.trails[shard]
	epoch := ledger.MembersEpoch(len(known.certificates))
	if from > epoch || uint64(len(certificates)) <= uint64(epoch-from) {
		return false, 0, nil
	}
	further := certificates[epoch-from:]
	auditor := known.auditor
	held, err := follow(&auditor, further)
	if err != nil {
		err = fmt.Errorf("shard %d: %w", shard, err)
		// Seals of others than members are refused before any is verified.
		wasted = min(len(further[held].Seals), len(auditor.Members().Keys))
	}
	if held == 0 {
		return false, wasted, err
	}
	if refused := d.adopt(shard, further[:held], auditor); refused != nil {
		for _, c := range further[:held] {
			wasted += len(c.Seals)
		}
		return false, wasted, refused
	}
	return true, wasted, err
}

// adopt extends the known trail of a shard by certificates that hold, which led the auditor, and
// adopts the members after them. The caller holds d.learning.
func (d *Directory) adopt(shard ledger.ShardID, further []*ledger.Certificate,
	auditor ledger.Auditor) error {
	membership := auditor.Membership()
	if err := membership.Validate(); err != nil {
		return fmt.Errorf("shard %d: %w", shard, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, lost := d.lost[shard]; lost {
		return fmt.Errorf("shard %d is lost: nothing that its members say counts", shard)
	}
	m := membersOf(&membership)
	if err := d.checkForeign(shard, m.list); err != nil {
		return err
	}
	known := &d.trails[shard]
	*known = trail{certificates: slices.Concat(known.certificates, further), auditor: auditor}
	if !d.vouched {
		present := &d.shards[shard]
		if membership.Height <= present.said.Height {
			return nil // members have announced later ones
		}
		// Announced numbers also count admissions of disks. This one is above that of the members
		// which it replaces, and not above the true one.
		membership.Number = max(membership.Number, present.number+1)
		m = membersOf(&membership)
	}
	d.replace(shard, m)
	return nil
}

// follow leads an auditor along certificates, which must be those of the next changes, up to the
// first that does not hold. It returns the number of those that hold.
func follow(auditor *ledger.Auditor, certificates []*ledger.Certificate) (held int, err error) {
	for i, c := range certificates {
		// Follow passes over old epochs without a check.
		if epoch := auditor.Members().Epoch; c.Epoch != epoch {
			return i, fmt.Errorf("%w: the change in block %d is of epoch %d, not %d",
				ledger.ErrCertificate, c.Height, c.Epoch, epoch)
		}
		if err := auditor.Follow(c); err != nil {
			return i, err
		}
	}
	return len(certificates), nil
}

// sameBlock reports whether two certificates are of one block. Their signers may differ.
func sameBlock(a, b *ledger.Certificate) bool {
	return a.Epoch == b.Epoch && a.Height == b.Height && a.Hash == b.Hash
}

// contradiction returns why a trail that differs from the known one is refused. Without good
// signatures it contradicts nothing.
func (d *Directory) contradiction(shard ledger.ShardID, certificates []*ledger.Certificate) error {
	genesis, err := d.GenesisOf(shard)
	if err != nil {
		return err
	}
	if _, err := follow(ledger.NewAuditor(genesis), certificates); err != nil {
		return fmt.Errorf("shard %d: %w", shard, err)
	}
	return fmt.Errorf("%w: shard %d: this node keeps to the members that it learned first; ask "+
		"the operators of that shard", ErrContradiction, shard)
}

// checkForeign returns ErrForeignMember if a member of another shard has the name or the key of one
// of these members. The caller holds the lock.
func (d *Directory) checkForeign(shard ledger.ShardID, list []Member) error {
	names := make(map[string]bool, len(list))
	for _, member := range list {
		if at, known := d.places[member.Peer]; known && at.shard != shard {
			return fmt.Errorf("%w: key of %s of shard %d, a member of shard %d", ErrForeignMember,
				member.Name, shard, at.shard)
		}
		names[member.Name] = true
	}
	for other := range d.shards {
		for _, member := range d.shards[other].list {
			if ledger.ShardID(other) != shard && names[member.Name] {
				return fmt.Errorf("%w: %s of shard %d, a member of shard %d", ErrForeignMember,
					member.Name, shard, other)
			}
		}
	}
	return nil
}

// Epoch returns the members' epoch up to which a shard's trail is known: the number of its
// certificates. It is 0 for the own shard, and without vouched crossings.
func (d *Directory) Epoch(shard ledger.ShardID) ledger.MembersEpoch {
	return ledger.MembersEpoch(len(d.Trail(shard)))
}

// Trail returns the known trail of another shard, which is read-only.
func (d *Directory) Trail(shard ledger.ShardID) []*ledger.Certificate {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if int(shard) >= len(d.trails) {
		return nil
	}
	return d.trails[shard].certificates
}
