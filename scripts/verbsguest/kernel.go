//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// kernel is the guest's kernel.
type kernel struct {
	version string
	image   string
	modules []string // each after the modules that it needs
}

// wantedModules are the kernel modules that the guest needs: ports to its host, a network
// interface, and Soft-RoCE with its checksums and its interface to programs.
var wantedModules = []string{"virtio_pci", "virtio_console", "dummy", "crc32_generic",
	"crc32c_generic", "ib_uverbs", "rdma_rxe", "rdma_ucm"}

const (
	imageFile     = "vmlinux"
	modulesFolder = "modules"
	sumsFile      = "SHA256SUMS"
	kernelPrefix  = "kernel-"
	// metaPackage is Debian's package that depends on the current kernel.
	metaPackage = "linux-image-amd64"
)

// prepareKernel returns the kept kernel if its checksums match. Otherwise it fetches Debian's
// current kernel. It reports whether it fetched one.
func prepareKernel(ctx context.Context, cache string) (kernel, bool, error) {
	kept, err := filepath.Glob(filepath.Join(cache, kernelPrefix+"*"))
	if err != nil {
		return kernel{}, false, err
	}
	slices.Sort(kept)
	for _, folder := range slices.Backward(kept) {
		k, err := keptKernel(folder)
		if err == nil {
			return k, false, nil
		}
		fmt.Fprintf(os.Stderr, "verbs-test: %v: it is fetched again\n", err)
		if err := os.RemoveAll(folder); err != nil {
			return kernel{}, false, err
		}
	}
	k, err := fetchKernel(ctx, cache)
	return k, true, err
}

// keptKernel reads a kernel's folder. Every file must have its recorded checksum.
func keptKernel(folder string) (kernel, error) {
	text, err := os.ReadFile(filepath.Join(folder, sumsFile))
	if err != nil {
		return kernel{}, err
	}
	k := kernel{version: strings.TrimPrefix(filepath.Base(folder), kernelPrefix),
		image: filepath.Join(folder, imageFile)}
	for line := range strings.Lines(string(text)) {
		wanted, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok {
			return kernel{}, fmt.Errorf("%s: a line that is none: %q", sumsFile, line)
		}
		found, err := checksum(filepath.Join(folder, name))
		if err != nil {
			return kernel{}, err
		}
		if found != wanted {
			return kernel{}, fmt.Errorf("%s has another checksum than when it was kept",
				filepath.Join(folder, name))
		}
		if name != imageFile {
			k.modules = append(k.modules, filepath.Join(folder, name))
		}
	}
	if len(k.modules) == 0 {
		return kernel{}, fmt.Errorf("%s names no modules", filepath.Join(folder, sumsFile))
	}
	return k, nil
}

func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // opened for reading only
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// fetchKernel downloads Debian's current kernel package, which apt-get checks against Debian's
// signatures, and keeps the parts that the guest needs.
func fetchKernel(ctx context.Context, cache string) (kernel, error) {
	work, err := os.MkdirTemp(cache, ".fetching-")
	if err != nil {
		return kernel{}, err
	}
	defer func() { _ = os.RemoveAll(work) }() // the finished folder was moved out of it
	name, err := kernelPackage(ctx)
	if err != nil {
		return kernel{}, err
	}
	if _, err := command(ctx, work, "apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download",
		name); err != nil {
		return kernel{}, err
	}
	packages, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(packages) != 1 {
		return kernel{}, errors.Join(err, fmt.Errorf("apt-get download %s left %d packages",
			name, len(packages)))
	}
	unpacked := filepath.Join(work, "unpacked")
	if _, err := command(ctx, work, "dpkg-deb", "-x", packages[0], unpacked); err != nil {
		return kernel{}, err
	}
	version := strings.TrimPrefix(name, "linux-image-")
	folder := filepath.Join(work, kernelPrefix+version)
	if err := os.MkdirAll(filepath.Join(folder, modulesFolder), 0o755); err != nil {
		return kernel{}, err
	}
	if err := unpackImage(ctx, filepath.Join(unpacked, "boot", "vmlinuz-"+version),
		filepath.Join(folder, imageFile)); err != nil {
		return kernel{}, err
	}
	if err := gatherModules(ctx, unpacked, filepath.Join(folder, modulesFolder)); err != nil {
		return kernel{}, err
	}
	if err := writeSums(folder); err != nil {
		return kernel{}, err
	}
	final := filepath.Join(cache, kernelPrefix+version)
	// Another run may have been quicker.
	if err := os.Rename(folder, final); err != nil && !errors.Is(err, fs.ErrExist) {
		return kernel{}, err
	}
	return keptKernel(final)
}

// kernelPackage asks apt for the name of the current kernel's package.
func kernelPackage(ctx context.Context) (string, error) {
	for _, refresh := range []bool{false, true} {
		if refresh {
			if _, err := command(ctx, "", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300",
				"update"); err != nil {
				return "", err
			}
		}
		said, err := command(ctx, "", "apt-cache", "depends", metaPackage)
		if err != nil && refresh {
			return "", err
		}
		for line := range strings.Lines(string(said)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok &&
				strings.HasPrefix(name, "linux-image-") {
				return name, nil
			}
		}
	}
	return "", fmt.Errorf("apt knows no package %s: this takes Debian for amd64", metaPackage)
}

// unpackImage extracts the kernel from its self-extracting image. QEMU boots a plain ELF kernel
// directly, so the emulated machine needs no firmware and unpacks nothing. An image that is not
// packed with xz is copied as it is.
func unpackImage(ctx context.Context, packed, to string) error {
	image, err := os.ReadFile(packed)
	if err != nil {
		return err
	}
	if at := bytes.Index(image, []byte("\xfd7zXZ\x00")); at >= 0 {
		unpack := exec.CommandContext(ctx, "xz", "-dc")
		unpack.Stdin = bytes.NewReader(image[at:])
		plain, _ := unpack.Output() // xz complains about the bytes after the kernel
		if file, err := elf.NewFile(bytes.NewReader(plain)); err == nil &&
			file.Machine == elf.EM_X86_64 {
			return os.WriteFile(to, plain, 0o644)
		}
	}
	return os.WriteFile(to, image, 0o644)
}

// gatherModules copies the modules that the guest needs and their dependencies. The numbers before
// their names give the order in which to load them.
func gatherModules(ctx context.Context, unpacked, to string) error {
	places, builtin := map[string]string{}, map[string]bool{}
	err := filepath.WalkDir(unpacked, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if name, rest, found := strings.Cut(entry.Name(), ".ko"); found &&
			(rest == "" || rest == ".xz") {
			places[canonical(name)] = path
		}
		if entry.Name() == "modules.builtin" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				builtin[canonical(strings.TrimSuffix(filepath.Base(strings.TrimSpace(line)),
					".ko"))] = true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	taken := map[string]bool{}
	var take func(name string) error
	take = func(name string) error {
		if taken[name] || builtin[name] {
			return nil
		}
		taken[name] = true
		path, found := places[name]
		if !found {
			if slices.Contains([]string{"crc32_generic", "crc32c_generic"}, name) {
				return nil // newer kernels neither have nor need these modules
			}
			return fmt.Errorf("the kernel has no module %s", name)
		}
		module, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(path, ".xz") {
			unpack := exec.CommandContext(ctx, "xz", "-dc", path)
			module, err = unpack.Output()
		}
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		needs, err := needsOf(module)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, need := range needs {
			if err := take(need); err != nil {
				return err
			}
		}
		written, err := os.ReadDir(to)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, fmt.Sprintf("%02d-%s.ko", len(written), name)),
			module, 0o644)
	}
	for _, name := range wantedModules {
		if err := take(name); err != nil {
			return err
		}
	}
	return nil
}

// canonical returns a module's name as the kernel uses it. File names may have hyphens.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// needsOf reads a module's dependencies from its file.
func needsOf(module []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, errors.New("it does not say what it needs")
	}
	text, err := section.Data()
	if err != nil {
		return nil, err
	}
	var needs []string
	for field := range strings.SplitSeq(string(text), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			for name := range strings.SplitSeq(list, ",") {
				needs = append(needs, canonical(name))
			}
		}
	}
	return needs, nil
}

// writeSums records the checksums of a kernel's files, with the modules in the order in which to
// load them.
func writeSums(folder string) error {
	modules, err := filepath.Glob(filepath.Join(folder, modulesFolder, "*.ko"))
	if err != nil {
		return err
	}
	slices.Sort(modules)
	var text strings.Builder
	for _, path := range append([]string{filepath.Join(folder, imageFile)}, modules...) {
		sum, err := checksum(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, name)
	}
	return os.WriteFile(filepath.Join(folder, sumsFile), []byte(text.String()), 0o644)
}

// command runs a program in a folder and returns its output.
func command(ctx context.Context, folder, name string, arguments ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, arguments...)
	c.Dir = folder
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(arguments, " "),
			err, bytes.TrimSpace(said.Bytes()))
	}
	return out, nil
}
