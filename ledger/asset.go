package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// assetVersion is the first byte of the body of a change of an asset.
const assetVersion = 13

// Bounds of assets.
const (
	// MaxDecimals is the largest number of decimals of an asset. An amount has 39 digits at most.
	MaxDecimals = 30
	// MaxIssuers bounds the organisations that may issue an asset, or ever could.
	MaxIssuers = 64
	// MaxRegisteredAssets bounds the registered assets of a book, and MaxOwnAssets those of one
	// organisation. Each member keeps all of them in memory.
	MaxRegisteredAssets = 1 << 16
	MaxOwnAssets        = 1 << 10
)

// SupplyPolicy is a promise on how much of an asset there may be. Its text form is unlimited,
// capped or fixed.
type SupplyPolicy uint8

// The policies. Their numbers are part of transactions' ids and never change.
const (
	// SupplyUnlimited sets no bound.
	SupplyUnlimited SupplyPolicy = 0
	// SupplyCapped bounds how much is outstanding. What is redeemed may be issued again. The cap
	// may be lowered and never raised.
	SupplyCapped SupplyPolicy = 1
	// SupplyFixed bounds how much is ever issued. What is redeemed is gone. The bound never
	// changes.
	SupplyFixed SupplyPolicy = 2

	supplyPolicies = 3
)

var supplyNames = [supplyPolicies]string{"unlimited", "capped", "fixed"}

// String returns unlimited, capped or fixed.
func (p SupplyPolicy) String() string {
	if p < supplyPolicies {
		return supplyNames[p]
	}
	return fmt.Sprintf("supply policy %d", uint8(p))
}

// MarshalText returns unlimited, capped or fixed.
func (p SupplyPolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the output of MarshalText, or returns ErrMalformed.
func (p *SupplyPolicy) UnmarshalText(text []byte) error {
	at := slices.Index(supplyNames[:], string(text))
	if at < 0 {
		return fmt.Errorf("%w: %.20q is no supply policy: unlimited, capped or fixed",
			ErrMalformed, text)
	}
	*p = SupplyPolicy(at)
	return nil
}

// Issuer is an organisation that may issue an asset: its issuer accounts may go below zero in it.
type Issuer struct {
	Organisation OrganisationName `json:"organisation"`
	// Allowance is how much the organisation may issue, if the supply is bounded. Otherwise it is
	// 0.
	Allowance Amount `json:"allowance,omitzero"`
	// Withdrawn says that the organisation may issue nothing any more. Its allowance still counts,
	// because what it issued is still there.
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// AssetTerms is what the organisation that registers an asset says of it.
type AssetTerms struct {
	// Decimals is how many decimals amounts are written and read with. Amounts stay integers, of
	// the smallest unit.
	Decimals uint8        `json:"decimals"`
	Supply   SupplyPolicy `json:"supply"`
	// Cap is the bound of SupplyCapped and SupplyFixed. The allowances of the issuers add up to no
	// more. So each issuer is judged where it lives, by what it issued itself, and all of them
	// together never exceed the cap.
	Cap Amount `json:"cap,omitzero"`
	// Closed says that nothing may be issued any more. It is final.
	Closed bool `json:"closed,omitempty"`
	// Issuers are in ascending order of their names. One that is withdrawn stays.
	Issuers []Issuer `json:"issuers,omitempty"`
}

// AssetChange is a transaction's registration of an asset by its signer, or a later change of the
// terms by the same organisation. It replaces all terms. Number is 1 for the registration, and then
// one above that of the terms that the signers saw; if they have changed since, the change is
// refused (AssetOutdated). What a change may not do, AssetTerms.MayBecome says.
//
// The change is alone in its transaction, except for a note. It takes no nonce and does not expire,
// because in a book of several shards all shards have to decide alike.
type AssetChange struct {
	Asset  AssetName `json:"asset"`
	Number uint64    `json:"number"`
	AssetTerms
}

// Limited reports whether the supply has a bound.
func (t *AssetTerms) Limited() bool { return t.Supply != SupplyUnlimited }

// Issuer returns the place of an issuer, and whether the organisation is one.
func (t *AssetTerms) Issuer(name OrganisationName) (int, bool) {
	return slices.BinarySearchFunc(t.Issuers, name, func(i Issuer, name OrganisationName) int {
		return strings.Compare(string(i.Organisation), string(name))
	})
}

// Allowed returns the sum of all allowances, those of withdrawn issuers included, or ErrOverflow.
func (t *AssetTerms) Allowed() (sum Amount, err error) {
	for i := range t.Issuers {
		if sum, err = sum.Add(t.Issuers[i].Allowance); err != nil {
			return Amount{}, err
		}
	}
	return sum, nil
}

// Clone returns a copy that shares no memory with the terms.
func (t *AssetTerms) Clone() AssetTerms {
	clone := *t
	clone.Issuers = slices.Clone(t.Issuers)
	for i := range clone.Issuers {
		clone.Issuers[i].Organisation = OrganisationName(strings.Clone(
			string(clone.Issuers[i].Organisation)))
	}
	return clone
}

// Validate returns ErrMalformed or ErrName unless the terms are well-formed. In particular the
// allowances add up to no more than the cap.
func (t *AssetTerms) Validate() error {
	if t.Decimals > MaxDecimals {
		return fmt.Errorf("%w: an asset with %d decimals, at most %d allowed", ErrMalformed,
			t.Decimals, MaxDecimals)
	}
	if t.Supply >= supplyPolicies {
		return fmt.Errorf("%w: %s", ErrMalformed, t.Supply)
	}
	if len(t.Issuers) > MaxIssuers {
		return fmt.Errorf("%w: an asset with %d issuers, at most %d allowed", ErrMalformed,
			len(t.Issuers), MaxIssuers)
	}
	if t.Cap.Sign() < 0 || !t.Limited() && t.Cap.Sign() != 0 {
		return fmt.Errorf("%w: a cap of %s for a supply that is %s", ErrMalformed, t.Cap, t.Supply)
	}
	for i := range t.Issuers {
		issuer := &t.Issuers[i]
		if err := issuer.Organisation.Validate(); err != nil {
			return err
		}
		if i > 0 && t.Issuers[i-1].Organisation >= issuer.Organisation {
			return fmt.Errorf("%w: issuers out of order", ErrMalformed)
		}
		if issuer.Allowance.Sign() < 0 {
			return fmt.Errorf("%w: an allowance of %s", ErrMalformed, issuer.Allowance)
		}
	}
	if sum, err := t.Allowed(); err != nil || sum.Compare(t.Cap) > 0 {
		return fmt.Errorf("%w: the allowances of the issuers add up to more than the cap of %s",
			ErrMalformed, t.Cap.Decimal(int(t.Decimals)))
	}
	return nil
}

// MayBecome reports whether the terms may be replaced by others. Decimals and policy never change,
// what is closed stays closed, and no issuer leaves the list. A cap is never raised, and one that
// is fixed is not lowered either.
//
// An allowance that was given is never given to another issuer: what the first one issued may still
// be there, and only its home knows. So an allowance is lowered only together with the cap, by as
// much. Hence the largest allowances that each issuer ever had add up to no more than the cap of
// the registration.
func (t *AssetTerms) MayBecome(next *AssetTerms) bool {
	if next.Decimals != t.Decimals || next.Supply != t.Supply || t.Closed && !next.Closed ||
		next.Cap.Compare(t.Cap) > 0 || t.Supply == SupplyFixed && next.Cap != t.Cap {
		return false
	}
	highest := t.Cap // that the cap may be, less what issuers gave up
	for i := range t.Issuers {
		before := &t.Issuers[i]
		at, stays := next.Issuer(before.Organisation)
		if !stays {
			return false
		}
		if after := next.Issuers[at].Allowance; after.Compare(before.Allowance) < 0 {
			highest = highest.Minus(before.Allowance.Minus(after))
		}
	}
	return next.Cap.Compare(highest) <= 0
}

// equal reports whether the terms say the same.
func (t *AssetTerms) equal(other *AssetTerms) bool {
	return t.Decimals == other.Decimals && t.Supply == other.Supply && t.Cap == other.Cap &&
		t.Closed == other.Closed && slices.Equal(t.Issuers, other.Issuers)
}

// checkForm checks the parts of a transaction that registers or changes an asset.
func (c *AssetChange) checkForm(t *Transaction) error {
	switch {
	case len(t.Registrations)+len(t.Openings)+len(t.Postings)+len(t.Records) > 0 ||
		t.LastValid != 0 || t.Deadline != 0 || t.Change != nil || t.Verdict != nil ||
		t.Policy != nil || t.Charter != nil || t.Cancellation != nil || t.Book != nil ||
		t.Arrival != nil || t.Account != nil:
		return fmt.Errorf("%w: a change of an asset stands alone in its transaction, and does not "+
			"expire", ErrMalformed)
	case c.Number == 0:
		return fmt.Errorf("%w: a change of an asset has a number above 0", ErrMalformed)
	case c.Asset == DefaultAsset:
		return fmt.Errorf("%w: asset %s is that of amounts that name none, and is not registered",
			ErrMalformed, DefaultAsset)
	case len(t.Note) > MaxNote:
		return fmt.Errorf("%w: too large: at most %d bytes of note", ErrMalformed, MaxNote)
	}
	if err := t.Signer.Validate(); err != nil {
		return err
	}
	if err := c.Asset.Validate(); err != nil {
		return err
	}
	return c.Validate()
}

// appendAssetChange appends the encoding of a transaction that registers or changes an asset:
// version 13, ledger, signer, nonce, asset, number, terms, note.
func (t *Transaction) appendAssetChange(to []byte) []byte {
	to = append(to, assetVersion)
	to = append(to, t.Ledger[:]...)
	to = codec.AppendString(to, t.Signer)
	to = binary.AppendUvarint(to, t.Nonce.Stream)
	to = binary.AppendUvarint(to, t.Nonce.Sequence)
	to = codec.AppendString(to, t.Asset.Asset)
	to = binary.AppendUvarint(to, t.Asset.Number)
	to = t.Asset.append(to)
	return codec.AppendString(to, t.Note)
}

func (t *Transaction) decodeAssetChange(r *reader) {
	t.Ledger = r.Hash()
	t.Signer = OrganisationName(r.String("bytes of organisation", MaxOrganisationName))
	t.Nonce = Nonce{Stream: r.Uvarint(), Sequence: r.Uvarint()}
	t.Asset = &AssetChange{Asset: AssetName(r.String("bytes of asset", MaxAssetName)),
		Number: r.Uvarint(), AssetTerms: r.assetTerms()}
	t.Note = r.Bytes("bytes of note", MaxNote)
}

// append appends the canonical encoding of the terms: decimals and policy (a byte each), cap,
// whether issuance is closed, issuers (organisation, allowance, whether withdrawn).
func (t *AssetTerms) append(to []byte) []byte {
	to = append(to, t.Decimals, byte(t.Supply))
	to = appendAmount(to, t.Cap)
	to = codec.AppendBool(to, t.Closed)
	to = binary.AppendUvarint(to, uint64(len(t.Issuers)))
	for i := range t.Issuers {
		issuer := &t.Issuers[i]
		to = codec.AppendString(to, issuer.Organisation)
		to = appendAmount(to, issuer.Allowance)
		to = codec.AppendBool(to, issuer.Withdrawn)
	}
	return to
}

func (r *reader) assetTerms() AssetTerms {
	t := AssetTerms{Decimals: r.Byte(), Supply: SupplyPolicy(r.Byte()), Cap: r.amount(),
		Closed: r.Bool()}
	if count := r.Count("issuers", MaxIssuers, 3); count > 0 {
		t.Issuers = make([]Issuer, count)
		for i := range t.Issuers {
			t.Issuers[i] = Issuer{Organisation: OrganisationName(
				r.String("bytes of organisation", MaxOrganisationName)),
				Allowance: r.amount(), Withdrawn: r.Bool()}
		}
	}
	return t
}
