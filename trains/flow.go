package trains

// flow is flow control [TRAINS, section IV]: how large a wagon may be that a train of the optimal
// size is not exceeded. Every server computes it from the wagons that pass. It needs no messages.
type flow struct {
	// target is OPTIM_TR_SIZE.
	target int
	// sizes are the wagons of the last train, by origin, 0 where there was none.
	sizes []int
	// room is wagToSndMaxSize.
	room int
}

func newFlow(config *Config) flow {
	return flow{target: config.TrainSize, sizes: make([]int, config.Servers),
		room: config.TrainSize / max(1, config.Servers-1)}
}

// measure updates the room from a train that came [TRAINS, Algorithm 6]. A server is greedy if its
// wagon is larger than the average wagon of a full train, or larger than its last one (E12). This
// server counts as greedy. The bytes that the sober ones leave belong to the greedy ones. A train
// has the wagons of all servers but one, so if all are greedy, one of them does not count, and of
// the sober ones the smallest does not.
//
// A server that is alone has no trains, so the published division by no greedy server (E6) does not
// happen.
func (e *Engine) measure(frame []byte) {
	ring := e.ring.count()
	greedy, sober, least := 1, 0, -1
	seen := serverSet(0)
	for at := wagonsAt(e.config.Layout); at < len(frame); {
		wagon, _ := nextWagon(e.config.Layout, frame, at)
		size := wagonHeaderSize + wagon.size
		at = wagon.next
		if wagon.origin == e.self || !e.ring.has(wagon.origin) || seen.has(wagon.origin) {
			continue
		}
		seen |= one(wagon.origin)
		last := e.sizes[wagon.origin]
		e.sizes[wagon.origin] = size
		if size > e.target/ring || size > last && last > 0 {
			greedy++
			continue
		}
		sober += size
		if least < 0 || size < least {
			least = size
		}
	}
	for left := firstServers(e.n) &^ seen; left != 0; left &= left - 1 {
		e.sizes[left.least()] = 0
	}
	if greedy == ring {
		greedy--
	}
	e.room = (e.target - sober + max(least, 0)) / max(greedy, 1)
}

// BatchMax returns how large a payload should be now, in bytes, at least 1: flow control's bound.
// Broadcast takes larger ones, up to Config.MaxPayload. A driver asks before it loads a wagon
// [TRAINS, Algorithm 5].
func (e *Engine) BatchMax() int {
	room := e.target
	if !e.isAlone() {
		room = e.room
	}
	return min(max(room-wagonHeaderSize, 1), e.config.MaxPayload)
}
