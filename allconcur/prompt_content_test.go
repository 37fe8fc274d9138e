package allconcur

import (
	"bytes"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// newPrompt returns server 0 of a large group with prompt delivery.
func newPrompt(t *testing.T) *Engine {
	t.Helper()
	const n = promptMessagesMax + 10
	g, err := digraph.Complete(n)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(prompt(n, g))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// contentsOf returns messages of servers 1, 2 and so on with the given sizes.
func contentsOf(sizes ...int) (contents []content) {
	for i, size := range sizes {
		contents = append(contents, content{origin: order.ServerID(i + 1), since: 1,
			payload: bytes.Repeat([]byte{1}, size)})
	}
	return contents
}

// fill adds messages to a set, as their origins A-broadcast them.
func fill(set *roundSet, contents []content) {
	for _, c := range contents {
		set.add(c.origin, encodePrompt(kindUnreliable, 0, set.epoch, set.round, c.origin,
			c.payload, set.epoch, nil))
	}
}

func originsOf(contents []content) (origins []order.ServerID) {
	for _, c := range contents {
		origins = append(origins, c.origin)
	}
	return origins
}

const half = promptBytesMax / 2

// TestSmallContents: contents are small up to a number of bytes and of messages.
func TestSmallContents(t *testing.T) {
	t.Parallel()
	e := newPrompt(t)
	for name, c := range map[string]struct {
		sizes []int
		small bool
	}{
		"none":             {nil, true},
		"as many as fit":   {slices.Repeat([]int{1}, promptMessagesMax), true},
		"one more":         {slices.Repeat([]int{1}, promptMessagesMax+1), false},
		"as large as fits": {[]int{half, half}, true},
		"a byte more":      {[]int{half, half, 1}, false},
	} {
		if e.isSmall(contentsOf(c.sizes...)) != c.small {
			t.Errorf("%s: small %v", name, !c.small)
		}
	}
	e.config.MaxPayload = 5
	if !e.isSmall(contentsOf(5)) || e.isSmall(contentsOf(6)) {
		t.Error("the bound of a payload does not count")
	}
}

// TestVouches: a server vouches for the messages that it could send along with its own.
func TestVouches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sizes   []int
		own     int
		change  func(*Engine)
		vouches []order.ServerID
	}{
		"nothing here":     {},
		"all":              {sizes: []int{1, 0, 1}, vouches: []order.ServerID{1, 3}},
		"as large as fits": {sizes: []int{half, half}, vouches: []order.ServerID{1, 2}},
		"beside a small one": {sizes: []int{half, half, 1}, own: 1,
			vouches: []order.ServerID{1, 3}},
		"each is counted": {sizes: []int{half - 1, half - 1, 9, 2},
			vouches: []order.ServerID{1, 2, 4}},
		"beside a large one": {sizes: []int{1}, own: promptBytesMax},
		"as many as fit": {sizes: slices.Repeat([]int{1}, promptMessagesMax+1),
			vouches: serversFrom1(promptMessagesMax)},
		"in a reliable round": {sizes: []int{1}, change: func(e *Engine) { e.reliable = true }},
		"not in such an engine": {sizes: []int{1},
			change: func(e *Engine) { e.config.Prompt = false }},
	} {
		e := newPrompt(t)
		fill(e.current, contentsOf(c.sizes...))
		if c.change != nil {
			c.change(e)
		}
		got := originsOf(e.vouch(make([]byte, c.own)))
		if !slices.Equal(got, c.vouches) {
			t.Errorf("%s: it vouches for %v, want %v", name, got, c.vouches)
		}
	}
}

func serversFrom1(n int) (list []order.ServerID) {
	for p := range order.ServerID(n) {
		list = append(list, p+1)
	}
	return list
}

// TestExpectsContent: a server waits for content that a member vouches for, as long as it has none.
func TestExpectsContent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		vouched []content
		change  func(*Engine)
		expects bool
	}{
		"nobody vouches": {},
		"one does":       {vouched: contentsOf(1), expects: true},
		"content is here": {vouched: contentsOf(1), change: func(e *Engine) {
			fill(e.current, contentsOf(1))
		}},
		"of a removed server": {vouched: contentsOf(1), change: func(e *Engine) {
			e.members.remove(1)
		}},
		"of a removed server, and another": {vouched: contentsOf(1, 1), change: func(e *Engine) {
			e.members.remove(1)
		}, expects: true},
		"in a reliable round": {vouched: contentsOf(1), change: func(e *Engine) {
			e.reliable = true
		}},
		"not in such an engine": {vouched: contentsOf(1), change: func(e *Engine) {
			e.config.Prompt = false
		}},
	} {
		e := newPrompt(t)
		e.current.add(5, encodePrompt(kindUnreliable, 0, 1, 1, 5, nil, 1, c.vouched))
		if c.change != nil {
			c.change(e)
		}
		if e.expectsContent() != c.expects {
			t.Errorf("%s: it expects content: %v", name, !c.expects)
		}
	}
}

// completed returns an engine in round 3 that A-delivered nothing, and has round 2 complete with
// messages of itself and others. It vouched for one of them in rounds 2 and 3.
func completed(t *testing.T, sizes ...int) *Engine {
	t.Helper()
	e := newPrompt(t)
	e.round = 3
	e.newer.begin(1, 2, false)
	fill(e.newer, append(contentsOf(sizes...), content{origin: 0, payload: []byte("own")}))
	for _, round := range []order.Round{2, 3} {
		e.own[round%2] = ownMessage{held: true, round: round, payload: []byte("own"), since: 1,
			epoch: 1, vouched: contentsOf(1)}
	}
	return e
}

// TestVouchForComplete: before a rerun, a server vouches for all messages of others in a complete
// round that is small. What it vouched for in other rounds stays, unless a bug is planted.
func TestVouchForComplete(t *testing.T) {
	t.Parallel()
	one := []order.ServerID{1}
	for name, c := range map[string]struct {
		sizes         []int
		change        func(*Engine)
		second, third []order.ServerID
	}{
		"a small one": {[]int{1, 1}, func(*Engine) {}, []order.ServerID{1, 2}, one},
		"a large one": {[]int{half, half}, func(*Engine) {}, one, one},
		"none": {[]int{1, 1}, func(e *Engine) { e.newer.filled = false }, one,
			one},
		"not in such an engine": {[]int{1, 1}, func(e *Engine) { e.config.Prompt = false }, one,
			one},
		"it forgets complete ones": {[]int{1, 1}, func(e *Engine) {
			e.config.Fault = FaultCompleteForgotten
		}, one, one},
		"it forgets interrupted ones": {[]int{1, 1}, func(e *Engine) {
			e.config.Fault = FaultInterruptedForgotten
		}, []order.ServerID{1, 2}, nil},
	} {
		e := completed(t, c.sizes...)
		c.change(e)
		e.vouchForComplete()
		second, third := originsOf(e.own[0].vouched), originsOf(e.own[1].vouched)
		if !slices.Equal(second, c.second) || !slices.Equal(third, c.third) {
			t.Errorf("%s: it vouches for %v in round 2 and %v in round 3", name, second, third)
		}
	}
}

// TestHeld: a server lists what it holds of the rounds that are not closed, with its own message.
func TestHeld(t *testing.T) {
	t.Parallel()
	all, some := []order.ServerID{0, 1, 2}, []order.ServerID{0, 1}
	for name, c := range map[string]struct {
		sizes  []int
		change func(*Engine)
		want   map[order.Round][]order.ServerID
	}{
		"two rounds": {[]int{1, 1}, func(*Engine) {}, map[order.Round][]order.ServerID{2: all,
			3: some}},
		"a large round": {[]int{half, half}, func(*Engine) {},
			map[order.Round][]order.ServerID{2: some, 3: some}},
		"a reliable round": {[]int{1, 1}, func(e *Engine) { e.newer.reliable = true },
			map[order.Round][]order.ServerID{2: some, 3: some}},
		"no complete round": {[]int{1, 1}, func(e *Engine) { e.newer.filled = false },
			map[order.Round][]order.ServerID{2: some, 3: some}},
		"another complete round": {[]int{1, 1}, func(e *Engine) { e.newer.round = 1 },
			map[order.Round][]order.ServerID{2: some, 3: some}},
		"nothing to say": {[]int{1, 1}, func(e *Engine) { e.own[1].payload = nil },
			map[order.Round][]order.ServerID{2: all, 3: {1}}},
		"one is closed": {[]int{1, 1}, func(e *Engine) { e.delivered = 2 },
			map[order.Round][]order.ServerID{3: some}},
		"both are closed": {[]int{1, 1}, func(e *Engine) { e.delivered = 3 }, nil},
		"one is not held": {[]int{1, 1}, func(e *Engine) { e.own[1].held = false },
			map[order.Round][]order.ServerID{2: all}},
		"not in such an engine": {[]int{1, 1}, func(e *Engine) { e.config.Prompt = false }, nil},
	} {
		e := completed(t, c.sizes...)
		c.change(e)
		held := e.Held()
		if len(held) != len(c.want) {
			t.Errorf("%s: %d rounds, want %d", name, len(held), len(c.want))
		}
		for _, h := range held {
			var origins []order.ServerID
			for _, message := range h.Delivery.Messages {
				origins = append(origins, message.Origin)
			}
			if !slices.Equal(origins, c.want[h.Round]) || h.Epoch != 1 || h.Reliable {
				t.Errorf("%s: %+v, want %v", name, h, c.want[h.Round])
			}
		}
	}
}

// TestVouchesForAll: a message says that its origin holds contents if each is its own or named.
func TestVouchesForAll(t *testing.T) {
	t.Parallel()
	all := contentsOf(1, 1, 1)
	for name, c := range map[string]struct {
		origin order.ServerID
		named  []content
		holds  []content
		all    bool
	}{
		"nothing":                   {5, nil, nil, true},
		"all":                       {5, all, all, true},
		"its own, and all others":   {2, []content{all[0], all[2]}, all, true},
		"its own alone":             {1, nil, all[:1], true},
		"none":                      {5, nil, all[:1], false},
		"more":                      {5, all, all[1:2], true},
		"without the first":         {5, all[1:], all, false},
		"without the last":          {5, all[:2], all, false},
		"without one between":       {5, []content{all[0], all[2]}, all, false},
		"its own, without the last": {1, all[1:2], all, false},
	} {
		frame := encodePrompt(kindUnreliable, 0, 1, 1, c.origin, nil, 1, c.named)
		if vouchesForAll(frame, c.origin, c.holds) != c.all {
			t.Errorf("%s: it vouches for all: %v", name, !c.all)
		}
	}
}

// TestCopiesAreContent: the content of a set has copies in messages of other servers, each once.
func TestCopiesAreContent(t *testing.T) {
	t.Parallel()
	s := newRoundSet(9)
	s.begin(3, 2, false)
	copies := contentsOf(1, 1, 1, 1)
	s.add(2, encodePrompt(kindUnreliable, 0, 3, 2, 2, []byte("b"), 3, nil))
	s.add(5, encodePrompt(kindUnreliable, 0, 3, 2, 5, nil, 1, copies[:2]))
	s.add(6, encodePrompt(kindUnreliable, 0, 3, 2, 6, nil, 2, copies[1:]))
	s.add(7, encodePrompt(kindUnreliable, 0, 3, 2, 7, nil, 2, nil))
	want := func(payloads, copies int, origins ...order.ServerID) {
		t.Helper()
		got := s.appendContents(nil)
		if !slices.Equal(originsOf(got), origins) || s.payloadCount != payloads ||
			s.copyCount != copies {
			t.Errorf("contents of %v, %d payloads, %d with copies, want %v, %d and %d",
				originsOf(got), s.payloadCount, s.copyCount, origins, payloads, copies)
		}
		for _, c := range got {
			if own := c.origin == 2; own != (c.since == 3) || own != (string(c.payload) == "b") {
				t.Errorf("the message of %d is %q since %d", c.origin, c.payload, c.since)
			}
		}
	}
	want(3, 2, 1, 2, 3, 4)
	s.drop(6)
	want(2, 1, 1, 2)
	s.drop(5)
	want(1, 0, 2)
	s.drop(2)
	want(0, 0)
}

// TestWhoHolds: a complete round is held if each member vouches for its content or completed it.
func TestWhoHolds(t *testing.T) {
	t.Parallel()
	g, err := digraph.Complete(5)
	if err != nil {
		t.Fatal(err)
	}
	type servers = []order.ServerID
	for name, c := range map[string]struct {
		size    int
		vouch   servers // for the content, of servers 2 to 4
		next    servers // whose messages of the next round are here
		waits   bool
		fault   Fault
		isKnown bool
	}{
		"all vouch":    {size: 1, vouch: servers{2, 3, 4}, isKnown: true},
		"one does not": {size: 1, vouch: servers{2, 4}},
		"that one completed it": {size: 1, vouch: servers{2, 4}, next: servers{3},
			isKnown: true},
		"another one completed it": {size: 1, vouch: servers{2, 4}, next: servers{2}},
		"all completed it":         {size: 1, next: servers{2, 3, 4}, isKnown: true},
		"it is large":              {size: promptBytesMax + 1, next: servers{2, 3, 4}},
		"it waits":                 {size: 1, vouch: servers{2, 3, 4}, waits: true},
		"the bug of nobody":        {size: 1, fault: FaultPromptUnheld, isKnown: true},
		"the bug of one": {size: 1, vouch: servers{2, 4}, fault: FaultPromptOneMissing,
			isKnown: true},
		"the bug of one, all vouch": {size: 1, vouch: servers{2, 3, 4},
			fault: FaultPromptOneMissing, isKnown: true},
		"the bug of one, two do": {size: 1, vouch: servers{2}, fault: FaultPromptOneMissing},
	} {
		e, err := New(prompt(5, g))
		if err != nil {
			t.Fatal(err)
		}
		e.config.Fault = c.fault
		set, next := newRoundSet(5), newRoundSet(5)
		set.begin(1, 1, false)
		next.begin(1, 2, false)
		held := contentsOf(c.size)
		fill(set, held)
		for p := range order.ServerID(5) {
			var vouched []content
			if slices.Contains(c.vouch, p) {
				vouched = held
			}
			if p != 1 {
				set.add(p, encodePrompt(kindUnreliable, 0, 1, 1, p, nil, 1, vouched))
			}
		}
		for _, p := range c.next {
			next.add(p, encodePrompt(kindUnreliable, 0, 1, 2, p, nil, 1, nil))
		}
		set.waits = c.waits
		for range 2 { // it asks only once
			if e.isHeld(set, next) != c.isKnown {
				t.Errorf("%s: held %v", name, !c.isKnown)
			}
		}
	}
}

// TestFirstRound: what was A-delivered promptly begins with the first round, too.
func TestFirstRound(t *testing.T) {
	t.Parallel()
	config := prompt(3, overlays(t, 3)[0])
	config.FirstRound = 9
	e, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	if e.prompted != 8 || e.Delivered() != 8 {
		t.Errorf("A-delivered up to round %d, promptly up to %d", e.Delivered(), e.prompted)
	}
	if e.Horizon() != 10 {
		t.Errorf("frames up to round %d are of use", e.Horizon())
	}
	if e.held = 1; e.Horizon() != 0 {
		t.Error("the rounds of held frames are not known, and there is a horizon")
	}
}

// TestMemoryOfMessages: an engine asks for just the memory that its message takes.
func TestMemoryOfMessages(t *testing.T) {
	t.Parallel()
	config := prompt(3, overlays(t, 3)[0])
	config.Prompt = false
	e, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	own := &ownMessage{payload: []byte("payload")}
	revocations := []revocation{{1, 2}, {2, 3}}
	want := e.encodeOwn(kindReliable, own, revocations)
	asked := 0
	e.UseMemory(func(size int) []byte {
		asked = size
		return make([]byte, size)
	})
	got := e.encodeOwn(kindReliable, own, revocations)
	if !bytes.Equal(got, want) || asked != len(want) {
		t.Errorf("%x in %d bytes, want %x", got, asked, want)
	}
}

// TestPlantedEpochs: the planted bugs change what a rerun sends, and nothing else.
func TestPlantedEpochs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault   Fault
		since   order.Epoch
		vouched []content
		want    order.Epoch
		copies  int
	}{
		{FaultNone, 1, contentsOf(1), 1, 1}, {FaultNone, 1, nil, 1, 0},
		{FaultRerunForgets, 1, contentsOf(1), 1, 0}, {FaultRerunForgets, 3, contentsOf(1), 3, 1},
		{FaultPromptRerunEpoch, 1, nil, 3, 0}, {FaultPromptRerunEpoch, 1, contentsOf(1), 1, 1},
	} {
		e := newPrompt(t)
		e.config.Fault, e.epoch = c.fault, 3
		frame := e.encodePrompt(kindReliable, &ownMessage{since: c.since, vouched: c.vouched}, nil)
		if sinceOf(frame) != c.want || entryCount(frame) != c.copies {
			t.Errorf("%+v: since %d, %d entries", c, sinceOf(frame), entryCount(frame))
		}
	}
}

// TestManyHold: each member counts, also in a group that takes more than one word.
func TestManyHold(t *testing.T) {
	t.Parallel()
	e := newPrompt(t)
	for _, one := range []order.ServerID{3, promptMessagesMax + 3} {
		set, next := newRoundSet(e.n), newRoundSet(e.n)
		set.asked, set.small = true, true
		set.unheld.add(one)
		if e.isHeld(set, next) {
			t.Errorf("server %d does not hold it", one)
		}
		if next.present.add(one); !e.isHeld(set, next) {
			t.Errorf("server %d completed it, and so holds it", one)
		}
	}
}

// TestDeliversPromptly: a server A-delivers the rounds that are held in order, each once, unless
// the group changes.
func TestDeliversPromptly(t *testing.T) {
	t.Parallel()
	changing := func(is order.Round) func(order.Delivery) bool {
		return func(d order.Delivery) bool { return d.Round == is }
	}
	for name, c := range map[string]struct {
		change func(*Engine)
		want   []order.Round
		waits  bool
	}{
		"both rounds":           {func(*Engine) {}, []order.Round{1, 2}, false},
		"one is A-delivered":    {func(e *Engine) { e.prompted = 1 }, []order.Round{2}, false},
		"both are":              {func(e *Engine) { e.prompted = 2 }, nil, false},
		"the first is not held": {func(e *Engine) { e.older.unheld.add(5) }, nil, false},
		"the second is not held": {func(e *Engine) { e.newer.unheld.add(5) }, []order.Round{1},
			false},
		"there is one": {func(e *Engine) {
			e.older.reset()
			e.prompted = 1
		}, []order.Round{2}, false},
		"there is none": {func(e *Engine) {
			e.older.reset()
			e.newer.filled = false
			e.prompted = 1
		}, nil, false},
		"in a reliable round": {func(e *Engine) { e.reliable = true }, nil, false},
		"the eon ends":        {func(e *Engine) { e.last = 9 }, nil, false},
		"not in such an engine": {func(e *Engine) { e.config.Prompt = false }, nil,
			false},
		"another one changes the group": {func(e *Engine) { e.config.Change = changing(9) },
			[]order.Round{1, 2}, false},
		"the first changes the group": {func(e *Engine) { e.config.Change = changing(1) }, nil,
			true},
	} {
		e := newPrompt(t)
		e.round = 3
		for round, set := range map[order.Round]*roundSet{1: e.older, 2: e.newer} {
			set.begin(1, round, false)
			fill(set, contentsOf(1, 1))
			set.asked, set.small = true, true
		}
		c.change(e)
		e.deliverPromptly()
		var rounds []order.Round
		for _, d := range e.out.deliveries {
			rounds = append(rounds, d.Round)
		}
		if !slices.Equal(rounds, c.want) || e.older.waits != c.waits ||
			len(e.out.messages) != 2*len(c.want) {
			t.Errorf("%s: rounds %v with %d messages, the first waits: %v, want %v", name, rounds,
				len(e.out.messages), e.older.waits, c.want)
		}
	}
}

// TestCloses: a round that was A-delivered promptly is only closed, another one A-delivered, too.
func TestCloses(t *testing.T) {
	t.Parallel()
	for prompted, delivers := range map[order.Round]int{1: 1, 2: 0, 3: 0} {
		e := completed(t, 1)
		e.prompted = prompted
		e.close(e.newer, []order.ServerID{5})
		if len(e.out.deliveries) != delivers || e.prompted != max(2, prompted) {
			t.Errorf("after round %d: %d deliveries, up to %d", prompted, len(e.out.deliveries),
				e.prompted)
		}
		if len(e.out.closings) != 1 || e.out.closings[0].Round != 2 ||
			!slices.Equal(e.out.closings[0].Removed, []order.ServerID{5}) {
			t.Errorf("after round %d: closings %+v", prompted, e.out.closings)
		}
	}
}

// TestUndelivered: a round with a payload waits until it is A-delivered, promptly or not.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Engine)
		waits  bool
	}{
		"two rounds":           {func(*Engine) {}, true},
		"the newer one":        {func(e *Engine) { e.older.reset() }, true},
		"the older one":        {func(e *Engine) { e.newer.reset() }, true},
		"none":                 {func(e *Engine) { e.older.reset(); e.newer.reset() }, false},
		"a halted server":      {func(e *Engine) { e.halted = "why" }, false},
		"one is A-delivered":   {func(e *Engine) { e.prompted = 1 }, true},
		"both are A-delivered": {func(e *Engine) { e.prompted = 2 }, false},
		"without prompt delivery": {func(e *Engine) {
			e.prompted, e.config.Prompt = 2, false
		}, true},
		"without payloads": {func(e *Engine) {
			e.older.payloadCount, e.newer.payloadCount = 0, 0
		}, false},
	} {
		e := completed(t, 1)
		e.older.begin(1, 1, false)
		fill(e.older, contentsOf(1))
		c.change(e)
		if e.Undelivered() != c.waits {
			t.Errorf("%s: %v", name, !c.waits)
		}
	}
}
