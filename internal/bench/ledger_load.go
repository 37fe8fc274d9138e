package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// load runs the clients of a run. Each submits one bundle after the other and waits for its
// acknowledgement, or has callers that do the same with single transactions.
type load struct {
	level        ledgerdv1.Level
	bundle       int
	callers      int // of each client; 0: the client submits bundles itself
	distribution string
	genesis      ledger.Hash
	traffic      *traffic // nil: transfers are between accounts of their signer
	shards       int      // of the book, in which the clients' organisations live; 0: one
	plain        bool     // the client packs no bundles
	clients      []*loadClient
	counts       []*counts
	working      sync.WaitGroup
	stop         context.CancelFunc
	begun        time.Time // the measured window
}

// loadClient is one client with its organisation.
type loadClient struct {
	node     *client.Client
	sender   *client.Sender // nil: it submits bundles itself
	key      client.Key
	accounts []ledger.AccountPath
	fixed    bool // transfers go from the first account to the second
	sequence uint64
	bodySize int // of a transfer between accounts without names, about
	counts   *counts
	home     ledger.ShardID // of its organisation, in a book of several shards
}

// counts are the counts of some clients.
type counts struct {
	mutex        sync.Mutex
	measuring    bool
	requests     uint64 // from here on in the measured window
	bytes        uint64
	crossed      uint64                  // of the requests, those that concern two shards
	latency      *hdrhistogram.Histogram // nanoseconds
	acknowledged uint64                  // since the start
}

// countsMax is how many clients have their own counts. Further ones share them, since each takes a
// quarter of a megabyte.
const countsMax = 16

// The range of latencies and their precision in decimal digits.
const (
	latencyLeast  = int64(time.Microsecond)
	latencyMost   = int64(10 * time.Minute)
	latencyDigits = 3
)

// newLoad makes the clients. They know no node yet.
func newLoad(p LedgerParameters) (*load, error) {
	l := &load{level: ackLevels[p.Ack], bundle: p.Bundle, callers: p.Callers,
		distribution: p.Distribution}
	for range min(p.Clients, countsMax) {
		l.counts = append(l.counts, &counts{
			latency: hdrhistogram.New(latencyLeast, latencyMost, latencyDigits)})
	}
	for i := range p.Clients {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
		name := ledger.OrganisationName(fmt.Sprintf("client-%d", i))
		l.clients = append(l.clients, &loadClient{
			key:      client.NewKey(name, private),
			accounts: accountsOf(name, i, p),
			fixed:    p.Accounts == 0 || p.Distribution == DistributionHot,
			counts:   l.counts[i%len(l.counts)],
		})
	}
	return l, nil
}

// connect spreads the clients over the nodes.
func (l *load) connect(urls []string) (err error) {
	for i, c := range l.clients {
		url := urls[l.nodeOf(i, c.home, len(urls))]
		if c.node, err = client.New([]string{url}, client.Options{}); err != nil {
			return err
		}
	}
	return nil
}

// nodeOf returns which of all nodes a client submits to. In a book of several shards it is one of
// the shard in which the client's organisation lives.
func (l *load) nodeOf(number int, home ledger.ShardID, nodes int) int {
	if l.shards == 0 {
		return number % nodes
	}
	each := nodes / l.shards
	return int(home)*each + number/l.shards%each
}

// prepare registers the clients' organisations and opens their accounts, several clients at a time.
// It returns the number of transactions in the chain.
func (l *load) prepare(ctx context.Context, urls []string) (transactions uint64, err error) {
	defer l.close()
	if err := l.connect(urls); err != nil {
		return 0, err
	}
	if l.genesis, err = l.clients[0].node.Genesis(ctx); err != nil {
		return 0, err
	}
	failures := make([]error, len(l.clients))
	slots := make(chan struct{}, 16)
	var registering sync.WaitGroup
	for i, c := range l.clients {
		slots <- struct{}{}
		registering.Go(func() {
			failures[i] = l.register(ctx, c)
			<-slots
		})
	}
	registering.Wait()
	for _, c := range l.clients {
		transactions += c.sequence
	}
	return transactions, errors.Join(failures...)
}

// accountsOf returns the accounts of a client: its share of all.
func accountsOf(name ledger.OrganisationName, number int, p LedgerParameters) []ledger.AccountPath {
	if p.Accounts == 0 {
		return []ledger.AccountPath{ledger.AccountPath(name + ":mint"),
			ledger.AccountPath(name + ":cash")}
	}
	accounts := make([]ledger.AccountPath, shareOf(number, p.Accounts, p.Clients))
	for i := range accounts {
		accounts[i] = accountName(name, i)
	}
	return accounts
}

// shareOf returns the number of accounts of one of several clients, out of those of all.
func shareOf(number, accounts, clients int) int {
	share := accounts / clients
	if number < accounts%clients {
		share++
	}
	return share
}

// next returns an empty transaction with the client's next nonce.
func (l *load) next(c *loadClient) ledger.Transaction {
	c.sequence++
	return ledger.Transaction{Ledger: l.genesis, Signer: c.key.Organisation,
		Nonce: ledger.Nonce{Stream: 1, Sequence: c.sequence}}
}

// openingsInBundle is the number of transactions with openings that are submitted together, which
// is about a quarter of a megabyte.
const openingsInBundle = 32

// register registers a client's organisation, alone in its transaction, and then opens its
// accounts, all of which may go below zero if transfers go between any two.
func (l *load) register(ctx context.Context, c *loadClient) error {
	registration := l.next(c)
	registration.Registrations = []ledger.Registration{{Name: c.key.Organisation,
		Keys: []ledger.PublicKey{c.key.Public()}}}
	if l.shards > 0 {
		registration.Registrations[0].Pinned, registration.Registrations[0].Shard = true, c.home
	}
	// Wait until it is durable: then every node knows the organisation, or is about to.
	if err := l.must(ctx, c, registration); err != nil {
		return err
	}
	var transactions []ledger.Transaction
	for begin := 0; begin < len(c.accounts); begin += ledger.MaxOpenings {
		end := min(len(c.accounts), begin+ledger.MaxOpenings)
		transaction := l.next(c)
		for i, account := range c.accounts[begin:end] {
			transaction.Openings = append(transaction.Openings,
				ledger.Opening{Account: account, Issuer: !c.fixed || begin+i == 0})
		}
		transactions = append(transactions, transaction)
		if len(transactions) == openingsInBundle || end == len(c.accounts) {
			if err := l.must(ctx, c, transactions...); err != nil {
				return err
			}
			transactions = nil
		}
	}
	return nil
}

// open connects the clients for the load, each with its sender if it has callers.
func (l *load) open(ctx context.Context, urls []string) error {
	if err := l.connect(urls); err != nil {
		return err
	}
	for _, c := range l.clients {
		c.bodySize = sizeOfTransfer(ledger.Transaction{Ledger: l.genesis,
			Signer: c.key.Organisation, Nonce: ledger.Nonce{Stream: 1, Sequence: c.sequence}})
		if l.callers == 0 {
			continue
		}
		var err error
		if c.sender, err = c.node.NewSender(ctx, client.SenderOptions{Keys: []client.Key{c.key},
			Level: l.level}); err != nil {
			return err
		}
	}
	return nil
}

// sizeOfTransfer returns the bytes of a transfer without the names of its accounts, about.
func sizeOfTransfer(t ledger.Transaction) int {
	const name = "a:b"
	t.Postings = postings(name, name)
	body, err := t.EncodeBody()
	if err != nil {
		return 0
	}
	return len(body) - 2*len(name)
}

// must submits transactions and waits until they are durable in all shards.
func (l *load) must(ctx context.Context, c *loadClient, transactions ...ledger.Transaction) error {
	bundle, err := client.Sign(ctx, []client.Key{c.key}, transactions...)
	if err != nil {
		return err
	}
	statuses, err := c.node.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE)
	if err != nil {
		return err
	}
	return refused(statuses)
}

// refused returns the error of the first transaction that the ledger did not apply.
func refused(statuses []*ledgerdv1.TransactionStatus) error {
	for _, status := range statuses {
		if status.GetState() < ledgerdv1.TransactionState_TRANSACTION_STATE_ORDERED ||
			status.GetReasonCode() != "" {
			return fmt.Errorf("%w: a transaction is %v: %s", ErrServer, status.GetState(),
				status.GetReason())
		}
	}
	return nil
}

// chooser chooses accounts of a client. It is for one goroutine.
type chooser struct {
	accounts []ledger.AccountPath
	fixed    bool
	random   *mathrand.Rand
	zipf     *mathrand.Zipf // nil: uniform
	// receivers chooses whose accounts a bundle's transfers go to, and to has these accounts.
	receivers *receivers
	to        []ledger.AccountPath
	// transactions and their postings are the memory for the next bundle.
	transactions []ledger.Transaction
	postings     [][2]ledger.Posting
}

// zipfExponent is the exponent of DistributionZipf.
const zipfExponent = 1.1

func (l *load) chooser(c *loadClient) *chooser {
	random := mathrand.New(mathrand.NewPCG(mathrand.Uint64(), mathrand.Uint64()))
	made := &chooser{accounts: c.accounts, to: c.accounts, fixed: c.fixed, random: random}
	if l.traffic != nil {
		made.receivers = l.traffic.receiversOf(c.home, random)
	}
	if l.callers == 0 {
		made.transactions = make([]ledger.Transaction, l.bundle)
		made.postings = make([][2]ledger.Posting, l.bundle)
	}
	if l.distribution == DistributionZipf {
		made.zipf = mathrand.NewZipf(random, zipfExponent, 1, uint64(len(c.accounts)-1))
	}
	return made
}

func (c *chooser) one() int {
	if c.zipf != nil {
		return int(c.zipf.Uint64())
	}
	return c.random.IntN(len(c.accounts))
}

// bundle chooses whose accounts the transfers go to from here on: the client's own, or those of a
// client in another shard. It reports whether it is the latter.
func (c *chooser) bundle() (crosses bool) {
	c.to = c.accounts
	if c.receivers == nil {
		return false
	}
	if other := c.receivers.next(); other != nil {
		c.to = other.accounts
		return true
	}
	return false
}

// transfer returns the postings of a transfer between two accounts.
func (c *chooser) transfer() [2]ledger.Posting {
	if c.fixed {
		return twoPostings(c.accounts[0], c.to[1])
	}
	from, to := c.one(), c.one()%len(c.to)
	if from == to {
		to = (to + 1) % len(c.to)
	}
	return twoPostings(c.accounts[from], c.to[to])
}

func postings(from, to ledger.AccountPath) []ledger.Posting {
	both := twoPostings(from, to)
	return both[:]
}

func twoPostings(from, to ledger.AccountPath) [2]ledger.Posting {
	return [2]ledger.Posting{
		{Account: from, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-5)},
		{Account: to, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(5)},
	}
}

// start lets all clients submit until end is called. A client that fails passes its error to fail.
func (l *load) start(ctx context.Context, fail func(error)) {
	ctx, l.stop = context.WithCancel(ctx)
	for _, c := range l.clients {
		submit, times := l.submit, 1
		if l.callers > 0 {
			submit, times = l.post, l.callers
		}
		for range times {
			l.working.Go(func() {
				choose := l.chooser(c)
				for ctx.Err() == nil {
					if err := submit(ctx, c, choose); err != nil && ctx.Err() == nil {
						fail(err)
						return
					}
				}
			})
		}
	}
}

// post submits a transfer as one of many callers, and waits for it.
func (l *load) post(ctx context.Context, c *loadClient, choose *chooser) error {
	crosses := choose.bundle()
	both := choose.transfer()
	transaction := ledger.Transaction{Postings: both[:]}
	size := c.bodySize
	for i := range transaction.Postings {
		size += len(transaction.Postings[i].Account)
	}
	begun := time.Now()
	answer, err := c.sender.Post(ctx, transaction)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	if !answer.Applied() {
		return refused([]*ledgerdv1.TransactionStatus{answer.Status})
	}
	c.counts.add(1, uint64(size), took, crosses)
	return nil
}

// submit makes, signs and submits a bundle of transfers, and waits for it. Then nothing has the
// bundle any more, so the next one uses the memory of its transactions.
func (l *load) submit(ctx context.Context, c *loadClient, choose *chooser) error {
	transactions, crosses := choose.transactions, choose.bundle()
	for i := range transactions {
		transactions[i] = l.next(c)
		choose.postings[i] = choose.transfer()
		transactions[i].Postings = choose.postings[i][:]
		if err := c.node.SetDeadline(ctx, &transactions[i]); err != nil {
			return err
		}
	}
	sign := c.node.Sign
	if l.plain {
		sign = client.Sign
	}
	bundle, err := sign(ctx, []client.Key{c.key}, transactions...)
	if err != nil {
		return err
	}
	size := uint64(len(bundle.Encode()))
	begun := time.Now()
	statuses, err := c.node.Submit(ctx, bundle, l.level)
	if err != nil {
		return err
	}
	if err := refused(statuses); err != nil {
		return err
	}
	c.counts.add(uint64(l.bundle), size, time.Since(begun), crosses)
	return nil
}

// add records that transactions were acknowledged together, all or none of which concern two
// shards.
func (c *counts) add(requests, bytes uint64, took time.Duration, crosses bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.acknowledged += requests
	if !c.measuring {
		return
	}
	c.requests += requests
	c.bytes += bytes
	if crosses {
		c.crossed += requests
	}
	_ = c.latency.RecordValue(min(int64(took), latencyMost)) // which is in its range
}

// begin opens a measured window, without what was in one before. window closes it.
func (l *load) begin() {
	l.begun = time.Now()
	for _, c := range l.counts {
		c.mutex.Lock()
		c.measuring, c.requests, c.bytes, c.crossed = true, 0, 0, 0
		c.latency.Reset()
		c.mutex.Unlock()
	}
}

func (l *load) window() (all Window, crossed uint64, latency *hdrhistogram.Histogram) {
	all.Seconds = time.Since(l.begun).Seconds()
	latency = hdrhistogram.New(latencyLeast, latencyMost, latencyDigits)
	for _, c := range l.counts {
		c.mutex.Lock()
		c.measuring = false
		all.Requests += c.requests
		all.Bytes += c.bytes
		crossed += c.crossed
		latency.Merge(c.latency)
		c.mutex.Unlock()
	}
	return all, crossed, latency
}

// end stops the clients and returns the number of acknowledged transactions.
func (l *load) end() (acknowledged uint64) {
	l.stop()
	l.working.Wait()
	l.drain()
	for _, c := range l.counts {
		c.mutex.Lock()
		acknowledged += c.acknowledged
		c.mutex.Unlock()
	}
	return acknowledged
}

// drain waits until the senders have nothing under way.
func (l *load) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	for _, c := range l.clients {
		if c.sender != nil {
			_ = c.sender.Close(ctx) // what is still under way was acknowledged to no caller
		}
	}
}

// close ends the clients' connections.
func (l *load) close() {
	l.drain()
	for _, c := range l.clients {
		if c.node != nil {
			c.node.Close()
		}
	}
}
