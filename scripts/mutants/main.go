// Command mutants runs mutation tests, with gremlins, of the pure rooms that the safety of the
// ledger depends on.
//
//	mutants           a sample of the mutants, a different one for each state of the tree
//	mutants -all      all mutants, and the score of each package
//
// A mutant is a change of one token, such as < to <=. It is killed if the package's own tests fail,
// in their short form. A mutant that survives has to be on the list of argued survivors
// (survivors.txt); otherwise the command fails. It also fails if the list names a mutant that no
// longer exists, or so many mutants that the score must have fallen.
//
// Gremlins works on a copy of the module that contains only one package and what its tests need. So
// the tests of other packages take no part, and nothing in the tree changes. Gremlins counts a
// mutant that does not compile as killed; this command finds and ignores such mutants.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const gremlins = "github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0"

// room is a package with its least score, in percent of the mutants that compile. The least score
// is the one reached so far; raise it with the score.
type room struct {
	folder string
	least  float64
}

var rooms = []room{
	{"allconcur/generation", 95},
	{"shard", 99},
	{"shard/turn", 95},
	{"allconcur", 95},
}

// flags enable the kinds of mutants that gremlins leaves out by default.
var flags = []string{
	"--invert-assignments", "--invert-bitwise", "--invert-bwassign", "--invert-logical",
	"--invert-loopctrl", "--remove-self-assignments",
}

var errFailed = errors.New("failed")

func main() {
	all := flag.Bool("all", false, "run all mutants instead of a sample")
	only := flag.String("package", "", "run this package only, such as shard/turn")
	size := flag.Int("sample", 16, "the least number of mutants in a sample")
	flag.Parse()
	if err := run(os.Stdout, *all, *only, *size); err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(os.Stderr, "mutants:", err)
		}
		os.Exit(1)
	}
}

func run(to io.Writer, all bool, only string, size int) error {
	file, err := os.Open("scripts/mutants/survivors.txt")
	if err != nil {
		return err
	}
	defer file.Close()
	argued, err := readSurvivors(file)
	if err != nil {
		return fmt.Errorf("scripts/mutants/survivors.txt: %w", err)
	}
	var packages []*pkg
	var every []*mutant
	for _, r := range rooms {
		c, err := read(".", r.folder)
		if err != nil {
			return err
		}
		p := &pkg{room: r, mutants: c.mutants()}
		packages = append(packages, p)
		every = append(every, p.mutants...)
	}
	ok := true
	for _, p := range argued.stale(every) {
		fmt.Fprintf(to, "on the list of survivors, and not in the source any more:\n%s\n", p)
		ok = false
	}
	if only != "" {
		packages = slices.DeleteFunc(packages, func(p *pkg) bool { return p.folder != only })
		if len(packages) == 0 {
			return fmt.Errorf("no package %s", only)
		}
	}
	if !all {
		seed, err := treeHash()
		if err != nil {
			return err
		}
		packages = []*pkg{pick(packages, seed)}
		if err := packages[0].sample(seed, size, argued); err != nil {
			return err
		}
	}
	for _, p := range packages {
		good, err := p.test(to, argued)
		if err != nil {
			return fmt.Errorf("%s: %w", p.folder, err)
		}
		ok = ok && good
	}
	if !ok {
		return errFailed
	}
	return nil
}

// pkg is one package under test.
type pkg struct {
	room
	mutants []*mutant
	// lines are the lines, as file:line, whose mutants are run. Nil means all.
	lines map[string]bool
}

// treeHash returns a number that changes with the packages and their tests.
func treeHash() (uint64, error) {
	hash := sha256.New()
	for _, r := range rooms {
		err := filepath.WalkDir(r.folder, func(name string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(name)
			fmt.Fprintf(hash, "%s %x\n", filepath.ToSlash(name), sha256.Sum256(content))
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return binary.LittleEndian.Uint64(hash.Sum(nil)), nil
}

// pick chooses one of the packages, with a probability proportional to its number of mutants.
func pick(packages []*pkg, seed uint64) *pkg {
	total := uint64(0)
	for _, p := range packages {
		total += uint64(len(p.mutants))
	}
	at := seed % total
	for _, p := range packages {
		if at < uint64(len(p.mutants)) {
			return p
		}
		at -= uint64(len(p.mutants))
	}
	return packages[len(packages)-1]
}

// source names the line of a mutant.
func (m *mutant) source() string { return fmt.Sprintf("%s:%d", m.file, m.line) }

// sample chooses lines until they have at least size mutants that have to be killed.
func (p *pkg) sample(seed uint64, size int, argued survivors) error {
	byLine := map[string][]*mutant{}
	var lines []string
	for _, m := range p.mutants {
		if byLine[m.source()] == nil {
			lines = append(lines, m.source())
		}
		byLine[m.source()] = append(byLine[m.source()], m)
	}
	rank := func(line string) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, line))
		return string(sum[:])
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
	p.lines = map[string]bool{}
	count := 0
	for _, line := range lines {
		if count >= size {
			break
		}
		useful := 0
		for _, m := range byLine[line] {
			viable, err := m.viable()
			if err != nil {
				return err
			}
			if viable && argued[m.place] == "" {
				useful++
			}
		}
		if useful > 0 {
			p.lines[line] = true
			count += useful
		}
	}
	p.mutants = slices.DeleteFunc(p.mutants, func(m *mutant) bool { return !p.lines[m.source()] })
	return nil
}

// test runs the package's mutants and reports whether the result is as it should be.
func (p *pkg) test(to io.Writer, argued survivors) (bool, error) {
	started := time.Now()
	copied, err := os.MkdirTemp("", "ledgerd-mutation-*")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(copied)
	if err := p.copy(copied); err != nil {
		return false, err
	}
	statuses, err := p.unleash(copied)
	if err != nil {
		return false, err
	}
	counts := map[string]int{}
	argumented, unviable, alone, unargued := 0, 0, 0, 0
	for _, m := range p.mutants {
		viable, err := m.viable()
		if err != nil {
			return false, err
		}
		status := statuses[fmt.Sprintf("%s:%d:%s", m.source(), m.column, m.kind)]
		switch {
		case !viable:
			unviable++
			continue
		case status == "":
			return false, fmt.Errorf("gremlins says nothing of\n%s", m.place)
		case status == "NOT COVERED":
			if status, err = m.alone(copied); err != nil {
				return false, err
			}
			alone++
		}
		switch {
		case argued[m.place] != "":
			argumented++
			if status != "LIVED" {
				fmt.Fprintf(to, "  on the list of survivors, and %s (line %d):\n  %s\n",
					strings.ToLower(status), m.line, m.place)
			}
		case status == "LIVED":
			unargued++
			fmt.Fprintf(to, "  %s, and not on the list of survivors (line %d):\n  %s\n",
				strings.ToLower(status), m.line, m.place)
		}
		counts[status]++
	}
	total := len(p.mutants) - unviable
	killed := counts["KILLED"] + counts["TIMED OUT"]
	fmt.Fprintf(to, "%s: %d mutants, %d killed, %d timed out, %d lived, %d of these argued; "+
		"%d do not compile; gremlins left out %d; %.0f s\n", p.folder, total, counts["KILLED"],
		counts["TIMED OUT"],
		counts["LIVED"], argumented, unviable, alone, time.Since(started).Seconds())
	ok := unargued <= tolerated(len(p.mutants))
	if p.lines == nil {
		ok = unargued == 0
		score := 100 * float64(killed) / float64(max(1, total))
		fmt.Fprintf(to, "%s: score %.1f %%, least %.1f %%\n", p.folder, score, p.least)
		ok = ok && score >= p.least
	}
	return ok, nil
}

// tolerated returns how many unlisted mutants of a sample may survive. If a few in a hundred
// mutants survive in the whole run, a sample may contain some of them by chance. It fails if the
// score has fallen.
func tolerated(sampled int) int { return sampled / 10 }

// alone runs the tests with a mutant that gremlins leaves out as not covered. Coverage has no block
// for the expressions of a case, so gremlins takes all mutants in them for not covered.
func (m *mutant) alone(copied string) (status string, err error) {
	name := filepath.Join(copied, m.file)
	original, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.WriteFile(name, original, 0o644)) }()
	if err := os.WriteFile(name, m.mutated(), 0o644); err != nil {
		return "", err
	}
	command := exec.Command("go", "test", "-short", "-vet=off", "-failfast", "-timeout=1m",
		"./"+m.code.folder)
	command.Dir = copied
	if _, err := output(command); err == nil {
		return "LIVED", nil
	} else if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		return "", err
	}
	return "KILLED", nil
}

// copy makes a module of the package and everything that its tests need, without other tests. For a
// sample it is a git repository in which only the lines of the sample differ from the commit.
// Gremlins then leaves the other lines out.
func (p *pkg) copy(to string) error {
	out, err := output(exec.Command("go", "list", "-deps", "-test", "-f",
		"{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}", "./"+p.folder))
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	folders := []string{"."}
	for line := range strings.Lines(out) {
		folder, err := filepath.Rel(root, strings.TrimSpace(line))
		if err != nil {
			return err
		}
		folders = append(folders, filepath.ToSlash(folder))
	}
	slices.Sort(folders)
	for _, folder := range slices.Compact(folders) {
		if err := p.copyFolder(folder, to); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(p.folder, "testdata")); err == nil {
		if err := os.CopyFS(filepath.Join(to, p.folder, "testdata"),
			os.DirFS(filepath.Join(p.folder, "testdata"))); err != nil {
			return err
		}
	}
	if p.lines == nil {
		return nil
	}
	return p.commit(to)
}

// copyFolder copies the files of a folder, except for tests of other packages. Of the module's root
// folder it copies only go.mod and go.sum.
func (p *pkg) copyFolder(folder, to string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(to, folder), 0o755); err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case !entry.Type().IsRegular(), folder == "." && name != "go.mod" && name != "go.sum",
			strings.HasSuffix(name, "_test.go") && folder != p.folder:
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// commit makes all lines of the sample differ from the committed ones. Each line is a hunk of its
// own in the diff, because gremlins treats a hunk as one run of changed lines.
func (p *pkg) commit(to string) error {
	texts := map[string][]byte{}
	for _, m := range p.mutants {
		name := filepath.Join(to, m.file)
		if texts[name] == nil {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			texts[name] = content
		}
	}
	for name, content := range texts {
		file, err := filepath.Rel(to, name)
		if err != nil {
			return err
		}
		lines := strings.Split(string(content), "\n")
		for i := range lines {
			if p.lines[fmt.Sprintf("%s:%d", filepath.ToSlash(file), i+1)] {
				lines[i] = fmt.Sprintf("line %d", i+1)
			}
		}
		if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			return err
		}
	}
	for _, arguments := range [][]string{
		{"init", "-q"}, {"config", "diff.context", "0"}, {"add", "."},
		{"-c", "user.name=mutation", "-c", "user.email=mutation@localhost", "commit", "-q",
			"--no-gpg-sign", "-m", "without the sample"},
	} {
		command := exec.Command("git", arguments...)
		command.Dir = to
		if _, err := output(command); err != nil {
			return err
		}
	}
	for name, content := range texts {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// unleash runs gremlins on a copy, and returns each mutant's status by file:line:column:kind.
func (p *pkg) unleash(copied string) (map[string]string, error) {
	result := filepath.Join(copied, "result.json")
	arguments := append([]string{"run", gremlins, "unleash", "--output", result}, flags...)
	if p.lines != nil {
		arguments = append(arguments, "--diff", "HEAD")
	}
	// Exclude the files of other packages by their folders.
	err := filepath.WalkDir(copied, func(name string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		folder, err := filepath.Rel(copied, name)
		if folder = filepath.ToSlash(folder); err == nil && folder != p.folder && folder != "." {
			arguments = append(arguments, "--exclude-files", "^"+folder+"/[^/]*$")
		}
		if entry.Name() == ".git" || entry.Name() == "testdata" {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	command := exec.Command("go", append(arguments, ".")...)
	command.Dir = copied
	// go vet would take much of the time, and kill mutants that no test kills.
	command.Env = append(os.Environ(),
		"GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -short -vet=off"))
	seen := &progress{to: os.Stderr, room: p.folder, total: len(p.mutants)}
	if p.lines == nil {
		command.Stdout = seen
	}
	if _, err := output(command); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(result)
	if err != nil {
		return nil, err
	}
	var report struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Type, Status string
				Line, Column int
			}
		}
	}
	if err := json.Unmarshal(content, &report); err != nil {
		return nil, err
	}
	statuses := map[string]string{}
	for _, file := range report.Files {
		for _, m := range file.Mutations {
			statuses[fmt.Sprintf("%s:%d:%d:%s", path.Clean(file.Name), m.Line, m.Column,
				m.Type)] = m.Status
		}
	}
	return statuses, nil
}

// progress prints the number of mutants so far, while gremlins writes a line for each mutant.
type progress struct {
	to    io.Writer
	room  string
	total int
	done  int
	text  []byte // since the last end of a line
	wrote []byte // the last part of the output, for an error
}

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	p.text = append(p.text, b...)
	p.wrote = append(p.wrote, b...)
	p.wrote = p.wrote[max(0, len(p.wrote)-4000):]
	for {
		line, rest, found := bytes.Cut(p.text, []byte("\n"))
		if !found {
			return len(b), nil
		}
		p.text = rest
		if fields := bytes.Fields(line); len(fields) < 3 || !bytes.Contains(line, []byte(" at ")) {
			continue
		}
		if p.done++; p.done%25 == 0 {
			fmt.Fprintf(p.to, "%s: %d of about %d mutants\n", p.room, p.done, p.total)
		}
	}
}

// output runs a command. Its error contains the command's output.
func output(command *exec.Cmd) (string, error) {
	var errs strings.Builder
	command.Stderr = &errs
	var out []byte
	var err error
	if seen, counts := command.Stdout.(*progress); counts {
		err = command.Run()
		out = seen.wrote
	} else {
		out, err = command.Output()
	}
	if err != nil {
		text := strings.TrimSpace(string(out) + errs.String())
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "),
			err, text[max(0, len(text)-4000):])
	}
	return string(out), nil
}

func sorted(list []place) []place {
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(strings.Compare(a.file, b.file), strings.Compare(a.function, b.function),
			strings.Compare(a.text, b.text),
			strings.Compare(a.kind, b.kind), a.number-b.number)
	})
	return list
}
