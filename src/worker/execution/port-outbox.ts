// Carries messages between a worker and its handler threads: many messages in one post, small payloads in one block of
// memory.
import type { MessagePort } from 'node:worker_threads';

/** A number: the length of the payload in the shared block. */
type Payload = number | Uint8Array | undefined;

export interface Packet<Message> {
  messages: Message[];
  payloads: Payload[];
  shared: Uint8Array | undefined;
}

/** Below this, copying into the shared block is cheaper than moving memory between threads. */
const SHARE_BELOW_BYTES = 16 * 1024;
/** At this size the packet leaves without waiting for the end of the iteration. */
const FLUSH_BYTES = 1024 * 1024;

interface PortOutboxOptions {
  port: MessagePort;
  /** Schedules the flush after the first message. */
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
    const shared = packSmall(this.#payloads);
    const payloads = this.#payloads.map((payload) => this.#place(payload, transfer));
    const packet: Packet<Message> = { messages: this.#messages, shared, payloads };
    this.#messages = [];
    this.#payloads = [];
    this.#pendingBytes = 0;
    if (shared) transfer.push(getMemory(shared));
    this.#options.port.postMessage(packet, transfer);
  }

  #place(payload: Uint8Array | undefined, transfer: ArrayBuffer[]): Payload {
    if (payload === undefined || payload.length < SHARE_BELOW_BYTES) return payload?.length;
    // Moving a view into a larger buffer would move the whole buffer.
    const isWhole = payload.byteLength === payload.buffer.byteLength;
    const own =
      isWhole && this.#options.payloads === 'given' && payload.buffer instanceof ArrayBuffer
        ? payload
        : new Uint8Array(payload);
    transfer.push(getMemory(own));
    return own;
  }
}

/** Yields the messages of one post, each with its payload. */
export function unpack<Message>(
  { messages, payloads, shared }: Packet<Message>,
  receive: (message: Message, payload: Uint8Array | undefined) => void,
): void {
  let at = 0;
  for (const [index, message] of messages.entries()) {
    const payload = payloads[index];
    if (typeof payload !== 'number') {
      receive(message, payload);
    } else {
      receive(message, shared?.subarray(at, at + payload) ?? new Uint8Array(0));
      at += payload;
    }
  }
}

function packSmall(payloads: readonly (Uint8Array | undefined)[]): Uint8Array | undefined {
  const small = payloads
    .filter((payload) => payload !== undefined)
    .filter(({ length }) => length < SHARE_BELOW_BYTES);
  if (small.length === 0) return undefined;
  const shared = new Uint8Array(small.reduce((sum, payload) => sum + payload.length, 0));
  let at = 0;
  for (const payload of small) {
    shared.set(payload, at);
    at += payload.length;
  }
  return shared;
}

function getMemory(bytes: Uint8Array): ArrayBuffer {
  if (bytes.buffer instanceof ArrayBuffer) return bytes.buffer;
  throw new TypeError('shared memory cannot be moved to another thread');
}
