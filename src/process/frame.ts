// Frames between a worker and a model process: a JSON head, then the bytes of its attachments. The bytes
// are taken out of a value on one end and put back on the other, so that its JSON and the bytes travel side by side.
// docs/model-process.md describes the format for programs in other languages.
import { stringifyJson } from '../wire/json.ts';

/** Two unsigned 32-bit numbers, big-endian: the length of the head and that of the attachments. */
const PREFIX_BYTES = 8;
/** Each attachment begins at a multiple of this, so that it can be viewed as numbers without a copy. */
const ALIGNMENT = 8;

const PADDING = Buffer.alloc(ALIGNMENT);

/** The other side broke the rules of the protocol. */
export class FrameError extends Error {
  override readonly name = 'FrameError';
}

/** The bytes of an attachment within the frame, with its padding. */
function padLength(bytes: number): number {
  return Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
}

/** @returns the pieces of a frame, to be written in this order; the attachments are not copied. */
export function encodeFrame(head: string, attachments: readonly Uint8Array[] = []): Uint8Array[] {
  const headBytes = Buffer.byteLength(head);
  const start = Buffer.allocUnsafe(PREFIX_BYTES + headBytes);
  let bodyBytes = 0;
  const pieces: Uint8Array[] = [start];
  for (const attachment of attachments) {
    const padded = padLength(attachment.length);
    bodyBytes += padded;
    pieces.push(attachment);
    if (padded > attachment.length) pieces.push(PADDING.subarray(0, padded - attachment.length));
  }
  start.writeUInt32BE(headBytes, 0);
  start.writeUInt32BE(bodyBytes, 4);
  start.write(head, PREFIX_BYTES);
  return pieces;
}

export function measureFrame(pieces: readonly Uint8Array[]): number {
  return pieces.reduce((sum, piece) => sum + piece.length, 0);
}

export interface Frame {
  /** Parsed JSON; not checked. */
  head: unknown;
  /** The attachments with their padding. */
  body: Buffer;
  /** Size of the whole frame. */
  bytes: number;
}

type Section = 'prefix' | 'head' | 'body';

const EMPTY = Buffer.alloc(0);

/** Cuts a stream of bytes into frames. */
export class FrameReader {
  readonly #maxBytes: number;
  readonly #onFrame: (frame: Frame) => void;
  #section: Section = 'prefix';
  /** Length of the current section. */
  #wanted = PREFIX_BYTES;
  /** The section's first bytes, if it did not arrive in one piece. */
  #partial: Buffer | undefined;
  #filled = 0;
  #bodyBytes = 0;
  #frameBytes = 0;
  #head: unknown;

  constructor(maxBytes: number, onFrame: (frame: Frame) => void) {
    this.#maxBytes = maxBytes;
    this.#onFrame = onFrame;
  }

  /** @throws FrameError if a frame is too large or its head is not JSON */
  push(piece: Buffer): void {
    let at = 0;
    while (at < piece.length) {
      const end = Math.min(piece.length, at + this.#wanted - this.#filled);
      const isWhole = this.#partial === undefined && end - at === this.#wanted;
      // The body is copied even then: its attachments begin at aligned addresses.
      if (isWhole && this.#section !== 'body') {
        const bytes = piece.subarray(at, end);
        at = end;
        this.#finish(bytes);
        continue;
      }
      this.#partial ??= Buffer.allocUnsafeSlow(this.#wanted);
      this.#filled += piece.copy(this.#partial, this.#filled, at, end);
      at = end;
      if (this.#filled < this.#wanted) return;
      const bytes = this.#partial;
      this.#partial = undefined;
      this.#filled = 0;
      this.#finish(bytes);
    }
  }

  #finish(bytes: Buffer): void {
    switch (this.#section) {
      case 'prefix':
        this.#readPrefix(bytes);
        return;
      case 'head':
        this.#head = parseHead(bytes);
        if (this.#bodyBytes > 0) this.#expect('body', this.#bodyBytes);
        else this.#deliver(EMPTY);
        return;
      case 'body':
        this.#deliver(bytes);
    }
  }

  #readPrefix(prefix: Buffer): void {
    const headBytes = prefix.readUInt32BE(0);
    this.#bodyBytes = prefix.readUInt32BE(4);
    this.#frameBytes = PREFIX_BYTES + headBytes + this.#bodyBytes;
    if (headBytes === 0) throw new FrameError('a frame has an empty head');
    if (this.#frameBytes > this.#maxBytes) {
      throw new FrameError(
        `a frame is ${this.#frameBytes} bytes; maxFrameBytes is ${this.#maxBytes}`,
      );
    }
    this.#expect('head', headBytes);
  }

  #deliver(body: Buffer): void {
    const frame = { head: this.#head, body, bytes: this.#frameBytes };
    this.#head = undefined;
    this.#expect('prefix', PREFIX_BYTES);
    this.#onFrame(frame);
  }

  #expect(section: Section, bytes: number): void {
    this.#section = section;
    this.#wanted = bytes;
  }
}

function parseHead(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    const start = JSON.stringify(bytes.toString('utf8', 0, 80));
    throw new FrameError(`the head of a frame is not JSON; it begins with ${start}`);
  }
}

/** Where the bytes belong: the JSON has `null` there. */
export interface Attachment {
  path: (string | number)[];
  bytes: number;
}

interface DetachedValue {
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
