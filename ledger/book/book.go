package book

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// ErrCut reports that a store is older than what other shards have received from its shard, so the
// heads of the stores are not a consistent cut.
var ErrCut = errors.New("book: the stores are not of one cut")

// ErrStores reports that the stores are not one of each shard of one book.
var ErrStores = errors.New("book: not one store of each shard")

// Contradiction reports that the chains of a book contradict each other, or that an asset does not
// add up.
type Contradiction struct {
	// Shard is the shard of the chain where this shows. It is nil if an asset does not add up.
	Shard *ledger.ShardID
	// Height is the block where this shows, or 0.
	Height ledger.Height
	Reason string
}

// Error returns the shard, the block and the reason.
func (c *Contradiction) Error() string {
	if c.Shard == nil {
		return "book: " + c.Reason
	}
	return fmt.Sprintf("book: shard %d, block %d: %s", *c.Shard, c.Height, c.Reason)
}

// Report is what Check found.
type Report struct {
	Accounts int
	Assets   int
	// Carried counts the entries of streams, and Verdicts the verdicts, that were compared with the
	// chain that they came from.
	Carried, Verdicts uint64
	// Waiting counts the transactions that wait in a shard for others. One that waits in two shards
	// counts twice. OnTheWay counts those of them that took effect in another shard already.
	Waiting, OnTheWay int
	// Lost are the shards that the operators settled with. They are left out. LostAmounts are what
	// they have, by asset, in words: their parts of the transactions that took effect in others,
	// and what organisations took along that moved there, without what came back that way.
	Lost        []ledger.ShardID
	LostAmounts map[ledger.AssetName]string
}

// Check checks stores against each other, of which there is one for each shard, by number. That of
// a shard that is lost is left out, and may be nil. Then the amounts of an asset add up to zero
// together with what the lost shards have. In a book of one shard it finds out whether each asset
// adds up. If progress is not nil, Check calls it
// after each block that it has compared. The stores may grow meanwhile only if the book has one
// shard. Check returns a *Contradiction, ErrCut, ErrStores, or the error of a store or ctx.
func Check(ctx context.Context, stores []*store.Store,
	progress func(shard ledger.ShardID, height, head ledger.Height)) (Report, error) {
	c := &check{ctx: ctx, stores: slices.Clone(stores), totals: make(sums), gone: make(sums),
		counted: make(map[ledger.Hash]bool)}
	if err := c.complete(); err != nil {
		return Report{}, err
	}
	stores = slices.DeleteFunc(slices.Clone(c.stores), func(s *store.Store) bool {
		return s == nil
	})
	for _, each := range stores {
		if err := c.chain(each, progress); err != nil {
			return Report{}, err
		}
	}
	for _, each := range stores {
		if err := c.balances(each); err != nil {
			return Report{}, err
		}
		for _, waiting := range each.Pending() {
			if err := c.pending(each, waiting); err != nil {
				return Report{}, err
			}
		}
	}
	c.report.Assets = len(c.totals)
	c.reportLost()
	return c.report, c.conserved()
}

// check is a check in progress.
type check struct {
	ctx    context.Context
	stores []*store.Store
	tree   *ledger.ShardTree
	// totals are the amounts of the shards, and gone those of lost ones.
	totals, gone sums
	report       Report
	// counted are the transactions that count in lost shards.
	counted map[ledger.Hash]bool
}

// complete checks that there is one store of each shard of one book.
func (c *check) complete() error {
	if len(c.stores) == 0 {
		return fmt.Errorf("%w: there is none", ErrStores)
	}
	first := slices.IndexFunc(c.stores, func(s *store.Store) bool { return s != nil })
	if first < 0 {
		return fmt.Errorf("%w: there is none", ErrStores)
	}
	newest := c.stores[first] // of those that know the most changes of the book
	for _, each := range c.stores {
		if each != nil && each.BookChanges() > newest.BookChanges() {
			newest = each
		}
	}
	c.tree = newest.ShardTree()
	if len(c.stores) != newest.BookShards() {
		return fmt.Errorf("%w: %d stores, and the book has %d shards", ErrStores, len(c.stores),
			newest.BookShards())
	}
	c.leaveOut()
	for i, each := range c.stores {
		if each == nil {
			if !slices.Contains(c.report.Lost, ledger.ShardID(i)) {
				return fmt.Errorf("%w: there is none of shard %d", ErrStores, i)
			}
			continue
		}
		if each.Shard() != ledger.ShardID(i) || each.Book() != c.stores[first].Book() {
			return fmt.Errorf("%w: the store at place %d is of shard %d of book %s", ErrStores, i,
				each.Shard(), each.Book())
		}
	}
	for _, each := range c.stores {
		if each == nil {
			continue
		}
		if err := additions(each, newest); err != nil {
			return err
		}
	}
	return nil
}

// additions compares the shards that a chain knows to have been added with those of the newest, and
// the beginning of the chain with its shard's addition.
func additions(of, newest *store.Store) error {
	genesis, err := newest.GenesisOf(of.Shard())
	if err != nil {
		return err
	}
	if genesis.Hash() != of.GenesisHash() {
		return contradiction(of.Shard(), 0, "the chain begins with genesis %s, and the shard was "+
			"added with %s", of.GenesisHash(), genesis.Hash())
	}
	tree := newest.ShardTree()
	for i, made := range of.Rehangs() {
		if i >= len(tree.Rehung()) { // that one is behind here
			break
		}
		if made.TreeChange != tree.Rehung()[i] {
			return contradiction(of.Shard(), made.Height, "change %d hangs shard %d below shard "+
				"%d, and another one in the chain of shard %d", made.Number, made.Shard, made.To,
				newest.Shard())
		}
	}
	known := newest.Additions()
	for i, added := range of.Additions() {
		if added.Directory != known[i].Directory || added.Parent != known[i].Parent {
			height, _ := of.AddedAt(ledger.ShardID(newest.BookShards() - len(known) + i))
			return contradiction(of.Shard(), height, "shard %d is added with another directory or "+
				"parent than in the chain of shard %d", newest.BookShards()-len(known)+i,
				newest.Shard())
		}
	}
	return nil
}

// chain compares everything in a shard's chain that came from other shards with their chains.
func (c *check) chain(of *store.Store,
	progress func(shard ledger.ShardID, height, head ledger.Height)) error {
	if c.tree == nil {
		return nil
	}
	head := of.AppendedHeight()
	for height := ledger.Height(1); height <= head; height++ {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		block, err := of.Block(height)
		if err != nil {
			return err
		}
		for i := range block.Bundles {
			if block.Bundles[i].Number != 0 {
				if err := c.carried(of, block, &block.Bundles[i]); err != nil {
					return err
				}
			}
		}
		for index, entry := range block.All() {
			if err := c.lost(of, block, index); err != nil {
				return err
			}
			if err := c.arrival(of, entry.Transaction().Arrival); err != nil {
				return err
			}
			if verdict := entry.Transaction().Verdict; verdict != nil {
				if err := c.verdict(of, height, verdict); err != nil {
					return err
				}
			}
		}
		if progress != nil {
			progress(of.Shard(), height, head)
		}
	}
	return nil
}

func contradiction(shard ledger.ShardID, height ledger.Height, format string,
	arguments ...any) error {
	return &Contradiction{Shard: &shard, Height: height, Reason: fmt.Sprintf(format, arguments...)}
}

// tooOld reports that the store of a shard lacks what another shard has received from it.
func tooOld(shard, other ledger.ShardID, what string) error {
	return fmt.Errorf("%w: shard %d has %s, which the store of shard %d does not have: that store "+
		"is too old; take one of a member with newer blocks", ErrCut, other, what, shard)
}

// carried compares an entry of the parent's stream with the parent's chain.
func (c *check) carried(of *store.Store, block *ledger.Block, seal *ledger.BundleSeal) error {
	parent, below := c.tree.ParentOf(of.Shard(), seal.Number)
	if !below {
		return contradiction(of.Shard(), block.Header.Height,
			"it has entry %d of a stream from above, and no shard is above", seal.Number)
	}
	above := c.stores[parent]
	if above == nil {
		return nil // it was lost after this shard was hung elsewhere
	}
	if seal.Number > above.Ends(of.Shard(), seal.Number) {
		return tooOld(parent, of.Shard(), fmt.Sprintf("entry %d of its stream", seal.Number))
	}
	entries, err := above.Stream(of.Shard(), seal.Number, 1, above.AppendedHeight())
	if err != nil {
		return err
	}
	if len(entries) != 1 {
		return fmt.Errorf("book: entry %d of the stream from shard %d to shard %d cannot be read",
			seal.Number, parent, of.Shard())
	}
	bundle, there, err := ledger.DecodeCarried(entries[0].Bundle)
	if err != nil {
		return fmt.Errorf("book: entry %d of the stream from shard %d to shard %d: %w", seal.Number,
			parent, of.Shard(), err)
	}
	same := slices.Equal(bundle.IDs(), seal.IDs)
	for i := range seal.Kept {
		same = same && (there[i] || !seal.Kept[i])
	}
	if !same {
		return contradiction(of.Shard(), block.Header.Height, "entry %d of the stream from shard "+
			"%d is another one in the chain of that shard", seal.Number, parent)
	}
	c.report.Carried++
	return nil
}

// verdict compares another shard's verdict in a chain with that shard's chain.
func (c *check) verdict(of *store.Store, height ledger.Height, verdict *ledger.Verdict) error {
	testimony, is := verdict.Testimony()
	if int(verdict.Shard) >= len(c.stores) || verdict.Shard == of.Shard() && !is {
		return contradiction(of.Shard(), height, "it has a verdict of shard %d", verdict.Shard)
	}
	other := c.stores[verdict.Shard]
	if other == nil {
		return c.verdictOfLost(of, height, verdict)
	}
	found, made, err := other.Verdict(verdict.ID, of.Shard(), other.AppendedHeight())
	if is {
		found, made, err = other.Testimony(verdict.ID, testimony, other.AppendedHeight())
	}
	if move, departure := verdict.MoveOf(); departure {
		found, made, err = departed(c.ctx, other, of.Shard(), move)
	}
	switch {
	case err != nil:
		return err
	case !made:
		known, err := other.Known(verdict.ID)
		if err != nil {
			return err
		}
		if !known {
			return tooOld(verdict.Shard, of.Shard(), fmt.Sprintf("its verdict on %s", verdict.ID))
		}
		return contradiction(of.Shard(), height, "it has a verdict of shard %d on %s, and the "+
			"chain of that shard gives none", verdict.Shard, verdict.ID)
	case found != *verdict:
		return contradiction(of.Shard(), height, "the verdict of shard %d on %s is %s, and %s in "+
			"the chain of that shard", verdict.Shard, verdict.ID, verdict.Result, found.Result)
	}
	c.report.Verdicts++
	return nil
}

// departed returns the word of a shard that an organisation has left for another one.
func departed(ctx context.Context, from *store.Store, to ledger.ShardID, number uint64) (
	word ledger.Verdict, made bool, err error) {
	if !slices.ContainsFunc(from.AllMoves(), func(move state.Move) bool {
		return move.Number == number && move.From == from.Shard() && move.To == to
	}) {
		return ledger.Verdict{}, false, nil
	}
	if from.NeverDeparts(number) {
		return ledger.Departure(number, from.Shard(), ledger.MoveID(from.Book(), number)), true, nil
	}
	arrivals, err := from.Arrivals(ctx, number, to, from.AppendedHeight())
	if err != nil || len(arrivals) == 0 {
		return ledger.Verdict{}, false, err
	}
	return ledger.Departure(number, from.Shard(), arrivals[0].ID(0)), true, nil
}

// addsTo returns the sums to which a shard's accounts of an organisation add, or nil if they do not
// count. An organisation that moves leaves them behind, and they count until all of them have
// arrived. If it moved on to a shard that is lost, that has them.
func (c *check) addsTo(of *store.Store, name ledger.OrganisationName) *sums {
	moves := of.Moves(name)
	if len(moves) == 0 {
		return &c.totals
	}
	number, holds := of.Holds(name)
	if !holds {
		return nil
	}
	for i := range moves {
		to := moves[i].To
		if moves[i].Number <= number || int(to) >= len(c.stores) {
			continue
		}
		if c.isLost(to) {
			return &c.gone
		}
		if _, arrived := c.stores[to].Holds(name); arrived {
			return nil
		}
	}
	return &c.totals
}

// balances adds up the balances of a shard.
func (c *check) balances(of *store.Store) error {
	for account, err := range of.AllAccounts() {
		if err := cmp.Or(err, c.ctx.Err()); err != nil {
			return err
		}
		to := c.addsTo(of, account.Path.Organisation())
		if to == nil {
			continue
		}
		if to == &c.totals {
			c.report.Accounts++
		}
		for i := range account.Balances {
			balance := &account.Balances[i]
			to.add(balance.Asset, balance.Amount)
			to.add(balance.Asset, balance.SetAside)
		}
	}
	return nil
}

// pending adds a waiting transaction's part in a shard, if it took effect in another shard.
func (c *check) pending(of *store.Store, waiting state.Pending) error {
	c.report.Waiting++
	crossing, err := of.Crossing(waiting.ID)
	if err != nil {
		return err
	}
	effect := false
	for _, shard := range crossing.Destinations {
		if shard == of.Shard() || c.stores[shard] == nil {
			continue
		}
		there, err := c.stores[shard].Crossing(waiting.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		effect = effect || there.Outcome == store.TookEffect &&
			slices.Contains(there.Destinations, of.Shard())
	}
	if !effect {
		return nil
	}
	c.report.OnTheWay++
	postings := crossing.Entry.Transaction().Postings
	for i := range postings {
		name := postings[i].Account.Organisation()
		if of.HomeAt(name, waiting.Height) != of.Shard() {
			continue
		}
		if to := c.addsTo(of, name); to != nil {
			to.add(postings[i].Asset, postings[i].Amount)
		}
	}
	return nil
}

// conserved checks that each asset adds up to zero. It names the first one, by name, that does not.
func (c *check) conserved() error {
	all := make(map[ledger.AssetName]total)
	for _, sums := range []sums{c.totals, c.gone} {
		for asset, each := range sums {
			sum := all[asset]
			sum.addTotal(each)
			all[asset] = sum
		}
	}
	for _, asset := range slices.Sorted(maps.Keys(all)) {
		if sum := all[asset]; sum != (total{}) {
			return &Contradiction{Reason: fmt.Sprintf("the amounts of asset %s in all accounts "+
				"add up to %s, not to 0", asset, &sum)}
		}
	}
	return nil
}
