package node

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// synodHome is what a node's synod starts with.
type synodHome struct {
	self     order.ServerID
	original bool
	state    generation.State
	report   generation.Report
}

// formingTicks bounds how long wouldForm lets the synods try.
const formingTicks = 400

// wouldForm reports whether nodes that start like this would decide a generation among themselves,
// if all of them run and reach each other. If not, it returns what they lack. The real synods
// decide this, so the answer matches what the nodes do. The synods get every round that they want
// on their disks.
func wouldForm(homes []synodHome) (bool, generation.Waiting) {
	synods := map[order.ServerID]*generation.Synod{}
	var servers []order.ServerID
	known := generation.Generation(0)
	for i := range homes {
		h := &homes[i]
		synod, err := generation.NewSynod(generation.Config{
			Self: h.self, Original: h.original, State: h.state, Report: h.report, Grace: 1,
			Patience: 4,
		})
		if err != nil {
			return false, generation.Waiting{}
		}
		synods[h.self], servers = synod, append(servers, h.self)
		if h.state.Decided != nil {
			known = max(known, h.state.Decided.Generation)
		}
	}
	type sent struct {
		from order.ServerID
		generation.Envelope
	}
	var mail []sent
	var waiting generation.Waiting
	for range formingTicks {
		for _, server := range servers {
			synod := synods[server]
			for _, other := range servers {
				synod.Linked(other, true)
			}
			synod.Tick()
			if w := synod.Waiting(); w.Missing > 0 || w.Durable > 0 || len(w.Perhaps) > 0 {
				waiting = w
			}
		}
		for again := true; again; {
			for _, server := range servers {
				synod := synods[server]
				for _, wanted := range synod.Wanted() {
					synod.Holds(wanted.ID())
				}
				for _, envelope := range synod.Ready().Messages {
					mail = append(mail, sent{server, envelope})
				}
			}
			again = len(mail) > 0
			for _, m := range mail {
				if slices.Contains(servers, m.To) {
					synods[m.To].Receive(m.from, m.Message)
				}
			}
			mail = nil
		}
		for _, server := range servers {
			if d := synods[server].Decided(); d != nil && d.Generation > known {
				return true, generation.Waiting{}
			}
		}
	}
	return false, waiting
}
