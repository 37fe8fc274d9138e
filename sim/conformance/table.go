package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim"
	"github.com/ledgerd/ledgerd/sim/multicast"
	"github.com/ledgerd/ledgerd/sim/sweep"
)

// SeedsMax bounds Options.Seeds.
const SeedsMax = 1_000_000

// Options say how much to run.
type Options struct {
	// Engine is the only engine to run; "" is all of them.
	Engine string
	// Seeds is how many seeds to run for each column and each size of group, from 1 on.
	Seeds int
	// Progress, unless it is nil, is called before each column is run.
	Progress func(engine, column string)
}

// Table is the whole table.
type Table struct {
	Seeds int    `json:"seeds"`
	Parts []Part `json:"parts"`
}

// Part is an engine in a setting.
type Part struct {
	Engine string `json:"engine"`
	// Setting describes the groups and the detector, in a line.
	Setting string   `json:"setting"`
	Columns []Column `json:"columns"`
	Rows    []Row    `json:"rows"`
}

// Column is the runs with some faults.
type Column struct {
	// Faults names the kinds of fault.
	Faults string `json:"faults"`
	// Runs counts the runs, and Struck those in which a fault occurred. Delivered is the number of
	// rounds or messages that were A-delivered.
	Runs      int `json:"runs"`
	Struck    int `json:"struck"`
	Delivered int `json:"delivered"`
	// Failures are the runs that broke a property, at most failuresMax.
	Failures []Failure `json:"failures,omitempty"`
}

// failuresMax bounds the failures of a column that the table keeps.
const failuresMax = 3

// Failure is a run that broke a property.
type Failure struct {
	Property order.Property `json:"property"`
	Evidence []string       `json:"evidence"`
	// Replay is the command that runs it again.
	Replay string `json:"replay"`
}

// Row is a property.
type Row struct {
	Property order.Property `json:"property"`
	// Cells has one for each column.
	Cells []Cell `json:"cells"`
	// Bug was planted and broke the property. It is nil if there is no such bug.
	Bug *Bug `json:"bug,omitempty"`
}

// Cell says what became of a property.
type Cell string

// The cells.
const (
	Held      Cell = "held"
	Broken    Cell = "broken"
	NotJudged Cell = "not judged"
)

// Bug is a planted bug that breaks a property.
type Bug struct {
	Plant string `json:"plant"`
	// Replay is the command that shows it.
	Replay string `json:"replay"`
}

// outcome is what the table needs of a run.
type outcome struct {
	seed       uint64
	violations []*order.Violation
	struck     bool
	delivered  int
}

// column describes the runs of a column.
type column struct {
	faults string
	// safetyOnly says that liveness is never judged.
	safetyOnly bool
	// sizes are the sizes of groups. Each is run with as many seeds.
	sizes []int
	run   func(size int, seed uint64) (outcome, error)
	// replay is the command that runs a seed again.
	replay func(size int, seed uint64) string
}

// part describes a part of the table.
type part struct {
	engine, setting string
	columns         []column
	properties      []property
	bugs            map[order.Property]*Bug
}

// property is a row of a part.
type property struct {
	name order.Property
	// liveness says that the property is not judged where only safety is.
	liveness bool
}

// Make runs all engines. The error wraps sim.ErrOptions or is the context's. Broken properties are
// no error, but in the table.
func Make(ctx context.Context, options Options) (*Table, error) {
	parts, err := parts()
	if err != nil {
		return nil, err
	}
	made := &Table{Seeds: options.Seeds}
	for _, p := range parts {
		if options.Engine != "" && options.Engine != p.engine {
			continue
		}
		filled, err := p.fill(ctx, options)
		if err != nil {
			return nil, err
		}
		made.Parts = append(made.Parts, filled)
	}
	return made, nil
}

// Engines lists the engines that have a part. It makes none of the parts: a command line lists the
// engines each time that it starts, and the overlays of all groups take a tenth of a second.
func Engines() []string {
	names := sim.Engines()
	for _, engine := range multicast.Engines() {
		if engine.Name != multicast.EngineSequencer && !slices.Contains(names, engine.Name) {
			names = append(names, engine.Name)
		}
	}
	return names
}

func parts() ([]part, error) {
	broadcast, err := broadcastParts()
	if err != nil {
		return nil, err
	}
	all := append(broadcast, multicastParts()...)
	names := Engines()
	slices.SortStableFunc(all, func(a, b part) int { // an engine may be in both frames
		return slices.Index(names, a.engine) - slices.Index(names, b.engine)
	})
	return all, nil
}

// fill runs the columns of a part.
func (p part) fill(ctx context.Context, options Options) (Part, error) {
	filled := Part{Engine: p.engine, Setting: p.setting}
	for _, row := range p.properties {
		filled.Rows = append(filled.Rows, Row{Property: row.name, Bug: p.bugs[row.name]})
	}
	for _, c := range p.columns {
		if options.Progress != nil {
			options.Progress(p.engine, c.faults)
		}
		made, broken, err := c.fill(ctx, options.Seeds)
		if err != nil {
			return Part{}, fmt.Errorf("%s, %s: %w", p.engine, c.faults, err)
		}
		filled.Columns = append(filled.Columns, made)
		for i, row := range p.properties {
			cell := Held
			switch {
			case broken[row.name]:
				cell = Broken
			case row.liveness && c.safetyOnly:
				cell = NotJudged
			}
			filled.Rows[i].Cells = append(filled.Rows[i].Cells, cell)
		}
	}
	return filled, nil
}

// fill runs a column, and returns the properties that broke.
func (c column) fill(ctx context.Context, seeds int) (Column, map[order.Property]bool, error) {
	made, broken := Column{Faults: c.faults}, map[order.Property]bool{}
	for _, size := range c.sizes {
		run := func(seed uint64) (outcome, error) { return c.run(size, seed) }
		err := sweep.Seeds(ctx, 1, seeds, run, func(o outcome) bool {
			made.Runs++
			made.Delivered += o.delivered
			if o.struck {
				made.Struck++
			}
			for _, v := range o.violations {
				broken[v.Property] = true
			}
			if len(o.violations) > 0 && len(made.Failures) < failuresMax {
				made.Failures = append(made.Failures, Failure{Property: o.violations[0].Property,
					Evidence: o.violations[0].Evidence, Replay: c.replay(size, o.seed)})
			}
			return true
		})
		if err != nil {
			return Column{}, nil, err
		}
	}
	return made, broken, nil
}

// Failures returns all failures of the table.
func (t *Table) Failures() []Failure {
	var all []Failure
	for _, p := range t.Parts {
		for _, c := range p.Columns {
			all = append(all, c.Failures...)
		}
	}
	return all
}
