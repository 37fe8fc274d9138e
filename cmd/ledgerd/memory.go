package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// A node's live heap is small beside what it allocates. Collecting less often saves processor
	// time.
	garbagePercent = 400
	// memoryLimitUnknown is the limit if it is unknown how much memory there is.
	memoryLimitUnknown = 2 << 30
	// memoryShare is the divisor of the memory that gives the limit. The rest is for the database's
	// files, which are mapped into memory, and for what else runs on the machine.
	memoryShare = 2
)

// tuneMemory configures the garbage collector for nodes, unless the environment does. limit is the
// soft limit of the process's memory in bytes; 0 means a share of what there is.
func tuneMemory(limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit == 0 {
		limit = memoryLimit(os.DirFS("/"))
	}
	debug.SetMemoryLimit(limit)
}

// memoryLimit returns the soft limit for a process on the machine with these files.
func memoryLimit(root fs.FS) int64 {
	available := memoryThere(root)
	if available == math.MaxInt64 {
		return memoryLimitUnknown
	}
	return available / memoryShare
}

// memoryThere returns the bytes of memory that processes here may use, or the largest number if it
// is unknown.
func memoryThere(root fs.FS) int64 { return min(machineMemory(root), groupMemory(root)) }

// machineMemory returns the machine's memory in bytes, or the largest number if it is unknown.
func machineMemory(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(line, "MemTotal:"); is {
			kilobytes, isKilobytes := strings.CutSuffix(strings.TrimSpace(rest), " kB")
			number, err := strconv.ParseInt(strings.TrimSpace(kilobytes), 10, 64)
			if isKilobytes && err == nil && number > 0 && number < math.MaxInt64>>10 {
				return number << 10
			}
		}
	}
	return math.MaxInt64
}

// groupMemory returns the least limit, in bytes, of the process's control groups of either version.
// It returns the largest number if there is none.
func groupMemory(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		folder, file := "sys/fs/cgroup", "memory.max"
		if fields[1] == "memory" {
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if fields[1] != "" {
			continue
		}
		// The groups above have limits, too. In a container the process's own group may be at the
		// top, whatever its path.
		for group := path.Join("/", fields[2]); ; group = path.Dir(group) {
			limit, _ := fs.ReadFile(root, path.Join(folder, group, file))
			number, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64)
			if err == nil && number > 0 {
				least = min(least, number)
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}
