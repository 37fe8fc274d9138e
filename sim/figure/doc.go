// Package figure makes the dissertation's figures anew [Poke19, figures 5.10 to 5.14 and 6.5 to
// 6.8]: it drives order.Broadcaster engines, the house's own and those of package comparator, in
// virtual time over the models of package network, measures latency and throughput as the
// dissertation does, and writes a table, the points as JSON and a plot as SVG.
//
// # An experiment
//
// experiment.go is the driver: the loop of order.Broadcaster's comment for every server of a group
// of up to 1,024, in one goroutine. What servers have to say is a load (load.go): messages of a
// fixed size as soon as an engine takes them, requests that come at a rate and gather while a round
// is under way, or one single request. Latency is the time from a server's A-broadcasting to its
// A-delivering, throughput what a server A-delivers a second; both in a window that begins when
// every server has A-delivered so many rounds and ends when every server has A-delivered so many
// more [Poke19, section 6.5.1]. Crashes lose what is not on the link yet; a heartbeat detector
// tells the successors.
//
// # Figures
//
//	logp_figures.go     5.10, 5.12, 5.13, 5.14: over the LogP models
//	ledger_figures.go   6.5, 6.6: one datacentre and five
//	failure_figures.go  6.7, 6.8: crashes, and the model of section 6.5.2
//	figure.go           their list, panels and points; Make makes one
//	table.go, svg.go    what they look like
//
// A figure is a list of cases, which sweep.go runs several at a time:
//
//	made, err := figure.Make(ctx, "6.6", figure.Options{Quick: true})
//	err = made.WriteSVG(file)
//
// # What always holds
//
// The same options give the same figure, byte for byte: every case is deterministic and alone in
// its goroutine, and results are put together in the cases' order. Engines are driven through
// order.Broadcaster only. Sizes are those of the frames that engines really send; payloads are
// zeros.
package figure
