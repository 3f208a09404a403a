// Parts of the gRPC stream that both ends share besides worker.proto: its path, its messages as
// objects, and the splitting of payloads into pieces.
import { fileURLToPath } from 'node:url';

export const PROTO_PATH = fileURLToPath(new URL('worker.proto', import.meta.url));
export const SERVICE_NAME = 'millrace.worker.v1.WorkerLink';
export const METHOD_NAME = 'Open';

/** Fields are named as in worker-link.ts; an absent field has its default unless it is optional. */
export const PROTO_OPTIONS = {
  keepCase: false,
  longs: Number,
  enums: String,
  defaults: true,
  oneofs: true,
} as const;

/** Metadata of a new stream, and of the status of a rejected stream. */
export const METADATA = {
  key: 'authorization',
  endpoint: 'millrace-endpoint',
  retryAfterMs: 'millrace-retry-after-ms',
} as const;

/** Both ends accept messages with a whole output of 20 MB; they send such outputs in pieces. */
export const MAX_MESSAGE_BYTES = 32 * 1_048_576;
/**
 * An urgent message waits behind at most one piece, so a piece takes less than a second on a slow
 * link.
 */
export const PIECE_BYTES = 65_536;

/**
 * Each side pings after this time and gives up a silent peer after the timeout. So it detects a
 * half-open connection within 13 s, before a lease of 15 s expires.
 */
export const KEEPALIVE = {
  'grpc.keepalive_time_ms': 5_000,
  'grpc.keepalive_timeout_ms': 8_000,
} as const;

/** Kinds of the question and of the answer of each verb; `list`: member of the answer's content that is the answer. */
export const VERB_KINDS = {
  hello: { question: 'hello', answer: 'welcome', list: undefined },
  take: { question: 'credit', answer: 'leases', list: 'leases' },
  renew: { question: 'renew', answer: 'renewed', list: undefined },
  report: { question: 'reports', answer: 'reportAnswers', list: 'answers' },
  bye: { question: 'bye', answer: 'goodbye', list: undefined },
} as const;

export interface Envelope {
  call: number;
  /** Undefined for a message kind that this side does not know. */
  kind: string | undefined;
  content: unknown;
  /** Payload of the message; empty if it has none. */
  payload: Uint8Array;
  /** Of an answer: gRPC URL of the node that owns the endpoint, if the platform tells it. */
  ownerUrl: string | undefined;
}

const NO_BYTES = new Uint8Array(0);

/** Reads a decoded `ToPlatform` or `ToWorker`. */
export function openEnvelope(message: object): Envelope {
  const members = new Map<string, unknown>(Object.entries(message));
  const call = members.get('call');
  const kind = members.get('kind');
  const ownerUrl = members.get('ownerUrl');
  const known = typeof kind === 'string' ? kind : undefined;
  const content = known === undefined ? undefined : members.get(known);
  return {
    call: typeof call === 'number' ? call : 0,
    kind: known,
    content,
    payload: readPayload(content),
    ownerUrl: typeof ownerUrl === 'string' && ownerUrl !== '' ? ownerUrl : undefined,
  };
}

function readPayload(content: unknown): Uint8Array {
  const hasPayload = typeof content === 'object' && content !== null && 'payload' in content;
  return hasPayload && content.payload instanceof Uint8Array ? content.payload : NO_BYTES;
}

/** Length of each body in the payload of a decoded list of leases or reports. */
export function readBodySizes(items: readonly unknown[]): number[] {
  return items.map((item) => {
    if (typeof item !== 'object' || item === null || !('bodyBytes' in item)) return 0;
    return typeof item.bodyBytes === 'number' ? item.bodyBytes : 0;
  });
}

/**
 * Yields the messages of a list with bodies, created on demand: the first has the headers of all items, the others more of the
 * payload. `first` has the members of the first one besides the list.
 */
export function* listMessages(
  first: { call: number; ownerUrl?: string },
  { bodies, content, kind }: { kind: string; content: object; bodies: readonly Uint8Array[] },
): Generator<object, void, void> {
  let isFirst = true;
  for (const payload of cutPayload(bodies)) {
    yield isFirst
      ? { ...first, [kind]: { ...content, payload } }
      : { call: first.call, piece: { payload } };
    isFirst = false;
  }
}

/** Headers of leases or reports with the length of each body, as `readBodySizes` reads it. */
export function addBodySizes(headers: readonly object[], bodies: readonly Uint8Array[]): object[] {
  return headers.map((header, index) => ({ ...header, bodyBytes: bodies[index]?.length ?? 0 }));
}

export class PayloadError extends Error {
  override readonly name = 'PayloadError';
}

/**
 * Yields the bodies as one payload in pieces of at most `maxBytes`; always yields at least one
 * piece.
 */
export function* cutPayload(
  bodies: readonly Uint8Array[],
  maxBytes: number = PIECE_BYTES,
): Generator<Uint8Array, void, void> {
  let gathered: Uint8Array[] = [];
  let bytes = 0;
  for (const body of bodies) {
    for (let at = 0; at < body.length; ) {
      const part = body.subarray(at, at + maxBytes - bytes);
      gathered.push(part);
      at += part.length;
      bytes += part.length;
      if (bytes < maxBytes) continue;
      yield join(gathered);
      gathered = [];
      bytes = 0;
    }
  }
  const total = bodies.reduce((sum, body) => sum + body.length, 0);
  if (bytes > 0 || total === 0) yield join(gathered);
}

function join(parts: readonly Uint8Array[]): Uint8Array {
  const [only = NO_BYTES] = parts;
  return parts.length > 1 ? Buffer.concat(parts) : only;
}

/** Assembles a payload from its pieces with one copy, or none if one piece is the whole payload. */
export class PayloadAssembly {
  readonly total: number;
  readonly #sizes: readonly number[];
  #bytes: Uint8Array = NO_BYTES;
  #received = 0;

  /** Lengths of the bodies. */
  constructor(sizes: readonly number[]) {
    this.#sizes = sizes;
    this.total = sizes.reduce((sum, size) => sum + size, 0);
  }

  /** Bytes received so far. */
  get received(): number {
    return this.#received;
  }

  get isWhole(): boolean {
    return this.#received === this.total;
  }

  /** @throws PayloadError if there is more than announced */
  add(piece: Uint8Array): void {
    const end = this.#received + piece.length;
    if (end > this.total) {
      throw new PayloadError(`the payload has more than the ${this.total} bytes of its bodies`);
    }
    if (piece.length === this.total) this.#bytes = piece;
    else if (piece.length > 0) {
      if (this.#received === 0) this.#bytes = Buffer.allocUnsafeSlow(this.total);
      this.#bytes.set(piece, this.#received);
    }
    this.#received = end;
  }

  /** Views into the complete payload. */
  bodies(): Uint8Array[] {
    let at = 0;
    return this.#sizes.map((size) => {
      const body = this.#bytes.subarray(at, at + size);
      at += size;
      return body;
    });
  }
}
