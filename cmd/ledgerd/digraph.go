package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"gonum.org/v1/gonum/graph/encoding/dot"

	"github.com/ledgerd/ledgerd/digraph"
)

// digraphWorkMax limits the work of measuring a digraph, as n·d², so that the command ends within
// about a minute.
const digraphWorkMax = 1 << 19

// digraphOptions are the flags of ledgerd digraph.
type digraphOptions struct {
	servers int
	degree  int
	nines   int
	period  time.Duration
	mttf    time.Duration
	kind    string
	format  string
}

// digraphReport is what ledgerd digraph --format json prints.
type digraphReport struct {
	Servers            int      `json:"servers"`
	Degree             int      `json:"degree"`
	Diameter           int      `json:"diameter"`
	Connectivity       int      `json:"connectivity"`
	FaultDiameterBound int      `json:"fault_diameter_bound"`
	Edges              [][2]int `json:"edges"`
}

// newDigraphCommand returns the `ledgerd digraph` command.
func newDigraphCommand() *cobra.Command {
	var options digraphOptions
	var asJSON bool
	command := &cobra.Command{
		Use:   "digraph --servers N",
		Short: "Show the overlay over which the nodes of a shard broadcast",
		Long: `Show the overlay over which the nodes of a shard broadcast, and its properties.

The nodes of a shard do not send every message to every node. Each node sends to
a few successors only, along the edges of a digraph, and they send it on. These
numbers show how many failures the shard survives and how fast it is:

  degree        how often a node sends, and receives, each message
  connectivity  fewer failures than this leave the other nodes connected
  diameter      steps until all nodes have a message, without failures
  fault diameter bound
                the same after one failure less than the connectivity

Without --degree, the degree follows from a reliability target: with as many
nines of probability as --nines says, no more nodes fail within --period than
the overlay survives, if each runs for --mttf on average between failures. A
shard computes its degree in this way, from the default values.

Kinds of overlay:

  gs        GS(n,d), regular, optimally connected, of a nearly minimal
            diameter; for any degree of at least 3 and n >= 2d
  complete  every node sends to every other node
  binomial  node i sends to i ± 1, 2, 4, ...; its degree follows from n
  ring      node i sends to i + 1; it survives no failure

Without --kind it is gs, or complete for so few servers that no gs meets the
target, as in a shard.`,
		Example: `  # The overlay of a shard of 8 nodes
  ledgerd digraph --servers 8

  # How many successors does a node need among 128, for nine nines?
  ledgerd digraph --servers 128 --nines 9

  # Compare with a binomial graph, and draw one (with Graphviz)
  ledgerd digraph --servers 12 --kind binomial
  ledgerd digraph --servers 9 --degree 3 --format dot | circo -Tsvg > overlay.svg`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			given := command.Flags().Changed
			if asJSON && !given("format") {
				options.format = "json"
			}
			g, err := options.build(given("degree"), given("nines") || given("period") ||
				given("mttf"))
			if err != nil {
				return asUsage(err)
			}
			return options.print(command.OutOrStdout(), g)
		},
	}
	flags := command.Flags()
	flags.IntVar(&options.servers, "servers", 0, "number of servers (required)")
	flags.IntVar(&options.degree, "degree", 0, "number of successors of a server, with --kind "+
		"gs; at least 3 and at most half of the servers")
	flags.IntVar(&options.nines, "nines", digraph.DefaultNines,
		"choose the degree for this many nines of reliability")
	flags.DurationVar(&options.period, "period", digraph.DefaultPeriod,
		"time after which failed servers have been replaced")
	flags.DurationVar(&options.mttf, "mttf", digraph.DefaultMTTF,
		"mean time to failure of a server")
	flags.StringVar(&options.kind, "kind", "",
		"kind of overlay: gs, binomial, complete or ring (default gs, or complete for few servers)")
	flags.StringVar(&options.format, "format", "text", "output format: text, json or dot")
	addJSONFlag(command, &asJSON)
	command.MarkFlagsMutuallyExclusive("degree", "nines")
	command.MarkFlagsMutuallyExclusive("degree", "period")
	command.MarkFlagsMutuallyExclusive("degree", "mttf")
	for name, values := range map[string][]string{
		"kind":   {digraph.KindGS, digraph.KindBinomial, digraph.KindComplete, digraph.KindRing},
		"format": {"text", "json", "dot"},
	} {
		completeFlag(command, name,
			cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return command
}

// build makes the digraph for the given flags.
func (o digraphOptions) build(degreeGiven, targetGiven bool) (*digraph.Digraph, error) {
	if o.servers < 1 {
		return nil, fmt.Errorf("--servers is %d: say how many servers the overlay connects, for "+
			"example --servers 8", o.servers)
	}
	switch o.format {
	case "text", "json", "dot":
	default:
		return nil, fmt.Errorf("--format %q is unknown: use text, json or dot", o.format)
	}
	if degreeGiven && o.kind != "" && o.kind != digraph.KindGS {
		return nil, fmt.Errorf("--degree goes with --kind gs only: the degree of %s follows "+
			"from --servers, so leave --degree out", o.kind)
	}
	if targetGiven && o.kind != "" && o.kind != digraph.KindGS {
		return nil, fmt.Errorf("--nines, --period and --mttf go with --kind gs only: the degree "+
			"of %s follows from --servers, so leave them out", o.kind)
	}
	g, err := o.buildKind(degreeGiven)
	if errors.Is(err, digraph.ErrOrder) || errors.Is(err, digraph.ErrTooManyEdges) {
		return nil, fmt.Errorf("%w: ask for fewer --servers or another --kind", err)
	}
	return g, err
}

func (o digraphOptions) buildKind(degreeGiven bool) (*digraph.Digraph, error) {
	switch o.kind {
	case digraph.KindBinomial:
		return digraph.Binomial(o.servers)
	case digraph.KindComplete:
		return digraph.Complete(o.servers)
	case digraph.KindRing:
		return digraph.Ring(o.servers)
	case digraph.KindGS, "":
	default:
		return nil, fmt.Errorf("--kind %q is unknown: use gs, binomial, complete or ring", o.kind)
	}
	if degreeGiven {
		g, err := digraph.GS(o.servers, o.degree)
		if errors.Is(err, digraph.ErrDegree) && o.servers < 6 {
			return nil, fmt.Errorf("%w: with %d servers leave --degree out, or use --kind complete",
				err, o.servers)
		}
		if errors.Is(err, digraph.ErrDegree) {
			return nil, fmt.Errorf("%w: with %d servers use --degree 3 to %d, or --kind complete",
				err, o.servers, o.servers/2)
		}
		return g, err
	}
	target := digraph.Target{Nines: o.nines, Period: o.period, MTTF: o.mttf}
	if o.nines < 1 || o.period <= 0 || o.mttf <= 0 {
		return nil, errors.New("--nines, --period and --mttf must be above zero, for example " +
			"--nines 6 --period 24h --mttf 18304h")
	}
	degree, err := digraph.Degree(o.servers, target)
	switch {
	case errors.Is(err, digraph.ErrTarget):
		return nil, fmt.Errorf("%w: change --nines, --period or --mttf", err)
	case errors.Is(err, digraph.ErrDegree) && o.kind == "":
		return digraph.Complete(o.servers)
	case errors.Is(err, digraph.ErrDegree):
		return nil, fmt.Errorf("%w: use --kind complete, more --servers or fewer --nines", err)
	case err != nil:
		return nil, err
	}
	return digraph.GS(o.servers, degree)
}

// print measures the digraph, unless the format is dot, and writes it out.
func (o digraphOptions) print(out io.Writer, g *digraph.Digraph) error {
	if o.format == "dot" {
		text, err := dot.Marshal(g, "overlay", "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", text)
		return err
	}
	if work := g.Order() * g.Degree() * g.Degree(); g.Kind() != digraph.KindComplete &&
		work > digraphWorkMax {
		return fmt.Errorf("measuring %s would take too long: ask for fewer --servers or a "+
			"smaller --degree, or use --format dot, which measures nothing", title(g))
	}
	report, err := measure(g)
	if err != nil {
		return err
	}
	if o.format == "json" {
		return json.NewEncoder(out).Encode(report)
	}
	return printText(out, g, report)
}

func measure(g *digraph.Digraph) (digraphReport, error) {
	diameter, err := g.Diameter()
	if err != nil {
		return digraphReport{}, err
	}
	connectivity := g.Connectivity()
	bound, err := g.FaultDiameterBound(max(0, connectivity-1))
	if err != nil {
		return digraphReport{}, err
	}
	return digraphReport{
		Servers:            g.Order(),
		Degree:             g.Degree(),
		Diameter:           diameter,
		Connectivity:       connectivity,
		FaultDiameterBound: bound,
		Edges:              g.Edges(),
	}, nil
}

// title names a digraph as the papers do.
func title(g *digraph.Digraph) string {
	switch g.Kind() {
	case digraph.KindGS:
		return fmt.Sprintf("GS(%d,%d)", g.Order(), g.Degree())
	case digraph.KindBinomial:
		return fmt.Sprintf("the binomial graph of %d servers", g.Order())
	default:
		return fmt.Sprintf("the %s digraph of %d servers", g.Kind(), g.Order())
	}
}

func printText(out io.Writer, g *digraph.Digraph, report digraphReport) error {
	if _, err := fmt.Fprintf(out, `overlay               %s
degree                %d
diameter              %d (at least %d with this degree)
connectivity          %d
fault diameter bound  %d with %d failed
failures survived     %d

successors
`, title(g), report.Degree, report.Diameter, digraph.MinimalDiameter(report.Servers,
		report.Degree), report.Connectivity,
		report.FaultDiameterBound, max(0, report.Connectivity-1),
		digraph.Tolerated(g)); err != nil {
		return err
	}
	width := len(fmt.Sprint(g.Order() - 1))
	for v := range g.Order() {
		if _, err := fmt.Fprintf(out, "%*d:", width+2, v); err != nil {
			return err
		}
		for _, successor := range g.Successors(v) {
			if _, err := fmt.Fprintf(out, " %*d", width, successor); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
	}
	return nil
}
