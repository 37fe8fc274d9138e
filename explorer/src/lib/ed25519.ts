// Ed25519 by the browser's own WebCrypto (https://wicg.github.io/webcrypto-secure-curves). Browsers
// offer it only on https and on localhost, and old ones do not have it.
import { concatBytes, fromHex } from "./bytes";

/** Reports whether a signature of a message is good. */
export type Verify = (
  key: Uint8Array,
  message: Uint8Array,
  signature: Uint8Array,
) => Promise<boolean>;

export type Ed25519 = { verify: Verify; missing?: undefined } | { missing: string };

const algorithm = { name: "Ed25519" };
const order = 2n ** 255n - 19n;
const root = 2707385501144840649318225287225658788936804267575313519463743609750303021n;
/** The y coordinates of points of small order. Anybody can sign with such a key. */
const smallOrder: readonly bigint[] = [0n, 1n, root, order - root, order - 1n, order, order + 1n];

// The first test of RFC 8032, section 7.1: of the empty message.
const testKey = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const testSignature =
  "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155" +
  "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";

function hasSmallOrder(key: Uint8Array): boolean {
  let y = 0n;
  for (let i = key.length - 1; i >= 0; i--)
    y = (y << 8n) | BigInt(i === 31 ? (key[i] ?? 0) & 0x7f : (key[i] ?? 0));
  return smallOrder.includes(y);
}

async function verify(
  key: Uint8Array,
  message: Uint8Array,
  signature: Uint8Array,
): Promise<boolean> {
  if (key.length !== 32 || signature.length !== 64 || hasSmallOrder(key)) return false;
  const { subtle } = globalThis.crypto;
  try {
    const imported = await subtle.importKey("raw", concatBytes(key), algorithm, false, ["verify"]);
    return await subtle.verify(algorithm, imported, concatBytes(signature), concatBytes(message));
  } catch {
    return false; // The key is no point of the curve.
  }
}

/** Returns the browser's Ed25519, or why it has none. */
export async function ed25519(): Promise<Ed25519> {
  if (typeof globalThis.crypto?.subtle?.verify !== "function")
    return {
      missing:
        "Browsers verify signatures only on pages from https or from localhost, " +
        "and this page is from neither.",
    };
  const none = new Uint8Array();
  const works = await verify(fromHex(testKey) ?? none, none, fromHex(testSignature) ?? none);
  return works ? { verify } : { missing: "This browser does not know Ed25519 signatures." };
}
