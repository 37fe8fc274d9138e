package book

import (
	"bytes"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// run executes a draft as a store does: it reads the accounts that the draft needs and that are not
// in memory, and drops some from memory afterwards.
func (m *member) run(draft *state.Draft) (*ledger.Block, *state.Changes) {
	m.load(m.state.Wanted(draft))
	block, changes := m.state.Execute(draft)
	for change := range changes.Entries.All() {
		m.keep(change.Key, change.After)
	}
	if memory := m.group.world.plan.memory; memory > 0 {
		m.state.Evict(ledger.Height(len(m.disk)), memory)
	}
	return block, changes
}

// load reads accounts that are not in memory.
func (m *member) load(paths []ledger.AccountPath) {
	for _, path := range paths {
		if err := m.state.Admit(path, m.accounts[path]); err != nil {
			m.group.world.fail(SameChain, fmt.Sprintf("%v: the entry of account %s: %v", m, path,
				err))
		}
	}
}

// tryEvery is how many rounds a member executes for one before which clients ask it what would
// become of transactions. The members are asked before different rounds, so what a trial leaves at
// one of them makes its next block another one.
const tryEvery = 4

// try tries transactions of a round before the member executes it.
func (m *member) try(r *round, head *ledger.Header) {
	if (int(r.number)+m.number)%tryEvery != 0 {
		return
	}
	for _, batch := range r.batches {
		if batch == nil || len(batch.Proposals) == 0 || batch.Proposals[0].Err != nil {
			continue
		}
		bundle := batch.Proposals[0].Bundle
		for i := range bundle.Len() {
			m.load(m.state.TryWants(bundle.Transaction(i)))
			m.state.Try(&state.Trying{ID: bundle.ID(i), Transaction: bundle.Transaction(i),
				Root: bundle.Root(), Signatures: bundle.Signatures(), Height: head.Height + 1,
				Round: r.number, Time: max(head.Time, m.now())})
		}
		return
	}
}

// keep keeps an entry of the state if it is an account's.
func (m *member) keep(key, value []byte) {
	if state.IsAccountKey(key) {
		m.accounts[state.AccountOfKey(key)] = bytes.Clone(value)
	}
}

// account returns an account, in memory or not.
func (m *member) account(path ledger.AccountPath) (ledger.Account, bool) {
	if account, resident := m.state.Account(path); resident || m.accounts[path] == nil {
		return account, resident
	}
	account, err := m.state.ReadAccount(path, m.accounts[path])
	if err != nil {
		m.group.world.fail(SameChain, fmt.Sprintf("%v: the entry of account %s: %v", m, path, err))
	}
	return account, true
}
