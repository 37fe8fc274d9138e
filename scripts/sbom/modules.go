package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// program is the package of the binary.
const program = "./cmd/ledgerd"

// releases are the platforms of scripts/release, as GOOS/GOARCH.
var releases = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

// module is one Go module whose packages are in the binary.
type module struct {
	path, version string
	// files are its licences and notices, by path below the module's folder: those of the module
	// itself, and those beside its packages in the binary.
	files   map[string]string
	licence string // as an SPDX expression
}

// platformOf returns the platform of a binary, as GOOS/GOARCH.
func platformOf(build *buildinfo.BuildInfo) string {
	settings := map[string]string{}
	for _, each := range build.Settings {
		settings[each.Key] = each.Value
	}
	return settings["GOOS"] + "/" + settings["GOARCH"]
}

// linked returns the modules that the binary for a platform links, and the standard library as
// "std", sorted by path.
func linked(root, platform string) ([]*module, error) {
	system, processor, found := strings.Cut(platform, "/")
	if !found || system == "" || processor == "" {
		return nil, fmt.Errorf("%q is no platform", platform)
	}
	command := exec.Command("go", "list", "-deps", "-json=Dir,Standard,Module", program)
	command.Dir = root
	command.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	out, err := command.Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("go list %s for %s: %w", program, platform, err)
	}
	modules := map[string]*module{}
	goroot, err := standardLibrary(root)
	if err != nil {
		return nil, err
	}
	modules["std"] = goroot
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var listed struct {
			Dir      string
			Standard bool
			Module   *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := decoder.Decode(&listed); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		m := listed.Module
		if listed.Standard || m == nil || m.Main {
			continue
		}
		if modules[m.Path] == nil {
			modules[m.Path] = &module{path: m.Path, version: m.Version, files: map[string]string{}}
		}
		if err := modules[m.Path].read(m.Dir, listed.Dir); err != nil {
			return nil, err
		}
	}
	var list []*module
	for _, m := range modules {
		if m.licence, err = licenceOf(m.files); err != nil {
			return nil, fmt.Errorf("%s: %w", m.path, err)
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *module) int { return strings.Compare(a.path, b.path) })
	return list, nil
}

// standardLibrary returns Go's own module, with its licence.
func standardLibrary(root string) (*module, error) {
	command := exec.Command("go", "env", "GOROOT", "GOVERSION")
	command.Dir = root
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	folder, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	text, err := os.ReadFile(filepath.Join(folder, "LICENSE"))
	if err != nil {
		return nil, err
	}
	return &module{path: "std", version: strings.TrimPrefix(version, "go"),
		files: map[string]string{"LICENSE": string(text)}}, nil
}

// read adds the licences in the folder of a package and in the folders above it, up to the folder
// of the module.
func (m *module) read(folder, of string) error {
	for {
		entries, err := os.ReadDir(of)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			name := filepath.Join(of, entry.Name())
			switch {
			case entry.IsDir() && of == folder && thirdParty.MatchString(entry.Name()):
				err = m.readAll(folder, name)
			case entry.Type().IsRegular() && licenceName.MatchString(entry.Name()) &&
				!sourceName.MatchString(entry.Name()):
				err = m.readFile(folder, name)
			}
			if err != nil {
				return err
			}
		}
		if of == folder {
			return nil
		}
		if !strings.HasPrefix(of, folder+string(filepath.Separator)) {
			return fmt.Errorf("%s is not below %s", of, folder)
		}
		of = filepath.Dir(of)
	}
}

// readAll adds all files of a folder that has nothing but licences.
func (m *module) readAll(folder, of string) error {
	entries, err := os.ReadDir(of)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := m.readFile(folder, filepath.Join(of, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (m *module) readFile(folder, name string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	below, err := filepath.Rel(folder, name)
	if err != nil {
		return err
	}
	m.files[filepath.ToSlash(below)] = string(content)
	return nil
}

// everywhere returns the modules that the binaries of any release platform link.
func everywhere(root string) ([]*module, error) {
	var all []*module
	for _, platform := range releases {
		modules, err := linked(root, platform)
		if err != nil {
			return nil, err
		}
		for _, m := range modules {
			same := func(other *module) bool { return other.path == m.path }
			if i := slices.IndexFunc(all, same); i < 0 {
				all = append(all, m)
			} else {
				for name, text := range m.files { // another platform may link other packages
					all[i].files[name] = text
				}
			}
		}
	}
	for _, m := range all {
		var err error
		if m.licence, err = licenceOf(m.files); err != nil {
			return nil, fmt.Errorf("%s: %w", m.path, err)
		}
	}
	slices.SortFunc(all, func(a, b *module) int { return strings.Compare(a.path, b.path) })
	return all, nil
}
