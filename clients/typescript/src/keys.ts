// Key files, as `ledgerd keys create` writes them.
//
// A plain file is the key as openssl reads it (PKCS #8), after a line with the organisation's name.
// A file with a passphrase has the public key, and after it a plain file that age encrypted with
// scrypt. A hostile file costs at most one scrypt with N = 2^18. Files themselves are the caller's:
// a browser has none.

import { chacha20poly1305 } from "@noble/ciphers/chacha";
import { hkdf } from "@noble/hashes/hkdf";
import { hmac } from "@noble/hashes/hmac";
import { scryptAsync } from "@noble/hashes/scrypt";
import { sha256 } from "@noble/hashes/sha2";
import { OPERATOR } from "./bundle.js";
import {
  base64,
  concat,
  equal,
  fromBase64,
  fromHex,
  KEY_SIZE,
  MalformedError,
  textOf,
  utf8,
} from "./codec.js";
import { PrivateKey } from "./ed25519.js";
import * as names from "./names.js";

const FILE_BYTES_MAX = 16 << 10;
const WORK_MAX = 18;
const CHUNK = 64 << 10;
const BLOCK = /-----BEGIN ([A-Z0-9 ]+)-----\n([^]*?)-----END \1-----\s*/g;
const HEADERS = ["Organisation", "Signer-Command", "Signer-Socket"];
// The encodings of an ed25519 key (RFC 8410), before the seed and before the public key.
const PKCS8 = fromHex("302e020100300506032b657004220420");
const SPKI = fromHex("302a300506032b6570032100");
const AGE = new RegExp(
  "^age-encryption\\.org/v1\\n-> scrypt ([A-Za-z0-9+/]{22}) ([1-9][0-9]?)\\n" +
    "([A-Za-z0-9+/]{43})\\n--- ([A-Za-z0-9+/]{43})\\n",
);

/** A file that is damaged, is no key file, or has its key elsewhere. */
export class KeyFileError extends Error {
  override name = "KeyFileError";
}

/** A passphrase that is wrong, or missing. */
export class PassphraseError extends Error {
  override name = "PassphraseError";
}

/** The content of a key file. */
export class KeyFile {
  constructor(
    readonly organisation: string, // "" for an operator
    readonly publicKey: Uint8Array,
    private readonly key?: PrivateKey,
    private readonly sealed?: Uint8Array,
  ) {}

  /** Whether the file has a passphrase. */
  get encrypted(): boolean {
    return this.sealed !== undefined;
  }

  /** Returns the private key. Rejects with PassphraseError or KeyFileError. */
  async private(passphrase = ""): Promise<PrivateKey> {
    if (this.key) return this.key;
    if (!this.sealed) {
      throw new KeyFileError("the key is not in the file, but with an external signer");
    }
    if (!passphrase) throw new PassphraseError("the key file has a passphrase, none was given");
    const inside = parseKeyFile(textOf(await decrypt(this.sealed, utf8(passphrase))));
    if (
      !inside.key ||
      !equal(inside.publicKey, this.publicKey) ||
      inside.organisation !== this.organisation
    ) {
      throw new KeyFileError("the key within is not that of the public key before it");
    }
    return inside.key;
  }
}

/** Parses the text of a key file, or throws KeyFileError. It does not decrypt. */
export function parseKeyFile(text: string): KeyFile {
  if (text.length > FILE_BYTES_MAX) {
    throw new KeyFileError(`a key file of more than ${FILE_BYTES_MAX} bytes`);
  }
  try {
    return parse(text.replaceAll("\r\n", "\n"));
  } catch (error) {
    if (!(error instanceof MalformedError)) throw error;
    throw new KeyFileError(`damaged key file: ${error.message}`);
  }
}

function parse(text: string): KeyFile {
  const [first, second, ...more] = [...text.matchAll(BLOCK)];
  if (!first) throw new KeyFileError("it holds no key in PEM");
  const [kind, content] = [first[1] ?? "", first[2] ?? ""];
  // Files of earlier versions have the headers within the block.
  const at = content.indexOf("\n\n");
  const headers = new Map(at < 0 ? [] : lines(content.slice(0, at)));
  for (const [name, value] of lines(text.slice(0, first.index))) {
    if (headers.has(name)) throw new KeyFileError(`it has the header ${name} twice`);
    headers.set(name, value);
  }
  const organisation = headers.get("Organisation") ?? OPERATOR;
  if (organisation !== OPERATOR) names.organisation(organisation);
  const der = unwrapped(at < 0 ? content : content.slice(at));
  if (kind === "PRIVATE KEY") {
    const key = new PrivateKey(after(PKCS8, der));
    return new KeyFile(organisation, key.public, key);
  }
  if (kind !== "PUBLIC KEY") {
    throw new KeyFileError(`it holds no private key in PEM, but a block ${kind}`);
  }
  const publicKey = after(SPKI, der);
  if (headers.has("Signer-Command") || headers.has("Signer-Socket")) {
    return new KeyFile(organisation, publicKey);
  }
  if (second?.[1] !== "AGE ENCRYPTED FILE" || more.length) {
    throw new KeyFileError("it holds a public key only");
  }
  return new KeyFile(organisation, publicKey, undefined, unwrapped(second[2] ?? ""));
}

function unwrapped(text: string): Uint8Array {
  return fromBase64(text.replace(/\s/g, ""));
}

function after(prefix: Uint8Array, der: Uint8Array): Uint8Array {
  if (der.length !== prefix.length + KEY_SIZE || !equal(der.slice(0, prefix.length), prefix)) {
    throw new KeyFileError("it holds no ed25519 key");
  }
  return der.slice(prefix.length);
}

function lines(text: string): [string, string][] {
  return text.split("\n").flatMap((line): [string, string][] => {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(colon, 0)).trim();
    return HEADERS.includes(name) ? [[name, line.slice(colon + 1).trim()]] : [];
  });
}

/** Returns the text of a new plain key file. Write it where its owner alone can read it. */
export function plainKeyFile(organisation: string, key: PrivateKey): string {
  const named = organisation === OPERATOR ? "" : names.organisation(organisation);
  const header = named && `Organisation: ${named}\n`;
  const body = base64(concat(PKCS8, key.seed()));
  return `${header}-----BEGIN PRIVATE KEY-----\n${body}\n-----END PRIVATE KEY-----\n`;
}

// Decodes base64 without padding, in its only form.
function unpadded(text: string): Uint8Array {
  return fromBase64(text + "=".repeat((4 - (text.length % 4)) % 4));
}

function derived(key: Uint8Array, salt: Uint8Array | undefined, purpose: string): Uint8Array {
  return hkdf(sha256, key, salt, purpose, 32);
}

// Decrypts an age file with one scrypt stanza.
async function decrypt(data: Uint8Array, passphrase: Uint8Array): Promise<Uint8Array> {
  // The header is ASCII. As Latin-1 each byte is one character, so that places are alike.
  const head = Array.from(data.slice(0, 512), (each) => String.fromCharCode(each)).join("");
  const found = AGE.exec(head);
  const [all, salt, factor, wrapped, mac] = found ?? [];
  if (!all || !salt || !factor || !wrapped || !mac) {
    throw new KeyFileError("it is not encrypted with a passphrase alone, as age does it");
  }
  const work = Number(factor);
  if (work > WORK_MAX) {
    throw new KeyFileError(`its passphrase asks for scrypt with N = 2^${work}, too much`);
  }
  const salted = concat(utf8("age-encryption.org/v1/scrypt"), unpadded(salt));
  const cost = { N: 2 ** work, r: 8, p: 1, dkLen: 32 };
  const wrapping = await scryptAsync(passphrase, salted, cost);
  let fileKey: Uint8Array;
  try {
    fileKey = chacha20poly1305(wrapping, new Uint8Array(12)).decrypt(unpadded(wrapped));
  } catch {
    throw new PassphraseError("wrong passphrase");
  }
  const header = data.slice(0, all.length - mac.length - 2);
  const expected = hmac(sha256, derived(fileKey, undefined, "header"), header);
  if (!equal(expected, unpadded(mac))) throw new KeyFileError("damaged age file: its header");
  const [nonce, payload] = [data.slice(all.length, all.length + 16), data.slice(all.length + 16)];
  if (payload.length < 16 || payload.length > CHUNK + 16) {
    throw new KeyFileError("damaged age file: it is cut short, or is no key");
  }
  const last = new Uint8Array(12); // one chunk, which is the last one
  last[11] = 1;
  try {
    return chacha20poly1305(derived(fileKey, nonce, "payload"), last).decrypt(payload);
  } catch {
    throw new KeyFileError("damaged age file: its content");
  }
}
