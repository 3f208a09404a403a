// The least of a context and of a server that a handler needs to be called by hand.
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ChunkWithMetrics, Context } from 'millrace';
import { pino } from 'pino';

interface TestContext {
  ctx: Context;
  controller: AbortController;
  /** What the handler logged, one parsed line each. */
  logged: { level: number; msg: string }[];
}

export function makeContext(): TestContext {
  const controller = new AbortController();
  const logged: TestContext['logged'] = [];
  const log = pino({ level: 'trace' }, { write: (line) => logged.push(JSON.parse(line)) });
  const ctx: Context = {
    signal: controller.signal,
    log,
    devices: [{ kind: 'cpu', index: 0, uuid: 'cpu-0', name: 'test', memoryBytes: 0 }],
    attempt: 1,
    deadline: Date.now() + 60_000,
    traceparent: undefined,
    tracestate: undefined,
    progress: () => {},
    chunk: (output, metrics) => ({ output, metrics }),
    metrics: { add: () => {}, set: () => {} },
    tempFolder: () => {
      throw new Error('this context has no folder');
    },
    pauseGroup: () => {},
    pauseLimit: () => {},
    step: async (_, act) => act(),
    run: async () => {
      throw new Error('this context starts no children');
    },
    sleep: async () => {},
    refreshWorker: () => {},
  };
  return { ctx, controller, logged };
}

interface Streamed {
  outputs: unknown[];
  metrics: Record<string, number>[];
  returned: unknown;
}

/** Runs a handler's generator to its end. */
export async function collectStream(result: unknown): Promise<Streamed> {
  if (!isAsyncGenerator(result)) throw new Error('not an async generator');
  const outputs: unknown[] = [];
  const metrics: Record<string, number>[] = [];
  for (;;) {
    const { value, done } = await result.next();
    if (done) return { outputs, metrics, returned: value };
    const chunk = isChunk(value) ? value : { output: value, metrics: {} };
    outputs.push(chunk.output);
    metrics.push({ ...chunk.metrics });
  }
}

export function isAsyncGenerator(value: unknown): value is AsyncGenerator<unknown, unknown, void> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value;
}

function isChunk(value: unknown): value is ChunkWithMetrics {
  return typeof value === 'object' && value !== null && 'output' in value && 'metrics' in value;
}

interface TestServer extends AsyncDisposable {
  port: number;
  url: string;
  /** Before a byte was read. */
  onConnection(listener: () => void): void;
}

/** A real HTTP server on 127.0.0.1; leaving the scope ends it and all of its connections. */
export async function startServer(listener: RequestListener): Promise<TestServer> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://127.0.0.1:${port}`,
    onConnection(onConnection) {
      server.on('connection', onConnection);
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
