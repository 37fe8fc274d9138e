package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/plan"
)

// planOptions are the flags of ledgerd plan.
type planOptions struct {
	servers     int
	nines       int
	mttf        hours
	period      hours
	deployment  string
	batch       int
	transaction int
	accuracy    float64
	tail        time.Duration
	distance    time.Duration
	load        float64
	engine      string
}

// hours is a duration flag: with a unit, or a bare number of hours.
type hours time.Duration

// String implements pflag.Value.
func (h *hours) String() string {
	return strings.TrimSuffix(strings.TrimSuffix(time.Duration(*h).String(), "0s"), "0m")
}

// Type implements pflag.Value.
func (h *hours) Type() string { return "hours" }

// Set implements pflag.Value.
func (h *hours) Set(text string) error {
	if number, err := strconv.ParseFloat(text, 64); err == nil {
		if !(number > 0 && number < float64(1<<63-1)/float64(time.Hour)) {
			return fmt.Errorf("%s hours are out of range", text)
		}
		*h = hours(number * float64(time.Hour))
		return nil
	}
	duration, err := time.ParseDuration(text)
	if err != nil || duration <= 0 {
		return fmt.Errorf("%q is no duration: write a number of hours, such as 18304, or use a "+
			"unit, such as 90m", text)
	}
	*h = hours(duration)
	return nil
}

// planReport is what ledgerd plan --json prints.
type planReport struct {
	Servers          int           `json:"servers"`
	Nines            int           `json:"nines"`
	MTTFHours        float64       `json:"mttf_hours"`
	PeriodHours      float64       `json:"period_hours"`
	Deployment       string        `json:"deployment"`
	Batch            int           `json:"batch"`
	TransactionBytes int           `json:"transaction_bytes"`
	Overlay          string        `json:"overlay"`
	Degree           int           `json:"degree"`
	Connectivity     int           `json:"connectivity"`
	Diameter         int           `json:"diameter"`
	FaultDiameter    int           `json:"fault_diameter_bound"`
	Tolerated        int           `json:"tolerated_failures"`
	Unreliability    float64       `json:"too_many_failures_probability"`
	Meets            bool          `json:"target_met"`
	Unreliable       planMode      `json:"unreliable"`
	Reliable         planMode      `json:"reliable"`
	Eventual         planMode      `json:"reliable_eventual"`
	Failures         planFaults    `json:"with_failures"`
	Excess           planExcess    `json:"beyond_fault_diameter"`
	Heartbeat        planHeartbeat `json:"heartbeat"`
	Careful          planHeartbeat `json:"heartbeat_careful"`
	Distance         float64       `json:"distance_ms"`
	Load             float64       `json:"load_tx_s"`
	Engines          []planEngine  `json:"engines"`
	Choice           planChoice    `json:"choice"`
}

// planMode describes one mode in a report.
type planMode struct {
	Round      float64 `json:"round_ms"`
	Latency    float64 `json:"latency_ms"`
	Uniform    float64 `json:"uniform_latency_ms"`
	Throughput float64 `json:"throughput_tx_s"`
	Bound      string  `json:"bound"`
	Messages   int     `json:"messages_received"`
}

// planFaults describes the effect of failures in a report.
type planFaults struct {
	Between          float64 `json:"hours_between_failures"`
	Latency          float64 `json:"latency_ms"`
	Throughput       float64 `json:"throughput_tx_s"`
	WorstLatency     float64 `json:"worst_latency_ms"`
	WorstLatencyMany float64 `json:"worst_latency_many_ms"`
	WorstThroughput  float64 `json:"worst_throughput_tx_s"`
	Pause            float64 `json:"pause_ms"`
	Messages         int     `json:"messages_received"`
}

// planExcess holds the probabilities of rounds deeper than the fault diameter in a report.
type planExcess struct {
	Round   float64 `json:"round_probability"`
	Million float64 `json:"million_rounds_probability"`
}

// planHeartbeat holds settings of the failure detector in a report.
type planHeartbeat struct {
	Period   float64 `json:"period_ms"`
	Timeout  float64 `json:"timeout_ms"`
	Accuracy float64 `json:"wanted_accuracy"`
	Wrong    float64 `json:"false_suspicion_probability"`
}

// newPlanCommand returns the `ledgerd plan` command.
func newPlanCommand() *cobra.Command {
	var shards planShardsFlags
	var advice adviceFlags
	options := planOptions{
		nines: digraph.DefaultNines, mttf: hours(digraph.DefaultMTTF),
		period: hours(digraph.DefaultPeriod), deployment: "lan", batch: 1,
		transaction: plan.TransactionDefault, accuracy: plan.AccuracyDefault,
	}
	command := &cobra.Command{
		Use:   "plan (--servers N | --shards S)",
		Short: "Predict the behaviour of a shard, or of a tree of shards, before building it",
		Long: `Predict the behaviour of a shard before building it: the overlay, the failures
that it survives, latency and throughput, settings of the failure detector, and a
comparison of the engines; or, with --shards, what a tree of shards carries.

The numbers come from the models of M. Poke's dissertation "Algorithms for
High-Performance State-Machine Replication" (sections 5.2.1.1, 5.6 and 6.5.2).
They assume that every node has something to send in every round, that one message
of each node is outstanding, and that disks and execution take no time.

Deployments:

  rack    one rack, InfiniBand of 32 Gbit/s (L = 1.25 us, o = 0.38 us), with RDMA
  lan     one room, 10 Gbit/s, TCP as the dissertation measured it (L = 12 us,
          o = 1.8 us)
  dc      one datacentre, a fat-tree of 1 Gbit/s, each node in a subnet of its own
  europe  five datacentres, Dublin to Stockholm, a fifth of the nodes in each

` + planEnginesLong + `

JSON fields, times in milliseconds where a name ends in _ms:

  servers, nines, mttf_hours, period_hours, deployment, batch,
  transaction_bytes             the question
  overlay, degree, connectivity, diameter, fault_diameter_bound
                                the reliable digraph, as of ledgerd digraph
  tolerated_failures            how many nodes may fail
  too_many_failures_probability that more fail within the period
  target_met                    whether that is as rare as --nines asks
  unreliable                    AllConcur+ without failures
  reliable                      AllConcur with a perfect failure detector
  reliable_eventual             AllConcur with an eventually perfect one
    round_ms                    a round
    latency_ms                  from a message's broadcast to its delivery
    uniform_latency_ms          the same with uniform delivery, the default
    throughput_tx_s             transactions a second
    bound                       what limits a round's time: depth (the ways of
                                messages), processor, link, fibre, gateway or
                                window
    messages_received           by a node in a round
  with_failures                 AllConcur+ with the failures that --mttf brings
    hours_between_failures      of any node
    latency_ms, throughput_tx_s on average
    worst_latency_ms, worst_latency_many_ms
                                of a round with one failure, and with any number
    worst_throughput_tx_s       if every second unreliable round fails
    pause_ms                    without deliveries after a crash, by the careful
                                timeout
    messages_received           by a node in a reliable round, at most
  beyond_fault_diameter         that a round's depth exceeds the fault diameter:
    round_probability, million_rounds_probability
  heartbeat                     if the delays of heartbeats are independent
  heartbeat_careful             if one pause delays all heartbeats of a timeout
    period_ms, timeout_ms       for ordering.heartbeat and ordering.suspect_after
    wanted_accuracy             --accuracy
    false_suspicion_probability within the period
` + planEnginesFields + `

` + planShardsLong + `

JSON fields with --traffic:

` + adviceFields + `

With --crossing, these are shards, tree, costs_us, ahead_up_to_percent and:

  plans                         for each percentage, the fields of now, and
    gain_of_shapes              gain of the same traffic in the trees breadth,
                                binary and chain`,
		Example: `  # A shard of 8 nodes in one room
  ledgerd plan --servers 8

  # 72 nodes in a datacentre that put 4 transactions into each message
  ledgerd plan --servers 72 --deployment dc --batch 4

  # Nine nines across Europe, with servers that fail every half year
  ledgerd plan --servers 30 --nines 9 --mttf 4380 --deployment europe --json

  # Which engine for five nodes that are 2 ms apart, if it has to carry 20,000 tx/s?
  ledgerd plan --servers 5 --distance 2ms --batch 100 --load 20000

  # Seven shards in a binary tree, a tenth of whose transactions cross
  ledgerd plan --shards 7 --tree binary --crossing 10

  # Four shards for known parties, with the costs of your own machines
  ledgerd bench ledger --shards 4 --crossing 0,50,100 --json > measured.json
  ledgerd plan --shards 4 --traffic deals.csv --measured measured.json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			changed := command.Flags().Changed
			if err := shards.check(changed); err != nil {
				return err
			}
			if changed("shards") {
				return shards.run(command.OutOrStdout(), command.ErrOrStderr(), &advice)
			}
			made, err := options.make(changed("tail"))
			if err != nil {
				return asUsage(err)
			}
			if options.engine != "" {
				made.Engines = slices.DeleteFunc(made.Engines,
					func(e plan.Engine) bool { return e.Name != options.engine })
			}
			if advice.json {
				return writeJSON(command.OutOrStdout(), reportPlan(made))
			}
			return printPlan(command.OutOrStdout(), made)
		},
	}
	flags := command.Flags()
	flags.IntVar(&options.servers, "servers", 0, "number of servers (required)")
	flags.IntVar(&options.nines, "nines", options.nines,
		"reliability: this many nines of probability that no more nodes fail within --period "+
			"than the shard survives")
	flags.Var(&options.mttf, "mttf", "mean time to failure of a server, in hours or with a unit")
	flags.Var(&options.period, "period", "time after which failed servers have been replaced, "+
		"in hours or with a unit")
	flags.StringVar(&options.deployment, "deployment", options.deployment,
		"network: rack, lan, dc or europe")
	flags.IntVar(&options.batch, "batch", options.batch, "transactions in a message")
	flags.IntVar(&options.transaction, "transaction", options.transaction,
		"size of a transaction, in bytes")
	flags.Float64Var(&options.accuracy, "accuracy", options.accuracy,
		"wanted probability that no working node is suspected within --period")
	flags.DurationVar(&options.tail, "tail", 0,
		"mean of a heartbeat's delay beyond the network's latency (default 1ms in a rack, 2ms in "+
			"a lan, 5ms in a dc, 20ms in europe)")
	flags.DurationVar(&options.distance, "distance", 0,
		"further time that every message takes on its way from one node to another")
	flags.Float64Var(&options.load, "load", 0,
		"transactions a second that the engine has to carry")
	bindPlanEngine(command, &options.engine)
	shards.bind(command)
	advice.bind(command)
	completeFlag(command, "deployment",
		cobra.FixedCompletions([]string{"rack", "lan", "dc", "europe"},
			cobra.ShellCompDirectiveNoFileComp))
	return command
}

// make computes the plan that the flags ask for. An error names a flag to change.
func (o planOptions) make(tailGiven bool) (plan.Plan, error) {
	switch {
	case o.servers < 1:
		return plan.Plan{}, errors.New("--servers is missing: say how many servers there are to " +
			"be, for example --servers 8, or plan several shards with --shards")
	case o.servers > plan.ServersMax:
		return plan.Plan{}, fmt.Errorf("--servers is %d: plans are made for up to %d", o.servers,
			plan.ServersMax)
	case o.nines < 1 || o.nines > digraph.MaxNines:
		return plan.Plan{}, fmt.Errorf("--nines is %d: it has to be 1 to %d", o.nines,
			digraph.MaxNines)
	case o.batch < 1 || o.batch > plan.BatchMax:
		return plan.Plan{}, fmt.Errorf("--batch is %d: it has to be 1 to %d", o.batch,
			plan.BatchMax)
	case o.transaction < 1 || o.transaction > plan.TransactionMax:
		return plan.Plan{}, fmt.Errorf("--transaction is %d: it has to be 1 to %d bytes",
			o.transaction, plan.TransactionMax)
	case !(o.accuracy > 0 && o.accuracy < 1):
		return plan.Plan{}, fmt.Errorf("--accuracy is %v: it has to be above 0 and below 1, for "+
			"example 0.999999", o.accuracy)
	case tailGiven && o.tail < 0:
		return plan.Plan{}, fmt.Errorf("--tail is %v: it has to be 0 or more", o.tail)
	case o.distance < 0 || o.distance > plan.DistanceMax:
		return plan.Plan{}, fmt.Errorf("--distance is %v: it has to be 0 to %v", o.distance,
			plan.DistanceMax)
	case !(o.load >= 0 && o.load <= plan.LoadMax):
		return plan.Plan{}, fmt.Errorf("--load is %v: it has to be 0 to %v", o.load, plan.LoadMax)
	case o.engine != "" && !slices.Contains(plan.EngineNames(), o.engine):
		return plan.Plan{}, fmt.Errorf("--engine %q is unknown: use %s", o.engine,
			strings.Join(plan.EngineNames(), ", "))
	}
	deployment, err := plan.DeploymentOf(o.deployment)
	if err != nil {
		return plan.Plan{}, fmt.Errorf("--deployment %q is unknown: use rack, lan, dc or europe",
			o.deployment)
	}
	if tailGiven {
		deployment.Tail = o.tail
	}
	deployment.Distance = o.distance
	made, err := plan.Make(plan.Question{
		Servers: o.servers, Target: digraph.Target{Nines: o.nines, Period: time.Duration(o.period),
			MTTF: time.Duration(o.mttf)},
		Deployment: deployment, Batch: o.batch, Transaction: o.transaction, Accuracy: o.accuracy,
		Load: o.load,
	})
	switch {
	case errors.Is(err, digraph.ErrTarget):
		return made, fmt.Errorf("%w: change --nines, --period or --mttf", err)
	case errors.Is(err, plan.ErrQuestion):
		return made, fmt.Errorf("%w: change --batch, --transaction, --accuracy or --tail", err)
	}
	return made, err
}

// milliseconds converts a duration to a number of milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// reportPlan converts a plan to its JSON form.
func reportPlan(p plan.Plan) planReport {
	mode := func(m plan.Mode, uniform time.Duration) planMode {
		return planMode{
			Round: milliseconds(m.Duration), Latency: milliseconds(m.Latency),
			Uniform: milliseconds(uniform), Throughput: m.Throughput,
			Bound: string(m.Bound), Messages: m.Received,
		}
	}
	beat := func(h plan.Heartbeat) planHeartbeat {
		return planHeartbeat{Period: milliseconds(h.Period), Timeout: milliseconds(h.Timeout),
			Accuracy: p.Question.Accuracy, Wrong: h.WrongInPeriod}
	}
	q := p.Question
	engines, choice := reportEngines(p.Engines)
	return planReport{
		Servers: q.Servers, Nines: q.Target.Nines, MTTFHours: q.Target.MTTF.Hours(),
		PeriodHours: q.Target.Period.Hours(), Deployment: q.Deployment.Name,
		Batch: q.Batch, TransactionBytes: q.Transaction, Overlay: title(p.Overlay),
		Degree: p.Degree, Connectivity: p.Connectivity, Diameter: p.Diameter,
		FaultDiameter: p.FaultDiameter, Tolerated: p.Tolerated, Unreliability: p.Unreliability,
		Meets:      p.Meets,
		Unreliable: mode(p.Unreliable, p.Uniform), Reliable: mode(p.Reliable, p.Reliable.Latency),
		Eventual: mode(p.Eventual, p.Eventual.Latency),
		Failures: planFaults{
			Between: p.Failures.Between.Hours(), Latency: milliseconds(p.Failures.Latency),
			Throughput:       p.Failures.Throughput,
			WorstLatency:     milliseconds(p.Failures.WorstLatency),
			WorstLatencyMany: milliseconds(p.Failures.WorstLatencyMany),
			WorstThroughput:  p.Failures.WorstThroughput, Pause: milliseconds(p.Failures.Pause),
			Messages: p.ReceivedFailures,
		},
		Excess:    planExcess{Round: p.Excess.Round, Million: p.Excess.Million},
		Heartbeat: beat(p.Heartbeat), Careful: beat(p.Careful),
		Distance: milliseconds(q.Deployment.Distance), Load: q.Load, Engines: engines,
		Choice: choice,
	}
}

// short formats a duration with three significant digits.
func short(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
		from time.Duration
	}{{24 * time.Hour, "days", 48 * time.Hour}, {time.Hour, "h", 2 * time.Hour},
		{time.Minute, "min", 2 * time.Minute}, {time.Second, "s", time.Second},
		{time.Millisecond, "ms", time.Millisecond}, {time.Microsecond, "us", time.Microsecond}} {
		if d >= unit.from {
			return threeDigits(float64(d)/float64(unit.size)) + " " + unit.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + " ns"
}

// threeDigits formats a number with three significant digits, and with all digits before the point.
func threeDigits(x float64) string {
	if x >= 1000 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// probability formats a probability, which is most likely small.
func probability(p float64) string {
	if p < 1e-100 {
		return "0"
	}
	return strconv.FormatFloat(p, 'g', 2, 64)
}

// boundWords name the resource that limits a round's time.
var boundWords = map[plan.Resource]string{
	plan.ResourceDepth: "the ways of messages", plan.ResourceProcessor: "the processors",
	plan.ResourceLink:    "the nodes' links",
	plan.ResourceFibre:   "the fibres between datacentres",
	plan.ResourceGateway: "the datacentres' gateways", plan.ResourceWindow: "TCP's window",
}

// planLine is a number of a plan and its meaning. A line without a value is a heading.
type planLine struct{ name, value, meaning string }

// printPlan writes a plan as text: on each line a number and its meaning.
func printPlan(out io.Writer, p plan.Plan) error {
	q := p.Question
	lines := slices.Concat(overlayLines(p), modeLines(p), failureLines(p), detectorLines(p))
	var names, values int
	for _, line := range lines {
		if line.value != "" {
			names, values = max(names, len(line.name)), max(values, len(line.value))
		}
	}
	var text strings.Builder
	farther := ""
	if q.Deployment.Distance > 0 {
		farther = fmt.Sprintf(", and %s farther apart", short(q.Deployment.Distance))
	}
	fmt.Fprintf(&text, "%s%s; %s of %d bytes in a message\n", q.Deployment.Describe, farther,
		plural(q.Batch, "transaction"), q.Transaction)
	for _, line := range lines {
		if line.value == "" {
			fmt.Fprintf(&text, "\n%s\n", line.name)
			continue
		}
		fmt.Fprintf(&text, "  %-*s  %-*s  %s\n", names, line.name, values, line.value, line.meaning)
	}
	text.WriteString("\nSet a node's timing by ordering.heartbeat and ordering.suspect_after in " +
		"its config.toml.\n")
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	return printEngines(out, p)
}

// overlayLines describe the reliable digraph.
func overlayLines(p plan.Plan) []planLine {
	q := p.Question
	met := " would take more nodes, or better ones"
	if p.Meets {
		met = " are met"
	}
	return []planLine{
		{name: "Overlay"},
		{"reliable digraph", title(p.Overlay),
			fmt.Sprintf("steps to all nodes: %d, or at most %d with failures", p.Diameter,
				p.FaultDiameter)},
		{"degree", fmt.Sprint(p.Degree), "how often a node sends each message in reliable mode"},
		{"failures survived", fmt.Sprint(p.Tolerated),
			"less than the connectivity, and less than half of the nodes"},
		{"too many failures", probability(p.Unreliability),
			fmt.Sprintf("probability that more fail within %s: %s%s", short(q.Target.Period),
				plural(q.Target.Nines, "nine"), met)},
	}
}

// modeLines describe both modes.
func modeLines(p plan.Plan) []planLine {
	q := p.Question
	mode := func(m plan.Mode, latency time.Duration, meaning string) []planLine {
		return []planLine{
			{"round", short(m.Duration), "limited by " + boundWords[m.Bound] +
				"; a node receives " + plural(m.Received, "message")},
			{"latency", short(latency), meaning},
			{"throughput", threeDigits(m.Throughput) + " tx/s",
				fmt.Sprintf("%d a round from each of %s", q.Batch, plural(q.Servers, "node"))},
		}
	}
	return slices.Concat(
		[]planLine{{name: "Unreliable mode: AllConcur+ without failures"}},
		mode(p.Unreliable, p.Uniform, fmt.Sprintf("with uniform delivery, the default; %s, two "+
			"rounds, without", short(p.Unreliable.Latency))),
		[]planLine{{name: "Reliable mode: AllConcur"}},
		mode(p.Reliable, p.Reliable.Latency, "one round, with a perfect failure detector"),
		[]planLine{{"eventually perfect", short(p.Eventual.Latency),
			fmt.Sprintf("latency with the default detector, where votes go round, too; %s tx/s",
				threeDigits(p.Eventual.Throughput))}},
	)
}

// failureLines describe the effect of failures.
func failureLines(p plan.Plan) []planLine {
	f := p.Failures
	return []planLine{
		{name: "Failures"},
		{"a node fails", "every " + short(f.Between),
			fmt.Sprintf("if one fails every %s", short(p.Question.Target.MTTF))},
		{"on average", short(f.Latency), fmt.Sprintf("latency without uniform delivery, "+
			"failures included, and %s tx/s", threeDigits(f.Throughput))},
		{"pause after a crash", short(f.Pause),
			"the careful timeout below and a reliable round; a killed process is noticed sooner"},
		{"worst latency", short(f.WorstLatencyMany),
			fmt.Sprintf("of a round that fails again and again, %s if it fails once; without "+
				"timeouts", short(f.WorstLatency))},
		{"beyond fault diameter", probability(p.Excess.Round),
			fmt.Sprintf("probability that a round takes more than %s; %s in a million rounds",
				plural(p.FaultDiameter, "step"), probability(p.Excess.Million))},
	}
}

// detectorLines describe how to set the failure detector.
func detectorLines(p plan.Plan) []planLine {
	q := p.Question
	setting := func(name string, h plan.Heartbeat, condition string) planLine {
		return planLine{name, short(h.Period) + " / " + short(h.Timeout),
			fmt.Sprintf("heartbeat / timeout if %s; a false suspicion has %s", condition,
				probability(h.WrongInPeriod))}
	}
	return []planLine{
		{name: fmt.Sprintf("Failure detector: no node suspected wrongly within %s, with "+
			"probability %v", short(q.Target.Period), q.Accuracy)},
		setting("careful", p.Careful, "a pause delays several heartbeats in a row"),
		setting("independent", p.Heartbeat, "heartbeats are delayed one by one"),
		{"delays", short(p.Delay.Base) + " + " + short(p.Delay.Tail),
			"latency, and the mean of an exponential tail (--tail): measure yours"},
	}
}
