package state

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// charter is the present charter. The charter of the genesis is not an entry of the state. So the
// state of a chain whose operators never changed is the same as in versions without such changes.
type charter struct {
	ledger.Charter
	mark mark
}

// Charter returns the present charter. The caller owns the copy.
func (s *State) Charter() ledger.Charter { return s.charter.Clone() }

// CharterKey returns the key of the entry of the charter. There is none before its first change.
func CharterKey() []byte { return []byte{kindCharter, 0} }

// mayChangeCharter decides on a change of the charter. It verifies the signatures again. The
// decision depends only on the charter, so all shards of a book decide alike.
func mayChangeCharter(present *ledger.Charter, t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Code {
	switch {
	case !present.Consents(ledger.GoodSignatures(root, ledger.Operator, signatures)):
		return ledger.Unauthorised
	case t.Charter.Number != present.Number+1:
		return ledger.CharterOutdated
	}
	return ledger.Applied
}

// operatorsSigned reports whether as many operators have signed as the charter asks for. It
// verifies the signatures.
func (s *State) operatorsSigned(root ledger.Hash, signatures []ledger.Signature) bool {
	return s.charter.Consents(ledger.GoodSignatures(root, ledger.Operator, signatures))
}

// changeCharter makes a change that mayChangeCharter allowed. It takes effect for the transactions
// after this one. The version never goes down: an operator with an old program does not know it.
func (s *State) changeCharter(change *ledger.CharterChange) {
	switch {
	case s.charter.mark.touched:
	case s.charter.Number == 0:
		s.charter.mark = mark{touched: true}
	default:
		s.charter.mark = s.keep(s.charter.appendEntry)
	}
	version := max(s.charter.Version, change.Version)
	s.charter.Charter = change.Clone()
	s.charter.Version = version
}

// finishCharter collects the change of the charter, if there is one.
func (s *State) finishCharter(changes *Changes) {
	if s.charter.mark.touched {
		s.settle(changes, s.charter.mark, s.charter.appendEntry)
		s.charter.mark = mark{}
	}
}

// appendEntry appends the entry. Quotas come last, and only if there are any. If the charter has a
// version, the quotas and the version come last.
func (c *charter) appendEntry(to []byte) (entry []byte, keyLength int) {
	keyLength = 2
	to = append(to, kindCharter, 0)
	to = binary.AppendUvarint(to, c.Number)
	to = binary.AppendUvarint(to, uint64(len(c.Operators)))
	for i := range c.Operators {
		to = append(to, c.Operators[i][:]...)
	}
	to = binary.AppendUvarint(to, uint64(c.Threshold))
	to = codec.AppendBool(to, c.RegistrationByOperators)
	versioned := c.Version > ledger.FirstVersion
	if versioned || c.Quotas != (ledger.Quotas{}) {
		for _, number := range c.Quotas.Numbers() {
			to = binary.AppendUvarint(to, *number)
		}
	}
	if versioned {
		to = binary.AppendUvarint(to, uint64(c.Version))
	}
	return to, keyLength
}

// restore puts the entry of the charter into the state. It reports whether there was one already.
func (c *charter) restore(key []byte, r *reader) (again bool, err error) {
	if len(key) != 2 {
		return false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	const keySize = len(ledger.PublicKey{})
	restored := ledger.Charter{Number: r.Uvarint(),
		Operators: make([]ledger.PublicKey, r.Count("operators", ledger.MaxOperators, keySize))}
	for i := range restored.Operators {
		copy(restored.Operators[i][:], r.Take(keySize))
	}
	restored.Threshold = r.Count("signatures", ledger.MaxOperators, 0)
	restored.RegistrationByOperators = r.Bool()
	if r.Err == nil && len(r.Data) > 0 {
		for _, number := range restored.Quotas.Numbers() {
			*number = r.Uvarint()
		}
		if len(r.Data) > 0 {
			restored.Version = int(r.Uvarint32("version"))
		} else if restored.Quotas == (ledger.Quotas{}) {
			r.Fail("quotas that bound nothing")
		}
	}
	if r.Err == nil && restored.Validate() != nil {
		r.Fail("charter")
	}
	again = c.Number > 0
	c.Charter = restored
	return again, nil
}
