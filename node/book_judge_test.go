package node_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// bookEvidence is the state of a book after everything has settled. The judge derives that state
// again from the transactions and the chains by simple rules: the shards concerned, all verdicts,
// the sums.
type bookEvidence struct {
	tree   []ledger.ShardID
	homes  map[ledger.OrganisationName]ledger.ShardID
	sent   map[ledger.Hash]*ledger.Transaction
	early  map[ledger.Hash]bool
	told   []acknowledged
	chains [][]*ledger.Block // by shard
	nodes  []nodeEvidence
}

// nodeEvidence is the state of one node.
type nodeEvidence struct {
	shard    ledger.ShardID
	head     ledger.Hash
	waiting  int
	accounts []ledger.Account
	records  map[ledger.RecordKey]store.RecordValue
}

// fate is the outcome of a transaction in one chain.
type fate struct {
	place                   int
	result                  ledger.Result // of its entry
	tookEffect, waits, left bool          // left: only passed on
	reason                  ledger.Code   // if it did not take effect
}

// fates are the outcomes of a chain's transactions.
type fates struct {
	of    map[ledger.Hash]*fate
	order []ledger.Hash // except those only passed on
	said  []ledger.Verdict
}

// evidence collects the nodes' state. All nodes run and nothing changes.
func (c *bookChaos) evidence() *bookEvidence {
	e := &bookEvidence{tree: c.book.tree, homes: map[ledger.OrganisationName]ledger.ShardID{},
		sent: maps.Clone(c.sent), early: c.early, told: slices.Clone(c.told)}
	for _, n := range c.nodes {
		opened := n.Store()
		each := nodeEvidence{shard: opened.Shard(), head: opened.Head().Hash,
			waiting: opened.PendingCount(), records: map[ledger.RecordKey]store.RecordValue{}}
		for account, err := range opened.AllAccounts() {
			if err != nil {
				c.t.Fatal(err)
			}
			each.accounts = append(each.accounts, account)
		}
		for _, p := range c.payers {
			key := ledger.RecordKey(p.client.Account("last"))
			if value, err := opened.Record(key); err == nil {
				each.records[key] = value
			} else if !errors.Is(err, store.ErrNotFound) {
				c.t.Fatal(err)
			}
		}
		e.nodes = append(e.nodes, each)
	}
	for shard := range c.book.tree {
		var blocks []*ledger.Block
		opened := c.nodes[c.book.of(shard)[shard%c.book.members]].Store()
		for height := opened.Absent() + 1; height <= opened.Head().Height; height++ {
			block, err := opened.Block(height)
			if err != nil {
				c.t.Fatal(err)
			}
			blocks = append(blocks, block)
		}
		e.chains = append(e.chains, blocks)
	}
	e.register()
	return e
}

// register records the homes: the first registration of a name in the root's chain decides.
func (e *bookEvidence) register() {
	root := ledger.ShardID(0)
	for e.tree[root] != root {
		root = e.tree[root]
	}
	for _, block := range e.chains[root] {
		for _, entry := range block.All() {
			for _, registration := range entry.Transaction().Registrations {
				if _, before := e.homes[registration.Name]; before || !entry.Result.OK() {
					continue
				}
				e.homes[registration.Name] = registration.Shard
				if !registration.Pinned {
					e.homes[registration.Name] = ledger.Rendezvous(registration.Name, len(e.tree))
				}
			}
		}
	}
}

// String counts transactions and effects.
func (e *bookEvidence) String() string {
	crossed, effects := 0, 0
	for id, t := range e.sent {
		if len(t.Registrations) == 0 && len(e.concerned(t)) > 1 {
			crossed++
		}
		if chain, err := e.read(e.homes[t.Signer]); err == nil && chain.of[id] != nil &&
			chain.of[id].tookEffect {
			effects++
		}
	}
	blocks := 0
	for _, chain := range e.chains {
		blocks += len(chain)
	}
	return fmt.Sprintf("%d blocks, %d transactions, %d of them across shards, %d took effect, "+
		"%d acknowledged", blocks, len(e.sent), crossed, effects, len(e.told))
}

func (e *bookEvidence) judge() error {
	chains := make([]*fates, len(e.tree))
	for shard := range e.tree {
		var err error
		if chains[shard], err = e.read(ledger.ShardID(shard)); err != nil {
			return err
		}
	}
	return errors.Join(e.judgeOutcomes(chains), e.judgeVerdicts(chains), e.judgeTold(chains),
		e.judgeOrder(chains), e.judgeNodes(chains))
}

// read walks through a chain.
func (e *bookEvidence) read(shard ledger.ShardID) (*fates, error) {
	read := &fates{of: map[ledger.Hash]*fate{}}
	place := 0
	for _, block := range e.chains[shard] {
		for i := range block.Len() {
			entry := block.Entry(i)
			place++
			if verdict := entry.Transaction().Verdict; verdict != nil {
				waiting := read.of[verdict.ID]
				if waiting == nil || !waiting.waits {
					return nil, fmt.Errorf("shard %d: a verdict on %s, which does not wait",
						shard, verdict.ID)
				}
				read.said = append(read.said, *verdict)
				switch entry.Result.Code {
				case ledger.Settled:
					waiting.waits, waiting.tookEffect = false, true
				case ledger.Released:
					waiting.waits, waiting.reason = false, verdict.Result.Code
				case ledger.Applied:
				default:
					return nil, fmt.Errorf("shard %d: a verdict is %s", shard, entry.Result)
				}
				continue
			}
			if read.of[entry.ID] != nil {
				return nil, fmt.Errorf("shard %d: transaction %s is there twice", shard, entry.ID)
			}
			code := entry.Result.Code
			if code == ledger.OutOfPlace || code == ledger.Settled || code == ledger.Released {
				return nil, fmt.Errorf("shard %d: transaction %s is %s", shard, entry.ID,
					entry.Result)
			}
			read.of[entry.ID] = &fate{place: place, result: entry.Result,
				tookEffect: code == ledger.Applied, waits: code == ledger.SetAside,
				left: code == ledger.Relayed, reason: code}
			if code != ledger.Relayed {
				read.order = append(read.order, entry.ID)
			}
		}
	}
	return read, nil
}

// concerned returns the shards that a transaction concerns.
func (e *bookEvidence) concerned(t *ledger.Transaction) (shards []ledger.ShardID) {
	if len(t.Registrations) > 0 {
		for shard := range e.tree {
			shards = append(shards, ledger.ShardID(shard))
		}
		return shards
	}
	shards = append(shards, e.homes[t.Signer])
	for _, posting := range t.Postings {
		shards = append(shards, e.homes[posting.Account.Organisation()])
	}
	for _, record := range t.Records {
		shards = append(shards, e.homes[record.Key.Organisation()])
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}

// above reports whether a shard is another's ancestor, or the same shard.
func (e *bookEvidence) above(shard, below ledger.ShardID) bool {
	for ; below != shard; below = e.tree[below] {
		if e.tree[below] == below {
			return false
		}
	}
	return true
}

// cameTooEarly reports whether a transaction took no effect, and may have come before one of its
// organisations was registered. A chain that had it before refused it. If it came again after the
// registration, it concerned more shards, which had it later and refused it, too.
func (e *bookEvidence) cameTooEarly(chains []*fates, id ledger.Hash) bool {
	return e.early[id] && !slices.ContainsFunc(chains, func(chain *fates) bool {
		return chain.of[id] != nil && chain.of[id].tookEffect
	})
}

// judgeOutcomes checks that every transaction in a chain was submitted, and is in all chains that
// it concerns with one outcome. In other chains it was only passed on.
func (e *bookEvidence) judgeOutcomes(chains []*fates) error {
	for shard, chain := range chains {
		for id, here := range chain.of {
			t := e.sent[id]
			if t == nil {
				return fmt.Errorf("shard %d: nobody submitted %s", shard, id)
			}
			concerned := e.concerned(t)
			if !here.waits && e.cameTooEarly(chains, id) {
				continue // it went to the right shard as far as this shard knew
			}
			switch is := slices.Contains(concerned, ledger.ShardID(shard)); {
			case here.waits:
				return fmt.Errorf("shard %d: transaction %s waits", shard, id)
			case is == here.left:
				return fmt.Errorf("shard %d: transaction %s concerns %v and is %s", shard, id,
					concerned, here.result)
			case !is && !slices.ContainsFunc(concerned, func(each ledger.ShardID) bool {
				return e.above(ledger.ShardID(shard), each)
			}):
				return fmt.Errorf(
					"shard %d: transaction %s concerns %v and has nothing to do there", shard,
					id, concerned)
			}
			for _, each := range concerned {
				there := chains[each].of[id]
				if there == nil {
					return fmt.Errorf("transaction %s concerns %v: it is in shard %d and not in %d",
						id, concerned, shard, each)
				}
				if !here.left && there.tookEffect != here.tookEffect {
					return fmt.Errorf("transaction %s took effect in shard %d: %v; in %d: %v",
						id, shard, here.tookEffect, each, there.tookEffect)
				}
			}
		}
	}
	return nil
}

// judgeVerdicts checks that each verdict in a chain is what its shard decided.
func (e *bookEvidence) judgeVerdicts(chains []*fates) error {
	for shard, chain := range chains {
		for _, verdict := range chain.said {
			if there := chains[verdict.Shard].of[verdict.ID]; there == nil ||
				there.result != verdict.Result {
				return fmt.Errorf("shard %d has the verdict %s of shard %d on %s, which says %+v",
					shard, verdict.Result, verdict.Shard, verdict.ID, there)
			}
		}
	}
	return nil
}

// judgeTold checks that the answers to clients match the chain of the signer's home. For a
// registration, any shard may answer.
func (e *bookEvidence) judgeTold(chains []*fates) error {
	for _, told := range e.told {
		t := e.sent[told.id]
		if t == nil {
			return fmt.Errorf("transaction %s was acknowledged, and nobody submitted it", told.id)
		}
		home := chains[e.homes[t.Signer]].of[told.id]
		switch told.state {
		case ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE:
			if home == nil || !home.tookEffect {
				return fmt.Errorf("transaction %s was acknowledged as durable; at its home, "+
					"shard %d: %+v", told.id, e.homes[t.Signer], home)
			}
		case ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED:
			if told.foreseen && (home == nil || !home.tookEffect) {
				continue
			}
			if home == nil || home.tookEffect || api.ReasonCode(home.reason) != told.reason {
				return fmt.Errorf("transaction %s was acknowledged as failed (%s); at its home, "+
					"shard %d: %+v", told.id, told.reason, e.homes[t.Signer], home)
			}
		case ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED:
			if home != nil && home.tookEffect {
				return fmt.Errorf("transaction %s was acknowledged as expired, and took effect",
					told.id)
			}
		default:
			return fmt.Errorf("transaction %s was acknowledged as %s", told.id, told.state)
		}
	}
	return nil
}

// judgeOrder checks that one order of all transactions agrees with the order in every chain that
// executes them. Those that came too early have no place in it.
func (e *bookEvidence) judgeOrder(chains []*fates) error {
	before := map[ledger.Hash]int{}
	after := map[ledger.Hash][]ledger.Hash{}
	for _, chain := range chains {
		order := slices.DeleteFunc(slices.Clone(chain.order), func(id ledger.Hash) bool {
			return e.cameTooEarly(chains, id)
		})
		for i, id := range order {
			before[id] += 0
			if i > 0 {
				before[id]++
				after[order[i-1]] = append(after[order[i-1]], id)
			}
		}
	}
	var free []ledger.Hash
	for id, count := range before {
		if count == 0 {
			free = append(free, id)
		}
	}
	done := 0
	for ; len(free) > 0; done++ {
		id := free[len(free)-1]
		free = free[:len(free)-1]
		for _, later := range after[id] {
			if before[later]--; before[later] == 0 {
				free = append(free, later)
			}
		}
	}
	if done < len(before) {
		return fmt.Errorf("the orders of the shards make a cycle: only %d of %d transactions "+
			"have a place", done, len(before))
	}
	return nil
}

// holding identifies an account's balance of an asset.
type holding struct {
	account ledger.AccountPath
	asset   ledger.AssetName
}

// judgeNodes checks that all nodes of a shard hold one chain, that nothing is held back, and that
// accounts and records match the sum of the transactions that took effect.
func (e *bookEvidence) judgeNodes(chains []*fates) error {
	want, opened, records := e.addUp(chains)
	first := map[ledger.ShardID]*nodeEvidence{}
	sums := map[ledger.AssetName]int64{}
	for i := range e.nodes {
		n := &e.nodes[i]
		if first[n.shard] == nil {
			first[n.shard] = n
		}
		if n.head != first[n.shard].head {
			return fmt.Errorf("node %d of shard %d holds another chain", i, n.shard)
		}
		if n.waiting > 0 {
			return fmt.Errorf("node %d of shard %d: %d transactions wait", i, n.shard, n.waiting)
		}
		accounts := 0
		for _, account := range n.accounts {
			home := e.homes[account.Path.Organisation()]
			if home != n.shard || !opened[account.Path] {
				return fmt.Errorf("node %d of shard %d has account %s of shard %d", i, n.shard,
					account.Path, home)
			}
			accounts++
			for _, balance := range account.Balances {
				if balance.SetAside.Sign() != 0 || balance.Incoming.Sign() != 0 {
					return fmt.Errorf("node %d: %s has %+v", i, account.Path, balance)
				}
				amount, _ := balance.Amount.Int64()
				if expected := want[holding{account.Path, balance.Asset}]; amount != expected {
					return fmt.Errorf("node %d: %s has %s of %s; what took effect adds up to %d", i,
						account.Path, balance.Amount, balance.Asset, expected)
				}
				if n == first[n.shard] {
					sums[balance.Asset] += amount
				}
			}
		}
		for path := range opened {
			if e.homes[path.Organisation()] == n.shard {
				accounts--
			}
		}
		if accounts != 0 {
			return fmt.Errorf("node %d of shard %d: %d accounts too many", i, n.shard, accounts)
		}
		for key, id := range records {
			if value := n.records[key]; (e.homes[key.Organisation()] == n.shard) !=
				(value.ID == id) {
				return fmt.Errorf("node %d of shard %d: record %s was written by %s; it should "+
					"have been %s", i, n.shard, key, value.ID, id)
			}
		}
	}
	for asset, sum := range sums {
		if sum != 0 {
			return fmt.Errorf("there is %d of %s in all shards together", sum, asset)
		}
	}
	return nil
}

// addUp returns the balances, the open accounts, and the last writer of each record, each from the
// chain of its home.
func (e *bookEvidence) addUp(chains []*fates) (map[holding]int64, map[ledger.AccountPath]bool,
	map[ledger.RecordKey]ledger.Hash) {
	balances, opened, records := map[holding]int64{}, map[ledger.AccountPath]bool{},
		map[ledger.RecordKey]ledger.Hash{}
	for shard, chain := range chains {
		here := func(organisation ledger.OrganisationName) bool {
			return e.homes[organisation] == ledger.ShardID(shard)
		}
		for _, id := range chain.order {
			t := e.sent[id]
			if t == nil || !chain.of[id].tookEffect {
				continue
			}
			for _, opening := range t.Openings {
				opened[opening.Account] = true
			}
			for _, posting := range t.Postings {
				if here(posting.Account.Organisation()) {
					amount, _ := posting.Amount.Int64()
					balances[holding{posting.Account, posting.Asset}] += amount
				}
			}
			for _, record := range t.Records {
				if here(record.Key.Organisation()) {
					records[record.Key] = id
				}
			}
		}
	}
	return balances, opened, records
}

// plants are faults that the judge must detect. Each reports whether it found something to change.
var plants = map[string]func(*bookEvidence) bool{
	"a durable transaction was told to have failed": func(e *bookEvidence) bool {
		return e.forge(ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE,
			ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED)
	},
	"a failed transaction was told to be durable": func(e *bookEvidence) bool {
		return e.forge(ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED,
			ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE)
	},
	"it failed for another reason": func(e *bookEvidence) bool {
		i := slices.IndexFunc(e.told, func(told acknowledged) bool {
			return told.state == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED &&
				!told.foreseen
		})
		e.told[i].reason = "luck"
		return true
	},
	"what was foreseen to fail took effect": func(e *bookEvidence) bool {
		i := slices.IndexFunc(e.told, func(told acknowledged) bool {
			return told.state == ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE
		})
		e.told[i].state = ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED
		e.told[i].foreseen = true
		return true
	},
	"what was acknowledged is in no chain": func(e *bookEvidence) bool {
		id := ledger.Hash{1}
		e.sent[id] = &ledger.Transaction{Signer: "payer-0"}
		e.told = append(e.told, acknowledged{id: id,
			state: ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE})
		return true
	},
	"nobody submitted it": func(e *bookEvidence) bool {
		delete(e.sent, e.told[0].id)
		return true
	},
	"a balance off by one": func(e *bookEvidence) bool {
		balance := &e.nodes[len(e.nodes)-1].accounts[0].Balances[0]
		balance.Amount, _ = balance.Amount.Add(ledger.NewAmount(1))
		return true
	},
	"something is set aside": func(e *bookEvidence) bool {
		e.nodes[0].accounts[0].Balances[0].SetAside = ledger.NewAmount(1)
		return true
	},
	"something comes in": func(e *bookEvidence) bool {
		e.nodes[0].accounts[0].Balances[0].Incoming = ledger.NewAmount(1)
		return true
	},
	"an account too few": func(e *bookEvidence) bool {
		e.nodes[0].accounts = e.nodes[0].accounts[1:]
		return true
	},
	"a transaction waits": func(e *bookEvidence) bool {
		e.nodes[0].waiting = 1
		return true
	},
	"another chain": func(e *bookEvidence) bool {
		e.nodes = append(e.nodes, e.nodes[0])
		e.nodes[len(e.nodes)-1].head = ledger.Hash{1}
		return true
	},
	"a record of another writer": func(e *bookEvidence) bool {
		for key, value := range e.nodes[0].records {
			value.ID = ledger.Hash{1}
			e.nodes[0].records[key] = value
			return true
		}
		return false
	},
	"one shard settles what the others release": func(e *bookEvidence) bool {
		return e.spoil(func(entry *ledger.Entry) bool {
			if entry.Result.Code == ledger.Released {
				entry.Result.Code = ledger.Settled
				return true
			}
			return false
		})
	},
	"one shard releases what the others settle": func(e *bookEvidence) bool {
		return e.spoil(func(entry *ledger.Entry) bool {
			if entry.Result.Code == ledger.Settled {
				entry.Result.Code = ledger.Released
				return true
			}
			return false
		})
	},
	"a verdict that its shard does not say": func(e *bookEvidence) bool {
		return e.spoil(func(entry *ledger.Entry) bool {
			if entry.Result.Code == ledger.Released {
				forged, verdict := *entry.Transaction(), *entry.Transaction().Verdict
				verdict.Result.Code = ledger.Overflow
				forged.Verdict, entry.Decoded = &verdict, &forged
				return true
			}
			return false
		})
	},
	"a crossing that never ends": func(e *bookEvidence) bool {
		return e.spoil(func(entry *ledger.Entry) bool {
			if entry.Result.Code == ledger.Settled {
				entry.Result.Code = ledger.Applied
				return true
			}
			return false
		})
	},
	"a transaction is missing in one shard": func(e *bookEvidence) bool {
		last := e.chains[len(e.chains)-1]
		for b, block := range last {
			if len(block.Unpacked) > 0 && block.Unpacked[0].Transaction().Verdict == nil {
				without := *block
				without.Unpacked = block.Unpacked[1:]
				last[b] = &without
				return true
			}
		}
		return false
	},
	"a block twice": func(e *bookEvidence) bool {
		e.chains[0] = append(e.chains[0], e.chains[0][0])
		return true
	},
	"two shards in two orders": func(e *bookEvidence) bool {
		var registrations []*ledger.Entry // entries that are in all chains
		for b, block := range e.chains[1] {
			copied := *block
			copied.Unpacked = slices.Clone(block.Unpacked)
			e.chains[1][b] = &copied
			for i := range copied.Unpacked {
				if len(copied.Unpacked[i].Transaction().Registrations) > 0 {
					registrations = append(registrations, &copied.Unpacked[i])
				}
			}
		}
		if len(registrations) < 2 {
			return false
		}
		*registrations[0], *registrations[1] = *registrations[1], *registrations[0]
		return true
	},
}

// forge changes the recorded answer for one transaction.
func (e *bookEvidence) forge(from, to ledgerdv1.TransactionState) bool {
	i := slices.IndexFunc(e.told, func(told acknowledged) bool { return told.state == from })
	if i >= 0 {
		e.told[i].state = to
	}
	return i >= 0
}

// spoil changes one entry of a chain.
func (e *bookEvidence) spoil(change func(*ledger.Entry) bool) bool {
	for _, chain := range e.chains {
		for b, block := range chain {
			for i, entry := range block.Unpacked {
				if change(&entry) {
					spoiled := *block
					spoiled.Unpacked = slices.Clone(block.Unpacked)
					spoiled.Unpacked[i] = entry
					chain[b] = &spoiled
					return true
				}
			}
		}
	}
	return false
}
