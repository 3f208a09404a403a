// The export of traces that the options ask for: sends spans to a collector (OTLP/HTTP), in batches and in the background. If
// the collector is slow or away, spans are dropped: neither memory nor jobs depend on it.
import { hostname } from 'node:os';
import { backoffMs, readRetryAfterMs } from '../base/backoff.ts';
import { sleep, systemClock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { loadUndici } from '../base/net/undici.ts';
import { packageVersion } from '../base/package-info.ts';
import type { Span, SpanKind, SpanSink, TracingOptions } from '../queue/job-tracing.ts';
import { PlatformOptionError } from './option-error.ts';

/** Spans of about 1 KB each that wait for the collector; more are dropped. */
const MAX_WAITING = 8_192;
/** Spans of one request. */
const BATCH_SPANS = 512;
const REQUEST_MS = 10_000;
/** Time for the last spans when the platform stops, ms. */
const CLOSE_MS = 2_000;
const PACE = { maxMs: 30_000, jitter: 0.2 };
/** Bytes of an answer that are read. */
const MAX_ANSWER_BYTES = 65_536;
/** Statuses after which OTLP lets a client send again. */
const PASSING = new Set([429, 502, 503, 504]);

export interface TraceExporterOptions {
  /** With the path, such as `/v1/traces`. */
  url: string;
  /** Added to each request, for the collector's authentication. */
  headers: Readonly<Record<string, string>>;
  resource: TraceResource;
  log: Log;
  /** How long a span waits for others, ms; a crash loses those that wait. Default 1,000. */
  collectMs?: number;
  /** Wait after the first failure, ms; it doubles up to 30 s. Default 1,000. */
  retryMs?: number;
}

/** `again`: worth repeating. `refused`: the collector will never take these spans. */
type Sent = { kind: 'sent' } | { kind: 'again' | 'refused'; reason: string; waitMs?: number };

export class TraceExporter implements SpanSink {
  readonly #options: TraceExporterOptions;
  #waiting: Span[] = [];
  #dropped = 0;
  #failures = 0;
  #sending: Promise<void> | undefined;
  readonly #closing = new AbortController();
  readonly #aborting = new AbortController();

  constructor(options: TraceExporterOptions) {
    this.#options = options;
  }

  add(span: Span): void {
    if (this.#waiting.length >= MAX_WAITING) {
      this.#dropped++;
      return;
    }
    this.#waiting.push(span);
    this.#sending ??= this.#send();
  }

  /** Sends the waiting spans, within two seconds. Never rejects. */
  async close(): Promise<void> {
    this.#closing.abort();
    const cancel = systemClock.after(CLOSE_MS, () => this.#aborting.abort());
    await this.#sending;
    cancel();
    const lost = this.#dropped + this.#waiting.length;
    if (lost > 0) this.#options.log.warn({ spans: lost }, 'spans were not exported');
  }

  /** Until nothing waits. Never rejects. */
  async #send(): Promise<void> {
    while (this.#waiting.length > 0 && !this.#aborting.signal.aborted) {
      if (this.#waiting.length < BATCH_SPANS) {
        await sleep(systemClock, this.#options.collectMs ?? 1_000, this.#closing.signal);
      }
      const batch = this.#waiting.slice(0, BATCH_SPANS);
      const sent = await this.#post(batch);
      if (sent.kind === 'again') await this.#pause(sent);
      else this.#finish(batch, sent);
    }
    this.#sending = undefined;
  }

  #finish(batch: readonly Span[], sent: Sent): void {
    const { log } = this.#options;
    this.#waiting = this.#waiting.slice(batch.length);
    if (sent.kind === 'refused') {
      this.#dropped += batch.length;
      log.warn({ reason: sent.reason, spans: batch.length }, 'collector refused spans');
      return;
    }
    if (this.#failures > 0) log.info({ dropped: this.#dropped }, 'collector takes spans again');
    this.#failures = 0;
    this.#dropped = 0;
  }

  async #pause({ reason, waitMs = 0 }: { reason: string; waitMs?: number }): Promise<void> {
    this.#failures++;
    const about = { reason, waiting: this.#waiting.length, dropped: this.#dropped };
    const { log } = this.#options;
    if (this.#failures === 1) log.warn(about, 'exporting spans failed, retrying');
    else log.debug(about, 'exporting spans failed again');
    // While the platform stops, one attempt is enough.
    if (this.#closing.signal.aborted) this.#aborting.abort();
    const pace = { ...PACE, baseMs: this.#options.retryMs ?? 1_000 };
    const ms = Math.max(backoffMs(this.#failures, pace), Math.min(waitMs, PACE.maxMs));
    await sleep(systemClock, ms, this.#closing.signal);
  }

  async #post(batch: readonly Span[]): Promise<Sent> {
    const { headers, resource, url } = this.#options;
    const timeout = AbortSignal.timeout(REQUEST_MS);
    try {
      const {
        body,
        headers: answered,
        statusCode,
      } = await loadUndici().request(url, {
        method: 'POST',
        signal: AbortSignal.any([timeout, this.#aborting.signal]),
        headers: { ...headers, 'content-type': 'application/json' },
        body: composeTraces(batch, resource),
      });
      await body.dump({ limit: MAX_ANSWER_BYTES }).catch(() => {});
      if (statusCode >= 200 && statusCode < 300) return { kind: 'sent' };
      const reason = `the collector answered ${statusCode}`;
      if (!PASSING.has(statusCode)) return { kind: 'refused', reason };
      const waitMs = readRetryAfterMs(answered['retry-after'], Date.now()) ?? 0;
      return { kind: 'again', reason, waitMs };
    } catch (error) {
      if (timeout.aborted) return { kind: 'again', reason: `no answer within ${REQUEST_MS} ms` };
      return { kind: 'again', reason: error instanceof Error ? error.message : String(error) };
    }
  }
}

const TRACES_PATH = '/v1/traces';

export interface TraceOptions {
  /** URL of a collector for OTLP over HTTP; without a path, `/v1/traces` is added. */
  url: string;
  /** Headers of each request to it. Default: none. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** Share of the jobs without a trace of their client that get one, 0 to 1. Default 1. */
  ratio?: number | undefined;
}

interface OpenTraces extends TracingOptions {
  close(): Promise<void>;
}

/** @throws PlatformOptionError */
export function openTraces({
  log,
  traces,
  url: ownUrl,
}: {
  log: Log;
  traces?: TraceOptions | undefined;
  /** Names this platform among others. Default: the host. */
  url?: string | undefined;
}): OpenTraces | undefined {
  if (!traces) return undefined;
  const { headers = {}, ratio = 1 } = traces;
  if (!(ratio >= 0 && ratio <= 1)) {
    throw new PlatformOptionError('invalid', 'traces.ratio', `must be from 0 to 1, got ${ratio}`);
  }
  const instance = ownUrl ?? hostname();
  const resource = { name: 'millrace', version: packageVersion(), instance };
  const sink = new TraceExporter({ url: completeUrl(traces.url), headers, resource, log });
  return { sink, ratio, close: () => sink.close() };
}

function completeUrl(given: string): string {
  const url = URL.parse(given);
  if (!url || !/^https?:$/.test(url.protocol)) {
    const problem = `must be an http or https URL such as http://127.0.0.1:4318, got ${given}`;
    throw new PlatformOptionError('invalid', 'traces.url', problem);
  }
  if (url.pathname === '/') url.pathname = TRACES_PATH;
  return url.href;
}

const KINDS: Readonly<Record<SpanKind, number>> = { internal: 1, server: 2, client: 3 };
const STATUS_ERROR = 2;

interface TraceResource {
  /** `service.name`. */
  name: string;
  version: string;
  /** `service.instance.id`. */
  instance: string;
}

/** The body of one request: OTLP/HTTP JSON (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). */
function composeTraces(spans: readonly Span[], resource: TraceResource): string {
  const { instance, name, version } = resource;
  const attributes = listAttributes({
    'service.name': name,
    'service.version': version,
    'service.instance.id': instance,
  });
  const scope = { name: 'millrace', version };
  const scopeSpans = [{ scope, spans: spans.map(composeSpan) }];
  return JSON.stringify({ resourceSpans: [{ resource: { attributes }, scopeSpans }] });
}

function composeSpan(span: Span): object {
  const { attributes, endMs, error, kind, name, parentSpanId, spanId, startMs, traceId } = span;
  return {
    traceId,
    spanId,
    name,
    kind: KINDS[kind],
    ...(parentSpanId !== undefined && { parentSpanId }),
    ...(span.tracestate !== undefined && { traceState: span.tracestate }),
    startTimeUnixNano: toNano(startMs),
    endTimeUnixNano: toNano(endMs),
    attributes: listAttributes(attributes),
    ...(error !== undefined && { status: { code: STATUS_ERROR, message: error } }),
  };
}

function listAttributes(attributes: Span['attributes']): object[] {
  return Object.entries(attributes).map(([key, value]) => ({ key, value: typed(value) }));
}

/** JSON of 64-bit integers is text. */
function typed(value: string | number | boolean): object {
  if (typeof value === 'string') return { stringValue: value };
  if (typeof value === 'boolean') return { boolValue: value };
  return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value };
}

function toNano(ms: number): string {
  return `${Math.round(ms)}000000`;
}
