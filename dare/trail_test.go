package dare

import (
	"strings"
	"testing"
)

// TestCheckTrails checks that trails which contradict each other are found.
func TestCheckTrails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a, b Trail
		want string
	}{
		"nothing":         {want: ""},
		"one leader each": {Trail{wins: []win{{term: 1}}}, Trail{wins: []win{{term: 2}}}, ""},
		"two leaders":     {Trail{wins: []win{{term: 1}}}, Trail{wins: []win{{term: 1}}}, "I1"},
		"the same entry": {Trail{fixed: []fixedEntry{{1, 1}}},
			Trail{fixed: []fixedEntry{{1, 2}}}, ""},
		"other entries": {Trail{fixed: []fixedEntry{{1, 1}}},
			Trail{fixed: []fixedEntry{{2, 2}}}, "I3"},
		"a leader without it": {Trail{fixed: []fixedEntry{{1, 1}}}, Trail{wins: []win{{term: 2}}},
			"I3"},
		"a leader with another": {Trail{fixed: []fixedEntry{{1, 1}}},
			Trail{wins: []win{{2, 0, []uint64{2}}}}, "I3"},
		"a leader with it": {Trail{fixed: []fixedEntry{{1, 1}}},
			Trail{wins: []win{{2, 0, []uint64{1}}}}, ""},
		"an earlier leader": {Trail{fixed: []fixedEntry{{2, 2}}},
			Trail{wins: []win{{term: 1}}}, ""},
	} {
		got := CheckTrails([]*Trail{&c.a, &c.b})
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
