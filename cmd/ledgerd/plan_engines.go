package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/plan"
)

// planEnginesLong explains the comparison of the engines.
const planEnginesLong = `The plan ends with a table of the engines that could order the transactions: what
each would do with the same servers, network and messages, and which one it would
take for a short latency and for a high throughput. --engine shows one of them.
--load TX/S leaves those out of the choice that cannot carry that much, and
--distance adds to the time of every message, for servers that are farther from
each other than in the deployment.

  allconcur+, allconcur  as above, with uniform delivery and the default detector;
                         each node has one message outstanding
  trains                 a ring, in which four trains go round: a message is there
                         after two rotations, at the last node after 5n/2 - 1/2 hops
  dare                   a leader, which writes into the memory of the others: by
                         RDMA in a rack, and else through an agent at the owner, as
                         on p2p fabrics. For the throughput, each node has 16
                         messages outstanding
  tram                   a group of TRAM, with a client on each server: the same
                         memory, with one entry for each message. No node runs it;
                         ledgerd bench multicast does

Tests hold each model against the engine itself in the simulator, for 2 to 16
nodes. Latency and throughput are apart by at most 5 % for trains, 30 % for
allconcur+ and 40 % for the others, and pauses by a factor of two, without the
timeout. ` + "`ledgerd bench engine`" + `
measures engines, and the documentation tells when to take which
(choosing-an-engine). Trees of shards (--shards) order with allconcur+ in each shard.`

// planEnginesFields documents the fields of the comparison.
const planEnginesFields = `  distance_ms                   --distance
  load_tx_s                     --load
  engines                       the engines, or the one of --engine:
    engine                      its name
    in_node                     whether nodes run it
    not_planned                 why it cannot have so many servers; then the fields
                                below are zero or empty
    latency_ms                  from a message's broadcast to its delivery at the
                                same node, on average
    latency_all_ms              the same until the last node has delivered it
    worst_latency_ms            the longest such time, without failures
    throughput_tx_s, payload_bytes_s
                                transactions a second, and bytes of them
    outstanding                 messages that each node has outstanding for that
    bound                       what limits the throughput, as above; of the
                                leader, for dare
    wire_bytes_per_byte         bytes on all links for each byte of transactions
    pause_ms                    without deliveries after a crash, by the careful
                                timeout; for dare, of the leader
    tolerated_failures          nodes that may fail
    node_pause_ms, node_tolerated_failures
                                the same in a node, whose detector is eventual; for
                                trains with the agreement on a ring anew
    uninterrupted_failures      how many of them cause no pause (for dare, if they
                                do not lead)
    detector                    the failure detector that it needs to go on:
                                eventual, which may err, or perfect
    carries_load                whether it carries --load
  choice                        of the engines that carry the load:
    latency, throughput         the one with the shortest latency, and the one with
                                the highest throughput; "" if none carries it
    latency_in_node, throughput_in_node
                                the same of those that nodes run`

// planEngine is an engine of a plan in its JSON form.
type planEngine struct {
	Engine        string  `json:"engine"`
	InNode        bool    `json:"in_node"`
	NotPlanned    string  `json:"not_planned,omitempty"`
	Latency       float64 `json:"latency_ms"`
	All           float64 `json:"latency_all_ms"`
	Worst         float64 `json:"worst_latency_ms"`
	Throughput    float64 `json:"throughput_tx_s"`
	Bytes         float64 `json:"payload_bytes_s"`
	Outstanding   int     `json:"outstanding"`
	Bound         string  `json:"bound"`
	Wire          float64 `json:"wire_bytes_per_byte"`
	Pause         float64 `json:"pause_ms"`
	Tolerated     int     `json:"tolerated_failures"`
	NodePause     float64 `json:"node_pause_ms"`
	NodeTolerated int     `json:"node_tolerated_failures"`
	Uninterrupted int     `json:"uninterrupted_failures"`
	Detector      string  `json:"detector"`
	Carries       bool    `json:"carries_load"`
}

// planChoice is the names of the engines that a plan would take.
type planChoice struct {
	Latency          string `json:"latency"`
	Throughput       string `json:"throughput"`
	LatencyInNode    string `json:"latency_in_node"`
	ThroughputInNode string `json:"throughput_in_node"`
}

// bindPlanEngine adds the flag --engine to a plan.
func bindPlanEngine(command *cobra.Command, name *string) {
	command.Flags().StringVar(name, "engine", "", "show this engine of the comparison alone: "+
		strings.Join(plan.EngineNames(), ", "))
	completeFlag(command, "engine", cobra.FixedCompletions(
		plan.EngineNames(), cobra.ShellCompDirectiveNoFileComp))
}

// runsInNode reports whether a node may run the engine with a name.
func runsInNode(name string) bool {
	return engine.All().With(engine.Engine.RunsInNode).Has(name)
}

// reportEngines converts the comparison to its JSON form.
func reportEngines(engines []plan.Engine) (reports []planEngine, choice planChoice) {
	for _, e := range engines {
		reports = append(reports, planEngine{
			Engine: e.Name, InNode: runsInNode(e.Name), NotPlanned: e.Excluded,
			Latency: milliseconds(e.Latency), All: milliseconds(e.All),
			Worst: milliseconds(e.Worst), Throughput: e.Transactions, Bytes: e.Bytes,
			Outstanding: e.Outstanding, Bound: string(e.Bound), Wire: e.Wire,
			Pause: milliseconds(e.Pause), Tolerated: e.Tolerated,
			NodePause: milliseconds(e.NodePause), NodeTolerated: e.NodeTolerated,
			Uninterrupted: e.Uninterrupted, Detector: string(e.Detector), Carries: e.Carries,
		})
	}
	running := slices.DeleteFunc(slices.Clone(engines),
		func(e plan.Engine) bool { return !runsInNode(e.Name) })
	asPlanned := slices.DeleteFunc(slices.Clone(running), func(e plan.Engine) bool {
		made, err := engine.Of(e.Name)
		fewer := !made.TakesFrames() && e.Outstanding > made.NodeInFlight // a node has in flight
		return err != nil || fewer
	})
	name := func(e plan.Engine, _ bool) string { return e.Name }
	return reports, planChoice{
		Latency: name(plan.Quickest(engines)), Throughput: name(plan.Strongest(engines)),
		LatencyInNode:    name(plan.Quickest(running)),
		ThroughputInNode: name(plan.Strongest(asPlanned)),
	}
}

// printEngines writes the comparison as text.
func printEngines(out io.Writer, p plan.Plan) error {
	rows := table{header: []string{"ENGINE", "LATENCY", "AT ALL", "WORST", "TX/S", "MB/S", "LIMIT",
		"WIRE", "PAUSE", "SURVIVES", "DETECTOR"},
		right: []bool{false, true, true, true, true, true, false, true, true, true, false}}
	var excluded, survives strings.Builder
	for _, e := range p.Engines {
		if e.Excluded != "" {
			fmt.Fprintf(&excluded, "%s is not planned: %s.\n", e.Name, e.Excluded)
			continue
		}
		rows.add(e.Name, short(e.Latency), short(e.All), short(e.Worst),
			threeDigits(e.Transactions), threeDigits(e.Bytes/1e6), string(e.Bound),
			threeDigits(e.Wire), short(e.Pause), fmt.Sprint(e.Tolerated), string(e.Detector))
		if e.Uninterrupted > 0 {
			fmt.Fprintf(&survives, "With %s, %s of nodes that do not lead cause no pause.\n",
				e.Name, plural(e.Uninterrupted, "failure"))
		}
		made, err := engine.Of(e.Name)
		if err == nil && made.RunsInNode() && !made.Perfect && e.Detector == plan.DetectorPerfect {
			fmt.Fprintf(&survives, "In a node, %s has the detector %s and survives %s. PAUSE is "+
				"then %s:\nthe others agree on a ring without the suspected node.\n", e.Name,
				plan.DetectorEventual, plural(e.NodeTolerated, "failure"), short(e.NodePause))
		}
	}
	if _, err := io.WriteString(out, "\nEngines\n"); err != nil {
		return err
	}
	if len(rows.rows) > 0 {
		if err := rows.write(out); err != nil {
			return err
		}
	}
	_, choice := reportEngines(p.Engines)
	_, err := fmt.Fprintf(out, `%s
%sLATENCY is from a message's broadcast to its delivery at the same node, AT ALL that at
the last node, and WORST the longest without failures. MB/S counts transactions, LIMIT
is what limits them, and WIRE the bytes on all links for each of theirs. PAUSE follows a
crash, with the careful timeout. SURVIVES failures, with that DETECTOR.
%s`, excluded.String(), choiceText(p, choice), survives.String())
	return err
}

// choiceText says in sentences which engines the plan would take.
func choiceText(p plan.Plan, c planChoice) string {
	switch {
	case c.Latency == "" && p.Question.Load > 0:
		return fmt.Sprintf("None of them carries %s tx/s.\n\n", threeDigits(p.Question.Load))
	case len(p.Engines) == 1:
		return ""
	}
	one := func(purpose, best, running string) string {
		switch {
		case best == running:
			return fmt.Sprintf("For %s take %s.", purpose, best)
		case running == "":
			return fmt.Sprintf("For %s %s is best, but no node runs an engine that carries "+
				"the load.", purpose, best)
		}
		if runsInNode(best) {
			return fmt.Sprintf("For %s %s is best with so many messages outstanding, but nodes "+
				"have fewer: take %s.", purpose, best, running)
		}
		return fmt.Sprintf("For %s %s is best, but no node runs it yet: take %s.", purpose, best,
			running)
	}
	text := one("latency", c.Latency, c.LatencyInNode) + "\n" +
		one("throughput", c.Throughput, c.ThroughputInNode) + "\n\n"
	if p.Question.Load > 0 {
		text = fmt.Sprintf("Of the engines that carry %s tx/s:\n", threeDigits(p.Question.Load)) +
			text
	}
	return text
}
