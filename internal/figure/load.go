package figure

import (
	"math/bits"
	"time"

	"github.com/ledgerd/ledgerd/order"
)

// load is what the servers A-broadcast.
type load struct {
	// bytes is the size of the message that a server A-broadcasts whenever it may. It is ignored if
	// there is a rate.
	bytes int
	// perMinute, unless it is 0, is how many requests of requestBytes arrive at each server in a
	// minute, evenly. They gather until the server may A-broadcast, and then go in one message, up
	// to payloadMax. A server without any is silent until another server's message arrives.
	perMinute    int64
	requestBytes int
	payloadMax   int
	// undelivered makes servers A-broadcast empty messages while a message waits for later rounds,
	// as nodes do.
	undelivered bool
	// fromArrival measures latency from the mean arrival of a message's requests, instead of from
	// its A-broadcast.
	fromArrival bool
	// single makes one server, the sender, A-broadcast one message of bytes bytes. No server
	// A-broadcasts anything else.
	single bool
	sender int
	// compose, unless it is nil, makes the messages that servers A-broadcast whenever they may.
	compose func(server order.ServerID) []byte
}

// isFixed reports whether all messages are of one size, and always due.
func (l *load) isFixed() bool { return l.perMinute == 0 && !l.single }

// arrived counts the requests that have arrived at a server by an instant. The servers' requests
// are spread over the time between two requests of one server.
func (l *load) arrived(at time.Duration, server, servers int) int64 {
	high, low := bits.Mul64(uint64(at), uint64(l.perMinute))
	low, carry := bits.Add64(low, uint64(time.Minute)/uint64(servers)*uint64(server), 0)
	requests, _ := bits.Div64(high+carry, low, uint64(time.Minute))
	return int64(requests)
}

// offered returns how many bytes of requests arrive at a group of the given size in a second.
func (l *load) offered(servers int) float64 {
	return float64(l.perMinute) / 60 * float64(servers) * float64(l.requestBytes)
}

// meanArrival returns the mean arrival of some of a server's requests, from one number to another.
func (l *load) meanArrival(first, last int64, server, servers int) time.Duration {
	return (l.next(first, server, servers) + l.next(last, server, servers)) / 2
}

// next returns when a server's request with the given number, from 1, has arrived.
func (l *load) next(number int64, server, servers int) time.Duration {
	high, low := bits.Mul64(uint64(number), uint64(time.Minute))
	low, borrow := bits.Sub64(low, uint64(time.Minute)/uint64(servers)*uint64(server), 0)
	at, rest := bits.Div64(high-borrow, low, uint64(l.perMinute))
	if rest > 0 {
		at++
	}
	return time.Duration(at)
}
