package generation

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

func exampleDecision() *Decision {
	return &Decision{Generation: 3, Base: Head{Generation: 2, Height: 9, Round: 11}, Members: []order.ServerID{0, 2}, Disks: []DiskID{{5}, {6}},
		Tail: []TailRound{{Round: 12, Epoch: 4, Origins: []order.ServerID{0, 1, 2}}, {Round: 13, Epoch: 5, Reliable: true, Origins: []order.ServerID{0, 2}, Removed: []order.ServerID{1}, Content: [32]byte{7}}}}
}

func exampleMessages() []Message {
	d := exampleDecision()
	shard := Membership{Number: 2, Members: []order.ServerID{0, 1, 2}}
	report := Report{Head: d.Base, Run: NewRun(2, 1), Restarted: true, Shard: shard, Membership: Membership{Number: 3, Members: []order.ServerID{0, 1, 2, 5}},
		Votes: []Vote{{TailRound: d.Tail[0], Voters: shard.Members}, {TailRound: d.Tail[1], Confirmed: true, Voters: shard.Members}},
		Disk:  DiskID{6}, Original: true, Durable: 8, Perhaps: true, PerhapsTo: 12,
		Known:  []KnownVote{{Voter: 1, Round: 12, Epoch: 4, Origins: shard.Members}, {Voter: 2, Round: 13, Epoch: 5, Reliable: true, Confirmed: true, Origins: []order.ServerID{0, 2}}},
		Former: []Former{{Membership: Membership{Number: 2, Members: shard.Members, Disks: []DiskID{{5}, {}, {6}}}, Until: 9}}}
	return []Message{
		{Kind: KindPrepare, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Known: d, Regroup: true},
		{Kind: KindPromise, Generation: 4, Ballot: Ballot{4, 1, DiskID{6}}, Report: report, Accepted: Ballot{3, 0, DiskID{5}}, Value: d, Known: d},
		{Kind: KindAccept, Generation: 3, Ballot: Ballot{4, 1, DiskID{6}}, Value: d, Holders: []order.ServerID{0, 2}},
		{Kind: KindAccepted, Generation: 3, Ballot: Ballot{4, 1, DiskID{6}}, Disk: DiskID{6}, Original: true},
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
	f.Add(State{Disk: DiskID{4}, Activated: NewRun(2, 3), Shard: Membership{Number: 1, Members: []order.ServerID{3}}, Instance: 3, Accepted: Ballot{3, 1, DiskID{7}}, AcceptedValue: d, Decided: d}.Encode())
	f.Add([]byte(stateMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err == nil && len(b) > 0 && string(s.Encode()) != string(b) {
			t.Fatalf("%x decodes and encodes to %x", b, s.Encode())
		}
	})
}

// FuzzReceive feeds a synod whatever decodes: it must not panic.
func FuzzReceive(f *testing.F) {
	for _, m := range exampleMessages() {
		f.Add(uint32(1), m.Encode(nil))
	}
	f.Fuzz(func(t *testing.T, from uint32, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			return
		}
		s, err := NewSynod(Config{Self: 0, Report: Report{Membership: Membership{Members: []order.ServerID{0, 1, 2}}}, Grace: 1, Patience: 1, Original: true})
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

// What is cut short, or is longer than it says, is refused; no bytes at all are the state of a new node.
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
	for i := range b {
		hurt := append([]byte(nil), b...)
		hurt[i] ^= 4
		if _, err := DecodeState(hurt); !errors.Is(err, ErrMessage) {
			t.Fatalf("byte %d damaged: %v", i, err)
		}
	}
}
