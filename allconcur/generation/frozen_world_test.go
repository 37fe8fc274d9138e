package generation

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

// frozenSetting is a kind of shard whose engines are frozen at random.
type frozenSetting struct {
	engine string
	// n servers of a shard form the group. degree is that of GS(n, degree), 0 for the complete
	// digraph.
	n, shard, degree int
	// eons makes rounds change the shard.
	eons bool
	// records makes servers record complete rounds.
	records bool
	// prompt makes engines deliver promptly.
	prompt bool
	// trains is the number of trains of TRAINS' engine.
	trains int
}

// ring reports whether the engines are TRAINS'.
func (s frozenSetting) ring() bool { return s.engine == trains.EngineName }

// frozenEngine is an engine that can be frozen.
type frozenEngine interface {
	order.Broadcaster
	order.Voter
}

// frozenPlant is a bug to plant: in the engines, in choose, or in the report of a promise.
type frozenPlant struct {
	engine        allconcur.Fault
	trains        trains.Fault
	choose        Fault
	dropConfirmed bool
	dropVotes     bool
	record        recordPlant
}

// Errors that a schedule may end with.
var (
	errDisagree = errors.New("two servers A-deliver different rounds")
	errLost     = errors.New("an A-delivered round is not in the base and the tail")
	errReplaced = errors.New("the tail has another round than was A-delivered")
	errTwice    = errors.New("a server votes for two values of a round")
	errVoters   = errors.New("a vote's voters are not those of its round")
	errSeen     = errors.New("a server saw a vote that was not given")
	errVotes    = errors.New("a server has more votes than its engine's bound")
	errDisks    = errors.New("a majority has on disk what is behind the base")
)

// frozenOutcome is the outcome of one schedule.
type frozenOutcome struct {
	// frozen says that enough servers promised. beyond is how many rounds some server A-delivered
	// beyond the base. followed says that those were an unreliable round and a set.
	frozen   bool
	beyond   int
	followed bool
	eons     int
	older    bool // a server promised in an older run than the newest one known
	removed  bool
	halted   bool
	seen     int  // votes that other servers saw
	forced   bool // forgetful servers had to count
	prompt   bool // a round was A-delivered promptly
	// third says that some server A-delivered the third round beyond the base.
	third bool
	// bound says that some server A-delivered as many rounds beyond the base as there are trains.
	bound bool
	// recorded is how many rounds beyond the base were durable by records alone.
	recorded int
}

// frozenServer is one process and its chain.
type frozenServer struct {
	id     order.ServerID
	engine frozenEngine
	run    Run
	group  []order.ServerID // of the run, by place
	shard  Membership       // the membership that counts in the run
	// membership is the newest on its chain. last is the run's transitional round, once known.
	// remaining is the group without removed servers.
	membership Membership
	last       order.Round
	remaining  []order.ServerID
	delivered  []TailRound
	suspected  map[order.ServerID]bool
	early      []frozenFrame
	voted      map[order.Round]ballotKey
	first      order.Round // of the run
	stopped    bool        // crashed, or frozen by a promise
	crashed    bool
	promised   bool
	records    frozenRecords
}

// ballotKey distinguishes the values of a round, without their contents.
type ballotKey struct {
	epoch    order.Epoch
	reliable bool
	messages int
}

type frozenFrame struct {
	from  order.ServerID
	frame []byte
}

// frozenWorld runs production engines under random suspicions, cut links and crashes.
type frozenWorld struct {
	frozenSetting
	plant    frozenPlant
	rng      *rand.Rand
	servers  []*frozenServer
	channels [][]frozenFrame // by receiver, then sender
	slow     []bool
	side     []bool // a part of the shard that is cut off from the rest, and suspected by it
	promises []Promised
	disks    []order.Round
	forgot   int
	out      frozenOutcome
	// The frequency of each event, in ten thousand steps.
	mistrust, trust, toggle, crash int
}

// contentOf describes a round, as a driver does, with indexes of the chain.
func contentOf(d order.Delivery, group []order.ServerID) TailRound {
	value := TailRound{Round: d.Round, Epoch: d.Epoch, Removed: outside(d.Removed, group)}
	content := fmt.Appendf(nil, "%d ", d.Epoch)
	for _, m := range d.Messages {
		value.Origins = append(value.Origins, group[m.Origin])
		content = fmt.Appendf(content, "%d:%q ", group[m.Origin], m.Payload)
	}
	value.Content = sha256.Sum256(content)
	return value
}

func outside(places, group []order.ServerID) (ids []order.ServerID) {
	for _, place := range places {
		ids = append(ids, group[place])
	}
	return ids
}

// changed returns the membership after a round, if the round changes it: the first message with a
// change counts.
func changed(d order.Delivery, before Membership, most int) (Membership, bool) {
	for _, m := range d.Messages {
		after := Membership{Number: before.Number + 1, Members: slices.Clone(before.Members)}
		switch {
		case len(m.Payload) == 0:
		case m.Payload[0] == '+' && int(slices.Max(before.Members)) < most-1:
			after.Members = append(after.Members, slices.Max(before.Members)+1)
			return after, true
		case m.Payload[0] == '-':
			out, err := strconv.Atoi(string(m.Payload[1:]))
			if err == nil && before.Includes(order.ServerID(out)) && len(before.Members) > 2 {
				after.Members = slices.DeleteFunc(after.Members, func(p order.ServerID) bool {
					return int(p) == out
				})
				return after, true
			}
		}
	}
	return before, false
}

func newFrozenWorld(seed uint64, setting frozenSetting, plant frozenPlant) (*frozenWorld, error) {
	w := &frozenWorld{frozenSetting: setting, plant: plant, rng: rand.New(rand.NewPCG(seed, 7))}
	most := setting.shard
	if setting.eons {
		most += 2
	}
	first := Membership{Number: 1}
	for p := range setting.shard {
		first.Members = append(first.Members, order.ServerID(p))
	}
	for p := range most {
		w.servers = append(w.servers, &frozenServer{id: order.ServerID(p), membership: first,
			shard: first})
	}
	w.channels, w.slow, w.disks, w.side = make([][]frozenFrame, most*most), make([]bool, most*most),
		make([]order.Round, most), make([]bool, most)
	for p := range setting.n {
		if err := w.start(w.servers[p], NewRun(1, 0), first.Members[:setting.n]); err != nil {
			return nil, err
		}
	}
	pick := func(of ...int) int { return of[w.rng.IntN(len(of))] }
	w.mistrust, w.trust, w.toggle, w.crash = pick(3, 20, 100, 300), pick(0, 100, 300),
		pick(0, 20, 200), pick(0, 0, 10, 40)
	return w, nil
}

// start gives a server the engine of a run. It starts none for a group without a majority of its
// shard.
func (w *frozenWorld) start(s *frozenServer, run Run, group []order.ServerID) error {
	place := slices.Index(group, s.id)
	n := len(group)
	if place < 0 || n < s.membership.Quorum() {
		return nil
	}
	s.run, s.group, s.shard, s.remaining, s.last = run, group, s.membership, slices.Clone(group), 0
	s.first = order.Round(len(s.delivered) + 1)
	s.suspected, s.voted = map[order.ServerID]bool{}, map[order.Round]ballotKey{}
	var err error
	s.engine, err = w.newEngine(s, order.ServerID(place))
	s.records = frozenRecords{synced: s.first - 1, last: s.first - 1}
	w.out.eons = max(w.out.eons, int(run.Eon()))
	return err
}

// newEngine makes the engine of a server's run.
func (w *frozenWorld) newEngine(s *frozenServer, place order.ServerID) (frozenEngine, error) {
	n := len(s.group)
	if w.ring() {
		return trains.New(trains.Config{Self: place, Servers: n, Trains: w.trains,
			Generation: uint64(s.run), FirstRound: s.first, Change: w.change(s.shard),
			Fault: w.plant.trains})
	}
	g, err := digraph.Complete(n)
	if w.degree > 0 && n >= 2*w.degree {
		g, err = digraph.GS(n, w.degree)
	}
	if err != nil {
		return nil, err
	}
	return allconcur.New(allconcur.Config{
		Engine: w.engine, Self: place, Servers: n, Shard: len(s.shard.Members), Reliable: g,
		Generation: uint64(s.run), FirstRound: s.first,
		Fault: w.plant.engine, Change: w.change(s.shard), Prompt: w.prompt,
	})
}

func (w *frozenWorld) change(shard Membership) func(order.Delivery) bool {
	if !w.eons {
		return nil
	}
	return func(d order.Delivery) bool {
		_, changes := changed(d, shard, len(w.servers))
		return changes
	}
}

// pump handles the output of a server's engine, and begins the next run if this one ended.
func (w *frozenWorld) pump(s *frozenServer) error {
	ready := s.engine.Ready()
	for _, send := range ready.Sends {
		for _, to := range send.To {
			edge := int(s.group[to])*len(w.servers) + int(s.id)
			w.channels[edge] = append(w.channels[edge], frozenFrame{s.id, send.Frame})
		}
	}
	for _, d := range ready.Deliveries {
		value := contentOf(d, s.group)
		s.delivered = append(s.delivered, value)
		s.remaining = slices.DeleteFunc(s.remaining, func(p order.ServerID) bool {
			return slices.Contains(value.Removed, p)
		})
		w.out.removed = w.out.removed || len(value.Removed) > 0
		w.out.prompt = w.out.prompt || w.prompt && len(ready.Closings) == 0
		if after, changes := changed(d, s.shard, len(w.servers)); w.eons && changes && s.last == 0 {
			s.membership, s.last = after, d.Round+2
			if w.ring() {
				s.last = d.Round + order.Round(2*w.trains) - 1
			}
		}
	}
	for _, c := range ready.Closings {
		removed := outside(c.Removed, s.group)
		s.remaining = slices.DeleteFunc(s.remaining, func(p order.ServerID) bool {
			return slices.Contains(removed, p)
		})
		w.out.removed = w.out.removed || len(removed) > 0
	}
	if err := s.voteOnce(); err != nil {
		return err
	}
	w.record(s)
	if s.last == 0 || len(s.delivered) < int(s.last) {
		return nil
	}
	// The servers of the group that are still members go on, together with the server that joins if
	// it runs.
	var group []order.ServerID
	for _, p := range s.membership.Members {
		if slices.Contains(s.remaining, p) || !s.shard.Includes(p) {
			group = append(group, p)
		}
	}
	run := NewRun(1, s.run.Eon()+1)
	for _, p := range group {
		if joiner := w.servers[p]; !s.shard.Includes(p) && joiner.engine == nil && !joiner.stopped {
			joiner.membership, joiner.delivered = s.membership, slices.Clone(s.delivered)
			if err := w.start(joiner, run, group); err != nil {
				return err
			}
		}
	}
	if err := w.start(s, run, group); err != nil || s.run != run {
		return err
	}
	early := s.early
	s.early = nil
	for _, f := range early {
		w.receive(s, f)
	}
	return w.pump(s)
}

// voteOnce compares the server's votes with its earlier ones.
func (s *frozenServer) voteOnce() error {
	votes := s.engine.Votes()
	if len(votes) > s.engine.VotesMax() {
		return fmt.Errorf("%w: server %d has %d, and the bound is %d", errVotes, s.id, len(votes),
			s.engine.VotesMax())
	}
	for _, v := range votes {
		key := ballotKey{v.Epoch, v.Reliable, len(v.Origins)}
		if before, voted := s.voted[v.Round]; voted && before != key {
			return fmt.Errorf("%w: server %d, round %d, %+v and %+v", errTwice, s.id, v.Round,
				before, key)
		}
		s.voted[v.Round] = key
	}
	return nil
}

// receive handles a frame as a driver does: it keeps frames of later runs, and drops those of
// earlier ones.
func (w *frozenWorld) receive(s *frozenServer, f frozenFrame) {
	runOf := allconcur.FrameGeneration
	if w.ring() {
		runOf = trains.FrameGeneration
	}
	run, err := runOf(f.frame)
	if err != nil || s.engine == nil || Run(run) > s.run {
		s.early = append(s.early, f)
		return
	}
	if from := slices.Index(s.group, f.from); from >= 0 && Run(run) == s.run {
		_ = s.engine.Receive(order.ServerID(from), f.frame) // the engine may have halted
	}
}

// step makes one event happen at one server.
func (w *frozenWorld) step(number int, rough bool) error {
	s, other := w.servers[w.rng.IntN(len(w.servers))], w.servers[w.rng.IntN(len(w.servers))]
	if s.stopped || s.engine == nil {
		return nil
	}
	edge := int(s.id)*len(w.servers) + int(other.id)
	place := slices.Index(s.group, other.id)
	kind := w.rng.IntN(10000)
	if !rough {
		kind = 5000 + kind/2
	}
	switch channel := w.channels[edge]; {
	case place < 0 || s == other:
		if s == other && s.engine.CanBroadcast() {
			if err := s.engine.Broadcast(w.payload(s, number)); err != nil {
				return err
			}
		}
	case (other.crashed && len(channel) == 0 || w.side[s.id] != w.side[other.id]) &&
		!s.suspected[other.id] && kind%20 == 0:
		s.suspected[other.id] = true
		// It may be no predecessor, or this server may have halted.
		_ = s.engine.Suspect(order.ServerID(place))
	case kind < w.mistrust && !s.suspected[other.id]:
		s.suspected[other.id] = true
		_ = s.engine.Suspect(order.ServerID(place))
	case kind < w.mistrust+w.trust && s.suspected[other.id] && !other.crashed:
		s.suspected[other.id] = false
		_ = s.engine.Trust(order.ServerID(place))
	case kind >= 1000 && kind < 1000+w.toggle:
		w.slow[edge] = !w.slow[edge]
	case kind >= 2000 && kind < 2000+w.crash:
		w.halt(s)
		s.crashed = true
		return nil
	case len(channel) > 0 && (!w.slow[edge] && w.side[s.id] == w.side[other.id] ||
		w.rng.IntN(60) == 0):
		w.channels[edge] = channel[1:]
		w.receive(s, channel[0])
	}
	return w.pump(s)
}

func (w *frozenWorld) payload(s *frozenServer, number int) []byte {
	if w.eons && w.rng.IntN(12) == 0 {
		if w.rng.IntN(2) == 0 {
			return []byte("+")
		}
		return fmt.Appendf(nil, "-%d", w.rng.IntN(len(w.servers)))
	}
	return fmt.Appendf(nil, "m%d.%d", s.id, number)
}

// halt stops a server for good. In every third case the last frames that it sent are lost.
func (w *frozenWorld) halt(s *frozenServer) {
	s.stopped = true
	if w.rng.IntN(3) > 0 {
		return
	}
	for p := range w.servers {
		edge := p*len(w.servers) + int(s.id)
		w.channels[edge] = w.channels[edge][:w.rng.IntN(len(w.channels[edge])+1)]
	}
}

// promise freezes a server and collects its report. A server that forgets reports only what is on
// its disk.
func (w *frozenWorld) promise(s *frozenServer, forgets bool) error {
	r := Report{Original: true, Run: s.run, Shard: s.shard, Membership: s.membership}
	if s.run == 0 {
		r.Shard = r.Membership
	}
	head := len(s.delivered)
	if forgets && s.run != 0 {
		r.Restarted = true
		w.forgot++
		// It began the run with everything before that on its disk.
		head = max(int(s.first)-1, head-w.rng.IntN(3))
		r.Shard, r.Membership = s.shard, s.shard // that much is on disk
		if head == len(s.delivered) {
			r.Membership = s.membership
		}
	}
	if w.records && s.run != 0 {
		head = w.recover(s, &r)
	}
	if head > 0 {
		r.Head = Head{Generation: 1, Height: uint64(head), Round: order.Round(head)}
	} else if s.run != 0 {
		r.Head.Generation = 1
	}
	w.disks[s.id] = order.Round(head)
	if !s.crashed {
		w.halt(s)
	}
	s.promised = true
	if s.engine != nil && !r.Restarted && !w.plant.dropVotes {
		r.Bound = BoundOf(s.engine.VotesMax())
		for _, v := range s.engine.Votes() {
			value := contentOf(v.Delivery, s.group)
			value.Epoch, value.Reliable, value.Origins = v.Epoch, v.Reliable,
				outside(v.Origins, s.group)
			if w.prompt {
				value.Removed = slices.DeleteFunc(outside(v.Members, s.group),
					func(p order.ServerID) bool { return slices.Contains(value.Origins, p) })
			}
			vote := Vote{TailRound: value, Confirmed: v.Confirmed && !w.plant.dropConfirmed,
				Voters: outside(v.Members, s.group)}
			union := append(slices.Clone(value.Origins), value.Removed...)
			slices.Sort(union)
			if !slices.Equal(union, vote.Voters) {
				return fmt.Errorf("%w: voters %v of round %d of %v without %v", errVoters,
					vote.Voters, v.Round, value.Origins, value.Removed)
			}
			r.Votes = append(r.Votes, vote)
		}
		if holder, holds := s.engine.(order.Holder); holds {
			for _, h := range holder.Held() {
				held := contentOf(h.Delivery, s.group)
				held.Epoch, held.Reliable = h.Epoch, h.Reliable
				r.Vouched = append(r.Vouched, held)
			}
		}
		known, err := w.known(s)
		if err != nil {
			return err
		}
		r.Known = known
	}
	w.out.halted = w.out.halted || s.engine != nil && s.engine.Status().Halted != ""
	w.promises = append(w.promises, Promised{s.id, r})
	return nil
}

// known lists the votes of others that a server saw, and compares them with what these servers did.
func (w *frozenWorld) known(s *frozenServer) (list []KnownVote, err error) {
	witness, sees := s.engine.(order.Witness)
	if !sees {
		return nil, nil
	}
	for _, v := range witness.KnownVotes() {
		k := KnownVote{Voter: s.group[v.Voter], Round: v.Round, Epoch: v.Epoch,
			Reliable:  v.Reliable,
			Confirmed: v.Confirmed, Origins: outside(v.Origins, s.group)}
		list = append(list, k)
		w.out.seen++
		voter := w.servers[k.Voter]
		if voter.run != s.run {
			continue // it has begun another run since, and so has A-delivered all of this one
		}
		if at := int(k.Round) - 1; at < len(voter.delivered) {
			d := voter.delivered[at]
			if !w.prompt && (d.Epoch != k.Epoch || !slices.Equal(d.Origins, k.Origins)) {
				return nil, fmt.Errorf("%w: server %d says %+v, and server %d A-delivers %+v",
					errSeen, s.id, k, k.Voter, d)
			}
			continue
		}
		if key := (ballotKey{k.Epoch, k.Reliable, len(k.Origins)}); voter.voted[k.Round] != key {
			return nil, fmt.Errorf("%w: server %d says %+v, and server %d voted for %+v", errSeen,
				s.id, k, k.Voter,
				voter.voted[k.Round])
		}
	}
	return list, nil
}

// enough applies the proposer's own rule.
func (w *frozenWorld) enough(remembering bool) bool {
	v := furthestSurvey(w.promises, nil, w.plant.choose)
	return v.enough(remembering)
}

// runFrozen runs one schedule: a calm start, then suspicions and crashes. Then servers promise one
// by one, the worst at the worst time, while the others go on.
func runFrozen(seed uint64, setting frozenSetting, plant frozenPlant) (frozenOutcome, error) {
	w, err := newFrozenWorld(seed, setting, plant)
	if err != nil {
		return frozenOutcome{}, err
	}
	size := len(w.servers) * len(w.servers)
	calm, rough := w.rng.IntN(30*size), w.rng.IntN(60*size)*w.rng.IntN(2)
	for number := range calm + rough {
		if err := w.step(number, number >= calm); err != nil {
			return w.out, err
		}
	}
	if w.rng.IntN(3) > 0 {
		for range w.shard - (w.shard/2 + 1) {
			w.side[w.rng.IntN(w.shard)] = true
		}
	}
	if err := w.freeze(calm + rough); err != nil {
		return w.out, err
	}
	if w.rng.IntN(4) > 0 {
		clear(w.slow)
	}
	for number := range 40 * size {
		if err := w.step(calm+rough+1000*size+number, number < 20*size); err != nil {
			return w.out, err
		}
	}
	return w.out, w.judge()
}

// ripe returns how much a server's votes may have made possible: 1 for a vote, 2 for two votes, 3
// for a confirmed one, 4 for both.
func ripe(s *frozenServer) int {
	if s.engine == nil {
		return 0
	}
	votes := s.engine.Votes()
	confirmed := slices.ContainsFunc(votes, func(v order.Vote) bool { return v.Confirmed })
	switch {
	case confirmed && len(votes) == 2:
		return 4
	case confirmed:
		return 3
	}
	return len(votes)
}

// freeze makes servers promise, one after the other, until enough did. A server promises as soon as
// its votes are ripe, or its time is over.
func (w *frozenWorld) freeze(from int) error {
	size := len(w.servers) * len(w.servers)
	forgetful, want, deaf := w.rng.IntN(4) == 0, w.rng.IntN(5), w.rng.IntN(2) == 0
	forced := forgetful && w.rng.IntN(2) == 0
	turn := w.rng.Perm(len(w.servers))
	number := from
	for len(turn) > 0 && !w.enough(true) && !(forced && w.enough(false)) {
		s := w.servers[turn[0]]
		turn = turn[1:]
		if deaf && want < 3 {
			for p := range w.servers {
				w.slow[int(s.id)*len(w.servers)+p] = true
			}
		}
		for patience := w.rng.IntN(20 * size); patience > 0 && !s.crashed && s.engine != nil &&
			ripe(s) < want; patience-- {
			number++
			if err := w.step(number, true); err != nil {
				return err
			}
		}
		if s.crashed && w.rng.IntN(2) == 0 {
			continue // it stays away
		}
		// A server that crashed comes back with only its disk.
		if err := w.promise(s, s.crashed || forgetful && w.rng.IntN(2) == 0); err != nil {
			return err
		}
	}
	w.out.frozen = w.enough(true) || forced && w.enough(false)
	w.out.forced = w.out.frozen && !w.enough(true)
	return nil
}

// judge compares what any server A-delivered with the others, and with what choose takes.
func (w *frozenWorld) judge() error {
	for p, s := range w.servers {
		for i, d := range s.delivered {
			for q, other := range w.servers[:p] {
				if i < len(other.delivered) && !d.Equal(other.delivered[i]) {
					return fmt.Errorf("%w: %d and %d, round %d", errDisagree, q, p, d.Round)
				}
			}
		}
	}
	if !w.out.frozen {
		return nil
	}
	base, tail := choose(w.promises, nil, w.plant.choose)
	v := furthestSurvey(w.promises, nil, w.plant.choose)
	newest, shard := v.run, v.shard
	for _, p := range w.promises {
		w.out.older = w.out.older || p.Report.Run != 0 && p.Report.Run < newest
	}
	if w.records {
		if err := w.judgeRecords(base, tail, newest, shard); err != nil {
			return err
		}
	}
	if w.out.forced {
		return w.judgeDisks(base, shard)
	}
	for p, s := range w.servers {
		for _, d := range s.delivered[min(len(s.delivered), int(base.Round)):] {
			at := int(d.Round - base.Round - 1)
			if at >= len(tail) {
				return fmt.Errorf("%w: server %d, round %d, base %d, tail of %d", errLost, p,
					d.Round, base.Round, len(tail))
			}
			w.out.beyond = max(w.out.beyond, at+1)
			value := tail[at]
			value.Reliable = false // a delivery does not include it
			if !d.Equal(value) && (!w.prompt || d.Content != value.Content) {
				return fmt.Errorf("%w: server %d, round %d", errReplaced, p, d.Round)
			}
		}
	}
	w.out.third = w.out.beyond > 2
	w.out.bound = w.ring() && w.out.beyond == w.trains
	w.out.followed = w.out.beyond == 2 && !tail[0].Reliable && tail[1].Reliable
	return nil
}

// judgeDisks: rounds that may be lost because too many servers forgot were not on the disks of a
// majority.
func (w *frozenWorld) judgeDisks(base Head, shard Membership) error {
	for p, s := range w.servers {
		if !s.promised {
			w.disks[p] = order.Round(len(s.delivered))
		}
	}
	var disks []order.Round
	for _, p := range shard.Members {
		disks = append(disks, w.disks[p])
	}
	slices.Sort(disks)
	if safe := disks[len(disks)-shard.Quorum()]; safe > base.Round {
		return fmt.Errorf("%w: round %d, base %d", errDisks, safe, base.Round)
	}
	return nil
}
