package faults

import "testing"

type set uint8

var names = Names[set]{"crash", "pause", "join"}

// TestParse: Format lists what Parse reads, in the order of the bits.
func TestParse(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]struct {
		set  set
		text string
	}{
		"": {0, "none"}, "none": {0, "none"}, "all": {7, "crash,pause,join"}, "crash": {1, "crash"},
		"join, crash": {5, "crash,join"}, "pause,pause": {2, "pause"},
	} {
		got, err := names.Parse(list)
		if err != nil || got != want.set || names.Format(got) != want.text {
			t.Errorf("%q is read as %b, %q (%v), want %b, %q", list, got, names.Format(got), err,
				want.set, want.text)
		}
	}
}

// TestParseRefuses: an unknown name is an error that lists the known ones. "all" and "none" stand
// alone.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for list, name := range map[string]string{"fire": "fire", "crash,": "", "all,crash": "all",
		"crash,none": "none"} {
		_, err := names.Parse(list)
		want := `no such fault as "` + name + `"; use some of crash,pause,join`
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", list, err, want)
		}
	}
}
