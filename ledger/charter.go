package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// Charter names the operators of a book, how many of them have to sign, the quotas that they set,
// and the version of the chains. The genesis has the first charter (Genesis.Charter).
//
// The operators change the charter by a transaction (CharterChange). As many of the present
// operators have to sign it as the present charter asks for. It takes effect for the transactions
// after it, in the same block and in later ones.
type Charter struct {
	// Number counts the changes of the charter.
	Number    uint64      `json:"number"`
	Operators []PublicKey `json:"operators"`
	// Threshold is the number of distinct operators that have to sign. A genesis without a
	// threshold means 1.
	Threshold int `json:"threshold"`
	// RegistrationByOperators requires the operators' signatures to register an organisation.
	RegistrationByOperators bool `json:"registration_by_operators,omitempty"`
	// Quotas bound what each organisation keeps.
	Quotas Quotas `json:"quotas,omitzero"`
	// Version is the version of the book's chains. 0 means FirstVersion. A change with a lower
	// version than the present one leaves the version as it is.
	Version int `json:"version,omitempty"`
}

// CharterChange is a transaction's change of the charter. It replaces the whole charter. Its Number
// is one above that of the charter that the signers saw; if the charter has changed since, the
// change is refused (CharterOutdated).
//
// The change is alone in its transaction, except for a note, and its signer is Operator. It takes
// no nonce and does not expire, because in a book of several shards all shards have to decide
// alike.
type CharterChange struct {
	Charter
}

// Charter returns the charter with which the book begins.
func (g *Genesis) Charter() Charter {
	return Charter{Operators: slices.Clone(g.Operators), Threshold: max(1, g.OperatorThreshold),
		RegistrationByOperators: g.RegistrationByOperator, Quotas: g.Quotas, Version: g.Version}
}

// IsOperator reports whether the key is a present operator's.
func (c *Charter) IsOperator(key PublicKey) bool { return containsKey(c.Operators, key) }

// Consents reports whether as many operators have signed as the charter asks for. It does not
// verify the signatures. An operator counts once, however often it signed.
func (c *Charter) Consents(signatures []Signature) bool {
	var signed []PublicKey
	for i := range signatures {
		if key := signatures[i].Key; signatures[i].Organisation == Operator && c.IsOperator(key) &&
			!containsKey(signed, key) {
			signed = append(signed, key)
		}
	}
	return len(signed) >= c.Threshold
}

// Clone returns a copy that shares no memory with the charter.
func (c *Charter) Clone() Charter {
	clone := *c
	clone.Operators = slices.Clone(c.Operators)
	return clone
}

var errThreshold = errors.New("the operators' threshold is 1 to their number")

// Validate returns ErrMalformed unless the charter may replace another one.
func (c *Charter) Validate() error {
	switch {
	case len(c.Operators) == 0 || len(c.Operators) > MaxOperators:
		return fmt.Errorf("%w: %d operators, 1 to %d allowed", ErrMalformed, len(c.Operators),
			MaxOperators)
	case c.Threshold < 1 || c.Threshold > len(c.Operators):
		return fmt.Errorf("%w: %d of %d: %w", ErrMalformed, c.Threshold, len(c.Operators),
			errThreshold)
	case c.Version < 0 || c.Version > maxVersion:
		return fmt.Errorf("%w: version %d of the chain, at most %d allowed", ErrMalformed,
			c.Version, maxVersion)
	case c.Number == 0:
		return fmt.Errorf("%w: a change of the operators has a number above 0", ErrMalformed)
	}
	for i, key := range c.Operators {
		if containsKey(c.Operators[:i], key) {
			return fmt.Errorf("%w: operator %s twice", ErrMalformed, key)
		}
	}
	return c.Quotas.Validate()
}

// checkForm checks the parts of a transaction that changes the charter.
func (c *CharterChange) checkForm(t *Transaction) error {
	switch {
	case len(t.Registrations)+len(t.Openings)+len(t.Postings)+len(t.Records) > 0 ||
		t.LastValid != 0 || t.Deadline != 0 || t.Change != nil ||
		t.Verdict != nil || t.Policy != nil || t.Cancellation != nil || t.Book != nil ||
		t.Asset != nil || t.Account != nil:
		return fmt.Errorf("%w: a change of the operators stands alone in its transaction, and "+
			"does not expire", ErrMalformed)
	case t.Signer != Operator:
		return fmt.Errorf("%w: a change of the operators is theirs, not organisation %s's",
			ErrMalformed, t.Signer)
	case len(t.Note) > MaxNote:
		return fmt.Errorf("%w: too large: at most %d bytes of note", ErrMalformed, MaxNote)
	}
	return c.Validate()
}

// appendCharterChange appends the encoding of a transaction that changes the charter: version 5, 6
// if the charter has quotas, or 7 if it has a version, ledger, nonce, charter, note.
func (t *Transaction) appendCharterChange(to []byte) []byte {
	version := byte(charterVersion)
	switch {
	case t.Charter.Version > FirstVersion:
		version = versionedCharterVersion
	case t.Charter.Quotas != Quotas{}:
		version = quotasCharterVersion
	}
	to = append(to, version)
	to = append(to, t.Ledger[:]...)
	to = binary.AppendUvarint(to, t.Nonce.Stream)
	to = binary.AppendUvarint(to, t.Nonce.Sequence)
	to = t.Charter.append(to)
	return codec.AppendString(to, t.Note)
}

func (t *Transaction) decodeCharterChange(r *reader, version byte) {
	t.Signer = Operator
	t.Ledger = r.Hash()
	t.Nonce = Nonce{Stream: r.Uvarint(), Sequence: r.Uvarint()}
	t.Charter = &CharterChange{Charter: r.charter(version)}
	t.Note = r.Bytes("bytes of note", MaxNote)
}

// append appends the charter's canonical encoding: number, operators, threshold, whether they sign
// registrations, and quotas if there are any. If the charter has a version, the version, a byte
// that is 1 if there are quotas, and the quotas follow instead.
func (c *Charter) append(to []byte) []byte {
	to = binary.AppendUvarint(to, c.Number)
	to = binary.AppendUvarint(to, uint64(len(c.Operators)))
	for i := range c.Operators {
		to = append(to, c.Operators[i][:]...)
	}
	to = binary.AppendUvarint(to, uint64(c.Threshold))
	to = codec.AppendBool(to, c.RegistrationByOperators)
	quotas := c.Quotas != Quotas{}
	if c.Version > FirstVersion {
		to = codec.AppendBool(binary.AppendUvarint(to, uint64(c.Version)), quotas)
	}
	if quotas {
		to = c.Quotas.append(to)
	}
	return to
}

// charter reads the charter of a transaction of this version.
func (r *reader) charter(version byte) Charter {
	c := Charter{Number: r.Uvarint()}
	c.Operators = make([]PublicKey, r.Count("operators", MaxOperators, len(PublicKey{})))
	for i := range c.Operators {
		copy(c.Operators[i][:], r.Take(len(PublicKey{})))
	}
	c.Threshold = r.Count("signatures", MaxOperators, 0)
	c.RegistrationByOperators = r.Bool()
	quotas := version == quotasCharterVersion
	if version == versionedCharterVersion {
		c.Version, quotas = r.chainVersion(), r.Bool()
	}
	if quotas {
		c.Quotas = r.quotas()
	}
	return c
}
