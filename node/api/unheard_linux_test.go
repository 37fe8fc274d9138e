package api

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/bpf"
)

// packet returns the header of IP of a packet from an address.
func packet(from string) []byte {
	source := netip.MustParseAddr(from)
	if source.Is4() {
		return append(append([]byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0}, source.AsSlice()...),
			127, 0, 0, 1)
	}
	header := append([]byte{0x60, 0, 0, 0, 0, 0, 6, 64}, source.AsSlice()...)
	return append(header, make([]byte, 16)...)
}

// The filter drops the packets of the addresses that are put off, and no others, also with as many
// addresses as there may be.
func TestFilterOfAddresses(t *testing.T) {
	t.Parallel()
	heard := []string{"10.0.0.1", "10.1.0.0", "2001:db8:0:1::1", "2001:db9::1"}
	for _, dropped := range [][]string{
		nil, {"10.0.0.2"}, {"2001:db8::1"},
		{"10.0.0.2", "2001:db8::1", "2001:db8:1::1", "10.0.0.3"},
	} {
		var addresses []netip.Prefix
		add := func(address string) {
			ip := netip.MustParseAddr(address)
			prefix, _ := ip.Prefix(min(64, ip.BitLen()))
			addresses = append(addresses, prefix)
		}
		for _, address := range dropped {
			add(address)
		}
		check := func() {
			machine, err := bpf.NewVM(dropping(0, addresses))
			if err != nil {
				t.Fatal(err)
			}
			keeps := func(from string) bool {
				kept, err := machine.Run(packet(from))
				if err != nil {
					t.Fatal(err)
				}
				return kept > 0
			}
			for _, from := range dropped {
				if keeps(from) {
					t.Errorf("%v: a packet from %s is kept", addresses, from)
				}
			}
			for _, from := range heard {
				if !keeps(from) {
					t.Errorf("%v: a packet from %s is dropped", addresses, from)
				}
			}
		}
		check()
		for len(addresses) < maxUnheard/2 {
			add(netip.AddrFrom4([4]byte{192, 168, 0, byte(len(addresses))}).String())
		}
		for len(addresses) < maxUnheard {
			add(netip.AddrFrom16([16]byte{0xfd, 7: byte(len(addresses))}).String())
		}
		check()
		if _, err := bpf.Assemble(dropping(headerOfNetwork, addresses)); err != nil {
			t.Error(err)
		}
	}
}

// One timer lifts the filter for each address in its time. After close it changes nothing more.
func TestFiltersAreLifted(t *testing.T) {
	t.Parallel()
	o, err := newOffences(Options{Registry: prometheus.NewRegistry(), Logger: slog.Default(),
		PutOffTime: 2 * time.Second}.withDefaults(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			made, err := listener.Accept()
			if err != nil {
				return
			}
			_ = made.Close()
		}
	}()
	o.listen(listener)
	heard := func(from string, patience time.Duration) bool {
		dialer := net.Dialer{Timeout: patience,
			LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		made, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err == nil {
			_ = made.Close()
		}
		return err == nil
	}
	guilty := []string{"127.0.0.2", "127.0.0.3"}
	for _, from := range guilty {
		for !o.commit(addressOn(from), offenceReset, offenceBurst) {
		}
		if heard(from, 20*time.Millisecond) {
			t.Errorf("%s is heard although it is put off", from)
		}
	}
	for _, from := range guilty {
		if !heard(from, 20*time.Second) { // the dialer repeats what the kernel dropped
			t.Errorf("%s is not heard again", from)
		}
	}
	o.close()
	for !o.commit(addressOn("127.0.0.4"), offenceReset, offenceBurst) {
	}
	if !heard("127.0.0.4", 20*time.Second) {
		t.Error("the filter changed after close")
	}
}
