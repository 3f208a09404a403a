// Sends one webhook over HTTP: signed, to a permitted address only, bounded in time and bytes. Follows
// no redirects: a record signed for one receiver must not reach another.
import { Buffer } from 'node:buffer';
import { createHmac, type Hmac, randomBytes } from 'node:crypto';
import { isIP } from 'node:net';
import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import { readRetryAfterMs } from '../../base/backoff.ts';
import { giveBack } from '../../base/byte-budget.ts';
import { createNameResolver } from '../../base/net/name-resolver.ts';
import { OutgoingAgents } from '../../base/net/outgoing-agents.ts';
import { type ChooseProxy, noProxy } from '../../base/net/outgoing-proxy.ts';
import {
  type AddressRule,
  anyAddress,
  publicOnly,
  RefusedAddressError,
  type ResolveName,
} from '../../base/net/public-address.ts';
import { loadUndici } from '../../base/net/undici.ts';
import type { StoredDelivery } from '../../store/store.ts';
import { prefixSigned, SECRET_PREFIX, WEBHOOK_HEADERS } from '../../wire/webhook.ts';
import type { OutgoingDelivery, SendAttempt, WebhookRecord, WebhookSender } from './webhooks.ts';

/** Longest response body, bytes. The sender ignores the body and closes the connection of a longer one. */
const MAX_ANSWER_BYTES = 65_536;
const GONE = 410;
/**
 * How long an idle connection stays open, even if the receiver asks for longer: callers may name any
 * number of receivers.
 */
const MAX_IDLE_MS = 4_000;
/** Parts of a record that are in memory while the socket writes them. */
const PARTS_HELD = 2;
/** A larger record is sent in parts, never whole in memory. */
const WHOLE_BYTES = 1_048_576;
/** Slowest accepted connection, 2 Mbit/s: 20 MB get 80 s more. */
const SLOWEST_BYTES_PER_MS = 256;

export interface HttpWebhookSenderOptions {
  /** The platform's secrets; the sender adds one signature for each. */
  secrets: readonly string[];
  /** `public`: only addresses routed on the internet. */
  addresses: 'public' | 'any';
  /** Version of the package. */
  version: string;
  /**
   * Limit of a whole attempt, from the name lookup to the end of the response, ms; a large record
   * gets more. Default 15,000.
   */
  timeoutMs?: number;
  /** Default: `createNameResolver` with the machine's name servers. */
  resolve?: ResolveName | undefined;
  /** Default: no proxy. */
  chooseProxy?: ChooseProxy | undefined;
}

export class HttpWebhookSender implements WebhookSender {
  readonly #options: HttpWebhookSenderOptions;
  readonly #rule: AddressRule;
  readonly #agents: OutgoingAgents;
  readonly #timeoutMs: number;

  constructor(options: HttpWebhookSenderOptions) {
    const { addresses, chooseProxy = noProxy, timeoutMs = 15_000 } = options;
    this.#options = options;
    this.#timeoutMs = timeoutMs;
    this.#rule = addresses === 'public' ? publicOnly : anyAddress;
    const { resolve = createNameResolver() } = options;
    this.#agents = new OutgoingAgents({
      chooseProxy,
      guard: { rule: this.#rule, resolve },
      // `send` sets the only time limit, so that the error always names the limit that was reached.
      agent: { headersTimeout: 0, bodyTimeout: 0, keepAliveMaxTimeout: MAX_IDLE_MS },
    });
  }

  judge(url: string): string | undefined {
    const host = new URL(url).hostname.replace(/^\[(.*)\]$/, '$1');
    const reason = isIP(host) === 0 ? undefined : this.#rule(host);
    return reason && `${host} is not an allowed address (${reason})`;
  }

  async send(
    delivery: OutgoingDelivery,
    record: WebhookRecord,
    signal: AbortSignal,
  ): Promise<SendAttempt | undefined> {
    const { body, signatures } = await this.#prepare(delivery, record);
    const limitMs = this.#timeoutMs + Math.floor(delivery.bytes / SLOWEST_BYTES_PER_MS);
    const timeout = AbortSignal.timeout(limitMs);
    try {
      const answer = await loadUndici().request(delivery.url, {
        method: 'POST',
        dispatcher: await this.#agents.open(new URL(delivery.url)),
        signal: AbortSignal.any([signal, timeout]),
        headers: this.#composeHeaders(delivery, signatures),
        body,
      });
      // Only the status matters.
      await answer.body.dump({ limit: MAX_ANSWER_BYTES }).catch(() => {});
      return judgeAnswer(answer);
    } catch (error) {
      if (signal.aborted) return undefined;
      if (timeout.aborted) {
        return { result: 'timeout', detail: `no response within ${limitMs} ms` };
      }
      return explainFailure(error, this.#agents.describe(new URL(delivery.url)));
    }
  }

  async close(): Promise<void> {
    await this.#agents.destroy();
  }

  /** Reads a large record twice, once for the signature and once to send it. */
  async #prepare({ bytes, endpointId, id }: StoredDelivery, record: WebhookRecord) {
    // Real time, because receivers compare it with their own clock.
    const signer = new WebhookSigner(this.#options.secrets, { id, endpointId, now: Date.now() });
    const parts: Uint8Array[] = [];
    for await (const part of record()) {
      signer.update(part);
      if (bytes <= WHOLE_BYTES) parts.push(part);
      else giveBack(part);
    }
    const body =
      bytes <= WHOLE_BYTES
        ? Buffer.concat(parts)
        : Readable.from(release(record()), { highWaterMark: 1 });
    return { body, signatures: signer.finish() };
  }

  #composeHeaders(delivery: OutgoingDelivery, signatures: object) {
    const { version } = this.#options;
    const { attempts, bytes, endpointId, trace } = delivery;
    return {
      'content-type': 'application/json',
      'content-length': String(bytes),
      'user-agent': `millrace/${version}`,
      [WEBHOOK_HEADERS.endpoint]: endpointId,
      [WEBHOOK_HEADERS.attempt]: String(attempts + 1),
      ...signatures,
      ...trace,
    };
  }
}

/**
 * Frees the memory of each part two parts later: the stream reads one part ahead, and undici takes the
 * next part only after the socket has written the previous one.
 */
async function* release(parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const held: Uint8Array[] = [];
  for await (const part of parts) {
    held.push(part);
    yield part;
    const [oldest] = held;
    if (held.length > PARTS_HELD && oldest) giveBack(oldest);
    if (held.length > PARTS_HELD) held.shift();
  }
}

function judgeAnswer({ headers, statusCode }: Dispatcher.ResponseData): SendAttempt {
  const isRedirect = statusCode >= 300 && statusCode < 400;
  const detail = `the receiver answered ${statusCode}${isRedirect ? '; redirects are not followed' : ''}`;
  if (statusCode < 300) return { result: '2xx', detail };
  if (isRedirect) return { result: '3xx', detail };
  const retryAfterMs = readRetryAfterMs(headers['retry-after'], Date.now());
  if (statusCode >= 500) return { result: '5xx', detail, retryAfterMs };
  return { result: '4xx', detail, retryAfterMs, isFinal: statusCode === GONE };
}

function explainFailure(error: unknown, via: string): SendAttempt {
  if (error instanceof RefusedAddressError) return { result: 'refused', detail: error.message };
  if (!(error instanceof Error)) return { result: 'unreachable', detail: String(error) };
  const code = 'code' in error ? ` (${error.code})` : '';
  return { result: 'unreachable', detail: `${error.message || error.name}${code}${via}` };
}

const PLATFORM_PREFIX = 'mrw_';

/** 256 random bits. */
export function generatePlatformSecret(): string {
  return PLATFORM_PREFIX + randomBytes(32).toString('base64url');
}

export function isPlatformSecret(text: string): boolean {
  return /^mrw_[A-Za-z0-9_-]{43}$/.test(text);
}

/**
 * The secret for receivers of one endpoint: `whsec_` and 32 bytes in base64. The secret does not reveal
 * those of other endpoints, so a receiver cannot forge webhooks for other endpoints.
 */
export function deriveEndpointSecret(platformSecret: string, endpointId: string): string {
  return SECRET_PREFIX + deriveKey(platformSecret, endpointId).toString('base64');
}

function deriveKey(platformSecret: string, endpointId: string): Buffer {
  return createHmac('sha256', platformSecret).update(`webhook:${endpointId}`).digest();
}

export interface SignedMessage {
  /** ID of the delivery, the same in every attempt. */
  id: string;
  endpointId: string;
  /** Unix ms. */
  now: number;
}

/** Signs a body that arrives in parts, once with each secret of the platform. */
export class WebhookSigner {
  readonly #id: string;
  readonly #seconds: number;
  readonly #signatures: readonly Hmac[];

  constructor(platformSecrets: readonly string[], { endpointId, id, now }: SignedMessage) {
    this.#id = id;
    this.#seconds = Math.floor(now / 1_000);
    const keys = platformSecrets.map((secret) => deriveKey(secret, endpointId));
    this.#signatures = keys.map((key) =>
      createHmac('sha256', key).update(prefixSigned(id, this.#seconds)),
    );
  }

  update(part: Uint8Array): void {
    for (const signature of this.#signatures) signature.update(part);
  }

  /** Returns the signature headers; the signer cannot be used again. */
  finish(): Record<string, string> {
    const signatures = this.#signatures.map((each) => `v1,${each.digest('base64')}`);
    return {
      [WEBHOOK_HEADERS.id]: this.#id,
      [WEBHOOK_HEADERS.timestamp]: String(this.#seconds),
      [WEBHOOK_HEADERS.signature]: signatures.join(' '),
    };
  }
}
