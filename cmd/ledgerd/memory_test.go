package main

import (
	"runtime/debug"
	"testing"
	"testing/fstest"
)

// The limit is half of what the machine has, or of what the process's control groups allow.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	const machine = "MemFree:  1 kB\nMemTotal:       8388608 kB\n"
	for name, check := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known": {nil, 2 << 30},
		"the machine":      {map[string]string{"proc/meminfo": machine}, 4 << 30},
		"no number":        {map[string]string{"proc/meminfo": "MemTotal: many kB\n"}, 2 << 30},
		"version 2": {map[string]string{"proc/meminfo": machine,
			"proc/self/cgroup":               "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max":     "1073741824\n",
			"sys/fs/cgroup/a/b/memory.max":   "max\n",
			"sys/fs/cgroup/c/memory.max":     "1\n",
			"sys/fs/cgroup/a/b/c/memory.max": "1\n"}, 512 << 20},
		"version 2, in a container": {map[string]string{"proc/meminfo": machine,
			"proc/self/cgroup":         "0::/outside/of/it\n",
			"sys/fs/cgroup/memory.max": "2147483648\n"}, 1 << 30},
		"version 1": {map[string]string{"proc/meminfo": machine,
			"proc/self/cgroup":                             "5:cpu:/x\n4:memory:/a\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4294967296\n"}, 2 << 30},
		"no limit": {map[string]string{"proc/meminfo": machine,
			"proc/self/cgroup": "4:memory:/a\nnonsense\n0::/..\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, 4 << 30},
	} {
		files := make(fstest.MapFS)
		for at, text := range check.files {
			files[at] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := memoryLimit(files); got != check.want {
			t.Errorf("%s: %d, want %d", name, got, check.want)
		}
	}
}

// The limit of the configuration counts, and the environment comes first. It is not parallel: the
// limit is the process's.
func TestTuneMemory(t *testing.T) {
	before, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer func() {
		debug.SetMemoryLimit(before)
		debug.SetGCPercent(percent)
	}()
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	tuneMemory(3 << 30)
	limit, collecting := debug.SetMemoryLimit(-1), debug.SetGCPercent(77)
	if limit != 3<<30 || collecting != garbagePercent {
		t.Errorf("limit %d and %d %%, want %d and %d", limit, collecting, 3<<30, garbagePercent)
	}
	t.Setenv("GOGC", "77")
	t.Setenv("GOMEMLIMIT", "1GiB")
	tuneMemory(5 << 30)
	if limit, collecting = debug.SetMemoryLimit(-1), debug.SetGCPercent(77); limit != 3<<30 ||
		collecting != 77 {
		t.Errorf("limit %d and %d %%: the environment does not come first", limit, collecting)
	}
}
