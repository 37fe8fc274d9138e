package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteUnits are the units of a number of bytes.
var byteUnits = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

// bytesFlag is a flag with a number of bytes, such as 4GiB or 4294967296.
type bytesFlag int64

// String returns the number in the largest unit that divides it.
func (f *bytesFlag) String() string {
	text := strconv.FormatInt(int64(*f), 10)
	for _, unit := range byteUnits {
		if count := int64(*f); count != 0 && count%unit.bytes == 0 {
			text = fmt.Sprint(count/unit.bytes, unit.name)
		}
	}
	return text
}

// Set parses a number of bytes.
func (f *bytesFlag) Set(text string) error {
	scale, number := int64(1), text
	for _, unit := range byteUnits {
		if rest, is := strings.CutSuffix(text, unit.name); is {
			scale, number = unit.bytes, rest
		}
	}
	count, err := strconv.ParseInt(number, 10, 64)
	if err != nil || count < 0 || count > math.MaxInt64/scale {
		return errors.New("not a number of bytes, such as 4GiB, 512MiB or 1073741824")
	}
	*f = bytesFlag(count * scale)
	return nil
}

// Type names the flag's value in the help.
func (f *bytesFlag) Type() string { return "bytes" }
