package allconcur

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// network drives a whole group in one goroutine: reliable FIFO channels and random interleaving.
// Servers crash at any step, also in the middle of a send to several successors. The perfect
// failure detector suspects a crashed server only when everything that it sent has been received.
type network struct {
	rng      *rand.Rand
	reliable *digraph.Digraph
	engines  []*Engine
	// channels[from*n+to] are the frames under way.
	channels [][][]byte
	crashed  []bool
	// suspected[p*n+q] says that p's detector suspects q.
	suspected []bool
	// crashAfter is how many more frames a server sends before it crashes, -1 if it does not.
	crashAfter []int
	delivered  [][]order.Delivery
	// closed are the rounds that each server closed, with prompt delivery.
	closed [][]order.Closing
	// broadcast[p] are the payloads that server p A-broadcast.
	broadcast [][]string
	// losesTail makes a crash also lose the last frames of each of the server's channels, as when a
	// process is killed.
	losesTail bool
	// deliversFirst makes a turn A-deliver before it sends, so that a server may crash in between.
	deliversFirst bool
	// lies is how many false suspicions are left. Each is of another server, which stops when it
	// learns of it and counts as crashed from then on.
	lies    int
	accused []bool
	// loans are the frames lent to each server, nil if all may be kept for ever. hasty plants that
	// they are taken back as many rounds too soon.
	loans []loans
	hasty order.Round
	// sent counts frames put on channels.
	sent  int
	trace *strings.Builder
}

func newNetwork(seed uint64, config Config) (*network, error) {
	n := config.Servers
	w := &network{
		rng: rand.New(rand.NewPCG(seed, 1)), reliable: config.Reliable, engines: make([]*Engine, n),
		channels: make([][][]byte, n*n),
		crashed:  make([]bool, n), suspected: make([]bool, n*n), crashAfter: make([]int, n),
		accused: make([]bool, n), delivered: make([][]order.Delivery, n),
		closed:    make([][]order.Closing, n),
		broadcast: make([][]string, n),
	}
	for p := range n {
		config.Self = order.ServerID(p)
		engine, err := New(config)
		if err != nil {
			return nil, err
		}
		w.engines[p], w.crashAfter[p] = engine, -1
	}
	return w, nil
}

func (w *network) n() int { return len(w.engines) }

// note writes a line of the trace, if there is one.
func (w *network) note(format string, arguments ...any) {
	if w.trace == nil {
		return
	}
	for i, a := range arguments {
		switch a := a.(type) {
		case order.Delivery:
			arguments[i] = formatDelivery(a)
		case []byte:
			arguments[i] = formatFrame(a)
		}
	}
	fmt.Fprintf(w.trace, format+"\n", arguments...)
}

// crash stops a server. Its frames under way still arrive, except for a tail of each channel if a
// crash loses tails.
func (w *network) crash(p int) {
	w.note("%d crashes", p)
	w.crashed[p] = true
	if !w.losesTail {
		return
	}
	for to := range w.n() {
		c := &w.channels[p*w.n()+to]
		*c = (*c)[:len(*c)-w.rng.IntN(len(*c)+1)]
	}
}

// pump carries out an engine's output, up to the crash of its server.
func (w *network) pump(p int) {
	ready := w.engines[p].Ready()
	if w.deliversFirst {
		w.deliver(p, ready.Deliveries)
		ready.Deliveries = nil
	}
	for _, send := range ready.Sends {
		for _, to := range send.To {
			if w.crashAfter[p] == 0 {
				w.crash(p)
				return
			}
			if w.crashAfter[p] > 0 {
				w.crashAfter[p]--
			}
			c := &w.channels[p*w.n()+int(to)]
			*c = append(*c, w.own(send.Frame))
			w.sent++
		}
	}
	w.deliver(p, ready.Deliveries)
	for _, c := range ready.Closings {
		w.note("%d closes [%d,%d], removing %v", p, c.Epoch, c.Round, c.Removed)
		w.closed[p] = append(w.closed[p], c)
	}
	w.takeBack(p)
}

// ownDelivery returns a copy of a delivery, with payloads that are not lent.
func (w *network) ownDelivery(d order.Delivery) order.Delivery {
	d.Messages = append([]order.Message(nil), d.Messages...)
	for i := range d.Messages {
		d.Messages[i].Payload = w.own(d.Messages[i].Payload)
	}
	return d
}

// loans are frames that are lent to a server: those that came lately, and those that are taken back
// once a round is A-delivered.
type loans struct {
	open, waiting [][]byte
	until         order.Round
}

// lendsAll makes the network lend frames, and the memory of own messages.
func (w *network) lendsAll() {
	w.loans = make([]loans, w.n())
	for p, engine := range w.engines {
		engine.UseMemory(func(size int) []byte { return w.lend(make([]byte, size), p) })
	}
}

// lend returns a frame that is only lent to a server, if the network lends frames.
func (w *network) lend(frame []byte, p int) []byte {
	if w.loans == nil {
		return frame
	}
	frame = append([]byte(nil), frame...)
	w.loans[p].open = append(w.loans[p].open, frame)
	return frame
}

// takeBack overwrites frames that a server says it does not read any more.
func (w *network) takeBack(p int) {
	if w.loans == nil {
		return
	}
	l, engine := &w.loans[p], w.engines[p]
	if len(l.waiting) > 0 && engine.Delivered() < l.until {
		return
	}
	for _, frame := range l.waiting {
		for i := range frame {
			frame[i] = 0xdb
		}
	}
	l.waiting = nil
	if horizon := engine.Horizon(); horizon > 0 && w.rng.IntN(3) == 0 {
		l.open, l.waiting, l.until = nil, l.open, horizon-w.hasty
	}
}

// own returns a copy of what is handed over, if that is part of a lent frame.
func (w *network) own(bytes []byte) []byte {
	if w.loans == nil || bytes == nil {
		return bytes
	}
	return append([]byte(nil), bytes...)
}

func (w *network) deliver(p int, deliveries []order.Delivery) {
	for _, d := range deliveries {
		w.note("%d A-delivers %s", p, d)
		d = w.ownDelivery(d)
		w.delivered[p] = append(w.delivered[p], d)
	}
}

// receive gives a server the next frame of a channel.
func (w *network) receive(from, to int) error {
	c := &w.channels[from*w.n()+to]
	frame := (*c)[0]
	*c = (*c)[1:]
	if w.crashed[to] {
		return nil
	}
	frame = w.lend(frame, to)
	if err := w.engines[to].Receive(order.ServerID(from), frame); err != nil {
		return fmt.Errorf("server %d from %d: %w", to, from, err)
	}
	if err := w.engines[to].checkCounts(); err != nil {
		return err
	}
	w.note("%d -> %d %s", from, to, frame)
	w.pump(to)
	if w.accused[to] && !w.crashed[to] && w.engines[to].halted != "" {
		w.note("%d halts: %s", to, w.engines[to].halted)
		w.crashed[to] = true
	}
	return nil
}

// lie makes a server suspect another one that works.
func (w *network) lie() error {
	target := w.rng.IntN(w.n())
	successors := w.reliable.Successors(target)
	owner := successors[w.rng.IntN(len(successors))]
	if w.crashed[target] || w.crashed[owner] || w.accused[target] || w.crashAfter[target] >= 0 ||
		w.suspected[owner*w.n()+target] {
		return nil
	}
	w.lies--
	w.accused[target] = true
	w.note("%d suspects %d, which is fine", owner, target)
	w.suspected[owner*w.n()+target] = true
	if err := w.engines[owner].Suspect(order.ServerID(target)); err != nil {
		return err
	}
	w.pump(owner)
	return nil
}

// submit makes a server A-broadcast.
func (w *network) submit(p int, empty bool) error {
	var payload []byte
	if !empty {
		payload = fmt.Appendf(nil, "m%d.%d", p, len(w.broadcast[p])+1)
	}
	w.note("%d A-broadcasts %q", p, string(payload))
	if err := w.engines[p].Broadcast(payload); err != nil {
		return fmt.Errorf("server %d: %w", p, err)
	}
	if !empty {
		w.broadcast[p] = append(w.broadcast[p], string(payload))
		clear(payload) // the engine has copied it
	}
	w.pump(p)
	return nil
}

// action is one step that the network may take.
type action struct {
	kind     string
	from, to int
}

// actions lists all enabled steps. With payloads it includes A-broadcasts that are not solicited.
func (w *network) actions(payloads bool) []action {
	n := w.n()
	all := make([]action, 0, 4*n) // nearly always enough
	for from := range n {
		for to := range n {
			if len(w.channels[from*n+to]) > 0 {
				all = append(all, action{"receive", from, to})
			} else if w.crashed[from] && !w.crashed[to] && !w.suspected[to*n+from] &&
				w.engines[to].config.Reliable.HasEdge(from, to) {
				all = append(all, action{"suspect", from, to})
			}
		}
		engine := w.engines[from]
		if w.crashed[from] || !engine.CanBroadcast() {
			continue
		}
		if engine.Solicited() || engine.Undelivered() {
			all = append(all, action{"flush", from, from})
		}
		if payloads {
			all = append(all, action{"submit", from, from})
		}
	}
	return all
}

func (w *network) take(a action) error {
	switch a.kind {
	case "receive":
		return w.receive(a.from, a.to)
	case "suspect":
		w.note("%d suspects %d", a.to, a.from)
		w.suspected[a.to*w.n()+a.from] = true
		if err := w.engines[a.to].Suspect(order.ServerID(a.from)); err != nil {
			return fmt.Errorf("server %d suspects %d: %w", a.to, a.from, err)
		}
		w.pump(a.to)
		return nil
	case "mistrust":
		w.lies--
		w.suspected[a.to*w.n()+a.from] = true
		if err := w.engines[a.to].Suspect(order.ServerID(a.from)); err != nil {
			return err
		}
		w.pump(a.to)
		return nil
	case "trust":
		w.suspected[a.to*w.n()+a.from] = false
		if err := w.engines[a.to].Trust(order.ServerID(a.from)); err != nil {
			return err
		}
		w.pump(a.to)
		return nil
	case "flush":
		return w.submit(a.from, true)
	default:
		return w.submit(a.from, false)
	}
}

// run takes random steps, crashes up to the given number of servers, and goes on until nothing is
// left to do.
func (w *network) run(steps, crashes int) error {
	restAfter := steps + 4000*w.n()
	for step := 0; ; step++ {
		actions := w.actions(step < steps)
		if len(actions) == 0 {
			return nil
		}
		if step > restAfter {
			return fmt.Errorf("no rest after %d steps", step)
		}
		if w.lies > 0 && w.rng.IntN(steps/2+1) == 0 {
			if err := w.lie(); err != nil {
				return err
			}
			continue
		}
		if crashes > 0 && w.rng.IntN(steps/2+1) == 0 {
			if p := w.rng.IntN(w.n()); !w.crashed[p] && w.crashAfter[p] < 0 {
				crashes--
				if w.rng.IntN(4) == 0 {
					w.crash(p)
				} else {
					w.crashAfter[p] = w.rng.IntN(12) // in the middle of a send, sooner or later
				}
				continue
			}
		}
		if err := w.take(actions[w.rng.IntN(len(actions))]); err != nil {
			return err
		}
	}
}

// judgement says which properties a run must have.
type judgement struct {
	// uniform: what a crashed server A-delivered counts, too.
	uniform bool
}

// judge checks the run at rest: integrity, total order and (uniform) agreement, validity, and that
// the survivors agree that exactly they are left.
func (w *network) judge(j judgement) error {
	longest := -1
	for p := range w.n() {
		if !w.crashed[p] && (longest < 0 || len(w.delivered[p]) > len(w.delivered[longest])) {
			longest = p
		}
	}
	if longest < 0 {
		return nil
	}
	for p := range w.n() {
		if w.crashed[p] && !j.uniform {
			continue
		}
		if err := w.comparePrefix(p, longest); err != nil {
			return err
		}
	}
	for p := range w.n() {
		if err := w.judgeIntegrity(p); err != nil {
			return err
		}
		if w.crashed[p] {
			continue
		}
		if err := w.judgeSurvivor(p, longest); err != nil {
			return err
		}
	}
	return nil
}

// comparePrefix checks that the rounds that both A-delivered are equal, and that a crashed server
// has none that the longest survivor lacks.
func (w *network) comparePrefix(p, q int) error {
	a, b := w.delivered[p], w.delivered[q]
	for i := range min(len(a), len(b)) {
		if !equalDeliveries(a[i], b[i]) {
			return fmt.Errorf("set agreement: server %d A-delivers %s, server %d %s",
				p, formatDelivery(a[i]), q, formatDelivery(b[i]))
		}
	}
	for i := len(b); i < len(a); i++ {
		if payloads(a[i]) > 0 {
			return fmt.Errorf("agreement: only server %d A-delivers %s", p, formatDelivery(a[i]))
		}
	}
	return nil
}

func (w *network) judgeIntegrity(p int) error {
	seen := map[string]bool{}
	for i, d := range w.delivered[p] {
		if d.Round != w.delivered[p][0].Round+order.Round(i) {
			return fmt.Errorf("integrity: server %d A-delivers round %d as its number %d", p,
				d.Round, i)
		}
		for _, m := range d.Messages {
			if len(m.Payload) == 0 {
				continue
			}
			text := string(m.Payload)
			if seen[text] || !slices.Contains(w.broadcast[m.Origin], text) {
				return fmt.Errorf("integrity: server %d A-delivers %q twice, or nobody "+
					"A-broadcast it", p, text)
			}
			seen[text] = true
		}
	}
	return nil
}

func (w *network) judgeSurvivor(p, longest int) error {
	s := w.engines[p].Status()
	if s.Halted != "" {
		return fmt.Errorf("server %d halted under a perfect detector: %s", p, s.Halted)
	}
	if len(w.delivered[p]) < len(w.delivered[longest]) {
		for _, d := range w.delivered[longest][len(w.delivered[p]):] {
			if payloads(d) > 0 {
				return fmt.Errorf("agreement: server %d never A-delivers %s", p, formatDelivery(d))
			}
		}
	}
	have := map[string]bool{}
	for _, d := range w.delivered[p] {
		for _, m := range d.Messages {
			have[string(m.Payload)] = true
		}
	}
	for _, text := range w.broadcast[p] {
		if !have[text] {
			return fmt.Errorf("validity: server %d never A-delivers its own %q", p, text)
		}
	}
	var alive []order.ServerID
	for q := range w.n() {
		if !w.crashed[q] {
			alive = append(alive, order.ServerID(q))
		}
	}
	if fmt.Sprint(s.Members) != fmt.Sprint(alive) {
		return fmt.Errorf("membership: server %d at rest has the members %v, alive are %v",
			p, s.Members, alive)
	}
	if w.engines[p].plus && s.Reliable {
		return fmt.Errorf("server %d is in a reliable round at rest", p)
	}
	return nil
}

func equalDeliveries(a, b order.Delivery) bool {
	return a.Epoch == b.Epoch && a.Round == b.Round && slices.Equal(a.Removed, b.Removed) &&
		slices.EqualFunc(a.Messages, b.Messages, func(x, y order.Message) bool {
			return x.Origin == y.Origin && bytes.Equal(x.Payload, y.Payload)
		})
}

func payloads(d order.Delivery) int {
	count := 0
	for _, m := range d.Messages {
		if len(m.Payload) > 0 {
			count++
		}
	}
	return count
}

func formatDelivery(d order.Delivery) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "epoch %d round %d:", d.Epoch, d.Round)
	for _, m := range d.Messages {
		fmt.Fprintf(&b, " %d=%q", m.Origin, m.Payload)
	}
	if len(d.Removed) > 0 {
		fmt.Fprintf(&b, " removed %v", d.Removed)
	}
	return b.String()
}

func formatFrame(frame []byte) string {
	header, err := decodeFrame(frame, MaxPayloadDefault)
	if err != nil {
		return err.Error()
	}
	switch header.kind {
	case kindUnreliable:
		return fmt.Sprintf("BCAST m%d[%d,%d] %q", header.origin, header.epoch, header.round,
			payloadOf(frame))
	case kindReliable:
		text := fmt.Sprintf("RBCAST m%d[[%d,%d]] %q", header.origin, header.epoch, header.round,
			payloadOf(frame))
		for i := range header.revocations {
			r := revocationOf(frame, i)
			text += fmt.Sprintf(" revokes %d (%d)", r.target, r.sequence)
		}
		return text
	case kindForward, kindBackward:
		set := make(serverSet, (len(frame)-messageHeaderSize)/8)
		copySet(set, frame)
		return fmt.Sprintf("%s %d[[%d,%d]] %s %v", map[frameKind]string{kindForward: "FWD",
			kindBackward: "BWD"}[header.kind], header.origin, header.epoch, header.round,
			map[votePhase]string{phaseDecided: "decided", phaseConfirmed: "confirms"}[header.phase],
			set.appendTo(nil))
	default:
		return fmt.Sprintf("FAIL %d by %d", header.target, header.owner) + when(header.sequence > 1,
			fmt.Sprintf(" (%d)", header.sequence))
	}
}
