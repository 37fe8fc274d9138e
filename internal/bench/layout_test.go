package bench

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/trains"
)

// TestThroughputEfficiency counts bytes on the lanes of real servers with full wagons. The share of
// them that are requests is POTE of [TRAINS, Table II] within a hundredth of it, in both layouts.
func TestThroughputEfficiency(t *testing.T) {
	t.Setenv(serverVariable, "1")
	for _, c := range []struct {
		size, batch int
		published   float64
		fabric      fabric.Kind
	}{
		{10, 68, 66.0, fabric.Memory}, {100, 10, 94.3, fabric.P2PTrusted},
		{1000, 1, 98.6, fabric.Memory}, {10_000, 1, 99.9, fabric.Memory},
	} {
		for _, layout := range []trains.Layout{trains.LayoutPaper, trains.LayoutHouse} {
			if layout == trains.LayoutHouse {
				c.fabric = fabric.Memory // processes take longer
			}
			t.Run(fmt.Sprintf("%d bytes, %v, %s", c.size, layout, c.fabric), func(t *testing.T) {
				result := trained(t, Parameters{Engine: trains.EngineName, Servers: 5,
					Batch: c.batch, Size: c.size, Fabric: c.fabric, Trains: 1,
					Layout: layout.String(), For: 100 * time.Millisecond})
				if result.POTE == nil {
					t.Fatal("no POTE")
				}
				if math.Abs(*result.POTE-c.published) > 0.01*c.published {
					t.Errorf("%.2f %% of the bytes are requests, want %v %% (%.4f bytes on lanes "+
						"a byte)", *result.POTE, c.published, result.WireBytesPerByte)
				}
				if want := 400 / *result.POTE; math.Abs(result.WireBytesPerByte-want) > 1e-9 {
					t.Errorf("%v bytes on lanes a byte, want %v", result.WireBytesPerByte, want)
				}
			})
		}
	}
}

// trained runs until messages that are under way at the end weigh less than a few thousandths.
func trained(t *testing.T, p Parameters) Result {
	t.Helper()
	const rounds = 2000
	for {
		result, err := Run(t.Context(), p, []string{os.Args[0]}, quiet())
		switch {
		case err != nil && (p.For > patience || !strings.Contains(err.Error(),
			"measure for longer")):
			t.Fatal(err)
		case err == nil && (p.For > patience || result.ComparedRound >= rounds):
			return result
		}
		p.For *= 4
	}
}

func TestLayoutsAreRefused(t *testing.T) {
	t.Parallel()
	p := parameters(fabric.Memory)
	p.Layout = "house"
	if err := p.Validate(); !errors.Is(err, ErrParameters) {
		t.Errorf("%s in a layout: %v", allconcur.EngineAllConcurPlus, err)
	}
	p.Engine = trains.EngineName
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	p.Layout = "boat"
	if err := p.Validate(); !errors.Is(err, ErrParameters) || !errors.Is(err, trains.ErrConfig) {
		t.Errorf("a boat: %v", err)
	}
}

// A wagon that no server made is no batch.
func TestWagonsThatDoNotUnload(t *testing.T) {
	t.Parallel()
	w := newWorkload(0, Parameters{Batch: 2, Size: 8, Layout: "house"})
	whole := w.pack(nil, make([]byte, 16))
	if requests, bytes, err := w.unload(whole); requests != 2 || bytes != 16 || err != nil {
		t.Errorf("%d requests of %d bytes, %v", requests, bytes, err)
	}
	for _, wagon := range [][]byte{whole[:len(whole)-1], whole[:3],
		trains.AppendMessage(nil, wagonRequest+1, []byte("x")),
		trains.AppendMessage(nil, wagonRequest, nil)} {
		if _, _, err := w.unload(wagon); !errors.Is(err, ErrServer) {
			t.Errorf("%x: %v", wagon, err)
		}
	}
}
