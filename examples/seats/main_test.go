package main

import (
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSeats(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out, options{servers: 4, flights: 5, requests: 5000}); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^4 servers agreed on 20000 reservations in \S+: \d+ a second
900 of 900 seats are sold, none of them twice, and all servers agree
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("the example prints\n%s", out.String())
	}
}

// The audit finds a seat that two servers sold, and servers that disagree.
func TestAudit(t *testing.T) {
	t.Parallel()
	o := options{servers: 2, flights: 1, requests: 1}
	for _, tampered := range []struct {
		name   string
		change func(*server)
		want   string
	}{
		{"a seat sold twice", func(s *server) { s.tickets[0].seat = 0 }, "was sold to 1 and to 2"},
		{"another customer", func(s *server) { s.holders[0] = 3 }, "disagree"},
	} {
		servers := []*server{newServer(0, o), newServer(1, o)}
		for _, s := range servers {
			s.reserve(0, []byte{1, 8: 0, requestSize - 1: 0})
			s.reserve(1, []byte{2, 8: 1, requestSize - 1: 0})
		}
		if err := audit(&strings.Builder{}, servers); err != nil {
			t.Fatal(err)
		}
		tampered.change(servers[1])
		if err := audit(&strings.Builder{}, servers); err == nil ||
			!strings.Contains(err.Error(), tampered.want) {
			t.Errorf("%s: %v", tampered.name, err)
		}
	}
}
