package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// memoryHosts opens hosts of one network, which close with the test.
func memoryHosts(t *testing.T, count int) (hosts []rdmanet.Host) {
	t.Helper()
	network := memory.NewNetwork()
	for i := range count {
		host, err := network.Host(rdmanet.PeerID(fmt.Sprintf("host-%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = host.Close(context.Background()) })
		hosts = append(hosts, host)
	}
	return hosts
}

func TestCompareFabrics(t *testing.T) {
	t.Parallel()
	result, err := CompareFabrics(t.Context(),
		[]FabricHosts{{Kind: fabric.Memory, Hosts: memoryHosts(t, FabricTargetsMax+1)}},
		200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(result.Columns, []string{BesideTCP, BesideMemcpy, "memory"}) ||
		result.Rounds != comparisonRounds || result.Seconds <= 0 {
		t.Errorf("%+v", result)
	}
	names := map[string]bool{}
	for _, row := range result.Rows {
		if names[row.Name] || row.About == "" || row.Unit == "" {
			t.Errorf("%+v", row)
		}
		names[row.Name] = true
		figure := row.Figures["memory"]
		_, copied := row.Figures[BesideMemcpy]
		if figure.Value <= 0 || copied != (figure.Ratio > 0) ||
			copied != (figure.Beside == BesideMemcpy) {
			t.Errorf("%s: %+v", row.Name, row.Figures)
		}
	}
	for _, name := range []string{rowRoundTrip, rowWrite, rowRead, rowWriteRate, rowWrite64K,
		rowRead1M, "targets_1_one_by_one", "targets_8_together", rowRevoke, rowRegrant} {
		if !names[name] {
			t.Errorf("no row %s", name)
		}
	}
}

func TestCompareFabricsRefuses(t *testing.T) {
	t.Parallel()
	if _, err := CompareFabrics(t.Context(), nil, 0); !errors.Is(err, ErrParameters) {
		t.Errorf("for no time: %v", err)
	}
	if _, err := CompareFabrics(t.Context(), []FabricHosts{{Kind: fabric.Memory,
		Hosts: memoryHosts(t, 2)}}, time.Second); !errors.Is(err, ErrParameters) {
		t.Errorf("with two hosts: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := CompareFabrics(ctx, nil, time.Hour); err == nil {
		t.Error("cancelled, it ends without an error")
	}
	// A host that closes in the middle is an error, and nothing hangs.
	hosts := memoryHosts(t, FabricTargetsMax+1)
	time.AfterFunc(50*time.Millisecond, func() { _ = hosts[1].Close(context.Background()) })
	if _, err := CompareFabrics(t.Context(), []FabricHosts{{Kind: fabric.Memory, Hosts: hosts}},
		time.Minute); err == nil {
		t.Error("a host was closed, and there is no error")
	}
}

// The figure is the median of the rounds after the first. Its ratio is to the median of the column
// beside it.
func TestComparedRowIsOfMedians(t *testing.T) {
	t.Parallel()
	taking := func(values ...float64) measurement {
		next := 0
		return func(context.Context, time.Duration) (float64, error) {
			next++
			return values[next-1], nil
		}
	}
	row := FabricRow{Name: rowWrite64K}
	columns := []*comparisonColumn{
		{name: BesideTCP, rows: map[string]measurement{rowWrite64K: taking(1000, 4, 9, 4, 1, 4)}},
		{name: "p2p", beside: BesideTCP, rows: map[string]measurement{rowWrite64K: taking(1000,
			1, 7, 2, 3, 2)}},
		{name: "memory", beside: BesideMemcpy,
			rows: map[string]measurement{rowWrite64K: taking(1000, 5, 5, 5, 5, 5)}},
		{name: "without"},
	}
	if err := compareRow(t.Context(), &row, columns, time.Second); err != nil {
		t.Fatal(err)
	}
	want := map[string]FabricFigure{BesideTCP: {Value: 4},
		"p2p": {Value: 2, Beside: BesideTCP, Ratio: 0.5}, "memory": {Value: 5}}
	if len(row.Figures) != len(want) {
		t.Errorf("%+v", row.Figures)
	}
	for column, figure := range want {
		if row.Figures[column] != figure {
			t.Errorf("%s: %+v, want %+v", column, row.Figures[column], figure)
		}
	}
}
