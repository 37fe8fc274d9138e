package plan

import "fmt"

// The headers of TRAINS and of LCR, in bytes [TRAINS, appendices A and B].
const (
	trainHeader      = 10
	houseTrainHeader = 27 // of trains.LayoutHouse
	wagonHeader      = 7
	wagonMessage     = 5 // of each message in a wagon
	// In trains.LayoutHouse, a wagon with a payload of so many bytes has a frame of its own, with a
	// header beside the one in its train.
	wagonFrameMin    = 4 << 10
	wagonFrameHeader = 20
	lcrHeader        = 24
	lcrClockEntry    = 4
)

// TrainPaper is the size of a train that the paper measures with, in bytes [TRAINS, section V-A].
const TrainPaper = 4 << 10

// Ring is servers on a ring that all A-broadcast messages of one size as fast as they can. Its
// methods are the models of TRAINS and of LCR, with which the paper compares it [TRAINS, section
// V]. RingOf makes one.
//
// An efficiency is POTE, the prediction-oriented throughput efficiency: A-delivered bytes of
// messages divided by bytes on the way to the server that A-delivers them. It needs no clock and
// no network: it follows from the headers alone. A ring that needs e has (n-1)/e bytes on all its
// links for each byte agreed, which is the figure of ledgerd bench engine.
//
// The abstract of the paper has the improvement over LCR reach "a peak of 250 % for 10 bytes
// messages". By the paper's formulas, which are these, it is 257 % there, and grows without a peak
// for smaller messages: 385 % at 5 bytes, 643 % at 1.
type Ring struct {
	servers, bytes, train int
}

// RingOf returns the ring of a number of servers, with messages of the given size and trains that
// flow control keeps to the given size, both in bytes. The error wraps ErrQuestion.
func RingOf(servers, bytes, train int) (Ring, error) {
	switch {
	case servers < 2 || servers > ServersMax:
		return Ring{}, fmt.Errorf("%w: a ring of %d servers, want 2 to %d", ErrQuestion, servers,
			ServersMax)
	case bytes < 1 || bytes > payloadMax:
		return Ring{}, fmt.Errorf("%w: %d bytes, want 1 to %d", ErrQuestion, bytes, payloadMax)
	case train < 1 || train > payloadMax:
		return Ring{}, fmt.Errorf("%w: trains of %d bytes, want 1 to %d", ErrQuestion, train,
			payloadMax)
	}
	return Ring{servers, bytes, train}, nil
}

// MessagesPerWagon returns u, how many messages a wagon of a full train has on average. A train has
// the wagons of all servers but one, and a wagon has at least one message. For five servers and
// trains of 4 KiB it is 1014/(5+s) or 1 [TRAINS, section V-A].
func (r Ring) MessagesPerWagon() float64 {
	room := (r.train-trainHeader)/(r.servers-1) - wagonHeader
	return max(1, float64(room)/float64(wagonMessage+r.bytes))
}

// Trains returns POTE_TRAINS, the efficiency of full trains in the paper's layout, as a share of 1
// [TRAINS, appendix A]: (n-1)us / (10 + (n-1)[7 + u(5+s)]).
func (r Ring) Trains() float64 { return r.trains(trainHeader, wagonHeader) }

// TrainsInHouse is Trains in the house's layout, whose trains have longer headers: with the
// generation, and with clocks that never wrap. Large wagons have frames of their own.
func (r Ring) TrainsInHouse() float64 {
	wagon := float64(wagonHeader)
	if r.MessagesPerWagon()*float64(wagonMessage+r.bytes) >= wagonFrameMin {
		wagon += wagonFrameHeader
	}
	return r.trains(houseTrainHeader, wagon)
}

// trains returns the efficiency with headers of the given sizes of trains and of wagons, in bytes.
func (r Ring) trains(train, wagon float64) float64 {
	others, each, size := float64(r.servers-1), r.MessagesPerWagon(), float64(r.bytes)
	return others * each * size / (train + others*(wagon+each*(wagonMessage+size)))
}

// LCR returns POTE_LCR, the efficiency of LCR, as a share of 1 [TRAINS, appendix B]:
// s / (24 + 4n + s).
func (r Ring) LCR() float64 {
	return float64(r.bytes) / float64(lcrHeader+lcrClockEntry*r.servers+r.bytes)
}

// Improvement returns by how much TRAINS improves LCR's efficiency, as a share of the latter.
func (r Ring) Improvement() float64 { return r.Trains()/r.LCR() - 1 }

// TrainsLatencyFrom returns how many rounds a message of the server at a place of the ring takes
// until the last server A-delivers it, n-i-1+2n, if a train is at hand [TRAINS, appendix C]. The
// server at place 0 begins the rotations.
func (r Ring) TrainsLatencyFrom(place int) int { return r.servers - place - 1 + 2*r.servers }

// TrainsLatency returns the mean of TrainsLatencyFrom over all places, (5n-1)/2.
func (r Ring) TrainsLatency() float64 { return float64(5*r.servers-1) / 2 }

// LCRLatency returns how many rounds a message takes with LCR, 2n-2 [TRAINS, section V-B].
func (r Ring) LCRLatency() float64 { return float64(2*r.servers - 2) }

// Alteration returns by how much TRAINS takes longer than LCR, as a share of the latter. It falls
// to a quarter for large rings.
func (r Ring) Alteration() float64 { return r.TrainsLatency()/r.LCRLatency() - 1 }

// Capacity returns the rate at which each server of a ring can A-deliver at most, if a link between
// two of them carries the given rate: its own messages do not come over the link [TRAINS, section
// V-A].
func (r Ring) Capacity(link float64) float64 {
	return link * float64(r.servers) / float64(r.servers-1)
}
