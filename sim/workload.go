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

// workload draws what users submit: bursts with quiet spells between them, in which a group comes
// to rest; some servers busy, some idle; at most rounds payloads a server, where 0 leaves that to
// the seed. Payloads are unique, so that evidence is clear; most are small and a few are large.
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
		// Each server has a random source of its own, so that one server's submissions do not
		// depend on how many another makes.
		own := rand.New(rand.NewPCG(seed, workloadStream+uint64(server)+1))
		count := rounds
		if own.IntN(4) == 0 {
			count = own.IntN(rounds + 1)
		}
		if own.IntN(6) == 0 {
			count = 0
		}
		if count == 0 && server == 0 {
			count = 1 // somebody says something
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

// payloadMaxDefault bounds payloads where the options do not.
const payloadMaxDefault = 4096

// roundsMax bounds the submissions of a server where the options leave it to the seed.
const roundsMax = 12

// payload makes the payload of a server with a number: both, and random bytes.
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
