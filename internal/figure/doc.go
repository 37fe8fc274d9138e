// Package figure reproduces the dissertation's figures [Poke19, figures 4.6 to 4.11, 5.10 to 5.14
// and 6.5 to 6.8], and the tables and the figure of TRAINS [TRAINS, section V]. It drives
// order.Broadcaster engines, ledgerd's own and those of package comparator, in virtual time over
// the models of package network. It measures latency and throughput as the dissertation does, and
// writes a table, the points as JSON and a plot as SVG.
//
// # An experiment
//
// experiment.go is the driver: the loop of order.Broadcaster's comment for every server of a group
// of up to 1,024, in one goroutine. A load (load.go) decides what servers A-broadcast: messages of
// a fixed size as soon as an engine accepts them, requests that arrive at a rate and gather while a
// round is under way, or one single request. Latency is the time from a server's A-broadcast to its
// A-delivery. Throughput is how much a server A-delivers a second. Both are measured in a window
// that begins when every server has A-delivered a number of rounds, and ends when every server has
// A-delivered a further number [Poke19, section 6.5.1]. A crash loses the frames that are not on
// the link yet, and a heartbeat detector tells the successors.
//
// # Figures
//
//	memory_figures.go      4.6, 4.7, 4.8: from the models of package plan alone, without a run
//	leader_figures.go      4.9, 4.10, 4.11: clients of DARE's engine on timed memory
//	leader_group.go        that group, its clients and its operator
//	logp_figures.go        5.10, 5.12, 5.13, 5.14: over the LogP models
//	membership_figure.go   5.11: servers fail and join
//	ledger_figures.go      6.5, 6.6: one datacentre and five
//	failure_figures.go     6.7, 6.8: crashes, and the model of section 6.5.2
//	in_flight_figure.go    not in the dissertation: several rounds in flight
//	trains_figures.go      TRAINS: its tables I to III and its figure 1, beside LCR
//	round_model.go         the rounds in which TRAINS counts latency
//	figure.go              their list, panels and points; Make makes one
//	table.go, svg.go       their output
//
// A figure is a list of cases. sweep.go runs several of them at a time:
//
//	made, err := figure.Make(ctx, "6.6", figure.Options{Quick: true})
//	err = made.WriteSVG(file)
//
// # Invariants
//
// The same options give the same figure, byte for byte: every case is deterministic and runs in one
// goroutine, and results are put together in the cases' order. Engines are driven through
// order.Broadcaster only, and DARE's as package dare says. Sizes are those of the frames that
// engines really send. Payloads are zeros.
package figure
