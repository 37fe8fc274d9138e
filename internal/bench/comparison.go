package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// The columns that fabrics are compared with.
const (
	BesideTCP    = "tcp"    // a plain TCP connection over loopback, both ends in this process
	BesideMemcpy = "memcpy" // copy within this process
)

// Units of a FabricRow.
const (
	UnitMicroseconds = "us"
	UnitPerSecond    = "/s"
	UnitBytes        = "bytes/s"
)

// FabricTargetsMax is the number of hosts that a comparison writes to at once. It needs one host
// more of each fabric.
const FabricTargetsMax = 8

// FabricHosts are hosts of one fabric. All are in this process and members of each other. The first
// host sends, writes and reads. The others, FabricTargetsMax of them, are its targets.
type FabricHosts struct {
	Kind  fabric.Kind
	Hosts []rdmanet.Host
}

// FabricComparison holds the figures of fabrics beside those of this machine's TCP and memory. All
// are measured in turns in one run.
type FabricComparison struct {
	// Columns are the names of the measured columns, in order: BesideTCP, BesideMemcpy and kinds of
	// fabrics.
	Columns []string    `json:"columns"`
	Rows    []FabricRow `json:"rows"`
	// Rounds is how often each figure was measured. The result holds the median.
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds"`
}

// FabricRow is one measured property.
type FabricRow struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Unit  string `json:"unit"`
	// Figures holds the figures by column. A column without this property has none.
	Figures map[string]FabricFigure `json:"figures"`
}

// FabricFigure is a measured value in the row's unit.
type FabricFigure struct {
	Value float64 `json:"value"`
	// Beside names the column that the figure is compared with, or is empty. Ratio is Value divided
	// by that column's value.
	Beside string  `json:"beside,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"`
}

// Names of rows. targetsRow makes the names of the rows for several targets.
const (
	rowRoundTrip = "lane_round_trip_64"
	rowFrames    = "lane_frames_64"
	rowLane64K   = "lane_64k"
	rowLane1M    = "lane_1m"
	rowWrite     = "write_64"
	rowRead      = "read_64"
	rowWriteRate = "write_rate_64"
	rowReadRate  = "read_rate_64"
	rowWrite64K  = "write_64k"
	rowWrite1M   = "write_1m"
	rowRead64K   = "read_64k"
	rowRead1M    = "read_1m"
	rowRevoke    = "revoke"
	rowRegrant   = "regrant"
)

func targetsRow(targets int, together bool) string {
	if together {
		return "targets_" + strconv.Itoa(targets) + "_together"
	}
	return "targets_" + strconv.Itoa(targets) + "_one_by_one"
}

// comparisonRows returns all rows in order, without figures.
func comparisonRows() []FabricRow {
	rows := []FabricRow{
		{Name: rowRoundTrip, Unit: UnitMicroseconds, About: "lane, 64 bytes there and back"},
		{Name: rowFrames, Unit: UnitPerSecond, About: "lane, frames of 64 bytes"},
		{Name: rowLane64K, Unit: UnitBytes, About: "lane, frames of 64 KiB"},
		{Name: rowLane1M, Unit: UnitBytes, About: "lane, frames of 1 MiB"},
		{Name: rowWrite, Unit: UnitMicroseconds, About: "region, write of 64 bytes"},
		{Name: rowRead, Unit: UnitMicroseconds, About: "region, read of 64 bytes"},
		{Name: rowWriteRate, Unit: UnitPerSecond,
			About: "region, writes of 64 bytes, 256 outstanding"},
		{Name: rowReadRate, Unit: UnitPerSecond,
			About: "region, reads of 64 bytes, 256 outstanding"},
		{Name: rowWrite64K, Unit: UnitBytes, About: "region, writes of 64 KiB, 16 outstanding"},
		{Name: rowWrite1M, Unit: UnitBytes, About: "region, writes of 1 MiB, 2 outstanding"},
		{Name: rowRead64K, Unit: UnitBytes, About: "region, reads of 64 KiB, 16 outstanding"},
		{Name: rowRead1M, Unit: UnitBytes, About: "region, reads of 1 MiB, 2 outstanding"},
	}
	for _, together := range []bool{false, true} {
		how := "one by one"
		if together {
			how = "together"
		}
		for targets := 1; targets <= FabricTargetsMax; targets++ {
			rows = append(rows, FabricRow{Name: targetsRow(targets, together),
				Unit: UnitMicroseconds, About: fmt.Sprintf("64 bytes written to %d, awaited %s",
					targets, how)})
		}
	}
	return append(rows,
		FabricRow{Name: rowRevoke, Unit: UnitMicroseconds,
			About: "revoke, until nothing lands any more"},
		FabricRow{Name: rowRegrant, Unit: UnitMicroseconds,
			About: "grant again, attach and write 64 bytes"},
	)
}

// comparisonRounds is how often each figure is measured.
const comparisonRounds = 5

// measurement measures one figure, for about the duration of slice.
type measurement func(ctx context.Context, slice time.Duration) (float64, error)

// comparisonColumn measures the rows that it has a measurement for.
type comparisonColumn struct {
	name string
	// beside is the column that its figures are compared with, for the rows that both have; may be
	// empty.
	beside string
	rows   map[string]measurement
	end    func() error
}

// CompareFabrics measures fabrics beside this machine's TCP and memory, for about the given time.
// All columns take turns of some milliseconds, so that other load on the machine affects all of
// them. The hosts remain the caller's, and can be compared only once.
func CompareFabrics(ctx context.Context, fabrics []FabricHosts,
	measured time.Duration) (result FabricComparison, err error) {
	if measured <= 0 {
		return result, fmt.Errorf("%w: a run for %v", ErrParameters, measured)
	}
	var columns []*comparisonColumn
	defer func() {
		for _, column := range columns {
			err = errors.Join(err, column.end())
		}
	}()
	tcp, err := newTCPColumn(ctx)
	if err != nil {
		return result, err
	}
	columns = append(columns, tcp, newMemcpyColumn())
	for _, hosts := range fabrics {
		column, err := newFabricColumn(ctx, hosts)
		if err != nil {
			return result, fmt.Errorf("bench: %s: %w", hosts.Kind, err)
		}
		columns = append(columns, column)
	}
	begun := time.Now()
	result.Rounds = comparisonRounds
	for _, column := range columns {
		result.Columns = append(result.Columns, column.name)
	}
	rows := comparisonRows()
	measurements := 0
	for _, row := range rows {
		for _, column := range columns {
			if column.rows[row.Name] != nil {
				measurements++
			}
		}
	}
	// A shorter round comes first and is not counted. In it, connections grow their windows, and
	// memory gets its pages.
	slice := measured * 4 / time.Duration(measurements*(4*comparisonRounds+1))
	for i := range rows {
		if err := compareRow(ctx, &rows[i], columns, slice); err != nil {
			return result, err
		}
	}
	result.Rows, result.Seconds = rows, time.Since(begun).Seconds()
	return result, nil
}

// compareRow measures one row's figures.
func compareRow(ctx context.Context, row *FabricRow, columns []*comparisonColumn,
	slice time.Duration) error {
	values := map[string][]float64{}
	for round := range comparisonRounds + 1 {
		for _, column := range columns {
			take := column.rows[row.Name]
			if take == nil {
				continue
			}
			long := slice
			if round == 0 {
				long = slice / 4
			}
			value, err := take(ctx, long)
			if err != nil {
				return fmt.Errorf("bench: %s over %s: %w", row.About, column.name, err)
			}
			if round > 0 {
				values[column.name] = append(values[column.name], value)
			}
		}
	}
	row.Figures = map[string]FabricFigure{}
	for _, column := range columns {
		if len(values[column.name]) == 0 {
			continue
		}
		figure := FabricFigure{Value: median(values[column.name])}
		if beside := values[column.beside]; len(beside) > 0 {
			figure.Beside, figure.Ratio = column.beside, figure.Value/median(beside)
		}
		row.Figures[column.name] = figure
	}
	return nil
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}
