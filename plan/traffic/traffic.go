package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of traffic.
const (
	PartiesMax = 1 << 16
	FlowsMax   = 1 << 20
	// FlowPartiesMax bounds the parties of one flow.
	FlowPartiesMax = 1 << 10
	// CountMax bounds the transactions of all flows together. With it, no sum exceeds 2^53, so all
	// counts are exact as floating-point numbers, too.
	CountMax = 1 << 40
	// NameBytesMax bounds the name of a party.
	NameBytesMax = 256
	// lineBytesMax bounds a line of traffic in text form.
	lineBytesMax = 1 << 16
)

// ErrTraffic is returned for traffic that is malformed or beyond a bound.
var ErrTraffic = errors.New("bad traffic")

// Flow is a number of transactions that concern the same parties.
type Flow struct {
	// Parties are indexes into Traffic.Names, ascending, at least one.
	Parties []int
	Count   uint64
}

// Traffic is who deals with whom. It is read-only.
type Traffic struct {
	// Names are the parties' names, ascending.
	Names []string
	// Flows have different parties, and are in ascending order of these.
	Flows []Flow
}

// Transactions returns the number of transactions of all flows.
func (t *Traffic) Transactions() (all uint64) {
	for i := range t.Flows {
		all += t.Flows[i].Count
	}
	return all
}

// Collector adds traffic up. Its zero value is empty and ready to use.
type Collector struct {
	indexes map[string]int
	names   []string // as first seen
	places  map[string]int
	flows   []Flow // their parties index names
	count   uint64
}

// Add adds transactions that concern parties, which may be named repeatedly and in any order. It
// returns ErrTraffic, and adds nothing, if a bound would be exceeded or a name is no name.
func (c *Collector) Add(count uint64, parties ...string) error {
	switch {
	case count > CountMax-c.count:
		return fmt.Errorf("%w: more than %d transactions; divide all counts by the same number",
			ErrTraffic, uint64(CountMax))
	case len(parties) == 0:
		return fmt.Errorf("%w: transactions of nobody; name one or more organisations", ErrTraffic)
	}
	names := slices.Clone(parties)
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > FlowPartiesMax {
		return fmt.Errorf("%w: a transaction of %d organisations, at most %d are allowed",
			ErrTraffic, len(names), FlowPartiesMax)
	}
	fresh := 0
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		if _, known := c.indexes[name]; !known {
			fresh++
		}
	}
	key := strings.Join(names, ",")
	place, known := c.places[key]
	switch {
	case len(c.names)+fresh > PartiesMax:
		return fmt.Errorf("%w: more than %d organisations", ErrTraffic, PartiesMax)
	case !known && len(c.flows) == FlowsMax:
		return fmt.Errorf("%w: more than %d groups of organisations that deal with each other",
			ErrTraffic, FlowsMax)
	}
	c.count += count
	if known {
		c.flows[place].Count += count
		return nil
	}
	if c.indexes == nil {
		c.indexes, c.places = map[string]int{}, map[string]int{}
	}
	flow := Flow{Count: count}
	for _, name := range names {
		index, known := c.indexes[name]
		if !known {
			index = len(c.names)
			c.indexes[name], c.names = index, append(c.names, name)
		}
		flow.Parties = append(flow.Parties, index)
	}
	c.places[key] = len(c.flows)
	c.flows = append(c.flows, flow)
	return nil
}

// checkName returns ErrTraffic unless a name can be written into a line of traffic.
func checkName(name string) error {
	if name == "" || len(name) > NameBytesMax || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool {
			return r == ',' || r == '#' || unicode.IsSpace(r) || !unicode.IsPrint(r)
		}) {
		return fmt.Errorf("%w: %.40q is no name of an organisation", ErrTraffic, name)
	}
	return nil
}

// Traffic returns what was added so far. It does not depend on the order of the calls of Add.
func (c *Collector) Traffic() Traffic {
	t := Traffic{Names: slices.Clone(c.names), Flows: make([]Flow, len(c.flows))}
	slices.Sort(t.Names)
	place := make([]int, len(c.names))
	for i, name := range c.names {
		place[i], _ = slices.BinarySearch(t.Names, name)
	}
	for i := range c.flows {
		flow := Flow{Count: c.flows[i].Count}
		for _, party := range c.flows[i].Parties {
			flow.Parties = append(flow.Parties, place[party])
		}
		slices.Sort(flow.Parties)
		t.Flows[i] = flow
	}
	slices.SortFunc(t.Flows, func(a, b Flow) int { return slices.Compare(a.Parties, b.Parties) })
	return t
}

// Read reads traffic in text form. A line has the names of one or more organisations and the number
// of transactions that concern exactly these, with commas between, such as "acme,globex,120". Lines
// may repeat organisations: their numbers are added up. Empty lines are ignored, as is the rest of
// a line after a #. Read returns ErrTraffic with the line, or the reader's error.
func Read(r io.Reader) (Traffic, error) {
	var collector Collector
	err := readLines(r, func(fields []string) error {
		last := len(fields) - 1
		count, err := strconv.ParseUint(fields[last], 10, 64)
		if last == 0 || err != nil {
			return fmt.Errorf("%w: write organisations and a whole number of transactions, such "+
				"as acme,globex,120", ErrTraffic)
		}
		return collector.Add(count, fields[:last]...)
	})
	return collector.Traffic(), err
}

// ReadHomes reads the homes of organisations in text form. A line has an organisation's name and
// the number of a shard, such as "acme,2". It returns ErrTraffic with the line if a line is
// malformed, a shard is not below shards, or an organisation has two homes.
func ReadHomes(r io.Reader, shards int) (map[string]uint32, error) {
	homes := make(map[string]uint32)
	err := readLines(r, func(fields []string) error {
		if len(fields) != 2 {
			return fmt.Errorf("%w: write an organisation and its shard, such as acme,2", ErrTraffic)
		}
		if err := checkName(fields[0]); err != nil {
			return err
		}
		shard, err := strconv.ParseUint(fields[1], 10, 32)
		if err != nil || shard >= uint64(shards) {
			return fmt.Errorf("%w: %.20q is no shard; write a number from 0 to %d", ErrTraffic,
				fields[1], shards-1)
		}
		if _, twice := homes[fields[0]]; twice {
			return fmt.Errorf("%w: %s has a home already", ErrTraffic, fields[0])
		}
		if len(homes) == PartiesMax {
			return fmt.Errorf("%w: more than %d organisations", ErrTraffic, PartiesMax)
		}
		homes[fields[0]] = uint32(shard)
		return nil
	})
	return homes, err
}

// readLines calls visit with the fields of each line that has any.
func readLines(r io.Reader, visit func(fields []string) error) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, lineBytesMax)
	line := 0
	for scanner.Scan() {
		line++
		text, _, _ := strings.Cut(scanner.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		fields := strings.Split(text, ",")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if err := visit(fields); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("line %d: %w", line+1, err)
	}
	return nil
}

// Write writes traffic in the text form that Read reads.
func (t *Traffic) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	for i := range t.Flows {
		for _, party := range t.Flows[i].Parties {
			out.WriteString(t.Names[party])
			out.WriteByte(',')
		}
		out.WriteString(strconv.FormatUint(t.Flows[i].Count, 10))
		out.WriteByte('\n')
	}
	return out.Flush() // it returns the first error of all
}
