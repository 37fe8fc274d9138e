// Package conformance makes one table of what the engines keep: properties by faults by engine. The
// simulators judge the engines themselves, the ones that nodes and benchmarks run, in the same way.
//
//	made, err := conformance.Make(ctx, conformance.Options{Seeds: 40})
//	err = made.WriteMarkdown(file)
//
// A part of the table is an engine in a setting, such as a detector. A column is a kind of fault,
// and several kinds together. Its runs have groups of several sizes, with as many seeds of each. A
// row is a property. A cell says whether the property held in all runs of the column, or that it is
// not judged there: where more servers fail than an engine tolerates, it may stop, so that only
// safety is judged.
//
// A property that no run can break would be worth little. So each row names a bug, if there is one,
// that was planted in the engine and broke that property first, and the seed that shows it.
//
//	table.go       the table, and the runs that fill it
//	broadcast.go   the engines of package sim: atomic broadcast in one group
//	multicast.go   those of package sim/multicast: atomic multicast to groups
//	bugs.go        the bugs that break properties
//	markdown.go    the table as a page of the documentation
//
// Invariants: the same options give the same table on every machine. Every engine of both
// simulators has a part, except for the frames' own test engines.
package conformance
