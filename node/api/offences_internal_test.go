package api

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// clockedOffences are offences with a clock of the test.
type clockedOffences struct {
	*offences
	clock time.Time
	log   bytes.Buffer
}

func newClockedOffences(t *testing.T, options Options) *clockedOffences {
	t.Helper()
	made := &clockedOffences{clock: time.Unix(1_000, 0)}
	options.Registry = prometheus.NewRegistry()
	options.Logger = slog.New(slog.NewTextHandler(&made.log, nil))
	var err error
	made.offences, err = newOffences(options.withDefaults(),
		func() time.Time { return made.clock })
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func addressOn(host string) netip.Prefix {
	return addressOf(&net.TCPAddr{IP: net.ParseIP(host), Port: 1})
}

// An address is put off at the end of its burst, for a while, and once for all its offences.
func TestAddressIsPutOff(t *testing.T) {
	t.Parallel()
	o := newClockedOffences(t, Options{})
	guilty, other := addressOn("10.0.0.1"), addressOn("10.0.0.2")
	for i := range offenceBurst {
		if o.commit(guilty, offenceReset, 1) {
			t.Fatalf("put off after %d offences", i+1)
		}
	}
	if o.isPutOff(guilty) {
		t.Error("put off within the burst")
	}
	for range 1000 {
		if !o.commit(guilty, offenceReset, 1) {
			t.Fatal("not put off after the burst")
		}
	}
	if !o.isPutOff(guilty) || o.isPutOff(other) || o.commit(other, offenceReset, 1) {
		t.Error("the wrong address is put off")
	}
	if lines := strings.Count(o.log.String(), "10.0.0.1"); lines != 1 {
		t.Errorf("%d lines in the log, want 1: %s", lines, o.log.String())
	}
	o.clock = o.clock.Add(10*time.Second - 1)
	if !o.isPutOff(guilty) {
		t.Error("let in too early")
	}
	o.clock = o.clock.Add(1)
	if o.isPutOff(guilty) || o.commit(guilty, offenceReset, 1) {
		t.Error("not let in again")
	}
}

// Offences at the rate that is allowed put no address off, however long they go on.
func TestFewOffencesArePardoned(t *testing.T) {
	t.Parallel()
	o := newClockedOffences(t, Options{})
	for range 100 * offencesPerSecond {
		o.clock = o.clock.Add(time.Second / offencesPerSecond)
		if o.commit(addressOn("10.0.0.1"), offenceRequest, 1) {
			t.Fatal("put off")
		}
	}
}

// A large request counts for its size, an IPv6 address for its subscriber, and without a limit of
// calls nothing counts.
func TestWeightsOfOffences(t *testing.T) {
	t.Parallel()
	o := newClockedOffences(t, Options{})
	for range 2 {
		if o.commit(addressOn("10.0.0.1"), offenceRequest, offenceBurst/2) {
			t.Error("put off within the burst")
		}
	}
	if !o.commit(addressOn("10.0.0.1"), offenceRequest, 100*offenceBurst) {
		t.Error("a weight above the burst is not counted")
	}
	o.commit(addressOn("2001:db8::1"), offenceRequest, offenceBurst)
	if !o.commit(addressOn("2001:db8::2"), offenceRequest, 1) {
		t.Error("another address of the same subscriber is not put off")
	}
	if o.commit(addressOn("2001:db8:0:1::1"), offenceRequest, 1) {
		t.Error("another subscriber is put off")
	}
	unlimited := newClockedOffences(t, Options{CallsPerSecond: -1})
	for range 2 * offenceBurst {
		if unlimited.commit(addressOn("10.0.0.1"), offenceRequest, offenceBurst) {
			t.Fatal("put off without a limit")
		}
	}
}

// However many addresses offend, the memory of them is bounded.
func TestAddressesOfOffencesAreBounded(t *testing.T) {
	t.Parallel()
	o := newClockedOffences(t, Options{})
	for i := range 2 * maxAddresses {
		o.clock = o.clock.Add(time.Millisecond)
		o.commit(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8),
			byte(i)}), 32), offenceReset, 1)
	}
	if len(o.addresses) > maxAddresses {
		t.Errorf("%d addresses are kept, want at most %d", len(o.addresses), maxAddresses)
	}
}
