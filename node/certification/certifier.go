package certification

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ledgerd/ledgerd/ledger"
)

const (
	// restAfter is how long the chain must not have grown to count as resting.
	restAfter = 25 * time.Millisecond
	// repeatEvery is the interval of repeating statements and asking for certificates while one is
	// missing.
	repeatEvery = 2 * time.Second
	// askTime bounds one question to a peer.
	askTime = 5 * time.Second
	// queueMax is how many statements may wait.
	queueMax = 1024
	// statementsPerSecond bounds the statements of one member that are verified, in the long run.
	statementsPerSecond = 128
	// aheadMax bounds how far above the head a statement may be to be held.
	aheadMax = 64 * CheckpointEvery
)

// Chain is the chain to certify; *store.Store implements it.
type Chain interface {
	// AppendedHeight is the height of the head, DurableHeight that on the own disk, and
	// KnownDurable that on the disks of a majority, as far as it is known here.
	AppendedHeight() ledger.Height
	DurableHeight() ledger.Height
	KnownDurable() ledger.Height
	Header(ledger.Height) (ledger.Header, ledger.Hash, error)
	GenesisHash() ledger.Hash
	// MembersAt returns the members that certify the block at a height, MemberKey the key of any
	// present or former member, or nil.
	MembersAt(ledger.Height) *ledger.Members
	MemberKey(ledger.MemberIndex) []byte
	// MembershipHeight returns the height of the last change, ChangeHeights those of all joins and
	// leaves.
	MembershipHeight() ledger.Height
	ChangeHeights() []ledger.Height
	CertifiedHeight() ledger.Height
	Certificate(ledger.Height) (*ledger.Certificate, error)
	PutCertificate(*ledger.Certificate) error
	PutEvidence(*ledger.Evidence) (added bool, err error)
}

// Config configures a Certifier. All fields but Logger are required.
type Config struct {
	// Self is this node's index, and Key its private key.
	Self ledger.MemberIndex
	Key  ed25519.PrivateKey
	// Chain returns the present chain. Another one may be put in at any time; a chain that was
	// replaced answers with errors.
	Chain func() Chain
	// Send sends an encoded statement to all other members, as far as they can be reached. It must
	// not block.
	Send func(statement []byte)
	// Fetch returns certificates above a height from some other member, ascending. They are not
	// verified.
	Fetch func(ctx context.Context, above ledger.Height) ([]*ledger.Certificate, error)
	// Found is called once for each new piece of evidence. Forked is called, too, if the evidence
	// shows a majority that certified another block than a durable one of this chain.
	Found  func(*ledger.Evidence)
	Forked func(*ledger.Evidence)
	Logger *slog.Logger
}

// heard is a statement of a member, not verified.
type heard struct {
	from      ledger.MemberIndex
	statement []byte
}

// Certifier makes certificates. Its methods are safe for concurrent use.
type Certifier struct {
	config  Config
	context context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	wake    chan struct{}
	queue   chan heard

	mu       sync.Mutex
	limiters map[ledger.MemberIndex]*rate.Limiter

	// The goroutine owns what follows.
	chain     Chain
	collector *collector
	// signed is the height of the highest block that this process signed, mine its statement.
	signed ledger.Height
	mine   []byte
	// head is the height at the last look, and moved the time at which it was reached. Statements
	// up to judged were compared with durable blocks.
	head, judged ledger.Height
	moved        time.Time
	// changes are the heights of changes without a certificate, as of the membership's change at
	// changedAt.
	changes   []ledger.Height
	changedAt ledger.Height
}

// New makes a certifier. It takes input from now on, and works once Start is called.
func New(config Config) *Certifier {
	c := &Certifier{config: config, done: make(chan struct{}), wake: make(chan struct{}, 1),
		queue: make(chan heard, queueMax), limiters: make(map[ledger.MemberIndex]*rate.Limiter),
		collector: newCollector()}
	c.context, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start starts the goroutine. Call it once, and Close afterwards.
func (c *Certifier) Start() { go c.run() }

// Close ends the goroutine and waits for its end.
func (c *Certifier) Close() {
	c.cancel()
	<-c.done
}

// Progressed says that the chain grew, or that more of it is stored or durable.
func (c *Certifier) Progressed() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Heard takes an encoded statement that a member sent. It does not block: statements too many are
// dropped, and their senders repeat them. It keeps the bytes.
func (c *Certifier) Heard(from ledger.MemberIndex, statement []byte) {
	c.mu.Lock()
	limiter := c.limiters[from]
	if limiter == nil {
		limiter = rate.NewLimiter(statementsPerSecond, statementsPerSecond)
		c.limiters[from] = limiter
	}
	c.mu.Unlock()
	if !limiter.Allow() {
		return
	}
	select {
	case c.queue <- heard{from, statement}:
	default:
	}
}

func (c *Certifier) run() {
	defer close(c.done)
	rest, repeat := time.NewTimer(restAfter), time.NewTicker(repeatEvery)
	defer rest.Stop()
	defer repeat.Stop()
	for {
		select {
		case <-c.context.Done():
			return
		case h := <-c.queue:
			c.hear(h)
		case <-c.wake:
			c.look()
			if time.Since(c.moved) < restAfter {
				rest.Reset(restAfter)
			}
		case <-rest.C:
			c.look()
		case <-repeat.C:
			c.look()
			c.repeat()
		}
	}
}

// look signs what is due, and certifies held statements of blocks that are here now.
func (c *Certifier) look() {
	chain := c.config.Chain()
	if chain != c.chain {
		c.chain, c.signed = chain, chain.CertifiedHeight()
		c.head, c.judged = 0, 0
		c.findChanges()
	} else if chain.MembershipHeight() != c.changedAt {
		c.findChanges()
	}
	head, before := chain.AppendedHeight(), c.head
	if head != c.head {
		c.head, c.moved = head, time.Now()
	}
	durable := c.durable()
	rests := durable == head && time.Since(c.moved) >= restAfter
	for _, height := range due(c.signed, durable, rests, c.changes) {
		c.sign(height)
	}
	for _, height := range c.collector.heights(before + 1) {
		if height <= head {
			c.join(height)
		}
	}
	for _, height := range c.collector.heights(c.judged + 1) {
		if height <= durable {
			c.judge(height)
		}
	}
	c.judged = durable
}

// durable returns the height up to which this node states blocks.
func (c *Certifier) durable() ledger.Height {
	return min(c.chain.DurableHeight(), c.chain.KnownDurable())
}

// findChanges finds the changes of the members that have no certificate.
func (c *Certifier) findChanges() {
	c.changedAt = c.chain.MembershipHeight()
	c.changes = slices.DeleteFunc(c.chain.ChangeHeights(), c.certified)
}

func (c *Certifier) certified(height ledger.Height) bool {
	_, err := c.chain.Certificate(height)
	return err == nil
}

// judge compares the statements of a height with the durable block of this chain.
func (c *Certifier) judge(height ledger.Height) {
	_, hash, err := c.chain.Header(height)
	if err != nil {
		return
	}
	for _, s := range c.collector.about(height) {
		if s.Hash != hash {
			c.contradict(s, hash)
		}
	}
}

// sign states a block to the other members and to itself.
func (c *Certifier) sign(height ledger.Height) {
	members := c.chain.MembersAt(height)
	_, hash, err := c.chain.Header(height)
	if err != nil || members.Keys[c.config.Self] == nil {
		c.signed = max(c.signed, height)
		return
	}
	s := ledger.SignStatement(c.config.Key, members.Chain, c.config.Self, members.Epoch, height,
		hash)
	encoded := s.Encode()
	if height > c.signed {
		c.signed, c.mine = height, encoded
	}
	if c.collector.has(s) {
		return // it is a change that was stated before
	}
	if e := c.collector.add(s); e != nil {
		c.found(e) // this node has signed another block: an operator recovered the shard
	}
	c.config.Send(encoded)
	c.join(height)
}

// hear takes a statement of another member.
func (c *Certifier) hear(h heard) {
	c.look()
	chain := c.chain
	s, err := ledger.DecodeStatement(h.statement)
	if err != nil || s.Member != h.from {
		c.config.Logger.Warn("malformed statement dropped", "member", h.from, "error", err)
		return
	}
	head := chain.AppendedHeight()
	if s.Height > head+aheadMax || c.collector.has(s) {
		return
	}
	var hash ledger.Hash
	if s.Height <= head {
		if _, hash, err = chain.Header(s.Height); err != nil {
			return // the chain was just replaced, or is damaged: its readers report that
		}
		if hash == s.Hash && c.certified(s.Height) {
			return
		}
	}
	if err := s.Verify(chain.GenesisHash(), chain.MemberKey(h.from)); err != nil {
		c.config.Logger.Error("wrong statement dropped", "member", h.from, "error", err)
		return
	}
	if e := c.collector.add(s); e != nil {
		c.found(e)
	}
	switch {
	case s.Height > head:
	case hash == s.Hash:
		c.join(s.Height)
	case s.Height <= c.durable():
		c.contradict(s, hash)
	}
}

// contradict makes evidence of a statement about another block than a durable one of this chain,
// and raises the alarm if a majority made such statements.
func (c *Certifier) contradict(s ledger.Statement, hash ledger.Hash) {
	members := c.chain.MembersAt(s.Height)
	ours, err := c.chain.Certificate(s.Height)
	if err != nil {
		ours = ledger.Certify([]ledger.Statement{ledger.SignStatement(c.config.Key, members.Chain,
			c.config.Self, members.Epoch, s.Height, hash)})
	}
	theirs := []ledger.Statement{}
	for _, said := range c.collector.about(s.Height) {
		if said.Hash == s.Hash && said.Epoch == s.Epoch {
			theirs = append(theirs, said)
		}
	}
	if len(theirs) == 0 {
		theirs = append(theirs, s) // the member has said something else before
	}
	other := ledger.Certify(theirs)
	e := ledger.Contradiction(ours, other)
	c.found(e)
	if members.Check(other) == nil {
		c.config.Forked(e)
	}
}

// found keeps evidence.
func (c *Certifier) found(e *ledger.Evidence) {
	added, err := c.chain.PutEvidence(e)
	if err != nil {
		c.config.Logger.Error("evidence cannot be kept", "height", e.Height(), "members",
			e.Members(), "error", err)
	}
	if added {
		c.config.Found(e)
	}
}

// join makes the certificate of a block of this chain, if enough members have stated it.
func (c *Certifier) join(height ledger.Height) {
	_, hash, err := c.chain.Header(height)
	if err != nil {
		return
	}
	members := c.chain.MembersAt(height)
	var agreeing []ledger.Statement
	for _, s := range c.collector.about(height) {
		if s.Hash == hash && s.Epoch == members.Epoch && members.Keys[s.Member] != nil {
			agreeing = append(agreeing, s)
		}
	}
	if len(agreeing) < members.Majority() {
		return
	}
	c.put(ledger.Certify(agreeing))
}

// put keeps a certificate of this chain, if it holds.
func (c *Certifier) put(certificate *ledger.Certificate) {
	err := c.chain.PutCertificate(certificate)
	switch {
	case err == nil:
		c.collector.forget(certificate.Height)
		c.changes = slices.DeleteFunc(c.changes, func(height ledger.Height) bool {
			return height == certificate.Height
		})
	case errors.Is(err, ledger.ErrCertificate):
		c.config.Logger.Error("wrong certificate dropped", "height", certificate.Height, "error",
			err)
	default:
		c.config.Logger.Debug("certificate not kept", "height", certificate.Height, "error", err)
	}
}

// repeat states again what has no certificate yet, and asks another member for the certificates
// that are missing here.
func (c *Certifier) repeat() {
	missing, above := c.missing()
	if !missing {
		return
	}
	for _, height := range c.changes {
		for _, s := range c.collector.about(height) {
			if s.Member == c.config.Self {
				c.config.Send(s.Encode())
			}
		}
	}
	if c.mine != nil && c.signed > c.chain.CertifiedHeight() {
		c.config.Send(c.mine)
	}
	asking, cancel := context.WithTimeout(c.context, askTime)
	defer cancel()
	certificates, err := c.config.Fetch(asking, above)
	if err != nil {
		c.config.Logger.Debug("certificates cannot be fetched now", "above", above, "error", err)
		return
	}
	head := c.chain.AppendedHeight()
	for _, certificate := range certificates {
		if certificate.Height > head {
			return
		}
		c.check(certificate)
	}
}

// missing reports whether certificates are missing, and the height above which the first one is.
func (c *Certifier) missing() (missing bool, above ledger.Height) {
	if len(c.changes) > 0 && c.changes[0] <= c.durable() {
		return true, c.changes[0] - 1
	}
	certified := c.chain.CertifiedHeight()
	return certified < c.durable(), certified
}

// check takes a certificate that another node passed on. If it is of another block than a durable
// one here, and holds, then this node or its majority is on a fork.
func (c *Certifier) check(certificate *ledger.Certificate) {
	_, hash, err := c.chain.Header(certificate.Height)
	if err != nil {
		return
	}
	if hash == certificate.Hash {
		c.put(certificate)
		return
	}
	members := c.chain.MembersAt(certificate.Height)
	if certificate.Height > c.durable() || members.Check(certificate) != nil {
		c.config.Logger.Error("certificate of another block dropped", "height", certificate.Height,
			"theirs", certificate.Hash, "ours", hash)
		return
	}
	for _, s := range certificate.Statements() {
		if e := c.collector.add(s); e != nil {
			c.found(e)
		}
	}
	c.contradict(certificate.Statements()[0], hash)
}
