// A real HTTP server that takes traces as an OpenTelemetry collector does: OTLP over HTTP in JSON, strictly checked.
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { z } from 'zod';

const id = (digits: number) => z.string().regex(new RegExp(`^(?!0+$)[0-9a-f]{${digits}}$`));
const value = z.union([
  z.strictObject({ stringValue: z.string() }),
  z.strictObject({ boolValue: z.boolean() }),
  z.strictObject({ intValue: z.string().regex(/^-?\d+$/) }),
  z.strictObject({ doubleValue: z.number() }),
]);
const attributes = z.array(z.strictObject({ key: z.string().min(1), value }));
const nanoseconds = z.string().regex(/^\d{19}$/);
const otlpSpan = z.strictObject({
  traceId: id(32),
  spanId: id(16),
  parentSpanId: id(16).optional(),
  traceState: z.string().optional(),
  name: z.string().min(1),
  kind: z.int().min(1).max(5),
  startTimeUnixNano: nanoseconds,
  endTimeUnixNano: nanoseconds,
  attributes,
  status: z.strictObject({ code: z.literal(2), message: z.string() }).optional(),
});
const body = z.strictObject({
  resourceSpans: z.array(
    z.strictObject({
      resource: z.strictObject({ attributes }),
      scopeSpans: z.array(
        z.strictObject({
          scope: z.strictObject({ name: z.string(), version: z.string() }),
          spans: z.array(otlpSpan).min(1),
        }),
      ),
    }),
  ),
});

export interface CollectedSpan {
  traceId: string;
  spanId: string;
  parent: string | undefined;
  name: string;
  attributes: Record<string, string>;
  error: string | undefined;
  startNano: bigint;
  endNano: bigint;
}

export class TraceCollector implements AsyncDisposable {
  readonly spans: CollectedSpan[] = [];
  readonly requests: { path: string; headers: IncomingHttpHeaders; count: number }[] = [];
  /** Status of the answer to each request, in order; then 200. */
  readonly statuses: number[] = [];
  readonly #server: Server;
  readonly #waiting = new Set<() => void>();
  #problem: unknown;

  private constructor() {
    this.#server = createServer(async (request, response) => {
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(piece);
      const status = this.statuses.shift() ?? 200;
      try {
        const taken = readSpans(JSON.parse(Buffer.concat(pieces).toString()));
        const { headers, url: path = '' } = request;
        this.requests.push({ path, headers, count: taken.length });
        if (status === 200) this.spans.push(...taken);
      } catch (problem) {
        this.#problem = problem;
      }
      response.writeHead(status, { 'content-type': 'application/json' }).end('{}');
      for (const wake of this.#waiting) wake();
      this.#waiting.clear();
    });
  }

  static async start(): Promise<TraceCollector> {
    const collector = new TraceCollector();
    await new Promise<void>((resolve) => collector.#server.listen(0, '127.0.0.1', resolve));
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Resolves when the condition holds; looks again after each request. @throws the error of an invalid request */
  async until(holds: (collector: TraceCollector) => boolean): Promise<void> {
    for (;;) {
      if (this.#problem) throw this.#problem;
      if (holds(this)) return;
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  /** The span of this name and these attributes, once it is there. */
  async find(name: string, wanted: Record<string, string> = {}): Promise<CollectedSpan> {
    const matches = (span: CollectedSpan) =>
      span.name === name &&
      Object.entries(wanted).every(([key, text]) => span.attributes[key] === text);
    await this.until(({ spans }) => spans.some(matches));
    const found = this.spans.find(matches);
    if (!found) throw new Error(`no span ${name}`);
    return found;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

function readSpans(given: unknown): CollectedSpan[] {
  const all = body.parse(given).resourceSpans.flatMap(({ scopeSpans }) => scopeSpans);
  return all
    .flatMap(({ spans }) => spans)
    .map((span) => ({
      ...{ traceId: span.traceId, spanId: span.spanId, parent: span.parentSpanId },
      ...{ name: span.name, error: span.status?.message },
      attributes: Object.fromEntries(
        span.attributes.map(({ key, value: held }) => [key, String(Object.values(held)[0])]),
      ),
      startNano: BigInt(span.startTimeUnixNano),
      endNano: BigInt(span.endTimeUnixNano),
    }));
}
