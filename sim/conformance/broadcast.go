package conformance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim"
)

// broadcastSizes are the sizes of groups: the smallest one that survives a crash, one that survives
// two, and one whose servers do not all know each other.
var broadcastSizes = []int{3, 5, 8}

// broadcastProperties are judged in every run of package sim.
var broadcastProperties = []property{
	{name: order.Integrity}, {name: order.TotalOrder}, {name: order.PrefixOrder},
	{name: order.AcyclicOrder}, {name: order.SetAgreement}, {name: order.RoundForm},
	{name: sim.Contract}, {order.Validity, true}, {order.Agreement, true},
	{order.UniformAgreement, true}, {sim.Progress, true},
}

// lifeProperties are judged where a shard lives on past the runs of its engines.
var lifeProperties = []property{
	{name: sim.Tolerance}, {name: sim.Freeze}, {name: sim.Durable}, {name: sim.Ordered},
	{name: sim.Stored}, {name: sim.Persistence}, {name: sim.Branch}, {name: sim.Time},
	{name: sim.Reason},
}

// perfectProperties are judged with a perfect detector.
var perfectProperties = []property{{name: sim.Accuracy}}

// setting is what an engine of package sim assumes and does.
type setting int

const (
	eventual setting = iota
	promptly
	recording
	perfect
	inFlight
	settingsEnd
)

// describe describes the setting, for people.
func (s setting) describe() string {
	return [...]string{
		eventual: "an eventually perfect detector, as nodes have; the shard lives on, with eons " +
			"and generations",
		promptly: "an eventually perfect detector and prompt delivery",
		recording: "an eventually perfect detector, and some servers that sync rounds before " +
			"they are ordered",
		perfect:  "a perfect detector; a run is a single run of the engine",
		inFlight: "a perfect detector, and three rounds in flight",
	}[s]
}

// flags are those of ledgerd sim check.
func (s setting) flags() string {
	return [...]string{eventual: " --detector eventual", promptly: " --prompt",
		recording: " --log-rounds", perfect: " --detector perfect",
		inFlight: " --detector perfect --in-flight 3"}[s]
}

// group is a group in the setting, without engine and servers.
func (s setting) group() sim.Group {
	return [...]sim.Group{
		eventual:  {Detector: allconcur.DetectorEventual},
		promptly:  {Detector: allconcur.DetectorEventual, Prompt: true},
		recording: {Detector: allconcur.DetectorEventual, Records: true},
		perfect:   {Detector: allconcur.DetectorPerfect},
		inFlight:  {Detector: allconcur.DetectorPerfect, InFlight: 3},
	}[s]
}

// properties are those that are judged in the setting.
func (s setting) properties() []property {
	if s == perfect || s == inFlight {
		return slices.Concat(broadcastProperties, perfectProperties)
	}
	return slices.Concat(broadcastProperties, lifeProperties)
}

// broadcastParts returns a part for each engine of package sim and each setting that it has.
func broadcastParts() ([]part, error) {
	var parts []part
	for _, engine := range sim.Engines() {
		for s := range settingsEnd {
			at := place{engine, s}
			group := s.group()
			group.Engine = engine
			columns, err := broadcastColumns(group, s.flags())
			if err != nil {
				return nil, err
			}
			if len(columns) == 0 {
				continue
			}
			p := part{engine: engine, setting: s.describe(), columns: columns,
				properties: s.properties(), bugs: map[order.Property]*Bug{}}
			for _, bug := range broadcastBugs[at] {
				p.bugs[bug.property] = bug.of(at)
			}
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// broadcastColumns returns the columns that a setting supports; none if the engine does not have
// that setting.
func broadcastColumns(group sim.Group, flags string) ([]column, error) {
	kinds := []sim.Faults{0}
	supported := sim.Faults(0)
	for kind := sim.FaultCrash; kind <= sim.FaultsAll; kind <<= 1 {
		kinds = append(kinds, kind)
	}
	var columns []column
	add := func(name string, faults sim.Faults, tooMany bool) error {
		made, err := broadcastColumn(group, flags, name, faults, tooMany)
		if errors.Is(err, sim.ErrOptions) {
			return nil // the engine does not support it
		}
		if err == nil {
			supported |= faults
			columns = append(columns, made)
		}
		return err
	}
	for _, kind := range kinds {
		if err := add(kind.String(), kind, false); err != nil {
			return nil, err
		}
	}
	if supported&^sim.FaultCrash != 0 {
		if err := add("all of them", supported, false); err != nil {
			return nil, err
		}
	}
	if supported.Has(sim.FaultCrash) {
		if err := add("too many crashes", sim.FaultCrash, true); err != nil {
			return nil, err
		}
	}
	return columns, nil
}

// broadcastColumn returns the column of some faults. With tooMany, all servers may crash.
func broadcastColumn(group sim.Group, flags, name string, faults sim.Faults,
	tooMany bool) (column, error) {
	group.Faults = faults
	runs := make(map[int]sim.Options, len(broadcastSizes))
	for _, size := range broadcastSizes {
		group.Servers = size
		options, err := group.Options()
		if err != nil {
			return column{}, err
		}
		if tooMany {
			options.Crashes = size
		}
		runs[size] = options
	}
	return column{
		faults: name, safetyOnly: tooMany, sizes: broadcastSizes,
		run: func(size int, seed uint64) (outcome, error) {
			r, err := runs[size].RunSeed(seed)
			return outcome{seed: seed, violations: r.Violations, delivered: r.Rounds,
				struck: len(r.Crashed) > 0 || r.Disturbances > 0}, err
		},
		replay: func(size int, seed uint64) string {
			command := fmt.Sprintf("ledgerd sim check --engine %s --servers %d --seeds 1 "+
				"--seed %d --faults %s%s", group.Engine, size, seed, flagOf(faults), flags)
			if tooMany {
				command += fmt.Sprintf(" --crashes %d", size)
			}
			return command + " --trace"
		},
	}, nil
}

// flagOf returns the shortest list of faults that ledgerd sim check reads.
func flagOf(faults sim.Faults) string {
	if faults == sim.FaultsAll {
		return "all"
	}
	return faults.String()
}
