package shard

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// prepareOf asks a member for a promise of generation 2.
func (m *Member) prepareOf(number uint64) {
	m.synod.Receive(1, generation.Message{Kind: generation.KindPrepare, Generation: 2,
		Ballot: generation.Ballot{Number: number, Proposer: 1}, Known: m.synod.Decided()})
	m.pump(false)
}

// took counts the saves and sends among a member's effects.
func (m *Member) took() (saves, sends int) {
	for _, e := range m.effects {
		switch e.(type) {
		case Save:
			saves++
		case SendSynod:
			sends++
		}
	}
	m.effects = nil
	return saves, sends
}

// A promise is saved before it is sent, and the blocks that it reports are on the disk.
func TestPromisesWaitForTheDisk(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	m.onSaved() // nothing was asked for
	m.onSaveFailed(SaveFailed{Reason: "the disk is full"})
	want := func(what string, saves, sends int) {
		t.Helper()
		if gotSaves, gotSends := m.took(); gotSaves != saves || gotSends != sends {
			t.Errorf("%s: %d saves, %d messages", what, gotSaves, gotSends)
		}
	}
	want("nothing", 0, 0)
	m.prepareOf(1)
	want("a promise", 1, 0)
	m.prepareOf(2)
	want("another one, while that is saved", 0, 0)
	if m.promised != 0 {
		t.Errorf("promised generation %d before it was saved", m.promised)
	}
	m.onSaved()
	m.pump(false)
	want("it is saved", 1, 1)
	m.onSaved()
	want("the other one is saved", 0, 1)
	if m.promised != 2 {
		t.Errorf("promised generation %d", m.promised)
	}
	m.prepareOf(2)
	want("the same promise again", 0, 1)
	chain.stored = 8
	m.pump(false)
	want("a block that is not on the disk, and no promise", 0, 0)
	m.prepareOf(2)
	want("the same promise, and a block that is not on the disk", 1, 0)
	m.onSaved()
	want("the block is on the disk", 0, 1)
	m.end = ErrFork
	m.prepareOf(3)
	want("the end", 0, 0)

	m, chain = newTestMember(t, 3)
	m.work(3, generation.NewRun(1, 0))
	chain.stored = 8
	m.prepareOf(1)
	want("a refusal of a member that works", 0, 1)

	// The disk is full. The member tries again after a while and keeps the decision until then.
	m, _ = newTestMember(t, 3)
	m.synod.Receive(1, generation.Message{Kind: generation.KindDecided, Value: decisionOf(2)})
	m.pump(false)
	want("a decision", 1, 0)
	m.onSaveFailed(SaveFailed{Reason: "the disk is full"})
	m.now += m.config.Timing.Announce - 1
	m.pump(true)
	want("the disk is full", 0, 0)
	m.now++
	m.pump(true)
	want("a while later", 1, 0)
	if m.onSaved(); m.promised != 0 || m.unsaved || m.view.Mode != Halted || m.synod.Next() != 3 {
		t.Errorf("promised %d, unsaved %v", m.promised, m.unsaved)
	}
}

// Empty rounds after the last block are reported, unless this process did not execute the last run
// on the disk.
func TestEmptyRoundsAreReported(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	chain.empty = 4
	want := func(when string, round, empty order.Round) {
		t.Helper()
		if got := m.holdings(); got.Head.Round != round || got.Empty != empty {
			t.Errorf("%s: round %d, %d empty, want %d and %d", when, got.Head.Round, got.Empty,
				round, empty)
		}
	}
	want("no run", 13, 4)
	m.synod.Working(generation.NewRun(1, 0), chain.membership)
	m.starting = groupOf(3, generation.NewRun(1, 0))
	want("a run that is about to start", 9, 0)
	m.start()
	want("a run", 13, 4)
	m.worked = 0
	want("a run of an earlier process", 9, 0)
}

// Fetch names the hash of a base, so that the driver can check that a peer has it.
func TestBasesAreFetchedWithTheirHash(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	chain.height = 8
	d := decisionOf(2)
	m.learns(d)
	m.pending = d
	m.follow()
	fetches := effectsOf[Fetch](m)
	if len(fetches) != 1 || fetches[0].Limit != 9 || fetches[0].Base != d.Base.Hash {
		t.Fatalf("%+v, want the blocks up to 9, and the hash of that", fetches)
	}
	for name, c := range map[string]struct {
		source  Source
		vouches bool
	}{
		"ends with it":          {Source{Height: 9, Hash: d.Base.Hash}, true},
		"ends with another":     {Source{Height: 9, Hash: hashAt(9, 1)}, false},
		"is further":            {Source{Height: 10, Hash: hashAt(10, 0)}, false},
		"is further, same hash": {Source{Height: 10, Hash: d.Base.Hash}, false},
	} {
		if fetches[0].Vouches(&c.source) != c.vouches {
			t.Errorf("%s: vouches %v", name, !c.vouches)
		}
	}
	if any := (&Fetch{Limit: 9}); !any.Vouches(&Source{Height: 10}) {
		t.Error("without a base, everybody does")
	}
}

// What a disk perhaps had is settled by a later generation, not by a member that lags in the last
// one.
func TestPerhapsIsSettledByALaterGeneration(t *testing.T) {
	t.Parallel()
	for number, settled := range map[generation.Generation]bool{1: false, 2: true} {
		m, chain := newTestMember(t, 3)
		m.synod.Working(generation.NewRun(1, 0), chain.membership)
		m.synod.Idle(m.holdings(), 0)
		m.perhaps = true
		p := m.peer(1)
		p.Mode, p.Group = Ordering, *groupOf(3, generation.NewRun(number, 0))
		m.job, m.from = fetching, []peer{*p}
		m.onFetched(Fetched{Reached: 0})
		if told := len(effectsOf[SettleDoubt](m)); m.perhaps == settled || (told == 1) != settled {
			t.Errorf(
				"reached a member in generation %d: perhaps more %v, the disk is told %d times",
				number, m.perhaps, told)
		}
	}
}

// A member about to begin a run tells its disk that the run settles what the disk perhaps had, but
// only if there was a doubt. The Save after it puts that on the disk.
func TestPerhapsIsSettledByTheRun(t *testing.T) {
	t.Parallel()
	for _, doubt := range []bool{false, true} {
		m, _ := newTestMember(t, 3)
		m.Ready()
		m.saving, m.perhaps = false, doubt
		m.begin(groupOf(3, generation.NewRun(1, 0)))
		effects := m.Ready()
		settled := slices.IndexFunc(effects, func(e Effect) bool {
			_, is := e.(SettleDoubt)
			return is
		})
		saved := slices.IndexFunc(effects, func(e Effect) bool { _, is := e.(Save); return is })
		if m.perhaps || saved < 0 || (settled >= 0) != doubt || settled > saved {
			t.Errorf("doubt %v: settled by effect %d, saved by effect %d", doubt, settled, saved)
		}
	}
}

// Other members learn that a change is durable only once this disk records it.
func TestEffectiveChangesAreSavedBeforeTheyAreTold(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	m.Ready()
	m.saving, m.flushed, m.news = false, 7, true
	chain.height, chain.stored, chain.changed, chain.durable = 9, 9, 9, 9
	told := func() (heights []uint64) {
		for _, e := range effectsOf[Announce](m) {
			heights = append(heights, e.Announcement.Heights.Durable)
		}
		return heights
	}
	if m.announce(); !slices.Equal(told(), []uint64{8}) {
		t.Error("told before the disk holds it")
	}
	m.pump(false)
	m.onSaved()
	if m.announce(); !slices.Equal(told(), []uint64{9}) {
		t.Error("not told once the disk holds it")
	}
}

// A promise reports the chain as it is after blocks were set aside, even if the member fetches
// others at once.
func TestPromiseAfterBlocksWereSetAside(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	m.Ready()
	m.saving, m.job = false, settingAside
	p := m.peer(1)
	p.Mode, p.Group, p.Heights, p.Tip = Ordering, *groupOf(3, generation.NewRun(2, 0)),
		Heights{Ordered: 12}, hashAt(12, 0)
	chain.height, chain.stored = 8, 8 // it was 9
	m.onSetAside(WasSetAside{})
	if m.advance(true); len(effectsOf[Fetch](m)) != 1 {
		t.Fatal("it does not fetch")
	}
	m.onSaved() // for its own attempt
	m.prepareOf(9)
	m.onSaved()
	promised := slices.DeleteFunc(effectsOf[SendSynod](m), func(sent SendSynod) bool {
		return sent.Message.Kind != generation.KindPromise || sent.To != 1
	})
	if len(promised) != 1 || promised[0].Message.Report.Head.Height != 8 {
		t.Errorf("it holds 8 blocks, and sends %+v", promised)
	}
}

// A member that waits to begin a decided generation says what it lacks.
func TestWhatADecisionWaitsFor(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	d := decisionOf(2, 1)
	m.learns(d)
	m.pending = d
	for height, want := range map[uint64]ReasonKind{8: Fetching, 9: FetchingRounds} {
		chain.height = height
		m.explain(nil)
		if got := m.View().Reason; got.Kind != want || got.Height != 9 {
			t.Errorf("at block %d: %+v, want kind %d", height, got, want)
		}
	}
	chain.height, m.job = 10, fetching // its earlier request is not answered yet
	if m.explain(nil); m.View().Reason.Kind != Between {
		t.Errorf("while it fetches: %+v", m.View().Reason)
	}
}

// decisionOf is a decision of all three members to go on from block 9, with rounds after it.
func decisionOf(g generation.Generation, contents ...byte) *generation.Decision {
	d := &generation.Decision{Generation: g, Base: generation.Head{Generation: 1, Height: 9,
		Round: 9, Hash: hashAt(9, 0)},
		Members: serversTo(3), Disks: []generation.DiskID{diskOf(0), diskOf(1), diskOf(2)}}
	for i, content := range contents {
		d.Tail = append(d.Tail, generation.TailRound{Round: order.Round(10 + i),
			Content: [32]byte{content}})
	}
	return d
}

// learns makes a member learn a decision, and discards what the synod wants done.
func (m *Member) learns(d *generation.Decision) {
	m.synod.Receive(1, generation.Message{Kind: generation.KindDecided, Value: d})
	m.synod.Ready()
}

// The synod gets reports of the chain while nothing changes it.
func TestChainIsReportedAtRest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*Member)
		reports bool
	}{
		"at rest":  {func(*Member) {}, true},
		"works":    {func(m *Member) { m.group = groupOf(3, 1) }, false},
		"starts":   {func(m *Member) { m.starting = groupOf(3, 1) }, false},
		"settles":  {func(m *Member) { m.job = settling }, false},
		"replays":  {func(m *Member) { m.job = replaying }, false},
		"fetching": {func(m *Member) { m.job = fetching }, false},
	} {
		m, chain := newTestMember(t, 3)
		c.change(m)
		chain.height = 10
		before := m.synod.AppendState(nil)
		m.report()
		if reports := !slices.Equal(before, m.synod.AppendState(nil)); reports != c.reports {
			t.Errorf("%s: reports %v", name, reports)
		}
	}
}

// A member that cannot be heard, or cannot save, is not waited for.
func TestWhoIsWaitedFor(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 5)
	m.peer(1).at = 0
	m.peer(2).Full = true
	m.tickSynod()
	if w := m.Waiting(); !slices.Equal(w.Unreachable, []order.ServerID{1, 2}) {
		t.Errorf("waits for %+v", w)
	}
}

// Rounds are fetched one after another. A missing one is asked for again with the next tick.
func TestRoundsAreFetched(t *testing.T) {
	t.Parallel()
	m, _ := newTestMember(t, 3)
	d := decisionOf(2, 10, 11)
	d.Base.Height, d.Base.Hash = 12, hashAt(12, 0)
	m.learns(d)
	want := func(what string, tick bool, round byte) {
		t.Helper()
		m.effects = nil
		m.fetchWanted(tick)
		var got []FetchRound
		for _, e := range m.effects {
			if f, is := e.(FetchRound); is {
				got = append(got, f)
			}
		}
		if round == 0 != (len(got) == 0) || round > 0 &&
			(len(got) != 1 || got[0].ID != [32]byte{round} ||
				!slices.Equal(got[0].From, []order.ServerID{1, 2})) {
			t.Errorf("%s: fetches %+v", what, got)
		}
	}
	want("the first", false, 10)
	want("while it is fetched", true, 0)
	m.onRoundHeld(RoundHeld{ID: [32]byte{99}})
	m.onRoundMissing(RoundMissing{ID: [32]byte{98}})
	want("another one came, and another is missing", true, 0)
	m.onRoundMissing(RoundMissing{ID: [32]byte{10}})
	want("the first is missing: the second", false, 11)
	m.onRoundMissing(RoundMissing{ID: [32]byte{11}})
	want("both are missing: a full disk would answer at once, again and again", false, 0)
	want("both are missing, and time passes", true, 10)
	m.onRoundHeld(RoundHeld{ID: [32]byte{10}})
	want("the first is here", false, 11)
	m.onRoundHeld(RoundHeld{ID: [32]byte{11}})
	want("all are here", true, 0)
}

func TestHoldsBase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Member)
		height uint64
		branch byte
		holds  bool
	}{
		"the tip":   {height: 9, holds: true},
		"before it": {height: 8, holds: true},
		"behind it": {height: 10},
		"another":   {height: 9, branch: 1},
		"fetches":   {change: func(m *Member) { m.job = fetching }, height: 9},
		"works":     {change: func(m *Member) { m.group = groupOf(3, 1) }, height: 9},
		"does not wait": {change: func(m *Member) {
			m.job = settling
			m.group = groupOf(3, 1)
		}, height: 9},
	} {
		m, _ := newTestMember(t, 3)
		if c.change != nil {
			c.change(m)
		}
		if got := m.holdsBase(&generation.Head{Height: c.height,
			Hash: hashAt(c.height, c.branch)}); got != c.holds {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A process takes part in a decision only if everything sent in its generation arrives here. The
// decision ends the run of an earlier generation.
func TestAdopt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*Member, *generation.Decision)
		pending  bool
		starting bool
		works    bool
	}{
		"promised by this process": {func(*Member, *generation.Decision) {}, true, false, false},
		"not promised": {func(m *Member, _ *generation.Decision) {
			m.promised = 0
		}, false, false, false},
		"another was promised": {func(m *Member, _ *generation.Decision) {
			m.promised = 3
		}, false, false, false},
		"promised before, too": {func(m *Member, _ *generation.Decision) {
			m.promisedBefore = 2
		}, false, false, false},
		"an earlier one was promised": {func(m *Member, _ *generation.Decision) {
			m.promisedBefore = 1
		}, true, false, false},
		"alone": {func(m *Member, d *generation.Decision) {
			m.promised, d.Members, d.Disks = 0, d.Members[:1], d.Disks[:1]
		}, true, false, false},
		"without this": {func(_ *Member, d *generation.Decision) {
			d.Members, d.Disks = d.Members[1:], d.Disks[1:]
		}, false, false, false},
		"with another disk": {func(_ *Member, d *generation.Decision) {
			d.Disks[0] = diskOf(9)
		}, false, false, false},
		"took part": {func(m *Member, _ *generation.Decision) {
			m.work(3, generation.NewRun(2, 0))
			m.group = nil
		}, false, false, false},
		"starts an earlier one": {func(m *Member, _ *generation.Decision) {
			m.starting = groupOf(3, generation.NewRun(1, 1))
		}, true, false, false},
		"starts it already": {func(m *Member, _ *generation.Decision) {
			m.starting = groupOf(3, generation.NewRun(2, 0))
		}, true, true, false},
		"works in an earlier one": {func(m *Member, _ *generation.Decision) {
			m.group = groupOf(3, generation.NewRun(1, 1))
		}, true, false, false},
		"works in it": {func(m *Member, _ *generation.Decision) {
			m.work(3, generation.NewRun(2, 0))
		}, false, false, true},
	} {
		m, _ := newTestMember(t, 3)
		m.learns(decisionOf(2))
		m.promised = 2
		d := decisionOf(2)
		c.change(m, d)
		m.adopt(*d)
		if (m.pending != nil) != c.pending || (m.starting != nil) != c.starting ||
			(m.group != nil) != c.works {
			t.Errorf("%s: pending %+v, starts %+v, works %+v", name, m.pending, m.starting, m.group)
		}
	}
}

// A decided generation begins once its base and tail are here, unless the others began long ago.
func TestActivate(t *testing.T) {
	t.Parallel()
	base := DefaultTiming().Base
	others := func(m *Member) { m.peer(1).Group = *groupOf(3, generation.NewRun(2, 0)) }
	type outcome struct {
		waits, starts, replays bool
		aside                  int // one more than the height to keep; 0 for none
	}
	for name, c := range map[string]struct {
		tail   []byte
		change func(*Member, *bookChain)
		want   outcome
	}{
		"at the base": {nil, func(*Member, *bookChain) {}, outcome{waits: true, starts: true}},
		"below it": {nil, func(_ *Member, c *bookChain) {
			c.height = 8
		}, outcome{waits: true}},
		"past it": {nil, func(_ *Member, c *bookChain) {
			c.height = 10
		}, outcome{waits: true, aside: 10}},
		"past it, with blocks of it": {nil, func(m *Member, c *bookChain) {
			c.height, m.fetchedIn = 10, 2
		}, outcome{}},
		"past it, and followed it": {nil, func(m *Member, c *bookChain) {
			c.height, m.followed = 10, 2
		}, outcome{}},
		"past it, and followed another": {nil, func(m *Member, c *bookChain) {
			c.height, m.followed = 10, 1
		}, outcome{waits: true, aside: 10}},
		"at the base, and followed it": {nil, func(m *Member, _ *bookChain) {
			m.followed = 2
		}, outcome{waits: true, starts: true}},
		"another block": {nil, func(_ *Member, c *bookChain) {
			c.branch, c.durable = 1, 0
		}, outcome{waits: true, aside: 9}},
		"late, without others": {nil, func(m *Member, _ *bookChain) {
			m.now += base + 1
		}, outcome{waits: true, starts: true}},
		"with others": {nil, func(m *Member, _ *bookChain) {
			others(m)
			m.pendingAt = m.now - base
		}, outcome{waits: true, starts: true}},
		"late, with others": {nil, func(m *Member, _ *bookChain) {
			others(m)
			m.pendingAt = m.now - base - 1
		}, outcome{}},
		"frozen": {nil, func(m *Member, _ *bookChain) {
			m.synod.Receive(1, generation.Message{Kind: generation.KindPrepare, Generation: 3,
				Ballot: generation.Ballot{Number: 1, Proposer: 1}, Known: m.synod.Decided()})
		}, outcome{}},
		"a learner": {nil, func(_ *Member, c *bookChain) {
			c.membership.Disks = []generation.DiskID{diskOf(9), {}, {}}
		}, outcome{}},
		"is over": {nil, func(m *Member, _ *bookChain) {
			m.end = ErrFork
		}, outcome{waits: true}},
		"fetches": {nil, func(m *Member, _ *bookChain) {
			m.job = fetching
		}, outcome{waits: true}},
		"works": {nil, func(m *Member, _ *bookChain) {
			m.group = groupOf(3, 1)
		}, outcome{waits: true}},
		"saves": {nil, func(m *Member, _ *bookChain) {
			m.saving = true
		}, outcome{waits: true}},
		"lacks a round": {[]byte{10, 11}, func(m *Member, _ *bookChain) {
			m.synod.Holds([32]byte{10})
		}, outcome{waits: true}},
		"has the rounds": {[]byte{10}, func(m *Member, _ *bookChain) {
			m.synod.Holds([32]byte{10})
		}, outcome{waits: true, replays: true}},
		"too few are left": {nil, func(m *Member, c *bookChain) {
			c.membership.Members = []order.ServerID{0, 1, 3, 4, 5}
		}, outcome{}},
		"just enough are left": {nil, func(m *Member, c *bookChain) {
			c.membership.Members = []order.ServerID{0, 1, 5}
		}, outcome{waits: true, starts: true}},
		"this is none any more": {nil, func(m *Member, c *bookChain) {
			c.membership.Members = []order.ServerID{1, 2}
		}, outcome{}},
	} {
		m, chain := newTestMember(t, 3)
		d := decisionOf(2, c.tail...)
		m.learns(d)
		m.pending, m.pendingAt = d, m.now
		c.change(m, chain)
		m.activate()
		got := outcome{waits: m.pending != nil, starts: m.starting != nil,
			replays: m.job == replaying}
		for _, e := range m.effects {
			switch e := e.(type) {
			case SetAside:
				got.aside = int(e.Keep) + 1
			case Replay:
				if len(e.Rounds) != len(c.tail) {
					t.Errorf("%s: replays %+v", name, e.Rounds)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got.starts && (m.starting.Run != generation.NewRun(2, 0) || m.starting.First != 10 ||
			m.followed != 2) {
			t.Errorf("%s: starts %+v, followed %d", name, m.starting, m.followed)
		}
	}
}

// The generation begins once its tail is executed.
func TestReplayed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Member)
		failed bool
		starts bool
	}{
		"done":            {func(*Member) {}, false, true},
		"failed":          {func(*Member) {}, true, false},
		"nothing pending": {func(m *Member) { m.pending = nil }, false, false},
		"does not replay": {func(m *Member) { m.job = fetching }, false, false},
	} {
		m, _ := newTestMember(t, 3)
		d := decisionOf(2, 10)
		m.learns(d)
		m.pending, m.job = d, replaying
		c.change(m)
		m.onReplayed(Replayed{Failed: c.failed})
		if (m.starting != nil) != c.starts || (m.job == idle) != (name != "does not replay") {
			t.Errorf("%s: starts %+v, job %d", name, m.starting, m.job)
		}
	}
}

// A Save only for knowledge of what is durable may fail. The messages go out, the member goes on as
// before, and the Save is tried again after a while.
func TestKnowledgeThatIsNotSaved(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	m.Ready()
	mode := m.view.Mode
	chain.changed, chain.durable = 9, 9
	m.saving = false
	m.flushed = 8
	m.pump(false)
	if len(effectsOf[Save](m)) != 1 || !m.knowledge {
		t.Fatal("what is known is not saved")
	}
	m.held.Messages = []generation.Envelope{{To: 1,
		Message: generation.Message{Kind: generation.KindRefuse}}}
	m.onSaveFailed(SaveFailed{Reason: "the disk is full"})
	if m.unsaved || m.saving || m.view.Mode != mode {
		t.Errorf("unsaved %v, saving %v, %v", m.unsaved, m.saving, m.view.Mode)
	}
	if sent := effectsOf[SendSynod](m); len(sent) != 1 {
		t.Errorf("sent %+v", sent)
	}
	if m.pump(false); m.saving {
		t.Error("tried again at once")
	}
	m.now = m.flushAt
	if m.pump(false); !m.saving {
		t.Error("not tried again")
	}
	m.onSaved()
	if m.mustFlush() {
		t.Error("saved, and still to be saved")
	}
}

// A member that joined later lost its data, but not the file with its promises. Its new disk
// fetches its chain from a peer that was away during generation 2 and holds another branch. Its
// head is not of generation 2.
func TestNewDiskTookNoPart(t *testing.T) {
	t.Parallel()
	for name, fetchedBefore := range map[string]bool{"by the peer": false, "by hand": true} {
		before := generation.Membership{Members: serversTo(3)}
		chain := &bookChain{membership: before}
		config := Config{Self: 3, Disk: Disk{ID: diskOf(33)}, Chain: chain, Timing: DefaultTiming(),
			Ticket: 7}
		state := generation.State{
			Disk: diskOf(3), Activated: generation.NewRun(2, 0),
			Shard: generation.Membership{Number: 1, Members: serversTo(4)},
			Start: generation.Head{Generation: 1, Height: 8}, Instance: 2,
			Decided: &generation.Decision{Generation: 2,
				Base:    generation.Head{Generation: 1, Height: 8, Round: 8, Hash: hashAt(8, 0)},
				Members: []order.ServerID{0, 1, 3}, Disks: []generation.DiskID{diskOf(0), diskOf(1),
					diskOf(3)}},
		}
		config.Disk.State = state
		m, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		take := func() {
			chain.height, chain.stored, chain.branch = 12, 12, 1
			chain.membership, chain.changed = generation.Membership{Number: 1,
				Members: serversTo(4)}, 5
		}
		if fetchedBefore {
			take()
		}
		inputs := []Input{AnnouncementReceived{From: 2, Announcement: Announcement{Mode: Starting,
			Heights: Heights{12, 12, 0}, Tip: hashAt(12, 1), Disk: diskOf(2)}}, Tick{}, Tick{},
			SynodReceived{From: 1, Message: generation.Message{Kind: generation.KindPrepare,
				Generation: 3,
				Known:      state.Decided, Ballot: generation.Ballot{Number: 9, Proposer: 1}}}}
		for ; len(inputs) > 0; inputs = inputs[1:] {
			m.Step(inputs[0])
			for effects := m.Ready(); len(effects) > 0; effects = m.Ready() {
				for _, e := range effects {
					switch e := e.(type) {
					case Save:
						m.Step(Saved{})
					case Fetch:
						take()
						m.Step(Fetched{Reached: 0})
					case SendSynod:
						if h := e.Message.Report.Head; e.Message.Kind == generation.KindPromise &&
							h.Generation >= 2 {
							t.Errorf("%s: promises head %d of generation %d, which is on a "+
								"branch that generation 2 gave up",
								name, h.Height, h.Generation)
						}
					}
				}
			}
		}
	}
}

// twoChanges is a chain with changes of the membership at blocks 7 and 9.
type twoChanges struct{ *bookChain }

func (c twoChanges) MembershipAt(height uint64) (generation.Membership, uint64) {
	m := c.membership
	switch {
	case height >= 9:
		return m, 9
	case height >= 7:
		m.Number--
		return m, 7
	}
	m.Number -= 2
	return m, 0
}

// The first of two changes is effective, the second is not yet. That is hidden until the disk holds
// it, and it is saved.
func TestTheFirstOfTwoChangesIsSaved(t *testing.T) {
	t.Parallel()
	m, chain := newTestMember(t, 3)
	m.Ready()
	m.chain = twoChanges{chain}
	chain.membership.Number = 2
	chain.changed, chain.durable, m.flushed = 9, 8, 6
	m.saving, m.news = false, true
	if said := effectsOf[Announce](m); len(said) != 1 || said[0].Announcement.Heights.Durable >= 7 {
		t.Errorf("the disk holds that block %d is durable, and %d was announced", m.flushed,
			said[0].Announcement.Heights.Durable)
	}
	m.pump(false)
	if len(effectsOf[Save](m)) != 1 {
		t.Error("what is known is not saved")
	}
}

// Blocks of a tail may be known to be durable before it is executed here: a majority recorded the
// rounds, and a member executed them before all restarted. Such blocks stay, and the rest of the
// tail is executed. Blocks of other rounds are those of a group that began.
func TestDurableBlocksOfTheTailStay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		height  uint64
		rounds  []order.Round // of the tail; that of a test's block is its height
		epoch   order.Epoch
		prompt  bool
		others  bool
		waits   bool
		replays []order.Round
		starts  bool
	}{
		"one of two": {10, []order.Round{10, 11}, 1, false, false, true, []order.Round{11},
			false},
		"both":             {11, []order.Round{10, 11}, 1, false, false, true, nil, true},
		"more":             {12, []order.Round{10, 11}, 1, false, false, false, nil, false},
		"of another epoch": {10, []order.Round{10, 11}, 2, false, false, false, nil, false},
		"prompt, of an earlier epoch": {10, []order.Round{10, 11}, 2, true, false, true,
			[]order.Round{11}, false},
		"prompt, of a later epoch": {10, []order.Round{10, 11}, 0, true, false, false, nil, false},
		"the group began":          {10, []order.Round{10, 11}, 1, false, true, false, nil, false},
		"no tail":                  {10, nil, 1, false, false, false, nil, false},
	} {
		m, chain := newTestMember(t, 3)
		m.config.Prompt = c.prompt
		d := decisionOf(2, make([]byte, len(c.rounds))...)
		for i, round := range c.rounds {
			d.Tail[i].Round, d.Tail[i].Epoch, d.Tail[i].Content = round, c.epoch, [32]byte{byte(i)}
			m.synod.Holds(d.Tail[i].Content)
		}
		m.learns(d)
		for i := range d.Tail {
			m.synod.Holds(d.Tail[i].Content)
		}
		m.pending, m.pendingAt = d, m.now
		chain.height, chain.durable = c.height, 10
		if c.others {
			m.peer(1).Group = *groupOf(3, generation.NewRun(2, 0))
		}
		m.activate()
		var replays []order.Round
		for _, e := range m.effects {
			switch e := e.(type) {
			case SetAside:
				t.Errorf("%s: it sets the blocks above %d aside", name, e.Keep)
			case Replay:
				for _, r := range e.Rounds {
					replays = append(replays, r.Round)
				}
			}
		}
		if (m.pending != nil) != c.waits || (m.starting != nil) != c.starts ||
			!slices.Equal(replays, c.replays) {
			t.Errorf("%s: pending %v, starts %v, replays %v", name, m.pending != nil,
				m.starting != nil, replays)
		}
	}
}

// A fetched block of the tail stays, too, if this member learns that the block is durable in the
// very step in which it compares the block with the tail.
func TestFetchedDurableBlocksOfTheTailStay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rounds  []order.Round // of the tail
		durable uint64        // what the peer knows
		asides  int
		replays int
		starts  bool
	}{
		"the tail":    {[]order.Round{10}, 10, 0, 0, true},
		"one of two":  {[]order.Round{10, 11}, 10, 0, 1, false},
		"not durable": {[]order.Round{10}, 9, 1, 0, false},
	} {
		m, chain := newTestMember(t, 3)
		d := decisionOf(2, make([]byte, len(c.rounds))...)
		for i, round := range c.rounds {
			d.Tail[i].Round, d.Tail[i].Epoch, d.Tail[i].Content = round, 1, [32]byte{byte(i)}
		}
		m.learns(d)
		for i := range d.Tail {
			m.synod.Holds(d.Tail[i].Content)
		}
		m.pending, m.pendingAt = d, m.now
		p := *m.peer(1)
		p.Heights, p.Tip = Heights{Ordered: 10, Stored: 10, Durable: c.durable}, hashAt(10, 0)
		m.job, m.began, m.from = fetching, 9, []peer{p}
		chain.height, chain.stored = 10, 10
		m.Step(Fetched{Reached: 0})
		starts := m.starting != nil
		effects := m.Ready()
		asides, replays := 0, 0
		for _, e := range effects {
			switch e := e.(type) {
			case SetAside:
				asides++
			case Replay:
				replays += len(e.Rounds)
			}
		}
		if asides != c.asides || replays != c.replays || starts != c.starts {
			t.Errorf("%s: starts %v, %+v", name, starts, effects)
		}
	}
}
