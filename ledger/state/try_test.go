package state_test

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// tryAll tries the transactions of a block that is about to be executed, each alone, with the time
// of the block. It returns their results. admit makes accounts resident, unless it is nil. The
// tests that use it compare what the state makes of the block afterwards with what a state makes of
// it that tried nothing.
func tryAll(s *state.State, block *ledger.Block, admit func([]ledger.AccountPath) error) (
	results []ledger.Result, err error) {
	for i := range block.Len() {
		entry := block.Entry(i)
		t, seal := entry.Transaction(), &block.Bundles[entry.Bundle]
		if admit != nil {
			if err := admit(s.TryWants(t)); err != nil {
				return nil, err
			}
		}
		results = append(results, s.Try(&state.Trying{ID: entry.ID, Transaction: t,
			Root: seal.Root, Signatures: seal.Signatures, Height: block.Header.Height,
			Round: block.Header.Round, Time: block.Header.Time}))
	}
	return results, nil
}

// judgeTrials compares the results of trials with what the block made of the transactions: a block
// with one transaction makes of it what the trial said. A block
// that lets holds expire before that is an exception.
func judgeTrials(block *ledger.Block, tried []ledger.Result, expired bool) error {
	if block.Len() != 1 || expired {
		return nil
	}
	entry := block.Entry(0)
	t, got := entry.Transaction(), entry.Result
	if t.Verdict == nil && t.Arrival == nil && tried[0] != got {
		return fmt.Errorf("block %d: tried %s, executed %s", block.Header.Height, tried[0], got)
	}
	return nil
}
