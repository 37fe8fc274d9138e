package api

import (
	"net/netip"
	"testing"

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
