//go:build linux

package torture

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "seed of everything random; 0: drawn from the clock")
	roundsFlag = flag.Int("rounds", 0, "how often all nodes are killed; 0: as many as fit")
	engineFlag = flag.String("engine", "", "engine of the ledgers that tests make; "+
		"empty: the default of ledgerd testnet, or those that a test names")
)

// programVariable names an existing binary, for machines without Go.
const programVariable = "LEDGERD_TEST_PROGRAM"

// program is the binary under test.
var program string

// buildProgram builds the program into a folder, with the given flags of go build.
func buildProgram(folder, name string, flags ...string) (string, error) {
	path := filepath.Join(folder, name)
	build := exec.Command("go", append(append([]string{"build"}, flags...), "-o",
		path, "../cmd/ledgerd")...)
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %v ../cmd/ledgerd: %w\n%s", flags, err, output)
	}
	return path, nil
}

func TestMain(m *testing.M) {
	flag.Parse()
	if status, ran := inOwnMounts(); ran {
		os.Exit(status)
	}
	if *seedFlag == 0 {
		*seedFlag = uint64(time.Now().UnixNano())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "ledgerd-torture-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Ignore the error: the system cleans its folder of temporary files anyway.
	defer func() { _ = os.RemoveAll(folder) }()
	if built := os.Getenv(programVariable); built != "" {
		program = built
		return m.Run()
	}
	if program, err = buildProgram(folder, "ledgerd"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// outcome is the result of one run of the program.
type outcome struct {
	out, errs string
	status    int
}

// commandTime limits one run of the program, unless it runs a node.
const commandTime = 3 * time.Minute

// ledgerd runs the program to its end.
func ledgerd(t *testing.T, arguments ...string) outcome {
	t.Helper()
	return ledgerdWith(t, nil, arguments...)
}

// ledgerdWith runs the program to its end, with variables added to its environment.
func ledgerdWith(t *testing.T, environment []string, arguments ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = append(os.Environ(), environment...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	ended := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("ledgerd %q: %v", arguments, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("ledgerd %q did not end within %v:\n%s%s", arguments, commandTime, &out, &errs)
	}
	return outcome{out.String(), errs.String(), command.ProcessState.ExitCode()}
}

// succeed runs the program, which must succeed, and returns its standard output.
func succeed(t *testing.T, arguments ...string) string {
	t.Helper()
	o := ledgerd(t, arguments...)
	if o.status != 0 {
		t.Fatalf("ledgerd %q: exit status %d\n%s%s", arguments, o.status, o.out, o.errs)
	}
	return o.out
}
