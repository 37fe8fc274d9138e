package trains

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/order"
)

// drawTrain draws a train with some wagons.
func drawTrain(t *rapid.T, layout Layout) []byte {
	frame := appendTrain(nil, layout, rapid.Uint64().Draw(t, "generation"),
		rapid.Byte().Draw(t, "id"), rapid.Uint64().Draw(t, "clock"),
		rapid.Uint64().Draw(t, "rotation"))
	for range rapid.IntRange(0, 5).Draw(t, "wagons") {
		payload := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "say")
		frame = appendWagon(frame, layout, order.ServerID(rapid.IntRange(0, 63).Draw(t, "origin")),
			rapid.Uint64().Draw(t, "attached"), rapid.Byte().Draw(t, "age"), payload,
			layout == LayoutHouse && len(payload) > 0 && rapid.Bool().Draw(t, "apart"))
	}
	finishTrain(frame, layout)
	return frame
}

// encodeAgain encodes what a decoder makes of a frame, nil if it is none.
func encodeAgain(layout Layout, frame []byte) []byte {
	h, err := decodeHeader(layout, frame)
	if err != nil {
		return nil
	}
	switch h.kind {
	case kindWake:
		return encodeWake(layout, h.generation, h.round)
	case kindWagon:
		return appendWagonFrame(nil, h.generation, h.origin, h.round, frame[wagonFrameSize:])
	case kindTrain:
	}
	again := appendTrain(nil, layout, h.generation, h.id, h.clock, h.rotation)
	for at := wagonsAt(layout); at < len(frame); {
		wagon, whole := nextWagon(layout, frame, at)
		if !whole {
			return nil
		}
		at = wagon.next
		payload := wagon.payload
		if wagon.apart {
			payload = make([]byte, wagon.size)
		}
		again = appendWagon(again, layout, wagon.origin, h.rotation-uint64(wagon.age), wagon.age,
			payload, wagon.apart)
	}
	finishTrain(again, layout)
	return again
}

func TestFramesAreEncodedAsDecoded(t *testing.T) {
	t.Parallel()
	for layout := range layoutEnd {
		rapid.Check(t, func(t *rapid.T) {
			frame := drawTrain(t, layout)
			if again := encodeAgain(layout, frame); !bytes.Equal(frame, again) {
				t.Fatalf("%x becomes %x", frame, again)
			}
			generation := rapid.Uint64().Draw(t, "generation")
			round := order.Round(rapid.Uint64().Draw(t, "round"))
			frames := [][]byte{encodeWake(layout, generation, round)}
			if layout == LayoutHouse {
				frames = append(frames, appendWagonFrame(nil, generation, 7, round, []byte("say")))
			}
			for _, frame := range frames {
				if again := encodeAgain(layout, frame); !bytes.Equal(frame, again) {
					t.Fatalf("%x becomes %x", frame, again)
				}
				read, err := FrameGeneration(frame)
				if layout == LayoutHouse && (err != nil || read != generation) {
					t.Fatalf("generation %d: %v", read, err)
				}
			}
		})
	}
}

// FuzzReceive gives an engine any bytes from its predecessor. They are decoded strictly, and none
// makes the engine panic.
func FuzzReceive(f *testing.F) {
	for layout := range layoutEnd {
		frame := appendTrain(nil, layout, 0, 0, 2, 0)
		finishTrain(frame, layout)
		f.Add(uint8(layout), frame)
		frame = appendTrain(nil, layout, 0, 0, 9, 1)
		frame = appendWagon(frame, layout, 2, 1, 0, []byte("hello"), layout == LayoutHouse)
		finishTrain(frame, layout)
		f.Add(uint8(layout), frame)
		f.Add(uint8(layout), encodeWake(layout, 0, 7))
	}
	f.Add(uint8(LayoutHouse), appendWagonFrame(nil, 0, 2, 1, []byte("hello")))
	f.Fuzz(func(t *testing.T, layout uint8, frame []byte) {
		layout %= uint8(layoutEnd)
		if again := encodeAgain(Layout(layout), frame); again != nil && !bytes.Equal(again, frame) {
			t.Errorf("%x becomes %x", frame, again)
		}
		for _, detector := range []Detector{DetectorEventual, DetectorPerfect} {
			e, err := New(Config{Servers: 3, Trains: 1, MaxPayload: 100, Layout: Layout(layout),
				Detector: detector})
			if err != nil {
				t.Fatal(err)
			}
			first := appendTrain(nil, Layout(layout), 0, 0, 2, 0)
			finishTrain(first, Layout(layout))
			own := appendWagonFrame(nil, 0, 2, 1, []byte("hello"))
			for _, received := range [][]byte{frame, first, own, frame, frame} {
				err := e.Receive(2, received)
				if err != nil && !errors.Is(err, order.ErrFrame) &&
					!errors.Is(err, order.ErrHalted) {
					t.Fatal(err)
				}
				if e.CanBroadcast() {
					if err := e.Broadcast([]byte("mine")); err != nil {
						t.Fatal(err)
					}
				}
				e.Ready()
			}
			_ = Describe(frame)
			_, _ = ReadTrain(Layout(layout), frame)
			e.Status()
			e.Votes()
		}
	})
}

// The paper's layout has the bytes of its appendix A: a train of n-1 wagons with u messages of s
// bytes each has 10 + (n-1)·(7 + u·(5+s)) bytes.
func TestPaperLayout(t *testing.T) {
	t.Parallel()
	const wagons, messages, size = 4, 67, 10
	payload := []byte(nil)
	for range messages {
		payload = AppendMessage(payload, 1, make([]byte, size))
	}
	frame := appendTrain(nil, LayoutPaper, 0, 1, 2, 3)
	for origin := range order.ServerID(wagons) {
		frame = appendWagon(frame, LayoutPaper, origin, 3, 0, payload, false)
	}
	finishTrain(frame, LayoutPaper)
	for left := payload; len(left) > 0; {
		kind, message, rest, whole := NextMessage(left)
		if !whole || kind != 1 || len(message) != size || cap(message) != size {
			t.Fatalf("type %d, %d bytes", kind, len(message))
		}
		if _, _, _, whole := NextMessage(left[:messageHeaderSize+size-1]); whole {
			t.Fatal("a part of a message is one")
		}
		left = rest
	}
	for _, none := range []string{"", "\x00\x00\x00\x04\x01", "\xff\xff\xff\xff\x01"} {
		if _, _, _, whole := NextMessage([]byte(none)); whole {
			t.Errorf("%x is a message", none)
		}
	}
	if want := 10 + wagons*(7+messages*(5+size)); len(frame) != want {
		t.Errorf("%d bytes, want %d", len(frame), want)
	}
}

// Trains are read as they were written, in both layouts.
func TestReadTrain(t *testing.T) {
	t.Parallel()
	for layout := range layoutEnd {
		frame := appendTrain(nil, layout, 0, 1, 9, 4)
		frame = appendWagon(frame, layout, 2, 4, 0, []byte("hello"), false)
		frame = appendWagon(frame, layout, 0, 4, 0, nil, false)
		want := Train{ID: 1, Clock: 9, Rotation: 4,
			Wagons: []Wagon{{2, 4, 5, []byte("hello")}, {0, 4, 0, nil}}}
		if layout == LayoutHouse {
			frame = appendWagon(frame, layout, 1, 3, 1, []byte("elsewhere"), true)
			want.Wagons = append(want.Wagons, Wagon{1, 3, 9, nil})
		}
		finishTrain(frame, layout)
		if got, whole := ReadTrain(layout, frame); !whole || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %+v, want %+v", layout, got, want)
		}
		if got, whole := ReadTrain(layout, encodeWake(layout, 0, 7)); whole {
			t.Errorf("%v: a wake is %+v", layout, got)
		}
	}
	cut := appendWagon(appendTrain(nil, LayoutHouse, 0, 1, 9, 4), LayoutHouse, 2, 4, 0,
		[]byte("x"), false)
	if got, whole := ReadTrain(LayoutHouse, cut[:len(cut)-1]); whole {
		t.Errorf("a part of a wagon is %+v", got)
	}
}

// TestReadersOfFrames: people who read a frame without an engine find what is in it, and nothing in
// bytes that are no frame.
func TestReadersOfFrames(t *testing.T) {
	t.Parallel()
	const generation, id, clock, rotation = 7, 2, 9, 5
	frame := appendTrain(nil, LayoutHouse, generation, id, clock, rotation)
	frame = appendWagon(frame, LayoutHouse, 3, rotation, 0, nil, false)
	frame = appendWagon(frame, LayoutHouse, 2, rotation, 0, []byte("apart"), true)
	apart := len(frame)
	frame = appendWagon(frame, LayoutHouse, 0, rotation-1, 1, []byte("old"), false)
	whole := len(frame)
	frame = appendWagon(frame, LayoutHouse, 1, rotation, 0, []byte("own"), false)
	for size := range len(frame) + 1 {
		var found []string
		FrameWagons(frame[:size], func(wagon WagonID, payload []byte) {
			if wagon.Generation != generation || wagon.Train != id {
				t.Errorf("%+v", wagon)
			}
			found = append(found, fmt.Sprintf("%d.%d %s", wagon.Origin, wagon.Rotation, payload))
		})
		want := []string{"0.4 old", "1.5 own"}
		switch {
		case size < whole:
			want = nil
		case size < len(frame):
			want = want[:1]
		}
		if !slices.Equal(found, want) {
			t.Errorf("%d of %d bytes have the wagons %v, want %v", size, len(frame), found, want)
		}
		head, is := HeadOf(frame[:size])
		switch ends := []int{houseTrainSize, apart - wagonHeaderSize, apart, whole,
			len(frame)}; {
		case is != slices.Contains(ends, size):
			t.Errorf("%d of %d bytes have the head %+v, %v", size, len(frame), head, is)
		case is && (head.Name != "TRAIN" || size == len(frame) && head.Origin != 1):
			t.Errorf("%d of %d bytes have the head %+v", size, len(frame), head)
		}
	}
	own := appendWagonFrame(nil, generation, 2, 12, []byte("apart"))
	for size := range len(own) + 1 {
		found := ""
		FrameWagons(own[:size], func(wagon WagonID, payload []byte) {
			if want := (WagonID{Generation: generation, Round: 12, Origin: 2}); wagon != want {
				t.Errorf("%+v", wagon)
			}
			found += string(payload)
		})
		head, is := HeadOf(own[:size])
		if want := "apart"[:max(0, size-wagonFrameSize)]; found != want || is != (want != "") ||
			is && head != (order.FrameHead{Name: "WAGON", Round: 12, Origin: 2}) {
			t.Errorf("%d of %d bytes have the wagon %q and the head %+v, %v", size, len(own), found,
				head, is)
		}
	}
	wake := encodeWake(LayoutHouse, generation, 12)
	if head, is := HeadOf(wake); !is || head.Name != "WAKE" {
		t.Errorf("a wake has the head %+v, %v", head, is)
	}
	FrameWagons(wake, func(wagon WagonID, _ []byte) { t.Errorf("a wake has the wagon %+v", wagon) })
}
