package ledger

import (
	"encoding/binary"
	"fmt"
)

// Code is the outcome of a transaction: applied, or the reason why not.
type Code uint8

// The codes. Their numbers are part of every block's results root and never change.
const (
	// Applied: the whole transaction took effect.
	Applied Code = iota
	// WrongLedger: the transaction was signed for another ledger.
	WrongLedger
	// Expired: the block's height is above LastValid.
	Expired
	// UnknownOrganisation: the signer, or the organisation of the item, is not registered.
	UnknownOrganisation
	// Unauthorised: a required signature is missing, or was made with a key that is not registered.
	Unauthorised
	// StaleNonce: the sequence number was applied before, or is too far below the highest one. For
	// an admission of a disk: the membership is not the one that its signer saw.
	StaleNonce
	// Unbalanced: the postings do not add up to zero for each asset, or the transaction is empty.
	Unbalanced
	// Overflow: a balance or a sum does not fit into 128 bits.
	Overflow
	// UnknownAccount: the account of the posting is not open.
	UnknownAccount
	// InsufficientFunds: the balance of the posting's account would go below zero.
	InsufficientFunds
	// OrganisationExists: the organisation is registered with other keys or another shard.
	OrganisationExists
	// AccountExists: the account is open as another kind or with another alias.
	AccountExists
	// TooManyAssets: the account would hold more than MaxAssets assets.
	TooManyAssets
	// MembershipChanging: the membership changed in this round or one of the two before; try again.
	MembershipChanging
	// MemberNameTaken: a present member has the name.
	MemberNameTaken
	// MemberKeyTaken: a present or former member has the key. A key serves one member only.
	MemberKeyTaken
	// MemberAddressTaken: a present member has the address.
	MemberAddressTaken
	// UnknownMember: no present member has the index.
	UnknownMember
	// LastMember: the last member cannot leave.
	LastMember
	// TooManyMembers: there are MaxMembers members, or MaxMemberIndexes have ever been members.
	TooManyMembers
	// SetAside: this shard's part of a cross-shard transaction is good. Its amounts are set aside
	// until the other shards' verdicts arrive.
	SetAside
	// Relayed: the transaction passed through this shard on its way to others. No part of it is for
	// this shard.
	Relayed
	// Settled: this was the last verdict that a transaction waited for, and the transaction took
	// effect here.
	Settled
	// Released: this verdict is bad, and the amounts that its transaction had set aside here are
	// free again.
	Released
	// OpeningAcrossShards: the transaction opens an account and concerns several shards. Open the
	// account first, in a transaction that concerns only the shard of its organisation.
	OpeningAcrossShards
	// RegistrationNotAlone: in a book of several shards, a transaction with registrations may hold
	// only registrations and a note, and does not expire.
	RegistrationNotAlone
	// UnknownShard: the registration pins the organisation to a shard that the book does not have.
	UnknownShard
	// TooManyWaiting: too many transactions (state.MaxWaiting) already wait for one of the
	// transaction's shards; try again when that shard answers.
	TooManyWaiting
	// OutOfPlace: no correct node puts this into a block. It is an entry of a stream out of its
	// order, a transaction of other shards, or a verdict that no transaction waits for.
	OutOfPlace
	// MemberDiskTaken: another present or former member has the disk. A disk serves one member
	// only.
	MemberDiskTaken
	// TooManyDisks: MaxMemberDisks disks were named for the member.
	TooManyDisks
	// TooFewSignatures: some of the organisation's keys have signed, and its policy asks for more.
	TooFewSignatures
	// PolicyOutdated: the organisation's policy is not the one that the signers of the change saw.
	PolicyOutdated
	// AssetRefused: the organisation of the posting's account does not accept the asset.
	AssetRefused
	// CharterOutdated: the operators are not those that the signers of the change saw.
	CharterOutdated
	// StreamQuota: the signer may not use a further nonce stream (Quotas.Streams).
	StreamQuota
	// AccountQuota: the organisation may not open a further account (Quotas.Accounts).
	AccountQuota
	// AssetQuota: the accounts of the posting's organisation may not hold a further asset
	// (Quotas.Assets).
	AssetQuota
	// RecordQuota: the organisation may not write a further record (Quotas.Records).
	RecordQuota
	// PendingQuota: as many of the signer's transactions wait for other shards as may
	// (Quotas.Pending).
	PendingQuota
	// DeadlinePassed: the block's time is the transaction's deadline or later.
	DeadlinePassed
	// DeadlineMissing: the transaction concerns several shards and names no deadline.
	DeadlineMissing
	// DeadlineTooFar: the deadline is more than MaxDeadline beyond the block's time.
	DeadlineTooFar
	// Cancelled: an organisation whose consent the transaction needs cancelled it here before.
	Cancelled
	// CancelledTooLate: the cancellation comes after this shard has executed the transaction, which
	// waits for the verdicts of others.
	CancelledTooLate
	// TooManyCancelled: this shard remembers as many cancellations as it may, of the organisation
	// (state.MaxCancelled) or of all.
	TooManyCancelled
	// BookOutdated: the book's shards are not those that the signers of the change saw.
	BookOutdated
	// TooManyShards: the book has MaxShards shards, or MaxShardedMembers first members.
	TooManyShards
	// ShardLost: the operators settled without the shard, which is lost.
	ShardLost
	// OrganisationMoving: the organisation is on its way to another shard.
	OrganisationMoving
	// OrganisationHome: the organisation is to move to a shard where it lives or lived before.
	OrganisationHome
	// ShardNeeded: the operators cannot settle without this shard. It is the root, or shards that
	// are not lost lie below it.
	ShardNeeded
	// HeardAgreement: a testimony about a lost shard. This shard had its good verdict.
	HeardAgreement
	// HeardNothing: a testimony about a lost shard. This shard did not have a good verdict of it.
	HeardNothing
	// Departed: the organisation has left the shard that says so. It is only in verdicts; see
	// Departure.
	Departed
	// BadParent: the shard cannot be hung below the other one: it is the root, lies right below the
	// other one already, or the other one lies below it.
	BadParent
	// AssetTaken: the asset is registered already, or by another organisation.
	AssetTaken
	// UnknownAsset: the asset is not registered.
	UnknownAsset
	// AssetOutdated: the asset's terms are not those that the signers of the change saw.
	AssetOutdated
	// TermsFixed: the terms may not change so (AssetTerms.MayBecome).
	TermsFixed
	// TooManyRegistered: the book has MaxRegisteredAssets assets, or the organisation MaxOwnAssets.
	TooManyRegistered
	// NotIssuer: the posting would issue the asset, and its organisation may not.
	NotIssuer
	// IssuanceClosed: the posting would issue the asset, of which nothing may be issued any more.
	IssuanceClosed
	// SupplyExceeded: the posting would issue more of the asset than its organisation may.
	SupplyExceeded
	// UnknownHold: there is no such hold on the account, or it has ended.
	UnknownHold
	// HoldOver: the hold has expired.
	HoldOver
	// HoldEnding: a transaction that waits for other shards is about to end the hold.
	HoldEnding
	// HoldDiffers: the hold is for another poster, asset or account, or of a smaller amount.
	HoldDiffers
	// HoldTime: the hold would expire at once, or more than MaxHoldTime ahead.
	HoldTime
	// TooManyHolds: the organisation, or all together, have as many holds as may be.
	TooManyHolds
)

// The codes of terms of accounts.
const (
	// AccountOutdated: the account's terms are not those that the signers of the change saw.
	AccountOutdated Code = 72 + iota
	// AccountFixed: the account's terms may not change so (AccountTerms.MayBecome), or a floor is
	// below zero and the account no issuer.
	AccountFixed
	// AccountNotEmpty: the account has amounts, or waits for some, so it cannot be closed.
	AccountNotEmpty
	// AliasTaken: another account of the organisation has the alias.
	AliasTaken
	// AccountFrozen: the account takes no postings until the freeze is lifted.
	AccountFrozen
	// AccountClosed: the account takes no postings any more, and is not opened again.
	AccountClosed
	// NoDebits: nothing may be taken from the account.
	NoDebits
	// NoCredits: nothing may be given to the account.
	NoCredits
	// BelowFloor: the account would have less of the asset than its floor.
	BelowFloor
	// AboveCeiling: the account would have more of the asset than its ceiling.
	AboveCeiling
	// VelocityExceeded: more would be taken from the account than may be in the time.
	VelocityExceeded
)

// The codes of details of entries.
const (
	// KeyTaken: an earlier entry of the signer has the idempotency key.
	KeyTaken Code = 88 + iota
	// TooManyKeys: as many idempotency keys of the signer, or of all, are remembered as may be.
	TooManyKeys
	// UnknownRefundable: the chain remembers no such entry that can be refunded: there is none, it
	// cannot be refunded any more, or all of it was refunded.
	UnknownRefundable
	// RefundOver: the time to refund the entry is over.
	RefundOver
	// RefundWaits: the entry, or another refund of it, waits for other shards.
	RefundWaits
	// RefundExceeded: the posting gives back more than is left of the entry's posting of the same
	// account and asset, or the entry has none.
	RefundExceeded
	// RefundTime: the entry could not be refunded at all, or more than MaxRefundTime ahead.
	RefundTime
	// TooManyRefundable: as many entries of the signer, or of all, can be refunded as may be.
	TooManyRefundable
)

// The codes of schedules.
const (
	// UnknownSchedule: the signer has no such schedule, or it has ended.
	UnknownSchedule Code = 96 + iota
	// ScheduleTime: the schedule would begin before its block, or more than MaxScheduleTime ahead.
	ScheduleTime
	// SchedulePlaced: the schedule was placed already.
	SchedulePlaced
	// TooManySchedules: the organisation, or all together, have as many schedules as may be.
	TooManySchedules
)

// The codes of engines.
const (
	// TooManyEngines: the engine of the chain has changed MaxEngineChanges times.
	TooManyEngines Code = 104 + iota
	codes
)

// NoItem is the Item of a result that concerns the transaction as a whole.
const NoItem = 1<<32 - 1

var codeNames = [codes]string{"applied", "wrong ledger", "expired", "unknown organisation",
	"unauthorised", "stale nonce", "unbalanced", "overflow",
	"unknown account", "insufficient funds", "organisation exists with other parameters",
	"account exists with other parameters", "too many assets",
	"the membership is changing: try again", "a member has this name",
	"a member has or had this key: a node that joins needs a new one", "a member has this address",
	"no such member", "the last member cannot leave", "too many members",
	"set aside: the other shards decide", "relayed to other shards", "settled: took effect",
	"released: another shard refused",
	"accounts are not opened across shards: open them first",
	"in a book of several shards a registration stands alone in its transaction and does not " +
		"expire",
	"no such shard", "too many transactions wait for another shard: try again later",
	"out of place",
	"another member has or had this disk",
	"too many disks were named for this member: replace it by a new one",
	"too few of the organisation's keys signed",
	"the organisation's policy has changed since: look at it and sign again",
	"the organisation does not accept the asset",
	"the operators have changed since: look at them and sign again",
	"the signer's quota of nonce streams is used up: use one of its present streams",
	"the organisation's quota of accounts is used up",
	"the organisation's quota of assets in its accounts is used up",
	"the organisation's quota of records is used up",
	"too many of the signer's transactions wait for other shards: its quota is used up; try again",
	"its deadline has passed: sign it again with a later one",
	"it concerns several shards and names no deadline: sign it again with one",
	"its deadline is too far ahead: sign it again with an earlier one",
	"cancelled: one of its signers withdrew it",
	"too late to cancel it here: this shard has agreed, and the others decide",
	"too many cancellations are remembered here: try again after their deadlines",
	"the book's shards have changed since: look at them and sign again",
	"the book has as many shards, or first members, as it may",
	"a shard that it concerns is lost, and the operators settled without it",
	"the organisation is moving to another shard: try again",
	"the organisation lives in this shard already, or lived there before",
	"the book cannot do without this shard: it is the root, or other shards lie below it",
	"testifies that the lost shard agreed", "testifies that it heard of no agreement",
	"departed: the organisation has left the shard",
	"the shard cannot be hung there: it is the root, is there already, or the place is below " +
		"itself",
	"the asset is registered already", "the asset is not registered: register it first",
	"the asset has changed since: look at it and sign again",
	"the terms of an asset never change so: its decimals and its policy stay, its cap is never " +
		"raised, no issuer leaves the list, and an allowance is lowered only together with the cap",
	"as many assets are registered as may be",
	"the organisation is no issuer of the asset, or not any more",
	"the issuance of the asset is closed",
	"it would issue more of the asset than its organisation may",
	"there is no such hold on the account, or it has ended", "the hold has expired",
	"another transaction is about to end the hold, and waits for other shards: try again",
	"the hold names another poster, asset or account, or a smaller amount",
	"a hold expires after its block, and at most 400 days ahead",
	"as many holds are open as may be: try again when some have ended",
	AccountOutdated: "the terms of the account have changed since: look at it and sign again",
	AccountFixed: "the terms of the account may not change so: what is closed stays closed, what " +
		"a guardian froze only the guardian lifts, and only issuers have a floor below 0",
	AccountNotEmpty:  "the account has amounts or waits for some: move them first",
	AliasTaken:       "another account of the organisation has the alias",
	AccountFrozen:    "the account is frozen",
	AccountClosed:    "the account is closed",
	NoDebits:         "nothing may be taken from the account",
	NoCredits:        "nothing may be given to the account",
	BelowFloor:       "the account would have less than its floor",
	AboveCeiling:     "the account would have more than its ceiling",
	VelocityExceeded: "more would be taken from the account than may be in the time",
	KeyTaken:         "an earlier entry of the signer has this idempotency key",
	TooManyKeys:      "as many idempotency keys are remembered as may be: try again later",
	UnknownRefundable: "there is no such entry that can be refunded, or all of it was refunded, " +
		"or its time is over",
	RefundOver:  "the time to refund the entry is over",
	RefundWaits: "the entry, or another refund of it, waits for other shards: try again",
	RefundExceeded: "it gives back more than is left of the entry's posting of this account and " +
		"asset",
	RefundTime:        "an entry can be refunded after its block, and at most 400 days ahead",
	TooManyRefundable: "as many entries can be refunded as may be: try again later",
	UnknownSchedule:   "the signer has no such schedule, or it has ended",
	ScheduleTime:      "a schedule begins after its block, and at most 10 years ahead",
	SchedulePlaced:    "the schedule was placed already",
	TooManySchedules:  "there are as many schedules as may be: end some first",
	TooManyEngines:    "the engine has changed as often as it may"}

// String returns the code in words.
func (c Code) String() string {
	if c.known() {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// known reports whether the code is one of these. Between them are numbers without one.
func (c Code) known() bool { return c < codes && codeNames[c] != "" }

// Foreseeable reports whether a node may refuse a transaction because it is certain to fail for
// this reason: no other one can mend it, in whatever order they come (state.State.Foreseen).
func (c Code) Foreseeable() bool {
	switch c {
	case DeadlinePassed, StaleNonce, HoldTime, UnknownHold, HoldDiffers, HoldOver, RefundTime,
		UnknownRefundable, RefundOver:
		return true
	}
	return false
}

// Result is the outcome of a transaction in its block.
type Result struct {
	Code Code `json:"code"`
	// Item is the index of the registration, opening, posting or record that the code refers to, or
	// NoItem.
	Item uint32 `json:"item"`
}

// OK reports whether the transaction was applied.
func (r Result) OK() bool { return r.Code == Applied }

// String returns the code in words and the item.
func (r Result) String() string {
	if r.Item == NoItem {
		return r.Code.String()
	}
	if r.Code.testifies() {
		return fmt.Sprintf("%s (shard %d)", r.Code, r.testimony().About)
	}
	kind := "posting"
	switch r.Code {
	case OrganisationExists, UnknownShard:
		kind = "registration"
	case AccountExists, OpeningAcrossShards, AccountQuota:
		kind = "opening"
	case RecordQuota:
		kind = "record"
	case UnknownOrganisation, Unauthorised, TooFewSignatures:
		kind = "item"
	}
	return fmt.Sprintf("%s (%s %d)", r.Code, kind, r.Item+1)
}

// leaf returns the leaf hash of a transaction's result in its block's results tree. It covers the
// id, the code (1 byte) and the item (4 bytes, big-endian).
func (r Result) leaf(id Hash) Hash {
	var buffer [1 + HashSize + 5]byte
	copy(buffer[1:], id[:])
	buffer[1+HashSize] = byte(r.Code)
	binary.BigEndian.PutUint32(buffer[2+HashSize:], r.Item)
	return sum256(buffer[:])
}

func appendResult(to []byte, result Result) []byte {
	return binary.BigEndian.AppendUint32(append(to, byte(result.Code)), result.Item)
}

// ResultSize is the size of an encoded result: the code (1 byte) and the item (4 bytes,
// big-endian).
const ResultSize = 5

// Append appends the encoding of the result.
func (r Result) Append(to []byte) []byte { return appendResult(to, r) }

// DecodeResult decodes a result, or returns ErrMalformed.
func DecodeResult(data []byte) (Result, error) {
	r := read(data)
	result := r.result()
	return result, r.End()
}

func (r *reader) result() Result {
	result := Result{Code: Code(r.Byte()), Item: r.Uint32()}
	if !result.Code.known() {
		r.Fail("result %d", result.Code)
	}
	return result
}
