//go:build linux

// Command verbsguest does the work of scripts/verbs-test: it boots a guest with a Soft-RoCE device,
// real RDMA verbs in software, and runs the programs there that need one.
//
//	verbsguest [-v] [-counts FILE] [STEP...]
//
//	kernel.go     Debian's kernel and modules: fetched once, kept with checksums, never installed
//	archive.go    the guest's files as an initial RAM disk
//	libraries.go  the shared libraries that a program of this machine needs
//	machine.go    the guest, in QEMU, by software emulation
//	init/         its first process
//	agenda/       the instructions to that process, and its reports
//
// The guest runs programs of this machine, with libraries of this machine, under Debian's kernel.
// Its files live in memory, it has no network but its own, and it leaves nothing behind. The exit
// status is 0 on success, that of the first program that failed, or 1.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/scripts/verbsguest/agenda"
)

const (
	deviceName    = "rxe0"
	deviceAddress = "10.77.0.1/24"
	programFolder = "/programs"
	testsFolder   = "tests" // for the built tests
	programName   = "ledgerd"
	// outputShown limits how much of the end of a failed program's output is shown, in bytes.
	outputShown = 16 << 10
	// failureLinesMax limits the number of lines shown that explain a failure.
	failureLinesMax = 60
)

// environment is the environment of all programs in the guest.
var environment = []string{
	"PATH=" + programFolder, "HOME=/tmp", "TMPDIR=/tmp", "GOTRACEBACK=single", "NO_COLOR=1",
	"TERM=dumb",
	"LEDGERD_VERBS_DEVICE=" + deviceName, "LEDGERD_TEST_FABRIC=verbs",
	"LEDGERD_TEST_PROGRAM=" + programFolder + "/" + programName,
}

// step is one program in the guest.
type step struct {
	name, what string
	// tests is the package whose tests are the program, which runs in that package's folder. If it
	// is empty, the program is ledgerd.
	tests     string
	arguments []string
	// files are files of the source tree that the program reads.
	files []string
	// seconds limits its time, on a machine that may be busy with other work.
	seconds int
	// apart: it runs only if it is named, because it tests nothing. Its output is shown.
	apart bool
}

var steps = []step{
	{name: "devices", what: "ledgerd finds the device, and measures it",
		arguments: []string{"fabric", "measure", "--fabric", "verbs", "--for", "2s"}, seconds: 60},
	{name: "fabric", what: "the suite of every fabric, on verbs", tests: "./rdmanet/verbs",
		arguments: []string{"-test.v", "-test.parallel=3", "-test.timeout=470s"}, seconds: 480},
	{name: "engines", what: "AllConcur and AllConcur+ in several processes over verbs, one of " +
		"them killed", tests: "./node/driver",
		arguments: []string{"-test.v", "-test.run=^TestProcesses$", "-test.timeout=290s"},
		seconds:   300},
	{name: "ledger", what: "a ledger of three processes over verbs: an import, a kill -9, the " +
		"same exports", tests: "./torture",
		arguments: []string{"-test.v", "-test.run=^TestTestnet$", "-test.timeout=290s"},
		files:     []string{"client/importer/testdata/bitcoin-blocks-0-excerpt.jsonl.gz"},
		seconds:   300},
	{name: "book", what: "a book of two shards of two processes over verbs: an import that " +
		"crosses", tests: "./torture",
		arguments: []string{"-test.v", "-test.run=^TestTestnetOfShards$", "-test.timeout=290s"},
		files:     []string{"client/importer/testdata/bitcoin-blocks-0-excerpt.jsonl.gz"},
		seconds:   300},
	{name: "rounds", what: "AllConcur+ over verbs, measured", apart: true,
		arguments: roundsOver("verbs"), seconds: 120},
	{name: "rounds-tcp", what: "AllConcur+ over TCP, measured", apart: true,
		arguments: roundsOver("p2p-trusted"), seconds: 120},
	{name: "latency", what: "all engines over verbs, with few requests, measured", apart: true,
		arguments: latencyOver("verbs"), seconds: 240},
	{name: "latency-tcp", what: "all engines over TCP, with few requests, measured", apart: true,
		arguments: latencyOver("p2p-trusted"), seconds: 240},
}

// roundsOver are the arguments with which ledgerd measures an engine over a fabric.
func roundsOver(fabric string) []string {
	return []string{"bench", "engine", "--engine", "allconcur+", "--servers", "3", "--batch", "1",
		"--for", "10s", "--fabric", fabric, "--json"}
}

// latencyOver are the arguments with which ledgerd measures all engines over a fabric, so few
// requests that they do not wait for each other.
func latencyOver(fabric string) []string {
	return []string{"bench", "engine", "--compare-engines", "--servers", "3", "--batch", "1",
		"--rate", "5", "--for", "8s", "--fabric", fabric}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "verbs-test:", err)
	}
	os.Exit(status)
}

// run runs the chosen steps and returns the exit status.
func run(ctx context.Context) (int, error) {
	verbose := flag.Bool("v", false, "show the programs' output")
	counts := flag.String("counts", "", "file to which a line for each test is appended")
	flag.Parse()
	chosen, err := choose(flag.Args())
	if err != nil {
		return 2, err
	}
	if runtime.GOARCH != "amd64" {
		return 1, fmt.Errorf("the guest is an amd64 machine and runs the programs of this one, "+
			"which is %s", runtime.GOARCH)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return 1, err
	}
	cache = filepath.Join(cache, "ledgerd", "verbs-test")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return 1, err
	}
	folder, err := os.MkdirTemp("", "ledgerd-verbs-")
	if err != nil {
		return 1, err
	}
	// Ignore the error: the system cleans its folder of temporary files anyway.
	defer func() { _ = os.RemoveAll(folder) }()

	begun := time.Now()
	clock := begun
	tell := func(what string) {
		fmt.Printf("%6.1f s  %s\n", time.Since(clock).Seconds(), what)
		clock = time.Now()
	}
	k, err := prepare(ctx, cache, folder, chosen, tell)
	if err != nil {
		return 1, err
	}
	disk := filepath.Join(folder, "disk")
	if err := writeDisk(disk, folder, k, chosen); err != nil {
		return 1, fmt.Errorf("the guest's files: %w", err)
	}
	tell("the guest's files put together")

	ended := map[string]agenda.Report{}
	m := machine{kernel: k.image, disk: disk, folder: folder}
	if *verbose {
		m.show = os.Stdout
	}
	err = m.run(ctx, func(r agenda.Report) {
		switch r.Event {
		case agenda.EventReady:
			tell("the guest is up, with " + deviceName + " at " + deviceAddress)
		case agenda.EventEnded:
			ended[r.Program] = r
			result := "ok"
			if r.Status != 0 {
				result = fmt.Sprintf("FAILED: %s", r.Reason)
			}
			tell(fmt.Sprintf("%s: %s: %s", r.Program, stepOf(r.Program).what, result))
		}
	})
	status := 0
	for _, s := range chosen {
		r, reported := ended[s.name]
		if !reported || r.Status != 0 {
			if status == 0 {
				status = max(1, r.Status)
			}
			showFailure(os.Stdout, s.name, m.output(s.name))
		} else if s.apart && !*verbose {
			_, _ = os.Stdout.Write(m.output(s.name))
		}
	}
	if err != nil {
		return max(status, 1), err
	}
	if *counts != "" {
		err = appendCounts(*counts, &m, chosen)
	}
	if err != nil {
		return max(status, 1), err
	}
	fmt.Printf("%6.1f s  in all\n", time.Since(begun).Seconds())
	return status, nil
}

// prepare gets the kernel and builds the programs, both at once: one waits for the network, the
// other for the processor.
func prepare(ctx context.Context, cache, folder string, chosen []step, tell func(string)) (kernel,
	error) {
	type fetching struct {
		kernel  kernel
		fetched bool
		err     error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	got := make(chan fetching, 1)
	go func() {
		k, fetched, err := prepareKernel(ctx, cache)
		if err != nil {
			cancel() // the programs will not run
		}
		got <- fetching{k, fetched, err}
	}()
	buildErr := buildAll(ctx, folder, chosen)
	if buildErr != nil {
		cancel()
	}
	f := <-got
	switch {
	case f.err != nil && (buildErr == nil || !errors.Is(f.err, context.Canceled)):
		return kernel{}, fmt.Errorf("the guest's kernel: %w", f.err)
	case buildErr != nil:
		return kernel{}, buildErr
	case f.fetched:
		tell("kernel " + f.kernel.version + " fetched, programs built")
	default:
		tell("programs built; kernel " + f.kernel.version + " was kept")
	}
	return f.kernel, nil
}

// failureLines matches the lines in which tests and crashes explain a failure.
var failureLines = regexp.MustCompile(
	`(?m)^\s*(\S+\.go:\d+: |--- FAIL|panic: |fatal error: |WARNING: DATA RACE|testing: ).*$`)

// showFailure prints a failed program's explanation and the end of its output.
func showFailure(to io.Writer, name string, output []byte) {
	if said := failureLines.FindAll(output, -1); len(said) > 0 {
		// Ignore errors, as for all output.
		_, _ = fmt.Fprintf(to, "\n--- why %s failed\n%s\n", name,
			bytes.Join(said[:min(len(said), failureLinesMax)], []byte("\n")))
	}
	_, _ = fmt.Fprintf(to, "\n--- the end of the output of %s\n%s\n", name,
		output[max(0, len(output)-outputShown):])
}

// choose returns the named steps, or all that test something if none is named.
func choose(names []string) ([]step, error) {
	var chosen []step
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return s.apart }), nil
	}
	for _, name := range names {
		at := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no step %q; the steps are %s",
				name, strings.Join(stepNames(), ", "))
		}
		chosen = append(chosen, steps[at])
	}
	return chosen, nil
}

func stepNames() []string {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	return names
}

func stepOf(name string) step {
	return steps[slices.IndexFunc(steps, func(s step) bool { return s.name == name })]
}

// goOptions are the options of every build: with verbs, and without debugging information.
var goOptions = []string{"-tags", "verbs", "-ldflags", "-s -w"}

// buildAll builds ledgerd, the guest's first process, and the steps' programs.
func buildAll(ctx context.Context, folder string, chosen []step) error {
	build := func(cgo, output string, how []string, sources ...string) error {
		arguments := slices.Concat(how, goOptions, []string{"-o", filepath.Join(folder, output)},
			sources)
		command := exec.CommandContext(ctx, "go", arguments...)
		// An interrupt also ends the compilers that the command started.
		command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
		command.WaitDelay = 10 * time.Second
		command.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if said, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(arguments, " "), err, said)
		}
		return nil
	}
	var packages []string
	for _, s := range chosen {
		if s.tests != "" && !slices.Contains(packages, s.tests) {
			packages = append(packages, s.tests)
		}
	}
	// The tests need everything that ledgerd needs. One command builds the shared parts once and
	// links the tests side by side.
	if len(packages) > 0 {
		if err := os.Mkdir(filepath.Join(folder, testsFolder), 0o755); err != nil {
			return err
		}
		if err := build("1", testsFolder+"/", []string{"test", "-c", "-vet=off"},
			packages...); err != nil {
			return err
		}
	}
	if err := build("1", programName, []string{"build"}, "./cmd/ledgerd"); err != nil {
		return err
	}
	return build("0", "init", []string{"build"}, "./scripts/verbsguest/init")
}

// built returns the file of the built tests of a step's package.
func (s step) built(folder string) string {
	return filepath.Join(folder, testsFolder, path.Base(s.tests)+".test")
}

// writeDisk writes the guest's files to an archive.
func writeDisk(to, folder string, k kernel, chosen []step) (err error) {
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	a := newArchive(file)
	todo := agenda.Agenda{Device: deviceName, Address: deviceAddress, Environment: environment}
	for _, module := range k.modules {
		inside := "/modules/" + filepath.Base(module)
		a.copy(inside, module, 0o644)
		todo.Modules = append(todo.Modules, inside)
	}
	a.copy("/init", filepath.Join(folder, "init"), 0o755)
	providers, err := rxeProvider()
	if err != nil {
		return err
	}
	programs := []string{filepath.Join(folder, programName)}
	a.copy(path.Join(programFolder, programName), programs[0], 0o755)
	for _, s := range chosen {
		program := agenda.Program{Name: s.name, Path: path.Join(programFolder, programName),
			Arguments: s.arguments, Folder: path.Join("/", s.tests), Seconds: s.seconds}
		if s.tests != "" {
			built := s.built(folder)
			// Steps may share the tests of a package.
			program.Path = path.Join(programFolder, filepath.Base(built))
			a.copy(program.Path, built, 0o755)
			programs = append(programs, built)
		}
		a.folder(program.Folder)
		for _, name := range s.files {
			a.copy(path.Join("/", name), name, 0o644)
		}
		todo.Programs = append(todo.Programs, program)
	}
	libraries, err := librariesOf(append(programs, providers...))
	if err != nil {
		return err
	}
	for _, library := range append(libraries, providers...) {
		a.copy(library, library, 0o755)
	}
	a.write("/etc/libibverbs.d/rxe.driver", []byte("driver rxe\n"))
	a.write("/etc/passwd", []byte("root:x:0:0:root:/tmp:/none\n"))
	a.write("/etc/group", []byte("root:x:0:\n"))
	a.write("/etc/hosts", []byte("127.0.0.1 localhost\n"))
	a.write("/etc/nsswitch.conf", []byte("hosts: files\n"))
	return a.finish(todo)
}

// verdict matches a line in which a test program reports how a test ended.
var verdict = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\S+)`)

// appendCounts adds a line for each test that ran in the guest.
func appendCounts(to string, m *machine, chosen []step) (err error) {
	var lines bytes.Buffer
	names := map[string]string{"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}
	for _, s := range chosen {
		for _, found := range verdict.FindAllSubmatch(m.output(s.name), -1) {
			fmt.Fprintf(&lines, "%s verbs/%s %s\n", names[string(found[1])], s.name, found[2])
		}
	}
	file, err := os.OpenFile(to, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(file, &lines)
	return err
}
