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
	for _, path := range m.state.Wanted(draft) {
		if err := m.state.Admit(path, m.accounts[path]); err != nil {
			m.group.world.fail(SameChain, fmt.Sprintf("%v: the entry of account %s: %v", m, path,
				err))
		}
	}
	block, changes := m.state.Execute(draft)
	for change := range changes.Entries.All() {
		m.keep(change.Key, change.After)
	}
	if memory := m.group.world.plan.memory; memory > 0 {
		m.state.Evict(ledger.Height(len(m.disk)), memory)
	}
	return block, changes
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
