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
