// What a worker and its handler threads say to each other, and how it travels: many messages in one
// post, their small payloads in one block of memory.
import type { MessagePort } from 'node:worker_threads';
import type { HandlerConfig } from '../handler/define.ts';
import type { AttemptLimits } from '../handler/invoke.ts';
import type { StopReason } from '../handler/stop.ts';
import type { Device, Outcome } from '../wire/worker-link.ts';

/** The one long task that a thread runs, for as long as it lives. */
export interface LaneTask {
  port: MessagePort;
  handlerPath: string;
  /** Whose jobs it runs, for those who watch; undefined if that is not known. */
  endpointId: string | undefined;
  devices: readonly Device[];
  windowBytes: number;
  limits: AttemptLimits;
}

/** `number` names an attempt within its thread. */
export type ToThread =
  /** Payload: the input. */
  | {
      kind: 'job';
      number: number;
      jobId: string;
      attempt: number;
      timeoutMs: number;
      traceparent: string | undefined;
      tracestate: string | undefined;
      s3Config: string | undefined;
    }
  | { kind: 'stop'; number: number; reason: StopReason; detail: string | undefined }
  | { kind: 'grant'; number: number; bytes: number }
  | { kind: 'teardown' };

export type FromThread =
  /** Before anything of the author's runs. */
  | { kind: 'up'; threadId: number; heapLimitBytes: number }
  | { kind: 'loaded'; config: HandlerConfig }
  | { kind: 'ready' }
  /** The module could not be loaded, the check of that name failed, or setup threw. */
  | { kind: 'failed'; reason: string; check: string | undefined }
  /** Payload: the chunks' JSON joined by commas. */
  | { kind: 'chunks'; number: number; sizes: number[] }
  /** Payload: JSON. */
  | { kind: 'progress'; number: number }
  /** Payload: NDJSON. Without a number it belongs to the thread and not to an attempt. */
  | { kind: 'log'; number: number | undefined; dropped: number }
  /** Payload: the output, if there is one. */
  | { kind: 'end'; number: number; outcome: Outcome; isWorn: boolean | undefined }
  | LastWords;

/** The thread ends, and the attempt (if it is known) in whose code that began. */
export interface LastWords {
  kind: 'exit';
  code: number;
  number: number | undefined;
  /** By `process.exit`, by an exception that nothing caught, by a rejection that nothing handled. */
  because: 'exit' | 'uncaught' | 'rejection';
}

/** A length: the next so many bytes of the shared block. */
type Payload = number | Uint8Array | undefined;

interface Packet<Message> {
  messages: Message[];
  payloads: Payload[];
  shared: Uint8Array | undefined;
}

/** Below this, copying into the shared block is cheaper than moving memory between threads. */
const SHARE_BELOW_BYTES = 16 * 1024;
/** Does not wait for the end of the turn once so much has come together. */
const FLUSH_BYTES = 1024 * 1024;

export interface PortOutboxOptions {
  port: MessagePort;
  /** When, after the first message, the packet leaves. */
  schedule: (flush: () => void) => void;
  /** `given`: payloads may be moved out of this thread. `lent`: others still read them. */
  payloads: 'given' | 'lent';
}

export class PortOutbox<Message> {
  readonly #options: PortOutboxOptions;
  #messages: Message[] = [];
  #payloads: (Uint8Array | undefined)[] = [];
  #pendingBytes = 0;

  constructor(options: PortOutboxOptions) {
    this.#options = options;
  }

  push(message: Message, payload?: Uint8Array): void {
    this.#messages.push(message);
    this.#payloads.push(payload);
    this.#pendingBytes += payload?.length ?? 0;
    if (this.#pendingBytes >= FLUSH_BYTES) this.flush();
    else if (this.#messages.length === 1) this.#options.schedule(() => this.flush());
  }

  flush(): void {
    if (this.#messages.length === 0) return;
    const transfer: ArrayBuffer[] = [];
    const packet: Packet<Message> = {
      messages: this.#messages,
      shared: packSmall(this.#payloads),
      payloads: this.#payloads.map((payload) => this.#place(payload, transfer)),
    };
    this.#messages = [];
    this.#payloads = [];
    this.#pendingBytes = 0;
    if (packet.shared) transfer.push(getMemory(packet.shared));
    this.#options.port.postMessage(packet, transfer);
  }

  #place(payload: Uint8Array | undefined, transfer: ArrayBuffer[]): Payload {
    if (payload === undefined || payload.length < SHARE_BELOW_BYTES) return payload?.length;
    // A view into a pool or into somebody's larger buffer would take all of that along.
    const isWhole = payload.byteLength === payload.buffer.byteLength;
    const own =
      isWhole && this.#options.payloads === 'given' && payload.buffer instanceof ArrayBuffer
        ? payload
        : new Uint8Array(payload);
    transfer.push(getMemory(own));
    return own;
  }
}

/** The messages of one post, each with its payload. */
export function* unpack<Message>(
  packet: Packet<Message>,
): Generator<{ message: Message; payload: Uint8Array | undefined }> {
  let at = 0;
  for (const [index, message] of packet.messages.entries()) {
    const place = packet.payloads[index];
    if (typeof place !== 'number') {
      yield { message, payload: place };
    } else {
      yield { message, payload: packet.shared?.subarray(at, at + place) ?? new Uint8Array(0) };
      at += place;
    }
  }
}

function packSmall(payloads: readonly (Uint8Array | undefined)[]): Uint8Array | undefined {
  const small = payloads.filter((payload) => payload && payload.length < SHARE_BELOW_BYTES);
  if (small.length === 0) return undefined;
  const shared = new Uint8Array(small.reduce((sum, payload) => sum + (payload?.length ?? 0), 0));
  let at = 0;
  for (const payload of small) {
    if (!payload) continue;
    shared.set(payload, at);
    at += payload.length;
  }
  return shared;
}

function getMemory(bytes: Uint8Array): ArrayBuffer {
  if (bytes.buffer instanceof ArrayBuffer) return bytes.buffer;
  throw new TypeError('shared memory cannot be moved to another thread');
}
