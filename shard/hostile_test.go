package shard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// FuzzMemberStep feeds a member messages of its peers that decode but otherwise say anything,
// between inputs of a correct driver. The member may wait, follow or stop with an error that names
// the contradiction. It must not panic, and must not ask for anything that no driver can do.
func FuzzMemberStep(f *testing.F) {
	for seed := range uint64(32) {
		f.Add(choicesOf(seed, 512))
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) <= 1<<14 {
			newHostile(t, choices).run()
		}
	})
}

// TestMemberTakesAnything is FuzzMemberStep with choices from seeds.
func TestMemberTakesAnything(t *testing.T) {
	t.Parallel()
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newHostile(t, choicesOf(seed, 2048)).run() })
	}
}

func choicesOf(seed uint64, size int) []byte {
	random := rand.New(rand.NewPCG(seed, 1))
	choices := make([]byte, size)
	for i := range choices {
		choices[i] = byte(random.UintN(256))
	}
	return choices
}

// strictChain is a chain that fails the test if it is asked for blocks that it does not have.
type strictChain struct {
	*bookChain
	t *testing.T
}

func (c strictChain) Hash(height uint64) ([32]byte, error) {
	if height > c.height {
		c.t.Fatalf("the member wants the hash of block %d, and the head is %d", height, c.height)
	}
	return c.bookChain.Hash(height)
}

func (c strictChain) MembershipAt(height uint64) (generation.Membership, uint64) {
	if height > c.height {
		c.t.Fatalf("the member wants the members at block %d, and the head is %d", height, c.height)
	}
	return c.bookChain.MembershipAt(height)
}

// hostile is a member among peers that say anything.
type hostile struct {
	t       *testing.T
	choices []byte
	chain   *bookChain
	member  *Member
	ran     generation.Run
	engine  bool
	answers []Input
	// keep is the height to keep, if blocks are being set aside.
	keep uint64
	// last is the Prepare or Accept that the member sent last.
	last *generation.Message
}

func newHostile(t *testing.T, choices []byte) *hostile {
	h := &hostile{t: t, choices: choices}
	h.chain = &bookChain{height: 6, stored: 6, durable: 4, membership: generation.Membership{
		Members: []order.ServerID{0, 1, 2},
	}}
	var err error
	h.member, err = New(Config{
		Self: 0, Disk: Disk{ID: diskOf(0), Original: true}, Chain: strictChain{h.chain, t},
		Timing: DefaultTiming(), Ticket: 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// choose returns a number below n, or 0 once the choices are used up.
func (h *hostile) choose(n int) int {
	if len(h.choices) == 0 {
		return 0
	}
	choice := int(h.choices[0]) % n
	h.choices = h.choices[1:]
	return choice
}

func (h *hostile) chance(of int) bool { return h.choose(of) == 1 }

// number returns mostly small numbers, and sometimes the largest there is.
func (h *hostile) number() uint64 {
	if h.chance(24) {
		return ^uint64(0) - uint64(h.choose(2))
	}
	return uint64(h.choose(10))
}

func (h *hostile) server() order.ServerID {
	if h.chance(24) {
		return ^order.ServerID(0)
	}
	return order.ServerID(h.choose(4))
}

// servers returns a list that is mostly sorted.
func (h *hostile) servers() []order.ServerID {
	if h.chance(3) {
		return []order.ServerID{0, 1, 2}
	}
	var servers []order.ServerID
	for range h.choose(5) {
		servers = append(servers, h.server())
	}
	if !h.chance(8) {
		slices.Sort(servers)
		servers = slices.Compact(servers)
	}
	return servers
}

func (h *hostile) runNumber() generation.Run {
	return generation.NewRun(generation.Generation(h.number()), uint16(h.number()))
}

func (h *hostile) hash(height uint64) [32]byte { return hashAt(height, byte(h.choose(3)/2)) }

func (h *hostile) disk() generation.DiskID { return diskOf(h.choose(4)) }

func (h *hostile) head() generation.Head {
	height := h.number()
	return generation.Head{
		Generation: generation.Generation(h.number()), Height: height, Hash: h.hash(height),
		Round: order.Round(h.number()),
	}
}

func (h *hostile) ballot() generation.Ballot {
	return generation.Ballot{Number: h.number(), Proposer: h.server(), Disk: h.disk()}
}

func (h *hostile) tailRound(round order.Round) generation.TailRound {
	return generation.TailRound{
		Round: round, Epoch: order.Epoch(h.number()), Reliable: h.chance(2), Origins: h.servers(),
		Removed: h.servers(), Content: [32]byte{byte(h.choose(4)), 9},
	}
}

func (h *hostile) decision() *generation.Decision {
	d := &generation.Decision{
		Generation: generation.Generation(h.number()), Base: h.head(), Members: h.servers(),
	}
	for _, server := range d.Members {
		d.Disks = append(d.Disks, diskOf(int(server&3)))
	}
	for i := range h.choose(3) {
		d.Tail = append(d.Tail, h.tailRound(d.Base.Round+order.Round(i)+1))
	}
	return d
}

func (h *hostile) maybeDecision() *generation.Decision {
	if h.chance(2) {
		return h.decision()
	}
	return nil
}

func (h *hostile) membership() generation.Membership {
	m := generation.Membership{Number: h.number(), Members: h.servers()}
	if h.chance(3) {
		for range m.Members {
			m.Disks = append(m.Disks, h.disk())
		}
	}
	return m
}

func (h *hostile) report() generation.Report {
	r := generation.Report{
		Head: h.head(), Disk: h.disk(), Original: h.chance(2), Durable: h.number(),
		Perhaps:   h.chance(4),
		PerhapsTo: h.number(), Run: h.runNumber(), Restarted: h.chance(2), Shard: h.membership(),
		Membership: h.membership(),
	}
	round := order.Round(h.number())
	for i := range h.choose(3) {
		r.Votes = append(r.Votes, generation.Vote{
			TailRound: h.tailRound(round + order.Round(i)), Confirmed: h.chance(2),
			Voters: h.servers(),
		})
	}
	for range h.choose(3) {
		r.Known = append(r.Known, generation.KnownVote{
			Voter: h.server(), Round: order.Round(h.number()), Epoch: order.Epoch(h.number()),
			Reliable: h.chance(2), Confirmed: h.chance(2), Origins: h.servers(),
		})
	}
	for range h.choose(3) {
		r.Former = append(r.Former, generation.Former{Membership: h.membership(),
			Until: h.number()})
	}
	return r
}

func (h *hostile) synod() (generation.Message, error) {
	m := generation.Message{
		Kind: generation.Kind(1 + h.choose(6)), Generation: generation.Generation(h.number()),
		Ballot: h.ballot(), Regroup: h.chance(2), Accepted: h.ballot(), Value: h.maybeDecision(),
		Known: h.maybeDecision(), Holders: h.servers(), Working: generation.Generation(h.number()),
	}
	own := h.member.synod.Next()
	if h.chance(2) {
		m.Generation = own
	}
	switch m.Kind {
	case generation.KindPromise:
		m.Report = h.report()
		if sent := h.last; sent != nil && h.chance(2) {
			m.Generation, m.Ballot = sent.Generation, sent.Ballot
		}
	case generation.KindAccepted:
		m.Disk, m.Original = h.disk(), h.chance(2)
		if sent := h.last; sent != nil && h.chance(2) {
			m.Generation, m.Ballot = sent.Generation, sent.Ballot
		}
	case generation.KindDecided, generation.KindAccept:
		if m.Value != nil && h.chance(2) {
			m.Value.Generation, m.Generation = own, own
		}
	}
	return generation.DecodeMessage(m.Encode(nil))
}

func (h *hostile) announcement() (Announcement, error) {
	ordered := h.number()
	a := Announcement{
		Mode: Mode(1 + h.choose(5)), Stalled: h.chance(4), Removed: h.servers(),
		Follows: h.runNumber(),
		Decided: generation.Generation(h.number()), Changes: h.number(),
		Heights: Heights{ordered, h.number(), h.number()}, Tip: h.hash(ordered), Disk: h.disk(),
		Learner: h.chance(4), Full: h.chance(4), Absent: h.number(), Clock: h.number(),
	}
	if h.chance(2) {
		a.Removed = nil
	}
	if !h.chance(3) {
		base := h.number()
		if h.chance(2) {
			base = h.chain.height
		}
		a.Group = Group{
			Run: h.runNumber(), First: order.Round(h.number()), Base: base, BaseHash: h.hash(base),
			Members: h.servers(),
		}
		for range h.choose(3) {
			a.Group.Entrants = append(a.Group.Entrants, Entrant{h.server(), h.number(), h.disk()})
		}
		if h.chance(2) {
			entrant := Entrant{Server: 0, Ticket: h.member.ticket, Disk: diskOf(0)}
			a.Group.Entrants = append(a.Group.Entrants, entrant)
			if d := h.member.synod.Decided(); d != nil {
				a.Group.Run = generation.NewRun(d.Generation, uint16(1+h.choose(4)))
			}
		}
	}
	return DecodeAnnouncement(a.Encode(nil))
}

func (h *hostile) wish() (Wish, error) {
	w := Wish{Kind: WishKind(1 + h.choose(3)), Number: h.number(), Disk: h.disk()}
	return DecodeWish(w.Encode(nil))
}

// run ends when the choices are used up, or when the member ends.
func (h *hostile) run() {
	for len(h.choices) > 0 && h.member.end == nil {
		if len(h.answers) > 0 && h.chance(2) {
			answer := h.answers[0]
			h.answers = h.answers[1:]
			if _, aside := answer.(WasSetAside); aside {
				answer = h.setAside()
			}
			h.step(answer)
			continue
		}
		from := order.ServerID(1 + h.choose(3)) // one of them left a moment ago
		switch h.choose(8) {
		case 0, 1:
			if a, err := h.announcement(); err == nil {
				h.step(AnnouncementReceived{from, a})
			}
		case 2, 3:
			if m, err := h.synod(); err == nil {
				h.step(SynodReceived{from, m})
			}
		case 4:
			if w, err := h.wish(); err == nil {
				h.step(WishReceived{from, w})
			}
		case 5:
			h.step(Linked{Server: from, Up: !h.chance(4), Restarted: h.chance(8)})
		case 6:
			h.engineSays()
		default:
			h.step(Tick{})
		}
	}
	for _, allowed := range []error{nil, ErrFork, generation.ErrTwoDecisions} {
		if errors.Is(h.member.end, allowed) {
			return
		}
	}
	h.t.Fatalf("the member ended with %v", h.member.end)
}

// engineSays makes the engine of the current run report.
func (h *hostile) engineSays() {
	g := h.member.group
	if g == nil || !h.engine {
		return
	}
	switch h.choose(5) {
	case 0:
		h.step(EonEnded{
			Run: g.Run, Members: g.Members, Entrants: []Entrant{{h.server(), h.number(), h.disk()}},
			Benched: []order.ServerID{h.server()}, Regroup: h.chance(8),
		})
	case 1:
		h.step(EngineHalted{Run: g.Run, Reason: "it says so"})
	case 2:
		h.chain.height++
		h.chain.stored = h.chain.height
	default:
		h.step(Progressed{
			Run: g.Run, Waiting: h.choose(40), Outside: h.chance(4), Relayed: h.chance(4),
			Stuck: h.chance(4), Awaited: []order.ServerID{1},
		})
	}
}

// step gives one input, and does what the member wants as a driver would.
func (h *hostile) step(input Input) {
	h.member.Step(input)
	for range 100 {
		effects := h.member.Ready()
		if len(effects) == 0 {
			return
		}
		for _, effect := range effects {
			if answer := h.carryOut(effect); answer != nil {
				h.member.Step(answer)
			}
		}
	}
	h.t.Fatalf("the member does not come to rest after %+v", input)
}

func (h *hostile) carryOut(effect Effect) Input {
	switch e := effect.(type) {
	case Save:
		if h.chance(12) {
			return SaveFailed{Reason: "the disk is full"}
		}
		return Saved{}
	case SendSynod:
		if e.Message.Kind == generation.KindPrepare || e.Message.Kind == generation.KindAccept {
			h.last = &e.Message
		}
	case Start:
		h.start(&e.Group)
	case Freeze:
		h.engine = false
		h.answers = append(h.answers, Settled{})
	case Fetch:
		h.answers = append(h.answers, h.fetched(e))
	case FetchRound:
		h.answers = append(h.answers, RoundHeld{e.ID})
	case SetAside:
		if e.Keep >= h.chain.height {
			h.t.Fatalf("to keep %d of %d blocks", e.Keep, h.chain.height)
		}
		if e.Keep < h.chain.durable {
			h.t.Fatalf("to keep %d blocks, and %d are durable", e.Keep, h.chain.durable)
		}
		h.keep = e.Keep
		h.answers = append(h.answers, WasSetAside{})
	case Replay:
		h.chain.height += uint64(len(e.Rounds))
		h.answers = append(h.answers, Replayed{})
	case KnowDurable:
		if e.Height > h.chain.height {
			h.t.Fatalf("block %d is durable, and the head is %d", e.Height, h.chain.height)
		}
		h.chain.durable = max(h.chain.durable, e.Height)
	}
	return nil
}

// setAside sets blocks aside at last, unless they became durable meanwhile.
func (h *hostile) setAside() Input {
	if h.keep < h.chain.durable {
		return WasSetAside{Durable: true}
	}
	h.chain.height, h.chain.stored = h.keep, min(h.chain.stored, h.keep)
	return WasSetAside{}
}

// fetched returns the answer to a Fetch.
func (h *hostile) fetched(e Fetch) Input {
	fetched := Fetched{Reached: -1}
	switch h.choose(3) {
	case 0:
		if to := e.From[0].Height; to > h.chain.height && to < 100 &&
			(e.Limit == 0 || e.Limit >= to) {
			h.chain.height, h.chain.stored = to, to
			fetched.Reached = 0
		}
	case 1:
		if h.chain.height > 0 {
			fetched.Forked, fetched.Common = true, h.chain.height-1
		}
	}
	return fetched
}

// start checks what the driver's Activate and the engine require.
func (h *hostile) start(g *Group) {
	if h.engine && g.Run != h.ran+1 || g.Run <= h.ran {
		h.t.Fatalf("run %s starts after %s", runText(g.Run), runText(h.ran))
	}
	unknown := slices.ContainsFunc(g.Members, func(server order.ServerID) bool {
		return !h.chain.membership.Includes(server)
	})
	if unknown || !g.Includes(0) || len(g.Members) < h.chain.membership.Quorum() ||
		!slices.IsSorted(g.Members) || len(slices.Compact(slices.Clone(g.Members))) <
		len(g.Members) {
		h.t.Fatalf("a run of %v among %v", g.Members, h.chain.membership.Members)
	}
	if g.Base != h.chain.height || g.First == 0 {
		h.t.Fatalf("a run from round %d after block %d, and the head is %d", g.First, g.Base,
			h.chain.height)
	}
	h.ran, h.engine = g.Run, true
}
