package stream

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// heap is a ring's memory in a test.
type heap []byte

func (h heap) Size() int              { return len(h) }
func (h heap) Bytes() []byte          { return h }
func (h heap) Load(offset int) uint64 { return binary.NativeEndian.Uint64(h[offset:]) }

// world is a parent and a child with one stream between them, everything between their members, and
// all events that can happen to them, drawn from a seed. The child's log is ideal: a proposal is
// ordered some time later, and members read the log at their own pace.
type world struct {
	random  *rand.Rand
	config  Config
	now     uint64
	entries [][]byte // the stream: entry n is entries[n-1]

	parents  []parent
	children []child
	links    map[[2]int]*wire // by parent, child
	cut      map[[2]int]bool

	// log holds the ordered entries: the numbers proposed, taken or not.
	log       []uint64
	positions []uint64   // the relay's position after each item of the log
	proposals []proposal // not ordered yet
	failed    string
	// liars are members of the parent that write other entries, in a witnessed stream.
	liars map[int]bool
	// boasts are members of the child that report positions ahead of theirs, in a witnessed stream.
	boasts  map[int]bool
	lies    int // lies that a carrier found
	rescues int // rings taken away with entries in them
	backs   int // members whose log went back
}

// parent is a member of the parent.
type parent struct {
	writer *Writer // nil while it is down
	known  uint64  // entries in its log
}

// child is a member of the child.
type child struct {
	carrier *Carrier // nil while it is down
	seen    int      // items of the log that it has
	durable uint64
	life    Life
}

type proposal struct {
	from    int
	numbers []uint64
}

// wire is the connection of a writer to a carrier's ring.
type wire struct {
	memory heap
	// attached reports that the writer may write. Its operations land in order, part by part.
	// Operations that timed out may still land.
	attached bool
	flight   []operation
	late     []operation
	back     []Feedback
}

type operation struct {
	offset int
	bytes  []byte // as posted: the writer's own bytes
	landed int
}

func newWorld(seed uint64, fault Fault) *world { return makeWorld(seed, fault, false) }

func makeWorld(seed uint64, fault Fault, witnessed bool) *world {
	random := rand.New(rand.NewPCG(seed, 1))
	w := &world{random: random, links: map[[2]int]*wire{}, cut: map[[2]int]bool{}}
	entryMax := 8 * (1 + random.IntN(6))
	ids := func(n int) []order.ServerID {
		var all []order.ServerID
		for i := range n {
			all = append(all, order.ServerID(i))
		}
		return all
	}
	w.config = Config{
		Writers: ids(1 + random.IntN(5)), Carriers: ids(1 + random.IntN(5)),
		Stretch: uint64(1 + random.IntN(5)), Patience: 40, Entries: 2 + random.IntN(12),
		EntryMax: entryMax,
		RingSize: 2*RecordSize(entryMax) + 8*random.IntN(50), Depth: 2 + random.IntN(6),
		Fault: fault, Witnessed: witnessed,
	}
	if witnessed {
		w.liars = map[int]bool{}
		for range random.IntN(1 + tolerated(len(w.config.Writers))) {
			w.liars[random.IntN(len(w.config.Writers))] = true
		}
		w.boasts = map[int]bool{}
		for range random.IntN(1 + tolerated(len(w.config.Carriers))) {
			w.boasts[random.IntN(len(w.config.Carriers))] = true
		}
	}
	for number := range 5 + random.IntN(40) {
		entry := make([]byte, random.IntN(entryMax+1))
		for i := range entry {
			entry[i] = byte(number + i + 1)
		}
		if random.IntN(4) == 0 && len(entry) >= 8 {
			binary.LittleEndian.PutUint64(entry, kindEntry) // looks like a record
		}
		w.entries = append(w.entries, entry)
	}
	w.parents, w.children = make([]parent, len(w.config.Writers)),
		make([]child, len(w.config.Carriers))
	for p := range w.parents {
		w.startParent(p)
	}
	for c := range w.children {
		w.startChild(c)
	}
	return w
}

func (w *world) fail(format string, arguments ...any) {
	if w.failed == "" {
		w.failed = fmt.Sprintf(format, arguments...)
	}
}

func (w *world) startParent(p int) {
	config := w.config
	config.Self = order.ServerID(p)
	writer, err := NewWriter(config)
	if err != nil {
		panic(err)
	}
	w.parents[p].writer = writer
}

func (w *world) startChild(c int) {
	config := w.config
	config.Self = order.ServerID(c)
	carrier, err := NewCarrier(config, w.position(c), w.children[c].durable)
	if err != nil {
		panic(err)
	}
	w.children[c].carrier = carrier
}

// position returns how far a child's member has the stream.
func (w *world) position(c int) uint64 {
	if seen := w.children[c].seen; seen > 0 {
		return w.positions[seen-1]
	}
	return 0
}

// connect gives a writer a fresh ring.
func (w *world) connect(p, c int) {
	from, to := &w.parents[p], &w.children[c]
	l := w.links[[2]int{p, c}]
	if from.writer == nil || to.carrier == nil || w.cut[[2]int{p, c}] || l != nil && l.attached ||
		!slices.Contains(from.writer.config.Carriers, order.ServerID(c)) {
		return
	}
	if l != nil && slices.ContainsFunc(to.carrier.slots, func(s slot) bool {
		return s.number > 0 && !s.copied && s.writer == order.ServerID(p)
	}) {
		w.rescues++
	}
	l = &wire{memory: make(heap, w.config.RingSize), attached: true}
	w.links[[2]int{p, c}] = l
	to.life++
	if err := to.carrier.Attach(order.ServerID(p), to.life, l.memory); err != nil {
		w.fail("attach: %v", err)
	}
	position := w.reported(c, to.durable)
	if err := from.writer.Attach(order.ServerID(c), to.life, position); err != nil {
		w.fail("attach: %v", err)
	}
}

// reported returns what a carrier reports as its position.
func (w *world) reported(c int, position uint64) uint64 {
	if w.boasts[c] {
		position += uint64(w.random.IntN(2 * w.config.Entries))
	}
	return position
}

// sever ends a writer's permission to write. Everything under way fails, and may still land.
func (w *world) sever(p, c int) {
	l := w.links[[2]int{p, c}]
	if l == nil || !l.attached {
		return
	}
	l.attached, l.back = false, nil
	for _, o := range l.flight {
		o.bytes = slices.Clone(o.bytes)
		l.late = append(l.late, o)
		if writer := w.parents[p].writer; writer != nil {
			writer.Completed(order.ServerID(c))
		}
	}
	l.flight = nil
	if writer := w.parents[p].writer; writer != nil {
		writer.Detach(order.ServerID(c))
	}
}

// land makes a part of the first operation land, or all of it.
func (l *wire) land(random *rand.Rand, operations *[]operation) bool {
	if len(*operations) == 0 {
		return false
	}
	o := &(*operations)[0]
	stop := min(len(o.bytes), o.landed+8*(1+random.IntN(8)))
	copy(l.memory[o.offset+o.landed:], o.bytes[o.landed:stop])
	o.landed = stop
	if o.landed < len(o.bytes) {
		return false
	}
	*operations = (*operations)[1:]
	return true
}

// pollParent makes a member of the parent work.
func (w *world) pollParent(p int) {
	from := &w.parents[p]
	if from.writer == nil {
		return
	}
	from.writer.Tick(w.now)
	for number := from.writer.Next(); number <= from.known; number = from.writer.Next() {
		if err := from.writer.Offer(number, w.claim(p, number)); err != nil {
			break
		}
	}
	for _, write := range from.writer.Writes() {
		l := w.links[[2]int{p, int(write.Carrier)}]
		if !l.attached {
			w.fail("writer %d writes to carrier %d, to whom it is not attached", p, write.Carrier)
			continue
		}
		l.flight = append(l.flight, operation{offset: write.Offset, bytes: write.Bytes})
		if len(l.flight) > w.config.Depth {
			w.fail("%d operations are under way", len(l.flight))
		}
		if write.Offset+len(write.Bytes) > w.config.RingSize {
			w.fail("a write reaches past the ring")
		}
	}
}

// pollChild makes a member of the child work.
func (w *world) pollChild(c int) {
	to := &w.children[c]
	if to.carrier == nil {
		return
	}
	if w.random.IntN(2) == 0 {
		to.durable = max(to.durable, w.position(c))
	}
	to.carrier.Poll()
	to.carrier.Advance(w.position(c), to.durable)
	to.carrier.Tick(w.now)
	// A member has one proposal at a time, as it has one message a round.
	busy := slices.ContainsFunc(w.proposals, func(p proposal) bool { return p.from == c })
	if (to.carrier.Pending() || to.carrier.Unvouched()) && !busy {
		var numbers []uint64
		w.vouch(c)
		for _, entry := range to.carrier.Propose(2 * w.config.EntryMax) {
			if entry.Number > uint64(len(w.entries)) ||
				!bytes.Equal(entry.Payload, w.entries[entry.Number-1]) {
				w.fail("carrier %d proposes entry %d as %x", c, entry.Number, entry.Payload)
			}
			numbers = append(numbers, entry.Number)
		}
		w.proposals = append(w.proposals, proposal{c, numbers})
	}
	for _, lie := range to.carrier.Lies() {
		w.lies++
		if !w.liars[int(lie.Writer)] {
			w.fail("carrier %d finds that writer %d lies", c, lie.Writer)
		}
	}
	for _, report := range to.carrier.Reports() {
		if l := w.links[[2]int{int(report.Writer), c}]; l != nil && l.attached {
			report.Feedback.Position = w.reported(c, report.Feedback.Position)
			l.back = append(l.back, FeedbackFrom(report.Feedback.Append(nil)))
		}
	}
	writers, reasons := to.carrier.Broken()
	if w.boasts[c] { // the writer believes it that there is room
		for _, writer := range slices.Clone(writers) {
			w.sever(int(writer), c)
			to.carrier.Detach(writer)
			delete(w.links, [2]int{int(writer), c})
		}
	} else if len(writers) > 0 {
		w.fail("carrier %d finds the ring of writer %d broken: %v", c, writers[0], reasons[0])
	}
}

// claim returns what a member of the parent writes as an entry. Two liars sometimes agree.
func (w *world) claim(p int, number uint64) []byte {
	entry := w.entries[number-1]
	if !w.liars[p] || w.random.IntN(4) == 0 {
		return entry
	}
	forged := slices.Clone(entry)
	if len(forged) == 0 {
		return []byte{1}
	}
	forged[0] += byte(1 + w.random.IntN(2))
	return forged
}

// vouch checks what a member of the child vouches for.
func (w *world) vouch(c int) {
	carrier := w.children[c].carrier
	if !w.config.Witnessed {
		return
	}
	last := carrier.Ordered()
	for _, entry := range carrier.Vouch(1 + w.random.IntN(w.config.Entries)) {
		if last++; entry.Number != last || last > uint64(len(w.entries)) ||
			!bytes.Equal(entry.Payload, w.entries[last-1]) {
			w.fail("carrier %d vouches for entry %d as %x", c, entry.Number, entry.Payload)
		}
	}
}

// order makes the log order a proposal.
func (w *world) order() {
	if len(w.proposals) == 0 {
		return
	}
	// Proposals of one member keep their order. Those of other members overtake them.
	at := w.random.IntN(len(w.proposals))
	at = slices.IndexFunc(w.proposals, func(p proposal) bool {
		return p.from == w.proposals[at].from
	})
	p := w.proposals[at]
	w.proposals = slices.Delete(w.proposals, at, at+1)
	for _, number := range p.numbers {
		var position uint64
		if len(w.positions) > 0 {
			position = w.positions[len(w.positions)-1]
		}
		if number == position+1 {
			position++
		}
		w.log, w.positions = append(w.log, number), append(w.positions, position)
	}
}

// move executes an event that needs no fault.
func (w *world) move() {
	w.now++
	p, c := w.random.IntN(len(w.parents)), w.random.IntN(len(w.children))
	from, to := &w.parents[p], &w.children[c]
	l := w.links[[2]int{p, c}]
	switch w.random.IntN(10) {
	case 0:
		from.known = min(uint64(len(w.entries)), from.known+uint64(w.random.IntN(4)))
	case 1, 2:
		w.pollParent(p)
	case 3, 4:
		w.pollChild(c)
	case 5, 6:
		if l == nil || w.cut[[2]int{p, c}] {
			break
		}
		if len(l.late) > 0 {
			l.land(w.random, &l.late)
		} else if l.land(w.random, &l.flight) && from.writer != nil {
			from.writer.Completed(order.ServerID(c))
		}
	case 7:
		if l != nil && len(l.back) > 0 && from.writer != nil && !w.cut[[2]int{p, c}] {
			from.writer.Feedback(order.ServerID(c), l.back[0])
			l.back = l.back[1:]
		}
	case 8:
		w.order()
	case 9:
		if to.carrier != nil {
			to.seen += w.random.IntN(len(w.log) - to.seen + 1)
		}
		w.connect(p, c)
	}
}

// hurt executes a fault.
func (w *world) hurt() {
	p, c := w.random.IntN(len(w.parents)), w.random.IntN(len(w.children))
	switch w.random.IntN(7) {
	case 0: // a member of the parent crashes, or comes back
		if w.parents[p].writer == nil {
			w.startParent(p)
			return
		}
		dead := 0
		for i := range w.parents {
			if w.parents[i].writer == nil {
				dead++
			}
		}
		if dead+len(w.liars) < tolerated(len(w.parents)) && !w.liars[p] {
			w.parents[p].writer = nil
			for c := range w.children {
				w.sever(p, c)
			}
		}
	case 1: // a member of the child crashes, or comes back
		if w.children[c].carrier == nil {
			w.startChild(c)
			return
		}
		dead := 0
		for i := range w.children {
			if w.children[i].carrier == nil {
				dead++
			}
		}
		if dead+len(w.boasts) < tolerated(len(w.children)) && !w.boasts[c] {
			w.children[c].carrier = nil
			for p := range w.parents {
				w.sever(p, c)
			}
			kept := 0
			w.proposals = slices.DeleteFunc(w.proposals, func(proposal proposal) bool {
				kept++
				return proposal.from == c && kept > 1 && w.random.IntN(2) == 0
			})
		}
	case 2: // an attachment ends
		w.sever(p, c)
	case 3: // a wire is cut, or mended
		w.cut[[2]int{p, c}] = !w.cut[[2]int{p, c}]
	case 4: // members change, and change back
		w.setMembers(c)
	case 5: // a ring is taken away
		w.sever(p, c)
		if carrier := w.children[c].carrier; carrier != nil {
			carrier.Detach(order.ServerID(p))
			delete(w.links, [2]int{p, c})
		}
	case 6:
		w.goBack()
	}
}

// goBack makes the child's log forget its end, as far as no member has it durably, and all
// proposals.
func (w *world) goBack() {
	var durable uint64
	for _, c := range w.children {
		durable = max(durable, c.durable)
	}
	keep := slices.IndexFunc(w.positions, func(position uint64) bool {
		return position >= durable
	}) + 1
	if keep == 0 || w.random.IntN(4) > 0 {
		return
	}
	keep += w.random.IntN(len(w.log) - keep + 1)
	w.log, w.positions, w.proposals = w.log[:keep], w.positions[:keep], nil
	for c := range w.children {
		if w.children[c].seen > keep {
			w.children[c].seen = keep
			w.backs++
		}
	}
}

// setMembers makes the groups run without one member each for a while.
func (w *world) setMembers(without int) {
	writers, carriers := slices.Clone(w.config.Writers), slices.Clone(w.config.Carriers)
	if len(writers) > 1 && w.random.IntN(2) == 0 {
		writers = slices.Delete(writers, without%len(writers), without%len(writers)+1)
	}
	if len(carriers) > 1 && w.random.IntN(2) == 0 {
		carriers = slices.Delete(carriers, without, without+1)
	}
	w.tell(writers, carriers)
}

func (w *world) tell(writers, carriers []order.ServerID) {
	for p := range w.parents {
		if writer := w.parents[p].writer; writer != nil {
			for c := range w.children {
				if !slices.Contains(carriers, order.ServerID(c)) {
					w.sever(p, c)
				}
			}
			if err := writer.SetMembers(writers, carriers); err != nil {
				w.fail("members: %v", err)
			}
		}
	}
	for c := range w.children {
		if carrier := w.children[c].carrier; carrier != nil {
			if err := carrier.SetMembers(writers, carriers); err != nil {
				w.fail("members: %v", err)
			}
		}
	}
}

// done reports whether every live member of the child has the whole stream.
func (w *world) done() bool {
	for c := range w.children {
		if w.children[c].carrier != nil && (w.position(c) < uint64(len(w.entries)) ||
			w.children[c].durable < uint64(len(w.entries))) {
			return false
		}
	}
	return true
}

// run runs with faults, and then without, until everything is carried. It returns what went wrong,
// or "".
func (w *world) run() string {
	for range 200 + w.random.IntN(2000) {
		if w.failed != "" {
			return w.failed
		}
		w.move()
		if w.random.IntN(40) == 0 {
			w.hurt()
		}
	}
	w.tell(w.config.Writers, w.config.Carriers)
	w.mend()
	return w.settle(400_000)
}

// mend mends the wires: all of them, or in every second run only one that connects two live
// members, and a few others.
func (w *world) mend() {
	clear(w.cut)
	if w.random.IntN(2) == 0 {
		return
	}
	var live [][2]int
	for p := range w.parents {
		for c := range w.children {
			if w.parents[p].writer != nil && w.children[c].carrier != nil {
				live = append(live, [2]int{p, c})
			}
		}
	}
	stays := live[w.random.IntN(len(live))]
	kept := w.kept(stays[1])
	for p := range w.parents {
		for c := range w.children {
			if w.config.Witnessed && kept[c] && !w.liars[p] {
				continue // more than half of the writers reach more than half of the carriers
			}
			if [2]int{p, c} != stays && w.random.IntN(4) > 0 {
				w.cut[[2]int{p, c}] = true
				w.sever(p, c)
			}
		}
	}
}

// kept returns a carrier and more than half of the carriers, which live and do not lie.
func (w *world) kept(first int) map[int]bool {
	kept, good := map[int]bool{first: true}, 0
	for c := range w.children {
		if good < majority(len(w.children)) && w.children[c].carrier != nil && !w.boasts[c] {
			kept[c], good = true, good+1
		}
	}
	return kept
}

// settle goes on without faults until everything is carried.
func (w *world) settle(steps int) string {
	for range steps {
		if w.failed != "" {
			return w.failed
		}
		if w.done() {
			return w.check()
		}
		w.move()
	}
	return "the stream stands still: " + w.describe()
}

// check waits for memory to be released.
func (w *world) check() string {
	left := ""
	for range 20 {
		if left = w.left(); left == "" {
			break
		}
		for range 1000 {
			w.move()
		}
	}
	return cmp.Or(w.failed, left)
}

// left returns which memory is kept although everything is where it should be, or "".
func (w *world) left() string {
	for key, l := range w.links {
		from, to := w.parents[key[0]], w.children[key[1]]
		if from.writer == nil || to.carrier == nil || !l.attached || w.boasts[key[1]] {
			continue
		}
		if slices.ContainsFunc(l.memory, func(b byte) bool { return b != 0 }) {
			return fmt.Sprintf("the ring from %d to %d is not clear at rest", key[0], key[1])
		}
		if o := from.writer.outlet(order.ServerID(key[1])); o.occupied() > 0 || o.count > 0 {
			return fmt.Sprintf("writer %d believes that %d bytes of the ring of carrier %d are "+
				"in use, with %d writes under way", key[0], o.occupied(), key[1], o.count)
		}
	}
	for p, from := range w.parents {
		reached, enough := 0, 1
		if w.config.Witnessed {
			enough = majority(len(w.children))
		}
		for c := range w.children {
			if !w.cut[[2]int{p, c}] && w.children[c].carrier != nil && !w.boasts[c] {
				reached++
			}
		}
		if from.writer != nil && reached >= enough && (from.writer.head != from.writer.tail ||
			from.writer.position != uint64(len(w.entries))) {
			return fmt.Sprintf("writer %d is at %d of %d, with %d bytes in memory",
				p, from.writer.position, len(w.entries), from.writer.head-from.writer.tail)
		}
	}
	return ""
}

func (w *world) describe() string {
	text := fmt.Sprintf("entries %d, ring %d, depth %d, stretch %d;", len(w.entries),
		w.config.RingSize, w.config.Depth, w.config.Stretch)
	for p := range w.parents {
		if writer := w.parents[p].writer; writer != nil {
			text += fmt.Sprintf(" writer %d: position %d, known %d of %d, spread %d;",
				p, writer.position, writer.known, w.parents[p].known, writer.spread)
		}
	}
	for c := range w.children {
		if carrier := w.children[c].carrier; carrier != nil {
			text += fmt.Sprintf(" carrier %d: ordered %d, durable %d, proposed %d, holds the "+
				"next: %v;", c, carrier.ordered, carrier.durable, carrier.proposed,
				carrier.holds(carrier.ordered+1))
		}
	}
	return text
}
