package abci

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// Source is where the chain comes from: a client.Client.
type Source interface {
	// ShardGenesis returns the beginning of a shard's chain.
	ShardGenesis(ctx context.Context, shard ledger.ShardID) (*ledger.Genesis, error)
	// ReadChain returns durable blocks of a shard's chain from a height on. If there is none yet,
	// it waits for so long.
	ReadChain(ctx context.Context, shard ledger.ShardID, from ledger.Height,
		wait time.Duration) (client.Chain, error)
	// TransactionIn returns a transaction of a shard's chain, whose content is that of the id.
	TransactionIn(ctx context.Context, shard ledger.ShardID, id ledger.Hash) (
		*ledger.Transaction, error)
	// Home returns the shard where an organisation lives.
	Home(ctx context.Context, name ledger.OrganisationName) (ledger.ShardID, error)
	// Rotate moves on to another node, since this one is behind.
	Rotate()
}

var _ Source = (*client.Client)(nil)

// recordName is the first part of the names of records with transactions of applications.
const recordName = "abci/"

// transactionKey returns the key of the record for a transaction, by its place in the ledger's
// transaction. An organisation has no more than ledger.MaxRecords of them, which it sets again and
// again, so what the ledger keeps of an application is bounded.
func transactionKey(organisation ledger.OrganisationName, chain string,
	place int) ledger.RecordKey {
	return ledger.RecordKey(fmt.Sprintf("%s:%s%s/%02d", organisation, recordName, chain, place))
}

// carries reports whether a record has a transaction of the application: its name is abci/CHAIN,
// or anything below that. Any organisation may post it.
func carries(record *ledger.Record, chain string) bool {
	_, name, _ := strings.Cut(string(record.Key), ":")
	rest, ours := strings.CutPrefix(name, recordName+chain)
	return ours && (rest == "" || rest[0] == '/') && len(record.Value) > 0
}

// carriedBy returns the application's transactions in a transaction of the ledger.
func carriedBy(t *ledger.Transaction, chain string) (found []carried) {
	for i := range t.Records {
		if record := &t.Records[i]; carries(record, chain) {
			found = append(found, carried{record.Key.Organisation(), record.Value})
		}
	}
	return found
}
