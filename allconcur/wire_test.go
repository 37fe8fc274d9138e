package allconcur

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	message := encodeMessage(kindReliable, 7, 3, 9, 2, []byte("payload"))
	header, err := decodeFrame(message, 7)
	if want := (frameHeader{kind: kindReliable, generation: 7, epoch: 3, round: 9,
		origin: 2}); err != nil || header != want {
		t.Fatalf("%+v, %v, want %+v", header, err, want)
	}
	if string(payloadOf(message)) != "payload" || payloadOf(message[:messageHeaderSize]) != nil {
		t.Fatalf("payload %q", payloadOf(message))
	}
	failure := encodeFailure(7, 4, 5, 0)
	header, err = decodeFrame(failure, 0)
	if want := (frameHeader{kind: kindFailure, generation: 7, target: 4, owner: 5}); err != nil ||
		header != want {
		t.Fatalf("%+v, %v, want %+v", header, err, want)
	}
	if _, err := decodeFrame(message, 6); !errors.Is(err, order.ErrFrame) {
		t.Fatalf("a payload over the bound: %v", err)
	}
	for _, mutant := range [][]byte{
		nil, message[:31], failure[:23], append(bytes.Clone(failure), 0), altered(message, 0, 2),
		altered(message, 1, 0), altered(message, 1, 4),
		altered(message, 2, 1), altered(message, 3, 1), altered(message, 16, 0),
		altered(message, 24, 0), altered(failure, 2, 1), altered(failure, 3, 1),
	} {
		if _, err := decodeFrame(mutant, 100); !errors.Is(err, order.ErrFrame) {
			t.Errorf("%x: %v, want ErrFrame", mutant, err)
		}
	}
}

func altered(frame []byte, at int, value byte) []byte {
	mutant := bytes.Clone(frame)
	mutant[at] = value
	return mutant
}

// FuzzDecodeFrame: a frame that decodes encodes to the same bytes.
func FuzzDecodeFrame(f *testing.F) {
	f.Add(encodeMessage(kindUnreliable, 1, 1, 1, 0, nil))
	f.Add(encodeMessage(kindReliable, 1, 2, 3, 4, []byte("payload")))
	f.Add(encodeFailure(1, 2, 3, 4))
	f.Add(encodeMessage(kindReliable, 1, 2, 3, 4, []byte("payload"), revocation{5, 6},
		revocation{7, 8}))
	f.Add(encodeVote(kindForward, phaseDecided, 1, 2, 3, 4, serverSet{21}))
	f.Add(encodeVote(kindBackward, phaseConfirmed, 1, 2, 3, 4, serverSet{21, 1}))
	f.Add(encodePrompt(kindUnreliable, 1, 2, 3, 4, []byte("payload"), 2, someContents))
	f.Add(encodePrompt(kindReliable, 1, 3, 3, 4, []byte("payload"), 2, someContents,
		revocation{5, 6}))
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		header, err := decodeFrame(frame, 64)
		if err != nil {
			if !errors.Is(err, order.ErrFrame) {
				t.Fatalf("%v is no ErrFrame", err)
			}
			return
		}
		var again []byte
		switch header.kind {
		case kindFailure:
			again = encodeFailure(header.generation, header.target, header.owner, header.sequence)
		case kindForward, kindBackward:
			set := make(serverSet, (len(frame)-messageHeaderSize)/8)
			copySet(set, frame)
			again = encodeVote(header.kind, header.phase, header.generation, header.epoch,
				header.round, header.origin, set)
		default:
			var revocations []revocation
			for i := range header.revocations {
				revocations = append(revocations, revocationOf(frame, i))
			}
			if header.prompt {
				contents := copiesOf(frame)
				for i := range header.entries {
					if !isRerun(frame) {
						contents = append(contents, content{origin: entryOf(frame, i).origin})
					}
				}
				again = encodePrompt(header.kind, header.generation, header.epoch, header.round,
					header.origin, payloadOf(frame), header.since, contents, revocations...)
				break
			}
			again = encodeMessage(header.kind, header.generation, header.epoch, header.round,
				header.origin, payloadOf(frame), revocations...)
		}
		if !bytes.Equal(frame, again) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", frame, header, again)
		}
	})
}

// FuzzEngine feeds a server frames and suspicions that no correct group makes. It may ignore them,
// reject them as malformed, or halt, but must not panic. Each pair of input bytes is a step.
func FuzzEngine(f *testing.F) {
	f.Add(byte(1), []byte("\x00\x10\x21\x32\x43\x54\x65\x76\x87\x98"))
	f.Add(byte(0), []byte("\x90\x81\x72\x63\x54\x45\x36\x27\x18\x09\x00\x10\x20\x30"))
	f.Add(byte(7), []byte("\x05\x15\x25\x35\x45\x55\x65\x75\x06\x16\x26\x36\x46\x56\x66\x76"))
	// With prompt delivery: a round whose messages vouch for others, frames that are malformed, and
	// copies in a later epoch.
	for _, kind := range []byte{13, 15} {
		f.Add(kind, []byte("\x78\x00\x06\x06\x07\x07\x08\x08\x0a\x0a\x0b\x0b\x78\x00"+
			"\x06\x07\x07\x08\x08\x0a\x0a\x0b\x0b\x06"))
		f.Add(kind, []byte("\x79\x01\x0c\x1e\x25\x1f\x2b\x20\x0d\x22\x24\x23\x60\x02"+
			"\x24\x1e\x3d\x37\x19\x0a\x31\x23\x79\x00\xf0\x07\x26\x20"))
		f.Add(kind, []byte("\x26\x1e\x63\xd6\x35\x57\x25\x1e\x12\x25\x55\x47\xb9\xd9\x1f\xb2"+
			"\x78\x00\x60\x00\x27\x1e\x28\x20\x2a\x23"))
	}
	g := overlays(f, 6)[1]
	f.Fuzz(func(t *testing.T, kind byte, steps []byte) {
		config := Config{Engine: EngineAllConcur, Servers: 6, Self: 3, Reliable: g, MaxPayload: 64,
			Detector: Detector(kind / 4 % 3)}
		if kind%2 == 1 {
			config.Engine = EngineAllConcurPlus
		}
		if kind/2%2 == 1 {
			config.Change = func(d order.Delivery) bool { return d.Round%3 == 1 }
		}
		config.Prompt = kind%2 == 1 && kind/4%3 == 0 && kind/12%2 == 1
		e, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(steps); i += 2 {
			hostileStep(t, e, steps[i], steps[i+1])
			e.Ready()
			if e.older.filled && !e.plus || e.held > 3*heldMax(6) ||
				len(e.own[0].payload)+len(e.own[1].payload) > 128 {
				t.Fatal("unbounded or impossible state")
			}
		}
	})
}

func hostileStep(t *testing.T, e *Engine, a, b byte) {
	from, origin := order.ServerID(a%6), order.ServerID(b%6)
	epoch, round := e.epoch+order.Epoch(a/6%4)-1, e.round+order.Round(b/6%4)-1
	var err error
	sequence := uint32(0)
	if !e.perfect {
		sequence = uint32(a/6%4) + 1
	}
	switch a / 24 % 10 {
	case 0, 1, 2:
		if e.config.Prompt {
			hostilePrompt(t, e, a, b)
			return
		}
	}
	switch a / 24 % 10 {
	case 0:
		err = e.Receive(from, encodeMessage(kindUnreliable, 0, epoch, round, origin, []byte{b}))
	case 1, 2:
		err = e.Receive(from, encodeMessage(kindReliable, 0, epoch, round, origin, []byte{b}))
	case 3:
		err = e.Receive(from, encodeFailure(0, origin,
			order.ServerID(e.config.Reliable.Successors(int(origin))[b/6%3]), sequence))
	case 4:
		err = e.Suspect(origin)
	case 6:
		err = e.Trust(origin)
	case 7, 8:
		set := newServerSet(6)
		set[0] = uint64(b%8*9) | 1<<origin | uint64(a%4)<<2
		err = e.Receive(from, encodeVote(kindForward+frameKind(a/24%2),
			phaseDecided+votePhase(b/64%2), 0, epoch, round, origin, set))
	case 9:
		target := order.ServerID(e.config.Reliable.Predecessors(int(origin))[b/6%3])
		err = e.Receive(from, encodeMessage(kindReliable, 0, epoch, round, origin, []byte{b},
			revocation{target: target, sequence: max(1, sequence)}))
	default:
		err = e.Broadcast([]byte{a})
	}
	for _, expected := range []error{nil, order.ErrFrame, order.ErrHalted, order.ErrNotNow,
		ErrNotPredecessor} {
		if errors.Is(err, expected) {
			return
		}
	}
	t.Fatalf("unexpected error %v", err)
}

// hostilePrompt feeds a server a message with prompt delivery that vouches for others or has copies
// of their messages.
func hostilePrompt(t *testing.T, e *Engine, a, b byte) {
	origin := order.ServerID(b % 6)
	epoch, round := e.epoch+order.Epoch(a/6%4)-1, e.round+order.Round(b/6%4)-1
	since := max(1, epoch-order.Epoch(b/24%3))
	var contents []content
	for other := range order.ServerID(6) {
		if other != origin && (a^b)>>other&1 != 0 {
			contents = append(contents, content{origin: other, since: 1, payload: []byte{a}})
		}
	}
	kind := kindUnreliable + frameKind(a/24%2)
	err := e.Receive(order.ServerID(a%6), encodePrompt(kind, 0, epoch, round, origin,
		bytes.Repeat([]byte{b}, int(b%3)), since, contents))
	if err != nil && !errors.Is(err, order.ErrFrame) && !errors.Is(err, order.ErrHalted) {
		t.Fatalf("unexpected error %v", err)
	}
}
