package certification

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	// changesMax bounds the changes without certificate that are stated at a time: the first ones,
	// with which a proof begins, and the last ones, whose members are still here.
	changesMax = 16
	// gapTries is how often other nodes are asked for certificates within a gap, before this one
	// states gapStatements blocks of it.
	gapTries, gapStatements = 4, 32
	// scanBytes bounds the certificates that are searched for gaps at a time.
	scanBytes = 256 << 10
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
	// Certificates returns certificates above a height, ascending, up to a number of bytes.
	Certificates(above ledger.Height, bytesMax int) ([]*ledger.Certificate, error)
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
	// questions counts the goroutines that ask other nodes: one at most. Their answers are nil if
	// there was none.
	questions sync.WaitGroup
	answers   chan []*ledger.Certificate

	mu       sync.Mutex
	limiters map[ledger.MemberIndex]*rate.Limiter

	// began is when the certifier was made, and progressed how long after that the chain last
	// progressed, in nanoseconds. calm is nil unless the goroutine looks at the chain soon anyway.
	began      time.Time
	progressed atomic.Int64
	calm       atomic.Pointer[calm]

	// The goroutine owns what follows.
	chain     Chain
	collector *collector
	// signed is the height of the highest block that this process signed, mine its statement.
	signed ledger.Height
	mine   []byte
	// head is the height at the last look, and moved when the chain had progressed last. Statements
	// up to judged were compared with durable blocks.
	head, judged ledger.Height
	moved        time.Time
	// changes are the heights of changes without a certificate, as of the membership's change at
	// changedAt.
	changes   []ledger.Height
	changedAt ledger.Height
	// stated are this node's statements of some of these changes; nil if it is no member there.
	stated map[ledger.Height][]byte
	// asking says that a question is under way, and turn counts them.
	asking bool
	turn   int
	// searched is the height up to which gaps between certificates were searched, and gap is the
	// one that was found, if any.
	searched ledger.Height
	gap      gap
}

// calm describes progress of a chain that can wait until the goroutine's timer expires. While
// blocks follow each other, the goroutine then wakes for few of them.
type calm struct {
	chain Chain
	// below is the lowest height at which there is something to do once it is durable.
	below ledger.Height
	// changedAt is the height of the last change of the members.
	changedAt ledger.Height
}

// holds reports whether the progress of the present chain can wait.
func (c *calm) holds(present Chain) bool {
	return c != nil && present == c.chain && present.MembershipHeight() == c.changedAt &&
		min(present.DurableHeight(), present.KnownDurable()) < c.below
}

// gap are two certified blocks, or the genesis and one, so far apart that blocks between them
// cannot be proven final.
type gap struct {
	above, to ledger.Height // to is 0 if there is no gap
	tries     int
}

// New makes a certifier. It takes input from now on, and works once Start is called.
func New(config Config) *Certifier {
	c := &Certifier{config: config, done: make(chan struct{}), wake: make(chan struct{}, 1),
		queue: make(chan heard, queueMax), answers: make(chan []*ledger.Certificate, 1),
		limiters: make(map[ledger.MemberIndex]*rate.Limiter), collector: newCollector(),
		began: time.Now()}
	c.context, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start starts the goroutine. Call it once, and Close afterwards.
func (c *Certifier) Start() { go c.run() }

// Close ends the goroutine and waits for its end.
func (c *Certifier) Close() {
	c.cancel()
	<-c.done
	c.questions.Wait()
}

// Progressed says that the chain grew, or that more of it is stored or durable.
func (c *Certifier) Progressed() {
	c.progressed.Store(int64(time.Since(c.began)))
	if c.calm.Load().holds(c.config.Chain()) {
		return
	}
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
		case <-rest.C:
			c.look()
		case certificates := <-c.answers:
			c.look()
			c.take(certificates)
		case <-repeat.C:
			c.look()
			c.repeat()
		}
		if left := restAfter - time.Since(c.moved); left > 0 {
			rest.Reset(left)
			c.calmDown()
		}
	}
}

// calmDown lets progress wait until the chain's rest is due, but for the next checkpoint, for
// changes of the members that are not durable yet, and for blocks of which statements are held.
func (c *Certifier) calmDown() {
	below := c.judged + CheckpointEvery - c.judged%CheckpointEvery
	for _, height := range slices.Concat(c.collector.heights(c.judged+1), c.unstated()) {
		if height > c.judged {
			below = min(below, height)
		}
	}
	c.calm.Store(&calm{chain: c.chain, below: below, changedAt: c.changedAt})
}

// look signs what is due, and certifies held statements of blocks that are here now.
func (c *Certifier) look() {
	c.calm.Store(nil) // progress that this look does not see has to wake the goroutine
	chain := c.config.Chain()
	if chain != c.chain {
		c.chain, c.signed = chain, chain.CertifiedHeight()
		c.head, c.judged, c.searched, c.gap = 0, 0, 0, gap{}
		c.stated = make(map[ledger.Height][]byte)
		c.findChanges()
	} else if chain.MembershipHeight() != c.changedAt {
		c.findChanges()
	}
	head, before := chain.AppendedHeight(), c.head
	if head != c.head {
		c.head, c.moved = head, c.began.Add(time.Duration(c.progressed.Load()))
	}
	durable := c.durable()
	rests := durable == head && time.Since(c.moved) >= restAfter
	for _, height := range due(c.signed, durable, rests, c.unstated()) {
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

// open returns the changes without certificate that this node states.
func (c *Certifier) open() []ledger.Height {
	if len(c.changes) <= changesMax {
		return c.changes
	}
	return slices.Concat(c.changes[:changesMax/2], c.changes[len(c.changes)-changesMax/2:])
}

// unstated returns those of them that this node has not stated yet.
func (c *Certifier) unstated() []ledger.Height {
	if len(c.changes) == 0 {
		return nil
	}
	open := c.open()
	maps.DeleteFunc(c.stated, func(height ledger.Height, _ []byte) bool {
		return !slices.Contains(open, height)
	})
	return slices.DeleteFunc(slices.Clone(open), func(height ledger.Height) bool {
		_, stated := c.stated[height]
		return stated
	})
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
	changes := slices.Contains(c.changes, height)
	if err != nil || members.Keys[c.config.Self] == nil {
		c.signed = max(c.signed, height)
		if changes {
			c.stated[height] = nil
		}
		return
	}
	s := ledger.SignStatement(c.config.Key, members.Chain, c.config.Self, members.Epoch, height,
		hash)
	encoded := s.Encode()
	if height > c.signed {
		c.signed, c.mine = height, encoded
	}
	if changes {
		c.stated[height] = encoded
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
	key := chain.MemberKey(h.from)
	if key == nil {
		return // it joined in a block that this node does not have yet
	}
	if err := s.Verify(chain.GenesisHash(), key); err != nil {
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

// put keeps a certificate of this chain, if it holds. It reports whether it may hold.
func (c *Certifier) put(certificate *ledger.Certificate) bool {
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
		return false
	default:
		c.config.Logger.Debug("certificate not kept", "height", certificate.Height, "error", err)
	}
	return true
}

// repeat states again what has no certificate yet, and asks another node for certificates that are
// missing here.
func (c *Certifier) repeat() {
	for _, height := range c.open() {
		if statement := c.stated[height]; statement != nil {
			c.config.Send(statement)
		}
	}
	if c.mine != nil && c.signed > c.chain.CertifiedHeight() {
		c.config.Send(c.mine)
	}
	if c.asking {
		return
	}
	if c.gap.to == 0 {
		c.search()
	}
	above, missing := c.missing()
	if !missing {
		return
	}
	c.asking = true
	c.questions.Go(func() {
		asking, cancel := context.WithTimeout(c.context, askTime)
		defer cancel()
		certificates, err := c.config.Fetch(asking, above)
		if err != nil {
			c.config.Logger.Debug("certificates cannot be fetched now", "above", above, "error",
				err)
		}
		c.answers <- certificates
	})
}

// missing returns the height above which to ask for certificates next. It takes turns: what is
// missing below may be missing everywhere, and must not hold up what is missing at the end.
func (c *Certifier) missing() (above ledger.Height, missing bool) {
	durable, certified := c.durable(), c.chain.CertifiedHeight()
	var below []ledger.Height
	for _, height := range c.open() {
		if height <= durable {
			below = append(below, height-1)
		}
	}
	if c.gap.to > 0 {
		below = append(below, c.gap.above)
	}
	c.turn++
	if certified < durable && (len(below) == 0 || c.turn%2 == 0) {
		return certified, true
	}
	if len(below) == 0 {
		return 0, false
	}
	return below[c.turn/2%len(below)], true
}

// search looks for the next gap between certificates. This node may have passed by the certificates
// of blocks that it fetched, or the members did not certify blocks then.
func (c *Certifier) search() {
	certificates, err := c.chain.Certificates(c.searched, scanBytes)
	if err != nil || len(certificates) == 0 {
		c.searched = 0
		return
	}
	for _, certificate := range certificates {
		if certificate.Height-c.searched > ledger.MaxFinalityHeaders {
			c.gap = gap{above: c.searched, to: certificate.Height}
			return
		}
		c.searched = certificate.Height
	}
}

// take takes the certificates that another node passed on. It stops at one that does not hold.
func (c *Certifier) take(certificates []*ledger.Certificate) {
	c.asking = false
	head := c.chain.AppendedHeight()
	for _, certificate := range certificates {
		if c.context.Err() != nil || certificate.Height > head || !c.check(certificate) {
			break
		}
	}
	if c.gap.to > 0 {
		c.fill()
	}
}

// fill finds out whether certificates in the gap arrived. If they do not, no node may have them:
// then the members state some blocks of it, the last ones first, whose members are still here.
func (c *Certifier) fill() {
	next, err := c.chain.Certificates(c.gap.above, 1)
	if err != nil || len(next) == 0 || next[0].Height < c.gap.to {
		c.gap = gap{} // the search goes on from here
		return
	}
	if c.gap.tries++; c.gap.tries < gapTries {
		return
	}
	const step = ledger.MaxFinalityHeaders
	height := (c.gap.to - 1) / step * step
	for i := 0; i < gapStatements && height > c.gap.above; i, height = i+1, height-step {
		c.sign(height)
	}
	c.searched, c.gap = c.gap.to, gap{}
}

// check takes a certificate that another node passed on. If it is of another block than a durable
// one here, and holds, then this node or its majority is on a fork. It reports whether the
// certificate may hold.
func (c *Certifier) check(certificate *ledger.Certificate) bool {
	_, hash, err := c.chain.Header(certificate.Height)
	if err != nil {
		return true
	}
	if hash == certificate.Hash {
		return c.certified(certificate.Height) || c.put(certificate)
	}
	members := c.chain.MembersAt(certificate.Height)
	if certificate.Height > c.durable() || members.Check(certificate) != nil {
		c.config.Logger.Error("certificate of another block dropped", "height", certificate.Height,
			"theirs", certificate.Hash, "ours", hash)
		return false
	}
	for _, s := range certificate.Statements() {
		if e := c.collector.add(s); e != nil {
			c.found(e)
		}
	}
	c.contradict(certificate.Statements()[0], hash)
	return false
}
