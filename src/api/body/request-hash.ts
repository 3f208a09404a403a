// Hashes submissions as JSON, without their idempotency key: bodies that differ only in white space, in the order of
// members, or in the way in which the key came have the same hash.
import { hash } from 'node:crypto';
import { ownTurn } from '../../base/slices.ts';
import { leaveOut } from './body.ts';

/** A larger input is compared by its bytes: parsing it would hold the event loop. */
const MAX_PARSED_BYTES = 1_048_576;
/** A larger body is parsed in a turn of its own. */
const SMALL_BYTES = 65_536;
/** Numbers that may differ although their values in JavaScript are equal. */
const LONG_NUMBER = /\d{16}/;

/** SHA-256, base64url. `body` must be JSON, and `input` the view into it that has its member `input`. */
export async function hashRequest(body: Buffer, input: Uint8Array): Promise<string> {
  if (body.length > SMALL_BYTES) await ownTurn();
  return hashJson(body, input);
}

/** As `hashRequest`, at once. */
export function hashJson(body: Buffer, input: Uint8Array): string {
  const envelope: Record<string, unknown> = JSON.parse(leaveOut(body, input).toString('utf8'));
  const { idempotencyKey, ...beside } = envelope;
  const text = readParsed(input);
  const isExact = text === undefined || LONG_NUMBER.test(JSON.stringify(beside));
  const hashed = isExact
    ? Buffer.concat([Buffer.from(writeSorted(beside)), input])
    : writeSorted({ ...beside, input: JSON.parse(text) });
  return hash('sha256', hashed, 'base64url');
}

/** The text of an input that is compared as JSON; undefined if its bytes are compared. */
function readParsed(input: Uint8Array): string | undefined {
  if (input.length > MAX_PARSED_BYTES) return undefined;
  const text = Buffer.from(input.buffer, input.byteOffset, input.length).toString('utf8');
  return LONG_NUMBER.test(text) ? undefined : text;
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
