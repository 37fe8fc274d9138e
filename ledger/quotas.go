package ledger

import (
	"encoding/binary"
	"fmt"
)

// Quotas bound what each organisation keeps in the state, and so in the memory of every node. In a
// book of several shards they hold in each shard by itself. 0 means no bound. The genesis has the
// first quotas, and the operators change them with the charter. Lower quotas take nothing away:
// they refuse what is more.
//
// The same type counts what an organisation keeps.
type Quotas struct {
	// Streams are the nonce streams that its transactions have used.
	Streams uint64 `json:"streams,omitempty"`
	// Accounts are its open accounts.
	Accounts uint64 `json:"accounts,omitempty"`
	// Assets are the assets of all its accounts: one asset in two accounts counts twice. Those that
	// waiting transactions may bring count, too.
	Assets uint64 `json:"assets,omitempty"`
	// Records are its records.
	Records uint64 `json:"records,omitempty"`
	// Pending are the transactions that it signed first and that wait for other shards.
	Pending uint64 `json:"pending,omitempty"`
}

// MaxQuota is the largest quota.
const MaxQuota = 1 << 48

// QuotaNames are the names of the quotas, in the order of Quotas.Numbers.
var QuotaNames = [...]string{"streams", "accounts", "assets", "records", "pending"}

// DefaultQuotas are the quotas of a new chain, unless its maker chooses others. They let an
// organisation take some hundreds of megabytes of a node's memory. Clients draw their streams from
// 65,536, and imports use a few more.
func DefaultQuotas() Quotas {
	return Quotas{Streams: 1 << 17, Accounts: 1 << 20, Assets: 1 << 22, Records: 1 << 20,
		Pending: 1 << 14}
}

// Numbers returns the quotas in the order of QuotaNames and of their encoding.
func (q *Quotas) Numbers() [len(QuotaNames)]*uint64 {
	return [...]*uint64{&q.Streams, &q.Accounts, &q.Assets, &q.Records, &q.Pending}
}

// Validate returns ErrMalformed if a quota is above MaxQuota.
func (q Quotas) Validate() error {
	for i, number := range q.Numbers() {
		if *number > MaxQuota {
			return fmt.Errorf("%w: a quota of %d %s, at most %d allowed", ErrMalformed, *number,
				QuotaNames[i], uint64(MaxQuota))
		}
	}
	return nil
}

// append appends the five numbers.
func (q Quotas) append(to []byte) []byte {
	for _, number := range q.Numbers() {
		to = binary.AppendUvarint(to, *number)
	}
	return to
}

// quotas reads quotas that bound something. An encoding without quotas has another version.
func (r *reader) quotas() (q Quotas) {
	for _, number := range q.Numbers() {
		*number = r.Uvarint()
	}
	if q == (Quotas{}) {
		r.Fail("quotas that bound nothing")
	}
	return q
}
