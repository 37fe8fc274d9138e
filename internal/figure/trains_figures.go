package figure

import (
	"context"
	"fmt"
	"strings"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/plan"
	"github.com/ledgerd/ledgerd/sim/comparator"
	"github.com/ledgerd/ledgerd/sim/network"
	"github.com/ledgerd/ledgerd/trains"
)

// The experiments of [TRAINS, section V-A].
const (
	ringServers = 5
	ringTrains  = 10
	// publishedCapacity is the capacity of the authors' servers, and publishedLCRCapacity that of
	// the servers that LCR was measured on, both in Mb/s.
	publishedCapacity    = 117.5
	publishedLCRCapacity = 116
	// ringOutstanding is how many messages of each server are under way in LCR. A message and its
	// acknowledgement take eight hops, and a message crosses four of the five links, so two would
	// do if hops took no longer than a message on a link.
	ringOutstanding = 32
)

// The series of the tables.
const (
	seriesPublished     = "published"
	seriesSimulated     = "simulated"
	seriesTrainsPaper   = "trains"
	seriesTrainsHouse   = "trains, house's layout"
	seriesTrainsFormula = "trains, formula"
	seriesLCRFormula    = "lcr, formula"
	seriesTrainsInPaper = "trains, published"
	seriesLCRInPaper    = "lcr, published"
)

// wagons composes wagons as full as those of the paper's formula: each has a whole number of
// messages, and on average as many as fit a train of the optimal size.
type wagons struct {
	each    float64
	message []byte
	said    []int
	memory  []byte
}

func newWagons(ring plan.Ring, servers, bytes int) *wagons {
	return &wagons{each: ring.MessagesPerWagon(), message: make([]byte, bytes),
		said: make([]int, servers)}
}

func (w *wagons) compose(server order.ServerID) []byte {
	before := int(w.each * float64(w.said[server]))
	w.said[server]++
	w.memory = w.memory[:0]
	for range int(w.each*float64(w.said[server])) - before {
		w.memory = trains.AppendMessage(w.memory, 1, w.message)
	}
	return w.memory
}

// ringCase is a run on a switch of 100 Mbit/s.
type ringCase struct {
	series string
	bytes  int
	rounds int
}

// weight estimates the cost of a case.
func (c ringCase) weight() float64 {
	if c.series == seriesLCR {
		return 10 * float64(c.rounds)
	}
	return float64(c.rounds)
}

// ringResult is what a run measured: the efficiency as a share of 1, and the throughput in Mb/s of
// messages.
type ringResult struct {
	efficiency, throughput float64
}

func (c ringCase) run(ctx context.Context) (ringResult, error) {
	e := experiment{model: network.Switched(ringServers), warmUp: c.rounds / 4, window: c.rounds}
	useful := 1.0 // the share of a payload that is messages
	if c.series == seriesLCR {
		e.load.bytes = c.bytes
		e.engine = func(self order.ServerID) (order.Broadcaster, error) {
			return comparator.NewLCR(comparator.Config{Self: self, Servers: ringServers,
				MaxPayload: payloadRoom, Outstanding: ringOutstanding})
		}
	} else {
		ring, err := plan.RingOf(ringServers, c.bytes, plan.TrainPaper)
		if err != nil {
			return ringResult{}, err
		}
		config := trains.Config{Servers: ringServers, Trains: ringTrains,
			TrainSize: plan.TrainPaper, Detector: trains.DetectorPerfect, MaxPayload: payloadRoom}
		if c.series == seriesTrainsPaper {
			config.Layout = trains.LayoutPaper
		}
		e.engine = func(self order.ServerID) (order.Broadcaster, error) {
			config := config
			config.Self = self
			return trains.New(config)
		}
		e.load.compose = newWagons(ring, ringServers, c.bytes).compose
		message := len(trains.AppendMessage(nil, 1, make([]byte, c.bytes)))
		useful = float64(c.bytes) / float64(message)
	}
	m, err := e.measure(ctx)
	if err != nil {
		return ringResult{}, fmt.Errorf("%s, %d bytes: %w", c.series, c.bytes, err)
	}
	agreed := m.bytes * useful // in a second, by each server
	return ringResult{
		efficiency: agreed * seconds(m.elapsed) * (ringServers - 1) / float64(m.sent),
		throughput: agreed * 8 / 1e6,
	}, nil
}

// measureRings runs series with messages of several sizes.
func measureRings(ctx context.Context, options Options, series []string,
	sizes []int) (map[ringCase]ringResult, error) {
	rounds := 20_000
	if options.Quick {
		rounds = 4000
	}
	var cases []ringCase
	for _, s := range series {
		for _, bytes := range sizes {
			cases = append(cases, ringCase{s, bytes, rounds})
		}
	}
	results, err := sweep(ctx, options, cases, ringCase.weight,
		func(ctx context.Context, c ringCase) (ringResult, error) { return c.run(ctx) })
	if err != nil {
		return nil, err
	}
	measured := map[ringCase]ringResult{}
	for i, c := range cases {
		c.rounds = 0
		measured[c] = results[i]
	}
	return measured, nil
}

// switchCapacity returns the nominal capacity of the simulated servers, in Mb/s.
func switchCapacity() (float64, error) {
	ring, err := plan.RingOf(ringServers, 1, plan.TrainPaper)
	if err != nil {
		return 0, err
	}
	model := network.Switched(ringServers)
	return ring.Capacity(model.Stream() / 1e6), nil
}

// throughputPanels adds the panels of throughput and of its share of the capacity.
func throughputPanels(f *Figure) {
	f.panel(Panel{Name: "throughput", Title: "Throughput", X: "bytes", Y: "throughput [Mb/s]",
		Unit: "Mb/s", LogX: true})
	f.panel(Panel{Name: "mte", Title: "Maximum throughput efficiency, MTE", X: "bytes",
		Y: "MTE [%]", Unit: "%", LogX: true})
}

// ringThroughput makes Table I.
func ringThroughput(ctx context.Context, f *Figure, options Options) error {
	throughputPanels(f)
	published := []struct {
		bytes           int
		throughput, mte float64
	}{{100, 32, 28}, {1000, 88, 76}, {10_000, 112, 96}}
	var sizes []int
	for _, p := range published {
		sizes = append(sizes, p.bytes)
		f.add("throughput", seriesPublished, float64(p.bytes), p.throughput)
		f.add("mte", seriesPublished, float64(p.bytes), p.mte)
	}
	measured, err := measureRings(ctx, options, []string{seriesLCR}, sizes)
	if err != nil {
		return err
	}
	capacity, err := switchCapacity()
	if err != nil {
		return err
	}
	for _, bytes := range sizes {
		got := measured[ringCase{series: seriesLCR, bytes: bytes}].throughput
		f.add("throughput", seriesSimulated, float64(bytes), got)
		f.add("mte", seriesSimulated, float64(bytes), 100*got/capacity)
	}
	f.note("LCR, %d servers on a switch of 100 Mbit/s. MTE is throughput as a share of the "+
		"nominal capacity: %v Mb/s published, %s Mb/s here.", ringServers, publishedLCRCapacity,
		number(significant(capacity, 4)))
	f.note("Here a message and an acknowledgement are segments of TCP's of their own, and " +
		"processors take no time.")
	return nil
}

// ringEfficiency makes Table II.
func ringEfficiency(ctx context.Context, f *Figure, options Options) error {
	f.panel(Panel{Name: "pote", Title: "Prediction-oriented throughput efficiency, POTE",
		X: "bytes", Y: "POTE [%]", Unit: "%", LogX: true,
		Series: []string{seriesTrainsInPaper, seriesTrainsFormula, seriesTrainsPaper,
			seriesTrainsHouse, seriesLCRInPaper, seriesLCRFormula, seriesLCR}})
	f.panel(Panel{Name: "improvement", Title: "Improvement of LCR's POTE", X: "bytes",
		Y: "improvement [%]", Unit: "%", LogX: true, LogY: true})
	throughputPanels(f)
	published := []struct {
		bytes                                     int
		trains, lcr, improvement, throughput, mte float64
	}{
		{10, 66.0, 18.5, 257, 76.1, 64.8}, {100, 94.3, 69.4, 35.8, 108.7, 92.5},
		{1000, 98.6, 95.8, 2.9, 113.6, 96.7}, {10_000, 99.9, 99.6, 0.3, 113.9, 96.9},
	}
	sizes := []int{1, 2, 5}
	for _, p := range published {
		sizes = append(sizes, p.bytes)
		x := float64(p.bytes)
		f.add("pote", seriesTrainsInPaper, x, p.trains)
		f.add("pote", seriesLCRInPaper, x, p.lcr)
		f.add("improvement", seriesPublished, x, p.improvement)
		f.add("throughput", seriesTrainsInPaper, x, p.throughput)
		f.add("mte", seriesTrainsInPaper, x, p.mte)
	}
	series := []string{seriesTrainsPaper, seriesTrainsHouse, seriesLCR}
	measured, err := measureRings(ctx, options, series, sizes)
	if err != nil {
		return err
	}
	capacity, err := switchCapacity()
	if err != nil {
		return err
	}
	furthest := map[string]float64{}
	for _, bytes := range sizes {
		ring, err := plan.RingOf(ringServers, bytes, plan.TrainPaper)
		if err != nil {
			return err
		}
		x := float64(bytes)
		f.add("pote", seriesTrainsFormula, x, 100*ring.Trains())
		f.add("pote", seriesLCRFormula, x, 100*ring.LCR())
		f.add("improvement", "formula", x, 100*ring.Improvement())
		of := func(series string) ringResult {
			return measured[ringCase{series: series, bytes: bytes}]
		}
		for _, s := range series {
			got := of(s)
			f.add("pote", s, x, 100*got.efficiency)
			f.add("throughput", s, x, got.throughput)
			f.add("mte", s, x, 100*got.throughput/capacity)
			formula := ring.Trains()
			if s == seriesLCR {
				formula = ring.LCR()
			}
			furthest[s] = max(furthest[s], distance(got.efficiency, formula))
		}
		f.add("improvement", seriesSimulated, x,
			100*(of(seriesTrainsPaper).efficiency/of(seriesLCR).efficiency-1))
	}
	f.note("%d servers, %d trains of 4 KiB, full wagons. Bytes of frames are counted while the "+
		"engines run over a switch of 100 Mbit/s. The counts are within %.2f %% of the formula in "+
		"the paper's layout, %.2f %% in the house's, which has longer headers of trains, and "+
		"%.2f %% with LCR.", ringServers, ringTrains, 100*furthest[seriesTrainsPaper],
		100*furthest[seriesTrainsHouse], 100*furthest[seriesLCR])
	at := func(x float64) float64 { y, _ := f.find("improvement").at("formula", x); return y }
	f.note("The paper is wrong where its abstract has the improvement reach a peak of 250 %% at "+
		"10 bytes. By its formulas it is %.0f %% there (so has its Table II), and there is no "+
		"peak: %.0f %% at 5 bytes, %.0f %% at 2, %.0f %% at 1.", at(10), at(5), at(2), at(1))
	f.note("MTE is throughput as a share of the nominal capacity: %v Mb/s published, %s Mb/s "+
		"here. Processors take no time here.", publishedCapacity, number(significant(capacity, 4)))
	return nil
}

// distance returns by how much a value differs from another one, as a share of the latter.
func distance(value, from float64) float64 {
	if value < from {
		return 1 - value/from
	}
	return value/from - 1
}

// ringLatency makes Table III.
func ringLatency(ctx context.Context, f *Figure, _ Options) error {
	f.panel(Panel{Name: "latency", Title: "Latency", X: "servers", Y: "latency [rounds]",
		Unit: "rounds"})
	f.panel(Panel{Name: "alteration", Title: "By how much TRAINS is later than LCR", X: "servers",
		Y: "alteration [%]", Unit: "%"})
	for _, p := range []struct {
		servers                 int
		lcr, trains, alteration float64
	}{{2, 2, 4.5, 125}, {4, 6, 9.5, 58.3}, {6, 10, 14.5, 45}, {8, 14, 19.5, 39.3}} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		ring, err := plan.RingOf(p.servers, 1, plan.TrainPaper)
		if err != nil {
			return err
		}
		trained, err := trainsLatency(p.servers)
		if err != nil {
			return err
		}
		linked, err := lcrLatency(p.servers)
		if err != nil {
			return err
		}
		x := float64(p.servers)
		f.add("latency", seriesLCRInPaper, x, p.lcr)
		f.add("latency", seriesLCRFormula, x, ring.LCRLatency())
		f.add("latency", seriesLCR, x, linked)
		f.add("latency", seriesTrainsInPaper, x, p.trains)
		f.add("latency", seriesTrainsFormula, x, ring.TrainsLatency())
		f.add("latency", seriesTrainsPaper, x, trained)
		f.add("alteration", seriesPublished, x, p.alteration)
		f.add("alteration", "formula", x, 100*ring.Alteration())
		f.add("alteration", seriesSimulated, x, 100*(trained/linked-1))
	}
	f.note("A round is what one message takes to the next server. Latency is from a message's " +
		"A-broadcast to its last A-delivery, the mean over the servers that may send it. There " +
		"are as many trains as servers, so one is always at hand. For large rings the " +
		"alteration falls to 25 %%.")
	f.note("An idle ring of ours is silent. A message then has to wake the trains first, and to " +
		"wait for one.")
	return nil
}

// trainsLatency returns the mean latency of TRAINS in rounds. All servers have something to say
// whenever a train comes.
func trainsLatency(servers int) (float64, error) {
	m, err := newRoundModel(servers, func(self order.ServerID) (order.Broadcaster, error) {
		return trains.New(trains.Config{Self: self, Servers: servers, Trains: servers})
	})
	if err != nil {
		return 0, err
	}
	m.say = func(order.ServerID) ([]byte, bool) { return []byte{1}, true }
	from, to := 2*servers, 6*servers // messages of each server, after the trains have spread
	err = m.run(20*servers*servers, func() bool {
		for origin := range servers {
			if !m.everywhere(order.ServerID(origin), to) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	sum := 0
	for origin := range servers {
		for number := from; number < to; number++ {
			sum += m.latency(order.ServerID(origin), number)
		}
	}
	return float64(sum) / float64(servers*(to-from)), nil
}

// lcrLatency returns the mean latency of LCR in rounds, of single messages.
func lcrLatency(servers int) (float64, error) {
	sum := 0
	for sender := range order.ServerID(servers) {
		m, err := newRoundModel(servers, func(self order.ServerID) (order.Broadcaster, error) {
			return comparator.NewLCR(comparator.Config{Self: self, Servers: servers})
		})
		if err != nil {
			return 0, err
		}
		m.say = func(server order.ServerID) ([]byte, bool) {
			return []byte{1}, server == sender && len(m.said[sender]) == 0
		}
		if err := m.begin(sender); err != nil {
			return 0, err
		}
		err = m.run(10*servers, func() bool { return m.everywhere(sender, 1) })
		if err != nil {
			return 0, err
		}
		sum += m.latency(sender, 0)
	}
	return float64(sum) / float64(servers), nil
}

// ringChart makes figure 1: what two servers with two trains send to each other.
func ringChart(ctx context.Context, f *Figure, _ Options) error {
	const servers, trainsOfChart, rounds = 2, 2, 7
	p := f.panel(Panel{Name: "chart", Title: "Message sequence chart", X: "rounds",
		Y: "server (0 is A, 1 is B)", Unit: "server", Dense: true})
	m, err := newRoundModel(servers, func(self order.ServerID) (order.Broadcaster, error) {
		return trains.New(trains.Config{Self: self, Servers: servers, Trains: trainsOfChart,
			Layout: trains.LayoutPaper})
	})
	if err != nil {
		return err
	}
	names := []string{"A", "B"}
	m.say = func(server order.ServerID) ([]byte, bool) {
		// Messages are numbered as the trains come to the servers.
		number := len(m.said[server])
		rotation := number/trainsOfChart + 1
		return fmt.Appendf(nil, "w_%s%dm%d", names[server], rotation%rotationsTold,
			number*servers+int(server)), true
	}
	m.watch = func(from, to order.ServerID, frame []byte) {
		train, whole := trains.ReadTrain(trains.LayoutPaper, frame)
		if !whole {
			return
		}
		series := fmt.Sprintf("train %d", train.ID)
		left := float64(m.round - 1)
		if _, comes := p.at(series, left); !comes {
			f.add(p.Name, series, left, float64(from))
		}
		f.add(p.Name, series, float64(m.round), float64(to))
		f.note("%2d %s -> %s  %s", m.round, names[from], names[to], nameTrain(train))
	}
	m.deliver = func(server order.ServerID, delivery order.Delivery) {
		f.add(p.Name, names[server]+" A-delivers", float64(m.round), float64(server))
		var delivered []string
		for _, message := range delivery.Messages {
			delivered = append(delivered, string(message.Payload))
		}
		f.note("%2d %s A-delivers %s", m.round, names[server], strings.Join(delivered, " and "))
	}
	if err := m.run(rounds, func() bool { return m.round == rounds }); err != nil {
		return err
	}
	f.note("As in the paper's text, but for t_021(w_B1m1): the text says t_010(w_B1m1), while " +
		"its Algorithm 3 counts the clock up with each hop. Here B makes the trains, not A.")
	return ctx.Err()
}

// rotationsTold is NB_RO, how many rotations the paper tells apart.
const rotationsTold = 3

// nameTrain names a train as figure 1 does: by its id, its clock, its rotation and its wagons. Our
// servers begin with trains that the last server of the ring has sent with a clock of 1.
func nameTrain(train trains.Train) string {
	name := fmt.Sprintf("t_%d%d%d", train.ID, train.Clock-1, train.Rotation%rotationsTold)
	if len(train.Wagons) == 0 {
		return name
	}
	var carried []string
	for _, wagon := range train.Wagons {
		carried = append(carried, string(wagon.Payload))
	}
	return name + "(" + strings.Join(carried, ", ") + ")"
}
