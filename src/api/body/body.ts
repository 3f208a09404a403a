// Parses, checks and hashes request bodies. The body of run and runsync is checked once and the bytes of its input
// are cut out unchanged: no value of an input is kept. Its hash is that of the JSON without the idempotency key:
// bodies that differ only in white space, in the order of members, or in the way in which the key came have the same
// hash.
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import type { z } from 'zod';
import { runInSlices, yieldToLoop } from '../../base/slices.ts';
import type { RunRequest } from '../../wire/job/job.ts';
import { runRequest } from '../../wire/job/job-schemas.ts';
import { CLOSE_BRACE, OPEN_BRACE } from '../../wire/json-bytes.ts';
import { describeIssues, formatPath, ProblemError } from '../../wire/problem.ts';
import {
  checkJson,
  findMember,
  hasBytes,
  isJson,
  JsonBoundError,
  type JsonBounds,
  JsonDepthError,
  SLICE_BYTES,
} from './json-check.ts';

/** The schemas would reject larger bodies too, but only after much work. */
const BODY_BOUNDS: JsonBounds = { maxDepth: 64, maxValues: 100_000 };

export interface SubmissionBody<Request> {
  /** Bytes of the `input` member: a view into the body. */
  input: Uint8Array;
  /** With an empty `input`. */
  request: Request;
}

export interface SubmissionBounds {
  /** Owner: large bodies of one user are scanned one after the other. */
  owner: string;
  maxEnvelopeBytes: number;
  /** Levels of arrays and objects in `input`. */
  maxJsonDepth: number;
}

/** @throws ProblemError `malformed`, `payload_too_large`, `invalid` */
export async function readSubmission(
  body: Buffer,
  bounds: SubmissionBounds,
): Promise<SubmissionBody<RunRequest>> {
  const small = findSmallInput(body, bounds);
  if (small) return { input: small, request: { input: {} } };
  const input = await findInput(body, bounds);
  // Most bodies have no other member: nothing is left to parse or to check.
  if (input && isBareInput(body, input)) return { input, request: { input: {} } };
  return readBeside(body, input, runRequest);
}

const BARE_START = Buffer.from('{"input":');

/**
 * The input of a small body that is `{"input":{…}}` without any space around the value, found by the engine's parser,
 * which costs less than a scan. Undefined for any other body. None is nested deeper than it is long.
 */
function findSmallInput(body: Buffer, { maxJsonDepth }: SubmissionBounds): Buffer | undefined {
  if (body.length > maxJsonDepth || !isUtf8(body)) return undefined;
  const input = body.subarray(BARE_START.length, -1);
  const isBraced = body.at(-1) === CLOSE_BRACE && input.at(-1) === CLOSE_BRACE;
  if (!isBraced || !isBareInput(body, input)) return undefined;
  try {
    JSON.parse(input.toString('utf8'));
    return input;
  } catch {
    return undefined;
  }
}

/** Whether the body is `{"input":{…}}` without any space around the value. */
export function isBareInput(body: Buffer, input: Buffer): boolean {
  const start = BARE_START.length;
  return (
    input.byteOffset - body.byteOffset === start &&
    input.length === body.length - start - 1 &&
    input[0] === OPEN_BRACE &&
    hasBytes(body, 0, BARE_START)
  );
}

/**
 * The schema must require an `input`; it sees an empty value of the same kind. A large body is
 * scanned in slices, so that other requests are served in between.
 * @throws ProblemError `malformed`, `payload_too_large`, `invalid`
 */
export async function readWithInput<S extends z.ZodType>(
  body: Buffer,
  schema: S,
  bounds: SubmissionBounds,
): Promise<SubmissionBody<z.infer<S>>> {
  return readBeside(body, await findInput(body, bounds), schema);
}

/**
 * Returns the bytes of one member of a body that is an object, and checks the whole body without parsing it.
 * Undefined without the member. @throws ProblemError `malformed`, `invalid`
 */
export async function readMember(
  body: Buffer,
  name: string,
  { maxJsonDepth, owner }: Pick<SubmissionBounds, 'maxJsonDepth' | 'owner'>,
): Promise<Buffer | undefined> {
  checkText(body);
  const search = { name, maxBesideBytes: Number.POSITIVE_INFINITY, maxDepth: maxJsonDepth };
  const found = await runInSlices(owner, findMember(body, search)).catch(refuseBeyond);
  if (!found) throw refuseMalformed();
  if (!/^\s*\{/.test(body.subarray(0, 1_024).toString('latin1'))) {
    const errors = ['body: must be an object'];
    throw new ProblemError('invalid', 'The request body must be a JSON object.', { errors });
  }
  return found.value;
}

/** Returns undefined if the body has no input. */
async function findInput(
  body: Buffer,
  { maxEnvelopeBytes, maxJsonDepth, owner }: SubmissionBounds,
): Promise<Buffer | undefined> {
  checkText(body);
  const search = { name: 'input', maxBesideBytes: maxEnvelopeBytes, maxDepth: maxJsonDepth };
  const found = await runInSlices(owner, findMember(body, search)).catch(refuseBeyond);
  if (!found) throw refuseMalformed();
  return found.value;
}

/** Parses and checks all members but the input. */
function readBeside<S extends z.ZodType>(
  body: Buffer,
  input: Buffer | undefined,
  schema: S,
): SubmissionBody<z.infer<S>> {
  const request = check(parseJson(input ? leaveOut(body, input) : body), schema);
  if (!input) throw new Error('the schema accepted a body without an input');
  return { input, request };
}

/** Returns `body` with an empty value of the same kind in place of `value`, a view into it. */
export function leaveOut(body: Buffer, value: Uint8Array): Buffer {
  const start = value.byteOffset - body.byteOffset;
  const empty = EMPTY_VALUES[String.fromCharCode(value[0] ?? 0)] ?? 'null';
  return Buffer.concat([
    body.subarray(0, start),
    Buffer.from(empty),
    body.subarray(start + value.length),
  ]);
}

const EMPTY_VALUES: Readonly<Record<string, string>> = { '{': '{}', '[': '[]', '"': '""' };

/**
 * For bodies of at most a few MB, which are parsed at once.
 * @throws ProblemError `malformed` (not UTF-8, or not JSON), `payload_too_large` (beyond `bounds`)
 */
export function parseJson(body: Buffer, bounds: JsonBounds = BODY_BOUNDS): unknown {
  checkText(body);
  if (body.length > SMALL_BODY_BYTES) checkBounds(body, bounds);
  return parse(body);
}

/**
 * Like parseJson. A body of more than one slice is checked in slices, and lets other requests run before and after
 * it is parsed. @throws ProblemError `malformed`, `payload_too_large`
 */
export async function parseInSlices(body: Buffer, owner: string): Promise<unknown> {
  if (body.length <= SLICE_BYTES) return parseJson(body);
  checkText(body);
  const isJson = await runInSlices(owner, checkJson(body, BODY_BOUNDS)).catch(refuseBeyond);
  if (!isJson) throw refuseMalformed();
  await yieldToLoop();
  const value = parse(body);
  await yieldToLoop();
  return value;
}

/** A smaller body is harmless. */
const SMALL_BODY_BYTES = 4_096;

function checkBounds(body: Buffer, bounds: JsonBounds): void {
  try {
    if (!isJson(body, bounds)) throw refuseMalformed();
  } catch (error) {
    refuseBeyond(error);
  }
}

export function refuseBeyond(error: unknown): never {
  if (!(error instanceof JsonBoundError)) throw error;
  if (error instanceof JsonDepthError) {
    throw new ProblemError('invalid', error.message, { errors: [error.message] });
  }
  throw new ProblemError('payload_too_large', `The request body is too large: ${error.message}.`);
}

export function refuseMalformed(cause?: unknown): ProblemError {
  return new ProblemError('malformed', 'The request body is not JSON.', { cause });
}

export function checkText(body: Buffer): void {
  if (body.length === 0)
    throw new ProblemError('malformed', 'The request body is empty; send JSON.');
  if (!isUtf8(body)) throw new ProblemError('malformed', 'The request body is not UTF-8.');
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (cause) {
    // The engine's message quotes the body, which may contain secrets.
    throw refuseMalformed(cause);
  }
}

/** `path`: of the value in the body. @throws ProblemError `invalid` that names every path */
export function check<S extends z.ZodType>(
  value: unknown,
  schema: S,
  path: readonly PropertyKey[] = [],
): z.infer<S> {
  const checked = schema.safeParse(value);
  const hidden = findPrototypeMember(value);
  if (checked.success && hidden === undefined) return checked.data;
  const errors = checked.success
    ? [`${formatPath([...path, hidden ?? ''])}: is not a name that a member can have`]
    : describeIssues(checked.error, 'body', path);
  throw new ProblemError('invalid', `The request body is invalid: ${errors[0]}`, { errors });
}

/** Path of a member `__proto__`, which zod drops silently from records. */
function findPrototypeMember(value: unknown): string | undefined {
  const left = [{ value, path: '' }];
  // Not recursive, because callers choose the nesting depth.
  for (let next = left.pop(); next; next = left.pop()) {
    const { path, value: holder } = next;
    if (typeof holder !== 'object' || holder === null) continue;
    for (const [name, each] of Object.entries(holder)) {
      const isObject = typeof each === 'object' && each !== null;
      if (!isObject && name !== '__proto__') continue;
      const place = path === '' ? name : `${path}.${name}`;
      if (name === '__proto__') return place;
      left.push({ value: each, path: place });
    }
  }
  return undefined;
}

/** For operations without a body: accepts nothing, or an empty object. */
export function checkNoBody(body: Buffer | undefined): void {
  if (!body || body.length === 0) return;
  const value = parseJson(body);
  const isEmpty = typeof value === 'object' && value !== null && Object.keys(value).length === 0;
  if (!isEmpty || Array.isArray(value)) {
    const errors = ['body: must be absent or an empty object'];
    throw new ProblemError('invalid', 'This operation takes no request body.', { errors });
  }
}

/** A larger input is compared by its bytes: parsing it would hold the event loop. */
const MAX_PARSED_BYTES = 1_048_576;
/** A larger body is parsed in an iteration of the event loop of its own. */
const SMALL_BYTES = 65_536;
/** Numbers that may differ although their values in JavaScript are equal. */
const LONG_NUMBER = /\d{16}/;

/** SHA-256, base64url. `body` must be JSON, and `input` the view into it that has its member `input`. */
export async function hashRequest(body: Buffer, input: Uint8Array): Promise<string> {
  if (body.length > SMALL_BYTES) await yieldToLoop();
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
