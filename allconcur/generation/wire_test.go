package generation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
)

func exampleDecision() *Decision {
	return &Decision{Generation: 3, Base: Head{Generation: 2, Height: 9, Round: 11},
		Members: []order.ServerID{0, 2}, Disks: []DiskID{{5}, {6}},
		Tail: []TailRound{{Round: 12, Epoch: 4, Origins: []order.ServerID{0, 1, 2}},
			{Round: 13, Epoch: 5, Reliable: true, Origins: []order.ServerID{0, 2},
				Removed: []order.ServerID{1}, Content: [32]byte{7}}}}
}

// exampleLong is a decision with as many rounds as its bound allows, more than after AllConcur.
func exampleLong() *Decision {
	d := exampleDecision()
	d.Bound = BoundOf(5)
	for round := order.Round(14); round < 17; round++ {
		d.Tail = append(d.Tail, TailRound{Round: round, Epoch: 5})
	}
	return d
}

func exampleMessages() []Message {
	d := exampleDecision()
	shard := Membership{Number: 2, Members: []order.ServerID{0, 1, 2}}
	report := Report{Head: d.Base, Run: NewRun(2, 1), Restarted: true, Shard: shard,
		Membership: Membership{Number: 3, Members: []order.ServerID{0, 1, 2, 5}},
		Votes: []Vote{{TailRound: d.Tail[0], Voters: shard.Members},
			{TailRound: d.Tail[1], Confirmed: true, Voters: shard.Members}},
		Disk: DiskID{6}, Original: true, Durable: 8, Perhaps: true, PerhapsTo: 12,
		Known: []KnownVote{{Voter: 1, Round: 12, Epoch: 4, Origins: shard.Members},
			{Voter: 2, Round: 13, Epoch: 5, Reliable: true, Confirmed: true,
				Origins: []order.ServerID{0, 2}}},
		Former: []Former{{Membership: Membership{Number: 2, Members: shard.Members,
			Disks: []DiskID{{5}, {}, {6}}}, Until: 9}}}
	recorded := report
	recorded.Recorded = []TailRound{d.Tail[0], {Round: 13, Epoch: 4,
		Origins: []order.ServerID{0, 1, 2}, Content: [32]byte{8}}}
	vouched, both := report, recorded
	vouched.Vouched = []TailRound{{Round: 12, Epoch: 5, Reliable: true, Content: [32]byte{9}}}
	both.Vouched = append(vouched.Vouched, TailRound{Round: 14, Epoch: 4,
		Origins: []order.ServerID{1}, Content: [32]byte{8}})
	long, bounded := *exampleLong(), report
	bounded.Bound, bounded.Votes = long.Bound, nil
	for _, r := range long.Tail {
		bounded.Votes = append(bounded.Votes, Vote{TailRound: r, Voters: shard.Members})
	}
	one := bounded
	one.Bound, one.Votes = BoundOf(1), one.Votes[:1]
	logged, ofLog := bounded, long
	logged.Bound, logged.Last = LogBound(5), LogEnd{Stamp: 7, Index: 19}
	logged.Votes = []Vote{{TailRound: long.Tail[0]}, {TailRound: long.Tail[1]}}
	ofLog.Bound = LogBound(64)
	empty := report
	empty.Bound, empty.Votes, empty.Last = LogBound(1), nil, LogEnd{}
	return []Message{
		{Kind: KindPromise, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Report: logged},
		{Kind: KindPromise, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Report: empty,
			Value: &long, Known: &ofLog},
		{Kind: KindAccept, Generation: 3, Ballot: Ballot{4, 1, DiskID{6}}, Value: &ofLog},
		{Kind: KindPromise, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Report: bounded},
		{Kind: KindPromise, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Report: one},
		{Kind: KindPromise, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Report: both,
			Value: &long, Known: d},
		{Kind: KindAccept, Generation: 3, Ballot: Ballot{4, 1, DiskID{6}}, Value: &long},
		{Kind: KindPromise, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Report: recorded},
		{Kind: KindPromise, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Report: vouched},
		{Kind: KindPromise, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Report: both},
		{Kind: KindPrepare, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Known: d,
			Regroup: true},
		{Kind: KindPromise, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Report: report,
			Accepted: Ballot{3, 0, DiskID{5}}, Value: d, Known: d},
		{Kind: KindAccept, Generation: 3, Ballot: Ballot{4, 1, DiskID{6}}, Value: d,
			Holders: []order.ServerID{0, 2}},
		{Kind: KindAccepted, Generation: 3, Ballot: Ballot{4, 1, DiskID{6}}, Disk: DiskID{6},
			Original: true},
		{Kind: KindRefuse, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Working: 3},
	}
}

func FuzzDecodeMessage(f *testing.F) {
	for _, m := range exampleMessages() {
		f.Add(m.Encode(nil))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		if again := m.Encode(nil); string(again) != string(b) {
			t.Fatalf("%x decodes and encodes to %x", b, again)
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	d := exampleDecision()
	f.Add(State{Disk: DiskID{4}, Activated: NewRun(2, 3),
		Shard: Membership{Number: 1, Members: []order.ServerID{3}}, Instance: 3,
		Accepted: Ballot{3, 1, DiskID{7}}, AcceptedValue: d, Decided: d}.Encode())
	f.Add(State{Disk: DiskID{4}, AcceptedValue: d, Decided: exampleLong()}.Encode())
	f.Add([]byte(stateMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err == nil && len(b) > 0 && string(s.Encode()) != string(b) {
			t.Fatalf("%x decodes and encodes to %x", b, s.Encode())
		}
	})
}

// FuzzReceive feeds a synod any message that decodes: it must not panic.
func FuzzReceive(f *testing.F) {
	for _, m := range exampleMessages() {
		f.Add(uint32(1), m.Encode(nil))
	}
	f.Fuzz(func(t *testing.T, from uint32, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			return
		}
		s, err := NewSynod(Config{Self: 0,
			Report: Report{Membership: Membership{Members: []order.ServerID{0, 1, 2}}}, Grace: 1,
			Patience: 1, Original: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.Receive(order.ServerID(from), m)
			s.Tick()
			s.Ready()
		}
	})
}

// Input that is cut short, or longer than it says, is refused. No bytes at all are the state of a
// new node.
func TestDecodersAreStrict(t *testing.T) {
	t.Parallel()
	for _, m := range exampleMessages() {
		b := m.Encode(nil)
		for cut := range b {
			if _, err := DecodeMessage(b[:cut]); !errors.Is(err, ErrMessage) {
				t.Fatalf("%d of %d bytes of a message of kind %d: %v", cut, len(b), m.Kind, err)
			}
		}
		if _, err := DecodeMessage(append(b, 0)); !errors.Is(err, ErrMessage) {
			t.Fatalf("a byte too many: %v", err)
		}
	}
	if s, err := DecodeState(nil); err != nil || s.Disk != (DiskID{}) || s.Decided != nil {
		t.Fatalf("%v, %v", s, err)
	}
	b := State{Disk: DiskID{1}, Decided: exampleDecision()}.Encode()
	for cut := 1; cut < len(b); cut++ {
		if _, err := DecodeState(b[:cut]); !errors.Is(err, ErrMessage) {
			t.Fatalf("%d of %d bytes of a state: %v", cut, len(b), err)
		}
	}
	for i := range b {
		hurt := append([]byte(nil), b...)
		hurt[i] ^= 4
		if _, err := DecodeState(hurt); !errors.Is(err, ErrMessage) {
			t.Fatalf("byte %d damaged: %v", i, err)
		}
	}
}

// TestStateCutShort: a state's file that is cut short anywhere is refused.
func TestStateCutShort(t *testing.T) {
	t.Parallel()
	whole := State{Disk: DiskID{1}, Instance: 1}.Encode()
	for n := 1; n < len(whole); n++ {
		if s, err := DecodeState(whole[:n:n]); !errors.Is(err, ErrMessage) || s.Instance != 0 {
			t.Errorf("%d of %d bytes: %+v, %v", n, len(whole), s, err)
		}
	}
}

// TestRoundTrips: decoding returns exactly what was encoded.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	d := exampleDecision()
	full := Message{Kind: KindAccepted, Generation: 3, Value: d, Known: d, Regroup: true,
		Original: true, Disk: DiskID{9}}
	for _, m := range append(exampleMessages(), full) {
		if got, err := DecodeMessage(m.Encode(nil)); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v comes back as %+v, %v", m, got, err)
		}
	}
	for _, s := range []State{
		{Disk: DiskID{4}, Activated: NewRun(2, 3), Instance: 3, Start: d.Base,
			Accepted: Ballot{3, 1, DiskID{7}}, AcceptedValue: d, Decided: d},
		{Disk: DiskID{4}, Promised: Ballot{3, 1, DiskID{7}}, AcceptedValue: d},
		{Disk: DiskID{4}, AcceptedValue: d, Decided: exampleLong()},
		{Disk: DiskID{4}, AcceptedValue: exampleLong()},
		{Disk: DiskID{4}, Shard: Membership{Number: 1, Members: []order.ServerID{3},
			Disks: []DiskID{{8}}}, Decided: d},
	} {
		if got, err := DecodeState(s.Encode()); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%+v comes back as %+v, %v", s, got, err)
		}
	}
}

// TestMessagesOfNoKind: the kind, the flags and their fields have to match.
func TestMessagesOfNoKind(t *testing.T) {
	t.Parallel()
	plain := Message{Kind: KindRefuse, Generation: 3}.Encode(nil)
	change := func(kind Kind, flags byte) []byte {
		b := append([]byte(nil), plain...)
		b[1], b[2] = byte(kind), flags
		return b
	}
	if _, err := DecodeMessage(change(KindPrepare, flagRegroup)); err != nil {
		t.Fatal(err)
	}
	accepted := Message{Kind: KindAccepted}.Encode(nil)
	accepted[1] = byte(KindRefuse)
	promise := Message{Kind: KindPromise}.Encode(nil)
	promise[1] = byte(KindPrepare)
	for name, b := range map[string][]byte{
		"before the first": change(KindPrepare-1, 0), "after the last": change(KindRefuse+1, 0),
		"another flag":               change(KindRefuse, flagsAll+1),
		"a promise without a report": change(KindPromise, 0),
		"accepted, without a disk":   change(KindAccepted, 0), "a refusal with a disk": accepted,
		"a prepare with a report": promise,
	} {
		if _, err := DecodeMessage(b); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestListsAreBounded: a list of servers is bounded, also by the bytes that are left.
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	for count, fits := range map[int]bool{serversMax: true, serversMax + 1: false} {
		b := appendServers(nil, members(count))
		r := reader{bytes: b}
		if servers := r.servers(); (len(servers) == count) != fits || (r.end() == nil) != fits {
			t.Errorf("%d servers: %d, %v", count, len(servers), r.end())
		}
	}
	short := reader{bytes: []byte{2, 0, 1, 0, 0, 0, 2, 0, 0}}
	if short.servers(); short.broken != "it lists too many servers" {
		t.Errorf("a list that is cut off: %q", short.broken)
	}
}

// Only promises with recorded or vouched rounds, and messages about runs with another bound than
// AllConcur's, have versions that older nodes drop.
func TestVersionOfRecords(t *testing.T) {
	t.Parallel()
	for _, m := range exampleMessages() {
		want := byte(wireVersion)
		if len(m.Report.Recorded) > 0 {
			want = wireVersionRecords
		}
		if len(m.Report.Vouched) > 0 {
			want = wireVersionVouched
		}
		if m.bounded() {
			want = wireVersionBound
		}
		if m.log() {
			want = wireVersionLog
		}
		b := m.Encode(nil)
		if b[0] != want {
			t.Errorf("a message of kind %d has version %d, want %d", m.Kind, b[0], want)
		}
		for version := range byte(9) {
			b[0] = version
			if _, err := DecodeMessage(b); (err == nil) != (version == want) {
				t.Errorf("kind %d as version %d: %v", m.Kind, version, err)
			}
		}
	}
}

// TestOldFormatStays: states and messages that are about AllConcur's runs alone have the bytes that
// programs wrote before there were bounds. Other states say so in their first line.
func TestOldFormatStays(t *testing.T) {
	t.Parallel()
	d, messages := exampleDecision(), sha256.New()
	for _, m := range exampleMessages() {
		if !m.bounded() {
			messages.Write(m.Encode(nil))
		}
	}
	state := State{Disk: DiskID{4}, Activated: NewRun(2, 3), Start: d.Base, Instance: 3,
		AcceptedValue: d, Decided: d}
	before := sha256.Sum256(state.Encode())
	for name, c := range map[string]struct{ got, want string }{
		"messages": {hex.EncodeToString(messages.Sum(nil)),
			"9f54ead8ffde71055ad27d40068bd053186d4df5c3eb546411e94475de7e83fc"},
		"state": {hex.EncodeToString(before[:]),
			"3223daf734067b2855e3c8339b8ec3e3a182767697a927c4dc6282e8286e73e6"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s", name, c.got)
		}
	}
	state.Decided = exampleLong()
	if b := state.Encode(); string(b[:len(stateMagicBound)]) != stateMagicBound {
		t.Errorf("a state with a bound begins with %q", b[:len(stateMagicBound)])
	}
	state.Decided.Bound = LogBound(5)
	if b := state.Encode(); string(b[:len(stateMagicLog)]) != stateMagicLog {
		t.Errorf("a state with a log's bound begins with %q", b[:len(stateMagicLog)])
	}
}

// TestBounds: a report has no more votes, and a decision no more rounds, than its bound allows, and
// no bound has two forms.
func TestBounds(t *testing.T) {
	t.Parallel()
	for votes, want := range map[int][2]int{1: {1, 1}, 2: {2, 3}, 3: {3, 3}, 64: {64, 64}} {
		b := BoundOf(votes)
		if b.Votes() != want[0] || b.Tail() != want[1] || !b.sound() {
			t.Errorf("%d votes: %d, and a tail of %d", votes, b.Votes(), b.Tail())
		}
		if l := LogBound(votes); l.Votes() != votes || l.Tail() != votes || !l.sound() ||
			!l.Log() || b.Log() || l == b || l.ChangeRounds() != ledger.ChangeRounds {
			t.Errorf("a log of %d rounds: %d, and a tail of %d", votes, l.Votes(), l.Tail())
		}
	}
	long := func(rounds int, bound Bound) *Decision {
		d := exampleDecision()
		d.Bound, d.Tail = bound, nil
		for i := range rounds {
			d.Tail = append(d.Tail, TailRound{Round: d.Base.Round + 1 + order.Round(i)})
		}
		return d
	}
	for name, c := range map[string]struct {
		d    *Decision
		good bool
	}{
		"as long as allowed":         {long(64, 64), true},
		"too long":                   {long(5, 4), false},
		"too long after AllConcur":   {long(4, 0), false},
		"a bound that is too great":  {long(1, 65), false},
		"AllConcur's, in a new form": {long(1, 2), false},
		"as long as a log":           {long(64, LogBound(64)), true},
		"longer than a log":          {long(3, LogBound(2)), false},
		"a log without rounds":       {long(0, boundOfLog), false},
		"a log that is too long":     {long(1, boundOfLog|65), false},
	} {
		m := Message{Kind: KindAccept, Generation: 3, Value: c.d}
		if _, err := DecodeMessage(m.Encode(nil)); (err == nil) != c.good || c.d.sound() != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := DecodeState(State{Decided: c.d}.Encode()); (err == nil) != c.good {
			t.Errorf("%s, in a state: %v", name, err)
		}
	}
	for votes, good := range map[int]bool{0: true, 4: true, 5: false} {
		m := Message{Kind: KindPromise, Report: Report{Bound: 4}}
		for i := range votes {
			m.Report.Votes = append(m.Report.Votes, Vote{TailRound: TailRound{
				Round: order.Round(i + 1)}})
		}
		if _, err := DecodeMessage(m.Encode(nil)); (err == nil) != good {
			t.Errorf("%d votes of 4: %v", votes, err)
		}
	}
}

// TestRoundsThatNobodyReports: recorded rounds are complete and successive, vouched ones ascend,
// and neither removes a server.
func TestRoundsThatNobodyReports(t *testing.T) {
	t.Parallel()
	removes := []order.ServerID{1}
	rounds := func(numbers ...order.Round) (list []TailRound) {
		for _, number := range numbers {
			list = append(list, TailRound{Round: number, Epoch: 1})
		}
		return list
	}
	for name, c := range map[string]struct {
		recorded, vouched []TailRound
		good              bool
	}{
		"recorded":                   {recorded: rounds(7, 8), good: true},
		"recorded, with a gap":       {recorded: rounds(7, 9)},
		"recorded twice":             {recorded: rounds(7, 7)},
		"recorded, reliable":         {recorded: []TailRound{{Round: 7, Reliable: true}}},
		"recorded, removes a server": {recorded: []TailRound{{Round: 7, Removed: removes}}},
		"three recorded":             {recorded: rounds(7, 8, 9)},
		"vouched, with a gap":        {vouched: rounds(7, 9), good: true},
		"vouched twice":              {vouched: rounds(7, 7)},
		"vouched, descending":        {vouched: rounds(8, 7)},
		"vouched, removes a server":  {vouched: []TailRound{{Round: 7, Removed: removes}}},
		"the second removes a server": {vouched: append(rounds(7),
			TailRound{Round: 8, Removed: removes})},
		"vouched, reliable": {
			vouched: []TailRound{{Round: 7, Reliable: true}}, good: true,
		},
		"three vouched":                {vouched: rounds(7, 8, 9)},
		"recorded and vouched, as one": {recorded: rounds(7), vouched: rounds(7), good: true},
	} {
		m := Message{Kind: KindPromise, Generation: 3,
			Report: Report{Recorded: c.recorded, Vouched: c.vouched}}
		if _, err := DecodeMessage(m.Encode(nil)); (err == nil) != c.good ||
			err != nil && !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
