// Bundles: transactions that are signed together, once for each organisation.
//
// A bundle holds the bodies of transactions of any kind; packed.ts has the other form, for plain
// transfers of one signer.

import { checkBody } from "./body.js";
import {
  concat,
  domain,
  elements,
  fixed,
  KEY_SIZE,
  MalformedError,
  Reader,
  SIGNATURE_SIZE,
  string,
} from "./codec.js";
import { type PrivateKey, verify } from "./ed25519.js";
import { leafHash, rootOf } from "./merkle.js";
import * as names from "./names.js";
import { transactionId } from "./transaction.js";

/** The name under which operators sign. */
export const OPERATOR = "";

const SIGNING_DOMAIN = domain("ledgerd/bundle/1");
const PACKED_SIGNING_DOMAIN = domain("ledgerd/bundle/2");

/** Returns what the signatures of a bundle sign. */
export function signingMessage(root: Uint8Array, packed: boolean): Uint8Array {
  return concat(packed ? PACKED_SIGNING_DOMAIN : SIGNING_DOMAIN, root);
}

/** An organisation's signature of a bundle, by one of its keys. */
export interface Signature {
  organisation: string;
  key: Uint8Array;
  signature: Uint8Array;
}

/** Reports whether it signs the message. Whose key it is has to come from elsewhere. */
export function verifySignature(each: Signature, message: Uint8Array): boolean {
  return verify(each.key, each.signature, message);
}

function encodeSignature(each: Signature): Uint8Array {
  if (each.organisation !== OPERATOR) names.organisation(each.organisation);
  return concat(
    string(each.organisation),
    fixed(each.key, KEY_SIZE, "a key"),
    fixed(each.signature, SIGNATURE_SIZE, "a signature"),
  );
}

export function encodeSignatures(signatures: Signature[]): Uint8Array {
  return elements(signatures.map(encodeSignature));
}

export function readSignatures(r: Reader): Signature[] {
  return r.list("signatures", names.BUNDLE_SIGNATURES_MAX, 97, () => {
    const organisation = r.text("bytes of organisation", names.ORGANISATION_MAX);
    if (organisation !== OPERATOR) names.organisation(organisation);
    return { organisation, key: r.take(KEY_SIZE), signature: r.take(SIGNATURE_SIZE) };
  });
}

/** Returns a bundle's content with its signatures, or throws if that is more than a node takes. */
export function signedBytes(content: Uint8Array, signatures: Signature[]): Uint8Array {
  if (signatures.length > names.BUNDLE_SIGNATURES_MAX) {
    throw new MalformedError(
      `${signatures.length} signatures, at most ${names.BUNDLE_SIGNATURES_MAX} allowed`,
    );
  }
  const encoded = concat(content, encodeSignatures(signatures));
  if (encoded.length > names.BUNDLE_BYTES_MAX) {
    throw new MalformedError(
      `a bundle of ${encoded.length} bytes, at most ${names.BUNDLE_BYTES_MAX} allowed`,
    );
  }
  return encoded;
}

/** Bodies of transactions, and signatures over all of them at once. */
export class Bundle {
  constructor(
    readonly bodies: Uint8Array[],
    public signatures: Signature[] = [],
  ) {
    if (bodies.length < 1 || bodies.length > names.BUNDLE_TRANSACTIONS_MAX) {
      throw new MalformedError(
        `a bundle of ${bodies.length} transactions, 1 to ${names.BUNDLE_TRANSACTIONS_MAX} allowed`,
      );
    }
  }

  /** Makes a bundle of transactions, to be signed. */
  static of(transactions: { encode(): Uint8Array }[]): Bundle {
    return new Bundle(transactions.map((each) => each.encode()));
  }

  ids(): Uint8Array[] {
    return this.bodies.map(transactionId);
  }

  /** Returns the root of the tree over the ids. */
  root(): Uint8Array {
    return rootOf(this.ids().map(leafHash));
  }

  /** Returns what is signed. */
  message(): Uint8Array {
    return signingMessage(this.root(), false);
  }

  /** Adds a signature, and returns the bundle. */
  sign(organisation: string, key: PrivateKey): this {
    this.signatures.push({ organisation, key: key.public, signature: key.sign(this.message()) });
    return this;
  }

  /** Returns the canonical bytes, signatures included. Throws MalformedError. */
  encode(): Uint8Array {
    const content = concat(Uint8Array.of(1), elements(this.bodies.map(string)));
    return signedBytes(content, this.signatures);
  }

  /** Decodes a bundle of bodies, or throws MalformedError. Signatures are not verified. */
  static decode(data: Uint8Array): Bundle {
    if (data.length > names.BUNDLE_BYTES_MAX) {
      throw new MalformedError(`a bundle of ${data.length} bytes`);
    }
    const r = new Reader(data);
    const version = r.byte();
    if (version !== 1) throw new MalformedError(`bundle version ${version}`);
    const bodies = r.list("transactions", names.BUNDLE_TRANSACTIONS_MAX, 2, () =>
      r.string("bytes of transaction", names.BODY_MAX),
    );
    const signatures = readSignatures(r);
    r.end();
    bodies.forEach(checkBody);
    return new Bundle(bodies, signatures);
  }
}

/**
 * Splits transactions, in order, into as few bundles as fit, to be signed once each. A bundle has
 * at most `most` transactions, and leaves room for the most signatures.
 */
export function bundlesOf(
  transactions: { encode(): Uint8Array }[],
  most: number = names.BUNDLE_TRANSACTIONS_MAX,
): Bundle[] {
  const room = names.BUNDLE_BYTES_MAX - 16 - names.BUNDLE_SIGNATURES_MAX * 161;
  const bundles: Bundle[] = [];
  let [bodies, size]: [Uint8Array[], number] = [[], 0];
  for (const each of transactions) {
    const body = each.encode();
    if (bodies.length && (size + body.length + 3 > room || bodies.length === most)) {
      bundles.push(new Bundle(bodies));
      [bodies, size] = [[], 0];
    }
    bodies.push(body);
    size += body.length + 3;
  }
  if (bodies.length) bundles.push(new Bundle(bodies));
  return bundles;
}
