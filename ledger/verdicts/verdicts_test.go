package verdicts

import (
	"encoding/binary"

	"github.com/ledgerd/ledgerd/ledger"
)

// name returns the id of a transaction.
func name(i int) ledger.Hash {
	var id ledger.Hash
	binary.BigEndian.PutUint32(id[8:], uint32(i))
	return id
}

var good = ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}
