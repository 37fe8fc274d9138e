package api

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/intake"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// ReadSubmit reads a Submit: the bundle, and the level to wait for.
func ReadSubmit(request *ledgerdv1.SubmitRequest) (*ledger.Bundle, report.Level, error) {
	level, err := wantedLevel(request.GetWait())
	if err != nil {
		return nil, 0, err
	}
	bundle, err := BundleFromProto(request.GetBundle())
	if err != nil {
		return nil, 0, invalid("bundle: %w", err)
	}
	return bundle, level, nil
}

// ReadSubmitMany reads a SubmitMany, except for its bundles: the level to wait for, and the
// transaction that must come first, nil if there is none.
func (s *Service) ReadSubmitMany(request *ledgerdv1.SubmitManyRequest) (report.Level, *ledger.Hash,
	error) {
	level, err := wantedLevel(request.GetWait())
	if err != nil {
		return 0, nil, err
	}
	if count := len(request.GetBundles()); count == 0 || count > s.options.MaxBundles {
		return 0, nil, invalid("%d bundles in one request: 1 to %d are allowed, send the rest in "+
			"another", count, s.options.MaxBundles)
	}
	if len(request.GetAfter()) == 0 {
		return level, nil, nil
	}
	if !request.GetInOrder() {
		return 0, nil, invalid("after requires in_order: set in_order or leave after empty")
	}
	after, err := HashFrom(request.GetAfter(), "", "after")
	if err != nil {
		return 0, nil, err
	}
	return level, &after, nil
}

// ReadWaitTransaction reads a WaitTransaction: the transaction, and the level to wait for.
func ReadWaitTransaction(
	request *ledgerdv1.WaitTransactionRequest) (ledger.Hash, report.Level, error) {
	id, err := HashFrom(request.GetId(), request.GetIdHex(), "transaction id")
	if err != nil {
		return ledger.Hash{}, 0, err
	}
	level, err := wantedLevel(request.GetWait())
	if err != nil {
		return ledger.Hash{}, 0, err
	}
	return id, level, nil
}

// ReadWaitTransactions reads a WaitTransactions: the transactions, and the level to wait for.
func ReadWaitTransactions(request *ledgerdv1.WaitTransactionsRequest) ([]ledger.Hash, report.Level,
	error) {
	level, err := wantedLevel(request.GetWait())
	if err != nil {
		return nil, 0, err
	}
	asked := request.GetIds()
	if len(asked) > intake.MaxWaited {
		return nil, 0, invalid("%d transactions: at most %d at once, ask for the rest in another "+
			"call", len(asked), intake.MaxWaited)
	}
	ids := make([]ledger.Hash, len(asked))
	for i := range asked {
		if ids[i], err = HashFrom(asked[i], "", "transaction id"); err != nil {
			return nil, 0, err
		}
	}
	return ids, level, nil
}
