package ledger

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// encodingPage is the page that describes the encodings.
const encodingPage = "../docs/encoding.md"

// section returns the lines of the page below a heading.
func section(t *testing.T, heading string) []string {
	t.Helper()
	page, err := os.ReadFile(encodingPage)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("no section %q", heading)
	}
	before, _, _ := strings.Cut(after, "\n## ")
	return strings.Split(before, "\n")
}

// rows returns the cells of the table that begins with this line, below its heading.
func rows(t *testing.T, heading, first string) (cells [][]string) {
	t.Helper()
	lines := section(t, heading)
	begin := slices.Index(lines, first)
	if begin < 0 {
		t.Fatalf("no table %q in section %q", first, heading)
	}
	for _, line := range lines[begin+2:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		row := strings.Split(strings.Trim(line, "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		cells = append(cells, row)
	}
	return cells
}

// domainLiteral matches the text of a domain, without its zero byte, in a program.
var domainLiteral = regexp.MustCompile(`"(ledgerd[ /][^"\n]*?)\\x00`)

// The page has every text that separates domains, and no others.
func TestPageHasAllDomains(t *testing.T) {
	t.Parallel()
	var page, code []string
	for _, row := range rows(t, "Domains", "| text, before a zero byte | what follows it | "+
		"what it is for |") {
		page = append(page, strings.Trim(row[0], "`"))
	}
	if err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range domainLiteral.FindAllSubmatch(text, -1) {
			code = append(code, string(found[1]))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(code)
	code = slices.Compact(code)
	slices.Sort(page)
	if !slices.Equal(page, code) {
		t.Errorf("the page has the domains\n%q\nand the code\n%q", page, code)
	}
}

// Each domain of this package stands where its hash or signature is explained.
func TestPageNamesDomainsInText(t *testing.T) {
	t.Parallel()
	for domain, heading := range map[string]string{genesisDomain: "Genesis",
		transactionDomain: "Transaction", bundleDomain: "Bundle", packedBundleDomain: "Bundle",
		voucherDomain: "Batch", blockDomain: "Block", statementDomain: "Certificate",
		homeDomain: "Home of an organisation"} {
		text := strings.Join(section(t, heading), "\n")
		if !strings.Contains(text, `"`+strings.TrimSuffix(domain, "\x00")+`"`) {
			t.Errorf("section %s does not name %q", heading, domain)
		}
	}
}

func TestPageHasVersions(t *testing.T) {
	t.Parallel()
	want := map[string][]byte{
		"genesis": {genesisVersion, shardedGenesisVersion, chartersVersion, shardedChartersVersion,
			quotasVersion, shardedQuotasVersion, vouchedVersion, versionedVersion,
			shardedVersionedVersion, grownVersion},
		"transaction": {transactionVersion, administrativeVersion, verdictVersion, policyVersion,
			charterVersion, quotasCharterVersion, versionedCharterVersion, packedBodyVersion,
			deadlineVersion, cancellationVersion, growthVersion, arrivalVersion, assetVersion,
			holdVersion, holdEndVersion, accountChangeVersion, detailsVersion, scheduleVersion,
			scheduleEndVersion, occurrenceVersion},
		"bundle": {bundleVersion, packedBundleVersion}, "carried bundle": {carriedVersion},
		"batch": {batchVersion, shardedBatchVersion, clockedBatchVersion,
			vouchedBatchVersion, groupedBatchVersion},
		"header": {headerVersion, byBundleVersion}, "proof": {proofVersion, placedProofVersion},
		"certified proof": {certifiedProofVersion}, "proof of a balance": {accountProofVersion},
		"proof of a supply": {supplyProofVersion},
		"certificate":       {certificateVersion},
		"finality":          {finalityVersion}, "evidence": {evidenceVersion},
	}
	page := map[string][]byte{}
	for _, row := range rows(t, "Versions", "| encoding | first byte | when |") {
		version, err := strconv.ParseUint(row[1], 10, 8)
		if err != nil {
			t.Fatal(err)
		}
		page[row[0]] = append(page[row[0]], byte(version))
	}
	if fmt.Sprint(page) != fmt.Sprint(want) {
		t.Errorf("the page has the versions %v, and the code %v", page, want)
	}
}

func TestPageHasCodes(t *testing.T) {
	t.Parallel()
	var want [][]string
	for code := range codes {
		if code.known() {
			want = append(want, []string{strconv.Itoa(int(code)), code.String()})
		}
	}
	if page := rows(t, "Block", "| code | meaning |"); fmt.Sprint(page) != fmt.Sprint(want) {
		t.Errorf("the page has the codes\n%v\nand the code\n%v", page, want)
	}
}

func TestPageHasBounds(t *testing.T) {
	t.Parallel()
	var want [][]string
	for _, bound := range []struct {
		what string
		most int
	}{
		{"bytes of an organisation's or a member's name", MaxOrganisationName},
		{"bytes of a chain's name", MaxChainName},
		{"bytes of an asset's name", MaxAssetName},
		{"bytes of an account or of a record's key", MaxAccountPath},
		{"bytes of an alias", MaxAlias},
		{"bytes of a note", MaxNote},
		{"bytes of a record's value", MaxRecordValue},
		{"bytes of a body", MaxTransactionBytes},
		{"registrations of a transaction", MaxRegistrations},
		{"openings of a transaction", MaxOpenings},
		{"postings of a transaction", MaxPostings},
		{"records of a transaction", MaxRecords},
		{"bytes of an idempotency key", MaxIdempotencyKey},
		{"postings of a refund, or of an entry that can be refunded", MaxRefundPostings},
		{"keys of an organisation", MaxKeys},
		{"limits of a policy", MaxLimits},
		{"assets of a policy", MaxPolicyAssets},
		{"decimals of an asset", MaxDecimals},
		{"issuers of an asset", MaxIssuers},
		{"accounts of a hold", MaxHoldAccounts},
		{"registered assets of a book", MaxRegisteredAssets},
		{"registered assets of an organisation", MaxOwnAssets},
		{"limits of an account", MaxAccountLimits},
		{"metadata of an account", MaxMetadata},
		{"bytes of a key of metadata", MaxMetadataKey},
		{"bytes of a value of metadata", MaxMetadataValue},
		{"seconds of a velocity", MaxVelocitySeconds},
		{"operators", MaxOperators},
		{"members of a shard", MaxMembers},
		{"bytes of a member's key", MaxMemberKey},
		{"bytes of a member's address", MaxAddress},
		{"shards", MaxShards},
		{"indexes that members ever had", MaxMemberIndexes},
		{"transactions of a bundle", MaxBundleTransactions},
		{"signatures of a bundle", MaxBundleSignatures},
		{"assets of a packed bundle", MaxPackedAssets},
		{"bytes of a bundle", MaxBundleBytes},
		{"bundles of a batch", MaxBatchBundles},
		{"transfers in the packed bundles of a batch", MaxBatchPacked},
		{"bytes of a batch", MaxBatchBytes},
		{"verdicts of a group", MaxVerdictGroup},
		{"transactions of a block", MaxBlockTransactions},
		{"hashes of a path", maxPath},
		{"headers of a finality", MaxFinalityHeaders},
	} {
		want = append(want, []string{bound.what, strconv.Itoa(bound.most)})
	}
	if page := rows(t, "Bounds", "| bound | most |"); fmt.Sprint(page) != fmt.Sprint(want) {
		t.Errorf("the page has the bounds\n%v\nand the code\n%v", page, want)
	}
}

// The header's size is in the text, and the example is the transfer of the vectors.
func TestPageHasExamples(t *testing.T) {
	t.Parallel()
	for _, heading := range []string{"Block", "Certificate"} {
		if text := strings.Join(section(t, heading), "\n"); !strings.Contains(text,
			fmt.Sprintf("%d bytes", HeaderSize)) {
			t.Errorf("section %s does not say that a header has %d bytes", heading, HeaderSize)
		}
	}
	var vectors struct {
		Transactions []struct {
			Parts [][2]string
			Hash  string
		}
	}
	readVectors(t, "transactions.json", &vectors)
	transfer := vectors.Transactions[0]
	want := exampleRows(transfer.Parts)
	if page := rows(t, "Transaction", "| bytes | meaning |"); fmt.Sprint(page) != fmt.Sprint(want) {
		t.Errorf("the page has the example\n%v\nand the vectors have\n%v", page, want)
	}
	if !strings.Contains(strings.Join(section(t, "Transaction"), "\n"), transfer.Hash) {
		t.Errorf("the page does not have the id %s of the example", transfer.Hash)
	}
}

// The example of a packed bundle is that of the vectors, without its signatures.
func TestPageHasPackedExample(t *testing.T) {
	t.Parallel()
	var vectors struct {
		Bundles []struct {
			Parts [][2]string
			IDs   []string
			Root  string
		}
	}
	readVectors(t, "packed.json", &vectors)
	bundle := vectors.Bundles[0]
	signatures := slices.IndexFunc(bundle.Parts, func(part [2]string) bool {
		return part[0] == "signatures, count"
	})
	want := exampleRows(bundle.Parts[:signatures])
	if page := rows(t, "Bundle", "| bytes | meaning |"); fmt.Sprint(page) != fmt.Sprint(want) {
		t.Errorf("the page has the example\n%v\nand the vectors have\n%v", page, want)
	}
	text := strings.Join(section(t, "Bundle"), "\n")
	for _, hash := range []string{bundle.Root, bundle.IDs[2]} {
		if !strings.Contains(text, hash) {
			t.Errorf("the page does not have %s of the example", hash)
		}
	}
}

// readVectors reads a file of the test vectors.
func readVectors(t *testing.T, name string, vectors any) {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, vectors); err != nil {
		t.Fatal(err)
	}
}

// exampleRows returns the rows of a table with these parts.
func exampleRows(parts [][2]string) (rows [][]string) {
	for _, part := range parts {
		rows = append(rows, []string{"`" + part[1] + "`", part[0]})
	}
	return rows
}
