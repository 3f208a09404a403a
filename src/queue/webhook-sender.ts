// One try of a webhook over HTTP: signed, to a permitted address only, bounded in time and bytes. No
// redirect is followed: what is signed for one receiver is not handed on to another.
import { isIP } from 'node:net';
import { Agent, type Dispatcher, request } from 'undici';
import {
  type AddressRule,
  anyAddress,
  buildGuardedConnector,
  publicOnly,
  RefusedAddressError,
  type ResolveName,
} from '../base/public-address.ts';
import { readRetryAfterMs } from '../base/retry-after.ts';
import type { StoredDelivery } from '../store/store.ts';
import { WEBHOOK_HEADERS } from '../wire/webhook.ts';
import { deriveEndpointSecret, signBody } from './webhook-signature.ts';
import type { Try, WebhookSender } from './webhooks.ts';

/** Of the answer's body, which nobody wants; more of it breaks the connection. */
const MAX_ANSWER_BYTES = 65_536;
const GONE = 410;
/**
 * A connection is kept for the next try, but no longer, whatever the receiver asks for: there are as
 * many receivers as callers care to name.
 */
const MAX_IDLE_MS = 4_000;
/** What a line to a receiver has to carry at the least, 2 Mbit/s: 20 MB get 80 s more. */
const SLOWEST_BYTES_PER_MS = 256;

export interface HttpWebhookSenderOptions {
  /** Of the platform; each signs. */
  secrets: readonly string[];
  /** `public`: those that are routed on the internet. */
  addresses: 'public' | 'any';
  /** Of the package. */
  version: string;
  /**
   * For a whole try, from the look-up of the name to the end of the answer, ms; a large record gets
   * more. Default 15,000.
   */
  timeoutMs?: number;
  /** Default: the resolver of the machine. */
  resolve?: ResolveName;
}

export class HttpWebhookSender implements WebhookSender {
  readonly #options: HttpWebhookSenderOptions;
  readonly #rule: AddressRule;
  readonly #agent: Agent;
  readonly #timeoutMs: number;

  constructor(options: HttpWebhookSenderOptions) {
    const { addresses, resolve, timeoutMs = 15_000 } = options;
    this.#options = options;
    this.#timeoutMs = timeoutMs;
    this.#rule = addresses === 'public' ? publicOnly : anyAddress;
    const connect = buildGuardedConnector({ rule: this.#rule, resolve });
    // The try's own limit is the only one, so that it is always known which one struck.
    const limits = { headersTimeout: 0, bodyTimeout: 0, keepAliveMaxTimeout: MAX_IDLE_MS };
    this.#agent = new Agent({ connect, ...limits });
  }

  judge(url: string): string | undefined {
    const host = new URL(url).hostname.replace(/^\[(.*)\]$/, '$1');
    const reason = isIP(host) === 0 ? undefined : this.#rule(host);
    return reason && `${host} is no address that may be called (${reason})`;
  }

  async send(
    delivery: StoredDelivery,
    record: Uint8Array,
    signal: AbortSignal,
  ): Promise<Try | undefined> {
    const limitMs = this.#timeoutMs + Math.floor(record.length / SLOWEST_BYTES_PER_MS);
    const timeout = AbortSignal.timeout(limitMs);
    try {
      const answer = await request(delivery.url, {
        method: 'POST',
        dispatcher: this.#agent,
        signal: AbortSignal.any([signal, timeout]),
        headers: this.#composeHeaders(delivery, record),
        body: record,
      });
      // The status has said everything.
      await answer.body.dump({ limit: MAX_ANSWER_BYTES }).catch(() => {});
      return judgeAnswer(answer);
    } catch (error) {
      if (signal.aborted) return undefined;
      if (timeout.aborted) {
        return { result: 'timeout', detail: `no answer within ${limitMs} ms` };
      }
      return explainFailure(error);
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  #composeHeaders({ endpointId, id, tries }: StoredDelivery, record: Uint8Array) {
    const { secrets, version } = this.#options;
    const own = secrets.map((secret) => deriveEndpointSecret(secret, endpointId));
    return {
      'content-type': 'application/json',
      'user-agent': `millrace/${version}`,
      [WEBHOOK_HEADERS.delivery]: id,
      [WEBHOOK_HEADERS.endpoint]: endpointId,
      [WEBHOOK_HEADERS.try]: String(tries + 1),
      // Receivers compare the time with their own, so it is not that of a clock that tests move.
      [WEBHOOK_HEADERS.signature]: signBody(record, own, Date.now()),
    };
  }
}

function judgeAnswer({ headers, statusCode }: Dispatcher.ResponseData): Try {
  const isRedirect = statusCode >= 300 && statusCode < 400;
  const detail = `it answered ${statusCode}${isRedirect ? '; redirects are not followed' : ''}`;
  if (statusCode < 300) return { result: '2xx', detail };
  if (isRedirect) return { result: '3xx', detail };
  const retryAfterMs = readRetryAfterMs(headers['retry-after'], Date.now());
  if (statusCode >= 500) return { result: '5xx', detail, retryAfterMs };
  return { result: '4xx', detail, retryAfterMs, isFinal: statusCode === GONE };
}

function explainFailure(error: unknown): Try {
  if (error instanceof RefusedAddressError) return { result: 'refused', detail: error.message };
  if (!(error instanceof Error)) return { result: 'unreachable', detail: String(error) };
  const code = 'code' in error ? ` (${error.code})` : '';
  return { result: 'unreachable', detail: `${error.message || error.name}${code}` };
}
