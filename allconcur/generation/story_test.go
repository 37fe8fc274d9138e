package generation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/ledgerd/ledgerd/order"
)

// TestStories runs the traces in testdata/stories. After an intended change, rewrite them with
// -rewrite and read the difference.
//
//	choose shard=5          the point from which a shard goes on; one line for each promise:
//	  0 round=7 run=1 [restarted] [bound=4] [votes=8:U,9:Rx] [confirmed] [voters=0,1,2]
//
// A vote is a round, and U or R with the name of a set. With confirmed, the last vote is confirmed.
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, chooseStory)
	})
}

func chooseStory(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var size int
	d.ScanArgs(t, "shard", &size)
	shard := Membership{}
	for i := range size {
		shard.Members = append(shard.Members, order.ServerID(i))
	}
	var promises []Promised
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		p := Promised{Report: Report{Head: Head{Generation: 1}, Original: true, Shard: shard,
			Membership: shard}}
		scan(t, fields[0], "%d", &p.Server)
		voters, votes, confirmed := shard.Members, "", false
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			switch key {
			case "round":
				scan(t, value, "%d", &p.Report.Head.Round)
			case "run":
				var eon uint16
				scan(t, value, "%d", &eon)
				p.Report.Run = NewRun(1, eon)
			case "restarted":
				p.Report.Restarted = true
			case "bound":
				var most int
				scan(t, value, "%d", &most)
				p.Report.Bound = BoundOf(most)
			case "votes":
				votes = value
			case "confirmed":
				confirmed = true
			case "voters":
				voters = nil
				for _, v := range strings.Split(value, ",") {
					var voter order.ServerID
					scan(t, v, "%d", &voter)
					voters = append(voters, voter)
				}
			default:
				t.Fatalf("%s: no word %q", d.Pos, key)
			}
		}
		for _, text := range strings.FieldsFunc(votes, func(r rune) bool { return r == ',' }) {
			v := Vote{Voters: voters}
			round, name, _ := strings.Cut(text, ":")
			scan(t, round, "%d", &v.Round)
			v.Reliable = name[0] == 'R'
			copy(v.Content[:], name)
			p.Report.Votes = append(p.Report.Votes, v)
		}
		if confirmed {
			p.Report.Votes[len(p.Report.Votes)-1].Confirmed = true
		}
		promises = append(promises, p)
	}
	base, tail := choose(promises, nil, FaultNone)
	text := fmt.Sprintf("after round %d", base.Round)
	for _, r := range tail {
		text += fmt.Sprintf(", then %s as round %d",
			strings.TrimRight(string(r.Content[:]), "\x00"), r.Round)
	}
	return text + "\n"
}

func scan(t *testing.T, text, format string, to any) {
	t.Helper()
	if _, err := fmt.Sscanf(text, format, to); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}
