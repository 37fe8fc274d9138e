import { sha256 as portable } from "@noble/hashes/sha2.js";

/**
 * Whether the browser's own SHA-256 is available. Browsers offer it only on https and on localhost.
 */
export const native: boolean = typeof globalThis.crypto?.subtle?.digest === "function";

export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  return native
    ? new Uint8Array(await globalThis.crypto.subtle.digest("SHA-256", bytes))
    : portable(bytes);
}
