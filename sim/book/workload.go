package book

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// keyOf returns the private key for a name.
func keyOf(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// operatorKey returns the private key of the only operator.
func operatorKey() ed25519.PrivateKey { return keyOf("operator") }

// client makes the transactions of one organisation.
type client struct {
	name     ledger.OrganisationName
	sequence uint64
	policies uint64
	// key is registered. second signs too once a policy may ask for it.
	key, second ed25519.PrivateKey
}

func (c *client) account(name string) ledger.AccountPath {
	return ledger.AccountPath(fmt.Sprintf("%s:%s", c.name, name))
}

// workload makes the bundles of a few organisations.
type workload struct {
	book    ledger.Hash
	clients []*client
	// assets are those that there may be.
	assets []ledger.AssetName
	// funds is how much money each account has in the beginning.
	funds int64
	// began is the time of block 0. deadlines says that transactions may name deadlines from the
	// beginning, or, if it is set, from upgradedAt on.
	began      ledger.Milliseconds
	deadlines  bool
	upgradedAt Turn
	// far is how far ahead most deadlines are.
	far Turn
	// cancels says that the chains take cancellations, in the beginning or later.
	cancels bool
}

// farDeadline is after how many turns most deadlines are over: after the run. nearerDeadline is it
// in books in which organisations move, where what waits in vain ends after its deadline.
const farDeadline, nearerDeadline Turn = 10_000, 600

// turnLength is how long a turn lasts in agreed time.
const turnLength ledger.Milliseconds = 20

// accountNames are the accounts of each organisation. The first one is an issuer.
var accountNames = []string{"issuer", "a", "b"}

// signaturesMax bounds the signatures of a bundle with second keys: the ledger does not verify so
// few again, which would cost most of a run's time.
const signaturesMax = 4

var assets = []ledger.AssetName{"gold", "unit"}

// newWorkload makes the workload of a book whose version is raised on the way, unless upgrade is 0.
func newWorkload(random *rand.Rand, genesis *ledger.Genesis, upgrade int) *workload {
	w := &workload{book: genesis.Book(), funds: []int64{10, 40, 1 << 40}[random.IntN(3)],
		far: farDeadline, began: genesis.Time, assets: slices.Clone(assets),
		deadlines: ledger.TakesDeadlines(max(genesis.Version, upgrade)),
		cancels:   ledger.TakesCancellations(max(genesis.Version, upgrade))}
	for i := range 3 + random.IntN(3) {
		name := fmt.Sprintf("org%d", i)
		w.clients = append(w.clients, &client{name: ledger.OrganisationName(name),
			key: keyOf(name), second: keyOf(name + " second")})
	}
	return w
}

// next returns an empty transaction with the client's next nonce.
func (w *workload) next(c *client) ledger.Transaction {
	c.sequence++
	return ledger.Transaction{Ledger: w.book, Signer: c.name,
		Nonce: ledger.Nonce{Sequence: c.sequence}}
}

// sign makes a bundle that all of these clients sign, and some of them with both keys.
func (w *workload) sign(clients []*client, both func(*client) bool,
	transactions ...ledger.Transaction) *ledger.Bundle {
	bundle, err := ledger.NewBundle(transactions...)
	for _, c := range clients {
		if err == nil {
			err = bundle.Sign(c.name, c.key)
		}
		if err == nil && both(c) {
			err = bundle.Sign(c.name, c.second)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("sim/book: a bundle of the workload: %v", err))
	}
	return bundle
}

func never(*client) bool { return false }

// registration registers an organisation, sometimes pinned to a shard.
func (w *workload) registration(random *rand.Rand, c *client, shards int) *ledger.Bundle {
	transaction := w.next(c)
	registration := ledger.Registration{Name: c.name,
		Keys: []ledger.PublicKey{ledger.PublicKey(c.key[32:])}}
	if random.IntN(3) > 0 {
		registration.Pinned, registration.Shard = true, ledger.ShardID(random.IntN(shards))
	}
	transaction.Registrations = []ledger.Registration{registration}
	return w.sign([]*client{c}, never, transaction)
}

// pinned registers an organisation, pinned to a shard.
func (w *workload) pinned(c *client, shard ledger.ShardID) *ledger.Bundle {
	transaction := w.next(c)
	transaction.Registrations = []ledger.Registration{{Name: c.name,
		Keys: []ledger.PublicKey{ledger.PublicKey(c.key[32:])}, Pinned: true, Shard: shard}}
	return w.sign([]*client{c}, never, transaction)
}

// addition makes the operators' bundle that adds a shard, as the change of the book of this number.
func (w *workload) addition(number uint64, added *ledger.ShardAddition) *ledger.Bundle {
	return w.change(&ledger.BookChange{Number: number, Addition: added})
}

// change changes the book's shards.
func (w *workload) change(change *ledger.BookChange) *ledger.Bundle {
	return w.sign([]*client{{name: ledger.Operator, key: operatorKey()}}, never,
		ledger.Transaction{Ledger: w.book, Signer: ledger.Operator, Book: change})
}

// opening opens an organisation's accounts and gives them money.
func (w *workload) opening(c *client) *ledger.Bundle {
	opening, funding := w.next(c), w.next(c)
	for i, name := range accountNames {
		opening.Openings = append(opening.Openings, ledger.Opening{Account: c.account(name),
			Issuer: i == 0})
	}
	for _, asset := range assets {
		for i, name := range accountNames {
			amount := w.funds
			if i == 0 {
				amount *= -int64(len(accountNames) - 1)
			}
			funding.Postings = append(funding.Postings, ledger.Posting{Account: c.account(name),
				Asset: asset, Amount: ledger.NewAmount(amount)})
		}
	}
	return w.sign([]*client{c}, never, opening, funding)
}

// upgrade makes the operators' bundle that raises the version of the chains.
func (w *workload) upgrade(genesis *ledger.Genesis, version int) *ledger.Bundle {
	charter := genesis.Charter()
	charter.Number, charter.Version = 1, version
	return w.sign([]*client{{name: ledger.Operator, key: operatorKey()}}, never,
		ledger.Transaction{Ledger: w.book, Signer: ledger.Operator,
			Charter: &ledger.CharterChange{Charter: charter}})
}

// move makes the operators' bundle that moves an organisation.
func (w *workload) move(number uint64, c *client, to ledger.ShardID) *ledger.Bundle {
	return w.sign([]*client{{name: ledger.Operator, key: operatorKey()}}, never,
		ledger.Transaction{Ledger: w.book, Signer: ledger.Operator, Book: &ledger.BookChange{
			Number: number, Move: &ledger.OrganisationMove{Organisation: c.name, To: to}}})
}

// bundle makes a bundle of transfers and records, or of a change of a policy.
func (w *workload) bundle(random *rand.Rand, at Turn) (what string, bundle *ledger.Bundle) {
	if random.IntN(12) == 0 {
		c := w.clients[random.IntN(len(w.clients))]
		return fmt.Sprintf("policy of %s", c.name), w.policy(random, c)
	}
	var transactions []ledger.Transaction
	timed := w.namesDeadlines(random, at)
	for range 1 + random.IntN(3) {
		transaction := w.transaction(random)
		if timed {
			transaction.Deadline = w.deadline(random, at)
		}
		transactions = append(transactions, transaction)
	}
	var words []string
	for i := range transactions {
		words = append(words, describe(&transactions[i]))
	}
	payers := w.payers(transactions)
	left := signaturesMax - len(payers)
	return strings.Join(words, "; "), w.sign(payers, func(*client) bool {
		both := left > 0 && random.IntN(4) > 0 // a policy may ask for both keys
		if both {
			left--
		}
		return both
	}, transactions...)
}

// namesDeadlines reports whether the transactions of a bundle name deadlines. A few clients do not
// know what the chains take.
func (w *workload) namesDeadlines(random *rand.Rand, at Turn) bool {
	const late = 30
	takes := w.deadlines && at >= w.upgradedAt
	if takes && w.upgradedAt > 0 && random.IntN(late) > int(at-w.upgradedAt) {
		takes = false // the client has not heard of it yet
	}
	if random.IntN(25) == 0 {
		return !takes
	}
	return takes
}

// deadline draws the deadline of a transaction that is submitted at a turn. Many end while the
// transaction, or the words on it, are on their way.
func (w *workload) deadline(random *rand.Rand, at Turn) ledger.Milliseconds {
	const near = 80
	turns := w.far
	switch random.IntN(30) {
	case 0:
		return 0
	case 1:
		turns = -5
	case 2:
		return w.began + ledger.MaxDeadline*2
	case 3, 4, 5, 6, 7, 8, 9, 10, 11, 12:
		turns = Turn(random.IntN(near))
	}
	return w.began + turnLength*ledger.Milliseconds(at+turns)
}

// cancellation is a bundle that cancels a transaction at a shard.
type cancellation struct {
	what   string
	bundle *ledger.Bundle
}

// cancellations cancels transactions of a bundle, each at some shards. Mostly a client that has to
// sign the transaction does so, and sometimes a stranger.
func (w *workload) cancellations(random *rand.Rand, bundle *ledger.Bundle,
	shards int) (made []cancellation) {
	for i := range bundle.Len() {
		t := bundle.Transaction(i)
		if t.Deadline == 0 || random.IntN(3) == 0 {
			continue
		}
		id := bundle.ID(i)
		may := w.payers([]ledger.Transaction{*t})
		c := may[random.IntN(len(may))]
		if random.IntN(3) == 0 {
			c = w.clients[random.IntN(len(w.clients))]
		}
		for _, shard := range random.Perm(shards)[:1+random.IntN(shards)] {
			transaction := w.next(c)
			transaction.Deadline = t.Deadline
			transaction.Cancellation = &ledger.Cancellation{Transaction: id,
				Shard: ledger.ShardID(shard)}
			made = append(made, cancellation{fmt.Sprintf("%s cancels %s at shard %d", c.name,
				short(id), shard), w.sign([]*client{c}, func(*client) bool {
				return random.IntN(2) == 0 // a policy may ask for both keys
			}, transaction)})
		}
	}
	return made
}

// payers returns the clients whose consent transactions need.
func (w *workload) payers(transactions []ledger.Transaction) (payers []*client) {
	for _, c := range w.clients {
		if slices.ContainsFunc(transactions, func(t ledger.Transaction) bool {
			return t.Signer == c.name || slices.ContainsFunc(t.Postings,
				func(p ledger.Posting) bool {
					return p.Account.Organisation() == c.name && p.Amount.Sign() < 0
				}) || slices.ContainsFunc(t.Records, func(r ledger.Record) bool {
				return r.Key.Organisation() == c.name
			})
		}) {
			payers = append(payers, c)
		}
	}
	return payers
}

// policy changes an organisation's policy: one or both keys have to sign.
func (w *workload) policy(random *rand.Rand, c *client) *ledger.Bundle {
	c.policies++
	policy := ledger.Policy{Number: c.policies, Threshold: 1 + random.IntN(3)/2}
	for _, key := range []ed25519.PrivateKey{c.key, c.second} {
		policy.Keys = append(policy.Keys, ledger.PolicyKey{Key: ledger.PublicKey(key[32:])})
	}
	slices.SortFunc(policy.Keys, func(a, b ledger.PolicyKey) int {
		return bytes.Compare(a.Key[:], b.Key[:])
	})
	return w.sign([]*client{c}, func(*client) bool { return true },
		ledger.Transaction{Ledger: w.book, Signer: c.name,
			Policy: &ledger.PolicyChange{Policy: policy}})
}

// transaction moves random amounts between random accounts, and sometimes writes records.
func (w *workload) transaction(random *rand.Rand) ledger.Transaction {
	any := func() *client { return w.clients[random.IntN(len(w.clients))] }
	signer := any()
	transaction := w.next(signer)
	for _, asset := range assets[:1+random.IntN(2)] {
		var sum int64
		for range 1 + random.IntN(2) {
			amount := random.Int64N(25) - 12
			sum += amount
			transaction.Postings = append(transaction.Postings, ledger.Posting{
				Account: any().account(accountNames[1+random.IntN(2)]), Asset: asset,
				Amount: ledger.NewAmount(amount)})
		}
		transaction.Postings = append(transaction.Postings, ledger.Posting{
			Account: any().account("a"), Asset: asset, Amount: ledger.NewAmount(-sum)})
	}
	for range random.IntN(3) {
		transaction.Records = append(transaction.Records, ledger.Record{
			Key: ledger.RecordKey(any().account("record")), Value: []byte{byte(random.IntN(256))}})
	}
	switch random.IntN(30) {
	case 0:
		transaction.LastValid = ledger.Height(3 + random.IntN(10))
	case 1:
		transaction.Openings = []ledger.Opening{{Account: signer.account("late")}}
	case 2:
		transaction.Postings[0].Account = any().account("nobody")
	case 3:
		transaction.Nonce.Sequence = 1
	case 4:
		transaction.Ledger[0]++
	}
	return transaction
}

// paths returns the paths of all accounts that the workload may open.
func (w *workload) paths() []ledger.AccountPath {
	var paths []ledger.AccountPath
	for _, c := range w.clients {
		for _, name := range append([]string{"late"}, accountNames...) {
			paths = append(paths, c.account(name))
		}
	}
	return paths
}

// describe describes a transaction in a few words.
func describe(t *ledger.Transaction) string {
	var words []string
	for i := range t.Postings {
		words = append(words, fmt.Sprintf("%s %s %s", t.Postings[i].Account, t.Postings[i].Amount,
			t.Postings[i].Asset))
	}
	for i := range t.Records {
		words = append(words, "record "+string(t.Records[i].Key))
	}
	if h := t.Hold; h != nil {
		words = append(words, fmt.Sprintf("holds %s %s of %s for %v, which %s may post",
			h.Amount, h.Asset, h.From, h.To, h.Poster))
	}
	if d := t.Details; d != nil {
		words = append(words, fmt.Sprintf("with key %q", d.Key))
		if d.Refundable != 0 {
			words = append(words, fmt.Sprintf("refundable until %d", d.Refundable))
		}
		if d.Refund != nil {
			words = append(words, "refunds "+short(d.Refund.Entry))
		}
	}
	if t.HoldEnd != nil {
		words = append(words, "ends hold "+short(t.HoldEnd.Hold))
	}
	if t.Schedule != nil {
		words = append(words, fmt.Sprintf("from %d on, every %d %s, %d times, %v",
			t.Schedule.First, t.Schedule.Every, t.Schedule.Period, t.Schedule.Count,
			t.Schedule.Postings))
	}
	if t.ScheduleEnd != nil {
		words = append(words, "ends schedule "+short(t.ScheduleEnd.Schedule))
	}
	if t.Occurrence != nil {
		words = append(words, fmt.Sprintf("occurrence %d of %s", t.Occurrence.Number,
			short(t.Occurrence.Schedule)))
	}
	return string(t.Signer) + ": " + strings.Join(words, ", ")
}
