package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// homes is what a Sender knows of where transactions enter the tree of shards. It learns the homes
// of other organisations from the outcomes of transactions, so they cost no calls. A bundle enters
// where its transactions together do, wherever the Sender believes that to be: what it knows only
// decides which transactions share a bundle.
type homes struct {
	book atomic.Pointer[bookOf] // nil: not known
	// grown says that an outcome named a shard that is not in the tree: it was added since.
	grown atomic.Bool

	mutex sync.RWMutex
	known map[ledger.OrganisationName]ledger.ShardID
	asked time.Time // for the tree
}

// bookOf is a book as a signer's Sender sees it.
type bookOf struct {
	tree *ledger.ShardTree
	own  ledger.ShardID // the signer's home, in the tree
}

// homesMax bounds the organisations whose homes are remembered.
const homesMax = 1 << 16

// ask asks for the tree and for the home of a signer, unless they are known and no shard was added
// since. If the nodes do not answer, it asks again after some time. The book has several shards.
func (h *homes) ask(ctx context.Context, nodes *Client, signer ledger.OrganisationName) {
	if h.book.Load() != nil && !h.grown.Load() || !h.turn() {
		return
	}
	genesis, err := nodes.ChainGenesis(ctx)
	if err != nil || !genesis.Sharded() {
		return
	}
	shown, err := nodes.Tree(ctx)
	if err != nil {
		return
	}
	organisation, err := nodes.Organisation(ctx, signer)
	if err != nil {
		return
	}
	h.grown.Store(false)
	book := &bookOf{tree: TreeOf(genesis, shown), own: ledger.ShardID(organisation.GetShard())}
	if int64(organisation.GetShard()) < int64(book.tree.Shards()) { // else a node lies
		h.book.Store(book)
	}
}

// turn reports whether the caller, and no other one, is to ask now.
func (h *homes) turn() bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if !h.asked.IsZero() && time.Since(h.asked) < rulesAsked {
		return false
	}
	h.asked = time.Now()
	return true
}

// entry returns the shard where a transaction enters the tree. It reports whether that is known.
func (h *homes) entry(transaction *ledger.Transaction) (shard ledger.ShardID, known bool) {
	book := h.book.Load()
	if book == nil {
		return 0, false
	}
	h.mutex.RLock()
	defer h.mutex.RUnlock()
	var some [8]ledger.ShardID
	known = true
	destinations := transaction.AppendDestinations(some[:0], book.tree.Shards(),
		func(name ledger.OrganisationName) ledger.ShardID {
			if name == transaction.Signer {
				return book.own
			}
			home, told := h.known[name]
			known = known && told
			return home
		})
	if !known {
		return 0, false
	}
	return book.tree.Entry(destinations), true
}

// learn takes the home of the only other organisation that a transaction concerns from its outcome.
func (h *homes) learn(transaction *ledger.Transaction, status *ledgerdv1.TransactionStatus) {
	book := h.book.Load()
	if book == nil || !(Answer{Status: status}).Applied() || transaction.BookWide() {
		return
	}
	other, only := onlyOther(transaction)
	if !only {
		return
	}
	home := book.own
	for _, shard := range status.GetDestinations() {
		if ledger.ShardID(shard) != book.own {
			home = ledger.ShardID(shard)
		}
	}
	h.mutex.RLock()
	before, told := h.known[other]
	h.mutex.RUnlock()
	switch {
	case int64(home) >= int64(book.tree.Shards()):
		h.grown.Store(true)
		return
	case told && before == home:
		return
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.known == nil || len(h.known) >= homesMax {
		h.known = make(map[ledger.OrganisationName]ledger.ShardID)
	}
	h.known[other] = home
}

// onlyOther returns the organisation that a transaction concerns besides its signer, and reports
// whether there is exactly one.
func onlyOther(transaction *ledger.Transaction) (other ledger.OrganisationName, only bool) {
	only = true
	note := func(name ledger.OrganisationName) {
		switch {
		case name == transaction.Signer || name == other:
		case other == "":
			other = name
		default:
			only = false
		}
	}
	for i := range transaction.Openings {
		note(transaction.Openings[i].Account.Organisation())
	}
	for i := range transaction.Postings {
		note(transaction.Postings[i].Account.Organisation())
	}
	for i := range transaction.Records {
		note(transaction.Records[i].Key.Organisation())
	}
	return other, only && other != ""
}
