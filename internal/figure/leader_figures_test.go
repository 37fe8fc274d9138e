package figure

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestLeaderThroughput compares figure 4.9 with the dissertation's text: throughput grows with the
// clients, and reaches at least what was measured. Computation takes time there and none here.
func TestLeaderThroughput(t *testing.T) {
	t.Parallel()
	f := mustMake(t, "4.9", Options{Quick: true})
	for _, c := range []struct {
		panel, series string
		published     float64
	}{
		{"requests", "reads", 720_000}, {"requests", "writes", 460_000},
		{"bytes", "reads", 760}, {"bytes", "writes", 470},
		{"workloads", "read-heavy", 0}, {"workloads", "update-heavy", 0},
	} {
		before := 0.0
		for _, clients := range f.find(c.panel).xs() {
			now, _ := f.find(c.panel).at(c.series, clients)
			if now <= before {
				t.Errorf("%s of %s: %v with %v clients, %v with fewer", c.series, c.panel, now,
					clients, before)
			}
			before = now
		}
		if before < c.published || c.published > 0 && before > 2*c.published {
			t.Errorf("%s of %s: %v, the dissertation has %v", c.series, c.panel, before,
				c.published)
		}
	}
}

// TestLeaderComparison compares figure 4.11 with the text, and with the bounds of section 4.5.2. A
// write of 2,048 bytes takes longer than its bound, since its bytes are written twice.
func TestLeaderComparison(t *testing.T) {
	t.Parallel()
	f := mustMake(t, "4.11", Options{Quick: true})
	for panel, text := range map[string]struct{ times, within float64 }{
		"reads": {22, 1.1}, "writes": {35, 1.6},
	} {
		p := f.find(panel)
		for _, bytes := range p.xs() {
			here, _ := p.at("dare", bytes)
			if bound, _ := p.at("dare, bound", bytes); here < 0.9*bound ||
				here > text.within*bound {
				t.Errorf("%s of %v bytes take %v us, their bound is %v", panel, bytes, here, bound)
			}
		}
		here, _ := p.at("dare", 8)
		for _, published := range publishedLatencies {
			if published.panel == panel && published.latency/here < text.times {
				t.Errorf("%s: DARE takes %v us, %s %v", panel, here, published.series,
					published.latency)
			}
		}
	}
}

// TestLeaderChanges compares figure 4.10 with the text: joins, removals and smaller groups cause no
// unavailability, a leader's failure causes one of some 30 ms, and the group has the sizes of the
// figure. The last step removes the leader.
func TestLeaderChanges(t *testing.T) {
	t.Parallel()
	if raceEnabled || testing.Short() {
		t.Skip("takes some seconds")
	}
	f := mustMake(t, "4.10", Options{Quick: true})
	pause := regexp.MustCompile(`until the next event is ([0-9.]+) ms; then .*`)
	sizes := map[string]string{"another one": "size 7", "five": "size 5", "three": "size 3"}
	led := "server 0"
	for _, note := range f.Notes {
		found := pause.FindStringSubmatch(note)
		if found == nil || strings.Contains(note, "nobody leads") {
			continue
		}
		longest, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		// If the leader stays, there is no election. An access of a failed server takes a while.
		elects, most := !strings.Contains(note, led+" leads"), 0.2
		if strings.Contains(note, "another server fails") {
			most = milliseconds(accessTimeout)
		}
		if elects && (longest < 10 || longest > 60) || !elects && longest > most {
			t.Errorf("%s (before: %s led)", note, led)
		}
		if led = regexp.MustCompile(`server \d+`).FindString(found[0]); led == "" {
			t.Errorf("nobody is named in %s", note)
		}
		for text, size := range sizes {
			if strings.Contains(note, text) && !strings.Contains(note, size) {
				t.Errorf("%s, want %s", note, size)
			}
		}
	}
	last := f.Notes[len(f.Notes)-2]
	if !strings.Contains(last, "size 3") || strings.Contains(last, "server 4") ||
		!strings.Contains(f.Notes[len(f.Notes)-3], "server 4 leads") {
		t.Errorf("the last step does not remove the leader, server 4: %q", f.Notes)
	}
}
