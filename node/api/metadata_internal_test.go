package api

import (
	"strings"
	"testing"
)

func TestMetadata(t *testing.T) {
	t.Parallel()
	const note = ` {"invoice": "A-7", "n": 10.50, "big": 170141183460469231731687303715884105727,
		"ok": true, "gone": null, "tags": ["red", 5], "a.b": "dotted",
		"a": {"b": "inner", "c": {"d": "deep"}}, "empty": ""} `
	for text, want := range map[string]bool{
		"invoice": true, "invoice=A-7": true, "invoice=a-7": false, "invoice=": false,
		"missing": false, "missing=": false, "n=10.50": true, "n=10.5": false, "ok=true": true,
		"big=170141183460469231731687303715884105727": true, "ok=false": false, "gone": true,
		"gone=null": true, "tags=red": true, "tags=5": true, "tags=blue": false, "tags": true,
		"a.b=dotted": true, "a.b=inner": true, "a.c.d=deep": true, "a.c.x": false, "a.c": true,
		"a.c=": false, "a": true, "empty=": true, "empty=x": false, "a.b.c": false, ".": false,
		"..": false, "=": false,
	} {
		all, err := parseMetadata([]string{text})
		if text == "=" {
			if err == nil {
				t.Error("a metadatum without name is taken")
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := hasMetadata([]byte(note), all); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	for _, long := range []string{strings.Repeat("n", maxMetadataName+1),
		strings.Repeat(".", maxMetadataDots+1), strings.Repeat("a.", maxMetadataDots+1) + "b=1"} {
		if _, err := parseMetadata([]string{long}); err == nil {
			t.Errorf("%.20q is taken", long)
		}
	}
	if _, err := parseMetadata([]string{strings.Repeat("n", maxMetadataName) + "=" +
		strings.Repeat("v.", 500)}); err != nil {
		t.Error(err)
	}
	some, _ := parseMetadata([]string{"a"})
	for _, plain := range []string{"", "a", `"a"`, `["a"]`, "{", `{"a":1}x`, `{"a":1} {}`, "null"} {
		if hasMetadata([]byte(plain), some) {
			t.Errorf("%q has the member a", plain)
		}
		if !hasMetadata([]byte(plain), nil) {
			t.Errorf("%q lacks something", plain)
		}
	}
}
