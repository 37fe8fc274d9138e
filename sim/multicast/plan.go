package multicast

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// plan is everything that a seed decides before a run: the deployment, the weather, the submissions
// and the faults. Messages and faults are numbered from 1, and can be left out one by one.
type plan struct {
	deployment Deployment
	shape      string // of the tree
	weather    weather
	// submissions and faults are in the order of their instants.
	submissions []submission
	faults      []fault
	// end is the instant after which nothing is submitted and no fault lasts.
	end time.Duration
}

// weather is the speed of everything.
type weather struct {
	delay time.Duration   // the longest way of an operation or a letter, except for one in 16
	paces []time.Duration // of each process: the approximate time from one Poll to the next
}

// submission is one message that a client will submit.
type submission struct {
	number  int
	at      time.Duration
	client  order.Replica
	to      []order.GroupID
	payload []byte
}

// fault is one fault to inject.
type fault struct {
	number int
	kind   Faults
	// at is the instant of the fault. If after is not 0, the fault strikes once the victim has
	// taken that many steps, or A-delivered that many messages, since then.
	at       time.Duration
	after    int
	delivers bool
	// victim is the process that is hit. If leads is set, it is the leader of that group at that
	// moment.
	victim order.Replica
	leads  bool
	// others are at the wires' other ends. other is the server that oracles name.
	others []order.Replica
	other  order.ServerID
	// span is the duration, 0 for good.
	span time.Duration
	// told are the replicas whose oracle errs, and late is how much later each does. turns is how
	// often each returns to the previous leader and errs again. Operations of the previous leader
	// to the others are held back for held.
	told  []order.Replica
	late  []time.Duration
	turns int
	held  time.Duration
}

// The streams of random numbers that a seed gives.
const (
	shapeStream uint64 = iota << 32
	weatherStream
	workloadStream
	faultStream
	stageStream
	paceStream
	oracleStream
)

func stream(seed, number uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, number)) }

// between draws a span.
func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)+1))
}

// Bounds of a drawn plan.
const (
	// GroupsMax and ReplicasMax bound the groups and their replicas.
	GroupsMax   = 8
	ReplicasMax = 7
	// oneGroupMax bounds the only group of an engine that has one.
	oneGroupMax = 5
	// ClientsMax bounds the clients.
	ClientsMax = 4
	// MessagesMax bounds the messages of a run.
	MessagesMax = 24

	payloadMax = 512
	faultsMax  = 5

	operationTimeout = 3 * time.Millisecond
)

// draw draws the plan for options.
func draw(options Options) plan {
	var p plan
	if engine, err := engineOf(options.Engine, ""); err == nil && engine.OneGroup {
		p.drawOneGroup(options)
	} else {
		p.drawShape(options)
	}
	p.drawWeather(options.Seed)
	p.drawWorkload(options)
	p.drawFaults(options)
	return p
}

// drawShape draws groups, their sizes, the tree and the clients.
func (p *plan) drawShape(options Options) {
	random := stream(options.Seed, shapeStream)
	groups, replicas := 1+random.IntN(GroupsMax), 1+random.IntN(ReplicasMax)
	if random.IntN(8) != 0 {
		// fewer groups are faster, and show most effects
		groups = min(groups, 1+random.IntN(GroupsMax))
	}
	if options.Groups != 0 {
		groups = options.Groups
	}
	sizes := make([]int, groups)
	for g := range sizes {
		if sizes[g] = 1 + random.IntN(replicas); random.IntN(3) != 0 {
			sizes[g] = min(3, sizes[g]|1)
		}
		if options.Replicas != 0 {
			sizes[g] = options.Replicas
		}
	}
	tree, shape := options.Tree, "as given"
	if drawn, name := drawTree(random, groups); tree == nil {
		tree, shape = drawn, name
	}
	p.shape = shape
	p.drawDeployment(random, sizes, tree)
}

// drawOneGroup draws the size of the group of an engine that has only one, and the clients. Most
// groups have three servers or five.
func (p *plan) drawOneGroup(options Options) {
	random := stream(options.Seed, shapeStream)
	size := 1 + random.IntN(oneGroupMax)
	if random.IntN(3) != 0 {
		size = max(size|1, 3)
	}
	if options.Replicas != 0 {
		size = options.Replicas
	}
	p.shape = "of one"
	p.drawDeployment(random, []int{size}, tram.Chain(1))
}

// drawDeployment draws the clients and the resources of groups.
func (p *plan) drawDeployment(random *rand.Rand, sizes []int, tree *tram.Tree) {
	p.deployment = Deployment{
		Sizes: sizes, Tree: tree, Clients: 1 + random.IntN(ClientsMax), Slots: 2 + random.IntN(15),
		PayloadMax:       payloadMax,
		Patience:         between(random, 50*time.Microsecond, time.Millisecond),
		OperationTimeout: operationTimeout,
	}
}

// drawTree draws a tree: one of the named shapes, or any, with the root anywhere.
func drawTree(random *rand.Rand, groups int) (*tram.Tree, string) {
	switch random.IntN(4) {
	case 0:
		return tram.Breadth(groups), "breadth"
	case 1:
		return tram.Binary(groups), "binary"
	case 2:
		return tram.Chain(groups), "chain"
	}
	names := random.Perm(groups)
	parents := make([]order.GroupID, groups)
	for place, name := range names {
		parents[name] = order.GroupID(names[max(place-1-random.IntN(max(place, 1)), 0)])
	}
	tree, err := tram.NewTree(parents)
	if err != nil {
		panic(fmt.Sprintf("multicast: parents %v that precede their children make no tree: %v",
			parents, err))
	}
	return tree, fmt.Sprintf("parents %v", parents)
}

// drawWeather draws the speed of everything.
func (p *plan) drawWeather(seed uint64) {
	random := stream(seed, weatherStream)
	p.weather.delay = between(random, 2*time.Microsecond, 20*time.Microsecond)
	pace := between(random, 4*time.Microsecond, 24*time.Microsecond)
	for range p.deployment.Processes() {
		own := pace
		if random.IntN(6) == 0 {
			own *= time.Duration(2 + random.IntN(8)) // a slow process
		}
		p.weather.paces = append(p.weather.paces, own)
	}
}

// drawWorkload draws the submissions: client, destinations and time. They come in bursts with quiet
// spells in between, so that messages meet.
func (p *plan) drawWorkload(options Options) {
	random := stream(options.Seed, workloadStream)
	count := 1 + random.IntN(MessagesMax)
	if options.Messages != 0 {
		count = options.Messages
	}
	bursts := 1 + random.IntN(3)
	starts := make([]time.Duration, bursts)
	for i := 1; i < bursts; i++ {
		starts[i] = starts[i-1] + between(random, 0, 1500*time.Microsecond)
	}
	length := between(random, 0, 400*time.Microsecond)
	wide := random.IntN(3) // 0: mostly single groups, 2: mostly many
	for range count {
		s := submission{
			at: starts[random.IntN(bursts)] + between(random, 0, length),
			client: order.Replica{Group: order.Clients,
				Server: order.ServerID(random.IntN(p.deployment.Clients))},
			to: drawDestinations(random, p.deployment.Groups(), wide),
		}
		size := random.IntN(40)
		if random.IntN(6) == 0 {
			size = random.IntN(payloadMax + 1)
		}
		for range size {
			s.payload = append(s.payload, byte(random.Uint32()))
		}
		p.submissions = append(p.submissions, s)
	}
	slices.SortStableFunc(p.submissions, func(a, b submission) int { return int(a.at - b.at) })
	for i := range p.submissions {
		p.submissions[i].number = i + 1
		p.end = max(p.end, p.submissions[i].at)
	}
}

// drawDestinations draws a destination set: one group, two, some or all.
func drawDestinations(random *rand.Rand, groups, wide int) []order.GroupID {
	count := 1
	switch draw := random.IntN(6) + wide; {
	case draw >= 6:
		count = groups
	case draw >= 4:
		count = 1 + random.IntN(groups)
	case draw >= 2:
		count = 2
	}
	var to []order.GroupID
	for _, group := range random.Perm(groups)[:min(count, groups)] {
		to = append(to, order.GroupID(group))
	}
	slices.Sort(to)
	return to
}

// keep drops the messages and faults that options do not keep.
func (p *plan) keep(options Options) {
	if options.OnlyMessages != nil {
		p.submissions = slices.DeleteFunc(p.submissions, func(s submission) bool {
			return !slices.Contains(options.OnlyMessages, s.number)
		})
	}
	if options.OnlyFaults != nil {
		p.faults = slices.DeleteFunc(p.faults, func(f fault) bool {
			return !slices.Contains(options.OnlyFaults, f.number)
		})
	}
}

// String describes the plan on a line.
func (p *plan) String() string {
	var sizes []string
	for _, size := range p.deployment.Sizes {
		sizes = append(sizes, fmt.Sprint(size))
	}
	text := fmt.Sprintf("%d groups of %s, tree %s, %d clients, %d slots, patience %v, delays up "+
		"to %v, %d messages", p.deployment.Groups(), strings.Join(sizes, " "),
		p.shape, p.deployment.Clients, p.deployment.Slots, p.deployment.Patience, p.weather.delay,
		len(p.submissions))
	for _, f := range p.faults {
		text += "; " + f.String()
	}
	return text
}
