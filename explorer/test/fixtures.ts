// The fixtures are those of package ledger, which a test in Go keeps equal to what it makes
// (ledger/explorer_test.go).
import { readFileSync } from "node:fs";
import { fromHex } from "../src/lib/bytes";

export interface Fixture {
  name?: string;
  height?: number;
  hash?: string;
  header?: string;
  finality: string;
}

/** A proof in a block by bundle, and what a node says beside it. */
export interface ByBundle {
  name: string;
  id: string;
  encoded: string;
  leaf: string;
  finality: string;
  from: string;
  to: string;
  asset: string;
  amount: string;
}

interface Fixtures {
  genesis: { canonical: string; hash: string };
  other_geneses: { canonical: string; hash: string }[];
  blocks: Fixture[];
  lies: Fixture[];
  proof: string;
  id: string;
  certified: string;
  evidence: string;
  by_bundle: ByBundle[];
}

export const fixtures = JSON.parse(readFileSync("test/fixtures/finality.json", "utf8")) as Fixtures;

export const bytes = (hex: string | undefined): Uint8Array =>
  fromHex(hex ?? "") ?? new Uint8Array();
