// What a worker and its handler threads say to each other, and how it travels: many messages in one
// post, their small payloads in one block of memory.
import type { MessagePort } from 'node:worker_threads';
import type { HandlerConfig } from '../../handler/define.ts';
import type { AttemptLimits } from '../../handler/invoke.ts';
import type { StopReason } from '../../handler/stop.ts';
import type { Device, Outcome } from '../../wire/link/worker-link.ts';
import { copyBytes, cutBytes } from '../../wire/primordials.ts';

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
  /** `thenWait`: the thread is to be ended when it has run. */
  | { kind: 'teardown'; thenWait: boolean };

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
  /** Payload: the output, if there is one. `changed`: see BuiltInWatch.findChange. */
  | {
      kind: 'end';
      number: number;
      outcome: Outcome;
      isWorn: boolean | undefined;
      changed: string | undefined;
    }
  /** Teardown has run, and the thread waits to be ended. */
  | { kind: 'left' }
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

export interface PortOutboxOptions<Message> {
  port: MessagePort;
  /** When, after the first message, the packet leaves. */
  schedule: (flush: () => void) => void;
  /** Sees each message right before its packet leaves. */
  complete?: (messages: readonly Message[]) => void;
  /** `given`: payloads may be moved out of this thread. `lent`: others still read them. */
  payloads: 'given' | 'lent';
}

type Post = MessagePort['postMessage'];

export class PortOutbox<Message> {
  readonly #options: PortOutboxOptions<Message>;
  readonly #post: Post;
  #messages: Message[] = [];
  #payloads: (Uint8Array | undefined)[] = [];
  #pendingBytes = 0;

  constructor(options: PortOutboxOptions<Message>) {
    this.#options = options;
    const { port } = options;
    this.#post = port.postMessage.bind(port);
  }

  push(message: Message, payload?: Uint8Array): void {
    this.#messages[this.#messages.length] = message;
    this.#payloads[this.#payloads.length] = payload;
    this.#pendingBytes += payload?.length ?? 0;
    if (this.#pendingBytes >= FLUSH_BYTES) this.flush();
    else if (this.#messages.length === 1) this.#options.schedule(() => this.flush());
  }

  flush(): void {
    if (this.#messages.length === 0) return;
    this.#options.complete?.(this.#messages);
    const transfer: ArrayBuffer[] = [];
    const shared = packSmall(this.#payloads);
    const payloads: Payload[] = [];
    for (let index = 0; index < this.#payloads.length; index += 1) {
      payloads[index] = this.#place(this.#payloads[index], transfer);
    }
    const packet: Packet<Message> = { messages: this.#messages, shared, payloads };
    this.#messages = [];
    this.#payloads = [];
    this.#pendingBytes = 0;
    if (shared) transfer[transfer.length] = getMemory(shared);
    this.#post(packet, transfer);
  }

  #place(payload: Uint8Array | undefined, transfer: ArrayBuffer[]): Payload {
    if (payload === undefined || payload.length < SHARE_BELOW_BYTES) return payload?.length;
    // A view into a pool or into somebody's larger buffer would take all of that along.
    const isWhole = payload.byteLength === payload.buffer.byteLength;
    const own =
      isWhole && this.#options.payloads === 'given' && payload.buffer instanceof ArrayBuffer
        ? payload
        : new Uint8Array(payload);
    transfer[transfer.length] = getMemory(own);
    return own;
  }
}

/** Gives on the messages of one post, each with its payload. */
export function unpack<Message>(
  { messages, payloads, shared }: Packet<Message>,
  receive: (message: Message, payload: Uint8Array | undefined) => void,
): void {
  let at = 0;
  for (let index = 0; index < messages.length; index += 1) {
    const message = messages[index];
    if (message === undefined) continue;
    const place = payloads[index];
    if (typeof place !== 'number') {
      receive(message, place);
    } else {
      receive(message, shared ? cutBytes(shared, at, at + place) : new Uint8Array(0));
      at += place;
    }
  }
}

function packSmall(payloads: readonly (Uint8Array | undefined)[]): Uint8Array | undefined {
  let bytes = 0;
  let hasSmall = false;
  for (let index = 0; index < payloads.length; index += 1) {
    const payload = payloads[index];
    if (!payload || payload.length >= SHARE_BELOW_BYTES) continue;
    bytes += payload.length;
    hasSmall = true;
  }
  if (!hasSmall) return undefined;
  const shared = new Uint8Array(bytes);
  let at = 0;
  for (let index = 0; index < payloads.length; index += 1) {
    const payload = payloads[index];
    if (!payload || payload.length >= SHARE_BELOW_BYTES) continue;
    copyBytes(shared, payload, at);
    at += payload.length;
  }
  return shared;
}

function getMemory(bytes: Uint8Array): ArrayBuffer {
  if (bytes.buffer instanceof ArrayBuffer) return bytes.buffer;
  throw new TypeError('shared memory cannot be moved to another thread');
}
