package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// Bounds of a policy.
const (
	// MaxLimits bounds the limits of a policy.
	MaxLimits = 64
	// MaxPolicyAssets bounds the assets that a policy names.
	MaxPolicyAssets = 256
)

// Role is the part that a key plays for its organisation. Its text form is all, open, post or read.
type Role uint8

// The roles. Their numbers are part of transactions' ids and never change.
const (
	// RoleAll may sign everything. Only keys with this role count for a change of the policy, of an
	// asset or of the terms of an account.
	RoleAll Role = 0
	// RoleOpen may only open accounts.
	RoleOpen Role = 1
	// RolePost may only take from accounts and write records.
	RolePost Role = 2
	// RoleRead signs no transaction.
	RoleRead Role = 3

	roles = 4
)

var roleNames = [roles]string{"all", "open", "post", "read"}

// String returns all, open, post or read.
func (r Role) String() string {
	if r < roles {
		return roleNames[r]
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// MarshalText returns all, open, post or read.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the output of MarshalText, or returns ErrMalformed.
func (r *Role) UnmarshalText(text []byte) error {
	at := slices.Index(roleNames[:], string(text))
	if at < 0 {
		return fmt.Errorf("%w: %.20q is no role: all, open, post or read", ErrMalformed, text)
	}
	*r = Role(at)
	return nil
}

// acts are the acts of an organisation in a transaction that need a role.
type acts uint8

const (
	actOpen acts = 1 << iota
	actPost
	actPolicy
)

// covers reports whether a key with this role counts for these acts.
func (r Role) covers(done acts) bool {
	switch r {
	case RoleAll:
		return true
	case RoleOpen:
		return done&(actPost|actPolicy) == 0
	case RolePost:
		return done&(actOpen|actPolicy) == 0
	}
	return false
}

// PolicyKey is a key of an organisation and its role.
type PolicyKey struct {
	Key  PublicKey `json:"key"`
	Role Role      `json:"role"`
}

// Limit asks for more signatures if a transaction takes much. The amount is the sum of all that the
// transaction takes of the asset from the organisation's accounts, also for other accounts of the
// organisation.
type Limit struct {
	Asset AssetName `json:"asset"`
	// Above is the largest amount that the limit does not concern. It is not below zero.
	Above Amount `json:"above"`
	// Signatures is the number of distinct keys that have to sign for more than that.
	Signatures int `json:"signatures"`
}

// Policy says how many of an organisation's keys have to sign, and which of them. An organisation
// begins without a policy: each key of its registration may sign everything alone.
//
// A change of the policy is a transaction (PolicyChange). It needs as many keys with RoleAll as the
// most that the present policy asks for anything, so no limit can be lifted by fewer keys than it
// asks for. It takes effect for the transactions after it, in the same block and in later ones. A
// transaction that was signed before under the old policy and comes after it in the chain has to
// satisfy the new policy.
type Policy struct {
	// Number counts the changes of the policy.
	Number uint64 `json:"number"`
	// Keys are 1 to MaxKeys distinct keys.
	Keys []PolicyKey `json:"keys"`
	// Threshold is the number of distinct keys that have to sign a transaction, each with a role
	// that covers all that the transaction does to the organisation.
	Threshold int `json:"threshold"`
	// Limits are in ascending order of asset and amount.
	Limits []Limit `json:"limits,omitempty"`
	// RefuseAssets makes the organisation's accounts refuse all assets but those in Assets, unless
	// the organisation signs the transaction that brings them.
	RefuseAssets bool `json:"refuse_assets,omitempty"`
	// Assets are the assets that are not refused, in ascending order. It is empty unless
	// RefuseAssets is set.
	Assets []AssetName `json:"assets,omitempty"`
}

// PolicyChange is a transaction's change of the policy of its signer. It replaces the whole policy.
// Its Number is one above that of the policy that the signers saw; if the policy has changed since,
// the change is refused (PolicyOutdated).
//
// The change is alone in its transaction, except for a note. It takes no nonce and does not expire,
// because in a book of several shards all shards have to decide alike.
type PolicyChange struct {
	Policy
}

// PresentPolicy returns the organisation's present policy, or the one that its registration implies
// if the policy never changed. Its slices are read-only.
func (o *Organisation) PresentPolicy() Policy {
	if o.Policy != nil {
		return *o.Policy
	}
	policy := Policy{Threshold: 1, Keys: make([]PolicyKey, len(o.Keys))}
	for i := range o.Keys {
		policy.Keys[i].Key = o.Keys[i]
	}
	return policy
}

// PublicKeys returns the policy's keys without their roles.
func (p *Policy) PublicKeys() []PublicKey {
	keys := make([]PublicKey, len(p.Keys))
	for i := range p.Keys {
		keys[i] = p.Keys[i].Key
	}
	return keys
}

// Most returns the largest number of signatures that the policy asks for. A change of the policy
// needs as many.
func (p *Policy) Most() int {
	most := p.Threshold
	for i := range p.Limits {
		most = max(most, p.Limits[i].Signatures)
	}
	return most
}

// Accepts reports whether the organisation's accounts accept an asset that it did not sign for.
func (p *Policy) Accepts(asset AssetName) bool {
	if !p.RefuseAssets {
		return true
	}
	_, found := slices.BinarySearch(p.Assets, asset)
	return found
}

// Clone returns a copy that shares no memory with the policy.
func (p *Policy) Clone() Policy {
	clone := *p
	clone.Keys, clone.Limits, clone.Assets = slices.Clone(p.Keys), slices.Clone(p.Limits),
		slices.Clone(p.Assets)
	for i := range clone.Limits {
		clone.Limits[i].Asset = AssetName(strings.Clone(string(clone.Limits[i].Asset)))
	}
	for i := range clone.Assets {
		clone.Assets[i] = AssetName(strings.Clone(string(clone.Assets[i])))
	}
	return clone
}

// Validate returns ErrMalformed or ErrName unless the policy is well-formed and its organisation
// can satisfy it, and change it again.
func (p *Policy) Validate() error {
	if len(p.Keys) == 0 || len(p.Keys) > MaxKeys {
		return fmt.Errorf("%w: an organisation has 1 to %d keys", ErrMalformed, MaxKeys)
	}
	full := 0
	for i := range p.Keys {
		if p.Keys[i].Role >= roles {
			return fmt.Errorf("%w: %s", ErrMalformed, p.Keys[i].Role)
		}
		if p.Keys[i].Role == RoleAll {
			full++
		}
		for j := range i {
			if p.Keys[i].Key == p.Keys[j].Key {
				return fmt.Errorf("%w: key %s twice", ErrMalformed, p.Keys[i].Key)
			}
		}
	}
	if p.Threshold < 1 {
		return fmt.Errorf("%w: a threshold of %d, at least 1 signature has to be asked for",
			ErrMalformed, p.Threshold)
	}
	if len(p.Limits) > MaxLimits || len(p.Assets) > MaxPolicyAssets {
		return fmt.Errorf("%w: at most %d limits and %d assets", ErrMalformed, MaxLimits,
			MaxPolicyAssets)
	}
	for i := range p.Limits {
		limit := &p.Limits[i]
		if err := limit.Asset.Validate(); err != nil {
			return err
		}
		if limit.Above.Sign() < 0 || limit.Signatures < 1 {
			return fmt.Errorf("%w: a limit of %s above %s with %d signatures", ErrMalformed,
				limit.Asset, limit.Above, limit.Signatures)
		}
		if i > 0 && p.Limits[i-1].compare(limit) >= 0 {
			return fmt.Errorf("%w: limits out of order", ErrMalformed)
		}
	}
	if most := p.Most(); most > full {
		return fmt.Errorf("%w: the policy asks for %d signatures, and %d keys have the role all: "+
			"it could never be changed again", ErrMalformed, most, full)
	}
	if !p.RefuseAssets && len(p.Assets) > 0 {
		return fmt.Errorf("%w: assets that are accepted, in a policy that refuses none",
			ErrMalformed)
	}
	for i, asset := range p.Assets {
		if err := asset.Validate(); err != nil {
			return err
		}
		if i > 0 && p.Assets[i-1] >= asset {
			return fmt.Errorf("%w: assets out of order", ErrMalformed)
		}
	}
	return nil
}

func (l *Limit) compare(other *Limit) int {
	if order := strings.Compare(string(l.Asset), string(other.Asset)); order != 0 {
		return order
	}
	return l.Above.Compare(other.Above)
}

// Consents returns Applied if the signatures hold the organisation's consent to its part of the
// transaction. Otherwise it returns Unauthorised if none of the signatures counts, or
// TooFewSignatures. It does not verify the signatures. A key counts once, however often it signed.
func (o *Organisation) Consents(t *Transaction, signatures []Signature) Code {
	if o.Policy == nil {
		if HasSigned(signatures, o.Name, o.Keys) {
			return Applied
		}
		return Unauthorised
	}
	done, needed := o.Policy.demands(o.Name, t)
	signed := 0
	for i := range o.Policy.Keys {
		key := &o.Policy.Keys[i]
		if key.Role.covers(done) && slices.ContainsFunc(signatures, func(s Signature) bool {
			return s.Organisation == o.Name && s.Key == key.Key
		}) {
			signed++
		}
	}
	switch {
	case signed >= needed:
		return Applied
	case signed == 0:
		return Unauthorised
	}
	return TooFewSignatures
}

// demands returns what a transaction does to the organisation, and how many keys have to sign it.
func (p *Policy) demands(name OrganisationName, t *Transaction) (done acts, needed int) {
	if t.Policy != nil || t.Asset != nil || t.Account != nil {
		return actPolicy, p.Most()
	}
	if t.Cancellation != nil {
		return actPost, p.Threshold
	}
	for i := range t.Openings {
		if t.Openings[i].Account.Organisation() == name {
			done |= actOpen
		}
	}
	for i := range t.Records {
		if t.Records[i].Key.Organisation() == name {
			done |= actPost
		}
	}
	needed = p.Threshold
	var taken []Balance
	for i := range t.Postings {
		posting := &t.Postings[i]
		if !t.Takes(posting) || posting.Account.Organisation() != name {
			continue
		}
		done |= actPost
		if len(p.Limits) == 0 {
			continue
		}
		at := slices.IndexFunc(taken, func(b Balance) bool { return b.Asset == posting.Asset })
		if at < 0 {
			at, taken = len(taken), append(taken, Balance{Asset: posting.Asset})
		}
		var err error
		if taken[at].Amount, err = taken[at].Amount.Sub(posting.Amount); err != nil {
			// More than any amount has been taken.
			return done, p.Most()
		}
	}
	if h := t.Hold; h != nil && h.From.Organisation() == name {
		// What is held may be posted without the holder, so it asks for as many keys as taking it.
		done, taken = done|actPost, append(taken, Balance{Asset: h.Asset, Amount: h.Amount})
	}
	if t.ScheduleEnd != nil {
		done |= actPost
	}
	if t.Schedule != nil && name == t.Signer {
		done |= actPost
		// Each occurrence takes it without the signer, so it asks for as many keys as taking all.
		if taken = t.Schedule.taken(); taken == nil {
			return done, p.Most()
		}
	}
	if t.HoldEnd != nil {
		done |= actPost
	}
	for i := range p.Limits {
		limit := &p.Limits[i]
		if slices.ContainsFunc(taken, func(b Balance) bool {
			return b.Asset == limit.Asset && b.Amount.Compare(limit.Above) > 0
		}) {
			needed = max(needed, limit.Signatures)
		}
	}
	return done, needed
}

// GoodSignatures returns those of the signatures that are an organisation's, and verify. It is for
// the few kinds of transactions whose signatures execution verifies again. A signature is mostly
// known from the bundle's admission or its round.
func GoodSignatures(root Hash, name OrganisationName, signatures []Signature) []Signature {
	var good []Signature
	message := signingMessage(root, false)
	for i := range signatures {
		if signatures[i].Organisation == name && verifier.good(&signatures[i], message) {
			good = append(good, signatures[i])
		}
	}
	return good
}

// checkForm checks the parts of a transaction that changes a policy.
func (c *PolicyChange) checkForm(t *Transaction) error {
	switch {
	case len(t.Registrations)+len(t.Openings)+len(t.Postings)+len(t.Records) > 0 ||
		t.LastValid != 0 || t.Deadline != 0 || t.Change != nil ||
		t.Verdict != nil || t.Charter != nil || t.Cancellation != nil || t.Book != nil ||
		t.Asset != nil || t.Account != nil:
		return fmt.Errorf("%w: a change of a policy stands alone in its transaction, and does not "+
			"expire", ErrMalformed)
	case c.Number == 0:
		return fmt.Errorf("%w: a change of a policy has a number above 0", ErrMalformed)
	case len(t.Note) > MaxNote:
		return fmt.Errorf("%w: too large: at most %d bytes of note", ErrMalformed, MaxNote)
	}
	if err := t.Signer.Validate(); err != nil {
		return err
	}
	return c.Validate()
}

// appendPolicyChange appends the encoding of a transaction that changes a policy: version 4,
// ledger, signer, nonce, policy, note.
func (t *Transaction) appendPolicyChange(to []byte) []byte {
	to = append(to, policyVersion)
	to = append(to, t.Ledger[:]...)
	to = codec.AppendString(to, t.Signer)
	to = binary.AppendUvarint(to, t.Nonce.Stream)
	to = binary.AppendUvarint(to, t.Nonce.Sequence)
	to = t.Policy.append(to)
	return codec.AppendString(to, t.Note)
}

func (t *Transaction) decodePolicyChange(r *reader) {
	t.Ledger = r.Hash()
	t.Signer = OrganisationName(r.String("bytes of organisation", MaxOrganisationName))
	t.Nonce = Nonce{Stream: r.Uvarint(), Sequence: r.Uvarint()}
	t.Policy = &PolicyChange{Policy: r.policy()}
	t.Note = r.Bytes("bytes of note", MaxNote)
}

// append appends the policy's canonical encoding: number, keys (32 bytes and a byte for the role),
// threshold, limits (asset, amount, signatures), whether assets are refused, assets.
func (p *Policy) append(to []byte) []byte {
	to = binary.AppendUvarint(to, p.Number)
	to = binary.AppendUvarint(to, uint64(len(p.Keys)))
	for i := range p.Keys {
		to = append(append(to, p.Keys[i].Key[:]...), byte(p.Keys[i].Role))
	}
	return p.AppendRules(to)
}

// AppendRules appends the canonical encoding of the policy without its number and keys.
func (p *Policy) AppendRules(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(p.Threshold))
	to = binary.AppendUvarint(to, uint64(len(p.Limits)))
	for i := range p.Limits {
		to = codec.AppendString(to, p.Limits[i].Asset)
		to = appendAmount(to, p.Limits[i].Above)
		to = binary.AppendUvarint(to, uint64(p.Limits[i].Signatures))
	}
	to = codec.AppendBool(to, p.RefuseAssets)
	to = binary.AppendUvarint(to, uint64(len(p.Assets)))
	for _, asset := range p.Assets {
		to = codec.AppendString(to, asset)
	}
	return to
}

func (r *reader) policy() Policy {
	const keySize = len(PublicKey{})
	p := Policy{Number: r.Uvarint()}
	p.Keys = make([]PolicyKey, r.Count("keys", MaxKeys, keySize+1))
	for i := range p.Keys {
		copy(p.Keys[i].Key[:], r.Take(keySize))
		p.Keys[i].Role = Role(r.Byte())
	}
	p.Threshold = r.Count("signatures", MaxKeys, 0)
	if count := r.Count("limits", MaxLimits, 3); count > 0 {
		p.Limits = make([]Limit, count)
		for i := range p.Limits {
			p.Limits[i] = Limit{Asset: AssetName(r.String("bytes of asset", MaxAssetName)),
				Above: r.amount(), Signatures: r.Count("signatures", MaxKeys, 0)}
		}
	}
	p.RefuseAssets = r.Bool()
	if count := r.Count("assets", MaxPolicyAssets, 2); count > 0 {
		p.Assets = make([]AssetName, count)
		for i := range p.Assets {
			p.Assets[i] = AssetName(r.String("bytes of asset", MaxAssetName))
		}
	}
	return p
}
