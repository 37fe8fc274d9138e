package conformance

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/multicast"
)

// multicastRuns makes the columns of multicast as long as those of broadcast. There the seed draws
// the sizes of groups, so each part of a column takes other seeds.
const multicastRuns = 3

// multicastProperties are judged in every run of package sim/multicast.
var multicastProperties = []property{
	{name: order.Integrity}, {name: order.TotalOrder}, {name: order.PrefixOrder},
	{name: order.AcyclicOrder}, {name: multicast.Contract}, {order.Validity, true},
	{order.Agreement, true}, {order.UniformAgreement, true}, {multicast.Progress, true},
}

// multicastParts returns a part for each engine of package sim/multicast, except for the frame's
// own.
func multicastParts() []part {
	var parts []part
	for _, engine := range multicast.Engines() {
		if engine.Name == multicast.EngineSequencer {
			continue
		}
		p := part{engine: engine.Name, properties: multicastProperties,
			setting: "groups that the seed draws", bugs: map[order.Property]*Bug{}}
		if engine.OneGroup {
			p.setting = "one group of up to five servers, whose logs are looked at after each step"
			p.properties = append(slices.Clone(p.properties), property{name: multicast.Invariant})
		}
		for _, bug := range multicastBugs[engine.Name] {
			p.bugs[bug.property] = bug.of(engine.Name)
		}
		for _, name := range append([]string{"none"}, multicast.FaultNames()...) {
			if faults, err := multicast.ParseFaults(name); err == nil && !engine.Takes(faults) {
				continue // groups of the engine do not change
			}
			p.columns = append(p.columns, multicastColumn(engine.Name, name))
		}
		p.columns = append(p.columns, multicastColumn(engine.Name, "all"))
		parts = append(parts, p)
	}
	return parts
}

// multicastColumn returns the column of some faults.
func multicastColumn(engine, name string) column {
	faults, err := multicast.ParseFaults(name)
	if err != nil {
		panic("conformance: no such fault: " + name) // the names come from the same package
	}
	c := column{faults: name, safetyOnly: faults == multicast.FaultOverwhelm}
	if name == "all" {
		c.faults = "all of them"
	}
	for part := range multicastRuns {
		c.sizes = append(c.sizes, part)
	}
	at := func(part int, seed uint64) uint64 { return seed*multicastRuns - uint64(part) }
	c.run = func(part int, seed uint64) (outcome, error) {
		options := multicast.Options{Engine: engine, Faults: faults}
		r, err := options.RunSeed(at(part, seed))
		return outcome{seed: seed, violations: r.Violations, delivered: r.Deliveries,
			struck: r.Faults > 0}, err
	}
	c.replay = func(part int, seed uint64) string {
		return fmt.Sprintf("ledgerd sim multicast --engine %s --seeds 1 --seed %d --faults %s "+
			"--trace", engine, at(part, seed), name)
	}
	return c
}
