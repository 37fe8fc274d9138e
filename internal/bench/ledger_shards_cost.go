package bench

import (
	"cmp"
	"slices"
)

// ShardsFigures are the figures of one load on one book.
type ShardsFigures struct {
	Seconds           float64 `json:"seconds"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	LatencyP50        float64 `json:"latency_p50_us"`
	LatencyP90        float64 `json:"latency_p90_us"`
	LatencyP99        float64 `json:"latency_p99_us"`
	LatencyMax        float64 `json:"latency_max_us"`
	// Crossed is the share of the transactions that concerned two shards, in percent. In one shard
	// these are the transactions that would.
	Crossed float64 `json:"crossed_percent"`
	// CPUPerRequest is the processor time of all nodes of the book for each transaction, in
	// microseconds. NodeCPUPerRequest is the same of each node, and BusiestCPUPerRequest of the one
	// with the most.
	CPUPerRequest        float64   `json:"cpu_us_per_request"`
	BusiestCPUPerRequest float64   `json:"busiest_node_cpu_us_per_request"`
	NodeCPUPerRequest    []float64 `json:"node_cpu_us_per_request"`
	ClientCPUPerRequest  float64   `json:"client_cpu_us_per_request"`
	// Capacity is how many transactions a second the book carries once its busiest node has used
	// one processor up, if each node has a machine of its own.
	Capacity float64 `json:"capacity_per_second"`
}

// divide sets the figures that are for each transaction.
func (f *ShardsFigures) divide(requests, crossed uint64, nodeSeconds []float64,
	clientSeconds float64) {
	all := float64(requests)
	f.RequestsPerSecond, f.Crossed = all/f.Seconds, percents*float64(crossed)/all
	f.ClientCPUPerRequest = clientSeconds * 1e6 / all
	for _, seconds := range nodeSeconds {
		each := seconds * 1e6 / all
		f.NodeCPUPerRequest = append(f.NodeCPUPerRequest, each)
		f.CPUPerRequest += each
		f.BusiestCPUPerRequest = max(f.BusiestCPUPerRequest, each)
	}
	if f.BusiestCPUPerRequest > 0 {
		f.Capacity = 1e6 / f.BusiestCPUPerRequest
	}
}

// ShardsLoad are the figures of one percentage of transactions that cross.
type ShardsLoad struct {
	Crossing int `json:"crossing"`
	// One is of one shard with transactions in the form that a book of several shards takes, and
	// Packed of one shard with packed bundles, as clients send them to a book of one shard. One is
	// nil if callers submit the transactions, since their senders pack. Several is of the shards.
	One     *ShardsFigures `json:"one_shard"`
	Packed  *ShardsFigures `json:"one_shard_packed"`
	Several *ShardsFigures `json:"several_shards"`
	// Gain is how many times the capacity of One the shards have, and GainPacked that of Packed. 0
	// means that it was not measured.
	Gain       float64 `json:"gain"`
	GainPacked float64 `json:"gain_packed"`
}

// compare sets the gains.
func (l *ShardsLoad) compare() {
	gain := func(one *ShardsFigures) float64 {
		if one == nil || l.Several == nil || one.Capacity == 0 {
			return 0
		}
		return l.Several.Capacity / one.Capacity
	}
	l.Gain, l.GainPacked = gain(l.One), gain(l.Packed)
}

// ShardsResult is the result of a run.
type ShardsResult struct {
	ShardsParameters
	Shards int          `json:"shards"`
	Loads  []ShardsLoad `json:"loads"`
	// CrossingCost is the processor time of a transaction that crosses, all nodes of the book
	// together, divided by that of one that does not. It is 0 without a load of which nothing
	// crosses and one of which something does.
	CrossingCost float64 `json:"crossing_cost"`
	// Ahead is the percentage up to which the shards have at least the capacity of one, and
	// AheadPacked the same against packed bundles. It is nil if they do not at the lowest measured
	// percentage, or if that was not measured.
	Ahead       *float64 `json:"ahead_up_to_percent"`
	AheadPacked *float64 `json:"ahead_of_packed_up_to_percent"`
	// IdleOne and IdleSeveral are the processor time of a node without load, of the average node,
	// in percent of a processor. It is part of all figures.
	IdleOne     float64 `json:"idle_percent_one_shard"`
	IdleSeveral float64 `json:"idle_percent_several_shards"`
}

// idlePercent returns the processor time of the average node in percent of a processor.
func idlePercent(before, after []float64, seconds float64) float64 {
	var sum float64
	for i := range after {
		sum += after[i] - before[i]
	}
	return percents * sum / seconds / float64(len(after))
}

// compare sets what follows from all loads.
func (r *ShardsResult) compare() {
	for i := range r.Loads {
		r.Loads[i].compare()
	}
	r.CrossingCost = crossingCost(r.Loads)
	r.Ahead = aheadUpTo(r.Loads, func(l ShardsLoad) float64 { return l.Gain })
	r.AheadPacked = aheadUpTo(r.Loads, func(l ShardsLoad) float64 { return l.GainPacked })
}

// crossingCost takes the processor time of a transaction for a straight line between the load of
// which nothing crosses and the one of which most does.
func crossingCost(loads []ShardsLoad) float64 {
	least, most := ends(loads)
	if least == nil || least.Crossing != 0 || most.Crossing == 0 ||
		least.Several.CPUPerRequest == 0 {
		return 0
	}
	plain := least.Several.CPUPerRequest
	slope := (most.Several.CPUPerRequest - plain) * percents / float64(most.Crossing)
	return (plain + slope) / plain
}

// ends returns the loads with the lowest and the highest percentage.
func ends(loads []ShardsLoad) (least, most *ShardsLoad) {
	for _, load := range loads {
		if least == nil || load.Crossing < least.Crossing {
			least = &load
		}
		if most == nil || load.Crossing > most.Crossing {
			most = &load
		}
	}
	return least, most
}

// aheadUpTo returns the percentage up to which the gain is at least 1, from the lowest measured one
// on. Between two loads, the time that the busiest node takes for a transaction, and so the inverse
// of the gain, is taken for a straight line.
func aheadUpTo(loads []ShardsLoad, gain func(ShardsLoad) float64) *float64 {
	ascending := slices.SortedFunc(slices.Values(loads), func(a, b ShardsLoad) int {
		return cmp.Compare(a.Crossing, b.Crossing)
	})
	var ahead *float64
	for i, load := range ascending {
		at, now := float64(load.Crossing), gain(load)
		if now >= 1 {
			ahead = &at
			continue
		}
		if ahead != nil && now > 0 {
			before := 1 / gain(ascending[i-1])
			between := *ahead + (at-*ahead)*(1-before)/(1/now-before)
			ahead = &between
		}
		break
	}
	return ahead
}
