package allconcur

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// TestSetsOfManyServers: sets take several words.
func TestSetsOfManyServers(t *testing.T) {
	t.Parallel()
	const n = 130
	some := []order.ServerID{0, 1, 63, 64, 65, 127, 128, 129}
	s := newServerSet(n)
	if len(s) != 3 || len(newServerSet(64)) != 1 || len(newServerSet(65)) != 2 {
		t.Errorf("130 servers take %d words", len(s))
	}
	for _, p := range some {
		s.add(p)
	}
	if s.count() != len(some) || !slices.Equal(s.appendTo(nil), some) {
		t.Errorf("%d servers, %v", s.count(), s.appendTo(nil))
	}
	var walked []order.ServerID
	for p, more := s.next(0); more; p, more = s.next(p + 1) {
		walked = append(walked, p)
	}
	if !slices.Equal(walked, some) {
		t.Errorf("next walks %v", walked)
	}
	for p := range order.ServerID(n) {
		if s.has(p) != slices.Contains(some, p) {
			t.Errorf("has %d: %v", p, s.has(p))
		}
	}
	if p, more := s.next(3 * wordBits); more {
		t.Errorf("%d is behind the last", p)
	}
	other := s.clone()
	if !s.equal(other) || !s.within(other) {
		t.Error("a set is none of its clone")
	}
	other.remove(128)
	if s.equal(other) || s.within(other) || !other.within(s) || s.count() != len(some) ||
		other.count() != len(some)-1 {
		t.Error("a server less, and nothing follows")
	}
	if other.clear(); other.count() != 0 {
		t.Errorf("cleared, %d are left", other.count())
	}
}

// TestRoundSetsCount: a round set counts messages, and those with a payload.
func TestRoundSetsCount(t *testing.T) {
	t.Parallel()
	s := newRoundSet(3)
	s.begin(2, 5, true)
	s.add(0, encodeMessage(kindReliable, 1, 2, 5, 0, []byte("a")))
	s.add(2, encodeMessage(kindReliable, 1, 2, 5, 2, nil, revocation{1, 1}))
	want := func(count, payloads int) {
		t.Helper()
		if s.count != count || s.payloadCount != payloads || s.present.count() != count {
			t.Errorf("%d messages, %d with a payload, want %d and %d", s.count, s.payloadCount,
				count, payloads)
		}
	}
	want(2, 1)
	for _, c := range []struct {
		epoch    order.Epoch
		round    order.Round
		reliable bool
		is       bool
	}{{2, 5, true, true}, {1, 5, true, false}, {2, 4, true, false}, {2, 5, false, false}} {
		if s.is(c.epoch, c.round, c.reliable) != c.is {
			t.Errorf("%+v", c)
		}
	}
	clone := s.clone()
	s.drop(1)
	s.drop(2)
	want(1, 1)
	s.drop(0)
	want(0, 0)
	if clone.count != 2 || clone.frames[0] == nil || s.frames[0] != nil {
		t.Error("the clone has changed, too")
	}
	s = clone
	s.reset()
	want(0, 0)
	if s.is(0, 0, false) || s.frames[0] != nil {
		t.Error("a reset set stands for a state")
	}
}

// TestNotificationsOfManyEdges: a server has more successors than a word has bits.
func TestNotificationsOfManyEdges(t *testing.T) {
	t.Parallel()
	g, err := digraph.Complete(100)
	if err != nil {
		t.Fatal(err)
	}
	f := newNotifications(g)
	if f.rowWords != 2 || len(f.owned) != 200 {
		t.Fatalf("rows of %d words, %d in all", f.rowWords, len(f.owned))
	}
	marked := []notification{{99, 0}, {99, 63}, {99, 64}, {99, 98}, {0, 99}}
	for _, fn := range marked {
		f.arrived = append(f.arrived, fn)
		f.mark(fn.target, successorIndex(g, fn.target, fn.owner))
	}
	for target := range order.ServerID(100) {
		for owner := range order.ServerID(100) {
			index := successorIndex(g, target, owner)
			if (index < 0) != (owner == target) {
				t.Fatalf("%d is successor %d of %d", owner, index, target)
			}
			if index >= 0 && f.has(target, index) != slices.Contains(marked,
				notification{target, owner}) {
				t.Errorf("a notification of %d's failure by %d: %v", target,
					owner, f.has(target, index))
			}
		}
	}
	if f.targetCount != 2 || !slices.Equal(f.targets.appendTo(nil), []order.ServerID{0, 99}) {
		t.Errorf("%d targets, %v", f.targetCount, f.targets.appendTo(nil))
	}
	// Notifications of removed servers, and revoked ones, are dropped.
	members := newServerSet(100)
	for p := range order.ServerID(100) {
		members.add(p)
	}
	members.remove(63)
	revoked, valid := f.sequence(99, successorIndex(g, 99, 64)),
		f.sequence(99, successorIndex(g, 99, 98))
	revoked.last, revoked.revoked, valid.last, valid.revoked = 3, 3, 4, 3
	f.sequence(0, successorIndex(g, 0, 99)).revoked = 1
	f.retain(members)
	if want := []notification{{99, 0}, {99, 98}, {0, 99}}; !slices.Equal(f.arrived, want) ||
		f.targetCount != 2 {
		t.Errorf("left are %v", f.arrived)
	}
	members.remove(99)
	if f.retain(members); len(f.arrived) != 0 || f.targetCount != 0 || f.targets.count() != 0 {
		t.Errorf("left are %v", f.arrived)
	}
}

// TestThresholds: a majority of the shard is c, and t votes A-deliver at once if m members are
// left.
func TestThresholds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ shard, members, majority, fast int }{
		{3, 3, 2, 3}, {4, 4, 3, 3}, {5, 5, 3, 4}, {5, 4, 3, 4}, {5, 3, 3, 3}, {6, 6, 4, 5},
		{7, 7, 4, 6}, {8, 8, 5, 6}, {8, 5, 5, 5}, {9, 9, 5, 7}, {9, 6, 5, 6},
	} {
		for _, detector := range []Detector{DetectorEventual, DetectorPerfect,
			DetectorEventualPaper} {
			e, err := New(Config{Engine: EngineAllConcurPlus, Servers: c.members, Shard: c.shard,
				Reliable: overlays(t, c.members)[0], Detector: detector})
			if err != nil {
				t.Fatal(err)
			}
			stable := map[Detector]int{DetectorEventual: c.fast, DetectorPerfect: c.majority,
				DetectorEventualPaper: min(e.tolerated+1, c.members)}[detector]
			if e.majority != c.majority || e.fast != c.fast || e.stable != stable {
				t.Errorf("%+v under %v: majority %d, fast %d, stable %d", c, detector, e.majority,
					e.fast, e.stable)
			}
		}
	}
}

// TestFramesAtTheirBounds: the number of revocations, the size of payloads, and the words of sets.
func TestFramesAtTheirBounds(t *testing.T) {
	t.Parallel()
	revocations := func(n int) []revocation { return make([]revocation, n) }
	phase := func(p votePhase, reserved byte) []byte {
		return altered(encodeVote(kindForward, p, 1, 2, 3, 4, serverSet{21}), 3, reserved)
	}
	for name, c := range map[string]struct {
		frame []byte
		good  bool
	}{
		"a payload":    {encodeMessage(kindReliable, 1, 2, 3, 4, make([]byte, 10)), true},
		"a larger one": {encodeMessage(kindReliable, 1, 2, 3, 4, make([]byte, 11)), false},
		"all revocations": {encodeMessage(kindReliable, 1, 2, 3, 4, make([]byte, 10),
			revocations(revocationsMax)...), true},
		"one more": {encodeMessage(kindReliable, 1, 2, 3, 4, nil,
			revocations(revocationsMax+1)...), false},
		"cut off": {encodeMessage(kindReliable, 1, 2, 3, 4, nil,
			revocations(2)...)[:messageHeaderSize+15], false},
		"just cut off": {encodeMessage(kindReliable, 1, 2, 3, 4, nil)[:messageHeaderSize-1], false},
		"unreliable, revoking": {encodeMessage(kindUnreliable, 1, 2, 3, 4, nil, revocations(1)...),
			false},
		"epoch 0":      {encodeMessage(kindReliable, 1, 0, 3, 4, nil), false},
		"round 0":      {encodeMessage(kindReliable, 1, 2, 0, 4, nil), false},
		"decided":      {phase(phaseDecided, 0), true},
		"confirmed":    {phase(phaseConfirmed, 0), true},
		"phase 0":      {phase(phaseDecided-1, 0), false},
		"a phase more": {phase(phaseConfirmed+1, 0), false},
		"reserved":     {phase(phaseDecided, 1), false},
		"no set":       {encodeVote(kindForward, phaseDecided, 1, 2, 3, 4, nil), false},
		"half a word": {encodeVote(kindForward, phaseDecided, 1, 2, 3, 4,
			serverSet{1, 2})[:messageHeaderSize+12], false},
		"the largest set": {encodeVote(kindBackward, phaseDecided, 1, 2, 3, 4,
			make(serverSet, digraph.MaxOrder/64)), true},
		"a larger set": {encodeVote(kindBackward, phaseDecided, 1, 2, 3, 4,
			make(serverSet, digraph.MaxOrder/64+1)), false},
		"a failure":           {encodeFailure(1, 2, 3, 4), true},
		"a failure, reserved": {altered(encodeFailure(1, 2, 3, 4), 2, 1), false},
		"no kind":             {altered(encodeFailure(1, 2, 3, 4), 1, 6), false},
		"kind 0":              {altered(encodeFailure(1, 2, 3, 4), 1, 0), false},
	} {
		_, err := decodeFrame(c.frame, 10)
		if (err == nil) != c.good || err != nil && !errors.Is(err, order.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
		if c.good && len(c.frame) > FrameSizeMax(10) {
			t.Errorf("%s: %d bytes are more than %d", name, len(c.frame), FrameSizeMax(10))
		}
	}
	if got := FrameSizeMax(MaxPayloadDefault); got != promptHeaderSize+
		revocationsMax*revocationSize+promptMessagesMax*copySize+MaxPayloadDefault {
		t.Errorf("frames of up to %d bytes", got)
	}
	if got := FrameSizeMax(0); got != messageHeaderSize+digraph.MaxOrder/8 {
		t.Errorf("frames of up to %d bytes without payloads", got)
	}
}

// TestFramesAreDescribed: frames are described for people.
func TestFramesAreDescribed(t *testing.T) {
	t.Parallel()
	for want, frame := range map[string][]byte{
		"3 bytes that are no frame": {1, 2, 3},
		"BCAST [2,3] of 4":          encodeMessage(kindUnreliable, 1, 2, 3, 4, nil),
		"RBCAST [[2,3]] of 4":       encodeMessage(kindReliable, 1, 2, 3, 4, nil),
		"RBCAST [[2,3]] of 4 revoking FAIL 5 #6": encodeMessage(kindReliable, 1, 2, 3, 4,
			nil, revocation{5, 6}),
		"BCAST [2,3] of 4 since 2": encodePrompt(kindUnreliable, 1, 2, 3, 4, nil, 2, nil),
		"BCAST [2,3] of 4 since 2, vouching for [1 5]": encodePrompt(kindUnreliable, 1, 2, 3, 4,
			nil, 2, someContents),
		"RBCAST [[3,3]] of 4 since 2, with copies of [1 5] revoking FAIL 5 #6": encodePrompt(
			kindReliable, 1, 3, 3, 4, nil, 2, someContents, revocation{5, 6}),
		"FAIL 4 by 5":    encodeFailure(1, 4, 5, 0),
		"FAIL 4 by 5 #6": encodeFailure(1, 4, 5, 6),
		"FWD [[2,3]] of 4, decided [0 2 4]": encodeVote(kindForward, phaseDecided, 1, 2, 3,
			4, serverSet{21}),
		"BWD [[2,3]] of 4, confirmed [0 2 4 64 127]": encodeVote(kindBackward, phaseConfirmed, 1, 2,
			3, 4, serverSet{21, 1 | 1<<63}),
	} {
		if got := Describe(frame); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestTrackingIsShown: a search sees only the root until the root is known to have failed.
func TestTrackingIsShown(t *testing.T) {
	t.Parallel()
	engines := threeServers(t, Config{Engine: EngineAllConcur})
	e := engines[0]
	shown := func(origin order.ServerID, vertices []order.ServerID, edges [][2]order.ServerID) {
		t.Helper()
		v, d := e.Tracking(origin)
		if !slices.Equal(v, vertices) || !slices.Equal(d, edges) {
			t.Errorf("of server %d: %v, %v", origin, v, d)
		}
	}
	shown(1, []order.ServerID{1}, nil)
	must(t, e.Receive(2, encodeMessage(kindReliable, 0, 1, 1, 2, nil)))
	shown(2, nil, nil)
	must(t, e.Suspect(1))
	shown(1, []order.ServerID{1, 2}, [][2]order.ServerID{{1, 2}})
	if got := e.Notifications(); !slices.Equal(got, []Notification{{Target: 1, Owner: 0}}) {
		t.Errorf("notifications %v", got)
	}
	plus := threeServers(t, Config{Engine: EngineAllConcurPlus})[0]
	if v, d := plus.Tracking(1); v != nil || d != nil {
		t.Errorf("in an unreliable round: %v, %v", v, d)
	}
}
