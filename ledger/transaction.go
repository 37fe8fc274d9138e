package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
	"github.com/ledgerd/ledgerd/ledger/internal/pairs"
)

// Bounds of a transaction.
const (
	MaxRegistrations    = 16
	MaxKeys             = 16
	MaxOpenings         = 256
	MaxPostings         = 1024
	MaxRecords          = 64
	MaxRecordValue      = 64 << 10
	MaxNote             = 16 << 10
	MaxTransactionBytes = 256 << 10
)

// The first byte of a transaction's body is its version.
const (
	transactionVersion    = 1
	administrativeVersion = 2
	policyVersion         = 4
	charterVersion        = 5
	quotasCharterVersion  = 6
	// The version of a change of the charter that names the chain's version.
	versionedCharterVersion = 7
	// The version of a client's transaction that names a deadline. Version 8 is packedBodyVersion.
	deadlineVersion = 9
)

const transactionDomain = "ledgerd/transaction/1\x00"

// PublicKey is an ed25519 public key. Its text form is 64 hex digits.
type PublicKey [32]byte

// ErrKey reports that a text is not a public key.
var ErrKey = errors.New("ledger: a public key is 64 hex digits")

// ParsePublicKey parses the text form of a public key.
func ParsePublicKey(text string) (PublicKey, error) {
	var key PublicKey
	if len(text) != 2*len(key) {
		return PublicKey{}, fmt.Errorf("%w: %d characters", ErrKey, len(text))
	}
	if _, err := hex.Decode(key[:], []byte(text)); err != nil {
		return PublicKey{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return key, nil
}

// String returns 64 hex digits.
func (k PublicKey) String() string { return hex.EncodeToString(k[:]) }

// MarshalText returns 64 hex digits.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (k *PublicKey) UnmarshalText(text []byte) error {
	parsed, err := ParsePublicKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

// WindowSize is the number of sequence numbers that a stream remembers, up to and including the
// highest applied one.
const WindowSize = 1024

// Nonce makes a signer's transactions unique. Streams are independent, so several clients of one
// organisation need not coordinate. Within a stream each sequence number is applied at most once. A
// number that is WindowSize or more below the highest applied one is too late.
type Nonce struct {
	Stream   uint64 `json:"stream"`
	Sequence uint64 `json:"sequence"`
}

// Registration registers an organisation with the keys that may sign for it. One of those keys must
// sign it, and also an operator if the genesis says so. Registering again with equal parameters
// changes nothing and succeeds. In a book of several shards, its transaction may hold only
// registrations and a note, takes no nonce and does not expire.
type Registration struct {
	Name OrganisationName `json:"name"`
	// Keys are 1 to MaxKeys distinct keys.
	Keys []PublicKey `json:"keys"`
	// Shard is the shard that holds the organisation's accounts if Pinned is set. Otherwise Shard
	// is 0, and rendezvous hashing chooses the shard.
	Shard  ShardID `json:"shard,omitempty"`
	Pinned bool    `json:"pinned,omitempty"`
}

// Opening opens an account. The account's organisation must sign it. Opening again with equal
// parameters changes nothing and succeeds.
type Opening struct {
	Account AccountPath `json:"account"`
	// Issuer lets the account's balances go below zero.
	Issuer bool `json:"issuer,omitempty"`
	// Alias is the account's name in the file from which it was imported, or "". Exports show it.
	Alias string `json:"alias,omitempty"`
}

// Posting adds an amount to an account's balance of an asset. The account's organisation must sign
// a negative amount.
type Posting struct {
	Account AccountPath `json:"account"`
	Asset   AssetName   `json:"asset"`
	Amount  Amount      `json:"amount"`
}

// Record sets a key's value. The key's organisation must sign it.
type Record struct {
	Key   RecordKey `json:"key"`
	Value []byte    `json:"value"`
}

// Transaction is a balanced journal entry. Its registrations, openings, postings and records take
// effect in this order, all or none.
type Transaction struct {
	// Ledger is the identity of the book that the transaction is for (Genesis.Book); it is valid
	// for no other. A change of the membership names its chain instead (Genesis.Hash).
	Ledger Hash `json:"ledger"`
	// Signer is the organisation that the nonce belongs to. It must sign.
	Signer OrganisationName `json:"signer"`
	Nonce  Nonce            `json:"nonce"`
	// LastValid is the height of the last block that may apply the transaction; 0 means that it
	// never expires. In a book of several shards it is a height of the home shard of the signer.
	LastValid Height `json:"last_valid,omitempty"`
	// Deadline is the time of the first blocks that may not apply the transaction any more; 0 means
	// that there is none. Each shard that the transaction concerns compares it with the time of its
	// own block that executes the transaction there. If that time is the deadline or later, the
	// shard refuses, and the transaction takes effect nowhere. A shard that set its part aside in
	// time waits for the others all the same: they may have done so, too. From version
	// DeadlineVersion of a chain on, a transaction that concerns several shards must have a
	// deadline, at most MaxDeadline ahead. Before, no transaction may.
	Deadline      Milliseconds   `json:"deadline,omitempty"`
	Registrations []Registration `json:"registrations,omitempty"`
	Openings      []Opening      `json:"openings,omitempty"`
	// Postings are none, or at least two that add up to zero for each asset.
	Postings []Posting `json:"postings,omitempty"`
	Records  []Record  `json:"records,omitempty"`
	// Change makes the transaction an administrative one. An operator signs it, or for an admission
	// a member (see MembershipChange). It is alone in its bundle, it holds nothing else except a
	// note, and its Signer is Operator.
	Change *MembershipChange `json:"change,omitempty"`
	// Verdict makes the transaction another shard's verdict on a cross-shard transaction. Members
	// put it into a block, unsigned, in a bundle of verdicts. Clients cannot submit it. The
	// transaction holds nothing else, not even a note.
	Verdict *Verdict `json:"verdict,omitempty"`
	// Policy makes the transaction a change of the policy of its signer (see PolicyChange). It is
	// alone in its transaction, except for a note.
	Policy *PolicyChange `json:"policy,omitempty"`
	// Charter makes the transaction a change of the charter (see CharterChange), which the
	// operators sign. It is alone in its transaction, except for a note.
	Charter *CharterChange `json:"charter,omitempty"`
	// Book makes the transaction a change of the book's shards (see BookChange), which the
	// operators sign. It is alone in its bundle, except for a note.
	Book *BookChange `json:"book,omitempty"`
	// Asset makes the transaction a registration or a change of an asset by its signer (see
	// AssetChange). It is alone in its transaction, except for a note.
	Asset *AssetChange `json:"asset,omitempty"`
	// Account makes the transaction a change of the terms of an account (see AccountChange). It is
	// alone in its transaction, except for a note.
	Account *AccountChange `json:"account,omitempty"`
	// Cancellation makes the transaction a cancellation of another one (see Cancellation). It is
	// alone in its transaction, except for a note and the Deadline.
	Cancellation *Cancellation `json:"cancellation,omitempty"`
	// Hold makes the transaction place a hold on an account of its signer, and HoldEnd makes it end
	// one. Each is alone in its transaction, except for a note and, of an end, the postings.
	Hold    *Hold    `json:"hold,omitempty"`
	HoldEnd *HoldEnd `json:"hold_end,omitempty"`
	// Details are what an entry says of itself beyond its postings (see Details), or nil.
	Details *Details `json:"details,omitempty"`
	// Schedule makes the transaction place a schedule, ScheduleEnd makes it end one, and Occurrence
	// makes it an occurrence of one, which members put into a block. Each is alone in its
	// transaction, except for a note and, of an occurrence, the postings.
	Schedule    *Schedule    `json:"schedule,omitempty"`
	ScheduleEnd *ScheduleEnd `json:"schedule_end,omitempty"`
	Occurrence  *Occurrence  `json:"occurrence,omitempty"`
	// Arrival makes the transaction a part of an organisation that moves here (see Arrival).
	// Members put it into a block, as they do with a verdict.
	Arrival *Arrival `json:"arrival,omitempty"`
	// Note is free text or data of at most MaxNote bytes, by convention JSON or plain text.
	Note []byte `json:"note,omitempty"`
}

// ErrInvalidTransaction reports why a transaction can never be applied, whatever the state of the
// ledger.
var ErrInvalidTransaction = errors.New("ledger: invalid transaction")

// ErrUnbalanced reports that a transaction's postings do not add up to zero for some asset. It is
// wrapped together with ErrInvalidTransaction.
var ErrUnbalanced = errors.New("ledger: unbalanced postings")

// Validate returns ErrInvalidTransaction if the transaction breaks a rule that does not depend on
// the state of a ledger. The error also wraps ErrName, ErrUnbalanced or ErrOverflow if that is the
// reason. Validate ignores signatures.
func (t *Transaction) Validate() error {
	if err := t.checkForm(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidTransaction, err)
	}
	return t.checkRules()
}

// checkRules is Validate for a transaction whose form is checked.
func (t *Transaction) checkRules() error {
	if t.Change != nil || t.Policy != nil || t.Charter != nil || t.Cancellation != nil ||
		t.Book != nil || t.Asset != nil || t.Hold != nil || t.Account != nil ||
		t.HoldEnd != nil && len(t.Postings) == 0 || t.Schedule != nil || t.ScheduleEnd != nil {
		return nil
	}
	if t.Verdict != nil || t.Arrival != nil || t.Occurrence != nil {
		return fmt.Errorf("%w: %w", ErrInvalidTransaction, errNotClients)
	}
	if len(t.Postings) == 1 {
		return fmt.Errorf("%w: %w: a single posting", ErrInvalidTransaction, ErrUnbalanced)
	}
	if len(t.Postings)+len(t.Records)+len(t.Openings)+len(t.Registrations) == 0 {
		return fmt.Errorf("%w: it changes nothing", ErrInvalidTransaction)
	}
	if asset, err := t.Balanced(); err != nil {
		return fmt.Errorf("%w: %w: asset %s", ErrInvalidTransaction, err, asset)
	}
	return nil
}

// TakesNonce reports whether the transaction takes its nonce when it is applied. An admission of a
// disk takes none, because the number of the membership that it makes already prevents a second
// effect. So a fresh nonce does not prove that an admission was never applied.
//
// A change of a policy, of the charter, of the shards, of an asset or of an account takes none
// either, for the same reason: its number prevents a second effect. A second cancellation has the
// same effect as the first one. An arrival is the only one of its id. A schedule takes none: it is
// placed before its first time only, and the state has it until then. An end of it has no effect
// twice, and the schedule numbers the occurrences.
func (t *Transaction) TakesNonce() bool {
	if t.Change != nil {
		return t.Change.Kind != ChangeAdmit
	}
	return t.Policy == nil && t.Charter == nil && t.Cancellation == nil && t.Book == nil &&
		t.Arrival == nil && t.Asset == nil && t.Account == nil && !t.Schedules()
}

// Antecedent returns the id of the transaction without which this one means nothing: the one that
// placed the hold which this one ends, or the entry which it refunds. It reports false for others.
func (t *Transaction) Antecedent() (Hash, bool) {
	switch {
	case t.HoldEnd != nil:
		return t.HoldEnd.Hold, true
	case t.Details != nil && t.Details.Refund != nil:
		return t.Details.Refund.Entry, true
	}
	return Hash{}, false
}

// BookWide reports whether the transaction concerns all shards of a book, because each keeps the
// whole directory: it registers organisations, or changes a policy, the charter, the shards or an
// asset.
func (t *Transaction) BookWide() bool {
	return len(t.Registrations) > 0 || t.Policy != nil || t.Charter != nil || t.Book != nil ||
		t.Asset != nil
}

// checkForm checks the rules that every encoding satisfies: names and bounds.
func (t *Transaction) checkForm() error {
	if t.Details != nil {
		return t.Details.checkForm(t)
	}
	if t.Schedules() {
		return t.checkScheduleForm()
	}
	if t.Hold != nil {
		return t.Hold.checkForm(t)
	}
	if t.HoldEnd != nil {
		return t.HoldEnd.checkForm(t)
	}
	if t.Verdict != nil {
		return t.checkVerdict()
	}
	if t.Policy != nil {
		return t.Policy.checkForm(t)
	}
	if t.Charter != nil {
		return t.Charter.checkForm(t)
	}
	if t.Book != nil {
		return t.Book.checkForm(t)
	}
	if t.Arrival != nil {
		return t.Arrival.checkForm(t)
	}
	if t.Asset != nil {
		return t.Asset.checkForm(t)
	}
	if t.Account != nil {
		return t.Account.checkForm(t)
	}
	if t.Change != nil {
		return t.checkAdministrative()
	}
	if t.Cancellation != nil {
		return t.Cancellation.checkForm(t)
	}
	return t.checkEntryForm()
}

// checkEntryForm is checkForm for an entry: registrations, openings, postings and records.
func (t *Transaction) checkEntryForm() error {
	if err := t.Signer.Validate(); err != nil {
		return err
	}
	if t.Deadline < 0 {
		return fmt.Errorf("%w: a deadline before 1970", ErrMalformed)
	}
	if len(t.Registrations) > MaxRegistrations || len(t.Openings) > MaxOpenings ||
		len(t.Postings) > MaxPostings || len(t.Records) > MaxRecords || len(t.Note) > MaxNote {
		return fmt.Errorf("%w: too large: at most %d registrations, %d openings, %d postings, "+
			"%d records, %d bytes of note", ErrMalformed,
			MaxRegistrations, MaxOpenings, MaxPostings, MaxRecords, MaxNote)
	}
	for i := range t.Registrations {
		if err := t.Registrations[i].checkForm(); err != nil {
			return err
		}
	}
	for i := range t.Openings {
		if err := t.Openings[i].Account.Validate(); err != nil {
			return err
		}
		if !validAlias(t.Openings[i].Alias) {
			return fmt.Errorf("%w: an alias is at most %d bytes of printable text", ErrName,
				MaxAlias)
		}
	}
	for i := range t.Postings {
		if err := t.Postings[i].Account.Validate(); err != nil {
			return err
		}
		if err := t.Postings[i].Asset.Validate(); err != nil {
			return err
		}
	}
	for i := range t.Records {
		if err := t.Records[i].Key.Validate(); err != nil {
			return err
		}
		if len(t.Records[i].Value) > MaxRecordValue {
			return fmt.Errorf("%w: a record's value is at most %d bytes", ErrMalformed,
				MaxRecordValue)
		}
	}
	return nil
}

func (t *Transaction) checkAdministrative() error {
	switch {
	case t.Signer != Operator:
		return fmt.Errorf("%w: a change of the membership is an operator's, not organisation %s's",
			ErrMalformed, t.Signer)
	case t.Change.Kind == ChangeAdmit && (t.Nonce.Stream != AdmitStream || t.Nonce.Sequence == 0):
		return fmt.Errorf(
			"%w: the nonce of an admission is in stream %d, and is the number of the "+
				"membership that it makes", ErrMalformed, uint64(AdmitStream))
	case len(t.Registrations)+len(t.Openings)+len(t.Postings)+len(t.Records) > 0 ||
		t.Deadline != 0:
		return fmt.Errorf("%w: a change of the membership stands alone in its transaction, and "+
			"has no deadline", ErrMalformed)
	case t.Cancellation != nil:
		return fmt.Errorf("%w: a cancellation stands alone in its transaction", ErrMalformed)
	case t.Asset != nil:
		return fmt.Errorf("%w: a change of an asset stands alone in its transaction", ErrMalformed)
	case t.Account != nil:
		return fmt.Errorf("%w: a change of an account stands alone in its transaction",
			ErrMalformed)
	case len(t.Note) > MaxNote:
		return fmt.Errorf("%w: too large: at most %d bytes of note", ErrMalformed, MaxNote)
	}
	return t.Change.checkForm()
}

func (r *Registration) checkForm() error {
	if err := r.Name.Validate(); err != nil {
		return err
	}
	if len(r.Keys) == 0 || len(r.Keys) > MaxKeys {
		return fmt.Errorf("%w: an organisation has 1 to %d keys", ErrMalformed, MaxKeys)
	}
	if !r.Pinned && r.Shard != 0 {
		return fmt.Errorf("%w: a shard that is not pinned", ErrMalformed)
	}
	for i, key := range r.Keys {
		for _, earlier := range r.Keys[:i] {
			if key == earlier {
				return fmt.Errorf("%w: key %s twice", ErrMalformed, key)
			}
		}
	}
	return nil
}

// Balanced returns an asset with ErrUnbalanced or ErrOverflow unless the postings of every asset
// add up to zero.
func (t *Transaction) Balanced() (AssetName, error) {
	for i := range t.Postings {
		asset := t.Postings[i].Asset
		if t.assetBefore(i, asset) {
			continue
		}
		var sum Amount
		for j := i; j < len(t.Postings); j++ {
			if t.Postings[j].Asset != asset {
				continue
			}
			var err error
			if sum, err = sum.Add(t.Postings[j].Amount); err != nil {
				return asset, err
			}
		}
		if sum.Sign() != 0 {
			return asset, ErrUnbalanced
		}
	}
	return "", nil
}

func (t *Transaction) assetBefore(index int, asset AssetName) bool {
	for i := range index {
		if t.Postings[i].Asset == asset {
			return true
		}
	}
	return false
}

// appendBody appends the canonical encoding without any checks; see EncodeBody.
func (t *Transaction) appendBody(to []byte) []byte {
	if t.Details != nil {
		return t.appendDetails(to)
	}
	if t.Schedules() {
		return t.appendScheduled(to)
	}
	if t.Hold != nil {
		return t.appendHold(to)
	}
	if t.HoldEnd != nil {
		return t.appendHoldEnd(to)
	}
	if t.Verdict != nil {
		return t.appendVerdict(to)
	}
	if t.Change != nil {
		return t.appendAdministrative(to)
	}
	if t.Policy != nil {
		return t.appendPolicyChange(to)
	}
	if t.Charter != nil {
		return t.appendCharterChange(to)
	}
	if t.Cancellation != nil {
		return t.appendCancellation(to)
	}
	if t.Book != nil {
		return t.appendBookChange(to)
	}
	if t.Arrival != nil {
		return t.appendArrival(to)
	}
	if t.Asset != nil {
		return t.appendAssetChange(to)
	}
	if t.Account != nil {
		return t.appendAccountChange(to)
	}
	version := byte(transactionVersion)
	if t.Deadline != 0 {
		version = deadlineVersion
	}
	to = append(to, version)
	to = append(to, t.Ledger[:]...)
	to = codec.AppendString(to, t.Signer)
	to = binary.AppendUvarint(to, t.Nonce.Stream)
	to = binary.AppendUvarint(to, t.Nonce.Sequence)
	to = binary.AppendUvarint(to, uint64(t.LastValid))
	if t.Deadline != 0 {
		to = binary.AppendUvarint(to, uint64(t.Deadline))
	}
	to = binary.AppendUvarint(to, uint64(len(t.Registrations)))
	for i := range t.Registrations {
		to = t.Registrations[i].append(to)
	}
	return codec.AppendString(t.appendItems(to), t.Note)
}

// appendItems appends openings, postings and records.
func (t *Transaction) appendItems(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(len(t.Openings)))
	for i := range t.Openings {
		to = codec.AppendString(to, t.Openings[i].Account)
		to = codec.AppendBool(to, t.Openings[i].Issuer)
		to = codec.AppendString(to, t.Openings[i].Alias)
	}
	to = binary.AppendUvarint(to, uint64(len(t.Postings)))
	for i := range t.Postings {
		to = codec.AppendString(to, t.Postings[i].Account)
		to = codec.AppendString(to, t.Postings[i].Asset)
		to = appendAmount(to, t.Postings[i].Amount)
	}
	to = binary.AppendUvarint(to, uint64(len(t.Records)))
	for i := range t.Records {
		to = codec.AppendString(to, t.Records[i].Key)
		to = codec.AppendString(to, t.Records[i].Value)
	}
	return to
}

// appendAdministrative appends the encoding of an administrative transaction: version 2, ledger,
// nonce, last valid height, change, note.
func (t *Transaction) appendAdministrative(to []byte) []byte {
	to = append(to, administrativeVersion)
	to = append(to, t.Ledger[:]...)
	to = binary.AppendUvarint(to, t.Nonce.Stream)
	to = binary.AppendUvarint(to, t.Nonce.Sequence)
	to = binary.AppendUvarint(to, uint64(t.LastValid))
	to = t.Change.append(to)
	return codec.AppendString(to, t.Note)
}

func (r *Registration) append(to []byte) []byte {
	to = codec.AppendString(to, r.Name)
	to = binary.AppendUvarint(to, uint64(len(r.Keys)))
	for k := range r.Keys {
		to = append(to, r.Keys[k][:]...)
	}
	to = codec.AppendBool(to, r.Pinned)
	return binary.AppendUvarint(to, uint64(r.Shard))
}

// EncodeBody returns the canonical encoding, whose hash is the id. It returns ErrMalformed or
// ErrName if DecodeBody would.
func (t *Transaction) EncodeBody() ([]byte, error) { return t.encodeBody(nil) }

// encodeBody appends what EncodeBody returns.
func (t *Transaction) encodeBody(to []byte) ([]byte, error) {
	if err := t.checkForm(); err != nil {
		return nil, err
	}
	before := len(to)
	to = t.appendBody(to)
	if size := len(to) - before; size > MaxTransactionBytes {
		return nil, fmt.Errorf("%w: a transaction of %d bytes, at most %d allowed", ErrMalformed,
			size, MaxTransactionBytes)
	}
	return to, nil
}

// TransactionID returns the id of the transaction with this body: the SHA-256 of
// "ledgerd/transaction/1", a zero byte and the body.
func TransactionID(body []byte) Hash {
	var short [256]byte
	if len(transactionDomain)+len(body) > len(short) {
		return sum256([]byte(transactionDomain), body)
	}
	return sha256.Sum256(append(append(short[:0], transactionDomain...), body...))
}

// hashBodies sets ids to the ids of as many transactions. Two of about the same size take little
// longer than one.
func hashBodies(ids []Hash, body func(i int) []byte) {
	if len(ids) == 1 {
		ids[0] = TransactionID(body(0))
		return
	}
	var pair pairs.Pair
	i := 0
	for ; i+1 < len(ids); i += 2 {
		first, second := pair.SumAfter(transactionDomain, body(i), body(i+1))
		ids[i], ids[i+1] = first, second
	}
	if i < len(ids) {
		ids[i] = TransactionID(body(i))
	}
}

// DecodeBody decodes a transaction, or returns ErrMalformed or ErrName. The transaction shares the
// memory of body, which must not change any more.
//
// It also takes what shows a transfer of a packed bundle: those parts of the bundle that it is in.
// The id of such a transfer does not follow from them, as it has 30 bytes of the bundle's root.
func DecodeBody(body []byte) (*Transaction, error) {
	if len(body) > 0 && body[0] == packedBodyVersion {
		shown, err := decodePackedBody(body)
		if err != nil {
			return nil, err
		}
		return shown.transaction(), nil
	}
	transaction := new(Transaction)
	if err := decodeBody(body, transaction, new(postingSlab)); err != nil {
		return nil, err
	}
	return transaction, nil
}

// postingSlab allocates the postings of many transactions together.
type postingSlab struct {
	free []Posting
	// expected is how many postings are still to come, as far as that can be guessed.
	expected int
}

// postingSlabMax bounds the postings of one allocation for several transactions.
const postingSlabMax = 512

// newPostingSlab returns a slab for this many transactions. Most are transfers.
func newPostingSlab(transactions int) *postingSlab {
	return &postingSlab{expected: 2 * transactions}
}

// take returns count empty postings. Appending to them does not change others.
func (s *postingSlab) take(count int) []Posting {
	if len(s.free) < count {
		s.free = make([]Posting, max(count, min(s.expected, postingSlabMax)))
	}
	taken := s.free[:count:count]
	s.free, s.expected = s.free[count:], s.expected-count
	return taken
}

func decodeBody(body []byte, t *Transaction, postings *postingSlab) error {
	if len(body) > MaxTransactionBytes {
		return fmt.Errorf("%w: a transaction of %d bytes, at most %d allowed", ErrMalformed,
			len(body), MaxTransactionBytes)
	}
	r := read(body)
	version := r.Byte()
	switch version {
	case transactionVersion, deadlineVersion:
	case administrativeVersion:
		t.decodeAdministrative(&r)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case policyVersion:
		t.decodePolicyChange(&r)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case charterVersion, quotasCharterVersion, versionedCharterVersion:
		t.decodeCharterChange(&r, version)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case cancellationVersion:
		t.decodeCancellation(&r)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case growthVersion:
		t.decodeBookChange(&r)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case arrivalVersion:
		t.decodeArrival(&r)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case assetVersion:
		t.decodeAssetChange(&r)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case holdVersion:
		t.decodeHold(&r)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case holdEndVersion:
		t.decodeHoldEnd(&r)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case scheduleVersion, scheduleEndVersion, occurrenceVersion:
		t.decodeScheduled(&r, version)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case detailsVersion:
		t.decodeDetails(&r, postings)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case accountChangeVersion:
		t.decodeAccountChange(&r)
		if err := r.End(); err != nil {
			return err
		}
		return t.checkForm()
	case verdictVersion:
		t.Ledger = r.Hash()
		verdict := r.verdict()
		t.Verdict = &verdict
		return r.End()
	default:
		r.Fail("transaction version %d", version)
	}
	t.Ledger = r.Hash()
	t.Signer = OrganisationName(r.String("bytes of organisation", MaxOrganisationName))
	t.Nonce = Nonce{Stream: r.Uvarint(), Sequence: r.Uvarint()}
	t.LastValid = Height(r.Uvarint())
	if version == deadlineVersion {
		if t.Deadline = Milliseconds(r.Uvarint()); t.Deadline == 0 {
			r.Fail("a deadline that is none")
		}
	}
	if count := r.Count("registrations", MaxRegistrations, 4); count > 0 {
		t.Registrations = make([]Registration, count)
		for i := range t.Registrations {
			t.Registrations[i].decode(&r)
		}
	}
	t.decodeItems(&r, postings)
	t.Note = r.Bytes("bytes of note", MaxNote)
	if err := r.End(); err != nil {
		return err
	}
	return t.checkForm()
}

// decodeItems decodes openings, postings and records.
func (t *Transaction) decodeItems(r *reader, postings *postingSlab) {
	if count := r.Count("openings", MaxOpenings, 3); count > 0 {
		t.Openings = make([]Opening, count)
		for i := range t.Openings {
			t.Openings[i] = Opening{
				Account: AccountPath(r.String("bytes of account", MaxAccountPath)),
				Issuer:  r.Bool(),
				Alias:   r.String("bytes of alias", MaxAlias),
			}
		}
	}
	if count := r.Count("postings", MaxPostings, 3); count > 0 {
		t.Postings = postings.take(count)
		for i := range t.Postings {
			t.Postings[i] = Posting{
				Account: AccountPath(r.String("bytes of account", MaxAccountPath)),
				Asset:   AssetName(r.String("bytes of asset", MaxAssetName)),
				Amount:  r.amount(),
			}
		}
	}
	if count := r.Count("records", MaxRecords, 2); count > 0 {
		t.Records = make([]Record, count)
		for i := range t.Records {
			t.Records[i] = Record{
				Key:   RecordKey(r.String("bytes of key", MaxAccountPath)),
				Value: r.Bytes("bytes of value", MaxRecordValue),
			}
		}
	}
}

func (t *Transaction) decodeAdministrative(r *reader) {
	t.Signer = Operator
	t.Ledger = r.Hash()
	t.Nonce = Nonce{Stream: r.Uvarint(), Sequence: r.Uvarint()}
	t.LastValid = Height(r.Uvarint())
	t.Change = r.membershipChange()
	t.Note = r.Bytes("bytes of note", MaxNote)
}

func (r *Registration) decode(from *reader) {
	r.Name = OrganisationName(from.String("bytes of organisation", MaxOrganisationName))
	count := from.Count("keys", MaxKeys, len(PublicKey{}))
	r.Keys = make([]PublicKey, count)
	for k := range r.Keys {
		copy(r.Keys[k][:], from.Take(len(PublicKey{})))
	}
	r.Pinned = from.Bool()
	r.Shard = from.shard()
}
