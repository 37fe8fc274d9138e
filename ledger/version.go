package ledger

import (
	"errors"
	"fmt"
)

// The versions of a chain. A version is the set of rules by which the members execute blocks. A
// chain begins with the version in its genesis. The operators raise it with a change of the
// charter: the block with the change is the first one of the new version. It never goes down, and
// blocks of earlier versions stay as they are.
const (
	// FirstVersion is the version of a chain that names none. The state digest is one LtHash of all
	// entries of the state.
	FirstVersion = 1
	// AccountTreeVersion is the version from which on the state digest has a Merkle tree over the
	// accounts. So a block costs less, and an account can be proven as of a block.
	AccountTreeVersion = 2
	// PackedVersion is the version from which on a chain takes packed bundles (see PackBundle), and
	// the roots over transactions and results have a leaf for each bundle (see Header.ByBundle).
	PackedVersion = 3
	// DeadlineVersion is the version from which on transactions may name a deadline, and those that
	// concern several shards must (see Transaction.Deadline).
	DeadlineVersion = 4
	// CancelVersion is the version from which on signers may cancel a transaction that names a
	// deadline (see Cancellation).
	CancelVersion = 5
	// GrowthVersion is the version from which on the operators may change the shards of a book (see
	// BookChange).
	GrowthVersion = 6
	// CrossingVersion is the version from which on what crosses shards costs less: the state digest
	// has a Merkle tree over the transactions that wait for other shards, and the good verdicts of
	// one shard share bundles in blocks, and members may vouch for groups of them (see
	// VerdictGroup).
	CrossingVersion = 7
	// AssetsVersion is the version from which on organisations may register assets (see
	// AssetChange), and the state digest has a Merkle tree over them.
	AssetsVersion = 8
	// HoldsVersion is the version from which on accounts may have holds (see Hold).
	HoldsVersion = 9
	// AccountTermsVersion is the version from which on organisations may set terms of their
	// accounts (see AccountChange), and aliases are unique within an organisation.
	AccountTermsVersion = 10
	// DetailsVersion is the version from which on entries may have details (see Details).
	DetailsVersion = 11
	// SchedulesVersion is the version from which on organisations may place schedules (see
	// Schedule).
	SchedulesVersion = 12
	// EnginesVersion is the version from which on the operators may change the engine by which the
	// members of a chain order (see ChangeEngine).
	EnginesVersion = 13
	// NewestVersion is the newest version that this package knows.
	NewestVersion = EnginesVersion

	// maxVersion bounds the versions that are decoded. So a program can say that it is too old for
	// a chain, instead of taking the change for a malformed one.
	maxVersion = 1 << 16
)

// ErrVersion reports that a chain has a newer version than this program knows.
var ErrVersion = errors.New("ledger: this program is too old for the chain")

// TakesPacked reports whether a chain of this version takes packed bundles: from PackedVersion on,
// in a book of one shard.
func TakesPacked(version int, genesis *Genesis) bool {
	return version >= PackedVersion && !genesis.Sharded()
}

// TakesDeadlines reports whether a chain of this version takes transactions that name a deadline.
// Programs that do not know the version cannot decode them.
func TakesDeadlines(version int) bool { return version >= DeadlineVersion }

// TakesCode reports whether a chain of this version has results with a code. Programs that do not
// know the version cannot decode them.
func TakesCode(version int, code Code) bool {
	switch {
	case code >= TooManyEngines:
		return TakesEngines(version)
	case code >= UnknownSchedule:
		return TakesSchedules(version)
	case code >= KeyTaken:
		return TakesDetails(version)
	case code >= AccountOutdated:
		return TakesAccountTerms(version)
	case code >= UnknownHold:
		return TakesHolds(version)
	case code >= AssetTaken:
		return TakesAssets(version)
	case code >= BookOutdated:
		return TakesBookChanges(version)
	case code >= Cancelled:
		return TakesCancellations(version)
	case code >= DeadlinePassed:
		return TakesDeadlines(version)
	}
	return true
}

// TakesCancellations reports whether a chain of this version takes cancellations. Programs that do
// not know the version cannot decode them.
func TakesCancellations(version int) bool { return version >= CancelVersion }

// TakesBookChanges reports whether a chain of this version takes changes of the book's shards.
// Programs that do not know the version cannot decode them.
func TakesBookChanges(version int) bool { return version >= GrowthVersion }

// TakesAgreements reports whether a chain of this version takes groups of verdicts. Programs that
// do not know the version cannot decode a batch with them.
func TakesAgreements(version int) bool { return version >= CrossingVersion }

// TakesAssets reports whether a chain of this version takes registrations of assets. Programs that
// do not know the version cannot decode them.
func TakesAssets(version int) bool { return version >= AssetsVersion }

// TakesHolds reports whether a chain of this version takes holds. Programs that do not know the
// version cannot decode them.
func TakesHolds(version int) bool { return version >= HoldsVersion }

// TakesAccountTerms reports whether a chain of this version takes changes of the terms of accounts.
// Programs that do not know the version cannot decode them.
func TakesAccountTerms(version int) bool { return version >= AccountTermsVersion }

// TakesDetails reports whether a chain of this version takes entries with details. Programs that do
// not know the version cannot decode them.
func TakesDetails(version int) bool { return version >= DetailsVersion }

// TakesSchedules reports whether a chain of this version takes schedules. Programs that do not know
// the version cannot decode them.
func TakesSchedules(version int) bool { return version >= SchedulesVersion }

// TakesEngines reports whether a chain of this version takes changes of the engine. Programs that
// do not know the version cannot decode them.
func TakesEngines(version int) bool { return version >= EnginesVersion }

// NeedsVersion returns the version of a chain from which on the transaction may be in its blocks.
// It does not tell for transfers of packed bundles, which may not be in all chains of a version
// (see TakesPacked).
func (t *Transaction) NeedsVersion() int {
	switch {
	case t.Change != nil && t.Change.Kind == ChangeEngine:
		return EnginesVersion
	case t.Schedules():
		return SchedulesVersion
	case t.Details != nil:
		return DetailsVersion
	case t.Hold != nil, t.HoldEnd != nil:
		return HoldsVersion
	case t.Account != nil:
		return AccountTermsVersion
	case t.Asset != nil:
		return AssetsVersion
	case t.Book != nil, t.Arrival != nil:
		return GrowthVersion
	case t.Cancellation != nil:
		return CancelVersion
	case t.Deadline != 0:
		return DeadlineVersion
	}
	return FirstVersion
}

// CheckVersion returns ErrVersion if this package does not know a chain's version.
func CheckVersion(version int) error {
	if version > NewestVersion {
		return fmt.Errorf("%w: the chain has version %d, and this program knows versions 1 to %d; "+
			"install a newer program and start it again", ErrVersion, version, NewestVersion)
	}
	return nil
}
