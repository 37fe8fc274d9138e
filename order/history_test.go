package order

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// stage builds a history from a text with one fact a line:
//
//	groups 3 2         two groups of three and two servers
//	0/1 submits a 0 1  replica 0/1 submits message a to groups 0 and 1
//	c/1 submits a 0 1  client 1 submits it
//	0/0 delivers a b
//	0/0 fails
//	non-uniform
func stage(t testing.TB, story string) *History {
	t.Helper()
	var h *History
	ids := make(map[string]MessageID)
	sequences := make(map[Replica]uint64)
	id := func(name string) MessageID {
		if known, ok := ids[name]; ok {
			return known
		}
		return MessageID{Sequence: 900 + uint64(name[0])}
	}
	for line := range strings.Lines(story) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
			continue
		case words[0] == "groups":
			var sizes []int
			for _, word := range words[1:] {
				size, _ := strconv.Atoi(word)
				sizes = append(sizes, size)
			}
			h = NewHistory(sizes...)
			continue
		case words[0] == "non-uniform":
			h.NonUniform = true
			continue
		}
		var r Replica
		if client, is := strings.CutPrefix(words[0], "c/"); is {
			r.Group = Clients
			if _, err := fmt.Sscan(client, &r.Server); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		} else if _, err := fmt.Sscanf(words[0], "%d/%d", &r.Group, &r.Server); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch words[1] {
		case "submits":
			sequences[r]++
			ids[words[2]] = MessageID{r, sequences[r]}
			var to []GroupID
			for _, word := range words[3:] {
				group, _ := strconv.Atoi(word)
				to = append(to, GroupID(group))
			}
			h.Submit(ids[words[2]], to...)
		case "delivers":
			for _, name := range words[2:] {
				h.Deliver(r, id(name))
			}
		case "fails":
			h.Fail(r)
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	return h
}

func TestPlantedHistories(t *testing.T) {
	t.Parallel()
	const three = "groups 3\n0/0 submits a 0\n0/1 submits b 0\n0/2 submits c 0\n"
	const square = "groups 1 1 1\n0/0 submits a 0 1\n0/0 submits b 1 2\n0/0 submits c 0 2\n"
	cases := []struct {
		name, story string
		broken      []Property
		evidence    string // of the first violation
	}{
		{"nothing broken", three + "0/0 delivers a b c\n0/1 delivers a b c\n0/2 delivers a b c",
			nil, ""},
		{"delivered twice", three + "0/0 delivers a b c\n0/1 delivers a b b c\n0/2 delivers a b c",
			[]Property{Integrity, PrefixOrder, AcyclicOrder},
			"server 1 A-delivers m1.1 (its delivery number 2)\nserver 1 A-delivers m1.1 (its " +
				"delivery number 3) again"},
		{"never submitted", three + "0/0 delivers a b c x\n0/1 delivers a b c x\n0/2 delivers a " +
			"b c x", []Property{Integrity},
			"server 0 A-delivers m0.1020 (its delivery number 4)\nno process submitted it"},
		{"not a destination", "groups 1 1\n0/0 submits a 0\n0/0 delivers a\n1/0 delivers a",
			[]Property{Integrity},
			"a process submits m0/0.1 to groups 0\nreplica 1/0 A-delivers m0/0.1 (its delivery " +
				"number 1), which is not for its group"},
		{"opposite orders", three + "0/0 delivers a b c\n0/1 delivers a c b\n0/2 delivers a b c",
			[]Property{TotalOrder, PrefixOrder, AcyclicOrder},
			"server 0 A-delivers m1.1 (its delivery number 2), then m2.1 (its delivery " +
				"number 3)\nserver 1 A-delivers m2.1 (its delivery number 2), then m1.1 " +
				"(its delivery " +
				"number 3)"},
		{"opposite orders at one that fails", three + "0/0 delivers a b c\n0/1 delivers a c " +
			"b\n0/1 fails\n0/2 delivers a b c",
			[]Property{TotalOrder, PrefixOrder, AcyclicOrder}, ""},
		{"which non-uniform broadcast allows", three + "0/0 delivers a b c\n0/1 delivers a c " +
			"b\n0/1 fails\n0/2 delivers a b c\nnon-uniform", nil, ""},
		{"a gap", three + "0/0 delivers a b c\n0/1 delivers a c\n0/2 delivers a b c",
			[]Property{PrefixOrder, Validity, Agreement},
			"server 0 A-delivers m1.1 (its delivery number 2) and not m2.1 before it\nserver 1 " +
				"A-delivers m2.1 (its delivery number 2) and not m1.1 before it"},
		{"a gap at one that fails", three + "0/0 delivers a b c\n0/1 delivers a c\n0/1 " +
			"fails\n0/2 delivers a b c", []Property{PrefixOrder}, ""},
		{"behind", three + "0/0 delivers a b c\n0/1 delivers a b\n0/2 delivers a b c",
			[]Property{Agreement},
			"server 0 A-delivers m2.1 (its delivery number 3) and is correct\nserver 1 is " +
				"correct and never A-delivers it"},
		{"ahead, then failed", three + "0/0 delivers a b\n0/1 delivers a b c\n0/1 fails\n0/2 " +
			"delivers a b\n0/2 fails", []Property{UniformAgreement},
			"server 1 A-delivers m2.1 (its delivery number 3) and fails later\nserver 0 is " +
				"correct and never A-delivers it"},
		{"ahead, then failed, non-uniform", three + "0/0 delivers a b\n0/1 delivers a b c\n0/1 " +
			"fails\n0/2 delivers a b\n0/2 fails\nnon-uniform", nil, ""},
		{"lost", three + "0/0 delivers a b\n0/1 delivers a b\n0/2 delivers a b",
			[]Property{Validity},
			"server 2 submits m2.1 and is correct\nserver 2 is correct and never A-delivers it"},
		{"lost with its sender", three + "0/0 delivers a b\n0/1 delivers a b\n0/2 delivers a " +
			"b\n0/2 fails", nil, ""},
		{"a circle over three groups",
			square + "0/0 delivers c a\n1/0 delivers a b\n2/0 delivers b c",
			[]Property{AcyclicOrder},
			"replica 1/0 A-delivers m0/0.1 (its delivery number 1), then m0/0.2 (its delivery " +
				"number 2)\n" +
				"replica 2/0 A-delivers m0/0.2 (its delivery number 1), then m0/0.3 (its " +
				"delivery number 2)\n" +
				"replica 0/0 A-delivers m0/0.3 (its delivery number 1), then m0/0.1 (its " +
				"delivery number 2)"},
		{"no circle over three groups",
			square + "0/0 delivers a c\n1/0 delivers a b\n2/0 delivers b c", nil, ""},
		{"a multicast missing at one destination",
			square + "0/0 delivers a c\n1/0 delivers a\n2/0 delivers b c",
			[]Property{Validity, Agreement},
			"replica 0/0 submits m0/0.2 to groups 1, 2 and is correct\nreplica 1/0 is correct " +
				"and never A-delivers it"},
		{"a client's, everywhere", "groups 2 1\nc/1 submits a 0 1\n0/0 delivers a\n0/1 delivers " +
			"a\n1/0 delivers a", nil, ""},
		{"a client's, lost", "groups 2 1\nc/1 submits a 0 1", []Property{Validity},
			"client 1 submits c1.1 to groups 0, 1 and is correct\nreplica 0/0 is correct and " +
				"never A-delivers it"},
		{"a client's, lost in the only group", "groups 2\nc/1 submits a 0\n0/0 delivers a",
			[]Property{Validity, Agreement},
			"client 1 submits c1.1 and is correct\nserver 1 is correct and never A-delivers it"},
		{"lost with its client", "groups 2 1\nc/1 submits a 0 1\nc/1 fails", nil, ""},
		{"of a client that failed, in part", "groups 2 1\nc/1 submits a 0 1\nc/1 fails\n0/0 " +
			"delivers a\n0/1 delivers a", []Property{Agreement},
			"replica 0/0 A-delivers c1.1 (its delivery number 1) and is correct\nreplica 1/0 is " +
				"correct and never A-delivers it"},
		{"of two clients, in opposite orders", "groups 1 1\nc/0 submits a 0 1\nc/1 submits b 0 " +
			"1\n0/0 delivers a b\n1/0 delivers b a", []Property{TotalOrder, PrefixOrder,
			AcyclicOrder},
			"replica 0/0 A-delivers c0.1 (its delivery number 1), then c1.1 (its delivery " +
				"number 2)\nreplica 1/0 A-delivers c1.1 (its delivery number 1), then c0.1 (its " +
				"delivery number 2)"},
		{"prefix order across groups", "groups 1 1\n0/0 submits a 0 1\n1/0 submits b 0 1\n0/0 " +
			"delivers a\n1/0 delivers b\n0/0 fails\n1/0 fails", []Property{PrefixOrder},
			"replica 0/0 A-delivers m0/0.1 (its delivery number 1) and not m1/0.1 before it (it " +
				"fails later)\n" +
				"replica 1/0 A-delivers m1/0.1 (its delivery number 1) and not m0/0.1 before it " +
				"(it fails later)"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			violations := stage(t, c.story).Judge(AtRest)
			var broken []Property
			for _, v := range violations {
				broken = append(broken, v.Property)
			}
			if !slices.Equal(broken, c.broken) {
				t.Fatalf("broken are %q, want %q", broken, c.broken)
			}
			if c.evidence != "" && strings.Join(violations[0].Evidence, "\n") != c.evidence {
				t.Errorf("the evidence is\n%v\nwant\n%s", violations[0], c.evidence)
			}
		})
	}
}

func TestLivenessIsJudgedAtRestOnly(t *testing.T) {
	t.Parallel()
	h := stage(t, "groups 2\n0/0 submits a 0\n0/1 delivers a")
	if broken := h.Judge(UnderWay); broken != nil {
		t.Errorf("under way: %v", broken)
	}
	if broken := h.Judge(AtRest); len(broken) != 2 {
		t.Errorf("at rest: %v", broken)
	}
}

// The oracles check few pairs and cycles. The functions below are the literal definitions.

func literalTotalOrder(h *History) bool {
	places := h.places()
	for p := range places {
		for q := range places {
			for m := range h.messages {
				for n := range h.messages {
					if places[p][m]*places[p][n]*places[q][m]*places[q][n] > 0 &&
						places[p][m] < places[p][n] && places[q][m] > places[q][n] {
						return false
					}
				}
			}
		}
	}
	return true
}

func literalPrefixOrder(h *History) bool {
	places := h.places()
	before := func(p, m, n int) bool {
		return places[p][m] > 0 && (places[p][n] == 0 || places[p][m] < places[p][n])
	}
	for p := range places {
		for q := range places {
			for m := range h.messages {
				for n := range h.messages {
					if m != n && h.forBoth(m, p, q) && h.forBoth(n, p, q) && places[p][m] > 0 &&
						places[q][n] > 0 && !before(p, n, m) && !before(q, m, n) {
						return false
					}
				}
			}
		}
	}
	return true
}

// shortestCycle returns the fewest messages in a cycle of <, 0 for none (Floyd and Warshall).
func shortestCycle(h *History) int {
	const never = 1 << 20
	places := h.places()
	n := len(h.messages)
	distance := make([][]int, n)
	for m := range distance {
		distance[m] = slices.Repeat([]int{never}, n)
		for p := range places {
			for other := range n {
				if places[p][m] > 0 && places[p][m] < places[p][other] {
					distance[m][other] = 1
				}
			}
		}
	}
	for k := range n {
		for i := range n {
			for j := range n {
				distance[i][j] = min(distance[i][j], distance[i][k]+distance[k][j])
			}
		}
	}
	shortest := never
	for m := range n {
		shortest = min(shortest, distance[m][m])
	}
	return shortest % never
}

func TestOraclesAgreeWithTheDefinitions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 2), 1, 4).Draw(t, "sizes")
		h := NewHistory(sizes...)
		messages := rapid.IntRange(0, 7).Draw(t, "messages")
		var all []int
		for m := range messages {
			var to []GroupID
			for g := range sizes {
				if len(sizes) == 1 || rapid.Bool().Draw(t, "to") {
					to = append(to, GroupID(g))
				}
			}
			h.Submit(MessageID{Replica{0, 0}, uint64(m + 1)}, to...)
			all = append(all, m)
		}
		swaps := rapid.IntRange(0, 3).Draw(t, "swaps")
		for p := range h.processes {
			sequence := slices.Clone(all)
			if rapid.Bool().Draw(t, "shuffled") {
				sequence = rapid.Permutation(all).Draw(t, "sequence")
			} else {
				for range min(swaps, len(all)-1) {
					at := rapid.IntRange(0, len(all)-2).Draw(t, "swap")
					sequence[at], sequence[at+1] = sequence[at+1], sequence[at]
				}
			}
			for _, m := range sequence {
				if h.messages[m].goesTo(h.processes[p].replica.Group) &&
					rapid.IntRange(0, 5).Draw(t, "gap") > 0 {
					h.Deliver(h.processes[p].replica, h.messages[m].id)
				}
			}
		}
		if got, want := judgeTotalOrder(h) == nil, literalTotalOrder(h); got != want {
			t.Fatalf("total order holds: %v, want %v", got, want)
		}
		if got, want := judgePrefixOrder(h) == nil, literalPrefixOrder(h); got != want {
			t.Fatalf("prefix order holds: %v, want %v", got, want)
		}
		cycle := 0
		if v := judgeAcyclicOrder(h); v != nil {
			cycle = len(v.Evidence)
		}
		if want := shortestCycle(h); cycle != want {
			t.Fatalf("the shortest cycle has %d messages, want %d", cycle, want)
		}
		if v := judgeIntegrity(h); v != nil {
			t.Fatalf("integrity: %v", v)
		}
	})
}
