package bench

import (
	"log/slog"
	"slices"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// The engines of an atomic multicast.
const (
	// EngineTRAM is package tram/replica: groups with a leader, in one-sided memory.
	EngineTRAM = "tram"
	// EngineTRAMLeaderless is AllConcur+ in each group, package tram's relay behind it and package
	// tram/stream between the groups.
	EngineTRAMLeaderless = "tram-leaderless"
)

// multicastRow is how an atomic multicast is measured.
type multicastRow struct {
	name string
	// story describes the engine in one line.
	story string
	// led says that its groups have leaders, which can be taken away.
	led bool
	// clientsHaveHosts says that each client has a host of its own.
	clientsHaveHosts bool
	// make makes the deployment.
	make func(MulticastParameters, []rdmanet.RegionHost, *multicastLoad,
		*slog.Logger) (multicastEngine, error)
}

// multicastRows is the table of the engines.
var multicastRows = []multicastRow{
	{name: EngineTRAM, led: true, clientsHaveHosts: true,
		story: "groups with a leader each, in one-sided memory; clients write into the " +
			"replicas' memory",
		make: func(p MulticastParameters, hosts []rdmanet.RegionHost, load *multicastLoad,
			_ *slog.Logger) (multicastEngine, error) {
			return newTRAM(p, hosts, load)
		}},
	{name: EngineTRAMLeaderless,
		story: "groups that run AllConcur+, whose logs go down the tree in numbered streams; " +
			"each client sits beside a server of the group where its message enters",
		make: func(p MulticastParameters, hosts []rdmanet.RegionHost, load *multicastLoad,
			logger *slog.Logger) (multicastEngine, error) {
			return newLeaderless(p, hosts, load, logger)
		}},
}

// multicastRowOf returns the row of an engine. It reports false if there is none.
func multicastRowOf(name string) (multicastRow, bool) {
	at := slices.IndexFunc(multicastRows, func(r multicastRow) bool { return r.name == name })
	if at < 0 {
		return multicastRow{}, false
	}
	return multicastRows[at], true
}

// MulticastEngines lists the names of the engines of an atomic multicast, the default one first.
func MulticastEngines() []string {
	names := make([]string, len(multicastRows))
	for i, row := range multicastRows {
		names[i] = row.name
	}
	return names
}

// MulticastStory describes an engine of MulticastEngines in one line.
func MulticastStory(name string) string {
	row, _ := multicastRowOf(name)
	return row.story
}
