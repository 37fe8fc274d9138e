// Ed25519 signatures by the ledger's exact rules: the verification equation with the cofactor; S
// below the group's order; R and the key canonical encodings of points; a key of small order is
// refused. Libraries differ in these, WebCrypto's implementations too, and a reader has to agree
// with all nodes. The strict mode of @noble/curves has the same rules, which
// ledger/testdata/ed25519-edge-cases.txt checks.

import { ed25519 } from "@noble/curves/ed25519";
import { fixed, hex, KEY_SIZE, SIGNATURE_SIZE } from "./codec.js";

/** Reports whether the key signed the message. */
export function verify(key: Uint8Array, signature: Uint8Array, message: Uint8Array): boolean {
  if (key.length !== KEY_SIZE || signature.length !== SIGNATURE_SIZE) return false;
  try {
    return ed25519.verify(signature, message, key, { zip215: false });
  } catch {
    return false; // no point, or S too large
  }
}

/** A private key of ed25519. */
export class PrivateKey {
  readonly public: Uint8Array;
  readonly #seed: Uint8Array;

  /** Makes the key of a seed of 32 bytes. */
  constructor(seed: Uint8Array) {
    this.#seed = fixed(seed, KEY_SIZE, "a seed").slice();
    this.public = ed25519.getPublicKey(this.#seed);
  }

  /** Makes a new random key. */
  static generate(): PrivateKey {
    return new PrivateKey(ed25519.utils.randomPrivateKey());
  }

  sign(message: Uint8Array): Uint8Array {
    return ed25519.sign(message, this.#seed);
  }

  /** Returns the 32 bytes that the key is made of. Keep them secret. */
  seed(): Uint8Array {
    return this.#seed.slice();
  }

  toString(): string {
    return `PrivateKey(public=${hex(this.public)})`;
  }
}
