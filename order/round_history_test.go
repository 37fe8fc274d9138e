package order

import (
	"slices"
	"strings"
	"testing"
)

// round makes a delivery. A message is given as "origin:payload".
func round(epoch Epoch, number Round, messages string, removed ...ServerID) Delivery {
	d := Delivery{Epoch: epoch, Round: number, Removed: removed}
	for word := range strings.FieldsSeq(messages) {
		d.Messages = append(d.Messages, Message{ServerID(word[0] - '0'), []byte(word[2:])})
	}
	return d
}

func TestRoundHistoryFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	// Every case starts with servers 0, 1 and 2 A-broadcasting a, b and c, and then d, e and f.
	type step struct {
		server ServerID
		rounds []Delivery
		fails  bool
	}
	first, second := round(1, 1, "0:a 1:b 2:c"), round(1, 2, "0:d 1:e 2:f")
	good := []Delivery{first, second}
	cases := []struct {
		name       string
		steps      []step
		nonUniform bool
		broken     []Property
		evidence   string
	}{
		{"nothing broken", []step{{0, good, false}, {1, good, false}, {2, good, false}}, false, nil,
			""},
		{"a removal", []step{{0, []Delivery{first, round(2, 2, "0:d 1:e", 2)}, false},
			{1, []Delivery{first, round(2, 2, "0:d 1:e", 2)}, false}, {2, good[:1], true}}, false,
			nil, ""},
		{"another epoch", []step{{0, good, false},
			{1, []Delivery{first, round(2, 2, "0:d 1:e 2:f")}, false}, {2, good, false}}, false,
			[]Property{SetAgreement},
			"server 0 A-delivers [epoch 1, round 2] with messages of 0 1 2\nserver 1 A-delivers " +
				"[epoch 2, round 2] with messages of 0 1 2"},
		{"another payload", []step{{0, good, false},
			{1, []Delivery{first, round(1, 2, "0:d 1:x 2:f")}, false}, {2, good, false}}, false,
			[]Property{SetAgreement, Integrity, PrefixOrder, Validity, Agreement},
			"server 0 A-delivers [epoch 1, round 2] with messages of 0 1 2\nserver 1 A-delivers " +
				"[epoch 1, round 2] with messages of 0 1 2\n" +
				`the message of 1 is 1 bytes "e" there and 1 bytes "x" here`},
		{"another set", []step{{0, good, false}, {1, []Delivery{first, round(1, 2, "0:d 1:e", 2)},
			false}, {2, good, false}}, false, []Property{SetAgreement, Agreement},
			"server 0 A-delivers [epoch 1, round 2] with messages of 0 1 2\nserver 1 A-delivers " +
				"[epoch 1, round 2] with messages of 0 1, removing 2"},
		{"another set at one that fails", []step{{0, good, true},
			{1, []Delivery{first, round(1, 2, "1:e 2:f", 0)}, false},
			{2, []Delivery{first, round(1, 2, "1:e 2:f", 0)}, false}},
			false, []Property{SetAgreement, PrefixOrder, UniformAgreement}, ""},
		{"which non-uniform broadcast allows", []step{{0, good, true},
			{1, []Delivery{first, round(1, 2, "1:e 2:f", 0)}, false},
			{2, []Delivery{first, round(1, 2, "1:e 2:f", 0)}, false}},
			true, nil, ""},
		{"but not between correct servers", []step{{0, good, false},
			{1, []Delivery{first, round(1, 2, "1:e 2:f", 0)}, false}, {2, good, false}},
			true, []Property{SetAgreement, PrefixOrder, Agreement}, ""},
		{"a round left out", []step{{0, []Delivery{first, round(1, 3, "0:d 1:e 2:f")}, false},
			{1, good[:1], true}, {2, good[:1], true}}, false, []Property{RoundForm},
			"server 0 A-delivers [epoch 1, round 3] with messages of 0 1 2\nround 3 does not " +
				"follow round 1"},
		{"a member forgotten", []step{{0, []Delivery{first, round(1, 2, "0:d 1:e")}, false},
			{1, good[:1], true}, {2, good[:1], true}}, false, []Property{RoundForm},
			"server 0 A-delivers [epoch 1, round 2] with messages of 0 1\nit neither holds a " +
				"message of member 2 nor removes it"},
		{"a dead man's message", []step{{0, []Delivery{round(1, 1, "0:a 1:b", 2),
			round(2, 2, "0:d 1:e 2:c")}, false}, {1, nil, true}, {2, nil, true}}, false,
			[]Property{RoundForm}, ""},
		{"out of order", []step{{0, []Delivery{round(1, 1, "1:b 0:a 2:c"), second}, false},
			{1, nil, true}, {2, nil, true}}, false, []Property{RoundForm}, ""},
		{"removed and alive", []step{{0, []Delivery{round(1, 1, "0:a 1:b 2:c", 2),
			round(1, 2, "0:d 1:e")}, false}, {1, nil, true}, {2, nil, true}}, false,
			[]Property{RoundForm}, ""},
		{"an epoch back", []step{{0, []Delivery{round(2, 1, "0:a 1:b 2:c"), second}, false},
			{1, nil, true}, {2, nil, true}}, false, []Property{RoundForm}, ""},
		{"delivered again", []step{{0, []Delivery{first, second, round(1, 3, "0:a 1: 2:")}, false},
			{1, nil, true}, {2, nil, true}}, false, []Property{Integrity, AcyclicOrder},
			"server 0 A-delivers m0.1 (epoch 1, round 1)\nserver 0 A-delivers m0.1 (epoch 1, " +
				"round 3) again"},
		{"invented", []step{{0, []Delivery{first, second, round(1, 3, "0:z 1: 2:")}, false},
			{1, nil, true}, {2, nil, true}}, false, []Property{Integrity},
			"server 0 A-delivers a payload (unknown 1) as a message of 0 (epoch 1, round " +
				"3)\nno process submitted it"},
		{"lost", []step{{0, good[:1], false}, {1, good[:1], false}, {2, good[:1], true}}, false,
			[]Property{Validity},
			"server 0 submits m0.2 and is correct\nserver 0 is correct and never A-delivers it"},
		{"behind", []step{{0, good, false}, {1, good[:1], false}, {2, good, false}}, false,
			[]Property{Validity, Agreement}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := NewRoundHistory(3)
			if c.nonUniform {
				h.NonUniform()
			}
			for i, payload := range []string{"a", "b", "c", "d", "e", "f", ""} {
				h.Broadcast(ServerID(i%3), []byte(payload))
			}
			var atOnce []Property
			for _, s := range c.steps {
				for _, d := range s.rounds {
					if v := h.Deliver(s.server, d); v != nil {
						atOnce = append(atOnce, v.Property)
					}
				}
				if s.fails {
					h.Fail(s.server)
				}
			}
			violations := h.Judge(AtRest)
			var broken []Property
			for _, v := range violations {
				broken = append(broken, v.Property)
			}
			if !slices.Equal(broken, c.broken) {
				t.Fatalf("broken are %q, want %q", broken, c.broken)
			}
			if !c.nonUniform && len(broken) > 0 && (broken[0] == SetAgreement ||
				broken[0] == RoundForm) && !slices.Contains(atOnce, broken[0]) {
				t.Errorf("%s was not told at once", broken[0])
			}
			if c.evidence != "" && strings.Join(violations[0].Evidence, "\n") != c.evidence {
				t.Errorf("the evidence is\n%v\nwant\n%s", violations[0], c.evidence)
			}
		})
	}
}

func TestEqualPayloadsAreDifferentMessages(t *testing.T) {
	t.Parallel()
	h := NewRoundHistory(1)
	for number := range Round(3) {
		h.Broadcast(0, []byte("same"))
		h.Deliver(0, round(1, number+1, "0:same"))
	}
	if broken := h.Judge(AtRest); broken != nil {
		t.Errorf("three equal payloads, three times: %v", broken)
	}
	h.Deliver(0, round(1, 4, "0:same"))
	if broken := h.Judge(UnderWay); len(broken) == 0 || broken[0].Property != Integrity {
		t.Errorf("a fourth time: %v", broken)
	}
}

// BenchmarkAgreeingRound measures a round that 32 servers A-deliver equally.
func BenchmarkAgreeingRound(b *testing.B) {
	const servers = 32
	h := NewRoundHistory(servers)
	payloads := make([][]byte, servers)
	b.ReportAllocs()
	for number := 1; b.Loop(); number++ {
		d := Delivery{Epoch: 1, Round: Round(number)}
		for s := range ServerID(servers) {
			payloads[s] = []byte{byte(s), byte(number), byte(number >> 8), byte(number >> 16),
				byte(number >> 24)}
			h.Broadcast(s, payloads[s])
			d.Messages = append(d.Messages, Message{s, payloads[s]})
		}
		for s := range ServerID(servers) {
			if v := h.Deliver(s, d); v != nil {
				b.Fatal(v)
			}
		}
	}
}
