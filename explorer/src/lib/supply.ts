// Words on the supply of a registered asset.
import type { Asset } from "../gen/ledgerd/v1/assets_pb";
import { formatAmount } from "./format";

/** What is promised of the supply: "capped: at most 1,000.00 outstanding". */
export function promise(asset: Asset): string {
  const decimals = asset.terms?.decimals ?? 0;
  const cap = formatAmount(asset.terms?.cap || "0", { decimals });
  switch (asset.terms?.supply) {
    case "capped":
      return `capped: at most ${cap} outstanding`;
    case "fixed":
      return `fixed: at most ${cap} ever issued`;
    default:
      return "unlimited";
  }
}
