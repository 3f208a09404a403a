// The built-in functions that the platform's code uses beside a handler, as they were when the
// thread started. A handler can replace `JSON.stringify` or `Promise.prototype.then` at any time,
// so the code in its thread calls these copies instead. All outputs are serialised with them.
//
// Loops over arrays use an index: `for … of`, spread and array patterns call
// `Array.prototype[Symbol.iterator]`, which a handler can replace too.

import { isAscii as isAsciiBytes } from 'node:buffer';

const { apply } = Reflect;

export const { parse: jsonParse, stringify: jsonStringify } = JSON;
export const { create: createObject, getPrototypeOf, hasOwn, keys: objectKeys } = Object;
export const { isArray } = Array;
export const { isFinite: isFiniteNumber } = Number;
export const { ceil, floor, max, min, round } = Math;
export const { isView } = ArrayBuffer;
export const { now: wallTime } = Date;
export const { clearImmediate, clearTimeout, queueMicrotask, setImmediate, setTimeout } =
  globalThis;
export const {
  allocUnsafeSlow: bufferAlloc,
  byteLength: bufferByteLength,
  concat: bufferConcat,
  from: bufferFrom,
} = Buffer;

const { subarray: cutBuffer, toString: decodeBuffer, write: writeBuffer } = Buffer.prototype;
const { set: setBytes, subarray: viewBytes } = Uint8Array.prototype;

const isAscii = isAsciiBytes;
/** V8 decodes ASCII of this size and more four times faster as Latin-1. */
const WORTH_A_LOOK = 65_536;

export function bufferText(bytes: Buffer, encoding: BufferEncoding = 'utf8'): string {
  const isPlain = encoding === 'utf8' && bytes.length >= WORTH_A_LOOK && isAscii(bytes);
  return apply(decodeBuffer, bytes, [isPlain ? 'latin1' : encoding]);
}

/** @returns the bytes written */
export function bufferWrite(bytes: Buffer, text: string, at: number): number {
  return apply(writeBuffer, bytes, [text, at]);
}

export function bufferCut(bytes: Buffer, start: number, end: number): Buffer {
  return apply(cutBuffer, bytes, [start, end]);
}

export function cutBytes(bytes: Uint8Array, start: number, end: number): Uint8Array {
  return apply(viewBytes, bytes, [start, end]);
}

export function copyBytes(target: Uint8Array, source: Uint8Array, offset: number): void {
  apply(setBytes, target, [source, offset]);
}

const { isWellFormed, slice: cutString } = String.prototype;

/** Whether the text has no half of a surrogate pair alone. */
export function isUnicode(text: string): boolean {
  return apply(isWellFormed, text, []);
}

export function stringCut(text: string, start: number, end = text.length): string {
  return apply(cutString, text, [start, end]);
}

const { includes: arrayHas } = Array.prototype;

export function arrayIncludes<T>(array: readonly T[], item: unknown): boolean {
  return apply(arrayHas, array, [item]);
}

const { toString: tagObject } = Object.prototype;

/** `Map` of `[object Map]`. */
export function readTag(value: object): string {
  return stringCut(apply(tagObject, value, []), '[object '.length, -1);
}

const { then: awaitPromise } = Promise.prototype;

/** `promise.then(act)`, for a promise that never rejects. */
export function whenDone<T>(promise: Promise<T>, act: (value: T) => void): void {
  void apply(awaitPromise, promise, [act]);
}

const { delete: deleteEntry, get: getEntry, set: setEntry } = Map.prototype;

export function mapGet<K, V>(map: ReadonlyMap<K, V>, key: K): V | undefined {
  return apply(getEntry, map, [key]);
}

export function mapSet<K, V>(map: Map<K, V>, key: K, value: V): void {
  apply(setEntry, map, [key, value]);
}

export function mapDelete<K>(map: Map<K, unknown>, key: K): void {
  apply(deleteEntry, map, [key]);
}

const { performance } = globalThis;
const { eventLoopUtilization, now } = performance;
const { timeOrigin } = performance;

/** Milliseconds since the thread's process started, with fractions. */
export function elapsedTime(): number {
  return apply(now, performance, []);
}

/** Unix ms with fractions; unlike Date.now it never goes back. */
export function steadyTime(): number {
  return timeOrigin + elapsedTime();
}

type LoopUse = ReturnType<typeof performance.eventLoopUtilization>;

export function measureLoop(since?: LoopUse): LoopUse {
  return apply(eventLoopUtilization, performance, since === undefined ? [] : [since]);
}

const NativeAbortController = AbortController;
const { abort } = NativeAbortController.prototype;
const readSignal = Object.getOwnPropertyDescriptor(NativeAbortController.prototype, 'signal')?.get;

/** An AbortController that works even if a handler has changed the class. */
export class AbortSwitch {
  readonly signal: AbortSignal;
  readonly #controller = new NativeAbortController();

  constructor() {
    this.signal = readSignal ? apply(readSignal, this.#controller, []) : this.#controller.signal;
  }

  abort(reason: Error): void {
    apply(abort, this.#controller, [reason]);
  }
}
