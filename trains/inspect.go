package trains

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// Train is a train as it is in a frame, for people who look at a run, and for charts of it.
type Train struct {
	ID uint8
	// Clock and Rotation have their lowest byte only in the paper's layout.
	Clock, Rotation uint64
	Wagons          []Wagon
}

// Wagon is a wagon of a Train. Rotation is the one in which its origin attached it, in the paper's
// layout its lowest byte. Size is the length of the payload, which is nil if it has a frame of its
// own.
type Wagon struct {
	Origin   order.ServerID
	Rotation uint64
	Size     int
	Payload  []byte
}

// ReadTrain reads a train from a frame, with payloads in the frame's memory. It reports false if
// the frame is no train, or if its last wagon is not whole.
func ReadTrain(layout Layout, frame []byte) (Train, bool) {
	h, err := decodeHeader(layout, frame)
	if err != nil || h.kind != kindTrain {
		return Train{}, false
	}
	train := Train{ID: h.id, Clock: h.clock, Rotation: h.rotation}
	for at := wagonsAt(layout); at < len(frame); {
		wagon, whole := nextWagon(layout, frame, at)
		if !whole {
			return train, false
		}
		at = wagon.next
		rotation := h.rotation - uint64(wagon.age)
		if layout == LayoutPaper {
			rotation = uint64(uint8(rotation))
		}
		train.Wagons = append(train.Wagons, Wagon{Origin: wagon.origin, Rotation: rotation,
			Size: wagon.size, Payload: wagon.payload})
	}
	return train, true
}

// Describe names a frame in the house's layout, with its wagons, for people who read a schedule:
// the train's id, rotation and clock, and each wagon's origin, rotation and size.
func Describe(frame []byte) string {
	h, err := decodeHeader(LayoutHouse, frame)
	if err != nil {
		return fmt.Sprintf("%d bytes that are no frame", len(frame))
	}
	switch h.kind {
	case kindWake:
		return fmt.Sprintf("WAKE for round %d", h.round)
	case kindWagon:
		return fmt.Sprintf("wagon of %d, round %d(%d)", h.origin, h.round,
			len(frame)-wagonFrameSize)
	case kindTrain:
	}
	train, whole := ReadTrain(LayoutHouse, frame)
	text := fmt.Sprintf("train %d, rotation %d, clock %d:", train.ID, train.Rotation, train.Clock)
	for _, wagon := range train.Wagons {
		text += fmt.Sprintf(" w%d.%d(%d)", wagon.Origin, wagon.Rotation, wagon.Size)
	}
	if !whole {
		text += " and a part of a wagon"
	}
	return text
}

// HeadOf returns what the header of a frame in the house's layout says, for people who watch frames
// pass. Of a train that is the origin of its last wagon, which the server that sent it attached.
// A train's round is not in its frame. A wagon's own frame has both. HeadOf reports false for bytes
// that are no frame.
func HeadOf(frame []byte) (order.FrameHead, bool) {
	h, err := decodeHeader(LayoutHouse, frame)
	if err != nil {
		return order.FrameHead{}, false
	}
	switch h.kind {
	case kindWake:
		return order.FrameHead{Name: "WAKE"}, true
	case kindWagon:
		return order.FrameHead{Name: "WAGON", Round: h.round, Origin: h.origin}, true
	case kindTrain:
	}
	head := order.FrameHead{Name: "TRAIN"}
	for at := houseTrainSize; at < len(frame); {
		wagon, whole := nextWagon(LayoutHouse, frame, at)
		if !whole {
			return order.FrameHead{}, false
		}
		at = wagon.next
		head.Origin = wagon.origin
	}
	return head, true
}

// WagonID names a wagon among those of all runs of a group. A wagon with a frame of its own has
// Round, others have Train and Rotation.
type WagonID struct {
	Generation uint64
	Train      uint8
	// Rotation is the one in which Origin attached it.
	Rotation uint64
	Round    order.Round
	Origin   order.ServerID
}

// FrameWagons calls yield for the payloads in a frame of the house's layout: those of the wagons in
// a train, or that of a wagon with a frame of its own. They are in the frame's memory. It does not
// examine the rest: whether an engine takes the frame is another question. It ends at the first
// wagon that is not whole.
func FrameWagons(frame []byte, yield func(id WagonID, payload []byte)) {
	h, err := decodeHeader(LayoutHouse, frame)
	switch {
	case err != nil || h.kind == kindWake:
		return
	case h.kind == kindWagon:
		yield(WagonID{Generation: h.generation, Round: h.round, Origin: h.origin},
			frame[wagonFrameSize:len(frame):len(frame)])
		return
	}
	for at := houseTrainSize; at < len(frame); {
		wagon, whole := nextWagon(LayoutHouse, frame, at)
		if !whole {
			return
		}
		at = wagon.next
		if wagon.payload != nil {
			yield(WagonID{Generation: h.generation, Train: h.id,
				Rotation: h.rotation - uint64(wagon.age), Origin: wagon.origin}, wagon.payload)
		}
	}
}
