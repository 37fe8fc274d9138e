package node_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Everything that a node starts must end with it. The databases' own caches end a moment later.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(
		"github.com/golang/glog.(*fileSink).flushDaemon"))
}
