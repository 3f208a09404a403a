// Takes the bytes out of a value, so that its JSON and the bytes travel side by side, and puts them
// back on the other end.
import { stringifyJson } from '../wire/json.ts';
import { FrameError, padLength } from './frame.ts';

/** Where the bytes belong: the JSON has `null` there. */
export interface Attachment {
  path: (string | number)[];
  bytes: number;
}

export interface DetachedValue {
  json: string;
  attachments: Attachment[];
  /** The bytes of each attachment; they are not copied. */
  pieces: Uint8Array[];
}

/** Deeper values are left to `stringifyJson`, which refuses them. */
const MAX_DEPTH = 1_000;

/**
 * Typed arrays, `DataView`, `Buffer` and `ArrayBuffer` become attachments.
 *
 * @param root names the value in errors: `input`
 * @throws NotJsonError if the rest of the value is not JSON
 */
export function detachBytes(value: unknown, root: string): DetachedValue {
  const found: DetachedValue = { json: '', attachments: [], pieces: [] };
  const rest = holdsBytes(value, 0) ? copyWithoutBytes(value, [], found) : value;
  found.json = stringifyJson(rest, root);
  return found;
}

/** @throws FrameError if an attachment does not fit the value or the body */
export function attachBytes(value: unknown, attachments: readonly Attachment[], body: Buffer) {
  let at = 0;
  let whole = value;
  for (const { path, bytes } of attachments) {
    if (at + padLength(bytes) > body.length) {
      throw new FrameError(
        `attachments exceed the frame: they need more than ${body.length} bytes`,
      );
    }
    const piece = body.subarray(at, at + bytes);
    if (path.length === 0) whole = piece;
    else put(whole, path, piece);
    at += padLength(bytes);
  }
  if (at !== body.length) {
    throw new FrameError(`a frame has ${body.length} bytes of attachments, but describes ${at}`);
  }
  return whole;
}

function put(value: unknown, path: readonly (string | number)[], piece: Buffer): void {
  let holder = value;
  for (const key of path.slice(0, -1)) holder = readMember(holder, key, path);
  const last = path.at(-1) ?? '';
  if (readMember(holder, last, path) !== null || !isObject(holder)) throw refusePath(path);
  holder[last] = piece;
}

function readMember(holder: unknown, key: string | number, path: readonly unknown[]): unknown {
  if (!isObject(holder) || !Object.hasOwn(holder, key)) throw refusePath(path);
  return holder[key];
}

function refusePath(path: readonly unknown[]): FrameError {
  return new FrameError(`an attachment has the path ${JSON.stringify(path)}, which is not null`);
}

function isObject(value: unknown): value is Record<string | number, unknown> {
  return typeof value === 'object' && value !== null;
}

function isBytes(value: unknown): value is ArrayBufferView | ArrayBuffer {
  return ArrayBuffer.isView(value) || value instanceof ArrayBuffer;
}

function viewBytes(value: ArrayBufferView | ArrayBuffer): Uint8Array {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

function holdsBytes(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return false;
  if (isBytes(value)) return true;
  if (Array.isArray(value)) return value.some((member) => holdsBytes(member, depth + 1));
  for (const member of Object.values(value)) if (holdsBytes(member, depth + 1)) return true;
  return false;
}

function copyWithoutBytes(value: unknown, path: (string | number)[], into: DetachedValue): unknown {
  if (typeof value !== 'object' || value === null || path.length > MAX_DEPTH) return value;
  if (isBytes(value)) {
    const piece = viewBytes(value);
    into.attachments.push({ path, bytes: piece.length });
    into.pieces.push(piece);
    return null;
  }
  if (Array.isArray(value)) {
    return value.map((member, index) => copyWithoutBytes(member, [...path, index], into));
  }
  // A class instance stays as it is: `stringifyJson` decides about it.
  if (!holdsBytes(value, path.length)) return value;
  const entries = Object.entries(value);
  return Object.fromEntries(
    entries.map(([key, member]) => [key, copyWithoutBytes(member, [...path, key], into)]),
  );
}
