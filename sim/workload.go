package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// submit is one planned submission.
type submit struct {
	at      Instant
	server  order.ServerID
	payload []byte
}

// workload draws what users submit. Submissions come in bursts with quiet spells between them, in
// which a group comes to rest. Some servers are busy, some idle. A server submits at most rounds
// payloads; 0 lets the seed choose. Payloads are unique, so that evidence is clear. Most are small
// and a few are large.
func workload(seed uint64, servers, rounds, payloadMax int) []submit {
	random := stream(seed, workloadStream)
	drawn := 1 + random.IntN(roundsMax)
	if rounds == 0 {
		rounds = drawn
	}
	bursts := 1 + random.IntN(3)
	starts := make([]Instant, bursts)
	lengths := make([]Instant, bursts)
	at := Instant(0)
	for i := range starts {
		starts[i] = at
		lengths[i] = between(0, 4*millisecond)(random)
		at += lengths[i] + between(0, 40*millisecond)(random)
	}
	var all []submit
	for server := range servers {
		// Each server has a random source of its own, so one server's submissions do not depend on
		// the number of another's.
		own := rand.New(rand.NewPCG(seed, workloadStream+uint64(server)+1))
		count := rounds
		if own.IntN(4) == 0 {
			count = own.IntN(rounds + 1)
		}
		if own.IntN(6) == 0 {
			count = 0
		}
		if count == 0 && server == 0 {
			count = 1 // at least one server submits something
		}
		times := make([]Instant, count)
		for i := range times {
			burst := own.IntN(bursts)
			times[i] = starts[burst] + between(0, lengths[burst])(own)
		}
		slices.Sort(times)
		for number, at := range times {
			all = append(all, submit{at, order.ServerID(server),
				payload(own, server, number, payloadMax)})
		}
	}
	return all
}

// payloadMin is room for the numbers that make a payload unique.
const payloadMin = 16

// payloadMaxDefault is the maximum payload size if the options set none.
const payloadMaxDefault = 4096

// roundsMax is the maximum number of submissions of a server if the options let the seed choose.
const roundsMax = 12

// payload returns the payload of a server with a number: both of these, and random bytes.
func payload(random *rand.Rand, server, number, limit int) []byte {
	size := random.IntN(32)
	if random.IntN(20) == 0 {
		size = random.IntN(limit)
	}
	bytes := binary.AppendUvarint(nil, uint64(server))
	bytes = binary.AppendUvarint(bytes, uint64(number))
	for range min(size, limit-len(bytes)) {
		bytes = append(bytes, byte(random.Uint32()))
	}
	return bytes
}
