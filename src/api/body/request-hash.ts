// Hashes request bodies as JSON: bodies that differ only in white space and the order of members
// have the same hash.
import { hash } from 'node:crypto';
import { ownTurn } from '../../base/slices.ts';

/** A larger body is compared by its bytes: parsing it would hold the event loop. */
const MAX_PARSED_BYTES = 1_048_576;
/** A larger body is parsed in a turn of its own. */
const SMALL_BYTES = 65_536;
/** Numbers that may differ although their values in JavaScript are equal. */
const LONG_NUMBER = /\d{16}/;

export interface RequestHashes {
  /** Hash of the body as JSON. Equal to `bytesHash` if the body is compared by its bytes. */
  requestHash: string;
  bytesHash: string;
}

/** SHA-256, base64url. `body` must be JSON. */
export async function hashRequest(body: Buffer): Promise<RequestHashes> {
  if (body.length > SMALL_BYTES) await ownTurn();
  return hashJson(body);
}

/** As `hashRequest`, at once. */
export function hashJson(body: Buffer): RequestHashes {
  const bytesHash = hash('sha256', body, 'base64url');
  if (body.length > MAX_PARSED_BYTES) return { requestHash: bytesHash, bytesHash };
  const text = body.toString('utf8');
  if (LONG_NUMBER.test(text)) return { requestHash: bytesHash, bytesHash };
  return { requestHash: hash('sha256', writeSorted(JSON.parse(text)), 'base64url'), bytesHash };
}

/** Recursive: the levels of a body are bounded. */
function writeSorted(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(writeSorted).join()}]`;
  const members = Object.entries(value)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, member]) => `${JSON.stringify(name)}:${writeSorted(member)}`);
  return `{${members.join()}}`;
}
