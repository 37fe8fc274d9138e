package state

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// The entries of a state have encodings of their own, even where a value is encoded in the same way
// in a transaction: a new version of a transaction must not change what the digest covers.

// reader decodes an entry of a state. Each kind of entry adds a method, beside its encoding.
type reader struct{ codec.Reader }

func read(data []byte) *reader { return &reader{codec.Reader{Data: data}} }

func appendAmount(to []byte, amount ledger.Amount) []byte {
	high, low := amount.Magnitude()
	return codec.AppendAmount(to, amount.Sign() < 0, high, low)
}

func (r *reader) amount() ledger.Amount {
	amount, inRange := ledger.AmountOf(r.Amount())
	if !inRange {
		r.Fail("amount overflows 128 bits")
		return ledger.Amount{}
	}
	return amount
}

func (r *reader) organisationName() ledger.OrganisationName {
	return ledger.OrganisationName(r.String("bytes of organisation", ledger.MaxOrganisationName))
}

func (r *reader) assetName() ledger.AssetName {
	return ledger.AssetName(r.String("bytes of asset", ledger.MaxAssetName))
}

func (r *reader) shard() ledger.ShardID { return ledger.ShardID(r.Uvarint32("shard")) }
