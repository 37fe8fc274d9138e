import type { BlockHeader } from "../gen/ledgerd/v1/proofs_pb";
import type { Cell } from "./csv";
import { isoTime } from "./format";

export const csvHeader = [
  "height",
  "hash",
  "previous",
  "time",
  "epoch",
  "round",
  "transactions",
  "failed",
  "size_bytes",
  "level",
] as const;

export function csvRow(block: BlockHeader, level: string): Cell[] {
  return [
    block.height,
    block.hashHex,
    block.previousHex,
    isoTime(Number(block.timeMs)),
    block.epoch,
    block.round,
    block.transactionCount,
    block.failedCount,
    block.sizeBytes,
    level.toLowerCase(),
  ];
}
