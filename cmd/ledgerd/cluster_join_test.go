package main

import (
	"testing"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// TestJoinAdoptsSettings: a new home has the settings that all members must have alike.
func TestJoinAdoptsSettings(t *testing.T) {
	t.Parallel()
	o := joinOptions{address: "127.0.0.1"}
	got := o.configuration(&ledgerdv1.ClusterState{Ordering: &ledgerdv1.OrderingSettings{
		Engine: "allconcur+", TargetNines: 7, ServerMttfHours: 1000, BatchBytesMax: 3 << 20,
		Prompt: true,
	}}, 8080).Ordering
	want := home.Default().Ordering
	want.Engine, want.TargetNines, want.ServerMTTFHour = "allconcur+", 7, 1000
	want.BatchBytesMax, want.Prompt = 3<<20, true
	if got != want {
		t.Errorf("a new home has %+v, want %+v", got, want)
	}
}
