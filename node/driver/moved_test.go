package driver_test

import (
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/driver"
)

// Moved is called once rounds run.
func TestMoved(t *testing.T) {
	t.Parallel()
	var moved atomic.Int64
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 3,
		driver: driver.Config{Moved: func() { moved.Add(1) }}})
	c.activate(1, c.all())
	c.deliverSome(c.all(), 0, 1)
	eventually(t, "every server says so", func() bool { return moved.Load() >= 3 })
}
