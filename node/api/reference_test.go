package api_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ledgerd/ledgerd/docs/pagetest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestReference compares docs/reference/api.md with the service: its calls and messages come from
// the compiled descriptors, its comments from the .proto
// files. The flag -write writes the page.
func TestReference(t *testing.T) {
	t.Parallel()
	comments := map[string]string{}
	for _, file := range []string{"transaction.proto", "accounts.proto", "assets.proto",
		"details.proto", "holds.proto", "chain.proto", "cut.proto", "genesis.proto",
		"history.proto", "dryrun.proto", "figures.proto", "proofs.proto", "records.proto",
		"rounds.proto", "schedules.proto", "shards.proto", "terms.proto", "use.proto",
		"ledgerd.proto"} {
		source, err := os.ReadFile(filepath.Join(pagetest.Root(t), "node/api/proto/ledgerd/v1",
			file))
		if err != nil {
			t.Fatal(err)
		}
		more, err := protoComments(string(source))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		maps.Copy(comments, more)
	}
	service := ledgerdv1.File_ledgerd_v1_ledgerd_proto.Services().Get(0)
	for i := range service.Methods().Len() {
		name := string(service.Name()) + "." + string(service.Methods().Get(i).Name())
		if comments[name] == "" {
			t.Errorf("%s has no comment that says what it does", name)
		}
	}
	pagetest.Compare(t, "api.md", apiPage(comments))
}

// TestProtoComments shows which comment belongs to which declaration.
func TestProtoComments(t *testing.T) {
	t.Parallel()
	const source = `// The file.
//
// More of it.
package p;

// Of S,
// in two lines.
service S {
  // Of C.
  rpc C(A) returns (B) {}

  rpc D(A) returns (B) {}
}
message A { int x = 1; } // not of y
message B {
  oneof o {
    int y = 1; // of y
  }
  // Before z.
  repeated int z = 2; // of z
}
`
	got, err := protoComments(source)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"package": "The file.\n\nMore of it.", "S": "Of S,\nin two lines.",
		"S.C": "Of C.", "B.y": "of y", "B.z": "Before z.\nof z"}
	if len(got) != len(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, comment := range want {
		if got[name] != comment {
			t.Errorf("comment of %s = %q, want %q", name, got[name], comment)
		}
	}
	if _, err := protoComments("/* of X */ message X {}"); err == nil {
		t.Error("a comment in another form is accepted")
	}
}

var (
	// protoBlock matches the first line of a service, message, enum or oneof.
	protoBlock = regexp.MustCompile(`^(service|message|enum|oneof) (\w+) \{`)
	// protoEntry matches a call, or a field or value with its comment at the end of the line.
	protoEntry = regexp.MustCompile(
		`^(?:rpc (\w+)\(.*|(?:\w+ )*(\w+) = \d+;\s*(?:// ?(.*))?)$`)
)

// protoComments returns the comments of a .proto file by the names that they belong to: those of
// services, messages and enums, and Outer.Name for what is in them. The comment of the file stands
// before its package and is named so. The parser knows what gofmt-like sources have: one
// declaration a line, comments that begin with two slashes.
func protoComments(source string) (map[string]string, error) {
	if strings.Contains(source, "/*") {
		return nil, errors.New("comments must begin with //")
	}
	comments := map[string]string{}
	var before, within []string // the comment so far; the names of the blocks around the line
	keep := func(name, atEnd string) {
		if atEnd != "" {
			before = append(before, atEnd)
		}
		if text := strings.TrimSpace(strings.Join(before, "\n")); text != "" {
			comments[name] = text
		}
		before = nil
	}
	for line := range strings.SplitSeq(source, "\n") {
		line = strings.TrimSpace(line)
		outer := ""
		if len(within) > 0 {
			outer = within[0] + "."
		}
		if comment, is := strings.CutPrefix(line, "//"); is {
			before = append(before, strings.TrimPrefix(comment, " "))
			continue
		}
		if strings.HasPrefix(line, "package ") {
			keep("package", "")
		} else if block := protoBlock.FindStringSubmatch(line); block != nil {
			if block[1] != "oneof" {
				keep(outer+block[2], "")
			}
			if !strings.Contains(line, "}") {
				within = append(within, block[2])
			}
		} else if entry := protoEntry.FindStringSubmatch(line); entry != nil && len(within) > 0 {
			keep(outer+entry[1]+entry[2], entry[3])
		} else if line == "}" && len(within) > 0 {
			within = within[:len(within)-1]
		}
		before = nil
	}
	if len(within) > 0 {
		return nil, fmt.Errorf("%s does not end", within[0])
	}
	return comments, nil
}

// apiPage renders the service, its messages and its enums.
func apiPage(comments map[string]string) string {
	file, bundles := ledgerdv1.File_ledgerd_v1_ledgerd_proto,
		ledgerdv1.File_ledgerd_v1_transaction_proto
	cuts, begins := ledgerdv1.File_ledgerd_v1_cut_proto, ledgerdv1.File_ledgerd_v1_genesis_proto
	shards, watched := ledgerdv1.File_ledgerd_v1_shards_proto,
		ledgerdv1.File_ledgerd_v1_rounds_proto
	histories := ledgerdv1.File_ledgerd_v1_history_proto
	var b strings.Builder
	b.WriteString("# API\n\nEvery call and message of a node's API. The page is made from\n" +
		"`node/api/proto/ledgerd/v1/*.proto`; `go test ./node/api -run TestReference " +
		"-write` writes it.\n")
	for paragraph := range strings.SplitSeq(comments["package"], "\n\n") {
		fmt.Fprintf(&b, "\n%s\n", pagetest.Wrap(paragraph))
	}
	service := file.Services().Get(0)
	fmt.Fprintf(&b, "\nA call over JSON is a POST to `/%s/CALL`:\n\n```\ncurl -H 'Content-Type: "+
		"application/json' -d '{\"account\":\"acme:cash\"}' \\\n  http://127.0.0.1:8080/%s/"+
		"GetAccount\n```\n\nEvery node serves a description of these calls over JSON in "+
		"OpenAPI 3.1, at `/openapi.json`.\nReleases have it in `api/openapi.json`, beside the "+
		"`.proto` files.\n\n## Calls\n\n| call | takes | answers with | what it does |\n"+
		"|---|---|---|---|\n", service.FullName(), service.FullName())
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		name := string(method.Name())
		taken, stream := "", ""
		if method.IsStreamingClient() {
			taken = "a stream of "
		}
		if method.IsStreamingServer() {
			stream = "a stream of "
		}
		fmt.Fprintf(&b, "| `%s` | %s%s | %s%s | %s |\n", name, taken, typeLink(method.Input()),
			stream, typeLink(method.Output()),
			pagetest.Cell(comments[string(service.Name())+"."+name]))
	}
	b.WriteString("\n## Messages\n")
	for _, message := range byName(file.Messages(), bundles.Messages(), cuts.Messages(),
		begins.Messages(), shards.Messages(), histories.Messages(),
		ledgerdv1.File_ledgerd_v1_figures_proto.Messages(), watched.Messages(),
		ledgerdv1.File_ledgerd_v1_accounts_proto.Messages(),
		ledgerdv1.File_ledgerd_v1_assets_proto.Messages(),
		ledgerdv1.File_ledgerd_v1_dryrun_proto.Messages(),
		ledgerdv1.File_ledgerd_v1_holds_proto.Messages(),
		ledgerdv1.File_ledgerd_v1_proofs_proto.Messages(),
		ledgerdv1.File_ledgerd_v1_records_proto.Messages(),
		ledgerdv1.File_ledgerd_v1_details_proto.Messages(),
		ledgerdv1.File_ledgerd_v1_use_proto.Messages(),
		ledgerdv1.File_ledgerd_v1_schedules_proto.Messages(),
		ledgerdv1.File_ledgerd_v1_chain_proto.Messages(),
		ledgerdv1.File_ledgerd_v1_terms_proto.Messages()) {
		name := string(message.Name())
		writeHead(&b, name, comments)
		if message.Fields().Len() == 0 {
			b.WriteString("\nIt has no fields.\n")
			continue
		}
		b.WriteString("\n| field | number | type | meaning |\n|---|---|---|---|\n")
		for i := range message.Fields().Len() {
			field := message.Fields().Get(i)
			fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", field.Name(), field.Number(),
				fieldType(field), pagetest.Cell(comments[name+"."+string(field.Name())]))
		}
	}
	b.WriteString("\n## Enums\n")
	for _, enum := range byName(file.Enums(), bundles.Enums(), cuts.Enums(), watched.Enums(),
		ledgerdv1.File_ledgerd_v1_proofs_proto.Enums()) {
		name := string(enum.Name())
		writeHead(&b, name, comments)
		b.WriteString("\n| value | number | meaning |\n|---|---|---|\n")
		for i := range enum.Values().Len() {
			value := enum.Values().Get(i)
			fmt.Fprintf(&b, "| `%s` | %d | %s |\n", value.Name(), value.Number(),
				pagetest.Cell(comments[name+"."+string(value.Name())]))
		}
	}
	return b.String()
}

// byName returns the descriptors of several lists in the order of their names.
func byName[D protoreflect.Descriptor, L interface {
	Len() int
	Get(i int) D
}](lists ...L) []D {
	var all []D
	for _, list := range lists {
		for i := range list.Len() {
			all = append(all, list.Get(i))
		}
	}
	slices.SortFunc(all, func(a, b D) int {
		return strings.Compare(string(a.Name()), string(b.Name()))
	})
	return all
}

func writeHead(b *strings.Builder, name string, comments map[string]string) {
	fmt.Fprintf(b, "\n### %s\n", name)
	if comment := comments[name]; comment != "" {
		fmt.Fprintf(b, "\n%s\n", pagetest.Wrap(comment))
	}
}

// typeLink names a message or an enum and links its section.
func typeLink(of protoreflect.Descriptor) string {
	return fmt.Sprintf("[%s](#%s)", of.Name(), strings.ToLower(string(of.Name())))
}

// fieldType writes the type of a field.
func fieldType(field protoreflect.FieldDescriptor) string {
	text := field.Kind().String()
	switch field.Kind() {
	case protoreflect.MessageKind:
		text = typeLink(field.Message())
	case protoreflect.EnumKind:
		text = typeLink(field.Enum())
	}
	switch {
	case field.IsList():
		return "list of " + text
	case field.HasOptionalKeyword():
		return text + ", optional"
	case field.ContainingOneof() != nil:
		return text + ", one of `" + string(field.ContainingOneof().Name()) + "`"
	}
	return text
}
