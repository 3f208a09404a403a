// Tracing in real handler threads: whose copy of the OpenTelemetry API is used, and when none is.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ThreadExecutor } from '../../../src/worker/execution/thread-executor.ts';
import { RecordingSink } from '../../support/network/recording-sink.ts';
import { cpu, makeLease, readOutput } from '../../support/workers/leases.ts';

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;
const require = createRequire(import.meta.url);
const locate = (name: string) => JSON.stringify(require.resolve(name));

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-tracing-'));
});
afterEach(() => rm(folder, { recursive: true }));

/** What the handler of this source returns for one traced job. */
async function runInThread(source: string): Promise<unknown> {
  const handlerPath = join(folder, 'handler.mjs');
  await writeFile(handlerPath, source);
  const executor = new ThreadExecutor({ handlerPath, devices: [cpu] });
  try {
    await executor.start();
    const lease = { ...makeLease({}), traceparent, tracestate: 'a=1' };
    const end = await executor.execute(lease, 60_000, new RecordingSink()).end;
    return end.outcome.kind === 'completed' ? readOutput(end) : end.outcome;
  } finally {
    await executor.stop();
  }
}

/** `loaded()`: what of OpenTelemetry the thread has loaded. */
const tellLoaded = `
  import { createRequire } from 'node:module';
  const { cache } = createRequire(import.meta.url);
  const loaded = () => Object.keys(cache).filter((file) => file.includes('opentelemetry'));
`;

const registerSdk = `
  import { context, trace } from ${locate('@opentelemetry/api')};
  import { AsyncLocalStorageContextManager } from ${locate('@opentelemetry/context-async-hooks')};
  import { BasicTracerProvider } from ${locate('@opentelemetry/sdk-trace-base')};
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(new BasicTracerProvider());
`;

/** A copy of the API beside the handler, which counts how often it is loaded. */
async function installApi(): Promise<void> {
  const home = join(folder, 'node_modules/@opentelemetry/api');
  await mkdir(home, { recursive: true });
  const source = `
    globalThis.authorsApi = (globalThis.authorsApi ?? 0) + 1;
    module.exports = require(${locate('@opentelemetry/api')});
  `;
  await writeFile(join(home, 'index.js'), source);
}

describe('a handler thread', () => {
  it('passes the trace to the handler', async () => {
    const source =
      'export default (job, { traceparent, tracestate }) => [traceparent, tracestate];';
    expect(await runInThread(source)).toEqual([traceparent, 'a=1']);
  });

  it('loads no OpenTelemetry for a module that does not use it', async () => {
    await installApi();
    expect(await runInThread(`${tellLoaded} export default () => loaded();`)).toEqual([]);
  });

  it('creates no span for a module with the API but no SDK', async () => {
    const source = `
      import { trace } from ${locate('@opentelemetry/api')};
      export default () => trace.getActiveSpan() ?? 'none';
    `;
    expect(await runInThread(source)).toBe('none');
  });

  it('uses the copy of the API that the author’s module resolves', async () => {
    await installApi();
    const source = `
      ${registerSdk}
      export default () => [globalThis.authorsApi, trace.getActiveSpan()?.spanContext().traceId];
    `;
    expect(await runInThread(source)).toEqual([1, traceId]);
  });

  it('uses its own copy if the author’s module bundles the API', async () => {
    const source = `${registerSdk} export default () => trace.getActiveSpan()?.spanContext().traceId;`;
    expect(await runInThread(source)).toBe(traceId);
  });
});
