// The body of run and runsync: checked once, and the input's bytes cut out of it as they came. What an
// input holds is nobody's business here: of it there is no more than these bytes.
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import type { z } from 'zod';
import { describeIssues } from '../wire/issues.ts';
import type { RunRequest } from '../wire/job.ts';
import { runRequest } from '../wire/job-schemas.ts';
import { ProblemError } from '../wire/problem.ts';
import { isJson } from './json-check.ts';

export interface SubmissionBody<Request> {
  /** The bytes of the `input` member: a view into the body. */
  input: Uint8Array;
  /** With an empty `input`. */
  request: Request;
}

/** @throws ProblemError `malformed`, `invalid` */
export function readSubmission(body: Buffer): SubmissionBody<RunRequest> {
  return readWithInput(body, runRequest);
}

/**
 * The schema has to ask for an `input`; what it sees there is an empty one of the same kind.
 * @throws ProblemError `malformed`, `invalid`
 */
export function readWithInput<S extends z.ZodType>(
  body: Buffer,
  schema: S,
): SubmissionBody<z.infer<S>> {
  checkText(body);
  const input = sliceMember(body, 'input');
  const rest = parse(input ? leaveOut(body, input) : body);
  if (input) checkInput(input);
  const request = check(rest, schema);
  if (!input) throw new Error('the body has an input and the scan has not found it');
  return { input, request };
}

/**
 * `body` with an empty value in the place of this one. If that is JSON, the scan went right; and if the
 * value is JSON as well, so is the body.
 */
function leaveOut(body: Buffer, value: Buffer): Buffer {
  const start = value.byteOffset - body.byteOffset;
  const empty = EMPTY_VALUES[String.fromCharCode(value[0] ?? 0)] ?? 'null';
  return Buffer.concat([
    body.subarray(0, start),
    Buffer.from(empty),
    body.subarray(start + value.length),
  ]);
}

const EMPTY_VALUES: Readonly<Record<string, string>> = { '{': '{}', '[': '[]', '"': '""' };

/** Up to here the engine's parser is faster, and what it makes is little. */
const SMALL_INPUT_BYTES = 65_536;

/** @throws ProblemError `malformed` */
function checkInput(input: Buffer): void {
  if (input.length <= SMALL_INPUT_BYTES) parse(input);
  else if (!isJson(input)) throw new ProblemError('malformed', 'the body is not JSON');
}

/** SHA-256 of a whole body, base64url. */
export function hashBody(body: Buffer): string {
  return hash('sha256', body, 'base64url');
}

/** @throws ProblemError `malformed` for what is not UTF-8 or not JSON */
export function parseJson(body: Buffer): unknown {
  checkText(body);
  return parse(body);
}

function checkText(body: Buffer): void {
  if (body.length === 0)
    throw new ProblemError('malformed', 'the body is empty; it has to be JSON');
  if (!isUtf8(body)) throw new ProblemError('malformed', 'the body is not UTF-8');
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (cause) {
    // The engine's message quotes the body, which may hold secrets of the caller's.
    throw new ProblemError('malformed', 'the body is not JSON', { cause });
  }
}

/** @throws ProblemError `invalid` naming every path */
export function check<S extends z.ZodType>(value: unknown, schema: S): z.infer<S> {
  const checked = schema.safeParse(value);
  if (checked.success) return checked.data;
  const errors = describeIssues(checked.error);
  throw new ProblemError('invalid', `the body is not as it has to be: ${errors[0]}`, { errors });
}

/** For operations that take none: nothing, or an empty object, is let through. */
export function checkNoBody(body: Buffer | undefined): void {
  if (!body || body.length === 0) return;
  const value = parseJson(body);
  const isEmpty = typeof value === 'object' && value !== null && Object.keys(value).length === 0;
  if (!isEmpty || Array.isArray(value)) {
    const errors = ['body: must be absent or an empty object'];
    throw new ProblemError('invalid', 'this operation takes no body', { errors });
  }
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * The bytes of a top-level member's value, without the white space around it; of several with the
 * name the last, as JSON.parse has it. Linear. Nothing is checked: of what is no JSON object, it may be
 * anything.
 */
export function sliceMember(json: Buffer, name: string): Buffer | undefined {
  const nameBytes = Buffer.from(name);
  let found: Buffer | undefined;
  let at = json.indexOf(OPEN_BRACE) + 1;
  while (at < json.length) {
    const keyStart = skipTo(json, at);
    if (json[keyStart] !== QUOTE) break;
    const keyEnd = skipString(json, keyStart);
    const valueStart = skipTo(json, keyEnd);
    const valueEnd = skipValue(json, valueStart);
    if (isKey(json.subarray(keyStart, keyEnd), nameBytes)) {
      found = json.subarray(valueStart, valueEnd);
    }
    at = valueEnd;
  }
  return found;
}

/** Past white space and what separates members: the next key, value or closing brace. */
function skipTo(json: Buffer, from: number): number {
  let at = from;
  for (let byte = json[at]; byte !== undefined; byte = json[++at]) {
    if (byte > 0x20 && byte !== COMMA && byte !== COLON) break;
  }
  return at;
}

/** `quoted` with its quotes. A key may be written with escapes: "\u0069nput" is `input`. */
function isKey(quoted: Buffer, name: Buffer): boolean {
  if (!quoted.includes(BACKSLASH)) return quoted.subarray(1, -1).equals(name);
  try {
    return JSON.parse(quoted.toString('utf8')) === name.toString('utf8');
  } catch {
    return false;
  }
}

function skipValue(json: Buffer, from: number): number {
  const first = json[from];
  if (first === QUOTE) return skipString(json, from);
  if (first === OPEN_BRACE || first === OPEN_BRACKET) return skipNested(json, from);
  let at = from;
  for (let byte = json[at]; byte !== undefined; byte = json[++at]) {
    if (byte <= 0x20 || byte === COMMA || byte === CLOSE_BRACE) break;
  }
  return at;
}

function skipNested(json: Buffer, from: number): number {
  let depth = 0;
  let at = from;
  while (at < json.length) {
    const byte = json[at];
    if (byte === QUOTE) {
      at = skipString(json, at);
      continue;
    }
    at++;
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth++;
    else if ((byte === CLOSE_BRACE || byte === CLOSE_BRACKET) && --depth === 0) break;
  }
  return at;
}

/** Strings of this length are walked byte by byte; beyond it a native search is faster. */
const SHORT_STRING = 64;

/** From the opening quote to behind the closing one. */
function skipString(json: Buffer, from: number): number {
  let at = from + 1;
  const shortEnd = Math.min(json.length, at + SHORT_STRING);
  while (at < shortEnd) {
    const byte = json[at];
    if (byte === QUOTE) return at + 1;
    at += byte === BACKSLASH ? 2 : 1;
  }
  // No byte before `start` may be taken for the backslash of an escape: those were walked over.
  const start = at;
  for (;;) {
    const quote = json.indexOf(QUOTE, at);
    if (quote === -1) return json.length;
    let backslashes = 0;
    while (quote - backslashes > start && json[quote - backslashes - 1] === BACKSLASH)
      backslashes++;
    if (backslashes % 2 === 0) return quote + 1;
    at = quote + 1;
  }
}
