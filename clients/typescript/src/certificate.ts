// Certificates: they prove with the genesis alone that a block is final.
//
// Members sign that they stored a block. The signatures of more than half of the members are its
// certificate. Members of the beginning are those of the genesis; a join or a leave is in a block
// that the members before it certify. So certificates lead from the genesis to the members of any
// block, and an Auditor follows them. docs/certificates.md says what a reader still has to trust.

import {
  boolean,
  concat,
  domain,
  elements,
  equal,
  fixed,
  MalformedError,
  Reader,
  SIGNATURE_SIZE,
  string,
  uint,
} from "./codec.js";
import { verify } from "./ed25519.js";
import type { Genesis } from "./genesis.js";
import { ProofError } from "./merkle.js";
import * as names from "./names.js";
import { blockHash, decodeHeader, type Header, HEADER_SIZE, Proof } from "./proof.js";
import { type Change, type Member, MembershipChange } from "./transaction.js";

const STATEMENT_DOMAIN = domain("ledgerd/stored/1");
const PATH_BYTES_MAX = 1 + names.PATH_HASHES_MAX * 32;
const PROOF_BYTES_MAX =
  names.BODY_MAX +
  HEADER_SIZE +
  3 * PATH_BYTES_MAX +
  4 * 32 +
  64 +
  names.BUNDLE_SIGNATURES_MAX * (names.ORGANISATION_MAX + 100);
const CERTIFICATE_BYTES_MAX =
  1 + 8 + 8 + 32 + 5 + names.MEMBERS_MAX * (4 + SIGNATURE_SIZE) + 1 + 5 + PROOF_BYTES_MAX;
export const FINALITY_BYTES_MAX = 64 << 20;

/** A certificate that does not hold. */
export class CertificateError extends Error {
  override name = "CertificateError";
}

/** A member's signature of a block. */
export interface Seal {
  member: number;
  signature: Uint8Array;
}

/** Returns what a member signs of a block that it stored. */
export function statementMessage(
  chain: Uint8Array,
  epoch: bigint,
  height: bigint,
  hash: Uint8Array,
): Uint8Array {
  return concat(STATEMENT_DOMAIN, chain, uint(epoch, 8), uint(height, 8), hash);
}

/** Statements of several members about one block. */
export class Certificate {
  constructor(
    readonly epoch: bigint, // joins and leaves in the blocks before
    readonly height: bigint,
    readonly hash: Uint8Array,
    readonly seals: Seal[],
    readonly change?: Proof, // of the join or leave in the block, if it has one
  ) {}

  /** Returns the canonical bytes. */
  encode(): Uint8Array {
    const seals = this.seals.map((each) =>
      concat(uint(each.member, 4), fixed(each.signature, SIGNATURE_SIZE, "a signature")),
    );
    return concat(
      Uint8Array.of(1),
      uint(this.epoch, 8),
      uint(this.height, 8),
      this.hash,
      elements(seals),
      boolean(this.change !== undefined),
      this.change ? string(this.change.encode()) : new Uint8Array(),
    );
  }

  /** Decodes a certificate, or throws MalformedError. It does not verify it. */
  static decode(data: Uint8Array): Certificate {
    const r = new Reader(data);
    const version = r.byte();
    if (version !== 1) throw new MalformedError(`certificate version ${version}`);
    const [epoch, height, hash] = [r.uint64(), r.uint64(), r.hash()];
    let before = -1;
    const seals = r.list("seals", names.MEMBERS_MAX, 4 + SIGNATURE_SIZE, () => {
      const seal = { member: r.uint32(), signature: r.take(SIGNATURE_SIZE) };
      if (seal.member >= names.MEMBER_INDEXES_MAX || seal.member <= before) {
        throw new MalformedError("seals not in the order of their members");
      }
      before = seal.member;
      return seal;
    });
    if (!height || !seals.length) {
      throw new MalformedError("a certificate of the genesis, or without signatures");
    }
    const change = r.boolean() ? r.string("bytes of proof", PROOF_BYTES_MAX) : undefined;
    r.end();
    return new Certificate(epoch, height, hash, seals, change && Proof.decode(change));
  }

  /** Returns the verified join or leave in the block, or throws CertificateError. */
  membershipChange(): Extract<Change, { kind: "join" | "leave" }> {
    const proof = this.change;
    if (!proof || !equal(proof.parts.blockHash, this.hash)) {
      throw new CertificateError(
        `block ${this.height}: it does not prove the change of the members`,
      );
    }
    let change: MembershipChange;
    try {
      proof.verify();
      change = MembershipChange.decode(proof.parts.body);
    } catch (error) {
      if (!(error instanceof ProofError || error instanceof MalformedError)) throw error;
      throw new CertificateError(
        `the change of the members in block ${this.height}: ${error.message}`,
      );
    }
    if (proof.block().height !== this.height) {
      throw new CertificateError(
        `block ${this.height}: the header of its change has another height`,
      );
    }
    const what = change.change;
    if ((what.kind !== "join" && what.kind !== "leave") || !proof.applied) {
      throw new CertificateError(`block ${this.height}: the transaction changed no members`);
    }
    return what;
  }
}

/** Leads from the genesis to a block. */
export class Finality {
  constructor(
    readonly changes: Certificate[], // of all joins and leaves before the certified block, in order
    readonly headers: Uint8Array[], // of the blocks after the proven one, up to the certified one
    readonly certificate: Certificate,
  ) {}

  /** Returns the canonical bytes. */
  encode(): Uint8Array {
    return concat(
      Uint8Array.of(1),
      elements(this.changes.map((each) => string(each.encode()))),
      elements(this.headers),
      string(this.certificate.encode()),
    );
  }

  /** Decodes it, or throws MalformedError. It does not verify it. */
  static decode(data: Uint8Array): Finality {
    const r = new Reader(data);
    const version = r.byte();
    if (version !== 1) throw new MalformedError(`finality version ${version}`);
    const certificate = () =>
      Certificate.decode(r.string("bytes of certificate", CERTIFICATE_BYTES_MAX));
    const finality = new Finality(
      r.list("changes", 2 * names.MEMBER_INDEXES_MAX, 128, certificate),
      r.list("headers", names.FINALITY_HEADERS_MAX, HEADER_SIZE, () => r.take(HEADER_SIZE)),
      certificate(),
    );
    r.end();
    return finality;
  }
}

/** Follows a chain's members from the genesis, from certificate to certificate. */
export class Auditor {
  readonly chain: Uint8Array;
  epoch = 0n;
  since = 0n; // the height of the block that began the epoch
  members: Map<number, Member>;
  #next: number;

  /** Begins with the members of the genesis. */
  constructor(genesis: Genesis) {
    this.chain = genesis.hash();
    this.members = new Map(genesis.members.entries());
    this.#next = this.members.size;
  }

  /** How many members have to sign: more than half. */
  get majority(): number {
    return Math.floor(this.members.size / 2) + 1;
  }

  /** Throws CertificateError unless the present members certify the block. */
  check(certificate: Certificate): void {
    const { height, epoch, seals } = certificate;
    if (epoch !== this.epoch) {
      throw new CertificateError(
        `block ${height} is certified by members of epoch ${epoch}, not ${this.epoch}`,
      );
    }
    if (height <= this.since) {
      throw new CertificateError(
        `block ${height} is not of epoch ${epoch}, which began at block ${this.since}`,
      );
    }
    if (seals.length < this.majority) {
      throw new CertificateError(
        `${seals.length} of ${this.members.size} members signed block ${height}`,
      );
    }
    const message = statementMessage(this.chain, epoch, height, certificate.hash);
    let before = -1;
    for (const seal of seals) {
      const member = this.members.get(seal.member);
      if (seal.member <= before || !member) {
        throw new CertificateError(
          `of block ${height}: ${seal.member} is no member of epoch ${epoch}, or signed twice`,
        );
      }
      before = seal.member;
      if (!verify(member.key, seal.signature, message)) {
        throw new CertificateError(`the signature of member ${seal.member} of block ${height}`);
      }
    }
  }

  /** Goes on to the members after a join or leave. It passes over those of old epochs. */
  follow(certificate: Certificate): void {
    if (certificate.epoch < this.epoch) return;
    this.check(certificate);
    const change = certificate.membershipChange();
    const members = new Map(this.members);
    if (change.kind === "join") {
      // The transaction may repeat what was so. The member would count twice.
      if ([...members.values()].some((each) => equal(each.key, change.member.key))) {
        throw new CertificateError(
          `the member that joined at block ${certificate.height} was one`,
        );
      }
      members.set(this.#next++, change.member);
    } else if (members.size < 2 || !members.delete(change.index)) {
      throw new CertificateError(
        `member ${change.index} left at block ${certificate.height}, and was none or the last one`,
      );
    }
    [this.members, this.epoch, this.since] = [members, this.epoch + 1n, certificate.height];
  }

  /** Throws CertificateError unless the block is final. */
  verify(finality: Finality, height: bigint, hash: Uint8Array): void {
    let [at, last] = [height, hash];
    for (const encoded of finality.headers) {
      let header: Header;
      try {
        header = decodeHeader(encoded);
      } catch (error) {
        throw new CertificateError(`a header after block ${height}: ${error}`);
      }
      if (header.height !== at + 1n || !equal(header.previous, last)) {
        throw new CertificateError(`a header does not follow block ${at}`);
      }
      [at, last] = [header.height, blockHash(encoded)];
    }
    const certificate = finality.certificate;
    if (certificate.height !== at || !equal(certificate.hash, last)) {
      throw new CertificateError(`it is of block ${certificate.height}, not of block ${at}`);
    }
    const first = finality.changes[0]?.epoch ?? 0n;
    finality.changes.forEach((change, i) => {
      if (change.epoch !== first + BigInt(i)) {
        throw new CertificateError("the changes of the members are not in order");
      }
      this.follow(change);
    });
    this.check(certificate);
  }

  /** Returns the names of the members that signed a certificate that holds. */
  signers(certificate: Certificate): string[] {
    return certificate.seals.map((seal) => this.members.get(seal.member)?.name ?? "");
  }
}

/**
 * Throws CertificateError unless the block is final in the chain of the genesis. Returns the
 * auditor, which knows the members that certified it.
 */
export function certified(
  genesis: Genesis,
  finality: Finality | undefined,
  height: bigint,
  hash: Uint8Array,
): Auditor {
  if (!finality) throw new CertificateError(`block ${height}: it has no certificate`);
  const auditor = new Auditor(genesis);
  auditor.verify(finality, height, hash);
  return auditor;
}

/** A proof, and what shows that its block is final: the content of a .proof file. */
export class CertifiedProof {
  constructor(
    readonly proof: Proof,
    readonly finality?: Finality,
  ) {}

  /**
   * Throws ProofError or CertificateError unless it holds from the genesis on. Returns the auditor,
   * which knows the members that certified the block.
   */
  verify(genesis: Genesis): Auditor {
    this.proof.verify();
    const height = this.proof.block().height;
    return certified(genesis, this.finality, height, this.proof.parts.blockHash);
  }

  /** Returns the canonical bytes. */
  encode(): Uint8Array {
    if (!this.finality) return this.proof.encode();
    return concat(Uint8Array.of(2), string(this.finality.encode()), this.proof.encode());
  }

  /** Decodes it, or throws MalformedError. It does not verify it. */
  static decode(data: Uint8Array): CertifiedProof {
    if (data[0] !== 2) return new CertifiedProof(Proof.decode(data));
    const r = new Reader(data.slice(1));
    const finality = Finality.decode(r.string("bytes of finality", FINALITY_BYTES_MAX));
    return new CertifiedProof(Proof.decode(r.take(r.left)), finality);
  }
}
