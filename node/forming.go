package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/control"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	graceTicks    = 15 // a shard's first start waits twice that for the last to come up
	patienceTicks = 10
	// baseTimeout is how long a node waits for the blocks up to a generation's base before it asks for another generation.
	baseTimeout = 15 * time.Second
)

// errUnwritten says that the disk has no space for what this node would promise. It promises nothing then, and tries again.
var errUnwritten = errors.New("the disk has no space for what this node would promise")

// forming is the supervisor's part in deciding the next generation.
type forming struct {
	pending   *generation.Decision // decided with this node, not activated yet
	pendingAt time.Time
	// vowed is the last generation that this very process promised: all that is sent in it comes here.
	vowed     generation.Generation
	endedIn   generation.Generation // the last generation that ended in order here
	unwritten bool                  // what the synod wants on disk is not there, because that is full
	undecided *generation.Decision  // heard while unwritten: adopted when all is written
	wanted    *generation.Head      // the base that the synod waits for
	fetching  bool
	fetched   chan fetchedContent
	fetchTurn int
}

// fetchedContent is what a peer sent, or nil with the reason.
type fetchedContent struct {
	content []byte
	err     error
}

// begetSynod makes the synod from what the disk holds.
func (s *supervisor) begetSynod() error {
	state, err := s.readState()
	if err != nil {
		return err
	}
	s.synod, err = generation.NewSynod(generation.Config{
		Self: s.node.home.Self, State: state, Original: true, Report: s.holdings(), Grace: graceTicks, Patience: patienceTicks,
	})
	if err != nil {
		return err
	}
	if state.Decided != nil {
		s.decided = state.Decided.Generation
	}
	held, err := s.contents.kept()
	for _, hash := range held {
		s.synod.Holds(hash)
	}
	return err
}

func (s *supervisor) readState() (generation.State, error) {
	path := s.node.home.Generation()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		var disk generation.DiskID
		if _, err := rand.Read(disk[:]); err != nil {
			return generation.State{}, err
		}
		state := generation.State{Disk: disk}
		return state, home.WriteFile(path, state.Encode(), 0o644)
	}
	if err != nil {
		return generation.State{}, err
	}
	state, err := generation.DecodeState(text)
	if err != nil {
		return generation.State{}, fmt.Errorf("%w: %s; a node without its promises would endanger the chain: move %s away and start again, the node comes back as a new one", err, path, s.node.home.Dir)
	}
	return state, nil
}

// holdings is what the node holds, as the synod wants it. It is for when nothing is executed.
func (s *supervisor) holdings() generation.Report {
	head := s.node.Store().Head()
	return generation.Report{Membership: s.membership(), Head: generation.Head{
		Generation: s.followed, Height: uint64(head.Height), Hash: head.Hash, Round: max(s.node.pipeline.Round(), order.Round(head.Round)),
	}}
}

// report tells the synod what the node holds, while it does not order and no blocks come: all of it is on the disk then.
func (s *supervisor) report() error {
	if s.at() != nil || s.settling.active || s.catching {
		return nil
	}
	if heights, _ := s.node.pipeline.Heights(); heights.Stored < heights.Ordered {
		if err := s.node.pipeline.Sync(); err != nil {
			return err
		}
	}
	s.synod.Report(s.holdings())
	return nil
}

func (s *supervisor) onSynod(from rdmanet.Peer, payload []byte) {
	server, known := s.isPeer(from)
	if !known {
		return
	}
	message, err := generation.DecodeMessage(payload)
	if err != nil {
		s.node.logger.Error("message dropped", "peer", from, "error", err)
		return
	}
	s.mu.Lock()
	if len(s.inbox) < inboxMax { // what is lost is said again
		s.inbox = append(s.inbox, letter{server, message})
	}
	s.mu.Unlock()
	s.announceSoon()
}

// tickSynod passes time in the synod where a next generation may be called for: this node does not order, or gets nowhere, a majority can be heard, and nobody says that the present
// one gets on. Who promises a later generation cannot enter the present one.
func (s *supervisor) tickSynod() {
	s.mu.Lock()
	works := s.group != nil && !s.stalled
	s.mu.Unlock()
	waits := s.pending != nil && time.Since(s.pendingAt) < baseTimeout
	if works || waits || s.settling.active || s.next != nil || !s.majorityHeard() || s.othersOrder() {
		return
	}
	s.synod.Tick()
}

// othersOrder tells whether a member says that the generation that was decided last gets on.
func (s *supervisor) othersOrder() bool {
	d := s.synod.Decided()
	if d == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := generation.Run(0)
	if s.group != nil {
		at = s.group.run // who is in an earlier eon did not follow into this one
	}
	for server, h := range s.heard {
		if h.orders() && s.recent(server, h) && h.run.Generation() == d.Generation && h.run >= at && h.run.Generation() > s.endedIn {
			return true
		}
	}
	return false
}

// majorityHeard tells whether a majority of the chain's members can be heard, this node among them.
func (s *supervisor) majorityHeard() bool {
	membership := s.node.Store().Membership()
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for i := range membership.Members {
		server := order.ServerID(membership.Members[i].Index)
		if h, known := s.heard[server]; server == s.node.home.Self || known && s.recent(server, h) {
			count++
		}
	}
	return count >= membership.Majority()
}

// carryOut does what the synod wants: save, send, fetch, adopt.
func (s *supervisor) carryOut() error {
	for {
		if err := s.synod.Err(); err != nil {
			return err
		}
		if err := s.report(); err != nil {
			return err
		}
		if err := s.fetchWanted(); err != nil {
			return err
		}
		ready := s.synod.Ready()
		ready.MustSave = ready.MustSave || s.unwritten
		if ready.Decided == nil {
			ready.Decided = s.undecided
		}
		if !ready.MustSave && len(ready.Messages) == 0 && ready.Decided == nil {
			return nil
		}
		if ready.MustSave {
			err := home.WriteFile(s.node.home.Generation(), ready.State.Encode(), 0o644)
			if errors.Is(err, syscall.ENOSPC) {
				if !s.unwritten {
					s.node.logger.Error("this node takes no part in forming a group: free some space, it comes back by itself", "error", err)
				}
				// The messages count as lost: the synod says again what is needed.
				s.unwritten, s.undecided = true, ready.Decided
				return errUnwritten
			}
			if err != nil {
				return fmt.Errorf("writing what this node promised: %w", err)
			}
			s.unwritten = false
			if ready.State.Promised != (generation.Ballot{}) {
				s.vowed = max(s.vowed, ready.State.Instance)
			}
		}
		s.undecided = nil
		for _, envelope := range ready.Messages {
			if err := s.node.control.Send(s.node.peers.id(envelope.To), control.KindGeneration, envelope.Message.Encode(nil)); err != nil {
				s.node.logger.Debug("not sent", "to", envelope.To, "error", err)
			}
		}
		if ready.Decided != nil {
			s.adopt(*ready.Decided)
		}
	}
}

// fetchWanted sees to what the synod wants on this disk: rounds are fetched here, blocks by following (target).
func (s *supervisor) fetchWanted() error {
	if s.at() != nil || s.settling.active {
		return nil
	}
	all := s.synod.Wanted()
	for i := range all {
		if all[i].Base != nil {
			s.wanted = all[i].Base
		}
	}
	if s.wanted != nil {
		if held, err := s.holdsBase(s.wanted); err != nil {
			return err
		} else if held {
			s.synod.Holds(s.wanted.Hash)
			s.wanted = nil
		}
	}
	for _, wanted := range all {
		if wanted.Base != nil {
			continue
		}
		if content := s.contents.get(wanted.ID()); content != nil {
			if err := s.keep(content); err != nil {
				return err
			}
			continue
		}
		from := slices.DeleteFunc(slices.Clone(wanted.From), func(server order.ServerID) bool { return server == s.node.home.Self || s.node.peers.id(server) == "" })
		if s.fetching || len(from) == 0 {
			continue
		}
		s.fetching = true
		s.fetchTurn++
		peer, id := s.node.peers.id(from[s.fetchTurn%len(from)]), wanted.ID()
		s.workers.Go(func() {
			content, err := s.node.exchange.FetchContent(s.context, peer, id)
			s.fetched <- fetchedContent{content, err}
		})
	}
	return nil
}

// keep has the disk hold a round and tells the synod.
func (s *supervisor) keep(content []byte) error {
	err := s.contents.keep(content)
	if errors.Is(err, syscall.ENOSPC) {
		return errUnwritten
	}
	if err != nil {
		return err
	}
	s.synod.Holds(s.contents.remember(content))
	return nil
}

func (s *supervisor) onFetched(f fetchedContent) {
	if f.err != nil {
		s.node.logger.Debug("a round could not be fetched; trying again", "error", f.err)
		return
	}
	if err := ignoreUnwritten(s.keep(f.content)); err != nil {
		s.node.fail(err)
	}
}

// holdsBase tells whether the blocks up to a base are on this disk.
func (s *supervisor) holdsBase(base *generation.Head) (bool, error) {
	heights, _ := s.node.pipeline.Heights()
	if s.catching || uint64(heights.Stored) < base.Height {
		return false, nil
	}
	_, hash, err := s.node.Store().Header(ledger.Height(base.Height))
	return hash == base.Hash, err
}

// target is the base that this node has to get to, nil for none.
func (s *supervisor) target() *generation.Head {
	if s.pending != nil {
		return &s.pending.Base
	}
	for _, wanted := range s.synod.Wanted() {
		if wanted.Base != nil {
			return wanted.Base
		}
	}
	return nil
}

func (s *supervisor) adopt(d generation.Decision) {
	s.node.logger.Info("generation decided", "generation", d.Generation, "base", d.Base.Height, "rounds", len(d.Tail), "members", d.Members)
	s.mu.Lock()
	s.decided = d.Generation
	g := s.group
	s.mu.Unlock()
	if g != nil && g.run.Generation() < d.Generation {
		// The shard went on without this node, which did not notice: its engine was cut off.
		s.stopEngine(0)
	}
	s.pending = nil
	alone := len(d.Members) == 1 // what nobody sends is not missed
	if d.Includes(s.node.home.Self) && (s.vowed == d.Generation || alone) && s.synod.Activated().Generation() < d.Generation {
		s.pending, s.pendingAt = &d, time.Now()
	}
}

// activate starts the engine of a decided generation as soon as this node holds its base, and executed its tail.
func (s *supervisor) activate() error {
	d := s.pending
	if d == nil || s.settling.active || s.catching || s.at() != nil {
		return nil
	}
	late := time.Since(s.pendingAt) > baseTimeout && s.othersOrder()
	if late || s.synod.Frozen(generation.NewRun(d.Generation, 0)) {
		s.pending, s.next = nil, nil // the others began without this node, which enters later; or a later generation is being decided
		return nil
	}
	if s.next != nil {
		return s.begin() // which the full disk held up
	}
	pipeline := s.node.pipeline
	tip := pipeline.Tip()
	base := ledger.Height(d.Base.Height)
	if tip.Height < base {
		return nil // follow fetches it
	}
	if _, hash, err := pipeline.Store().Header(base); err != nil {
		return err
	} else if hash != d.Base.Hash {
		return s.fallBack(base - 1) // where the chains part is found by whom it fetches from
	}
	if tip.Height > base {
		return s.fallBack(base)
	}
	tail := make([]order.Delivery, len(d.Tail))
	for i := range d.Tail {
		content := s.contents.get(d.Tail[i].Content)
		if content == nil {
			return nil // fetchWanted fetches it
		}
		var err error
		if tail[i], err = decodeRound(content); err != nil {
			return err
		}
	}
	for i := range tail {
		if err := pipeline.Replay(s.context, tail[i]); err != nil {
			if s.context.Err() != nil {
				return nil
			}
			return err
		}
	}
	head := s.node.Store().Head()
	next := &group{run: generation.NewRun(d.Generation, 0), first: d.First(), base: head.Height, baseHash: head.Hash, shard: s.membership()}
	for _, server := range d.Members {
		if next.shard.Includes(server) {
			next.members = append(next.members, server)
		}
	}
	if len(next.members) < next.shard.Quorum() || !slices.Contains(next.members, s.node.home.Self) {
		s.pending = nil // the tail changed the membership: the next generation goes on
		return nil
	}
	s.followed = max(s.followed, d.Generation)
	s.next = next
	return s.begin()
}

// fallBack sets the blocks past a height aside, which are not in what the majority goes on from.
func (s *supervisor) fallBack(keep ledger.Height) error {
	heights, _ := s.node.pipeline.Heights()
	if heights.Durable > keep {
		return fmt.Errorf("the shard goes on from block %d, but block %d is durable: a majority of the nodes has lost its disks; stop all nodes and compare them with `ledgerd verify`", keep, heights.Durable)
	}
	s.followed, s.fetchedTo = 0, 0
	err := s.node.setAside(s.context, keep)
	switch {
	case errors.Is(err, store.ErrDiskFull):
		s.node.logger.Error("no space to set blocks aside; trying again", "error", err)
		return nil
	case errors.Is(err, context.Canceled), s.context.Err() != nil:
		return nil
	}
	return err
}

// waitingFor says what a node without a group waits for.
func (s *supervisor) waitingFor() {
	membership := s.node.Store().Membership()
	if _, member := membership.Find(ledger.MemberIndex(s.node.home.Self)); !member {
		s.setMode(api.ModeStarting, "fetching the chain up to the block that let this node in")
		return
	}
	s.setMode(api.ModeStarting, "waiting for a majority of the %d nodes", len(membership.Members))
}
