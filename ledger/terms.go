package ledger

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// accountChangeVersion is the first byte of the body of a change of an account's terms.
const accountChangeVersion = 16

// Bounds of the terms of an account. They are part of its entry, which every posting hashes anew.
const (
	MaxAccountLimits = 16
	MaxMetadata      = 16
	MaxMetadataKey   = 32
	MaxMetadataValue = 128
	// MaxVelocitySeconds bounds the time of a velocity: 366 days.
	MaxVelocitySeconds = 366 * 24 * 60 * 60
)

// Freeze says who froze an account. Its text form is none, owner, guardian or both.
type Freeze uint8

// The freezes. Their numbers are part of transactions' ids and never change.
const (
	FreezeNone Freeze = 0
	// FreezeOwner is lifted by the account's organisation.
	FreezeOwner Freeze = 1
	// FreezeGuardian is lifted by the account's guardian only. Until then the organisation may
	// change nothing of the terms.
	FreezeGuardian Freeze = 2
	// FreezeBoth has both. When the guardian lifts its own, that of the organisation is left.
	FreezeBoth Freeze = 3

	freezes = 4
)

var freezeNames = [freezes]string{"none", "owner", "guardian", "both"}

// ByOwner reports whether the account's organisation froze it.
func (f Freeze) ByOwner() bool { return f == FreezeOwner || f == FreezeBoth }

// ByGuardian reports whether the account's guardian froze it.
func (f Freeze) ByGuardian() bool { return f == FreezeGuardian || f == FreezeBoth }

// WithGuardian returns the freeze with that of the guardian, or without it.
func (f Freeze) WithGuardian(frozen bool) Freeze {
	switch {
	case f.ByOwner() && frozen:
		return FreezeBoth
	case f.ByOwner():
		return FreezeOwner
	case frozen:
		return FreezeGuardian
	}
	return FreezeNone
}

// String returns none, owner, guardian or both.
func (f Freeze) String() string {
	if f < freezes {
		return freezeNames[f]
	}
	return fmt.Sprintf("freeze %d", uint8(f))
}

// MarshalText returns none, owner, guardian or both.
func (f Freeze) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText parses the output of MarshalText, or returns ErrMalformed.
func (f *Freeze) UnmarshalText(text []byte) error {
	at := slices.Index(freezeNames[:], string(text))
	if at < 0 {
		return fmt.Errorf("%w: %.20q is no freeze: none, owner, guardian or both", ErrMalformed,
			text)
	}
	*f = Freeze(at)
	return nil
}

// AccountLimit is what the terms of an account say of one asset. Each part is nil if it does not
// count. A transaction is judged by what all of its postings do to the account and asset together.
type AccountLimit struct {
	Asset AssetName `json:"asset"`
	// Floor is the least that a debit may leave, without what is set aside. An account that is
	// below it already takes credits only. It may be below zero for an issuer account only, and
	// then bounds how much that one issues.
	Floor *Amount `json:"floor,omitempty"`
	// Ceiling is the most that a credit may make of the balance, with all that is on its way.
	Ceiling  *Amount   `json:"ceiling,omitempty"`
	Velocity *Velocity `json:"velocity,omitempty"`
}

// AccountTerms is what an organisation says of one of its accounts.
type AccountTerms struct {
	NoDebits  bool   `json:"no_debits,omitempty"`
	NoCredits bool   `json:"no_credits,omitempty"`
	Freeze    Freeze `json:"freeze,omitempty"`
	// Closed is final: the account takes no posting any more, and its name is not used again. Only
	// an account without any amount is closed.
	Closed bool `json:"closed,omitempty"`
	// Guardian may freeze the account, and lift its own freeze. There is none unless the
	// organisation names one: nobody else can freeze an account, the operators included.
	Guardian OrganisationName `json:"guardian,omitempty"`
	// Limits are in ascending order of their assets.
	Limits []AccountLimit `json:"limits,omitempty"`
	// Metadata are in ascending order of their keys.
	Metadata []Metadatum `json:"metadata,omitempty"`
}

// Metadatum is a remark on an account. Indexed marks those by which the API finds accounts. It has
// no effect on the chain.
type Metadatum struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Indexed bool   `json:"indexed,omitempty"`
}

// AccountChange is a transaction's change of the terms of an account, by the account's organisation
// or its guardian. That of the organisation replaces all terms, and the alias. Number is one above
// the revision of the terms that the signers saw, which is 0 if there are none; if they have
// changed since, the change is refused (AccountOutdated).
//
// A guardian's change makes or lifts its own freeze and leaves all else as it is. It has the
// guardian and the freeze, guardian or none, and nothing else. Its Number is one above the count of
// guardians' changes (AccountStanding.Guarded), which the organisation does not change. So no
// change of the organisation can outrun it, except one that dismisses the guardian.
//
// The change is alone in its transaction, except for a note. It takes no nonce and does not expire:
// the number keeps it from taking effect twice. It concerns the shard of the account only.
type AccountChange struct {
	Account AccountPath `json:"account"`
	Number  uint64      `json:"number"`
	// Alias is the account's other name, or "". No two accounts of an organisation have the same
	// one, but for aliases that were given before the chain had the version AccountTermsVersion.
	Alias string `json:"alias,omitempty"`
	AccountTerms
}

// AccountStanding is what a chain keeps of the terms of an account.
type AccountStanding struct {
	// Revision counts the changes.
	Revision uint64 `json:"revision"`
	// Guarded counts those of guardians.
	Guarded uint64 `json:"guarded,omitempty"`
	AccountTerms
	// Spent is what counts against the velocity of each limit.
	Spent []Spent `json:"spent,omitempty"`
}

// String returns the standing as JSON.
func (s *AccountStanding) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Limit returns the place of the limit of an asset, and whether there is one.
func (t *AccountTerms) Limit(asset AssetName) (int, bool) {
	return slices.BinarySearchFunc(t.Limits, asset, func(l AccountLimit, asset AssetName) int {
		return strings.Compare(string(l.Asset), string(asset))
	})
}

// Clone returns a copy that shares no memory with the terms.
func (t *AccountTerms) Clone() AccountTerms {
	clone := *t
	clone.Guardian = OrganisationName(strings.Clone(string(t.Guardian)))
	clone.Limits, clone.Metadata = slices.Clone(t.Limits), slices.Clone(t.Metadata)
	copied := func(amount *Amount) *Amount {
		if amount == nil {
			return nil
		}
		value := *amount
		return &value
	}
	for i := range clone.Limits {
		l := &clone.Limits[i]
		l.Asset = AssetName(strings.Clone(string(l.Asset)))
		l.Floor, l.Ceiling = copied(l.Floor), copied(l.Ceiling)
		if l.Velocity != nil {
			velocity := *l.Velocity
			l.Velocity = &velocity
		}
	}
	for i := range clone.Metadata {
		m := &clone.Metadata[i]
		m.Key, m.Value = strings.Clone(m.Key), strings.Clone(m.Value)
	}
	return clone
}

// Clone returns a copy that shares no memory with the standing.
func (s *AccountStanding) Clone() *AccountStanding {
	return &AccountStanding{Revision: s.Revision, Guarded: s.Guarded,
		AccountTerms: s.AccountTerms.Clone(), Spent: slices.Clone(s.Spent)}
}

// Validate returns ErrMalformed or ErrName unless the terms are well-formed.
func (t *AccountTerms) Validate() error {
	if t.Freeze >= freezes {
		return fmt.Errorf("%w: %s", ErrMalformed, t.Freeze)
	}
	if t.Freeze.ByGuardian() && t.Guardian == "" {
		return fmt.Errorf("%w: an account without guardian that its guardian froze", ErrMalformed)
	}
	if t.Guardian != "" {
		if err := t.Guardian.Validate(); err != nil {
			return err
		}
	}
	if len(t.Limits) > MaxAccountLimits || len(t.Metadata) > MaxMetadata {
		return fmt.Errorf("%w: too large: at most %d limits and %d metadata of an account",
			ErrMalformed, MaxAccountLimits, MaxMetadata)
	}
	for i := range t.Limits {
		if i > 0 && t.Limits[i-1].Asset >= t.Limits[i].Asset {
			return fmt.Errorf("%w: limits out of order", ErrMalformed)
		}
		if err := t.Limits[i].validate(); err != nil {
			return err
		}
	}
	for i := range t.Metadata {
		m := &t.Metadata[i]
		if i > 0 && t.Metadata[i-1].Key >= m.Key {
			return fmt.Errorf("%w: metadata out of order", ErrMalformed)
		}
		if !validWord(m.Key, MaxMetadataKey) || len(m.Value) > MaxMetadataValue ||
			!printable(m.Value) {
			return fmt.Errorf("%w: metadata %.40q: a key is 1 to %d letters, digits, '-', '_' and "+
				"'.', and a value at most %d bytes of printable text", ErrName, m.Key,
				MaxMetadataKey, MaxMetadataValue)
		}
	}
	return nil
}

func (l *AccountLimit) validate() error {
	switch {
	case l.Asset.Validate() != nil:
		return l.Asset.Validate()
	case l.Floor == nil && l.Ceiling == nil && l.Velocity == nil:
		return fmt.Errorf("%w: a limit of %s that limits nothing", ErrMalformed, l.Asset)
	case l.Floor != nil && l.Ceiling != nil && l.Floor.Compare(*l.Ceiling) > 0:
		return fmt.Errorf("%w: the floor of %s is above its ceiling", ErrMalformed, l.Asset)
	case l.Velocity != nil && (l.Velocity.Amount.Sign() < 0 || l.Velocity.Seconds == 0 ||
		l.Velocity.Seconds > MaxVelocitySeconds):
		return fmt.Errorf("%w: a velocity of %s in %d seconds: at least 0, in 1 to %d seconds",
			ErrMalformed, l.Velocity.Amount, l.Velocity.Seconds, MaxVelocitySeconds)
	}
	return nil
}

// MayBecome reports whether the account's organisation may replace the terms by others. Closed is
// final. The freeze of a guardian the organisation neither makes nor lifts, and it keeps the
// organisation from changing anything.
func (t *AccountTerms) MayBecome(next *AccountTerms) bool {
	return !t.Closed && !t.Freeze.ByGuardian() && !next.Freeze.ByGuardian()
}

// MayGuard reports whether the account's guardian may make its freeze, or lift it.
func (t *AccountTerms) MayGuard(freeze Freeze) bool {
	return !t.Closed && t.Freeze.ByGuardian() != freeze.ByGuardian()
}

// Guards reports whether the change is one by a guardian: the signer is not the account's
// organisation.
func (c *AccountChange) Guards(signer OrganisationName) bool {
	return signer != c.Account.Organisation()
}

// Next returns the standing after a change that the organisation made, or else its guardian. What
// was spent goes on to count against a velocity in the same time, whatever its amount.
func (s *AccountStanding) Next(change *AccountChange, guards bool) *AccountStanding {
	if guards {
		next := s.Clone()
		next.Revision, next.Guarded = s.Revision+1, change.Number
		next.Freeze = s.Freeze.WithGuardian(change.Freeze.ByGuardian())
		return next
	}
	next := &AccountStanding{Revision: change.Number, Guarded: s.Guarded,
		AccountTerms: change.AccountTerms.Clone()}
	if len(next.Limits) == 0 {
		return next
	}
	next.Spent = make([]Spent, len(next.Limits))
	for i := range next.Limits {
		to := &next.Limits[i]
		if at, has := s.Limit(to.Asset); has && to.Velocity != nil &&
			s.Limits[at].Velocity != nil &&
			to.Velocity.Seconds == s.Limits[at].Velocity.Seconds {
			next.Spent[i] = s.Spent[at]
		}
	}
	return next
}

// checkForm checks the parts of a transaction that changes the terms of an account.
func (c *AccountChange) checkForm(t *Transaction) error {
	switch {
	case len(t.Registrations)+len(t.Openings)+len(t.Postings)+len(t.Records) > 0 ||
		t.LastValid != 0 || t.Deadline != 0 || t.Change != nil || t.Verdict != nil ||
		t.Policy != nil || t.Charter != nil || t.Cancellation != nil || t.Book != nil ||
		t.Arrival != nil || t.Asset != nil:
		return fmt.Errorf("%w: a change of an account stands alone in its transaction, and does "+
			"not expire", ErrMalformed)
	case c.Number == 0:
		return fmt.Errorf("%w: a change of an account has a number above 0", ErrMalformed)
	case c.Guardian != "" && c.Guardian == c.Account.Organisation():
		return fmt.Errorf("%w: an organisation is no guardian of its own account", ErrMalformed)
	case !validAlias(c.Alias):
		return fmt.Errorf("%w: an alias is at most %d bytes of printable text", ErrName, MaxAlias)
	case len(t.Note) > MaxNote:
		return fmt.Errorf("%w: too large: at most %d bytes of note", ErrMalformed, MaxNote)
	}
	if err := t.Signer.Validate(); err != nil {
		return err
	}
	if err := c.Account.Validate(); err != nil {
		return err
	}
	if c.Guards(t.Signer) && !c.guardsOnly(t.Signer) {
		return fmt.Errorf("%w: a guardian's change of an account names the guardian and its "+
			"freeze, and nothing else", ErrMalformed)
	}
	return c.Validate()
}

// guardsOnly reports whether the change has nothing but what a guardian's has.
func (c *AccountChange) guardsOnly(guardian OrganisationName) bool {
	only := AccountTerms{Guardian: guardian, Freeze: FreezeNone.WithGuardian(c.Freeze.ByGuardian())}
	return c.Alias == "" && bytes.Equal(c.append(nil), only.append(nil))
}

// appendAccountChange appends the encoding of a transaction that changes the terms of an account:
// version 16, ledger, signer, nonce, account, number, alias, terms, note.
func (t *Transaction) appendAccountChange(to []byte) []byte {
	to = append(to, accountChangeVersion)
	to = append(to, t.Ledger[:]...)
	to = codec.AppendString(to, t.Signer)
	to = binary.AppendUvarint(to, t.Nonce.Stream)
	to = binary.AppendUvarint(to, t.Nonce.Sequence)
	to = codec.AppendString(to, t.Account.Account)
	to = binary.AppendUvarint(to, t.Account.Number)
	to = codec.AppendString(to, t.Account.Alias)
	to = t.Account.append(to)
	return codec.AppendString(to, t.Note)
}

func (t *Transaction) decodeAccountChange(r *reader) {
	t.Ledger = r.Hash()
	t.Signer = OrganisationName(r.String("bytes of organisation", MaxOrganisationName))
	t.Nonce = Nonce{Stream: r.Uvarint(), Sequence: r.Uvarint()}
	t.Account = &AccountChange{Account: AccountPath(r.String("bytes of account", MaxAccountPath)),
		Number: r.Uvarint(), Alias: r.String("bytes of alias", MaxAlias),
		AccountTerms: r.accountTerms()}
	t.Note = r.Bytes("bytes of note", MaxNote)
}

const (
	termNoDebits  = 1
	termNoCredits = 2
	termClosed    = 4
	termFlags     = 8 // and above: none

	limitFloor    = 1
	limitCeiling  = 2
	limitVelocity = 4
	limitFlags    = 8
)

// append appends the canonical encoding of the terms: flags and freeze (a byte each), guardian,
// limits (asset, a byte for which parts there are, the parts), metadata (key, value, whether
// indexed).
func (t *AccountTerms) append(to []byte) []byte {
	flag := func(set bool, value byte) byte {
		if set {
			return value
		}
		return 0
	}
	to = append(to, flag(t.NoDebits, termNoDebits)|flag(t.NoCredits, termNoCredits)|
		flag(t.Closed, termClosed), byte(t.Freeze))
	to = codec.AppendString(to, t.Guardian)
	to = binary.AppendUvarint(to, uint64(len(t.Limits)))
	for i := range t.Limits {
		l := &t.Limits[i]
		to = codec.AppendString(to, l.Asset)
		to = append(to, flag(l.Floor != nil, limitFloor)|flag(l.Ceiling != nil, limitCeiling)|
			flag(l.Velocity != nil, limitVelocity))
		if l.Floor != nil {
			to = appendAmount(to, *l.Floor)
		}
		if l.Ceiling != nil {
			to = appendAmount(to, *l.Ceiling)
		}
		if l.Velocity != nil {
			to = appendAmount(to, l.Velocity.Amount)
			to = binary.AppendUvarint(to, uint64(l.Velocity.Seconds))
		}
	}
	to = binary.AppendUvarint(to, uint64(len(t.Metadata)))
	for i := range t.Metadata {
		m := &t.Metadata[i]
		to = codec.AppendString(to, m.Key)
		to = codec.AppendString(to, m.Value)
		to = codec.AppendBool(to, m.Indexed)
	}
	return to
}

func (r *reader) accountTerms() AccountTerms {
	flags := r.Byte()
	if flags >= termFlags {
		r.Fail("flags %d of an account", flags)
	}
	t := AccountTerms{NoDebits: flags&termNoDebits != 0, NoCredits: flags&termNoCredits != 0,
		Closed: flags&termClosed != 0, Freeze: Freeze(r.Byte()),
		Guardian: OrganisationName(r.String("bytes of organisation", MaxOrganisationName))}
	if count := r.Count("limits", MaxAccountLimits, 4); count > 0 {
		t.Limits = make([]AccountLimit, count)
	}
	for i := range t.Limits {
		l := &t.Limits[i]
		l.Asset = AssetName(r.String("bytes of asset", MaxAssetName))
		parts := r.Byte()
		if parts >= limitFlags {
			r.Fail("parts %d of a limit", parts)
		}
		amount := func() *Amount {
			value := r.amount()
			return &value
		}
		if parts&limitFloor != 0 {
			l.Floor = amount()
		}
		if parts&limitCeiling != 0 {
			l.Ceiling = amount()
		}
		if parts&limitVelocity != 0 {
			l.Velocity = &Velocity{Amount: r.amount(), Seconds: r.Uvarint32("seconds")}
		}
	}
	if count := r.Count("metadata", MaxMetadata, 3); count > 0 {
		t.Metadata = make([]Metadatum, count)
	}
	for i := range t.Metadata {
		t.Metadata[i] = Metadatum{Key: r.String("bytes of key", MaxMetadataKey),
			Value: r.String("bytes of value", MaxMetadataValue), Indexed: r.Bool()}
	}
	return t
}

// AppendStanding appends what the entry of an account has after its holds: the count of changes,
// the terms, of each limit with a velocity what was spent, and the count of changes by guardians if
// there were any.
func (s *AccountStanding) AppendStanding(to []byte) []byte {
	to = s.append(binary.AppendUvarint(to, s.Revision))
	for i := range s.Limits {
		if s.Limits[i].Velocity == nil {
			continue
		}
		to = binary.AppendUvarint(to, s.Spent[i].Slot)
		for _, amount := range s.Spent[i].Amounts {
			to = appendAmount(to, amount)
		}
	}
	if s.Guarded > 0 {
		to = binary.AppendUvarint(to, s.Guarded)
	}
	return to
}

// DecodeStanding decodes what AppendStanding appended, or returns ErrMalformed or ErrName. The
// result shares no memory with data.
func DecodeStanding(data []byte) (*AccountStanding, error) {
	r := read(data)
	s := &AccountStanding{Revision: r.Uvarint(), AccountTerms: r.accountTerms()}
	if len(s.Limits) > 0 {
		s.Spent = make([]Spent, len(s.Limits))
	}
	for i := range s.Limits {
		if s.Limits[i].Velocity == nil {
			continue
		}
		s.Spent[i].Slot = r.Uvarint()
		for j := range s.Spent[i].Amounts {
			s.Spent[i].Amounts[j] = r.amount()
		}
	}
	if len(r.Data) > 0 {
		if s.Guarded = r.Uvarint(); s.Guarded == 0 {
			r.Fail("no changes by guardians, and counted")
		}
	}
	if s.Revision == 0 || s.Guarded > s.Revision {
		r.Fail("%d changes of terms, %d of them by guardians", s.Revision, s.Guarded)
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s.Clone(), nil
}
